package main

import (
	"fmt"
	"strconv"
	"strings"
)

// screen is as much of a terminal as the status line and a line-mode suite
// need: printing, CR, LF, IND, CUU, CUP, EL, DECSTBM, DECSC and DECRC. Rows and
// columns count from 0.
type screen struct {
	cells      [][]byte
	row, col   int
	bottom     int // last row of the scrolling region
	savedRow   int
	savedCol   int
	incomplete string // an escape sequence that has not ended yet
}

func newScreen(rows, cols int) *screen {
	s := &screen{bottom: rows - 1}
	for range rows {
		s.cells = append(s.cells, []byte(strings.Repeat(" ", cols)))
	}
	return s
}

// Write takes what a terminal would get.
func (s *screen) Write(p []byte) (int, error) {
	for _, b := range p {
		if err := s.put(b); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *screen) put(b byte) error {
	switch {
	case s.incomplete != "":
		s.incomplete += string(b)
		return s.escape()
	case b == '\x1b':
		s.incomplete = "\x1b"
	case b == '\r':
		s.col = 0
	case b == '\n':
		s.index()
	case b < ' ':
		return fmt.Errorf("control character %#x", b)
	default:
		if s.col == len(s.cells[s.row]) {
			s.col = 0
			s.index()
		}
		s.cells[s.row][s.col] = b
		s.col++
	}
	return nil
}

// index moves down one row and scrolls at the end of the region.
func (s *screen) index() {
	if s.row != s.bottom {
		s.row = min(s.row+1, len(s.cells)-1)
		return
	}
	first := s.cells[0]
	copy(s.cells, s.cells[1:s.bottom+1])
	s.cells[s.bottom] = first
	s.clear(s.bottom, 0)
}

func (s *screen) clear(row, from int) {
	for i := from; i < len(s.cells[row]); i++ {
		s.cells[row][i] = ' '
	}
}

// escape acts on s.incomplete once it is a whole sequence.
func (s *screen) escape() error {
	seq := s.incomplete
	last := seq[len(seq)-1]
	if seq == "\x1b[" || len(seq) > 2 && (last < '@' || last > '~') {
		return nil
	}
	s.incomplete = ""
	arg := func(i, missing int) int {
		args := strings.Split(strings.TrimSuffix(seq[2:], string(last)), ";")
		if i >= len(args) || args[i] == "" {
			return missing
		}
		n, err := strconv.Atoi(args[i])
		if err != nil {
			return missing
		}
		return n
	}
	switch {
	case seq == "\x1b7":
		s.savedRow, s.savedCol = s.row, s.col
	case seq == "\x1b8":
		s.row, s.col = s.savedRow, s.savedCol
	case seq == "\x1bD":
		s.index()
	case last == 'A':
		s.row = max(0, s.row-arg(0, 1))
	case last == 'H':
		s.row, s.col = arg(0, 1)-1, arg(1, 1)-1
	case last == 'r':
		s.bottom = arg(1, len(s.cells)) - 1
		s.row, s.col = 0, 0
	case last == 'K':
		from := s.col
		if arg(0, 0) == 2 {
			from = 0
		}
		s.clear(s.row, from)
	case last == 'm':
	default:
		return fmt.Errorf("unknown sequence %q", seq)
	}
	return nil
}

// lines are the rows without blanks at their ends, and without empty rows at
// the end of the screen.
func (s *screen) lines() []string {
	var out []string
	for _, row := range s.cells {
		out = append(out, strings.TrimRight(string(row), " "))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}
