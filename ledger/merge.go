package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/org/gate/writeset"
)

// Merge makes one ledger of two that came from a common one: what either side
// added is there, what either side took away is gone. base may be nil where
// there is none. changes are those against ours.
//
// Where both sides set a key to different values, a larger cpu_budget or
// min_tests wins, and any other is an error: nobody but a human knows which was
// meant. The result is a contract that nobody has seen a run of: a record has to bear it out.
func Merge(base, ours, theirs *Ledger) (merged *Ledger, changes []Change, err error) {
	if base == nil {
		base = &Ledger{}
	}
	m := merge{out: ours.clone()}
	m.value("version", fmt.Sprint(base.Version), fmt.Sprint(ours.Version), fmt.Sprint(theirs.Version), func() { m.out.Version = theirs.Version })
	m.value("command", spelled(base.Command), spelled(ours.Command), spelled(theirs.Command), func() { m.out.Command = slices.Clone(theirs.Command) })
	m.value("mode", base.Mode, ours.Mode, theirs.Mode, func() { m.out.Mode = theirs.Mode })
	m.value("evidence", base.Evidence, ours.Evidence, theirs.Evidence, func() { m.out.Evidence = theirs.Evidence })
	m.value("prove", fmt.Sprint(base.Prove), fmt.Sprint(ours.Prove), fmt.Sprint(theirs.Prove), func() { m.out.Prove = theirs.Prove })
	m.value("self_accept", fmt.Sprint(base.SelfAccept), fmt.Sprint(ours.SelfAccept), fmt.Sprint(theirs.SelfAccept), func() { m.out.SelfAccept = theirs.SelfAccept })
	m.budget(base, theirs)
	m.minTests(base, theirs)

	m.list("allow_net", &m.out.AllowNet, base.AllowNet, theirs.AllowNet)
	m.list("fold", &m.out.Fold, base.Fold, theirs.Fold) // the order of ours, then what is new
	m.list("parts", &m.out.Parts, base.Parts, theirs.Parts)
	m.list("paths", &m.out.Paths, base.Paths, theirs.Paths)
	if theirs.HasAllowWrite || ours.HasAllowWrite {
		m.out.AllowWrite, m.out.HasAllowWrite = slices.Clone(places(ours)), true
		m.list("allow_write", &m.out.AllowWrite, places(base), places(theirs))
	}
	m.rows(base, ours, theirs)
	for _, list := range []*[]string{&m.out.AllowNet, &m.out.AllowWrite, &m.out.WritePaths, &m.out.Parts, &m.out.Paths} {
		slices.Sort(*list)
	}
	if m.conflicts != nil {
		return nil, nil, &Error{
			Op: "merge", Path: "ledger", Msg: "both sides changed " + strings.Join(m.conflicts, ", ") + " and not alike",
			Hint: "settle these by hand, and leave the other keys to gate accept --merge",
		}
	}
	return m.out, m.changes, nil
}

// merge is one under way; out starts as ours.
type merge struct {
	out       *Ledger
	changes   []Change
	conflicts []string
}

// value settles a key of one value, by its spellings on the three sides.
func (m *merge) value(key, base, ours, theirs string, take func()) {
	switch {
	case ours == theirs || base == theirs:
	case base == ours:
		take()
		m.changes = append(m.changes, Change{Key: key, Old: ours, New: theirs})
	default:
		m.conflicts = append(m.conflicts, key)
	}
}

func (m *merge) budget(base, theirs *Ledger) {
	ours := m.out.CPUBudget
	if theirs.CPUBudget == base.CPUBudget || theirs.CPUBudget <= ours && ours != base.CPUBudget {
		return
	}
	if m.out.CPUBudget = theirs.CPUBudget; ours != theirs.CPUBudget {
		m.changes = append(m.changes, Change{Key: "cpu_budget", Old: formatSeconds(ours), New: formatSeconds(theirs.CPUBudget)})
	}
}

func (m *merge) minTests(base, theirs *Ledger) {
	ours := m.out.MinTests
	if theirs.MinTests == base.MinTests || theirs.MinTests <= ours && ours != base.MinTests {
		return
	}
	if m.out.MinTests = theirs.MinTests; ours != theirs.MinTests {
		m.changes = append(m.changes, Change{Key: "min_tests", Old: optional(ours), New: optional(theirs.MinTests)})
	}
}

// list settles a list, entry by entry.
func (m *merge) list(key string, ours *[]string, base, theirs []string) {
	*ours = slices.DeleteFunc(*ours, func(s string) bool {
		gone := slices.Contains(base, s) && !slices.Contains(theirs, s)
		if gone {
			m.changes = append(m.changes, Change{Key: key, Old: s})
		}
		return gone
	})
	for _, s := range theirs {
		if !slices.Contains(*ours, s) && !slices.Contains(base, s) {
			*ours = append(*ours, s)
			m.changes = append(m.changes, Change{Key: key, New: s})
		}
	}
}

// rows settles column 3. A digest without its rows can only be taken whole.
func (m *merge) rows(base, ours, theirs *Ledger) {
	if !ours.HasPaths || !theirs.HasPaths {
		m.value("writes", base.Accepted(), ours.Accepted(), theirs.Accepted(), func() {
			m.out.Writes, m.out.WritePaths, m.out.HasPaths = theirs.Writes, slices.Clone(theirs.WritePaths), theirs.HasPaths
		})
		return
	}
	m.list("write_paths", &m.out.WritePaths, base.WritePaths, theirs.WritePaths)
	if ours.Writes != "" && (base.Writes == "" || theirs.Writes != "") {
		m.out.Writes = writeset.Digest(m.out.WritePaths)
	} else {
		m.out.Writes = "" // one side dropped the line that always conflicts
	}
}

func spelled(command []string) string { return strings.Join(command, "\x00") }
