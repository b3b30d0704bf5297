package rusage

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/org/gate/internal/need"
)

func TestCgroup(t *testing.T) {
	c, err := NewCgroup()
	if err != nil {
		need.Root(t) // an ordinary user has none outside a delegated subtree
		need.Success(t, "a cgroup of version 2", err)
	}
	toldR, toldW := pipe(t)
	resumeR, resumeW := pipe(t)
	if _, err := resumeW.Write(make([]byte, 8)); err != nil { // nothing is trapped here
		t.Fatal(err)
	}
	// What its parent ignores is in the cgroup all the same.
	cmd := exec.Command("/proc/self/exe", "ignore", "lose", "burn", "200ms")
	cmd.Env = helperEnviron()
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{toldW, resumeR}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: c.FD()}
	if err := cmd.Run(); err != nil {
		t.Fatalf("run helper in the cgroup: %v", err)
	}
	toldW.Close()
	var truth Usage
	for {
		buf := make([]byte, 4096)
		n, err := toldR.Read(buf)
		if n == 0 || err != nil {
			break
		}
		for line := range strings.Lines(string(buf[:n])) {
			if f := strings.Fields(line); f[1] == "used" {
				truth = truth.plus(parseUsage(t, f[2:]))
			}
		}
	}
	got, err := c.Usage()
	if err != nil {
		t.Fatalf("Usage: %v", err)
	}
	near(t, "user and system time", got.Total(), truth.Total())
	near(t, "user time", got.User, truth.User)
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// What a gate left that was killed goes; what a living one holds stays.
func TestLeftCgroups(t *testing.T) {
	alive, err := NewCgroup()
	if err != nil {
		need.Root(t)
		need.Success(t, "a cgroup of version 2", err)
	}
	dead, err := NewCgroup()
	if err == nil {
		err = dead.dir.Close() // as the end of a process does
	}
	if err != nil {
		t.Fatal(err)
	}
	another, err := NewCgroup()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.dir.Name()); !os.IsNotExist(err) {
		t.Errorf("the leftover %s: got %v, want that it is gone", dead.dir.Name(), err)
	}
	for _, c := range []*Cgroup{alive, another} {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func TestFindCgroup(t *testing.T) {
	const hybrid = "24 30 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
		"34 30 0:31 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
	tests := []struct {
		name, groups, mounts string
		want, err            string
	}{
		{name: "version 2 alone", groups: "0::/user.slice/a.scope\n", mounts: "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", want: "/sys/fs/cgroup/user.slice/a.scope"},
		{name: "beside version 1", groups: "4:memory:/x\n0::/\n", mounts: hybrid, want: "/sys/fs/cgroup/unified"},
		{name: "a part is mounted", groups: "0::/docker/abc/child\n", mounts: "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", want: "/sys/fs/cgroup/child"},
		{name: "another part is mounted", groups: "0::/a\n", mounts: "30 23 0:26 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", err: "shows the cgroup /a"},
		{name: "blank in the mount point", groups: "0::/\n", mounts: `30 23 0:26 / /my\040cgroup rw - cgroup2 cgroup2 rw` + "\n", want: "/my cgroup"},
		{name: "version 1 only", groups: "4:memory:/x\n", mounts: hybrid, err: "no line 0::"},
		{name: "not mounted", groups: "0::/\n", err: "no mount"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := findCgroup(tt.groups, tt.mounts)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("findCgroup = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestParseCPUStat(t *testing.T) {
	tests := []struct {
		name, in string
		want     Usage
		err      string
	}{
		{name: "usual", in: "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnice_usec 0\n", want: Usage{20_000, 10_000}},
		{name: "no user time", in: "usage_usec 30\nsystem_usec 10\n", err: "want one line user_usec"},
		{name: "not a number", in: "user_usec -1\nsystem_usec 10\n", err: "want microseconds"},
		{name: "too large", in: "user_usec 9223372036854775807\nsystem_usec 10\n", err: "want microseconds"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseCPUStat(tt.in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("parseCPUStat = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
