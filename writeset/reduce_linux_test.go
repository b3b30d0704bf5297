package writeset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Form 1, which never changes: a ledger that names version 1 keeps its rows and
// its digest for ever. A case may be added here, where the form was silent, and
// none is edited: another meaning is another version.
func TestNormalForm1(t *testing.T) {
	tests := []struct {
		name   string
		before []string
		script string
		want   []string // as brief spells rows
	}{
		{"nothing", []string{"a"}, ``, []string{}},

		// What exists before or after is its own row.
		{"created", nil, `create a`, []string{"a x1 sw"}},
		{"changed", []string{"d/a"}, "write d/a\nwrite d/a", []string{"d/a x2 sw"}},
		{"chmod alone", []string{"a"}, `chmod a`, []string{"a x1 sw"}},
		{"removed", []string{"a"}, `remove a`, []string{"a x1 sw"}},
		{"removed and made again", []string{"a"}, "remove a\ncreate a", []string{"a x2 sw"}},
		{"made and removed, and it was there before", []string{"a"}, "remove a\ncreate a\nremove a", []string{"a x3 sw"}},
		{"the root itself", nil, `chmod .`, []string{". x1 sw"}},
		{"directories only", nil, "mkdir d\nmkdir d/e", []string{"d x1 sw", "d/e x1 sw"}},
		{"odd name", nil, "create a*\nmkdir b?\ncreate b?/t\nremove b?/t", []string{`"a*" x1 sw`, `"b?" x1 sw`, `"b?"/* x2 s`}},

		// What exists neither before nor after is transient.
		{"transient at the root", nil, "create a\nremove a", []string{"* x2 s"}},
		{"transient in a directory", []string{"d/"}, "create d/a\nwrite d/a\nremove d/a\ncreate d/b\nremove d/b", []string{"d/* x5 s"}},
		{"nearest directory that survives", []string{"d/"}, "mkdir d/t\nmkdir d/t/u\ncreate d/t/u/a\nremove d/t/u/a\nremove d/t/u\nremove d/t", []string{"d/* x6 s"}},
		{"its directory is removed and comes back", nil, "mkdir t\ncreate t/a\nremove t/a\nremove t\nmkdir t", []string{"t x1 sw", "* x2 s", "t/* x2 s"}},
		{"its directory was there and is gone", []string{"d/t/"}, "create d/t/a\nremove d/t/a\nremove d/t", []string{"d/* x2 s", "d/t x1 sw"}},
		{"its directory is a file in the end", []string{"d/t/"}, "create d/t/a\nremove d/t/a\nremove d/t\ncreate d/t", []string{"d/* x2 s", "d/t x2 sw"}},

		// Renames.
		{"temporary file renamed into place", []string{"a"}, "create a.tmp\nwrite a.tmp\nrename a.tmp a", []string{"a x3 sw"}},
		{"twice", nil, "create t1\nrename t1 a\ncreate t2\nrename t2 a", []string{"a x4 sw"}},
		{"chain of names", nil, "create t\nrename t u\nrename u v", []string{"v x3 sw"}},
		{"chain that ends in removal", []string{"d/"}, "create t\nrename t d/u\nremove d/u", []string{"d/* x3 s"}},
		{"what was there counts under both names", []string{"a"}, `rename a b`, []string{"a x1 sw", "b x1 sw"}},
		{"and back", []string{"a"}, "rename a b\nrename b a", []string{"a x3 sw"}},
		{"what was there, renamed, then removed", []string{"a"}, "rename a b\nremove b", []string{"* x2 s", "a x1 sw"}},
		{"directory takes along what was recorded", nil, "mkdir t\ncreate t/a\nmkdir t/s\ncreate t/s/b\nrename t d", []string{"d x2 sw", "d/a x1 sw", "d/s x1 sw", "d/s/b x1 sw"}},
		{"and what was transient", nil, "mkdir t\ncreate t/a\nremove t/a\nrename t d", []string{"d x2 sw", "d/* x2 s"}},
		{"directory that was there: its entries come along", []string{"d/a", "d/s/b"}, `rename d e`, []string{"d x1 sw", "e x1 sw"}},
		{"one of them was written before", []string{"d/a", "d/b"}, "write d/a\nrename d e", []string{"d x1 sw", "d/a x1 sw", "e x1 sw", "e/a x1 sw"}},
		{"one of them was written afterwards", []string{"d/a", "d/s/b"}, "rename d e\nwrite e/a\ncreate e/s/c", []string{"d x1 sw", "e x1 sw", "e/a x1 sw", "e/s/c x1 sw"}},
		{"one of them was removed before", []string{"d/a"}, "remove d/a\nrename d e", []string{"d x1 sw", "d/a x1 sw", "e x1 sw"}},
		{"one of them was removed afterwards", []string{"d/a"}, "rename d e\nremove e/a", []string{"d x1 sw", "e x1 sw", "e/* x1 s"}},
		{"directory over an empty one", []string{"d/a", "e/"}, "rename d e\nrename e/a e/b", []string{"d x1 sw", "e x1 sw", "e/b x1 sw"}},
		{"directory moved twice", []string{"d/a"}, "mkdir p\nrename d p/d\nrename p q", []string{"d x1 sw", "q x2 sw", "q/d x1 sw"}},
		{"directory away and back", []string{"d/a", "d/b"}, "write d/a\nrename d e\nrename e d", []string{"d x3 sw", "d/a x2 sw"}},
		{"exchange", []string{"a", "b"}, `exchange a b`, []string{"a x1 sw", "b x1 sw"}},
		{"exchange of directories", []string{"d/a", "e/b", "e/c"}, "create d/n\nexchange d e", []string{"d x1 sw", "e x1 sw", "e/n x1 sw"}},
		{"two names of one file", []string{"a"}, "link a b\nrename a b", []string{"a x1 sw", "b x1 sw"}},

		// Into and out of the repository.
		{"comes in", []string{"$OUT/a"}, `rename $OUT/a a`, []string{"a x1 sw"}},
		{"directory comes in", []string{"$OUT/d/a"}, `rename $OUT/d d`, []string{"d x1 sw", "d/a x1 sw"}},
		{"and is changed", []string{"$OUT/d/s/a", "$OUT/d/b"}, "rename $OUT/d d\nwrite d/b\nremove d/s/a\nrename d e", []string{"e x2 sw", "e/b x1 sw", "e/s x1 sw", "e/s/* x1 s"}},
		{"goes out", []string{"a"}, `rename a $OUT/a`, []string{"a x1 sw"}},
		{"directory goes out as it was", []string{"d/a", "d/s/b"}, "rename d $OUT/d", []string{"d x1 sw"}},
		{"exchanged with one outside", []string{"d/a", "d/b", "$OUT/d/b", "$OUT/d/c"}, "exchange d $OUT/d", []string{"d x1 sw", "d/b x1 sw", "d/c x1 sw"}},
		{"made here, goes out", []string{"d/"}, "create d/a\nrename d/a $OUT/a", []string{"d/* x2 s"}},
		{"directory goes out", []string{"d/a"}, "create d/b\nwrite d/a\nrename d $OUT/d", []string{"* x1 s", "d x1 sw", "d/a x1 sw"}},

		{"directory goes out, is changed there and comes back", []string{"d/a", "d/b"}, "rename d $OUT/d\nwrite $OUT/d/a\nrename $OUT/d e", []string{"d x1 sw", "e x1 sw", "e/a x1 sw"}},

		// Hard links.
		{"link", []string{"a"}, `link a b`, []string{"a x1 sw", "b x1 sw"}},
		{"link as a lock", nil, "create .#l\nlink .#l l\nremove .#l\nremove l", []string{"* x5 s"}},
		{"link from outside", []string{"$OUT/a"}, `link $OUT/a a`, []string{"a x1 sw"}},

		// What the snapshot alone sees.
		{"unseen write", []string{"a", "b"}, "!write a\nwrite b", []string{"a x0 w", "b x1 sw"}},
		{"unseen creation: one row, not its directory too", []string{"d/"}, `!create d/a`, []string{"d/a x0 w"}},
		{"unseen removal", []string{"d/a"}, `!remove d/a`, []string{"d/a x0 w"}},
		{"unseen chmod of a directory", []string{"d/a"}, "!chmod d\nwrite d/a", []string{"d x0 w", "d/a x1 sw"}},
		{"unseen write in a directory that was renamed", []string{"d/a", "d/b"}, "rename d e\n!write e/a", []string{"d x1 sw", "e x1 sw", "e/a x0 w"}},
		{"unseen file in a directory that was renamed", nil, "mkdir d\n!create d/a\nrename d e", []string{"e x2 sw", "e/a x0 w"}},
		{"unseen return", []string{"d/"}, "create d/a\nremove d/a\n!create d/a", []string{"d/* x2 s", "d/a x0 w"}},
		{"unseen removal of what was made", []string{"d/"}, "create d/a\n!remove d/a", []string{"d/* x1 s"}},
		{"unseen link: the count of links alone is no write", []string{"a"}, `!link a b`, []string{"b x0 w"}},

		// What runs on the host later.
		{"git hooks and configuration", []string{".git/config", ".git/hooks/"}, "write .git/config\ncreate .git/hooks/x\ncreate .git/hooks/t\nremove .git/hooks/t\ncreate .git/index",
			[]string{".git/config x1 sw !", ".git/hooks/* x2 s !", ".git/hooks/x x1 sw !", ".git/index x1 sw"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, Config{}, tt.before...)
			l.script(tt.script)
			got := l.rec.Finish(l.before, l.take())
			want := append([]string{}, tt.want...)
			if diff := cmp.Diff(sorted(want), sorted(brief(got.Rows))); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if len(got.Gaps) > 0 {
				t.Errorf("gaps: %v, want none", got.Gaps)
			}
		})
	}
}

// TestEventsAlone has no snapshots: the events know what was there.
func TestEventsAlone(t *testing.T) {
	l := newLab(t, Config{}, "a", "d/b")
	l.script(`
		write a
		create t
		remove t
		create d/t
		rename d/t d/b
		mkdir e
		create e/x
		remove e/x`)
	got := l.rec.Finish(nil, nil)
	want := []string{"* x2 s", "a x1 s", "d/b x2 s", "e x1 s", "e/* x2 s"}
	if diff := cmp.Diff(want, brief(got.Rows)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestHardLinkedNames: a write through one name is one to each of them.
func TestHardLinkedNames(t *testing.T) {
	tests := []struct {
		name, script string
		want         []string
	}{
		{"written", `write a`, []string{"a x1 sw", "b x1 sw"}},
		{"written through a name outside", `write $OUT/a`, []string{"a x1 sw", "b x1 sw"}},
		{"metadata", `chmod b`, []string{"a x1 sw", "b x1 sw"}},
		{"one name removed: the other is no write", `remove a`, []string{"a x1 sw"}},
		{"one name replaced", "create t\nrename t a", []string{"a x2 sw"}},
		{"one name removed, the other written unseen", "remove a\n!write b", []string{"a x1 sw", "b x0 w"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, Config{}, "a")
			l.script("link a b\nlink a $OUT/a")
			l.start(Config{Root: l.root})
			l.script(tt.script)
			got := l.rec.Finish(l.before, l.take())
			if diff := cmp.Diff(tt.want, brief(got.Rows)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFinishFolds(t *testing.T) {
	tests := []struct {
		name   string
		fold   []string
		script string
		rows   []string
		folded []Folded
	}{
		{"first match wins", []string{"out/*.log", "out/**"}, "create out/a.log\ncreate out/b",
			[]string{"out/a.log x1 sw in out/*.log", "out/b x1 sw in out/**"}, nil},
		{"transient names fold like a path", []string{"out/**"}, "create out/a\nremove out/a",
			[]string{"out/* x2 s in out/**"}, nil},
		{"a glob for names takes no transient row", []string{"out/a*"}, "create out/a\nremove out/a",
			[]string{"out/* x2 s"}, nil},
		{"beyond the bound they are counted", []string{"out/**"}, "create out/a\ncreate out/b\ncreate out/c\nwrite out/c\ncreate out/d",
			[]string{"out/a x1 sw in out/**", "out/b x1 sw in out/**"}, []Folded{{"out/**", 5, 2}}},
		{"and a transient one does not change the set", []string{"out/**"}, "create out/a\ncreate out/b\ncreate out/c\nremove out/c",
			[]string{"out/a x1 sw in out/**", "out/b x1 sw in out/**"}, []Folded{{"out/**", 4, 2}}},
		{"nor does one renamed into the glob", []string{"out/**"}, "create out/a\ncreate out/b\ncreate t\nrename t out/c",
			[]string{"out/a x1 sw in out/**", "out/b x1 sw in out/**"}, []Folded{{"out/**", 3, 2}}},
		{"renamed out of the glob it is a row", []string{"out/**"}, "create out/a\ncreate out/b\ncreate out/c\nrename out/c c",
			[]string{"c x1 sw", "out/a x1 sw in out/**", "out/b x1 sw in out/**"}, []Folded{{"out/**", 4, 2}}},
		{"a directory renamed in keeps what is below", []string{"out/*"}, "create out/a\ncreate out/b\nmkdir t\ncreate t/x\nrename t out/c",
			[]string{"out/a x1 sw in out/*", "out/b x1 sw in out/*", "out/c/x x1 sw"}, []Folded{{"out/*", 3, 2}}},
		{"a glob that cannot take the transient row is not counted early", []string{"out/*.o"}, "create out/1.o\ncreate out/2.o\ncreate out/3.o\nremove out/3.o",
			[]string{"out/* x2 s", "out/1.o x1 sw in out/*.o", "out/2.o x1 sw in out/*.o"}, nil},
		{"the directory of counted paths goes", []string{"**/c/**"}, "mkdir a\nmkdir a/c\ncreate a/c/1\ncreate a/c/2\nmkdir b\nmkdir b/c\ncreate b/c/3\nremove b/c/3\nremove b/c",
			[]string{"a x1 sw", "a/c x1 sw in **/c/**", "a/c/1 x1 sw in **/c/**", "b x1 sw", "b/* x3 s"}, []Folded{{"**/c/**", 5, 2}}},
		{"what no call explains is listed beyond the bound", []string{"out/**"}, "create out/a\ncreate out/b\n!chmod .\n!chmod out",
			[]string{". x0 w", "out x0 w in out/**", "out/a x1 sw in out/**"}, []Folded{{"out/**", 3, 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, Config{Fold: globs(t, tt.fold...), FoldCap: 2}, "out/")
			l.script(tt.script)
			got := l.rec.Finish(l.before, l.take())
			if diff := cmp.Diff(sorted(tt.rows), sorted(brief(got.Rows))); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.folded, got.Folded); diff != "" {
				t.Errorf("folded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	tests := []struct{ name, script string }{
		{"written", `write t/l.json`},
		{"made and removed", "remove t/l.json\ncreate t/l.json"},
		{"unseen", `!write t/l.json`},
		{"its directory is moved away and back", "rename t u\nrename u t"},
		{"written through another name", "link t/l.json x\nwrite x"},
		{"replaced by rename", "create x\nrename x t/l.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, Config{Protected: []string{"t/l.json", "other.json"}}, "t/l.json")
			l.script(tt.script)
			got := l.rec.Finish(l.before, l.take()).Protected
			if diff := cmp.Diff([]string{"t/l.json"}, got); diff != "" {
				t.Errorf("Protected (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("made and removed, was not there", func(t *testing.T) {
		l := newLab(t, Config{Protected: []string{"l.json"}})
		l.script("create l.json\nremove l.json")
		got := l.rec.Finish(l.before, l.take()).Protected
		if diff := cmp.Diff([]string{"l.json"}, got); diff != "" {
			t.Errorf("Protected (-want +got):\n%s", diff)
		}
	})
	t.Run("left alone", func(t *testing.T) {
		l := newLab(t, Config{Protected: []string{"t/l.json"}}, "t/l.json")
		l.script("create t/l.json2\nrename t/l.json2 t/x")
		if got := l.rec.Finish(l.before, l.take()).Protected; got != nil {
			t.Errorf("Protected = %q, want none", got)
		}
	})
}
