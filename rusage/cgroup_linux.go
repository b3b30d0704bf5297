package rusage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a cgroup of version 2 that a run has to itself. Its counters hold
// every process that was ever started in it, whoever reaps it, and need no
// controller (Documentation/admin-guide/cgroup-v2.rst: cpu.stat "exists
// whether the controller is enabled or not").
type Cgroup struct {
	dir *os.File
}

// cgroupPrefix begins the name of a run's cgroup.
const cgroupPrefix = "gate-run-"

// errSwept says that a cgroup was taken for a leftover before it was locked.
var errSwept = errors.New("the cgroup was removed by another gate")

// NewCgroup makes a cgroup below the caller's own, or says why there can be
// none: no version 2 hierarchy, or one that the caller may not write to, as is
// the rule for an ordinary user outside a delegated subtree.
func NewCgroup() (*Cgroup, error) {
	parent, err := ownCgroup()
	if err != nil {
		return nil, err
	}
	sweepCgroups(parent)
	for range 4 {
		var c *Cgroup
		if c, err = newCgroup(parent); !errors.Is(err, errSwept) {
			return c, err
		}
	}
	return nil, err
}

func newCgroup(parent string) (*Cgroup, error) {
	path, err := os.MkdirTemp(parent, cgroupPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	c, err := openCgroup(path)
	if err == nil {
		return c, nil
	}
	rmErr := os.Remove(path)
	if errors.Is(rmErr, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errSwept
	}
	return nil, errors.Join(err, rmErr)
}

// maxCgroups bounds the search for leftovers.
const maxCgroups = 1000

// sweepCgroups removes what gates that were killed left: cgroups that no gate
// holds a lock of. One that still has processes cannot be removed.
func sweepCgroups(parent string) {
	d, err := os.Open(parent)
	if err != nil {
		return // then none can be made either, which tells why
	}
	names, _ := d.Readdirnames(maxCgroups)
	_ = d.Close() // read-only
	for _, name := range names {
		path := filepath.Join(parent, name)
		if !strings.HasPrefix(name, cgroupPrefix) {
			continue
		}
		if dir, err := lockCgroup(path); err == nil {
			_, _ = os.Remove(path), dir.Close() // EBUSY: it is in use; else the next one tries
		}
	}
}

// lockCgroup opens a cgroup that nobody else holds. The lock ends with the
// process (flock(2)).
func lockCgroup(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock cgroup %s: %w", path, err), dir.Close())
	}
	return dir, nil
}

func openCgroup(path string) (*Cgroup, error) {
	dir, err := lockCgroup(path)
	if err != nil {
		return nil, err
	}
	// Only now: it may have been removed before it was locked.
	kind, err := os.ReadFile(filepath.Join(path, "cgroup.type"))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if k := strings.TrimSpace(string(kind)); k != "domain" {
		err := fmt.Errorf("cgroup %s: its type is %q, want \"domain\": its parent is threaded and takes no processes below it", path, k)
		return nil, errors.Join(err, dir.Close())
	}
	return &Cgroup{dir}, nil
}

// FD is the descriptor of the cgroup's directory, for
// syscall.SysProcAttr.CgroupFD: the process is then born in the cgroup and
// nothing of it is missed. It stays the Cgroup's own.
func (c *Cgroup) FD() int { return int(c.dir.Fd()) }

// Usage reads the counters. The kernel splits the precise total into user and
// system by the ticks of the cgroup as a whole.
func (c *Cgroup) Usage() (Usage, error) {
	path := filepath.Join(c.dir.Name(), "cpu.stat")
	text, err := os.ReadFile(path)
	if err != nil {
		return Usage{}, err
	}
	u, err := parseCPUStat(string(text))
	if err != nil {
		return Usage{}, fmt.Errorf("%s: %w", path, err)
	}
	return u, nil
}

// Close removes the cgroup. It fails while a process lives in it; zombies do
// not count.
func (c *Cgroup) Close() error {
	return errors.Join(c.dir.Close(), os.Remove(c.dir.Name()))
}

func parseCPUStat(text string) (Usage, error) {
	var u Usage
	found := 0
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var into *time.Duration
		switch key {
		case "user_usec":
			into = &u.User
		case "system_usec":
			into = &u.System
		default:
			continue
		}
		const most = uint64(1<<63-1) / uint64(time.Microsecond)
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n > most {
			return Usage{}, fmt.Errorf("parse line %q: want microseconds up to %d", line, most)
		}
		*into = time.Duration(n) * time.Microsecond
		found++
	}
	if found != 2 {
		return Usage{}, fmt.Errorf("parse %q: want one line user_usec and one line system_usec", text)
	}
	return u, nil
}

// ownCgroup finds the directory of the caller's own cgroup, whether version 2
// is mounted alone or beside version 1 (/sys/fs/cgroup/unified).
func ownCgroup() (string, error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return findCgroup(string(groups), string(mounts))
}

// findCgroup takes the texts of cgroup(7), /proc/PID/cgroup, and
// proc_pid_mountinfo(5).
func findCgroup(groups, mounts string) (string, error) {
	own, ok := "", false
	for line := range strings.Lines(groups) {
		if path, found := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			own, ok = path, true
		}
	}
	if !ok {
		return "", errors.New("/proc/self/cgroup: no line 0::, this kernel has no cgroups of version 2")
	}
	for line := range strings.Lines(mounts) {
		// 36 35 98:0 ROOT MOUNTPOINT OPTIONS [TAG...] - TYPE SOURCE SUPEROPTIONS
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, point := unescape(fields[3]), unescape(fields[4])
		below, err := filepath.Rel(root, own)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			continue // another part of the hierarchy is mounted there
		}
		return filepath.Join(point, below), nil
	}
	return "", fmt.Errorf("no mount of cgroup version 2 shows the cgroup %s", own)
}

// unescape undoes the octal escapes of mountinfo: blank, tab, newline and
// backslash.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
