package netns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver answers every name with an address of its own and remembers which.
type resolver struct {
	mu    sync.Mutex
	asked map[string]bool
	names map[string]int // name -> index of its addresses
}

func newResolver() *resolver {
	return &resolver{asked: map[string]bool{}, names: map[string]int{}}
}

// The addresses of name number i: out of the blocks for benchmarks, RFC 2544
// and RFC 5180, which nobody else answers to.
func addresses(i int) (v4, v6 netip.Addr) {
	i += 1 << 8 // leave 198.18.0.1 and 2001:2::1 to the namespace
	a4 := netip.MustParseAddr("198.18.0.0").As4()
	a6 := netip.MustParseAddr("2001:2::").As16()
	binary.BigEndian.PutUint32(a4[:], binary.BigEndian.Uint32(a4[:])+uint32(i))
	binary.BigEndian.PutUint32(a6[12:], uint32(i))
	return netip.AddrFrom4(a4), netip.AddrFrom16(a6)
}

// journal gives the names that were asked for, those of the machine itself
// left out, and who has which address.
func (r *resolver) journal() (asked []string, names map[netip.Addr]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.asked {
		asked = append(asked, name)
	}
	names = map[netip.Addr]string{}
	for name, i := range r.names {
		v4, v6 := addresses(i)
		names[v4], names[v6] = name, name
	}
	return asked, names
}

// lookup answers one question: at most one record.
func (r *resolver) lookup(name string, kind dnsmessage.Type) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	if !isOwn(name) {
		if addr, ok := reversed(name); ok {
			return r.reverse(name, addr)
		}
		r.asked[name] = true
		if under(name, "invalid") || under(name, "test") || numeric(name) {
			return nil, dnsmessage.RCodeNameError
		}
		i, ok := r.names[name]
		if !ok {
			i = len(r.names)
			r.names[name] = i
		}
		v4, v6 = addresses(i)
	}
	switch kind {
	case dnsmessage.TypeA:
		return &dnsmessage.AResource{A: v4.As4()}, dnsmessage.RCodeSuccess
	case dnsmessage.TypeAAAA:
		return &dnsmessage.AAAAResource{AAAA: v6.As16()}, dnsmessage.RCodeSuccess
	}
	return nil, dnsmessage.RCodeSuccess
}

// reverse answers for the machine's own addresses and those made up here.
func (r *resolver) reverse(question string, addr netip.Addr) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	name := ""
	switch {
	case addr.IsLoopback():
		name = "localhost"
	case addr == own4, addr == own6:
		name = Host
	default:
		for n, i := range r.names {
			if v4, v6 := addresses(i); addr == v4 || addr == v6 {
				name = n
			}
		}
	}
	if name == "" {
		r.asked[question] = true
		return nil, dnsmessage.RCodeNameError
	}
	ptr, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	return &dnsmessage.PTRResource{PTR: ptr}, dnsmessage.RCodeSuccess
}

// isOwn tells whether a name means the machine inside.
func isOwn(name string) bool {
	return name == Host || under(name, "localhost") || name == "ip6-localhost" || name == "ip6-loopback"
}

func under(name, top string) bool {
	return name == top || strings.HasSuffix(name, "."+top)
}

// numeric tells whether a name ends like an IPv4 address; no such name exists.
func numeric(name string) bool {
	_, err := strconv.ParseUint(name[strings.LastIndexByte(name, '.')+1:], 10, 32)
	return err == nil
}

// reversed reads the address out of a name for reverse lookup.
func reversed(name string) (netip.Addr, bool) {
	labels, v4 := strings.CutSuffix(name, ".in-addr.arpa")
	group, separator := 1, "."
	if !v4 {
		var v6 bool
		if labels, v6 = strings.CutSuffix(name, ".ip6.arpa"); !v6 {
			return netip.Addr{}, false
		}
		group, separator = 4, ":"
	}
	parts := strings.Split(labels, ".")
	var b strings.Builder
	for i := range parts {
		if i > 0 && i%group == 0 {
			b.WriteString(separator)
		}
		b.WriteString(parts[len(parts)-1-i])
	}
	addr, err := netip.ParseAddr(b.String())
	return addr, err == nil
}

// reply answers a whole message; nil for one that is no query.
func (r *resolver) reply(query []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || m.Response || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if name == "" {
		name = "."
	}
	body, code := r.lookup(name, q.Type)
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true, RCode: code,
		},
		Questions: m.Questions,
	}
	if body != nil {
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 300}, Body: body,
		}}
	}
	out, err := answer.Pack()
	if err != nil {
		return nil
	}
	return out
}

// listen takes port 53 of loopback; serving goes on until ctx is done.
func (r *resolver) listen(ctx context.Context) error {
	const address = "127.0.0.1:53"
	udp, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", address)
	if err != nil {
		return fmt.Errorf("resolver: %w", err)
	}
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		return errors.Join(fmt.Errorf("resolver: %w", err), udp.Close())
	}
	context.AfterFunc(ctx, func() {
		_ = udp.Close()
		_ = tcp.Close()
	})
	go r.serveUDP(ctx, udp)
	go r.serveTCP(tcp)
	return nil
}

func (r *resolver) serveUDP(ctx context.Context, conn net.PacketConn) {
	buf := make([]byte, 1<<16)
	for ctx.Err() == nil {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			continue // an ICMP error of a client that has gone; or closed, and ctx tells
		}
		if out := r.reply(buf[:n]); out != nil {
			_, _ = conn.WriteTo(out, from) // the client may have gone
		}
	}
}

func (r *resolver) serveTCP(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go r.serveConn(conn)
	}
}

// serveConn answers messages with a length before each, RFC 1035, 4.2.2. An
// error ends the connection and concerns only the client.
func (r *resolver) serveConn(conn net.Conn) {
	defer conn.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		out := r.reply(query)
		if out == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}
