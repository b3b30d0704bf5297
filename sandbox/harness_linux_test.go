package sandbox

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/org/gate/internal/need"
)

// The tree of every test is this binary again, told by its first argument
// what to do: InitArg makes it the init of a box, actorArg an actor inside
// (see actions), holderArg a process that holds a box of its own. What Go
// cannot do (vfork, 32-bit calls, a plain timer) is in testdata/actor.c.
const (
	actorArg  = "__actor"
	holderArg = "__holder"
)

func TestMain(m *testing.M) {
	args := append(os.Args, "", "")
	switch args[1] {
	case InitArg:
		os.Exit(Init(os.Args[2:]))
	case actorArg:
		os.Exit(exitCode(act(os.Args[2], os.Args[3:])))
	case holderArg:
		os.Exit(exitCode(hold(os.Args[2:])))
	}
	status := m.Run()
	if compiled != "" {
		status = max(status, exitCode(os.RemoveAll(filepath.Dir(compiled))))
	}
	os.Exit(status)
}

func exitCode(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		return 1
	}
	return 0
}

var tiers = []Tier{Namespace, Notify}

// eachTier runs a test in both tiers.
func eachTier(t *testing.T, f func(t *testing.T, tier Tier)) {
	t.Helper()
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) { f(t, tier) })
	}
}

//go:embed testdata/actor.c
var actorC []byte

var (
	compileOnce sync.Once
	compiled    string
	compileErr  error
)

// cActor compiles testdata/actor.c, statically: no loader runs before main.
func cActor(t testing.TB) string {
	t.Helper()
	if prebuilt := os.Getenv(cActorEnv); prebuilt != "" {
		return prebuilt
	}
	cc, err := exec.LookPath("cc")
	need.Success(t, "a C compiler", err)
	compileOnce.Do(func() {
		dir, err := os.MkdirTemp("", "gate-cc-")
		if err != nil {
			compileErr = err
			return
		}
		source := filepath.Join(dir, "actor.c")
		compiled = filepath.Join(dir, "actor")
		if compileErr = os.WriteFile(source, actorC, 0o644); compileErr != nil {
			return
		}
		out, err := exec.Command(cc, "-O1", "-static", "-pthread", "-o", compiled, source).CombinedOutput()
		if err != nil {
			compileErr = fmt.Errorf("cc: %w\n%s", err, out)
		}
		compileErr = errors.Join(compileErr, os.Chmod(dir, 0o755))
	})
	if compileErr != nil {
		t.Fatal(compileErr)
	}
	return compiled
}

// What the run as root hands to the same tests run as an ordinary user.
const (
	cActorEnv  = "GATE_TEST_C_ACTOR"
	foreignEnv = "GATE_TEST_FOREIGN" // a directory of root's; see TestAsOrdinaryUser
	testUID    = 31337
)

// recorder is a Handler that keeps every event as a line. Paths are told
// relative to dir.
type recorder struct {
	mu     sync.Mutex
	dir    string
	events []string
	nodes  []Node // Before of each File event, in order

	// answer, if set, decides about a Connect; otherwise it is refused.
	answer func(*NetCall) Answer
}

var opNames = map[Op]string{
	Create: "create", Modify: "modify", Meta: "meta", Remove: "remove", Rename: "rename", Exchange: "exchange", Link: "link",
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

func (r *recorder) rel(path string) string {
	if path == r.dir {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, r.dir+"/"); ok {
		return rest
	}
	return path
}

func (r *recorder) File(c *FileCall, who Caller) {
	line := opNames[c.Op] + " " + c.Call + " " + r.rel(c.Path)
	if c.To != "" {
		line += " -> " + r.rel(c.To)
		if c.ToBefore.Exists {
			line += " (was there)"
		}
	}
	r.add("%s", line)
	r.nodes = append(r.nodes, c.Before)
}

func (r *recorder) Connect(c *NetCall, who Caller) Answer {
	if row, ok := strings.CutPrefix(c.Path, "@"+markPrefix); ok {
		r.add("%s%s", markPrefix, row)
		return Answer{Errno: eConnRefused}
	}
	r.add("%s", netLine(r, c))
	switch {
	case c.Label != "":
		return Answer{} // the sandbox itself refuses such a family
	case r.answer != nil:
		return r.answer(c)
	}
	return Answer{Errno: eConnRefused}
}

func (r *recorder) Bind(c *NetCall, who Caller) { r.add("%s", netLine(r, c)) }

// netLine is "connect type/protocol address".
func netLine(r *recorder, c *NetCall) string {
	typ := strconv.Itoa(c.Type)
	for name, n := range map[string]int{"stream": unix.SOCK_STREAM, "dgram": unix.SOCK_DGRAM, "raw": unix.SOCK_RAW, "?": SockUnknown} {
		if c.Type == n {
			typ = name
		}
	}
	switch {
	case c.Label != "":
		return fmt.Sprintf("%s family %d %s", c.Call, c.Family, c.Label)
	case c.Family == unix.AF_UNIX:
		there := ""
		if c.Exists {
			there = " (a socket)"
		}
		return fmt.Sprintf("%s unix %q%s", c.Call, r.rel(c.Path), there)
	}
	return fmt.Sprintf("%s %s/%d %s", c.Call, typ, c.Protocol, c.Addr)
}

// SigChild is told for every action of a Go program's runtime as well; only
// what makes children vanish is of interest.
func (r *recorder) SigChild(tid int, ignored, noWait bool) {
	if ignored || noWait {
		r.add("children are reaped automatically")
	}
}
func (r *recorder) Exit(tid int)                           {}
func (r *recorder) Refused(label, call string, who Caller) { r.add("refused %s", label) }
func (r *recorder) Gap(kind, detail string)                { r.add("gap %s", kind) }
func (r *recorder) Found(kind, detail string, who Caller)  { r.add("found %s", kind) }

// list is what was recorded so far.
func (r *recorder) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// outcome is what became of a box.
type outcome struct {
	Exit   Exit
	Events []string
	Stdout string
	Stderr string
	Err    error

	Unlayered []string
}

// scene is one box to run.
type scene struct {
	tier     Tier
	dir      string // "": a new one
	argv     []string
	env      []string
	readOnly []string
	closed   *Closed
	listen   []Listen
	user     *User
	cpuSoft  uint64
	handler  *recorder
	during   func(t *testing.T, b *Box, stdout *bufio.Reader) // runs beside the command
}

// actor is the command line of an action of this binary.
func actor(args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{exe, actorArg}, args...)
}

// run runs a box to its end. An error of Open is the test's own.
func (s scene) run(t *testing.T) outcome {
	t.Helper()
	out := s.try(t)
	if out.Err != nil {
		t.Fatalf("run %q: %v\n%s", s.argv, out.Err, out.Stderr)
	}
	return out
}

func (s scene) try(t *testing.T) outcome {
	t.Helper()
	if s.dir == "" {
		s.dir = realDir(t)
	}
	if s.handler == nil {
		s.handler = &recorder{}
	}
	if s.handler.dir == "" {
		s.handler.dir = s.dir
	}
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, stdoutW := pipe(t)
	stderr, stderrW := pipe(t)
	errText := make(chan string)
	go func() {
		b, err := io.ReadAll(stderr)
		if err != nil {
			b = append(b, err.Error()...)
		}
		errText <- string(b)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := Open(ctx, Spec{
		Tier: s.tier, Argv: s.argv, Path: s.argv[0], Dir: s.dir, Env: append(os.Environ(), s.env...),
		Stdin: stdin, Stdout: stdoutW, Stderr: stderrW,
		ReadOnly: s.readOnly, Closed: s.closed, Listen: s.listen, User: s.user, CPUSoft: s.cpuSoft, CPUHard: 10 * s.cpuSoft,
	})
	closeAll(t, stdoutW, stderrW)
	if err != nil {
		return outcome{Err: err, Stderr: <-errText}
	}
	defer b.Close()
	done := make(chan struct{})
	var text strings.Builder
	go func() {
		defer close(done)
		r := bufio.NewReader(io.TeeReader(stdout, &text))
		if s.during != nil {
			s.during(t, b, r)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("read stdout: %v", err)
		}
	}()
	out := outcome{Unlayered: b.Unlayered}
	out.Exit, out.Err = b.Run(ctx, s.handler)
	b.Close()
	<-done
	out.Events, out.Stdout, out.Stderr = s.handler.list(), text.String(), <-errText
	return out
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func closeAll(t *testing.T, files ...*os.File) {
	t.Helper()
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// realDir is a temporary directory by its real name.
func realDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func wantEvents(t *testing.T, got []string, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if diff := cmp.Diff(want, append([]string{}, got...)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// wantExit checks that an actor found everything as it wanted.
func wantExit(t *testing.T, out outcome, want Exit) {
	t.Helper()
	got := Exit{Code: out.Exit.Code, Signal: out.Exit.Signal, Survivors: out.Exit.Survivors}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exit (-want +got):\n%s\n%s", diff, out.Stderr)
	}
}

// Tables of calls. One actor makes the calls of all rows of a table, one row
// after the other, each in a directory of its own; a connect to an abstract
// socket named after the row marks in the events where it begins.

const markPrefix = "row "

// row is one thing a program may do, and what the sandbox must say about it.
type row struct {
	name    string
	guards  string                 // what would go wrong, and where the kernel says so
	files   []string               // what stands in the directory: "f", "d/", "l -> f", "p|" (a FIFO)
	prepare func(dir string) error // what files cannot say
	only    string                 // "root", "user" or a tier; "": all
	act     func() error
	err     error // what act must return
	any     bool  // whatever it returns
	want    []string
}

func (r *row) here(tier Tier) bool {
	switch r.only {
	case "root":
		return os.Geteuid() == 0
	case "user":
		return os.Geteuid() != 0
	case string(Namespace), string(Notify):
		return r.only == string(tier)
	}
	return true
}

// furnish makes the files of a row.
func (r *row) furnish(dir string) error {
	for _, f := range r.files {
		name, target, isLink := strings.Cut(f, " -> ")
		path := dir + "/" + strings.TrimRight(name, "/|")
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case strings.HasSuffix(name, "|"):
			err = unix.Mkfifo(path, 0o644)
		default:
			err = os.WriteFile(path, []byte("x\n"), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if r.prepare == nil {
		return nil
	}
	return r.prepare(dir)
}

// errNoCall is a call that this architecture does not have.
var errNoCall = errors.New("no such call on this architecture")

// tables are the tables by name, for the actor.
func tables() map[string][]row {
	return map[string][]row{"writes": writeRows(), "none": noWriteRows(), "paths": pathRows(), "net": netRows()}
}

// runRows is the actor of a table.
func runRows(args []string) error {
	rows, base, tier := tables()[args[0]], args[1], Tier(args[2])
	if len(args) > 3 {
		if err := act(args[3], args[4:]); err != nil {
			return err
		}
	}
	answers := map[string]string{}
	for i := range rows {
		r := &rows[i]
		if !r.here(tier) {
			continue
		}
		dir := filepath.Join(base, strconv.Itoa(i))
		if err := os.Chdir(dir); err != nil {
			return err
		}
		if err := mark(r.name); err != nil {
			return err
		}
		err := r.act()
		switch {
		case errors.Is(err, errNoCall):
			answers[r.name] = "absent"
		case r.any || err == r.err || r.err != nil && errors.Is(err, r.err):
			answers[r.name] = ""
		default:
			answers[r.name] = fmt.Sprintf("got %v, want %v", err, r.err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func mark(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "@" + markPrefix + name}); err != unix.ECONNREFUSED {
		return fmt.Errorf("mark %s: %w", name, err)
	}
	return nil
}

// checkRows runs a table and compares it, row by row. before is an action
// that the actor does first.
func checkRows(t *testing.T, table string, tier Tier, before ...string) {
	t.Helper()
	rows := tables()[table]
	base := realDir(t)
	t.Cleanup(func() { // a directory that was closed could not be removed
		for i := range rows {
			for _, f := range rows[i].files {
				if strings.HasSuffix(f, "/") {
					_ = os.Chmod(filepath.Join(base, strconv.Itoa(i), f), 0o755) // the row may have removed it
				}
			}
		}
	})
	for i := range rows {
		dir := filepath.Join(base, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := rows[i].furnish(dir); err != nil {
			t.Fatalf("%s: %v", rows[i].name, err)
		}
	}
	out := scene{tier: tier, dir: base, argv: actor(append([]string{"rows", table, base, string(tier)}, before...)...)}.run(t)
	if out.Exit.Code != 0 || out.Exit.Signal != 0 {
		t.Fatalf("actor: %+v\n%s", out.Exit, out.Stderr)
	}
	var answers map[string]string
	if err := json.Unmarshal([]byte(out.Stdout), &answers); err != nil {
		t.Fatalf("answers of the actor: %v in %q", err, out.Stdout)
	}
	got := map[string][]string{}
	name, dir := "", ""
	for _, e := range out.Events {
		if rest, ok := strings.CutPrefix(e, markPrefix); ok {
			name = rest
			dir = strconv.Itoa(slices.IndexFunc(rows, func(r row) bool { return r.name == name }))
			continue
		}
		// Everything is told from the row's own directory.
		words := strings.Split(e, " ")
		for i, w := range words {
			if w == dir {
				words[i] = "."
			}
			words[i] = strings.Replace(strings.TrimPrefix(words[i], dir+"/"), `"`+dir+"/", `"`, 1)
		}
		got[name] = append(got[name], strings.Join(words, " "))
	}
	for i := range rows {
		r := &rows[i]
		if !r.here(tier) || answers[r.name] == "absent" {
			continue
		}
		t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
			if a := answers[r.name]; a != "" {
				t.Errorf("the call itself: %s", a)
			}
			wantEvents(t, got[r.name], r.want...)
			if t.Failed() {
				t.Logf("guards: %s", r.guards)
			}
		})
	}
}

// sys makes a row's act of one raw call, named as in the table of calls. The
// kernel is given exactly these arguments; no library rewrites them.
func sys(name string, args ...any) func() error {
	return func() error {
		_, err := rawCall(name, args...)
		return err
	}
}

// rawCall makes a raw call. Strings and byte slices go as pointers.
func rawCall(name string, args ...any) (int, error) {
	nr := int32(none)
	for i := range calls {
		if calls[i].name == name {
			nr = calls[i].nr(runtime.GOARCH)
		}
	}
	if nr == none {
		return 0, errNoCall
	}
	var keep []any
	var raw [6]uintptr
	for i, a := range args {
		switch a := a.(type) {
		case nil:
		case int:
			raw[i] = uintptr(a)
		case uintptr:
			raw[i] = a
		case string:
			p, err := unix.BytePtrFromString(a)
			if err != nil {
				return 0, err
			}
			keep = append(keep, p)
			raw[i] = uintptr(unsafe.Pointer(p))
		case []byte:
			keep = append(keep, a)
			raw[i] = uintptr(unsafe.Pointer(&a[0]))
		default:
			panic(fmt.Sprintf("BUG: argument %T", a))
		}
	}
	n, _, errno := unix.Syscall6(uintptr(nr), raw[0], raw[1], raw[2], raw[3], raw[4], raw[5])
	runtime.KeepAlive(keep)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// then does one thing after the other until one fails.
func then(steps ...func() error) func() error {
	return func() error {
		for _, s := range steps {
			if err := s(); err != nil {
				return err
			}
		}
		return nil
	}
}

// withFD opens a path and hands the descriptor to f.
func withFD(path string, flags int, f func(fd int) error) func() error {
	return func() error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return err
		}
		return errors.Join(f(fd), unix.Close(fd))
	}
}

// opened opens a path and closes it again.
func opened(path string, flags int) func() error {
	return withFD(path, flags, func(int) error { return nil })
}

// asUser runs this test binary as an ordinary user, with a place of its own.
func asUser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	home, err := os.MkdirTemp("", "gate-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		from, to string
		mode     os.FileMode
	}{{exe, "sandbox.test", 0o755}, {cActor(t), "actor", 0o755}, {cActor(t), "closed-actor", 0o711}} {
		data, err := os.ReadFile(f.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, f.to), data, f.mode); err != nil {
			t.Fatal(err)
		}
	}
	for dir, mode := range map[string]os.FileMode{"tmp": 0o700, "foreign": 0o755, "foreign/sticky": 0o777 | os.ModeSticky} {
		dir = filepath.Join(home, dir)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"readable": 0o644, "writable": 0o666, "closed": 0o600, "sticky/root": 0o666, "listed": 0o640} {
		name = filepath.Join(home, "foreign", name)
		if err := errors.Join(os.WriteFile(name, []byte("x\n"), 0o600), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Setxattr(filepath.Join(home, "foreign", "listed"), aclAccess, aclOf(testUID), 0); err != nil {
		t.Fatalf("set an access control list below %s: %v", home, err)
	}
	tmp := filepath.Join(home, "tmp")
	if err := errors.Join(os.Chown(tmp, testUID, testUID), os.Chmod(home, 0o755), os.Chmod(filepath.Join(home, "closed-actor"), 0o711)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(home, "sandbox.test"), args...)
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp,
		cActorEnv+"="+filepath.Join(home, "actor"), foreignEnv+"="+filepath.Join(home, "foreign"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	return cmd
}

// foreign is a directory with files that belong to root.
func foreign(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(foreignEnv)
	if dir == "" { // only root can make them: root's run of the tests has this part
		t.Skip("wanted files of another user, found none (run the tests as root)")
	}
	return dir
}

// TestAsOrdinaryUser runs all of these tests again without privileges.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 || testing.Short() {
		return // this is that run, or one that is to be short
	}
	args := []string{"-test.skip=^(TestAsOrdinaryUser|TestDocs|TestNumbersAreTheKernels|TestNothingIsForgotten|TestFilter)$", "-test.timeout=5m", "-test.short"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	out, err := asUser(t, args...).CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", testUID, err, out)
	} else if testing.Verbose() {
		t.Logf("as uid %d:\n%s", testUID, out)
	}
}
