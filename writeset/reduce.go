package writeset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Result is column 3 of a run.
type Result struct {
	Rows      []Row        // sorted by Path
	Outside   []OutsideRow // sorted by Path
	Folded    []Folded     // fold globs with more paths than Rows lists, in the order of the ledger
	Protected []string     // the protected paths that were touched, sorted
	Gaps      []Gap
}

// Row is one path of the repository in normal form, or the transient names of
// one directory.
type Row struct {
	Path     string // as the ledger spells it: Quote of Raw, or "dir/*"
	Raw      string // bytes; for transient names the directory and "/*"
	Fold     string // the fold glob it counts as; "" for none
	Count    int64  // calls; 0 if only the snapshot tells
	Calls    []string
	Syscall  bool   // first witness: an event
	Snapshot bool   // second witness: the metadata before and after differ
	Actor    int    // index of who made the first call; -1: unknown
	Flag     string // why a human should look even if the row is accepted; "" for no reason
}

// Unattributed reports whether the path changed without any call that explains it.
func (r Row) Unattributed() bool { return !r.Syscall }

// OutsideRow is a path outside the repository, or all of one Place.
type OutsideRow struct {
	Path    string // quoted; "$HOME/..." below the home directory, else absolute; for a Place its entry
	Allowed string // the entry that covers it; "" for none
	Count   int64
	Calls   []string
	Actor   int
}

// Folded says how much of what a glob took in is listed in Rows.
type Folded struct {
	Glob   string
	Count  int64 // rows, and calls on paths that were only counted
	Listed int64 // rows
}

// Gap is something that was not kept. What a snapshot could not read is for the
// caller to judge: see Snapshot.Unreadable.
type Gap struct {
	Kind   string // "write-cap", "outside-cap"
	Detail string // one sentence
	Count  int64
}

// hostFlag is the Flag of what git runs, or reads commands from, outside the sandbox.
const hostFlag = "runs on the host later"

// Finish reduces what was recorded to normal form. The snapshots are of the
// repository before the first and after the last event; where they and the
// events differ on what existed, they are right. Nil ones witness nothing: the
// events decide. The Recorder is not to be used afterwards.
func (r *Recorder) Finish(before, after *Snapshot) Result {
	f := &finish{Recorder: r, before: before, after: after, rows: make(map[string]*Row)}
	f.visit(r.root, ".", ".")
	f.otherNames()
	if before != nil && after != nil {
		f.compare(Diff(before, after))
	}
	return f.result()
}

// finish is a reduction in progress.
type finish struct {
	*Recorder
	before, after *Snapshot
	rows          map[string]*Row // by Path
	origins       map[inode]Entry // of before, made by origin
}

// visit makes the rows of a node and of all below it. refuge is the nearest
// directory above that exists after the run.
func (f *finish) visit(n *node, rel, refuge string) {
	exists := f.stood(f.after, rel, n.exists)
	switch {
	case n.own.count == 0:
	case exists, f.stood(f.before, rel, n.before):
		f.row(Quote(rel), rel).add(&n.own)
	default:
		f.transient(refuge).add(&n.own)
	}
	home := refuge
	if exists && f.directory(rel) {
		home = rel
	}
	f.transientIf(home, &n.gone)
	if home != rel {
		f.transientIf(home, &tally{count: n.more, actor: -1})
	}
	for _, k := range n.kids {
		f.visit(k, join(rel, k.name), home)
	}
}

// directory reports whether a path that exists after the run, and had events
// below it, is still a directory.
func (f *finish) directory(rel string) bool {
	if f.after == nil || f.aliased(rel) {
		return true
	}
	e, ok := f.after.Lookup(rel)
	return !ok || e.Dir()
}

func (f *finish) row(path, raw string) *Row {
	row := f.rows[path]
	if row == nil {
		row = &Row{Path: path, Raw: raw, Actor: -1}
		f.rows[path] = row
	}
	return row
}

func (f *finish) transientIf(dir string, t *tally) {
	if t.count > 0 {
		f.transient(dir).add(t)
	}
}

func (f *finish) transient(dir string) *Row {
	return f.row(transientRow(dir), join(dir, "*"))
}

// add books the events of a tally, of which there is at least one.
func (r *Row) add(t *tally) {
	sum := tally{r.Count, r.Actor, r.Calls}
	sum.add(t)
	r.Count, r.Actor, r.Calls = sum.count, sum.actor, sum.calls
	r.Syscall = true
}

// otherNames makes rows of the names that had no event of their own, but whose
// inode was written under another name.
func (f *finish) otherNames() {
	for _, s := range []*Snapshot{f.before, f.after} {
		if s == nil || len(f.inodes) == 0 {
			continue
		}
		for dir, in := range s.dirs {
			for _, c := range in {
				if c.Nlink < 2 || c.Dir() {
					continue
				}
				sh := f.inodes[inode{c.Dev, c.Ino}]
				if sh == nil || !sh.written {
					continue
				}
				rel := join(dir, c.name)
				if path := Quote(rel); f.rows[path] == nil {
					f.row(path, rel).add(&sh.tally)
				}
			}
		}
	}
}

// compare books the second witness: what differs confirms a row, or follows from
// an event elsewhere, or is a row that no call explains.
func (f *finish) compare(changes []Change) {
	entries := make(map[string]bool) // directories whose entries differ
	for _, c := range changes {
		if c.Kind != Changed {
			dir, _ := split(c.Path)
			entries[dir] = true
		}
	}
	for _, c := range changes {
		if _, ok := f.protected[c.Path]; ok {
			f.protected[c.Path] = true
		}
		path := Quote(c.Path)
		if f.rows[path] == nil {
			ok, brought := f.explained(c)
			switch {
			case ok, entries[c.Path] && timesOnly(c.Before, c.After):
				continue
			case len(f.rows) >= f.cfg.Cap:
				f.lost++
				continue
			case brought != nil:
				f.row(path, c.Path).add(brought)
			}
		}
		f.row(path, c.Path).Snapshot = true
	}
}

// explained reports whether a change without an event on its own path follows
// from events elsewhere. If it does not, since the path came from outside with
// a directory above it, brought is the call that did it.
func (f *finish) explained(c Change) (ok bool, brought *tally) {
	n, rest := f.find(c.Path)
	if g := firstMatch(f.cfg.Fold, c.Path); g >= 0 && f.over[g] > 0 && rest != "" {
		return true, nil // its events were counted, not kept
	}
	movedTo, movedIn := false, false
	up := n
	if rest == "" {
		up = n.parent
	} else {
		n = nil
	}
	for ; up != nil; up = up.parent {
		movedTo = movedTo || up.movedTo
		movedIn = movedIn || up.movedIn
		if brought == nil && up.brought.count > 0 {
			brought = &up.brought
		}
	}
	switch {
	case c.Kind == Removed:
		return movedTo, nil
	case movedIn:
		old, ok := f.origin(c.After)
		return ok && f.follows(old, c.After, n), brought
	case c.Kind == Changed:
		return f.follows(c.Before, c.After, n), nil
	}
	return false, nil
}

// follows reports whether what differs between two states of an entry is a
// consequence of events on other paths. n is its node, nil if it has none.
func (f *finish) follows(old, now Entry, n *node) bool {
	switch {
	case old == now:
		return true
	case now.Dir():
		// The entries of a directory set its times and size. Overlayfs gives
		// each directory above a first write a new inode and ctime (copy-up).
		return n != nil && timesOnly(old, now) && (n.busy || len(n.kids) > 0 && old.Mtime == now.Mtime)
	case f.inodes[inode{now.Dev, now.Ino}] != nil, old.Nlink != now.Nlink:
		// A name of the file that came or went elsewhere: git makes such in the
		// objects of a clone whenever its origin is cloned again.
		old.Nlink, old.Ctime = now.Nlink, now.Ctime
		return old == now
	}
	return false
}

// timesOnly reports whether two states of a directory differ in nothing but what
// changes with its entries.
func timesOnly(old, now Entry) bool {
	return old.Dir() && now.Dir() && old.Mode == now.Mode && old.UID == now.UID && old.GID == now.GID
}

// origin finds what stood at an inode before the run.
func (f *finish) origin(now Entry) (Entry, bool) {
	if f.origins == nil {
		f.origins = make(map[inode]Entry, f.before.Len())
		for _, in := range f.before.dirs {
			for _, c := range in {
				f.origins[inode{c.Dev, c.Ino}] = c.Entry
			}
		}
	}
	old, ok := f.origins[inode{now.Dev, now.Ino}]
	return old, ok
}

// result sorts, folds and bounds the rows, and sums up the rest.
func (f *finish) result() Result {
	var res Result
	rows := make([]*Row, 0, len(f.rows))
	for _, row := range f.rows {
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *Row) int { return cmp.Compare(a.Path, b.Path) })

	folded := make([]Folded, len(f.cfg.Fold))
	for i, g := range f.cfg.Fold {
		folded[i] = Folded{Glob: g.String(), Count: f.over[i]}
	}
	for _, row := range rows {
		slices.Sort(row.Calls)
		row.Flag = flag(row.Raw)
		if _, ok := f.protected[row.Raw]; ok {
			f.protected[row.Raw] = true
		}
		if g := firstMatch(f.cfg.Fold, row.Raw); g >= 0 {
			row.Fold = f.cfg.Fold[g].String()
			folded[g].Count++
			if folded[g].Listed >= int64(f.cfg.FoldCap) && row.Syscall && row.Flag == "" {
				continue
			}
			folded[g].Listed++
		}
		res.Rows = append(res.Rows, *row)
	}
	for _, g := range folded {
		if g.Count > g.Listed {
			res.Folded = append(res.Folded, g)
		}
	}
	for p, touched := range f.protected {
		if touched {
			res.Protected = append(res.Protected, p)
		}
	}
	slices.Sort(res.Protected)
	res.Outside = f.outsideRows()
	res.Gaps = f.gaps()
	return res
}

// flag marks what git runs, or reads commands from, the next time anyone uses it.
func flag(raw string) string {
	if raw == ".git/config" || raw == ".git/hooks" || inside(".git/hooks", raw) {
		return hostFlag
	}
	return ""
}

func (f *finish) outsideRows() []OutsideRow {
	var rows []OutsideRow
	add := func(path, allowed string, t *tally) {
		slices.Sort(t.calls)
		rows = append(rows, OutsideRow{path, allowed, t.count, t.calls, t.actor})
	}
	for i, p := range f.cfg.Allow {
		if f.places[i].count > 0 {
			add(p.Entry, p.Entry, &f.places[i])
		}
	}
	for path, t := range f.outside {
		if rest, ok := below(f.cfg.Home, path); ok && f.cfg.Home != "" {
			path = strings.TrimSuffix("$HOME/"+rest, "/")
		}
		add(Quote(path), "", t)
	}
	slices.SortFunc(rows, func(a, b OutsideRow) int { return cmp.Compare(a.Path, b.Path) })
	return rows
}

func (f *finish) gaps() []Gap {
	var gaps []Gap
	if f.lost > 0 {
		gaps = append(gaps, Gap{"write-cap", fmt.Sprintf("more than %d paths of the repository were written; later ones were not kept", f.cfg.Cap), f.lost})
	}
	if f.outsideLost > 0 {
		gaps = append(gaps, Gap{"outside-cap", fmt.Sprintf("more than %d paths outside the repository were written; later ones were not kept", f.cfg.OutsideCap), f.outsideLost})
	}
	return gaps
}
