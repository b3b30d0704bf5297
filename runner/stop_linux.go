package runner

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/ledger"
	"github.com/org/gate/rusage"
	"github.com/org/gate/sandbox"
)

// stopper ends a run, once for each reason, and notes why.
type stopper struct {
	box *sandbox.Box
	rec *ledger.Record

	mu       sync.Mutex
	stopping bool
	over     bool // the tree has ended
	timer    *time.Timer
}

// kill ends the tree for one of gate's own limits.
func (s *stopper) kill(why string, first syscall.Signal, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	s.rec.Killed = why
	s.end(first, grace)
}

// end sends a signal to the whole tree, and later escalates.
func (s *stopper) end(first syscall.Signal, grace time.Duration) {
	s.stopping = true
	s.send(first, true)
	s.escalate(grace)
}

// escalate sends SIGKILL after a while. A box whose init does not even pass
// that on is killed with everything in it; then there is no record.
func (s *stopper) escalate(grace time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(grace, func() {
		s.send(syscall.SIGKILL, true)
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over {
			s.timer = time.AfterFunc(stopGrace, s.box.Kill)
		}
	})
}

// send passes a signal to the command, or to the whole tree.
func (s *stopper) send(sig syscall.Signal, all bool) {
	send := s.box.Signal
	if all {
		send = s.box.SignalAll
	}
	if err := send(sig); err != nil {
		s.box.Kill()
	}
}

// interrupt passes on what gate was told. The second time, everything ends.
func (s *stopper) interrupt(sig syscall.Signal, terminal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.Interrupted != "" {
		s.end(syscall.SIGTERM, 0)
		return
	}
	s.rec.Interrupted = unix.SignalName(sig)
	if !terminal {
		s.send(sig, false)
	}
	if !s.stopping {
		s.escalate(stopGrace)
	}
}

func (s *stopper) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// mind watches the clock and the signals until the tree has ended.
func (r *run) mind(ended chan struct{}, stop *stopper, status *status) {
	defer stop.done()
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	var elapsed time.Duration
	last := time.Now()
	for {
		select {
		case <-ended:
			return
		case sig, ok := <-r.cfg.Signals:
			if ok {
				stop.interrupt(sig.(syscall.Signal), fromTerminal(sig))
			}
		case <-tick.C:
			// A stopped gate does not use up the time.
			elapsed += min(time.Since(last), 4*statusEvery)
			last = time.Now()
			if r.cfg.Timeout > 0 && elapsed > r.cfg.Timeout {
				stop.kill(ledger.KilledTimeout, syscall.SIGTERM, budgetGrace)
			}
			status.report(elapsed)
		}
	}
}

// fromTerminal: a key reaches the whole foreground group, the command
// included, and must not reach it twice.
func fromTerminal(sig os.Signal) bool {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// status is what the live line shows.
type status struct {
	run *run
	rec *ledger.Record
	mu  sync.Mutex
	cpu rusage.Usage
}

func (s *status) sample(u rusage.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cpu = u
}

func (s *status) report(elapsed time.Duration) {
	if s.run.cfg.Status == nil {
		return
	}
	s.mu.Lock()
	cpu := s.cpu.User.Seconds()
	s.mu.Unlock()
	s.run.cfg.Status(Status{
		Elapsed: elapsed, CPU: cpu, Budget: s.run.ledger.CPUBudget,
		Endpoints: s.run.h.net.Live(), Writes: s.run.h.writes.Live(),
	})
}
