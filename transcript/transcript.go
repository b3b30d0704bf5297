// Package transcript reads what a suite prints while it runs: which test was
// running when, how many passed, and which results came out of a cache.
//
// All of it is the suite's own word. It helps a reader to find the test behind a
// row and it shows a patch that mutes tests; it is no witness of what a process
// did. A suite that is understood by none of the formats tells nothing, which
// is not the same as no tests.
package transcript

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Counts are the outcomes of single tests, parents and subtests alike where the
// output has both.
type Counts struct {
	Passed, Failed, Skipped int64
}

func (c *Counts) add(d Counts) {
	c.Passed, c.Failed, c.Skipped = c.Passed+d.Passed, c.Failed+d.Failed, c.Skipped+d.Skipped
}

// Replay is a result that a build tool took from a cache: nothing was executed
// for it.
type Replay struct {
	Tool  string
	Line  string // the first such line, as printed
	Count int64  // how many there were
}

// Told is what the output says of one moment.
type Told struct {
	Running []string // tests that were running; several where they run in parallel
	Next    string   // where only results are printed: the first to come after it
}

// MaxLine is the longest line that is looked at, in bytes; the lines that tell
// of tests are short.
const MaxLine = 64 << 10

// MaxMarks bounds the starts and ends that are kept. After the last of them the
// output tells nothing of a moment.
const MaxMarks = 1 << 18

// kind is what a line of output says of a test.
type kind uint8

const (
	start  kind = iota // it runs from now on
	end                // it does not run any more
	only               // the start of the one test that its format runs at a time
	idle               // no test of this format runs
	result             // of a test whose start is not printed
)

type mark struct {
	at     time.Time
	kind   kind
	format string
	name   string
}

// Transcript takes in the output of one run. Its streams may be read from
// several goroutines at once.
type Transcript struct {
	mu      sync.Mutex
	marks   []mark
	full    bool
	counts  Counts
	counted bool
	replays []Replay
	tap     tap
}

// Stream is one of the streams that a suite prints to.
type Stream struct {
	t     *Transcript
	line  []byte
	long  bool // the rest of this line is skipped
	begun bool // the start in the unfinished line was told
	lines lines
}

// Stream gives the reader of another stream.
func (t *Transcript) Stream() *Stream { return &Stream{t: t} }

// Read takes in what was printed at a moment. It never fails: what it cannot
// read tells nothing.
func (s *Stream) Read(text []byte, at time.Time) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	for len(text) > 0 {
		i := slices.Index(text, '\n')
		part := text
		if i >= 0 {
			part = text[:i]
		}
		if len(s.line)+len(part) > MaxLine {
			s.long, s.line = true, s.line[:0]
		}
		if !s.long {
			s.line = append(s.line, part...)
		}
		if i < 0 {
			break
		}
		if !s.long {
			s.whole(plain(s.line), at)
		}
		s.line, s.long, s.begun = s.line[:0], false, false
		text = text[i+1:]
	}
	if !s.long && !s.begun && len(s.line) > 0 {
		s.begun = s.unfinished(plain(s.line), at)
	}
}

// Close takes in a last line without an end.
func (s *Stream) Close(at time.Time) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if !s.long && len(s.line) > 0 {
		s.whole(plain(s.line), at)
	}
	s.line = nil
}

func (t *Transcript) mark(m mark) {
	if len(t.marks) >= MaxMarks {
		t.full = true
		return
	}
	t.marks = append(t.marks, m)
}

func (t *Transcript) count(c Counts) {
	t.counts.add(c)
	t.counted = true
}

func (t *Transcript) replay(tool, line string) {
	for i := range t.replays {
		if t.replays[i].Tool == tool {
			t.replays[i].Count++
			return
		}
	}
	t.replays = append(t.replays, Replay{tool, line, 1})
}

// Tests gives the outcomes; ok is false where the output does not tell them.
func (t *Transcript) Tests() (c Counts, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok = t.counts, t.counted
	if more, is := t.tap.counts(); is {
		c.add(more)
		ok = true
	}
	return c, ok
}

// Replays gives the results that came out of caches, one a tool.
func (t *Transcript) Replays() []Replay {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.replays)
}

// At tells of each of several moments, in their order. The output lags a little
// behind what it tells of, so a moment close to the start of a test may be
// laid to the one before.
func (t *Transcript) At(moments []time.Time) []Told {
	t.mu.Lock()
	defer t.mu.Unlock()
	marks := slices.Clone(t.marks)
	slices.SortStableFunc(marks, func(a, b mark) int { return a.at.Compare(b.at) })
	order := make([]int, len(moments))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return moments[a].Compare(moments[b]) })

	told := make([]Told, len(moments))
	var running []mark
	i, next := 0, 0
	for _, n := range order {
		for ; i < len(marks) && !marks[i].at.After(moments[n]); i++ {
			running = marks[i].apply(running)
		}
		if t.full && i == len(marks) {
			continue // nothing is known from here on
		}
		told[n].Running = leaves(running)
		if len(running) > 0 {
			continue
		}
		for next = max(next, i); next < len(marks) && !t.tells(marks[next]); next++ {
		}
		if next < len(marks) {
			told[n].Next = marks[next].name
		}
	}
	return told
}

// tells says whether a mark is the result of a test: a line like TAP's is none
// where nothing has said that it is TAP.
func (t *Transcript) tells(m mark) bool {
	return m.kind == result && (m.format != formatTAP || t.tap.is)
}

// apply gives the tests that run after a mark.
func (m mark) apply(running []mark) []mark {
	same := func(r mark) bool { return r.format == m.format && r.name == m.name }
	switch m.kind {
	case start:
		if !slices.ContainsFunc(running, same) {
			running = append(running, m)
		}
	case end:
		running = slices.DeleteFunc(running, same)
	case only, idle:
		running = slices.DeleteFunc(running, func(r mark) bool { return r.format == m.format })
		if m.kind == only {
			running = append(running, m)
		}
	}
	return running
}

// leaves names the running tests less those that wait for a subtest of theirs.
func leaves(running []mark) []string {
	var names []string
	for _, r := range running {
		parent := func(other mark) bool { return other.format == r.format && strings.HasPrefix(other.name, r.name+"/") }
		if !slices.ContainsFunc(running, parent) {
			names = append(names, r.name)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}

// plain is a line without the colours of a terminal (ECMA-48, CSI ... m) and
// without the carriage returns of one.
func plain(line []byte) string {
	s := string(line)
	if strings.IndexByte(s, 0x1b) >= 0 {
		s = colours.ReplaceAllString(s, "")
	}
	return strings.TrimRight(s, "\r")
}
