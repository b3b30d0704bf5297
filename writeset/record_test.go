package writeset

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// brief spells rows as "path xCOUNT witness [fold] [flag]". The witness is s for
// the syscall, w for the snapshot.
func brief(rows []Row) []string {
	list := make([]string, 0, len(rows))
	for _, r := range rows {
		s := fmt.Sprintf("%s x%d ", r.Path, r.Count)
		if r.Syscall {
			s += "s"
		}
		if r.Snapshot {
			s += "w"
		}
		if r.Fold != "" {
			s += " in " + r.Fold
		}
		if r.Flag != "" {
			s += " !"
		}
		list = append(list, s)
	}
	return list
}

func sorted(rows []string) []string {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return rows
}

func TestOutside(t *testing.T) {
	r := New(Config{
		Root: "/r", Home: "/home/u", OutsideCap: 3,
		Allow: []Place{{Entry: "$TMPDIR/**", Dir: "/tmp", Pattern: "**"}, {Entry: "/tmp/**", Dir: "/tmp", Pattern: "**"}},
	})
	old := State{Exists: true}
	actors := 0
	actor := func() int { actors++; return actors }
	for _, e := range []Event{
		{Op: Create, Call: "openat", Path: "/tmp/a"},
		{Op: Remove, Call: "unlink", Path: "/tmp/a", Before: old},
		{Op: Modify, Call: "openat", Path: "/home/u/.gitconfig", Before: old},
		{Op: Modify, Call: "truncate", Path: "/home/u/.gitconfig", Before: old},
		{Op: Rename, Call: "rename", Path: "/tmp/b", Before: old, To: "/etc/x\n"},
		{Op: Meta, Call: "chmod", Path: "/home/u", Before: old},
		{Op: Create, Call: "openat", Path: "/etc/one-too-many"},
		{Op: Create, Call: "openat", Path: "/rx"},
		{Op: Modify, Call: "openat", Path: "/dev/null", Before: State{Exists: true, Special: true}},
		{Op: Modify, Call: "openat", Path: "/proc/1/coredump_filter", Before: old},
	} {
		e.Actor = actor
		r.Record(e)
	}
	got := r.Finish(nil, nil)
	want := []OutsideRow{
		{`"/etc/x\n"`, "", 1, []string{"rename"}, 3},
		{"$HOME", "", 1, []string{"chmod"}, 4},
		{"$HOME/.gitconfig", "", 2, []string{"openat", "truncate"}, 2},
		{"$TMPDIR/**", "$TMPDIR/**", 3, []string{"openat", "rename", "unlink"}, 1},
	}
	if diff := cmp.Diff(want, got.Outside); diff != "" {
		t.Errorf("Outside (-want +got):\n%s", diff)
	}
	if len(got.Rows) > 0 {
		t.Errorf("rows inside: %v, want none", got.Rows)
	}
	if len(got.Gaps) != 1 || got.Gaps[0].Kind != "outside-cap" || got.Gaps[0].Count != 2 {
		t.Errorf("gaps: %v, want outside-cap of 2", got.Gaps)
	}
}

func TestAliases(t *testing.T) {
	r := New(Config{Root: "/r", Aliases: map[string]string{"/x/.git": ".git", "/x/.git/worktrees/w": ".git"}})
	old := State{Exists: true}
	for _, e := range []Event{
		{Op: Create, Call: "openat", Path: "/x/.git/worktrees/w/index.lock"},
		{Op: Rename, Call: "rename", Path: "/x/.git/worktrees/w/index.lock", Before: old, To: "/x/.git/worktrees/w/index", ToBefore: old},
		{Op: Create, Call: "openat", Path: "/x/.git/objects/tmp"},
		{Op: Remove, Call: "unlink", Path: "/x/.git/objects/tmp", Before: old},
		{Op: Meta, Call: "chmod", Path: "/x/.git/worktrees/w", Before: old},
		{Op: Create, Call: "openat", Path: "/r/a"},
	} {
		r.Record(e)
	}
	// The snapshots know nothing of what lies elsewhere; .git is a file in a worktree.
	snap := func(names ...string) *Snapshot {
		s := &Snapshot{self: Entry{Mode: typeDir}, dirs: map[string][]child{}}
		for _, n := range names {
			s.dirs["."] = append(s.dirs["."], child{name: n})
		}
		return s
	}
	got := r.Finish(snap(".git"), snap(".git", "a"))
	want := []string{".git x1 s", ".git/index x2 s", ".git/objects/* x2 s", "a x1 sw"}
	var rows []string
	for _, row := range got.Rows {
		s := fmt.Sprintf("%s x%d s", row.Path, row.Count)
		if row.Snapshot {
			s += "w"
		}
		rows = append(rows, s)
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestActorAndCalls(t *testing.T) {
	r := New(Config{Root: "/r"})
	old := State{Exists: true}
	as := func(i int) func() int { return func() int { return i } }
	r.Record(Event{Op: Create, Call: "openat", Path: "/r/t", Actor: as(1)})
	r.Record(Event{Op: Meta, Call: "fchmod", Path: "/r/t", Before: old, Actor: as(2)})
	r.Record(Event{Op: Rename, Call: "rename", Path: "/r/t", Before: old, To: "/r/a", Actor: as(3)})
	r.Record(Event{Op: Modify, Call: "openat", Path: "/r/b", Before: old})
	want := []Row{
		{Path: "a", Raw: "a", Count: 3, Calls: []string{"fchmod", "openat", "rename"}, Syscall: true, Actor: 1},
		{Path: "b", Raw: "b", Count: 1, Calls: []string{"openat"}, Syscall: true, Actor: -1},
	}
	if diff := cmp.Diff(want, r.Finish(nil, nil).Rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestBounded: whatever comes and goes, the tree of the recorder stays small.
func TestBounded(t *testing.T) {
	old := State{Exists: true}
	dir := State{Exists: true, Dir: true}
	t.Run("names that come and go", func(t *testing.T) {
		r := New(Config{Root: "/r"})
		for i := range 50_000 {
			path := fmt.Sprintf("/r/d/%d", i)
			r.Record(Event{Op: Create, Call: "openat", Path: path})
			r.Record(Event{Op: Remove, Call: "unlink", Path: path, Before: old})
		}
		if r.nodes != 1 || r.Live() != 1 {
			t.Errorf("%d nodes, %d live rows, want 1 and 1", r.nodes, r.Live())
		}
	})
	t.Run("directories that come and go", func(t *testing.T) {
		r := New(Config{Root: "/r"})
		for i := range 3 * maxDead {
			path := fmt.Sprintf("/r/%d", i)
			r.Record(Event{Op: Create, Call: "mkdir", Path: path})
			r.Record(Event{Op: Create, Call: "openat", Path: path + "/f"})
			r.Record(Event{Op: Remove, Call: "unlink", Path: path + "/f", Before: old})
			r.Record(Event{Op: Remove, Call: "rmdir", Path: path, Before: dir})
		}
		if r.nodes > maxDead {
			t.Errorf("%d nodes, want at most %d", r.nodes, maxDead)
		}
		got := r.Finish(nil, nil)
		if want := 12 * maxDead; len(got.Rows) != 1 || got.Rows[0].Path != "*" || got.Rows[0].Count != int64(want) || len(got.Gaps) > 0 {
			t.Errorf("got %v, gaps %v, want one row * of %d calls", got.Rows, got.Gaps, want)
		}
	})
	t.Run("folded paths", func(t *testing.T) {
		r := New(Config{Root: "/r", Fold: globs(t, "out/**"), FoldCap: 10, Cap: 100})
		for i := range 5_000 {
			r.Record(Event{Op: Create, Call: "mkdir", Path: fmt.Sprintf("/r/out/%d", i)})
			r.Record(Event{Op: Create, Call: "openat", Path: fmt.Sprintf("/r/out/%d/f", i)})
		}
		got := r.Finish(nil, nil)
		if len(got.Gaps) > 0 || len(got.Rows) != 10 || !cmp.Equal(got.Folded, []Folded{{"out/**", 10_000, 10}}) {
			t.Errorf("got %d rows, %v, gaps %v, want 10 of 10,000 and no gap", len(got.Rows), got.Folded, got.Gaps)
		}
	})
	t.Run("beyond the cap is a gap", func(t *testing.T) {
		r := New(Config{Root: "/r", Cap: 10})
		for i := range 15 {
			r.Record(Event{Op: Create, Call: "openat", Path: fmt.Sprintf("/r/%d", i)})
		}
		got := r.Finish(nil, nil)
		if len(got.Rows) != 10 || len(got.Gaps) != 1 || got.Gaps[0].Kind != "write-cap" || got.Gaps[0].Count != 5 {
			t.Errorf("got %d rows, gaps %v, want 10 rows and a write-cap of 5", len(got.Rows), got.Gaps)
		}
	})
}

// TestImpossible: calls that raced with others may be told in an order that no
// kernel would let pass. They are rows, never a panic or a loss.
func TestImpossible(t *testing.T) {
	dir := State{Exists: true, Dir: true}
	tests := []struct {
		name   string
		events []Event
		want   []string
	}{
		{"rename into itself", []Event{{Op: Rename, Path: "/r/a", Before: dir, To: "/r/a/b"}}, []string{"a", "a/b"}},
		{"rename onto its parent", []Event{{Op: Rename, Path: "/r/a/b", Before: dir, To: "/r/a", ToBefore: dir}}, []string{"a", "a/b"}},
		{"rename onto itself", []Event{{Op: Rename, Path: "/r/a", Before: dir, To: "/r/a", ToBefore: dir}}, []string{"a"}},
		{"exchange with its parent", []Event{{Op: Exchange, Path: "/r/a/b", Before: dir, To: "/r/a", ToBefore: dir}}, []string{"a", "a/b"}},
		{"removal of the root", []Event{{Op: Remove, Path: "/r", Before: dir}}, []string{"."}},
		{"rename of the root", []Event{{Op: Rename, Path: "/r", Before: dir, To: "/s"}}, []string{"."}},
		{"write to what is not there", []Event{{Op: Modify, Path: "/r/a"}, {Op: Remove, Path: "/r/a"}}, []string{"*"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New(Config{Root: "/r"})
			for _, e := range tt.events {
				r.Record(e)
			}
			var got []string
			for _, row := range r.Finish(nil, nil).Rows {
				got = append(got, row.Path)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	old := State{Exists: true, Dev: 1, Ino: 2, Nlink: 1}
	names := make([]string, 50_000)
	for i := range names {
		names[i] = fmt.Sprintf("/home/user/src/project/pkg/testdata/tmp/file_%d", i)
	}
	actor := func() int { return 1 }
	b.Run("create and unlink", func(b *testing.B) {
		r := New(Config{Root: "/home/user/src/project"})
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			path := names[i%len(names)]
			r.Record(Event{Op: Create, Call: "openat", Path: path, Actor: actor})
			r.Record(Event{Op: Remove, Call: "unlink", Path: path, Before: old, Actor: actor})
		}
	})
	b.Run("known path", func(b *testing.B) {
		r := New(Config{Root: "/home/user/src/project"})
		b.ReportAllocs()
		for b.Loop() {
			r.Record(Event{Op: Modify, Call: "openat", Path: names[0], Before: old, Actor: actor})
		}
	})
}

func TestLive(t *testing.T) {
	r := New(Config{Root: "/r"})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1_000 {
			r.Record(Event{Op: Create, Call: "openat", Path: fmt.Sprintf("/r/%d", i)})
		}
	}()
	for last := 0; last < 1_000; {
		now := r.Live()
		if now < last {
			t.Fatalf("Live went from %d to %d", last, now)
		}
		last = now
	}
	<-done
}

// A directory above the repository is renamed: what is written below has another
// path then, and comes back under the old one unseen.
func TestRepositoryIsMoved(t *testing.T) {
	dir := State{Exists: true, Dir: true}
	for _, tt := range []struct {
		name string
		e    Event
		want []string
	}{
		{"above it", Event{Op: Rename, Call: "rename", Path: "/a", To: "/z", Before: dir}, []string{". x1 s"}},
		{"its parent", Event{Op: Rename, Call: "rename", Path: "/a/b", To: "/a/z", Before: dir}, []string{". x1 s"}},
		{"exchanged", Event{Op: Exchange, Call: "renameat2", Path: "/y", To: "/a/b", Before: dir, ToBefore: dir}, []string{". x1 s"}},
		{"the git directory of a worktree", Event{Op: Rename, Call: "rename", Path: "/g", To: "/h", Before: dir}, []string{". x1 s"}},
		{"beside it", Event{Op: Rename, Call: "rename", Path: "/a/bb", To: "/a/z", Before: dir}, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := New(Config{Root: "/a/b/repo", Aliases: map[string]string{"/g/.git": ".git"}, Allow: []Place{{Entry: "/a/**", Dir: "/a", Pattern: "**"}}})
			r.Record(tt.e)
			if diff := cmp.Diff(tt.want, brief(r.Finish(nil, nil).Rows)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}
