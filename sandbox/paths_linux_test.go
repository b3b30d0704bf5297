package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestPaths(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) { checkRows(t, "paths", tier) })
}

func TestPathsOnceRootsDiffer(t *testing.T) {
	checkRows(t, "paths", Namespace, "namespaces")
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(&b[0])) }

// atPageEnd makes a path end with the last byte of a page that nothing
// follows, and hands its address to f.
func atPageEnd(path string, f func(addr uintptr) error) func() error {
	return func() error {
		page := os.Getpagesize()
		m, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		if err := unix.Mprotect(m[page:], unix.PROT_NONE); err != nil {
			return err
		}
		copy(m[page-len(path):], path)
		return errors.Join(f(addressOf(m)+uintptr(page-len(path))), unix.Munmap(m))
	}
}

// in does f with another working directory.
func in(dir string, f func() error) func() error {
	return func() error {
		back, err := unix.Open(".", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Chdir(dir); err != nil {
			return err
		}
		return errors.Join(f(), unix.Fchdir(back), unix.Close(back))
	}
}

// Directories whose path is longer than PATH_MAX, so that no call can name
// it from the root.
const (
	deepLevels = 25
	deepName   = 200
)

func deepPart() string { return strings.Repeat("d", deepName) }

func makeDeep(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	for range deepLevels {
		if err != nil {
			return err
		}
		err = unix.Mkdirat(fd, deepPart(), 0o755)
		var next int
		if err == nil {
			next, err = unix.Openat(fd, deepPart(), unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		err = errors.Join(err, unix.Close(fd))
		fd = next
	}
	return errors.Join(err, unix.Close(fd))
}

func inDeep(f func() error) func() error {
	return func() error {
		for range deepLevels {
			f = in(deepPart(), f)
		}
		return f()
	}
}

// chain makes n links, the last to f.
func chain(n int) func(dir string) error {
	return func(dir string) error {
		for i := range n {
			to := "l" + strconv.Itoa(i+1)
			if i == n-1 {
				to = "f"
			}
			if err := os.Symlink(to, filepath.Join(dir, "l"+strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	}
}

// create makes a file by a path in any form.
func create(path string) func() error { return opened(path, unix.O_CREAT|unix.O_WRONLY) }

// resolved makes a file by a path from a directory, with RESOLVE_ flags.
func resolved(dir, path string, resolve uint64) func() error {
	return withFD(dir, unix.O_PATH, func(fd int) error {
		return sys("openat2", fd, path, openHow(unix.O_CREAT|unix.O_WRONLY, 0o644, resolve), 24)()
	})
}

// pathRows: one file, named in every way there is.
func pathRows() []row {
	const long = "the argument is read in steps and across pages"
	const openat2 = "openat2(2): the flags of resolve decide where a path leads, and whether it may"
	return []row{
		{name: "dot", guards: "path_resolution(7)", act: create("./f"), want: []string{"create openat f"}},
		{name: "double slash", guards: "path_resolution(7)", files: []string{"d/"}, act: create("d//f"), want: []string{"create openat d/f"}},
		{name: "dot in the middle", guards: "path_resolution(7)", files: []string{"d/"}, act: create("d/./f"), want: []string{"create openat d/f"}},
		{name: "dot dot", guards: "path_resolution(7)", files: []string{"d/"}, act: create("d/../f"), want: []string{"create openat f"}},
		{name: "dot dot from the root", guards: "path_resolution(7): /.. is /", act: func() error {
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			return create("/../.." + wd + "/f")()
		}, want: []string{"create openat f"}},
		{name: "dot dot after a symlink", guards: "path_resolution(7): the parent is that of the target", files: []string{"d/", "d/e/", "l -> d/e"}, act: create("l/../f"), want: []string{"create openat d/f"}},
		{name: "dot dot after a file", guards: "path_resolution(7)", files: []string{"x"}, act: create("x/../f"), err: unix.ENOTDIR},
		{name: "ends in dot dot", guards: "path_resolution(7)", files: []string{"d/"}, act: sys("chmod", "d/..", 0o755), want: []string{"meta chmod ."}},
		{name: "through a symlink to a directory", guards: "path_resolution(7)", files: []string{"d/", "l -> d"}, act: create("l/f"), want: []string{"create openat d/f"}},
		{name: "through an absolute symlink", guards: "path_resolution(7)", files: []string{"d/"}, prepare: func(dir string) error { return os.Symlink(dir+"/d", dir+"/l") }, act: create("l/f"), want: []string{"create openat d/f"}},
		{name: "a symlink with slashes", guards: "path_resolution(7)", files: []string{"d/", "d/e/", "l -> .//d/./e/"}, act: create("l/f"), want: []string{"create openat d/e/f"}},
		{name: "write through a symlink", guards: "path_resolution(7): the file that changes is the target", files: []string{"f", "l -> f"}, act: opened("l", unix.O_WRONLY), want: []string{"modify openat f"}},
		{name: "40 symlinks", guards: "path_resolution(7): the kernel follows 40", files: []string{"f"}, prepare: chain(40), act: opened("l0", unix.O_WRONLY), want: []string{"modify openat f"}},
		{name: "41 symlinks", guards: "path_resolution(7)", files: []string{"f"}, prepare: chain(41), act: opened("l0", unix.O_WRONLY), err: unix.ELOOP},
		{name: "O_CREAT through a dangling symlink", guards: "open(2): the target arises", files: []string{"d/", "l -> d/f"}, act: create("l"), want: []string{"create openat d/f"}},
		{name: "O_CREAT through two dangling symlinks", guards: "open(2)", files: []string{"l -> m", "m -> f"}, act: create("l"), want: []string{"create openat f"}},
		{name: "O_CREAT through a symlink to nowhere", guards: "open(2)", files: []string{"l -> no/f"}, act: create("l"), err: unix.ENOENT},
		{name: "mkdir with a trailing slash", guards: "path_resolution(7)", act: sys("mkdir", "d/", 0o755), want: []string{"create mkdir d"}},
		{name: "mkdir with two trailing slashes", guards: "path_resolution(7)", act: sys("mkdir", "d//", 0o755), want: []string{"create mkdir d"}},
		{name: "rmdir with a trailing slash", guards: "path_resolution(7)", files: []string{"d/"}, act: sys("rmdir", "d/"), want: []string{"remove rmdir d"}},
		{name: "rename of a directory with trailing slashes", guards: "path_resolution(7)", files: []string{"d/"}, act: sys("rename", "d/", "e/"), want: []string{"rename rename d -> e"}},
		{name: "lchown of a symlink with a trailing slash", guards: "path_resolution(7): the slash makes it follow", files: []string{"d/", "l -> d"}, act: sys("lchown", "l/", os.Geteuid(), -1), want: []string{"meta lchown d"}},
		{name: "odd names", guards: "a path is bytes", files: []string{"a b/"}, act: create("a b/\x01\xff\n(x) -> y"), want: []string{"create openat a b/\x01\xff\n(x) -> y"}},
		{name: "as the caller's own link", guards: "a name that only looks like /proc", files: []string{"proc/", "proc/self/"}, act: create("proc/self/f"), want: []string{"create openat proc/self/f"}},

		{name: "RESOLVE_IN_ROOT absolute", guards: openat2, files: []string{"d/", "d/e/"}, act: resolved("d", "/e/f", unix.RESOLVE_IN_ROOT), want: []string{"create openat2 d/e/f"}},
		{name: "RESOLVE_IN_ROOT of what is outside", guards: openat2, files: []string{"d/"}, act: resolved("d", "/tmp/f", unix.RESOLVE_IN_ROOT), err: unix.ENOENT},
		{name: "RESOLVE_IN_ROOT and up", guards: openat2, files: []string{"d/", "d/e/"}, act: resolved("d", "e/../../../f", unix.RESOLVE_IN_ROOT), want: []string{"create openat2 d/f"}},
		{name: "RESOLVE_IN_ROOT through an absolute symlink", guards: openat2, files: []string{"d/", "d/e/", "d/l -> /e"}, act: resolved("d", "l/f", unix.RESOLVE_IN_ROOT), want: []string{"create openat2 d/e/f"}},
		{name: "RESOLVE_IN_ROOT through a symlink up", guards: openat2, files: []string{"d/", "d/l -> ../../f"}, act: resolved("d", "l", unix.RESOLVE_IN_ROOT), want: []string{"create openat2 d/f"}},
		{name: "RESOLVE_IN_ROOT over a magic link", guards: openat2, act: resolved("/proc/self", "cwd/f", unix.RESOLVE_IN_ROOT), err: unix.EXDEV},
		{name: "RESOLVE_BENEATH", guards: openat2, files: []string{"d/", "d/e/"}, act: resolved("d", "e/../f", unix.RESOLVE_BENEATH), want: []string{"create openat2 d/f"}},
		{name: "RESOLVE_BENEATH and up", guards: openat2, files: []string{"d/"}, act: resolved("d", "../f", unix.RESOLVE_BENEATH), err: unix.EXDEV},
		{name: "RESOLVE_BENEATH absolute", guards: openat2, files: []string{"d/"}, act: resolved("d", "/tmp/f", unix.RESOLVE_BENEATH), err: unix.EXDEV},
		{name: "RESOLVE_BENEATH through an absolute symlink", guards: openat2, files: []string{"d/", "d/l -> /tmp"}, act: resolved("d", "l/f", unix.RESOLVE_BENEATH), err: unix.EXDEV},
		{name: "RESOLVE_BENEATH over a magic link", guards: openat2, act: resolved("/proc/self", "cwd/f", unix.RESOLVE_BENEATH), err: unix.EXDEV},
		{name: "RESOLVE_BENEATH and RESOLVE_IN_ROOT", guards: openat2, act: resolved(".", "f", unix.RESOLVE_BENEATH|unix.RESOLVE_IN_ROOT), err: unix.EINVAL},
		{name: "RESOLVE_NO_SYMLINKS", guards: openat2, act: resolved(".", "f", unix.RESOLVE_NO_SYMLINKS), want: []string{"create openat2 f"}},
		{name: "RESOLVE_NO_SYMLINKS of a symlink", guards: openat2, files: []string{"l -> f"}, act: resolved(".", "l", unix.RESOLVE_NO_SYMLINKS), err: unix.ELOOP},
		{name: "RESOLVE_NO_SYMLINKS through a symlink", guards: openat2, files: []string{"d/", "l -> d"}, act: resolved(".", "l/f", unix.RESOLVE_NO_SYMLINKS), err: unix.ELOOP},
		{name: "RESOLVE_NO_SYMLINKS of /proc/self", guards: openat2, act: resolved(".", "/proc/self/cwd/f", unix.RESOLVE_NO_SYMLINKS), err: unix.ELOOP},
		{name: "RESOLVE_NO_MAGICLINKS", guards: openat2, files: []string{"d/", "l -> d"}, act: resolved(".", "l/f", unix.RESOLVE_NO_MAGICLINKS), want: []string{"create openat2 d/f"}},
		{name: "RESOLVE_NO_MAGICLINKS over a magic link", guards: openat2, act: resolved(".", "/proc/self/cwd/f", unix.RESOLVE_NO_MAGICLINKS), err: unix.ELOOP},
		{name: "RESOLVE_NO_XDEV", guards: openat2, files: []string{"d/"}, act: resolved(".", "d/../f", unix.RESOLVE_NO_XDEV), want: []string{"create openat2 f"}},
		{name: "RESOLVE_NO_XDEV into a mount", guards: openat2, act: resolved("/", "dev/shm/gate-test-new", unix.RESOLVE_NO_XDEV), err: unix.EXDEV},
		{name: "RESOLVE_NO_XDEV out of a mount", guards: openat2, act: resolved("/proc", "../tmp/gate-test-new", unix.RESOLVE_NO_XDEV), err: unix.EXDEV},
		{name: "RESOLVE_NO_XDEV over a magic link", guards: openat2, act: resolved(".", "/proc/self/cwd/f", unix.RESOLVE_NO_XDEV), err: unix.EXDEV},
		{name: "RESOLVE_CACHED with O_CREAT", guards: openat2, act: resolved(".", "f", resolveCached), err: unix.EAGAIN},
		{name: "RESOLVE_CACHED", guards: openat2, files: []string{"f"}, act: sys("openat2", cwd, "f", openHow(unix.O_WRONLY, 0, resolveCached), 24), any: true, want: []string{"modify openat2 f"}},

		{name: "300 bytes", guards: long, act: create(strings.Repeat("./", 150) + "f"), want: []string{"create openat f"}},
		{name: "PATH_MAX", guards: long, act: create(strings.Repeat("./", 2047) + "f"), want: []string{"create openat f"}},
		{name: "at the end of a page", guards: "nothing may be read beyond what is mapped", act: atPageEnd("f\x00", func(addr uintptr) error { return sys("openat", cwd, addr, unix.O_CREAT|unix.O_WRONLY, 0o644)() }), want: []string{"create openat f"}},
		{name: "without a NUL at the end of a page", guards: "EFAULT, and nothing is written", act: atPageEnd("f", func(addr uintptr) error { return sys("openat", cwd, addr, unix.O_CREAT|unix.O_WRONLY, 0o644)() }), err: unix.EFAULT},
		{name: "longer than the step, without a NUL", guards: "EFAULT", act: atPageEnd(strings.Repeat("./", 150)+"f", func(addr uintptr) error { return sys("openat", cwd, addr, unix.O_CREAT|unix.O_WRONLY, 0o644)() }), err: unix.EFAULT},
		{name: "rename at the end of a page", guards: "both arguments", files: []string{"f"}, act: atPageEnd("g\x00", func(addr uintptr) error { return sys("renameat2", cwd, "f", cwd, addr, 0)() }), want: []string{"rename renameat2 f -> g"}},
		{name: "deeper than PATH_MAX", guards: "proc(5): /proc/self/cwd cannot be read where its path is longer than a page; never silence", prepare: makeDeep, act: inDeep(create("f")), want: []string{"gap unnamed-path"}},
		{name: "fchmod deeper than PATH_MAX", guards: "the same for a descriptor", prepare: makeDeep, act: inDeep(withFD(".", unix.O_RDONLY, func(fd int) error { return sys("fchmod", fd, 0o700)() })), want: []string{"gap unnamed-path"}},

		{name: "relative to a descriptor", guards: "openat(2)", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("openat", fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o644)() }), want: []string{"create openat d/f"}},
		{name: "above a descriptor", guards: "openat(2)", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("openat", fd, "../f", unix.O_CREAT|unix.O_WRONLY, 0o644)() }), want: []string{"create openat f"}},
		{name: "descriptor ignored by an absolute path", guards: "openat(2)", files: []string{"d/"}, act: func() error {
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			return sys("openat", 999, wd+"/d/f", unix.O_CREAT|unix.O_WRONLY, 0o644)()
		}, want: []string{"create openat d/f"}},
		{name: "/proc/self/cwd", guards: "proc_pid_cwd(5)", act: create("/proc/self/cwd/f"), want: []string{"create openat f"}},
		{name: "/proc/thread-self/cwd", guards: "proc_pid_cwd(5)", act: create("/proc/thread-self/cwd/f"), want: []string{"create openat f"}},
		{name: "/proc/PID/cwd", guards: "proc(5): the pid is that of the tree's own namespace", act: func() error { return create("/proc/" + strconv.Itoa(os.Getpid()) + "/cwd/f")() }, want: []string{"create openat f"}},
		{name: "/proc/self/root", guards: "proc_pid_root(5)", act: func() error {
			wd, err := os.Getwd()
			if err != nil {
				return err
			}
			return create("/proc/self/root" + wd + "/f")()
		}, want: []string{"create openat f"}},
		{name: "/proc/self/fd of a file", guards: "proc_pid_fd(5): opened anew for writing", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return opened(procFD(fd), unix.O_WRONLY)() }), want: []string{"modify openat f"}},
		{name: "/proc/self/fd of a directory", guards: "proc_pid_fd(5)", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return create(procFD(fd) + "/f")() }), want: []string{"create openat d/f"}},
		{name: "/proc/self/fd and up", guards: "proc_pid_fd(5)", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return create(procFD(fd) + "/../f")() }), want: []string{"create openat f"}},
		{name: "/dev/fd", guards: "fd(4)", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return opened(fmt.Sprintf("/dev/fd/%d", fd), unix.O_WRONLY)() }), want: []string{"modify openat f"}},
		{name: "relative to /proc/self", guards: "openat(2) of a directory of /proc", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(file int) error {
			return withFD("/proc/self/fd", unix.O_PATH, func(fd int) error {
				return sys("openat", fd, strconv.Itoa(file), unix.O_WRONLY)()
			})()
		}), want: []string{"modify openat f"}},

		{name: "a directory named as if deleted", guards: "proc_pid_cwd(5): the kernel appends (deleted) without escaping it", files: []string{"x (deleted)/"}, act: in("x (deleted)", create("f")), want: []string{"create openat x (deleted)/f"}},
		{name: "a file named as if deleted", guards: "proc_pid_fd(5)", files: []string{"x (deleted)"}, act: withFD("x (deleted)", unix.O_RDONLY, func(fd int) error { return sys("fchmod", fd, 0o600)() }), want: []string{"meta fchmod x (deleted)"}},
		{name: "deleted working directory", guards: "nothing can arise in it", files: []string{"d/"}, act: in("d", then(sys("unlinkat", cwd, "../d", unix.AT_REMOVEDIR), create("f"))), err: unix.ENOENT, want: []string{"remove unlinkat d"}},
		{name: "above a deleted working directory", guards: "the kernel still knows the way up, and gate cannot tell it", files: []string{"d/"}, act: func() error {
			up, err := unix.Open("d", unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return errors.Join(then(sys("unlinkat", cwd, "d", unix.AT_REMOVEDIR), sys("openat", up, "../f", unix.O_CREAT|unix.O_WRONLY, 0o644))(), unix.Close(up))
		}, any: true, want: []string{"remove unlinkat d", "gap unnamed-path"}},
		{name: "fchmod of a deleted file", guards: "it is no file of anybody's any more", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error {
			return then(sys("unlinkat", cwd, "f", 0), sys("fchmod", fd, 0o600))()
		}), want: []string{"remove unlinkat f"}},
		{name: "fchmod of a file by a name that went", guards: "proc_pid_fd(5): the file is there by another name, which may be anybody's", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error {
			return then(sys("linkat", cwd, "f", cwd, "g", 0), sys("unlinkat", cwd, "f", 0), sys("fchmod", fd, 0o600), opened(procFD(fd), unix.O_WRONLY))()
		}), want: []string{"link linkat f -> g", "remove unlinkat f", "gap unnamed-path", "gap unnamed-path"}},
		{name: "renamed while open", guards: "proc_pid_fd(5): the name it has now", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error {
			return then(sys("renameat2", cwd, "f", cwd, "g", 0), sys("fchmod", fd, 0o600))()
		}), want: []string{"rename renameat2 f -> g", "meta fchmod g"}},

		{name: "directory moved and linked again", guards: "what a directory really is called must not be remembered wrongly", files: []string{"d/", "l -> d"}, act: then(
			create("l/a"), sys("renameat2", cwd, "d", cwd, "e", 0), sys("unlinkat", cwd, "l", 0), sys("symlinkat", "e", cwd, "l"), create("l/b"),
		), want: []string{"create openat d/a", "rename renameat2 d -> e", "remove unlinkat l", "create symlinkat l", "create openat e/b"}},
		{name: "directory replaced by a symlink to itself", guards: "the same", files: []string{"d/", "d/s/"}, act: then(
			create("d/s/a"), sys("renameat2", cwd, "d", cwd, "e", 0), sys("symlinkat", "e", cwd, "d"), create("d/s/b"),
		), want: []string{"create openat d/s/a", "rename renameat2 d -> e", "create symlinkat d", "create openat e/s/b"}},
		{name: "directory made anew", guards: "the same", files: []string{"d/"}, act: then(
			create("d/a"), sys("unlinkat", cwd, "d/a", 0), sys("unlinkat", cwd, "d", unix.AT_REMOVEDIR), sys("mkdirat", cwd, "d", 0o755), create("d/a"),
		), want: []string{"create openat d/a", "remove unlinkat d/a", "remove unlinkat d", "create mkdirat d", "create openat d/a"}},
	}
}

// view of this process itself, without any box.
func ownView(t testing.TB) *view {
	t.Helper()
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{root: root, init: 1, dirs: map[string]directory{}}
	t.Cleanup(v.close)
	return v
}

// FuzzFind builds a small tree of directories, files and links and holds the
// walk against the kernel's own: where an O_PATH open ends, or, for what does
// not exist, where O_CREAT makes it.
func FuzzFind(f *testing.F) {
	f.Add([]byte("da d/bd/b/cLx>d/b"), "x/../c", true)
	f.Add([]byte("LxoLoxx"), "x", true)
	f.Add([]byte("fa d/b"), "a/../b/", false)
	f.Add([]byte("da La.b"), "b/./new", true)
	f.Fuzz(func(t *testing.T, tree []byte, name string, follow bool) {
		if name == "" || strings.ContainsRune(name, 0) || strings.HasPrefix(name, "/") || len(name) > 1000 {
			return
		}
		follow = follow || strings.HasSuffix(name, "/") // as fileOp.follows has it
		dir := realDir(t)
		grow(dir, tree)
		if outside(dir, name) {
			return
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		self := &task{v: ownView(t), tid: unix.Gettid()}
		base, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(base)
		// Twice, since the second answer comes from what was remembered.
		for range 2 {
			got, err := self.v.find(self, int32(base), name, follow)
			compareWithKernel(t, base, dir, name, follow, got, err)
		}
	})
}

func compareWithKernel(t *testing.T, base int, dir, name string, follow bool, got target, gotErr error) {
	t.Helper()
	flags := unix.O_PATH | unix.O_CLOEXEC
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat(base, name, flags, 0)
	if err == nil {
		var st unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &st)); err != nil {
			t.Fatal(err)
		}
		want, err := os.Readlink(procFD(fd))
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		if gotErr != nil || !got.exists || got.path != want || got.st.Ino != st.Ino || got.st.Dev != st.Dev {
			t.Errorf("%q (follow %v): got %q, exists %v, error %v; the kernel has %q", name, follow, got.path, got.exists, gotErr, want)
		}
		return
	}
	if gotErr == nil && got.exists {
		t.Errorf("%q (follow %v): got %q; the kernel says %v", name, follow, got.path, err)
	}
	if !follow {
		return
	}
	fd, err = unix.Openat(base, name, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		if gotErr == nil && !strings.HasSuffix(name, "/") { // a trailing slash is judged by the call
			t.Errorf("%q: got %q; the kernel cannot create it: %v", name, got.path, err)
		}
		return
	}
	want, err := os.Readlink(procFD(fd))
	if err := errors.Join(err, unix.Close(fd), os.Remove(want)); err != nil {
		t.Fatal(err)
	}
	if gotErr != nil || got.path != want {
		t.Errorf("%q: got %q, error %v; the kernel creates %q", name, got.path, gotErr, want)
	}
}

// grow makes a tree as bytes say: "d" a directory, "f" a file, "L" a symlink
// (its name is one byte, then comes the target). A space ends a path.
func grow(dir string, tree []byte) {
	for _, op := range strings.SplitAfter(string(tree), " ") {
		op = strings.TrimSuffix(op, " ")
		if len(op) < 2 || strings.ContainsRune(op, 0) || len(op) > 300 || outside(dir, op[1:]) {
			continue
		}
		// What cannot be made is not there; that is a tree as well.
		switch path := dir + "/" + op[1:]; op[0] {
		case 'd':
			_ = os.Mkdir(path, 0o755)
		case 'f':
			if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o644); err == nil {
				_ = f.Close()
			}
		case 'L':
			if len(op) > 2 && op[1] != '/' {
				_ = os.Symlink(op[2:], dir+"/"+op[1:2])
			}
		}
	}
}

// outside keeps a fuzzed path from leading out of the temporary directory.
func outside(dir, path string) bool {
	return strings.Count(path, "..") > 1 || strings.HasPrefix(path, "..") || strings.Contains(path, "/proc")
}
