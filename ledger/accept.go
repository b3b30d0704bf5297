package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/org/gate/writeset"
)

// Change is one thing that Accept or Tighten alters in a ledger.
type Change struct {
	Key    string `json:"key"`           // "allow_net", "cpu_budget", "writes", "write_paths", "allow_write", "fold", "min_tests"
	Old    string `json:"old,omitempty"` // what goes
	New    string `json:"new,omitempty"` // what comes
	Detail string `json:"detail,omitempty"`
}

// Accept gives the ledger that a record would match, and what that changes.
// The ledger itself is left alone. Endpoints are only added, since an unused
// one is no drift; Tighten takes them away. The record of one part of several
// only adds rows: what is missing from it another part may have written.
//
// A record with a gap, of a failed or interrupted run, of another command, or
// of a lower tier than the ledger asks for is refused.
func Accept(l *Ledger, r *Record) (*Ledger, []Change, error) {
	if err := acceptable(l, r); err != nil {
		return nil, nil, err
	}
	v := Compare(l, r, Options{CI: true})
	n := l.clone()
	var changes []Change
	if err := acceptWrites(n, l, r, &changes); err != nil {
		return nil, nil, err
	}
	for _, d := range v.Drifts {
		if d.Column == Net {
			n.AllowNet = append(n.AllowNet, d.Row)
			changes = append(changes, Change{Key: "allow_net", New: d.Row, Detail: d.Cause})
		}
	}
	slices.Sort(n.AllowNet)
	if r.CPUSec > l.CPUBudget {
		n.setBudget(r, &changes)
	}
	if r.Part == "" && r.Tests != nil && r.Tests.Passed < l.MinTests {
		n.setMinTests(r, &changes)
	}
	for _, entry := range allowOutside(n, r) {
		changes = append(changes, Change{Key: "allow_write", New: entry})
	}
	return n, changes, nil
}

// Tighten gives the ledger without what the record shows it does not need, and
// what that changes. Whoever uses it on one run trusts that run to be typical.
// It wants a record that matches: for one that does not, Accept comes first.
func Tighten(l *Ledger, r *Record) (*Ledger, []Change, error) {
	if err := acceptable(l, r); err != nil {
		return nil, nil, err
	}
	v := Compare(l, r, Options{CI: true})
	if v.Status != Match {
		return nil, nil, &Error{Op: "tighten", Path: "ledger", Msg: fmt.Sprintf("the record does not match it (%s), so it cannot show what is not needed", v.Status), Hint: "gate accept"}
	}
	n := l.clone()
	var changes []Change
	for _, s := range v.Stale {
		var list *[]string
		switch {
		case s.Broad:
			continue // needed all the same
		case s.Key == "allow_net":
			list = &n.AllowNet
		case s.Key == "fold":
			list = &n.Fold
		case s.Key == "allow_write":
			list = &n.AllowWrite
		case s.Key == "cpu_budget":
			n.setBudget(r, &changes)
			continue
		}
		*list = slices.DeleteFunc(*list, func(entry string) bool { return entry == s.Entry })
		changes = append(changes, Change{Key: s.Key, Old: s.Entry, Detail: s.Detail})
	}
	if r.Part == "" && l.MinTests > 0 && r.Tests.Passed > l.MinTests {
		n.setMinTests(r, &changes)
	}
	if err := acceptWrites(n, l, r, &changes); err != nil {
		return nil, nil, err
	}
	return n, changes, nil
}

// acceptable refuses a record that must not become the contract.
func acceptable(l *Ledger, r *Record) error {
	if err := usable(r, "accept", "record"); err != nil {
		return err
	}
	refuse := func(msg, hint string) error { return &Error{Op: "accept", Path: "record", Msg: msg, Hint: hint} }
	if other, pinned := otherCommand(l, r); other != "" {
		return refuse("it is of another command ("+other+") than the ledger pins: "+pinned, "gate run without a command runs the ledger's")
	}
	v := Compare(l, r, Options{CI: true})
	if len(v.Reasons) > 0 {
		return refuse(v.Reasons[0].Kind+": "+v.Reasons[0].Detail, v.Reasons[0].Do)
	}
	return nil
}

func (l *Ledger) clone() *Ledger {
	n := *l
	for _, list := range []*[]string{&n.Command, &n.AllowNet, &n.WritePaths, &n.AllowWrite, &n.Fold, &n.Parts, &n.Paths} {
		*list = slices.Clone(*list)
	}
	return &n
}

// acceptWrites gives n the rows of a record under the folds of n, in the keys
// that l has, and lists what differs from l.
func acceptWrites(n, l *Ledger, r *Record, changes *[]Change) error {
	set, err := fold(r.WriteRows, n.Fold)
	if err != nil {
		return &Error{Op: "accept", Path: "record", Err: err}
	}
	rows := set.rows
	if r.Part != "" {
		if !l.HasPaths {
			return &Error{Op: "accept", Path: "record", Msg: "it is of one part, and the ledger has no write_paths to add its rows to", Hint: initHint}
		}
		rows = slices.Concat(rows, l.WritePaths)
		slices.Sort(rows)
		rows = slices.Compact(rows)
	}
	if l.HasPaths {
		n.WritePaths = rows
		had, has := setOf(l.WritePaths), setOf(rows)
		for _, row := range rows {
			if !had[row] {
				*changes = append(*changes, Change{Key: "write_paths", New: row})
			}
		}
		for _, row := range l.WritePaths {
			if !has[row] {
				*changes = append(*changes, Change{Key: "write_paths", Old: row})
			}
		}
	}
	if l.Writes != "" {
		n.Writes = writeset.Digest(rows)
		if n.Writes != l.Writes {
			*changes = append(*changes, Change{Key: "writes", Old: l.Writes, New: n.Writes})
		}
	}
	return nil
}

func (l *Ledger) setBudget(r *Record, changes *[]Change) {
	old := l.CPUBudget
	l.CPUBudget = Headroom(r.CPUSec)
	*changes = append(*changes, Change{
		Key: "cpu_budget", Old: formatSeconds(old), New: formatSeconds(l.CPUBudget),
		Detail: fmt.Sprintf("the run used %.2f s", r.CPUSec),
	})
}

// setMinTests asks for the tests that passed. None at all is no number to ask
// for, and the key goes.
func (l *Ledger) setMinTests(r *Record, changes *[]Change) {
	old := l.MinTests
	l.MinTests = r.Tests.Passed
	*changes = append(*changes, Change{
		Key: "min_tests", Old: optional(old), New: optional(l.MinTests),
		Detail: fmt.Sprintf("%d failed, %d were skipped", r.Tests.Failed, r.Tests.Skipped),
	})
}

// optional spells a number of which none is no entry.
func optional(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func formatSeconds(s float64) string { return strconv.FormatFloat(s, 'f', -1, 64) }

// allowOutside adds to allow_write what a record wrote outside the repository
// and the ledger does not cover, and gives the new entries. A ledger without
// the key gets the defaults as well, which the key would otherwise replace.
func allowOutside(l *Ledger, r *Record) []string {
	var entries []string
	for _, row := range r.Outside {
		if _, ok := writable(l, row); ok {
			continue
		}
		if !l.HasAllowWrite {
			l.AllowWrite, l.HasAllowWrite = writeset.DefaultAllow(), true
		}
		entry := row.Allowed // what the run's own ledger allowed
		if entry == "" {
			entry = placeEntry(rawOutside(row.Path))
		}
		entries = append(entries, entry)
		l.AllowWrite = append(l.AllowWrite, entry)
	}
	slices.Sort(l.AllowWrite)
	l.AllowWrite = slices.Compact(l.AllowWrite)
	return entries
}

// placeEntry spells the raw path of an outside row, absolute or below a
// variable, as an entry of allow_write that covers it alone.
func placeEntry(text string) string {
	head, rest, _ := strings.Cut(text, "/") // head is "" or "$HOME"
	if rest == "" {
		return text
	}
	return head + "/" + strings.ReplaceAll(writeset.EscapeGlob(rest), "$", "?") // a $ there would be no place
}
