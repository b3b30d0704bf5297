// Package egress is column 1 of a record: every endpoint a process tree tried
// to reach, reached or not.
//
// It takes network attempts as they are made (first witness: connect, sendto,
// bind) and packets seen on the loopback of the namespace (second witness),
// answers name lookups with addresses of its own so that a later connect can
// be recorded by name, forwards the endpoints that the ledger opens (doors),
// and reduces everything to rows. See docs/design.md, "Column 1".
//
// It traps no call, makes no namespace and knows no ledger file.
package egress

import "net/netip"

// Transport of an attempt, as the socket's domain, type and protocol tell it.
type Transport uint8

// The transports. Unknown is judged like TCP: over-reporting is safer.
const (
	Unknown Transport = iota
	TCP
	UDP
	Unix
	Vsock
	Raw
)

// Attempt is one call that names a far end: connect, sendto, sendmsg,
// sendmmsg, or a socket() of a family that no namespace holds.
type Attempt struct {
	Call      string // name of the system call
	Transport Transport
	Addr      netip.AddrPort // TCP, UDP, Raw
	Path      string         // Unix: resolved absolute path, or "@name" for an abstract one ("@" alone: unnamed)
	Exists    bool           // Unix path: a socket stands there now
	Label     string         // Vsock and Raw: the rest of the row, e.g. "*:*", "io_uring"
	// Actor interns who made the call and returns its index; called only when
	// the attempt starts a new row.
	Actor func() int
}

// Decision is the answer to an attempt.
type Decision struct {
	// Errno 0 lets the call go on; any other value is what the caller gets.
	Errno int
	// Later, if set, is run on another goroutine and its Decision used: the
	// answer needs the far end of a door to be dialled first.
	Later func() Decision
}

// Bind is a call that gives a socket of the tree a local address.
type Bind struct {
	Transport Transport
	Addr      netip.AddrPort
	Path      string // Unix: resolved path or "@name"
	Actor     func() int
}

// Mode says what the surroundings are, since the rules differ with them.
type Mode uint8

// Namespaced: nobody but the tree can be on loopback, packets are witnessed,
// nothing leaves. Shared: the tree shares the host's network; gate itself
// refuses what the ledger does not open.
const (
	Namespaced Mode = iota + 1
	Shared
)
