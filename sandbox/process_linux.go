package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// stat is what gate needs of proc_pid_stat(5).
type stat struct {
	comm  string
	state byte
	ppid  int
}

// readStat reads PID/stat below a /proc. The name in it may hold spaces,
// parentheses and newlines: it ends at the last ')'.
func readStat(proc string, pid int) (stat, error) {
	data, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("parse %s/%d/stat: no program name in %q", proc, pid, data)
	}
	rest := strings.Fields(string(data[end+1:]))
	if len(rest) < 2 {
		return stat{}, fmt.Errorf("parse %s/%d/stat: it ends after the name: %q", proc, pid, data)
	}
	ppid, err := strconv.Atoi(rest[1])
	if err != nil {
		return stat{}, fmt.Errorf("parse %s/%d/stat: parent: %w", proc, pid, err)
	}
	return stat{comm: string(data[open+1 : end]), state: rest[0][0], ppid: ppid}, nil
}

// Bounds of a command line in a record.
const (
	maxArgs    = 32
	maxArgSize = 200
)

// commandLine is argv of a process, shortened; nil for a zombie.
func commandLine(pid int) []string {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(data) == 0 {
		return nil
	}
	argv := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	if len(argv) > maxArgs {
		argv = append(argv[:maxArgs:maxArgs], fmt.Sprintf("... %d more", len(argv)-maxArgs))
	}
	for i, a := range argv {
		if len(a) > maxArgSize {
			argv[i] = a[:maxArgSize] + "..."
		}
	}
	return argv
}

// status is what gate needs of proc_pid_status(5).
type status struct {
	tgid, nstgid, nspid int
	filters             int // of seccomp(2)
	zombie              bool
	creds               creds
}

// readStatus reads the status of a task. A field that is missing is an error:
// a guess at credentials would decide what counts as a write.
func readStatus(tid int) (status, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return status{}, err
	}
	s := status{tgid: -1}
	field := func(line, key string, i int) (int, bool) {
		rest, ok := strings.CutPrefix(line, key+":")
		if !ok {
			return 0, false
		}
		f := strings.Fields(rest)
		if i < 0 {
			i += len(f)
		}
		if i < 0 || i >= len(f) {
			return 0, false
		}
		n, err := strconv.Atoi(f[i])
		return n, err == nil
	}
	for line := range strings.Lines(string(data)) {
		if n, ok := field(line, "Tgid", 0); ok {
			s.tgid = n
		}
		if n, ok := field(line, "Seccomp_filters", 0); ok {
			s.filters = n
		}
		if strings.HasPrefix(line, "State:\tZ") {
			s.zombie = true
		}
		if n, ok := field(line, "NStgid", -1); ok {
			s.nstgid = n
		}
		if n, ok := field(line, "NSpid", -1); ok {
			s.nspid = n
		}
		if n, ok := field(line, "Uid", 3); ok { // the file system uid
			s.creds.uid = uint32(n)
		}
		if n, ok := field(line, "Gid", 3); ok {
			s.creds.gid = uint32(n)
		}
		if rest, ok := strings.CutPrefix(line, "Groups:"); ok {
			for _, g := range strings.Fields(rest) {
				n, err := strconv.ParseUint(g, 10, 32)
				if err != nil {
					return status{}, fmt.Errorf("parse /proc/%d/status: groups: %w", tid, err)
				}
				s.creds.groups = append(s.creds.groups, uint32(n))
			}
		}
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			if err != nil {
				return status{}, fmt.Errorf("parse /proc/%d/status: capabilities: %w", tid, err)
			}
			s.creds.caps = caps
		}
	}
	if s.tgid < 0 {
		return status{}, fmt.Errorf("parse /proc/%d/status: no Tgid", tid)
	}
	return s, nil
}

// task is the maker of the call that is being handled.
type task struct {
	v    *view
	tid  int
	tgid int // 0: not yet read
	// cached: the caller is the supervisor, to which the view's cache belongs.
	cached bool
	dir    string // the working directory, once it has been read
	actor  *Actor // who it is, likewise
}

var _ Caller = (*task)(nil)

// PID is the thread group; the thread itself where it cannot be read.
func (t *task) PID() int {
	if t.tgid == 0 {
		t.tgid = t.tid
		if s, err := readStatus(t.tid); err == nil {
			t.tgid = s.tgid
		}
	}
	return t.tgid
}

// Program is "" if the process has died meanwhile.
func (t *task) Program() string {
	s, err := readStat("/proc", t.PID())
	if err != nil {
		return ""
	}
	return s.comm
}

// Actor is remembered: one that makes ten thousand files is read once, and
// again when its command line is another or it stands in another directory.
// Once its call has gone on, it may be dead: then it is who it was last known
// to be.
func (t *task) Actor() *Actor {
	if t.actor == nil {
		t.remember(true)
	}
	if t.actor == nil {
		t.actor = t.read()
	}
	return t.actor
}

// remember looks who the task is, while its call is held. sure is false where
// one that is known need not be looked at again.
func (t *task) remember(sure bool) {
	if !t.cached {
		return
	}
	k := t.v.known.of(t.tid)
	if k == nil {
		return
	}
	if k.actor != nil && !sure {
		return
	}
	var cmdline [maxCompared]byte
	n, err := unix.Pread(k.cmdline, cmdline[:], 0)
	if err != nil {
		t.actor = k.actor
		t.v.known.forget(t.tid)
		return
	}
	cwd, err := t.cwd()
	if k.actor == nil || err != nil || string(cmdline[:n]) != k.argv || cwd != k.cwd {
		k.argv, k.cwd, k.actor = string(cmdline[:n]), cwd, t.read()
	}
	t.actor = k.actor
}

// maxCompared is how much of a command line tells one program from the next
// after an execve. Neither the name nor the file in /proc/PID/exe does: an
// interpreter that runs another script has the same.
const maxCompared = 4096

// read walks up the parents to init. An orphan's chain is short: its parents are gone.
func (t *task) read() *Actor {
	a := &Actor{PID: t.PID(), Argv: commandLine(t.PID())}
	for pid := a.PID; pid > 1 && pid != t.v.init && len(a.Chain) < 64; {
		s, err := readStat("/proc", pid)
		if err != nil {
			break
		}
		a.Chain = append(a.Chain, s.comm)
		pid = s.ppid
	}
	slices.Reverse(a.Chain)
	if dir, err := os.Readlink(t.link("cwd")); err == nil {
		a.Dir = path.Clean(dir)
	}
	return a
}

// cwd is the text of the task's working directory.
func (t *task) cwd() (string, error) {
	if t.dir != "" {
		return t.dir, nil
	}
	if t.cached {
		for range 2 { // the second time if the number now belongs to another
			k := t.v.known.of(t.tid)
			if k == nil {
				break
			}
			if text, err := readlink(k.dir, "cwd"); err == nil {
				t.dir = text
				return text, nil
			}
			t.v.known.forget(t.tid)
		}
	}
	return readlink(unix.AT_FDCWD, t.link("cwd"))
}

// link is the path of a magic link of the task: cwd, root, fd/N.
func (t *task) link(name string) string {
	return "/proc/" + strconv.Itoa(t.tid) + "/" + name
}

// known are the tasks that made calls of late, by their number. A descriptor
// of /proc/TID stays with that task: once it has died, every use fails, even
// if another one has the number.
type known map[int]*acquaintance

type acquaintance struct {
	dir, cmdline int // descriptors of /proc/TID and of the file in it
	argv, cwd    string
	actor        *Actor
}

// maxKnown bounds the descriptors: two for each task.
const maxKnown = 128

// of opens what is not yet known; nil if the task is gone.
func (k known) of(tid int) *acquaintance {
	if a := k[tid]; a != nil {
		return a
	}
	dir, err := unix.Open("/proc/"+strconv.Itoa(tid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	// Each read of it asks for the memory of that moment (fs/proc/base.c).
	cmdline, err := unix.Openat(dir, "cmdline", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(dir) // read-only
		return nil
	}
	if len(k) >= maxKnown {
		k.close()
	}
	a := &acquaintance{dir: dir, cmdline: cmdline}
	k[tid] = a
	return a
}

func (k known) forget(tid int) {
	if a := k[tid]; a != nil {
		_, _ = unix.Close(a.dir), unix.Close(a.cmdline) // read-only
		delete(k, tid)
	}
}

func (k known) close() {
	for tid := range k {
		k.forget(tid)
	}
}

// creds decide what a task may do to a file.
type creds struct {
	uid, gid uint32
	groups   []uint32
	caps     uint64 // effective
	// ids are those that caps are good for: of a user namespace below gate's own.
	// nil: any.
	ids *idMaps
}

// equal tells whether two tasks may do the same.
func (c *creds) equal(d *creds) bool {
	return c.uid == d.uid && c.gid == d.gid && c.caps == d.caps && c.ids == nil && d.ids == nil && slices.Equal(c.groups, d.groups)
}

func (c *creds) has(capability uint) bool { return c.caps&(1<<capability) != 0 }

// over is the kernel's capable_wrt_inode_uidgid: a user namespace has a say
// over the files of those ids alone that it maps.
func (c *creds) over(capability uint, st *unix.Stat_t) bool {
	return c.has(capability) && (c.ids == nil || c.ids.uid.has(st.Uid) && c.ids.gid.has(st.Gid))
}

// inGroup follows the kernel's in_group_p.
func (c *creds) inGroup(gid uint32) bool {
	if c.gid == gid {
		return true
	}
	for _, g := range c.groups {
		if g == gid {
			return true
		}
	}
	return false
}

// Permission bits as path_resolution(7) has them.
const (
	mayExec  = 1
	mayWrite = 2
)

// allows is the classic check of mode bits; access control lists are not
// looked at (a mask in the group bits stands for them).
func (c *creds) allows(st *unix.Stat_t, want uint32) bool {
	if c.over(unix.CAP_DAC_OVERRIDE, st) {
		return true
	}
	bits := st.Mode
	switch {
	case c.uid == st.Uid:
		bits >>= 6
	case c.inGroup(st.Gid):
		bits >>= 3
	}
	return bits&want == want
}

// owns is the kernel's inode_owner_or_capable.
func (c *creds) owns(st *unix.Stat_t) bool {
	return c.uid == st.Uid || c.has(unix.CAP_FOWNER) && (c.ids == nil || c.ids.uid.has(st.Uid))
}
