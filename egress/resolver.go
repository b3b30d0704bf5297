package egress

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
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Lookup is one question to the resolver.
type Lookup struct {
	Name    string // canonical; "" if Outcome is Malformed
	Type    string // "A", "AAAA", "TXT", or "TYPE65" for one without a name here
	Client  netip.AddrPort
	Outcome Outcome
	// Actor names the process as in Attempt; nil where nobody looked for it.
	Actor func() int
}

// Outcome is what a Lookup led to.
type Outcome uint8

// The outcomes. Malformed is a message that is no query with one question.
// Full means that the name got no address, since too many others have one.
const (
	Answered Outcome = iota + 1
	NoSuchName
	Malformed
	Full
)

const (
	answerTTL      = 300              // seconds; the answers hold for the whole run
	ednsSize       = 1232             // bytes, as servers announce it (dnsflagday.net/2020)
	resolverIdle   = 10 * time.Second // of a TCP connection
	resolverClosed = time.Second      // for TCP connections when the run is over
	resolverConns  = 256
)

// Resolver is the name server of the namespace. It knows nobody else: every
// name has an address of its own from Names, and each question is journalled.
// What only concerns the namespace itself (localhost, the host name, reverse
// lookups of its addresses) is answered without a word.
type Resolver struct {
	names   *Names
	host    string
	own     []netip.Addr
	journal func(Lookup)
}

// NewResolver makes a resolver that answers host (the namespace's host name)
// with loopback and the reverse lookup of own addresses with host. It calls
// journal for each question, from several goroutines.
func NewResolver(names *Names, host string, own []netip.Addr, journal func(Lookup)) *Resolver {
	return &Resolver{names: names, host: canonicalName(host), own: own, journal: journal}
}

// ServeUDP answers until ctx is done and the socket is empty.
func (r *Resolver) ServeUDP(ctx context.Context, conn *net.UDPConn) error {
	query := make([]byte, 65535)
	in := input{socket: conn, deadline: conn.SetReadDeadline, next: func() error {
		n, client, err := conn.ReadFromUDPAddrPort(query)
		if err != nil {
			return err
		}
		if reply := r.reply(query[:n], client); reply != nil {
			// A client that has gone by now is no reason to stop for the
			// others, and the question is in the journal.
			_, _ = conn.WriteToUDPAddrPort(reply, client)
		}
		return nil
	}}
	if err := in.serve(ctx); err != nil {
		return fmt.Errorf("resolver on udp %s: %w", conn.LocalAddr(), err)
	}
	return nil
}

// ServeTCP answers until ctx is done and no connection is waiting.
func (r *Resolver) ServeTCP(ctx context.Context, listener *net.TCPListener) error {
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, resolverConns)
	in := input{socket: listener, deadline: listener.SetDeadline, next: func() error {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return err
		}
		slots <- struct{}{}
		open.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() {
				// Fails only if the connection is closed already.
				_ = conn.SetDeadline(time.Now().Add(resolverClosed))
			})
			defer stop()
			r.serveConn(ctx, conn)
		})
		return nil
	}}
	if err := in.serve(ctx); err != nil {
		return fmt.Errorf("resolver on tcp %s: %w", listener.Addr(), err)
	}
	return nil
}

// serveConn answers the queries of one connection (RFC 1035, section 4.2.2).
// Its errors end the connection and concern nobody else.
func (r *Resolver) serveConn(ctx context.Context, conn *net.TCPConn) {
	client, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return
	}
	for {
		if ctx.Err() == nil {
			if err := conn.SetDeadline(time.Now().Add(resolverIdle)); err != nil {
				return
			}
		}
		var size [2]byte
		if n, err := io.ReadFull(conn, size[:]); err != nil {
			if n > 0 {
				r.journal(Lookup{Client: client, Outcome: Malformed})
			}
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			r.journal(Lookup{Client: client, Outcome: Malformed})
			return
		}
		reply := r.reply(query, client)
		if reply == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answer is what a question leads to.
type answer struct {
	v4, v6 netip.Addr
	ptr    string // the name that a reverse lookup finds
	code   dnsmessage.RCode
	silent bool // of no interest to the journal
	full   bool
}

// Question reads the query of a client that gets no answer. Its outcome is
// NoSuchName, or Malformed if the message is no query with one question.
func Question(message []byte) Lookup {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || header.Response {
		return Lookup{Outcome: Malformed}
	}
	question, err := onlyQuestion(&p, header)
	if err != nil {
		return Lookup{Outcome: Malformed}
	}
	return Lookup{Name: canonicalName(question.Name.String()), Type: typeName(question.Type), Outcome: NoSuchName}
}

// onlyQuestion reads the question section of a started message.
func onlyQuestion(p *dnsmessage.Parser, header dnsmessage.Header) (dnsmessage.Question, error) {
	question, err := p.Question()
	if err != nil {
		return question, err
	}
	if _, more := p.Question(); more != dnsmessage.ErrSectionDone {
		return question, errors.New("more than one question")
	}
	if header.OpCode != 0 || question.Name.Length < 1 {
		return question, errors.New("no query for a name")
	}
	return question, nil
}

// reply journals a query and gives the message to send back, or nil for none.
func (r *Resolver) reply(query []byte, client netip.AddrPort) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		r.journal(Lookup{Client: client, Outcome: Malformed})
		return nil
	}
	question, err := onlyQuestion(&p, header)
	if err != nil {
		r.journal(Lookup{Client: client, Outcome: Malformed})
		return pack(header, nil, answer{code: dnsmessage.RCodeFormatError}, false)
	}
	name := canonicalName(question.Name.String())
	a := r.answer(name, question.Type)
	if !a.silent {
		outcome := Answered
		if a.full {
			outcome = Full
		} else if a.code == dnsmessage.RCodeNameError {
			outcome = NoSuchName
		}
		r.journal(Lookup{Name: name, Type: typeName(question.Type), Client: client, Outcome: outcome})
	}
	return pack(header, &question, a, hasEDNS(&p))
}

// answer looks a canonical name up.
func (r *Resolver) answer(name string, kind dnsmessage.Type) answer {
	switch {
	case r.isLocal(name):
		return answer{v4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), v6: netip.IPv6Loopback(), silent: true}
	case underTLD(name, "invalid"), underTLD(name, "test"), likeAddress(name): // RFC 6761
		return answer{code: dnsmessage.RCodeNameError}
	}
	if addr, ok := reverseName(name); ok {
		return r.reverse(addr)
	}
	if kind != dnsmessage.TypeA && kind != dnsmessage.TypeAAAA || name == "." {
		return answer{}
	}
	v4, v6, ok := r.names.Allot(name)
	if !ok {
		return answer{code: dnsmessage.RCodeServerFailure, full: true}
	}
	return answer{v4: v4, v6: v6}
}

func (r *Resolver) isLocal(name string) bool {
	switch name {
	case r.host, "ip6-localhost", "ip6-loopback": // the latter two stand in Debian's /etc/hosts
		return true
	}
	return underTLD(name, "localhost")
}

// reverse answers a PTR question.
func (r *Resolver) reverse(addr netip.Addr) answer {
	if addr.IsLoopback() {
		return answer{ptr: "localhost", silent: true}
	}
	for _, own := range r.own {
		if own == addr {
			return answer{ptr: r.host, silent: true}
		}
	}
	if name, ok := r.names.NameOf(addr); ok {
		return answer{ptr: name, silent: true} // the name itself is in the journal
	}
	return answer{code: dnsmessage.RCodeNameError}
}

func underTLD(name, tld string) bool {
	return name == tld || strings.HasSuffix(name, "."+tld)
}

// reverseName gives the address that a name below in-addr.arpa or ip6.arpa
// stands for (RFC 1035, section 3.5; RFC 3596, section 2.5).
func reverseName(name string) (netip.Addr, bool) {
	if s, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		part := strings.Split(s, ".")
		if len(part) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(part[3] + "." + part[2] + "." + part[1] + "." + part[0])
		return a, err == nil
	}
	s, ok := strings.CutSuffix(name, ".ip6.arpa")
	if !ok || len(s) != 63 || strings.Count(s, ".") != 31 {
		return netip.Addr{}, false
	}
	var b strings.Builder
	for i := 62; i >= 0; i -= 2 {
		b.WriteByte(s[i])
		if i%8 == 0 && i > 0 {
			b.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(b.String())
	return a, err == nil
}

func typeName(t dnsmessage.Type) string {
	if name, ok := strings.CutPrefix(t.String(), "Type"); ok {
		return name
	}
	return "TYPE" + strconv.Itoa(int(t)) // RFC 3597, section 5
}

// hasEDNS says whether the rest of a query holds an OPT record (RFC 6891).
// What cannot be read there is as good as absent.
func hasEDNS(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return false
		}
		if h.Type == dnsmessage.TypeOPT {
			return true
		}
		if p.SkipAdditional() != nil {
			return false
		}
	}
}

// pack makes the reply to a query, or nil if a name in it cannot be packed;
// the client then waits in vain, and the question is in the journal.
func pack(query dnsmessage.Header, question *dnsmessage.Question, a answer, edns bool) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: query.ID, Response: true, OpCode: query.OpCode, RCode: a.code,
		RecursionDesired: query.RecursionDesired, RecursionAvailable: true,
	}}
	if question != nil {
		m.Questions = []dnsmessage.Question{*question}
		if body := a.body(question.Type); body != nil && question.Class == dnsmessage.ClassINET {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: answerTTL},
				Body:   body,
			}}
		}
	}
	if edns {
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(ednsSize, a.code, false); err != nil {
			return nil
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// body is the record that answers a question of type kind, nil if there is none.
func (a answer) body(kind dnsmessage.Type) dnsmessage.ResourceBody {
	switch {
	case kind == dnsmessage.TypeA && a.v4.IsValid():
		return &dnsmessage.AResource{A: a.v4.As4()}
	case kind == dnsmessage.TypeAAAA && a.v6.IsValid():
		return &dnsmessage.AAAAResource{AAAA: a.v6.As16()}
	case kind == dnsmessage.TypePTR && a.ptr != "":
		name, err := dnsmessage.NewName(a.ptr + ".")
		if err != nil {
			return nil
		}
		return &dnsmessage.PTRResource{PTR: name}
	}
	return nil
}
