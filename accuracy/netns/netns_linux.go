package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Run starts the running program again as its own init inside new namespaces
// (network, mount, UTS), which then runs the command. It needs root.
func Run(ctx context.Context, c Command) (Result, error) {
	order, err := json.Marshal(c)
	if err != nil {
		return Result{}, fmt.Errorf("encode command: %w", err)
	}
	var answer, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe", InsideArg)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(order), &answer, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return Result{}, fmt.Errorf("run inside namespaces: %w: %s", err, stderr.Bytes())
	}
	var r Result
	if err := json.Unmarshal(answer.Bytes(), &r); err != nil {
		return Result{}, fmt.Errorf("decode result: %w: %s", err, answer.Bytes())
	}
	if r.Error != "" {
		return Result{}, fmt.Errorf("inside namespaces: %s", r.Error)
	}
	return r, nil
}

// Inside is the init: Command as JSON on stdin, Result as JSON on stdout.
func Inside() int {
	r, err := inside()
	if err != nil {
		r = Result{Error: err.Error()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func inside() (Result, error) {
	var c Command
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return Result{}, fmt.Errorf("decode command: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	if err := setUp(ctx); err != nil {
		return Result{}, err
	}
	r := newResolver()
	if err := r.listen(ctx); err != nil {
		return Result{}, err
	}
	result, err := run(ctx, c)
	if err != nil {
		return Result{}, err
	}
	result.Asked, result.Names = r.journal()
	return result, nil
}

// setUp lays the ground.
func setUp(ctx context.Context) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount / private: %w", err)
	}
	if err := unix.Sethostname([]byte(Host)); err != nil {
		return fmt.Errorf("sethostname: %w", err)
	}
	steps := []string{
		"link set lo up",
		"-4 addr add " + own4.String() + "/32 dev lo",
		"-4 route add local default dev lo src " + own4.String(),
	}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		steps = append(steps,
			"-6 addr add "+own6.String()+"/128 dev lo nodad",
			"-6 route add local default dev lo src "+own6.String())
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(step)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", step, err, out)
		}
	}
	dir, err := os.MkdirTemp("", "accuracy-etc-")
	if err != nil {
		return fmt.Errorf("files for /etc: %w", err)
	}
	defer os.RemoveAll(dir) // what is mounted stays reachable by its mount
	for name, text := range map[string]string{
		"resolv.conf": "nameserver 127.0.0.1\noptions timeout:5 attempts:1\n",
		"hosts":       "127.0.0.1\tlocalhost " + Host + "\n::1\tlocalhost ip6-localhost ip6-loopback " + Host + "\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("files for /etc: %w", err)
		}
		if err := unix.Mount(file, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /etc/%s: %w", name, err)
		}
	}
	return nil
}

// run runs the command and ends what it leaves behind.
func run(ctx context.Context, c Command) (Result, error) {
	out, err := os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return Result{}, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, out, out
	if int(c.UID) != os.Getuid() || int(c.GID) != os.Getgid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.UID, Gid: c.GID}}
	}
	if err := cmd.Start(); err != nil {
		return Result{}, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	done := make(chan struct{})
	reaped := make(chan error, 1)
	if c.Tracer {
		go func() { reaped <- endOrphans(cmd.Process.Pid, done) }()
	} else {
		reaped <- nil
	}
	err = cmd.Wait()
	close(done)
	timedOut := ctx.Err() != nil
	if err := errors.Join(<-reaped, endAll()); err != nil {
		return Result{}, err
	}
	if timedOut {
		return Result{}, fmt.Errorf("%s: not done after %v", c.Args[0], c.Timeout)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Result{}, fmt.Errorf("wait for %s: %w", c.Args[0], err)
	}
	state := cmd.ProcessState
	status, ok := state.Sys().(syscall.WaitStatus)
	if !ok {
		return Result{}, errors.New("BUG: no wait status")
	}
	result := Result{Exit: status.ExitStatus(), UserSec: state.UserTime().Seconds()}
	if status.Signaled() {
		result.Exit = 128 + int(status.Signal())
	}
	return result, nil
}

// endOrphans watches the tracees of a strace: once its own child is gone,
// those left are killed, or strace would wait for them for ever.
func endOrphans(strace int, done <-chan struct{}) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
		}
		var orphans []int
		alive := false
		err := processes(func(pid int, status map[string]string) {
			if status["TracerPid"] == strconv.Itoa(strace) {
				orphans = append(orphans, pid)
				alive = alive || status["PPid"] == strconv.Itoa(strace)
			}
		})
		if err != nil {
			return err
		}
		if !alive {
			for _, pid := range orphans {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone by now is as good
			}
		}
	}
}

// endAll kills whatever else is left in this network namespace.
func endAll() error {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	return processes(func(pid int, _ map[string]string) {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil && ns == own && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone by now is as good
		}
	})
}

// processes reads the status of every process, see proc_pid_status(5).
func processes(visit func(pid int, status map[string]string)) error {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", d.Name(), "status"))
		if err != nil {
			continue // has ended meanwhile
		}
		status := map[string]string{}
		for line := range strings.Lines(string(data)) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				status[key] = strings.TrimSpace(value)
			}
		}
		visit(pid, status)
	}
	return nil
}
