package sandbox

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/syscalls.md anew")

const docsHead = `# The traced system calls

This page is made from the table in ` + "`sandbox/syscalls.go`" + `, which the filter and
the decoder are made from as well. After a change of the table:

    go test ./sandbox -run TestDocs -update

Every other call is allowed by its number alone and never leaves the kernel.
Arguments are counted from 0. A dash stands for a call that the architecture does
not have. Calls of a foreign architecture (i386, x32, 32-bit arm) have numbers of
their own: they are answered with ENOSYS, and recorded as ` + "`raw:i386`, `raw:x32` or\n`raw:arm`" + `.

A call that cannot succeed is not recorded; [design.md](design.md) says how that
is known.

| call | amd64 | arm64 | trapped | recorded |
| --- | --- | --- | --- | --- |
`

const docsTail = `
## Not trapped, on purpose
* ` + "`write`, `ftruncate`, `fallocate`, `mmap`, `copy_file_range`" + ` and all else that needs
  a descriptor open for writing: the open was seen. What stdin, stdout and stderr
  are is looked at before the start; nothing else is inherited.
* ` + "`close`, `fork`, `vfork`, `wait4`" + ` and plain ` + "`clone`" + `: a trapped call can be
  interrupted by a signal before it began, and these must not be.
`

// TestDocs holds docs/syscalls.md against the table.
func TestDocs(t *testing.T) {
	rows := slices.Clone(calls)
	slices.SortStableFunc(rows, func(a, b call) int { return cmp.Compare(a.name, b.name) })
	var b strings.Builder
	b.WriteString(docsHead)
	for _, c := range rows {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
			c.name, number(c.amd64), number(c.arm64), trapped(t, &c), recorded(t, &c))
	}
	b.WriteString(docsTail)

	const file = "../docs/syscalls.md"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("%s is not what the table says (-want +got); go test ./sandbox -run TestDocs -update:\n%s", file, diff)
	}
}

func number(nr int32) string {
	if nr == none {
		return "-"
	}
	return fmt.Sprint(nr)
}

// trapped is the condition of a row in words.
func trapped(t *testing.T, c *call) string {
	t.Helper()
	values := map[uint32]string{
		sigChld: "SIGCHLD", fsIocSetFlags: "FS_IOC_SETFLAGS", fsIocFsSetXattr: "FS_IOC_FSSETXATTR",
		fsIocSetVersion: "FS_IOC_SETVERSION", ext4IocSetVersion: "EXT4_IOC_SETVERSION", ext4IocMigrate: "EXT4_IOC_MIGRATE",
		fsIocEnableVerity: "FS_IOC_ENABLE_VERITY", fsIocSetEncryptionPolicy: "FS_IOC_SET_ENCRYPTION_POLICY",
		fatIoctlSetAttributes: "FAT_IOCTL_SET_ATTRIBUTES", btrfsIocSubvolSetFlags: "BTRFS_IOC_SUBVOL_SETFLAGS",
		btrfsIocSubvolCreate: "BTRFS_IOC_SUBVOL_CREATE", btrfsIocSubvolCreateV2: "BTRFS_IOC_SUBVOL_CREATE_V2",
		btrfsIocSnapCreate: "BTRFS_IOC_SNAP_CREATE", btrfsIocSnapCreateV2: "BTRFS_IOC_SNAP_CREATE_V2",
		btrfsIocSnapDestroy: "BTRFS_IOC_SNAP_DESTROY", btrfsIocSnapDestroyV2: "BTRFS_IOC_SNAP_DESTROY_V2",
		nsFlags: "CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWUSER or CLONE_NEWPID", eNosys: "ENOSYS", ePerm: "EPERM",
		packetBit: "SOCK_PACKET", solIP: "SOL_IP", solIPv6: "SOL_IPV6",
	}
	value := func() string {
		name, ok := values[c.want]
		if !ok {
			t.Errorf("%s: no name for the value %#x", c.name, c.want)
		}
		return name
	}
	text := ""
	switch c.when {
	case always:
		text = "always"
	case writeIntent:
		text = fmt.Sprintf("argument %d has O_WRONLY, O_RDWR, O_CREAT or O_TRUNC", c.test)
	case argSet:
		text = fmt.Sprintf("argument %d is not 0", c.test)
	case argAny:
		text = fmt.Sprintf("argument %d has %s", c.test, value())
	case argIs:
		text = fmt.Sprintf("argument %d is %s", c.test, value())
	case argIsSet:
		text = fmt.Sprintf("argument %d is %s and argument %d is not 0", c.test, value(), c.test+1)
	case otherFamily:
		text = fmt.Sprintf("argument %d is none of %s", c.test, familyNames(t))
	case never:
		text = fmt.Sprintf("never: the filter itself answers %s", value())
	default:
		t.Errorf("%s: no words for condition %d", c.name, c.when)
	}
	return text
}

func familyNames(t *testing.T) string {
	t.Helper()
	names := map[uint32]string{
		0: "AF_UNSPEC", 1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6", 15: "AF_KEY",
		16: "AF_NETLINK", 29: "AF_CAN", 38: "AF_ALG",
	}
	var out []string
	for _, f := range families(Namespace) {
		if names[f] == "" {
			t.Errorf("no name for the address family %d", f)
		}
		out = append(out, names[f])
	}
	return strings.Join(out, ", ")
}

// recorded says what becomes of a trapped call.
func recorded(t *testing.T, c *call) string {
	t.Helper()
	if c.when == never {
		return "nothing"
	}
	text, ok := map[do]string{
		doOpen:      "write: the file that is created or may be modified",
		doMake:      "write: the new name",
		doRemove:    "write: the name that goes",
		doRename:    "write: both names",
		doLink:      "write: the new name, and the file that it is linked to",
		doSymlink:   "write: the new name",
		doTruncate:  "write: the file",
		doMeta:      "write: the file whose metadata changes",
		doMetaFD:    "write: the file whose metadata changes",
		doConnect:   "net: the endpoint; a Unix socket that is neither the tree's own nor in `allow_net` is refused",
		doBind:      "net: a port or path is the tree's own from now on; write: the path of a Unix socket",
		doSendto:    "net: the endpoint",
		doSendmsg:   "net: the endpoint",
		doSendmmsg:  "net: the endpoint of each message",
		doSocket:    "net: refused with EAFNOSUPPORT, since " + whyNot(c),
		doSockopt:   "net: notify alone: IP_OPTIONS, IPV6_RTHDR and IPV6_2292PKTOPTIONS are refused with EPERM, as `raw:ip-options`",
		doSigaction: "cpu_sec: children of the process are reaped by the kernel from now on, or no longer",
		doExit:      "cpu_sec: the figures of a process that nobody will wait for",
		doIdentity:  "nothing; credentials are read anew for each call from now on",
		doRoot:      "nothing; paths are resolved from the root of the calling process from now on" + ownNetwork(c),
		doRefuse:    "net: refused with ENOSYS, as `raw:io_uring`",
	}[c.do]
	if !ok {
		t.Errorf("%s: no words for decoder %d", c.name, c.do)
	}
	return text
}

// whyNot is what is wrong with a socket.
func whyNot(c *call) string {
	if c.when == argAny {
		return "it is AF_PACKET by an old name"
	}
	return "no network namespace holds the family, or its frames pass the second witness (AF_PACKET)"
}

// ownNetwork is what the calls say that can make or enter a namespace.
func ownNetwork(c *call) string {
	if c.name == "chroot" || c.name == "pivot_root" {
		return ""
	}
	return "; a network namespace of its own is a gap, and so is a PID namespace where no cgroup counts its CPU time"
}
