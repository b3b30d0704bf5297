package ledger

import (
	"errors"
	"strings"
)

// Error is an error of this package: what was tried, on what, what was wrong,
// and where there is one, a way out.
type Error struct {
	Op   string // "parse", "read", "write", "find", "accept"
	Path string // the file, "file:line:column" where a place in it is meant; may be empty
	Msg  string // what was found and what was wanted; may be empty if Err says it
	Hint string // a command, a value or an edit that works; may be empty
	Err  error  // the cause, for errors.Is; may be nil
}

// Error gives "op path: msg: cause".
func (e *Error) Error() string {
	head := strings.TrimSpace(e.Op + " " + e.Path)
	parts := []string{head}
	if e.Msg != "" {
		parts = append(parts, e.Msg)
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint gives the hint of the first Error in err's chain that has one, or "".
func Hint(err error) string {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
}
