package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Which of several sockets the kernel would choose.
func TestBest(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	line := func(local, inode string) string {
		return "   0: " + local + " 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 " + inode + " 1 0000000000000000 100 0 0 10 0\n"
	}
	const one, two, any4 = "0100007F:1538", "0200007F:1538", "00000000:1538" // little-endian
	const one6, any6, mapped = "00000000000000000000000001000000:1538", "00000000000000000000000000000000:1538", "0000000000000000FFFF00000100007F:1538"
	for _, tt := range []struct {
		name, to  string
		four, six []string // sockets; the inode is the position, from 1, IPv6 from 11
		want      []string
	}{
		{"the address itself", "127.0.0.1:5432", []string{two, one}, nil, []string{"2"}},
		{"another address", "127.0.0.1:5432", []string{two}, []string{one6}, nil},
		{"another port", "127.0.0.1:5433", []string{one, any4}, []string{any6}, nil},
		{"any address", "127.0.0.1:5432", []string{two, any4}, nil, []string{"2"}},
		{"the address before any", "127.0.0.1:5432", []string{any4, one}, []string{any6}, []string{"2"}},
		{"dual stack", "127.0.0.1:5432", []string{two}, []string{any6}, []string{"11"}},
		{"IPv4 before dual stack", "127.0.0.1:5432", []string{any4}, []string{any6}, []string{"1"}},
		{"mapped", "127.0.0.1:5432", []string{any4}, []string{mapped}, []string{"11"}},
		{"to a mapped address", "[::ffff:127.0.0.1]:5432", []string{one}, nil, []string{"1"}},
		{"shared", "127.0.0.1:5432", []string{one, one}, nil, []string{"1", "2"}},
		{"IPv6", "[::1]:5432", []string{one, any4}, []string{any6, one6}, []string{"12"}},
		{"IPv6, any address", "[::1]:5432", []string{any4}, []string{any6}, []string{"11"}},
		{"IPv6 is not reached by IPv4", "[::1]:5432", []string{any4}, nil, nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			four, six := head, head
			for i, s := range tt.four {
				four += line(s, string(rune('1'+i)))
			}
			for i, s := range tt.six {
				six += line(s, "1"+string(rune('1'+i)))
			}
			entries := append(socketEntries(four, false), socketEntries(six, true)...)
			if want := len(tt.four) + len(tt.six); len(entries) != want {
				t.Fatalf("got %d entries, want %d", len(entries), want)
			}
			var got []string
			for _, inode := range slices.Sorted(maps.Keys(best(entries, netip.MustParseAddrPort(tt.to)))) {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(inode, "socket:["), "]"))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A socket that was closed while a connection of it waits has no holder.
func TestSocketEntriesWithoutInode(t *testing.T) {
	if got := socketEntries("   0: 0100007F:1538 0100007F:9999 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000000000000000\n", false); got != nil {
		t.Errorf("got %+v", got)
	}
}

// The socket that an address leads to is the tree's or somebody else's,
// whatever else has the same port, and whichever thread holds it.
func TestHolder(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs := l.Addr().String()
	ours := strings.Replace(theirs, "127.0.0.1", "127.0.0.2", 1)
	serve := []string{"serve", ours, theirs, ours}
	for _, tt := range []struct {
		name string
		argv []string
	}{
		{"by the process", actor(serve...)},
		{"by a thread with descriptors of its own", actor(append([]string{"thread"}, serve...)...)},
		{"by a thread whose process's first has ended", actor(append([]string{"orphan-thread"}, serve...)...)},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				var box *Box
				var held []string
				rec := &recorder{answer: func(c *NetCall) Answer {
					tree, foreign := box.Holder("tcp", c.Addr)
					held = append(held, fmt.Sprint(c.Addr == netip.MustParseAddrPort(ours), tree, foreign))
					if !tree {
						return Answer{Errno: eConnRefused}
					}
					return Answer{}
				}}
				var stdout func() string
				box, stdout = openBox(t, Spec{Tier: tier, Argv: tt.argv, Path: tt.argv[0]})
				defer box.Close()
				exit, err := box.Run(t.Context(), rec)
				if err != nil || exit.Code != 0 {
					t.Fatalf("exit %d, %v", exit.Code, err)
				}
				if got, want := stdout(), "connection refused\n<nil>\n"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				theirs := fmt.Sprint(false, false, tier == Notify) // in the namespace nobody is there
				wantEvents(t, held, theirs, fmt.Sprint(true, true, false))
				wantEvents(t, rec.list(), "bind stream/6 "+ours, "connect stream/6 "+l.Addr().String(), "connect stream/6 "+ours)
			})
		})
	}
}

// actThread does another action in a thread with descriptors of its own.
func actThread(args []string) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is no longer like the others
		if err := unix.Unshare(unix.CLONE_FILES); err != nil {
			failed <- err
			return
		}
		failed <- act(args[0], args[1:])
	}()
	return <-failed
}

// An initialiser runs on the process's first thread, and main then stays there.
func init() {
	if slices.Contains(os.Args, "orphan-thread") {
		runtime.LockOSThread()
	}
}

// actOrphanThread does another action when the process's first thread has ended.
func actOrphanThread(args []string) error {
	if unix.Gettid() != os.Getpid() {
		return errors.New("main does not run on the first thread")
	}
	go func() {
		runtime.LockOSThread()
		for { // until it is a zombie
			if s, err := readStat("/proc", os.Getpid()); err == nil && s.state == 'Z' {
				break
			}
			runtime.Gosched()
		}
		os.Exit(exitCode(act(args[0], args[1:])))
	}()
	_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return errno
}

// actServe listens at one address and connects to others, all by raw calls on
// this thread; it prints what came of each.
func actServe(args []string) error {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Bind(l, sockaddr(netip.MustParseAddrPort(args[0]))), unix.Listen(l, 1))
	for _, to := range args[1:] {
		fmt.Println(connects(unix.AF_INET, unix.SOCK_STREAM, in4(to))())
	}
	return errors.Join(err, unix.Close(l))
}
