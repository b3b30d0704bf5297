package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/org/gate/internal/need"
	"github.com/org/gate/ledger"
)

// needsRuns skips a test where no run can be recorded.
func needsRuns(t *testing.T) {
	t.Helper()
	ok, err := condition("records")
	if err != nil {
		t.Fatal(err)
	}
	need.That(t, ok, "a host that a run can be recorded on", "none: gate doctor says why")
}

// repository makes one with a ledger that allows nothing.
func repository(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	empty := []byte(`{"allow_net": [], "cpu_budget": 60, "write_paths": []}`)
	if err := os.WriteFile(filepath.Join(dir, ledgerName), empty, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// gate is the command, as testscript put it on PATH.
func gate(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	// What the caller of the tests ignores (nohup) gate would ignore as well; a
	// signal that is handled here has its default again after exec.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGINT, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
	cmd := exec.Command("gate", args...)
	if cmd.Err != nil {
		t.Fatal(cmd.Err)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CI=", "TERM=dumb")
	return cmd
}

// A signal ends the run: the tree is gone, the record says interrupted and is
// no match, the ledger is as it was.
func TestSignals(t *testing.T) {
	needsRuns(t)
	for _, sig := range []struct {
		name string
		sig  syscall.Signal
	}{
		{"SIGINT", syscall.SIGINT}, {"SIGTERM", syscall.SIGTERM}, {"SIGHUP", syscall.SIGHUP},
		{"SIGQUIT", syscall.SIGQUIT}, {"SIGTSTP", syscall.SIGTSTP},
	} {
		t.Run(sig.name, func(t *testing.T) {
			t.Parallel()
			dir := repository(t)
			before, err := os.ReadFile(filepath.Join(dir, ledgerName))
			if err != nil {
				t.Fatal(err)
			}
			cmd, in := hold(t, dir)
			if err := cmd.Process.Signal(sig.sig); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after the signal: got %q (%v), want the end of the tree's output", rest, err)
			}
			status, err := exitStatus(cmd.Wait())
			if err != nil {
				t.Fatal(err)
			}
			if status == 0 {
				t.Error("got status 0, want a failure")
			}
			record, err := ledger.LoadRecord(filepath.Join(dir, recordName))
			if err != nil {
				t.Fatal(err)
			}
			if record.Interrupted != sig.name {
				t.Errorf("record.Interrupted = %q, want %q", record.Interrupted, sig.name)
			}
			after, err := os.ReadFile(filepath.Join(dir, ledgerName))
			if err != nil || string(after) != string(before) {
				t.Errorf("the ledger changed: got %q (%v), want %q", after, err, before)
			}
		})
	}
}

// hold starts a suite that does not end by itself. A child of it holds stdout
// open as long as it lives.
func hold(t *testing.T, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := gate(t, dir, "run", "--", "suite", "hold", "ready")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(stdout)
	if line, err := in.ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q (%v), want ready", line, err)
	}
	return cmd, in
}

// A gate that is killed takes the tree with it, and leaves no new record.
func TestKilled(t *testing.T) {
	needsRuns(t)
	dir := repository(t)
	cmd, in := hold(t, dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after the kill: got %q (%v), want the end of the tree's output", rest, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("got %v, want death by a signal", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, recordName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a record: %v", err)
	}
}
