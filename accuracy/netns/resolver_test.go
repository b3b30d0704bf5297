package netns

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

// ask packs a question and unpacks the reply: its records as text, and its code.
func ask(t *testing.T, r *resolver, name string, kind dnsmessage.Type) (string, dnsmessage.RCode) {
	t.Helper()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(r.reply(packed)); err != nil {
		t.Fatalf("reply: %v", err)
	}
	if m.ID != 7 || !m.Response {
		t.Errorf("reply header %+v", m.Header)
	}
	if len(m.Answers) == 0 {
		return "", m.RCode
	}
	switch body := m.Answers[0].Body.(type) {
	case *dnsmessage.AResource:
		v4, _ := addresses(0)
		if body.A == v4.As4() {
			return "first", m.RCode
		}
		if body.A == [4]byte{127, 0, 0, 1} {
			return "loopback", m.RCode
		}
		return "another", m.RCode
	case *dnsmessage.AAAAResource:
		if _, v6 := addresses(0); body.AAAA == v6.As16() {
			return "first", m.RCode
		}
		return "another", m.RCode
	case *dnsmessage.PTRResource:
		return body.PTR.String(), m.RCode
	}
	return "?", m.RCode
}

func TestResolver(t *testing.T) {
	r := newResolver()
	tests := []struct {
		name string
		kind dnsmessage.Type
		want string
		code dnsmessage.RCode
	}{
		{"A.Example.", dnsmessage.TypeA, "first", dnsmessage.RCodeSuccess},
		{"a.example.", dnsmessage.TypeAAAA, "first", dnsmessage.RCodeSuccess},
		{"b.example.", dnsmessage.TypeA, "another", dnsmessage.RCodeSuccess},
		{"c.example.", dnsmessage.TypeTXT, "", dnsmessage.RCodeSuccess},
		{"d.invalid.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
		{"1.2.3.", dnsmessage.TypeA, "", dnsmessage.RCodeNameError},
		{"gate.", dnsmessage.TypeA, "loopback", dnsmessage.RCodeSuccess},
		{"x.localhost.", dnsmessage.TypeA, "loopback", dnsmessage.RCodeSuccess},
		{"1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR, "localhost.", dnsmessage.RCodeSuccess},
		{"1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR, "gate.", dnsmessage.RCodeSuccess},
		{"0.1.18.198.in-addr.arpa.", dnsmessage.TypePTR, "a.example.", dnsmessage.RCodeSuccess},
		{"8.8.8.8.in-addr.arpa.", dnsmessage.TypePTR, "", dnsmessage.RCodeNameError},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa.", dnsmessage.TypePTR, "localhost.", dnsmessage.RCodeSuccess},
	}
	for _, tt := range tests {
		if got, code := ask(t, r, tt.name, tt.kind); got != tt.want || code != tt.code {
			t.Errorf("%s %v: got %q, %v; want %q, %v", tt.name, tt.kind, got, code, tt.want, tt.code)
		}
	}
	asked, names := r.journal()
	slices.Sort(asked)
	want := []string{"1.2.3", "8.8.8.8.in-addr.arpa", "a.example", "b.example", "c.example", "d.invalid"}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	v4, v6 := addresses(0)
	if names[v4] != "a.example" || names[v6] != "a.example" {
		t.Errorf("names: %v", names)
	}
}

func TestResolverJunk(t *testing.T) {
	for _, junk := range []string{"", "x", "\x00\x07\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01"} {
		if out := newResolver().reply([]byte(junk)); out != nil {
			t.Errorf("reply to %q: %q, want none", junk, out)
		}
	}
}
