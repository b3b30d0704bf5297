package transcript

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n int) time.Time { return zero.Add(time.Duration(n) * time.Second) }

// read takes in pieces of output, a second apart.
func read(pieces ...string) *Transcript {
	t := &Transcript{}
	s := t.Stream()
	for i, p := range pieces {
		s.Read([]byte(p), second(i))
	}
	s.Close(second(len(pieces)))
	return t
}

func TestCounts(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       *Counts
	}{
		{"nothing", "hello\nok\nPASS\n", nil},
		{"go test", "ok  \texample.com/a\t0.1s\n--- FAIL: TestA (0.00s)\nFAIL\n", nil},
		{"go test -v", "=== RUN   TestA\n=== RUN   TestA/x\n--- PASS: TestA (0.00s)\n    --- PASS: TestA/x (0.00s)\n=== RUN   TestB\n    b_test.go:3: why\n--- SKIP: TestB (0.00s)\n=== RUN   TestC\n--- FAIL: TestC (0.00s)\nFAIL\n", &Counts{2, 1, 1}},
		{"pytest", "============ test session starts ============\na.py ..s                  [100%]\n========= 2 passed, 1 skipped in 0.02s =========\n", &Counts{2, 0, 1}},
		{"pytest with everything", "= 1 failed, 2 passed, 3 skipped, 4 deselected, 5 xfailed, 6 xpassed, 7 warnings, 8 errors in 61.02s (0:01:01) =\n", &Counts{8, 9, 8}},
		{"pytest -q", "3 passed in 0.01s\n", &Counts{3, 0, 0}},
		{"pytest without tests", "========= no tests ran in 0.00s =========\n", &Counts{}},
		{"pytest twice, in colours", "\x1b[32m=== \x1b[32m\x1b[1m2 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m\x1b[32m ===\x1b[0m\r\n1 passed in 0.01s\n", &Counts{3, 0, 0}},
		{"unittest", "....\n------\nRan 4 tests in 0.001s\n\nOK\n", &Counts{4, 0, 0}},
		{"unittest with everything", "Ran 9 tests in 0.001s\n\nFAILED (failures=1, errors=2, skipped=1, expected failures=1, unexpected successes=1)\n", &Counts{3, 4, 2}},
		{"unittest without an end", "Ran 9 tests in 0.001s\n", nil},
		{"OK alone", "OK\n", nil},
		{"TAP", "TAP version 13\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no network\nnot ok 4 - d # TODO later\n1..4\n", &Counts{1, 1, 2}},
		{"TAP with the plan last", "ok 1\nok 2\n1..2\n", &Counts{2, 0, 0}},
		{"TAP of nothing", "1..0 # SKIP no compiler\n", &Counts{}},
		{"no TAP", "ok 1 - a\nok, done\n", nil},
		{"node's spec", "✔ a (0.5ms)\n﹣ b # SKIP\nℹ tests 3\nℹ suites 0\nℹ pass 1\nℹ fail 1\nℹ cancelled 0\nℹ skipped 1\nℹ todo 0\nℹ duration_ms 50.1\n", &Counts{1, 1, 1}},
		{"Jest", "PASS ./a.test.js\nTests:       1 failed, 1 skipped, 2 todo, 5 passed, 9 total\nSnapshots:   0 total\n", &Counts{5, 1, 3}},
		{"Jest without tests", "Tests:       0 total\n", &Counts{}},
		{"Vitest", " Test Files  1 failed | 1 passed (2)\n      Tests  1 failed | 5 passed | 1 skipped (7)\n", &Counts{5, 1, 1}},
		{"Mocha", "  5 passing (12ms)\n  1 pending\n  2 failing\n", &Counts{5, 2, 1}},
		{"cargo", "test a::b ... ok\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n", &Counts{4, 0, 1}},
		{"Surefire", "[INFO] Running a.BTest\n[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.03 s - in a.BTest\n[INFO] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1\n", &Counts{2, 2, 1}},
		{"RSpec", "10 examples, 1 failure, 2 pending\n", &Counts{7, 1, 2}},
		{"gotestsum", "DONE 12 tests, 2 skipped, 1 failure in 0.500s\n", &Counts{9, 1, 2}},
		{"two runners", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nok  \ta\t0.1s\n2 passed in 0.01s\n", &Counts{3, 0, 0}},
		{"a line without an end", "3 passed in 0.01s", &Counts{3, 0, 0}},
		{"a number beyond all", "99999999999999999999 passed in 0.01s\n", &Counts{}},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			// However the text is cut, it says the same.
			for _, size := range []int{len(tt.text), 1, 7} {
				tr := &Transcript{}
				s := tr.Stream()
				for text := tt.text; text != ""; {
					n := min(size, len(text))
					s.Read([]byte(text[:n]), zero)
					text = text[n:]
				}
				s.Close(zero)
				var got *Counts
				if c, ok := tr.Tests(); ok {
					got = &c
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("in pieces of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

// What real runners printed of small suites of ours; testdata/README.md says how.
func TestRealRunners(t *testing.T) {
	for _, tt := range []struct {
		file string
		want Counts
	}{
		{"go-json", Counts{4, 1, 1}},
		{"go-v", Counts{4, 1, 1}},
		{"pytest", Counts{3, 1, 2}},
		{"pytest-v", Counts{3, 1, 2}},
		{"pytest-q", Counts{3, 1, 2}},
		{"pytest-xdist-v", Counts{3, 1, 2}},
		{"unittest-v", Counts{2, 1, 1}},
		{"node-tap", Counts{3, 1, 1}},
		{"node-spec", Counts{3, 1, 1}},
		{"jest-verbose", Counts{2, 1, 1}},
		{"mocha", Counts{2, 1, 1}},
		{"vitest", Counts{2, 1, 1}},
		{"prove-v", Counts{2, 1, 1}},
	} {
		t.Run(tt.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", tt.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			got, ok := read(string(text)).Tests()
			if !ok || got != tt.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, tt.want)
			}
		})
	}
}

func TestAt(t *testing.T) {
	running := func(names ...string) Told { return Told{Running: names} }
	next := func(name string) Told { return Told{Next: name} }
	event := func(n int, action, test string) string {
		return `{"Time":"` + second(n).Format(time.RFC3339Nano) + `","Action":"` + action + `","Package":"p","Test":"` + test + `"}` + "\n"
	}
	for _, tt := range []struct {
		name   string
		pieces []string // at the seconds 0, 1, 2, ...
		want   []Told   // at 0.5, 1.5, ...
	}{
		{
			"go test -v",
			[]string{"=== RUN   TestA\n", "=== RUN   TestA/x\n", "    --- PASS: TestA/x (0.00s)\n", "--- PASS: TestA (0.00s)\n", "=== RUN   TestB\n"},
			[]Told{running("TestA"), running("TestA/x"), running("TestA"), {}, running("TestB")},
		},
		{
			"parallel tests",
			[]string{"=== RUN   TestA\n=== PAUSE TestA\n=== RUN   TestB\n=== PAUSE TestB\n", "=== CONT  TestB\n=== CONT  TestA\n", "--- PASS: TestA (0.00s)\n"},
			[]Told{{}, running("TestA", "TestB"), running("TestB")},
		},
		{
			// Of one package after another: its lines come after its end.
			"go test -v of several packages",
			[]string{"", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nok  \tp\t1s\n"},
			[]Told{{}, {}},
		},
		{
			// Its own times count: the lines come late.
			"go test -json",
			[]string{"", "", event(0, "run", "TestA") + event(1, "pass", "TestA") + event(1, "run", "TestB") + event(2, "pass", "TestB")},
			[]Told{running("p.TestA"), running("p.TestB"), {}},
		},
		{
			"pytest -v",
			[]string{"collected 2 items\n\n", "t.py::test_a ", "PASSED [ 50%]\nt.py::test_b[x y] ", "FAILED [100%]\n", "=== 1 failed, 1 passed in 2s ===\n"},
			[]Told{{}, running("t.py::test_a"), running("t.py::test_b[x y]"), {}, {}},
		},
		{
			"pytest",
			[]string{"a/t.py ", ".", ". [ 50%]\n", "b.py ", "F [100%]\n"},
			[]Told{running("a/t.py"), running("a/t.py"), {}, running("b.py"), {}},
		},
		{
			"pytest-xdist -v",
			[]string{"t.py::test_a \nt.py::test_b \n", "[gw1] [ 50%] PASSED t.py::test_a \n", "[gw0] [100%] FAILED t.py::test_b \n"},
			[]Told{running("t.py::test_a", "t.py::test_b"), running("t.py::test_b"), {}},
		},
		{
			"unittest -v",
			[]string{"test_a (m.T.test_a) ... ", "ok\ntest_b (m.T.test_b)\nWhat it shows. ... ", "ok\n\n----\nRan 2 tests in 1s\n\nOK\n"},
			[]Told{running("test_a (m.T.test_a)"), running("test_b (m.T.test_b)"), {}},
		},
		{
			"TAP",
			[]string{"TAP version 13\n", "ok 1 - a\n", "not ok 2 - b # 3 ms\n"},
			[]Told{next("a"), next("b"), {}},
		},
		{
			"Jest",
			[]string{"", "PASS src/a.test.js\n  ✓ one (2 ms)\n", "FAIL src/b.test.js (5.1 s)\n"},
			[]Told{next("src/a.test.js"), next("src/b.test.js"), {}},
		},
		{
			"cargo",
			[]string{"running 2 tests\n", "test a::b ... ok\n"},
			[]Told{next("a::b"), {}},
		},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			var moments []time.Time
			for i := range tt.want {
				moments = append(moments, second(i).Add(time.Second/2))
			}
			if diff := cmp.Diff(tt.want, read(tt.pieces...).At(moments)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplays(t *testing.T) {
	got := read("ok  \ta\t(cached)\nok  \tb\t(cached)\nok  \tc\t0.1s\n",
		`{"Time":"2026-01-01T00:00:00Z","Action":"output","Package":"a","Output":"ok  \ta\t(cached)\n"}`+"\n",
		"> Task :compileJava UP-TO-DATE\n> Task :testClasses UP-TO-DATE\n> Task :app:test UP-TO-DATE\n> Task :integrationTest FROM-CACHE\n",
		"//a:b_test                 (cached) PASSED in 0.1s\n//a:c_test   PASSED in 0.1s\n",
		"web:test: cache hit, replaying logs 0f3a\nweb:test: cache miss, executing 0f3a\n",
		"> nx run web:test  [local cache]\n> nx run b:test\n",
	).Replays()
	want := []Replay{
		{"go test", "ok  \ta\t(cached)", 3},
		{"gradle", "> Task :app:test UP-TO-DATE", 2},
		{"bazel", "//a:b_test                 (cached) PASSED in 0.1s", 1},
		{"turbo", "web:test: cache hit, replaying logs 0f3a", 1},
		{"nx", "> nx run web:test  [local cache]", 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A line too long to be looked at takes no other with it.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	got, ok := read("1 passed in 1s\n"+long, long+"\n2 passed in 1s\n").Tests()
	if want := (Counts{Passed: 3}); !ok || got != want {
		t.Errorf("got %+v, %t, want %+v", got, ok, want)
	}
}

// Beyond the marks that are kept nothing is told.
func TestMarksAreBounded(t *testing.T) {
	tr := &Transcript{}
	s := tr.Stream()
	for i := range MaxMarks {
		s.Read([]byte("=== RUN   TestA\n"), second(i))
	}
	s.Read([]byte("--- PASS: TestA (0.00s)\n=== RUN   TestB\n"), second(MaxMarks))
	got := tr.At([]time.Time{second(1), second(MaxMarks + 1)})
	if diff := cmp.Diff([]Told{{Running: []string{"TestA"}}, {}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, uint16(13))
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint16) {
		whole, parts := read(string(text)), &Transcript{}
		s := parts.Stream()
		n := min(int(cut), len(text))
		s.Read(text[:n], zero)
		s.Read(text[n:], zero)
		s.Close(zero)
		a, aok := whole.Tests()
		b, bok := parts.Tests()
		if a != b || aok != bok {
			t.Errorf("%+v %t, cut at %d %+v %t", a, aok, n, b, bok)
		}
		if a.Passed < 0 || a.Failed < 0 || a.Skipped < 0 {
			t.Errorf("%+v", a)
		}
		if diff := cmp.Diff(whole.Replays(), parts.Replays()); diff != "" {
			t.Errorf("(-whole +cut):\n%s", diff)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	text := []byte(strings.Repeat("=== RUN   TestA\n    a_test.go:12: some log line of usual length, with numbers 12 and 13\n--- PASS: TestA (0.00s)\n", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tr := &Transcript{}
		tr.Stream().Read(text, zero)
	}
}
