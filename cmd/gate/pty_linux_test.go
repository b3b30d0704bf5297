package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal (pty(7)): what is written to the second
// comes out of the first.
func openTerminal(t *testing.T, rows, cols uint16) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// onTerminal starts cmd as the leader of a session on a terminal of its own.
func onTerminal(t *testing.T, cmd *exec.Cmd, rows, cols uint16) *os.File {
	t.Helper()
	master, slave := openTerminal(t, rows, cols)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(cmd.Env, "TERM=xterm", "NO_COLOR=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	return master
}

// readUntil copies what the terminal gets to w, until it has seen want; until
// the end if want is empty.
func readUntil(t *testing.T, master io.Reader, w io.Writer, want string) {
	t.Helper()
	var all bytes.Buffer
	buf := make([]byte, 1)
	for want == "" || !strings.HasSuffix(all.String(), want) {
		_, err := master.Read(buf)
		if errors.Is(err, unix.EIO) && want == "" {
			return // the last one who had the terminal open is gone
		}
		if err != nil {
			t.Fatalf("got %q (%v), want %q", all.String(), err, want)
		}
		all.Write(buf)
		if _, err := w.Write(buf); err != nil {
			t.Fatal(err)
		}
	}
}

// The status line stands on the last row while the suite prints above it, and
// is gone when the verdict comes.
func TestStatusOnTerminal(t *testing.T) {
	needsRuns(t)
	dir := repository(t)
	cmd := gate(t, dir, "run", "--", "sh", "-c", `printf "one\ntwo\nthr"; read go; echo ee; test -t 0 && test -t 1 && test -t 2 && echo terminal`)
	master := onTerminal(t, cmd, 12, 100)
	screen := newScreen(12, 100)
	readUntil(t, master, screen, "writes 0\x1b[K\x1b8")
	lines := screen.lines()
	if len(lines) != 12 || !strings.HasPrefix(lines[11], "gate: ") || !strings.Contains(lines[11], " of 60.0 s  endpoints 0  writes 0") {
		t.Errorf("got the last row %q, want the status", lines[len(lines)-1])
	}
	if diff := cmp.Diff([]string{"one", "two", "thr"}, lines[:3]); diff != "" {
		t.Errorf("the suite's output (-want +got):\n%s", diff)
	}
	if _, err := master.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, master, screen, "")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	// "go" is the terminal's own echo.
	lines = screen.lines()
	if diff := cmp.Diff([]string{"one", "two", "thrgo", "ee", "terminal"}, lines[:5]); diff != "" {
		t.Errorf("the suite's output (-want +got):\n%s", diff)
	}
	for _, line := range lines[5:] {
		if strings.Contains(line, "endpoints 0  writes 0") {
			t.Errorf("the status line is still there: %q", line)
		}
	}
	if screen.bottom != 11 {
		t.Errorf("the scrolling region ends at row %d, want 11", screen.bottom)
	}
}

// Ctrl-C and Ctrl-Z typed at the terminal end the run.
func TestKeys(t *testing.T) {
	needsRuns(t)
	tests := []struct {
		name, key, want string
	}{
		{"Ctrl-C", "\x03", "SIGINT"},
		{"Ctrl-Z", "\x1a", "SIGTSTP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := repository(t)
			cmd := gate(t, dir, "run", "--quiet", "--", "suite", "hold", "ready")
			master := onTerminal(t, cmd, 24, 80)
			readUntil(t, master, io.Discard, "ready")
			if _, err := master.WriteString(tt.key); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, io.Discard, "")
			if status, err := exitStatus(cmd.Wait()); err != nil || status == 0 {
				t.Errorf("got status %d (%v), want a failure", status, err)
			}
			data, err := os.ReadFile(filepath.Join(dir, recordName))
			if want := `"interrupted": "` + tt.want + `"`; err != nil || !strings.Contains(string(data), want) {
				t.Errorf("the record lacks %s (%v)", want, err)
			}
		})
	}
}

// At a terminal gate accept shows the difference and takes an answer.
func TestAcceptAsks(t *testing.T) {
	needsRuns(t)
	tests := []struct {
		name, answer string
		flags        []string
		status       int
		accepted     string
	}{
		{"yes", "yes\n", nil, 0, `"new.txt"`},
		{"yes, folded", "yes\n", []string{"--fold", "new.*"}, 0, `"fold": [
    "new.*"
  ]`},
		{"no", "n\n", nil, 121, ""},
		{"nothing", "\n", nil, 121, ""},
		{"end of input", "\x04", nil, 121, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := repository(t)
			if status, err := exitStatus(gate(t, dir, "run", "--", "touch", "new.txt").Run()); err != nil || status != 121 {
				t.Fatalf("gate run: got status %d (%v), want 121", status, err)
			}
			cmd := gate(t, dir, append([]string{"accept"}, tt.flags...)...)
			master := onTerminal(t, cmd, 24, 80)
			var shown bytes.Buffer
			readUntil(t, master, &shown, "[y/N] ")
			if !strings.Contains(shown.String(), "new.") {
				t.Errorf("got %q, want the difference", shown.String())
			}
			if _, err := master.WriteString(tt.answer); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, io.Discard, "")
			if status, err := exitStatus(cmd.Wait()); err != nil || status != tt.status {
				t.Errorf("got status %d (%v), want %d", status, err, tt.status)
			}
			data, err := os.ReadFile(filepath.Join(dir, ledgerName))
			if err != nil {
				t.Fatal(err)
			}
			if tt.accepted == "" && strings.Contains(string(data), "new.") || !strings.Contains(string(data), tt.accepted) {
				t.Errorf("want %q accepted: %s", tt.accepted, data)
			}
		})
	}
}
