package sandbox

import (
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
		v.creds.caps &= capMask(treeCaps)
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
	proc   bool        // it lies in procfs, wherever that is mounted: no file
	mount  bool        // a mount of the task's own namespace ends here
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
	return v.findWith(t, dirfd, name, follow, 0)
}

// findWith is find with the RESOLVE_ flags of openat2(2).
func (v *view) findWith(t *task, dirfd int32, name string, follow bool, resolve uint64) (target, error) {
	var out target
	var err error
	if v.rootsDiffer || resolve != 0 {
		out, err = v.walkFrom(t, dirfd, name, follow, resolve)
	} else {
		out, err = v.resolve(t, dirfd, name, follow)
	}
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

// resolve is for a task that has the tree's root: then the kernel's own text
// of a directory is its name, and nothing has to be opened.
func (v *view) resolve(t *task, dirfd int32, name string, follow bool) (target, error) {
	base := ""
	if !strings.HasPrefix(name, "/") {
		var err error
		if base, err = v.base(t, origin(dirfd), name); err != nil {
			return target{}, err
		}
	}
	full := base + "/" + strings.TrimRight(name, "/")
	i := strings.LastIndexByte(full, '/')
	parent, last := full[:i], full[i+1:]
	if last == "" || last == "." || last == ".." {
		return v.walk(t, full, follow)
	}
	dir, proc := base, inProc(base) // the kernel's own text: it is real
	if strings.Contains(name, "/") {
		var err error
		if dir, proc, err = v.directory(t, parent); err != nil {
			return target{}, err
		}
	}
	if proc {
		return v.walk(t, full, follow)
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

// inProc tells by its name whether a path is /proc or lies below it.
func inProc(path string) bool { return path == "/proc" || within(path, "/proc") }

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
	if !v.rootsDiffer && !strings.HasSuffix(text, deleted) {
		out.proc = inProc(text)
		return out, nil
	}
	at, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return target{}, errMissing
	}
	defer unix.Close(at)
	if out.proc = isProc(at); out.proc {
		return out, nil
	}
	out.path, err = v.place(t, at, text)
	return out, err
}

// deleted is what the kernel adds to the name of a file that was removed. The
// file may have another name, or this one may really end so.
const deleted = " (deleted)"

// origin is the link of a task that a relative path starts from.
func origin(dirfd int32) string {
	if dirfd == atFDCWD {
		return "cwd"
	}
	return "fd/" + strconv.Itoa(int(dirfd))
}

// base is the kernel's name of the directory that a path starts from; "" is
// the root.
func (v *view) base(t *task, link, name string) (string, error) {
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
	if strings.HasSuffix(text, deleted) {
		var st unix.Stat_t
		err := unix.Stat(t.link(link), &st)
		if err == nil && st.Nlink == 0 && strings.HasPrefix(name, "..") {
			return "", errUnnamed // the way up from a deleted directory is still open
		}
		if err != nil || st.Nlink == 0 {
			return "", errMissing
		}
	}
	return strings.TrimRight(text, "/"), nil
}

// directory resolves a directory to its real path, and tells whether it lies
// in procfs.
func (v *view) directory(t *task, name string) (path string, proc bool, err error) {
	if known, ok := v.dirs[name]; ok {
		var st unix.Stat_t
		if v.stat(name, &st) == nil && uint64(st.Dev) == known.dev && st.Ino == known.ino {
			return known.path, false, nil
		}
		delete(v.dirs, name)
	}
	w, err := v.walker(t)
	if err != nil {
		return "", false, err
	}
	defer w.close()
	d, err := w.run(name, true)
	if err != nil {
		return "", false, err
	}
	if !d.is(unix.S_IFDIR) {
		return "", false, errMissing
	}
	if !w.passedProc && !d.proc { // what /proc/self is differs from task to task
		if len(v.dirs) >= maxDirs {
			clear(v.dirs)
		}
		v.dirs[name] = directory{d.path, uint64(d.st.Dev), d.st.Ino}
	}
	return d.path, d.proc, nil
}

// moved forgets where directories are once one of them moves: the same inode
// has another path then, and a link may take its old place.
func (v *view) moved(from, to *target) {
	if from.is(unix.S_IFDIR) || to.is(unix.S_IFDIR) {
		clear(v.dirs)
	}
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
