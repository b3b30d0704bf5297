package truth

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/org/gate/accuracy/strace"
	"github.com/org/gate/accuracy/tree"
)

var texts = regexp.MustCompile(`"[^"]*"|<(/|socket:)[^>]*>`)

// calls reads a log written in plain text; `\xNN` stands for a byte.
func calls(t *testing.T, log string) []strace.Call {
	t.Helper()
	escape := regexp.MustCompile(`^\\x[0-9a-f]{2}`)
	coded := texts.ReplaceAllStringFunc(log, func(s string) string {
		var b strings.Builder
		for in := s[1 : len(s)-1]; in != ""; {
			if esc := escape.FindString(in); esc != "" {
				b.WriteString(esc)
				in = in[len(esc):]
				continue
			}
			fmt.Fprintf(&b, `\x%02x`, in[0])
			in = in[1:]
		}
		return s[:1] + b.String() + s[len(s)-1:]
	})
	list, err := strace.Parse(strings.NewReader(coded))
	if err != nil {
		t.Fatalf("log of the test: %v", err)
	}
	return list
}

// listing is a tree of the named paths: "d/" a directory, "l->t" a symbolic
// link, "p|" a FIFO, anything else a file.
func listing(paths ...string) tree.Listing {
	l := tree.Listing{".": {Mode: fs.ModeDir}}
	for _, p := range paths {
		switch name, target, link := strings.Cut(p, "->"); {
		case link:
			l[name] = tree.Entry{Mode: fs.ModeSymlink, Target: target}
		case strings.HasSuffix(p, "/"):
			l[strings.TrimSuffix(p, "/")] = tree.Entry{Mode: fs.ModeDir}
		case strings.HasSuffix(p, "|"):
			l[strings.TrimSuffix(p, "|")] = tree.Entry{Mode: fs.ModeNamedPipe}
		default:
			l[p] = tree.Entry{}
		}
	}
	return l
}

func TestWrites(t *testing.T) {
	type paths = []string
	tests := []struct {
		name          string
		log           string
		before, after paths
		want          paths
	}{
		{"opened to be read", `1 openat(AT_FDCWD</r>, "a", O_RDONLY|O_CLOEXEC) = 3</r/a>`, paths{"a"}, paths{"a"}, nil},
		{"opened to be written", `1 openat(AT_FDCWD</r>, "a", O_RDWR) = 3</r/a>`, paths{"a"}, paths{"a"}, paths{"a"}},
		{"O_CREAT on what exists", `1 open("a", O_RDONLY|O_CREAT, 0666) = 3</r/a>`, paths{"a"}, paths{"a"}, paths{"a"}},
		{"open that failed", `1 open("a", O_RDWR|O_CREAT|O_EXCL, 0666) = -1 EEXIST (File exists)`, paths{"a"}, paths{"a"}, nil},
		{"O_PATH ignores the mode", `1 open("a", O_RDWR|O_PATH) = 3</r/a>`, paths{"a"}, paths{"a"}, nil},
		{"flags of openat2", `1 openat2(AT_FDCWD</r>, "a", {flags=O_WRONLY|O_CREAT, mode=0666, resolve=0}, 24) = 3</r/a>`, nil, paths{"a"}, paths{"a"}},
		{"creat", `1 creat("a", 0666) = 3</r/a>`, nil, paths{"a"}, paths{"a"}},
		{"opened through a link", `1 open("l", O_WRONLY) = 3</r/d/a>`, paths{"l->d/a", "d/", "d/a"}, paths{"l->d/a", "d/", "d/a"}, paths{"d/a"}},
		{"gone before strace looked", `1 open("d/a", O_WRONLY|O_CREAT, 0666) = 3</r/d/a>(deleted)`, paths{"d/"}, paths{"d/"}, paths{"d/*"}},
		{"a FIFO is no file", `1 open("p", O_WRONLY) = 3</r/p>`, paths{"p|"}, paths{"p|"}, nil},
		{"a FIFO that is made counts", "1 mknod(\"p\", S_IFIFO|0644) = 0\n1 open(\"p\", O_WRONLY) = 3</r/p>", nil, paths{"p|"}, paths{"p"}},
		{"outside", `1 open("/tmp/a", O_WRONLY|O_CREAT, 0666) = 3</tmp/a>`, nil, nil, nil},
		{"a sister of the root", `1 open("/r2/a", O_WRONLY|O_CREAT, 0666) = 3</r2/a>`, nil, nil, nil},

		{"mkdir of what exists", `1 mkdir("d", 0777) = -1 EEXIST (File exists)`, paths{"d/"}, paths{"d/"}, nil},
		{"mkdir", `1 mkdir("d", 0777) = 0`, nil, paths{"d/"}, paths{"d"}},
		{"metadata only", `1 fchmodat(AT_FDCWD</r>, "a", 0755) = 0`, paths{"a"}, paths{"a"}, paths{"a"}},
		{"metadata of a descriptor", `1 utimensat(3</r/a>, NULL, NULL, 0) = 0`, paths{"a"}, paths{"a"}, paths{"a"}},
		{"metadata of the root", `1 utimensat(AT_FDCWD</r>, ".", NULL, 0) = 0`, nil, nil, paths{"."}},
		{"metadata of a deleted file", `1 fchmod(3</r/a>(deleted), 0600) = 0`, nil, nil, nil},
		{"AT_EMPTY_PATH", `1 fchownat(3</r/a>, "", 0, 0, AT_EMPTY_PATH) = 0`, paths{"a"}, paths{"a"}, paths{"a"}},
		{"through a link or not", "1 chmod(\"l\", 0600) = 0\n1 lchown(\"m\", 0, 0) = 0", paths{"a", "l->a", "m->a"}, paths{"a", "l->a", "m->a"}, paths{"a", "m"}},
		{"extended attributes", "1 setxattr(\"a\", \"user.x\", \"1\", 1, 0) = 0\n1 fremovexattr(3</r/b>, \"user.x\") = 0", paths{"a", "b"}, paths{"a", "b"}, paths{"a", "b"}},
		{"truncate", "1 truncate(\"a\", 0) = 0", paths{"a"}, paths{"a"}, paths{"a"}},

		{"below a descriptor", `1 mkdirat(3</r/d>, "e", 0777) = 0`, paths{"d/"}, paths{"d/", "d/e/"}, paths{"d/e"}},
		{"parents through links", `1 unlink("l/../a") = 0`, paths{"d/", "d/e/", "l->d/e", "d/a"}, paths{"d/", "d/e/", "l->d/e"}, paths{"d/a"}},
		{"a link made during the run", "1 symlink(\"d\", \"l\") = 0\n1 mkdir(\"l/e\", 0777) = 0\n1 unlink(\"l\") = 0", paths{"d/"}, paths{"d/", "d/e/"}, paths{"*", "d/e"}},
		{"a link that was moved", "1 rename(\"l\", \"m\") = 0\n1 mkdir(\"m/e\", 0777) = 0", paths{"d/", "l->d"}, paths{"d/", "d/e/", "m->d"}, paths{"d/e", "l", "m"}},
		{"a loop of links", `1 mkdir("l/e", 0777) = 0`, paths{"l->m", "m->l"}, paths{"l->m", "m->l"}, nil},
		{"proc self fd", "1 open(\"a\", O_RDONLY) = 5</r/a>\n1 chmod(\"/proc/self/fd/5\", 0600) = 0", paths{"a"}, paths{"a"}, paths{"a"}},
		{"proc self cwd", `1 mkdir("/proc/self/cwd/d", 0777) = 0`, nil, paths{"d/"}, paths{"d"}},

		{"renamed into place", "1 open(\"a.tmp\", O_WRONLY|O_CREAT, 0666) = 3</r/a.tmp>\n1 rename(\"a.tmp\", \"a\") = 0", nil, paths{"a"}, paths{"a"}},
		{"renamed over", "1 open(\"t\", O_WRONLY|O_CREAT, 0666) = 3</r/t>\n1 renameat2(AT_FDCWD</r>, \"t\", AT_FDCWD</r>, \"d/a\", 0) = 0", paths{"d/", "d/a"}, paths{"d/", "d/a"}, paths{"d/a"}},
		{"renamed twice", "1 mkdir(\"x\", 0777) = 0\n1 rename(\"x\", \"y\") = 0\n1 rename(\"y\", \"z\") = 0", nil, paths{"z/"}, paths{"z"}},
		{"renamed and removed", "1 mkdir(\"d/x\", 0777) = 0\n1 rename(\"d/x\", \"e/y\") = 0\n1 rmdir(\"e/y\") = 0", paths{"d/", "e/"}, paths{"d/", "e/"}, paths{"e/*"}},
		{"one name, two files", "1 mkdir(\"t\", 0777) = 0\n1 rename(\"t\", \"a\") = 0\n1 mkdir(\"t\", 0777) = 0\n1 rmdir(\"t\") = 0", nil, paths{"a/"}, paths{"*", "a"}},
		{"a directory with what is in it", "1 mkdir(\"t\", 0777) = 0\n1 mkdir(\"t/e\", 0777) = 0\n1 rename(\"t\", \"d\") = 0", nil, paths{"d/", "d/e/"}, paths{"d", "d/e"}},
		{"moved out", "1 mkdir(\"d/x\", 0777) = 0\n1 rename(\"d/x\", \"/tmp/y\") = 0", paths{"d/"}, paths{"d/"}, paths{"d/*"}},
		{"moved in", `1 rename("/tmp/y", "a") = 0`, nil, paths{"a"}, paths{"a"}},
		{"a directory moved in with what is in it", "1 rename(\"/tmp/y\", \"a\") = 0\n1 rename(\"a\", \"b\") = 0", nil, paths{"b/", "b/x/", "b/x/f"}, paths{"b", "b/x", "b/x/f"}},
		{"exchanged", `1 renameat2(AT_FDCWD</r>, "a", AT_FDCWD</r>, "b", RENAME_EXCHANGE) = 0`, paths{"a", "b"}, paths{"a", "b"}, paths{"a", "b"}},
		{"exchanged with a temporary file", "1 mkdir(\"t\", 0777) = 0\n1 renameat2(AT_FDCWD</r>, \"t\", AT_FDCWD</r>, \"a\", RENAME_EXCHANGE) = 0\n1 unlink(\"t\") = 0", paths{"a"}, paths{"a/"}, paths{"*", "a"}},

		{"made and removed", "1 mkdir(\"d\", 0777) = 0\n1 mkdir(\"d/e\", 0777) = 0\n1 rmdir(\"d/e\") = 0\n1 rmdir(\"d\") = 0", nil, nil, paths{"*"}},
		{"made and removed below", "1 mkdir(\"d/e/f\", 0777) = 0\n1 rmdir(\"d/e/f\") = 0", paths{"d/", "d/e/"}, paths{"d/"}, paths{"d/*", "d/e"}},
		{"removed and made again", "1 unlink(\"a\") = 0\n1 creat(\"a\", 0666) = 3</r/a>", paths{"a"}, paths{"a"}, paths{"a"}},
		{"both names of a link", `1 link("a", "b") = 0`, paths{"a"}, paths{"a", "b"}, paths{"a", "b"}},
		{"a link as lock", "1 creat(\".#1\", 0666) = 3</r/.#1>\n1 link(\".#1\", \"k.lock\") = 0\n1 unlink(\"k.lock\") = 0\n1 unlink(\".#1\") = 0", nil, nil, paths{"*"}},
		{"O_TMPFILE", `1 open("/r", O_RDWR|O_TMPFILE, 0600) = 3</r/#123>(deleted)`, nil, nil, nil},
		{"O_TMPFILE that gets a name", "1 open(\"/r\", O_RDWR|O_TMPFILE, 0600) = 3</r/#123>(deleted)\n1 linkat(AT_FDCWD</r>, \"/proc/self/fd/3\", AT_FDCWD</r>, \"a\", AT_SYMLINK_FOLLOW) = 0", nil, paths{"a"}, paths{"a"}},
		{"the path of a socket", `1 bind(3<socket:[9]>, {sa_family=AF_UNIX, sun_path="s"}, 4) = 0`, nil, paths{"s"}, paths{"s"}},

		{"a directory of one's own", "1 clone(child_stack=NULL, flags=CLONE_VM|SIGCHLD) = 2\n2 chdir(\"d\") = 0\n2 mkdir(\"e\", 0777) = 0\n1 mkdir(\"f\", 0777) = 0", paths{"d/"}, paths{"d/", "d/e/", "f/"}, paths{"d/e", "f"}},
		{"a directory shared by threads", "2 chdir(\"d\") = 0\n1 clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD}, 88) = 2\n1 mkdir(\"e\", 0777) = 0", paths{"d/"}, paths{"d/", "d/e/"}, paths{"d/e"}},
		{"a child that is seen before its birth", "1 fchdir(3</r/d>) = 0\n1 vfork( <unfinished ...>\n2 mkdir(\"e\", 0777) = 0\n1 <... vfork resumed>) = 2", paths{"d/"}, paths{"d/", "d/e/"}, paths{"d/e"}},
		{"an id that comes again", "1 fork() = 2\n2 chdir(\"d\") = 0\n2 +++ exited with 0 +++\n1 fork() = 2\n2 mkdir(\"e\", 0777) = 0", paths{"d/"}, paths{"d/", "e/"}, paths{"e"}},
		{"unshared", "1 clone(flags=CLONE_FS) = 2\n2 unshare(CLONE_FS) = 0\n2 chdir(\"d\") = 0\n1 mkdir(\"e\", 0777) = 0", paths{"d/"}, paths{"d/", "e/"}, paths{"e"}},

		{"names that could pose as rows", "1 mkdir(\"a*\", 0777) = 0\n1 mkdir(\"b\\x0a\", 0777) = 0\n1 mkdir(\"c\\xff\", 0777) = 0\n1 mkdir(\"d \\xc3\\xa9\", 0777) = 0",
			nil, paths{"a*/", "b\n/", "c\xff/", "d é/"}, paths{`"a*"`, `"b\n"`, `"c\377"`, "d é"}},
		{"below such a name", "1 mkdir(\"a*/b\", 0777) = 0\n1 rmdir(\"a*/b\") = 0", paths{"a*/"}, paths{"a*/"}, paths{`"a*"/*`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows := Reduce(Run{
				Places: Places{Root: "/r"}, Dir: "/r", Calls: calls(t, tt.log),
				Before: listing(tt.before...), After: listing(tt.after...),
			})
			if diff := cmp.Diff(tt.want, rows.Writes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("writes (-want +got):\n%snotes: %q", diff, rows.Notes)
			}
		})
	}
}

func TestWritesUnexplained(t *testing.T) {
	after := listing("a", "b", "d/")
	after["a"] = tree.Entry{Mode: 0o755}
	rows := Reduce(Run{Places: Places{Root: "/r"}, Dir: "/r", Before: listing("a", "c", "d/"), After: after})
	if diff := cmp.Diff([]string{"a", "b", "c"}, rows.Writes); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if len(rows.Notes) != 3 {
		t.Errorf("got notes %q, want one for each row", rows.Notes)
	}
}

func TestNet(t *testing.T) {
	const (
		tcp    = "1 socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, IPPROTO_IP) = 3<socket:[1]>\n"
		udp    = "1 socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP) = 3<socket:[1]>\n"
		unix   = "1 socket(AF_UNIX, SOCK_STREAM, 0) = 3<socket:[1]>\n"
		inet   = `{sa_family=AF_INET, sin_port=htons(%d), sin_addr=inet_addr("%s")}`
		inet6  = `{sa_family=AF_INET6, sin6_port=htons(%d), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "%s", &sin6_addr), sin6_scope_id=0}`
		sun    = `{sa_family=AF_UNIX, sun_path=%s}`
		refuse = "-1 ECONNREFUSED (Connection refused)"
	)
	connect := func(address, result string) string {
		return "1 connect(3<socket:[1]>, " + address + ", 16) = " + result + "\n"
	}
	v4 := func(addr string, port int) string { return fmt.Sprintf(inet, port, addr) }
	v6 := func(addr string, port int) string { return fmt.Sprintf(inet6, port, addr) }
	path := func(quoted string) string { return fmt.Sprintf(sun, quoted) }
	lookups := Lookups{
		Asked: []string{"a.example", "b.example"},
		Names: map[netip.Addr]string{netip.MustParseAddr("198.18.1.1"): "a.example", netip.MustParseAddr("2001:2::1:1"): "a.example"},
	}
	tests := []struct {
		name    string
		log     string
		lookups Lookups
		want    []string
	}{
		{"nothing", "", Lookups{}, nil},
		{"TCP, refused", tcp + connect(v4("192.0.2.1", 80), refuse), Lookups{}, []string{"192.0.2.1:80"}},
		{"TCP, on its way", tcp + connect(v4("192.0.2.1", 80), "-1 EINPROGRESS (Operation now in progress)"), Lookups{}, []string{"192.0.2.1:80"}},
		{"TCP, killed while connecting", tcp + "1 connect(3<socket:[1]>, " + v4("192.0.2.1", 80) + ", 16 <unfinished ...>\n1 +++ killed by SIGKILL +++", Lookups{}, []string{"192.0.2.1:80"}},
		{"a connect that was no attempt", tcp + connect(v6("2001:db8::1", 80), "-1 EAFNOSUPPORT (Address family not supported by protocol)"), Lookups{}, nil},
		{"IPv6", tcp + connect(v6("2001:db8::1", 80), refuse), Lookups{}, []string{"[2001:db8::1]:80"}},
		{"IPv4 in IPv6", tcp + connect(v6("::ffff:192.0.2.1", 80), refuse), Lookups{}, []string{"192.0.2.1:80"}},
		{"by name, over both families", tcp + connect(v4("198.18.1.1", 443), refuse) + connect(v6("2001:2::1:1", 443), refuse), lookups, []string{"a.example:443", "dns:b.example"}},
		{"looked up only", "", lookups, []string{"dns:a.example", "dns:b.example"}},
		{"a socket from elsewhere", connect(v4("192.0.2.1", 80), refuse), Lookups{}, []string{"192.0.2.1:80"}},

		{"UDP, address selection", udp + connect(v4("198.18.1.1", 443), "0") + connect(`{sa_family=AF_UNSPEC, sa_data=""}`, "0"), lookups, []string{"dns:a.example", "dns:b.example"}},
		{"UDP, connected and written", udp + connect(v4("198.18.1.1", 99), "0") + "1 write(3<socket:[1]>, \"\"..., 5) = 5\n", lookups, []string{"a.example:99/udp", "dns:b.example"}},
		{"UDP, sent on a duplicate in another process", udp + connect(v4("192.0.2.1", 99), "0") + "2 sendto(9<socket:[1]>, \"\"..., 5, 0, NULL, 0) = 5\n", Lookups{}, []string{"192.0.2.1:99/udp"}},
		{"UDP, no longer connected", udp + connect(v4("192.0.2.1", 99), "0") + connect(`{sa_family=AF_UNSPEC, sa_data=""}`, "0") + "1 write(3<socket:[1]>, \"\"..., 5) = -1 EDESTADDRREQ (Destination address required)\n", Lookups{}, nil},
		{"sendto", udp + "1 sendto(3<socket:[1]>, \"\"..., 5, 0, " + v4("192.0.2.1", 99) + ", 16) = 5\n", Lookups{}, []string{"192.0.2.1:99/udp"}},
		{"sendto that failed", udp + "1 sendto(3<socket:[1]>, \"\"..., 5, 0, " + v4("192.0.2.1", 99) + ", 16) = -1 EMSGSIZE (Message too long)\n", Lookups{}, nil},
		{"sendmsg", udp + "1 sendmsg(3<socket:[1]>, {msg_name=" + v4("192.0.2.1", 99) + ", msg_namelen=16, msg_iov=[{iov_base=\"\"..., iov_len=1}], msg_iovlen=1, msg_controllen=0, msg_flags=0}, 0) = 1\n", Lookups{}, []string{"192.0.2.1:99/udp"}},
		{"sendmmsg, as many as were sent", udp + "1 sendmmsg(3<socket:[1]>, [{msg_hdr={msg_name=" + v4("192.0.2.1", 1) + "}, msg_len=1}, {msg_hdr={msg_name=" + v4("192.0.2.2", 2) + "}}], 2, 0) = 1\n", Lookups{}, []string{"192.0.2.1:1/udp"}},
		{"an address on a stream is ignored", tcp + "1 sendto(3<socket:[1]>, \"\"..., 5, 0, " + v4("192.0.2.1", 99) + ", 16) = 5\n", Lookups{}, nil},
		{"TCP fast open", tcp + "1 sendto(3<socket:[1]>, \"\"..., 5, MSG_FASTOPEN, " + v4("192.0.2.1", 99) + ", 16) = 5\n", Lookups{}, []string{"192.0.2.1:99"}},
		{"ping", "1 socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP) = 3<socket:[1]>\n1 sendto(3<socket:[1]>, \"\"..., 5, 0, " + v4("192.0.2.1", 0) + ", 16) = 5\n", Lookups{}, []string{"raw:icmp:192.0.2.1"}},
		{"vsock", "1 socket(AF_VSOCK, SOCK_STREAM, 0) = -1 EAFNOSUPPORT (Address family not supported by protocol)\n", Lookups{}, []string{"vsock:*:*"}},
		{"a ring", "1 io_uring_setup(64, {flags=0}) = -1 ENOSYS (Function not implemented) (INJECTED)\n", Lookups{}, []string{"raw:io_uring"}},

		{"loopback, nobody there", tcp + connect(v4("127.0.0.1", 5432), refuse), Lookups{}, []string{"127.0.0.1:5432"}},
		{"loopback in disguise", tcp + connect(v4("0.0.0.0", 5432), refuse) + connect(v6("::", 5433), refuse) + connect(v6("::ffff:127.0.0.1", 5434), refuse), Lookups{}, []string{"127.0.0.1:5432", "127.0.0.1:5434", "[::1]:5433"}},
		{"loopback, an ephemeral port", tcp + connect(v4("127.0.0.1", 40000), refuse), Lookups{}, nil},
		{"loopback, served later", tcp + connect(v4("127.0.0.1", 5432), refuse) + "2 socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP) = 4<socket:[2]>\n2 bind(4<socket:[2]>, " + v6("::", 5432) + ", 28) = 0\n", Lookups{}, nil},
		{"loopback, served over the other transport", tcp + connect(v4("127.0.0.1", 5432), refuse) + "2 socket(AF_INET, SOCK_DGRAM, IPPROTO_IP) = 4<socket:[2]>\n2 bind(4<socket:[2]>, " + v4("127.0.0.1", 5432) + ", 16) = 0\n", Lookups{}, []string{"127.0.0.1:5432"}},
		{"a bind that failed serves nothing", tcp + connect(v4("127.0.0.1", 80), refuse) + "1 bind(3<socket:[1]>, " + v4("127.0.0.1", 80) + ", 16) = -1 EACCES (Permission denied)\n", Lookups{}, []string{"127.0.0.1:80"}},
		{"the run's own resolver", udp + connect(v4("127.0.0.1", 53), "0") + "1 write(3<socket:[1]>, \"\"..., 5) = 5\n", Lookups{}, nil},

		{"unix, nobody there", unix + connect(path(`"/run/docker.sock"`), "-1 ENOENT (No such file or directory)"), Lookups{}, []string{"unix:/run/docker.sock"}},
		{"unix, served", unix + connect(path(`"s"`), "0") + "2 bind(4<socket:[2]>, " + path(`"/r/s"`) + ", 6) = 0\n", Lookups{}, nil},
		{"unix, in the repository", unix + connect(path(`"d/s"`), refuse), Lookups{}, []string{"unix:d/s"}},
		{"unix, in the temporary directory", unix + connect(path(`"/tmp/x y"`), refuse) + connect(path(`"/tmp/z*"`), refuse), Lookups{}, []string{`unix:"$TMPDIR/z*"`, "unix:$TMPDIR/x y"}},
		{"unix, datagram", "1 socket(AF_UNIX, SOCK_DGRAM, 0) = 3<socket:[1]>\n1 sendto(3<socket:[1]>, \"\"..., 5, 0, " + path(`"/dev/log"`) + ", 16) = " + refuse + "\n", Lookups{}, []string{"unix:/dev/log"}},
		{"unix, abstract", unix + connect(path(`@"/tmp/.X11-unix/X0"`), refuse), Lookups{}, []string{"unix:@/tmp/.X11-unix/X0"}},
		{"unix, a name the kernel made up", unix + connect(path(`@"0a1f3"`), refuse), Lookups{}, nil},
		{"unix, the C library asking around", unix + connect(path(`"/var/run/nscd/socket"`), "-1 ENOENT (No such file or directory)"), Lookups{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			none := listing()
			run := Run{
				Places: Places{Root: "/r", TmpDir: "/tmp", Home: "/"}, Dir: "/r", Calls: calls(t, tt.log),
				Before: none, After: none, Lookups: tt.lookups,
			}
			rows := reduce(run, func(string) (string, error) { return "", os.ErrNotExist })
			if diff := cmp.Diff(tt.want, rows.Net, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("net (-want +got):\n%snotes: %q", diff, rows.Notes)
			}
		})
	}
}

// A local default route lets a program bind to any address, and its suite may
// then end otherwise than under gate.
func TestForeignBind(t *testing.T) {
	for _, tt := range []struct {
		addr  string
		notes int
	}{{"8.8.8.8", 1}, {"127.0.0.1", 0}, {"0.0.0.0", 0}, {"198.18.0.1", 0}, {"224.0.0.1", 0}} {
		log := "1 socket(AF_INET, SOCK_STREAM, IPPROTO_IP) = 3<socket:[1]>\n" +
			`1 bind(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr("` + tt.addr + `")}, 16) = 0` + "\n"
		rows := reduce(Run{Places: Places{Root: "/r", TmpDir: "/tmp", Home: "/"}, Dir: "/r", Calls: calls(t, log), Before: listing(), After: listing()},
			func(string) (string, error) { return "", os.ErrNotExist })
		if len(rows.Notes) != tt.notes {
			t.Errorf("%s: got notes %q, want %d", tt.addr, rows.Notes, tt.notes)
		}
	}
}

func TestQuote(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "a b/c.d", "a b/c.d"},
		{"not ASCII", "é", "é"},
		{"tab", "a\tb", `"a\tb"`},
		{"quote and backslash", `a"\`, `"a\"\\"`},
		{"glob", "a[b]", `"a[b]"`},
		{"delete", "a\x7f", `"a\177"`},
		{"C1 control", "a\u0085é", `"a\302\205é"`},
		{"not UTF-8", "a\xff\xfeé", `"a\377\376é"`},
		{"the replacement character itself", "\ufffd", "\ufffd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := quote(tt.in)
			if got != tt.want {
				t.Errorf("quote(%q) = %s, want %s", tt.in, got, tt.want)
			}
			if back := Unquote(got); back != tt.in {
				t.Errorf("Unquote(%s) = %q, want %q", got, back, tt.in)
			}
			if back := Unquote(got + "/*"); back != tt.in+"/*" {
				t.Errorf("Unquote(%s/*) = %q, want %q", got, back, tt.in+"/*")
			}
		})
	}
}
