package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/org/gate/ledger"
	"github.com/org/gate/runner"
)

// observe makes the run that cfg describes: it hands on the signals that ask
// gate to stop, shows the status line, and writes the trace if there is to be
// one.
func (a *app) observe(cfg runner.Config, quiet bool, trace string) (*ledger.Record, error) {
	var spool *traceFile
	if trace != "" { // before signals are held: a pipe waits for its reader
		var err error
		if spool, err = newTraceFile(trace); err != nil {
			return nil, err
		}
		cfg.Trace = spool.buf
	}
	signals, stop := stopRequests()
	defer stop()
	cfg.Signals = signals

	line := &statusLine{w: a.stderr, size: func() (int, int, bool) { return terminalSize(a.stderr) }}
	if a.showsStatus(quiet) {
		cfg.Status = line.update
	}
	record, err := a.execute(context.Background(), cfg)
	line.close()
	if spool != nil {
		err = errors.Join(err, spool.finish())
	}
	if err != nil {
		return nil, err
	}
	return record, nil
}

// stopRequests gives the signals that ask gate to end the run, until stop is
// called. SIGHUP and SIGINT stay ignored if the parent had them so (nohup, a
// script's background job); of other signals Go does not tell. Ctrl-Z counts twice, which ends everything at once: the terminal
// has stopped the tree already, and a stopped process takes no other signal
// than SIGKILL.
func stopRequests() (requests <-chan os.Signal, stop func()) {
	signals, all := make(chan os.Signal, 8), make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case s := <-signals:
				all <- s
				if s == syscall.SIGTSTP {
					all <- s
				}
			}
		}
	}()
	return all, func() { signal.Stop(signals); close(ended) }
}

// showsStatus says whether a live status line is wanted; whether it can be
// drawn is asked each time.
func (a *app) showsStatus(quiet bool) bool {
	term := a.getenv("TERM")
	return !quiet && !a.inCI() && term != "" && term != "dumb" && isTerminal(a.stderr)
}

// traceFile is the file of --trace. It may lie in the repository, where a
// write during the run would be taken for one of the suite's: so events are
// kept in a file without a name until the tree is dead.
type traceFile struct {
	target, spool *os.File
	buf           *bufio.Writer
}

// newTraceFile opens both files; the target keeps what it holds until finish.
func newTraceFile(path string) (*traceFile, error) {
	target, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if target, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			err = ledger.Own(target, filepath.Dir(path)+"/.") // it is new: it belongs to whom the directory does
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--trace: %w", err)
	}
	spool, err := os.CreateTemp("", "gate-trace-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--trace: %w", err), target.Close())
	}
	if err := os.Remove(spool.Name()); err != nil {
		return nil, errors.Join(fmt.Errorf("--trace: %w", err), spool.Close(), target.Close())
	}
	return &traceFile{target, spool, bufio.NewWriterSize(spool, 1<<16)}, nil
}

// finish copies the events to the target and closes both files.
func (t *traceFile) finish() error {
	err := t.buf.Flush()
	if err == nil {
		_, err = t.spool.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = t.truncate()
	}
	if err == nil {
		_, err = io.Copy(t.target, t.spool)
	}
	if err = errors.Join(err, t.target.Close(), t.spool.Close()); err != nil {
		return fmt.Errorf("--trace %s: %w", t.target.Name(), err)
	}
	return nil
}

// truncate empties the target, if it is a file and not a pipe or a terminal.
func (t *traceFile) truncate() error {
	st, err := t.target.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err
	}
	return t.target.Truncate(0)
}
