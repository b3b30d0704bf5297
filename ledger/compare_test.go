package ledger

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/writeset"
)

// kinds gives the drifts of a verdict as "column kind row".
func kinds(v Verdict) []string {
	var list []string
	for _, d := range v.Drifts {
		list = append(list, d.Column+" "+d.Kind+" "+d.Row)
	}
	return list
}

func reasons(v Verdict) []string {
	var list []string
	for _, r := range v.Reasons {
		list = append(list, r.Kind)
	}
	return list
}

func addWrite(r *Record, row WriteRow) {
	r.WriteRows = append(r.WriteRows, row)
	r.Derive()
}

func addNet(r *Record, endpoint string) {
	r.NetRows = append(r.NetRows, NetRow{Endpoint: endpoint, Count: 1, Witness: []string{WitnessPacket}})
	r.Derive()
}

func TestCompare(t *testing.T) {
	seen := []string{WitnessSyscall}
	for _, tc := range []struct {
		name    string
		edit    func(l *Ledger, r *Record, o *Options)
		want    Status
		exit    int
		drifts  []string
		reasons []string
	}{
		{"as accepted", func(*Ledger, *Record, *Options) {}, Match, 0, nil, nil},
		{"no command pinned", func(l *Ledger, _ *Record, o *Options) { l.Command = nil; o.CI = true }, Match, 0, nil, nil},
		{"digest alone", func(l *Ledger, _ *Record, _ *Options) { l.WritePaths, l.HasPaths = nil, false }, Match, 0, nil, nil},
		{"rows alone", func(l *Ledger, _ *Record, _ *Options) { l.Writes = "" }, Match, 0, nil, nil},
		{"an endpoint less", func(_ *Ledger, r *Record, _ *Options) { r.NetRows = nil; r.Derive() }, Match, 0, nil, nil},
		{"all the budget", func(l *Ledger, r *Record, _ *Options) { r.CPUSec = l.CPUBudget }, Match, 0, nil, nil},
		{"a fold that was not hit", func(_ *Ledger, r *Record, _ *Options) { r.WriteRows = r.WriteRows[1:]; r.Derive() }, Match, 0, nil, nil},
		{"another row under the fold", func(_ *Ledger, r *Record, _ *Options) {
			addWrite(r, WriteRow{Path: "cache/b", Fold: "cache/**", Witness: seen})
		}, Match, 0, nil, nil},
		{"a ledger that folds otherwise", func(l *Ledger, _ *Record, _ *Options) {
			l.Fold = []string{"**/a*"}
			l.WritePaths, l.Writes = []string{"**/a*"}, ""
		}, Match, 0, nil, nil},
		{"a new control", func(l *Ledger, r *Record, _ *Options) {
			l.Prove, r.PositiveControl = true, &PositiveControl{Passed: 2, Total: 2}
		}, Match, 0, nil, nil},

		{"as many tests", func(l *Ledger, r *Record, _ *Options) { l.MinTests, r.Tests = 20, &Tests{Passed: 20} }, Match, 0, nil, nil},
		{"fewer tests", func(l *Ledger, r *Record, _ *Options) { l.MinTests, r.Tests = 20, &Tests{Passed: 12, Skipped: 8} },
			DriftFound, 121, []string{"run fewer-tests passed 12, failed 0, skipped 8; min_tests is 20"}, nil},
		{"tests that nobody told of", func(l *Ledger, _ *Record, _ *Options) { l.MinTests = 20 }, Incomplete, 122, nil, []string{"tests"}},
		{"fewer tests in a part", func(l *Ledger, r *Record, _ *Options) {
			l.MinTests, r.Tests, l.Parts, r.Part = 20, &Tests{Passed: 12}, []string{"1", "2"}, "1"
		}, Partial, 0, nil, nil},
		{"an endpoint", func(_ *Ledger, r *Record, _ *Options) { addNet(r, "files.example.com:443") },
			DriftFound, 121, []string{"net extra files.example.com:443"}, nil},
		{"over budget", func(l *Ledger, r *Record, _ *Options) { r.CPUSec = math.Nextafter(l.CPUBudget, 99) },
			DriftFound, 121, []string{"cpu_sec over-budget 10.00 s of 10 s"}, nil},
		{"a row", func(_ *Ledger, r *Record, _ *Options) { addWrite(r, WriteRow{Path: "x", Witness: seen}) },
			DriftFound, 121, []string{"writes extra x"}, nil},
		{"a row of the snapshot alone", func(_ *Ledger, r *Record, _ *Options) {
			addWrite(r, WriteRow{Path: "x", Witness: []string{WitnessSnapshot}})
		}, DriftFound, 121, []string{"writes unattributed x"}, nil},
		{"an accepted row of the snapshot alone", func(_ *Ledger, r *Record, _ *Options) {
			r.WriteRows[1].Witness = []string{WitnessSnapshot}
		}, Match, 0, nil, nil},
		{"a row less", func(_ *Ledger, r *Record, _ *Options) { r.WriteRows = r.WriteRows[:1]; r.Derive() },
			DriftFound, 121, []string{"writes missing testdata/golden/a.json"}, nil},
		{"another digest", func(l *Ledger, _ *Record, _ *Options) { l.WritePaths, l.HasPaths, l.Writes = nil, false, emptyDigest },
			DriftFound, 121, []string{"writes digest " + goodRecord().Writes}, nil},
		{"outside", func(_ *Ledger, r *Record, _ *Options) {
			r.Outside = append(r.Outside, OutsideRow{Path: "$HOME/.gitconfig", Count: 1})
		}, DriftFound, 121, []string{"writes outside $HOME/.gitconfig"}, nil},
		{"outside, under a place this ledger lacks", func(l *Ledger, _ *Record, _ *Options) {
			l.HasAllowWrite, l.AllowWrite = true, []string{"/srv/**"}
		}, DriftFound, 121, []string{"writes outside $TMPDIR/**"}, nil},
		{"outside, since accepted", func(l *Ledger, r *Record, _ *Options) {
			l.HasAllowWrite, l.AllowWrite = true, []string{"$TMPDIR/**", "/srv/**"}
			r.Outside = append(r.Outside, OutsideRow{Path: "/srv/a/b", Count: 1})
		}, Match, 0, nil, nil},
		{"the ledger edited", func(_ *Ledger, r *Record, _ *Options) { r.LedgerFile.Changed = true },
			DriftFound, 121, []string{"run ledger-edited capability.ledger.json"}, nil},
		{"another command in CI", func(_ *Ledger, r *Record, o *Options) { r.Command, o.CI = []string{"true"}, true },
			DriftFound, 121, []string{"run other-command true"}, nil},

		{"another command", func(_ *Ledger, r *Record, _ *Options) {
			r.Command, r.WriteRows, r.NetRows = []string{"true"}, nil, nil
			r.Derive()
		}, Partial, 0, nil, nil},
		{"another command with a row", func(_ *Ledger, r *Record, _ *Options) {
			r.Command = []string{"true"}
			addWrite(r, WriteRow{Path: "x", Witness: seen})
		}, Partial, 121, []string{"writes extra x"}, nil},
		{"another command and a digest alone", func(l *Ledger, r *Record, _ *Options) {
			l.WritePaths, l.HasPaths, r.Command, l.Writes = nil, false, []string{"true"}, emptyDigest
		}, Partial, 121, []string{"writes digest " + goodRecord().Writes}, nil},
		{"another command with a gap", func(_ *Ledger, r *Record, _ *Options) { r.Command, r.Gaps = []string{"true"}, []Gap{{Kind: "x"}} },
			Incomplete, 122, nil, []string{"gap"}},

		{"one part", func(l *Ledger, r *Record, o *Options) {
			l.Parts, r.Part, o.CI = []string{"1", "2"}, "1", true
			r.WriteRows = nil
			r.Derive()
		}, Partial, 0, nil, nil},
		{"no part on a laptop", func(l *Ledger, _ *Record, _ *Options) { l.Parts = []string{"1"} }, Partial, 0, nil, nil},
		{"no part in CI", func(l *Ledger, _ *Record, o *Options) { l.Parts, o.CI = []string{"1"}, true }, Incomplete, 122, nil, []string{"part"}},
		{"a part of another ledger", func(l *Ledger, r *Record, _ *Options) { l.Parts, r.Part = []string{"1"}, "2" }, Incomplete, 122, nil, []string{"part"}},
		{"a part and no parts", func(_ *Ledger, r *Record, _ *Options) { r.Part = "1" }, Incomplete, 122, nil, []string{"part"}},

		{"a gap", func(_ *Ledger, r *Record, _ *Options) { r.Gaps = []Gap{{Kind: "write-cap", Detail: "too many"}} },
			Incomplete, 122, nil, []string{"gap"}},
		{"a gap and a row less", func(_ *Ledger, r *Record, _ *Options) {
			r.Gaps, r.WriteRows = []Gap{{Kind: "x"}}, r.WriteRows[:1]
			r.Derive()
		}, Incomplete, 122, []string{"writes missing testdata/golden/a.json"}, []string{"gap"}},
		{"a gap and an endpoint", func(_ *Ledger, r *Record, _ *Options) {
			r.Gaps = []Gap{{Kind: "x"}}
			addNet(r, "a.example.com:1")
		}, DriftFound, 121, []string{"net extra a.example.com:1"}, []string{"gap"}},
		{"interrupted", func(_ *Ledger, r *Record, _ *Options) { r.Interrupted = "SIGTERM" }, Incomplete, 122, nil, []string{"interrupted"}},
		{"weak", func(_ *Ledger, r *Record, _ *Options) { r.Evidence = TierWeak }, Incomplete, 122, nil, []string{"evidence"}},
		{"weak, as the ledger says", func(l *Ledger, r *Record, _ *Options) { l.Evidence, r.Evidence = TierWeak, TierWeak }, Match, 0, nil, nil},
		{"notify", func(_ *Ledger, r *Record, _ *Options) { r.Evidence = TierNotify }, Match, 0, nil, nil},
		{"notify for namespace", func(l *Ledger, r *Record, _ *Options) { l.Evidence, r.Evidence = TierNamespace, TierNotify },
			Incomplete, 122, nil, []string{"evidence"}},
		{"better than asked for", func(l *Ledger, _ *Record, _ *Options) { l.Evidence = TierNotify }, Match, 0, nil, nil},
		{"no tier", func(_ *Ledger, r *Record, _ *Options) { r.Evidence = "" }, Incomplete, 122, nil, []string{"record", "evidence"}},
		{"a tier that is none", func(l *Ledger, _ *Record, _ *Options) { l.Evidence = "best" }, Incomplete, 122, nil, []string{"evidence"}},
		{"no control", func(l *Ledger, _ *Record, _ *Options) { l.Prove = true }, Incomplete, 122, nil, []string{"positive-control"}},
		{"a failed control", func(l *Ledger, r *Record, _ *Options) {
			l.Prove, r.PositiveControl = true, &PositiveControl{Passed: 2, Total: 3}
		}, Incomplete, 123, nil, []string{"positive-control"}},
		{"a failed control nobody asked for", func(_ *Ledger, r *Record, _ *Options) {
			r.PositiveControl = &PositiveControl{Passed: 0, Total: 3}
		}, Incomplete, 123, nil, []string{"positive-control"}},
		{"a failed control and an endpoint", func(_ *Ledger, r *Record, _ *Options) {
			r.PositiveControl = &PositiveControl{}
			addNet(r, "a.example.com:1")
		}, Incomplete, 123, []string{"net extra a.example.com:1"}, []string{"positive-control"}},
		{"another version", func(l *Ledger, _ *Record, _ *Options) { l.Version = 2 }, Incomplete, 122, nil, []string{"version"}},
		{"a record that was edited", func(_ *Ledger, r *Record, _ *Options) { r.Net = nil }, Incomplete, 122, nil, []string{"record"}},
		{"a ledger that was never parsed", func(l *Ledger, _ *Record, _ *Options) { l.AllowNet = append(l.AllowNet, "x") },
			DriftFound, 121, []string{"net extra 127.0.0.1:5432"}, []string{"ledger"}},
		{"rows not listed under another fold", func(l *Ledger, r *Record, _ *Options) {
			r.Folded = []Folded{{Glob: "cache/**", Count: 5, Listed: 1}}
			l.Fold, l.WritePaths, l.Writes = nil, []string{"cache/a", "testdata/golden/a.json"}, ""
		}, Incomplete, 122, nil, []string{"folded"}},

		{"failed", func(_ *Ledger, r *Record, _ *Options) { r.Exit = 3 }, Failed, 3, nil, nil},
		{"failed with a row", func(_ *Ledger, r *Record, _ *Options) { r.Exit = 1; addWrite(r, WriteRow{Path: "x", Witness: seen}) },
			Failed, 1, []string{"writes extra x"}, nil},
		{"failed and blind", func(_ *Ledger, r *Record, _ *Options) { r.Exit, r.PositiveControl = 1, &PositiveControl{Total: 1} },
			Failed, 1, nil, []string{"positive-control"}},
		{"died of a signal", func(_ *Ledger, r *Record, _ *Options) { r.Exit, r.Signal = 139, "SIGSEGV" }, Failed, 139, nil, nil},
		{"over the time limit", func(_ *Ledger, r *Record, _ *Options) { r.Exit, r.Killed = 137, KilledTimeout }, Failed, 124, nil, []string{"killed"}},
		{"ended for its CPU", func(_ *Ledger, r *Record, _ *Options) { r.Exit, r.Killed, r.CPUSec = 137, KilledCPU, 9.9 },
			Failed, 124, []string{"cpu_sec over-budget 9.90 s of 10 s, and was ended there"}, []string{"killed"}},
		{"ended at the very end", func(_ *Ledger, r *Record, _ *Options) { r.Killed = KilledTimeout }, Failed, 124, nil, []string{"killed"}},

		{"audit, drift", func(l *Ledger, r *Record, _ *Options) { l.Mode = Audit; addNet(r, "a.example.com:1") },
			DriftFound, 0, []string{"net extra a.example.com:1"}, nil},
		{"audit, gap", func(l *Ledger, r *Record, _ *Options) { l.Mode, r.Gaps = Audit, []Gap{{Kind: "x"}} }, Incomplete, 0, nil, []string{"gap"}},
		{"audit, failed", func(l *Ledger, r *Record, _ *Options) { l.Mode, r.Exit = Audit, 2 }, Failed, 2, nil, nil},
		{"audit, killed", func(l *Ledger, r *Record, _ *Options) { l.Mode, r.Killed = Audit, KilledTimeout }, Failed, 124, nil, []string{"killed"}},
		{"audit by flag", func(_ *Ledger, r *Record, o *Options) { o.Mode = Audit; addNet(r, "a.example.com:1") },
			DriftFound, 0, []string{"net extra a.example.com:1"}, nil},
		{"enforce by flag", func(l *Ledger, r *Record, o *Options) { l.Mode, o.Mode = Audit, Enforce; addNet(r, "a.example.com:1") },
			DriftFound, 121, []string{"net extra a.example.com:1"}, nil},
		{"an audit's record is no excuse", func(_ *Ledger, r *Record, _ *Options) { r.Mode = Audit; addNet(r, "a.example.com:1") },
			DriftFound, 121, []string{"net extra a.example.com:1"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, r, o := goodLedger(), goodRecord(), Options{}
			tc.edit(l, r, &o)
			v := Compare(l, r, o)
			if v.Status != tc.want || v.ExitCode() != tc.exit {
				t.Errorf("got %s, exit %d, want %s, exit %d", v.Status, v.ExitCode(), tc.want, tc.exit)
			}
			if diff := cmp.Diff(tc.drifts, kinds(v)); diff != "" {
				t.Errorf("drifts (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.reasons, reasons(v)); diff != "" {
				t.Errorf("reasons (-want +got)\n%s", diff)
			}
			for _, d := range v.Drifts {
				if d.Cause == "" || d.Do == "" || d.Cause == "not known" {
					t.Errorf("%s %s %s: no cause or nothing to do", d.Column, d.Kind, d.Row)
				}
			}
		})
	}
}

// A verdict that nobody made must not pass, whatever the mode.
func TestExitCodeOfNothing(t *testing.T) {
	for _, v := range []Verdict{{}, {Mode: Audit}, {Status: "fine", Mode: Audit}} {
		if got := v.ExitCode(); got != ExitCannot {
			t.Errorf("%+v: got %d, want %d", v, got, ExitCannot)
		}
	}
}

func TestStale(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	l.AllowNet = []string{"*.example.com:443", "127.0.0.1:5432", "a.example.com:1"}
	addNet(r, "x.example.com:443")
	l.Fold = []string{"cache/**", "never/**"}
	l.WritePaths, l.Writes = append(l.WritePaths, "never/**"), ""
	l.HasAllowWrite, l.AllowWrite = true, []string{"$TMPDIR/**", "/srv/**"}
	l.CPUBudget = 60
	want := []string{
		"allow_net *.example.com:443 broad", "allow_net a.example.com:1", "fold never/**", "allow_write /srv/**", "cpu_budget 60",
	}
	stale := func() (got []string) {
		v := Compare(l, r, Options{})
		for _, s := range v.Stale {
			text := s.Key + " " + s.Entry
			if s.Broad {
				text += " broad"
			}
			got = append(got, text)
		}
		return got
	}
	if diff := cmp.Diff(want, stale()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	r.Exit = 1 // what a failed run did not need, a whole one may
	if diff := cmp.Diff(want[:1], stale()); diff != "" {
		t.Errorf("failed (-want +got)\n%s", diff)
	}
	l, r = goodLedger(), goodRecord()
	if got := stale(); got != nil {
		t.Errorf("got %v of a tight ledger", got)
	}
}

func TestSnapshotNote(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	r.WriteRows[1].Witness = []string{WitnessSnapshot}
	if v := Compare(l, r, Options{}); len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "testdata/golden/a.json") {
		t.Errorf("got %q, want a note that names the row", v.Notes)
	}
}

// random makes records and ledgers out of a few names, so that they meet often.
type random struct{ *rand.Rand }

func (r random) some(list ...string) []string {
	var some []string
	for _, s := range list {
		if r.IntN(2) == 0 {
			some = append(some, s)
		}
	}
	return some
}

func (r random) record() *Record {
	rec := goodRecord()
	rec.Fold = r.some("a/**", "b/*", "**/c")
	f, err := parseFolds(rec.Fold)
	if err != nil {
		panic(err)
	}
	rec.NetRows, rec.WriteRows = nil, nil
	for _, e := range r.some("127.0.0.1:5432", "a.example.com:1", "dns:b.example.com") {
		rec.NetRows = append(rec.NetRows, NetRow{Endpoint: e})
	}
	for _, p := range r.some("a/x", "a/c", "b/x", "b/*", "b/c", "c", "d", `"e\t"`, "*") {
		glob, err := f.match(p)
		if err != nil {
			panic(err)
		}
		rec.WriteRows = append(rec.WriteRows, WriteRow{Path: p, Fold: glob, Witness: r.some(WitnessSyscall, WitnessSnapshot)})
	}
	rec.CPUSec = float64(r.IntN(12))
	rec.Derive()
	return rec
}

func (r random) ledger(from *Record) *Ledger {
	l := &Ledger{Version: 1, Mode: Enforce, CPUBudget: 10, Fold: from.Fold, WritePaths: from.WritePaths, HasPaths: true, AllowNet: r.some(from.Net...)}
	if r.IntN(2) == 0 {
		l.Writes = from.Writes
	}
	if r.IntN(4) == 0 {
		l.Fold = r.some("a/**", "b/*", "**/c")
		set, err := fold(from.WriteRows, l.Fold)
		if err != nil {
			panic(err)
		}
		l.WritePaths, l.Writes = set.rows, ""
	}
	if r.IntN(4) == 0 {
		l.Writes, l.WritePaths, l.HasPaths = writeset.Digest(l.WritePaths), nil, false
	}
	return l
}

// A match means what the definition says, worked out again by other means.
func TestMatchMeansEqual(t *testing.T) {
	rnd := random{rand.New(rand.NewPCG(1, 2))}
	matches := 0
	for range 2000 {
		base := rnd.record()
		l := rnd.ledger(base)
		r := base
		if rnd.IntN(2) == 0 {
			r = rnd.record()
		}
		v := Compare(l, r, Options{CI: rnd.IntN(2) == 0})
		globs, err := writeset.ParseGlobs(l.Fold)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, w := range r.WriteRows {
			paths = append(paths, w.Path)
		}
		set, err := writeset.Refold(paths, globs)
		if err != nil {
			t.Fatal(err)
		}
		wanted := l.WritePaths
		equal := writeset.Digest(set) == l.Accepted() && (!l.HasPaths || slices.Equal(set, wanted))
		allowed := true
		for _, e := range r.Net {
			host, _, _ := strings.Cut(strings.TrimPrefix(e, "dns:"), ":")
			allowed = allowed && slices.ContainsFunc(l.AllowNet, func(a string) bool {
				return a == e || strings.HasPrefix(e, "dns:") && strings.HasPrefix(a, host+":")
			})
		}
		if want := equal && allowed && r.CPUSec <= l.CPUBudget; (v.Status == Match) != want {
			t.Fatalf("got %s, want match %v\nledger %s\nrecord %v under %v\nset %v", v.Status, want, l.Encode(), r.Net, r.WritePaths, set)
		}
		if v.Status == Match {
			matches++
		}
		if v.Writes != writeset.Digest(set) {
			t.Fatalf("digest: got %s, want that of %v", v.Writes, set)
		}
		// Whatever takes certainty away takes the match away.
		spoil := []func(){
			func() { r.Gaps = []Gap{{Kind: "x"}} },
			func() { r.Interrupted = "SIGINT" },
			func() { r.Killed = KilledTimeout },
			func() { r.Exit = 1 },
			func() { r.Evidence = TierWeak },
			func() { l.Prove = true },
			func() { r.LedgerFile = &LedgerFile{Changed: true} },
			func() { r.Net = append(r.Net, "x.example.com:1") },
			func() { r.PositiveControl = &PositiveControl{Passed: 1, Total: 2} },
		}
		spoil[rnd.IntN(len(spoil))]()
		if v := Compare(l, r, Options{}); v.Status == Match || v.ExitCode() == 0 {
			t.Fatalf("got %s, exit %d of a spoiled run", v.Status, v.ExitCode())
		}
	}
	if matches < 30 {
		t.Errorf("only %d matches: the test shows nothing", matches)
	}
}

// Compare of whatever parses must not panic, and not match with a gap.
func FuzzCompare(f *testing.F) {
	text, err := goodRecord().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(goodLedger().Encode(), text, true)
	f.Add([]byte(fullText()), text, false)
	f.Fuzz(func(t *testing.T, ledgerText, recordText []byte, ci bool) {
		l, err := Parse("l.json", ledgerText)
		if err != nil {
			return
		}
		r, err := ParseRecord("r.json", recordText)
		if err != nil {
			return
		}
		v := Compare(l, r, Options{CI: ci})
		if v.Status == Match && (len(r.Gaps) > 0 || v.Writes != l.Accepted() || len(v.Drifts) > 0 || len(v.Reasons) > 0) {
			t.Fatalf("match with %+v", v)
		}
	})
}

// Of a ledger and a record that no parser has seen, too.
func TestCompareOfAnything(t *testing.T) {
	for i, l := range []*Ledger{{}, {Fold: []string{"["}}, {AllowNet: []string{""}}, {WritePaths: []string{"/", ""}, HasPaths: true}} {
		for j, r := range []*Record{{}, {WriteRows: []WriteRow{{Path: ""}, {Path: "\"", Fold: "x"}}}, {NetRows: []NetRow{{}}}, {CPUSec: math.NaN()}} {
			t.Run(fmt.Sprint(i, j), func(t *testing.T) {
				if v := Compare(l, r, Options{}); v.Status == Match || v.ExitCode() == 0 {
					t.Errorf("got %s, exit %d", v.Status, v.ExitCode())
				}
			})
		}
	}
}

func TestExplain(t *testing.T) {
	for _, tc := range []struct{ column, kind, row, cause, do string }{
		{Writes, Extra, "pkg/__pycache__/a.cpython-311.pyc", "Python byte code", "PYTHONDONTWRITEBYTECODE=1"},
		{Writes, Extra, ".pytest_cache/v/cache/nodeids", "pytest's cache", "no:cacheprovider"},
		{Writes, Extra, ".next/build-manifest.json", "Next.js", "fold"},
		{Writes, Unattributed, "testdata/golden/a.json", "golden file", "durable"},
		{Writes, Extra, ".git/hooks/pre-commit", "hooks", "reject"},
		{Writes, Extra, ".git/index", "git", "GIT_OPTIONAL_LOCKS"},
		{Writes, Outside, "$HOME/.gitconfig", "settings", "HOME"},
		{Net, Extra, "unix:/run/docker.sock", "container daemon", "door"},
		{Net, Extra, "telemetry.nextjs.org:443", "telemetry", "DO_NOT_TRACK"},
		{Net, Extra, "127.0.0.1:5432", "PostgreSQL", "door"},
		{Net, Extra, "169.254.169.254:80", "metadata", "reject"},
		{Net, Extra, "files.pythonhosted.org:443", "download", "suite of its own"},
		{Net, Extra, "dns:fail2ban.org", "looked up", "localhost"},
		{Net, Extra, "files.example.com:443", "hidden download or telemetry", "time pressure"},
		{CPUSec, OverBudget, "12.00 s of 10 s", "retry loop", "reject"},
		{CPUSec, OverBudget, "10.01 s of 10 s" + endedThere, "unbounded loop", "not flakiness"},
	} {
		t.Run(tc.row, func(t *testing.T) {
			cause, do := explain(causes(), Drift{Column: tc.column, Kind: tc.kind, Row: tc.row})
			if !strings.Contains(cause, tc.cause) || !strings.Contains(do, tc.do) {
				t.Errorf("got %q: %q, want %q: %q in it", cause, do, tc.cause, tc.do)
			}
		})
	}
}

func TestFoldAgrees(t *testing.T) {
	rnd := random{rand.New(rand.NewPCG(3, 4))}
	for range 1000 {
		r := rnd.record()
		set, err := fold(r.WriteRows, r.Fold)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(set.rows, r.WritePaths) {
			t.Fatalf("got %v, want %v", set.rows, r.WritePaths)
		}
		n := 0
		for rows := range maps.Values(set.from) {
			n += len(rows)
		}
		if n != len(r.WriteRows) {
			t.Fatalf("%d of %d rows are somewhere", n, len(r.WriteRows))
		}
	}
}

// A ledger that was just seeded is not stale, however short the suite.
func TestSeededBudgetIsNotStale(t *testing.T) {
	for _, seconds := range []float64{0, 0.01, 0.5, 3, 120} {
		if got := Headroom(seconds); got > slackBudget(seconds) {
			t.Errorf("%v s: the first budget %v is called stale above %v", seconds, got, slackBudget(seconds))
		}
	}
}

// A suite that looks for what an earlier step left in /tmp fails, and is told.
func TestFailedInABox(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	r.Files = &Files{ReadOnly: true, Private: []string{"/tmp/**"}, Layered: []string{}}
	if v := Compare(l, r, Options{}); len(v.Notes) != 0 {
		t.Errorf("it passed: notes %q, want none", v.Notes)
	}
	r.Exit = 1
	v := Compare(l, r, Options{})
	if len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "/tmp/**") {
		t.Errorf("it failed: notes %q, want one on /tmp/**", v.Notes)
	}
}
