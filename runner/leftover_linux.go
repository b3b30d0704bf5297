package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/org/gate/sandbox"
)

// A gate that is killed cannot remove its directories, so a later one does.
// Each has a file that is locked for as long as its gate lives: flock(2) ends
// with the process, and holds across PID namespaces, where a number says
// nothing.
const (
	ownPrefix = "gate-run-"
	lockName  = ".gate-lock"
)

// Bounds of the search in a directory that may hold anything.
const (
	maxListed = 1 << 14
	maxSwept  = 16
)

// ownDir makes a directory for gate's own files. It goes as soon as another
// run finds that nobody holds the lock.
func ownDir(parent string) (dir string, lock *os.File, err error) {
	sweep(parent)
	if dir, err = os.MkdirTemp(parent, ownPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = holdLock(dir); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// holdLock gives the file its name once it is locked: nobody finds it before.
// It is nil on a file system without locks, where the directory is never taken
// for a leftover.
func holdLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, f.Close()
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes what gates that were killed left in a directory. What cannot
// be removed stays for the next one: it is no reason not to run.
func sweep(parent string) {
	d, err := os.Open(parent)
	if err != nil {
		return
	}
	names, _ := d.Readdirnames(maxListed)
	_ = d.Close() // read-only
	swept := 0
	for _, name := range names {
		if swept < maxSwept && strings.HasPrefix(name, ownPrefix) && sweepOne(filepath.Join(parent, name)) {
			swept++
		}
	}
}

// sweepOne removes a directory if its lock is this user's and nobody holds it.
func sweepOne(dir string) bool {
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return false
	}
	fd, err := unix.Open(filepath.Join(dir, lockName), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() ||
		unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	return sandbox.RemoveAll(dir) == nil
}
