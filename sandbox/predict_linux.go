package sandbox

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A call that cannot succeed is no write, so each rule here answers: will the
// kernel let this go through? They follow fs/namei.c and fs/attr.c. Where
// they cannot know (a full disk, a quota, a lease), they say yes.

// mayWrite: contents of an existing file.
func (v *view) mayWrite(c *creds, f *target) bool {
	return v.may(c, f.path, &f.st, mayWrite)
}

// mayAdd: a new name in the target's parent directory.
func (v *view) mayAdd(c *creds, f *target) bool {
	if f.exists {
		return false
	}
	_, ok := v.mayChange(c, f)
	return ok
}

// mayChange: the names in the target's parent directory. The directory is
// looked at only where that can matter.
func (v *view) mayChange(c *creds, f *target) (dir unix.Stat_t, ok bool) {
	if c.ids == nil && c.has(unix.CAP_DAC_OVERRIDE) && c.has(unix.CAP_FOWNER) {
		return dir, true
	}
	if dir, ok = v.parent(f); !ok {
		return dir, false
	}
	return dir, v.may(c, parentPath(f.path), &dir, mayWrite|mayExec)
}

// mayDrop: the target's name in its parent directory, sticky bit and all.
func (v *view) mayDrop(c *creds, f *target) bool {
	if !f.exists {
		return false
	}
	dir, ok := v.mayChange(c, f)
	sticky := dir.Mode&unix.S_ISVTX != 0
	return ok && (!sticky || c.uid == f.st.Uid || c.uid == dir.Uid || c.over(unix.CAP_FOWNER, &f.st))
}

// may looks at the mode bits, and further before it says no: an access control
// list may grant what they deny. The kernel is asked where the task may do what
// gate may; else a list that is there, or that cannot be looked for, is a yes.
func (v *view) may(c *creds, path string, st *unix.Stat_t, want uint32) bool {
	if c.allows(st, want) {
		return true
	}
	if v.shared && c.equal(&v.creds) {
		rel := path[1:]
		if rel == "" {
			rel = "."
		}
		return unix.Faccessat(v.root, rel, want, unix.AT_EACCESS) == nil
	}
	return v.hasXattr(path, aclAccess) || v.judgesItself(path)
}

// The access control lists of acl(5).
const (
	aclAccess  = "system.posix_acl_access"
	aclPrefix  = "system.posix_acl_"
	xattrLimit = 255 // XATTR_NAME_MAX
)

// hasXattr tells whether a file has an extended attribute: no only if the file
// system says so.
func (v *view) hasXattr(path, name string) bool {
	err := v.xattr(path, name)
	return err != unix.ENODATA && err != unix.EOPNOTSUPP
}

// xattr looks for an extended attribute: nil if there is one.
func (v *view) xattr(path, name string) error {
	_, err := unix.Lgetxattr("/proc/self/fd/"+strconv.Itoa(v.root)+path, name, nil)
	return err
}

// mayXattr follows xattr_permission of fs/xattr.c, and what is asked beyond
// that for the lists (vfs_set_acl of fs/posix_acl.c) and for what modules keep
// (cap_inode_setxattr of security/commoncap.c).
func (v *view) mayXattr(c *creds, f *target, name string) bool {
	kind, _, _ := strings.Cut(name, ".")
	switch {
	case len(name) > xattrLimit || v.xattr(f.path, name) == unix.EOPNOTSUPP:
		return false
	case strings.HasPrefix(name, aclPrefix):
		return c.owns(&f.st)
	case kind == "system":
		return true // the file system decides
	case name == "security.capability":
		return c.over(unix.CAP_SETFCAP, &f.st)
	case name == "security.selinux" && c.owns(&f.st):
		return true
	case kind == "security", kind == "trusted":
		return c.ids == nil && c.has(unix.CAP_SYS_ADMIN)
	case kind == "user" && !f.is(unix.S_IFREG) && !f.is(unix.S_IFDIR):
		return false
	case kind == "user" && f.is(unix.S_IFDIR) && f.st.Mode&unix.S_ISVTX != 0 && !c.owns(&f.st):
		return false
	}
	return v.mayWrite(c, f)
}

// mayIoctl: most ask for the owner.
func (v *view) mayIoctl(c *creds, f *target, request uint32) bool {
	switch {
	case !f.is(unix.S_IFREG) && !f.is(unix.S_IFDIR):
		return false
	case request == fsIocEnableVerity:
		return f.is(unix.S_IFREG) && v.mayWrite(c, f)
	case slices.Contains(btrfsNames, request):
		return f.is(unix.S_IFDIR) && v.may(c, f.path, &f.st, mayWrite|mayExec)
	}
	return c.owns(&f.st)
}

// mayMake follows may_mknod and vfs_mknod of fs/namei.c: a device needs the
// right in the first user namespace, unless it is the whiteout of an overlay.
func mayMake(c *creds, mode uint32, device uint64) bool {
	switch mode & unix.S_IFMT {
	case 0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
		return true
	case unix.S_IFCHR:
		return device == 0 || c.ids == nil && c.has(unix.CAP_MKNOD)
	case unix.S_IFBLK:
		return c.ids == nil && c.has(unix.CAP_MKNOD)
	}
	return false
}

// judgesItself: on these file systems permissions are decided elsewhere than by
// owner and mode.
func (v *view) judgesItself(path string) bool {
	var fs unix.Statfs_t
	if unix.Statfs("/proc/self/fd/"+strconv.Itoa(v.root)+path, &fs) != nil {
		return true
	}
	switch uint32(fs.Type) {
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC,
		unix.V9FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return true
	}
	return false
}

func parentPath(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return "/"
}

// special tells whether a file is one that holds nothing: character and block
// devices, pipes, and sockets.
func special(f *target) bool {
	return f.is(unix.S_IFCHR) || f.is(unix.S_IFBLK) || f.is(unix.S_IFIFO) || f.is(unix.S_IFSOCK)
}

// opens tells what an open with write intent will do; 0: nothing to a file.
func (v *view) opens(c *creds, f *target, flags uint64) Op {
	if flags&unix.O_PATH != 0 {
		return 0
	}
	if flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return 0 // no name; linkat may give it one
	}
	create := flags&oCreat != 0
	if !f.exists {
		if create && flags&unix.O_DIRECTORY == 0 && !f.slash && v.mayAdd(c, f) {
			return Create
		}
		return 0
	}
	switch {
	case create && flags&oExcl != 0, f.is(unix.S_IFDIR), f.is(unix.S_IFLNK), special(f), flags&unix.O_DIRECTORY != 0:
		return 0
	}
	if flags&writeFlags == 0 {
		return 0 // openat2 is always looked at
	}
	// O_CREAT alone cannot change a file that is there. It counts all the
	// same: a cold and a warm run would differ by it.
	want := uint32(0)
	if flags&(oWronly|oRdwr|oTrunc) != 0 {
		want |= mayWrite
	}
	if flags&oWronly == 0 {
		want |= 4
	}
	if !v.may(c, f.path, &f.st, want) {
		return 0
	}
	return Modify
}

// removes: unlink (dir false) or rmdir.
func (v *view) removes(c *creds, f *target, dir bool) bool {
	if f.dot || !v.mayDrop(c, f) || f.is(unix.S_IFDIR) != dir {
		return false
	}
	return !dir || v.empty(f.path)
}

// renames: from over to, with the flags of renameat2(2).
func (v *view) renames(c *creds, from, to *target, flags uint64) bool {
	if from.dot || to.dot || !v.mayDrop(c, from) || !v.sameDevice(from, to) || v.isMount(from) || v.isMount(to) {
		return false
	}
	same := to.exists && from.st.Dev == to.st.Dev && from.st.Ino == to.st.Ino // rename(2): does nothing
	if flags&unix.RENAME_EXCHANGE != 0 {
		return !same && v.mayDrop(c, to) && !within(to.path, from.path) && !within(from.path, to.path)
	}
	if !to.exists {
		return v.mayAdd(c, to) && (from.is(unix.S_IFDIR) || !to.slash) && !(from.is(unix.S_IFDIR) && within(to.path, from.path))
	}
	switch {
	case same, flags&unix.RENAME_NOREPLACE != 0, !v.mayDrop(c, to), from.is(unix.S_IFDIR) != to.is(unix.S_IFDIR):
		return false
	case to.is(unix.S_IFDIR):
		return v.empty(to.path) && !within(to.path, from.path)
	}
	return true
}

// sameDevice: neither rename nor link crosses file systems (EXDEV).
func (v *view) sameDevice(from, to *target) bool {
	a, ok1 := v.parent(from)
	b, ok2 := v.parent(to)
	return ok1 && ok2 && a.Dev == b.Dev
}

// isMount tells whether a mount ends at a name. It cannot be renamed (EBUSY), and
// is on another mount than its directory (EXDEV).
func (v *view) isMount(f *target) bool {
	if v.rootsDiffer || !f.exists {
		return f.mount // as the walk saw it in the task's own namespace
	}
	var x unix.Statx_t
	err := unix.Statx(v.root, strings.TrimLeft(f.path, "/"), unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &x)
	return err == nil && x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// links: a hard link to from, named to. See also proc(5), protected_hardlinks.
func (v *view) links(c *creds, from, to *target) bool {
	if !from.exists || from.is(unix.S_IFDIR) || !v.sameDevice(from, to) || !v.mayAdd(c, to) || v.isMount(from) {
		return false
	}
	if c.owns(&from.st) {
		return true
	}
	return from.is(unix.S_IFREG) && from.st.Mode&unix.S_ISUID == 0 && v.may(c, from.path, &from.st, 4|mayWrite)
}

// within tells whether a path lies below a directory.
func within(path, dir string) bool {
	return len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}
