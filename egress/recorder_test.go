package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// run is a recorder with what a test needs to feed it.
type run struct {
	t *testing.T
	*Recorder
}

// namespaced gives a recorder as in the namespace; change adapts it.
func namespaced(t *testing.T, change func(*Config)) run {
	t.Helper()
	c := Config{
		Mode:        Namespaced,
		Places:      Places{Root: "/repo", Home: "/home/me", RuntimeDir: "/run/user/1", TmpDir: "/tmp"},
		EphemeralLo: 32768, EphemeralHi: 60999,
		Own:      []netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")},
		Resolver: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")},
		Names:    NewNames(),
	}
	if change != nil {
		change(&c)
	}
	return run{t, New(c)}
}

func shared(t *testing.T, change func(*Config)) run {
	t.Helper()
	return namespaced(t, func(c *Config) {
		c.Mode, c.Resolver, c.Own = Shared, nil, nil
		if change != nil {
			change(c)
		}
	})
}

func allow(t *testing.T, entries ...string) AllowList {
	t.Helper()
	l, err := ParseAllowList(entries)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// call makes an inet attempt and gives the error number it got.
func (r run) call(call string, transport Transport, addr string, actor int) int {
	r.t.Helper()
	d := r.Attempt(Attempt{
		Call: call, Transport: transport, Addr: netip.MustParseAddrPort(addr),
		Actor: func() int { return actor },
	})
	if d.Later != nil {
		d = d.Later()
	}
	return d.Errno
}

func (r run) connect(addr string) int { r.t.Helper(); return r.call("connect", TCP, addr, 1) }

func (r run) unix(path string, exists bool) int {
	return r.Attempt(Attempt{Call: "connect", Transport: Unix, Path: path, Exists: exists, Actor: func() int { return 1 }}).Errno
}

func (r run) bind(transport Transport, addr string) {
	r.t.Helper()
	r.Bind(Bind{Transport: transport, Addr: netip.MustParseAddrPort(addr)})
}

func (r run) packet(transport Transport, dst string) {
	r.t.Helper()
	r.Packet(Packet{Transport: transport, Src: netip.MustParseAddrPort("198.18.0.1:40000"), Dst: netip.MustParseAddrPort(dst), Proto: 17})
}

func (r run) lookup(name string) (v4, v6 string) {
	r.t.Helper()
	a, b, ok := r.config.Names.Allot(name)
	if !ok {
		r.t.Fatal("no address left")
	}
	r.Lookup(Lookup{Name: name, Type: "A", Outcome: Answered})
	return a.String(), "[" + b.String() + "]"
}

// wantRows compares the rows, each as "endpoint xCount [witnesses] calls @actor".
func (r run) wantRows(want ...string) {
	r.t.Helper()
	live := r.Live()
	var got []string
	for _, row := range r.Finish().Rows {
		s := fmt.Sprintf("%s x%d %v %v @%d", row.Endpoint, row.Count, row.Witness.Names(), row.Calls, row.Actor)
		if row.Door {
			s += " door"
		}
		got = append(got, s)
		if _, err := Parse(row.Endpoint); err != nil {
			r.t.Errorf("a row that no ledger can hold: %v", err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("rows, -want +got:\n%s", diff)
	}
	if live != len(want) {
		r.t.Errorf("live: got %d, want %d", live, len(want))
	}
}

func (r run) wantErrno(what string, got int, want syscall.Errno) {
	r.t.Helper()
	if got != int(want) {
		r.t.Errorf("%s: got errno %v, want %v", what, syscall.Errno(got), want)
	}
}

func TestNamespaced(t *testing.T) {
	tests := []struct {
		name string
		do   func(r run)
		want []string
	}{
		{"nothing", func(r run) {}, nil},
		{"connect with its packet is one attempt", func(r run) {
			r.wantErrno("connect", r.connect("192.0.2.1:443"), 0)
			r.packet(TCP, "192.0.2.1:443")
		}, []string{"192.0.2.1:443 x1 [syscall packet] [connect] @1"}},
		{"connect that failed early", func(r run) {
			r.connect("192.0.2.1:443")
		}, []string{"192.0.2.1:443 x1 [syscall] [connect] @1"}},
		{"packet without a call", func(r run) {
			r.packet(TCP, "192.0.2.1:443")
			r.packet(TCP, "192.0.2.1:443")
		}, []string{"192.0.2.1:443 x2 [packet] [] @-1"}},
		{"packet before its call", func(r run) {
			r.packet(TCP, "192.0.2.1:443")
			r.connect("192.0.2.1:443")
		}, []string{"192.0.2.1:443 x1 [syscall packet] [connect] @1"}},
		{"one row for a retry storm", func(r run) {
			for range 1000 {
				r.connect("192.0.2.1:443")
			}
			r.call("sendto", TCP, "192.0.2.1:443", 2)
		}, []string{"192.0.2.1:443 x1001 [syscall] [connect sendto] @1"}},
		{"unknown transport counts as TCP", func(r run) {
			r.call("connect", Unknown, "192.0.2.1:443", 1)
		}, []string{"192.0.2.1:443 x1 [syscall] [connect] @1"}},
		{"mapped address", func(r run) {
			r.connect("[::ffff:192.0.2.1]:443")
			r.packet(TCP, "192.0.2.1:443")
		}, []string{"192.0.2.1:443 x1 [syscall packet] [connect] @1"}},
		{"address sorting sends nothing", func(r run) {
			r.wantErrno("connect", r.call("connect", UDP, "192.0.2.1:443", 1), 0)
			r.call("connect", UDP, "192.0.2.1:0", 1)
			r.call("connect", UDP, "127.0.0.1:8125", 1)
		}, nil},
		{"undoing a connect is none", func(r run) {
			r.Attempt(Attempt{Call: "connect", Transport: UDP})
			r.Attempt(Attempt{Call: "connect", Transport: TCP})
		}, nil},
		{"connected datagram is whose socket it was", func(r run) {
			r.call("connect", UDP, "192.0.2.1:123", 3)
			r.call("connect", UDP, "192.0.2.1:123", 4)
			r.packet(UDP, "192.0.2.1:123")
		}, []string{"192.0.2.1:123/udp x1 [packet] [] @3"}},
		{"datagram with an address", func(r run) {
			r.call("sendto", UDP, "192.0.2.1:123", 2)
			r.packet(UDP, "192.0.2.1:123")
		}, []string{"192.0.2.1:123/udp x1 [syscall packet] [sendto] @2"}},
		{"by name", func(r run) {
			v4, v6 := r.lookup("files.example.com")
			r.lookup("files.example.com")
			r.connect(v6 + ":443")
			r.packet(TCP, v6+":443")
			r.connect(v4 + ":443")
			r.call("connect", UDP, v4+":443", 1)
			r.packet(UDP, v4+":443")
		}, []string{
			"files.example.com:443 x2 [syscall packet] [connect] @1",
			"files.example.com:443/udp x1 [packet] [] @1",
		}},
		{"looked up alone", func(r run) {
			v4, _ := r.lookup("a.example.com")
			r.lookup("a.example.com")
			r.call("connect", UDP, v4+":443", 1)
			r.Lookup(Lookup{Name: "b.test", Type: "A", Outcome: NoSuchName, Actor: func() int { return 7 }})
		}, []string{
			"dns:a.example.com x2 [resolver] [] @-1",
			"dns:b.test x1 [resolver] [] @7",
		}},
		{"whoever spoke to the resolver last asked", func(r run) {
			r.call("connect", UDP, "127.0.0.1:53", 4)
			r.lookup("a.example.com")
			r.packet(UDP, "127.0.0.1:53")
			r.connect("127.0.0.1:53")
		}, []string{"dns:a.example.com x1 [resolver] [] @4"}},
		{"a name that reads like a kind", func(r run) {
			v4, _ := r.lookup("dns")
			r.connect(v4 + ":53")
		}, []string{`"dns":53 x1 [syscall] [connect] @1`}},
		{"a hostile name", func(r run) {
			v4, _ := r.lookup("a\x1b[2j*.com")
			r.connect(v4 + ":80")
			r.lookup("\xff\n")
		}, []string{
			`"a\033[2j*.com":80 x1 [syscall] [connect] @1`,
			`dns:"\377\n" x1 [resolver] [] @-1`,
		}},
		{"an address that no name has", func(r run) {
			r.connect("198.18.77.1:80")
			r.connect("[2001:2::7777]:80")
			r.connect("[2001:2::1:0:0:100]:80")
		}, []string{
			"198.18.77.1:80 x1 [syscall] [connect] @1",
			"[2001:2::1:0:0:100]:80 x1 [syscall] [connect] @1",
			"[2001:2::7777]:80 x1 [syscall] [connect] @1",
		}},
		{"not a DNS query", func(r run) {
			r.Lookup(Lookup{Outcome: Malformed})
		}, []string{"raw:dns x1 [resolver] [] @-1"}},

		{"loopback served by the tree", func(r run) {
			r.bind(TCP, "[::]:7072")
			r.connect("127.0.0.1:7072")
			r.packet(TCP, "127.0.0.1:7072")
		}, nil},
		{"loopback served later on", func(r run) {
			r.connect("127.0.0.1:7072")
			r.packet(TCP, "127.0.0.1:7072")
			r.bind(TCP, "127.0.0.1:7072")
		}, nil},
		{"loopback nobody serves", func(r run) {
			r.connect("127.0.0.1:5432")
			r.packet(TCP, "127.0.0.1:5432")
			r.connect("[::1]:5432")
		}, []string{
			"127.0.0.1:5432 x1 [syscall packet] [connect] @1",
			"[::1]:5432 x1 [syscall] [connect] @1",
		}},
		{"loopback in disguise", func(r run) {
			r.connect("0.0.0.0:1")
			r.connect("[::ffff:127.0.0.1]:1")
			r.connect("198.18.0.1:1")
			r.connect("[::]:2")
			r.connect("[2001:2::1]:2")
			r.connect("127.0.1.1:3")
		}, []string{
			"127.0.0.1:1 x3 [syscall] [connect] @1",
			"127.0.1.1:3 x1 [syscall] [connect] @1",
			"[::1]:2 x2 [syscall] [connect] @1",
		}},
		{"another transport is another port", func(r run) {
			r.bind(UDP, "127.0.0.1:7072")
			r.connect("127.0.0.1:7072")
		}, []string{"127.0.0.1:7072 x1 [syscall] [connect] @1"}},
		{"an unknown transport matches either", func(r run) {
			r.bind(UDP, "127.0.0.1:1")
			r.call("connect", Unknown, "127.0.0.1:1", 1)
			r.bind(Unknown, "127.0.0.1:2")
			r.connect("127.0.0.1:2")
			r.call("sendto", UDP, "127.0.0.1:2", 1)
			r.call("connect", Unknown, "127.0.0.1:3", 1)
		}, []string{"127.0.0.1:3 x1 [syscall] [connect] @1"}},
		{"ephemeral loopback", func(r run) {
			r.connect("127.0.0.1:32768")
			r.packet(TCP, "127.0.0.1:60999")
			r.packet(UDP, "198.18.0.1:40000")
			r.connect("127.0.0.1:61000")
		}, []string{"127.0.0.1:61000 x1 [syscall] [connect] @1"}},
		{"a bind to port 0 says nothing", func(r run) {
			r.bind(TCP, "127.0.0.1:0")
			r.connect("127.0.0.1:1")
		}, []string{"127.0.0.1:1 x1 [syscall] [connect] @1"}},
		{"refused loopback datagram of a connected socket", func(r run) {
			r.call("connect", UDP, "127.0.0.1:8125", 5)
			r.Packet(Packet{Transport: UDP, Src: netip.MustParseAddrPort("127.0.0.1:40000"), Dst: netip.MustParseAddrPort("127.0.0.1:8125"), Refused: true})
		}, []string{"127.0.0.1:8125/udp x1 [packet] [] @5"}},
		{"refused datagram that was seen itself", func(r run) {
			r.packet(UDP, "192.0.2.1:123")
			r.Packet(Packet{Transport: UDP, Src: netip.MustParseAddrPort("198.18.0.1:40000"), Dst: netip.MustParseAddrPort("192.0.2.1:123"), Refused: true})
		}, []string{"192.0.2.1:123/udp x1 [packet] [] @-1"}},
		{"a report of refusal to somebody else", func(r run) {
			r.Packet(Packet{Transport: UDP, Src: netip.MustParseAddrPort("8.8.8.8:1"), Dst: netip.MustParseAddrPort("127.0.0.1:2"), Refused: true})
		}, []string{"raw:icmp:8.8.8.8 x1 [packet] [] @-1"}},

		{"unix socket of the tree", func(r run) {
			r.Bind(Bind{Transport: Unix, Path: "/repo/x"})
			r.wantErrno("connect", r.unix("/repo/x", true), 0)
			r.unix("/repo/y", false)
			r.Bind(Bind{Transport: Unix, Path: "/repo/y"})
		}, nil},
		{"unix socket of somebody else", func(r run) {
			r.wantErrno("connect", r.unix("/run/docker.sock", true), syscall.ECONNREFUSED)
			r.wantErrno("connect", r.unix("/run/user/1/bus", false), 0)
		}, []string{
			"unix:$XDG_RUNTIME_DIR/bus x1 [syscall] [connect] @1",
			"unix:/run/docker.sock x1 [syscall] [connect] @1",
		}},
		{"binding over somebody else's socket hides nothing", func(r run) {
			r.unix("/tmp/agent", true)
			r.Bind(Bind{Transport: Unix, Path: "/tmp/agent"})
			r.Bind(Bind{Transport: Unix, Path: "/tmp/other", Exists: true})
			r.wantErrno("connect", r.unix("/tmp/other", true), syscall.ECONNREFUSED)
		}, []string{
			"unix:$TMPDIR/agent x1 [syscall] [connect] @1",
			"unix:$TMPDIR/other x1 [syscall] [connect] @1",
		}},
		{"somebody else's socket in the place of one of the tree's", func(r run) {
			for i, how := range []Renaming{Moved, Linked, Swapped} {
				path := fmt.Sprintf("/tmp/own%d", i)
				r.Bind(Bind{Transport: Unix, Path: path})
				if how != Swapped {
					r.Rename(Unlinked, path, "", false)
				}
				r.wantErrno("between", r.unix(path, how == Swapped), 0)
				r.Rename(how, "/tmp/agent", path, false)
				r.wantErrno("connect", r.unix(path, true), syscall.ECONNREFUSED)
			}
			r.wantErrno("swapped", r.unix("/tmp/agent", true), 0)
		}, []string{
			"unix:$TMPDIR/own0 x1 [syscall] [connect] @1",
			"unix:$TMPDIR/own1 x1 [syscall] [connect] @1",
			"unix:$TMPDIR/own2 x1 [syscall] [connect] @1",
		}},
		{"a directory of somebody else's in the place of one of the tree's", func(r run) {
			r.Bind(Bind{Transport: Unix, Path: "/tmp/d/s"})
			r.Rename(Moved, "/tmp/d", "/tmp/e", true)
			r.Rename(Moved, "/tmp/other", "/tmp/d", true)
			r.wantErrno("own", r.unix("/tmp/e/s", true), 0)
			r.wantErrno("other", r.unix("/tmp/d/s", true), syscall.ECONNREFUSED)
		}, []string{"unix:$TMPDIR/d/s x1 [syscall] [connect] @1"}},
		{"the tree's socket under other names", func(r run) {
			r.Bind(Bind{Transport: Unix, Path: "/tmp/s"})
			r.Rename(Linked, "/tmp/s", "/tmp/l", false)
			r.Rename(Moved, "/tmp/s", "/tmp/t", false)
			r.wantErrno("linked", r.unix("/tmp/l", true), 0)
			r.wantErrno("moved", r.unix("/tmp/t", true), 0)
			r.wantErrno("gone", r.unix("/tmp/s", false), 0)
			r.Bind(Bind{Transport: Unix, Path: "/tmp/s"})
			r.wantErrno("again", r.unix("/tmp/s", true), 0)
		}, nil},
		{"probes of the C library", func(r run) {
			r.wantErrno("nscd", r.unix("/var/run/nscd/socket", false), 0)
			r.wantErrno("nscd", r.unix("/run/nscd/socket", true), syscall.ECONNREFUSED)
			r.wantErrno("resolved", r.unix("/run/systemd/resolve/io.systemd.Resolve", true), syscall.ECONNREFUSED)
			r.wantErrno("sss", r.unix("/var/lib/sss/pipes/nss", true), syscall.ECONNREFUSED)
			r.wantErrno("userdb", r.unix("/run/systemd/userdb/io.systemd.DynamicUser", true), syscall.ECONNREFUSED)
		}, nil},
		{"abstract sockets", func(r run) {
			r.unix("@", false)
			r.unix("@0a1b2", false)
			r.wantErrno("X", r.unix("@/tmp/.X11-unix/X0", false), 0)
			r.unix("@mine", false)
			r.Bind(Bind{Transport: Unix, Path: "@mine"})
		}, []string{"unix:@/tmp/.X11-unix/X0 x1 [syscall] [connect] @1"}},

		{"vsock and raw", func(r run) {
			vsock := Attempt{Call: "socket", Transport: Vsock, Label: "*:*"}
			r.wantErrno("vsock", r.Attempt(vsock).Errno, syscall.EAFNOSUPPORT)
			uring := Attempt{Call: "io_uring_setup", Transport: Raw, Label: "io_uring", Errno: int(syscall.ENOSYS)}
			r.wantErrno("io_uring", r.Attempt(uring).Errno, syscall.ENOSYS)
			r.call("sendto", Raw, "127.0.0.1:0", 1)
		}, []string{
			"raw:io_uring x1 [syscall] [io_uring_setup] @-1",
			"vsock:*:* x1 [syscall] [socket] @-1",
		}},
		{"ping by name", func(r run) {
			v4, _ := r.lookup("a.example.com")
			to := netip.MustParseAddrPort(v4 + ":0")
			r.Attempt(Attempt{Call: "sendto", Transport: Raw, Label: ProtocolName(1), Addr: to, Actor: func() int { return 2 }})
			r.Packet(Packet{Transport: Raw, Proto: 1, Dst: to})
			r.Packet(Packet{Transport: Raw, Proto: 1, Dst: netip.MustParseAddrPort("127.0.0.1:0")})
		}, []string{"raw:icmp:a.example.com x1 [syscall packet] [sendto] @2"}},
		{"in-process", func(r run) {
			r.lookup("b.example.com")
			r.bind(TCP, "127.0.0.1:3000")
			for _, s := range []string{"A.example.com:443", "a.example.com:443", "localhost:3000", "localhost:4000", "b.example.com:1/udp", "dns:c", "unix:/x"} {
				e, err := parse(s)
				if err != nil {
					r.t.Fatal(err)
				}
				r.InProcess(e)
			}
		}, []string{
			"127.0.0.1:4000 x1 [in-process] [] @-1",
			"a.example.com:443 x2 [in-process] [] @-1",
			"b.example.com:1/udp x1 [in-process] [] @-1",
			"dns:c x1 [in-process] [] @-1",
			"unix:/x x1 [in-process] [] @-1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := namespaced(t, nil)
			tt.do(r)
			r.t = t
			r.wantRows(tt.want...)
		})
	}
}

func TestNamespacedAllowed(t *testing.T) {
	l := allow(t, "unix:/run/docker.sock", "unix:/run/p-*")
	r := namespaced(t, func(c *Config) { c.Allow = l })
	r.wantErrno("literal entry", r.unix("/run/docker.sock", true), 0)
	r.wantErrno("pattern", r.unix("/run/p-1", true), syscall.ECONNREFUSED)
	r.wantRows("unix:/run/docker.sock x1 [syscall] [connect] @1", "unix:/run/p-1 x1 [syscall] [connect] @1")
}

func TestNamespacedAudit(t *testing.T) {
	r := namespaced(t, func(c *Config) { c.Audit = true })
	r.wantErrno("unix", r.unix("/run/docker.sock", true), 0)
	r.wantErrno("nscd", r.unix("/run/nscd/socket", true), syscall.ECONNREFUSED)
	r.wantErrno("vsock", r.Attempt(Attempt{Transport: Vsock, Label: "2:1"}).Errno, syscall.EAFNOSUPPORT)
	r.wantRows("unix:/run/docker.sock x1 [syscall] [connect] @1", "vsock:2:1 x1 [syscall] [] @-1")
}

func TestNamespacedDoor(t *testing.T) {
	server := listenTCP(t)
	defer server.Close()
	closed := listenTCP(t)
	closed.Close()
	l := allow(t, "db.example.com:5432", "127.0.0.1:6379", "127.0.0.1:8125/udp")
	doors, err := OpenDoors(context.Background(), Doors(l), map[string]string{
		"db.example.com:5432": server.Addr().String(), "127.0.0.1:6379": closed.Addr().String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer doors.Close()
	r := namespaced(t, func(c *Config) { c.Allow, c.Doors = l, doors })
	_, v6 := r.lookup("db.example.com")
	r.wantErrno("open door", r.connect(v6+":5432"), 0)
	r.wantErrno("beside the door", r.connect(v6+":5433"), 0)
	r.bind(TCP, "127.0.0.1:6379")
	r.wantErrno("door with its far end down", r.connect("127.0.0.1:6379"), syscall.ECONNREFUSED)
	r.call("connect", UDP, "127.0.0.1:8125", 6)
	doors["127.0.0.1:8125/udp"].connections.Add(2) // what ServeUDP counts
	r.wantRows(
		"127.0.0.1:6379 x1 [syscall] [connect] @1 door",
		"127.0.0.1:8125/udp x2 [packet] [] @6 door",
		"db.example.com:5432 x1 [syscall] [connect] @1 door",
		"db.example.com:5433 x1 [syscall] [connect] @1",
	)
}

func TestShared(t *testing.T) {
	// Who listens: "tcp 127.0.0.1:80" is the tree's, with a "!" somebody else's.
	held := func(sockets ...string) func(*Config) {
		return func(c *Config) {
			c.Holder = func(transport Transport, to netip.AddrPort) Holder {
				name := map[Transport]string{TCP: "tcp ", UDP: "udp "}[transport] + to.String()
				switch {
				case slices.Contains(sockets, name):
					return Tree
				case slices.Contains(sockets, "!"+name):
					return Stranger
				}
				return Nobody
			}
		}
	}
	audit := func(c *Config) { c.Audit = true }
	tests := []struct {
		name   string
		change func(*Config)
		do     func(r run)
		want   []string
	}{
		{"another host", nil, func(r run) {
			r.wantErrno("connect", r.connect("192.0.2.1:443"), syscall.ECONNREFUSED)
			r.wantErrno("sendto", r.call("sendto", UDP, "192.0.2.1:53", 1), syscall.ECONNREFUSED)
		}, []string{
			"192.0.2.1:443 x1 [syscall] [connect] @1",
			"192.0.2.1:53/udp x1 [syscall] [sendto] @1",
		}},
		{"UDP connect to another host", nil, func(r run) {
			r.wantErrno("service port", r.call("connect", UDP, "192.0.2.1:443", 1), syscall.ENETUNREACH)
			r.wantErrno("port 0", r.call("connect", UDP, "192.0.2.1:0", 1), syscall.ENETUNREACH)
			r.wantErrno("port 53", r.call("connect", UDP, "192.0.2.1:53", 1), syscall.ENETUNREACH)
		}, []string{
			"192.0.2.1:443/udp x1 [syscall] [connect] @1",
			"192.0.2.1:53/udp x1 [syscall] [connect] @1",
		}},
		{"UDP connect with a witness, and without", func(c *Config) { c.UDPWitness = true }, func(r run) {
			r.wantErrno("witnessed", r.call("connect", UDP, "192.0.2.1:443", 1), 0)
			to := netip.MustParseAddrPort("192.0.2.2:443")
			r.wantErrno("not", r.Attempt(Attempt{Call: "connect", Transport: UDP, Addr: to, Unwitnessed: true}).Errno, syscall.ENETUNREACH)
		}, []string{"192.0.2.2:443/udp x1 [syscall] [connect] @-1"}},
		{"allowed", func(c *Config) { c.Allow = allow(t, "192.0.2.1:443", "192.0.2.1:53/udp", "*:80", "db:1") }, func(r run) {
			db, _, _ := r.config.Names.Allot("db")
			r.wantErrno("TCP", r.connect("192.0.2.1:443"), 0)
			r.wantErrno("UDP", r.call("connect", UDP, "192.0.2.1:53", 1), 0)
			r.wantErrno("pattern", r.connect("192.0.2.1:80"), syscall.ECONNREFUSED)
			r.wantErrno("name", r.connect(db.String()+":1"), 0)
		}, []string{
			"192.0.2.1:443 x1 [syscall] [connect] @1",
			"192.0.2.1:53/udp x1 [syscall] [connect] @1",
			"192.0.2.1:80 x1 [syscall] [connect] @1",
			"db:1 x1 [syscall] [connect] @1",
		}},
		{"allowed port of the ephemeral range", func(c *Config) { c.Allow = allow(t, "127.0.0.1:42833") }, func(r run) {
			r.wantErrno("TCP", r.connect("127.0.0.1:42833"), 0)
		}, []string{"127.0.0.1:42833 x1 [syscall] [connect] @1"}},
		{"audit", audit, func(r run) {
			r.wantErrno("TCP", r.connect("192.0.2.1:443"), 0)
			r.wantErrno("UDP", r.call("connect", UDP, "192.0.2.1:443", 1), 0)
			r.wantErrno("loopback", r.connect("127.0.0.1:5432"), 0)
			r.wantErrno("raw", r.call("sendto", Raw, "127.0.0.1:0", 1), 0)
		}, []string{
			"127.0.0.1:5432 x1 [syscall] [connect] @1",
			"192.0.2.1:443 x1 [syscall] [connect] @1",
			"192.0.2.1:443/udp x1 [syscall] [connect] @1",
		}},
		{"ping", nil, func(r run) {
			d := r.Attempt(Attempt{Call: "sendto", Transport: Raw, Label: "icmp", Addr: netip.MustParseAddrPort("8.8.8.8:0")})
			r.wantErrno("ping", d.Errno, syscall.ECONNREFUSED)
		}, []string{"raw:icmp:8.8.8.8 x1 [syscall] [sendto] @-1"}},
		{"loopback of the host", nil, func(r run) {
			r.wantErrno("before the bind", r.connect("127.0.0.1:7072"), syscall.ECONNREFUSED)
			r.bind(TCP, "127.0.0.1:7072")
			r.wantErrno("after it", r.connect("127.0.0.1:7072"), 0)
			r.wantErrno("foreign", r.connect("127.0.0.1:5432"), syscall.ECONNREFUSED)
			r.wantErrno("UDP connect", r.call("connect", UDP, "127.0.0.1:8125", 1), 0)
			r.wantErrno("sorting", r.call("connect", UDP, "127.0.0.1:7072", 1), 0)
			r.wantErrno("sorting", r.call("connect", UDP, "127.0.0.1:0", 1), 0)
		}, []string{
			"127.0.0.1:5432 x1 [syscall] [connect] @1",
			"127.0.0.1:8125/udp x1 [syscall] [connect] @1",
		}},
		{"allowed loopback", func(c *Config) { c.Allow = allow(t, "127.0.0.1:5432") }, func(r run) {
			r.wantErrno("connect", r.connect("127.0.0.1:5432"), 0)
		}, []string{"127.0.0.1:5432 x1 [syscall] [connect] @1"}},
		{"ephemeral and nobody can tell whose", nil, func(r run) {
			r.wantErrno("connect", r.connect("127.0.0.1:40000"), 0)
			r.wantErrno("connect", r.connect("127.0.0.2:40001"), 0)
			r.wantErrno("connect", r.connect("[::1]:40001"), 0)
			r.connect("127.0.0.1:40002")
			r.bind(TCP, "127.0.0.1:40002")
		}, []string{
			"127.0.0.1:eph x2 [syscall] [connect] @1",
			"[::1]:eph x1 [syscall] [connect] @1",
		}},
		{"ephemeral and owned", held("tcp 127.0.0.1:40000"), func(r run) {
			r.wantErrno("own", r.connect("127.0.0.1:40000"), 0)
			r.wantErrno("foreign", r.connect("127.0.0.1:40001"), syscall.ECONNREFUSED)
		}, []string{"127.0.0.1:eph x1 [syscall] [connect] @1"}},
		{"bound once and not held now", held(), func(r run) {
			r.bind(TCP, "127.0.0.1:5432")
			r.wantErrno("connect", r.connect("127.0.0.1:5432"), syscall.ECONNREFUSED)
		}, nil},
		{"a stranger's, on a port that the tree bound elsewhere", held("!tcp 127.0.0.1:5998", "tcp [::1]:5998"), func(r run) {
			r.bind(TCP, "[::1]:5998")
			r.wantErrno("the stranger's", r.connect("127.0.0.1:5998"), syscall.ECONNREFUSED)
			r.wantErrno("own", r.connect("[::1]:5998"), 0)
			r.wantErrno("nobody's", r.connect("127.0.0.2:5998"), syscall.ECONNREFUSED)
			r.bind(TCP, "127.0.0.2:5998")
		}, []string{"127.0.0.1:5998 x1 [syscall] [connect] @1"}},
		{"a stranger's, by UDP", held("!udp 127.0.0.1:5998", "tcp 127.0.0.1:5998", "udp 127.0.0.1:53", "!tcp 127.0.0.1:53"), func(r run) {
			r.bind(UDP, "127.0.0.2:5998")
			r.wantErrno("sendto", r.call("sendto", UDP, "127.0.0.1:5998", 1), syscall.ECONNREFUSED)
			r.wantErrno("connect", r.call("connect", UDP, "127.0.0.1:5998", 1), syscall.ECONNREFUSED)
			r.wantErrno("own", r.call("connect", UDP, "127.0.0.1:53", 1), 0)
		}, []string{"127.0.0.1:5998/udp x2 [syscall] [connect sendto] @1"}},
		{"a stranger's of the ephemeral range", held("!tcp 127.0.0.1:40000"), func(r run) {
			r.bind(TCP, "127.0.0.1:40000")
			r.wantErrno("connect", r.connect("127.0.0.1:40000"), syscall.ECONNREFUSED)
		}, []string{"127.0.0.1:eph x1 [syscall] [connect] @1"}},
		{"unknown transport and owned", held("tcp 127.0.0.1:7"), func(r run) {
			r.wantErrno("connect", r.call("connect", Unknown, "127.0.0.1:7", 1), 0)
		}, nil},
		{"abstract sockets cross", nil, func(r run) {
			r.wantErrno("foreign", r.unix("@x", false), syscall.ECONNREFUSED)
			r.wantErrno("autobound", r.unix("@00001", false), 0)
			r.Bind(Bind{Transport: Unix, Path: "@mine"})
			r.wantErrno("own", r.unix("@mine", false), 0)
		}, []string{
			"unix:@eph x1 [syscall] [connect] @1",
			"unix:@x x1 [syscall] [connect] @1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := shared(t, tt.change)
			tt.do(r)
			r.wantRows(tt.want...)
		})
	}
}

func TestVisible(t *testing.T) {
	r := namespaced(t, nil)
	for i, path := range []string{"/repo/in", "/tmp/out", "/repo2/out", "@abstract", "@", "/tmp/out"} {
		r.Bind(Bind{Transport: Unix, Path: path, Actor: func() int { return i }})
	}
	r.Bind(Bind{Transport: Unix, Path: "/home/me/out"})
	want := []Visible{{"unix:$HOME/out", -1}, {"unix:$TMPDIR/out", 1}, {"unix:/repo2/out", 2}}
	if diff := cmp.Diff(want, r.Finish().Visible); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	s := shared(t, nil)
	s.Bind(Bind{Transport: Unix, Path: "@abstract"})
	if diff := cmp.Diff([]Visible{{"unix:@abstract", -1}}, s.Finish().Visible); diff != "" {
		t.Errorf("shared, -want +got:\n%s", diff)
	}
}

func TestCaps(t *testing.T) {
	r := namespaced(t, nil)
	for i := range maxRows + 5 {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		r.Attempt(Attempt{Call: "connect", Transport: TCP, Addr: addr})
		r.packet(TCP, addr.String())
		r.Attempt(Attempt{Call: "connect", Transport: UDP, Addr: addr, Actor: func() int { return 1 }})
	}
	udp := netip.MustParseAddrPort("10.1.0.0:80") // a datagram, and the report that its port is closed
	r.Attempt(Attempt{Call: "sendto", Transport: UDP, Addr: udp})
	r.packet(UDP, udp.String())
	r.Packet(Packet{Transport: UDP, Src: netip.MustParseAddrPort("198.18.0.1:40000"), Dst: udp, Refused: true})
	r.connect("10.0.0.0:80") // one that is there still counts
	for i := range maxBound + 2 {
		r.Bind(Bind{Transport: Unix, Path: fmt.Sprint("/tmp/", i)})
	}
	r.Lookup(Lookup{Name: "x", Outcome: Full})
	r.Gap(Gap{Kind: "packet-drops", Count: 2})
	r.Gap(Gap{Kind: "packet-drops", Count: 3})
	got := r.Finish()
	if len(got.Rows) != maxRows || got.Rows[0].Count != 2 || len(got.Visible) != maxVisible || len(r.probes) != maxProbes {
		t.Errorf("got %d rows, the first %+v, %d visible, %d probes", len(got.Rows), got.Rows[0], len(got.Visible), len(r.probes))
	}
	var gaps []string
	for _, g := range got.Gaps {
		gaps = append(gaps, fmt.Sprint(g.Kind, " ", g.Count))
	}
	if diff := cmp.Diff([]string{"bind-cap 2", "name-cap 1", "net-cap 6", "packet-drops 5"}, gaps); diff != "" {
		t.Errorf("gaps, -want +got:\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	n := NewNames()
	v4, v6, ok := n.Allot("First.Example.")
	if !ok || v4.String() != "198.18.1.0" || v6.String() != "2001:2::100" {
		t.Errorf("first: got %v, %v, %v", v4, v6, ok)
	}
	if again, _, _ := n.Allot("first.example"); again != v4 {
		t.Errorf("again: got %v, want %v", again, v4)
	}
	for i := 1; i < maxNames; i++ {
		name := fmt.Sprint(i, ".example")
		v4, v6, ok = n.Allot(name)
		got4, ok4 := n.NameOf(v4)
		got6, ok6 := n.NameOf(v6)
		if !ok || !ok4 || !ok6 || got4 != name || got6 != name {
			t.Fatalf("%s: allotted %v, %v, %v, back to %q and %q", name, v4, v6, ok, got4, got6)
		}
	}
	if v4.String() != "198.18.254.231" || v6.String() != "2001:2::fee7" {
		t.Errorf("last: got %v, %v", v4, v6)
	}
	if _, _, ok := n.Allot("one.more.example"); ok {
		t.Error("more names than there may be")
	}
	for addr, want := range map[string]string{
		"198.18.1.0": "first.example", "::ffff:198.18.1.0": "first.example",
		"198.18.0.1": "", "198.18.0.255": "", "2001:2::1": "", "198.19.255.255": "", "2001:2::1:0:0:100": "", "8.8.8.8": "", "::1": "",
	} {
		if got, ok := n.NameOf(netip.MustParseAddr(addr)); got != want || ok != (want != "") {
			t.Errorf("NameOf(%s): got %q, %v, want %q", addr, got, ok, want)
		}
	}
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
