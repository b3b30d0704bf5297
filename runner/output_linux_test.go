package runner

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/ledger"
)

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// What is printed arrives whole and in order: the pipe in between is no
// narrower than the one of the caller.
func TestOutput(t *testing.T) {
	const lines = 30000 // more than a pipe holds
	eachTier(t, func(t *testing.T, tier string) {
		t.Run("whole", func(t *testing.T) {
			r := gate(t, tier, repository(t), nil, shell("seq 1 "+fmt.Sprint(lines)), nil)
			var want strings.Builder
			for i := range lines {
				fmt.Fprintln(&want, i+1)
			}
			if r.Stdout != want.String() {
				t.Errorf("got %d bytes, want %d", len(r.Stdout), want.Len())
			}
		})
		t.Run("both streams of one file, in order", func(t *testing.T) {
			script := "for i in $(seq 1 500); do echo $i; echo err $i >&2; done"
			r := gate(t, tier, repository(t), nil, shell(script), func(c *Config) { c.Stderr = c.Stdout })
			var want strings.Builder
			for i := range 500 {
				fmt.Fprintf(&want, "%d\nerr %d\n", i+1, i+1)
			}
			if diff := cmp.Diff(want.String(), r.Stdout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
		t.Run("opened anew", func(t *testing.T) {
			r := gate(t, tier, repository(t), nil, shell("echo a >/dev/stdout; echo b >>/proc/self/fd/1; echo c"), nil)
			if r.Stdout != "a\nb\nc\n" || r.Exit != 0 {
				t.Errorf("got %q, exit %d", r.Stdout, r.Exit)
			}
			wantLines(t, "writes", r.WritePaths, nil)
		})
		t.Run("no terminal, nor a device", func(t *testing.T) {
			null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			kind := `test -c /dev/stderr && k=device || k=pipe; echo $k`
			for _, l := range []*ledger.Ledger{nil, {CPUBudget: 10, MinTests: 1}} {
				r := gate(t, tier, repository(t), l, shell(kind), func(c *Config) { c.Stderr = null })
				want := map[bool]string{true: "device\n", false: "pipe\n"}[l == nil] // a ledger that counts tests has to read them
				if r.Stdout != want {
					t.Errorf("min_tests %v: got %q, want %q", l != nil, r.Stdout, want)
				}
			}
		})
	})
}

// A command whose output nobody reads any more is told so, as without gate,
// which goes on to make the record.
func TestOutputNobodyReads(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		got := gate(t, tier, repository(t), nil, []string{"/usr/bin/yes"}, func(c *Config) { c.Stdout = w })
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got.Signal != "SIGPIPE" || got.Exit != 128+13 {
			t.Errorf("got signal %q, exit %d", got.Signal, got.Exit)
		}
	})
}

// An end of the pipe that a process outside holds does not hold gate up.
func TestOutputHeldOutside(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan *os.File, 1)
	go func() {
		var pid int
		line, err := bufio.NewReader(r).ReadString('\n')
		if err == nil {
			_, err = fmt.Sscan(line, &pid)
		}
		if err != nil {
			t.Error(err)
			held <- nil
			return
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
		}
		held <- f
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Error(err)
		}
	}()
	// In the notify tier a process has the number that its host knows it by.
	got := gate(t, ledger.TierNotify, repository(t), nil, shell("echo $$; sleep 2"), func(c *Config) { c.Stdout = w })
	wantLines(t, "findings", got.findingKinds(), []string{"held-output"})
	if f := <-held; f != nil {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// A socket of the caller's is not in the hands of the command.
func TestOutputIsASocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			said <- err.Error()
			return
		}
		text, err := io.ReadAll(conn)
		said <- fmt.Sprint(string(text), err)
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	got := gate(t, ledger.TierNamespace, repository(t), nil, shell("echo x"), func(c *Config) { c.Stdout = f })
	wantLines(t, "findings", got.findingKinds(), nil)
	for _, c := range []io.Closer{f, conn} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if text := <-said; text != "x\n<nil>" {
		t.Errorf("got %q", text)
	}
}

// What the output tells is in the record, and says which test made a row.
func TestToldByOutput(t *testing.T) {
	eachTier(t, func(t *testing.T, tier string) {
		script := `printf '=== RUN   TestA\n'; sleep 0.3; : >a; sleep 0.3; printf -- '--- PASS: TestA (0.01s)\n=== RUN   TestB\n'; sleep 0.3; : >b; sleep 0.3
printf -- '--- SKIP: TestB (0.01s)\n> Task :test UP-TO-DATE\n'; sleep 0.3; : >c`
		r := gate(t, tier, repository(t), nil, shell(script), nil)
		if diff := cmp.Diff(&ledger.Tests{Passed: 1, Skipped: 1}, r.Tests); diff != "" {
			t.Errorf("tests (-want +got):\n%s", diff)
		}
		var rows []string
		for _, w := range r.WriteRows {
			if w.Who.Test == nil {
				rows = append(rows, w.Path)
				continue
			}
			rows = append(rows, w.Path+" in "+strings.Join(w.Who.Test.Running, "+"))
		}
		wantLines(t, "rows", rows, []string{"a in TestA", "b in TestB", "c"})
		wantLines(t, "findings", r.findingKinds(), []string{"cached-results"})
	})
	r := gate(t, ledger.TierNamespace, repository(t), nil, shell("echo hello"), nil)
	if r.Tests != nil {
		t.Errorf("got %+v of a suite that tells nothing", r.Tests)
	}
}

// However slowly its caller reads, gate hands on all of it.
func TestOutputReadSlowly(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	size := make(chan int64, 1)
	go func() {
		time.Sleep(3 * heldFor) // well beyond the end of the command
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			t.Error(err)
		}
		size <- n
	}()
	// As much as fits into the two pipes, so that the command ends at once.
	got := gate(t, ledger.TierNamespace, repository(t), nil, shell("head -c 120000 /dev/zero"), func(c *Config) { c.Stdout = w })
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := <-size; n != 120000 || got.Exit != 0 {
		t.Errorf("got %d bytes, exit %d", n, got.Exit)
	}
	wantLines(t, "findings", got.findingKinds(), nil)
}
