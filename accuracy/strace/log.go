// Package strace reads the log that strace writes: which task made which
// system call, with what arguments, and what came of it.
//
// It expects a log made with Options: all strings in hexadecimal, so that no
// byte of a file name can pass for syntax, and descriptors decorated with the
// path behind them. It knows the syntax of calls, not their meaning.
package strace

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Options are the flags of strace(1) that make a log this package can read;
// the calls to trace and the output file come after them.
//
//	-f       follow forks and threads
//	-y       descriptors as 3</path>, sockets as 3<socket:[inode]>
//	-xx      all strings, paths included, as \xNN
//	-s 0     no payload; paths and addresses are printed whole all the same
//	-e abbrev=none  whole vectors in sendmmsg
func Options() []string {
	return []string{"-f", "-y", "-xx", "-s", "0", "-e", "abbrev=none", "-e", "signal=none", "--seccomp-bpf"}
}

// Call is one system call that has returned, or that a task never came back
// from.
type Call struct {
	Line  int // of the log where it returned
	Task  int // thread id
	Name  string
	Args  []string // as written, split at the top-level commas
	Ret   string   // what stands after " = ": `3<\x2f...>`, `-1 ENOENT (...)`, `?`
	Ended bool     // not a call: the task has ended. Only Line and Task are set
}

// OK tells whether the call is known to have succeeded.
func (c Call) OK() bool {
	return c.Ret != "" && c.Ret[0] != '-' && c.Ret[0] != '?'
}

// Errno is the error's name, "" if the call succeeded or its result is unknown.
func (c Call) Errno() string {
	rest, failed := strings.CutPrefix(c.Ret, "-1 ")
	if !failed {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return name
}

// Int is the returned number, -1 if there is none.
func (c Call) Int() int {
	digits := c.Ret
	if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = digits[:i]
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return -1
	}
	return n
}

// Arg is argument i as written, "" if there are fewer.
func (c Call) Arg(i int) string {
	if i < 0 || i >= len(c.Args) {
		return ""
	}
	return c.Args[i]
}

var (
	resumed    = regexp.MustCompile(`^<\.\.\. (\w+) resumed> ?(.*)$`)
	superseded = regexp.MustCompile(`^\+\+\+ superseded by execve in pid (\d+) \+\+\+$`)
)

const unfinished = " <unfinished ...>"

// Parse reads a whole log. Calls stand in the order in which they returned;
// those a task never returned from come last, with result "?". A line that
// cannot be read is an error: a reference with holes is none.
func Parse(r io.Reader) ([]Call, error) {
	var calls []Call
	pending := map[int]string{} // task -> first half of the call it is in
	lines := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read strace log: %w", err)
		}
		if line == "" {
			break
		}
		task, rest, err := splitTask(strings.TrimRight(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("strace log, line %d: %w", n, err)
		}
		switch m := []string(nil); {
		case strings.HasSuffix(rest, unfinished):
			pending[task] = strings.TrimSuffix(rest, unfinished)
			continue
		case strings.HasPrefix(rest, "<... "):
			if m = resumed.FindStringSubmatch(rest); m == nil {
				return nil, fmt.Errorf("strace log, line %d: cannot read %q", n, rest)
			}
			first, ok := pending[task]
			if !ok {
				return nil, fmt.Errorf("strace log, line %d: task %d resumes %s, which it never began", n, task, m[1])
			}
			delete(pending, task)
			rest = first + m[2]
		case strings.HasPrefix(rest, "+++ superseded"):
			// execve(2) by a thread: it goes on under the leader's id.
			if m = superseded.FindStringSubmatch(rest); m == nil {
				return nil, fmt.Errorf("strace log, line %d: cannot read %q", n, rest)
			}
			thread, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, fmt.Errorf("strace log, line %d: %w", n, err)
			}
			delete(pending, task)
			if first, ok := pending[thread]; ok {
				pending[task] = first
				delete(pending, thread)
			}
			continue
		case strings.HasPrefix(rest, "+++ "):
			if first, ok := pending[task]; ok {
				// killed within the call
				c, err := split(first + ") = ?")
				if err != nil {
					return nil, fmt.Errorf("strace log, line %d: %w", n, err)
				}
				c.Line, c.Task = n, task
				calls = append(calls, c)
				delete(pending, task)
			}
			calls = append(calls, Call{Line: n, Task: task, Ended: true})
			continue
		case strings.HasPrefix(rest, "--- "), strings.HasPrefix(rest, "[ Process PID="):
			continue
		}
		c, err := split(rest)
		if err != nil {
			return nil, fmt.Errorf("strace log, line %d: %w", n, err)
		}
		c.Line, c.Task = n, task
		calls = append(calls, c)
	}
	return calls, nil
}

// splitTask takes the thread id off the front of a line.
func splitTask(line string) (task int, rest string, err error) {
	id, rest, ok := strings.Cut(line, " ")
	if ok {
		task, err = strconv.Atoi(id)
	}
	if !ok || err != nil {
		return 0, "", fmt.Errorf("no task id in %q", line)
	}
	return task, strings.TrimLeft(rest, " "), nil
}

// split reads `name(arg, arg) = result`.
func split(s string) (Call, error) {
	open := strings.IndexByte(s, '(')
	if open <= 0 {
		return Call{}, fmt.Errorf("no call in %q", s)
	}
	args, end, ok := fields(s[open+1:])
	if !ok {
		return Call{}, fmt.Errorf("unbalanced arguments in %q", s)
	}
	tail := strings.TrimLeft(s[open+1+end:], " ")
	ret, ok := strings.CutPrefix(tail, "= ")
	if !ok {
		return Call{}, fmt.Errorf("no result in %q", s)
	}
	return Call{Name: s[:open], Args: args, Ret: ret}, nil
}

// fields splits a list at its top-level commas, up to the bracket that closes
// it; end is the offset after that bracket. Strings hold only \xNN, so
// brackets are always syntax.
func fields(s string) (list []string, end int, ok bool) {
	depth, start := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth == 0 {
				if last := strings.TrimSpace(s[start:i]); last != "" || len(list) > 0 {
					list = append(list, last)
				}
				return list, i + 1, true
			}
			depth--
		case ',':
			if depth == 0 {
				list = append(list, strings.TrimSpace(s[start:i]))
				start = i + 1
			}
		}
	}
	return nil, 0, false
}
