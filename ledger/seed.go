package ledger

import (
	"fmt"
	"math"
	"slices"

	"github.com/org/gate/writeset"
)

// Folding is a fold that Seed made, and why.
type Folding struct {
	Glob   string   `json:"glob"`
	Reason string   `json:"reason"`
	Rows   []string `json:"rows"` // those that were not in every record and fall under it
}

// Seed makes a first ledger from the records of at least two runs of one
// command on a known-good revision, made without any fold.
//
//   - Rows that every record has stay; each other row falls under a fold, the
//     narrowest that also covers the names of a later run: so every record has
//     the same set under the ledger, and a warm and a cold run agree.
//   - Every endpoint that any record has is listed in allow_net: whoever
//     commits the ledger reads that list.
//   - Places outside the repository that were written join the default
//     allow_write; names there that differ from run to run become a glob.
//   - The budget is Headroom of the largest figure.
//
// Records with a gap, of a failed or an interrupted run are refused.
func Seed(records []*Record, command []string) (*Ledger, []Folding, error) {
	if len(records) < 2 {
		return nil, nil, &Error{Op: "seed", Path: "ledger", Msg: fmt.Sprintf("found %d records, wanted at least two: one cannot show what differs", len(records))}
	}
	l := &Ledger{Version: Version, Command: command, Mode: Enforce, HasPaths: true}
	var sets []map[string]bool
	most := 0.0
	for i, r := range records {
		if err := usable(r, "seed", fmt.Sprintf("run %d", i+1)); err != nil {
			return nil, nil, err
		}
		if r.unlisted() {
			return nil, nil, &Error{Op: "seed", Path: fmt.Sprintf("run %d", i+1), Msg: "the rows under a fold were too many to list", Hint: "record it without folds"}
		}
		set := map[string]bool{}
		for _, row := range r.WriteRows {
			set[row.Path] = true
		}
		sets = append(sets, set)
		l.AllowNet = append(l.AllowNet, r.Net...)
		most = max(most, r.CPUSec)
	}
	seedPlaces(l, records)
	slices.Sort(l.AllowNet)
	l.AllowNet = slices.Compact(l.AllowNet)
	l.CPUBudget = Headroom(most)

	foldings, err := foldVarying(sets)
	if err != nil {
		return nil, nil, &Error{Op: "seed", Path: "ledger", Err: err}
	}
	if len(foldings) > MaxFolds {
		return nil, nil, &Error{
			Op: "seed", Path: "ledger", Msg: fmt.Sprintf("%d folds would be needed for what differs between the runs, at most %d are read", len(foldings), MaxFolds),
			Hint: "let the suite write names that change below $TMPDIR, or below one directory",
		}
	}
	for _, f := range foldings {
		l.Fold = append(l.Fold, f.Glob)
	}
	set, err := fold(records[0].WriteRows, l.Fold)
	if err != nil {
		return nil, nil, &Error{Op: "seed", Path: "ledger", Err: err}
	}
	l.WritePaths = set.rows
	l.Writes = writeset.Digest(set.rows)
	return l, foldings, nil
}

// seedPlaces adds to allow_write what the runs wrote outside the repository.
func seedPlaces(l *Ledger, records []*Record) {
	var sets []map[string]bool
	for _, r := range records {
		set := map[string]bool{}
		for _, row := range r.Outside {
			if _, ok := writable(l, row); !ok && row.Allowed == "" {
				set[rawOutside(row.Path)] = true
			}
		}
		sets = append(sets, set)
	}
	if globs := varyingPlaces(sets); len(globs) > 0 {
		l.AllowWrite, l.HasAllowWrite = append(writeset.DefaultAllow(), globs...), true
	}
	for _, r := range records {
		allowOutside(l, r) // sorts
	}
}

// Headroom is the budget for a suite that needed so many user CPU seconds:
// twice as much and five more, rounded up. Two runs of one suite differ by up
// to a quarter, and a short one needs room for its tools to start.
func Headroom(seconds float64) float64 { return math.Ceil(2*seconds + 5) }

// usable refuses a record that shows less than a whole, successful run.
func usable(r *Record, op, name string) error {
	refuse := func(msg, hint string) error { return &Error{Op: op, Path: name, Msg: msg, Hint: hint} }
	switch {
	case r.Killed != "":
		return refuse("gate ended the run: "+r.Killed, "a budget is not raised for a run that did not end by itself: raise --timeout, or look for a loop")
	case r.Interrupted != "":
		return refuse("the run was interrupted by "+r.Interrupted, "run it to its end")
	case r.Exit != 0:
		return refuse(fmt.Sprintf("the command failed with status %d", r.Exit), "only a run that passes can be accepted")
	case len(r.Gaps) > 0:
		return refuse("not everything was observed: "+r.Gaps[0].Kind+": "+r.Gaps[0].Detail, gapAdvice(r.Gaps[0].Kind))
	case r.PositiveControl != nil && r.PositiveControl.Passed != r.PositiveControl.Total:
		return refuse("a positive control failed: the detector is blind", "gate doctor")
	case r.LedgerFile != nil && r.LedgerFile.Changed:
		return refuse("the run changed its own ledger", "restore the ledger, and look for what wrote it")
	}
	if key, msg := r.inconsistency(); msg != "" {
		return refuse(key+": "+msg, "run again; a record is never edited")
	}
	return nil
}
