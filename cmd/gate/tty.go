package main

import (
	"fmt"
	"io"
	"time"

	"github.com/org/gate/runner"
)

// statusLine shows a run in progress on the last row of the terminal.
//
// The suite writes to the same terminal, and gate does not stand in between:
// so the row is taken out of the scrolling region (DECSTBM, as apt does for
// its progress bar), where nothing that the suite prints can land. Each
// update is one write(2), which the terminal takes whole, saves and restores
// the cursor, and comes at most once a second; a run shorter than that draws
// nothing. While the terminal is not in line mode (a full-screen program has
// it) nothing is drawn.
//
// Sequences: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
type statusLine struct {
	w    io.Writer
	size func() (cols, rows int, ok bool) // ok: it may be drawn on now
	last time.Duration                    // Elapsed, in whole seconds, of the last update
	rows int                              // of the terminal when the row was reserved; 0: it is not
	err  error                            // the first failed write; nothing is written after it
}

// minRows and minCols are the smallest terminal that can spare a row.
const (
	minRows = 5
	minCols = 40
)

// update draws s.
func (l *statusLine) update(s runner.Status) {
	now := s.Elapsed.Truncate(time.Second)
	if l.err != nil || now <= l.last {
		return
	}
	cols, rows, ok := l.size()
	if !ok || rows < minRows || cols < minCols {
		return
	}
	l.last = now
	var out string
	if rows != l.rows {
		// Make room first: IND scrolls if the cursor is on the last row and
		// keeps its column, CUU goes back to where it was. DECSTBM moves the
		// cursor home, hence the save and restore around it.
		out = fmt.Sprintf("\x1bD\x1b[A\x1b7\x1b[1;%dr\x1b8", rows-1)
		l.rows = rows
	}
	text := statusText(s)
	if len(text) > cols-1 {
		text = text[:cols-1]
	}
	l.write(out + fmt.Sprintf("\x1b7\x1b[%d;1H%s\x1b[K\x1b8", rows, text))
}

// close gives the row back.
func (l *statusLine) close() {
	if l.rows > 0 {
		l.write(fmt.Sprintf("\x1b7\x1b[r\x1b[%d;1H\x1b[2K\x1b8", l.rows))
		l.rows = 0
	}
}

func (l *statusLine) write(s string) {
	if l.err == nil {
		_, l.err = io.WriteString(l.w, s)
	}
}

// statusText is ASCII only, so that it can be cut at any byte.
func statusText(s runner.Status) string {
	cpu := fmt.Sprintf("%.1f s CPU", s.CPU)
	if s.Budget > 0 {
		cpu = fmt.Sprintf("CPU %.1f of %.1f s", s.CPU, s.Budget)
	}
	return fmt.Sprintf("gate: %s  %s  endpoints %d  writes %d",
		s.Elapsed.Truncate(time.Second), cpu, s.Endpoints, s.Writes)
}
