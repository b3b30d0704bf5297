package sandbox

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func sockaddrOf(family uint16, rest string) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, family), rest...)
}

func TestDecodeAddress(t *testing.T) {
	port := "\x01\xbb" // 443
	v6 := "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01"
	mapped := strings.Repeat("\x00", 10) + "\xff\xff\xc0\x00\x02\x01"
	for _, tt := range []struct {
		name string
		in   []byte
		want address
		ok   bool
	}{
		{"empty", nil, address{}, false},
		{"one byte", []byte{2}, address{}, false},
		{"ipv4", sockaddrOf(afInet, port+"\xc0\x00\x02\x01"+strings.Repeat("\x00", 8)), address{family: afInet, inet: netip.MustParseAddrPort("192.0.2.1:443")}, true},
		{"ipv4, too short", sockaddrOf(afInet, port+"\xc0\x00\x02\x01"), address{family: afInet}, false},
		{"ipv6", sockaddrOf(afInet6, port+"\x00\x00\x00\x00"+v6+"\x00\x00\x00\x00"), address{family: afInet6, inet: netip.MustParseAddrPort("[2001:db8::1]:443")}, true},
		{"ipv6 without scope", sockaddrOf(afInet6, port+"\x00\x00\x00\x00"+v6), address{family: afInet6, inet: netip.MustParseAddrPort("[2001:db8::1]:443")}, true},
		{"ipv6 too short", sockaddrOf(afInet6, port+"\x00\x00\x00\x00"+v6[:15]), address{family: afInet6}, false},
		{"ipv6 of an ipv4 address", sockaddrOf(afInet6, port+"\x00\x00\x00\x00"+mapped+"\x00\x00\x00\x00"), address{family: afInet6, inet: netip.MustParseAddrPort("192.0.2.1:443")}, true},
		{"unix path", sockaddrOf(afUnix, "/run/s\x00junk"), address{family: afUnix, unix: "/run/s"}, true},
		{"unix path without NUL", sockaddrOf(afUnix, strings.Repeat("p", 108)), address{family: afUnix, unix: strings.Repeat("p", 108)}, true},
		{"unix, unnamed", sockaddrOf(afUnix, ""), address{family: afUnix, unix: "@"}, true},
		{"unix, abstract", sockaddrOf(afUnix, "\x00a\x00b"), address{family: afUnix, unix: "@a\x00b"}, true},
		{"unspecified", sockaddrOf(afUnspec, ""), address{}, true},
		{"another family", sockaddrOf(16, "\x00\x00"), address{family: 16}, true},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			got, ok := decodeAddress(tt.in)
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// FuzzDecodeAddress: any bytes decode without a panic, and an internet
// address that decodes encodes to one that decodes to the same.
func FuzzDecodeAddress(f *testing.F) {
	f.Add(sockaddrOf(afInet, "\x00\x50\xc0\x00\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(sockaddrOf(afUnix, "\x00x"))
	f.Add([]byte{10})
	f.Fuzz(func(t *testing.T, in []byte) {
		a, ok := decodeAddress(in)
		if !ok || a.family == afUnix && a.unix == "" {
			if ok {
				t.Errorf("%x: a unix address without a name", in)
			}
			return
		}
		if !a.inet.IsValid() {
			return
		}
		family := a.family
		if again, ok := decodeAddress(encodeAddress(a.inet, family)); !ok || again != a {
			t.Errorf("%x: got %+v, and then %+v", in, a, again)
		}
	})
}

func TestDetour(t *testing.T) {
	cmsg := func(level, typ uint32, size int) []byte {
		b := binary.NativeEndian.AppendUint64(nil, uint64(sizeofCmsghdr+size))
		b = binary.NativeEndian.AppendUint32(b, level)
		b = binary.NativeEndian.AppendUint32(b, typ)
		return append(b, make([]byte, (size+cmsgAlign-1)&^(cmsgAlign-1))...)
	}
	harmless, route := cmsg(solIP, 1, 4), cmsg(solIP, ipRetOpts, 8)
	broken := cmsg(solIP, 1, 4)
	binary.NativeEndian.PutUint64(broken, 3)
	for _, tt := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"none", nil, false},
		{"descriptors", cmsg(1, 1, 4), false},
		{"route", route, true},
		{"behind another", slices.Concat(harmless, route), true},
		{"behind one that the kernel refuses", slices.Concat(broken, route), false},
		{"routing header", cmsg(solIPv6, ipv6Rthdr, 24), true},
		{"routing header of RFC 2292", cmsg(solIPv6, ipv6RthdrOld, 24), true},
		{"cut short", route[:12], false},
		{"without padding", cmsg(solIP, 1, 4)[:20], false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := detour(tt.b); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
