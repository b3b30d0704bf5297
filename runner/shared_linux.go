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
	resolver netip.AddrPort
	udp      *net.UDPConn
	tcp      *net.TCPListener

	packet func(egress.Packet)
	sinks  map[netip.AddrPort]*net.UDPConn // by the address that was meant; used by the supervisor alone
	ctx    context.Context                 // of the witnesses
	run    *witnesses
}

// maxSinks bounds the sockets of one run; a connect beyond it is refused.
const maxSinks = 512

// newShared listens on one port for both transports.
func newShared(r *run, packet func(egress.Packet)) (*shared, error) {
	s := &shared{
		names: r.names, far: r.cfg.Doors, audit: r.cfg.Mode == ledger.Audit, journal: r.lookup, packet: packet,
		doors: map[string]bool{}, servers: map[netip.AddrPort]bool{}, sinks: map[netip.AddrPort]*net.UDPConn{},
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
	if s.tcp, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	s.resolver = s.tcp.Addr().(*net.TCPAddr).AddrPort()
	if s.udp, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(s.resolver)); err != nil {
		return nil, fmt.Errorf("resolver: %w", err)
	}
	return s, nil
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
		return sandbox.Answer{Redirect: s.resolver}
	}
	l := egress.Question(c.Payload)
	l.Actor = actor
	s.journal(l)
	return sandbox.Answer{Errno: int(syscall.ECONNREFUSED)}
}

// farEnd replaces gate's own address of a name by the real one, for an
// endpoint that the ledger opens.
func (s *shared) farEnd(a sandbox.Answer, c *sandbox.NetCall, t egress.Transport) sandbox.Answer {
	if a.Errno != 0 || a.Later != nil || c.Call != "connect" || !c.Addr.IsValid() {
		return a
	}
	host := c.Addr.Addr().String()
	name, named := s.names.NameOf(c.Addr.Addr())
	if named {
		host = name
	}
	to := net.JoinHostPort(host, strconv.Itoa(int(c.Addr.Port())))
	key := to
	if t == egress.UDP {
		key += "/udp"
	}
	if t == egress.UDP && !s.doors[key] && !s.audit && !c.Addr.Addr().IsLoopback() && !c.Addr.Addr().IsUnspecified() {
		return s.sink(c.Addr)
	}
	far, moved := s.far[key]
	if moved {
		to = far
	}
	if !named && !moved {
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

// sink gives the address of the socket that stands for a foreign one.
func (s *shared) sink(meant netip.AddrPort) sandbox.Answer {
	conn := s.sinks[meant]
	if conn == nil {
		if len(s.sinks) == maxSinks {
			return sandbox.Answer{Errno: int(syscall.ENETUNREACH)}
		}
		var err error
		if conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return sandbox.Answer{Errno: int(syscall.ENETUNREACH)} // refused all the same
		}
		s.sinks[meant] = conn
		s.run.run(func() error { return s.drain(conn, meant) })
	}
	return sandbox.Answer{Redirect: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
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
	w.run(func() error { return r.ServeUDP(ctx, s.udp) })
	w.run(func() error { return r.ServeTCP(ctx, s.tcp) })
}
