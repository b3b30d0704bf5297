package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/writeset"
)

func TestMerge(t *testing.T) {
	rows := func(paths ...string) func(*Ledger) {
		return func(l *Ledger) { l.HasPaths, l.WritePaths = true, paths }
	}
	hashed := func(paths ...string) func(*Ledger) {
		return func(l *Ledger) { rows(paths...)(l); l.Writes = writeset.Digest(paths) }
	}
	for _, tt := range []struct {
		name                     string
		base, ours, theirs, want func(*Ledger)
		err                      string
	}{
		{name: "rows of both", base: rows("a"), ours: rows("a", "b"), theirs: rows("a", "c"), want: rows("a", "b", "c")},
		{name: "taken away by either", base: rows("a", "b", "c"), ours: rows("b", "c"), theirs: rows("a", "b"), want: rows("b")},
		{name: "the digest follows", base: hashed(), ours: hashed("a"), theirs: hashed("b"), want: hashed("a", "b")},
		{name: "the digest was dropped", base: hashed(), ours: hashed("a"), theirs: rows("b"), want: rows("a", "b")},
		{name: "digests alone", base: func(l *Ledger) { l.Writes = "x" }, ours: func(l *Ledger) { l.Writes = "y" }, theirs: func(l *Ledger) { l.Writes = "z" }, err: "writes"},
		{name: "a digest alone, of one side", base: func(l *Ledger) { l.Writes = "x" }, ours: func(l *Ledger) { l.Writes = "x" }, theirs: func(l *Ledger) { l.Writes = "z" }, want: func(l *Ledger) { l.Writes = "z" }},
		{name: "endpoints", base: nil, ours: func(l *Ledger) { l.AllowNet = []string{"b:1"} }, theirs: func(l *Ledger) { l.AllowNet = []string{"a:1", "b:1"} }, want: func(l *Ledger) { l.AllowNet = []string{"a:1", "b:1"} }},
		{name: "folds keep their order", base: func(l *Ledger) { l.Fold = []string{"z/**"} }, ours: func(l *Ledger) { l.Fold = []string{"y/**", "z/**"} }, theirs: func(l *Ledger) { l.Fold = []string{"z/**", "a/**"} },
			want: func(l *Ledger) { l.Fold = []string{"y/**", "z/**", "a/**"} }},
		{name: "places: the defaults are a list", base: nil, ours: nil, theirs: func(l *Ledger) { l.HasAllowWrite, l.AllowWrite = true, []string{"/tmp/**"} },
			want: func(l *Ledger) { l.HasAllowWrite, l.AllowWrite = true, []string{"/tmp/**"} }},
		{name: "the larger budget", base: func(l *Ledger) { l.CPUBudget = 1 }, ours: func(l *Ledger) { l.CPUBudget = 3 }, theirs: func(l *Ledger) { l.CPUBudget = 2 }, want: func(l *Ledger) { l.CPUBudget = 3 }},
		{name: "a budget that one side lowered", base: func(l *Ledger) { l.CPUBudget = 3 }, ours: func(l *Ledger) { l.CPUBudget = 3 }, theirs: func(l *Ledger) { l.CPUBudget = 2 }, want: func(l *Ledger) { l.CPUBudget = 2 }},
		{name: "the larger number of tests", base: func(l *Ledger) { l.MinTests = 10 }, ours: func(l *Ledger) { l.MinTests = 12 }, theirs: func(l *Ledger) { l.MinTests = 11 }, want: func(l *Ledger) { l.MinTests = 12 }},
		{name: "tests that one side no longer asks for", base: func(l *Ledger) { l.MinTests = 10 }, ours: func(l *Ledger) { l.MinTests = 10 }, theirs: nil, want: nil},
		{name: "one side set a value", base: nil, ours: nil, theirs: func(l *Ledger) { l.Mode, l.Prove = Audit, true }, want: func(l *Ledger) { l.Mode, l.Prove = Audit, true }},
		{name: "both set a value", base: nil, ours: func(l *Ledger) { l.Evidence = TierNotify }, theirs: func(l *Ledger) { l.Evidence = TierNamespace }, err: "evidence"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			side := func(f func(*Ledger)) *Ledger {
				l := &Ledger{Version: 1, CPUBudget: 1}
				if f != nil {
					f(l)
				}
				return l
			}
			got, changes, err := Merge(side(tt.base), side(tt.ours), side(tt.theirs))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want a conflict in %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(side(tt.want).Encode(), got.Encode()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if same := string(side(tt.ours).Encode()) == string(got.Encode()); same != (len(changes) == 0) && tt.name != "the digest was dropped" {
				t.Errorf("changes: got %+v", changes)
			}
		})
	}
}
