package runner

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/org/gate/internal/need"
	"github.com/org/gate/ledger"
)

func open() *ledger.Ledger { return &ledger.Ledger{CPUBudget: 100} }

// both runs a test inside the box, which leaves everything as it was, and
// then outside.
func both(t *testing.T, f func(t *testing.T, isolate bool)) {
	t.Run("isolated", func(t *testing.T) { f(t, true) })
	t.Run("shared", func(t *testing.T) { f(t, false) })
}

// What is closed refuses, and the attempt is a row with who made it.
func TestReadOnlyOutside(t *testing.T) {
	home := repository(t, ".config/")
	r := gate(t, ledger.TierNamespace, repository(t), open(), []string{"/bin/sh", "-c", "(echo >$HOME/.gitconfig) 2>/dev/null || echo refused"}, func(c *Config) {
		c.Env = setenv(setenv(c.Env, "HOME", home), "TMPDIR", repository(t))
		c.Ledger.HasAllowWrite, c.Ledger.AllowWrite = true, []string{"$TMPDIR/**"}
	})
	if r.Stdout != "refused\n" || exists(filepath.Join(home, ".gitconfig")) {
		t.Errorf("got %q", r.Stdout)
	}
	if len(r.Outside) != 1 || r.Outside[0].Path != "$HOME/.gitconfig" || r.Outside[0].Allowed != "" || r.Outside[0].Who == nil {
		t.Errorf("outside: got %+v, want the attempt", r.Outside)
	}
	if want := (&ledger.Files{ReadOnly: true, Private: []string{}, Layered: []string{}, Cold: []string{}, Added: []ledger.Added{}}); !cmp.Equal(want, r.Files) {
		t.Errorf("files: got %+v, want %+v", r.Files, want)
	}
}

// A script that a later step runs.
func TestLaterStep(t *testing.T) {
	both(t, func(t *testing.T, isolate bool) {
		tmp := repository(t)
		r := gate(t, ledger.TierNamespace, repository(t), open(), []string{"/bin/sh", "-c", "echo 'echo attacked' >$TMPDIR/later.sh && sh $TMPDIR/later.sh"}, func(c *Config) {
			c.Isolate, c.Env = isolate, setenv(c.Env, "TMPDIR", tmp)
		})
		if r.Stdout != "attacked\n" {
			t.Fatalf("the suite itself: got %q", r.Stdout)
		}
		if left := exists(filepath.Join(tmp, "later.sh")); left == isolate {
			t.Errorf("left for the next step: %v", left)
		}
		if isolate && !slices.Contains(r.Files.Private, "$TMPDIR/**") {
			t.Errorf("private: got %q", r.Files.Private)
		}
	})
}

// A compiled archive in the build cache, which the next build links. The suite
// changes nothing in the repository, and passes.
func TestPoisonedCache(t *testing.T) {
	if testing.Short() {
		return // it compiles the standard library
	}
	tool := need.Program(t, "go")
	cache, root := repository(t), repository(t)
	both(t, func(t *testing.T, isolate bool) {
		for name, text := range map[string]string{
			"go.mod":         "module example.com/m\n\ngo 1.24\n",
			"main.go":        "package main\n\nimport \"example.com/m/answer\"\n\nfunc main() { println(answer.Text()) }\n",
			"answer/text.go": "package answer\n\n//go:noinline\nfunc Text() string { return \"harmless answer\" }\n",
		} {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		env := setenv(setenv(os.Environ(), "GOCACHE", cache), "GOFLAGS", "")
		build := func() string {
			t.Helper()
			program := filepath.Join(t.TempDir(), "m")
			cmd := exec.Command(tool, "build", "-o", program)
			cmd.Dir, cmd.Env = root, env
			out, err := cmd.CombinedOutput()
			if err == nil {
				out, err = exec.Command(program).CombinedOutput()
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return strings.TrimSpace(string(out))
		}
		if got := build(); got != "harmless answer" {
			t.Fatalf("before: got %q", got)
		}
		attack := `for f in $(grep -rl 'harmless answer' "$GOCACHE"); do chmod u+w $f && sed -i 's/harmless answer/poisoned answer/' $f; done; grep -rq 'poisoned answer' "$GOCACHE"`
		r := gate(t, ledger.TierNamespace, root, open(), []string{"/bin/sh", "-c", attack}, func(c *Config) {
			c.Isolate, c.Env = isolate, env
		})
		if r.Exit != 0 || len(r.WritePaths) != 0 {
			t.Fatalf("the attack: exit %d, rows %q; want one that works and leaves no row", r.Exit, r.WritePaths)
		}
		want := "poisoned answer"
		if isolate {
			into := func(a ledger.Added) bool { return a.Place == "$GOCACHE/**" && a.Files > 0 && a.Bytes > 0 }
			if !slices.ContainsFunc(r.Files.Added, into) {
				t.Errorf("added: got %+v, want what the attack changed", r.Files.Added)
			}
			want = "harmless answer"
		}
		if got := build(); got != want {
			t.Errorf("the next build: got %q, want %q", got, want)
		}
	})
}

// A socket in a temporary place, through which somebody outside hands in a
// connected descriptor.
func TestSocketForAnOutsider(t *testing.T) {
	python := need.Program(t, "python3")
	const code = `
import os, socket, sys
path = os.environ["TMPDIR"] + "/s"
s = socket.socket(socket.AF_UNIX)
s.bind(path)
s.listen()
print("ready", flush=True)
if sys.stdin.readline():
    conn, _ = s.accept()
    _, fds, _, _ = socket.recv_fds(conn, 1, 1)
    socket.socket(fileno=fds[0]).sendall(b"leaked")
`
	both(t, func(t *testing.T, isolate bool) {
		tmp := repository(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		set, in, out := conversation(t)
		leaked := make(chan string, 1)
		go func() {
			waitReady(t, out)
			text, err := handIn(filepath.Join(tmp, "s"), l, in)
			if err != nil {
				t.Error(err)
			}
			leaked <- text
		}()
		r := gate(t, ledger.TierNamespace, repository(t), open(), []string{python, "-c", code}, func(c *Config) {
			set(c)
			c.Isolate, c.Env = isolate, setenv(c.Env, "TMPDIR", tmp)
		})
		want, finding := "leaked", true
		if isolate {
			want, finding = "", false
		}
		if got := <-leaked; got != want {
			t.Errorf("reached a server outside: got %q, want %q", got, want)
		}
		if got := slices.Contains(r.findingKinds(), "socket-visible-to-host"); got != finding {
			t.Errorf("finding: %v, want %v", got, finding)
		}
	})
}

// handIn gives whoever listens at path a connection to l, and returns what
// comes through it. "" if nobody is to be seen there.
func handIn(path string, l net.Listener, in *os.File) (text string, err error) {
	defer func() { err = errors.Join(err, in.Close()) }()
	if !exists(path) {
		return "", nil
	}
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return "", err
	}
	file, err := out.(*net.TCPConn).File()
	if err != nil {
		return "", err
	}
	to, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
	if err != nil {
		return "", err
	}
	if _, err = fmt.Fprintln(in, "go"); err != nil {
		return "", err
	}
	if _, _, err = to.WriteMsgUnix([]byte("x"), unix.UnixRights(int(file.Fd())), nil); err != nil {
		return "", err
	}
	if err := errors.Join(out.Close(), file.Close()); err != nil {
		return "", err
	}
	conn, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	data, err := io.ReadAll(conn)
	return string(data), err
}

// A cached test result executes nothing; none is found, be the module below the
// directory of the command, nor by "GOFLAGS= go test".
func TestCachedGoTests(t *testing.T) {
	if testing.Short() {
		return // with a cold cache it compiles the standard library
	}
	tool := need.Program(t, "go")
	root := repository(t, "sub/")
	for name, text := range map[string]string{
		"sub/go.mod":    "module example.com/m\n\ngo 1.24\n",
		"sub/m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestM(*testing.T) {}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := setenv(os.Environ(), "GOFLAGS", "")
	test := func() string {
		cmd := exec.Command(tool, "test", ".")
		cmd.Dir, cmd.Env = filepath.Join(root, "sub"), env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	test()
	if got := test(); !strings.Contains(got, "(cached)") {
		t.Fatalf("outside: got %q, want a cached result", got)
	}
	for _, command := range []string{"cd sub && go test .", "cd sub && GOFLAGS= go test ."} {
		both(t, func(t *testing.T, isolate bool) {
			r := gate(t, ledger.TierNamespace, root, open(), []string{"/bin/sh", "-c", command}, func(c *Config) {
				c.Isolate, c.Env = isolate, env
			})
			if r.Exit != 0 || strings.Contains(r.Stdout, "(cached)") {
				t.Errorf("%s: exit %d, got %q, want a result that was not cached", command, r.Exit, r.Stdout)
			}
		})
	}
	r := gate(t, ledger.TierNotify, root, open(), []string{tool, "-C", "sub", "test", "."}, func(c *Config) { c.Env = env })
	if r.Exit != 0 || strings.Contains(r.Stdout, "(cached)") {
		t.Errorf("notify: exit %d, got %q, want a result that was not cached", r.Exit, r.Stdout)
	}
	if got := test(); !strings.Contains(got, "(cached)") {
		t.Errorf("outside afterwards: got %q, want a cached result", got)
	}
}

// The caches of tools that were never run here do not exist: they can be made
// all the same, and leave nothing where they are not used.
func TestMissingCaches(t *testing.T) {
	both(t, func(t *testing.T, isolate bool) {
		home := repository(t)
		r := gate(t, ledger.TierNamespace, repository(t), open(), []string{"/bin/sh", "-c", "mkdir -p $HOME/.npm/_logs && echo made"}, func(c *Config) {
			c.Isolate = isolate
			c.Env = setenv(slices.DeleteFunc(slices.Clone(c.Env), func(s string) bool {
				return strings.HasPrefix(s, "XDG_") || strings.HasPrefix(s, "GO") || strings.HasPrefix(s, "CARGO_")
			}), "HOME", home)
		})
		want := []string{".npm"}
		if isolate {
			want = nil
		}
		entries, err := os.ReadDir(home)
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Contains(r.Files.Cold, "$HOME/.npm/**") {
			t.Errorf("cold: got %q, want the cache that was not there", r.Files.Cold)
		}
		if r.Stdout != "made\n" || !slices.Equal(left, want) {
			t.Errorf("got %q, left %q, want %q", r.Stdout, left, want)
		}
	})
}
