package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// InitArg is the hidden first argument with which gate re-executes itself to
// become the init of the tree; see Init.
const InitArg = "__init"

// Box is a sandbox that is set up and whose command has not started yet.
type Box struct {
	spec Spec
	init *exec.Cmd
	ctl  *control
	view *view

	// Packets is the packet socket on lo; ResolverUDP and ResolverTCP are
	// bound to ResolverAddr; Listeners are those of Spec.Listen, in order. All
	// were made inside the namespace, and are nil in Notify.
	Packets                  *os.File
	ResolverUDP, ResolverTCP *os.File
	Listeners                []*os.File

	// InitPID is the reaper of the tree, in gate's PID namespace.
	InitPID int
	// Proc is a path to the /proc that shows the tree and nothing else; in
	// Notify it is the host's.
	Proc string
	// Unlayered are the mounts of kind Layer that could not be had, each with the
	// reason: the tree writes to them as they are.
	Unlayered []string
	// UserNS tells that the tree has only one uid.
	UserNS bool

	asked   asked
	thread  chan func() // work for the thread that is the parent of init
	closeMu sync.Once
}

// control is gate's end of the socket to init.
type control struct {
	conn int
	mu   sync.Mutex
}

// message is what init and gate say to each other, one JSON object a datagram.
type message struct {
	Step  string   `json:"step"`          // "ready", "listening", "go", "started", "exit", "error", "signal", "listen", "socket"
	Err   string   `json:"err,omitempty"` // error: what went wrong
	Errno int      `json:"errno,omitempty"`
	Code  int      `json:"code,omitempty"` // error before the command ran: 126 or 127
	Files []string `json:"files,omitempty"`

	Unlayered []string `json:"unlayered,omitempty"` // ready: Layers that could not be had, and why
	Exit      *Exit    `json:"exit,omitempty"`
	Signal    int      `json:"signal,omitempty"`
	All       bool     `json:"all,omitempty"`

	Listen *Listen `json:"listen,omitempty"` // listen: what socket to make
	ID     int     `json:"id,omitempty"`     // listen, socket: the question that this answers
}

// maxMessage bounds a message; survivors with long command lines are cut, see
// maxSurvivors.
const maxMessage = 64 << 10

// maxRights is how many descriptors the kernel passes in one message
// (SCM_MAX_FD of include/net/scm.h).
const maxRights = 253

func (c *control) send(m message, fds ...int) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("BUG: encode a message: %w", err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		err = unix.Sendmsg(c.conn, data, rights, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("sendmsg to the other half of gate: %w", err)
	}
	return nil
}

func (c *control) receive() (message, []int, error) {
	buf := make([]byte, maxMessage)
	oob := make([]byte, unix.CmsgSpace(4*maxRights))
	var n, oobn, flags int
	var err error
	for {
		n, oobn, flags, _, err = unix.Recvmsg(c.conn, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return message{}, nil, fmt.Errorf("recvmsg from the other half of gate: %w", err)
	}
	if n == 0 {
		return message{}, nil, io.EOF
	}
	var fds []int
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return message{}, nil, fmt.Errorf("parse SCM_RIGHTS: %w", err)
		}
		for _, cm := range msgs {
			got, err := unix.ParseUnixRights(&cm)
			if err != nil {
				return message{}, nil, fmt.Errorf("parse SCM_RIGHTS: %w", err)
			}
			fds = append(fds, got...)
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return message{}, fds, fmt.Errorf("BUG: a message from the other half of gate is longer than %d bytes or has more than %d descriptors", maxMessage, maxRights)
	}
	var m message
	if err := json.Unmarshal(buf[:n], &m); err != nil {
		return message{}, fds, fmt.Errorf("decode a message: %w", err)
	}
	return m, fds, nil
}

// childSpec is what init needs to know.
type childSpec struct {
	Spec    Spec          `json:"spec"`
	Seccomp []Instruction `json:"seccomp"`
	UserNS  bool          `json:"userns"`
	Resolv  string        `json:"resolv"` // files to mount; "" in Notify
	Hosts   string        `json:"hosts"`
	Texts   [][]byte      `json:"texts"` // see texts
}

// texts are the strings in the orders that come from outside. JSON holds only
// UTF-8 and would change any other byte; arguments, variables and paths may be
// of any (execve(2)), so they travel as bytes beside it.
func (c *childSpec) texts() []*string {
	out := []*string{&c.Spec.Path, &c.Spec.Dir, &c.Resolv, &c.Hosts}
	for _, list := range [][]string{c.Spec.Argv, c.Spec.Env, c.Spec.ReadOnly} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	if files := c.Spec.Closed; files != nil {
		out = append(out, &files.Store)
		for i := range files.Mounts {
			out = append(out, &files.Mounts[i].Target, &files.Mounts[i].Source)
		}
	}
	return out
}

// encode gives the orders as decodeOrders takes them.
func (c childSpec) encode() ([]byte, error) {
	for _, s := range c.texts() {
		c.Texts = append(c.Texts, []byte(*s))
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("BUG: encode the orders for init: %w", err)
	}
	return data, nil
}

func decodeOrders(data []byte) (childSpec, error) {
	var c childSpec
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("decode orders: %w", err)
	}
	texts := c.texts()
	if len(texts) != len(c.Texts) {
		return c, fmt.Errorf("BUG: orders with %d texts for %d places", len(c.Texts), len(texts))
	}
	for i, s := range texts {
		*s = string(c.Texts[i])
	}
	c.Texts = nil
	return c, nil
}

// Open makes the sandbox: it re-executes gate as the init of the tree and
// waits until that has set everything up. The command is started by Run.
func Open(ctx context.Context, spec Spec) (*Box, error) {
	filter, err := Filter(runtime.GOARCH, spec.Tier)
	if err != nil {
		return nil, err
	}
	child := childSpec{Spec: spec, Seccomp: filter}
	cleanup := func() error { return nil }
	if spec.Tier == Namespace {
		dir, err := os.MkdirTemp(spec.Scratch, "gate-etc-")
		if err != nil {
			return nil, fmt.Errorf("make a directory for resolv.conf: %w", err)
		}
		cleanup = func() error { return os.RemoveAll(dir) }
		child.Resolv, child.Hosts, err = writeEtc(dir)
		if err != nil {
			return nil, errors.Join(err, cleanup())
		}
	}
	b, err := open(ctx, child)
	if err := errors.Join(err, cleanup()); err != nil {
		if b != nil {
			b.Close()
		}
		return nil, err
	}
	return b, nil
}

// open tries without a user namespace where gate is root, and with one
// otherwise, or where root may not make the others.
func open(ctx context.Context, child childSpec) (*Box, error) {
	if child.Spec.Tier == Notify {
		return launch(ctx, child)
	}
	if os.Geteuid() == 0 {
		b, err := launch(ctx, child)
		if !errors.Is(err, unix.EPERM) {
			return b, err
		}
	}
	child.UserNS = true
	return launch(ctx, child)
}

// SetupError says at which step of the set-up a sandbox failed.
type SetupError struct {
	Tier Tier
	Step string
	Err  error
}

func (e *SetupError) Error() string { return fmt.Sprintf("%s tier: %s: %v", e.Tier, e.Step, e.Err) }
func (e *SetupError) Unwrap() error { return e.Err }

func launch(ctx context.Context, child childSpec) (*Box, error) {
	spec := child.Spec
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	b := &Box{spec: spec, ctl: &control{conn: pair[0]}, UserNS: child.UserNS, thread: make(chan func())}

	conf, err := confFile(child)
	if err != nil {
		b.Close()
		return nil, err
	}
	defer conf.Close()

	cmd := exec.Command("/proc/self/exe", InitArg)
	cmd.Args[0] = "gate"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.Stdin, spec.Stdout, spec.Stderr
	cmd.ExtraFiles = []*os.File{theirs, conf}
	cmd.Env = []string{"GOGC=off", "GOMAXPROCS=2"} // the command's own environment travels in conf
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if spec.CgroupFD != 0 {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, spec.CgroupFD
	}
	if spec.Tier == Notify {
		// The tree outlives its init here, so init is not to die with gate: it
		// sees the control socket close, and ends the tree first. Should init
		// itself be killed, its orphans come to gate.
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			b.Close()
			return nil, fmt.Errorf("prctl PR_SET_CHILD_SUBREAPER: %w", err)
		}
	}
	if spec.Tier == Namespace {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		flags := uintptr(unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
		if child.UserNS {
			flags |= unix.CLONE_NEWUSER
			uid, gid := os.Geteuid(), os.Getegid()
			// Mapped to themselves: the tree keeps its uid and gid.
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
			cmd.SysProcAttr.AmbientCaps = initCaps
		}
		cmd.SysProcAttr.Cloneflags = flags
	}
	b.init = cmd
	// PDEATHSIG is sent when the parent thread ends, so one thread is kept
	// for as long as the box is open.
	go func() {
		runtime.LockOSThread()
		for f := range b.thread {
			f()
		}
	}()
	started := make(chan error)
	b.thread <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		b.Close()
		return nil, &SetupError{spec.Tier, "clone the namespaces", err}
	}
	b.InitPID = cmd.Process.Pid
	if err := theirs.Close(); err != nil { // so that the death of init is an end of file here
		b.Close()
		return nil, fmt.Errorf("close control socket: %w", err)
	}
	if err := b.ready(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// ready takes init's report and the sockets that it made.
func (b *Box) ready(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { b.Kill() })
	defer stop()
	m, fds, err := b.ctl.receive()
	files := map[string]*os.File{}
	if len(fds) == len(m.Files) {
		for i, name := range m.Files {
			files[name] = os.NewFile(uintptr(fds[i]), name)
		}
	}
	b.Packets, b.ResolverUDP, b.ResolverTCP = files["packets"], files["resolver/udp"], files["resolver/tcp"]
	for i := range b.spec.Listen {
		if f := files[fmt.Sprintf("listen/%d", i)]; f != nil {
			b.Listeners = append(b.Listeners, f)
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &SetupError{b.spec.Tier, "start init", err}
	case m.Step == "error":
		return b.failure(m)
	case m.Step != "ready" || len(fds) != len(m.Files):
		return fmt.Errorf("BUG: init said %q with %d descriptors for %d names", m.Step, len(fds), len(m.Files))
	}
	b.Unlayered = m.Unlayered
	b.Proc = "/proc"
	if b.spec.Tier == Namespace {
		b.Proc = fmt.Sprintf("/proc/%d/root/proc", b.InitPID)
	}
	if b.view, err = openView(b); err == nil {
		return nil
	}
	if m, _, died := b.ctl.receive(); died == nil && m.Step == "error" {
		return b.failure(m) // why init is gone already
	}
	return err
}

// failure makes an error value of init's, errno and all.
func (b *Box) failure(m message) error {
	err := errors.New(m.Err)
	if m.Errno != 0 {
		err = fmt.Errorf("%s: %w", m.Err, syscall.Errno(m.Errno))
	}
	if m.Code != 0 {
		return &StartError{m.Code, err}
	}
	return &SetupError{b.spec.Tier, "set up", err}
}

// Signal sends a signal to the command; SignalAll sends it to every process
// of the tree.
func (b *Box) Signal(sig syscall.Signal) error {
	return b.ctl.send(message{Step: "signal", Signal: int(sig)})
}

// SignalAll sends a signal to every process of the tree.
func (b *Box) SignalAll(sig syscall.Signal) error {
	return b.ctl.send(message{Step: "signal", Signal: int(sig), All: true})
}

// Kill ends init at once, and with it everything in its PID namespace; in
// Notify, where there is none, everything that carries a filter more than gate
// itself. What the tree used is then unknown; to end a run and still know, use
// SignalAll.
func (b *Box) Kill() {
	if b.init == nil || b.init.Process == nil {
		return
	}
	if b.spec.Tier == Notify {
		b.endFiltered()
	}
	_ = b.init.Process.Kill() // it may have ended by itself
}

// endFiltered ends what is below init, and what came to gate as an orphan of
// an init that was killed, until nothing is left: they may fork meanwhile. The
// trees of other boxes are below their own inits.
func (b *Box) endFiltered() {
	self := os.Getpid()
	own, err := readStatus(self)
	for more := err == nil; more; {
		more = false
		below := descendants(b.InitPID)
		for _, pid := range descendants(self) {
			s, err := readStatus(pid)
			ours := err == nil && !s.zombie && s.filters > own.filters
			if ours && !slices.Contains(below, pid) {
				st, err := readStat("/proc", pid)
				ours = err == nil && st.ppid == self
			}
			if ours && unix.Kill(pid, unix.SIGKILL) == nil {
				more = true
			}
		}
	}
}

// Close ends what is left and frees everything. It may be called twice.
func (b *Box) Close() {
	b.closeMu.Do(func() {
		b.Kill()
		if b.init != nil && b.init.Process != nil {
			_ = b.init.Wait() // killed: its status says nothing new
		}
		close(b.thread)
		_ = unix.Close(b.ctl.conn)
		for _, f := range append([]*os.File{b.Packets, b.ResolverUDP, b.ResolverTCP}, b.Listeners...) {
			if f != nil {
				_ = f.Close() // sockets: nothing is written back
			}
		}
		if b.view != nil {
			b.view.close()
		}
	})
}

// confFile puts init's orders into a memory file, since the environment of a
// command may be larger than a datagram.
func confFile(child childSpec) (*os.File, error) {
	data, err := child.encode()
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("gate-orders", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "orders")
	if _, err := f.WriteAt(data, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write orders: %w", err), f.Close())
	}
	return f, nil
}

// writeEtc writes the resolv.conf and hosts that the tree will see. Of the
// host's own table only loopback stays: any other entry would make an
// endpoint an address of this machine, where the ledger wants the name.
func writeEtc(dir string) (resolv, hosts string, err error) {
	resolv, hosts = filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	text := "nameserver " + ResolverAddr.Addr().String() + "\noptions timeout:5 attempts:1\n"
	if err := os.WriteFile(resolv, []byte(text), 0o444); err != nil {
		return "", "", fmt.Errorf("write resolv.conf: %w", err)
	}
	own := "127.0.0.1\tlocalhost " + HostName + "\n::1\tlocalhost ip6-localhost ip6-loopback " + HostName + "\n"
	data, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", fmt.Errorf("read the host's table of names: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "127.") || strings.HasPrefix(line, "::1") {
			own += strings.TrimRight(line, "\n") + "\n"
		}
	}
	if err := os.WriteFile(hosts, []byte(own), 0o444); err != nil {
		return "", "", fmt.Errorf("write hosts: %w", err)
	}
	// The directory is unlinked once the files are mounted; until then the
	// tree's user must be able to pass through it.
	return resolv, hosts, os.Chmod(dir, 0o755)
}
