package writeset

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"
)

// Config is what a Recorder knows of the run. Root and the keys of Aliases are
// absolute and resolved, as the paths of events are.
type Config struct {
	Root    string            // the repository
	Aliases map[string]string // a directory elsewhere -> the repo-relative one it counts as: a worktree's git directory -> ".git"
	Home    string            // outside rows below it are spelled $HOME/...; "" for none

	// Before tells from the first event on which paths existed before the run.
	// Where it is nil, the state at the first event on a path has to do.
	Before *Snapshot

	Fold      []Glob
	Allow     []Place
	Protected []string // repo-relative paths (the ledgers) whose every change is reported

	Cap        int // directories and paths kept in memory for the repository; 0: 200,000
	OutsideCap int // rows outside that no Place covers; 0: 10,000
	FoldCap    int // paths kept for each fold glob, the rest is only counted; 0: 1,000
}

// maxDead bounds the removed directories that are remembered for what came and
// went below them, in case they come back.
const maxDead = 10_000

// Recorder takes events and keeps, for each path, what the normal form needs
// and no more: a name that comes and goes leaves a count at its directory.
//
// It is a tree of path components. A directory that is renamed takes its
// subtree along, and a lookup touches no memory but the nodes on its way.
type Recorder struct {
	cfg     Config
	aliases []alias // longest first
	root    *node
	nodes   int // of the tree, the root not counted
	dead    int // of these, removed directories kept for their gone
	lost    int64

	kept []int   // nodes per fold glob
	over []int64 // events per fold glob that were only counted

	places      []tally
	outside     map[string]*tally
	outsideLost int64

	inodes    map[inode]*shared
	protected map[string]bool // path -> touched

	live atomic.Int64
}

type alias struct{ dir, rel string }

// node is a path of the repository: touched itself, or on the way to one that was.
type node struct {
	name   string
	parent *node
	kids   map[string]*node

	own  tally // events on this path
	gone tally // events on names directly below that came and went
	more int64 // paths created below that are only counted, see counted

	fold    int  // 1 + the glob it counts for in Recorder.kept; 0: none
	before  bool // stood here before the run
	exists  bool // stands here now, as the events have it
	fresh   bool // own is about what stands here now, not about what stood here once
	busy    bool // an event hit a direct child
	dead    bool // removed, not here before, kept for what is below
	movedTo bool // the directory was renamed away, and its entries went along
	movedIn bool // a directory was renamed to here, and its entries came along

	// The renames that brought the directory from outside: what it holds made
	// no call of its own.
	brought tally
}

// tally sums up events.
type tally struct {
	count int64
	actor int // of the first event; -1: nobody
	calls []string
}

// inode identifies a file that has several names.
type inode struct{ dev, ino uint64 }

// shared is an inode with several names that an event touched.
type shared struct {
	tally
	written bool // contents or metadata, which each of its names shares
}

// New makes a Recorder.
func New(cfg Config) *Recorder {
	cfg.Root = strings.TrimSuffix(cfg.Root, "/")
	cfg.Cap = cmp.Or(cfg.Cap, 200_000)
	cfg.OutsideCap = cmp.Or(cfg.OutsideCap, 10_000)
	cfg.FoldCap = cmp.Or(cfg.FoldCap, 1_000)
	r := &Recorder{
		cfg:       cfg,
		root:      &node{before: true, exists: true},
		kept:      make([]int, len(cfg.Fold)),
		over:      make([]int64, len(cfg.Fold)),
		places:    make([]tally, len(cfg.Allow)),
		outside:   make(map[string]*tally),
		inodes:    make(map[inode]*shared),
		protected: make(map[string]bool),
	}
	for dir, rel := range cfg.Aliases {
		r.aliases = append(r.aliases, alias{strings.TrimSuffix(dir, "/"), rel})
	}
	slices.SortFunc(r.aliases, func(a, b alias) int {
		return cmp.Or(cmp.Compare(len(b.dir), len(a.dir)), cmp.Compare(a.dir, b.dir))
	})
	for _, p := range cfg.Protected {
		r.protected[p] = false
	}
	return r
}

// Live is the number of distinct rows so far, before folding. It may be called
// while another goroutine records.
func (r *Recorder) Live() int { return int(r.live.Load()) }

// Record books one call that is about to go on. Calls that cannot succeed must
// not be told; those on /proc, and on the contents of devices and pipes, are no
// writes to files and are ignored. It is called from one goroutine.
func (r *Recorder) Record(e Event) {
	if e.Op == Modify && e.Before.Special || strings.HasPrefix(e.Path, "/proc/") {
		return
	}
	if e.Op == Rename && e.ToBefore.Exists && e.Before.Ino != 0 &&
		e.Before.Ino == e.ToBefore.Ino && e.Before.Dev == e.ToBefore.Dev {
		return // two names of one file: rename(2) does nothing
	}
	r.share(&e)
	if r.carries(e.Path) && e.Op == Rename || e.Op == Exchange && (r.carries(e.Path) || r.carries(e.To)) {
		// From here on its paths are others, so that none of them can be told to be
		// the repository's. The move itself is a row.
		r.book(&r.root.own, &e)
	}
	switch e.Op {
	case Create:
		r.touch(e.Path, e.Before, made, &e)
	case Modify, Meta:
		r.touch(e.Path, e.Before, known, &e)
	case Remove:
		if n := r.touch(e.Path, e.Before, known, &e); n != nil {
			r.remove(n)
		}
	case Link:
		r.touch(e.Path, e.Before, known, &e)
		r.touch(e.To, e.ToBefore, made, &e)
	case Rename:
		r.rename(&e)
	case Exchange:
		r.exchange(&e)
	}
}

// carries reports whether the repository lies below a directory, or a part of it
// that lies elsewhere does.
func (r *Recorder) carries(dir string) bool {
	above := func(path string) bool {
		rest, ok := below(dir, path)
		return ok && rest != ""
	}
	return above(r.cfg.Root) || slices.ContainsFunc(r.aliases, func(a alias) bool { return above(a.dir) })
}

// touch books an event on one path, inside or outside. It returns the node of
// a path inside that is kept.
func (r *Recorder) touch(path string, st State, as sight, e *Event) *node {
	rel, ok := r.locate(path)
	if !ok {
		r.bookOutside(path, e)
		return nil
	}
	n := r.see(rel, st, as)
	if n != nil {
		r.book(&n.own, e)
		r.revive(n)
		n.fresh = true
	}
	return n
}

// locate turns an absolute path into a repo-relative one.
func (r *Recorder) locate(path string) (rel string, ok bool) {
	for _, a := range r.aliases {
		if rest, ok := below(a.dir, path); ok {
			if rest == "" {
				return a.rel, true
			}
			return join(a.rel, rest), true
		}
	}
	rest, ok := below(r.cfg.Root, path)
	if ok && rest == "" {
		rest = "."
	}
	return rest, ok
}

// bookOutside books an event on an absolute path outside the repository.
func (r *Recorder) bookOutside(path string, e *Event) {
	for i, p := range r.cfg.Allow {
		if p.Match(path) {
			r.places[i].hit(e)
			return
		}
	}
	t := r.outside[path]
	if t == nil {
		if len(r.outside) >= r.cfg.OutsideCap {
			r.outsideLost++
			return
		}
		t = &tally{}
		r.outside[strings.Clone(path)] = t
	}
	t.hit(e)
}

// find walks to the deepest known node on the way to a path. rest is what is
// left of the path, "" if the node is the path's own.
func (r *Recorder) find(rel string) (n *node, rest string) {
	if rel == "." {
		return r.root, ""
	}
	n, rest = r.root, rel
	for rest != "" {
		name, after, _ := strings.Cut(rest, "/")
		kid := n.kids[name]
		if kid == nil {
			break
		}
		n, rest = kid, after
	}
	return n, rest
}

// sight is what an event does to the path it names.
type sight uint8

const (
	known   sight = iota // the name exists
	made                 // the event makes the name
	carried              // it makes the name and brings along what is recorded below
)

// see finds the node of a path that is about to be touched. On first sight it is
// made, and st tells whether the path stood there before the run. nil: the path
// is not kept, since its glob or the whole recorder has enough.
func (r *Recorder) see(rel string, st State, as sight) *node {
	if _, ok := r.protected[rel]; ok {
		r.protected[rel] = true
	}
	n, rest := r.find(rel)
	if rest == "" {
		if n.parent != nil {
			n.parent.busy = true
		}
		return n
	}
	glob := firstMatch(r.cfg.Fold, rel)
	if glob >= 0 && as != carried && r.counted(n, rel, rest, glob, as) {
		return nil
	}
	for rest != "" {
		if r.nodes >= r.cfg.Cap {
			r.lost++
			return nil
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		n.busy = n.busy || rest == ""
		path := strings.TrimSuffix(rel[:len(rel)-len(rest)], "/")
		n = r.grow(n, name, path, rest != "" || st.Exists) // a directory on the way exists
	}
	if glob >= 0 {
		n.fold = glob + 1
		r.kept[glob]++
	}
	return n
}

// grow adds a node below another, for a path that is seen for the first time
// and exists or not.
func (r *Recorder) grow(in *node, name, rel string, exists bool) *node {
	n := &node{name: strings.Clone(name), parent: in, exists: exists}
	n.before = r.stood(r.cfg.Before, rel, in.before && exists)
	if in.kids == nil {
		in.kids = make(map[string]*node)
	}
	in.kids[n.name] = n
	r.nodes++
	return n
}

// stood reports whether a path exists in a snapshot; where that cannot tell, the
// events do.
func (r *Recorder) stood(s *Snapshot, rel string, events bool) bool {
	if s == nil || r.aliased(rel) {
		return events
	}
	_, ok := s.Lookup(rel)
	return ok || events && s.hides(rel)
}

// aliased reports whether a path stands for one outside the work tree, of which
// there is no snapshot.
func (r *Recorder) aliased(rel string) bool {
	return slices.ContainsFunc(r.aliases, func(a alias) bool { return rel == a.rel || inside(a.rel, rel) })
}

// drop takes a node out of the tree. What it and its subtree hold must have
// been moved before.
func (r *Recorder) drop(n *node) {
	for _, k := range n.kids {
		r.drop(k)
	}
	if n.fold > 0 {
		r.kept[n.fold-1]--
	}
	if n.dead {
		r.dead--
	}
	r.clear(&n.own)
	r.clear(&n.gone)
	delete(n.parent.kids, n.name)
	r.nodes--
}

// counted reports whether an unknown path is only counted: its fold glob has
// enough paths that are listed, and takes in the transient row of the deepest
// known directory above it as well, so that the set is the same whatever becomes of
// the path. Should that directory itself not survive, more tells that a path is
// to be accounted for at one above it.
func (r *Recorder) counted(above *node, rel, rest string, glob int, as sight) bool {
	if r.kept[glob] < r.cfg.FoldCap {
		return false
	}
	if firstMatch(r.cfg.Fold, rel[:len(rel)-len(rest)]+"*") != glob {
		return false
	}
	above.busy = true
	if as == made {
		above.more++
	}
	r.over[glob]++
	return true
}

// revive marks a path as standing.
func (r *Recorder) revive(n *node) {
	n.exists = true
	if n.dead {
		n.dead = false
		r.dead--
	}
}

// remove books that a path no longer stands. One that was not there before the
// run leaves the tree, and only its count stays with its directory.
func (r *Recorder) remove(n *node) {
	n.exists, n.fresh = false, false
	if n.before || n.dead {
		return
	}
	r.add(&n.parent.gone, &n.own)
	r.clear(&n.own)
	switch {
	case len(n.kids) == 0 && n.gone.count == 0 && n.more == 0:
		r.drop(n)
	case r.dead < maxDead:
		n.dead = true
		r.dead++
	default:
		r.sink(n, n.parent)
		r.drop(n)
	}
}

// sink moves everything at and below a node to the gone of another.
func (r *Recorder) sink(n, to *node) {
	r.add(&to.gone, &n.own)
	r.add(&to.gone, &n.gone)
	to.more += n.more
	for _, k := range n.kids {
		r.sink(k, to)
	}
}

// rename moves what is recorded at and below one path to another.
func (r *Recorder) rename(e *Event) {
	from, inFrom := r.locate(e.Path)
	to, inTo := r.locate(e.To)
	var s, t *node
	if inFrom {
		r.uproot(from)
		s = r.see(from, e.Before, known)
	} else {
		r.bookOutside(e.Path, e)
	}
	switch {
	case !inTo:
		r.bookOutside(e.To, e)
	case s != nil && len(s.kids) > 0:
		r.uproot(to)
		t = r.see(to, e.ToBefore, carried)
	default:
		r.uproot(to)
		t = r.see(to, e.ToBefore, made)
	}
	if s != nil {
		r.revive(s)
		s.movedTo = s.movedTo || e.Before.Dir
	}
	if t != nil {
		if s != nil && related(s, t) {
			r.book(&s.own, e)
			s = nil // into itself or onto its parent: cannot succeed, so there is nothing to carry
		}
		if s != nil {
			r.move(s, t, to)
		}
		t.movedIn = t.movedIn || e.Before.Dir
		if e.Before.Dir && !inFrom {
			t.brought.hit(e)
		}
		r.book(&t.own, e)
		r.revive(t)
		t.fresh = true
	}
	switch {
	case s == nil:
	case !inTo:
		r.book(&s.own, e)
		r.vanish(s)
	case s.before:
		r.book(&s.own, e)
		s.exists, s.fresh = false, false
	default:
		r.drop(s)
	}
}

// exchange swaps what is recorded at and below two paths.
func (r *Recorder) exchange(e *Event) {
	side := func(path string, st State) (rel string, n *node) {
		rel, ok := r.locate(path)
		if !ok {
			r.bookOutside(path, e)
			return "", nil
		}
		r.uproot(rel)
		if n = r.see(rel, st, carried); n != nil {
			r.revive(n)
			dirs := e.Before.Dir || e.ToBefore.Dir
			n.movedIn, n.movedTo = n.movedIn || dirs, n.movedTo || dirs
		}
		return rel, n
	}
	here, a := side(e.Path, e.Before)
	there, b := side(e.To, e.ToBefore)
	if a != nil && b != nil && !related(a, b) {
		limbo := &node{fresh: true}
		r.move(a, limbo, "") // no path: nothing was there before
		r.move(b, a, here)
		r.move(limbo, b, there)
	}
	for _, n := range []*node{a, b} {
		if n != nil {
			r.book(&n.own, e)
			n.fresh = true
			if a == nil || b == nil {
				n.brought.hit(e)
			}
		}
	}
}

// move carries what is recorded at and below s to t. What stood below s before
// the run keeps its row under the old name as well; the rest leaves s. The
// caller decides on s itself; at is the path of t.
func (r *Recorder) move(s, t *node, at string) {
	if s.fresh {
		r.add(&t.own, &s.own)
	}
	if !s.before {
		r.clear(&s.own)
	}
	r.add(&t.gone, &s.gone)
	r.clear(&s.gone)
	t.more, s.more = t.more+s.more, 0
	t.busy = t.busy || s.busy
	t.movedIn = t.movedIn || s.movedIn
	t.brought.add(&s.brought)
	s.brought = tally{}
	for name, k := range s.kids {
		to := t.kids[name]
		if to == nil {
			to = r.grow(t, name, join(at, name), false)
		}
		r.move(k, to, join(at, name))
		to.exists, to.fresh = k.exists, k.fresh
		if k.before {
			k.exists, k.fresh = false, false
		} else {
			r.drop(k)
		}
	}
}

// vanish books that a path and all below it left the repository.
func (r *Recorder) vanish(n *node) {
	for _, k := range n.kids {
		r.vanish(k)
	}
	r.remove(n)
}

// related reports whether one node is the other or lies below it.
func related(a, b *node) bool {
	for n := a; n != nil; n = n.parent {
		if n == b {
			return true
		}
	}
	for n := b; n != nil; n = n.parent {
		if n == a {
			return true
		}
	}
	return false
}

// uproot notes that the protected paths below a directory move with it.
func (r *Recorder) uproot(rel string) {
	for p := range r.protected {
		if inside(rel, p) {
			r.protected[p] = true
		}
	}
}

// share remembers the inodes with several names: Finish looks for the others.
func (r *Recorder) share(e *Event) {
	if e.Op == Link || e.Before.Nlink > 1 {
		r.shareInode(e.Before, e.Op == Modify || e.Op == Meta, e)
	}
	if e.ToBefore.Nlink > 1 {
		r.shareInode(e.ToBefore, false, e)
	}
}

func (r *Recorder) shareInode(st State, written bool, e *Event) {
	if !st.Exists || st.Dir || st.Ino == 0 {
		return
	}
	id := inode{st.Dev, st.Ino}
	s := r.inodes[id]
	if s == nil {
		if len(r.inodes) >= r.cfg.Cap {
			r.lost++
			return
		}
		s = &shared{}
		r.inodes[id] = s
	}
	if written {
		s.written = true
		s.hit(e)
	}
}

// book adds an event to the tally of a node.
func (r *Recorder) book(t *tally, e *Event) {
	if t.count == 0 {
		r.live.Add(1)
	}
	t.hit(e)
}

// add adds one tally of the tree to another.
func (r *Recorder) add(to, from *tally) {
	if to.count == 0 && from.count > 0 {
		r.live.Add(1)
	}
	to.add(from)
}

// clear empties a tally of the tree.
func (r *Recorder) clear(t *tally) {
	if t.count > 0 {
		r.live.Add(-1)
	}
	*t = tally{}
}

func (t *tally) hit(e *Event) {
	if t.count == 0 {
		t.actor = -1
		if e.Actor != nil {
			t.actor = e.Actor()
		}
	}
	t.count++
	t.called(e.Call)
}

func (t *tally) add(from *tally) {
	if from.count == 0 {
		return
	}
	if t.count == 0 {
		t.actor = from.actor
	}
	t.count += from.count
	for _, c := range from.calls {
		t.called(c)
	}
}

func (t *tally) called(name string) {
	if !slices.Contains(t.calls, name) {
		t.calls = append(t.calls, name)
	}
}
