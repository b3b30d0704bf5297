package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const cwd = unix.AT_FDCWD

func TestWrites(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) { checkRows(t, "writes", tier) })
}

// The same where a process has changed its root or its credentials, since
// from then on every path is walked from the caller's own root, and every
// permission judged by the caller's own credentials.
func TestWritesOnceRootsDiffer(t *testing.T) {
	checkRows(t, "writes", Namespace, "namespaces")
	checkRows(t, "none", Namespace, "namespaces")
}

func TestNoWrites(t *testing.T) {
	eachTier(t, func(t *testing.T, tier Tier) { checkRows(t, "none", tier) })
}

// openHow is struct open_how of openat2(2).
func openHow(flags, mode, resolve uint64) []byte {
	b := binary.NativeEndian.AppendUint64(nil, flags)
	b = binary.NativeEndian.AppendUint64(b, mode)
	return binary.NativeEndian.AppendUint64(b, resolve)
}

// xattrArgs is struct xattr_args of setxattrat(2).
func xattrArgs(value []byte, keep *[]any) []byte {
	*keep = append(*keep, value)
	b := binary.NativeEndian.AppendUint64(nil, uint64(addressOf(value)))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(value)))
	return binary.NativeEndian.AppendUint32(b, 0)
}

// aclOf is an access control list, in the form of linux/posix_acl_xattr.h, by
// which a user may read and write.
func aclOf(uid uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2) // POSIX_ACL_XATTR_VERSION
	const anybody = ^uint32(0)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 4, anybody}, {0x02, 6, uid}, {0x04, 4, anybody}, {0x10, 6, anybody}, {0x20, 0, anybody}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// reading makes an ioctl through a descriptor that is open for reading.
func reading(path string, request int) func() error {
	return withFD(path, unix.O_RDONLY, func(fd int) error { return sys("ioctl", fd, request, make([]byte, 8192))() })
}

// timespecs are the times of utimensat(2), of nanoseconds alone.
func timespecs(access, change uint64) []byte {
	b := binary.NativeEndian.AppendUint64(make([]byte, 8), access)
	return binary.NativeEndian.AppendUint64(append(b, make([]byte, 8)...), change)
}

// tmpfile makes a file without a name and gives it one.
func tmpfile(link func(fd int) error) func() error {
	return withFD(".", unix.O_TMPFILE|unix.O_RDWR, link)
}

func procFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// newCall lets a call fail that only newer kernels have; fchmodat2 came with
// 6.6, setxattrat with 6.13, file_setattr with 6.17.
func newCall(act func() error) func() error {
	return func() error {
		if err := act(); !errors.Is(err, unix.ENOSYS) {
			return err
		}
		return errNoCall
	}
}

func bindUnix(path string) func() error {
	return func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
	}
}

// writeRows: every call of the table that can change a file, in each of its
// forms, and it succeeds.
func writeRows() []row {
	me := os.Geteuid()
	gid := os.Getegid()
	flags := make([]byte, 8)
	times := make([]byte, 32)
	value := []byte("v")
	acl := aclOf(uint32(me))
	return []row{
		{name: "open O_CREAT", guards: "open(2)", act: sys("open", "f", unix.O_CREAT|unix.O_WRONLY, 0o644), want: []string{"create open f"}},
		{name: "open O_APPEND", guards: "open(2): O_APPEND comes with O_WRONLY", files: []string{"f"}, act: sys("open", "f", unix.O_APPEND|unix.O_WRONLY), want: []string{"modify open f"}},
		{name: "openat O_CREAT", guards: "openat(2)", act: sys("openat", cwd, "f", unix.O_CREAT|unix.O_RDWR, 0o644), want: []string{"create openat f"}},
		{name: "openat O_CREAT O_EXCL", guards: "openat(2)", act: sys("openat", cwd, "f", unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o644), want: []string{"create openat f"}},
		{name: "openat O_CREAT O_RDONLY", guards: "open(2): an empty file arises though nothing is written", act: sys("openat", cwd, "f", unix.O_CREAT, 0o644), want: []string{"create openat f"}},
		{name: "openat O_CREAT O_RDONLY of what exists", guards: "open(2): counts as it does where the file is missing, or a cold and a warm run would differ", files: []string{"f"}, act: sys("openat", cwd, "f", unix.O_CREAT, 0o644), want: []string{"modify openat f"}},
		{name: "openat O_WRONLY", guards: "openat(2): write intent, whether or not a byte follows", files: []string{"f"}, act: sys("openat", cwd, "f", unix.O_WRONLY), want: []string{"modify openat f"}},
		{name: "openat O_RDWR", guards: "openat(2)", files: []string{"f"}, act: sys("openat", cwd, "f", unix.O_RDWR), want: []string{"modify openat f"}},
		{name: "openat O_TRUNC O_RDONLY", guards: "open(2): truncates on Linux though opened for reading", files: []string{"f"}, act: sys("openat", cwd, "f", unix.O_TRUNC), want: []string{"modify openat f"}},
		{name: "openat mode 3", guards: "open(2): access mode 3 asks for both permissions", files: []string{"f"}, act: sys("openat", cwd, "f", 3), want: []string{"modify openat f"}},
		{name: "openat2", guards: "openat2(2): the flags are in memory", act: sys("openat2", cwd, "f", openHow(unix.O_CREAT|unix.O_WRONLY, 0o644, 0), 24), want: []string{"create openat2 f"}},
		{name: "openat2 RESOLVE_BENEATH", guards: "openat2(2)", files: []string{"d/"}, act: sys("openat2", cwd, "d/f", openHow(unix.O_CREAT|unix.O_WRONLY, 0o644, unix.RESOLVE_BENEATH), 24), want: []string{"create openat2 d/f"}},
		{name: "creat", guards: "creat(2): has no flags argument", act: sys("creat", "f", 0o644), want: []string{"create creat f"}},
		{name: "creat over", guards: "creat(2)", files: []string{"f"}, act: sys("creat", "f", 0o644), want: []string{"modify creat f"}},

		{name: "mkdir", guards: "mkdir(2)", act: sys("mkdir", "d", 0o755), want: []string{"create mkdir d"}},
		{name: "mkdirat", guards: "mkdir(2)", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("mkdirat", fd, "e", 0o755)() }), want: []string{"create mkdirat d/e"}},
		{name: "mknod", guards: "mknod(2): a FIFO is a name like any other", act: sys("mknod", "p", unix.S_IFIFO|0o644, 0), want: []string{"create mknod p"}},
		{name: "mknod of a whiteout", guards: "mknod(2): device 0:0 is no device, and anybody may make it (vfs_mknod)", act: sys("mknod", "w", unix.S_IFCHR, 0), want: []string{"create mknod w"}},
		{name: "mknodat", guards: "mknod(2): a regular file without open", act: sys("mknodat", cwd, "f", unix.S_IFREG|0o644, 0), want: []string{"create mknodat f"}},
		{name: "symlink", guards: "symlink(2): the target need not exist", act: sys("symlink", "nowhere", "l"), want: []string{"create symlink l"}},
		{name: "symlinkat", guards: "symlink(2): the directory is the second argument", files: []string{"d/"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("symlinkat", "x", fd, "l")() }), want: []string{"create symlinkat d/l"}},
		{name: "bind", guards: "unix(7): binding makes a name in the file system", act: bindUnix("s"), want: []string{"create bind s", `bind unix "s"`}},

		{name: "link", guards: "link(2)", files: []string{"f"}, act: sys("link", "f", "g"), want: []string{"link link f -> g"}},
		{name: "link of a symlink", guards: "link(2): not followed", files: []string{"f", "l -> f"}, act: sys("link", "l", "g"), want: []string{"link link l -> g"}},
		{name: "linkat", guards: "link(2)", files: []string{"f"}, act: sys("linkat", cwd, "f", cwd, "g", 0), want: []string{"link linkat f -> g"}},
		{name: "linkat AT_SYMLINK_FOLLOW", guards: "link(2)", files: []string{"f", "l -> f"}, act: sys("linkat", cwd, "l", cwd, "g", unix.AT_SYMLINK_FOLLOW), want: []string{"link linkat f -> g"}},
		{name: "linkat of a tmpfile by AT_EMPTY_PATH", guards: "open(2), O_TMPFILE: the file gets its first name", act: tmpfile(func(fd int) error { return sys("linkat", fd, "", cwd, "f", unix.AT_EMPTY_PATH)() }), any: os.Geteuid() != 0, want: []string{"create linkat f"}},
		{name: "linkat of a tmpfile by /proc", guards: "open(2), O_TMPFILE: the way without CAP_DAC_READ_SEARCH", act: tmpfile(func(fd int) error { return sys("linkat", cwd, procFD(fd), cwd, "f", unix.AT_SYMLINK_FOLLOW)() }), want: []string{"create linkat f"}},

		{name: "unlink", guards: "unlink(2)", files: []string{"f"}, act: sys("unlink", "f"), want: []string{"remove unlink f"}},
		{name: "unlink of a symlink", guards: "unlink(2): not followed", files: []string{"f", "l -> f"}, act: sys("unlink", "l"), want: []string{"remove unlink l"}},
		{name: "unlinkat", guards: "unlink(2)", files: []string{"d/", "d/f"}, act: withFD("d", unix.O_RDONLY, func(fd int) error { return sys("unlinkat", fd, "f", 0)() }), want: []string{"remove unlinkat d/f"}},
		{name: "unlinkat AT_REMOVEDIR", guards: "unlink(2)", files: []string{"d/"}, act: sys("unlinkat", cwd, "d", unix.AT_REMOVEDIR), want: []string{"remove unlinkat d"}},
		{name: "rmdir", guards: "rmdir(2)", files: []string{"d/"}, act: sys("rmdir", "d"), want: []string{"remove rmdir d"}},

		{name: "rename", guards: "rename(2)", files: []string{"f"}, act: sys("rename", "f", "g"), want: []string{"rename rename f -> g"}},
		{name: "rename over", guards: "rename(2): what stood there is gone", files: []string{"f", "g"}, act: sys("rename", "f", "g"), want: []string{"rename rename f -> g (was there)"}},
		{name: "rename of a directory", guards: "rename(2)", files: []string{"d/", "d/f"}, act: sys("rename", "d", "e"), want: []string{"rename rename d -> e"}},
		{name: "rename over an empty directory", guards: "rename(2)", files: []string{"d/", "d/f", "e/"}, act: sys("rename", "d", "e"), want: []string{"rename rename d -> e (was there)"}},
		{name: "rename of a symlink", guards: "rename(2): not followed", files: []string{"l -> nowhere"}, act: sys("rename", "l", "m"), want: []string{"rename rename l -> m"}},
		{name: "renameat", guards: "rename(2)", files: []string{"d/", "d/f"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("renameat", fd, "f", cwd, "f")() }), want: []string{"rename renameat d/f -> f"}},
		{name: "renameat2", guards: "rename(2)", files: []string{"f"}, act: sys("renameat2", cwd, "f", cwd, "g", 0), want: []string{"rename renameat2 f -> g"}},
		{name: "renameat2 RENAME_NOREPLACE", guards: "rename(2)", files: []string{"f"}, act: sys("renameat2", cwd, "f", cwd, "g", unix.RENAME_NOREPLACE), want: []string{"rename renameat2 f -> g"}},
		{name: "renameat2 RENAME_EXCHANGE", guards: "rename(2): both names change", files: []string{"f", "d/"}, act: sys("renameat2", cwd, "f", cwd, "d", unix.RENAME_EXCHANGE), want: []string{"exchange renameat2 f -> d (was there)"}},

		{name: "truncate", guards: "truncate(2)", files: []string{"f"}, act: sys("truncate", "f", 0), want: []string{"modify truncate f"}},
		{name: "truncate through a symlink", guards: "truncate(2)", files: []string{"f", "l -> f"}, act: sys("truncate", "l", 5), want: []string{"modify truncate f"}},

		{name: "chmod", guards: "chmod(2): a change that a digest of the contents misses", files: []string{"f"}, act: sys("chmod", "f", 0o600), want: []string{"meta chmod f"}},
		{name: "chmod through a symlink", guards: "chmod(2)", files: []string{"f", "l -> f"}, act: sys("chmod", "l", 0o600), want: []string{"meta chmod f"}},
		{name: "chmod of the directory itself", guards: "chmod(2)", act: sys("chmod", ".", 0o755), want: []string{"meta chmod ."}},
		{name: "fchmod", guards: "chmod(2): a descriptor for reading is enough", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("fchmod", fd, 0o600)() }), want: []string{"meta fchmod f"}},
		{name: "fchmodat", guards: "chmod(2)", files: []string{"d/", "d/f"}, act: withFD("d", unix.O_PATH, func(fd int) error { return sys("fchmodat", fd, "f", 0o600)() }), want: []string{"meta fchmodat d/f"}},
		{name: "fchmodat of /proc/self/fd", guards: "fchmodat(3): how the C library does without fchmodat2", files: []string{"f"}, act: withFD("f", unix.O_PATH, func(fd int) error { return sys("fchmodat", cwd, procFD(fd), 0o600)() }), want: []string{"meta fchmodat f"}},
		{name: "fchmodat2", guards: "chmod(2)", files: []string{"f"}, act: newCall(sys("fchmodat2", cwd, "f", 0o600, unix.AT_SYMLINK_NOFOLLOW)), want: []string{"meta fchmodat2 f"}},
		{name: "fchmodat2 AT_EMPTY_PATH", guards: "chmod(2)", files: []string{"f"}, act: withFD("f", unix.O_PATH, func(fd int) error {
			return newCall(sys("fchmodat2", fd, "", 0o600, unix.AT_EMPTY_PATH))()
		}), want: []string{"meta fchmodat2 f"}},

		{name: "chown", guards: "chown(2)", files: []string{"f"}, act: sys("chown", "f", me, gid), want: []string{"meta chown f"}},
		{name: "chown to nobody in particular", guards: "chown(2): -1 changes no owner, but the time", files: []string{"f"}, act: sys("chown", "f", -1, -1), want: []string{"meta chown f"}},
		{name: "chown to another", guards: "chown(2)", only: "root", files: []string{"f"}, act: sys("chown", "f", 12, 13), want: []string{"meta chown f"}},
		{name: "lchown", guards: "chown(2): the link itself", files: []string{"l -> nowhere"}, act: sys("lchown", "l", me, gid), want: []string{"meta lchown l"}},
		{name: "fchown", guards: "chown(2)", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("fchown", fd, me, gid)() }), want: []string{"meta fchown f"}},
		{name: "fchownat", guards: "chown(2)", files: []string{"f", "l -> f"}, act: sys("fchownat", cwd, "l", me, gid, 0), want: []string{"meta fchownat f"}},
		{name: "fchownat AT_SYMLINK_NOFOLLOW", guards: "chown(2)", files: []string{"f", "l -> f"}, act: sys("fchownat", cwd, "l", me, gid, unix.AT_SYMLINK_NOFOLLOW), want: []string{"meta fchownat l"}},
		{name: "fchownat AT_EMPTY_PATH", guards: "chown(2)", files: []string{"f"}, act: withFD("f", unix.O_PATH, func(fd int) error { return sys("fchownat", fd, "", me, gid, unix.AT_EMPTY_PATH)() }), want: []string{"meta fchownat f"}},

		{name: "utime", guards: "utime(2)", files: []string{"f"}, act: sys("utime", "f", nil), want: []string{"meta utime f"}},
		{name: "utimes", guards: "utimes(2)", files: []string{"f"}, act: sys("utimes", "f", nil), want: []string{"meta utimes f"}},
		{name: "futimesat", guards: "futimesat(2)", files: []string{"f"}, act: sys("futimesat", cwd, "f", nil), want: []string{"meta futimesat f"}},
		{name: "futimesat of a descriptor", guards: "futimesat(2): a NULL path means the descriptor", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("futimesat", fd, nil, nil)() }), want: []string{"meta futimesat f"}},
		{name: "utimensat", guards: "utimensat(2)", files: []string{"f"}, act: sys("utimensat", cwd, "f", times, 0), want: []string{"meta utimensat f"}},
		{name: "utimensat AT_SYMLINK_NOFOLLOW", guards: "utimensat(2)", files: []string{"l -> nowhere"}, act: sys("utimensat", cwd, "l", times, unix.AT_SYMLINK_NOFOLLOW), want: []string{"meta utimensat l"}},
		{name: "futimens", guards: "utimensat(2): futimens passes a NULL path", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("utimensat", fd, nil, nil, 0)() }), want: []string{"meta utimensat f"}},

		{name: "setxattr", guards: "setxattr(2)", files: []string{"f", "l -> f"}, act: sys("setxattr", "l", "user.a", value, 1, 0), want: []string{"meta setxattr f"}},
		{name: "lsetxattr", guards: "setxattr(2)", files: []string{"f"}, act: sys("lsetxattr", "f", "user.a", value, 1, 0), want: []string{"meta lsetxattr f"}},
		{name: "fsetxattr", guards: "setxattr(2)", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("fsetxattr", fd, "user.a", value, 1, 0)() }), want: []string{"meta fsetxattr f"}},
		{name: "setxattrat", guards: "setxattrat(2): the AT_ flags are the third argument", files: []string{"f"}, act: newCall(func() error {
			var keep []any
			args := xattrArgs(value, &keep)
			return sys("setxattrat", cwd, "f", 0, "user.a", args, len(args))()
		}), want: []string{"meta setxattrat f"}},
		{name: "removexattr", guards: "removexattr(2)", files: []string{"f"}, act: then(sys("setxattr", "f", "user.a", value, 1, 0), sys("removexattr", "f", "user.a")), want: []string{"meta setxattr f", "meta removexattr f"}},
		{name: "lremovexattr", guards: "removexattr(2)", files: []string{"f"}, act: then(sys("setxattr", "f", "user.a", value, 1, 0), sys("lremovexattr", "f", "user.a")), want: []string{"meta setxattr f", "meta lremovexattr f"}},
		{name: "fremovexattr", guards: "removexattr(2)", files: []string{"f"}, act: withFD("f", unix.O_RDONLY, func(fd int) error {
			return then(sys("fsetxattr", fd, "user.a", value, 1, 0), sys("fremovexattr", fd, "user.a"))()
		}), want: []string{"meta fsetxattr f", "meta fremovexattr f"}},
		{name: "removexattrat", guards: "removexattrat(2)", files: []string{"f"}, act: newCall(then(sys("setxattr", "f", "user.a", value, 1, 0), sys("removexattrat", cwd, "f", 0, "user.a"))), want: []string{"meta setxattr f", "meta removexattrat f"}},

		{name: "setxattr XATTR_CREATE", guards: "setxattr(2)", files: []string{"f"}, act: sys("setxattr", "f", "user.a", value, 1, unix.XATTR_CREATE), want: []string{"meta setxattr f"}},
		{name: "setxattr XATTR_REPLACE", guards: "setxattr(2)", files: []string{"f"}, act: then(sys("setxattr", "f", "user.a", value, 1, 0), sys("setxattr", "f", "user.a", value, 1, unix.XATTR_REPLACE)), want: []string{"meta setxattr f", "meta setxattr f"}},
		{name: "setxattr of a list", guards: "vfs_set_acl: asks for the owner, not for permission to write", files: []string{"f"}, act: then(sys("chmod", "f", 0o444), sys("setxattr", "f", aclAccess, acl, len(acl), 0)), want: []string{"meta chmod f", "meta setxattr f"}},
		{name: "removexattr of a list", guards: "vfs_remove_acl", files: []string{"f"}, act: then(sys("setxattr", "f", aclAccess, acl, len(acl), 0), sys("chmod", "f", 0o444), sys("removexattr", "f", aclAccess)), want: []string{"meta setxattr f", "meta chmod f", "meta removexattr f"}},

		{name: "ioctl FS_IOC_SETFLAGS", guards: "ioctl_iflags(2): chattr", files: []string{"f"}, any: true, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("ioctl", fd, fsIocSetFlags, flags)() }), want: []string{"meta ioctl f"}},
		{name: "ioctl FS_IOC_FSSETXATTR", guards: "ioctl_xfs_fssetxattr(2)", files: []string{"f"}, any: true, act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("ioctl", fd, fsIocFsSetXattr, make([]byte, 28))() }), want: []string{"meta ioctl f"}},
		{name: "ioctl FS_IOC_SETVERSION", guards: "linux/fs.h: the generation of an inode", files: []string{"f"}, any: true, act: reading("f", fsIocSetVersion), want: []string{"meta ioctl f"}},
		{name: "ioctl EXT4_IOC_SETVERSION", guards: "fs/ext4/ioctl.c", files: []string{"f"}, any: true, act: reading("f", ext4IocSetVersion), want: []string{"meta ioctl f"}},
		{name: "ioctl EXT4_IOC_MIGRATE", guards: "fs/ext4/ioctl.c", files: []string{"f"}, any: true, act: reading("f", ext4IocMigrate), want: []string{"meta ioctl f"}},
		{name: "ioctl FS_IOC_ENABLE_VERITY", guards: "fsverity: the descriptor must not be open for writing", files: []string{"f"}, any: true, act: reading("f", fsIocEnableVerity), want: []string{"meta ioctl f"}},
		{name: "ioctl FS_IOC_SET_ENCRYPTION_POLICY", guards: "fscrypt", files: []string{"d/"}, any: true, act: reading("d", fsIocSetEncryptionPolicy), want: []string{"meta ioctl d"}},
		{name: "ioctl FAT_IOCTL_SET_ATTRIBUTES", guards: "fs/fat/file.c", files: []string{"f"}, any: true, act: reading("f", fatIoctlSetAttributes), want: []string{"meta ioctl f"}},
		{name: "ioctl BTRFS_IOC_SUBVOL_SETFLAGS", guards: "fs/btrfs/ioctl.c", files: []string{"d/"}, any: true, act: reading("d", btrfsIocSubvolSetFlags), want: []string{"meta ioctl d"}},
		{name: "ioctl BTRFS_IOC_SUBVOL_CREATE", guards: "fs/btrfs/ioctl.c: makes a directory", files: []string{"d/"}, any: true, act: reading("d", btrfsIocSubvolCreate), want: []string{"meta ioctl d"}},
		{name: "file_setattr", guards: "file_setattr: the same by path, from 6.17", files: []string{"f"}, any: true, act: newCall(sys("file_setattr", cwd, "f", make([]byte, 24), 24, 0)), want: []string{"meta file_setattr f"}},

		{name: "mmap", guards: "mmap(2): a shared mapping needs a descriptor open for writing, and that is seen", files: []string{"f"}, act: withFD("f", unix.O_RDWR, func(fd int) error {
			m, err := unix.Mmap(fd, 0, 1, unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			m[0] = 'y'
			return unix.Munmap(m)
		}), want: []string{"modify openat f"}},
	}
}

// noWriteRows: calls that change no file, and so give no event.
func noWriteRows() []row {
	names := []string{"f", "g", "d/", "d/sub/", "e/", "l -> f", "ld -> d", "loop -> loop", "dangling -> nowhere", "p|"}
	// Told as a write though the kernel refuses it: nothing that gate can look
	// at beforehand says so. The second witness shows that nothing changed.
	const over = "told though it fails"
	hard := then(sys("link", "f", "same"), sys("rename", "f", "same"))
	rows := []row{
		{name: "open for reading", guards: "the filter lets it pass at once", act: opened("f", unix.O_RDONLY)},
		{name: "openat2 for reading", guards: "openat2(2) is always looked at", act: sys("openat2", cwd, "f", openHow(0, 0, 0), 24)},
		{name: "O_PATH|O_RDWR", guards: "open(2): O_PATH ignores the access mode", act: opened("f", unix.O_PATH|unix.O_RDWR)},
		{name: "O_TMPFILE", guards: "open(2): it has no name", act: opened(".", unix.O_TMPFILE|unix.O_RDWR)},
		{name: "O_DIRECTORY of a file", guards: "open(2)", act: opened("f", unix.O_DIRECTORY|unix.O_WRONLY), err: unix.ENOTDIR},
		{name: "directory for writing", guards: "open(2)", act: opened("d", unix.O_WRONLY), err: unix.EISDIR},
		{name: "directory O_CREAT", guards: "open(2)", act: opened("d", unix.O_CREAT), err: unix.EISDIR},
		{name: "O_EXCL on what exists", guards: "open(2)", act: opened("f", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), err: unix.EEXIST},
		{name: "O_EXCL on a dangling symlink", guards: "open(2): with O_EXCL a link is not followed", act: opened("dangling", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY), err: unix.EEXIST},
		{name: "O_NOFOLLOW on a symlink", guards: "open(2)", act: opened("l", unix.O_NOFOLLOW|unix.O_WRONLY), err: unix.ELOOP},
		{name: "open through a loop", guards: "path_resolution(7)", act: opened("loop", unix.O_CREAT|unix.O_WRONLY), err: unix.ELOOP},
		{name: "open of what does not exist", guards: "open(2)", act: opened("nothing", unix.O_WRONLY), err: unix.ENOENT},
		{name: "open in a missing directory", guards: "open(2)", act: opened("no/f", unix.O_CREAT|unix.O_WRONLY), err: unix.ENOENT},
		{name: "open below a file", guards: "path_resolution(7)", act: opened("f/x", unix.O_CREAT|unix.O_WRONLY), err: unix.ENOTDIR},
		{name: "O_CREAT with a trailing slash", guards: "path_resolution(7): a trailing slash wants a directory", act: opened("new/", unix.O_CREAT|unix.O_WRONLY), err: unix.EISDIR},
		{name: "file with a trailing slash", guards: "path_resolution(7)", act: opened("f/", unix.O_WRONLY), err: unix.ENOTDIR},
		{name: "O_CREAT of new/.", guards: "path_resolution(7)", act: opened("new/.", unix.O_CREAT|unix.O_WRONLY), err: unix.ENOENT},
		{name: "open of the empty path", guards: "path_resolution(7)", act: opened("", unix.O_CREAT|unix.O_WRONLY), err: unix.ENOENT},
		{name: "open of a name that is too long", guards: "path_resolution(7): NAME_MAX", act: opened(strings.Repeat("n", 256), unix.O_CREAT|unix.O_WRONLY), err: unix.ENAMETOOLONG},
		{name: "open of a path that is too long", guards: "path_resolution(7): PATH_MAX", act: opened(strings.Repeat("./", 2100)+"f", unix.O_WRONLY), err: unix.ENAMETOOLONG},
		{name: "FIFO for writing", guards: "fifo(7): gate must not wait for a reader, nor the pipe count as a file", act: opened("p", unix.O_WRONLY|unix.O_NONBLOCK), err: unix.ENXIO},
		{name: "FIFO for both", guards: "fifo(7)", act: opened("p", unix.O_RDWR)},
		{name: "/dev/null", guards: "null(4)", act: opened("/dev/null", unix.O_WRONLY|unix.O_TRUNC)},
		{name: "/dev/tty", guards: "tty(4)", act: opened("/dev/tty", unix.O_RDWR), any: true},
		{name: "/proc/self", guards: "proc(5): settings, no files", act: opened("/proc/self/coredump_filter", unix.O_RDWR)},
		{name: "memory file by /proc/self/fd", guards: "memfd_create(2)", act: func() error {
			fd, err := unix.MemfdCreate("m", unix.MFD_CLOEXEC)
			if err != nil {
				return err
			}
			return then(opened(procFD(fd), unix.O_RDWR), sys("fchmod", fd, 0o600))()
		}},
		{name: "pipe by /proc/self/fd", guards: "proc_pid_fd(5)", act: func() error {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			return opened(procFD(p[1]), unix.O_WRONLY)()
		}},

		{name: "mkdir of what exists", guards: "mkdir(2)", act: sys("mkdir", "d", 0o755), err: unix.EEXIST},
		{name: "mkdir over a file", guards: "mkdir(2)", act: sys("mkdir", "f", 0o755), err: unix.EEXIST},
		{name: "mkdir over a dangling symlink", guards: "mkdir(2): not followed", act: sys("mkdir", "dangling", 0o755), err: unix.EEXIST},
		{name: "mkdir over a dangling symlink with a slash", guards: "mkdir(2)", act: sys("mkdir", "dangling/", 0o755), err: unix.EEXIST},
		{name: "mkdir of .", guards: "mkdir(2)", act: sys("mkdir", ".", 0o755), err: unix.EEXIST},
		{name: "mkdir of /", guards: "mkdir(2)", act: sys("mkdir", "/", 0o755), err: unix.EEXIST},
		{name: "mkdir of new/.", guards: "path_resolution(7)", act: sys("mkdir", "new/.", 0o755), err: unix.ENOENT},
		{name: "mkdir of new/..", guards: "path_resolution(7)", act: sys("mkdir", "new/..", 0o755), err: unix.ENOENT},
		{name: "mkdir in a missing directory", guards: "mkdir(2)", act: sys("mkdir", "no/d", 0o755), err: unix.ENOENT},
		{name: "mkdir below a file", guards: "mkdir(2)", act: sys("mkdir", "f/d", 0o755), err: unix.ENOTDIR},
		{name: "mknod of what exists", guards: "mknod(2)", act: sys("mknod", "f", unix.S_IFIFO|0o644, 0), err: unix.EEXIST},
		{name: "mknod with a trailing slash", guards: "path_resolution(7)", act: sys("mknod", "new/", unix.S_IFIFO|0o644, 0), err: unix.ENOENT},
		{name: "symlink of what exists", guards: "symlink(2)", act: sys("symlink", "x", "f"), err: unix.EEXIST},
		{name: "symlink with a trailing slash", guards: "path_resolution(7)", act: sys("symlink", "x", "new/"), err: unix.ENOENT},
		{name: "bind of what exists", guards: "unix(7)", act: bindUnix("f"), err: unix.EADDRINUSE},
		{name: "bind over a dangling symlink", guards: "unix(7): not followed", act: bindUnix("dangling"), err: unix.EADDRINUSE},

		{name: "link of a directory", guards: "link(2)", act: sys("link", "d", "new"), err: unix.EPERM},
		{name: "link to what exists", guards: "link(2)", act: sys("link", "f", "g"), err: unix.EEXIST},
		{name: "link of nothing", guards: "link(2)", act: sys("link", "nothing", "new"), err: unix.ENOENT},
		{name: "link with a trailing slash", guards: "path_resolution(7)", act: sys("link", "f", "new/"), err: unix.ENOENT},
		{name: "linkat of an O_EXCL tmpfile", guards: over, act: withFD(".", unix.O_TMPFILE|unix.O_RDWR|unix.O_EXCL, func(fd int) error {
			return sys("linkat", cwd, procFD(fd), cwd, "new", unix.AT_SYMLINK_FOLLOW)()
		}), err: unix.ENOENT, want: []string{"create linkat new"}},
		{name: "linkat of a deleted file", guards: over, act: func() error {
			fd, err := unix.Open("f", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return errors.Join(then(sys("unlink", "f"), sys("linkat", cwd, procFD(fd), cwd, "new", unix.AT_SYMLINK_FOLLOW))(), unix.Close(fd))
		}, err: unix.ENOENT, want: []string{"remove unlink f", "create linkat new"}},

		{name: "unlink of what does not exist", guards: "unlink(2)", act: sys("unlink", "nothing"), err: unix.ENOENT},
		{name: "unlink of a directory", guards: "unlink(2): Go's os.Remove tries it first", act: sys("unlink", "d"), err: unix.EISDIR},
		{name: "unlink of a file with a trailing slash", guards: "path_resolution(7)", act: sys("unlink", "f/"), err: unix.ENOTDIR},
		{name: "unlink of a symlink to a directory with a trailing slash", guards: "path_resolution(7)", act: sys("unlink", "ld/"), err: unix.ENOTDIR},
		{name: "rmdir of a symlink with a trailing slash", guards: "path_resolution(7)", act: sys("rmdir", "ld/"), err: unix.ENOTDIR},
		{name: "unlinkat of a directory", guards: "unlink(2)", act: sys("unlinkat", cwd, "d", 0), err: unix.EISDIR},
		{name: "rmdir of a full directory", guards: "rmdir(2)", act: sys("rmdir", "d"), err: unix.ENOTEMPTY},
		{name: "rmdir of a file", guards: "rmdir(2)", act: sys("rmdir", "f"), err: unix.ENOTDIR},
		{name: "rmdir of a symlink to a directory", guards: "rmdir(2)", act: sys("rmdir", "ld"), err: unix.ENOTDIR},
		{name: "rmdir of .", guards: "rmdir(2)", act: sys("rmdir", "."), err: unix.EINVAL},
		{name: "rmdir of e/.", guards: "rmdir(2)", act: sys("rmdir", "e/."), err: unix.EINVAL},
		{name: "rmdir of ..", guards: "rmdir(2)", act: sys("rmdir", "e/.."), err: unix.ENOTEMPTY},

		{name: "rename of nothing", guards: "rename(2)", act: sys("rename", "nothing", "new"), err: unix.ENOENT},
		{name: "rename onto itself", guards: "rename(2)", act: sys("rename", "f", "f")},
		{name: "rename onto a hard link of itself", guards: "rename(2): the same file; nothing is done", act: hard, want: []string{"link link f -> same"}},
		{name: "rename of a file over a directory", guards: "rename(2)", act: sys("rename", "f", "e"), err: unix.EISDIR},
		{name: "rename of a directory over a file", guards: "rename(2)", act: sys("rename", "e", "f"), err: unix.ENOTDIR},
		{name: "rename over a full directory", guards: "rename(2)", act: sys("rename", "e", "d"), err: unix.ENOTEMPTY},
		{name: "rename into itself", guards: "rename(2)", act: sys("rename", "d", "d/sub/new"), err: unix.EINVAL},
		{name: "rename over the parent", guards: "rename(2)", act: sys("rename", "d/sub", "d"), err: unix.ENOTEMPTY},
		{name: "rename of a file to a trailing slash", guards: "path_resolution(7)", act: sys("rename", "f", "new/"), err: unix.ENOTDIR},
		{name: "rename of a file with a trailing slash", guards: "path_resolution(7)", act: sys("rename", "f/", "new"), err: unix.ENOTDIR},
		{name: "rename of .", guards: "rename(2)", act: sys("rename", ".", "new"), err: unix.EBUSY},
		{name: "rename to e/.", guards: "rename(2)", act: sys("rename", "d", "e/."), err: unix.EBUSY},
		{name: "rename RENAME_NOREPLACE", guards: "rename(2)", act: sys("renameat2", cwd, "f", cwd, "g", unix.RENAME_NOREPLACE), err: unix.EEXIST},
		{name: "rename RENAME_EXCHANGE with nothing", guards: "rename(2)", act: sys("renameat2", cwd, "f", cwd, "new", unix.RENAME_EXCHANGE), err: unix.ENOENT},
		{name: "rename RENAME_EXCHANGE with itself", guards: "rename(2): the same file; nothing is done", act: sys("renameat2", cwd, "f", cwd, "f", unix.RENAME_EXCHANGE)},
		{name: "rename RENAME_EXCHANGE with the parent", guards: "rename(2)", act: sys("renameat2", cwd, "d/sub", cwd, "d", unix.RENAME_EXCHANGE), err: unix.EINVAL},
		{name: "rename with both flags", guards: "rename(2)", act: sys("renameat2", cwd, "f", cwd, "new", unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE), err: unix.EINVAL},
		{name: "rename to another file system", guards: "rename(2): mv copies then", act: sys("rename", "f", "/dev/shm/gate-test-new"), err: unix.EXDEV},
		{name: "link to another file system", guards: "link(2)", act: sys("link", "f", "/dev/shm/gate-test-new"), err: unix.EXDEV},

		{name: "truncate of a directory", guards: "truncate(2)", act: sys("truncate", "d", 0), err: unix.EISDIR},
		{name: "truncate of a FIFO", guards: "truncate(2)", act: sys("truncate", "p", 0), err: unix.EINVAL},
		{name: "truncate of nothing", guards: "truncate(2)", act: sys("truncate", "nothing", 0), err: unix.ENOENT},
		{name: "chmod of nothing", guards: "chmod(2)", act: sys("chmod", "nothing", 0o600), err: unix.ENOENT},
		{name: "chmod of a file with a trailing slash", guards: "path_resolution(7)", act: sys("chmod", "f/", 0o600), err: unix.ENOTDIR},
		{name: "chmod of a dangling symlink", guards: "chmod(2)", act: sys("chmod", "dangling", 0o600), err: unix.ENOENT},
		{name: "mknod of a directory", guards: "mknod(2)", act: sys("mknod", "new", unix.S_IFDIR|0o755, 0), err: unix.EPERM},
		{name: "mknod of a device", guards: "mknod(2): CAP_MKNOD of the first user namespace", only: "user", act: sys("mknod", "new", unix.S_IFCHR|0o644, 0x103), err: unix.EPERM},
		{name: "utimensat of neither time", guards: "utimensat(2): succeeds, and does not even look at the path", act: sys("utimensat", cwd, "f", timespecs(unix.UTIME_OMIT, unix.UTIME_OMIT), 0)},
		{name: "removexattr of what is not there", guards: "removexattr(2)", act: sys("removexattr", "f", "user.a"), err: unix.ENODATA},
		{name: "setxattr XATTR_REPLACE of what is not there", guards: "setxattr(2)", act: sys("setxattr", "f", "user.a", []byte("v"), 1, unix.XATTR_REPLACE), err: unix.ENODATA},
		{name: "setxattr XATTR_CREATE of what is there", guards: "setxattr(2)", act: then(sys("setxattr", "f", "user.a", []byte("v"), 1, 0), sys("setxattr", "f", "user.a", []byte("v"), 1, unix.XATTR_CREATE)), err: unix.EEXIST, want: []string{"meta setxattr f"}},
		{name: "setxattr of a kind there is not", guards: "xattr(7)", act: sys("setxattr", "f", "nobody.a", []byte("v"), 1, 0), err: unix.EOPNOTSUPP},
		{name: "setxattr trusted", guards: "xattr(7): CAP_SYS_ADMIN of the first user namespace", act: sys("setxattr", "f", "trusted.a", []byte("v"), 1, 0), err: unix.EPERM},
		{name: "setxattr security", guards: "cap_inode_setxattr: the same", act: sys("setxattr", "f", "security.a", []byte("v"), 1, 0), err: unix.EPERM},
		{name: "setxattr of a FIFO", guards: "xattr(7): user attributes are for files and directories", act: sys("setxattr", "p", "user.a", []byte("v"), 1, 0), err: unix.EPERM},
		{name: "setxattr with an unreadable name", guards: "EFAULT", act: sys("setxattr", "f", uintptr(8), []byte("v"), 1, 0), err: unix.EFAULT},
		{name: "ioctl of a device", guards: "not a file", act: withFD("/dev/null", unix.O_RDONLY, func(fd int) error { return sys("ioctl", fd, fsIocSetFlags, make([]byte, 8))() }), err: unix.ENOTTY},
		{name: "fchmod of a pipe", guards: "not a file", act: func() error {
			var p [2]int
			if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
				return err
			}
			return sys("fchmod", p[0], 0o600)()
		}},
		{name: "fchmod of a closed descriptor", guards: "chmod(2)", act: sys("fchmod", 999, 0o600), err: unix.EBADF},
		{name: "a path that is not mapped", guards: "EFAULT", act: sys("mkdir", uintptr(8), 0o755), err: unix.EFAULT},
		{name: "no path", guards: "EFAULT", act: sys("mkdir", nil, 0o755), err: unix.EFAULT},
		{name: "openat2 with unreadable flags", guards: "EFAULT", act: sys("openat2", cwd, "f", uintptr(8), 24), err: unix.EFAULT},
		{name: "openat2 with a short struct", guards: "openat2(2): EINVAL", act: sys("openat2", cwd, "f", openHow(unix.O_WRONLY, 0, 0), 16), err: unix.EINVAL},
		{name: "openat2 with a mode for nothing", guards: "openat2(2): EINVAL", act: sys("openat2", cwd, "f", openHow(unix.O_WRONLY, 0o644, 0), 24), err: unix.EINVAL},
		{name: "relative to a closed descriptor", guards: "EBADF", act: sys("mkdirat", 999, "new", 0o755), err: unix.EBADF},
		{name: "relative to a file", guards: "ENOTDIR", act: withFD("f", unix.O_RDONLY, func(fd int) error { return sys("mkdirat", fd, "new", 0o755)() }), err: unix.ENOTDIR},

		{name: "create in a closed directory", guards: "path_resolution(7)", only: "user", act: then(sys("chmod", "e", 0o555), opened("e/f", unix.O_CREAT|unix.O_WRONLY)), err: unix.EACCES, want: []string{"meta chmod e"}},
		{name: "create where one may not search", guards: "path_resolution(7)", only: "user", act: then(sys("chmod", "e", 0o600), opened("e/f", unix.O_CREAT|unix.O_WRONLY)), err: unix.EACCES, want: []string{"meta chmod e"}},
		{name: "create below where one may not search", guards: "path_resolution(7)", only: "user", act: then(sys("chmod", "d", 0o600), opened("d/sub/f", unix.O_CREAT|unix.O_WRONLY)), err: unix.EACCES, want: []string{"meta chmod d"}},
		{name: "write without permission", guards: "path_resolution(7)", only: "user", act: then(sys("chmod", "f", 0o400), opened("f", unix.O_WRONLY)), err: unix.EACCES, want: []string{"meta chmod f"}},
		{name: "open for both without reading", guards: "path_resolution(7)", only: "user", act: then(sys("chmod", "f", 0o200), opened("f", unix.O_RDWR)), err: unix.EACCES, want: []string{"meta chmod f"}},
		{name: "write without permission as root", guards: "capabilities(7): CAP_DAC_OVERRIDE", only: "root", act: then(sys("chmod", "f", 0), opened("f", unix.O_WRONLY)), want: []string{"meta chmod f", "modify openat f"}},
		{name: "unlink in a closed directory", guards: "unlink(2)", only: "user", act: then(sys("chmod", "d", 0o555), sys("rmdir", "d/sub")), err: unix.EACCES, want: []string{"meta chmod d"}},
		{name: "chown to another", guards: "chown(2)", only: "user", act: sys("chown", "f", 1, -1), any: true},
		{name: "chgrp to another", guards: "chown(2)", only: "user", act: sys("chown", "f", -1, 1), any: true},
	}
	for i := range rows {
		rows[i].files = names
	}
	return rows
}

// TestForeignFiles: an ordinary user among the files of another.
func TestForeignFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		return // nothing is foreign to root
	}
	dir := foreign(t)
	eachTier(t, func(t *testing.T, tier Tier) {
		// As root of a user namespace too: it has no say over files of an owner
		// that is not mapped there (capable_wrt_inode_uidgid).
		for _, before := range [][]string{nil, {"namespaces"}} {
			out := scene{tier: tier, argv: actor(append(before, "foreign", dir)...), handler: &recorder{dir: dir}}.run(t)
			wantExit(t, out, Exit{})
			wantEvents(t, out.Events, "modify openat writable", "meta utimensat writable", "modify openat sticky/root",
				"modify openat listed", "modify openat listed")
		}
	})
}

// actForeign tries what one may, and what one may not, do to root's files.
func actForeign(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	own := aclOf(uint32(os.Getuid()))
	for _, step := range []struct {
		name string
		err  error
		act  func() error
	}{
		{"write to readable", unix.EACCES, opened(in("readable"), unix.O_WRONLY)},
		{"write to closed", unix.EACCES, opened(in("closed"), unix.O_WRONLY)},
		{"truncate readable", unix.EACCES, sys("truncate", in("readable"), 0)},
		{"chmod readable", unix.EPERM, sys("fchmodat", cwd, in("readable"), 0o777)},
		{"touch readable", unix.EACCES, sys("utimensat", cwd, in("readable"), nil, 0)},
		{"unlink readable", unix.EACCES, sys("unlinkat", cwd, in("readable"), 0)},
		{"create beside it", unix.EACCES, opened(in("new"), unix.O_CREAT|unix.O_WRONLY)},
		{"write to writable", nil, opened(in("writable"), unix.O_WRONLY)},
		{"touch writable", nil, sys("utimensat", cwd, in("writable"), nil, 0)},
		{"set a time of writable", unix.EPERM, sys("utimensat", cwd, in("writable"), timespecs(1, 1), 0)},
		{"set a list of writable", unix.EPERM, sys("setxattr", in("writable"), aclAccess, own, len(own), 0)},
		{"chown readable", unix.EPERM, sys("fchownat", cwd, in("readable"), os.Getuid(), -1, 0)},
		{"unlink in a sticky directory", unix.EPERM, sys("unlinkat", cwd, in("sticky/root"), 0)},
		{"rename in a sticky directory", unix.EPERM, sys("renameat2", cwd, in("sticky/root"), cwd, in("sticky/new"), 0)},
		{"write in a sticky directory", nil, opened(in("sticky/root"), unix.O_WRONLY)},
		{"write to listed", nil, opened(in("listed"), unix.O_WRONLY)},
		{"become who one is", nil, sys("setgid", os.Getgid())}, // credentials may differ from then on
		{"write to listed again", nil, opened(in("listed"), unix.O_WRONLY)},
		{"write to closed again", unix.EACCES, opened(in("closed"), unix.O_WRONLY)},
	} {
		if err := step.act(); !errors.Is(err, step.err) {
			return fmt.Errorf("%s: got %v, want %v", step.name, err, step.err)
		}
	}
	return nil
}

// What stood at a path is told as it was before the call.
func TestNodesBefore(t *testing.T) {
	dir := realDir(t)
	r := row{files: []string{"f", "d/", "g"}}
	if err := r.furnish(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(dir+"/f", dir+"/same"); err != nil {
		t.Fatal(err)
	}
	rec := &recorder{}
	inode := func(name string) unix.Stat_t {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	f, d := inode("f"), inode("d")
	wantExit(t, scene{tier: Namespace, dir: dir, argv: actor("nodes"), handler: rec}.run(t), Exit{})
	wantEvents(t, rec.events, "modify openat f", "meta fchmodat d", "create openat new")
	want := []Node{
		{Exists: true, Dev: uint64(f.Dev), Ino: f.Ino, Nlink: 2},
		{Exists: true, Dir: true, Dev: uint64(d.Dev), Ino: d.Ino, Nlink: 2},
		{},
	}
	for i, got := range rec.nodes {
		if got != want[i] {
			t.Errorf("%s: got %+v, want %+v", rec.events[i], got, want[i])
		}
	}
}

func actNodes() error {
	return then(opened("f", unix.O_WRONLY), sys("fchmodat", cwd, "d", 0o700), opened("new", unix.O_CREAT|unix.O_WRONLY))()
}
