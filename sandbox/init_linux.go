package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors that Open hands to init.
const (
	controlFD = 3
	ordersFD  = 4
)

// How long a process that outlives the command may go on: unnoticed, and
// after SIGTERM.
const (
	graceQuiet = 100 * time.Millisecond
	graceTerm  = time.Second
)

// Init is the first process of the tree: gate re-executed inside the new
// namespaces. It sets them up, starts the command, reaps everything that
// becomes its child, and reports. It returns its exit status.
//
// The command is forked from one thread that alone carries the filter, the
// dropped capabilities and the credentials of the tree; all three are
// attributes of a thread and pass to a child of that thread. The other
// threads stay free to talk to gate: a filtered thread that sent the
// listener would wait for an answer that only the receiver can give.
//
// With the argument "probe" it is instead the command of Probe.
func Init(args []string) int {
	if len(args) > 0 && args[0] == probeArg {
		return probed()
	}
	ctl := &control{conn: controlFD}
	err := runInit(ctl)
	if err == nil {
		return 0
	}
	m := message{Step: "error", Err: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		m.Errno = int(errno)
		m.Err = strings.TrimSuffix(m.Err, ": "+errno.Error())
	}
	var start *StartError
	if errors.As(err, &start) {
		m.Code = start.Code
	}
	if err := ctl.send(m); err != nil {
		return 2 // gate is gone, and sees the end of file
	}
	return 1
}

func runInit(ctl *control) error {
	// Nothing of gate's, nor what the caller's shell left open, reaches the command.
	if err := unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	holdSignals()
	data, err := io.ReadAll(io.NewSectionReader(os.NewFile(ordersFD, "orders"), 0, 1<<31))
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	orders, err := decodeOrders(data)
	if err != nil {
		return err
	}
	var made furnished
	if orders.Spec.Tier == Namespace {
		if err := hide(); err != nil {
			return err
		}
		if made, err = furnish(orders); err != nil {
			return err
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_CHILD_SUBREAPER: %w", err)
	}
	if err := ctl.send(message{Step: "ready", Files: made.names, Unlayered: made.unlayered}, made.fds...); err != nil {
		return err
	}
	for _, fd := range made.fds {
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("close a socket that was handed over: %w", err)
		}
	}
	return conduct(ctl, orders)
}

// hide closes /proc/PID of init, its memory above all, to the tree, even where
// uids are equal.
func hide() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// holdSignals makes init survive what a terminal sends to the whole
// foreground group; the command gets it directly. Handled, not ignored: an
// ignored signal would stay ignored in the command. What the caller already
// ignores (nohup) stays ignored for the command too.
func holdSignals() {
	sink := make(chan os.Signal, 1)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGXCPU, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM} {
		if !signal.Ignored(s) {
			signal.Notify(sink, s)
		}
	}
}

// furnished is what furnish made.
type furnished struct {
	names     []string // of the sockets
	fds       []int
	unlayered []string // see closeFiles
}

// furnish sets the namespaces up and makes the sockets that gate needs from
// inside them.
func furnish(orders childSpec) (out furnished, err error) {
	type step struct {
		name string
		do   func() error
	}
	steps := []step{
		{"raise loopback", raiseLoopback},
		{"set the host name", func() error { return unix.Sethostname([]byte(HostName)) }},
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount resolv.conf", func() error { return mountOver(orders.Resolv, "/etc/resolv.conf") }},
		{"mount hosts", func() error { return mountOver(orders.Hosts, "/etc/hosts") }},
	}
	if c := orders.Spec.Closed; c != nil {
		steps = append(steps, step{"close the file system", func() (err error) {
			out.unlayered, err = closeFiles(c, orders.Spec.User, orders.UserNS)
			return err
		}})
	}
	// A mount that is made before the file system is closed would be closed too.
	steps = append(steps, step{"mount /proc", func() error {
		return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}})
	for _, path := range orders.Spec.ReadOnly {
		steps = append(steps, step{"make " + path + " read-only", func() error { return mountOver(path, path) }})
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return out, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	add := func(name string, fd int, err error) error {
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		out.names, out.fds = append(out.names, name), append(out.fds, fd)
		return nil
	}
	fd, err := packetSocket(orders.Spec.PacketFilter)
	if err := add("packets", fd, err); err != nil {
		return out, err
	}
	wanted := append([]Listen{{"udp", ResolverAddr}, {"tcp", ResolverAddr}}, orders.Spec.Listen...)
	for i, l := range wanted {
		name := "resolver/" + l.Network
		if i >= 2 {
			name = "listen/" + strconv.Itoa(i-2)
		}
		fd, err := listen(l)
		if err := add(name, fd, err); err != nil {
			return out, fmt.Errorf("%s %s: %w", l.Network, l.Addr, err)
		}
	}
	return out, nil
}

// conduct starts the command, reaps until it has ended and nothing is left,
// and reports.
func conduct(ctl *control, orders childSpec) error {
	type result struct {
		pid int
		err error
	}
	listener := make(chan result)
	proceed := make(chan struct{})
	child := make(chan result)
	dropped := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: this thread is the tree's
		fd, err := becomeTree(orders)
		listener <- result{fd, err}
		if err != nil {
			return
		}
		<-proceed
		// capset passes the filter too, and gate answers only from now on.
		if err := dropCaps(orders.Spec); err != nil {
			dropped <- err
			return
		}
		pid, err := syscall.ForkExec(orders.Spec.Path, orders.Spec.Argv, &syscall.ProcAttr{
			Dir: orders.Spec.Dir, Env: orders.Spec.Env, Files: []uintptr{0, 1, 2},
		})
		child <- result{pid, err}
		select {}
	}()
	l := <-listener
	if l.err != nil {
		return l.err
	}
	if err := ctl.send(message{Step: "listening"}, l.pid); err != nil {
		return err
	}
	if err := unix.Close(l.pid); err != nil {
		return fmt.Errorf("close listener: %w", err)
	}
	if m, _, err := ctl.receive(); err != nil || m.Step != "go" {
		return fmt.Errorf("wait for gate: %q: %w", m.Step, err)
	}
	if err := firstPID(orders.Spec.FirstPID); err != nil {
		return err
	}
	close(proceed)
	var c result
	select {
	case err := <-dropped:
		return err
	case c = <-child:
	}
	if c.err != nil {
		code := 126
		if errors.Is(c.err, unix.ENOENT) || errors.Is(c.err, unix.ENOTDIR) {
			code = 127
		}
		return &StartError{code, fmt.Errorf("start %s: %w", orders.Spec.Path, c.err)}
	}
	if orders.Spec.Tier == Notify {
		// Not before: the forked child shares init's memory until its exec, and
		// gate, which has no rights over it here, must read its first calls.
		if err := hide(); err != nil {
			return err
		}
	}
	if err := ctl.send(message{Step: "started"}); err != nil {
		return err
	}
	r := &reaper{pidns: orders.Spec.Tier == Namespace, command: c.pid}
	go r.obey(ctl)
	exit, err := r.run()
	if err != nil {
		return err
	}
	return ctl.send(message{Step: "exit", Exit: exit})
}

// firstPID sets the pid that the next process of the namespace gets
// (proc_sys_kernel(5), ns_last_pid). Many a suite puts its pid into a name.
// Kernels without CONFIG_CHECKPOINT_RESTORE do not have it, and go on.
func firstPID(pid int) error {
	if pid == 0 {
		return nil
	}
	err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// reaper waits for the children of init: the command and every orphan.
type reaper struct {
	pidns   bool // init is PID 1, and kill(-1) reaches the tree and nothing else
	command int
}

// obey passes signals on until gate closes the socket; then the tree dies: a
// trapped call without a supervisor fails with ENOSYS, and its record is lost.
func (r *reaper) obey(ctl *control) {
	for {
		m, _, err := ctl.receive()
		if err == nil && m.Step == "listen" && m.Listen != nil {
			if err = listenFor(ctl, m); err == nil {
				continue
			}
		}
		if err != nil || m.Step != "signal" {
			for {
				r.all(unix.SIGKILL)
				time.Sleep(10 * time.Millisecond)
			}
		}
		if m.All {
			r.all(syscall.Signal(m.Signal))
		} else {
			_ = unix.Kill(r.command, syscall.Signal(m.Signal)) // ESRCH: it has ended
		}
	}
}

// listenFor makes a socket that gate asks for while the tree runs.
func listenFor(ctl *control, m message) error {
	reply := message{Step: "socket", ID: m.ID}
	fd, err := listen(*m.Listen)
	if err != nil {
		reply.Err = err.Error()
		return ctl.send(reply)
	}
	return errors.Join(ctl.send(reply, fd), unix.Close(fd))
}

// run returns when no process of the tree is left.
func (r *reaper) run() (*Exit, error) {
	exit := &Exit{}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("wait4: %w", err)
		}
		if pid == r.command {
			if ws.Signaled() {
				exit.Signal = int(ws.Signal())
			} else {
				exit.Code = ws.ExitStatus()
			}
			break
		}
	}
	var err error
	if exit.Survivors, err = r.clear(); err != nil {
		return nil, err
	}
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ru); err != nil {
		return nil, fmt.Errorf("getrusage: %w", err)
	}
	exit.User, exit.System = time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return nil, fmt.Errorf("getrusage: %w", err)
	}
	exit.InitUser, exit.InitSystem = time.Duration(ru.Utime.Nano()), time.Duration(ru.Stime.Nano())
	return exit, nil
}

// clear ends what outlived the command, and names it. A process that is on
// its way out anyway is no survivor.
func (r *reaper) clear() ([]Survivor, error) {
	if done, err := reapFor(graceQuiet); done || err != nil {
		return nil, err
	}
	r.freeze() // or a process that forks and ends faster than it is listed has no name
	list := r.list()
	r.all(unix.SIGTERM)
	r.all(unix.SIGCONT)
	done, err := reapFor(graceTerm)
	for !done && err == nil {
		r.all(unix.SIGKILL)
		done, err = reapFor(graceQuiet)
	}
	return list, err
}

// reapFor reaps for a while; done means that no child is left.
func reapFor(d time.Duration) (done bool, err error) {
	for end := time.Now().Add(d); ; {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		switch {
		case err == unix.ECHILD:
			return true, nil
		case err == unix.EINTR, pid > 0:
			continue
		case err != nil:
			return false, fmt.Errorf("wait4: %w", err)
		case time.Now().After(end):
			return false, nil
		}
		time.Sleep(time.Millisecond)
	}
}

// all signals every process of the tree.
func (r *reaper) all(sig syscall.Signal) {
	if r.pidns {
		_ = unix.Kill(-1, sig) // ESRCH: nobody is left
		return
	}
	if sig == unix.SIGKILL {
		r.halt()
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, sig) // it may have ended since it was listed
	}
}

// haltRounds bounds the looks at a tree that forks faster than it is stopped.
const haltRounds = 50

// halt stops every process, until a look finds none that was not stopped: a
// tree that forks without end would else be ahead of its list for ever.
func (r *reaper) halt() {
	stopped := map[int]bool{}
	for range haltRounds {
		fresh := false
		for _, pid := range descendants(os.Getpid()) {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended since it was listed
			}
		}
		if !fresh {
			return
		}
	}
}

// Bounds of the survivors in a report. Written as JSON, where a byte can take
// six, they are still below maxMessage.
const (
	maxSurvivors    = 20
	maxSurvivorSize = 400
)

// freeze stops every process of the tree.
func (r *reaper) freeze() {
	if r.pidns {
		_ = unix.Kill(-1, unix.SIGSTOP) // ESRCH: nobody is left
		return
	}
	r.halt()
}

// list names the processes of the tree.
func (r *reaper) list() []Survivor {
	var out []Survivor
	for _, pid := range descendants(os.Getpid()) {
		argv := commandLine(pid)
		if argv == nil {
			continue // a zombie, or gone
		}
		if len(out) == maxSurvivors {
			break
		}
		out = append(out, Survivor{PID: pid, Argv: abridged(argv, maxSurvivorSize)})
	}
	return out
}

// abridged is a command line cut to a size.
func abridged(argv []string, size int) []string {
	for i, a := range argv {
		if len(a) > size {
			return append(argv[:i:i], a[:size]+"...")
		}
		size -= len(a)
	}
	return argv
}

// descendants are the pids below one, parents first, as /proc shows them.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := readStat("/proc", p); err == nil {
			children[st.ppid] = append(children[st.ppid], p)
		}
	}
	var out []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		out = append(out, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return out
}

// becomeTree makes the calling thread what the command will be, and returns
// the listener of its filter.
func becomeTree(orders childSpec) (int, error) {
	spec := orders.Spec
	if spec.CPUHard > 0 {
		lim := unix.Rlimit{Cur: spec.CPUSoft, Max: spec.CPUHard}
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_CPU, &old); err != nil {
			return 0, fmt.Errorf("getrlimit RLIMIT_CPU: %w", err)
		}
		lim.Max, lim.Cur = min(lim.Max, old.Max), min(lim.Cur, old.Cur, lim.Max)
		if err := unix.Setrlimit(unix.RLIMIT_CPU, &lim); err != nil {
			return 0, fmt.Errorf("setrlimit RLIMIT_CPU: %w", err)
		}
	}
	privileged := os.Geteuid() == 0 && spec.Tier == Namespace
	if spec.Tier == Namespace {
		if err := dropBounding(privileged); err != nil {
			return 0, err
		}
	}
	if !privileged || spec.Tier == Notify || spec.User != nil {
		// Without CAP_SYS_ADMIN the kernel asks for it; inside a user
		// namespace with one uid, set-uid programs could not work anyway.
		// Under sudo one would write with rights that are not the user's, and
		// so be taken for a call that fails.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
		}
	}
	if spec.User != nil {
		if err := becomeUser(*spec.User); err != nil {
			return 0, err
		}
	}
	return installFilter(orders.Seccomp)
}

// installFilter loads the program for this thread and its future children.
// WAIT_KILLABLE_RECV (5.19) keeps a signal from restarting a call that gate
// has seen; kernels before that refuse the flag with EINVAL.
func installFilter(program []Instruction) (int, error) {
	prog := struct {
		len    uint16
		filter unsafe.Pointer
	}{uint16(len(program)), unsafe.Pointer(&program[0])}
	const base = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	for _, flags := range []uintptr{base | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, base} {
		fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		runtime.KeepAlive(program)
		switch errno {
		case 0:
			return int(fd), nil
		case unix.EINVAL:
			continue
		case unix.EBUSY:
			return 0, fmt.Errorf("seccomp: another supervisor already listens to this process (gate inside gate, a container runtime, WSL2): %w", errno)
		default:
			return 0, fmt.Errorf("seccomp SECCOMP_SET_MODE_FILTER: %w", errno)
		}
	}
	return 0, fmt.Errorf("seccomp SECCOMP_FILTER_FLAG_NEW_LISTENER: %w", unix.EINVAL)
}

// listen makes a socket bound to an address that need not be local.
func listen(l Listen) (int, error) {
	family, typ := unix.AF_INET6, unix.SOCK_STREAM
	if l.Addr.Addr().Is4() {
		family = unix.AF_INET
	}
	if l.Network == "udp" {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	fail := func(call string, err error) (int, error) {
		return 0, errors.Join(fmt.Errorf("%s: %w", call, err), unix.Close(fd))
	}
	level, freebind := unix.SOL_IP, unix.IP_FREEBIND
	if family == unix.AF_INET6 {
		level, freebind = unix.SOL_IPV6, unix.IPV6_FREEBIND
		if err := unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fail("setsockopt IPV6_V6ONLY", err)
		}
	}
	if err := unix.SetsockoptInt(fd, level, freebind, 1); err != nil {
		return fail("setsockopt IP_FREEBIND", err)
	}
	if err := unix.Bind(fd, sockaddr(l.Addr)); err != nil {
		return fail("bind", err)
	}
	if typ == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 128); err != nil {
			return fail("listen", err)
		}
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// packetSocket is the second witness of column 1. The filter is attached
// before the socket is bound, so that nothing slips in between.
func packetSocket(filter []Instruction) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("socket AF_PACKET: %w", err)
	}
	fail := func(call string, err error) (int, error) {
		return 0, errors.Join(fmt.Errorf("%s: %w", call, err), unix.Close(fd))
	}
	if len(filter) > 0 {
		raw := make([]unix.SockFilter, len(filter))
		for i, in := range filter {
			raw[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
		}
		prog := unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
			return fail("setsockopt SO_ATTACH_FILTER", err)
		}
	}
	// A burst must not be lost. Where more than net.core.rmem_max is refused
	// the kernel's statistics still tell of every drop.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20); err != nil {
			return fail("setsockopt SO_RCVBUF", err)
		}
	}
	const ethPAll = 0x0003
	to := unix.SockaddrLinklayer{Protocol: ethPAll<<8 | ethPAll>>8, Ifindex: loIndex}
	if err := unix.Bind(fd, &to); err != nil {
		return fail("bind AF_PACKET", err)
	}
	return fd, nil
}

// mountOver binds a file over another, read-only. The kernel follows both to
// what they really are: /etc/resolv.conf is a link on many hosts. A target
// that does not exist is left alone.
func mountOver(source, target string) error {
	fd, err := unix.Open(target, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", target, err)
	}
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount --bind %s %s: %w", source, target, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	err = unix.MountSetattr(unix.AT_FDCWD, target, 0, &attr)
	if err == unix.ENOSYS { // before 5.12; keep the flags that are locked
		var st unix.Statfs_t
		if err := unix.Statfs(target, &st); err != nil {
			return fmt.Errorf("statfs %s: %w", target, err)
		}
		keep := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
		err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|keep, "")
	}
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}
