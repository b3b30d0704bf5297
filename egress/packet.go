package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Packet is one datagram or connection request that was on its way out.
type Packet struct {
	Transport Transport // TCP, UDP or Raw
	Src, Dst  netip.AddrPort
	Proto     uint8 // IP protocol number
	// Refused says that the kernel reported port Dst as closed: Src and Dst
	// are those of the UDP datagram that was refused. Src is also where the
	// report went.
	Refused bool
}

// Numbers of IP protocols, https://www.iana.org/assignments/protocol-numbers.
const (
	protoHopByHop = 0
	protoICMP     = 1
	protoIGMP     = 2
	protoTCP      = 6
	protoUDP      = 17
	protoRouting  = 43
	protoFragment = 44
	protoAuth     = 51
	protoICMPv6   = 58
	protoOptions  = 60
	protoMobility = 135
	protoHIP      = 139
	protoShim6    = 140
)

// ProtocolName is the label of a raw endpoint for an IP protocol: "icmp" (of
// both families), "sctp", "proto-47".
func ProtocolName(proto uint8) string {
	switch proto {
	case protoICMP, protoICMPv6:
		return "icmp"
	case protoTCP:
		return "tcp"
	case protoUDP:
		return "udp"
	case 33:
		return "dccp"
	case 132:
		return "sctp"
	case 136:
		return "udplite"
	}
	return fmt.Sprintf("proto-%d", proto)
}

// Decode reads a frame as an AF_PACKET socket of type SOCK_DGRAM gives it:
// from the IP header on, possibly cut short. It is false for what is no
// attempt to reach anybody:
//
//   - TCP other than a first SYN; UDP and other protocols to loopback
//   - later fragments of TCP and UDP, since the first one tells the ports
//   - neighbour discovery and group membership (IPv6 and IPv4)
//
// An ICMP "port unreachable" is decoded to the UDP datagram it refused, which
// is how a datagram to a loopback port that nobody holds is witnessed. What
// is too short to show its ports is reported as Raw rather than left out.
func Decode(frame []byte) (Packet, bool) {
	ip, ok := decodeIP(frame)
	if !ok {
		return Packet{}, false
	}
	raw := Packet{
		Transport: Raw, Proto: ip.proto,
		Src: netip.AddrPortFrom(ip.src, 0), Dst: netip.AddrPortFrom(ip.dst, 0),
	}
	loopback := ip.dst.IsLoopback()
	switch {
	case ip.proto == protoTCP:
		if ip.later {
			return Packet{}, false
		}
		const syn, ack = 0x02, 0x10
		if len(ip.payload) > 13 && ip.payload[13]&(syn|ack) != syn {
			return Packet{}, false
		}
		return ip.ported(TCP, raw), true
	case ip.proto == protoUDP:
		if ip.later || loopback {
			return Packet{}, false
		}
		return ip.ported(UDP, raw), true
	case ip.proto == protoICMP && ip.dst.Is4(), ip.proto == protoICMPv6 && ip.dst.Is6():
		if p, ok := ip.refused(); ok {
			return p, true
		}
	}
	return raw, !loopback && !ip.upkeep()
}

// ipPacket is an IP header that has been read.
type ipPacket struct {
	src, dst netip.Addr
	proto    uint8
	later    bool // a fragment other than the first
	payload  []byte
}

func decodeIP(b []byte) (ipPacket, bool) {
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		n := int(b[0]&0xf) * 4
		if n < 20 {
			return ipPacket{}, false
		}
		return ipPacket{
			src:     netip.AddrFrom4([4]byte(b[12:16])),
			dst:     netip.AddrFrom4([4]byte(b[16:20])),
			proto:   b[9],
			later:   binary.BigEndian.Uint16(b[6:])&0x1fff != 0,
			payload: b[min(n, len(b)):],
		}, true
	case len(b) >= 40 && b[0]>>4 == 6:
		ip := ipPacket{
			src:     netip.AddrFrom16([16]byte(b[8:24])).Unmap(),
			dst:     netip.AddrFrom16([16]byte(b[24:40])).Unmap(),
			proto:   b[6],
			payload: b[40:],
		}
		ip.skipExtensions()
		return ip, true
	}
	return ipPacket{}, false
}

// skipExtensions goes to the upper-layer header (RFC 8200, section 4). It
// stops at a header it cannot read, whose number then stays the protocol.
func (ip *ipPacket) skipExtensions() {
	for len(ip.payload) >= 8 {
		n := 8
		switch ip.proto {
		case protoHopByHop, protoRouting, protoOptions, protoMobility, protoHIP, protoShim6:
			n = (int(ip.payload[1]) + 1) * 8
		case protoAuth:
			n = (int(ip.payload[1]) + 2) * 4
		case protoFragment:
			ip.later = binary.BigEndian.Uint16(ip.payload[2:])>>3 != 0
		default:
			return
		}
		ip.proto = ip.payload[0]
		ip.payload = ip.payload[min(n, len(ip.payload)):]
		if ip.later {
			return // what follows is the middle of something
		}
	}
}

// ported is the packet with its ports, or raw if they are cut off.
func (ip ipPacket) ported(t Transport, raw Packet) Packet {
	if len(ip.payload) < 4 {
		return raw
	}
	return Packet{
		Transport: t, Proto: ip.proto,
		Src: netip.AddrPortFrom(ip.src, binary.BigEndian.Uint16(ip.payload)),
		Dst: netip.AddrPortFrom(ip.dst, binary.BigEndian.Uint16(ip.payload[2:])),
	}
}

// refused gives the UDP datagram that an ICMP port unreachable answers
// (RFC 792; RFC 4443, section 3.1). The kernel sends the report to the sender
// of the datagram; anything else that looks like one is a packet of its own.
func (ip ipPacket) refused() (Packet, bool) {
	unreachable := [2]byte{3, 3}
	if ip.proto == protoICMPv6 {
		unreachable = [2]byte{1, 4}
	}
	if ip.later || len(ip.payload) < 8 || [2]byte(ip.payload) != unreachable {
		return Packet{}, false
	}
	inner, ok := decodeIP(ip.payload[8:])
	if !ok || inner.proto != protoUDP || inner.later || inner.src != ip.dst || len(inner.payload) < 4 {
		return Packet{}, false
	}
	p := inner.ported(UDP, Packet{})
	p.Refused = true
	return p, true
}

// upkeep says that the kernel sent the packet for itself: multicast listener
// and neighbour discovery to the link (RFC 3810, RFC 4861), IGMP.
func (ip ipPacket) upkeep() bool {
	switch {
	case ip.proto == protoIGMP && ip.dst.Is4():
		return ip.dst.IsLinkLocalMulticast()
	case ip.proto == protoICMPv6 && len(ip.payload) > 0 && !ip.later:
		kind := ip.payload[0]
		link := ip.dst.IsLinkLocalMulticast() || ip.dst.IsLinkLocalUnicast() || ip.dst.IsInterfaceLocalMulticast()
		return link && (kind >= 130 && kind <= 137 || kind == 143)
	}
	return false
}
