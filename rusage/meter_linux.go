package rusage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v3/common"
	"github.com/shirou/gopsutil/v3/process"
	"golang.org/x/sys/unix"
)

// Meter measures what wait4 does not give. The zero value is ready. Its
// methods may be called from several goroutines. All pids are those of the
// caller's PID namespace.
//
// A child is reaped by the kernel itself, and its times are added to nobody's,
// if its parent ignores SIGCHLD or has set SA_NOCLDWAIT for it (wait(2),
// NOTES). Everything that the child had waited for is lost with it.
//
// A process inherits SA_NOCLDWAIT by fork. That is not shown anywhere, so every
// process of a program in which somebody has ever asked for it, and that has
// not called sigaction itself, counts as one that has it: at worst a child is
// counted twice.
//
// Not seen: a thread that ends its process by the bare exit call. Its time is
// in the samples and in the cgroup alone.
type Meter struct {
	armed atomic.Bool // somebody in the tree has ever asked for automatic reaping

	mu      sync.Mutex
	actions map[int]action  // processes -> the last that they asked for
	noWait  map[uint64]bool // stat.stack of the programs in which SA_NOCLDWAIT was asked for
	carried map[int]Usage   // what exited children leave with a process that is to wait for them
	wards   map[int]ward    // processes that no wait4 will return
	order   []int           // the tree as it was last read, parents first
	seen    Metered
}

// action is what a process asked to be done about SIGCHLD.
type action struct {
	stack  uint64 // stat.stack then, so that an execve is noticed, which drops SA_NOCLDWAIT
	noWait bool   // SA_NOCLDWAIT
}

// ward is a process that the kernel will reap.
type ward struct {
	start   uint64 // stat.start
	parent  int    // at the last sample
	last    Usage  // at the last sample, with what it has waited for
	counted bool   // it is at its exit, and in Metered.AutoReaped
}

// SigChild takes note that the thread tid is about to set its process's
// SIGCHLD action: to SIG_IGN, with SA_NOCLDWAIT, or with neither.
func (m *Meter) SigChild(tid int, ignored, noWait bool) {
	if !ignored && !noWait && !m.armed.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.armed.Store(true)
	if err := m.sigChild(tid, noWait); err != nil {
		m.misread(err)
	}
}

func (m *Meter) sigChild(tid int, noWait bool) error {
	st, err := readStatus(tid)
	if err != nil {
		return err
	}
	s, err := readStat(st.process)
	if err != nil {
		return err
	}
	set(&m.actions, st.process, action{s.stack, noWait})
	if noWait && s.stack != 0 {
		set(&m.noWait, s.stack, true)
	}
	return nil
}

// Exit takes note that the thread tid is about to end its process. The
// process must be alive until Exit returns. While nobody in the tree has asked
// for automatic reaping, this is one atomic load.
func (m *Meter) Exit(tid int) {
	if !m.armed.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.exit(tid); err != nil {
		m.misread(err)
	}
}

// exit adds the process to AutoReaped, if nobody will be given its times, or
// else to what its parent carries: should the parent be auto-reaped one day,
// /proc gives what it has waited for in ticks only, which is nothing at all
// for a thousand children of a millisecond.
func (m *Meter) exit(tid int) error {
	st, err := readStatus(tid)
	if err != nil {
		return err
	}
	pid := st.process
	s, err := readStat(pid)
	if err != nil {
		return err
	}
	if w := m.wards[pid]; w.counted && w.start == s.start {
		return nil // a second thread of it, or the call restarted
	}
	own, err := Of(pid)
	if err != nil {
		return err
	}
	auto, err := m.unwaited(s)
	if err != nil {
		return err
	}
	all := within(own, s.own).plus(within(m.carried[pid], s.waited))
	delete(m.carried, pid)
	if !auto {
		delete(m.wards, pid) // its parent has thought better of it, or has ended
		set(&m.carried, s.parent, m.carried[s.parent].plus(all))
		return nil
	}
	m.seen.AutoReaped = m.seen.AutoReaped.plus(all)
	set(&m.wards, pid, ward{start: s.start, counted: true})
	return nil
}

// unwaited says that the kernel will reap a process with this stat, by the
// rule of do_notify_parent in kernel/signal.c.
func (m *Meter) unwaited(s stat) (bool, error) {
	if s.exitSignal != int(unix.SIGCHLD) {
		return false, nil // clone(2): made without SIGCHLD, so the parent's action for it says nothing
	}
	st, err := readStatus(s.parent)
	if gone(err) {
		return false, nil // the process has just been handed to the init, which waits
	}
	if err != nil {
		return false, err
	}
	if st.ignored&(1<<(unix.SIGCHLD-1)) != 0 {
		return true, nil
	}
	if len(m.noWait) == 0 {
		return false, nil
	}
	parent, err := readStat(s.parent)
	if gone(err) {
		return false, nil
	}
	if last, ok := m.actions[s.parent]; ok && last.stack == parent.stack {
		return last.noWait, err
	}
	return m.noWait[parent.stack], err
}

func (m *Meter) misread(err error) {
	m.seen.Misread++
	if m.seen.Err == nil {
		m.seen.Err = err
	}
}

// Metered gives what was seen so far; after Watch has returned, all of it.
func (m *Meter) Metered() Metered {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// maxShare keeps sampling below a fiftieth of one processor: a look at a host
// with thousands of processes takes its time.
const maxShare = 50

// Watch samples the descendants of the process root until ctx is done, then
// once more, and calls report with the largest figure so far after each look.
// It waits at least every before each look, and longer where they are slow.
// root is gate's own init: it waits for orphans, so what it has waited for
// counts, and its own time does not. Cancel ctx when the tree is dead: what is
// then missing and did not pass Exit was killed.
//
// An error says that /proc could not be read and the sampling has ended; the
// budget is then enforced by nobody but RLIMIT_CPU.
func (m *Meter) Watch(ctx context.Context, root int, every time.Duration, report func(Usage)) error {
	wait := every
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-time.After(wait):
		}
		start := time.Now()
		u, err := m.sample(context.WithoutCancel(ctx), root)
		if err != nil {
			return fmt.Errorf("sample the CPU time of the tree below process %d: %w", root, err)
		}
		report(u)
		wait = max(every, time.Since(start)*maxShare)
	}
	return nil
}

// sample adds up the tree once. gopsutil lists the processes; the line of each
// is read here, since gopsutil has no times of waited-for children.
//
// A parent is read before its children: a child that ends between the two
// reads is then missing in this sample, and never counted twice.
func (m *Meter) sample(ctx context.Context, root int) (Usage, error) {
	// Whatever HOST_PROC says in gate's environment, the pids are those of /proc.
	ctx = context.WithValue(ctx, common.EnvKey, common.EnvMap{common.HostProcEnvKey: "/proc"})
	pids, err := process.PidsWithContext(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("list /proc: %w", err)
	}
	// A process that passes Exit from here on is counted as alive, even if it
	// is in AutoReaped by the time the tree has been read.
	m.mu.Lock()
	order := parentsFirst(m.order, pids)
	total := m.seen.AutoReaped
	wards := maps.Clone(m.wards)
	m.mu.Unlock()

	tree := make(map[int]stat)
	order = slices.DeleteFunc(order, func(pid int) bool {
		s, e := readStat(pid)
		if e != nil {
			if !gone(e) {
				err = errors.Join(err, e)
			}
			return true
		}
		if _, ours := tree[s.parent]; !ours && pid != root {
			return true
		}
		tree[pid] = s
		return false
	})
	if err != nil {
		return Usage{}, err
	}

	for pid, s := range tree {
		switch {
		case pid == root:
			total = total.plus(s.waited)
		case !wards[pid].counted:
			total = total.plus(s.own).plus(s.waited)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order = order
	m.seen.Sampled = m.seen.Sampled.max(total)
	return m.seen.Sampled, m.settle(root, tree)
}

// settle brings the wards up to date with a tree just read: those that live
// are remembered as they are now, those that are gone without passing Exit
// were killed.
func (m *Meter) settle(root int, tree map[int]stat) error {
	if !m.armed.Load() {
		return nil
	}
	for pid, s := range tree {
		if pid == root || m.wards[pid].counted {
			continue
		}
		auto, err := m.unwaited(s)
		if err != nil {
			return err
		}
		if auto {
			set(&m.wards, pid, ward{start: s.start, parent: s.parent, last: s.own.plus(s.waited)})
		} else {
			delete(m.wards, pid)
		}
	}
	dead := func(pid int) bool { return unix.Kill(pid, 0) == unix.ESRCH }
	for pid, w := range m.wards {
		// What the tree does not show is looked for once more: it may be
		// younger than the list of processes.
		s, ok := tree[pid]
		if !ok {
			var err error
			if s, err = readStat(pid); err != nil && !gone(err) {
				return err
			}
		}
		if s.start == w.start {
			continue
		}
		delete(m.wards, pid)
		// If the parent is gone too, the init may have waited for the child.
		// Should it not, the samples still hold its time.
		if !w.counted && !dead(w.parent) {
			m.seen.AutoReaped = m.seen.AutoReaped.plus(w.last)
			m.seen.Killed++
		}
	}
	maps.DeleteFunc(m.carried, func(pid int, _ Usage) bool { return dead(pid) })
	maps.DeleteFunc(m.actions, func(pid int, _ action) bool { return dead(pid) })
	return nil
}

// parentsFirst puts those of pids that are in old first, in the order of old,
// and the others, which are younger, after them by number: the kernel hands
// out pids in rising order, but for one step in a lap.
func parentsFirst(old []int, pids []int32) []int {
	listed := make(map[int]bool, len(pids))
	for _, pid := range pids {
		listed[int(pid)] = true
	}
	order := make([]int, 0, len(pids))
	for _, pid := range old {
		if listed[pid] {
			order = append(order, pid)
			delete(listed, pid)
		}
	}
	return append(order, slices.Sorted(maps.Keys(listed))...)
}

func readStat(pid int) (stat, error) {
	return readProc(pid, "stat", parseStat)
}

func readStatus(tid int) (status, error) {
	return readProc(tid, "status", parseStatus)
}

// readProc reads a file of /proc/PID with one read, as procfs gives one
// consistent text then, and without os.File, whose five further system calls
// would double the cost of a sample.
func readProc[T any](pid int, name string, parse func([]byte) (T, error)) (T, error) {
	var none T
	path := "/proc/" + strconv.Itoa(pid) + "/" + name
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, fmt.Errorf("open %s: %w", path, err)
	}
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	n, err := unix.Read(fd, buf[:])
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return none, fmt.Errorf("read %s: %w", path, err)
	}
	v, err := parse(buf[:n])
	if err != nil {
		return none, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// buffers are for one file of /proc each; no parser keeps a part of one.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// gone says that a process ended before or while its file was read.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// set is (*m)[k] = v for a map that may not be made yet.
func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
