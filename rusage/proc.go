package rusage

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond

// stat is what is needed of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	parent     int    // field 4
	own        Usage  // 14, 15: user and system time, cut to ticks
	waited     Usage  // 16, 17: the same of all children that were waited for
	start      uint64 // 22: ticks after boot; with the pid it names one process for good
	stack      uint64 // 28: random, kept by fork, new with every execve; 0 if reading it is not permitted
	exitSignal int    // 38
}

// parseStat reads one line. The name in field 2 is chosen by the program and
// may hold blanks and parentheses, so the fields are counted from the last
// parenthesis.
func parseStat(line []byte) (stat, error) {
	i := bytes.LastIndexByte(line, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("parse %q: no program name in parentheses", line)
	}
	const first, last = 3, 38
	var fields [last - first + 1][]byte // no slice of its own: a sample reads every process of the host
	n := 0
	for field := range bytes.FieldsSeq(line[i+1:]) {
		if n == len(fields) {
			break
		}
		fields[n] = field
		n++
	}
	if n < len(fields) {
		return stat{}, fmt.Errorf("parse %q: %d fields after the name, want at least %d", line, n, len(fields))
	}
	var errs []error
	number := func(field int) uint64 {
		n, err := strconv.ParseUint(string(fields[field-first]), 10, 63)
		if err != nil {
			errs = append(errs, fmt.Errorf("parse %q: field %d: %w", line, field, err))
		}
		return n
	}
	ticks := func(field int) time.Duration {
		n := number(field)
		if n > uint64(1<<63-1)/uint64(tick) {
			errs = append(errs, fmt.Errorf("parse %q: field %d: %d ticks are beyond any clock", line, field, n))
		}
		return time.Duration(n) * tick
	}
	s := stat{
		parent:     int(number(4)),
		own:        Usage{ticks(14), ticks(15)},
		waited:     Usage{ticks(16), ticks(17)},
		start:      number(22),
		exitSignal: int(number(38)),
	}
	// An address may use all 64 bits.
	stack, err := strconv.ParseUint(string(fields[28-first]), 10, 64)
	if err != nil {
		errs = append(errs, fmt.Errorf("parse %q: field 28: %w", line, err))
	}
	s.stack = stack
	return s, errors.Join(errs...)
}

// status is what is needed of /proc/TID/status, see proc_pid_status(5).
type status struct {
	process int    // Tgid: the process that the thread belongs to
	ignored uint64 // SigIgn: bit n-1 is signal n
}

func parseStatus(text []byte) (status, error) {
	var s status
	var tgid, ignored bool
	var err error
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "Tgid":
			tgid = true
			s.process, err = strconv.Atoi(string(value))
		case "SigIgn":
			ignored = true
			s.ignored, err = strconv.ParseUint(string(value), 16, 64)
		}
		if err != nil {
			return status{}, fmt.Errorf("parse line %q: %w", line, err)
		}
	}
	if !tgid || !ignored {
		return status{}, fmt.Errorf("parse %q: want a line Tgid and a line SigIgn", text)
	}
	return s, nil
}

// within takes the fine measurement, kept to what the coarse one, which is cut
// to whole ticks, leaves possible.
func within(fine, coarse Usage) Usage {
	clamp := func(fine, coarse time.Duration) time.Duration {
		return min(max(fine, coarse), coarse+tick-1)
	}
	return Usage{clamp(fine.User, coarse.User), clamp(fine.System, coarse.System)}
}
