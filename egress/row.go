package egress

import (
	"cmp"
	"slices"
)

// Witness is a set of those who saw an endpoint.
type Witness uint8

// The witnesses: the trapped call, the packet socket, the resolver, and a
// journal that an interceptor inside the program wrote.
const (
	BySyscall Witness = 1 << iota
	ByPacket
	ByResolver
	InProcess
)

// Names are the witnesses as a record spells them.
func (w Witness) Names() []string {
	var names []string
	for i, name := range []string{"syscall", "packet", "resolver", "in-process"} {
		if w&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// Row is one endpoint that the tree tried to reach.
type Row struct {
	Endpoint string
	Count    int64    // attempts: calls or packets, whichever are more
	Calls    []string // names of the system calls, sorted
	Witness  Witness
	Door     bool // it went to a door
	Actor    int  // who came first, or -1
}

// Gap is something that was not observed.
type Gap struct {
	Kind   string // short, stable
	Detail string // one sentence
	Count  int64
}

// Visible is a Unix socket that the tree bound where processes outside can
// see it.
type Visible struct {
	Endpoint string
	Actor    int // or -1
}

// Result is the column when the run is over.
type Result struct {
	Rows    []Row     // sorted by endpoint, each once
	Gaps    []Gap     // sorted by kind
	Visible []Visible // sorted by endpoint
}

// tally counts one endpoint.
type tally struct {
	calls   []string
	syscall int64
	packet  int64
	lookup  int64
	inside  int64
	witness Witness
	actor   int
}

// see counts one attempt; who is asked only while no actor is known.
func (t *tally) see(w Witness, call string, who func() int) {
	t.witness |= w
	switch w {
	case BySyscall:
		t.syscall++
	case ByPacket:
		t.packet++
	case ByResolver:
		t.lookup++
	case InProcess:
		t.inside++
	}
	if i, found := slices.BinarySearch(t.calls, call); !found && call != "" {
		t.calls = slices.Insert(t.calls, i, call)
	}
	if t.actor < 0 && who != nil {
		t.actor = who()
	}
}

// count is the number of attempts. A call and its packet are one, so is a call
// and the lookup before it; a request that was intercepted inside the program
// made neither.
func (t *tally) count() int64 { return t.inside + max(t.syscall, t.packet, t.lookup) }

// row is the tally under its spelling.
func (t *tally) row(endpoint string) Row {
	return Row{
		Endpoint: endpoint,
		Count:    t.count(),
		Calls:    slices.Clone(t.calls),
		Witness:  t.witness,
		Actor:    t.actor,
	}
}

// merge makes one row of those that are spelled alike.
func merge(rows []Row) []Row {
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	var merged []Row
	for _, r := range rows {
		if len(merged) == 0 || merged[len(merged)-1].Endpoint != r.Endpoint {
			merged = append(merged, r)
			continue
		}
		m := &merged[len(merged)-1]
		m.Count += r.Count
		m.Calls = append(m.Calls, r.Calls...)
		slices.Sort(m.Calls)
		m.Calls = slices.Compact(m.Calls)
		m.Witness |= r.Witness
		m.Door = m.Door || r.Door
		if m.Actor < 0 || (r.Actor >= 0 && r.Actor < m.Actor) {
			m.Actor = r.Actor
		}
	}
	return merged
}
