package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's MAXSYMLINKS.
const maxLinks = 40

// The flags of openat2(2) that keep a path below where it starts.
const scoped = unix.RESOLVE_BENEATH | unix.RESOLVE_IN_ROOT

// resolveCached is RESOLVE_CACHED, which x/sys does not have for Linux.
const resolveCached = 0x20

// spot is a directory that a walk has come to.
type spot struct {
	fd   int    // O_PATH
	path string // as the kernel tells it, from the root of the mount namespace, which is ""
	st   unix.Stat_t
}

// walker resolves a path component by component, as path_resolution(7) says.
// Each directory is opened by way of the one before, so that where the walk
// is does not depend on what anything is called.
type walker struct {
	view    *view
	task    *task
	root    spot // which "/" and ".." do not leave
	at      spot
	start   int    // the descriptor it began at, if that is not the root's; like that, not its own
	resolve uint64 // RESOLVE_ flags
	mount   uint64 // the only one for RESOLVE_NO_XDEV

	passedProc bool // what the path leads to may differ from task to task
	jumped     bool // over a magic link: the text may be of any mount namespace
}

// walker starts at the tree's own root.
func (v *view) walker(t *task) (*walker, error) {
	root := spot{fd: v.root}
	if err := unix.Fstat(root.fd, &root.st); err != nil {
		return nil, errMissing
	}
	return &walker{view: v, task: t, root: root, at: root}, nil
}

func (w *walker) close() { w.move(w.root) }

func (w *walker) move(to spot) {
	if w.at.fd != w.root.fd && w.at.fd != w.start {
		_ = unix.Close(w.at.fd) // O_PATH: nothing is written back
	}
	w.at = to
}

// walk resolves an absolute path from the tree's root.
func (v *view) walk(t *task, name string, follow bool) (target, error) {
	w, err := v.walker(t)
	if err != nil {
		return target{}, err
	}
	defer w.close()
	return w.run(name, follow)
}

// walkFrom resolves a path from where the task itself stands: from its own
// root, and from the very directory that a descriptor is open on.
func (v *view) walkFrom(t *task, dirfd int32, name string, follow bool, resolve uint64) (target, error) {
	absolute := strings.HasPrefix(name, "/")
	if absolute && resolve&unix.RESOLVE_BENEATH != 0 {
		return target{}, errMissing // EXDEV
	}
	root, err := v.enter(t, "root", "")
	if err != nil {
		return target{}, err
	}
	defer unix.Close(root.fd)
	w := walker{view: v, task: t, resolve: resolve, root: root, at: root}
	if !absolute || resolve&unix.RESOLVE_IN_ROOT != 0 {
		start, err := v.enter(t, origin(dirfd), name)
		if err != nil {
			return target{}, err
		}
		defer unix.Close(start.fd)
		if w.at = start; resolve&scoped != 0 {
			w.root = start
		}
		w.start = start.fd
	}
	defer w.close()
	if resolve&unix.RESOLVE_NO_XDEV != 0 {
		if w.mount, err = mountID(w.at.fd); err != nil {
			return target{}, fmt.Errorf("%w: statx: %w", errPlace, err)
		}
	}
	return w.run(name, follow)
}

// enter opens a directory of a task: cwd, root, fd/N.
func (v *view) enter(t *task, link, name string) (spot, error) {
	text, err := v.base(t, link, name)
	if err != nil {
		return spot{}, err
	}
	s := spot{path: text}
	if s.fd, err = unix.Open(t.link(link), unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return spot{}, closed(err)
	}
	if err := unix.Fstat(s.fd, &s.st); err != nil {
		return spot{}, errors.Join(errMissing, unix.Close(s.fd))
	}
	return s, nil
}

// closed tells a link of /proc that is closed to gate, though maybe not to the
// task, from one that leads nowhere.
func closed(err error) error {
	if errno := unix.Errno(0); !errors.As(err, &errno) {
		return err
	}
	if err == unix.EACCES || err == unix.EPERM {
		return fmt.Errorf("%w: %w", errUnnamed, err)
	}
	return errMissing
}

func (w *walker) run(name string, follow bool) (target, error) {
	out, err := w.steps(strings.Split(name, "/"), follow)
	if err != nil {
		return target{}, err
	}
	return out, w.settle(&out)
}

// steps goes along the components. What it returns is where the walk stands,
// or an entry of it.
func (w *walker) steps(todo []string, follow bool) (target, error) {
	links := 0
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "":
			continue
		case ".", "..":
			if w.at.st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return target{}, errMissing
			}
			if part == ".." {
				if err := w.up(); err != nil {
					return target{}, err
				}
			}
			continue
		}
		last := !someName(todo)
		out := target{path: w.at.path + "/" + part}
		fd, err := unix.Openat(w.at.fd, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case err == unix.ENOENT && last && w.at.st.Mode&unix.S_IFMT == unix.S_IFDIR:
			return out, nil
		case err != nil:
			return target{}, w.denied(err)
		}
		next := spot{fd: fd, path: out.path}
		if err := w.look(&next); err != nil {
			return target{}, err
		}
		out.exists, out.st = true, next.st
		if !out.is(unix.S_IFLNK) || last && !follow {
			if last {
				_ = unix.Close(fd) // O_PATH
				return out, nil
			}
			w.move(next)
			continue
		}
		text, err := readlink(fd, "")
		_ = unix.Close(fd) // O_PATH
		if links++; links > maxLinks || w.resolve&unix.RESOLVE_NO_SYMLINKS != 0 {
			return target{}, errMissing // ELOOP
		}
		if err == nil || err == unix.ENOENT { // gate is not in that PID namespace
			text, err = w.link(part, text)
		}
		if err != nil {
			return target{}, closed(err)
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	return target{path: w.at.path, exists: true, st: w.at.st}, nil
}

// someName tells whether a component is left: "." counts, it wants a directory.
func someName(parts []string) bool {
	for _, p := range parts {
		if p != "" {
			return true
		}
	}
	return false
}

// look reads what a spot is; it is closed if the walk may not go there.
func (w *walker) look(s *spot) error {
	err := unix.Fstat(s.fd, &s.st)
	if err == nil && w.resolve&unix.RESOLVE_NO_XDEV != 0 {
		var id uint64
		if id, err = mountID(s.fd); err == nil && id != w.mount {
			err = unix.EXDEV
		}
	}
	if err != nil {
		_ = unix.Close(s.fd) // O_PATH
		return errMissing
	}
	return nil
}

// denied: gate may not search a directory. The task may, if it has rights of
// its own.
func (w *walker) denied(err error) error {
	who := w.view.credsOf(w.task)
	if err == unix.EACCES && !who.equal(&w.view.creds) && w.view.may(who, w.at.path, &w.at.st, mayExec) {
		return fmt.Errorf("%w: %w", errUnnamed, err)
	}
	return errMissing
}

// up goes to the parent, but not out of the root.
func (w *walker) up() error {
	top, err := w.atRoot()
	if err != nil {
		return err
	}
	if top {
		if w.resolve&unix.RESOLVE_BENEATH != 0 {
			return errMissing // EXDEV
		}
		return nil
	}
	s := spot{path: w.at.path[:max(0, strings.LastIndexByte(w.at.path, '/'))]}
	if s.fd, err = unix.Openat(w.at.fd, "..", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return w.denied(err)
	}
	if err := w.look(&s); err != nil {
		return err
	}
	w.move(s)
	return nil
}

// atRoot: the same directory on the same mount.
func (w *walker) atRoot() (bool, error) {
	if w.at.fd == w.root.fd {
		return true, nil
	}
	if w.at.st.Dev != w.root.st.Dev || w.at.st.Ino != w.root.st.Ino {
		return false, nil
	}
	here, err1 := mountID(w.at.fd)
	root, err2 := mountID(w.root.fd)
	if err := errors.Join(err1, err2); err != nil {
		return false, fmt.Errorf("%w: statx: %w", errPlace, err)
	}
	return here == root, nil
}

// link follows a link, and returns what is to be resolved from there.
func (w *walker) link(part, text string) (string, error) {
	if isProc(w.at.fd) {
		w.passedProc = true
		const rootIno = 1 // PROC_ROOT_INO
		switch {
		case w.at.st.Ino == rootIno && (part == "self" || part == "thread-self"):
			return w.self(part == "thread-self")
		case w.at.st.Ino != rootIno && (strings.HasPrefix(text, "/") || strings.Contains(text, ":")):
			return "", w.jump(part, text)
		}
	}
	if !strings.HasPrefix(text, "/") {
		return text, nil
	}
	if w.resolve&unix.RESOLVE_BENEATH != 0 {
		return "", errMissing // EXDEV
	}
	if w.resolve&unix.RESOLVE_NO_XDEV != 0 {
		if id, err := mountID(w.root.fd); err != nil || id != w.mount {
			return "", errMissing // EXDEV
		}
	}
	w.move(w.root)
	return text, nil
}

// jump follows a magic link (proc_pid_fd(5)): its text is only a description,
// the kernel goes to the file itself.
func (w *walker) jump(part, text string) error {
	if w.resolve&(scoped|unix.RESOLVE_NO_MAGICLINKS) != 0 {
		return errMissing // EXDEV, ELOOP
	}
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "/memfd:") {
		return errNoFile
	}
	fd, err := unix.Openat(w.at.fd, part, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s := spot{fd: fd, path: strings.TrimRight(text, "/")}
	if err := w.look(&s); err != nil {
		return err
	}
	w.move(s)
	w.jumped = true
	if s.st.Nlink == 0 {
		return errNoFile
	}
	return nil
}

// self is what /proc/self or /proc/thread-self holds for the task: its number
// in the PID namespace that the procfs was mounted for, which may be any of
// those that the task is in (pid_namespaces(7)).
func (w *walker) self(thread bool) (string, error) {
	own, err := readPIDs(unix.AT_FDCWD, w.task.link("status"))
	if err != nil {
		return "", errMissing // it has died
	}
	var ns, st unix.Stat_t
	if err := unix.Stat(w.task.link("ns/pid"), &ns); err != nil {
		return "", closed(err)
	}
	for i, n := range own.process {
		entry := strconv.Itoa(n)
		if unix.Fstatat(w.at.fd, entry+"/ns/pid", &st, 0) != nil || st.Dev != ns.Dev || st.Ino != ns.Ino {
			continue
		}
		there, err := readPIDs(w.at.fd, entry+"/status")
		if err != nil || there.process[len(there.process)-1] != own.process[len(own.process)-1] {
			continue
		}
		if thread {
			entry += "/task/" + strconv.Itoa(own.thread[i])
		}
		return entry, nil
	}
	return "", errMissing // that procfs does not show the task
}

// pidLists are the numbers of a task in each of its PID namespaces, the outermost first.
type pidLists struct{ process, thread []int }

func readPIDs(dirfd int, name string) (pidLists, error) {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pidLists{}, err
	}
	f := os.NewFile(uintptr(fd), name)
	data, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return pidLists{}, err
	}
	var out pidLists
	for line := range strings.Lines(string(data)) {
		for key, to := range map[string]*[]int{"NStgid:": &out.process, "NSpid:": &out.thread} {
			rest, ok := strings.CutPrefix(line, key)
			if !ok {
				continue
			}
			for _, field := range strings.Fields(rest) {
				n, err := strconv.Atoi(field)
				if err != nil {
					return pidLists{}, fmt.Errorf("parse %s: %w", name, err)
				}
				*to = append(*to, n)
			}
		}
	}
	if len(out.process) == 0 || len(out.process) != len(out.thread) {
		return pidLists{}, fmt.Errorf("parse %s: got %d NStgid and %d NSpid", name, len(out.process), len(out.thread))
	}
	return out, nil
}

// settle gives what was found the name that the tree has for it.
func (w *walker) settle(out *target) error {
	foreign := w.view.rootsDiffer || w.jumped
	if foreign && out.exists && out.path != w.at.path && !out.is(unix.S_IFLNK) {
		if err := w.cross(out); err != nil {
			return err
		}
	}
	if out.proc = isProc(w.at.fd); out.proc || !foreign {
		if out.path == "" {
			out.path = "/"
		}
		return nil
	}
	dir := w.at.path // where the walk ended: the target itself, or its parent
	real, err := w.view.place(w.task, w.at.fd, dir)
	if err != nil {
		return err
	}
	out.path = real + strings.TrimPrefix(out.path, dir)
	if out.path == "" {
		out.path = "/"
	}
	return nil
}

// cross goes on to the target itself if a mount ends there: a file may be
// bound over another, and then its directory does not tell what it is.
func (w *walker) cross(out *target) error {
	fd, err := unix.Openat(w.at.fd, out.path[len(w.at.path)+1:], unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errMissing
	}
	here, err1 := mountID(w.at.fd)
	there, err2 := mountID(fd)
	if err := errors.Join(err1, err2); err != nil {
		_ = unix.Close(fd) // O_PATH
		return fmt.Errorf("%w: statx: %w", errPlace, err)
	}
	if out.mount = here != there; !out.mount {
		_ = unix.Close(fd) // O_PATH
		return nil
	}
	w.move(spot{fd: fd, path: out.path, st: out.st})
	return nil
}
