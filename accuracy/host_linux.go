package main

import (
	"fmt"
	"os"
	"syscall"
)

// as starts a command as another user, and lets it die with the harness.
func as(uid, gid uint32) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if int(uid) != os.Getuid() || int(gid) != os.Getgid() {
		attr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
	return attr
}

// lock keeps a second harness away from the repository: each would take what
// the other restores for writes of its suite.
func lock(root string) (unlock func() error, err error) {
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = dir.Close() // nothing was written
		return nil, fmt.Errorf("flock %s: %w: another run is at work there", root, err)
	}
	return dir.Close, nil
}
