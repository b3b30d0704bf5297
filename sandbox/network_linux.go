package sandbox

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket refuses the families that no namespace holds, and those by which
// frames pass the packet witness (packet(7), PACKET_QDISC_BYPASS).
func (s *supervisor) socket(c *call, n *notification, t *task) Answer {
	f, typ := int(uint32(n.args[0])), int(uint32(n.args[1]))&0xf
	if f == afInet && typ == sockPacket {
		f = afPacket // as __sock_create in net/socket.c takes it
	}
	label := "*:*"
	switch {
	case f == afPacket && !s.view.credsOf(t).has(unix.CAP_NET_RAW):
		return Answer{Errno: ePerm} // and so the kernel would say
	case f == afPacket:
		label = "packet"
	case slices.Contains(families(s.tier), uint32(f)):
		return Answer{} // a type that there is not
	case f != afVsock:
		label = fmt.Sprintf("family-%d", f)
	}
	a := s.handler.Connect(&NetCall{Call: c.name, Family: f, Type: typ, Protocol: int(uint32(n.args[2])), Label: label}, t)
	if a.Errno == 0 && a.Later == nil {
		a.Errno = eAfNoSupport
	}
	return a
}

// sockopt refuses the options by which packets of a socket take another way
// than to the far end that is judged. In the namespace the packets are seen.
func (s *supervisor) sockopt(c *call, n *notification, t *task) Answer {
	level, option, size := int32(n.args[1]), int32(n.args[2]), int32(n.args[4])
	route := level == solIP && option == ipOptions || level == solIPv6 && (option == ipv6Rthdr || option == ipv6PktOptionsOld)
	if s.tier != Notify || !route || size <= 0 { // of no bytes: what was set is taken away
		return Answer{}
	}
	return s.detours(c, t)
}

func (s *supervisor) detours(c *call, t *task) Answer {
	s.handler.Refused("ip-options", c.name, t)
	return Answer{Errno: ePerm}
}

// errDetour is a message with a route of its own.
var errDetour = errors.New("a control message holds a source route")

// network handles the calls that carry a socket address.
func (s *supervisor) network(c *call, n *notification, t *task) Answer {
	addrs, err := s.addresses(c, n, t)
	if !s.valid(n) {
		return Answer{}
	}
	switch {
	case err == unix.EINVAL, err == unix.EFAULT && c.do == doConnect:
		return Answer{Errno: int(err.(unix.Errno))} // and so the kernel would say
	case err == errDetour:
		return s.detours(c, t)
	case err != nil && err != unix.EFAULT:
		return s.unreadable(c, errText(err))
	}
	// EFAULT is what the kernel will say too, but only of the message that has
	// the bad address: those before it are sent.
	if len(addrs) == 0 {
		return Answer{}
	}
	sock, err := openSocket(t, int(int32(n.args[0])))
	if !s.valid(n) {
		sock.close()
		return Answer{}
	}
	switch {
	case err == unix.EBADF, err == unix.ENOTSOCK:
		return Answer{Errno: int(err.(unix.Errno))}
	case err != nil && s.tier == Notify:
		return s.unreadable(c, "socket: "+err.Error())
	}
	if c.do == doConnect {
		return s.connect(c, n, t, sock, addrs[0])
	}
	defer sock.close()
	var first Answer
	for i, raw := range addrs {
		a, ok := sock.takes(c.do, raw)
		if !ok {
			continue // the kernel refuses it, or nobody is reached
		}
		if out := s.address(c, n, t, sock, a); i == 0 || out.Errno != 0 {
			first = out
		}
	}
	return first
}

// unreadable refuses a call that cannot be judged.
func (s *supervisor) unreadable(c *call, why string) Answer {
	s.handler.Gap("unreadable-arguments", c.name+": "+why)
	return Answer{Errno: ePerm}
}

// addresses reads the addresses of a call. EINVAL is what the kernel would say
// (net/socket.c, move_addr_to_kernel).
func (s *supervisor) addresses(c *call, n *notification, t *task) ([][]byte, error) {
	addr, size := n.args[1], n.args[2]
	switch c.do {
	case doSendmsg:
		return s.messages(t, addr, 1, sizeofMsghdr)
	case doSendmmsg:
		return s.messages(t, addr, min(size, maxMessages), sizeofMmsghdr)
	case doSendto:
		addr, size = n.args[4], n.args[5]
	}
	if uint32(size) > maxSockaddr {
		return nil, unix.EINVAL
	}
	return s.sockaddrs(t, addr, size)
}

// connect judges a connect. In Notify gate itself makes those of the inet
// families, whatever becomes of them: one that is let go on because it fails
// may be another by then.
func (s *supervisor) connect(c *call, n *notification, t *task, sock *socket, raw []byte) Answer {
	a, ok := sock.takes(c.do, raw)
	var out Answer
	if ok {
		out = s.address(c, n, t, sock, a)
	}
	if s.tier == Notify && (sock.family == afInet || sock.family == afInet6) {
		return s.connects(n, sock, raw, out)
	}
	sock.close()
	return out
}

// connects makes a connect that is let through in gate itself, on the
// caller's own socket and with the address that was judged: another thread
// may have changed the caller's copy since. It may block, so it comes later.
func (s *supervisor) connects(n *notification, sock *socket, raw []byte, a Answer) Answer {
	switch {
	case a.Errno != 0:
		sock.close()
		return a
	case a.Later != nil:
		later := a.Later
		return Answer{Later: func() Answer { return s.connects(n, sock, raw, later()) }}
	}
	if a.Redirect.IsValid() {
		if sock.family == afInet && !a.Redirect.Addr().Is4() {
			sock.close()
			return a.inVain(eConnRefused)
		}
		raw = encodeAddress(a.Redirect, sock.family)
	}
	return Answer{Later: func() Answer {
		if !s.flight.add(sock.fd) {
			return Answer{Errno: eConnRefused} // the run is over
		}
		defer s.flight.remove(sock.fd)
		switch errno := s.connectFor(n, sock, raw); errno {
		case 0, int(unix.EINPROGRESS), eRestartSys:
			return Answer{Errno: errno, done: true}
		default:
			return a.inVain(errno)
		}
	}}
}

// inVain is the answer after a connect that failed.
func (a Answer) inVain(errno int) Answer {
	if a.Else != nil {
		return a.Else()
	}
	return Answer{Errno: errno}
}

// address hands one decoded address on.
func (s *supervisor) address(c *call, n *notification, t *task, sock *socket, a address) Answer {
	nc := &NetCall{Call: c.name, Family: a.family, Type: SockUnknown, Protocol: SockUnknown, Addr: a.inet, Path: a.unix}
	switch a.family {
	case afInet, afInet6:
		nc.Type, nc.Protocol = sock.typ, sock.protocol
		if c.do == doSendto && s.tier == Notify {
			nc.Payload = s.payload(n, t)
		}
	case afUnix:
		if a.unix != "" && a.unix[0] == '@' {
			break
		}
		f, err := s.view.find(t, atFDCWD, a.unix, c.do != doBind)
		if err != nil {
			s.lost(c, err)
			if c.do == doBind {
				return Answer{} // it cannot succeed
			}
			nc.Path = s.view.missing(t, a.unix) // the kernel will say that it is not there
			break
		}
		nc.Path, nc.Exists = f.path, f.is(unix.S_IFSOCK)
		if c.do == doBind {
			who := s.view.credsOf(t)
			if !s.view.mayAdd(who, &f) {
				return Answer{}
			}
			s.handler.File(&FileCall{Op: Create, Call: c.name, Path: f.path}, t)
		}
	default:
		return Answer{} // netlink, packet: no endpoint; any other is refused as a socket
	}
	if c.do != doBind {
		return s.handler.Connect(nc, t)
	}
	if s.tier == Namespace && notOurs(nc.Addr.Addr()) && !sock.freebind() {
		return Answer{Errno: eAddrNotAvail}
	}
	if s.canBind(nc, t, sock) {
		s.handler.Bind(nc, t)
	}
	return Answer{}
}

// missing makes a path absolute that leads nowhere: to the deepest directory of
// it that is there, and on from there as it was given. The path itself if not
// even the working directory is there.
func (v *view) missing(t *task, name string) string {
	dir, rest := name, ""
	for {
		up, last := path.Split(strings.TrimRight(dir, "/"))
		dir, rest = cmp.Or(up, "."), path.Join(last, rest)
		if f, err := v.find(t, atFDCWD, dir, true); err == nil && f.exists {
			return path.Join(f.path, rest)
		}
		if up == "" || up == "/" {
			return name
		}
	}
}

// notOurs: foreign addresses are local in the namespace, so that packets to them are
// seen. A bind to one must fail all the same, as it does on any host.
func notOurs(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() && a != OwnIPv4 && a != OwnIPv6 &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// freebind tells whether the socket asked for such an address (ip(7), IP_FREEBIND).
func (k *socket) freebind() bool {
	return k.has(unix.SOL_IP, unix.IP_FREEBIND) || k.has(unix.SOL_IPV6, unix.IPV6_FREEBIND)
}

// maxPayload holds a DNS query over UDP (RFC 1035, section 4.2.1).
const maxPayload = 512

// payload reads the start of what sendto sends; nil if it cannot be read.
func (s *supervisor) payload(n *notification, t *task) []byte {
	b := make([]byte, min(n.args[2], maxPayload))
	got, err := readMemory(t.tid, n.args[1], b)
	if err != nil || !s.valid(n) {
		return nil
	}
	return b[:got]
}

// canBind: a socket of the address's family that has no port yet, and for a
// privileged port CAP_NET_BIND_SERVICE (bind(2), ip(7)). A bind that fails
// must not make somebody else's port the tree's own.
func (s *supervisor) canBind(nc *NetCall, t *task, sock *socket) bool {
	if nc.Family == afUnix || sock.fd < 0 { // of no socket nothing is known
		return true
	}
	if sock.family != nc.Family {
		return false
	}
	if nc.Type == unix.SOCK_STREAM || nc.Type == unix.SOCK_DGRAM {
		if sa, err := unix.Getsockname(sock.fd); err != nil || portOf(sa) != 0 {
			return false
		}
	}
	port := nc.Addr.Port()
	if port != 0 && port < 1024 && !s.view.credsOf(t).has(unix.CAP_NET_BIND_SERVICE) {
		return false
	}
	return s.tier == Namespace || port == 0 || free(sock.fd, nc)
}

// free tries a bind on a socket like the caller's, and gives the address back at
// once: on the host it may be somebody else's (EADDRINUSE), or nobody's here
// (EADDRNOTAVAIL).
func free(like int, nc *NetCall) bool {
	trial, err := unix.Socket(nc.Family, nc.Type|unix.SOCK_CLOEXEC, nc.Protocol)
	if err != nil {
		return true // says nothing about the call
	}
	defer unix.Close(trial)
	for _, o := range [][2]int{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR}, {unix.SOL_SOCKET, unix.SO_REUSEPORT},
		{unix.SOL_IP, unix.IP_FREEBIND}, {unix.SOL_IPV6, unix.IPV6_V6ONLY},
	} {
		if v, err := unix.GetsockoptInt(like, o[0], o[1]); err == nil && v != 0 {
			_ = unix.SetsockoptInt(trial, o[0], o[1], v) // without it the trial fails sooner
		}
	}
	addr := encodeAddress(nc.Addr, nc.Family)
	_, _, errno := unix.Syscall(unix.SYS_BIND, uintptr(trial), uintptr(unsafe.Pointer(&addr[0])), uintptr(len(addr)))
	return errno != unix.EADDRINUSE && errno != unix.EADDRNOTAVAIL
}

func portOf(sa unix.Sockaddr) int {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return sa.Port
	case *unix.SockaddrInet6:
		return sa.Port
	}
	return 0
}

// sockaddrs reads one address of a given length.
func (s *supervisor) sockaddrs(t *task, addr, size uint64) ([][]byte, error) {
	b := make([]byte, min(uint64(uint32(size)), maxSockaddr))
	n, err := readMemory(t.tid, addr, b)
	if err != nil {
		return nil, err
	}
	return [][]byte{b[:n]}, nil
}

// maxMessages is UIO_MAXIOV: the kernel sends no more at once.
const maxMessages = 1024

// struct msghdr and struct mmsghdr of 64-bit Linux.
const (
	sizeofMsghdr  = 56
	sizeofMmsghdr = 64
)

// messages reads the addresses of sendmsg(2) and sendmmsg(2).
func (s *supervisor) messages(t *task, addr, count uint64, size int) ([][]byte, error) {
	b := make([]byte, int(count)*size)
	n, err := readMemory(t.tid, addr, b)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for ; n >= size; n, b = n-size, b[size:] {
		if err := s.control(t, b); err != nil {
			return out, err
		}
		name, length := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint32(b[8:])
		if name == 0 {
			continue
		}
		one, err := s.sockaddrs(t, name, uint64(length))
		if err != nil {
			return out, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// control looks through the control messages of a struct msghdr, in Notify.
func (s *supervisor) control(t *task, msghdr []byte) error {
	at := binary.NativeEndian.Uint64(msghdr[offsetOfControl:])
	size := min(binary.NativeEndian.Uint64(msghdr[offsetOfControlLen:]), maxControl)
	if s.tier != Notify || at == 0 || size == 0 {
		return nil
	}
	b := make([]byte, size)
	n, err := readMemory(t.tid, at, b)
	if err != nil {
		return err
	}
	if detour(b[:n]) {
		return errDetour
	}
	return nil
}

// flight holds the sockets that gate is connecting. A connect can block for
// minutes, and its caller be dead long before.
type flight struct {
	mu      sync.Mutex
	sockets map[int]bool
	over    bool
}

// add takes a socket over; false says that it came too late, and is closed.
func (f *flight) add(sock int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		_ = unix.Close(sock) // a copy
		return false
	}
	if f.sockets == nil {
		f.sockets = map[int]bool{}
	}
	f.sockets[sock] = true
	return true
}

func (f *flight) remove(sock int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sockets, sock)
	_ = unix.Close(sock) // a copy
}

func (f *flight) ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.over
}

// end makes every connect under way return, and those to come as well.
func (f *flight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for sock := range f.sockets {
		_ = unix.Shutdown(sock, unix.SHUT_RDWR) // ENOTCONN: it has just returned
	}
}
