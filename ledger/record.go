package ledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/org/gate/writeset"
)

// MaxRecordSize bounds a record, in bytes.
const MaxRecordSize = 64 << 20

// Derive sorts the rows of a record and fills in the keys that follow from
// them: Net, WritePaths and Writes.
func (r *Record) Derive() {
	slices.SortFunc(r.NetRows, func(a, b NetRow) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	slices.SortFunc(r.WriteRows, func(a, b WriteRow) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(r.Outside, func(a, b OutsideRow) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(r.Folded, func(a, b Folded) int { return cmp.Compare(a.Glob, b.Glob) })
	r.Net = r.endpoints()
	r.WritePaths = r.set()
	r.Writes = writeset.Digest(r.WritePaths)
}

func (r *Record) endpoints() []string {
	list := make([]string, 0, len(r.NetRows))
	for _, row := range r.NetRows {
		list = append(list, row.Endpoint)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// set is the rows of the record under the folds of its own run.
func (r *Record) set() []string {
	list := slices.Clone(r.Fold)
	for _, row := range r.WriteRows {
		if row.Fold == "" {
			list = append(list, row.Path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Encode gives the JSON text of a record. It refuses one that ParseRecord
// would refuse, since nobody could judge it.
func (r *Record) Encode() ([]byte, error) {
	c := *r
	// The keys that every record has are lists, never null.
	for _, list := range []*[]string{&c.Command, &c.Net, &c.WritePaths, &c.Fold} {
		if *list == nil {
			*list = []string{}
		}
	}
	if c.Gaps == nil {
		c.Gaps = []Gap{}
	}
	if c.NetRows == nil {
		c.NetRows = []NetRow{}
	}
	if c.WriteRows == nil {
		c.WriteRows = []WriteRow{}
	}
	if key, msg := c.inconsistency(); msg != "" {
		return nil, fmt.Errorf("BUG: encode record: %s: %s", key, msg)
	}
	text, err := encodeJSON(&c)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return text, nil
}

// encodeJSON is indented JSON that is safe to print.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return escapeUnprintable(buf.Bytes()), nil
}

// ParseRecord reads a record as strictly as Parse reads a ledger, and checks
// that its parts agree with one another: an edited record must not be judged.
func ParseRecord(name string, data []byte) (*Record, error) {
	if len(data) > MaxRecordSize {
		return nil, tooBig(name, int64(len(data)), MaxRecordSize)
	}
	d, err := readDocument(name, data)
	if err != nil {
		return nil, err
	}
	if d.root.get("allow_net") != nil {
		return nil, d.errorAt(d.root.start, "this is a ledger, wanted a record", "gate run writes one: capability.actual.json")
	}
	if err := d.version(Version, false); err != nil {
		return nil, err
	}
	r := &Record{}
	if err := d.decode(r); err != nil {
		return nil, err
	}
	if key, msg := r.inconsistency(); msg != "" {
		place := d.root
		if n := d.root.get(key); n != nil {
			place = n
		}
		return nil, d.errorAt(place.start, key+": "+msg, "a record is written by gate run and never edited")
	}
	return r, nil
}

// inconsistency names a key of the record that contradicts another or cannot
// be, and says why; an empty msg means there is none.
func (r *Record) inconsistency() (key, msg string) {
	positive := func(f float64) bool { return f >= 0 && !math.IsInf(f, 0) }
	switch {
	case r.Version != Version:
		return "version", fmt.Sprintf("found %d, wanted %d", r.Version, Version)
	case len(r.Command) == 0:
		return "command", "is empty"
	case r.Exit < 0 || r.Exit > 255:
		return "exit", fmt.Sprintf("found %d, wanted 0 to 255", r.Exit)
	case r.Signal != "" && r.Exit == 0:
		return "signal", "the command died of a signal and its status is 0"
	case !slices.Contains([]string{"", KilledCPU, KilledTimeout}, r.Killed):
		return "killed", fmt.Sprintf("found %q, wanted %s or %s", r.Killed, KilledCPU, KilledTimeout)
	case tierRank(r.Evidence) < 0:
		return "evidence", fmt.Sprintf("found %q, wanted %s, %s or %s", r.Evidence, TierNamespace, TierNotify, TierWeak)
	case r.Mode != Enforce && r.Mode != Audit:
		return "mode", fmt.Sprintf("found %q, wanted %s or %s", r.Mode, Enforce, Audit)
	case !positive(r.CPUSec):
		return "cpu_sec", fmt.Sprintf("found %g, wanted seconds", r.CPUSec)
	case !positive(r.CPUBudget):
		return "cpu_budget", fmt.Sprintf("found %g, wanted seconds", r.CPUBudget)
	case len(r.Net) != len(r.NetRows) || !slices.Equal(r.Net, r.endpoints()):
		return "net", "is not the sorted list of the endpoints in net_rows"
	}
	if t := r.Tests; t != nil && min(t.Passed, t.Failed, t.Skipped) < 0 {
		return "tests", fmt.Sprintf("found %d passed, %d failed, %d skipped", t.Passed, t.Failed, t.Skipped)
	}
	if p := r.PositiveControl; p != nil && (p.Passed < 0 || p.Passed > p.Total) {
		return "positive_control", fmt.Sprintf("found %d passed of %d", p.Passed, p.Total)
	}
	if msg := r.foldInconsistency(); msg != "" {
		return "write_rows", msg
	}
	if !slices.Equal(r.WritePaths, r.set()) {
		return "write_paths", "is not the sorted set of the rows in write_rows under fold"
	}
	if digest := writeset.Digest(r.WritePaths); r.Writes != digest {
		return "writes", fmt.Sprintf("found %q, but write_paths hashes to %s", r.Writes, digest)
	}
	return "", ""
}

// foldInconsistency checks every write row against the folds of the run.
func (r *Record) foldInconsistency() string {
	if len(r.Fold) > MaxFolds {
		return fmt.Sprintf("found %d folds, wanted at most %d", len(r.Fold), MaxFolds)
	}
	f, err := parseFolds(r.Fold)
	if err != nil {
		return err.Error()
	}
	listed := map[string]int64{}
	seen := map[string]bool{}
	for _, row := range r.WriteRows {
		if err := checkRow(row.Path, nil); err != nil {
			return err.Error()
		}
		if seen[row.Path] {
			return fmt.Sprintf("%q stands there twice", row.Path)
		}
		seen[row.Path] = true
		glob, err := f.match(row.Path)
		if err != nil {
			return err.Error()
		}
		if row.Fold != glob {
			return fmt.Sprintf("%q is counted under the fold %q, wanted %q", row.Path, row.Fold, glob)
		}
		if row.Fold != "" {
			listed[row.Fold]++
		}
	}
	for _, f := range r.Folded {
		if !slices.Contains(r.Fold, f.Glob) {
			return fmt.Sprintf("folded names %q, which is no fold of this run", f.Glob)
		}
		if f.Listed != listed[f.Glob] || f.Listed > f.Count {
			return fmt.Sprintf("folded says that %d of %d rows under %q are listed, and %d are", f.Listed, f.Count, f.Glob, listed[f.Glob])
		}
	}
	return ""
}

// unlisted says whether the record holds fewer rows than were written, all of
// them under a fold.
func (r *Record) unlisted() bool {
	return slices.ContainsFunc(r.Folded, func(f Folded) bool { return f.Listed < f.Count })
}

// tierRank orders the tiers, best highest; -1 for a word that is none.
func tierRank(tier string) int {
	return slices.Index([]string{TierWeak, TierNotify, TierNamespace}, tier)
}
