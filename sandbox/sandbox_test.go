package sandbox

import (
	"net/netip"
	"slices"
	"testing"
)

// Suites look into resolv.conf and skip what a resolver that they know there
// is bad at; their rows would then depend on being run by gate.
func TestResolverAddrIsNobodyElses(t *testing.T) {
	known := []netip.Addr{
		netip.MustParseAddr("127.0.0.1"),  // a name server of the host, or of a suite
		netip.MustParseAddr("127.0.0.11"), // Docker's
		netip.MustParseAddr("127.0.0.53"), // systemd-resolved(8)
		netip.MustParseAddr("127.0.0.54"), // the same, its proxy
		netip.MustParseAddr("127.0.1.1"),  // dnsmasq of NetworkManager
	}
	got := ResolverAddr.Addr()
	if !got.IsLoopback() || slices.Contains(known, got) {
		t.Errorf("got %v, want an address of 127.0.0.0/8 other than %v", got, known)
	}
}
