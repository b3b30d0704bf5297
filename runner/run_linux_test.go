package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/internal/need"
	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, got...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// unspec is a program that sends a datagram to an address whose family is AF_UNSPEC.
func unspec(ip string) string {
	return `import ctypes, socket, struct
to = struct.pack("=H", 0) + struct.pack("!H", 5000) + socket.inet_aton("` + ip + `") + bytes(8)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ctypes.CDLL(None).sendto(s.fileno(), b"x", 1, 0, to, len(to))`
}

// What reaches out, and how it is told.
func TestNetRows(t *testing.T) {
	python := func(code string) func(t *testing.T) []string {
		return func(t *testing.T) []string { return []string{need.Program(t, "python3"), "-c", code} }
	}
	our := func(args ...string) func(t *testing.T) []string {
		return func(t *testing.T) []string { return suite(args...) }
	}
	for _, tt := range []struct {
		name, guards      string
		argv              func(t *testing.T) []string
		namespace, notify []string
	}{
		{"nothing", "a run without network", our("files"), nil, nil},
		{"by name", "the row is the name, not the address that gate gave it", our("dial", "tcp", "files.example.com:443"),
			[]string{"files.example.com:443 by syscall+packet"}, []string{"files.example.com:443 by syscall"}},
		{"by address", "a swallowed error", our("dial", "tcp", "192.0.2.1:80"), []string{"192.0.2.1:80 by syscall+packet"}, []string{"192.0.2.1:80 by syscall"}},
		{"IPv6", "RFC 5952", our("dial", "tcp", "[2001:db8::1]:80"), []string{"[2001:db8::1]:80 by syscall+packet"}, []string{"[2001:db8::1]:80 by syscall"}},
		{"UDP", "a connect alone is no attempt, so what was sent is the row", our("dial", "udp", "192.0.2.1:5000"), []string{"192.0.2.1:5000/udp by packet"}, []string{"192.0.2.1:5000/udp by packet"}},
		{"UDP of IPv6 alone", "such a socket reaches no sink of IPv4", our("dial", "udp6", "[2001:db8::1]:5000"), []string{"[2001:db8::1]:5000/udp by packet"}, []string{"[2001:db8::1]:5000/udp by packet"}},
		{"UDP of IPv6 alone, nothing sent", "a connect alone is no attempt", python("import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1); s.connect(('2001:db8::1', 5000))"), nil, nil},
		{"sendto AF_UNSPEC", "udp_sendmsg takes it for AF_INET", python(unspec("192.0.2.1")), []string{"192.0.2.1:5000/udp by syscall+packet"}, []string{"192.0.2.1:5000/udp by syscall"}},
		{"sendmsg", "a datagram without a connect", our("sendmsg", "192.0.2.1:5000"), []string{"192.0.2.1:5000/udp by syscall+packet"}, []string{"192.0.2.1:5000/udp by syscall"}},
		{"looked up only", "a name that is never connected to", our("lookup", "tracker.example.com"), []string{"dns:tracker.example.com by resolver"}, []string{"dns:tracker.example.com by resolver"}},
		{"own server", "loopback served from inside the tree", our("echo"), nil, nil},
		{"nobody's port", "a loopback port that nothing in the tree ever bound", our("dial", "tcp", "127.0.0.1:5432"), []string{"127.0.0.1:5432 by syscall+packet"}, []string{"127.0.0.1:5432 by syscall"}},
		{"curl", "the C library's resolver, and a probe for the local address of each answer", func(t *testing.T) []string {
			return []string{need.Program(t, "curl"), "-s", "--max-time", "5", "https://files.example.com/", "-o", "/dev/null"}
		}, []string{"files.example.com:443 by syscall+packet"}, []string{"files.example.com:443 by syscall"}},
		{"address sorting", "RFC 6724: getaddrinfo(3) connects UDP sockets that send nothing", python("import socket; print(len(socket.getaddrinfo('files.example.com', 443)) > 0)"),
			[]string{"dns:files.example.com by resolver"}, []string{"dns:files.example.com by resolver"}},
		{"python", "a suite that swallows everything", python("import urllib.request\ntry: urllib.request.urlopen('http://api.example.com/', timeout=5)\nexcept OSError: pass"),
			[]string{"api.example.com:80 by syscall+packet"}, []string{"api.example.com:80 by syscall"}},
		{"journal", "GATE_EGRESS_LOG: what an interceptor stops never reaches the kernel", func(t *testing.T) []string {
			return []string{"/bin/sh", "-c", `echo '{"dest":"mocked.example.com:443"}' >>"$GATE_EGRESS_LOG"`}
		}, []string{"mocked.example.com:443 by in-process"}, []string{"mocked.example.com:443 by in-process"}},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier string) {
				want := tt.namespace
				if tier == ledger.TierNotify {
					want = tt.notify
				}
				r := gate(t, tier, repository(t, "mode", "same"), nil, tt.argv(t), nil)
				wantLines(t, "rows", r.netLines(), want)
				wantLines(t, "gaps", r.gapKinds(), nil)
				if t.Failed() {
					t.Logf("guards: %s; exit %d, stdout %q", tt.guards, r.Exit, r.Stdout)
				}
			})
		})
	}
}

// A service of the host does not become the tree's by a bind to its port at
// another address. In the namespace nobody is there.
func TestStranger(t *testing.T) {
	python := need.Program(t, "python3")
	for _, network := range []string{"tcp4", "udp4"} {
		addr := server(t, network, freePort(t))
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		kind, row := "socket.SOCK_STREAM", addr
		if network == "udp4" {
			kind, row = "socket.SOCK_DGRAM", addr+"/udp"
		}
		code := `import socket
own = socket.socket(socket.AF_INET, KIND); own.bind(("127.0.0.2", PORT))
if KIND == socket.SOCK_STREAM: own.listen()
s = socket.socket(socket.AF_INET, KIND); s.settimeout(10)
try: s.connect(("127.0.0.1", PORT)); s.send(b"ping"); print(s.recv(64).decode())
except ConnectionRefusedError: print("refused")
s = socket.socket(socket.AF_INET, KIND)
s.connect(("127.0.0.2", PORT)); print("own")`
		code = strings.NewReplacer("KIND", kind, "PORT", port).Replace(code)
		t.Run(network, func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier string) {
				var want []string
				if tier == ledger.TierNotify {
					want = []string{row + " by syscall"}
				}
				r := gate(t, tier, repository(t), nil, []string{python, "-c", code}, nil)
				wantLines(t, "rows", r.netLines(), want)
				if r.Stdout != "refused\nown\n" {
					t.Errorf("got %q", r.Stdout)
				}
			})
		})
	}
}

// Every row says who, also one that only the packets show.
func TestWho(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) { testWho(t, network) })
	}
}

func testWho(t *testing.T, network string) {
	eachTier(t, func(t *testing.T, tier string) {
		root := repository(t, "sub/")
		argv := suite("dial", network, "192.0.2.1:80")
		r := gate(t, tier, root, nil, []string{"/bin/sh", "-c", "cd sub; " + strings.Join(argv, " ") + "; :"}, nil)
		if len(r.NetRows) != 1 || r.NetRows[0].Who == nil {
			t.Fatalf("got %+v, want one row with who did it", r.NetRows)
		}
		who := *r.NetRows[0].Who
		name := filepath.Base(argv[0])
		want := ledger.Who{Chain: []string{"sh", name[:min(15, len(name))]}, Argv: argv, Dir: "sub"}
		who.PID, who.At = 0, time.Time{}
		for i, a := range want.Argv {
			if len(a) > 200 {
				want.Argv[i] = a[:200] + "..."
			}
		}
		if diff := cmp.Diff(want, who); diff != "" {
			t.Errorf("who (-want +got):\n%s", diff)
		}
	})
}

// A process that goes on as another program is told by that one, though name
// and directory stay the same.
func TestWhoAfterExec(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		second := "echo >two"
		first := "echo >one; exec /bin/sh -c '" + second + "'"
		r := gate(t, tier, repository(t), nil, []string{"/bin/sh", "-c", first}, nil)
		var got [][]string
		for _, w := range r.WriteRows {
			if w.Who != nil {
				got = append(got, append([]string{w.Path}, w.Who.Argv...))
			}
		}
		want := [][]string{{"one", "/bin/sh", "-c", first}, {"two", "/bin/sh", "-c", second}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows and who made them (-want +got):\n%s", diff)
		}
	})
}

// Where the caller sent an output to is no write of the suite's, though it opens
// the file anew by /dev/stdout; another file beside it is.
func TestRedirected(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		outside, root := repository(t, "log", "other"), repository(t, "inside")
		for _, tt := range []struct {
			file, command string
			outside       []string
			writes        []string
		}{
			{outside + "/log", "echo x >/dev/stdout; echo x >>/proc/self/fd/1", nil, nil},
			{outside + "/log", "(echo x >" + outside + "/log) 2>/dev/null", nil, nil},
			{outside + "/log", "(echo x >" + outside + "/other) 2>/dev/null", []string{outside + "/other"}, nil},
			{root + "/inside", "echo x >/dev/stdout", nil, []string{"inside"}},
		} {
			f, err := os.OpenFile(tt.file, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			r := gate(t, tier, root, &ledger.Ledger{HasAllowWrite: true}, []string{"/bin/sh", "-c", tt.command}, func(c *Config) {
				c.Stdout, c.Env = f, setenv(c.Env, "HOME", root) // rows below it are told by its name
			})
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			var rows []string
			for _, o := range r.Outside {
				rows = append(rows, o.Path)
			}
			wantLines(t, tt.command+": outside", rows, tt.outside)
			wantLines(t, tt.command+": writes", r.WritePaths, tt.writes)
		}
	})
}

// A door leads to its far end and nowhere else.
func TestDoors(t *testing.T) {
	tcp, tcp6, udp := server(t, "tcp4", freePort(t)), "", server(t, "udp4", freePort(t))
	down := freePort(t)
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		tcp6 = server(t, "tcp6", strings.Replace(freePort(t), "127.0.0.1", "[::1]", 1))
	}
	for _, tt := range []struct {
		name    string
		network string
		dial    string
		allow   string // "": as it is dialled
		far     string // "": as it is named
		want    string
	}{
		{"loopback", "tcp", tcp, "", "", "from outside"},
		{"IPv4", "tcp", "192.0.2.10:4000", "", tcp, "from outside"},
		{"IPv6", "tcp", "[2001:db8::5]:4000", "", tcp, "from outside"},
		{"IPv6 loopback", "tcp", tcp6, "", "", "from outside"},
		{"by name", "tcp", "db.example.com:5432", "", tcp, "from outside"},
		{"UDP", "udp", "192.0.2.10:4000", "192.0.2.10:4000/udp", udp, "from outside"},
		{"UDP loopback", "udp", udp, udp + "/udp", "", "from outside"},
		{"UDP by name", "udp", "stats.example.com:8125", "stats.example.com:8125/udp", udp, "from outside"},
		{"far end down", "tcp", "192.0.2.10:4000", "", down, "no connection"},
		{"loopback down", "tcp", down, "", "", "no connection"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			if tt.dial == "" {
				need.That(t, false, "IPv6 on the host's loopback", "none")
			}
			eachTier(t, func(t *testing.T, tier string) {
				allow := tt.allow
				if allow == "" {
					allow = tt.dial
				}
				l := &ledger.Ledger{AllowNet: []string{allow}}
				argv := suite("dial", tt.network, tt.dial)
				r := gate(t, tier, repository(t), l, []string{"/bin/sh", "-c", strings.Join(argv, " ") + "; " + strings.Join(suite("dial", "tcp", "192.0.2.99:1"), " ")},
					func(c *Config) {
						if tt.far != "" {
							c.Doors = map[string]string{allow: tt.far}
						}
					})
				if want := tt.want + "\nno connection\n"; r.Stdout != want {
					t.Errorf("got %q, want %q", r.Stdout, want)
				}
				// The one beside it is a row of its own.
				want := []string{allow, "192.0.2.99:1"}
				if allow > want[1] {
					want[0], want[1] = want[1], want[0]
				}
				wantLines(t, "endpoints", r.Net, want)
				if tier != ledger.TierNamespace {
					return // gate connects the socket itself, and forwards nothing
				}
				for _, n := range r.NetRows {
					if n.Door != (n.Endpoint == allow) {
						t.Errorf("%s: door %v", n.Endpoint, n.Door)
					}
				}
				var use ledger.DoorUse
				if len(r.Doors) == 1 {
					use = r.Doors[0]
				}
				if good := tt.want == "from outside"; use.Endpoint != allow || good != (use.BytesIn == int64(len("from outside"))) || good != (use.BytesOut == 4) {
					t.Errorf("use of the doors: got %+v", r.Doors)
				}
			})
		})
	}
}

// A real server and its own client, through doors at an address and by name.
func TestPostgreSQL(t *testing.T) {
	if testing.Short() {
		return
	}
	bins, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	need.That(t, len(bins) > 0, "PostgreSQL's server programs", fmt.Sprint(bins, err))
	bin := filepath.Dir(bins[len(bins)-1])
	psql := need.Program(t, "psql")
	who, err := user.Current()
	if err == nil && who.Uid == "0" { // it refuses to run as root
		who, err = user.Lookup("postgres")
	}
	need.Success(t, "a user for the server", err)
	dir, err := os.MkdirTemp("", "gate-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	uid, gid := number(who.Uid), number(who.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	server := func(args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, args[0]), args[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "HOME="+dir)
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
		log, err := os.Create(filepath.Join(t.TempDir(), "log")) // a pipe would be held by the server
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("%q: %v\n%s", args, err, text)
		}
	}
	addr := freePort(t)
	_, port, _ := net.SplitHostPort(addr)
	data := filepath.Join(dir, "data")
	server("initdb", "-D", data, "-A", "trust", "-U", "gate", "--no-sync", "-E", "UTF8")
	server("pg_ctl", "-D", data, "-w", "-o", fmt.Sprintf("-p %s -k %s -c listen_addresses=127.0.0.1 -c fsync=off", port, dir), "start")
	t.Cleanup(func() { server("pg_ctl", "-D", data, "-m", "immediate", "stop") })
	for _, tt := range []struct{ name, host, port string }{{"address", "127.0.0.1", port}, {"name", "db.example.com", "5432"}} {
		t.Run(tt.name, func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier string) {
				door := net.JoinHostPort(tt.host, tt.port)
				argv := []string{psql, "-X", "-h", tt.host, "-p", tt.port, "-U", "gate", "-d", "postgres", "-Atc", "select 6*7"}
				r := gate(t, tier, repository(t), &ledger.Ledger{AllowNet: []string{door}}, argv, func(c *Config) {
					c.Doors = map[string]string{door: addr}
				})
				if r.Stdout != "42\n" || r.Exit != 0 {
					t.Errorf("got %q, exit %d", r.Stdout, r.Exit)
				}
				wantLines(t, "endpoints", r.Net, []string{door})
				// In audit nothing has to be in the ledger.
				r = gate(t, tier, repository(t), &ledger.Ledger{}, argv, func(c *Config) {
					c.Mode, c.Doors = ledger.Audit, map[string]string{door: addr}
				})
				if r.Stdout != "42\n" || r.Exit != 0 {
					t.Errorf("audit: got %q, exit %d", r.Stdout, r.Exit)
				}
				want := []string{door}
				if tier == ledger.TierNotify && tt.name == "name" {
					want = append(want, door+"/udp") // to sort addresses; nobody would see what it sends
				}
				wantLines(t, "endpoints in audit", r.Net, want)
			})
		})
	}
}

// In audit a door opens just before the connect goes on, to whatever is named.
func TestDoorsOnDemand(t *testing.T) {
	for _, tt := range []struct{ name, network, dial, row string }{
		{"by name", "tcp", "db.example.com:5432", "db.example.com:5432 by syscall+packet, a door"},
		{"by address", "tcp", "192.0.2.7:80", "192.0.2.7:80 by syscall+packet, a door"},
		{"loopback", "tcp", "127.0.0.1:5433", "127.0.0.1:5433 by syscall+packet, a door"},
		{"IPv6", "tcp", "[2001:db8::7]:80", "[2001:db8::7]:80 by syscall+packet, a door"},
		{"UDP by name", "udp", "stats.example.com:8125", "stats.example.com:8125/udp by packet, a door"},
		{"UDP by address", "udp", "192.0.2.7:8125", "192.0.2.7:8125/udp by packet, a door"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			far := server(t, tt.network, "127.0.0.1:0")
			endpoint := tt.dial
			if tt.network == "udp" {
				endpoint += "/udp"
			}
			for _, seeding := range []bool{false, true} {
				r := gate(t, ledger.TierNamespace, repository(t), open(), suite("dial", tt.network, tt.dial), func(c *Config) {
					c.Mode, c.Doors = ledger.Audit, map[string]string{endpoint: far}
					if seeding {
						c.Ledger = nil
					}
				})
				if r.Stdout != "from outside\n" {
					t.Errorf("got %q", r.Stdout)
				}
				wantLines(t, "endpoints", r.netLines(), []string{tt.row})
				if len(r.Doors) != 1 || r.Doors[0].Connections != 1 {
					t.Errorf("doors: got %+v, want the one, used once", r.Doors)
				}
			}
		})
	}
	// Where nobody answers, the port is closed, and the tree may bind it.
	r := gate(t, ledger.TierNamespace, repository(t), open(), suite("dial", "tcp", "127.0.0.1:1"), func(c *Config) { c.Mode = ledger.Audit })
	if r.Stdout != "no connection\n" {
		t.Errorf("nobody there: got %q", r.Stdout)
	}
	wantLines(t, "endpoints", r.netLines(), []string{"127.0.0.1:1 by syscall"})
}

// The figure of column 2 against what the processes themselves say.
func TestCPU(t *testing.T) {
	for _, tt := range []struct {
		name, guards string
		args         []string
	}{
		{"one process", "getrusage(2)", []string{"burn", "250ms"}},
		{"children", "50 children, each waited for", []string{"children", "50", "8ms"}},
		{"lost children", "wait(2): SIGCHLD ignored, nobody's rusage has them", []string{"ignored", "4", "60ms"}},
		{"daemon", "an orphan is counted by who reaps it", []string{"daemon", "200ms"}},
		{"threads", "the sum of all threads", []string{"threads", "250ms"}},
		{"killed", "a process that a signal ends passes no exit call", []string{"killed", "100ms"}},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier string) {
				file := filepath.Join(t.TempDir(), "used")
				r := gate(t, tier, repository(t), nil, suite(append(tt.args, file)...), nil)
				want := told(t, file).Seconds()
				if diff := r.CPUSec - want; diff > max(0.02*want, 0.05) || diff < -max(0.02*want, 0.05) {
					t.Errorf("got %.3f s, the processes say %.3f s (%s): %+v", r.CPUSec, want, tt.guards, r.CPU)
				}
			})
		})
	}
}

// A process inherits SA_NOCLDWAIT by fork, and nothing shows that it has it.
func TestInheritedNoChildWait(t *testing.T) {
	const code = `
import ctypes, os, sys, time
action = ctypes.create_string_buffer(152)  # struct sigaction of the C library
action[136] = 2                            # sa_flags = SA_NOCLDWAIT
assert ctypes.CDLL(None).sigaction(17, action, None) == 0
def orphaned():
    try:
        os.wait()
    except ChildProcessError:
        return
    sys.exit("a child was waited for")
if os.fork() == 0:
    for _ in range(4):
        if os.fork() == 0:
            while time.process_time() < 0.06:
                pass
            with open(sys.argv[1], "a") as f:
                print(int(os.times().user * 1e9), file=f)
            os._exit(0)
        orphaned()
    os._exit(0)
orphaned()
`
	eachTier(t, func(t *testing.T, tier string) {
		file := filepath.Join(t.TempDir(), "used")
		r := gate(t, tier, repository(t), nil, []string{need.Program(t, "python3"), "-c", code, file}, nil)
		// A cgroup would make up for what was not seen, so that figure is not asked.
		if want := told(t, file).Seconds(); r.Exit != 0 || r.CPU.AutoReaped < want-0.05 {
			t.Errorf("exit %d, %.3f s of children that were reaped automatically, want at least %.3f s", r.Exit, r.CPU.AutoReaped, want)
		}
	})
}

// Runs that do not end by themselves.
func TestLimits(t *testing.T) {
	shell := []string{"/bin/sh", "-c", "while :; do :; done"}
	for _, tt := range []struct {
		name, guards string
		argv         []string
		budget       float64
		timeout      time.Duration
		killed       string
		signal       string
		long         bool
	}{
		{"budget", "setrlimit(2): SIGXCPU ends most programs", shell, 0.3, 0, ledger.KilledCPU, "SIGXCPU", false},
		{"budget of a Go program", "Go handles SIGXCPU; SIGKILL follows", suite("burn", "1h", "/dev/null"), 0.3, 0, ledger.KilledCPU, "SIGKILL", true},
		{"budget of many short processes", "RLIMIT_CPU is per process, so a fork loop evades it", []string{"/bin/sh", "-c", strings.Join(suite("relay"), " ") + "; sleep 600"}, 0.5, 0, ledger.KilledCPU, "SIGXCPU", false},
		{"timeout", "an idle hang uses no CPU", []string{"/bin/sleep", "600"}, 0, 300 * time.Millisecond, ledger.KilledTimeout, "SIGTERM", false},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			if tt.long && testing.Short() {
				return
			}
			eachTier(t, func(t *testing.T, tier string) {
				r := gate(t, tier, repository(t), &ledger.Ledger{CPUBudget: tt.budget}, tt.argv, func(c *Config) { c.Timeout = tt.timeout })
				if r.Killed != tt.killed || r.Signal != tt.signal {
					t.Errorf("got killed %q by %q, want %q by %q (%s)", r.Killed, r.Signal, tt.killed, tt.signal, tt.guards)
				}
				if tt.budget > 0 && r.CPUSec <= tt.budget {
					t.Errorf("got %.3f s, ended for a budget of %.3f s", r.CPUSec, tt.budget)
				}
			})
		})
	}
}

// conversation gives a command a stdin and stdout of the test's own.
func conversation(t *testing.T) (set func(*Config), in *os.File, out *os.File) {
	t.Helper()
	inR, inW, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{inR, inW, outR, outW} {
			_ = f.Close() // some are closed already
		}
	})
	return func(c *Config) { c.Stdin, c.Stdout = inR, outW }, inW, outR
}

func waitReady(t *testing.T, out *os.File) {
	buf := make([]byte, 6)
	if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "ready\n" {
		t.Errorf("the command said %q, %v", buf, err)
	}
}

func TestInterrupted(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		set, _, out := conversation(t)
		signals := make(chan os.Signal, 1)
		go func() {
			waitReady(t, out)
			signals <- syscall.SIGTERM
		}()
		r := gate(t, tier, repository(t), nil, suite("hold"), func(c *Config) { set(c); c.Signals = signals })
		if r.Interrupted != "SIGTERM" || r.Signal != "SIGTERM" || r.Exit != 128+15 {
			t.Errorf("got interrupted %q, signal %q, exit %d", r.Interrupted, r.Signal, r.Exit)
		}
	})
}

func TestWriteRows(t *testing.T) {
	for _, tt := range []struct {
		name, guards string
		files        []string
		action       string
		want         []string
	}{
		{"in place", "a rename into place, a changed mode, the same bytes again, a directory", []string{"mode", "same"}, "files",
			[]string{"made by syscall+snapshot", "mode by syscall+snapshot", "out.json by syscall+snapshot", "same by syscall+snapshot"}},
		{"transient", "what comes and goes is told as its surviving directory", []string{"d/keep"}, "transient",
			[]string{"d/* by syscall"}},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier string) {
				r := gate(t, tier, repository(t, tt.files...), nil, suite(tt.action), nil)
				wantLines(t, "rows", r.writeLines(), tt.want)
				wantLines(t, "gaps", r.gapKinds(), nil)
				if t.Failed() {
					t.Logf("guards: %s; exit %d", tt.guards, r.Exit)
				}
			})
		})
	}
}

// A change that no call of the tree explains was made by somebody outside.
func TestUnattributed(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		root := repository(t, "seen", "not")
		set, in, out := conversation(t)
		go func() {
			waitReady(t, out)
			if err := errors.Join(os.WriteFile(filepath.Join(root, "seen"), []byte("y\n"), 0o644), in.Close()); err != nil {
				t.Error(err)
			}
		}()
		r := gate(t, tier, root, nil, suite("outsider"), set)
		wantLines(t, "rows", r.writeLines(), []string{"seen by snapshot"})
		for _, w := range r.WriteRows {
			if w.Who != nil {
				t.Errorf("%s: got %+v, nobody was seen", w.Path, w.Who)
			}
		}
	})
}

// The ledger is read-only for the tree where there are mounts; where there
// are not, a change is seen.
func TestLedgerFile(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		root := repository(t, "capability.ledger.json")
		path := filepath.Join(root, "capability.ledger.json")
		sum := sha256.Sum256([]byte("x\n"))
		r := gate(t, tier, root, nil, []string{"/bin/sh", "-c", "(echo >>capability.ledger.json) 2>/dev/null; :"}, func(c *Config) {
			c.LedgerPath, c.LedgerSum = path, hex.EncodeToString(sum[:])
		})
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if protected := string(data) == "x\n"; protected != (tier == ledger.TierNamespace) {
			t.Errorf("the file now: %q", data)
		}
		if r.LedgerFile == nil || r.LedgerFile.Path != "capability.ledger.json" || !r.LedgerFile.Changed {
			t.Errorf("got %+v, want the attempt to be told", r.LedgerFile)
		}
	})
}

// Memory stays bounded: past the cap of 200,000 distinct paths there is a gap,
// never a silent loss.
func TestManyPaths(t *testing.T) {
	if testing.Short() {
		return
	}
	r := gate(t, ledger.TierNamespace, repository(t), nil, suite("many", "205000"), nil)
	if r.Exit != 0 {
		t.Fatalf("exit %d", r.Exit)
	}
	wantLines(t, "gaps", r.gapKinds(), []string{"write-cap"})
}

// The trace is one JSON object a line, and names what the record has.
func TestTrace(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		var trace bytes.Buffer
		script := "printf x >$(printf 'od\\001d\"\\\\'); mkdir d; mv d e; " + strings.Join(suite("dial", "tcp", "files.example.com:443"), " ")
		gate(t, tier, repository(t), nil, []string{"/bin/sh", "-c", script}, func(c *Config) { c.Trace = &trace })
		seen := map[string]bool{}
		for line := range bytes.Lines(trace.Bytes()) {
			var e event
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			if err := d.Decode(&e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if e.Time.IsZero() {
				t.Errorf("%s: no time", line)
			}
			seen[e.Witness+" "+e.Path+e.Endpoint] = true
			if e.To != "" {
				seen[e.Witness+" "+e.Path+" to "+e.To] = true
			}
		}
		for _, want := range []string{`syscall "od\001d\"\\"`, "syscall d", "syscall d to e", "resolver dns:files.example.com", `snapshot "od\001d\"\\"`, "snapshot e"} {
			if !seen[want] {
				t.Errorf("no line for %s in\n%s", want, trace.String())
			}
		}
	})
}

// What the tree puts in place of its journal holds nothing up and is not read.
func TestNoJournal(t *testing.T) {
	for _, make := range []string{"mkfifo", "ln -s /etc/passwd", "mkdir"} {
		r := gate(t, ledger.TierNotify, repository(t), nil, []string{"/bin/sh", "-c", make + ` "$GATE_EGRESS_LOG"`}, nil)
		wantLines(t, make, r.gapKinds(), []string{"egress-log"})
		wantLines(t, make, r.netLines(), nil)
	}
}

// A command that cannot be started is told as a shell tells it.
func TestStartError(t *testing.T) {
	root := repository(t, "text")
	for name, code := range map[string]int{"nothing-of-this-name": 127, "./nothing": 127, "./text": 126, ".": 126} {
		_, err := Run(t.Context(), Config{Command: []string{name}, Dir: root, Root: root, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		var start *sandbox.StartError
		if !errors.As(err, &start) || start.Code != code {
			t.Errorf("%s: got %v, want status %d", name, err, code)
		}
	}
}

// A process that outlives the command is ended and named.
func TestSurvivor(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		r := gate(t, tier, repository(t), nil, []string{"/bin/sh", "-c", "sleep 600 >/dev/null &"}, nil)
		wantLines(t, "findings", r.findingKinds(), []string{"survivor"})
	})
}

// TestAsOrdinaryUser runs all of these tests again without privileges.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		return // this is that run, or one that is to be short
	}
	nobody, err := user.Lookup("nobody")
	need.Success(t, "the user nobody", err)
	uid, _ := strconv.Atoi(nobody.Uid)
	home, err := os.MkdirTemp("", "gate-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	exe, err := os.ReadFile("/proc/self/exe")
	program, tmp := filepath.Join(home, "runner.test"), filepath.Join(home, "tmp")
	if err := errors.Join(err, os.WriteFile(program, exe, 0o755), os.Mkdir(tmp, 0o700), os.Chown(tmp, uid, uid), os.Chmod(home, 0o755)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.timeout=5m", "-test.short"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", uid, err, out)
	} else if testing.Verbose() {
		t.Logf("as uid %d:\n%s", uid, out)
	}
}
