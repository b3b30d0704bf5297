package egress

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/dns/dnsmessage"
)

// notes is a journal that several goroutines write to.
type notes struct {
	mu   sync.Mutex
	seen []string
}

func (n *notes) add(l Lookup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	outcome := map[Outcome]string{Answered: "answered", NoSuchName: "no such name", Malformed: "malformed", Full: "full"}[l.Outcome]
	n.seen = append(n.seen, strings.TrimSpace(l.Name+" "+l.Type+" "+outcome))
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = nil
	return seen
}

func newTestResolver(n *notes) *Resolver {
	own := []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")}
	return NewResolver(NewNames(), "gate", own, n.add)
}

func question(name string, kind dnsmessage.Type) dnsmessage.Message {
	return dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
}

func packed(t testing.TB, m dnsmessage.Message) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestQuestion(t *testing.T) {
	two := question("a.example.com.", dnsmessage.TypeA)
	two.Questions = append(two.Questions, two.Questions[0])
	answer := question("a.example.com.", dnsmessage.TypeA)
	answer.Response = true
	for _, tt := range []struct {
		name string
		in   []byte
		want Lookup
	}{
		{"a query", packed(t, question("Files.Example.COM.", dnsmessage.TypeAAAA)), Lookup{Name: "files.example.com", Type: "AAAA", Outcome: NoSuchName}},
		{"two questions", packed(t, two), Lookup{Outcome: Malformed}},
		{"an answer", packed(t, answer), Lookup{Outcome: Malformed}},
		{"no DNS", []byte("x"), Lookup{Outcome: Malformed}},
		{"nothing", nil, Lookup{Outcome: Malformed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Question(tt.in), cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	const ip6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.2.0.0.0.1.0.0.2.ip6.arpa."
	tests := []struct {
		name    string
		kind    dnsmessage.Type
		want    string // the answer; "-" for none, or the code
		journal string
	}{
		{"Files.Example.COM.", dnsmessage.TypeA, "198.18.1.0", "files.example.com A answered"},
		{"files.example.com.", dnsmessage.TypeAAAA, "2001:2::100", "files.example.com AAAA answered"},
		{"other.example.com.", dnsmessage.TypeA, "198.18.1.1", "other.example.com A answered"},
		{"db.", dnsmessage.TypeAAAA, "2001:2::102", "db AAAA answered"},
		{"third.example.com.", dnsmessage.TypeTXT, "-", "third.example.com TXT answered"},
		{"third.example.com.", dnsmessage.TypeHTTPS, "-", "third.example.com HTTPS answered"},
		{"third.example.com.", dnsmessage.Type(999), "-", "third.example.com TYPE999 answered"},
		{".", dnsmessage.TypeNS, "-", ". NS answered"},
		{".", dnsmessage.TypeA, "-", ". A answered"},
		{"a.invalid.", dnsmessage.TypeA, "RCodeNameError", "a.invalid A no such name"},
		{"test.", dnsmessage.TypeA, "RCodeNameError", "test A no such name"},
		{"latest.", dnsmessage.TypeA, "198.18.1.3", "latest A answered"},
		{"8.8.8.8.", dnsmessage.TypeA, "RCodeNameError", "8.8.8.8 A no such name"},
		{"localhost.", dnsmessage.TypeA, "127.0.0.1", ""},
		{"a.LOCALHOST.", dnsmessage.TypeAAAA, "::1", ""},
		{"gate.", dnsmessage.TypeA, "127.0.0.1", ""},
		{"gate.", dnsmessage.TypeMX, "-", ""},
		{"ip6-loopback.", dnsmessage.TypeAAAA, "::1", ""},
		{"ip6-localhost.", dnsmessage.TypeAAAA, "::1", ""},
		{"0.1.18.198.in-addr.arpa.", dnsmessage.TypePTR, "files.example.com.", ""},
		{"1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, "gate.", ""},
		{"9.9.18.198.in-addr.arpa.", dnsmessage.TypePTR, "RCodeNameError", "9.9.18.198.in-addr.arpa PTR no such name"},
		{"8.8.8.8.in-addr.arpa.", dnsmessage.TypePTR, "RCodeNameError", "8.8.8.8.in-addr.arpa PTR no such name"},
		{"2.1.0.127.in-addr.arpa.", dnsmessage.TypePTR, "localhost.", ""},
		{"0.127.in-addr.arpa.", dnsmessage.TypePTR, "-", "0.127.in-addr.arpa PTR answered"},
		{ip6, dnsmessage.TypePTR, "gate.", ""},
		{strings.Replace(ip6, "1.0.0", "1.z.0", 1), dnsmessage.TypePTR, "-", strings.TrimSuffix(strings.Replace(ip6, "1.0.0", "1.z.0", 1), ".") + " PTR answered"},
		{"x.ip6.arpa.", dnsmessage.TypePTR, "-", "x.ip6.arpa PTR answered"},
	}
	var journal notes
	r := newTestResolver(&journal)
	for _, tt := range tests {
		var got dnsmessage.Message
		if err := got.Unpack(r.reply(packed(t, question(tt.name, tt.kind)), netip.AddrPort{})); err != nil {
			t.Fatalf("%s %v: %v", tt.name, tt.kind, err)
		}
		if h := got.Header; h.ID != 7 || !h.Response || !h.RecursionDesired || !h.RecursionAvailable || got.Questions[0].Name.String() != tt.name {
			t.Errorf("%s %v: reply %+v", tt.name, tt.kind, got)
		}
		answer := "-"
		if got.RCode != dnsmessage.RCodeSuccess {
			answer = got.RCode.GoString()
			answer = strings.TrimPrefix(answer, "dnsmessage.")
		}
		for _, a := range got.Answers {
			if a.Header.Name.String() != tt.name || a.Header.TTL != answerTTL || a.Header.Type != tt.kind {
				t.Errorf("%s %v: answer %+v", tt.name, tt.kind, a)
			}
			switch b := a.Body.(type) {
			case *dnsmessage.AResource:
				answer = netip.AddrFrom4(b.A).String()
			case *dnsmessage.AAAAResource:
				answer = netip.AddrFrom16(b.AAAA).String()
			case *dnsmessage.PTRResource:
				answer = b.PTR.String()
			}
		}
		if answer != tt.want {
			t.Errorf("%s %v: got %s, want %s", tt.name, tt.kind, answer, tt.want)
		}
		if seen := strings.Join(journal.take(), "; "); seen != tt.journal {
			t.Errorf("%s %v: journal %q, want %q", tt.name, tt.kind, seen, tt.journal)
		}
	}
}

func TestHostileQueries(t *testing.T) {
	ask := question("a.example.", dnsmessage.TypeA)
	two := ask
	two.Questions = append(two.Questions, two.Questions[0])
	none := ask
	none.Questions = nil
	update := ask
	update.OpCode = 5
	response := ask
	response.Response = true
	dotted := packed(t, ask)
	dotted[14] = '.' // inside a label
	loop := packed(t, ask)
	loop = append(loop[:12], 0xc0, 12, 0, 1, 0, 1)
	tests := []struct {
		name  string
		query []byte
		want  dnsmessage.RCode
		reply bool
	}{
		{"empty", nil, 0, false},
		{"short", []byte{0, 7}, 0, false},
		{"a response", packed(t, response), 0, false},
		{"two questions", packed(t, two), dnsmessage.RCodeFormatError, true},
		{"no question", packed(t, none), dnsmessage.RCodeFormatError, true},
		{"update", packed(t, update), dnsmessage.RCodeFormatError, true},
		{"cut off", packed(t, ask)[:16], dnsmessage.RCodeFormatError, true},
		{"dot in a label", dotted, dnsmessage.RCodeFormatError, true},
		{"pointer to itself", loop, dnsmessage.RCodeFormatError, true},
	}
	var journal notes
	r := newTestResolver(&journal)
	for _, tt := range tests {
		reply := r.reply(tt.query, netip.AddrPort{})
		if (reply != nil) != tt.reply {
			t.Errorf("%s: got reply %x, want one: %v", tt.name, reply, tt.reply)
		}
		var m dnsmessage.Message
		if reply != nil {
			if err := m.Unpack(reply); err != nil || m.RCode != tt.want || m.ID != 7 {
				t.Errorf("%s: got %+v, %v, want %v", tt.name, m.Header, err, tt.want)
			}
		}
		if diff := cmp.Diff([]string{"malformed"}, journal.take()); diff != "" {
			t.Errorf("%s: journal, -want +got:\n%s", tt.name, diff)
		}
	}
}

func TestEDNS(t *testing.T) {
	m := question("a.example.", dnsmessage.TypeA)
	var h dnsmessage.ResourceHeader
	if err := h.SetEDNS0(4096, 0, true); err != nil {
		t.Fatal(err)
	}
	m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	var journal notes
	r := newTestResolver(&journal)
	var got dnsmessage.Message
	if err := got.Unpack(r.reply(packed(t, m), netip.AddrPort{})); err != nil {
		t.Fatal(err)
	}
	if len(got.Answers) != 1 || len(got.Additionals) != 1 || got.Additionals[0].Header.Class != ednsSize {
		t.Errorf("got %+v", got)
	}
	broken := packed(t, m)
	broken = broken[:len(broken)-3] // the OPT record is cut off, the question is whole
	if err := got.Unpack(r.reply(broken, netip.AddrPort{})); err != nil || len(got.Answers) != 1 || len(got.Additionals) != 0 {
		t.Errorf("cut off: got %+v, %v", got, err)
	}
}

func TestOtherClass(t *testing.T) {
	m := question("version.bind.", dnsmessage.TypeA)
	m.Questions[0].Class = dnsmessage.ClassCHAOS
	var journal notes
	var got dnsmessage.Message
	if err := got.Unpack(newTestResolver(&journal).reply(packed(t, m), netip.AddrPort{})); err != nil || len(got.Answers) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"version.bind A answered"}, journal.take()); diff != "" {
		t.Errorf("journal, -want +got:\n%s", diff)
	}
}

func TestTooManyNames(t *testing.T) {
	var journal notes
	r := newTestResolver(&journal)
	for range maxNames {
		r.names.names = append(r.names.names, "")
	}
	var got dnsmessage.Message
	if err := got.Unpack(r.reply(packed(t, question("a.example.", dnsmessage.TypeA)), netip.AddrPort{})); err != nil || got.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("got %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"a.example A full"}, journal.take()); diff != "" {
		t.Errorf("journal, -want +got:\n%s", diff)
	}
}

// serveResolver runs a resolver on loopback and stops it with the test.
func serveResolver(t *testing.T, r *Resolver) (address string, stop func()) {
	t.Helper()
	tcp := listenTCP(t)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Addr().(*net.TCPAddr).Port})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := r.ServeUDP(ctx, udp); err != nil {
			t.Error(err)
		}
	})
	served.Go(func() {
		if err := r.ServeTCP(ctx, tcp); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); served.Wait(); tcp.Close(); udp.Close() })
	return tcp.Addr().String(), func() { cancel(); served.Wait() }
}

func TestGoResolver(t *testing.T) {
	var journal notes
	address, _ := serveResolver(t, newTestResolver(&journal))
	for _, network := range []string{"udp", "tcp"} {
		client := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}}
		got, err := client.LookupNetIP(t.Context(), "ip", network+".example.com.")
		if err != nil || len(got) != 2 {
			t.Fatalf("over %s: got %v, %v, want two addresses", network, got, err)
		}
		names, err := client.LookupAddr(t.Context(), got[0].String())
		if err != nil || len(names) != 1 || names[0] != network+".example.com." {
			t.Errorf("over %s: reverse of %v: got %v, %v", network, got[0], names, err)
		}
		if _, err := client.LookupHost(t.Context(), "no.invalid."); err == nil || !err.(*net.DNSError).IsNotFound {
			t.Errorf("over %s: no.invalid: got %v, want not found", network, err)
		}
	}
}

// What a process sent just before its end is journalled, though the resolver
// is told to stop before it has read it.
func TestStopReadsWhatIsQueued(t *testing.T) {
	var journal notes
	r := newTestResolver(&journal)
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcp := listenTCP(t)
	defer tcp.Close()
	query := packed(t, question("udp.example.", dnsmessage.TypeA))
	client, err := net.Dial("udp", udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	stream, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Write(query); err != nil {
			t.Fatal(err)
		}
	}
	query = packed(t, question("tcp.example.", dnsmessage.TypeA))
	if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.ServeUDP(ctx, udp); err != nil {
		t.Error(err)
	}
	if err := r.ServeTCP(ctx, tcp); err != nil {
		t.Error(err)
	}
	want := []string{"udp.example A answered", "udp.example A answered", "udp.example A answered", "tcp.example A answered"}
	if diff := cmp.Diff(want, journal.take()); diff != "" {
		t.Errorf("journal, -want +got:\n%s", diff)
	}
}

func TestBrokenStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent []byte
		want []string
	}{
		{"nothing", nil, nil},
		{"half a length", []byte{0}, []string{"malformed"}},
		{"a short message", []byte{0, 9, 1, 2}, []string{"malformed"}},
		{"an empty message", []byte{0, 0}, []string{"malformed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var journal notes
			address, stop := serveResolver(t, newTestResolver(&journal))
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(tt.sent); err != nil {
				t.Fatal(err)
			}
			conn.Close()
			stop()
			if diff := cmp.Diff(tt.want, journal.take()); diff != "" {
				t.Errorf("journal, -want +got:\n%s", diff)
			}
		})
	}
}

func FuzzResolver(f *testing.F) {
	f.Add(packed(f, question("a.example.", dnsmessage.TypeA)))
	f.Add(packed(f, question("1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR)))
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, '*', '\n', 0xff, 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, query []byte) {
		rec := New(Config{Mode: Namespaced, Names: NewNames()})
		journalled := false
		r := NewResolver(rec.config.Names, "gate", nil, func(l Lookup) { journalled = true; rec.Lookup(l) })
		before := bytes.Clone(query)
		reply := r.reply(query, netip.AddrPort{})
		if !bytes.Equal(before, query) {
			t.Error("the query was changed")
		}
		if reply != nil {
			var m dnsmessage.Message
			if err := m.Unpack(reply); err != nil {
				t.Errorf("reply %x: %v", reply, err)
			}
			if len(reply) > 1232 {
				t.Errorf("reply of %d bytes", len(reply))
			}
		} else if !journalled {
			t.Error("neither reply nor journal")
		}
		for _, row := range rec.Finish().Rows {
			if _, err := Parse(row.Endpoint); err != nil {
				t.Error(err)
			}
		}
	})
}
