package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/org/gate/internal/need"
)

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// Programs that Go cannot be, each with what the sandbox must say of it.
func TestPrograms(t *testing.T) {
	c := cActor(t)
	none := unix.ENOSYS
	for _, tt := range []struct {
		name, guards string
		args         []string
		stdout       string
		want         []string
	}{
		{"static", "no loader, no library that could be replaced", []string{"create", "f"}, "", []string{"create openat f"}},
		{"vfork", "vfork(2): the parent is suspended while its child is trapped; waiting for the parent would never end",
			[]string{"vfork"}, "", []string{"create mkdir from-vfork", "create openat after-exec"}},
		{"posix_spawn", "posix_spawn(3): the same, with a file action between", []string{"spawn"}, "", []string{"create openat by-spawn", "create openat after-exec"}},
		{"i386", "seccomp(2): a 32-bit call has numbers of its own", []string{"i386"}, fmt.Sprintln(-int(none)), []string{"refused i386"}},
		{"x32", "seccomp(2): x32 shares the architecture of x86-64", []string{"x32"}, fmt.Sprintln(-int(none)), []string{"refused x32"}},
		{"threads without clone3", "clone(2): the C library falls back to clone", []string{"threads"}, "",
			[]string{"create openat t0", "create openat t1", "create openat t2", "create openat t3", "create openat t4", "create openat t5", "create openat t6", "create openat t7"}},
		{"SIGCHLD ignored", "wait(2): such children never reach their parent's rusage", []string{"ignore"}, "", []string{"children are reaped automatically"}},
		{"SA_NOCLDWAIT", "sigaction(2): the same", []string{"nocldwait"}, "", []string{"children are reaped automatically"}},
		{"SIGCHLD handled", "sigaction(2)", []string{"handle"}, "", nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			if tt.name == "i386" && exec.Command(c, "i386").Run() != nil {
				t.Log("the kernel itself has no 32-bit calls (IA32_EMULATION)")
				return
			}
			eachTier(t, func(t *testing.T, tier Tier) {
				out := scene{tier: tier, argv: append([]string{c}, tt.args...)}.run(t)
				wantExit(t, out, Exit{})
				if out.Stdout == "absent\n" {
					return // no such calls on this architecture
				}
				if tt.name == "threads without clone3" {
					slices.Sort(out.Events)
				}
				wantEvents(t, out.Events, tt.want...)
				if out.Stdout != tt.stdout {
					t.Errorf("stdout: got %q, want %q", out.Stdout, tt.stdout)
				}
			})
		})
	}
}

// A trapped call that a signal interrupts is neither lost nor counted twice:
// seccomp_unotify(2), "Interaction with SA_RESTART signal handlers". The
// kernel flag SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV is what makes it so.
func TestSignalStorm(t *testing.T) {
	c := cActor(t)
	n := 2000
	if testing.Short() {
		n = 300
	}
	for _, how := range []string{"storm", "restart"} {
		t.Run(how, func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				out := scene{tier: tier, argv: []string{c, how, fmt.Sprint(n)}}.run(t)
				wantExit(t, out, Exit{})
				if want := fmt.Sprintf("%d made, interrupted by many\n", n); out.Stdout != want {
					t.Errorf("stdout: got %q, want %q (%s)", out.Stdout, want, out.Stderr)
				}
				var want []string
				for i := range n {
					want = append(want, fmt.Sprintf("create openat f%d", i))
				}
				wantEvents(t, out.Events, want...)
			})
		})
	}
}

// Go preempts its threads with SIGURG.
func TestPreemption(t *testing.T) {
	n := 5000
	if testing.Short() {
		n = 500
	}
	eachTier(t, func(t *testing.T, tier Tier) {
		out := scene{tier: tier, argv: actor("many", fmt.Sprint(n))}.run(t)
		wantExit(t, out, Exit{})
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("create openat f%d", i))
		}
		wantEvents(t, out.Events, want...)
	})
}

// Each thread may have a working directory of its own: clone(2), CLONE_FS.
func TestThreadsWithOwnDirectories(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		dir := realDir(t)
		var want []string
		for i := range 6 {
			sub := fmt.Sprintf("t%d", i)
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
				t.Fatal(err)
			}
			for j := range 100 {
				want = append(want, fmt.Sprintf("create openat %s/f%d", sub, j))
			}
		}
		out := scene{tier: tier, dir: dir, argv: actor("own-dirs", "6", "100")}.run(t)
		wantExit(t, out, Exit{})
		wantEvents(t, sorted(out.Events), sorted(want)...)
	})
}

// A process that is not dumpable closes its memory and its /proc to others of
// the same user (PR_SET_DUMPABLE, proc(5)). Where gate cannot look, that is a
// gap, whatever the call.
func TestUndumpable(t *testing.T) {
	c := cActor(t)
	eachTier(t, func(t *testing.T, tier Tier) {
		out := scene{tier: tier, argv: []string{c, "undumpable"}}.run(t)
		wantExit(t, out, Exit{})
		want := []string{"create openat by-path", "meta fchmod ."}
		if os.Geteuid() != 0 {
			want[1] = "gap unnamed-path" // the directory /proc/PID/fd is root's
			if tier == Notify {
				want[0] = "gap unreadable-arguments"
			}
		}
		wantEvents(t, out.Events, want...)
	})
}

// A program that its user may run and not read has its memory closed to that
// user even as root of a user namespace: execve(2), would_dump of fs/exec.c.
func TestUnreadableProgram(t *testing.T) {
	if os.Geteuid() == 0 {
		return // root may read everything
	}
	c := filepath.Join(filepath.Dir(foreign(t)), "closed-actor")
	if unix.Access(c, unix.R_OK) == nil {
		t.Fatalf("%s is readable", c)
	}
	eachTier(t, func(t *testing.T, tier Tier) {
		out := scene{tier: tier, argv: []string{c, "create", "f"}}.run(t)
		wantExit(t, out, Exit{})
		wantEvents(t, out.Events, "gap unreadable-arguments")
	})
}

// Paths inside a chroot are told as the rest of the tree sees them.
func TestChroot(t *testing.T) {
	dir := realDir(t)
	r := row{files: []string{"r/", "r/d/", "r/l -> /d"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	s := scene{tier: Namespace, dir: dir, argv: actor("chroot")}
	if os.Geteuid() != 0 {
		s.argv = actor("namespaces", "chroot")
	}
	out := s.run(t)
	wantExit(t, out, Exit{})
	wantEvents(t, out.Events,
		"create openat before", "create openat outside", "create openat r/f", "create openat r/g", "create openat r/d/h",
		"create mkdirat r/i", "rename renameat2 r/f -> r/d/f")
}

// A magic link is told by what it is, not by the name of the mount that shows
// it, and a process number by the PID namespace that the mount is for.
func TestPrivateProc(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		for _, namespaces := range []string{"namespaces", "pids"} {
			t.Run(namespaces, func(t *testing.T) {
				dir := realDir(t)
				r := row{files: []string{"d/", "bound/", "new/"}}
				if err := r.furnish(dir); err != nil {
					t.Fatal(err)
				}
				if err := in(dir, bindUnix("s"))(); err != nil {
					t.Fatal(err)
				}
				out := scene{tier: tier, dir: dir, argv: actor(namespaces, "proc")}.run(t)
				want := []string{"create openat a", "create openat b", "create openat d/a", "create openat d/b",
					`connect unix "s" (a socket)`, `connect unix "s" (a socket)`,
					"create openat c", "create openat d/c", "create openat d/d"}
				if namespaces == "pids" { // procfs can be mounted only for PIDs of one's own
					wantExit(t, out, Exit{})
					want = append(append([]string{"gap cpu-lost"}, want...), "create openat e", "create openat f", "create openat d/e", "create openat d/f")
				}
				wantEvents(t, out.Events, want...)
			})
		}
	})
}

// A call that has no right to a namespace makes no gap.
func TestUnshareWithoutRight(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) {
		out := scene{tier: tier, argv: actor("unshare")}.run(t)
		wantExit(t, out, Exit{})
		wantEvents(t, out.Events)
	})
}

// A mount that is attached nowhere has no name, whatever the kernel's text of
// it looks like.
func TestDetachedMount(t *testing.T) {
	dir := realDir(t)
	r := row{files: []string{"o/", "o/tmp/"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	out := scene{tier: Namespace, dir: dir, argv: actor("namespaces", "detached")}.run(t)
	wantExit(t, out, Exit{})
	wantEvents(t, out.Events, "gap foreign-mount", "gap foreign-mount", "gap foreign-mount", "create openat after")
}

// A tree that mounts: a tmpfs of its own is memory, and what reaches a file by
// another name is told by the name that all others know.
func TestPrivateMounts(t *testing.T) {
	dir := realDir(t)
	// In the tree's own view t/m is a link, which is no name of what is behind it.
	r := row{files: []string{"t/", "t/m -> ../d", "d/", "m/", "secret", "seen"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	out := scene{tier: Namespace, dir: dir, argv: actor("namespaces", "mounts")}.run(t)
	wantExit(t, out, Exit{})
	wantEvents(t, out.Events, "create openat d/f", "modify openat secret", "create openat d/g", "create openat after")
	if _, err := os.Stat(dir + "/d/f"); err != nil {
		t.Errorf("the bind mount did not reach the file: %v", err)
	}
}

// What a nested PID namespace holds when its init ends is reaped by the kernel:
// only a cgroup counts it.
func TestNestedPIDs(t *testing.T) {
	user, pids := strconv.Itoa(unix.CLONE_NEWUSER), strconv.Itoa(unix.CLONE_NEWPID)
	both := strconv.Itoa(unix.CLONE_NEWUSER | unix.CLONE_NEWPID)
	gap := []string{"gap cpu-lost"}
	for _, tt := range []struct {
		name string
		argv []string
		code int
		want []string
	}{
		{"clone", actor("clone", both, "nothing"), 0, gap},
		{"one after the other", actor("clone", user, "clone", pids, "nothing"), 0, gap},
		{"unshare", []string{need.Program(t, "unshare"), "-Urpf", "true"}, 0, gap},
		{"user namespace alone", actor("clone", user, "nothing"), 0, nil},
		{"without the right to", actor("clone", pids, "nothing"), 1, nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				out := scene{tier: tier, argv: tt.argv}.run(t)
				wantExit(t, out, Exit{Code: tt.code})
				wantEvents(t, out.Events, tt.want...)
			})
		})
	}
}

// An overlay writes to its upper directory without any call that names it.
func TestPrivateOverlay(t *testing.T) {
	dir := realDir(t)
	r := row{files: []string{"d/", "up/", "work/", "m/"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	out := scene{tier: Namespace, dir: dir, argv: actor("namespaces", "overlay")}.run(t)
	need.That(t, out.Exit.Code == 0, "an overlay in a user namespace", strings.TrimSpace(out.Stderr))
	wantEvents(t, out.Events, "gap foreign-mount")
	if _, err := os.Stat(dir + "/up/f"); err != nil {
		t.Errorf("the overlay did not reach its upper directory: %v", err)
	}
}

// Once a process has changed its user, its calls are judged by that user's rights.
func TestSetuid(t *testing.T) {
	if os.Geteuid() != 0 {
		return // an ordinary user can become nobody else
	}
	eachTier(t, func(t *testing.T, tier Tier) {
		dir := realDir(t)
		if err := os.Mkdir(dir+"/open", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir + "/open", filepath.Dir(dir)} {
			mode := os.FileMode(0o755)
			if d == dir+"/open" {
				mode = 0o777
			}
			if err := os.Chmod(d, mode); err != nil {
				t.Fatal(err)
			}
		}
		out := scene{tier: tier, dir: dir, argv: actor("setuid")}.run(t)
		wantExit(t, out, Exit{})
		wantEvents(t, out.Events, "create openat as-root", "create openat open/as-user")
	})
}

// Under sudo the command runs as the user who called it.
func TestSudoUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can give a user
	}
	eachTier(t, func(t *testing.T, tier Tier) {
		dir := realDir(t)
		if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"listed", "closed"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Setxattr(dir+"/listed", aclAccess, aclOf(testUID), 0); err != nil {
			t.Fatal(err)
		}
		out := scene{tier: tier, dir: dir, user: &User{UID: testUID, GID: testUID, Groups: []uint32{testUID}},
			argv: []string{"/bin/sh", "-c", "id -u; id -g; id -G; : >f; : >listed; (: >closed) 2>/dev/null; (: >/etc/gate-test) 2>/dev/null; grep -E 'CapEff|NoNewPrivs' /proc/self/status"}}.run(t)
		if want := "31337\n31337\n31337\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"; out.Stdout != want {
			t.Errorf("stdout: got %q, want %q\n%s", out.Stdout, want, out.Stderr)
		}
		wantEvents(t, out.Events, "create openat f", "modify openat listed")
	})
}
