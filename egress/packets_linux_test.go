package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/org/gate/internal/need"
)

const inNamespace = "GATE_EGRESS_TEST_IN_NAMESPACE"

// TestReadPackets runs TestNamespace in a network namespace of its own.
func TestReadPackets(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestNamespace$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	id := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()),
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		need.Success(t, "a user and network namespace", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestNamespace is a body, and runs only as the child of TestReadPackets.
func TestNamespace(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		return
	}
	raiseLoopback(t)
	socket := packetSocket(t)
	defer socket.Close()

	served := listenTCP(t)
	defer served.Close()
	bound, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer bound.Close()
	for _, to := range []string{"192.0.2.1:443", "[2001:db8::1]:443", "127.0.0.1:5432", "[::1]:5432"} {
		if conn, err := net.Dial("tcp", to); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to %s: got %v, %v, want %v", to, conn, err, unix.ECONNREFUSED)
		}
	}
	conn, err := net.Dial("tcp", served.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for to, send := range map[string]bool{
		"192.0.2.1:123": true, "[2001:db8::1]:123": true, "127.0.0.1:8125": true, "[::1]:8125": true,
		bound.LocalAddr().String(): true, "192.0.2.2:443": false,
	} {
		conn, err := net.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		if send {
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		conn.Close()
	}

	r := namespaced(t, func(c *Config) { c.Resolver = nil })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is queued is read all the same
	gaps, err := ReadPackets(ctx, socket, r.Packet)
	if err != nil || gaps != nil {
		t.Errorf("got gaps %v, %v", gaps, err)
	}
	r.wantRows(
		"127.0.0.1:5432 x1 [packet] [] @-1",
		"127.0.0.1:8125/udp x1 [packet] [] @-1",
		"192.0.2.1:123/udp x1 [packet] [] @-1",
		"192.0.2.1:443 x1 [packet] [] @-1",
		"[2001:db8::1]:123/udp x1 [packet] [] @-1",
		"[2001:db8::1]:443 x1 [packet] [] @-1",
		"[::1]:5432 x1 [packet] [] @-1",
		"[::1]:8125/udp x1 [packet] [] @-1",
	)
	testDrops(t)
}

// testDrops overruns a socket that nobody reads.
func testDrops(t *testing.T) {
	socket := packetSocket(t)
	defer socket.Close()
	conn, err := net.Dial("udp", "192.0.2.1:123")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 10_000 {
		if _, err := conn.Write([]byte("x")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	seen := 0
	gaps, err := ReadPackets(ctx, socket, func(p Packet) {
		if !p.Refused {
			seen++
		}
	})
	if err != nil || len(gaps) != 1 || gaps[0].Kind != "packet-drops" || gaps[0].Count < 1 || seen < 1 {
		t.Errorf("got %d packets, gaps %+v, %v", seen, gaps, err)
	}
}

func TestReadPacketsNeedsNonBlocking(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	blocking := os.NewFile(r.Fd(), "pipe") // Fd makes it blocking
	if _, err := ReadPackets(t.Context(), blocking, nil); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("got %v, want %v", err, os.ErrNoDeadline)
	}
}

// packetSocket opens the socket as Filter says.
func packetSocket(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("packet socket: %v", err)
	}
	var program []unix.SockFilter
	for _, in := range Filter() {
		program = append(program, unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K})
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		t.Fatalf("attach filter: %v", err)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: lo.Index}); err != nil {
		t.Fatalf("bind packet socket: %v", err)
	}
	return os.NewFile(uintptr(fd), "packet socket")
}

// raiseLoopback brings lo up and makes every address local on it.
func raiseLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatalf("raise lo: %v", err)
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := localDefault(family); err != nil {
			t.Fatalf("local default route: %v", err)
		}
	}
}

// localDefault is "ip route add local default dev lo" (rtnetlink(7)).
func localDefault(family byte) error {
	nl, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(nl)
	native := binary.NativeEndian
	m := native.AppendUint32(nil, 36) // nlmsghdr: length
	m = native.AppendUint16(m, unix.RTM_NEWROUTE)
	m = native.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	m = append(m, make([]byte, 8)...)
	m = append(m, family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	m = native.AppendUint16(m, 8) // RTA_OIF: lo is the first interface
	m = native.AppendUint16(m, unix.RTA_OIF)
	m = native.AppendUint32(m, 1)
	native.PutUint32(m, uint32(len(m)))
	if err := unix.Sendto(nl, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(nl, b, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return errors.New("short netlink answer")
	}
	if errno := -int32(native.Uint32(b[16:])); errno != 0 {
		return syscall.Errno(errno)
	}
	return nil
}
