package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/runner"
)

func TestStatusText(t *testing.T) {
	tests := []struct {
		name string
		in   runner.Status
		want string
	}{
		{"with a budget", runner.Status{Elapsed: 75*time.Second + 900*time.Millisecond, CPU: 12.34, Budget: 30, Endpoints: 2, Writes: 14}, "gate: 1m15s  CPU 12.3 of 30.0 s  endpoints 2  writes 14"},
		{"without one", runner.Status{Elapsed: time.Second, CPU: 0.5}, "gate: 1s  0.5 s CPU  endpoints 0  writes 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := statusText(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStatusLine(t *testing.T) {
	const (
		room = "\x1bD\x1b[A\x1b7\x1b[1;23r\x1b8"
		back = "\x1b7\x1b[r\x1b[24;1H\x1b[2K\x1b8"
	)
	row := func(n, text string) string { return "\x1b7\x1b[" + n + ";1H" + text + "\x1b[K\x1b8" }
	at := func(d time.Duration) runner.Status { return runner.Status{Elapsed: d} }
	tests := []struct {
		name       string
		cols, rows int
		ok         bool
		in         []runner.Status
		want       []string // one element a write(2)
	}{
		{name: "a short run draws nothing", cols: 80, rows: 24, ok: true, in: []runner.Status{at(250 * time.Millisecond), at(999 * time.Millisecond)}},
		{name: "not drawable", cols: 80, rows: 24, in: []runner.Status{at(time.Second)}},
		{name: "too small a terminal", cols: 80, rows: 4, ok: true, in: []runner.Status{at(time.Second)}},
		{
			name: "once a second", cols: 80, rows: 24, ok: true,
			in: []runner.Status{at(time.Second), at(1500 * time.Millisecond), at(2 * time.Second)},
			want: []string{
				room + row("24", "gate: 1s  0.0 s CPU  endpoints 0  writes 0"),
				row("24", "gate: 2s  0.0 s CPU  endpoints 0  writes 0"),
				back,
			},
		},
		{
			name: "cut at the edge", cols: 40, rows: 24, ok: true, in: []runner.Status{at(time.Second)},
			want: []string{room + row("24", "gate: 1s  0.0 s CPU  endpoints 0  write"), back},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got writes
			l := &statusLine{w: &got, size: func() (int, int, bool) { return tt.cols, tt.rows, tt.ok }}
			for _, s := range tt.in {
				l.update(s)
			}
			l.close()
			if diff := cmp.Diff(tt.want, got.all); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// After a resize the row is reserved anew; after a failed write nothing more
// is written.
func TestStatusLineChanges(t *testing.T) {
	rows, got := 24, writes{}
	l := &statusLine{w: &got, size: func() (int, int, bool) { return 80, rows, true }}
	l.update(runner.Status{Elapsed: time.Second})
	rows = 30
	l.update(runner.Status{Elapsed: 2 * time.Second})
	if len(got.all) != 2 || !strings.Contains(got.all[1], "\x1b[1;29r") {
		t.Errorf("after a resize: got %q, want a new region of 29 rows", got.all)
	}
	got.fail = true
	l.update(runner.Status{Elapsed: 3 * time.Second})
	l.update(runner.Status{Elapsed: 4 * time.Second})
	l.close()
	if got.tries != 3 || l.err == nil {
		t.Errorf("after a failed write: got %d writes and error %v, want 3 and the error", got.tries, l.err)
	}
}

// What the suite prints stays as it is, whatever is drawn in between: in the
// middle of a line, at the bottom of the screen, while it scrolls.
func TestStatusLineNeverMixes(t *testing.T) {
	s := newScreen(6, 60)
	l := &statusLine{w: s, size: func() (int, int, bool) { return 60, 6, true }}
	suite := func(text string) {
		if _, err := s.Write([]byte(strings.ReplaceAll(text, "\n", "\r\n"))); err != nil {
			t.Fatal(err)
		}
	}
	// The first update finds the cursor on the last row.
	for i, text := range []string{"one\ntwo\nthree\nfour\nfive\nsi", "x\nsev", "en\neight"} {
		suite(text)
		l.update(runner.Status{Elapsed: time.Duration(i+1) * time.Second})
	}
	want := []string{"four", "five", "six", "seven", "eight", "gate: 3s  0.0 s CPU  endpoints 0  writes 0"}
	if diff := cmp.Diff(want, s.lines()); diff != "" {
		t.Errorf("while it runs (-want +got):\n%s", diff)
	}
	l.close()
	suite("\nnine\nten\n")
	want = []string{"six", "seven", "eight", "nine", "ten"}
	if diff := cmp.Diff(want, s.lines()); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	if l.err != nil {
		t.Error(l.err)
	}
}

// writes keeps each write apart.
type writes struct {
	all   []string
	fail  bool
	tries int
}

func (w *writes) Write(p []byte) (int, error) {
	w.tries++
	if w.fail {
		return 0, errors.New("gone")
	}
	w.all = append(w.all, string(p))
	return len(p), nil
}
