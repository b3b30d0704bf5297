package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNetwork(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) { checkRows(t, "net", tier) })
}

// withSocket makes a socket and hands it to f.
func withSocket(family, typ, protocol int, f func(fd int) error) func() error {
	return func() error {
		fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		return errors.Join(f(fd), unix.Close(fd))
	}
}

func in4(addr string) []byte {
	a := netip.MustParseAddrPort(addr)
	return encodeAddress(a, unix.AF_INET)
}

func in6(addr string) []byte {
	a := netip.MustParseAddrPort(addr)
	return encodeAddress(a, unix.AF_INET6)
}

func un(path string) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, unix.AF_UNIX), path...)
}

// connects makes one raw connect.
func connects(family, typ int, addr []byte) func() error {
	return withSocket(family, typ, 0, func(fd int) error { return sys("connect", fd, addr, len(addr))() })
}

func binds(family, typ int, addr []byte) func() error {
	return withSocket(family, typ, 0, func(fd int) error { return sys("bind", fd, addr, len(addr))() })
}

// messages builds the struct mmsghdr of n datagrams, each with an address.
// The first field of each is a struct msghdr, so the first is one as well.
func messages(addrs ...uintptr) []byte {
	var b []byte
	for _, a := range addrs {
		b = binary.NativeEndian.AppendUint64(b, uint64(a))
		b = binary.NativeEndian.AppendUint64(b, 16) // namelen
		b = append(b, make([]byte, sizeofMmsghdr-16)...)
	}
	return b
}

// as gives an address another family.
func as(family uint16, addr []byte) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, family), addr[2:]...)
}

// sendsTo makes one raw sendto.
func sendsTo(family, typ, protocol int, addr []byte) func() error {
	return withSocket(family, typ, protocol, func(fd int) error { return sys("sendto", fd, "12345678", 8, 0, addr, len(addr))() })
}

// only6 binds connects and sends to a socket of IPv6 alone.
func only6(typ int, call func(fd int) error) func() error {
	return withSocket(unix.AF_INET6, typ, 0, func(fd int) error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1), call(fd))
	})
}

func sends(call string, addrs ...string) func() error {
	return sendsAs(unix.AF_INET, call, addrs...)
}

func sendsAs(family uint16, call string, addrs ...string) func() error {
	return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error {
		var raw [][]byte
		var at []uintptr
		for _, a := range addrs {
			if a == "bad" {
				at = append(at, 8)
				continue
			}
			raw = append(raw, as(family, in4(a)))
			at = append(at, addressOf(raw[len(raw)-1]))
		}
		m := messages(at...)
		defer func() { _ = raw }() // alive until the call has returned
		if call == "sendmsg" {
			return sys(call, fd, m, 0)()
		}
		return sys(call, fd, m, len(addrs), 0)()
	})
}

// lsrr is a loose source route by way of 127.0.0.9 (RFC 791).
var lsrr = []byte{131, 7, 4, 127, 0, 0, 9, 0}

func setsOption(family, level, option int, value []byte) func() error {
	return withSocket(family, unix.SOCK_DGRAM, 0, func(fd int) error {
		return sys("setsockopt", fd, level, option, value, len(value))()
	})
}

// sendsControl makes a sendmsg with no address and one control message.
func sendsControl(level, typ int, value []byte) func() error {
	return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error {
		control := binary.NativeEndian.AppendUint64(nil, uint64(sizeofCmsghdr+len(value)))
		control = binary.NativeEndian.AppendUint32(control, uint32(level))
		control = append(binary.NativeEndian.AppendUint32(control, uint32(typ)), append(value[:len(value):len(value)], 0, 0, 0, 0)...)
		m := make([]byte, sizeofMsghdr)
		binary.NativeEndian.PutUint64(m[offsetOfControl:], uint64(addressOf(control)))
		binary.NativeEndian.PutUint64(m[offsetOfControlLen:], uint64(len(control)))
		defer runtime.KeepAlive(control)
		return sys("sendmsg", fd, m, 0)()
	})
}

func netRows() []row {
	const (
		stream, dgram = unix.SOCK_STREAM, unix.SOCK_DGRAM
		inet, inet6   = unix.AF_INET, unix.AF_INET6
		refused       = unix.ECONNREFUSED
	)
	var many, manySent []string
	for i := range 300 {
		a := fmt.Sprintf("192.0.2.%d:%d", i%250, 1000+i)
		many = append(many, a)
		manySent = append(manySent, "sendmmsg dgram/17 "+a)
	}
	long := strings.Repeat("p", 108)
	return []row{
		{name: "tcp", guards: "connect(2), ip(7)", act: connects(inet, stream, in4("192.0.2.1:80")), err: refused, want: []string{"connect stream/6 192.0.2.1:80"}},
		{name: "udp", guards: "connect(2), udp(7)", act: connects(inet, dgram, in4("192.0.2.1:53")), err: refused, want: []string{"connect dgram/17 192.0.2.1:53"}},
		{name: "tcp6", guards: "ipv6(7)", act: connects(inet6, stream, in6("[2001:db8::1]:443")), err: refused, want: []string{"connect stream/6 [2001:db8::1]:443"}},
		{name: "udp6", guards: "ipv6(7)", act: connects(inet6, dgram, in6("[2001:db8::1]:53")), err: refused, want: []string{"connect dgram/17 [2001:db8::1]:53"}},
		{name: "mapped", guards: "ipv6(7): ::ffff:a.b.c.d is an IPv4 address", act: connects(inet6, stream, in6("[::ffff:192.0.2.1]:80")), err: refused, want: []string{"connect stream/6 192.0.2.1:80"}},
		{name: "without scope", guards: "net/ipv6: 24 bytes are enough for AF_INET6", act: connects(inet6, stream, in6("[2001:db8::1]:443")[:24]), err: refused, want: []string{"connect stream/6 [2001:db8::1]:443"}},
		{name: "raw", guards: "raw(7)", only: "root", act: withSocket(inet, unix.SOCK_RAW, unix.IPPROTO_ICMP, func(fd int) error {
			a := in4("192.0.2.1:0")
			return sys("connect", fd, a, len(a))()
		}), err: refused, want: []string{"connect raw/1 192.0.2.1:0"}},
		{name: "AF_UNSPEC", guards: "connect(2): dissolves the association, reaches nobody", act: connects(inet, dgram, make([]byte, 16)), any: true},
		{name: "short address", guards: "ip(7): EINVAL", act: connects(inet, stream, in4("192.0.2.1:80")[:8]), err: unix.EINVAL},
		{name: "unreadable address", guards: "connect(2)", act: withSocket(inet, stream, 0, func(fd int) error { return sys("connect", fd, uintptr(8), 16)() }), err: unix.EFAULT},

		{name: "sendto", guards: "a datagram needs no connect", act: withSocket(inet, dgram, 0, func(fd int) error {
			a := in4("192.0.2.1:53")
			return sys("sendto", fd, "x", 1, 0, a, len(a))()
		}), err: refused, want: []string{"sendto dgram/17 192.0.2.1:53"}},
		{name: "sendto without an address", guards: "send(2): the filter lets it pass", act: withSocket(inet, dgram, 0, func(fd int) error { return sys("sendto", fd, "x", 1, 0, nil, 0)() }), err: unix.EDESTADDRREQ},
		{name: "MSG_FASTOPEN", guards: "tcp(7): sendto connects a TCP socket", act: withSocket(inet, stream, 0, func(fd int) error {
			a := in4("192.0.2.1:80")
			return sys("sendto", fd, "x", 1, unix.MSG_FASTOPEN, a, len(a))()
		}), err: refused, want: []string{"sendto stream/6 192.0.2.1:80"}},
		{name: "sendmsg", guards: "send(2)", act: sends("sendmsg", "192.0.2.1:53"), err: refused, want: []string{"sendmsg dgram/17 192.0.2.1:53"}},
		{name: "sendmmsg", guards: "sendmmsg(2): every message has an address", act: sends("sendmmsg", "192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53"), err: refused,
			want: []string{"sendmmsg dgram/17 192.0.2.1:53", "sendmmsg dgram/17 192.0.2.2:53", "sendmmsg dgram/17 192.0.2.3:53"}},
		{name: "sendmmsg of 300", guards: "the vector spans pages", act: sends("sendmmsg", many...), err: refused, want: manySent},
		{name: "sendmmsg with a bad address behind a good one", guards: "sendmmsg(2): sends as many as it can, so the first would go out", act: sends("sendmmsg", "192.0.2.1:53", "bad"), err: refused,
			want: []string{"sendmmsg dgram/17 192.0.2.1:53"}},

		{name: "sendto AF_UNSPEC", guards: "net/ipv4/udp.c, udp_sendmsg: taken for AF_INET", act: sendsTo(inet, dgram, 0, as(0, in4("192.0.2.1:53"))), err: refused, want: []string{"sendto dgram/17 192.0.2.1:53"}},
		{name: "sendmsg AF_UNSPEC", guards: "likewise", act: sendsAs(0, "sendmsg", "192.0.2.1:53"), err: refused, want: []string{"sendmsg dgram/17 192.0.2.1:53"}},
		{name: "sendmmsg AF_UNSPEC", guards: "likewise", act: sendsAs(0, "sendmmsg", "192.0.2.1:53", "192.0.2.2:53"), err: refused, want: []string{"sendmmsg dgram/17 192.0.2.1:53", "sendmmsg dgram/17 192.0.2.2:53"}},
		{name: "raw AF_UNSPEC", guards: "net/ipv4/raw.c, raw_sendmsg: taken for AF_INET", only: "root", act: sendsTo(inet, unix.SOCK_RAW, 99, as(0, in4("192.0.2.1:0"))), err: refused, want: []string{"sendto raw/99 192.0.2.1:0"}},
		{name: "raw6 AF_UNSPEC", guards: "net/ipv6/raw.c, rawv6_sendmsg: taken for AF_INET6", only: "root", act: sendsTo(inet6, unix.SOCK_RAW, 99, as(0, in6("[2001:db8::1]:0"))), err: refused, want: []string{"sendto raw/99 [2001:db8::1]:0"}},
		{name: "udp6 AF_UNSPEC", guards: "net/ipv6/udp.c, udpv6_sendmsg: to where the socket is connected, if it is", act: sendsTo(inet6, dgram, 0, as(0, in6("[2001:db8::1]:53"))), err: unix.EDESTADDRREQ},
		{name: "tcp AF_UNSPEC", guards: "net/ipv4/tcp.c, tcp_sendmsg_fastopen: EOPNOTSUPP", act: withSocket(inet, stream, 0, func(fd int) error {
			a := as(0, in4("192.0.2.1:80"))
			return sys("sendto", fd, "x", 1, unix.MSG_FASTOPEN, a, len(a))()
		}), err: unix.EOPNOTSUPP},
		{name: "udp6 by an IPv4 address", guards: "net/ipv6/datagram.c, __ip6_datagram_connect", act: connects(inet6, dgram, in4("192.0.2.1:53")), err: refused, want: []string{"connect dgram/17 192.0.2.1:53"}},
		{name: "sendto by udp6 to an IPv4 address", guards: "net/ipv6/udp.c, udpv6_sendmsg", act: sendsTo(inet6, dgram, 0, in4("192.0.2.1:53")), err: refused, want: []string{"sendto dgram/17 192.0.2.1:53"}},

		{name: "IPv4 address, IPv6 alone", guards: "net/ipv6/datagram.c: EAFNOSUPPORT", act: only6(dgram, func(fd int) error {
			a := in4("192.0.2.1:53")
			return sys("connect", fd, a, len(a))()
		}), err: unix.EAFNOSUPPORT},
		{name: "IPv4 address, tcp6", guards: "net/ipv6/tcp_ipv6.c: EAFNOSUPPORT", act: connects(inet6, stream, in4("192.0.2.1:80")), any: true},
		{name: "IPv6 address, tcp", guards: "net/ipv4/tcp_ipv4.c: EAFNOSUPPORT", act: connects(inet, stream, in6("[2001:db8::1]:80")), err: unix.EAFNOSUPPORT},
		{name: "unix address, inet socket", guards: "net/ipv4: EAFNOSUPPORT; no file is reached", act: connects(inet, dgram, un("s\x00padding of it all")), err: unix.EAFNOSUPPORT},
		{name: "inet address, unix socket", guards: "net/unix/af_unix.c, unix_validate_addr: EINVAL", act: connects(unix.AF_UNIX, stream, in4("192.0.2.1:80")), err: unix.EINVAL},
		{name: "connect of no descriptor", guards: "connect(2): EBADF", act: func() error {
			a := in4("192.0.2.1:80")
			return sys("connect", 999, a, len(a))()
		}, err: unix.EBADF},
		{name: "unix connect of no descriptor", guards: "connect(2): EBADF", act: func() error {
			a := un("s\x00")
			return sys("connect", 999, a, len(a))()
		}, err: unix.EBADF},
		{name: "connect of no socket", guards: "connect(2): ENOTSOCK", act: withFD(".", unix.O_RDONLY, func(fd int) error {
			a := in4("192.0.2.1:80")
			return sys("connect", fd, a, len(a))()
		}), err: unix.ENOTSOCK},
		{name: "address longer than any", guards: "net/socket.c, move_addr_to_kernel: EINVAL", act: connects(inet, stream, append(in4("192.0.2.1:80"), make([]byte, 200)...)), err: unix.EINVAL},
		{name: "empty address", guards: "connect(2): EINVAL", act: withSocket(inet, stream, 0, func(fd int) error { return sys("connect", fd, make([]byte, 16), 0)() }), err: unix.EINVAL},
		{name: "connected again", guards: "connect(2): AF_UNSPEC dissolves, and the socket can be used anew", act: withSocket(inet, dgram, 0, func(fd int) error {
			none, a := make([]byte, 16), in4("192.0.2.1:53")
			return then(sys("connect", fd, none, len(none)), sys("connect", fd, a, len(a)))()
		}), err: refused, want: []string{"connect dgram/17 192.0.2.1:53"}},

		{name: "unix", guards: "unix(7)", act: connects(unix.AF_UNIX, stream, un("s\x00")), err: refused, want: []string{`connect unix "s"`}},
		{name: "unix without NUL", guards: "unix(7): the length ends the path", act: connects(unix.AF_UNIX, stream, un("s")), err: refused, want: []string{`connect unix "s"`}},
		{name: "unix of 108 bytes", guards: "unix(7): no room for a NUL", act: connects(unix.AF_UNIX, stream, un(long)), err: refused, want: []string{`connect unix "` + long + `"`}},
		{name: "unix of a socket", guards: "unix(7)", act: then(bindUnix("s"), connects(unix.AF_UNIX, stream, un("s\x00"))), err: refused, want: []string{"create bind s", `bind unix "s"`, `connect unix "s" (a socket)`}},
		{name: "unix through a symlink", guards: "unix(7): connect follows", files: []string{"l -> s"}, act: then(bindUnix("s"), connects(unix.AF_UNIX, stream, un("l\x00"))), err: refused, want: []string{"create bind s", `bind unix "s"`, `connect unix "s" (a socket)`}},
		{name: "unix of a file", guards: "unix(7): no socket stands there", files: []string{"f"}, act: connects(unix.AF_UNIX, stream, un("f\x00")), err: refused, want: []string{`connect unix "f"`}},
		{name: "unix datagram", guards: "unix(7)", act: withSocket(unix.AF_UNIX, dgram, 0, func(fd int) error {
			a := un("s\x00")
			return sys("sendto", fd, "x", 1, 0, a, len(a))()
		}), err: refused, want: []string{`sendto unix "s"`}},
		{name: "abstract", guards: "unix(7): the name begins with NUL, and NULs count", act: connects(unix.AF_UNIX, stream, un("\x00a\x00b")), err: refused, want: []string{`connect unix "@a\x00b"`}},

		{name: "bind tcp", guards: "bind(2)", act: binds(inet, stream, in4("127.0.0.1:0")), want: []string{"bind stream/6 127.0.0.1:0"}},
		{name: "bind udp6", guards: "bind(2)", act: binds(inet6, dgram, in6("[::]:0")), want: []string{"bind dgram/17 [::]:0"}},
		{name: "bind AF_UNSPEC", guards: "net/ipv4/af_inet.c, __inet_bind: any address passes as AF_INET", act: binds(inet, stream, as(0, in4("0.0.0.0:0"))), want: []string{"bind stream/6 0.0.0.0:0"}},
		{name: "bind AF_UNSPEC to an address", guards: "net/ipv4/af_inet.c, __inet_bind: EAFNOSUPPORT", act: binds(inet, stream, as(0, in4("127.0.0.1:5432"))), err: unix.EAFNOSUPPORT},
		{name: "bind of a unix address, inet socket", guards: "EINVAL; no file comes of it", act: binds(inet, stream, un("s\x00")), err: unix.EINVAL},
		{name: "bind a second time", guards: "bind(2): EINVAL; the port is not the tree's", act: withSocket(inet, stream, 0, func(fd int) error {
			a, b := in4("127.0.0.1:0"), in4("127.0.0.1:5432")
			return then(sys("bind", fd, a, len(a)), sys("bind", fd, b, len(b)))()
		}), err: unix.EINVAL, want: []string{"bind stream/6 127.0.0.1:0"}},
		{name: "bind of a port that is taken", guards: "bind(2): EADDRINUSE; on the host it may be anybody's", only: string(Notify), act: withSocket(inet, stream, 0, func(fd int) error {
			a := in4("127.0.0.1:0")
			if err := sys("bind", fd, a, len(a))(); err != nil {
				return err
			}
			sa, err := unix.Getsockname(fd)
			if err != nil {
				return err
			}
			return binds(inet, stream, in4(fmt.Sprint("127.0.0.1:", portOf(sa))))()
		}), err: unix.EADDRINUSE, want: []string{"bind stream/6 127.0.0.1:0"}},
		{name: "bind of nobody's address", guards: "bind(2): EADDRNOTAVAIL", act: binds(inet, stream, in4("192.0.2.1:5432")), err: unix.EADDRNOTAVAIL},
		{name: "bind of another family", guards: "ip(7): EAFNOSUPPORT", act: binds(inet, stream, in6("[::1]:5432")), err: unix.EAFNOSUPPORT},
		{name: "bind of no socket", guards: "bind(2): ENOTSOCK", act: withFD(".", unix.O_RDONLY, func(fd int) error {
			a := in4("127.0.0.1:5432")
			return sys("bind", fd, a, len(a))()
		}), err: unix.ENOTSOCK},
		{name: "bind of no descriptor", guards: "bind(2): EBADF", act: func() error {
			a := in4("127.0.0.1:5432")
			return sys("bind", 999, a, len(a))()
		}, err: unix.EBADF},
		{name: "bind abstract", guards: "unix(7)", act: binds(unix.AF_UNIX, stream, un("\x00gate-test-a")), want: []string{`bind unix "@gate-test-a"`}},
		{name: "bind of a path in a missing directory", guards: "unix(7)", act: bindUnix("no/s"), err: unix.ENOENT},
		{name: "netlink", guards: "netlink(7): talks to the kernel, and reaches nobody", act: withSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, func(fd int) error {
			return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		})},

		{name: "vsock", guards: "vsock(7): no network namespace holds it", act: withSocket(unix.AF_VSOCK, stream, 0, nil), err: unix.EAFNOSUPPORT, want: []string{"socket family 40 *:*"}},
		{name: "packet", guards: "packet(7): PACKET_QDISC_BYPASS passes the packet witness", only: "root", act: withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, nil), err: unix.EAFNOSUPPORT, want: []string{"socket family 17 packet"}},
		{name: "packet by its old name", guards: "net/socket.c, __sock_create: AF_INET with SOCK_PACKET is AF_PACKET", only: "root", act: withSocket(inet, unix.SOCK_PACKET, 0, nil), err: unix.EAFNOSUPPORT, want: []string{"socket family 17 packet"}},
		{name: "packet without the right", guards: "packet(7): EPERM without CAP_NET_RAW", only: "user", act: withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, nil), err: unix.EPERM},
		{name: "XDP", guards: "socket(2): frames go straight to the device", act: withSocket(unix.AF_XDP, unix.SOCK_RAW, 0, nil), err: unix.EAFNOSUPPORT, want: []string{"socket family 44 family-44"}},
		{name: "no such type", guards: "socket(2): ESOCKTNOSUPPORT", act: withSocket(inet, 9, 0, nil), err: unix.ESOCKTNOSUPPORT},
		{name: "source route", guards: "ip(7), IP_OPTIONS: the datagram goes to its first hop", only: string(Notify), act: setsOption(inet, solIP, ipOptions, lsrr), err: unix.EPERM, want: []string{"refused ip-options"}},
		{name: "source route in the namespace", guards: "the packet is seen; newer kernels want CAP_NET_RAW", only: string(Namespace), act: setsOption(inet, solIP, ipOptions, lsrr), any: true},
		{name: "routing header", guards: "ipv6(7), IPV6_RTHDR", only: string(Notify), act: setsOption(inet6, solIPv6, ipv6Rthdr, make([]byte, 24)), err: unix.EPERM, want: []string{"refused ip-options"}},
		{name: "another option", guards: "ip(7)", act: setsOption(inet, solIP, unix.IP_TOS, make([]byte, 4))},
		{name: "source route of a message", guards: "net/ipv4/ip_sockglue.c, ip_cmsg_send", only: string(Notify), act: sendsControl(solIP, ipRetOpts, lsrr), err: unix.EPERM, want: []string{"refused ip-options"}},
		{name: "another control message", guards: "ip(7)", act: sendsControl(solIP, unix.IP_TOS, make([]byte, 4)), err: unix.EDESTADDRREQ},
		{name: "rxrpc", guards: "socket(2): any family that is not known", act: withSocket(unix.AF_RXRPC, dgram, 0, nil), err: unix.EAFNOSUPPORT, want: []string{"socket family 33 family-33"}},
		{name: "io_uring", guards: "io_uring_setup(2): its operations pass no filter", act: sys("io_uring_setup", 1, make([]byte, 120)), err: unix.ENOSYS, want: []string{"refused io_uring"}},
		{name: "clone3", guards: "clone(2): its flags are in memory", act: sys("clone3", nil, 0), err: unix.ENOSYS},
		{name: "open_by_handle_at", guards: "open_by_handle_at(2): a file without a path", act: sys("open_by_handle_at", cwd, make([]byte, 8), 0), err: unix.EPERM},
		{name: "unix in a missing directory", guards: "unix(7): a path that leads nowhere is an absolute one all the same", files: []string{"d/", "l -> d"}, act: connects(unix.AF_UNIX, stream, un("l/no/no/s\x00")), err: refused, want: []string{`connect unix "d/no/no/s"`}},
		{name: "unix below a file", guards: "unix(7): ENOTDIR", files: []string{"f"}, act: connects(unix.AF_UNIX, stream, un("f/s\x00")), err: refused, want: []string{`connect unix "f/s"`}},
	}
}

// lead answers for one address, and refuses all others.
func lead(from string, to Answer) func(*NetCall) Answer {
	return func(c *NetCall) Answer {
		if c.Addr.String() != from {
			return Answer{Errno: eConnRefused}
		}
		return to
	}
}

// In Notify gate makes the connect itself, so that what was judged is what is
// reached, and may lead it elsewhere.
func TestRedirect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			if _, err := conn.Write([]byte("from outside")); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		}
	}()
	far, nobody := netip.MustParseAddrPort(l.Addr().String()), netip.MustParseAddrPort("[::1]:1") // by IPv4
	later := func(a Answer) Answer { return Answer{Later: func() Answer { return a }} }
	for _, tt := range []struct {
		name, network, dial string
		answer              Answer
		want                string
	}{
		{"to itself", "tcp", far.String(), Answer{}, "from outside\n"},
		{"elsewhere", "tcp", "192.0.2.1:80", Answer{Redirect: far}, "from outside\n"},
		{"elsewhere, after a while", "tcp", "192.0.2.1:80", later(Answer{Redirect: far}), "from outside\n"},
		{"mapped", "tcp", "[2001:db8::1]:80", Answer{Redirect: far}, "from outside\n"},
		{"elsewhere, in vain", "udp", "192.0.2.1:80", Answer{Redirect: nobody, Else: func() Answer { return Answer{Errno: int(unix.ENETUNREACH)} }}, "network is unreachable\n"},
		{"elsewhere, not in vain", "tcp", "192.0.2.1:80", Answer{Redirect: far, Else: func() Answer { panic("BUG: it was reached") }}, "from outside\n"},
		{"refused", "tcp", "192.0.2.1:80", Answer{Errno: eConnRefused}, "connection refused\n"},
		{"refused after a while", "tcp", "192.0.2.1:80", later(Answer{Errno: eConnRefused}), "connection refused\n"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			rec := &recorder{answer: lead(tt.dial, tt.answer)}
			out := scene{tier: Notify, argv: actor("dial", tt.network, tt.dial), handler: rec}.run(t)
			wantExit(t, out, Exit{})
			if out.Stdout != tt.want {
				t.Errorf("got %q, want %q", out.Stdout, tt.want)
			}
			wantEvents(t, out.Events, map[string]string{"tcp": "connect stream/6 ", "udp": "connect dgram/17 "}[tt.network]+tt.dial)
		})
	}
}

// Loopback inside the box works, by IPv4 and IPv6.
func TestLoopback(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		eachTier(t, func(t *testing.T, tier Tier) {
			rec := &recorder{answer: func(c *NetCall) Answer { return Answer{} }}
			out := scene{tier: tier, argv: actor("echo", "tcp", addr), handler: rec}.run(t)
			wantExit(t, out, Exit{})
			if out.Stdout != "from inside\n" {
				t.Errorf("%s: got %q", addr, out.Stdout)
			}
		})
	}
}

// The sockets that Open makes are inside the namespace: what the tree says to
// them arrives, whatever the address.
func TestListeners(t *testing.T) {
	addr := netip.MustParseAddrPort("198.18.5.5:4242")
	rec := &recorder{answer: func(c *NetCall) Answer { return Answer{} }}
	exe := actor("dial", "tcp", addr.String())
	box, stdout := openBox(t, Spec{Tier: Namespace, Argv: exe, Path: exe[0], Listen: []Listen{{"tcp", addr}, {"udp", addr}}})
	defer box.Close()
	if len(box.Listeners) != 2 || box.ResolverUDP == nil || box.ResolverTCP == nil || box.Packets == nil {
		t.Fatalf("got %d listeners, resolver %v %v, packets %v", len(box.Listeners), box.ResolverUDP, box.ResolverTCP, box.Packets)
	}
	l, err := net.FileListener(box.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	var owner []string
	go func() {
		conn, err := l.Accept()
		if err == nil {
			from := netip.MustParseAddrPort(conn.RemoteAddr().String())
			if who, ok := box.Owner("tcp", from); ok {
				owner = who.Actor().Argv[1:]
			}
			_, err = conn.Write([]byte("by the door"))
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	if _, err := box.Run(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if got := stdout(); got != "by the door\n" {
		t.Errorf("got %q", got)
	}
	if want := fmt.Sprint(exe[1:]); fmt.Sprint(owner) != want {
		t.Errorf("the owner of the connection: got %q, want %q", owner, want)
	}
}

// The second witness: a datagram sent without any trapped call puts a packet
// on lo.
func TestPacketsAreSeen(t *testing.T) {
	c := actor("dial", "udp", "192.0.2.77:7777")
	box, _ := openBox(t, Spec{Tier: Namespace, Argv: c, Path: c[0]})
	defer box.Close()
	if err := box.Packets.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = box.Run(t.Context(), &recorder{answer: func(*NetCall) Answer { return Answer{} }}) }()
	want := []byte{192, 0, 2, 77}
	buf := make([]byte, 2000)
	for {
		n, err := box.Packets.Read(buf)
		if err != nil {
			t.Fatalf("no packet to %v: %v", want, err)
		}
		if bytes.Contains(buf[:n], want) {
			return
		}
	}
}
