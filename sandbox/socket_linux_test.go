package sandbox

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Before Linux 6.9 a descriptor is read from the process. Where the thread has
// another there, that is an error, and never the other.
func TestCopyOfProcess(t *testing.T) {
	shared, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(shared)
	self := &task{tid: os.Getpid()}
	if fd, err := copyOfProcess(self, shared); err != nil || unix.Close(fd) != nil {
		t.Errorf("shared: %v", err)
	}
	if _, err := copyOfProcess(self, 9999); err != unix.EBADF {
		t.Errorf("nothing there: got %v, want EBADF", err)
	}
	type thread struct {
		tid, own, replaced int
		err                error
	}
	ready, done := make(chan thread), make(chan struct{})
	defer close(done)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		th := thread{tid: unix.Gettid(), replaced: shared}
		th.err = unix.Unshare(unix.CLONE_FILES)
		if th.err == nil {
			th.own, th.err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		}
		if th.err == nil {
			th.err = unix.Dup3(th.own, shared, 0)
		}
		ready <- th
		<-done
	}()
	th := <-ready
	if th.err != nil {
		t.Fatal(th.err)
	}
	other := &task{tid: th.tid}
	for what, fd := range map[string]int{"the thread's alone": th.own, "another in the process": th.replaced} {
		if fd, err := copyOfProcess(other, fd); err == nil || err == unix.EBADF {
			t.Errorf("%s: got descriptor %d, %v", what, fd, err)
		}
		fd, err := copyDescriptor(other, fd)
		if err != nil || unix.Close(fd) != nil {
			t.Logf("%s: %v (wanted Linux 6.9)", what, err)
		}
	}
}
