package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Why a path leads to no file that a call could change.
var (
	errMissing = errors.New("a parent directory is missing") // or loops, or is no directory
	errNoFile  = errors.New("not a file")                    // socket, pipe, memory file, deleted
	// errPlace is no answer of the kernel's: the file exists, and gate cannot tell which it is.
	errPlace = errors.New("a directory of another mount namespace has no name in the tree's own")
	// errUnnamed: the same of a path that the kernel does not tell (longer than a page, a closed process).
	errUnnamed = errors.New("the path cannot be told")
)

// view is the file system as the tree sees it. It resolves paths without
// ever opening what they name (that would hang on a FIFO, and change access
// times): directories and links are opened with O_PATH, the rest is lstat.
type view struct {
	root   int // O_PATH descriptor of the tree's root directory
	init   int // pid of the tree's init, where attribution ends
	creds  creds
	shared bool // gate has the tree's own uid and may ask the kernel about access

	// dirs remembers where directories really are. An entry is used only
	// while a single stat confirms device and inode.
	dirs map[string]directory

	known known

	// What a process may have changed for itself and its children. Until the
	// first such call every process has the tree's root and credentials.
	rootsDiffer, credsDiffer bool
}

type directory struct {
	path     string
	dev, ino uint64
}

// maxDirs bounds the memory of a view.
const maxDirs = 8192

func openView(b *Box) (*view, error) {
	root := "/"
	if b.spec.Tier == Namespace {
		root = fmt.Sprintf("/proc/%d/root", b.InitPID)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	v := &view{root: fd, init: b.InitPID, dirs: map[string]directory{}, known: known{}}
	me, err := readStatus(unix.Getpid())
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	v.creds = me.creds
	switch {
	case b.spec.User != nil:
		v.creds = creds{uid: b.spec.User.UID, gid: b.spec.User.GID, groups: b.spec.User.Groups}
	case b.spec.Tier == Namespace && v.creds.uid == 0:
		v.creds.caps = capMask(treeCaps)
	default:
		v.shared = true
	}
	return v, nil
}

func (v *view) close() {
	v.known.close()
	_ = unix.Close(v.root) // O_PATH: nothing is written back
}

// target is the file that a call names.
type target struct {
	path   string // absolute and real
	exists bool
	st     unix.Stat_t // if it exists
	slash  bool        // the name ends in a slash: only a directory can arise here
	dot    bool        // the name ends in "." or "..", or is "/"
}

// parent looks at the directory that a target stands in.
func (v *view) parent(t *target) (st unix.Stat_t, ok bool) {
	return st, v.stat(parentPath(t.path), &st) == nil
}

func (t *target) is(kind uint32) bool { return t.exists && t.st.Mode&unix.S_IFMT == kind }

func (t *target) node() Node {
	if !t.exists {
		return Node{}
	}
	return Node{
		Exists: true, Dir: t.is(unix.S_IFDIR), Special: special(t),
		Dev: uint64(t.st.Dev), Ino: t.st.Ino, Nlink: uint64(t.st.Nlink),
	}
}

// find resolves the path argument of a call. follow tells whether a link in
// the last place is followed.
func (v *view) find(t *task, dirfd int32, name string, follow bool) (target, error) {
	out, err := v.resolve(t, dirfd, name, follow)
	if err != nil {
		return target{}, err
	}
	bare := strings.TrimRight(name, "/")
	out.slash = bare != name
	if out.slash && out.exists && !out.is(unix.S_IFDIR) {
		return target{}, errMissing // ENOTDIR
	}
	last := bare[strings.LastIndexByte(bare, '/')+1:]
	out.dot = last == "" || last == "." || last == ".."
	return out, nil
}

func (v *view) resolve(t *task, dirfd int32, name string, follow bool) (target, error) {
	base, err := v.base(t, dirfd, name)
	if err != nil {
		return target{}, err
	}
	full := base + "/" + strings.TrimRight(name, "/")
	i := strings.LastIndexByte(full, '/')
	parent, last := full[:i], full[i+1:]
	if last == "" || last == "." || last == ".." || v.rootsDiffer {
		return v.walk(t, full, follow)
	}
	dir := base // the kernel's own text: it is real
	if strings.Contains(name, "/") {
		if dir, err = v.directory(t, parent); err != nil {
			return target{}, err
		}
	}
	out := target{path: join(dir, last)}
	switch err := v.lstat(out.path, &out.st); err {
	case nil:
		out.exists = true
	case unix.ENOENT:
		return out, nil
	case unix.ENAMETOOLONG:
		if len(last) <= unix.NAME_MAX { // too long from the root alone
			return target{}, errUnnamed
		}
		fallthrough
	default:
		return target{}, errMissing
	}
	if follow && out.is(unix.S_IFLNK) {
		return v.walk(t, out.path, true)
	}
	return out, nil
}

// findFD resolves a descriptor of the task.
func (v *view) findFD(t *task, fd int32) (target, error) {
	link := t.link("fd/" + strconv.Itoa(int(fd)))
	text, err := readlink(unix.AT_FDCWD, link)
	if err == unix.ENOENT {
		return target{}, errMissing // EBADF for the caller
	}
	if err != nil {
		return target{}, fmt.Errorf("%w: %w", errUnnamed, err)
	}
	if !strings.HasPrefix(text, "/") {
		return target{}, errNoFile // socket:[1], pipe:[2], anon_inode:x
	}
	out := target{exists: true}
	if err := unix.Stat(link, &out.st); err != nil {
		return target{}, errMissing
	}
	if out.st.Nlink == 0 || strings.HasPrefix(text, "/memfd:") {
		return target{}, errNoFile
	}
	out.path = text
	if v.rootsDiffer && !within(text, "/proc") {
		fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return target{}, errMissing
		}
		defer unix.Close(fd)
		out.path, err = v.place(t, fd, text, "")
		return out, err
	}
	return out, nil
}

// base is the directory that a path starts from, as a real path.
func (v *view) base(t *task, dirfd int32, name string) (string, error) {
	link := "cwd"
	switch {
	case strings.HasPrefix(name, "/"):
		if !v.rootsDiffer {
			return "", nil
		}
		link = "root"
	case dirfd != atFDCWD:
		link = "fd/" + strconv.Itoa(int(dirfd))
	}
	var text string
	var err error
	if link == "cwd" {
		text, err = t.cwd()
	} else {
		text, err = readlink(unix.AT_FDCWD, t.link(link))
	}
	if err != nil && err != unix.ENOENT { // longer than a page, or closed to gate
		return "", fmt.Errorf("%w: %w", errUnnamed, err)
	}
	if err != nil || !strings.HasPrefix(text, "/") {
		return "", errMissing
	}
	if strings.HasSuffix(text, " (deleted)") { // or a directory whose name really ends so
		var st unix.Stat_t
		err := unix.Stat(t.link(link), &st)
		if err == nil && st.Nlink == 0 && strings.HasPrefix(name, "..") {
			return "", errUnnamed // the way up from a deleted directory is still open
		}
		if err != nil || st.Nlink == 0 {
			return "", errMissing
		}
	}
	if text == "/" {
		return "", nil
	}
	return text, nil
}

// directory resolves a directory to its real path.
func (v *view) directory(t *task, name string) (string, error) {
	if known, ok := v.dirs[name]; ok {
		var st unix.Stat_t
		if v.stat(name, &st) == nil && uint64(st.Dev) == known.dev && st.Ino == known.ino {
			return known.path, nil
		}
		delete(v.dirs, name)
	}
	d, err := v.walk(t, name, true)
	if err != nil {
		return "", err
	}
	if !d.is(unix.S_IFDIR) {
		return "", errMissing
	}
	// What /proc/self is differs from task to task.
	if !strings.HasPrefix(name, "/proc") && !strings.HasPrefix(d.path, "/proc") {
		if len(v.dirs) >= maxDirs {
			clear(v.dirs)
		}
		v.dirs[name] = directory{d.path, uint64(d.st.Dev), d.st.Ino}
	}
	return d.path, nil
}

// moved forgets where directories are once one of them moves: the same inode
// has another path then, and a link may take its old place.
func (v *view) moved(from, to *target) {
	if from.is(unix.S_IFDIR) || to.is(unix.S_IFDIR) {
		clear(v.dirs)
	}
}

// maxLinks is the kernel's MAXSYMLINKS.
const maxLinks = 40

// walk resolves a path component by component, as path_resolution(7) says,
// from the root of the task (which is the tree's unless rootsDiffer).
// Absolute links are followed inside that root, /proc/self is the task's,
// and the magic links of /proc lead where the kernel says.
func (v *view) walk(t *task, name string, follow bool) (target, error) {
	root, prefix := v.root, ""
	if v.rootsDiffer {
		fd, err := unix.Open(t.link("root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return target{}, errMissing
		}
		defer unix.Close(fd)
		text, err := readlink(unix.AT_FDCWD, t.link("root"))
		if err != nil {
			return target{}, errMissing
		}
		root, prefix = fd, strings.TrimRight(text, "/")
		if prefix != "" { // paths are told from the tree's root; walk from the task's
			if rest, ok := rebase(name, prefix, ""); ok {
				name = rest
			} else { // from a directory that was open before the chroot
				root, prefix = v.root, ""
			}
		}
	}
	w := walker{view: v, task: t, root: root, dir: -1}
	defer w.close()
	out, err := w.run(name, follow)
	if err != nil || !v.rootsDiffer || within(out.path, "/proc") {
		return out, err
	}
	if out.exists && out.path != w.path && !out.is(unix.S_IFLNK) {
		if err := w.cross(&out); err != nil {
			return target{}, err
		}
	}
	dir := w.path // where the walk ended: the target itself, or its parent
	real, err := v.place(t, w.at(), cmp.Or(dir, "/"), prefix)
	if err != nil {
		return target{}, err
	}
	out.path = cmp.Or(real+strings.TrimPrefix(out.path, dir), "/")
	return out, nil
}

// walker is one resolution under way.
type walker struct {
	view *view
	task *task
	root int
	dir  int    // O_PATH of where it stands; -1: the root
	path string // of dir; "" is the root
	st   unix.Stat_t
}

func (w *walker) close() { w.move(-1) }

func (w *walker) at() int {
	if w.dir < 0 {
		return w.root
	}
	return w.dir
}

func (w *walker) move(fd int) {
	if w.dir >= 0 {
		_ = unix.Close(w.dir) // O_PATH: nothing is written back
	}
	w.dir = fd
}

// cross goes on to the target itself if a mount ends there: a file may be
// bound over another, and then its directory does not tell what it is.
func (w *walker) cross(out *target) error {
	fd, err := unix.Openat(w.at(), out.path[len(w.path)+1:], unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return errMissing
	}
	here, err1 := mountID(w.at())
	there, err2 := mountID(fd)
	if err := errors.Join(err1, err2); err != nil {
		_ = unix.Close(fd) // O_PATH: nothing is written back
		return fmt.Errorf("%w: statx: %w", errPlace, err)
	}
	if here == there {
		_ = unix.Close(fd)
		return nil
	}
	w.move(fd)
	w.path = out.path
	return nil
}

func (w *walker) run(name string, follow bool) (target, error) {
	todo := strings.Split(name, "/")
	links := 0
	if err := unix.Fstat(w.root, &w.st); err != nil {
		return target{}, errMissing
	}
	for len(todo) > 0 {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "":
			continue
		case ".", "..":
			if w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
				return target{}, errMissing
			}
			if part == "." {
				continue
			}
			if err := w.up(); err != nil {
				return target{}, err
			}
			continue
		}
		if w.path == "/proc" && (part == "self" || part == "thread-self") {
			s, err := readStatus(w.task.tid)
			if err != nil {
				return target{}, errMissing
			}
			me := []string{strconv.Itoa(s.nstgid)}
			if part == "thread-self" {
				me = append(me, "task", strconv.Itoa(s.nspid))
			}
			todo = append(me, todo...)
			continue
		}
		out := target{path: w.path + "/" + part}
		last := !someName(todo)
		fd, err := unix.Openat(w.at(), part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT && last && w.st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return out, nil
		}
		if err != nil {
			return target{}, errMissing
		}
		if err := unix.Fstat(fd, &out.st); err != nil {
			_ = unix.Close(fd)
			return target{}, errMissing
		}
		out.exists = true
		if !out.is(unix.S_IFLNK) || last && !follow {
			if last {
				_ = unix.Close(fd)
				return out, nil
			}
			w.move(fd)
			w.path, w.st = out.path, out.st
			continue
		}
		text, err := readlink(fd, "")
		_ = unix.Close(fd)
		if links++; err != nil || links > maxLinks {
			return target{}, errMissing
		}
		if strings.HasPrefix(w.path, "/proc/") {
			out, err := w.jump(part, text)
			if err != nil || last {
				return out, err
			}
			continue
		}
		if strings.HasPrefix(text, "/") {
			w.move(-1)
			w.path = ""
			if err := unix.Fstat(w.root, &w.st); err != nil {
				return target{}, errMissing
			}
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	return target{path: cmp.Or(w.path, "/"), exists: true, st: w.st}, nil
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

// up goes to the parent. The path so far is real, so it can be cut.
func (w *walker) up() error {
	parent := w.path[:max(0, strings.LastIndexByte(w.path, '/'))]
	if parent == "" {
		w.move(-1)
	} else {
		fd, err := unix.Openat(w.root, parent[1:], unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return errMissing
		}
		w.move(fd)
	}
	w.path = parent
	if err := unix.Fstat(w.at(), &w.st); err != nil {
		return errMissing
	}
	return nil
}

// jump follows a magic link of /proc (proc_pid_fd(5)): its text is only a
// description, the kernel goes to the file itself.
func (w *walker) jump(part, text string) (target, error) {
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "/memfd:") {
		return target{}, errNoFile
	}
	fd, err := unix.Openat(w.at(), part, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return target{}, errMissing
	}
	w.move(fd)
	if err := unix.Fstat(fd, &w.st); err != nil {
		return target{}, errMissing
	}
	if w.st.Nlink == 0 {
		return target{st: w.st, exists: true}, errNoFile
	}
	w.path = strings.TrimRight(text, "/")
	return target{path: text, exists: true, st: w.st}, nil
}

// stat and lstat look at a path of the tree's view.
func (v *view) stat(name string, st *unix.Stat_t) error { return v.fstatat(name, st, 0) }
func (v *view) lstat(name string, st *unix.Stat_t) error {
	return v.fstatat(name, st, unix.AT_SYMLINK_NOFOLLOW)
}

func (v *view) fstatat(name string, st *unix.Stat_t, flags int) error {
	rel := strings.TrimLeft(name, "/")
	if rel == "" {
		rel, flags = "", unix.AT_EMPTY_PATH
	}
	return unix.Fstatat(v.root, rel, st, flags)
}

// empty tells whether a directory has no entries.
func (v *view) empty(name string) bool {
	fd, err := unix.Openat(v.root, strings.TrimLeft(name, "/"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // it cannot be read: assume that the call may succeed
	}
	defer unix.Close(fd)
	buf := make([]byte, 1024)
	entries := 0
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil || n == 0 {
			return entries <= 2 // "." and ".."
		}
		for p := 0; p < n && entries <= 2; entries++ {
			p += int(uint16(buf[p+16]) | uint16(buf[p+17])<<8) // d_reclen
		}
		if entries > 2 {
			return false
		}
	}
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// readlink returns the text of a link of any length.
func readlink(dirfd int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(dirfd, name, buf)
		if err != nil {
			return "", err
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
}
