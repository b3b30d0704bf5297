// Package sandbox runs a command so that what its whole process tree does can
// be recorded from outside: in namespaces of its own where the host allows
// it, and under seccomp user notification always.
//
// It decodes the trapped calls and feeds them to a Handler. It keeps no rows,
// judges nothing and knows no ledger.
//
// The parts, in the order a call passes them: syscalls.go (the one table of
// traced calls), bpf.go (the filter made from it), supervise_linux.go (the
// notification loop), memory_linux.go and decode.go (arguments), then either
// network_linux.go, with socket_linux.go and connect_linux.go (who is to be
// reached), or files_linux.go, with locate_linux.go (which file a path really
// names) and predict_linux.go (whether the call can succeed). start_linux.go and init_linux.go are the two
// ends of the set-up.
package sandbox

import (
	"net/netip"
	"os"
	"time"
)

// Tier is how a run is observed; see docs/design.md, "Evidence".
type Tier string

// Namespace: own network, PID, mount, UTS and IPC namespaces (and, without
// root, a user namespace) plus seccomp user notification. Notify: seccomp
// user notification alone, for containers that forbid new namespaces.
const (
	Namespace Tier = "namespace"
	Notify    Tier = "notify"
)

// OwnIPv4 and OwnIPv6 are the addresses that a process inside the namespace
// sees as its own when it asks for the source address of a foreign target.
// They come from the ranges for benchmarks (RFC 2544, RFC 5180), so that no
// real host is ever meant by them.
var (
	OwnIPv4 = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	OwnIPv6 = netip.MustParseAddr("2001:2::1")
)

// ResolverAddr is where the namespace's own resolver listens: an address that
// no known one has. By 127.0.0.53 programs recognise systemd-resolved, and then
// ask other questions.
var ResolverAddr = netip.MustParseAddrPort("127.53.53.53:53")

// HostName is the namespace's own; names made from it are the same everywhere.
const HostName = "gate"

// Listen asks for a socket inside the namespace, bound to an address that
// need not be one of the host's.
type Listen struct {
	Network string         `json:"network"` // "tcp" or "udp"
	Addr    netip.AddrPort `json:"addr"`
}

// Spec is what to run and what to make for it.
type Spec struct {
	Tier Tier
	Argv []string
	Path string // the program, absolute or with a slash
	Dir  string
	Env  []string

	Stdin, Stdout, Stderr *os.File

	Scratch  string   // a directory for gate's own files; they are gone when Open returns
	ReadOnly []string // files of the work tree that the tree must not change
	Listen   []Listen // doors; only in Namespace
	// PacketFilter is the classic BPF program of the packet socket on lo.
	PacketFilter []Instruction

	// Closed is how the file system is closed to the tree; nil: it is as outside.
	// Only in Namespace.
	Closed *Closed

	// User is who the command runs as if gate itself is root by sudo; nil: as gate.
	User *User

	// FirstPID is what the command's pid should be in a PID namespace of its own; 0:
	// whatever comes. gate's own threads there take some first, and never as many.
	FirstPID int

	// CgroupFD is a directory of the cgroup v2 hierarchy that the tree is born
	// in; 0: the tree stays in gate's own.
	CgroupFD int

	// CPULimit is RLIMIT_CPU of each process in seconds, soft and hard; 0: none.
	CPUSoft, CPUHard uint64
}

// Closed is a file system of the tree's own, made of the host's.
type Closed struct {
	ReadOnly bool    `json:"read_only"` // whatever no mount below says otherwise of
	Store    string  `json:"store"`     // an empty directory for what is thrown away, best not in memory
	Mounts   []Mount `json:"mounts"`
}

// Mount is what the tree finds at a path. Paths are absolute, resolved, and
// exist.
type Mount struct {
	Kind   MountKind `json:"kind"`
	Target string    `json:"target"`
	Source string    `json:"source,omitempty"` // Instead
}

// MountKind is what a Mount does.
type MountKind uint8

// The kinds of mount.
const (
	Keep         MountKind = iota + 1 // what is there, writable as outside
	KeepReadOnly                      // what is there, read-only, where it would be hidden by an Empty
	Empty                             // an empty directory of the same mode; nothing in it outlives the box
	Layer                             // what is there; changes are kept in a layer that nobody else sees
	Instead                           // what stands at Source
)

// User is a uid with its groups.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Op is what a file call does.
type Op uint8

// The operations on files.
const (
	Create Op = iota + 1
	Modify
	Meta
	Remove
	Rename
	Exchange
	Link
)

// Node is what stands at a path before the call goes on.
type Node struct {
	Exists   bool
	Dir      bool
	Special  bool // a device, pipe or socket: what is written to it reaches no file
	Dev, Ino uint64
	Nlink    uint64
}

// FileCall is a call that is about to write and can succeed. Paths are
// absolute in the tree's view, with symlinks resolved.
type FileCall struct {
	Op       Op
	Call     string
	Path     string
	Before   Node
	To       string // Rename, Exchange, Link
	ToBefore Node
}

// Socket families and types as the kernel numbers them; SockUnknown where the
// socket could not be asked.
const SockUnknown = -1

// NetCall is a call that names a far end, or gives a socket a local address.
type NetCall struct {
	Call     string
	Type     int            // SOCK_STREAM, SOCK_DGRAM, ...; SockUnknown
	Protocol int            // IPPROTO_TCP, ...; SockUnknown
	Addr     netip.AddrPort // AF_INET, AF_INET6
	Path     string         // AF_UNIX: resolved path, "@name", or "@" for unnamed
	Exists   bool           // AF_UNIX path: a socket stands there
	Family   int            // AF_*
	Label    string         // other families: what is known of the far end
	Payload  []byte         // sendto: the start of the datagram, in Notify
}

// Answer is what becomes of a NetCall. Errno 0 lets it go on. Later, if set,
// is run on a goroutine of its own and replaces the answer.
type Answer struct {
	Errno int
	Later func() Answer
	// Redirect, for a connect in Notify, is where the socket is connected to
	// instead.
	Redirect netip.AddrPort
	// Else, if set, replaces the answer where that fails at once. It is run as
	// Later is.
	Else func() Answer

	done bool // gate has made the call itself; the caller sees Errno, or success
}

// Caller is who made a call. It is read only when asked for, and only while
// the call is held.
type Caller interface {
	// PID is the process (thread group) in gate's own PID namespace.
	PID() int
	// Program is the name of the process (comm), at most 15 bytes.
	Program() string
	// Actor reads the chain of programs, command line and working directory.
	// The same actor is the same pointer as long as it is remembered.
	Actor() *Actor
}

// Actor is who did something.
type Actor struct {
	Chain []string // program names from the command down
	PID   int
	Argv  []string
	Dir   string // absolute
}

// Handler takes what the tree does. All methods but those of a Later answer
// are called from one goroutine, in the order of the calls; a slow handler
// slows the tree down.
type Handler interface {
	File(c *FileCall, who Caller)
	Connect(c *NetCall, who Caller) Answer
	Bind(c *NetCall, who Caller)
	// SigChild: the thread's process sets the action for SIGCHLD, to SIG_IGN, with SA_NOCLDWAIT, or with neither.
	SigChild(tid int, ignored, noWait bool)
	// Exit: the thread's process is about to end by exit_group.
	Exit(tid int)
	// Refused: a call that gate cannot observe was refused; label is "io_uring", "i386", "x32".
	Refused(label, call string, who Caller)
	// Gap: something was not observed.
	Gap(kind, detail string)
	// Found: worth a human's look.
	Found(kind, detail string, who Caller)
}

// Exit is how the command ended.
type Exit struct {
	Code                 int // 0-255 if it exited
	Signal               int // or the signal that ended it
	Survivors            []Survivor
	User                 time.Duration // RUSAGE_CHILDREN of the tree's reaper: all that was waited for
	System               time.Duration
	InitUser, InitSystem time.Duration // RUSAGE_SELF of the reaper, which is no part of the tree
}

// Survivor is a process that outlived the command and was ended.
type Survivor struct {
	PID  int // in the tree's PID namespace
	Argv []string
}

// StartError is a command that could not be started, as a shell tells it:
// 127 not found, 126 not executable.
type StartError struct {
	Code int
	Err  error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }
