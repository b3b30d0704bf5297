package rusage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tests measure real processes: this binary again, told by its arguments
// what to do. What follows a verb is a child, or what the process does next.
//
//	init ARGS        run ARGS as the sandbox's init would: adopt and wait for
//	                 all, then tell RUSAGE_CHILDREN
//	burn TIME        use TIME of user CPU
//	threads N TIME   use TIME in each of N threads
//	children N ARGS  run ARGS N times, waiting for each; tells their getrusage for them
//	wait ARGS        run ARGS, wait for it
//	lose ARGS        run ARGS until it is gone, without being able to wait
//	daemon ARGS      start ARGS and leave it
//	ignore ARGS      ignore SIGCHLD, then do ARGS
//	nowait ARGS      set SA_NOCLDWAIT for SIGCHLD, then do ARGS
//	exec ARGS        become a new program that does ARGS
//
// Before it sets its SIGCHLD action, and before it exits, a helper says so and
// waits for a byte, as if the sandbox had trapped the call. Before the exit it
// tells its own getrusage as well.
const (
	helperEnv = "GATE_RUSAGE_HELPER"
	quietEnv  = "GATE_RUSAGE_QUIET" // the parent tells the usage
)

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) == "" {
		os.Exit(m.Run())
	}
	if err := help(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "helper %q: %v\n", os.Args[1:], err)
		os.Exit(1)
	}
}

// tell and resume are descriptors 3 and 4 of every helper.
const tell, resume = 3, 4

func help(args []string) error {
	verb, args := args[0], args[1:]
	var err error
	switch verb {
	case "init":
		return helpInit(args)
	case "exec":
		return unix.Exec("/proc/self/exe", append([]string{"helper"}, args...), os.Environ())
	case "ignore":
		if err := trapped("sigchld"); err != nil {
			return err
		}
		signal.Ignore(unix.SIGCHLD)
		return help(args)
	case "nowait":
		if err := errors.Join(trapped("sigchld"), setNoWait()); err != nil {
			return err
		}
		return help(args)
	case "burn":
		err = burn(args[0], unix.RUSAGE_SELF)
	case "threads":
		err = burnThreads(args[0], args[1])
	case "children":
		n, _ := strconv.Atoi(args[0])
		for range n {
			cmd := child(args[1:])
			cmd.Env = append(os.Environ(), quietEnv+"=1")
			err = errors.Join(err, cmd.Run())
		}
		err = errors.Join(err, tellUsage("used", unix.RUSAGE_CHILDREN))
	case "wait":
		err = child(args).Run()
	case "lose":
		err = lose(args)
	case "daemon":
		err = child(args).Start()
	default:
		err = errors.New("unknown verb")
	}
	if err != nil {
		return err
	}
	if os.Getenv(quietEnv) == "" {
		err = tellUsage("used", unix.RUSAGE_SELF)
	}
	return errors.Join(err, trapped("exit"))
}

// trapped says that a call is about to be made and waits until the test has
// dealt with it.
func trapped(call string) error {
	if _, err := unix.Write(tell, fmt.Appendf(nil, "%d %s\n", os.Getpid(), call)); err != nil {
		return err
	}
	_, err := unix.Read(resume, make([]byte, 1))
	return err
}

func child(args []string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(tell, "tell"), os.NewFile(resume, "resume")}
	return cmd
}

func helpInit(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl(PR_SET_CHILD_SUBREAPER): %w", err)
	}
	if err := child(args).Start(); err != nil {
		return err
	}
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.ECHILD {
			return tellUsage("reaped", unix.RUSAGE_CHILDREN)
		}
		if err != nil && err != unix.EINTR {
			return err
		}
	}
}

func lose(args []string) error {
	if err := child(args).Start(); err != nil {
		return err
	}
	for {
		switch pid, err := unix.Wait4(-1, nil, 0, nil); {
		case err == unix.ECHILD:
			return nil
		case err == nil:
			return fmt.Errorf("wait4 returned %d, want ECHILD", pid)
		case err != unix.EINTR:
			return err
		}
	}
}

// setNoWait sets SIG_DFL and SA_NOCLDWAIT for SIGCHLD.
func setNoWait() error {
	const saNoCldWait = 2
	action := struct{ handler, flags, restorer, mask uintptr }{flags: saNoCldWait}
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("rt_sigaction: %w", errno)
	}
	return nil
}

func tellUsage(word string, who int) error {
	var ru unix.Rusage
	if err := unix.Getrusage(who, &ru); err != nil {
		return err
	}
	_, err := unix.Write(tell, fmt.Appendf(nil, "%d %s %d %d\n", os.Getpid(), word, ru.Utime.Nano(), ru.Stime.Nano()))
	return err
}

// burn does real work until who has used d of user time.
func burn(d string, who int) error {
	want, err := time.ParseDuration(d)
	if err != nil {
		return err
	}
	for x := uint64(1); ; {
		for range 300_000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		var ru unix.Rusage
		if err := unix.Getrusage(who, &ru); err != nil {
			return err
		}
		if time.Duration(ru.Utime.Nano()) >= want || x == 0 {
			return nil
		}
	}
}

func burnThreads(n, d string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its work
			errs[i] = burn(d, unix.RUSAGE_THREAD)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// play runs ARGS under a helper's init while m watches, and calls trap for each
// call that the sandbox would have trapped; the process goes on if trap says so.
// truth is what the processes said themselves.
func play(t *testing.T, m *Meter, trap func(root, pid int, call string) bool, args ...string) (truth Usage, w Witnesses) {
	t.Helper()
	toldR, toldW := pipe(t)
	resumeR, resumeW := pipe(t)
	cmd := exec.Command("/proc/self/exe", append([]string{"init"}, args...)...)
	cmd.Env = helperEnviron()
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{toldW, resumeR}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start helper: %v", err)
	}
	toldW.Close()
	resumeR.Close()

	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() {
		watched <- m.Watch(ctx, cmd.Process.Pid, 50*time.Millisecond, func(Usage) {})
	}()
	told := bufio.NewScanner(toldR)
	for told.Scan() {
		fields := strings.Fields(told.Text())
		pid, _ := strconv.Atoi(fields[0])
		switch fields[1] {
		case "used":
			truth = truth.plus(parseUsage(t, fields[2:]))
		case "reaped":
			w.Reaped = parseUsage(t, fields[2:])
		default:
			if !trap(cmd.Process.Pid, pid, fields[1]) {
				continue
			}
			if _, err := resumeW.Write([]byte{0}); err != nil {
				t.Fatalf("resume helper: %v", err)
			}
		}
	}
	if err := told.Err(); err != nil {
		t.Fatalf("read from helpers: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("helper's init: %v", err)
	}
	cancel()
	if err := <-watched; err != nil {
		t.Fatalf("Watch: %v", err)
	}
	w.Metered = m.Metered()
	return truth, w
}

// helperEnviron also keeps the race detector from sleeping at each exit.
func helperEnviron() []string {
	return append(os.Environ(), helperEnv+"=1", "GORACE=atexit_sleep_ms=0")
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("pipe: %v", err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func parseUsage(t *testing.T, fields []string) Usage {
	t.Helper()
	user, err1 := strconv.ParseInt(fields[0], 10, 64)
	system, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("helper told %q: %v", fields, err)
	}
	return Usage{time.Duration(user), time.Duration(system)}
}
