package rusage

import (
	"fmt"
	"math/bits"
	"time"

	"golang.org/x/sys/unix"
)

// The clocks of a process, by the names of kernel/time/posix-cpu-timers.c.
const (
	clockProf  = 0 // user and system time, counted in timer ticks
	clockVirt  = 1 // user time, counted in timer ticks
	clockSched = 2 // run time as the scheduler measured it, in ns
)

// Of gives the CPU time that the live process pid has used itself, in all its
// threads that live or have ended, as wait4 would give it for the same moment.
// pid is in the caller's PID namespace and must name a process, not a thread
// of one. It costs three system calls, opens no file and needs no privilege.
// The total is exact; the kernel also remembers the split it has once given
// and lets neither part fall, which cannot be seen from here.
//
// The error wraps ESRCH or EINVAL if there is no such process.
func Of(pid int) (Usage, error) {
	var ns [3]uint64
	for which := range ns {
		// include/linux/posix-timers_types.h: MAKE_PROCESS_CPUCLOCK.
		id := ^int32(pid)<<3 | int32(which)
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			return Usage{}, fmt.Errorf("clock_gettime of process %d, clock %d: %w", pid, which, err)
		}
		ns[which] = uint64(ts.Nano())
	}
	return adjust(ns[clockProf], ns[clockVirt], ns[clockSched]), nil
}

// adjust scales the ticks to the precise run time as cputime_adjust in
// kernel/sched/cputime.c does, so that both figures are the kernel's own:
// a process that was never caught in the kernel by a tick has spent all in
// user mode, one never caught in user mode has spent all in the kernel.
func adjust(prof, virt, sched uint64) Usage {
	stime := prof - min(virt, prof)
	switch {
	case stime == 0:
		return Usage{User: time.Duration(sched)}
	case virt == 0:
		return Usage{System: time.Duration(sched)}
	}
	hi, lo := bits.Mul64(stime, sched)
	system, _ := bits.Div64(hi, lo, stime+virt) // stime/(stime+virt) < 1: no overflow
	return Usage{User: time.Duration(sched - system), System: time.Duration(system)}
}
