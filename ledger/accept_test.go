package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/org/gate/writeset"
)

// changes gives changes as "key -old +new".
func changes(list []Change) []string {
	var all []string
	for _, c := range list {
		s := c.Key
		if c.Old != "" {
			s += " -" + c.Old
		}
		if c.New != "" {
			s += " +" + c.New
		}
		all = append(all, s)
	}
	return all
}

func TestAccept(t *testing.T) {
	seen := []string{WitnessSyscall}
	for _, tc := range []struct {
		name string
		edit func(l *Ledger, r *Record)
		want []string
	}{
		{"nothing new", func(*Ledger, *Record) {}, nil},
		{"an endpoint", func(_ *Ledger, r *Record) { addNet(r, "a.example.com:1") }, []string{"allow_net +a.example.com:1"}},
		{"rows", func(l *Ledger, r *Record) {
			l.Writes = ""
			r.WriteRows = r.WriteRows[:1]
			addWrite(r, WriteRow{Path: "x", Witness: seen})
		}, []string{"write_paths +x", "write_paths -testdata/golden/a.json"}},
		{"the digest alone", func(l *Ledger, r *Record) {
			l.WritePaths, l.HasPaths, l.Writes = nil, false, emptyDigest
		}, []string{"writes -" + emptyDigest + " +" + goodRecord().Writes}},
		{"a budget", func(_ *Ledger, r *Record) { r.CPUSec = 10.5 }, []string{"cpu_budget -10 +26"}},
		{"fewer tests", func(l *Ledger, r *Record) { l.MinTests, r.Tests = 20, &Tests{Passed: 12, Skipped: 8} }, []string{"min_tests -20 +12"}},
		{"no tests", func(l *Ledger, r *Record) { l.MinTests, r.Tests = 20, &Tests{} }, []string{"min_tests -20"}},
		{"more tests", func(l *Ledger, r *Record) { l.MinTests, r.Tests = 20, &Tests{Passed: 21} }, nil},
		{"a place outside", func(l *Ledger, r *Record) {
			r.Outside = append(r.Outside, OutsideRow{Path: "$HOME/.gitconfig"}, OutsideRow{Path: `"/srv/[$x]*\t"`}, OutsideRow{Path: "/opt"})
		}, []string{"allow_write +$HOME/.gitconfig", `allow_write +/srv/\[?x]\*?`, "allow_write +/opt"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, r := goodLedger(), goodRecord()
			tc.edit(l, r)
			before := string(l.Encode())
			n, got, err := Accept(l, r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, changes(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if after := string(l.Encode()); after != before {
				t.Errorf("the old ledger changed:\n%s", cmp.Diff(before, after))
			}
			if _, err := Parse("l.json", n.Encode()); err != nil {
				t.Fatal(err)
			}
			if v := Compare(n, r, Options{CI: true}); v.Status != Match {
				t.Errorf("got %s: %v %v, want a match with what was accepted", v.Status, kinds(v), v.Reasons)
			}
		})
	}
}

func TestAcceptPart(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	l.Parts, r.Part = []string{"1", "2"}, "1"
	r.WriteRows = nil
	addWrite(r, WriteRow{Path: "x", Witness: []string{WitnessSyscall}})
	n, got, err := Accept(l, r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"write_paths +x", "writes -" + l.Writes + " +" + n.Writes}; !slices.Equal(changes(got), want) {
		t.Errorf("got %v, want %v: another part may have written the rest", changes(got), want)
	}
}

func TestAcceptRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(l *Ledger, r *Record)
		want string
	}{
		{"a gap", func(_ *Ledger, r *Record) { r.Gaps = []Gap{{Kind: "write-cap", Detail: "too many"}} }, "write-cap"},
		{"failed", func(_ *Ledger, r *Record) { r.Exit = 1 }, "failed with status 1"},
		{"interrupted", func(_ *Ledger, r *Record) { r.Interrupted = "SIGINT" }, "SIGINT"},
		{"killed", func(_ *Ledger, r *Record) { r.Exit, r.Killed = 137, KilledCPU }, "gate ended the run"},
		{"blind", func(_ *Ledger, r *Record) { r.PositiveControl = &PositiveControl{Total: 1} }, "blind"},
		{"the ledger edited", func(_ *Ledger, r *Record) { r.LedgerFile.Changed = true }, "its own ledger"},
		{"another command", func(_ *Ledger, r *Record) { r.Command = []string{"true"} }, "another command"},
		{"a lower tier", func(_ *Ledger, r *Record) { r.Evidence = TierWeak }, "evidence"},
		{"no control", func(l *Ledger, _ *Record) { l.Prove = true }, "positive-control"},
		{"edited", func(_ *Ledger, r *Record) { r.Writes = emptyDigest }, "writes: found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, r := goodLedger(), goodRecord()
			tc.edit(l, r)
			for name, change := range map[string]func(*Ledger, *Record) (*Ledger, []Change, error){"accept": Accept, "tighten": Tighten} {
				if _, _, err := change(l, r); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q in it", name, err, tc.want)
				}
			}
		})
	}
}

func TestTighten(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	l.AllowNet = append(l.AllowNet, "*.example.com:443")
	l.Fold = append(l.Fold, "never/**")
	l.WritePaths = append(l.WritePaths, "never/**")
	slices.Sort(l.WritePaths)
	l.Writes = writeset.Digest(l.WritePaths)
	l.CPUBudget = 1000
	n, got, err := Tighten(l, r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"allow_net -*.example.com:443", "fold -never/**", "cpu_budget -1000 +12", "write_paths -never/**", "writes -" + l.Writes + " +" + n.Writes}
	if diff := cmp.Diff(want, changes(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	v := Compare(n, r, Options{})
	if v.Status != Match || len(v.Stale) > 0 {
		t.Errorf("got %s, stale %v", v.Status, v.Stale)
	}
	n.MinTests, r.Tests = 20, &Tests{Passed: 21}
	if _, got, err = Tighten(n, r); err != nil || !slices.Equal(changes(got), []string{"min_tests -20 +21"}) {
		t.Errorf("got %v, %v, want more tests asked for", changes(got), err)
	}
	addNet(r, "b.example.org:1")
	if _, _, err := Tighten(l, r); err == nil || Hint(err) != "gate accept" {
		t.Errorf("of drift: got %v, hint %q", err, Hint(err))
	}
}

// recordOf makes a record of a run that wrote these raw paths.
func recordOf(paths ...string) *Record {
	r := goodRecord()
	r.Fold, r.NetRows, r.WriteRows = nil, nil, nil
	for _, p := range paths {
		row := writeset.Quote(p)
		if dir, ok := strings.CutSuffix(p, "/*"); ok {
			row = writeset.Quote(dir) + "/*"
		} else if p == "*" {
			row = "*"
		}
		r.WriteRows = append(r.WriteRows, WriteRow{Path: row, Count: 1, Witness: []string{WitnessSyscall}})
	}
	r.Derive()
	return r
}

func TestSeedFolds(t *testing.T) {
	for _, tc := range []struct {
		name  string
		runs  [][]string
		folds []string
		rows  []string
	}{
		{"all the same", [][]string{{"a", "b"}, {"a", "b"}}, nil, []string{"a", "b"}},
		{"nothing", [][]string{{}, {}}, nil, nil},
		{"one comes sometimes", [][]string{{"d/a", "d/b"}, {"d/a"}}, []string{"d/b"}, []string{"d/a", "d/b"}},
		{"a random part before an extension", [][]string{{"testdata/sf-xkq.tmp"}, {"testdata/sf-Rz4.tmp"}}, []string{"testdata/sf-*.tmp"}, []string{"testdata/sf-*.tmp"}},
		{"the same beside a stable row", [][]string{{"t/a", "t/sf-xkq.tmp"}, {"t/a", "t/sf-Rz4.tmp"}}, []string{"t/sf-*.tmp"}, []string{"t/a", "t/sf-*.tmp"}},
		{"digits after letters", [][]string{{"target/x", "target/abc123.tmp", "target/abc77.tmp"}, {"target/x", "target/abc1299.tmp"}}, []string{"target/abc*.tmp"}, []string{"target/abc*.tmp", "target/x"}},
		{"digits between letters", [][]string{{"t/x", "t/surefire183tmp"}, {"t/x", "t/surefire973tmp"}}, []string{"t/surefire*tmp"}, []string{"t/surefire*tmp", "t/x"}},
		{"a date", [][]string{{"l/x", "l/2026-01-02T03_04.log"}, {"l/x", "l/2026-01-02T03_05.log"}}, []string{"l/*.log"}, []string{"l/*.log", "l/x"}},
		{"mkdtemp", [][]string{{"t/x", "t/tmpabcd/f"}, {"t/x", "t/tmpaxyz/f"}}, []string{"t/tmp*/**"}, []string{"t/tmp*/**", "t/x"}},
		{"a build id", [][]string{
			{".next/static/Xq2/m.js", ".next/static/Xq2", ".next/static/c.js"},
			{".next/static/p0Z/m.js", ".next/static/p0Z", ".next/static/c.js"},
		}, []string{".next/static/*/**"}, []string{".next/static/*/**"}},
		{"only in the cold run", [][]string{{"a", "target/debug/x", "target/y"}, {"a"}}, []string{"target/**"}, []string{"a", "target/**"}},
		{"byte code", [][]string{{"a", "p/__pycache__/x.pyc", "p/q/__pycache__/*"}, {"a"}}, []string{"**/__pycache__/**"}, []string{"**/__pycache__/**", "a"}},
		{"a directory that came and went, sometimes", [][]string{{"d/a", "d/*"}, {"d/a"}}, []string{`d/\*`}, []string{`d/\*`, "d/a"}},
		{"the same in the root", [][]string{{"a", "*"}, {"a"}}, []string{`\*`}, []string{`\*`, "a"}},
		{"new names in the root", [][]string{{"a", "Xq2", "p/x"}, {"a", "p0Z", "q/x"}}, []string{"Xq2", "p/**", "p0Z", "q/**"}, []string{"Xq2", "a", "p/**", "p0Z", "q/**"}},
		{"temporary names in the root", [][]string{{"a", "tmp1a"}, {"a", "tmp2b/x"}}, []string{"tmp*/**"}, []string{"a", "tmp*/**"}},
		{"names that are no glob", [][]string{{"d/a", "d/[x]*\t\xff{y}"}, {"d/a"}}, []string{`d/\[x]\*??\{y\}`}, []string{`d/\[x]\*??\{y\}`, "d/a"}},
		{"many in one directory", [][]string{{"d/x", "d/one", "d/two", "d/three", "d/four"}, {"d/x"}}, []string{"d/*"}, []string{"d/*"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var records []*Record
			for _, paths := range tc.runs {
				records = append(records, recordOf(paths...))
			}
			l, foldings, err := Seed(records, records[0].Command)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.folds, l.Fold); diff != "" {
				t.Errorf("folds (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.rows, l.WritePaths); diff != "" {
				t.Errorf("rows (-want +got)\n%s", diff)
			}
			for _, f := range foldings {
				if f.Reason == "" || len(f.Rows) == 0 {
					t.Errorf("%s: no reason or no rows", f.Glob)
				}
			}
		})
	}
}

func TestSeedPlaces(t *testing.T) {
	for _, tc := range []struct {
		name string
		runs [][]string
		want []string // beside the defaults
	}{
		{"none", [][]string{{}, {}}, nil},
		{"covered by the defaults", [][]string{{"/tmp/x1"}, {"/tmp/x2"}}, nil},
		{"all the same", [][]string{{"$HOME/.rc"}, {"$HOME/.rc"}}, []string{"$HOME/.rc"}},
		{"one comes sometimes", [][]string{{"$HOME/.rc"}, {}}, []string{"$HOME/.rc"}},
		{"names made from process ids", [][]string{
			{"$HOME/.python_history", "$HOME/.python_history-00043.tmp"},
			{"$HOME/.python_history", "$HOME/.python_history-00048.tmp", "$HOME/.python_history-00112.tmp"},
		}, []string{"$HOME/.python_history", "$HOME/.python_history-*.tmp"}},
		{"below the root", [][]string{{"/run12.pid"}, {"/run77.pid"}}, []string{"/run*.pid"}},
		{"no resemblance: no glob", [][]string{{"$HOME/Xq2"}, {"$HOME/p0Z"}}, []string{"$HOME/Xq2", "$HOME/p0Z"}},
		{"numbers alone: no glob", [][]string{{"$HOME/1234"}, {"$HOME/1235"}}, []string{"$HOME/1234", "$HOME/1235"}},
		{"names that are no glob", [][]string{{`"$HOME/a*$b-11"`}, {`"$HOME/a*$b-12"`}}, []string{`$HOME/a\*?b-*`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var records []*Record
			for _, paths := range tc.runs {
				r := recordOf("a")
				for _, p := range paths {
					r.Outside = append(r.Outside, OutsideRow{Path: p, Count: 1})
				}
				r.Derive()
				records = append(records, r)
			}
			l, _, err := Seed(records, records[0].Command)
			if err != nil {
				t.Fatal(err)
			}
			defaults := setOf(writeset.DefaultAllow())
			got := slices.DeleteFunc(slices.Clone(l.AllowWrite), func(entry string) bool { return defaults[entry] })
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("allow_write (-want +got)\n%s", diff)
			}
			if _, err := Parse("l.json", l.Encode()); err != nil {
				t.Error(err)
			}
			for _, r := range records {
				if v := Compare(l, r, Options{CI: true}); v.Status != Match {
					t.Errorf("got %s: %v", v.Status, kinds(v))
				}
			}
		})
	}
}

func TestSeedCollapses(t *testing.T) {
	stable, cold := []string{"a"}, []string{"a"}
	for i := range 20 {
		stable = append(stable, fmt.Sprintf("build/p%c/out/x", 'a'+i))
		cold = append(cold, fmt.Sprintf("build/p%c/out/x", 'a'+i), fmt.Sprintf("build/p%c/out/y", 'a'+i))
	}
	l, _, err := Seed([]*Record{recordOf(cold...), recordOf(stable...)}, []string{"make"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"build/**"}; !slices.Equal(l.Fold, want) {
		t.Errorf("got %v, want %v", l.Fold, want)
	}
}

func TestSeed(t *testing.T) {
	one, two := goodRecord(), goodRecord()
	for _, r := range []*Record{one, two} {
		r.Fold = nil
		r.WriteRows[0].Fold = ""
		r.Derive()
	}
	two.CPUSec = 7.6
	addNet(two, "dns:x.example.com")
	two.Outside = append(two.Outside, OutsideRow{Path: "$HOME/.x"})
	l, _, err := Seed([]*Record{one, two}, one.Command)
	if err != nil {
		t.Fatal(err)
	}
	want := &Ledger{
		Version: 1, Command: one.Command, Mode: Enforce, AllowNet: []string{"127.0.0.1:5432", "dns:x.example.com"}, CPUBudget: 21,
		WritePaths: []string{"cache/a", "testdata/golden/a.json"}, HasPaths: true, Writes: one.Writes,
		AllowWrite: append(writeset.DefaultAllow(), "$HOME/.x"), HasAllowWrite: true,
	}
	slices.Sort(want.AllowWrite)
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := Parse("l.json", l.Encode()); err != nil {
		t.Error(err)
	}
	if _, _, err := Seed([]*Record{one}, one.Command); err == nil {
		t.Error("one record: got no error")
	}
	two.Exit = 1
	if _, _, err := Seed([]*Record{one, two}, one.Command); err == nil || !strings.Contains(err.Error(), "run 2") {
		t.Errorf("a failed run: got %v", err)
	}
}

// Whatever the runs wrote, the ledger parses and every one of them matches it.
func TestSeedConverges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	names := []string{"a", "b", "tmpx1", "tmpy22", "sf-q.tmp", "sf-r.tmp", "\xff\t", "[x]", "{y}", "ä*", "*", "__pycache__", `"`, `\`, "$", "é1", "éé2", "0", "00", "x00", "y00"}
	for range 500 {
		var records []*Record
		for range 2 + rnd.IntN(3) {
			written := map[string]bool{}
			for range rnd.IntN(30) {
				var parts []string
				for range 1 + rnd.IntN(3) {
					parts = append(parts, names[rnd.IntN(len(names))])
				}
				// A path whose last name is * is one that came and went; the
				// directory above may be named * all the same.
				written[strings.Join(parts, "/")] = true
			}
			var paths []string
			for p := range written {
				paths = append(paths, p)
			}
			records = append(records, recordOf(paths...))
		}
		l, foldings, err := Seed(records, records[0].Command)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("l.json", l.Encode()); err != nil {
			t.Fatalf("%v\n%s", err, l.Encode())
		}
		for _, r := range records {
			if v := Compare(l, r, Options{CI: true}); v.Status != Match {
				t.Fatalf("got %s: %v\n%s", v.Status, kinds(v), l.Encode())
			}
		}
		for _, f := range foldings {
			if !slices.Contains(l.Fold, f.Glob) {
				t.Fatalf("%s is in no fold", f.Glob)
			}
		}
	}
}
