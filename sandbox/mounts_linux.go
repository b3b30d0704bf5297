package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process may leave the tree's mount namespace (unshare(2), clone(2)) or its
// root (chroot(2)) and then call a directory of the repository by another
// name, or another directory by the repository's. What a directory really is
// is told by the mount it lies on: the same file system, at the same place
// inside it, has one name in the tree's own view.

// mount is one line of proc_pid_mountinfo(5).
type mount struct {
	id     uint64
	device string // major:minor
	root   string // of the mount, inside the file system
	point  string // where it is mounted
	kind   string // type of the file system
}

// memory tells whether a file system is one of which a private instance
// reaches no file that anybody else has. Any other (overlay, fuse) may write
// through to one.
func (m *mount) memory() bool {
	switch m.kind {
	case "tmpfs", "ramfs", "devpts", "mqueue", "proc", "sysfs", "cgroup", "cgroup2":
		return true
	}
	return false
}

// readMounts reads the mounts of a process, as seen from its root.
func readMounts(pid int) ([]mount, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(data))
}

func parseMounts(text string) ([]mount, error) {
	var out []mount
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			return nil, fmt.Errorf("parse mountinfo: %q has fewer than 5 fields", line)
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse mountinfo: mount id: %w", err)
		}
		_, end, _ := strings.Cut(line, " - ") // after a varying number of optional fields
		kind, _, _ := strings.Cut(end, " ")
		out = append(out, mount{id: id, device: f[2], root: unescape(f[3]), point: unescape(f[4]), kind: kind})
	}
	return out, nil
}

// unescape undoes the octal escapes of blanks, newlines and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// rebase moves a path from below one directory to below another.
func rebase(path, from, to string) (string, bool) {
	from, to = strings.TrimRight(from, "/"), strings.TrimRight(to, "/")
	if path != from && !within(path, from) && from != "" {
		return "", false
	}
	return to + strings.TrimPrefix(path, from), true
}

// mountID tells which mount a file lies on; kernels before 5.8 do not.
func mountID(fd int) (uint64, error) {
	var x unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &x)
	if err == nil && x.Mask&unix.STATX_MNT_ID == 0 {
		err = unix.EOPNOTSUPP
	}
	return x.Mnt_id, err
}

// place gives the tree's name of a directory, or of the file that a mount
// ends at, of which the kernel's text tells from the root of the mount
// namespace it lies in. It is errNoFile for a file system that the tree's view
// does not have and that is memory, and errPlace for any other. The text alone
// proves nothing: that of a mount which is attached nowhere (open_tree(2))
// starts at the root of that mount.
func (v *view) place(t *task, fd int, text string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", errMissing
	}
	if v.isAt(text, &st) {
		return strings.TrimRight(text, "/"), nil
	}
	if strings.HasSuffix(text, deleted) { // it has another name, which nothing tells
		return "", fmt.Errorf("%w: %s", errUnnamed, text)
	}
	on, err := mountID(fd)
	if err != nil {
		return "", fmt.Errorf("%w: statx: %w", errPlace, err)
	}
	root, err := readlink(unix.AT_FDCWD, t.link("root"))
	if err != nil {
		return "", errMissing // the task has died
	}
	theirs, err := readMounts(t.tid) // as seen from its root
	if err != nil {
		return "", errMissing
	}
	ours, err := readMounts(v.init)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errPlace, err)
	}
	for _, m := range theirs {
		if m.id != on {
			continue
		}
		inside, ok := rebase(text, strings.TrimRight(root, "/")+m.point, m.root)
		if !ok {
			break
		}
		known := false
		for _, o := range ours {
			if o.device != m.device {
				continue
			}
			known = true
			if path, ok := rebase(inside, o.root, o.point); ok && v.isAt(path, &st) {
				return path, nil
			}
		}
		if !known && m.memory() {
			return "", errNoFile
		}
	}
	return "", fmt.Errorf("%w: %s", errPlace, text)
}

// isAt tells whether a path of the tree's view, without any link in it, leads
// to a file.
func (v *view) isAt(path string, st *unix.Stat_t) bool {
	rel := strings.Trim(path, "/")
	if rel == "" {
		rel = "."
	}
	fd, err := unix.Openat2(v.root, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var there unix.Stat_t
	return unix.Fstat(fd, &there) == nil && there.Dev == st.Dev && there.Ino == st.Ino
}

// isProc tells whether a directory lies in procfs, whatever it is called.
func isProc(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PROC_SUPER_MAGIC
}
