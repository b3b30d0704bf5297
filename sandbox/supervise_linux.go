package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strings"
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
	idValid uintptr
	arch    uint32
	byNr    map[int32]*call
	view    *view
	handler Handler
	buf     [4 * 1024]byte

	// aborted remembers the one call of a thread whose notification was
	// withdrawn by a signal before the answer: if the same call comes again it
	// was restarted, and is the same attempt. Kernels from 5.19 do not do this.
	aborted map[uint32]callKey

	later sync.WaitGroup // answers under way on other goroutines
}

type callKey struct {
	nr   int32
	args [6]uint64
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
	s.later.Wait()
	return exit, errors.Join(runErr, loopErr, unix.Close(fds[0]), unix.Close(stop))
}

// conduct tells init to go on, and waits for its report.
func (b *Box) conduct(ctx context.Context) (Exit, error) {
	stop := context.AfterFunc(ctx, func() { b.Kill() })
	defer stop()
	if err := b.ctl.send(message{Step: "go"}); err != nil {
		return Exit{}, err
	}
	for {
		m, _, err := b.ctl.receive()
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
		byNr: map[int32]*call{}, aborted: map[uint32]callKey{},
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

func (s *supervisor) answer(n *notification, a Answer) error {
	switch errno := s.send(n, a); errno {
	case 0:
	case unix.ENOENT, unix.EINTR: // withdrawn: killed, or interrupted and perhaps restarted
		if len(s.aborted) > 1024 {
			clear(s.aborted)
		}
		s.aborted[n.pid] = callKey{n.nr, n.args}
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
	if key, ok := s.aborted[n.pid]; ok {
		delete(s.aborted, n.pid)
		if key == (callKey{n.nr, n.args}) && c.do < doConnect {
			return Answer{}, nil
		}
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
	ignored := binary.NativeEndian.Uint64(b[:]) == sigIgn || binary.NativeEndian.Uint64(b[8:])&saNoCldWait != 0
	s.handler.SigChild(t.tid, ignored)
	return nil
}

// roots notes that paths may mean something else to some processes now.
func (s *supervisor) roots(c *call, n *notification, t *task) {
	s.view.rootsDiffer = true
	flags := n.args[0]
	switch c.name {
	case "setns":
		flags = n.args[1]
		if flags == 0 {
			flags = cloneNewNet // any kind
		}
	case "chroot", "pivot_root":
		return
	}
	if flags&cloneNewUser != 0 {
		s.view.credsDiffer = true
	}
	if flags&cloneNewNet != 0 {
		s.handler.Gap("own-network", "a process made a network namespace of its own with "+c.name+"; packets inside it are not seen")
	}
}

// socket refuses the families that no namespace holds.
func (s *supervisor) socket(c *call, n *notification, t *task) Answer {
	f := int(uint32(n.args[0]))
	label := "*:*"
	if f != afVsock {
		label = fmt.Sprintf("family-%d", f)
	}
	a := s.handler.Connect(&NetCall{Call: c.name, Family: f, Type: int(uint32(n.args[1])) & 0xf, Protocol: int(uint32(n.args[2])), Label: label}, t)
	if a.Errno == 0 && a.Later == nil {
		a.Errno = eAfNoSupport
	}
	return a
}

// network handles the calls that carry a socket address.
func (s *supervisor) network(c *call, n *notification, t *task) Answer {
	var addrs [][]byte
	var err error
	switch c.do {
	case doConnect, doBind:
		addrs, err = s.sockaddrs(t, n.args[1], n.args[2])
	case doSendto:
		addrs, err = s.sockaddrs(t, n.args[4], n.args[5])
	case doSendmsg:
		addrs, err = s.messages(t, n.args[1], 1, sizeofMsghdr)
	case doSendmmsg:
		addrs, err = s.messages(t, n.args[1], min(n.args[2], maxMessages), sizeofMmsghdr)
	}
	if !s.valid(n) {
		return Answer{}
	}
	// EFAULT is what the kernel will say too, but only of the message that has
	// the bad address: those before it are sent.
	if err != nil && err != unix.EFAULT {
		s.handler.Gap("unreadable-arguments", c.name+": "+errText(err))
		return Answer{Errno: ePerm}
	}
	var first Answer
	for i, raw := range addrs {
		a, ok := decodeAddress(raw)
		if !ok || a.family == afUnspec {
			continue // EINVAL, or a connect that dissolves an association
		}
		out := s.address(c, n, t, a)
		if c.do == doConnect && s.tier == Notify && a.inet.IsValid() {
			out = s.connects(n, t, raw, out)
		}
		if i == 0 || out.Errno != 0 {
			first = out
		}
	}
	return first
}

// connects makes a connect that is let through in gate itself, on the
// caller's own socket and with the address that was judged: another thread
// may have changed the caller's copy since. It may block, so it comes later.
func (s *supervisor) connects(n *notification, t *task, raw []byte, a Answer) Answer {
	switch {
	case a.Errno != 0:
		return a
	case a.Later != nil:
		later := a.Later
		return Answer{Later: func() Answer { return s.connects(n, t, raw, later()) }}
	}
	sock, err := copySocket(t.PID(), int(int32(n.args[0])))
	if err != nil {
		if err == unix.EBADF {
			return Answer{} // and so the kernel will say
		}
		s.handler.Gap("unreadable-arguments", "connect: pidfd_getfd: "+err.Error())
		return Answer{Errno: ePerm}
	}
	if a.Redirect.IsValid() {
		family := int(binary.NativeEndian.Uint16(raw))
		if family == afInet && !a.Redirect.Addr().Is4() {
			_ = unix.Close(sock) // a copy
			return Answer{Errno: eConnRefused}
		}
		raw = encodeAddress(a.Redirect, family)
	}
	return Answer{Later: func() Answer {
		defer unix.Close(sock)
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(sock), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
		return Answer{Errno: int(errno), done: true}
	}}
}

// address hands one decoded address on.
func (s *supervisor) address(c *call, n *notification, t *task, a address) Answer {
	nc := &NetCall{Call: c.name, Family: a.family, Type: SockUnknown, Protocol: SockUnknown, Addr: a.inet, Path: a.unix}
	switch a.family {
	case afInet, afInet6:
		nc.Type, nc.Protocol = socketType(t.PID(), int(int32(n.args[0])))
		if c.do == doSendto && s.tier == Notify {
			nc.Payload = s.payload(n, t)
		}
	case afUnix:
		if a.unix != "" && a.unix[0] == '@' {
			break
		}
		f, err := s.view.find(t, atFDCWD, a.unix, c.do != doBind)
		if err != nil {
			if c.do == doBind {
				return Answer{} // it cannot succeed
			}
			break // reported as it was given; the kernel will say that it is not there
		}
		nc.Path, nc.Exists = f.path, f.is(unix.S_IFSOCK)
		if c.do == doBind {
			who := s.view.credsOf(t)
			if !s.view.mayAdd(who, &f) {
				return Answer{}
			}
			s.handler.File(&FileCall{Op: Create, Call: c.name, Path: f.path}, t)
		}
	default:
		return Answer{} // netlink, packet: no endpoint; any other is refused as a socket
	}
	if c.do != doBind {
		return s.handler.Connect(nc, t)
	}
	if s.tier == Namespace && notOurs(nc.Addr.Addr()) && !s.freebind(n, t) {
		return Answer{Errno: eAddrNotAvail}
	}
	if s.canBind(nc, t) {
		s.handler.Bind(nc, t)
	}
	return Answer{}
}

// notOurs: foreign addresses are local in the namespace, so that packets to them are
// seen. A bind to one must fail all the same, as it does on any host.
func notOurs(a netip.Addr) bool {
	return a.IsValid() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsMulticast() && a != OwnIPv4 && a != OwnIPv6 &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// freebind tells whether the socket asked for such an address (ip(7), IP_FREEBIND).
func (s *supervisor) freebind(n *notification, t *task) bool {
	sock, err := copySocket(t.PID(), int(int32(n.args[0])))
	if err != nil {
		return false
	}
	defer unix.Close(sock)
	for _, level := range []int{unix.SOL_IP, unix.SOL_IPV6} {
		option := unix.IP_FREEBIND
		if level == unix.SOL_IPV6 {
			option = unix.IPV6_FREEBIND
		}
		if v, err := unix.GetsockoptInt(sock, level, option); err == nil && v != 0 {
			return true
		}
	}
	return false
}

// maxPayload holds a DNS query over UDP (RFC 1035, section 4.2.1).
const maxPayload = 512

// payload reads the start of what sendto sends; nil if it cannot be read.
func (s *supervisor) payload(n *notification, t *task) []byte {
	b := make([]byte, min(n.args[2], maxPayload))
	got, err := readMemory(t.tid, n.args[1], b)
	if err != nil || !s.valid(n) {
		return nil
	}
	return b[:got]
}

// canBind: a privileged port needs CAP_NET_BIND_SERVICE (ip(7)).
func (s *supervisor) canBind(nc *NetCall, t *task) bool {
	if nc.Family == afUnix || nc.Addr.Port() == 0 || nc.Addr.Port() >= 1024 {
		return true
	}
	return s.view.credsOf(t).has(unix.CAP_NET_BIND_SERVICE)
}

// copySocket duplicates a descriptor of a process into gate.
func copySocket(pid, fd int) (int, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(pidfd)
	return unix.PidfdGetfd(pidfd, fd, 0)
}

// socketType asks the caller's own socket; the copy is closed at once.
func socketType(pid, fd int) (typ, protocol int) {
	typ, protocol = SockUnknown, SockUnknown
	sock, err := copySocket(pid, fd)
	if err != nil {
		return
	}
	defer unix.Close(sock)
	if v, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		typ = v
	}
	if v, err := unix.GetsockoptInt(sock, unix.SOL_SOCKET, unix.SO_PROTOCOL); err == nil {
		protocol = v
	}
	return
}

// sockaddrs reads one address of a given length.
func (s *supervisor) sockaddrs(t *task, addr, size uint64) ([][]byte, error) {
	b := make([]byte, min(uint64(uint32(size)), maxSockaddr))
	n, err := readMemory(t.tid, addr, b)
	if err != nil {
		return nil, err
	}
	return [][]byte{b[:n]}, nil
}

// maxMessages is UIO_MAXIOV: the kernel sends no more at once.
const maxMessages = 1024

// struct msghdr and struct mmsghdr of 64-bit Linux.
const (
	sizeofMsghdr  = 56
	sizeofMmsghdr = 64
)

// messages reads the addresses of sendmsg(2) and sendmmsg(2).
func (s *supervisor) messages(t *task, addr, count uint64, size int) ([][]byte, error) {
	b := make([]byte, int(count)*size)
	n, err := readMemory(t.tid, addr, b)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for ; n >= size; n, b = n-size, b[size:] {
		name, length := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint32(b[8:])
		if name == 0 {
			continue
		}
		one, err := s.sockaddrs(t, name, uint64(length))
		if err != nil {
			return out, err
		}
		out = append(out, one...)
	}
	return out, nil
}

// file handles the calls that write.
func (s *supervisor) file(c *call, n *notification, t *task) {
	path, err := s.path(t, n, c.path)
	var path2 string
	if err == nil && (c.do == doRename || c.do == doLink) {
		path2, err = s.path(t, n, c.path2)
	}
	flags, fErr := s.flags(c, n, t)
	if !s.valid(n) {
		return
	}
	if err = errors.Join(err, fErr); err != nil {
		// The kernel refuses these as well: a bad address, an endless string.
		if !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.ENAMETOOLONG) {
			s.handler.Gap("unreadable-arguments", c.name+": "+errText(err))
		}
		return
	}
	op := &fileOp{s: s, c: c, t: t, who: s.view.credsOf(t), flags: flags}
	op.run(arg32(n, c.dirfd), path, arg32(n, c.dirfd2), path2, n)
}

// credsOf are the credentials of a task: the tree's until one changed them.
func (v *view) credsOf(t *task) *creds {
	if !v.credsDiffer {
		return &v.creds
	}
	s, err := readStatus(t.tid)
	if err != nil {
		return &v.creds // it has died, and the call with it
	}
	return &s.creds
}

func arg32(n *notification, i int8) int32 {
	if i == none {
		return atFDCWD
	}
	return int32(n.args[i])
}

// path reads a string argument; "" if the call has none or it is NULL.
func (s *supervisor) path(t *task, n *notification, i int8) (string, error) {
	if i == none || n.args[i] == 0 {
		return "", nil
	}
	return readString(t.tid, n.args[i], s.buf[:])
}

// flags are the open or AT_ flags of a call, wherever they are.
func (s *supervisor) flags(c *call, n *notification, t *task) (uint64, error) {
	switch {
	case c.name == "creat":
		return oCreat | oWronly | oTrunc, nil
	case c.name == "openat2": // struct open_how: flags, mode, resolve
		var b [8]byte
		got, err := readMemory(t.tid, n.args[2], b[:])
		if err != nil || got < len(b) {
			return 0, errors.Join(err, shortRead(got, len(b)))
		}
		return binary.NativeEndian.Uint64(b[:]), nil
	case c.flags != none:
		return n.args[c.flags], nil
	}
	return 0, nil
}

func shortRead(got, want int) error {
	if got < want {
		return unix.EFAULT
	}
	return nil
}

func errText(err error) string {
	if err == nil {
		return "cut short"
	}
	return err.Error()
}

// readMemory reads from another process, up to where its memory ends.
func readMemory(tid int, addr uint64, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	local := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	// One remote vector a page: the kernel stops between vectors only.
	var remote [4]unix.RemoteIovec
	vectors := remote[:0]
	for at, left := addr, uint64(len(b)); left > 0; {
		size := min(left, pageSize-at%pageSize)
		vectors = append(vectors, unix.RemoteIovec{Base: uintptr(at), Len: int(size)})
		at, left = at+size, left-size
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&vectors[0])), uintptr(len(vectors)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// pageSize is the smallest that Linux uses: a read that stops at its borders
// stops at those of larger pages too.
const pageSize = 4096

// readString reads up to the NUL. PATH_MAX bounds it, as in the kernel.
func readString(tid int, addr uint64, buf []byte) (string, error) {
	const pathMax = 4096
	for have, step := 0, 256; have < pathMax; step = pathMax {
		want := min(step, pathMax-have)
		n, err := readMemory(tid, addr+uint64(have), buf[have:have+want])
		if err != nil {
			return "", err
		}
		for i, c := range buf[have : have+n] {
			if c == 0 {
				return string(buf[:have+i]), nil
			}
		}
		have += n
		if n < want {
			return "", unix.EFAULT // memory ends before the string does
		}
	}
	return "", unix.ENAMETOOLONG
}

// fileOp is one call that may write.
type fileOp struct {
	s     *supervisor
	c     *call
	t     *task
	who   *creds
	flags uint64
}

func (o *fileOp) run(dirfd int32, path string, dirfd2 int32, path2 string, n *notification) {
	v := o.s.view
	from, err := o.first(dirfd, path, n)
	if err != nil {
		o.lost(err)
		return
	}
	switch o.c.do {
	case doOpen:
		if op := v.opens(o.who, &from, o.flags); op != 0 {
			o.emit(op, &from, nil)
		}
	case doMake, doSymlink:
		dir := o.c.name == "mkdir" || o.c.name == "mkdirat"
		if (dir || !from.slash) && v.mayAdd(o.who, &from) {
			o.emit(Create, &from, nil)
		}
	case doRemove:
		dir := o.c.name == "rmdir" || o.flags&unix.AT_REMOVEDIR != 0
		if v.removes(o.who, &from, dir) {
			o.emit(Remove, &from, nil)
		}
	case doRename:
		to, err := v.find(o.t, dirfd2, path2, false)
		o.lost(err)
		if err == nil && v.renames(o.who, &from, &to, o.flags) {
			op := Rename
			if o.flags&unix.RENAME_EXCHANGE != 0 {
				op = Exchange
			}
			o.emit(op, &from, &to)
		}
	case doLink:
		to, err := v.find(o.t, dirfd2, path2, false)
		o.lost(err)
		switch {
		case err != nil || to.slash || !v.mayAdd(o.who, &to):
		case from.path == "": // an O_TMPFILE gets its name
			o.emit(Create, &to, nil)
		case v.links(o.who, &from, &to):
			o.emit(Link, &from, &to)
		}
	case doTruncate:
		if from.is(unix.S_IFREG) && v.mayWrite(o.who, &from) {
			o.emit(Modify, &from, nil)
		}
	case doMeta, doMetaFD:
		if from.exists && o.changesMeta(&from, n) {
			o.emit(Meta, &from, nil)
		}
	}
}

// lost makes a gap of a path that leads somewhere unknown. All other errors
// say that there is nothing which the call could change.
func (o *fileOp) lost(err error) {
	if errors.Is(err, errPlace) {
		o.s.handler.Gap("foreign-mount", o.c.name+": "+err.Error())
	}
	if errors.Is(err, errUnnamed) {
		o.s.handler.Gap("unnamed-path", o.c.name+": "+err.Error())
	}
}

// first resolves the first path of a call by the rules of that call.
func (o *fileOp) first(dirfd int32, path string, n *notification) (target, error) {
	v := o.s.view
	byFD := o.c.do == doMetaFD
	switch o.c.name {
	case "utimensat", "futimesat", "file_setattr", "setxattrat", "removexattrat", "fchownat", "fchmodat2":
		byFD = path == "" // NULL (futimens), or AT_EMPTY_PATH
	case "linkat":
		byFD = path == "" && o.flags&unix.AT_EMPTY_PATH != 0
	}
	if byFD {
		if dirfd == atFDCWD {
			return v.find(o.t, atFDCWD, ".", true)
		}
		f, err := v.findFD(o.t, dirfd)
		return o.unnamed(f, err)
	}
	if path == "" {
		return target{}, errMissing
	}
	f, err := v.find(o.t, dirfd, path, o.follows(path))
	return o.unnamed(f, err)
}

// unnamed lets linkat go on with a file that has no name.
func (o *fileOp) unnamed(f target, err error) (target, error) {
	if errors.Is(err, errNoFile) && o.c.do == doLink {
		return target{}, nil
	}
	return f, err
}

// follows tells whether the call follows a link in the last place. A slash
// behind it makes every call do so but those that change names.
func (o *fileOp) follows(path string) bool {
	slash := strings.HasSuffix(path, "/")
	switch o.c.do {
	case doOpen:
		return slash || o.flags&unix.O_NOFOLLOW == 0 && o.flags&(oCreat|oExcl) != oCreat|oExcl
	case doTruncate:
		return true
	case doLink:
		return o.flags&unix.AT_SYMLINK_FOLLOW != 0
	case doMeta:
		switch o.c.name {
		case "lchown", "lsetxattr", "lremovexattr":
			return slash
		}
		return slash || o.flags&unix.AT_SYMLINK_NOFOLLOW == 0
	}
	return false
}

// changesMeta follows setattr_prepare of fs/attr.c.
func (o *fileOp) changesMeta(f *target, n *notification) bool {
	v := o.s.view
	switch o.c.name {
	case "chown", "lchown", "fchown", "fchownat":
		i := 1
		if o.c.name == "fchownat" {
			i = 2
		}
		return o.mayChown(f, uint32(n.args[i]), uint32(n.args[i+1]))
	case "utime", "utimes", "futimesat", "utimensat":
		return o.who.owns(&f.st) || v.mayWrite(o.who, f)
	case "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat":
		return v.mayWrite(o.who, f)
	}
	return o.who.owns(&f.st)
}

// mayChown follows chown_ok and chgrp_ok. In a user namespace with one uid
// any other is refused with EINVAL.
func (o *fileOp) mayChown(f *target, uid, gid uint32) bool {
	const same = ^uint32(0)
	if o.who.has(unix.CAP_CHOWN) {
		return true
	}
	if uid != same && uid != f.st.Uid || gid != same && gid != f.st.Gid && !o.who.inGroup(gid) {
		return false
	}
	return uid == same && gid == same || o.who.uid == f.st.Uid
}

func (o *fileOp) emit(op Op, f, to *target) {
	if within(f.path, "/proc") {
		return // not files
	}
	if op == Rename || op == Exchange {
		o.s.view.moved(f, to)
	}
	c := &FileCall{Op: op, Call: o.c.name, Path: f.path, Before: f.node()}
	if to != nil {
		c.To, c.ToBefore = to.path, to.node()
	}
	o.s.handler.File(c, o.t)
}
