package sandbox

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// socket is the socket of a call, copied into gate.
type socket struct {
	fd                    int // -1: it could not be copied
	family, typ, protocol int // SockUnknown, likewise
}

// openSocket copies the socket of a call. EBADF and ENOTSOCK are what the
// kernel would say of the descriptor itself; after any other error nothing is
// known of the socket.
func openSocket(t *task, fd int) (*socket, error) {
	k := &socket{fd: -1, family: SockUnknown, typ: SockUnknown, protocol: SockUnknown}
	copied, err := copyDescriptor(t, fd)
	if err != nil {
		return k, err
	}
	k.fd = copied
	for _, o := range []struct {
		option int
		to     *int
	}{{unix.SO_DOMAIN, &k.family}, {unix.SO_TYPE, &k.typ}, {unix.SO_PROTOCOL, &k.protocol}} {
		if *o.to, err = unix.GetsockoptInt(copied, unix.SOL_SOCKET, o.option); err != nil {
			k.close()
			return k, err
		}
	}
	return k, nil
}

func (k *socket) close() {
	if k.fd >= 0 {
		_ = unix.Close(k.fd) // a copy
		k.fd = -1
	}
}

// has tells whether an option is set; false if the socket has no such option.
func (k *socket) has(level, option int) bool {
	v, err := unix.GetsockoptInt(k.fd, level, option)
	return err == nil && v != 0
}

// takes reads an address as the socket takes it. It returns false for one that
// the kernel refuses, or by which nobody is reached.
func (k *socket) takes(call do, raw []byte) (address, bool) {
	a, ok := decodeAddress(raw)
	if ok && a.family == afUnspec {
		a, ok = decodeAs(k.unspec(call, raw), raw)
	}
	switch {
	case !ok || a.family == afUnspec:
		return a, false
	case k.family == afUnix: // unix_stream_sendmsg: EISCONN, EOPNOTSUPP
		return a, a.family == afUnix && (call == doConnect || call == doBind || k.typ == unix.SOCK_DGRAM)
	case k.family == afInet6 && a.family == afInet:
		return a, k.takesIPv4()
	case k.family == afInet || k.family == afInet6:
		return a, a.family == k.family
	}
	return a, k.family == SockUnknown // netlink and others: no endpoint
}

// takesIPv4: ip6_datagram_connect and udpv6_sendmsg do, inet6_bind and
// tcp_v6_connect do not; of sockets that are rare here the answer is yes.
func (k *socket) takesIPv4() bool {
	switch {
	case k.typ == unix.SOCK_RAW, k.protocol == unix.IPPROTO_TCP, k.protocol == unix.IPPROTO_MPTCP, k.protocol == unix.IPPROTO_ICMPV6:
		return false
	}
	return !k.has(unix.SOL_IPV6, unix.IPV6_V6ONLY)
}

// unspec is the family that the socket takes AF_UNSPEC for; AF_UNSPEC if it
// takes it for none. connect(2) dissolves the association then, and
// udpv6_sendmsg sends to where the socket is connected.
func (k *socket) unspec(call do, raw []byte) int {
	switch {
	case call == doConnect:
	case call == doBind: // net/ipv4/af_inet.c, __inet_bind: any address
		if a, ok := decodeAs(afInet, raw); ok && k.family == afInet && a.inet.Addr().IsUnspecified() {
			return afInet
		}
	case k.typ == unix.SOCK_RAW: // raw_sendmsg, rawv6_sendmsg
		return k.family
	case k.family == afInet && k.typ == unix.SOCK_DGRAM && k.protocol != unix.IPPROTO_ICMP: // udp_sendmsg, l2tp_ip_sendmsg
		return afInet
	}
	return afUnspec
}

// pidfdThread is PIDFD_THREAD of pidfd_open(2), Linux 6.9.
const pidfdThread = unix.O_EXCL

// copyDescriptor duplicates a descriptor of the calling thread into gate: a
// thread may have a table of its own (unshare(2), CLONE_FILES).
func copyDescriptor(t *task, fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(t.tid, pidfdThread)
	if err == unix.EINVAL {
		return copyOfProcess(t, fd)
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// copyOfProcess is copyDescriptor before Linux 6.9: the process's table is read,
// and what was found there must be what the thread has.
func copyOfProcess(t *task, fd int) (int, error) {
	var want, got unix.Stat_t
	if err := unix.Stat(t.link("fd/"+strconv.Itoa(fd)), &want); err == unix.ENOENT {
		return -1, unix.EBADF
	} else if err != nil {
		return -1, fmt.Errorf("stat the thread's descriptor: %w", err)
	}
	pidfd, err := unix.PidfdOpen(t.PID(), 0)
	if err != nil {
		return -1, fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(pidfd)
	copied, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return -1, fmt.Errorf("the thread has a table of descriptors of its own: pidfd_getfd: %w", err)
	}
	if err := unix.Fstat(copied, &got); err != nil || got.Dev != want.Dev || got.Ino != want.Ino {
		_ = unix.Close(copied) // a copy
		return -1, fmt.Errorf("the thread has a table of descriptors of its own")
	}
	return copied, nil
}
