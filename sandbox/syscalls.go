package sandbox

// This file is the one table of traced system calls. The BPF program, the
// decoder, the names in records and docs/syscalls.md are all made from it.
//
// Not in the table, on purpose: write, ftruncate, fallocate, mmap and all
// else that needs a descriptor open for writing, since the open was seen;
// descriptors from outside are looked at before the start. close, fork, wait
// and plain clone are never trapped: a trapped call may be interrupted by a
// signal before it began (see seccomp_unotify(2)), and they must not be.

// none marks an architecture without the call, or an argument it lacks.
const none = -1

// do selects the decoder of a call.
type do uint8

const (
	doOpen   do = iota + 1
	doMake      // mkdir, mknod: creates a name
	doRemove    // unlink, rmdir
	doRename
	doLink
	doSymlink
	doTruncate
	doMeta   // chmod, chown, utime, xattr by path
	doMetaFD // the same by descriptor
	doConnect
	doBind
	doSendto
	doSendmsg
	doSendmmsg
	doSocket
	doSockopt
	doSigaction
	doExit
	doIdentity // setuid and relatives: credentials may differ from now on
	doRoot     // chroot, pivot_root, namespaces: roots and mounts may differ from now on
	doRefuse   // answered with ENOSYS and recorded
)

// cond is when a call leaves the kernel; everything else is allowed at once.
type cond uint8

const (
	always      cond = iota
	writeIntent      // the open flags in argument Flags ask for writing or creating
	argSet           // the 64-bit argument Test is not 0
	argAny           // argument Test has one of the bits in Want
	argIs            // argument Test equals Want
	argIsSet         // argument Test equals Want and the 64-bit argument Test+1 is not 0
	otherFamily      // argument Test is an address family that no network namespace holds
	never            // answered with errno Want by the filter itself, not recorded
)

// call is one row.
type call struct {
	name          string
	amd64, arm64  int32
	do            do
	when          cond
	test          int8   // argument that when looks at
	want          uint32 // value or mask for when
	dirfd, path   int8   // arguments; none: AT_FDCWD, or no path
	dirfd2, path2 int8
	flags         int8 // argument with open or AT_ flags
}

// Values of the Linux ABI that the filter and the decoder need on every
// platform on which they are tested. Sources: include/uapi/linux/*.h.
const (
	oWronly         = 0o1
	oRdwr           = 0o2
	oCreat          = 0o100
	oExcl           = 0o200
	oTrunc          = 0o1000
	atFDCWD         = -100
	sigChld         = 17
	cloneNewNS      = 0x00020000
	cloneNewNet     = 0x40000000
	cloneNewPID     = 0x20000000
	cloneNewUser    = 0x10000000
	fsIocSetFlags   = 0x40086602
	fsIocFsSetXattr = 0x401c5820
	// linux/fs.h, fs/ext4/ext4.h, linux/fsverity.h, linux/fscrypt.h, linux/msdos_fs.h, linux/btrfs.h
	fsIocSetVersion          = 0x40087602
	ext4IocSetVersion        = 0x40086604
	ext4IocMigrate           = 0x6609
	fsIocEnableVerity        = 0x40806685
	fsIocSetEncryptionPolicy = 0x800c6613
	fatIoctlSetAttributes    = 0x40047211
	btrfsIocSubvolSetFlags   = 0x4008941a
	btrfsIocSubvolCreate     = 0x5000940e
	btrfsIocSubvolCreateV2   = 0x50009418
	btrfsIocSnapCreate       = 0x50009401
	btrfsIocSnapCreateV2     = 0x50009417
	btrfsIocSnapDestroy      = 0x5000940f
	btrfsIocSnapDestroyV2    = 0x5000943f
	ePerm                    = 1
	eNosys                   = 38
	eAfNoSupport             = 97
	eAddrNotAvail            = 99
	eConnRefused             = 111
	solIP                    = 0
	solIPv6                  = 41
)

// btrfsNames make and remove names in the directory that they are called on.
var btrfsNames = []uint32{
	btrfsIocSubvolCreate, btrfsIocSubvolCreateV2, btrfsIocSnapCreate, btrfsIocSnapCreateV2, btrfsIocSnapDestroy, btrfsIocSnapDestroyV2,
}

// writeFlags are the open flags that show write intent. O_TMPFILE comes with
// O_WRONLY or O_RDWR, O_APPEND without either cannot write.
const writeFlags = oWronly | oRdwr | oCreat | oTrunc

// nsFlags are the clone and unshare flags after which paths, the network or the
// reaper of a process may be its own.
const nsFlags = cloneNewNS | cloneNewNet | cloneNewUser | cloneNewPID

// packetBit is the bit that SOCK_PACKET, and no other type of socket, has.
const packetBit = 8

// calls is ordered by how often real suites make them: the filter tries them
// in this order.
var calls = []call{
	{name: "openat", amd64: 257, arm64: 56, do: doOpen, when: writeIntent, test: 2, dirfd: 0, path: 1, flags: 2},
	{name: "open", amd64: 2, arm64: none, do: doOpen, when: writeIntent, test: 1, dirfd: none, path: 0, flags: 1},
	{name: "rt_sigaction", amd64: 13, arm64: 134, do: doSigaction, when: argIsSet, test: 0, want: sigChld},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fsIocSetFlags, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fsIocFsSetXattr, dirfd: 0, path: none},
	// What else changes a file or a directory through a descriptor that is open
	// for reading.
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fsIocSetVersion, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: ext4IocSetVersion, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: ext4IocMigrate, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fsIocEnableVerity, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fsIocSetEncryptionPolicy, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: fatIoctlSetAttributes, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSubvolSetFlags, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSubvolCreate, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSubvolCreateV2, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSnapCreate, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSnapCreateV2, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSnapDestroy, dirfd: 0, path: none},
	{name: "ioctl", amd64: 16, arm64: 29, do: doMetaFD, when: argIs, test: 1, want: btrfsIocSnapDestroyV2, dirfd: 0, path: none},
	{name: "unlink", amd64: 87, arm64: none, do: doRemove, dirfd: none, path: 0, flags: none},
	{name: "unlinkat", amd64: 263, arm64: 35, do: doRemove, dirfd: 0, path: 1, flags: 2},
	{name: "sendto", amd64: 44, arm64: 206, do: doSendto, when: argSet, test: 4},
	// The address is in memory. In a namespace packets bear witness of what
	// goes to other hosts, but nothing does of a datagram to a Unix socket.
	{name: "sendmsg", amd64: 46, arm64: 211, do: doSendmsg},
	{name: "sendmmsg", amd64: 307, arm64: 269, do: doSendmmsg},
	{name: "connect", amd64: 42, arm64: 203, do: doConnect},
	{name: "bind", amd64: 49, arm64: 200, do: doBind},
	{name: "socket", amd64: 41, arm64: 198, do: doSocket, when: otherFamily, test: 0},
	{name: "socket", amd64: 41, arm64: 198, do: doSocket, when: argAny, test: 1, want: packetBit},
	{name: "setsockopt", amd64: 54, arm64: 208, do: doSockopt, when: argIsSet, test: 1, want: solIP},
	{name: "setsockopt", amd64: 54, arm64: 208, do: doSockopt, when: argIsSet, test: 1, want: solIPv6},
	{name: "clone", amd64: 56, arm64: 220, do: doRoot, when: argAny, test: 0, want: nsFlags},
	{name: "exit_group", amd64: 231, arm64: 94, do: doExit},
	{name: "rename", amd64: 82, arm64: none, do: doRename, dirfd: none, path: 0, dirfd2: none, path2: 1, flags: none},
	{name: "renameat", amd64: 264, arm64: 38, do: doRename, dirfd: 0, path: 1, dirfd2: 2, path2: 3, flags: none},
	{name: "renameat2", amd64: 316, arm64: 276, do: doRename, dirfd: 0, path: 1, dirfd2: 2, path2: 3, flags: 4},
	{name: "mkdir", amd64: 83, arm64: none, do: doMake, dirfd: none, path: 0, flags: none},
	{name: "mkdirat", amd64: 258, arm64: 34, do: doMake, dirfd: 0, path: 1, flags: none},
	{name: "rmdir", amd64: 84, arm64: none, do: doRemove, dirfd: none, path: 0, flags: none},
	{name: "chmod", amd64: 90, arm64: none, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "fchmod", amd64: 91, arm64: 52, do: doMetaFD, dirfd: 0, path: none},
	{name: "fchmodat", amd64: 268, arm64: 53, do: doMeta, dirfd: 0, path: 1, flags: none},
	{name: "fchmodat2", amd64: 452, arm64: 452, do: doMeta, dirfd: 0, path: 1, flags: 3},
	{name: "utimensat", amd64: 280, arm64: 88, do: doMeta, dirfd: 0, path: 1, flags: 3},
	{name: "utime", amd64: 132, arm64: none, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "utimes", amd64: 235, arm64: none, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "futimesat", amd64: 261, arm64: none, do: doMeta, dirfd: 0, path: 1, flags: none},
	{name: "openat2", amd64: 437, arm64: 437, do: doOpen, dirfd: 0, path: 1, flags: none},
	{name: "creat", amd64: 85, arm64: none, do: doOpen, dirfd: none, path: 0, flags: none},
	{name: "symlink", amd64: 88, arm64: none, do: doSymlink, dirfd: none, path: 1, flags: none},
	{name: "symlinkat", amd64: 266, arm64: 36, do: doSymlink, dirfd: 1, path: 2, flags: none},
	{name: "link", amd64: 86, arm64: none, do: doLink, dirfd: none, path: 0, dirfd2: none, path2: 1, flags: none},
	{name: "linkat", amd64: 265, arm64: 37, do: doLink, dirfd: 0, path: 1, dirfd2: 2, path2: 3, flags: 4},
	{name: "mknod", amd64: 133, arm64: none, do: doMake, dirfd: none, path: 0, flags: none},
	{name: "mknodat", amd64: 259, arm64: 33, do: doMake, dirfd: 0, path: 1, flags: none},
	{name: "truncate", amd64: 76, arm64: 45, do: doTruncate, dirfd: none, path: 0, flags: none},
	{name: "chown", amd64: 92, arm64: none, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "lchown", amd64: 94, arm64: none, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "fchown", amd64: 93, arm64: 55, do: doMetaFD, dirfd: 0, path: none},
	{name: "fchownat", amd64: 260, arm64: 54, do: doMeta, dirfd: 0, path: 1, flags: 4},
	{name: "setxattr", amd64: 188, arm64: 5, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "lsetxattr", amd64: 189, arm64: 6, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "fsetxattr", amd64: 190, arm64: 7, do: doMetaFD, dirfd: 0, path: none},
	{name: "removexattr", amd64: 197, arm64: 14, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "lremovexattr", amd64: 198, arm64: 15, do: doMeta, dirfd: none, path: 0, flags: none},
	{name: "fremovexattr", amd64: 199, arm64: 16, do: doMetaFD, dirfd: 0, path: none},
	{name: "setxattrat", amd64: 463, arm64: 463, do: doMeta, dirfd: 0, path: 1, flags: 2},
	{name: "removexattrat", amd64: 466, arm64: 466, do: doMeta, dirfd: 0, path: 1, flags: 2},
	{name: "file_setattr", amd64: 469, arm64: 469, do: doMeta, dirfd: 0, path: 1, flags: 4},
	{name: "unshare", amd64: 272, arm64: 97, do: doRoot, when: argAny, test: 0, want: nsFlags},
	{name: "setns", amd64: 308, arm64: 268, do: doRoot},
	{name: "chroot", amd64: 161, arm64: 51, do: doRoot},
	{name: "pivot_root", amd64: 155, arm64: 41, do: doRoot},
	{name: "setuid", amd64: 105, arm64: 146, do: doIdentity},
	{name: "setreuid", amd64: 113, arm64: 145, do: doIdentity},
	{name: "setresuid", amd64: 117, arm64: 147, do: doIdentity},
	{name: "setfsuid", amd64: 122, arm64: 151, do: doIdentity},
	{name: "setgid", amd64: 106, arm64: 144, do: doIdentity},
	{name: "setregid", amd64: 114, arm64: 143, do: doIdentity},
	{name: "setresgid", amd64: 119, arm64: 149, do: doIdentity},
	{name: "setfsgid", amd64: 123, arm64: 152, do: doIdentity},
	{name: "setgroups", amd64: 116, arm64: 159, do: doIdentity},
	{name: "io_uring_setup", amd64: 425, arm64: 425, do: doRefuse},
	// Its flags are in memory, where the filter cannot look. Container
	// runtimes answer the same, and C libraries then use clone.
	{name: "clone3", amd64: 435, arm64: 435, when: never, want: eNosys},
	// A file by handle has no path to record. It needs CAP_DAC_READ_SEARCH,
	// which containers do not get either.
	{name: "open_by_handle_at", amd64: 304, arm64: 265, when: never, want: ePerm},
}

// families are the address families that are let through in a tier: those
// that carry nothing off the machine or are seen otherwise, and in a network
// namespace those that stay inside it.
func families(tier Tier) []uint32 {
	both := []uint32{
		0,  // AF_UNSPEC
		1,  // AF_UNIX
		2,  // AF_INET
		10, // AF_INET6
		16, // AF_NETLINK
		38, // AF_ALG
	}
	if tier == Notify {
		return both
	}
	return append(both,
		15, // AF_KEY
		29, // AF_CAN
	)
}

// nr is the call's number on an architecture of GOARCH's naming.
func (c *call) nr(arch string) int32 {
	switch arch {
	case "amd64":
		return c.amd64
	case "arm64":
		return c.arm64
	}
	return none
}
