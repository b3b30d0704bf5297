package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eRestartSys is ERESTARTSYS of the kernel (include/linux/errno.h): the call is
// made again after the signal, or fails with EINTR, as its handler asked for
// (signal(7)). It is the kernel's own answer to a call that a signal interrupts,
// and must be given to no thread that has no signal to take.
const eRestartSys = 512

// lookEvery is how often gate looks after the caller of a connect that blocks.
const lookEvery = 50 * time.Millisecond

// connect is connect(2) with the address as it lies in memory.
func connect(fd int, addr []byte) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(addr))), uintptr(len(addr)))
	return errno
}

// connectFor connects a socket as its caller would. The caller of a call that
// gate has received takes fatal signals alone, so gate does not block where the
// caller would, but looks for signals and leaves the attempt under way when
// one comes, as connect(2) says of EINTR.
func (s *supervisor) connectFor(n *notification, sock *socket, addr []byte) int {
	if !sock.blocks() {
		return int(connect(sock.fd, addr))
	}
	patience := sock.patience()
	began := time.Now()
	for waiting := false; ; {
		errno := sock.begin(addr)
		if errno != unix.EINPROGRESS && errno != unix.EALREADY {
			return int(errno)
		}
		for ready := false; !ready; {
			ready = sock.settled(lookEvery)
			if s.flight.ended() || !s.valid(n) {
				return eConnRefused // nobody waits for it
			}
			if ready {
				continue
			}
			if patience > 0 && time.Since(began) >= patience {
				return int(errno)
			}
			pending, own := interrupted(int(n.pid))
			switch {
			case pending && own && patience == 0:
				return eRestartSys
			case pending && (own || waiting):
				return int(unix.EINTR)
			}
			waiting = pending // for another thread, perhaps, which then takes it at once
		}
	}
}

// blocks tells whether a connect of the socket may wait for the other side. Of
// other protocols it is left to the kernel.
func (k *socket) blocks() bool {
	flags, err := unix.FcntlInt(uintptr(k.fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_NONBLOCK == 0 && k.typ == unix.SOCK_STREAM &&
		(k.protocol == unix.IPPROTO_TCP || k.protocol == unix.IPPROTO_MPTCP)
}

// patience is SO_SNDTIMEO, which ends a connect (socket(7)); 0: none.
func (k *socket) patience() time.Duration {
	tv, err := unix.GetsockoptTimeval(k.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO)
	if err != nil {
		return 0
	}
	return time.Duration(tv.Nano())
}

// begin starts a connect, or tells how one under way has ended. The flag
// belongs to the caller's descriptor as well, so it is set for the call alone.
func (k *socket) begin(addr []byte) unix.Errno {
	flags, err := unix.FcntlInt(uintptr(k.fd), unix.F_GETFL, 0)
	if err != nil {
		return connect(k.fd, addr)
	}
	_, _ = unix.FcntlInt(uintptr(k.fd), unix.F_SETFL, flags|unix.O_NONBLOCK) // of a socket it never fails
	defer unix.FcntlInt(uintptr(k.fd), unix.F_SETFL, flags)
	return connect(k.fd, addr)
}

// settled waits a while for a connect under way to end.
func (k *socket) settled(wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, int(wait/time.Millisecond))
	return n > 0 && err == nil
}

// interrupted tells whether a signal waits for a thread that it does not
// block, and whether the thread itself has to take it: one that was sent to a
// process may be for another thread of it. See proc_pid_status(5).
func interrupted(tid int) (pending, own bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return false, false // it has died
	}
	var thread, process, blocked uint64
	threads := ""
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Threads":
			threads = value
		case "SigPnd":
			thread = signalSet(value)
		case "ShdPnd":
			process = signalSet(value)
		case "SigBlk":
			blocked = signalSet(value)
		}
	}
	return (thread|process)&^blocked != 0, thread&^blocked != 0 || threads == "1"
}

// signalSet reads a mask of signals; one that cannot be read has none.
func signalSet(text string) uint64 {
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0
	}
	return set
}
