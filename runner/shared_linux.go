package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/org/gate/egress"
	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

// shared is what the notify tier needs in place of a network namespace. The
// tree sees the host's resolv.conf, so its lookups are led to gate's own
// resolver on the host's loopback, and names are known there as well. A UDP
// socket that is connected to a foreign address is led to a sink: most such
// connects only sort addresses, and what does send is then seen.
type shared struct {
	names    *egress.Names
	doors    map[string]bool   // endpoints that the ledger opens
	far      map[string]string // --door: endpoint -> far end
	audit    bool
	journal  func(egress.Lookup)
	servers  map[netip.AddrPort]bool // of resolv.conf(5)
	doorways []doorway               // to the resolver, the one of IPv4 first

	packet func(egress.Packet)
	open   map[netip.AddrPort]*net.UDPConn // sinks by the address that was meant; used by the supervisor alone
	ctx    context.Context                 // of the witnesses
	run    *witnesses
}

// doorway is one port of the resolver, for both transports.
type doorway struct {
	addr netip.AddrPort
	udp  *net.UDPConn
	tcp  *net.TCPListener
}

// maxSinks bounds the sockets of one run; a connect beyond it is refused, and a row.
const maxSinks = 512

// newShared makes the resolver. A socket of IPv6 alone reaches only IPv6
// (ipv6(7), IPV6_V6ONLY), which not every host has.
func newShared(r *run, packet func(egress.Packet)) (*shared, error) {
	s := &shared{
		names: r.names, far: r.cfg.Doors, audit: r.cfg.Mode == ledger.Audit, journal: r.lookup, packet: packet,
		doors: map[string]bool{}, servers: map[netip.AddrPort]bool{}, open: map[netip.AddrPort]*net.UDPConn{},
	}
	for _, e := range egress.Doors(r.allow) {
		s.doors[e.String()] = true
	}
	conf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("find the name servers: %w", err)
	}
	for _, a := range nameServers(string(conf)) {
		s.servers[netip.AddrPortFrom(a, 53)] = true
	}
	for _, host := range []netip.Addr{loopback4, netip.IPv6Loopback()} {
		d, err := openDoorway(host)
		switch {
		case err == nil:
			s.doorways = append(s.doorways, d)
		case host == loopback4:
			return nil, fmt.Errorf("resolver: %w", err)
		}
	}
	return s, nil
}

var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// loopbackOf is loopback of the family of an address.
func loopbackOf(a netip.Addr) netip.Addr {
	if a.Unmap().Is4() {
		return loopback4
	}
	return netip.IPv6Loopback()
}

// openDoorway takes a port that is free for TCP and UDP alike.
func openDoorway(host netip.Addr) (d doorway, err error) {
	for range 10 {
		if d.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(host, 0))); err != nil {
			return d, err
		}
		d.addr = d.tcp.Addr().(*net.TCPAddr).AddrPort()
		if d.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(d.addr)); err == nil {
			return d, nil
		}
		if closeErr := d.tcp.Close(); closeErr != nil {
			return d, errors.Join(err, closeErr)
		}
	}
	return d, err
}

// nameServers are those that the C library would ask.
func nameServers(conf string) []netip.Addr {
	var out []netip.Addr
	for line := range strings.Lines(conf) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			if a, err := netip.ParseAddr(f[1]); err == nil {
				out = append(out, a.WithZone("").Unmap())
			}
		}
	}
	if out == nil {
		out = append(out, netip.AddrFrom4([4]byte{127, 0, 0, 1})) // the library's default
	}
	return out
}

func (s *shared) serves(a netip.AddrPort) bool { return s.servers[a] }

// lookup leads a connected socket to the resolver. A datagram to a given
// address cannot be led elsewhere (the answer would come from the wrong
// host), so the question is read, journalled, and refused.
func (s *shared) lookup(c *sandbox.NetCall, actor func() int) sandbox.Answer {
	if c.Call == "connect" {
		return sandbox.Answer{Redirect: s.doorway(c.Addr.Addr())}
	}
	l := egress.Question(c.Payload)
	l.Actor = actor
	s.journal(l)
	return sandbox.Answer{Errno: int(syscall.ECONNREFUSED)}
}

// doorway is where the resolver is reached in place of a name server.
func (s *shared) doorway(server netip.Addr) netip.AddrPort {
	for _, d := range s.doorways {
		if d.addr.Addr() == loopbackOf(server) {
			return d.addr
		}
	}
	return s.doorways[0].addr
}

// sinks tells whether an attempt is led to a sink: a UDP connect to another
// host that nothing opens.
func (s *shared) sinks(c *sandbox.NetCall, t egress.Transport) bool {
	a := c.Addr.Addr()
	return t == egress.UDP && c.Call == "connect" && !s.audit && !a.IsLoopback() && !a.IsUnspecified() && !s.doors[s.key(c.Addr, t)]
}

// key is an endpoint as the ledger spells it.
func (s *shared) key(a netip.AddrPort, t egress.Transport) string {
	host := a.Addr().String()
	if name, named := s.names.NameOf(a.Addr()); named {
		host = name
	}
	key := net.JoinHostPort(host, strconv.Itoa(int(a.Port())))
	if t == egress.UDP {
		key += "/udp"
	}
	return key
}

// farEnd replaces gate's own address of a name by the real one, for an
// endpoint that the ledger opens.
func (s *shared) farEnd(a sandbox.Answer, c *sandbox.NetCall, t egress.Transport) sandbox.Answer {
	if a.Errno != 0 || a.Later != nil || c.Call != "connect" || !c.Addr.IsValid() {
		return a
	}
	key := s.key(c.Addr, t)
	to, moved := s.far[key]
	if !moved {
		to = strings.TrimSuffix(key, "/udp")
	}
	if _, named := s.names.NameOf(c.Addr.Addr()); !named && !moved {
		return a
	}
	return sandbox.Answer{Later: func() sandbox.Answer {
		addr, err := net.ResolveTCPAddr("tcp", to)
		if err != nil {
			return sandbox.Answer{Errno: int(syscall.ECONNREFUSED)} // as by a closed port
		}
		ap := addr.AddrPort()
		return sandbox.Answer{Redirect: netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())}
	}}
}

// sink leads a socket to the one that stands for a foreign address, of the
// same family. If that cannot be had or reached, nobody would see what is
// sent, and the connect itself is the attempt.
func (s *shared) sink(meant netip.AddrPort, attempt func() sandbox.Answer) sandbox.Answer {
	conn := s.open[meant]
	if conn == nil {
		if len(s.open) == maxSinks {
			return attempt()
		}
		var err error
		if conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopbackOf(meant.Addr()), 0))); err != nil {
			return attempt()
		}
		s.open[meant] = conn
		s.run.run(func() error { return s.drain(conn, meant) })
	}
	return sandbox.Answer{Redirect: conn.LocalAddr().(*net.UDPAddr).AddrPort(), Else: attempt}
}

// drain reports every datagram of a sink.
func (s *shared) drain(conn *net.UDPConn, meant netip.AddrPort) error {
	stop := context.AfterFunc(s.ctx, func() { _ = conn.SetReadDeadline(time.Now().Add(drainTime)) })
	defer stop()
	buf := make([]byte, 1)
	for {
		_, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return conn.Close()
		}
		if err != nil {
			return fmt.Errorf("read a datagram to %s: %w", meant, err)
		}
		s.packet(egress.Packet{Transport: egress.UDP, Src: from, Dst: meant})
	}
}

// drainTime is how long a sink is read after the tree has died: what was sent
// on loopback is there already.
const drainTime = 20 * time.Millisecond

// serve runs the resolver until ctx is done.
func (s *shared) serve(ctx context.Context, w *witnesses) {
	s.ctx, s.run = ctx, w
	r := egress.NewResolver(s.names, sandbox.HostName, nil, s.journal)
	for _, d := range s.doorways {
		w.run(func() error { return r.ServeUDP(ctx, d.udp) })
		w.run(func() error { return r.ServeTCP(ctx, d.tcp) })
	}
}
