// Package netns runs a command where nothing leaves: in namespaces with
// loopback alone, local default routes on it, and a private resolver that
// answers every name.
//
// It lays the same ground gate does, by other means (unshare by the kernel at
// clone, ip(8) for the routes), and observes nothing but the lookups.
package netns

import (
	"net/netip"
	"time"
)

// Host is the machine's name inside; it means loopback.
const Host = "gate"

// InsideArg is the subcommand under which the program must call Inside.
const InsideArg = "inside"

// The addresses the namespace has besides loopback: the source of what would
// leave.
var (
	own4 = netip.MustParseAddr("198.18.0.1")
	own6 = netip.MustParseAddr("2001:2::1")
)

// Command is what to run inside.
type Command struct {
	Args    []string
	Dir     string
	Env     []string
	Output  string        // file that takes stdout and stderr
	UID     uint32        // who runs it
	GID     uint32        //
	Tracer  bool          // Args[0] is a strace whose child is the command: end what outlives that child
	Timeout time.Duration // then all of it is killed
}

// Result is how it went.
type Result struct {
	Exit    int     // as a shell gives it
	UserSec float64 // user CPU seconds of all that was waited for
	Asked   []string
	Names   map[netip.Addr]string
	Error   string // why it could not be run; all else is then zero
}
