package egress

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
)

// maxNames is how many names get an address of their own; with firstIndex it
// stays below 1<<16.
const maxNames = 65000

// firstIndex keeps 198.18.0.0/24 and the first 256 addresses of 2001:2::/48
// free: 198.18.0.1 and 2001:2::1 belong to the namespace itself.
const firstIndex = 256

// The addresses of names: 198.18.0.0/15 is set aside by RFC 2544 and
// 2001:2::/48 by RFC 5180. The last two bytes are the index; the lower half of
// the IPv4 range is enough for maxNames.
var (
	prefix4 = [2]byte{198, 18}
	prefix6 = [14]byte{0x20, 0x01, 0x00, 0x02}
)

// Names gives every name that is looked up an address of its own, from ranges
// that nobody uses (benchmarking of network devices), and knows the way back.
// It is safe for concurrent use.
type Names struct {
	mu    sync.Mutex
	index map[string]uint16
	names []string // by index - firstIndex
}

// NewNames gives an empty set.
func NewNames() *Names {
	return &Names{index: map[string]uint16{}}
}

// Allot gives the IPv4 and the IPv6 address of a name; the same ones each
// time. ok is false when maxNames others have theirs already.
func (n *Names) Allot(name string) (v4, v6 netip.Addr, ok bool) {
	name = canonicalName(name)
	n.mu.Lock()
	defer n.mu.Unlock()
	i, known := n.index[name]
	if !known {
		if len(n.names) == maxNames {
			return netip.Addr{}, netip.Addr{}, false
		}
		i = uint16(firstIndex + len(n.names))
		n.index[name] = i
		n.names = append(n.names, name)
	}
	hi, lo := byte(i>>8), byte(i)
	a6 := [16]byte{14: hi, 15: lo}
	copy(a6[:], prefix6[:])
	return netip.AddrFrom4([4]byte{prefix4[0], prefix4[1], hi, lo}), netip.AddrFrom16(a6), true
}

// NameOf gives the name that an address was allotted to.
func (n *Names) NameOf(addr netip.Addr) (string, bool) {
	addr = canonicalAddr(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	prefix := prefix4[:]
	if addr.Is6() {
		prefix = prefix6[:]
	}
	index, ours := bytes.CutPrefix(addr.AsSlice(), prefix)
	if !ours || len(index) != 2 {
		return "", false
	}
	i := int(binary.BigEndian.Uint16(index)) - firstIndex
	if i < 0 || i >= len(n.names) {
		return "", false
	}
	return n.names[i], true
}
