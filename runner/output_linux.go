package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/ledger"
	"github.com/org/gate/transcript"
)

// output reads what the command prints on its way to where gate's caller wants
// it, for what it tells of the tests. A terminal is left to the command, which
// would print otherwise into a pipe, unless the ledger wants tests counted.
type output struct {
	told    transcript.Transcript
	ends    []*os.File // of the pipes, the command's; closed once it has them
	readers sync.WaitGroup
	pipes   []*pipe

	mu   sync.Mutex
	held bool // somebody outside the tree had the command's end still open after it
	err  error
}

// pipe is one way of the output.
type pipe struct {
	from *os.File // non-blocking
	to   *os.File

	mu     sync.Mutex
	closed bool
}

func (p *pipe) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.from.Close()
}

// readUntil has a read that is under way end at a time; closed, it has ended.
func (p *pipe) readUntil(deadline time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return p.from.SetReadDeadline(deadline)
}

// heldFor is how long an end that somebody outside the tree holds is read on.
const heldFor = time.Second

// pipeOutput puts pipes before stdout and stderr; both go through one where
// they lead to one file, so that their order stays.
func (r *run) pipeOutput() error {
	r.stdout, r.stderr = r.cfg.Stdout, r.cfg.Stderr
	out, err := r.pipeTo(r.cfg.Stdout)
	if err != nil {
		return err
	}
	r.stdout = out
	if one, err := sameFile(r.cfg.Stdout, r.cfg.Stderr); err != nil || one {
		r.stderr = out
		return err
	}
	r.stderr, err = r.pipeTo(r.cfg.Stderr)
	return err
}

// pipeTo gives what the command gets in place of a file.
func (r *run) pipeTo(to *os.File) (*os.File, error) {
	if to == nil {
		return nil, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(to.Fd()), &st); err != nil {
		return to, nil // closed: nothing is inherited
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && r.ledger.MinTests == 0 {
		return to, nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe for the command's output: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "output"), os.NewFile(uintptr(fds[1]), "output")
	r.out.ends = append(r.out.ends, theirs)
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe for the command's output: %w", err), ours.Close())
	}
	// Anew, since the runtime polls only what it finds non-blocking.
	again, err := unix.FcntlInt(ours.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, ours.Close()); err != nil {
		return nil, fmt.Errorf("make a pipe for the command's output: %w", err)
	}
	r.out.pipes = append(r.out.pipes, &pipe{from: os.NewFile(uintptr(again), "output"), to: to})
	if u := sudoUser(r.cfg.Env); u != nil { // who may want to open /dev/stdout
		if err := theirs.Chown(int(u.UID), int(u.GID)); err != nil {
			return nil, fmt.Errorf("hand the command's output to the suite's user: %w", err)
		}
	}
	return theirs, nil
}

// replaces says whether the command has a pipe in place of a file.
func (o *output) replaces(f *os.File) bool {
	return slices.ContainsFunc(o.pipes, func(p *pipe) bool { return p.to == f })
}

func sameFile(a, b *os.File) (bool, error) {
	if a == nil || b == nil {
		return false, nil
	}
	one, err := a.Stat()
	if err != nil {
		return false, nil // closed
	}
	two, err := b.Stat()
	if err != nil {
		return false, nil
	}
	return os.SameFile(one, two), nil
}

// start reads until nobody holds the other ends any more.
func (o *output) start() error {
	err := o.closeEnds()
	for _, p := range o.pipes {
		stream := o.told.Stream()
		o.readers.Add(1)
		go func() {
			defer o.readers.Done()
			err := p.copy(stream)
			stream.Close(time.Now())
			o.mu.Lock()
			defer o.mu.Unlock()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				o.held, err = true, nil
			}
			o.err = errors.Join(o.err, err)
		}()
	}
	return err
}

// copy hands on what is printed. If nobody wants it any more, the command is
// told as it would be without gate: by SIGPIPE and EPIPE.
func (p *pipe) copy(stream *transcript.Stream) error {
	buf := make([]byte, 64<<10)
	late, waited := false, false // the tree is dead; nothing came since
	for after := 0; after < maxAfter; {
		n, err := p.from.Read(buf)
		switch {
		case n > 0:
			stream.Read(buf[:n], time.Now())
			if _, err := p.to.Write(buf[:n]); err != nil {
				if err = errors.Join(ignoring(err, unix.EPIPE), p.close()); err != nil {
					return fmt.Errorf("hand on the command's output: %w", err)
				}
				return nil
			}
			if waited = false; late {
				after += n
			}
		case errors.Is(err, os.ErrDeadlineExceeded) && !waited:
			// The tree is dead. What it left in the pipe is read all the same,
			// however long a slow reader of gate's own output took.
			late, waited = true, true
			err = p.readUntil(time.Now().Add(heldFor))
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return err
		}
	}
	return os.ErrDeadlineExceeded
}

// maxAfter is what a pipe can hold at most (pipe(7), pipe-max-size): what comes
// beyond it after the end of the tree is not of the tree.
const maxAfter = 1 << 20

func ignoring(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// finish waits until all that the tree has printed is handed on. Where the run
// was interrupted it does not wait for a reader who may be gone.
func (o *output) finish(interrupted bool) error {
	done := make(chan struct{})
	go func() { o.readers.Wait(); close(done) }()
	for _, p := range o.pipes {
		if err := p.readUntil(time.Now().Add(heldFor)); err != nil {
			return err
		}
	}
	var patience <-chan time.Time
	if interrupted {
		patience = time.After(2 * heldFor)
	}
	select {
	case <-done:
	case <-patience:
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *output) closeEnds() error {
	var err error
	for _, f := range o.ends {
		err = errors.Join(err, f.Close())
	}
	o.ends = nil
	return err
}

// close lets go of what finish has not.
func (o *output) close() error {
	err := o.closeEnds()
	for _, p := range o.pipes {
		err = errors.Join(err, p.close())
	}
	return err
}

// catchBrokenPipe keeps gate alive where nobody reads its output any more: the
// runtime ends a program that writes to such a stdout, unless it asks for the
// signal (os/signal, "SIGPIPE").
func catchBrokenPipe() (undo func()) {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	return func() { signal.Stop(ignored) }
}

// outputRecord puts into the record what the output told.
func (r *run) outputRecord(rec *ledger.Record) {
	if c, ok := r.out.told.Tests(); ok {
		rec.Tests = &ledger.Tests{Passed: c.Passed, Failed: c.Failed, Skipped: c.Skipped}
	}
	for _, p := range r.out.told.Replays() {
		r.h.findings.add("cached-results", fmt.Sprintf("%s took results from a cache and executed nothing for them, which leaves no rows (%d lines like %q)%s", p.Tool, p.Count, p.Line, fresh(p.Tool)), -1)
	}
	if r.out.held {
		r.h.findings.add("held-output", "something outside the tree held the command's output open after its end", -1)
	}
	var who []*ledger.Who
	for i := range rec.NetRows {
		who = append(who, rec.NetRows[i].Who)
	}
	for i := range rec.WriteRows {
		who = append(who, rec.WriteRows[i].Who)
	}
	for i := range rec.Outside {
		who = append(who, rec.Outside[i].Who)
	}
	who = slices.DeleteFunc(who, func(w *ledger.Who) bool { return w == nil })
	moments := make([]time.Time, len(who))
	for i, w := range who {
		moments[i] = w.At
	}
	for i, told := range r.out.told.At(moments) {
		if len(told.Running) > 0 || told.Next != "" {
			who[i].Test = &ledger.TestTold{Running: told.Running, Next: told.Next}
		}
	}
}
