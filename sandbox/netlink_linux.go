package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loIndex is lo's interface index in every network namespace.
const loIndex = 1

// raiseLoopback brings lo up, gives it gate's own addresses, and makes every
// other address a local one of lo: a connect to anywhere then puts a packet
// on lo, where the packet socket sees it, and fails at once with
// ECONNREFUSED. The source of such a packet is our own address, or else the
// kernel would take the target's.
//
// The routes go into the main table, where IPv6 does not take them for the
// host's own addresses in bind(2). IPv4 does: see notOurs.
//
// A kernel without IPv6 has nothing that could leave by it.
func raiseLoopback() error {
	nl, err := openNetlink()
	if err != nil {
		return err
	}
	defer nl.close()
	if err := nl.do("RTM_NEWLINK lo up", unix.RTM_NEWLINK, 0, linkUp()); err != nil {
		return err
	}
	for _, own := range []netip.Addr{OwnIPv4, OwnIPv6} {
		err := nl.do("RTM_NEWADDR "+own.String(), unix.RTM_NEWADDR, unix.NLM_F_CREATE, newAddress(own))
		if err == nil {
			err = nl.do("RTM_NEWROUTE local default", unix.RTM_NEWROUTE, unix.NLM_F_CREATE, defaultRoute(own))
		}
		if own.Is6() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)) {
			return nil // no IPv6, or switched off by sysctl
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// netlink is a rtnetlink(7) socket.
type netlink struct {
	fd  int
	seq uint32
}

func openNetlink() (*netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("socket AF_NETLINK: %w", err)
	}
	return &netlink{fd: fd}, nil
}

func (n *netlink) close() { _ = unix.Close(n.fd) } // a socket: nothing is written back

// do sends one request and reads its acknowledgement.
func (n *netlink) do(what string, typ, flags uint16, body []byte) error {
	n.seq++
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, typ)
	msg = binary.NativeEndian.AppendUint16(msg, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = binary.NativeEndian.AppendUint32(msg, n.seq)
	msg = binary.NativeEndian.AppendUint32(msg, 0)
	msg = append(msg, body...)
	if err := unix.Sendto(n.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("%s: sendto: %w", what, err)
	}
	buf := make([]byte, 4096)
	size, _, err := unix.Recvfrom(n.fd, buf, 0)
	if err != nil {
		return fmt.Errorf("%s: recvfrom: %w", what, err)
	}
	// struct nlmsghdr, then struct nlmsgerr, whose first word is -errno.
	if size < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("%s: the kernel's answer is no acknowledgement", what)
	}
	if errno := int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); errno != 0 {
		return fmt.Errorf("%s: %w", what, unix.Errno(-errno))
	}
	return nil
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func linkUp() []byte {
	m := unix.IfInfomsg{Family: unix.AF_UNSPEC, Index: loIndex, Flags: unix.IFF_UP, Change: unix.IFF_UP}
	return append([]byte(nil), bytesOf(&m)...)
}

func newAddress(a netip.Addr) []byte {
	m := unix.IfAddrmsg{Family: family(a), Prefixlen: uint8(a.BitLen()), Flags: unix.IFA_F_NODAD, Scope: unix.RT_SCOPE_UNIVERSE, Index: loIndex}
	b := append([]byte(nil), bytesOf(&m)...)
	b = attribute(b, unix.IFA_LOCAL, a.AsSlice())
	return attribute(b, unix.IFA_ADDRESS, a.AsSlice())
}

func defaultRoute(source netip.Addr) []byte {
	m := unix.RtMsg{Family: family(source), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_BOOT, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL}
	b := append([]byte(nil), bytesOf(&m)...)
	b = attribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loIndex))
	return attribute(b, unix.RTA_PREFSRC, source.AsSlice())
}

// attribute appends a struct rtattr, padded to 4 bytes.
func attribute(b []byte, typ uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
