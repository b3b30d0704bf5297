package truth

import (
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/org/gate/accuracy/strace"
)

// Lookups is what the run's private resolver saw.
type Lookups struct {
	Asked []string              // names, lower case, without the final dot; not those of the machine itself
	Names map[netip.Addr]string // address the resolver made up -> name
}

// socket is what is known of one, by inode.
type socket struct {
	family string
	kind   string // "tcp", "udp", "raw"
	proto  string // as socket(2) was given it
	peer   netip.AddrPort
}

// attempt is one far end on the internet.
type attempt struct {
	kind string
	to   netip.AddrPort
}

// network collects far ends and what the tree itself served.
type network struct {
	sockets  map[string]*socket
	attempts map[attempt]bool
	bound    map[string]bool // "tcp 80", "udp 53", and unix paths or "@name"
	unix     map[string]bool // far ends
	other    map[string]bool // finished rows
}

func newNetwork() *network {
	return &network{
		sockets: map[string]*socket{}, attempts: map[attempt]bool{},
		bound: map[string]bool{}, unix: map[string]bool{}, other: map[string]bool{},
	}
}

// socket(domain, type, protocol)
func (n *network) socket(c strace.Call) {
	if strings.HasPrefix(c.Arg(0), "AF_VSOCK") {
		n.other["vsock:*:*"] = true // refused or not: no namespace holds it
	}
	fd, ok := strace.Descriptor(c.Ret)
	inode, isSocket := fd.Socket()
	if !c.OK() || !ok || !isSocket {
		return
	}
	s := &socket{family: c.Arg(0), kind: "tcp", proto: c.Arg(2)}
	switch {
	case strace.Flags(c.Arg(1), "SOCK_RAW", "SOCK_PACKET"):
		s.kind = "raw"
	case strace.Flags(c.Arg(1), "SOCK_DGRAM") && s.proto != "IPPROTO_IP" && s.proto != "IPPROTO_UDP" && s.family != "AF_UNIX":
		s.kind = "raw" // ping(8) without privilege
	case strace.Flags(c.Arg(1), "SOCK_DGRAM"):
		s.kind = "udp"
	}
	n.sockets[inode] = s
}

// of finds the socket behind an argument. One that was never seen to be made
// (handed in from outside) is judged like TCP. ok is false if it is no socket.
func (n *network) of(arg string) (s *socket, ok bool) {
	fd, ok := strace.Descriptor(arg)
	inode, isSocket := fd.Socket()
	if !ok || !isSocket {
		return nil, false
	}
	s = n.sockets[inode]
	if s == nil {
		s = &socket{kind: "tcp"}
		n.sockets[inode] = s
	}
	return s, true
}

// neverLeft are the errors of a connect that was not even tried.
func neverLeft(errno string) bool {
	switch errno {
	case "EBADF", "ENOTSOCK", "EFAULT", "EINVAL", "EAFNOSUPPORT", "EISCONN", "EALREADY", "EPROTOTYPE":
		return true
	}
	return false
}

// connect(fd, address); unixPath resolves a path as the caller sees it.
func (n *network) connect(c strace.Call, unixPath func(string) (string, bool)) {
	s, ok := n.of(c.Arg(0))
	to, known := strace.Address(c.Arg(1))
	if !ok || !known || neverLeft(c.Errno()) && to.Family != "AF_UNIX" {
		return
	}
	switch to.Family {
	case "AF_UNSPEC":
		s.peer = netip.AddrPort{}
	case "AF_UNIX":
		n.reachUnix(to, unixPath)
	case "AF_INET", "AF_INET6":
		switch {
		case s.kind != "udp":
			n.reach(s, to.Inet)
		case c.OK():
			s.peer = to.Inet // an attempt only once a datagram is sent
		}
	}
}

// send is any call that sends on a socket; to is the address argument, "" if
// the call has none.
func (n *network) send(c strace.Call, to string, flags string, unixPath func(string) (string, bool)) {
	s, ok := n.of(c.Arg(0))
	if !ok {
		return
	}
	sa, named := strace.Address(to)
	switch {
	case named && sa.Family == "AF_UNIX":
		n.reachUnix(sa, unixPath)
	case !c.OK():
		return
	case named && sa.Inet.IsValid() && (s.kind != "tcp" || strace.Flags(flags, "MSG_FASTOPEN")):
		n.reach(s, sa.Inet)
	case s.kind == "udp" && s.peer.IsValid():
		n.reach(s, s.peer)
	}
}

func (n *network) reach(s *socket, to netip.AddrPort) {
	if s.kind == "raw" {
		proto := strings.ToLower(strings.TrimPrefix(s.proto, "IPPROTO_"))
		n.other["raw:"+proto+":"+to.Addr().String()] = true
		return
	}
	n.attempts[attempt{s.kind, to}] = true
}

func (n *network) reachUnix(to strace.Sockaddr, resolve func(string) (string, bool)) {
	switch {
	case to.Path == "":
	case to.Abstract:
		n.unix["@"+to.Path] = true
	default:
		if p, ok := resolve(to.Path); ok {
			n.unix[p] = true
		}
	}
}

// bind says what the tree serves itself.
func (n *network) bind(c strace.Call, sa strace.Sockaddr, unixPath string) {
	s, ok := n.of(c.Arg(0))
	if !ok {
		return
	}
	switch sa.Family {
	case "AF_INET", "AF_INET6":
		n.bound[fmt.Sprintf("%s %d", s.kind, sa.Inet.Port())] = true
	case "AF_UNIX":
		if sa.Abstract {
			n.bound["@"+sa.Path] = true
		} else if unixPath != "" {
			n.bound[unixPath] = true
		}
	}
}

// rename follows a bound unix path to its new name.
func (n *network) rename(from, to string) {
	if n.bound[from] {
		n.bound[to] = true
	}
}

// The addresses of the run's private name server, and its own towards others.
var (
	resolver = netip.MustParseAddrPort("127.0.0.1:53")
	own4     = netip.MustParseAddr("198.18.0.1")
	own6     = netip.MustParseAddr("2001:2::1")
)

// The range a Linux network namespace starts with; ip(7), ip_local_port_range.
const ephemeralFirst, ephemeralLast = 32768, 60999

// rows reduces what was collected.
func (n *network) rows(l Lookups, places Places) map[string]bool {
	rows := map[string]bool{}
	for row := range n.other {
		rows[row] = true
	}
	connected := map[string]bool{}
	for a := range n.attempts {
		row := n.inet(a, l.Names, connected)
		if row != "" {
			rows[row] = true
		}
	}
	for _, name := range l.Asked {
		if !connected[name] {
			rows["dns:"+name] = true
		}
	}
	for p := range n.unix {
		if !n.bound[p] && !probe(p) {
			rows["unix:"+quote(places.spell(p))] = true
		}
	}
	return rows
}

// inet gives the row of an attempt, "" for none, and notes the name it used.
func (n *network) inet(a attempt, names map[netip.Addr]string, connected map[string]bool) string {
	addr, port := a.to.Addr(), a.to.Port()
	suffix := ""
	if a.kind == "udp" {
		suffix = "/udp"
	}
	switch addr { // loopback in disguise
	case netip.IPv4Unspecified():
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case netip.IPv6Unspecified():
		addr = netip.IPv6Loopback()
	}
	if addr.IsLoopback() {
		served := n.bound[fmt.Sprintf("%s %d", a.kind, port)]
		ephemeral := port >= ephemeralFirst && port <= ephemeralLast
		if served || ephemeral || netip.AddrPortFrom(addr, port) == resolver {
			return ""
		}
	}
	if name, ok := names[addr]; ok {
		connected[name] = true
		return fmt.Sprintf("%s:%d%s", name, port, suffix)
	}
	return netip.AddrPortFrom(addr, port).String() + suffix
}

// probe tells whether a unix far end is the C library's own asking around, or
// a name the kernel made up (unix(7), autobind).
func probe(p string) bool {
	switch p {
	case "/run/nscd/socket", "/var/run/nscd/socket",
		"/run/systemd/resolve/io.systemd.Resolve", "/run/systemd/resolve/io.systemd.Resolve.Monitor":
		return true
	}
	if path.Dir(p) == "/run/systemd/userdb" {
		return true
	}
	name, abstract := strings.CutPrefix(p, "@")
	return abstract && len(name) == 5 && strings.Trim(name, "0123456789abcdef") == ""
}

// Places are the directories that differ from machine to machine: a unix path
// below one is spelled with its name. All are absolute and resolved.
type Places struct {
	Root       string // the repository: paths are relative to it
	Home       string // $HOME
	RuntimeDir string // $XDG_RUNTIME_DIR
	TmpDir     string // $TMPDIR
}

// spell takes the deepest of the places that p lies in.
func (l Places) spell(p string) string {
	best, spelled := "", p
	for _, place := range []struct{ dir, name string }{
		{l.Root, ""}, {l.RuntimeDir, "$XDG_RUNTIME_DIR/"}, {l.TmpDir, "$TMPDIR/"}, {l.Home, "$HOME/"},
	} {
		rest, inside := strings.CutPrefix(p, place.dir+"/")
		if inside && place.dir != "" && len(place.dir) > len(best) {
			best, spelled = place.dir, place.name+rest
		}
	}
	return spelled
}
