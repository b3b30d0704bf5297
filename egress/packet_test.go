package egress

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
)

// ip builds an IP packet.
func ip(src, dst string, proto uint8, payload []byte) []byte {
	s, d := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	if s.Is4() {
		b := make([]byte, 20)
		b[0], b[9] = 0x45, proto
		binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
		copy(b[12:], s.AsSlice())
		copy(b[16:], d.AsSlice())
		return append(b, payload...)
	}
	b := make([]byte, 40)
	b[0], b[6] = 0x60, proto
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], s.AsSlice())
	copy(b[24:], d.AsSlice())
	return append(b, payload...)
}

func tcp(src, dst uint16, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[12], b[13] = 0x50, flags
	return b
}

func udp(src, dst uint16) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	return b
}

// icmp is an ICMP message of a type and code with what it quotes.
func icmp(kind, code byte, quoted []byte) []byte {
	return append([]byte{kind, code, 0, 0, 0, 0, 0, 0}, quoted...)
}

// fragment sets the fragment field of an IPv4 packet.
func fragment(b []byte, field uint16) []byte {
	binary.BigEndian.PutUint16(b[6:], field)
	return b
}

func options(b []byte) []byte { // IPv4 with four bytes of options
	b = append(b[:20:20], append([]byte{1, 1, 1, 1}, b[20:]...)...)
	b[0] = 0x46
	return b
}

// ext is an IPv6 extension header of 8 bytes.
func ext(next uint8, body, payload []byte) []byte {
	h := make([]byte, 8)
	h[0] = next
	copy(h[1:], body)
	return append(h, payload...)
}

var packets = []struct {
	name  string
	frame []byte
	want  string // "" for none
}{
	{"syn", ip("198.18.0.1", "192.0.2.1", 6, tcp(40000, 443, 2)), "192.0.2.1:443"},
	{"syn with ECN", ip("198.18.0.1", "192.0.2.1", 6, tcp(40000, 443, 0xc2)), "192.0.2.1:443"},
	{"syn to loopback", ip("127.0.0.1", "127.0.0.1", 6, tcp(40000, 5432, 2)), "127.0.0.1:5432"},
	{"syn over ip6", ip("2001:2::1", "2001:db8::1", 6, tcp(1, 443, 2)), "[2001:db8::1]:443"},
	{"syn to loopback over ip6", ip("::1", "::1", 6, tcp(1, 443, 2)), "[::1]:443"},
	{"syn ack", ip("192.0.2.1", "198.18.0.1", 6, tcp(443, 40000, 0x12)), ""},
	{"ack", ip("198.18.0.1", "192.0.2.1", 6, tcp(40000, 443, 0x10)), ""},
	{"ack over ip6", ip("2001:2::1", "2001:db8::1", 6, tcp(1, 443, 0x10)), ""},
	{"rst", ip("198.18.0.1", "192.0.2.1", 6, tcp(40000, 443, 0x14)), ""},
	{"syn behind ip options", options(ip("198.18.0.1", "192.0.2.1", 6, tcp(1, 443, 2))), "192.0.2.1:443"},
	{"ack behind ip options", options(ip("198.18.0.1", "192.0.2.1", 6, tcp(1, 443, 0x10))), ""},
	{"udp", ip("198.18.0.1", "192.0.2.1", 17, udp(1, 123)), "192.0.2.1:123/udp"},
	{"udp to loopback", ip("127.0.0.1", "127.0.0.2", 17, udp(1, 123)), ""},
	{"udp over ip6", ip("2001:2::1", "2001:db8::1", 17, udp(1, 123)), "[2001:db8::1]:123/udp"},
	{"udp to loopback over ip6", ip("::1", "::1", 17, udp(1, 123)), ""},
	{"udp to almost loopback", ip("::1", "::2", 17, udp(1, 123)), "[::2]:123/udp"},
	{"multicast", ip("198.18.0.1", "224.0.0.251", 17, udp(5353, 5353)), "224.0.0.251:5353/udp"},
	{"first fragment of udp", fragment(ip("198.18.0.1", "192.0.2.1", 17, udp(1, 123)), 0x2000), "192.0.2.1:123/udp"},
	{"later fragment of udp", fragment(ip("198.18.0.1", "192.0.2.1", 17, udp(1, 123)), 0x2001), ""},
	{"later fragment of another protocol", fragment(ip("198.18.0.1", "192.0.2.1", 47, udp(1, 123)), 1), "raw:proto-47:192.0.2.1"},
	{"tiny first fragment of tcp", fragment(ip("198.18.0.1", "192.0.2.1", 6, tcp(1, 443, 2)[:8]), 0x2000), "192.0.2.1:443"},
	{"tcp without ports", ip("198.18.0.1", "192.0.2.1", 6, []byte{1}), "raw:tcp:192.0.2.1"},
	{"udp without ports", ip("2001:2::1", "2001:db8::1", 17, nil), "raw:udp:[2001:db8::1]"},
	{"ping", ip("198.18.0.1", "8.8.8.8", 1, icmp(8, 0, nil)), "raw:icmp:8.8.8.8"},
	{"ping to loopback", ip("127.0.0.1", "127.0.0.1", 1, icmp(8, 0, nil)), ""},
	{"ping over ip6", ip("2001:2::1", "2001:db8::1", 58, icmp(128, 0, nil)), "raw:icmp:[2001:db8::1]"},
	{"ping to loopback over ip6", ip("::1", "::1", 58, icmp(128, 0, nil)), ""},
	{"sctp", ip("198.18.0.1", "192.0.2.1", 132, nil), "raw:sctp:192.0.2.1"},
	{"sctp to loopback", ip("127.0.0.1", "127.0.0.1", 132, nil), ""},
	{"igmp report", ip("198.18.0.1", "224.0.0.22", 2, nil), ""},
	{"igmp to a host", ip("198.18.0.1", "192.0.2.1", 2, nil), "raw:proto-2:192.0.2.1"},
	{"neighbour discovery", ip("fe80::1", "ff02::1", 58, icmp(135, 0, nil)), ""},
	{"listener report", ip("::", "ff02::16", 0, ext(58, []byte{0, 5, 2}, icmp(143, 0, nil))), ""},
	{"discovery type to a host", ip("2001:2::1", "2001:db8::1", 58, icmp(135, 0, nil)), "raw:icmp:[2001:db8::1]"},
	{
		"refused datagram", ip("127.0.0.1", "127.0.0.1", 1, icmp(3, 3, ip("127.0.0.1", "127.0.0.1", 17, udp(40000, 8125)))),
		"refused 127.0.0.1:8125/udp",
	},
	{
		"refused datagram over ip6", ip("::1", "::1", 58, icmp(1, 4, ip("::1", "::1", 17, udp(40000, 8125)))),
		"refused [::1]:8125/udp",
	},
	{
		"refused tcp", ip("127.0.0.1", "127.0.0.1", 1, icmp(3, 3, ip("127.0.0.1", "127.0.0.1", 6, tcp(1, 80, 2)))), "",
	},
	{
		"host unreachable", ip("127.0.0.1", "127.0.0.1", 1, icmp(3, 1, ip("127.0.0.1", "127.0.0.1", 17, udp(1, 80)))), "",
	},
	{
		"refusal of somebody else's datagram", ip("198.18.0.1", "8.8.8.8", 1, icmp(3, 3, ip("127.0.0.1", "127.0.0.1", 17, udp(1, 80)))),
		"raw:icmp:8.8.8.8",
	},
	{"refusal cut short", ip("198.18.0.1", "8.8.8.8", 1, icmp(3, 3, ip("8.8.8.8", "127.0.0.1", 17, nil))), "raw:icmp:8.8.8.8"},
	{"syn behind extension headers", ip("2001:2::1", "2001:db8::1", 0, ext(60, nil, ext(6, nil, tcp(1, 443, 2)))), "[2001:db8::1]:443"},
	{"ack behind an extension header", ip("2001:2::1", "2001:db8::1", 0, ext(6, nil, tcp(1, 443, 0x10))), ""},
	{"udp to loopback behind an extension header", ip("::1", "::1", 60, ext(17, nil, udp(1, 2))), ""},
	{"first fragment over ip6", ip("2001:2::1", "2001:db8::1", 44, ext(17, []byte{0, 0, 1}, udp(1, 53))), "[2001:db8::1]:53/udp"},
	{"later fragment over ip6", ip("2001:2::1", "2001:db8::1", 44, ext(17, []byte{0, 0, 8}, udp(1, 53))), ""},
	{"authentication header", ip("2001:2::1", "2001:db8::1", 51, ext(6, []byte{0}, tcp(1, 443, 2))), "[2001:db8::1]:443"},
	{"extension header beyond the end", ip("2001:2::1", "2001:db8::1", 0, ext(6, []byte{255}, tcp(1, 443, 2))), "raw:tcp:[2001:db8::1]"},
	{"extension header cut off", ip("2001:2::1", "2001:db8::1", 43, []byte{6}), "raw:proto-43:[2001:db8::1]"},
	{"nothing", nil, ""},
	{"version 5", append([]byte{0x50}, make([]byte, 60)...), ""},
	{"header length too small", append([]byte{0x44}, make([]byte, 60)...), ""},
	{"cut in the header", ip("198.18.0.1", "192.0.2.1", 6, nil)[:19], ""},
}

// spellPacket is what a row would be called.
func spellPacket(p Packet, ok bool) string {
	switch {
	case !ok:
		return ""
	case p.Transport == Raw:
		return Endpoint{Transport: Raw, Path: ProtocolName(p.Proto), Host: p.Dst.Addr().String()}.String()
	}
	s := Endpoint{Transport: p.Transport, Host: p.Dst.Addr().String(), Port: p.Dst.Port()}.String()
	if p.Refused {
		s = "refused " + s
	}
	return s
}

func TestDecode(t *testing.T) {
	for _, tt := range packets {
		if got := spellPacket(Decode(tt.frame)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDecodeRefused(t *testing.T) {
	got, ok := Decode(ip("127.0.0.1", "127.0.0.9", 1, icmp(3, 3, ip("127.0.0.9", "127.0.0.1", 17, udp(40000, 8125)))))
	want := Packet{
		Transport: UDP, Proto: 17, Refused: true,
		Src: netip.MustParseAddrPort("127.0.0.9:40000"), Dst: netip.MustParseAddrPort("127.0.0.1:8125"),
	}
	if !ok || got != want {
		t.Errorf("got %+v, %v, want %+v", got, ok, want)
	}
}

// filterVM is the filter without the look at the packet type, which the VM
// of x/net/bpf does not have. Jumps are relative, so the rest stands alone.
func filterVM(t testing.TB) *bpf.VM {
	var raw []bpf.RawInstruction
	for _, in := range Filter()[2:] {
		raw = append(raw, bpf.RawInstruction{Op: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K})
	}
	program, all := bpf.Disassemble(raw)
	if !all {
		t.Fatalf("not all instructions are known: %v", program)
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestFilter(t *testing.T) {
	vm := filterVM(t)
	// What the filter cannot tell apart goes to user space.
	taken := map[string]bool{
		"ping to loopback": true, "ping to loopback over ip6": true, "refused tcp": true, "host unreachable": true,
		"header length too small": true, "cut in the header": true, "igmp report": true, "neighbour discovery": true, "listener report": true,
		"later fragment of udp": true, "later fragment over ip6": true,
		"ack behind an extension header": true, "udp to loopback behind an extension header": true,
	}
	for _, tt := range packets {
		n, err := vm.Run(tt.frame)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if want := tt.want != "" || taken[tt.name]; (n > 0) != want {
			t.Errorf("%s: filter took %d bytes, want it taken: %v", tt.name, n, want)
		}
	}
}

func TestFilterLooksAtPacketType(t *testing.T) {
	program := Filter()
	want := []Instruction{
		{Op: 0x20, K: 0xfffff004}, // ld [SKF_AD_OFF + SKF_AD_PKTTYPE]
		{Op: 0x15, Jf: uint8(len(program) - 3), K: 4},
	}
	if diff := cmp.Diff(want, program[:2]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Whatever Decode has something to say about, the filter must let through.
func FuzzDecode(f *testing.F) {
	for _, tt := range packets {
		f.Add(tt.frame)
	}
	vm := filterVM(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := Decode(frame)
		if !ok {
			return
		}
		if _, err := Parse(spellPacket(Packet{Transport: p.Transport, Dst: p.Dst, Proto: p.Proto}, true)); err != nil {
			// The unspecified address is mapped by the Recorder.
			if !p.Dst.Addr().IsUnspecified() {
				t.Error(err)
			}
		}
		if n, err := vm.Run(frame); err != nil || n == 0 {
			t.Errorf("%x: decoded to %+v, and the filter drops it: %d, %v", frame, p, n, err)
		}
	})
}
