package sandbox

import (
	"encoding/binary"
	"net/netip"
)

// Address families, as on every Linux architecture (bits/socket.h).
const (
	afUnspec = 0
	afUnix   = 1
	afInet   = 2
	afInet6  = 10
	afPacket = 17
	afVsock  = 40
)

// sockPacket is SOCK_PACKET: a socket of AF_INET with this type is one of AF_PACKET.
const sockPacket = 10

// maxSockaddr is sizeof(struct sockaddr_storage): the kernel takes no more.
const maxSockaddr = 128

// address is a decoded struct sockaddr.
type address struct {
	family int
	inet   netip.AddrPort
	unix   string // as given: a path, or "@" and the abstract name
}

// decodeAddress reads a socket address of any family, as ip(7), ipv6(7) and
// unix(7) lay it out in native byte order. It returns false for one that the
// kernel would refuse too: too short for its family.
func decodeAddress(b []byte) (address, bool) {
	if len(b) < 2 {
		return address{}, false
	}
	return decodeAs(int(binary.NativeEndian.Uint16(b)), b)
}

// decodeAs reads an address as one of a given family, whatever it says.
func decodeAs(family int, b []byte) (address, bool) {
	a := address{family: family}
	switch a.family {
	case afInet:
		if len(b) < 16 {
			return a, false
		}
		a.inet = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:]))
	case afInet6:
		if len(b) < 24 { // SIN6_LEN_RFC2133: without the scope
			return a, false
		}
		a.inet = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), binary.BigEndian.Uint16(b[2:]))
	case afUnix:
		path := b[2:min(len(b), 2+108)]
		switch {
		case len(path) == 0:
			a.unix = "@" // unnamed; a bind then picks a name
		case path[0] == 0:
			a.unix = "@" + string(path[1:])
		default:
			a.unix = string(cString(path))
		}
	}
	return a, true
}

// encodeAddress is the reverse for a socket of a family: an IPv4 address is
// mapped for an IPv6 socket.
func encodeAddress(a netip.AddrPort, family int) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(family))
	b = binary.BigEndian.AppendUint16(b, a.Port())
	if family == afInet {
		ip := a.Addr().As4()
		return append(append(b, ip[:]...), make([]byte, 8)...)
	}
	ip := a.Addr().As16()
	b = append(append(b, 0, 0, 0, 0), ip[:]...) // flow label
	return append(b, 0, 0, 0, 0)                // scope
}

// Options of sockets, and control messages, by which a packet goes elsewhere
// than to the address that was named: source routes (ip(7), ipv6(7), RFC 2292).
const (
	ipOptions          = 4
	ipRetOpts          = 7 // as a control message, what IP_OPTIONS is
	ipv6RthdrOld       = 5
	ipv6PktOptionsOld  = 6
	ipv6Rthdr          = 57
	sizeofCmsghdr      = 16
	cmsgAlign          = 8
	maxControl         = 128 << 10 // net.core.optmem_max, by default
	offsetOfControl    = 32        // in struct msghdr
	offsetOfControlLen = 40
)

// detour tells whether control messages, as cmsg(3) lays them out, hold a route.
func detour(control []byte) bool {
	for len(control) >= sizeofCmsghdr {
		size := binary.NativeEndian.Uint64(control)
		level, typ := binary.NativeEndian.Uint32(control[8:]), binary.NativeEndian.Uint32(control[12:])
		if level == solIP && typ == ipRetOpts || level == solIPv6 && (typ == ipv6Rthdr || typ == ipv6RthdrOld) {
			return true
		}
		if size < sizeofCmsghdr || size > uint64(len(control)) {
			return false // EINVAL
		}
		control = control[min(uint64(len(control)), (size+cmsgAlign-1)&^(cmsgAlign-1)):]
	}
	return false
}

// cString cuts at the first NUL.
func cString(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
