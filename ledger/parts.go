package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// Join makes one record of those of all parts of a ledger: rows are their
// union, and CPU is that of the part that used most, since the budget holds for
// each. What one of them lacks, all lack.
//
// names are for messages. A part that is missing or stands there twice, and
// records that are not of one revision, ledger and base, are errors.
func Join(l *Ledger, records []*Record, names []string) (*Record, error) {
	refuse := func(name, msg, hint string) error { return &Error{Op: "join", Path: name, Msg: msg, Hint: hint} }
	if len(l.Parts) == 0 {
		return nil, refuse(strings.Join(names, ", "), "the ledger has no parts, so it is judged by one record", "gate check RECORD")
	}
	from := map[string]string{}
	for i, r := range records {
		if !slices.Contains(l.Parts, r.Part) {
			return nil, refuse(names[i], fmt.Sprintf("it is of part %q, the ledger has %s", r.Part, strings.Join(l.Parts, ", ")), "gate run --part NAME")
		}
		if first, twice := from[r.Part]; twice {
			return nil, refuse(names[i], fmt.Sprintf("part %s stands here again (first in %s)", r.Part, first), "name one record of each part")
		}
		from[r.Part] = names[i]
		if what := strangers(records[0], r); what != "" {
			return nil, refuse(names[i], fmt.Sprintf("its %s is not that of %s", what, names[0]), "name the records of one revision")
		}
	}
	for _, part := range l.Parts {
		if from[part] == "" {
			return nil, refuse(strings.Join(names, ", "), "there is no record of part "+part, "gate run --part "+part)
		}
	}
	out := *records[0]
	out.Part, out.Joined = "", true
	for _, r := range records[1:] {
		out.join(r)
		if l.Command != nil && !slices.Equal(r.Command, l.Command) {
			out.Command = r.Command // one that was another is enough
		}
	}
	out.unlistedOf(records)
	out.Derive()
	return &out, nil
}

// strangers names what two records of one suite must have in common and these
// have not.
func strangers(a, b *Record) string {
	switch {
	case a.Version != b.Version:
		return "version"
	case !slices.Equal(a.Fold, b.Fold):
		return "fold"
	case (a.Git == nil) != (b.Git == nil) || a.Git != nil && a.Git.Commit != b.Git.Commit:
		return "commit"
	case (a.LedgerFile == nil) != (b.LedgerFile == nil) || a.LedgerFile != nil && a.LedgerFile.SHA256 != b.LedgerFile.SHA256:
		return "ledger"
	case (a.Base == nil) != (b.Base == nil) || a.Base != nil && a.Base.SHA256 != b.Base.SHA256:
		return "base"
	case a.Mode != b.Mode:
		return "mode"
	}
	return ""
}

// join adds what another part did.
func (r *Record) join(other *Record) {
	r.NetRows = union(r.NetRows, other.NetRows, func(n NetRow) string { return n.Endpoint }, func(to *NetRow, n NetRow) {
		to.Count, to.Door = to.Count+n.Count, to.Door || n.Door
		to.Witness, to.Calls = merged(to.Witness, n.Witness), merged(to.Calls, n.Calls)
	})
	r.WriteRows = union(r.WriteRows, other.WriteRows, func(w WriteRow) string { return w.Path }, func(to *WriteRow, w WriteRow) {
		to.Count += w.Count
		to.Witness, to.Calls = merged(to.Witness, w.Witness), merged(to.Calls, w.Calls)
	})
	r.Outside = union(r.Outside, other.Outside, func(o OutsideRow) string { return o.Allowed + "\x00" + o.Path }, func(to *OutsideRow, o OutsideRow) {
		to.Count, to.Calls = to.Count+o.Count, merged(to.Calls, o.Calls)
	})
	r.Gaps = append(slices.Clone(r.Gaps), other.Gaps...)
	r.Findings = append(slices.Clone(r.Findings), other.Findings...)
	r.Doors = append(slices.Clone(r.Doors), other.Doors...)
	if other.CPUSec > r.CPUSec {
		r.CPUSec, r.CPU = other.CPUSec, other.CPU
	}
	if r.Exit == 0 {
		r.Exit, r.Signal = other.Exit, other.Signal
	}
	switch {
	case r.Tests == nil || other.Tests == nil:
		r.Tests = nil // nobody knows them all
	default:
		t := *r.Tests
		t.Passed, t.Failed, t.Skipped = t.Passed+other.Tests.Passed, t.Failed+other.Tests.Failed, t.Skipped+other.Tests.Skipped
		r.Tests = &t
	}
	if r.Killed == "" {
		r.Killed = other.Killed
	}
	if r.Interrupted == "" {
		r.Interrupted = other.Interrupted
	}
	if tierRank(other.Evidence) < tierRank(r.Evidence) {
		r.Evidence = other.Evidence
	}
	if p, q := r.PositiveControl, other.PositiveControl; p != nil && (q == nil || q.Passed-q.Total < p.Passed-p.Total) {
		r.PositiveControl = q
	}
	if f := other.LedgerFile; f != nil && f.Changed {
		r.LedgerFile = f
	}
	if other.Started.Before(r.Started) {
		r.Started = other.Started
	}
	if other.Ended.After(r.Ended) {
		r.Ended = other.Ended
	}
}

// unlistedOf sums up the rows under each fold that the parts only counted.
func (r *Record) unlistedOf(parts []*Record) {
	listed := map[string]int64{}
	for _, w := range r.WriteRows {
		listed[w.Fold]++
	}
	more := map[string]int64{}
	for _, p := range parts {
		for _, f := range p.Folded {
			more[f.Glob] += f.Count - f.Listed
		}
	}
	r.Folded = nil
	for _, glob := range r.Fold {
		if more[glob] > 0 {
			r.Folded = append(r.Folded, Folded{Glob: glob, Count: listed[glob] + more[glob], Listed: listed[glob]})
		}
	}
}

// union adds rows to those that are there; add takes in one of a key that is.
func union[T any](rows, more []T, key func(T) string, add func(to *T, row T)) []T {
	out := slices.Clone(rows)
	at := map[string]int{}
	for i, row := range out {
		at[key(row)] = i
	}
	for _, row := range more {
		if i, ok := at[key(row)]; ok {
			add(&out[i], row)
			continue
		}
		at[key(row)] = len(out)
		out = append(out, row)
	}
	return out
}

// merged is the union of two lists without order.
func merged(a, b []string) []string {
	out := append(slices.Clone(a), b...)
	slices.Sort(out)
	return slices.Compact(out)
}
