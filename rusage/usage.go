// Package rusage is column 2 of a record: the user CPU seconds of a whole
// process tree.
//
// It has three witnesses that do not depend on each other. What wait4 gave to
// the init of the tree is exact for every process that somebody waited for.
// What nobody can wait for (the children of a parent that ignores SIGCHLD) is
// read from the process itself at the moment it exits, by Meter. And while the
// tree runs, Meter samples /proc, which serves to enforce the budget and to
// know of processes that were killed. Where a cgroup can be made, its counters
// are a fourth witness. Witnesses.Total says which figure decides. See
// docs/cpu.md.
//
// It starts and kills nothing, traps no call and knows no ledger file.
package rusage

import (
	"fmt"
	"math"
	"time"
)

// Usage is CPU time as the kernel splits it.
type Usage struct {
	User, System time.Duration
}

// Total is user and system time together. The kernel measures this sum to the
// nanosecond; the split into user and system rests on the timer tick.
func (u Usage) Total() time.Duration { return u.User + u.System }

func (u Usage) plus(v Usage) Usage {
	return Usage{u.User + v.User, u.System + v.System}
}

func (u Usage) minus(v Usage) Usage {
	return Usage{max(u.User-v.User, 0), max(u.System-v.System, 0)}
}

// max takes the larger of each part.
func (u Usage) max(v Usage) Usage {
	return Usage{max(u.User, v.User), max(u.System, v.System)}
}

// Budget is the limit of a tree.
type Budget struct {
	Seconds float64 // user CPU seconds, > 0
}

// Over says that user is more than the budget allows.
func (b Budget) Over(user time.Duration) bool {
	return user.Seconds() > b.Seconds
}

// Rlimit gives the soft and the hard RLIMIT_CPU, in seconds, to put on the
// command. It is a backstop for a run whose sampler has died and lies far
// above the budget on purpose: the kernel counts system time in it as well,
// and counts each process alone, so near the budget it would kill honest
// suites and still not stop a tree of short processes (setrlimit(2)). Between
// soft and hard lie five seconds of SIGXCPU; a Go program ignores it and dies
// at the hard limit.
func (b Budget) Rlimit() (soft, hard uint64) {
	const most = 1 << 40 // far below RLIM_INFINITY, beyond any run
	soft = uint64(math.Ceil(min(4*b.Seconds, most))) + 60
	return soft, soft + 5
}

// Metered is what a Meter saw of the tree.
type Metered struct {
	// AutoReaped is the CPU time of the processes that no wait4 returned, with
	// all that they had waited for: read at their exit, or, for those that a
	// signal killed, at the last sample.
	AutoReaped Usage
	// Killed counts those known by their last sample alone, so with up to
	// one sampling interval missing.
	Killed int64
	// Sampled is the most that one look at /proc added up to. It is never
	// above the truth but for rounding, and below it by what ended unseen.
	Sampled Usage
	// Misread counts exits whose process could not be read; Err is the first
	// reason. Their time may be missing in AutoReaped.
	Misread int64
	Err     error
}

// Witnesses are the figures for one run, taken after the tree is dead.
type Witnesses struct {
	// Reaped is RUSAGE_CHILDREN of the tree's init once nothing of the tree
	// is left. It includes, at any depth, all that was waited for.
	Reaped Usage
	Metered
	// Cgroup is what the run's own cgroup counted; nil where there was none.
	Cgroup *Usage
	// Init is what gate's own init used itself (RUSAGE_SELF), if it lived in
	// the cgroup. It is no part of the tree.
	Init Usage
}

// Total gives the CPU time of the tree and one sentence for each disagreement
// or uncertainty.
//
// The figure is Reaped and AutoReaped together. A witness that counted more
// than that, beyond the tolerance of 2 % or 0.05 s, has seen a process that the
// others lost, and its larger figure is taken: more cannot have been counted
// than was used. Sampled below the figure is the rule and says nothing. Cgroup
// below it says that a process has left the cgroup; the figure stands.
//
// Cgroup is compared by Total, not by User: the split into user and system is
// made for the cgroup as a whole there and for each process in wait4, and the
// two differ for processes that are shorter than a tick.
func (w Witnesses) Total() (Usage, []string) {
	var notes []string
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf(format, args...))
	}
	counted := w.Reaped.plus(w.AutoReaped)
	figure := counted
	if differs(w.Sampled.User, counted.User) && w.Sampled.User > counted.User {
		note("sampling saw %.2f s of user time, the exits account for %.2f s: the larger is taken",
			w.Sampled.User.Seconds(), counted.User.Seconds())
		figure = figure.max(w.Sampled)
	}
	if w.Cgroup != nil {
		group := w.Cgroup.minus(w.Init)
		if differs(group.Total(), counted.Total()) {
			verdict := "a process has left the cgroup"
			if group.Total() > counted.Total() {
				verdict = "the larger user time is taken"
				figure = figure.max(group)
			}
			note("the cgroup counted %.2f s of CPU time (%.2f s user), the exits account for %.2f s (%.2f s user): %s",
				group.Total().Seconds(), group.User.Seconds(), counted.Total().Seconds(), counted.User.Seconds(), verdict)
		}
	}
	if w.Killed > 0 {
		note("%d processes were killed below a parent that ignores SIGCHLD: of each, the time after the last sample is missing", w.Killed)
	}
	if w.Misread > 0 {
		note("%d exits could not be read, the first: %v", w.Misread, w.Err)
	}
	return figure, notes
}

// differs says that two measurements of one thing are further apart than 2 %
// and than 0.05 s.
func differs(a, b time.Duration) bool {
	return (a - b).Abs() > max(50*time.Millisecond, max(a, b)/50)
}
