package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// workVerb is the hidden subcommand that makes this program a workload.
const workVerb = "work"

// work makes the system calls themselves, so that what is measured is not a
// library.
func work(args []string) error {
	if len(args) != 2 {
		return errors.New("want a kind and a count")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	step, ok := map[string]func(int) error{"opens": open, "creates": create, "processes": spawn}[args[0]]
	if !ok {
		return errors.New("no such kind")
	}
	for i := range n {
		if err := step(i); err != nil {
			return err
		}
	}
	return nil
}

func open(int) error {
	fd, err := unix.Open("capability.ledger.json", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	return unix.Close(fd)
}

func create(i int) error {
	name := "work/" + strconv.Itoa(i)
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	_, err = unix.Write(fd, []byte("x"))
	return errors.Join(err, unix.Close(fd), unix.Unlink(name))
}

func spawn(int) error {
	pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Env: os.Environ()})
	if err != nil {
		return fmt.Errorf("start /bin/true: %w", err)
	}
	var status syscall.WaitStatus
	for {
		_, err = syscall.Wait4(pid, &status, 0, nil)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil || status != 0 {
		return fmt.Errorf("wait for /bin/true: status %d, %w", status, err)
	}
	return nil
}
