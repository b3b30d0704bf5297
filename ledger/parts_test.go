package ledger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parts are two records of one suite with the parts a and b.
func parts() (*Ledger, []*Record) {
	l := &Ledger{Version: 1, Command: []string{"x"}, Parts: []string{"a", "b"}, CPUBudget: 5, HasPaths: true, WritePaths: []string{"both", "of-a", "of-b", "out/**"}, Fold: []string{"out/**"}, AllowNet: []string{"a.example.com:1"}}
	record := func(part string, cpu float64, rows ...string) *Record {
		r := goodRecord()
		r.Command, r.Part, r.CPUSec, r.Fold, r.Outside = []string{"x"}, part, cpu, []string{"out/**"}, nil
		r.NetRows, r.WriteRows, r.Folded, r.Findings = nil, nil, nil, nil
		for _, row := range rows {
			r.WriteRows = append(r.WriteRows, WriteRow{Path: row, Count: 1, Witness: []string{WitnessSyscall}})
		}
		r.Derive()
		return r
	}
	a, b := record("a", 1, "both", "of-a"), record("b", 4, "both", "of-b")
	a.NetRows = []NetRow{{Endpoint: "a.example.com:1", Count: 2, Witness: []string{WitnessSyscall}}}
	a.Derive()
	return l, []*Record{a, b}
}

func TestJoin(t *testing.T) {
	l, records := parts()
	records[0].Tests, records[1].Tests = &Tests{Passed: 2, Failed: 1}, &Tests{Passed: 3, Skipped: 4}
	r, err := Join(l, records, []string{"a.json", "b.json"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"both", "of-a", "of-b", "out/**"}, r.WritePaths); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if r.CPUSec != 4 || r.WriteRows[0].Count != 2 || len(r.Net) != 1 {
		t.Errorf("got %.0f s, %+v, %q", r.CPUSec, r.WriteRows[0], r.Net)
	}
	if diff := cmp.Diff(&Tests{5, 1, 4}, r.Tests); diff != "" || records[0].Tests.Passed != 2 {
		t.Errorf("tests (-want +got):\n%s", diff)
	}
	if v := Compare(l, r, Options{CI: true}); v.Status != Match {
		t.Errorf("got %+v, want a match", v)
	}
	// Alone, each is judged for extra rows.
	for _, r := range records {
		if v := Compare(l, r, Options{CI: true}); v.Status != Partial || len(v.Drifts) != 0 {
			t.Errorf("part %s: got %s %+v, want partial", r.Part, v.Status, v.Drifts)
		}
	}
}

// What one part lacks, all lack.
func TestJoinedVerdict(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(b *Record)
		want Status
	}{
		{"a row more", func(b *Record) {
			b.WriteRows = append(b.WriteRows, WriteRow{Path: "z", Witness: []string{WitnessSyscall}})
		}, DriftFound},
		{"a row less", func(b *Record) { b.WriteRows = b.WriteRows[:1] }, DriftFound},
		{"over the budget", func(b *Record) { b.CPUSec = 6 }, DriftFound},
		{"a gap", func(b *Record) { b.Gaps = []Gap{{Kind: "x"}} }, Incomplete},
		{"it failed", func(b *Record) { b.Exit = 1 }, Failed},
		{"it was interrupted", func(b *Record) { b.Interrupted = "SIGINT" }, Incomplete},
		{"weak evidence", func(b *Record) { b.Evidence = TierWeak }, Incomplete},
		{"it edited the ledger", func(b *Record) { f := *b.LedgerFile; f.Changed = true; b.LedgerFile = &f }, DriftFound},
		{"few tests", func(b *Record) { b.Tests = &Tests{Passed: 1} }, DriftFound},
		{"no tests told", func(b *Record) { b.Tests = nil }, Incomplete},
		{"another command", func(b *Record) { b.Command = []string{"true"} }, DriftFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, records := parts()
			l.MinTests = 5
			records[0].Tests, records[1].Tests = &Tests{Passed: 2}, &Tests{Passed: 3}
			tt.edit(records[1])
			records[1].Derive()
			r, err := Join(l, records, []string{"a.json", "b.json"})
			if err != nil {
				t.Fatal(err)
			}
			if v := Compare(l, r, Options{CI: true}); v.Status != tt.want {
				t.Errorf("got %s, want %s", v.Status, tt.want)
			}
		})
	}
}

func TestJoinRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(l *Ledger, a, b *Record)
		want string
	}{
		{"no parts", func(l *Ledger, a, b *Record) { l.Parts = nil }, "has no parts"},
		{"a part that is none", func(l *Ledger, a, b *Record) { b.Part = "c" }, `part "c"`},
		{"no part", func(l *Ledger, a, b *Record) { b.Part = "" }, `part ""`},
		{"twice", func(l *Ledger, a, b *Record) { b.Part = "a" }, "stands here again (first in a.json)"},
		{"missing", func(l *Ledger, a, b *Record) { l.Parts = []string{"a", "b", "c"} }, "no record of part c"},
		{"another commit", func(l *Ledger, a, b *Record) { b.Git = &Git{Commit: "z"} }, "commit"},
		{"another ledger", func(l *Ledger, a, b *Record) { b.LedgerFile = &LedgerFile{SHA256: "z"} }, "ledger"},
		{"another base", func(l *Ledger, a, b *Record) { b.Base = &BaseFile{SHA256: "z"} }, "base"},
		{"another mode", func(l *Ledger, a, b *Record) { b.Mode = Audit }, "mode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, records := parts()
			tt.edit(l, records[0], records[1])
			_, err := Join(l, records, []string{"a.json", "b.json"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
