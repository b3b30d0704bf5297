package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// act does one action inside a box. An error is the exit status 1.
func act(name string, args []string) error {
	do, ok := map[string]func(args []string) error{
		"rows":          runRows,
		"nothing":       func([]string) error { return nil },
		"namespaces":    actNamespaces,
		"clone":         actClone,
		"overlay":       actOverlay,
		"foreign":       func(args []string) error { return actForeign(args[0]) },
		"nodes":         func([]string) error { return actNodes() },
		"own-dirs":      actOwnDirs,
		"many":          actMany,
		"chroot":        actChroot,
		"mounts":        actMounts,
		"pids":          actPIDs,
		"proc":          actProc,
		"detached":      actDetached,
		"unshare":       actUnshare,
		"setuid":        actSetuid,
		"facts":         actFacts,
		"init":          actInit,
		"write":         actWrite,
		"nested":        actNested,
		"dial":          actDial,
		"echo":          actEcho,
		"kill-init":     func([]string) error { return unix.Kill(os.Getppid(), unix.SIGKILL) },
		"serve":         actServe,
		"thread":        actThread,
		"orphan-thread": actOrphanThread,
	}[name]
	if !ok {
		return fmt.Errorf("no action %q", name)
	}
	return do(args)
}

// actNamespaces does another action as root of a user namespace, with mounts
// of its own: unshare -rm.
func actNamespaces(args []string) error { return inNamespaces(unix.CLONE_NEWNS, args) }

// actPIDs is the same with process numbers of its own: unshare -rmpf.
func actPIDs(args []string) error { return inNamespaces(unix.CLONE_NEWNS|unix.CLONE_NEWPID, args) }

func inNamespaces(flags uintptr, args []string) error {
	if len(args) == 0 {
		args = []string{"nothing"}
	}
	cmd := exec.Command("/proc/self/exe", append([]string{actorArg}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	return cmd.Run()
}

// actClone does another action in namespaces that the flags name.
func actClone(args []string) error {
	cmd := exec.Command("/proc/self/exe", append([]string{actorArg}, args[1:]...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: uintptr(atoi(args[0]))}
	if cmd.SysProcAttr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	return cmd.Run()
}

// actOwnDirs lets threads, each with a working directory of its own, create
// files at the same time.
func actOwnDirs(args []string) error {
	threads, files := atoi(args[0]), atoi(args[1])
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Add(1)
		go func() {
			defer wg.Done()
			runtime.LockOSThread() // and never unlocked: the thread is no longer like the others
			errs[i] = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir("t"+strconv.Itoa(i)))
			for j := range files {
				errs[i] = errors.Join(errs[i], create("f"+strconv.Itoa(j))())
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// actMany creates files while the runtime is made to preempt: SIGURG arrives
// at any moment, with SA_RESTART.
func actMany(args []string) error {
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	defer close(stop)
	for i := range atoi(args[0]) {
		if err := create("f" + strconv.Itoa(i))(); err != nil {
			return err
		}
	}
	return nil
}

func actChroot([]string) error {
	return then(
		create("before"),
		func() error { return unix.Chroot("r") },
		create("outside"), // the working directory did not change
		func() error { return unix.Chdir("/") },
		create("/f"), create("../../g"), create("/l/h"),
		sys("mkdirat", cwd, "/l/../i", 0o755),
		sys("renameat2", cwd, "/f", cwd, "d/f", 0),
	)()
}

// actMounts is run in a mount namespace of its own.
func actMounts([]string) error {
	return then(
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount("tmpfs", "t", "tmpfs", 0, "") },
		create("t/f"),
		func() error { return unix.Mount("d", "m", "", unix.MS_BIND, "") },
		create("m/f"),
		func() error { return unix.Mount("secret", "seen", "", unix.MS_BIND, "") },
		opened("seen", unix.O_WRONLY),
		func() error { return unix.Mkdir("t/m", 0o755) },
		func() error { return unix.Mount("d", "t/m", "", unix.MS_BIND, "") },
		create("t/m/g"),
		create("after"),
	)()
}

// actProc is run in namespaces of its own: it names files by the magic links
// of procfs, and by what looks like them.
func actProc([]string) error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	mount := func(source, target, kind string, flags uintptr) func() error {
		return func() error { return unix.Mount(source, target, kind, flags, "") }
	}
	return withFD("d", unix.O_PATH, func(fd int) error {
		n := strconv.Itoa(fd)
		return then(
			mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE),
			create("/proc/self/cwd/a"), create("/proc/thread-self/cwd/b"), create(procFD(fd)+"/a"), create("/dev/fd/"+n+"/b"),
			mount("/proc", "bound", "", unix.MS_BIND|unix.MS_REC),
			reached("bound/self/cwd/s"), reached("/proc/self/cwd/s"),
			create("bound/self/cwd/c"), create("bound/thread-self/fd/"+n+"/c"), create("bound/self/root/"+wd+"/d/d"),
			opened("bound/self/coredump_filter", unix.O_RDWR),
			mount("proc", "new", "proc", 0),
			create("new/self/cwd/e"), create("new/"+strconv.Itoa(os.Getpid())+"/cwd/f"), create("new/self/root/../"+wd+"/d/e"),
			opened("new/self/coredump_filter", unix.O_RDWR),
			mount("d", "/proc", "", unix.MS_BIND),
			create("/proc/f"),
		)()
	})()
}

// reached connects to a socket that refuses.
func reached(path string) func() error {
	return func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.ECONNREFUSED {
			return fmt.Errorf("connect %s: got %w, want %w", path, err, unix.ECONNREFUSED)
		}
		return nil
	}
}

// actDetached is run in a mount namespace of its own.
func actDetached([]string) error {
	fd, err := unix.OpenTree(cwd, "o", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	return then(
		sys("openat", fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644),
		sys("openat", fd, "tmp/f", unix.O_CREAT|unix.O_WRONLY, 0o644),
		sys("openat", fd, "../tmp/g", unix.O_CREAT|unix.O_WRONLY, 0o644),
		create("after"),
	)()
}

// actUnshare asks for what it may not have.
func actUnshare([]string) error {
	for _, step := range []func() error{
		sys("unshare", unix.CLONE_NEWNET), sys("unshare", unix.CLONE_NEWNS), sys("setns", 0, unix.CLONE_NEWNET), sys("pivot_root", ".", "."),
	} {
		if err := step(); err != unix.EPERM && err != unix.EINVAL { // EINVAL: setns(2) of what is no namespace
			return fmt.Errorf("got %w, want %w", err, unix.EPERM)
		}
	}
	return nil
}

// actOverlay writes through an overlay, by a call that names no directory of
// anybody else's.
func actOverlay([]string) error {
	return then(
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error {
			return unix.Mount("overlay", "m", "overlay", 0, "lowerdir=d,upperdir=up,workdir=work")
		},
		create("m/f"),
	)()
}

func actSetuid(args []string) error {
	return then(
		create("as-root"),
		func() error { return syscall.Setresuid(testUID, testUID, testUID) },
		create("open/as-user"),
		func() error {
			if err := create("no")(); err != unix.EACCES {
				return fmt.Errorf("create as uid %d: %w", testUID, err)
			}
			return nil
		},
	)()
}

// facts is what a process sees of its box.
type facts struct {
	UID, GID, PID, Parent int
	Status                map[string]string // lines of /proc/self/status
	HostName, Resolv      string
	Lo                    string
	LoAddrs               []string
	Others                int // interfaces beside lo
	FDs                   []string
	Processes             int // that /proc shows
}

func actFacts([]string) error {
	f := facts{UID: os.Getuid(), GID: os.Getgid(), PID: os.Getpid(), Parent: os.Getppid(), Status: map[string]string{}}
	status, err1 := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp":
			f.Status[key] = strings.TrimSpace(value)
		}
	}
	var err2, err3, err4 error
	f.HostName, err2 = os.Hostname()
	resolv, err5 := os.ReadFile("/etc/resolv.conf")
	f.Resolv = string(resolv)
	ifs, err3 := net.Interfaces()
	for _, i := range ifs {
		if i.Name != "lo" {
			f.Others++
			continue
		}
		f.Lo = i.Flags.String()
		addrs, err := i.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			f.LoAddrs = append(f.LoAddrs, a.String())
		}
		slices.Sort(f.LoAddrs)
	}
	fds, err4 := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			return err
		}
		flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 { // what Go itself has open is close-on-exec
			f.FDs = append(f.FDs, fd.Name())
		}
	}
	procs, err6 := os.ReadDir("/proc")
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err == nil {
			f.Processes++
		}
	}
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// actInit tries to get at the init of the box, and prints what it got.
func actInit([]string) error {
	const init = "/proc/1/"
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSTOP} {
		_ = unix.Kill(1, sig) // root may send it; PID 1 is not reached by it
	}
	fmt.Println("ptrace:", unix.PtraceAttach(1))
	for _, name := range []string{"mem", "environ", "maps"} {
		f, err := os.Open(init + name)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			_ = f.Close()
		}
		fmt.Println(name+":", errors.Unwrap(err))
	}
	_, err := os.Readlink(init + "fd/3")
	fmt.Println("fd:", errors.Unwrap(err))
	_, err = readMemory(1, 0x400000, make([]byte, 1))
	fmt.Println("memory:", err)
	pidfd, err := unix.PidfdOpen(1, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(pidfd, 3, 0)
	}
	fmt.Println("descriptor:", err)
	return nil
}

// actWrite tries everything on a file that must not change.
func actWrite(args []string) error {
	f := args[0]
	for _, step := range []struct {
		name string
		act  func() error
	}{
		{"write", opened(f, unix.O_WRONLY)},
		{"truncate", sys("truncate", f, 0)},
		{"chmod", sys("fchmodat", cwd, f, 0o777)},
		{"unlink", sys("unlinkat", cwd, f, 0)},
		{"rename over", sys("renameat2", cwd, "other", cwd, f, 0)},
		{"rename away", sys("renameat2", cwd, f, cwd, "away", 0)},
		{"link and write", then(sys("linkat", cwd, f, cwd, "link", 0), opened("link", unix.O_WRONLY))},
		{"remount", func() error { return unix.Mount("", f, "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"unmount", func() error { return unix.Unmount(f, 0) }},
	} {
		err := step.act()
		fmt.Printf("%s: %v\n", step.name, err)
	}
	return nil
}

// actNested opens a box inside the box.
func actNested(args []string) error {
	b, err := Open(context.Background(), Spec{Tier: Tier(args[0]), Argv: []string{"/bin/true"}, Path: "/bin/true", Dir: "/", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	if err == nil {
		_, err = b.Run(context.Background(), &recorder{})
		b.Close()
	}
	fmt.Println(err)
	return nil
}

// actDial connects, says so, and prints what it is told.
func actDial(args []string) error {
	conn, err := net.Dial(args[0], args[1])
	if err != nil {
		fmt.Println(errors.Unwrap(errors.Unwrap(err)))
		return nil
	}
	defer conn.Close()
	buf := make([]byte, 100)
	if args[0] == "udp" {
		_, err := conn.Write([]byte("hello"))
		return err
	}
	n, err := conn.Read(buf)
	fmt.Println(string(buf[:n]))
	return err
}

// actEcho talks to itself over loopback.
func actEcho(args []string) error {
	l, err := net.Listen(args[0], args[1])
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte("from inside"))
			err = errors.Join(err, conn.Close())
		}
		failed <- err
	}()
	return errors.Join(actDial([]string{args[0], l.Addr().String()}), <-failed, l.Close())
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
