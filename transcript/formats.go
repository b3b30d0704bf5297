package transcript

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var colours = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// lines is what the formats remember from one line of a stream to the next.
type lines struct {
	unittest  int64 // tests that "Ran N tests" told of, until the line with the outcome
	ran       bool
	goVerbose bool // a test was said to run, so every outcome is printed
}

// whole takes in a finished line.
func (s *Stream) whole(line string, at time.Time) {
	if line == "" {
		return
	}
	switch {
	case s.goJSON(line):
	case s.goVerbose(line, at):
	case s.unittest(line, at):
	case s.pytest(line, at):
	case s.t.tap.line(line, func(m mark) { m.at = at; s.t.mark(m) }):
	case s.results(line, at):
	}
	s.summary(line, at)
	s.cached(line)
}

// unfinished takes in the start of a line, which some runners print before the
// test runs and its result after; it reports whether that told of a start.
func (s *Stream) unfinished(line string, at time.Time) bool {
	for _, p := range []*regexp.Regexp{pytestBegun, unittestBegun} {
		if m := p.FindStringSubmatch(line); m != nil {
			s.t.mark(mark{at, only, begunBy[p], m[1]})
			return true
		}
	}
	return false
}

// goEvent is a line of go test -json ("go doc test2json").
type goEvent struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

func (s *Stream) goJSON(line string) bool {
	if !strings.HasPrefix(line, "{") || !strings.Contains(line, `"Action":`) {
		return false
	}
	var e goEvent
	if json.Unmarshal([]byte(line), &e) != nil || e.Time.IsZero() {
		return false
	}
	if e.Test == "" {
		if e.Action == "output" && goCached.MatchString(strings.TrimSpace(e.Output)) {
			s.t.replay("go test", strings.TrimSpace(e.Output))
		}
		return true
	}
	m := mark{at: e.Time, format: "go json", name: e.Package + "." + e.Test}
	switch e.Action {
	case "run", "cont":
		m.kind = start
	case "pause":
		m.kind = end
	case "pass", "fail", "skip":
		m.kind = end
		s.t.count(outcome(e.Action))
	default: // output, bench
		return true
	}
	s.t.mark(m)
	return true
}

func outcome(word string) Counts {
	switch strings.ToLower(word) {
	case "pass", "ok":
		return Counts{Passed: 1}
	case "skip", "ignored":
		return Counts{Skipped: 1}
	}
	return Counts{Failed: 1}
}

var (
	goUpdate = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) +(\S.*)$`)
	goResult = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S.*) \([0-9.]+s\)$`)
	goCached = regexp.MustCompile(`^ok\s+\S+\s+\(cached\)`)
)

// goVerbose is go test -v. Where it runs several packages it prints each one's
// lines in one go after the end, and so tells of no moment.
func (s *Stream) goVerbose(line string, at time.Time) bool {
	if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- ") {
		return false
	}
	if m := goUpdate.FindStringSubmatch(line); m != nil {
		switch m[1] {
		case "RUN", "CONT":
			s.t.mark(mark{at, start, "go", m[2]})
			if m[1] == "RUN" {
				s.lines.goVerbose = true
			}
		case "PAUSE":
			s.t.mark(mark{at, end, "go", m[2]})
		}
		return true
	}
	m := goResult.FindStringSubmatch(line)
	// Without -v the failures alone are printed, which is no count.
	if m == nil || !s.lines.goVerbose {
		return false
	}
	s.t.count(outcome(m[1]))
	s.t.mark(mark{at, end, "go", m[2]})
	return true
}

var (
	pytestBegun  = regexp.MustCompile(`^(\S+\.py(?:::\S.*?)?) $`)
	pytestResult = regexp.MustCompile(`^(?:\S+\.py::.* )?(\[gw\d+\] \[ *\d+%\] )?(?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: (\S+\.py::.*?))?(?: \(.*\))? *(?:\[ *\d+%\])?$`)
	pytestStarts = regexp.MustCompile(`^(\S+\.py::.*?) ?$`)
	pytestFile   = regexp.MustCompile(`^(\S+\.py) [.FEsxX]+ *(?:\[ *\d+%\])?$`)

	unittestBegun  = regexp.MustCompile(`^(\w+ \([\w.]+\)) \.\.\. $`)
	unittestNamed  = regexp.MustCompile(`^(\w+ \([\w.]+\))$`)
	unittestResult = regexp.MustCompile(`^(\w+ \([\w.]+\)) \.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$`)
	unittestRan    = regexp.MustCompile(`^Ran (\d+) tests? in [0-9.]+s$`)
	unittestEnd    = regexp.MustCompile(`^(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$`)
)

// begunBy names the format of a line that is printed before its test runs.
var begunBy = map[*regexp.Regexp]string{pytestBegun: "pytest", unittestBegun: "unittest"}

// pytest prints a test, or the file of several, before it runs, and the outcomes
// on the same line; its summary has the counts. pytest-xdist prints both on
// lines of their own, since several run at a time.
func (s *Stream) pytest(line string, at time.Time) bool {
	const single, several = "pytest", "pytest-xdist"
	if m := pytestResult.FindStringSubmatch(line); m != nil {
		if m[1] == "" {
			s.t.mark(mark{at, idle, single, ""})
		} else {
			s.t.mark(mark{at, end, several, m[2]})
		}
		return true
	}
	if m := pytestStarts.FindStringSubmatch(line); m != nil {
		s.t.mark(mark{at, idle, single, ""}) // a line that came in two pieces was taken for one of its
		s.t.mark(mark{at, start, several, m[1]})
		return true
	}
	if pytestFile.MatchString(line) {
		s.t.mark(mark{at, idle, single, ""})
		return true
	}
	return false
}

// unittest prints a test before it runs, on a line of its own if there is a
// docstring to follow, and the outcome after; the counts come in two lines.
func (s *Stream) unittest(line string, at time.Time) bool {
	if unittestResult.MatchString(line) {
		s.t.mark(mark{at, idle, "unittest", ""})
		return true
	}
	if m := unittestNamed.FindStringSubmatch(line); m != nil {
		s.t.mark(mark{at, only, "unittest", m[1]})
		return true
	}
	if m := unittestRan.FindStringSubmatch(line); m != nil {
		s.lines.unittest, s.lines.ran = number(m[1]), true
		s.t.mark(mark{at, idle, "unittest", ""})
		return true
	}
	m := unittestEnd.FindStringSubmatch(line)
	if m == nil || !s.lines.ran {
		return false
	}
	c := Counts{}
	for _, part := range strings.Split(m[1], ", ") {
		word, n, _ := strings.Cut(part, "=")
		switch word {
		case "failures", "errors", "unexpected successes":
			c.Failed += number(n)
		case "skipped", "expected failures":
			c.Skipped += number(n)
		}
	}
	c.Passed = max(0, s.lines.unittest-c.Failed-c.Skipped)
	s.lines.ran = false
	s.t.count(c)
	return true
}

// tap is the Test Anything Protocol, versions 12 to 14 (testanything.org). A
// line of it counts once a version or a plan has said that this is TAP.
type tap struct {
	is    bool
	found Counts
}

var (
	tapResult = regexp.MustCompile(`^ *(ok|not ok)(?: +\d+)?(?: - ([^#]*?)| ([^#\s][^#]*?))?(?: *# *(?i:(skip|todo)).*| *#.*)?$`)
	tapSays   = regexp.MustCompile(`^(TAP version \d+|1\.\.\d+(?: *#.*)?)$`)
)

const formatTAP = "tap"

func (t *tap) line(line string, tell func(mark)) bool {
	if tapSays.MatchString(line) {
		t.is = true
		return true
	}
	m := tapResult.FindStringSubmatch(line)
	if m == nil {
		return false
	}
	switch {
	case m[4] != "":
		t.found.Skipped++
	case m[1] == "ok":
		t.found.Passed++
	default:
		t.found.Failed++
	}
	if name := m[2] + m[3]; name != "" {
		tell(mark{kind: result, format: formatTAP, name: name})
	}
	return true
}

func (t *tap) counts() (Counts, bool) { return t.found, t.is }

// marksOf are lines of runners that print a test's result, or a file's, when it
// is over: the next of them after a moment tells of it.
var marksOf = []struct {
	has    string
	format string
	kind   kind
	line   *regexp.Regexp
}{
	{"PASS ", "jest", result, regexp.MustCompile(`^PASS (\S+)(?: \([0-9.]+ m?s\))?$`)},
	{"FAIL ", "jest", result, regexp.MustCompile(`^FAIL (\S+)(?: \([0-9.]+ m?s\))?$`)},
	{"\u2713 ", "vitest", result, regexp.MustCompile(`^ *\x{2713} (\S.*?)(?: \(?\d+ ?m?s\)?)?$`)},
	{"\u2714 ", "node", result, regexp.MustCompile(`^ *\x{2714} (\S.*?)(?: \([0-9.]+ ?m?s\))?$`)},
	{"\u2716 ", "node", result, regexp.MustCompile(`^ *\x{2716} (\S.*?)(?: \([0-9.]+ ?m?s\))?$`)},
	{"test ", "cargo", result, regexp.MustCompile(`^test (\S+) \.\.\. (?:ok|FAILED|ignored.*)$`)},
	{"Running ", "surefire", only, regexp.MustCompile(`^(?:\[INFO\] )?Running ([\w.$]+)$`)},
}

func (s *Stream) results(line string, at time.Time) bool {
	for _, f := range marksOf {
		if !strings.Contains(line, f.has) {
			continue
		}
		if m := f.line.FindStringSubmatch(line); m != nil {
			s.t.mark(mark{at, f.kind, f.format, m[1]})
			return true
		}
	}
	return false
}

// summaries are the lines in which a runner sums itself up; words maps what it
// calls an outcome to ours. A suite may run several, whose sums add up.
var summaries = []struct {
	has   string
	line  *regexp.Regexp
	count *regexp.Regexp // a number and its word, or a word and its number
}{
	// pytest: "=== 1 failed, 2 passed, 1 skipped in 0.12s ===", bare with -q
	{" in ", regexp.MustCompile(`^=* ?((?:\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun|subtests passed)(?:, )?)+|no tests ran) in [0-9.]+s.*$`), numberWord},
	// Jest: "Tests:       1 failed, 2 passed, 3 total"
	{"Tests:", regexp.MustCompile(`^Tests: +((?:\d+ (?:failed|skipped|todo|passed)(?:, )?)+, \d+ total|\d+ total)$`), numberWord},
	// Vitest: "      Tests  1 failed | 5 passed | 1 skipped (7)"
	{"Tests ", regexp.MustCompile(`^ *Tests  ((?:\d+ (?:failed|passed|skipped|todo)(?: \| )?)+) \(\d+\)$`), numberWord},
	// Mocha: "  5 passing (12ms)", "  1 pending", "  1 failing"
	{" passing (", regexp.MustCompile(`^ *(\d+ passing) \(\d+m?s\)$`), numberWord},
	{" pending", regexp.MustCompile(`^ {2}(\d+ pending)$`), numberWord},
	{" failing", regexp.MustCompile(`^ {2}(\d+ failing)$`), numberWord},
	// cargo test: "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
	{"test result: ", regexp.MustCompile(`^test result: \w+\. (\d+ passed; \d+ failed; \d+ ignored);`), numberWord},
	// Surefire: "Tests run: 5, Failures: 0, Errors: 0, Skipped: 1"; the lines of one class have a time
	{"Tests run: ", regexp.MustCompile(`^(?:\[(?:INFO|WARNING|ERROR)\] )?(Tests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+)$`), wordNumber},
	// RSpec: "10 examples, 0 failures, 1 pending"
	{" examples, ", regexp.MustCompile(`^(\d+ examples?, \d+ failures?(?:, \d+ pending)?)(?:, .*)?$`), numberWord},
	// gotestsum: "DONE 12 tests, 2 skipped, 1 failure in 0.500s"
	{"DONE ", regexp.MustCompile(`^DONE (\d+ tests?(?:, \d+ (?:skipped|failures?|errors?))*) in [0-9.]+s$`), numberWord},
	// node's spec reporter: "ℹ pass 2", each on its own line
	{"\u2139 ", regexp.MustCompile(`^\x{2139} ((?:pass|fail|cancelled|skipped|todo) \d+)$`), wordNumber},
}

var (
	numberWord = regexp.MustCompile(`(?P<n>\d+) (?P<word>[a-z]+(?: passed)?)`)
	wordNumber = regexp.MustCompile(`(?P<word>[A-Za-z ]+):? (?P<n>\d+)`)
)

func (s *Stream) summary(line string, at time.Time) {
	for _, f := range summaries {
		if !strings.Contains(line, f.has) {
			continue
		}
		m := f.line.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		c, all := Counts{}, int64(-1)
		for _, part := range f.count.FindAllStringSubmatch(m[1], -1) {
			n := number(part[f.count.SubexpIndex("n")])
			switch word := strings.ToLower(strings.TrimSpace(part[f.count.SubexpIndex("word")])); word {
			case "passed", "passing", "pass", "xpassed":
				c.Passed += n
			case "failed", "failing", "fail", "failure", "failures", "error", "errors", "cancelled":
				c.Failed += n
			case "skipped", "pending", "ignored", "todo", "xfailed":
				c.Skipped += n
			case "tests run", "test", "tests", "example", "examples":
				all = n
			}
		}
		if all >= 0 {
			c.Passed = max(0, all-c.Failed-c.Skipped)
		}
		s.t.count(c)
		s.t.mark(mark{at, idle, "pytest", ""})
		return
	}
}

// caches are lines in which a build tool says that it executed nothing.
var caches = []struct {
	has, tool string
	line      *regexp.Regexp
}{
	{"(cached)", "go test", goCached},
	{"(cached) PASSED", "bazel", regexp.MustCompile(`^//\S+ +\(cached\) PASSED`)},
	{"> Task ", "gradle", regexp.MustCompile(`^> Task \S*[tT]est (?:UP-TO-DATE|FROM-CACHE)$`)},
	{"cache", "nx", regexp.MustCompile(`^ *(?:.*\[(?:existing outputs match the cache, left as is|local cache|remote cache)\]|Nx read the output from the cache instead of running the command for [1-9]\d* out of \d+ tasks?\.?)$`)},
	{"cache hit, replaying", "turbo", regexp.MustCompile(`^\S+: cache hit, replaying (?:logs|output)`)},
}

func (s *Stream) cached(line string) {
	for _, c := range caches {
		if strings.Contains(line, c.has) && c.line.MatchString(line) {
			s.t.replay(c.tool, strings.TrimSpace(line))
			return
		}
	}
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0 // more digits than any suite has tests
	}
	return n
}
