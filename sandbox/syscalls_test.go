package sandbox

import (
	"encoding/binary"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

// numbers reads the SYS_ constants of x/sys, so that both architectures are
// checked on either.
func numbers(t *testing.T, arch string) map[string]int32 {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("go list golang.org/x/sys: %v", err)
	}
	name := filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+arch+".go")
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	nrs := map[string]int32{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				if n, err := strconv.Atoi(lit.Value); err == nil {
					nrs[strings.ToLower(strings.TrimPrefix(v.Names[0].Name, "SYS_"))] = int32(n)
				}
			}
		}
		return true
	})
	if len(nrs) < 300 {
		t.Fatalf("%s has %d system calls, want more", name, len(nrs))
	}
	return nrs
}

func TestNumbersAreTheKernels(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		nrs := numbers(t, arch)
		for i := range calls {
			want, ok := nrs[calls[i].name]
			if !ok {
				want = none
			}
			if got := calls[i].nr(arch); got != want {
				t.Errorf("%s on %s: got %d, want %d", calls[i].name, arch, got, want)
			}
		}
	}
}

// Every call of the kernel that can write or reach somebody is in the table,
// or stands here with the reason why it need not be.
func TestNothingIsForgotten(t *testing.T) {
	reasons := map[string]string{
		"write": "needs a descriptor whose open was seen", "ftruncate": "same", "fallocate": "same",
		"copy_file_range": "same", "sendfile": "same", "splice": "same", "mmap": "same", "pwrite64": "same",
		"writev": "same", "pwritev": "same", "pwritev2": "same", "vmsplice": "pipes only",
		"memfd_create": "no file", "mq_open": "own IPC namespace",
		"mount": "needs CAP_SYS_ADMIN: roots of a nested user namespace are noted", "umount2": "same",
		"swapon": "needs CAP_SYS_ADMIN", "acct": "needs CAP_SYS_PACCT", "quotactl": "needs CAP_SYS_ADMIN",
		"accept": "takes, does not reach", "accept4": "same", "listen": "same", "socketpair": "reaches itself",
	}
	in := map[string]bool{}
	for i := range calls {
		in[calls[i].name] = true
	}
	for name, nr := range numbers(t, "amd64") {
		suspicious := false
		for _, part := range []string{"open", "creat", "link", "rename", "mkdir", "rmdir", "mknod", "chmod", "chown", "utime", "xattr", "truncate", "connect", "bind", "send", "setattr", "socket", "uring_setup", "splice", "write", "fallocate", "mount", "swapon", "acct", "memfd_create", "copy_file"} {
			suspicious = suspicious || strings.Contains(name, part)
		}
		for _, other := range []string{"readlink", "getxattr", "listxattr", "file_getattr", "open_tree", "fsopen", "pidfd_", "perf_event_open", "mq_", "process_vm_writev", "name_to_handle_at", "statmount", "listmount", "fsmount", "move_mount", "mount_setattr", "epoll_create", "timer_create", "timerfd_create", "mbind", "landlock_create", "sched_setattr", "create_module", "sigqueueinfo"} {
			if strings.Contains(name, other) {
				suspicious = false
			}
		}
		if suspicious && !in[name] && reasons[name] == "" {
			t.Errorf("%s (%d) can write or reach, and is neither in the table nor excused", name, nr)
		}
	}
}

// vm loads the filter into x/net/bpf's virtual machine. That reads packets in
// network order, seccomp reads its data in native order: the words are swapped.
func vm(t testing.TB, arch string, tier Tier) func(nr int32, audit uint32, args [6]uint64) uint32 {
	t.Helper()
	program, err := Filter(arch, tier)
	if err != nil {
		t.Fatal(err)
	}
	if len(program) > 4096 {
		t.Fatalf("%d instructions, the kernel takes 4096", len(program))
	}
	raw := make([]bpf.RawInstruction, len(program))
	for i, in := range program {
		raw[i] = bpf.RawInstruction{Op: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	decoded, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the program does not disassemble")
	}
	m, err := bpf.NewVM(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return func(nr int32, audit uint32, args [6]uint64) uint32 {
		b := binary.BigEndian.AppendUint32(nil, uint32(nr))
		b = binary.BigEndian.AppendUint32(b, audit)
		b = binary.BigEndian.AppendUint64(b, 0)
		for _, a := range args {
			b = binary.BigEndian.AppendUint32(b, uint32(a))
			b = binary.BigEndian.AppendUint32(b, uint32(a>>32))
		}
		got, err := m.Run(b)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(got)
	}
}

func TestFilter(t *testing.T) {
	const amd64, arm64, i386 = uint32(auditArchAMD64), uint32(auditArchARM64), uint32(0x40000003)
	for _, tt := range []struct {
		name  string
		arch  string
		tier  Tier
		audit uint32
		nr    int32
		args  [6]uint64
		want  uint32
	}{
		{"read is free", "amd64", Namespace, amd64, 0, [6]uint64{}, retAllow},
		{"close is free", "amd64", Namespace, amd64, 3, [6]uint64{}, retAllow},
		{"openat for reading", "amd64", Namespace, amd64, 257, [6]uint64{0, 0, 0o2000000}, retAllow},
		{"openat O_WRONLY", "amd64", Namespace, amd64, 257, [6]uint64{0, 0, oWronly}, retNotify},
		{"openat O_RDWR", "amd64", Namespace, amd64, 257, [6]uint64{0, 0, oRdwr}, retNotify},
		{"openat O_CREAT alone", "amd64", Namespace, amd64, 257, [6]uint64{0, 0, oCreat}, retNotify},
		{"openat O_TRUNC alone", "amd64", Namespace, amd64, 257, [6]uint64{0, 0, oTrunc}, retNotify},
		{"open flags are the second argument", "amd64", Namespace, amd64, 2, [6]uint64{0, oWronly}, retNotify},
		{"open mode is not looked at", "amd64", Namespace, amd64, 2, [6]uint64{0, 0, 0o666}, retAllow},
		{"openat2 always", "amd64", Namespace, amd64, 437, [6]uint64{}, retNotify},
		{"sendto without an address", "amd64", Namespace, amd64, 44, [6]uint64{3, 1, 1, 0, 0, 0}, retAllow},
		{"sendto with an address", "amd64", Namespace, amd64, 44, [6]uint64{3, 1, 1, 0, 0x7fff0000, 16}, retNotify},
		{"sendto, address above 4 GiB only", "amd64", Namespace, amd64, 44, [6]uint64{3, 1, 1, 0, 1 << 40, 16}, retNotify},
		{"sendmsg", "amd64", Namespace, amd64, 46, [6]uint64{3, 1}, retNotify},
		{"sendmmsg", "amd64", Notify, amd64, 307, [6]uint64{3, 1}, retNotify},
		{"socket AF_PACKET in a namespace", "amd64", Namespace, amd64, 41, [6]uint64{17}, retNotify},
		{"socket SOCK_PACKET", "amd64", Namespace, amd64, 41, [6]uint64{2, 10 | 0x80800}, retNotify},
		{"socket SOCK_SEQPACKET", "amd64", Namespace, amd64, 41, [6]uint64{1, 5 | 0x80800}, retAllow},
		{"socket AF_PACKET on the host's network", "amd64", Notify, amd64, 41, [6]uint64{17}, retNotify},
		{"socket AF_INET", "amd64", Namespace, amd64, 41, [6]uint64{afInet}, retAllow},
		{"socket AF_ALG", "amd64", Namespace, amd64, 41, [6]uint64{38}, retAllow},
		{"socket AF_VSOCK", "amd64", Namespace, amd64, 41, [6]uint64{afVsock}, retNotify},
		{"socket family in the low word alone", "amd64", Namespace, amd64, 41, [6]uint64{1<<32 | afInet}, retAllow},
		{"sigaction of SIGCHLD", "amd64", Namespace, amd64, 13, [6]uint64{sigChld, 1}, retNotify},
		{"sigaction of SIGCHLD, asking only", "amd64", Namespace, amd64, 13, [6]uint64{sigChld, 0}, retAllow},
		{"sigaction of SIGINT", "amd64", Namespace, amd64, 13, [6]uint64{2, 1}, retAllow},
		{"ioctl TCGETS", "amd64", Namespace, amd64, 16, [6]uint64{0, 0x5401}, retAllow},
		{"ioctl FS_IOC_SETFLAGS", "amd64", Namespace, amd64, 16, [6]uint64{0, fsIocSetFlags}, retNotify},
		{"ioctl FS_IOC_FSSETXATTR", "amd64", Namespace, amd64, 16, [6]uint64{0, fsIocFsSetXattr}, retNotify},
		{"clone of a thread", "amd64", Namespace, amd64, 56, [6]uint64{0x3d0f00}, retAllow},
		{"clone with a network namespace", "amd64", Namespace, amd64, 56, [6]uint64{cloneNewNet | 17}, retNotify},
		{"clone3", "amd64", Namespace, amd64, 435, [6]uint64{}, retErrno | eNosys},
		{"io_uring_setup", "amd64", Namespace, amd64, 425, [6]uint64{}, retNotify},
		{"open_by_handle_at", "amd64", Namespace, amd64, 304, [6]uint64{}, retErrno | ePerm},
		{"x32 openat", "amd64", Namespace, amd64, x32Bit | 257, [6]uint64{}, retNotify},
		{"x32 read", "amd64", Namespace, amd64, x32Bit, [6]uint64{}, retNotify},
		{"i386 anything", "amd64", Namespace, i386, 4, [6]uint64{}, retNotify},
		{"arm64 openat for reading", "arm64", Namespace, arm64, 56, [6]uint64{}, retAllow},
		{"arm64 openat for writing", "arm64", Namespace, arm64, 56, [6]uint64{0, 0, oRdwr}, retNotify},
		{"arm64 unlinkat", "arm64", Namespace, arm64, 35, [6]uint64{}, retNotify},
		{"32-bit arm", "arm64", Namespace, 0x40000028, 5, [6]uint64{}, retNotify},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := vm(t, tt.arch, tt.tier)(tt.nr, tt.audit, tt.args); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

func TestFilterOfUnknownArchitecture(t *testing.T) {
	if _, err := Filter("riscv64", Namespace); err == nil {
		t.Error("got a program for an architecture without a table")
	}
}

// FuzzFilter holds the program against the table read naively.
func FuzzFilter(f *testing.F) {
	f.Add(int32(257), uint64(0), uint64(0), uint64(oWronly), uint64(0), uint64(0), false)
	f.Add(int32(44), uint64(0), uint64(0), uint64(0), uint64(0), uint64(1<<33), true)
	f.Fuzz(func(t *testing.T, nr int32, a0, a1, a2, a3, a4 uint64, notify bool) {
		tier := Namespace
		if notify {
			tier = Notify
		}
		args := [6]uint64{a0, a1, a2, a3, a4}
		want := uint32(retAllow)
		if nr&x32Bit != 0 && nr >= 0 || nr < 0 {
			want = retNotify // as unsigned, it is above the x32 bit
		}
		for i := range calls {
			c := &calls[i]
			if c.amd64 != nr {
				continue
			}
			low := uint32(args[c.test])
			hit := false
			switch c.when {
			case always:
				hit = true
			case never:
				want = retErrno | c.want
			case writeIntent:
				hit = low&writeFlags != 0
			case argSet:
				hit = args[c.test] != 0
			case argAny:
				hit = low&c.want != 0
			case argIs:
				hit = low == c.want
			case argIsSet:
				hit = low == c.want && args[c.test+1] != 0
			case otherFamily:
				hit = true
				for _, fam := range families(tier) {
					hit = hit && low != fam
				}
			}
			if hit {
				want = retNotify
			}
		}
		if got := vm(t, "amd64", tier)(nr, auditArchAMD64, args); got != want {
			t.Errorf("call %d %x: got %#x, want %#x", nr, args, got, want)
		}
	})
}
