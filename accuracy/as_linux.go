package main

import (
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
