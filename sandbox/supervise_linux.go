package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif, response struct seccomp_notif_resp;
// see seccomp_unotify(2).
type notification struct {
	id    uint64
	pid   uint32 // of the thread, in gate's PID namespace
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type response struct {
	id    uint64
	val   int64
	error int32
	flags uint32
}

const (
	ioctlRecv     = unix.SECCOMP_IOCTL_NOTIF_RECV
	ioctlSend     = unix.SECCOMP_IOCTL_NOTIF_SEND
	ioctlIDValid  = unix.SECCOMP_IOCTL_NOTIF_ID_VALID
	ioctlSetFlags = unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS
	// Before 5.17 the direction bits of ID_VALID were the wrong way round.
	ioctlIDValidOld = 0x80082102
)

// supervisor answers the notifications of one listener. All its fields but
// the descriptors belong to the goroutine of loop.
type supervisor struct {
	fd      int
	tier    Tier
	cgroup  bool // CPU time is counted whoever reaps a process
	idValid uintptr
	arch    uint32
	byNr    map[int32]*call
	view    *view
	handler Handler
	buf     [4 * 1024]byte

	// report tells the handler of a file call, once it has been let go on.
	report func()

	flight flight         // connects that gate makes, in Notify
	later  sync.WaitGroup // answers under way on other goroutines
}

// Run starts the command, supervises the tree until nothing of it is left,
// and says how it ended. Afterwards the box can only be closed.
func (b *Box) Run(ctx context.Context, h Handler) (Exit, error) {
	m, fds, err := b.ctl.receive()
	if err != nil {
		return Exit{}, &SetupError{b.spec.Tier, "install the filter", err}
	}
	if m.Step == "error" {
		return Exit{}, b.failure(m)
	}
	if m.Step != "listening" || len(fds) != 1 {
		return Exit{}, fmt.Errorf("BUG: init said %q with %d descriptors", m.Step, len(fds))
	}
	s, err := newSupervisor(fds[0], b.spec.Tier, b.view, h)
	if err != nil {
		return Exit{}, errors.Join(err, unix.Close(fds[0]))
	}
	s.cgroup = b.spec.CgroupFD != 0
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return Exit{}, errors.Join(fmt.Errorf("eventfd: %w", err), unix.Close(fds[0]))
	}
	looped := make(chan error, 1)
	go func() {
		err := s.loop(stop)
		if err != nil {
			b.Kill() // nobody answers any more
		}
		looped <- err
	}()

	exit, runErr := b.conduct(ctx)
	if runErr != nil {
		b.Kill() // whatever is wrong, nothing goes on unseen
	}
	one := binary.NativeEndian.AppendUint64(nil, 1)
	if _, err := unix.Write(stop, one); err != nil {
		return exit, fmt.Errorf("stop the supervisor: %w", err)
	}
	loopErr := <-looped
	s.flight.end()
	s.later.Wait()
	return exit, errors.Join(runErr, loopErr, unix.Close(fds[0]), unix.Close(stop))
}

// conduct tells init to go on, and waits for its report.
func (b *Box) conduct(ctx context.Context) (Exit, error) {
	stop := context.AfterFunc(ctx, func() { b.Kill() })
	defer stop()
	defer b.asked.end()
	if err := b.ctl.send(message{Step: "go"}); err != nil {
		return Exit{}, err
	}
	for {
		m, fds, err := b.ctl.receive()
		switch {
		case ctx.Err() != nil:
			return Exit{}, ctx.Err()
		case errors.Is(err, io.EOF):
			return Exit{}, errors.New("the tree's init died; everything it held was ended, and its use is unknown")
		case err != nil:
			return Exit{}, err
		case m.Step == "error":
			return Exit{}, b.failure(m)
		case m.Step == "exit" && m.Exit != nil:
			return *m.Exit, nil
		case m.Step == "socket":
			b.asked.answer(m, fds)
		case m.Step != "started":
			return Exit{}, fmt.Errorf("BUG: init said %q", m.Step)
		}
	}
}

func newSupervisor(fd int, tier Tier, v *view, h Handler) (*supervisor, error) {
	arch, err := auditArch(runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	s := &supervisor{
		fd: fd, tier: tier, arch: arch, view: v, handler: h, idValid: ioctlIDValid,
		byNr: map[int32]*call{},
	}
	for i := range calls {
		if nr := calls[i].nr(runtime.GOARCH); nr != none && calls[i].when != never {
			s.byNr[nr] = &calls[i]
		}
	}
	var id uint64
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlIDValid, uintptr(unsafe.Pointer(&id))); errno == unix.EINVAL || errno == unix.ENOTTY {
		s.idValid = ioctlIDValidOld
	}
	// 6.6: the thread that waits is woken on this CPU, which halves the cost.
	// Kernels before it answer EINVAL, and work without.
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlSetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	if errno != 0 && errno != unix.EINVAL && errno != unix.ENOTTY {
		return nil, fmt.Errorf("ioctl SECCOMP_IOCTL_NOTIF_SET_FLAGS: %w", errno)
	}
	return s, nil
}

// loop answers until stop is readable or the last filtered thread is gone.
// RECV alone would block for ever on a tree that has ended (kernels before
// 6.11), so it is called only when poll says that there is something.
func (s *supervisor) loop(stop int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
	for {
		if err := await(fds); err != nil {
			return err
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return nil // stop, or POLLHUP
		}
		n := notification{}
		if errno := s.ioctl(ioctlRecv, unsafe.Pointer(&n)); errno != 0 {
			if errno == unix.EINTR || errno == unix.ENOENT {
				continue // the caller died or was interrupted before it was read
			}
			return fmt.Errorf("ioctl SECCOMP_IOCTL_NOTIF_RECV: %w", errno)
		}
		a, err := s.handle(&n)
		if err != nil {
			return err
		}
		if a.Later == nil {
			if err := s.answer(&n, a); err != nil {
				return err
			}
			continue
		}
		s.later.Add(1)
		go func() {
			defer s.later.Done()
			for a.Later != nil {
				a = a.Later()
			}
			// Only ENOENT can come back: the caller is gone, and needs no answer.
			_ = s.send(&n, a)
		}()
	}
}

// await waits for one of the descriptors. While calls come thick and fast it
// does so for a moment without telling the Go scheduler, whose hand-over of
// the processor and back costs more than the call itself; a stop of the world
// has to wait no longer than that moment.
func await(fds []unix.PollFd) error {
	moment := unix.NsecToTimespec(int64(time.Millisecond))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&moment)), 0, 0, 0)
	for n == 0 || errno != 0 {
		if errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("poll the listener: %w", errno)
		}
		ready, err := unix.Poll(fds, -1)
		n, errno = uintptr(ready), 0
		if err != nil && !errors.As(err, &errno) {
			return fmt.Errorf("poll the listener: %w", err)
		}
	}
	return nil
}

func (s *supervisor) ioctl(op uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(s.fd), op, uintptr(arg))
	return errno
}

func (s *supervisor) send(n *notification, a Answer) unix.Errno {
	r := response{id: n.id, error: -int32(a.Errno)}
	if a.Errno == 0 && !a.done {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	return s.ioctl(ioctlSend, unsafe.Pointer(&r))
}

// answer lets a call go on, or not, and then reports it. An answer that is
// taken proves that the call was held all the while, so that what was read is
// the caller's own (seccomp_unotify(2) has ioctl SECCOMP_IOCTL_NOTIF_ID_VALID
// for that, which this saves). One that is not taken belongs to a call that
// was withdrawn: its caller was killed, or a signal came first, in which case
// it is restarted and seen again. Either way it has not been made.
func (s *supervisor) answer(n *notification, a Answer) error {
	report := s.report
	s.report = nil
	switch errno := s.send(n, a); errno {
	case 0:
		if report != nil {
			report()
		}
	case unix.ENOENT, unix.EINTR:
	default:
		return fmt.Errorf("ioctl SECCOMP_IOCTL_NOTIF_SEND: %w", errno)
	}
	return nil
}

// valid tells whether the call is still held. Memory that was read before
// it is the caller's own only if this is true: the thread may have died, and
// its number been given to another.
func (s *supervisor) valid(n *notification) bool {
	return s.ioctl(s.idValid, unsafe.Pointer(&n.id)) == 0
}

// handle decodes one call and hands it to the handler. An error ends the run.
func (s *supervisor) handle(n *notification) (Answer, error) {
	t := &task{v: s.view, tid: int(n.pid), cached: true}
	if n.arch != s.arch || n.nr&x32Bit != 0 {
		label := "i386"
		if n.arch == s.arch {
			label = "x32"
		} else if s.arch == auditArchARM64 {
			label = "arm"
		}
		s.handler.Refused(label, fmt.Sprintf("%s call %d", label, n.nr&^x32Bit), t)
		return Answer{Errno: eNosys}, nil
	}
	c := s.byNr[n.nr]
	if c == nil {
		return Answer{}, fmt.Errorf("BUG: the filter sent call %d, which is not in the table", n.nr)
	}
	switch c.do {
	case doExit:
		s.handler.Exit(t.tid)
	case doSigaction:
		return Answer{}, s.sigaction(n, t)
	case doIdentity:
		if t.PID() != s.view.init { // which drops its own before the command starts
			s.view.credsDiffer = true
		}
	case doRoot:
		s.roots(c, n, t)
	case doRefuse:
		s.handler.Refused("io_uring", c.name, t)
		return Answer{Errno: eNosys}, nil
	case doSocket:
		return s.socket(c, n, t), nil
	case doSockopt:
		return s.sockopt(c, n, t), nil
	case doConnect, doBind, doSendto, doSendmsg, doSendmmsg:
		return s.network(c, n, t), nil
	default:
		s.file(c, n, t)
	}
	return Answer{}, nil
}

// sigaction looks whether children of the process will be reaped
// automatically from now on: SIG_IGN, or SA_NOCLDWAIT. See sigaction(2).
func (s *supervisor) sigaction(n *notification, t *task) error {
	// struct sigaction of the kernel: handler, flags (both words), ...
	var b [16]byte
	got, err := readMemory(t.tid, n.args[1], b[:])
	if err != nil || got < len(b) || !s.valid(n) {
		if got < len(b) && s.valid(n) && err != unix.EFAULT {
			s.handler.Gap("unreadable-arguments", "rt_sigaction: "+errText(err))
		}
		return nil
	}
	const sigIgn, saNoCldWait = 1, 2
	handler, flags := binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[8:])
	s.handler.SigChild(t.tid, handler == sigIgn, flags&saNoCldWait != 0)
	return nil
}

// roots notes that paths may mean something else to some processes now. Without
// the right, which a new user namespace gives, nothing comes of the call.
func (s *supervisor) roots(c *call, n *notification, t *task) {
	flags, right := n.args[0], uint(unix.CAP_SYS_ADMIN)
	switch c.name {
	case "setns":
		flags = n.args[1]
		if flags == 0 {
			flags = cloneNewNet | cloneNewUser // any kind
		}
	case "chroot":
		flags, right = 0, unix.CAP_SYS_CHROOT
	case "pivot_root":
		flags = 0
	}
	if flags&cloneNewUser == 0 && !s.view.credsOf(t).has(right) {
		return // EPERM
	}
	s.view.rootsDiffer = true
	if flags&cloneNewUser != 0 {
		s.view.credsDiffer = true
	}
	if flags&cloneNewPID != 0 && !s.cgroup {
		// When its init ends, the kernel kills what is left in it and reaps that
		// itself, with SIGCHLD ignored for the purpose (zap_pid_ns_processes of
		// kernel/pid_namespace.c): no wait4 and no exit shows what it used.
		s.handler.Gap("cpu-lost", "a process made a PID namespace of its own with "+c.name+", and there is no cgroup: what is left in it when its init ends is counted by nobody")
	}
	if flags&cloneNewNet != 0 {
		s.handler.Gap("own-network", "a process made a network namespace of its own with "+c.name+"; packets inside it are not seen")
	}
}
