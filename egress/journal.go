package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of an in-process journal, in bytes.
const (
	maxJournal = 16 << 20
	maxLine    = 64 << 10
)

// ReadJournal reads what in-process interceptors appended to the file that
// GATE_EGRESS_LOG names: a JSON object a line, {"dest":"host:port"}, with
// other keys as the adapter likes. dest is an endpoint in any clear spelling.
// seen is called for each. Lines that are none of this, and what lies beyond
// the bounds, are a gap.
func ReadJournal(src io.Reader, seen func(Endpoint)) ([]Gap, error) {
	limited := &io.LimitedReader{R: src, N: maxJournal + 1}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	gap := Gap{Kind: "egress-log"}
	broken := func(line int, err error) {
		if gap.Count == 0 {
			gap.Detail = fmt.Sprintf("line %d of the in-process journal: %v", line, err)
		}
		gap.Count++
	}
	n := 0
	for lines.Scan() {
		n++
		e, err := parseJournalLine(lines.Bytes())
		if err != nil {
			broken(n, err)
			continue
		}
		seen(e)
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		broken(n+1, fmt.Errorf("longer than %d bytes; nothing after it was read", maxLine))
	case err != nil:
		return nil, fmt.Errorf("read in-process journal: %w", err)
	case limited.N == 0:
		broken(n+1, fmt.Errorf("beyond the %d bytes that are read", maxJournal))
	}
	if gap.Count == 0 {
		return nil, nil
	}
	return []Gap{gap}, nil
}

func parseJournalLine(line []byte) (Endpoint, error) {
	var object map[string]json.RawMessage // a struct would take "DEST" as well
	if err := json.Unmarshal(line, &object); err != nil {
		return Endpoint{}, fmt.Errorf("not a JSON object: %w", err)
	}
	var dest *string
	if err := json.Unmarshal(object["dest"], &dest); err != nil || dest == nil {
		return Endpoint{}, errors.New(`no text under the key "dest"; a line is {"dest":"host:port"}`)
	}
	e, err := parse(*dest)
	if err != nil {
		return Endpoint{}, fmt.Errorf("dest %q: %w", *dest, err)
	}
	if e.pattern {
		return Endpoint{}, fmt.Errorf("dest %q: a pattern is no destination", *dest)
	}
	return e, nil
}
