package egress

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCanonical(t *testing.T) {
	tests := []struct {
		in   string
		want Endpoint
	}{
		{"files.example.com:443", Endpoint{Transport: TCP, Host: "files.example.com", Port: 443}},
		{"db:5432", Endpoint{Transport: TCP, Host: "db", Port: 5432}},
		{"_sip._tcp.example.com:5060/udp", Endpoint{Transport: UDP, Host: "_sip._tcp.example.com", Port: 5060}},
		{"8.8.8.8:53/udp", Endpoint{Transport: UDP, Host: "8.8.8.8", Port: 53}},
		{"[2001:db8::1]:443", Endpoint{Transport: TCP, Host: "2001:db8::1", Port: 443}},
		{"[::1]:0", Endpoint{Transport: TCP, Host: "::1"}},
		{"127.0.0.1:eph", Endpoint{Transport: TCP, Host: "127.0.0.1", ports: ephemeralPorts}},
		{"[::1]:eph/udp", Endpoint{Transport: UDP, Host: "::1", ports: ephemeralPorts}},
		{`"dns":53`, Endpoint{Transport: TCP, Host: "dns", Port: 53}},
		{`"a b\033.com":80`, Endpoint{Transport: TCP, Host: "a b\x1b.com", Port: 80}},
		{`"*.example.com":443`, Endpoint{Transport: TCP, Host: "*.example.com", Port: 443}},
		{"*.example.com:443", Endpoint{Transport: TCP, Host: "*.example.com", Port: 443, pattern: true}},
		{"10.0.0.*:80", Endpoint{Transport: TCP, Host: "10.0.0.*", Port: 80, pattern: true}},
		{"[2001:db8::*]:80/udp", Endpoint{Transport: UDP, Host: "2001:db8::*", Port: 80, pattern: true}},
		{"example.com:*", Endpoint{Transport: TCP, Host: "example.com", ports: anyPort, pattern: true}},
		{"[::1]:*", Endpoint{Transport: TCP, Host: "::1", ports: anyPort, pattern: true}},
		{"dns:example.com", Endpoint{Transport: DNS, Host: "example.com"}},
		{"dns:dns", Endpoint{Transport: DNS, Host: "dns"}},
		{"dns:.", Endpoint{Transport: DNS, Host: "."}},
		{"dns:1.2.3.4", Endpoint{Transport: DNS, Host: "1.2.3.4"}},
		{`dns:"::1"`, Endpoint{Transport: DNS, Host: "::1"}},
		{`dns:"\303\050"`, Endpoint{}}, // "(" needs no escape
		{`dns:"\303("`, Endpoint{Transport: DNS, Host: "\xc3("}},
		{"dns:*.example.com", Endpoint{Transport: DNS, Host: "*.example.com", pattern: true}},
		{"unix:/run/docker.sock", Endpoint{Transport: Unix, Path: "/run/docker.sock"}},
		{"unix:/", Endpoint{Transport: Unix, Path: "/"}},
		{"unix:sub/x.sock", Endpoint{Transport: Unix, Path: "sub/x.sock"}},
		{"unix:.", Endpoint{Transport: Unix, Path: "."}},
		{"unix:./@x", Endpoint{Transport: Unix, Path: "./@x"}},
		{"unix:./$HOME/x", Endpoint{Transport: Unix, Path: "./$HOME/x"}},
		{"unix:$HOME/.x/s", Endpoint{Transport: Unix, Path: "$HOME/.x/s"}},
		{"unix:$XDG_RUNTIME_DIR/bus", Endpoint{Transport: Unix, Path: "$XDG_RUNTIME_DIR/bus"}},
		{"unix:@/tmp/.X11-unix/X0", Endpoint{Transport: Unix, Path: "@/tmp/.X11-unix/X0"}},
		{`unix:"@a\000b"`, Endpoint{Transport: Unix, Path: "@a\x00b"}},
		{`unix:"/tmp/a*b"`, Endpoint{Transport: Unix, Path: "/tmp/a*b"}},
		{`unix:"/tmp/a\\b\"\n\377"`, Endpoint{Transport: Unix, Path: "/tmp/a\\b\"\n\xff"}},
		{"unix:/tmp/größe", Endpoint{Transport: Unix, Path: "/tmp/größe"}},
		{"unix:/tmp/x-*", Endpoint{Transport: Unix, Path: "/tmp/x-*", pattern: true}},
		{"unix:$TMPDIR/**/[a-z]?", Endpoint{Transport: Unix, Path: "$TMPDIR/**/[a-z]?", pattern: true}},
		{"vsock:2:1024", Endpoint{Transport: Vsock, Path: "2:1024"}},
		{"vsock:*:*", Endpoint{Transport: Vsock, Path: "*:*"}},
		{"raw:io_uring", Endpoint{Transport: Raw, Path: "io_uring"}},
		{"raw:i386", Endpoint{Transport: Raw, Path: "i386"}},
		{"raw:icmp:8.8.8.8", Endpoint{Transport: Raw, Path: "icmp", Host: "8.8.8.8"}},
		{"raw:proto-47:[2001:db8::1]", Endpoint{Transport: Raw, Path: "proto-47", Host: "2001:db8::1"}},
		{"raw:icmp:example.com", Endpoint{Transport: Raw, Path: "icmp", Host: "example.com"}},
	}
	for _, tt := range tests {
		if tt.want == (Endpoint{}) {
			if _, err := Parse(tt.in); err == nil {
				t.Errorf("Parse(%q): no error", tt.in)
			}
			continue
		}
		got, err := Parse(tt.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.in, err)
			continue
		}
		if got != tt.want {
			t.Errorf("Parse(%q): got %#v, want %#v", tt.in, got, tt.want)
		}
		if got.String() != tt.in {
			t.Errorf("Parse(%q).String(): got %s", tt.in, got)
		}
	}
}

func TestParseRejects(t *testing.T) {
	tests := []struct {
		in   string
		want string // part of the message
	}{
		{"", "no host"},
		{":443", "no host"},
		{"example.com", "no port; write it with one, e.g. example.com:443"},
		{"8.8.8.8", "e.g. 8.8.8.8:443"},
		{"Example.COM.:443", "write example.com:443"},
		{"example.com:443/tcp", "write example.com:443"},
		{"example.com:0443", "write example.com:443"},
		{"example.com:https", `"https" is no port`},
		{"example.com:65536", "number up to 65535"},
		{"example.com:-1", "is no port"},
		{"example.com:eph", "is no port"},
		{"example.com:53/sctp", `"53/sctp" is no port`},
		{"https://example.com/x", "a URL is no endpoint"},
		{"user@example.com:80", "neither an address nor a host name"},
		{"exa mple.com:80", "neither an address nor a host name"},
		{"bücher.example:80", "neither an address nor a host name"},
		{"a..b:80", "empty label"},
		{"1.2.3:80", "looks like an address"},
		{"256.1.1.1:80", "looks like an address"},
		{"2001:db8::1", "e.g. [2001:db8::1]:443"},
		{"2001:db8::1:443", "e.g. [2001:db8::1:443]:443"},
		{"[2001:DB8:0::1]:443", "write [2001:db8::1]:443"},
		{"[::ffff:10.0.0.1]:443", "write 10.0.0.1:443"},
		{"[fe80::1%eth0]:443", "write [fe80::1]:443"},
		{"[example.com]:443", "brackets hold an IPv6 address"},
		{"[::1:443", "brackets hold an IPv6 address"},
		{"0.0.0.0:80", "write 127.0.0.1:80"},
		{"[::]:80", "write [::1]:80"},
		{"localhost:80", "write 127.0.0.1:80"},
		{`"example.com":80`, "write example.com:80"},
		{`"a b:80`, "no closing one"},
		{`"a\qb":80`, "no escape"},
		{`"a\9":80`, "no escape"},
		{`"a\08":80`, "octal"},
		{`"\`, "backslash ends it"},
		{"dns:", "empty name"},
		{"dns:Example.com.", "write dns:example.com"},
		{"dns:a b", `write dns:"a b"`},
		{"dns:a b*", "no pattern for names"},
		{`dns:"a"b`, "follows the name"},
		{"unix:", "no path"},
		{"unix:@", "abstract socket has a name"},
		{"unix:/run/../run/x", "write unix:/run/x"},
		{"unix:/var/run/docker.sock", "write unix:/run/docker.sock"},
		{"unix:./x.sock", "write unix:x.sock"},
		{"unix:../x.sock", "inside the repository"},
		{"unix:$CACHE/x", "$CACHE is not known here"},
		{"unix:/tmp/a\tb", `write unix:"/tmp/a\tb"`},
		{"unix:/tmp/\u202e", `write unix:"/tmp/\342\200\256"`},
		{"unix:/tmp/*\n", "a pattern holds no"},
		{"unix:/tmp/[ab", "opens no class"},
		{`unix:"/a"b`, "follows the path"},
		{`unix:"/a\000"`, "no path"},
		{"vsock:2", "e.g. vsock:2:1024"},
		{"vsock:02:1", "write vsock:2:1"},
		{"vsock:host:1", "e.g. vsock:2:1024"},
		{"raw:", "e.g. raw:icmp:8.8.8.8"},
		{"raw:ICMP:8.8.8.8", "lower-case"},
		{"raw:icmp:8.8.8.8:7", "no port"},
		{"raw:icmp:2001:db8::1", "write raw:icmp:[2001:db8::1]"},
		{"raw:icmp:*", "no pattern"},
	}
	for _, tt := range tests {
		_, err := Parse(tt.in)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q): got %v, want %q in it", tt.in, err, tt.want)
		}
	}
}

func TestBroad(t *testing.T) {
	tests := []struct{ in, want string }{
		{"example.com:443", ""},
		{"vsock:*:*", ""},
		{"*:443", "every host"},
		{"*.com:443", "top-level domain"},
		{"*.example.com:443", "every host that it matches"},
		{"example.com:*", "every port"},
		{"dns:*", "every host"},
		{"unix:/tmp/x-*", "every socket path"},
	}
	for _, tt := range tests {
		e, err := Parse(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Broad(); !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") || e.IsPattern() != (got != "") {
			t.Errorf("%s: Broad %q, IsPattern %v, want %q", tt.in, got, e.IsPattern(), tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a:1", `"a\033":1/udp`, "[::1]:eph", "dns:*.a", "unix:$HOME/a", `unix:"\n"`, "unix:[a]*", "vsock:1:*", "raw:icmp:[::2]", "*:*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := parse(s)
		if err != nil {
			return
		}
		canonical := e.String()
		if !printable(canonical) {
			t.Fatalf("%q: spelled with control characters: %q", s, canonical)
		}
		again, err := Parse(canonical)
		if err != nil || again != e {
			t.Fatalf("%q: parsed to %#v, spelled %s, parsed again to %#v, %v", s, e, canonical, again, err)
		}
		if _, err := ParseAllowList([]string{canonical}); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzQuote(f *testing.F) {
	f.Add("a\"\\\x00\xff\u202e*")
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(s)
		got, rest, err := unquote(q)
		if err != nil || rest != "" || got != s || !printable(q) {
			t.Fatalf("quote(%q) = %s, back to %q, rest %q, %v", s, q, got, rest, err)
		}
	})
}

func TestSpell(t *testing.T) {
	places := Places{Root: "/home/me/repo", Home: "/home/me", RuntimeDir: "/run/user/1000", TmpDir: "/tmp/job"}
	tests := []struct {
		places   Places
		in, want string
	}{
		{places, "/home/me/repo/sub/x.sock", "sub/x.sock"},
		{places, "/home/me/repo", "."},
		{places, "/home/me/repo/@x", "./@x"},
		{places, "/home/me/repo/$HOME/x", "./$HOME/x"},
		{places, "/home/me/repo2/x", "$HOME/repo2/x"},
		{places, "/home/me", "$HOME"},
		{places, "/run/user/1000/bus", "$XDG_RUNTIME_DIR/bus"},
		{places, "/tmp/job/x", "$TMPDIR/x"},
		{places, "/tmp/x", "/tmp/x"},
		{places, "/var/run/nscd/socket", "/run/nscd/socket"},
		{places, "/run/../dev/log", "/dev/log"},
		{places, "/run/systemd/journal/dev-log", "/dev/log"},
		{Places{Root: "/r", TmpDir: "/r/tmp"}, "/r/tmp/x", "$TMPDIR/x"},
		{Places{Root: "/tmp/r", TmpDir: "/tmp"}, "/tmp/r/x", "x"},
		{Places{Root: "/r", Home: "/"}, "/x", "/x"},
		{Places{}, "/x", "/x"},
	}
	for _, tt := range tests {
		if got := tt.places.Spell(tt.in); got != tt.want {
			t.Errorf("%+v.Spell(%q): got %q, want %q", tt.places, tt.in, got, tt.want)
		}
	}
}

func FuzzSpell(f *testing.F) {
	f.Add("/repo/@\n*")
	f.Add("/var/run/$X")
	f.Fuzz(func(t *testing.T, path string) {
		if strings.Contains(path, "\x00") {
			return // no path holds one
		}
		spelled := Endpoint{Transport: Unix, Path: Places{Root: "/repo", Home: "/h"}.Spell(path)}
		if got, err := Parse(spelled.String()); err != nil || got != spelled {
			t.Fatalf("path %q: spelled %s, parsed to %#v, %v", path, spelled, got, err)
		}
	})
}

func TestAllowList(t *testing.T) {
	tests := []struct {
		name    string
		entries []string
		row     string
		want    string // the entry; "" for none
	}{
		{"literal", []string{"a.example:443"}, "a.example:443", "a.example:443"},
		{"other port", []string{"a.example:443"}, "a.example:80", ""},
		{"other transport", []string{"a.example:443"}, "a.example:443/udp", ""},
		{"literal before pattern", []string{"*:443", "a.example:443"}, "a.example:443", "a.example:443"},
		{"pattern over labels", []string{"*.example:443"}, "a.b.example:443", "*.example:443"},
		{"pattern needs its dot", []string{"*.example:443"}, "example:443", ""},
		{"a dot is a dot", []string{"*.a.example:443"}, "x.a-example:443", ""},
		{"one character", []string{"db?:1"}, "db2:1", "db?:1"},
		{"any port", []string{"a.example:*"}, "a.example:8080", "a.example:*"},
		{"any port but no udp", []string{"a.example:*"}, "a.example:8080/udp", ""},
		{"ephemeral", []string{"127.0.0.1:eph"}, "127.0.0.1:eph", "127.0.0.1:eph"},
		{"ephemeral is no port", []string{"127.0.0.1:eph"}, "127.0.0.1:0", ""},
		{"lookup of an allowed host", []string{"a.example:443"}, "dns:a.example", "a.example:443"},
		{"lookup of another host", []string{"a.example:443"}, "dns:b.example", ""},
		{"lookup entry is no connection", []string{"dns:a.example"}, "a.example:443", ""},
		{"quoted name is no pattern", []string{`"*":443`}, "a:443", ""},
		{"unix", []string{"unix:sub/x"}, "unix:sub/x", "unix:sub/x"},
		{"unix star stays in a directory", []string{"unix:/tmp/x-*"}, "unix:/tmp/x-1/y", ""},
		{"unix star", []string{"unix:/tmp/x-*"}, "unix:/tmp/x-1", "unix:/tmp/x-*"},
		{"unix star of hostile bytes", []string{"unix:/tmp/x-*"}, `unix:"/tmp/x-\n\377"`, "unix:/tmp/x-*"},
		{"unix double star", []string{"unix:/a/**"}, "unix:/a/b/c", "unix:/a/**"},
		{"unix class", []string{"unix:/a/[0-9]"}, "unix:/a/7", "unix:/a/[0-9]"},
		{"unix class excluded", []string{"unix:/a/[!0-9]"}, "unix:/a/7", ""},
		{"tmp is TMPDIR", []string{"unix:/tmp/x-*"}, "unix:$TMPDIR/x-1", "unix:/tmp/x-*"},
		{"TMPDIR is tmp", []string{"unix:$TMPDIR/x"}, "unix:/tmp/x", "unix:$TMPDIR/x"},
		{"vsock", []string{"vsock:2:*"}, "vsock:2:7", "vsock:2:*"},
		{"vsock other", []string{"vsock:2:*"}, "vsock:3:7", ""},
		{"raw", []string{"raw:icmp:8.8.8.8"}, "raw:icmp:8.8.8.8", "raw:icmp:8.8.8.8"},
		{"raw other", []string{"raw:icmp:8.8.8.8"}, "raw:icmp:8.8.4.4", ""},
		{"no endpoint", []string{"*:443"}, "nonsense", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := ParseAllowList(tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := l.Match(tt.row); got != tt.want || ok != (tt.want != "") {
				t.Errorf("Match(%q): got %q, %v, want %q", tt.row, got, ok, tt.want)
			}
		})
	}
}

func TestAllowListUnusedAndDoors(t *testing.T) {
	l, err := ParseAllowList([]string{"a:1", "b:2/udp", "*.q:3", "127.0.0.1:eph", "unix:/x", "a:0", "dns:z"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"b:2/udp", "*.q:3", "127.0.0.1:eph", "a:0"}
	if diff := cmp.Diff(want, l.Unused([]string{"a:1", "dns:z", "unix:/x", "?"})); diff != "" {
		t.Errorf("unused, -want +got:\n%s", diff)
	}
	var doors []string
	for _, e := range Doors(l) {
		doors = append(doors, e.String())
	}
	if diff := cmp.Diff([]string{"a:1", "b:2/udp"}, doors); diff != "" {
		t.Errorf("doors, -want +got:\n%s", diff)
	}
	if got := len(l.Endpoints()); got != 7 {
		t.Errorf("endpoints: got %d, want 7", got)
	}
	if _, err := ParseAllowList([]string{"a"}); err == nil {
		t.Error("an entry that is none: no error")
	}
}

func TestHint(t *testing.T) {
	tests := []struct{ in, want string }{
		{"unix:/run/docker.sock", "Testcontainers needs a service and a door instead"},
		{"unix:$XDG_RUNTIME_DIR/podman/podman.sock", "Testcontainers"},
		{"vsock:*:*", "AF_VSOCK"},
		{"raw:io_uring", "io_uring"},
		{"raw:dns", "no query"},
		{"127.0.0.1:eph", "ephemeral"},
		{"example.com:443", ""},
		{"nonsense", ""},
	}
	for _, tt := range tests {
		if got := Hint(tt.in); !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("Hint(%q): got %q, want %q in it", tt.in, got, tt.want)
		}
	}
}
