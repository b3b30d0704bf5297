package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// openBox opens a box whose stdout the second result reads to its end.
func openBox(t *testing.T, spec Spec) (*Box, func() string) {
	t.Helper()
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	spec.Dir, spec.Env = t.TempDir(), os.Environ()
	spec.Stdin, spec.Stdout, spec.Stderr = stdin, w, os.Stderr
	b, err := Open(t.Context(), spec)
	if err := errors.Join(err, stdin.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b, func() string {
		b.Close()
		text, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

// What a process inside sees of itself and its surroundings.
func TestInside(t *testing.T) {
	zero := strings.Repeat("0", 16)
	eachTier(t, func(t *testing.T, tier Tier) {
		outside, err := readFacts()
		if err != nil {
			t.Fatal(err)
		}
		// A descriptor that the caller left open reaches nobody.
		leaked, err := unix.Open("/", unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(leaked)
		out := scene{tier: tier, argv: actor("facts")}.run(t)
		wantExit(t, out, Exit{})
		var got facts
		if err := json.Unmarshal([]byte(out.Stdout), &got); err != nil {
			t.Fatalf("%v in %q", err, out.Stdout)
		}
		want := facts{
			UID: os.Getuid(), GID: os.Getgid(), FDs: []string{"0", "1", "2"},
			Status: map[string]string{"CapInh": zero, "CapPrm": zero, "CapEff": zero, "CapBnd": zero, "CapAmb": zero, "NoNewPrivs": "1", "Seccomp": "2"},
		}
		ignore := []string{"PID", "Parent", "Processes"}
		if tier == Namespace {
			want.Parent, want.HostName, want.Lo = 1, HostName, "up|loopback|running"
			want.Resolv = "nameserver " + ResolverAddr.Addr().String() + "\noptions timeout:5 attempts:1\n"
			want.LoAddrs = []string{"127.0.0.1/8", OwnIPv4.String() + "/32", OwnIPv6.String() + "/128", "::1/128"}
			want.Processes = 2 // init and the actor
			ignore = []string{"PID"}
			if os.Getuid() == 0 {
				caps := fmt.Sprintf("%016x", capMask(treeCaps))
				for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
					want.Status[set] = caps
				}
				want.Status["NoNewPrivs"] = "0"
			}
		} else { // the host's, all but the filter and what root could change the host with
			want.Status["CapBnd"] = outside.Status["CapBnd"]
			if os.Getuid() == 0 {
				have, err := strconv.ParseUint(outside.Status["CapEff"], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				caps := fmt.Sprintf("%016x", capMask(treeCaps)&have)
				want.Status["CapPrm"], want.Status["CapEff"] = caps, caps
			}
			want.HostName, want.Resolv, want.Lo, want.LoAddrs, want.Others = outside.HostName, outside.Resolv, outside.Lo, outside.LoAddrs, outside.Others
		}
		opt := cmp.FilterPath(func(p cmp.Path) bool {
			for _, f := range ignore {
				if p.String() == f {
					return true
				}
			}
			return false
		}, cmp.Ignore())
		if diff := cmp.Diff(want, got, opt, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("facts (-want +got):\n%s", diff)
		}
	})
}

// readFacts are the facts outside.
func readFacts() (facts, error) {
	args := actor("facts")
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		return facts{}, err
	}
	var f facts
	return f, json.Unmarshal(out, &f)
}

// The tree cannot reach its init: pid_namespaces(7) keeps signals from PID 1,
// ptrace(2) needs its capabilities, and PR_SET_DUMPABLE closes its /proc.
func TestInitIsOutOfReach(t *testing.T) {
	out := scene{tier: Namespace, argv: actor("init")}.run(t)
	wantExit(t, out, Exit{})
	const perm, acces = "operation not permitted", "permission denied"
	want := "ptrace: " + perm + "\nmem: " + acces + "\nenviron: " + acces + "\nmaps: " + acces + "\nfd: " + acces + "\nmemory: " + perm + "\ndescriptor: " + perm + "\n"
	if diff := cmp.Diff(want, out.Stdout); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without a PID namespace init can be killed. Then nothing of the tree goes
// on, and the run is an error.
func TestInitKilledInNotify(t *testing.T) {
	c := cActor(t)
	argv := actor("kill-init")
	out := scene{tier: Notify, argv: []string{"/bin/sh", "-c", c + " daemon hold; exec " + strings.Join(argv, " ")}}.try(t)
	if out.Err == nil {
		t.Errorf("got exit %+v, want an error", out.Exit)
	}
}

func TestReadOnly(t *testing.T) {
	dir := realDir(t)
	r := row{files: []string{"ledger", "other"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	for _, nested := range []bool{false, true} {
		argv := actor("write", "ledger")
		if nested { // in namespaces of its own the tree is root, and may mount
			argv = actor("namespaces", "write", "ledger")
		}
		out := scene{tier: Namespace, dir: dir, argv: argv, readOnly: []string{dir + "/ledger"}}.run(t)
		wantExit(t, out, Exit{})
		// What is busy or on another mount makes no other name a row; the rest are
		// attempts on the file itself.
		wantEvents(t, out.Events, "modify openat ledger", "modify truncate ledger", "meta fchmodat ledger", "remove unlinkat ledger")
		const rofs = "read-only file system"
		unmount := "operation not permitted"
		if nested {
			unmount = "invalid argument" // mount_namespaces(7): it came with the less privileged namespace, and is locked
		}
		want := "write: " + rofs + "\ntruncate: " + rofs + "\nchmod: " + rofs +
			"\nunlink: device or resource busy\nrename over: device or resource busy\nrename away: device or resource busy" +
			"\nlink and write: invalid cross-device link\nremount: operation not permitted\nunmount: " + unmount + "\n"
		if diff := cmp.Diff(want, out.Stdout); diff != "" {
			t.Errorf("nested %v (-want +got):\n%s", nested, diff)
		}
		data, err := os.ReadFile(dir + "/ledger")
		if err != nil || string(data) != "x\n" {
			t.Errorf("the file now: %q, %v", data, err)
		}
	}
}

// One supervisor a process: seccomp(2), EBUSY.
func TestNested(t *testing.T) {
	for _, inner := range tiers {
		t.Run("inner "+string(inner), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				out := scene{tier: tier, argv: actor("nested", string(inner))}.run(t)
				wantExit(t, out, Exit{})
				if inner == Namespace && strings.HasPrefix(out.Stdout, "namespace tier: ") {
					return // a mount or a packet socket is in the way before that
				}
				if !strings.Contains(out.Stdout, "another supervisor already listens to this process") || !strings.Contains(out.Stdout, unix.EBUSY.Error()) {
					t.Errorf("got %q, want what is in the way", out.Stdout)
				}
			})
		})
	}
}

func TestExit(t *testing.T) {
	c := cActor(t)
	for _, tt := range []struct {
		name string
		args []string
		want Exit
	}{
		{"success", []string{"exit", "0"}, Exit{}},
		{"status", []string{"exit", "3"}, Exit{Code: 3}},
		{"signal", []string{"die", "15"}, Exit{Signal: 15}},
		{"SIGKILL", []string{"die", "9"}, Exit{Signal: 9}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				wantExit(t, scene{tier: tier, argv: append([]string{c}, tt.args...)}.run(t), tt.want)
			})
		})
	}
}

func TestStartErrors(t *testing.T) {
	dir := realDir(t)
	for name, content := range map[string]string{"text": "x", "garbage": "\x7fELFx", "script": "#!/nowhere/sh\n"} {
		mode := os.FileMode(0o755)
		if name == "text" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, path string
		code       int
		errno      error
	}{
		{"not found", "nothing", 127, unix.ENOENT},
		{"below a file", "text/x", 127, unix.ENOTDIR},
		{"missing interpreter", "script", 127, unix.ENOENT},
		{"not executable", "text", 126, unix.EACCES},
		{"directory", ".", 126, unix.EACCES},
		{"no program", "garbage", 126, unix.ENOEXEC},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				out := scene{tier: tier, dir: dir, argv: []string{filepath.Join(dir, tt.path)}}.try(t)
				var start *StartError
				if !errors.As(out.Err, &start) || start.Code != tt.code || !errors.Is(start, tt.errno) {
					t.Errorf("got %v, want status %d and %v", out.Err, tt.code, tt.errno)
				}
			})
		})
	}
}

// Arguments, variables and paths are bytes, whatever their encoding: execve(2).
func TestAnyBytes(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		dir := filepath.Join(realDir(t), "d\xff")
		if err := os.MkdirAll(dir+"/bin\xfe", 0o755); err != nil {
			t.Fatal(err)
		}
		program := dir + "/bin\xfe/p\xfd"
		if err := os.WriteFile(program, []byte("#!/bin/sh\nprintf '%s|' \"$PWD\" \"$V\" \"$@\"\necho >f\xfc\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := scene{tier: tier, dir: dir, argv: []string{program, "caf\xe9", "\xed\xa0\x80", "é"}, env: []string{"V=\xe9", "PWD="}, readOnly: []string{program}}
		if tier == Namespace {
			s.closed = &Closed{ReadOnly: true, Store: realDir(t), Mounts: []Mount{{Kind: Keep, Target: dir}}}
		}
		out := s.run(t)
		wantExit(t, out, Exit{})
		if want := strings.Join([]string{dir, "\xe9", "caf\xe9", "\xed\xa0\x80", "é", ""}, "|"); out.Stdout != want {
			t.Errorf("stdout: got %q, want %q", out.Stdout, want)
		}
		wantEvents(t, out.Events, "create openat f\xfc")
	})
}

// A report stays a report, however long the command lines of the survivors.
func TestManySurvivors(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		// JSON makes six bytes of a control character.
		long := slices.Repeat([]string{strings.Repeat("\x01", 190)}, 28)
		start := `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do sh -c 'kill -STOP $$' "$@" >/dev/null 2>&1 & done`
		out := scene{tier: tier, argv: append([]string{"/bin/sh", "-c", start, "sh"}, long...)}.run(t)
		if n := len(out.Exit.Survivors); n != maxSurvivors {
			t.Fatalf("got %d survivors, want %d", n, maxSurvivors)
		}
		for _, s := range out.Exit.Survivors {
			if text := strings.Join(s.Argv, ""); len(text) > maxSurvivorSize+3 || !strings.HasSuffix(text, "\x01...") {
				t.Errorf("got %q", s.Argv)
			}
		}
	})
}

// What does not fit into a message is told as such.
func TestTruncatedMessage(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	from, to := &control{conn: pair[0]}, &control{conn: pair[1]}
	for _, size := range []int{maxMessage / 2, maxMessage} {
		if err := from.send(message{Step: "error", Err: strings.Repeat("x", size)}); err != nil {
			t.Fatal(err)
		}
		_, _, err := to.receive()
		if fits := size < maxMessage; fits != (err == nil) || !fits && !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
}

// A daemon that has left its parent, its session and its output is found,
// named and ended.
func TestSurvivors(t *testing.T) {
	c := cActor(t)
	eachTier(t, func(t *testing.T, tier Tier) {
		out := scene{tier: tier, argv: []string{c, "daemon", "hold"}}.run(t)
		want := Exit{Survivors: []Survivor{{Argv: []string{c, "daemon", "hold"}}}}
		got := Exit{Code: out.Exit.Code, Signal: out.Exit.Signal, Survivors: out.Exit.Survivors}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Survivor{}, "PID")); diff != "" {
			t.Errorf("exit (-want +got):\n%s", diff)
		}
	})
}

// Signal reaches the command, SignalAll the whole tree.
func TestSignals(t *testing.T) {
	c := cActor(t)
	eachTier(t, func(t *testing.T, tier Tier) {
		for _, all := range []bool{false, true} {
			s := scene{tier: tier, argv: []string{c, "hold", "daemon"}, during: func(t *testing.T, b *Box, stdout *bufio.Reader) {
				if line, err := stdout.ReadString('\n'); line != "ready\n" {
					t.Errorf("got %q, %v", line, err)
				}
				send := b.Signal
				if all {
					send = b.SignalAll
				}
				if err := send(unix.SIGTERM); err != nil {
					t.Error(err)
				}
			}}
			out := s.run(t)
			if out.Exit.Signal != 15 || (len(out.Exit.Survivors) == 0) != all {
				t.Errorf("all %v: got %+v", all, out.Exit)
			}
		}
	})
}

// A context that is done ends the tree.
func TestCancel(t *testing.T) {
	c := cActor(t)
	eachTier(t, func(t *testing.T, tier Tier) {
		ctx, cancel := context.WithCancel(t.Context())
		b, stdout := openBox(t, Spec{Tier: tier, Argv: []string{c, "hold", "daemon"}, Path: c})
		rec := &recorder{}
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := b.Run(ctx, rec); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		stdout() // ends only when nobody holds the pipe any more
	})
}

// hold is a process that holds a box: tier, then the command.
func hold(args []string) error {
	b, err := Open(context.Background(), Spec{
		Tier: Tier(args[0]), Argv: args[1:], Path: args[1], Dir: ".", Env: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer b.Close()
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT) // as gate does
	exit, err := b.Run(context.Background(), &recorder{})
	if err != nil {
		return err
	}
	fmt.Printf("exit %d signal %d survivors %d\n", exit.Code, exit.Signal, len(exit.Survivors))
	return nil
}

// holder starts a process that holds a box, and waits until its tree is there.
func holder(t *testing.T, tier Tier, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w := pipe(t)
	cmd := exec.Command(exe, append([]string{holderArg, string(tier), cActor(t)}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), w, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(t, w)
	if err := r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the tree said %q, %v", line, err)
	}
	return cmd, out
}

// The supervisor dies: seccomp_unotify(2) makes trapped calls fail with
// ENOSYS then, and no record could be made, so the tree must die too. All of
// it holds the pipe, so the pipe's end is the tree's.
func TestSupervisorKilled(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		cmd, out := holder(t, tier, "hold", "daemon")
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if rest, err := io.ReadAll(out); err != nil {
			t.Errorf("the tree goes on: %v after %q", err, rest)
		}
	})
}

// A key of the terminal reaches the whole foreground group: the command dies
// of it, init lives on and reports.
func TestInterruptOfTheGroup(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		cmd, out := holder(t, tier, "hold")
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(out)
		if want := "exit 0 signal 2 survivors 0\n"; string(rest) != want || err != nil {
			t.Errorf("got %q, %v; want %q", rest, err, want)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}
