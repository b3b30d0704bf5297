package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

// The commands of these tests are this binary again, told by suiteArg what to
// do; a suite's own program could be anything.
const suiteArg = "__suite"

func TestMain(m *testing.M) {
	switch args := append(os.Args, "", ""); args[1] {
	case sandbox.InitArg:
		os.Exit(sandbox.Init(os.Args[2:]))
	case suiteArg:
		if err := act(args[2], os.Args[3:]); err != nil {
			fmt.Fprintf(os.Stderr, "suite %q: %v\n", os.Args[2:], err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func suite(args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, suiteArg}, args...)
}

// start starts an action as a process of its own.
func start(args ...string) (*exec.Cmd, error) {
	argv := suite(args...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, cmd.Start()
}

func act(name string, args []string) error {
	do, ok := map[string]func([]string) error{
		"dial":      actDial,
		"lookup":    func(args []string) error { _, _ = net.LookupHost(args[0]); return nil },
		"sendmsg":   actSendmsg,
		"echo":      actEcho,
		"files":     actFiles,
		"transient": actTransient,
		"many":      actMany,
		"outsider":  actOutsider,
		"burn":      actBurn,
		"children":  actChildren,
		"ignored":   actIgnored,
		"daemon":    actDaemon,
		"fork":      actFork,
		"threads":   actThreads,
		"killed":    actKilled,
		"relay":     actRelay,
		"hold":      actHold,
	}[name]
	if !ok {
		return fmt.Errorf("no action %q", name)
	}
	return do(args)
}

// actDial talks to an endpoint and prints the answer, or swallows the error
// as a telemetry client does.
func actDial(args []string) error {
	conn, err := net.DialTimeout(args[0], args[1], 10*time.Second)
	if err != nil {
		fmt.Println("no connection")
		return nil
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("ping")); err != nil {
		fmt.Println("nothing sent")
		return nil
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil {
		fmt.Println("no answer")
		return nil
	}
	fmt.Println(string(buf[:n]))
	return nil
}

// actSendmsg sends a datagram on a socket that is not connected.
func actSendmsg(args []string) error {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{})
	if err != nil {
		return err
	}
	to, err := net.ResolveUDPAddr("udp4", args[0])
	if err != nil {
		return err
	}
	_, _, _ = conn.WriteMsgUDP([]byte("x"), nil, to) // refused in the notify tier
	return conn.Close()
}

// actEcho is a suite with a server of its own.
func actEcho([]string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- answerOne(l, "pong") }()
	return errors.Join(actDial([]string{"tcp", l.Addr().String()}), <-failed, l.Close())
}

func answerOne(l net.Listener, text string) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 64))
	if err == nil {
		_, err = conn.Write([]byte(text))
	}
	return errors.Join(err, conn.Close())
}

// actFiles writes by a temporary name, and changes what is there.
func actFiles([]string) error {
	return errors.Join(
		os.WriteFile("out.json.tmp123", []byte("{}"), 0o644), os.Rename("out.json.tmp123", "out.json"),
		os.Chmod("mode", 0o600),
		os.WriteFile("same", []byte("x\n"), 0o644), // what it held before
		os.Mkdir("made", 0o755),
	)
}

func actTransient([]string) error {
	return errors.Join(os.Mkdir("d/t", 0o755), os.WriteFile("d/t/f", nil, 0o644), os.WriteFile("d/x", nil, 0o644), os.RemoveAll("d/t"), os.Remove("d/x"))
}

func actMany(args []string) error {
	for i := range number(args[0]) {
		if i%1000 == 0 {
			if err := os.Mkdir(strconv.Itoa(i/1000), 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mknod(fmt.Sprintf("%d/%d", i/1000, i), unix.S_IFREG|0o644, 0); err != nil {
			return err
		}
	}
	return nil
}

// actOutsider tells that it is there and waits to be told to go on.
func actOutsider([]string) error {
	fmt.Println("ready")
	_, err := os.Stdin.Read(make([]byte, 1))
	if err == io.EOF {
		err = nil
	}
	return err
}

// burn uses user CPU for a while, and says in a file outside what this
// process has used by its own account (getrusage(2)).
func burn(d time.Duration, file string) error {
	usage := func() (time.Duration, error) {
		var ru unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_SELF, &ru)
		return time.Duration(ru.Utime.Nano()), err
	}
	x := uint64(1)
	for {
		for range 100_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		used, err := usage()
		if err != nil {
			return err
		}
		if used >= d || x == 0 {
			return tell(file, used)
		}
	}
}

func tell(file string, used time.Duration) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, int64(used))
	return errors.Join(err, f.Close())
}

// told is the sum of what all processes said.
func told(t *testing.T, file string) time.Duration {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, line := range strings.Fields(string(data)) {
		sum += time.Duration(number(line))
	}
	return sum
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func actBurn(args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	return burn(d, args[1])
}

// actChildren runs children one after the other and tells what wait4(2) says
// of each, which includes their ends.
func actChildren(args []string) error {
	for range number(args[0]) {
		cmd, err := start("burn", args[1], os.DevNull)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return err
		}
		if err := tell(args[2], cmd.ProcessState.UserTime()); err != nil {
			return err
		}
	}
	return burn(0, args[2])
}

// actIgnored loses its children: wait(2), "SIGCHLD is ignored".
func actIgnored(args []string) error {
	signal.Ignore(syscall.SIGCHLD)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	var pids []int
	for range number(args[0]) {
		argv := suite("burn", args[1], args[2])
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
		if err := cmd.Start(); err != nil {
			return err
		}
		pids = append(pids, cmd.Process.Pid)
	}
	if err := w.Close(); err != nil {
		return err
	}
	if _, err := io.ReadAll(r); err != nil { // until the last is about to end
		return err
	}
	for _, pid := range pids { // and has: an orphan would be reaped by another
		for unix.Kill(pid, 0) == nil {
			time.Sleep(time.Millisecond)
		}
	}
	return burn(0, args[2])
}

// actDaemon starts a process that becomes nobody's child, and waits until it
// has ended by itself.
func actDaemon(args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	argv := suite("fork", args[0], args[1])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Run(), w.Close()); err != nil {
		return err
	}
	if _, err := io.ReadAll(r); err != nil {
		return err
	}
	return burn(0, args[1])
}

func actFork(args []string) error {
	argv := suite("burn", args[0], args[1])
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{os.NewFile(3, "pipe")}
	return errors.Join(cmd.Start(), burn(0, args[1]))
}

func actThreads(args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() { defer wg.Done(); _ = burn(d, os.DevNull) }()
	}
	wg.Wait()
	return burn(0, args[1])
}

func actKilled(args []string) error {
	cmd, err := start("burn", args[0], args[1])
	if err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	if err := actBurn(args); err != nil {
		return err
	}
	return unix.Kill(os.Getpid(), unix.SIGKILL)
}

// actRelay goes on for ever in processes that each end at once.
func actRelay([]string) error {
	if err := burn(20*time.Millisecond, os.DevNull); err != nil {
		return err
	}
	_, err := start("relay")
	return err
}

func actHold([]string) error {
	fmt.Println("ready")
	select {}
}

var tiers = []string{ledger.TierNamespace, ledger.TierNotify}

func eachTier(t *testing.T, f func(t *testing.T, tier string)) {
	t.Helper()
	for _, tier := range tiers {
		t.Run(tier, func(t *testing.T) { f(t, tier) })
	}
}

// repository is a temporary directory, by its real name, with files in it.
func repository(t testing.TB, files ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && strings.HasSuffix(f, "/") {
			err = os.MkdirAll(path, 0o755)
		} else if err == nil {
			err = os.WriteFile(path, []byte("x\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// result is what one run gave.
type result struct {
	*ledger.Record
	Stdout string
}

// gate runs one command and gives its record. change may alter the
// configuration, and during is done beside the command.
func gate(t *testing.T, tier, root string, l *ledger.Ledger, argv []string, change func(*Config)) result {
	t.Helper()
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(&text, r)
		done <- errors.Join(err, r.Close())
	}()
	cfg := Config{
		Command: argv, Dir: root, Root: root, Env: os.Environ(),
		Stdin: stdin, Stdout: w, Stderr: os.Stderr,
		Ledger: l, Evidence: tier, Mode: ledger.Enforce, Version: "test",
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rec, err := Run(ctx, cfg)
	if err := errors.Join(w.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return result{rec, text.String()}
}

// netLines are the rows of column 1: the endpoint, who saw it, and whether
// gate forwarded it.
func (r result) netLines() []string {
	lines := []string{}
	for _, n := range r.NetRows {
		line := n.Endpoint + " by " + strings.Join(n.Witness, "+")
		if n.Door {
			line += ", a door"
		}
		lines = append(lines, line)
	}
	return lines
}

func (r result) writeLines() []string {
	lines := []string{}
	for _, w := range r.WriteRows {
		lines = append(lines, w.Path+" by "+strings.Join(w.Witness, "+"))
	}
	return lines
}

func (r result) gapKinds() []string {
	kinds := []string{}
	for _, g := range r.Gaps {
		kinds = append(kinds, g.Kind)
	}
	return kinds
}

func (r result) findingKinds() []string {
	kinds := []string{}
	for _, f := range r.Findings {
		kinds = append(kinds, f.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// freePort is one of the host's loopback that is free, below the range from
// which the kernel itself takes ports.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000)))
		if l, err := net.Listen("tcp4", addr); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return addr
		}
	}
	t.Fatal("no free port between 20000 and 30000")
	return ""
}

// server answers every connection to a port of the host's loopback, and every
// datagram to it.
func server(t *testing.T, network, addr string) string {
	t.Helper()
	if strings.HasPrefix(network, "udp") {
		conn, err := net.ListenPacket(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				_, from, err := conn.ReadFrom(buf)
				if err != nil {
					return // closed
				}
				if _, err := conn.WriteTo([]byte("from outside"), from); err != nil {
					t.Error(err)
				}
			}
		}()
		return conn.LocalAddr().String()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for answerOne(l, "from outside") == nil {
		}
	}()
	return l.Addr().String()
}
