// Package egress is column 1 of a record: every endpoint a process tree tried
// to reach, reached or not.
//
// It takes network attempts as they are made (first witness: connect, sendto,
// bind) and packets seen on the loopback of the namespace (second witness),
// answers name lookups with addresses of its own so that a later connect can
// be recorded by name, forwards the endpoints that the ledger opens (doors),
// and reduces everything to rows. See docs/network.md.
//
// It traps no call, makes no namespace and knows no ledger file.
package egress

import "net/netip"

// Transport of an attempt, as the socket's domain, type and protocol tell it.
type Transport uint8

// The transports. Unknown is judged like TCP: over-reporting is safer. DNS is
// no transport of an attempt but the kind of an endpoint: a name that was
// looked up and never connected to.
const (
	Unknown Transport = iota
	TCP
	UDP
	Unix
	Vsock
	Raw
	DNS
)

// Attempt is one call that names a far end: connect, sendto, sendmsg,
// sendmmsg, or a socket() of a family that no namespace holds.
type Attempt struct {
	Call      string // name of the system call
	Transport Transport
	Addr      netip.AddrPort // TCP, UDP, Raw
	Path      string         // Unix: resolved absolute path, or "@name" for an abstract one ("@" alone: unnamed)
	Exists    bool           // Unix path: a socket stands there now
	// Label is, for Vsock, "cid:port" ("*:*" when the call names neither); for
	// Raw without an Addr the rest of the row ("io_uring", "packet"); for Raw
	// with an Addr the protocol, as ProtocolName spells it.
	Label string
	// Errno is what a Raw or Vsock call gets, in audit mode too. 0 stands for
	// EAFNOSUPPORT with Vsock; with Raw it lets the call go on.
	Errno int
	// Unwitnessed says of a UDP connect that nobody sees whether datagrams
	// follow, so that it is an attempt itself; see Config.UDPWitness.
	Unwitnessed bool
	// Actor interns who made the call and returns its index, smaller for
	// earlier actors; nil if nobody can be named. It is called at most once,
	// before the method that was given the Attempt returns, and must not call
	// the Recorder.
	Actor func() int
}

// Decision is the answer to an attempt.
type Decision struct {
	// Errno 0 lets the call go on; any other value is what the caller gets.
	Errno int
	// Later, if set, is run on another goroutine and its Decision used: the
	// answer needs the far end of a door to be dialled first. It ends when
	// the door is closed.
	Later func() Decision
}

// Bind is a call that gives a socket of the tree a local address.
type Bind struct {
	Transport Transport
	Addr      netip.AddrPort
	Path      string // Unix: resolved path or "@name"
	// Exists says that something stands at the Unix path already: such a bind
	// fails with EADDRINUSE and makes nothing the tree's own.
	Exists bool
	Actor  func() int
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
