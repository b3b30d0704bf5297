package rusage

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// sandbox hands trapped calls to m, as the real one does.
func sandbox(m *Meter) func(root, pid int, call string) bool {
	return func(_, pid int, call string) bool {
		if call == "sigchld" {
			m.SigChild(pid, true, true)
		} else {
			m.Exit(pid)
		}
		return true
	}
}

// near compares two accountings of the same CPU time, so the load of the
// machine does not matter.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if differs(got, want) {
		t.Errorf("%s = %v, want %v within 2 %% or 0.05 s", what, got, want)
	}
}

func TestTree(t *testing.T) {
	tests := []struct {
		name string
		args []string
		auto bool // the greater part comes to nobody by wait4
	}{
		{name: "one process", args: []string{"burn", "300ms"}},
		{name: "50 children waited for", args: []string{"children", "50", "burn", "12ms"}},
		{name: "threads", args: []string{"threads", "4", "100ms"}},
		{name: "double fork", args: []string{"daemon", "daemon", "burn", "300ms"}},
		{name: "ignored", args: []string{"ignore", "lose", "burn", "300ms"}, auto: true},
		{name: "SA_NOCLDWAIT", args: []string{"nowait", "lose", "burn", "300ms"}, auto: true},
		{name: "SA_NOCLDWAIT ends with exec", args: []string{"nowait", "exec", "wait", "burn", "300ms"}},
		{name: "ignored with a child waited for", args: []string{"ignore", "lose", "wait", "burn", "300ms"}, auto: true},
		{name: "ignored with short descendants waited for", args: []string{"ignore", "lose", "wait", "children", "40", "burn", "1ms"}, auto: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m Meter
			truth, w := play(t, &m, sandbox(&m), tt.args...)
			got, notes := w.Total()
			t.Logf("truth %v, reaped %v, auto-reaped %v, sampled %v", truth, w.Reaped, w.AutoReaped, w.Sampled)
			near(t, "user time", got.User, truth.User)
			near(t, "user and system time", got.Total(), truth.Total())
			if len(notes) != 0 {
				t.Errorf("notes = %q, want none", notes)
			}
			if tt.auto && w.AutoReaped.User < truth.User*3/4 {
				t.Errorf("AutoReaped = %v of %v, want the greater part", w.AutoReaped.User, truth.User)
			}
			if !tt.auto && w.AutoReaped.User > truth.User/2 {
				t.Errorf("AutoReaped = %v of %v, want next to nothing", w.AutoReaped.User, truth.User)
			}
		})
	}
}

func TestKilledBelowAParentThatIgnores(t *testing.T) {
	var m Meter
	exits := 0
	kill := func(root, pid int, call string) bool {
		if call == "sigchld" {
			m.SigChild(pid, true, true)
			return true
		}
		if exits++; exits > 1 {
			m.Exit(pid) // the parent
		}
		if _, err := m.sample(context.Background(), root); err != nil {
			t.Fatalf("sample: %v", err)
		}
		if exits > 1 {
			return true
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatalf("kill: %v", err)
		}
		return false
	}
	truth, w := play(t, &m, kill, "ignore", "lose", "burn", "300ms")
	got, notes := w.Total()
	near(t, "user time", got.User, truth.User)
	if w.Killed != 1 || len(notes) != 1 {
		t.Errorf("Killed = %d, notes = %q, want one of each", w.Killed, notes)
	}
}

// An exit that nobody announced is in the samples alone: the figure is then
// theirs and says so.
func TestSamplesSeeWhatExitsDoNot(t *testing.T) {
	var m Meter
	look := func(root, _ int, _ string) bool {
		if _, err := m.sample(context.Background(), root); err != nil {
			t.Fatalf("sample: %v", err)
		}
		return true
	}
	truth, w := play(t, &m, look, "ignore", "lose", "burn", "300ms")
	got, notes := w.Total()
	near(t, "user time", got.User, truth.User)
	if len(notes) != 1 {
		t.Errorf("notes = %q, want one", notes)
	}
}

func TestOf(t *testing.T) {
	var m Meter
	var got Usage
	truth, _ := play(t, &m, func(_, pid int, _ string) bool {
		u, err := Of(pid)
		if err != nil {
			t.Fatalf("Of: %v", err)
		}
		got = u
		return true
	}, "burn", "250ms")
	// The helper reads its own clock a few instructions earlier.
	if d := got.Total() - truth.Total(); d < 0 || d > 10*time.Millisecond {
		t.Errorf("Of = %v, getrusage in the process %v just before", got, truth)
	}
	near(t, "user time", got.User, truth.User)
}

func TestOfNoProcess(t *testing.T) {
	_, err := Of(math.MaxInt32 >> 3)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ESRCH) {
		t.Errorf("Of a process that is not there: %v, want EINVAL or ESRCH", err)
	}
}

func TestAdjust(t *testing.T) {
	tests := []struct {
		name              string
		prof, virt, sched uint64
		want              Usage
	}{
		{name: "nothing yet", want: Usage{}},
		{name: "no tick", sched: 900_000, want: Usage{User: 900_000}},
		{name: "user ticks only", prof: 8e6, virt: 8e6, sched: 7e6, want: Usage{User: 7e6}},
		{name: "system ticks only", prof: 8e6, sched: 7e6, want: Usage{System: 7e6}},
		{name: "a quarter in the kernel", prof: 16e6, virt: 12e6, sched: 20e6, want: Usage{User: 15e6, System: 5e6}},
		{name: "clocks read at different moments", prof: 12e6, virt: 16e6, sched: 20e6, want: Usage{User: 20e6}},
		{name: "a century", prof: 3e18, virt: 15e17, sched: 3e18, want: Usage{User: 15e17, System: 15e17}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := adjust(tt.prof, tt.virt, tt.sched); got != tt.want {
				t.Errorf("adjust = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestParentsFirst(t *testing.T) {
	tests := []struct {
		name string
		old  []int
		pids []int32
		want []int
	}{
		{name: "first look", pids: []int32{1, 7, 9}, want: []int{1, 7, 9}},
		{name: "pids start again from below", old: []int{1, 900}, pids: []int32{1, 30, 900}, want: []int{1, 900, 30}},
		{name: "some have ended", old: []int{1, 900, 30, 31}, pids: []int32{1, 31, 32}, want: []int{1, 31, 32}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parentsFirst(tt.old, tt.pids)); diff != "" {
				t.Errorf("parentsFirst (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMisreadIsCounted(t *testing.T) {
	var m Meter
	m.Exit(math.MaxInt32) // not armed: not even looked at
	m.SigChild(os.Getpid(), true, false)
	m.Exit(math.MaxInt32)
	if got := m.Metered(); got.Misread != 1 || !gone(got.Err) {
		t.Errorf("Misread = %d, Err = %v, want 1 and the reason", got.Misread, got.Err)
	}
}

func BenchmarkExit(b *testing.B) {
	pid := os.Getpid()
	b.Run("nobody ignores SIGCHLD", func(b *testing.B) {
		var m Meter
		for b.Loop() {
			m.Exit(pid)
		}
	})
	b.Run("somebody does", func(b *testing.B) {
		var m Meter
		m.SigChild(pid, true, true)
		for b.Loop() {
			m.Exit(pid)
		}
		if got := m.Metered(); got.Misread != 0 {
			b.Fatal(got.Err)
		}
	})
}

func BenchmarkSample(b *testing.B) {
	var m Meter
	for b.Loop() {
		if _, err := m.sample(context.Background(), os.Getpid()); err != nil {
			b.Fatal(err)
		}
	}
}
