package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/org/gate/internal/need"
)

// update rewrites the golden files: GATE_UPDATE=1 go test ./cmd/gate.
func update() bool { return os.Getenv("GATE_UPDATE") != "" }

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"gate":  main,
		"suite": suite,
	})
}

// suite is what the scripts run where a shell cannot do it.
func suite() {
	if err := act(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func act(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want an action and its object, got %q", args)
	}
	switch action, object := args[0], args[1]; action {
	case "dial": // and swallow the error, as a telemetry client does
		if conn, err := net.Dial("tcp", object); err == nil {
			return conn.Close()
		}
		return nil
	case "hold": // until a signal ends it; a child holds stdout open as well
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println(object)
		return child.Wait()
	case "burn": // user CPU until a limit ends it
		for n := uint64(1); ; n = n*6364136223846793005 + 1442695040888963407 {
			if n == 0 {
				return nil
			}
		}
	default:
		return fmt.Errorf("no action %q", action)
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       update(),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"mounted": mounted,
		},
		Condition: condition,
		Setup: func(env *testscript.Env) error {
			// Work directories are repositories here: temporary files of gate
			// and of the suites belong beside them, not inside.
			tmp, err := os.MkdirTemp("", "gate-script-")
			env.Setenv("TMPDIR", tmp)
			env.Defer(func() { os.RemoveAll(tmp) })
			return err
		},
	})
}

// exits runs a command and wants that exit status: exits STATUS COMMAND ARGS...
// (A leading "!" would take any failure for the right one.)
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND [ARGS...]")
	}
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("exits: %v", err)
	}
	got, err := exitStatus(ts.Exec(args[1], args[2:]...))
	if err != nil {
		ts.Fatalf("exits: %v", err)
	}
	if got != want {
		ts.Fatalf("exits: got status %d, want %d", got, want)
	}
}

// exitStatus is the status as a shell gives it.
func exitStatus(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// newMounts is the command line of a mount namespace of one's own.
func newMounts(command ...string) []string {
	unshare := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
	}
	return append(append(unshare, "--"), command...)
}

// mounted runs a shell script where it may mount, and wants it to succeed:
// mounted FILE.
func mounted(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mounted FILE")
	}
	argv := newMounts("sh", "-eux", ts.MkAbs(args[0]))
	if err := ts.Exec(argv[0], argv[1:]...); err != nil {
		ts.Fatalf("mounted %s: %v", args[0], err)
	}
}

// condition answers [root], [mounts] and [records]. Where GATE_MUST_WORK=1 a
// host that lacks something fails the script that asks for it.
func condition(name string) (bool, error) {
	var wanted string
	var err error
	switch name {
	case "root":
		return os.Getuid() == 0, nil
	case "mounts":
		wanted = "to mount a tmpfs in a mount namespace"
		argv := newMounts("mount", "-t", "tmpfs", "none", "/mnt")
		err = exec.Command(argv[0], argv[1:]...).Run()
	case "records":
		wanted = "a host that a run can be recorded on (gate doctor)"
		err = exec.Command("gate", "doctor").Run()
	default:
		return false, fmt.Errorf("no condition %q", name)
	}
	if err != nil && need.Everything() {
		return false, fmt.Errorf("wanted %s, found: %w", wanted, err)
	}
	return err == nil, nil
}
