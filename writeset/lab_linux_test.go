package writeset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lab does what a script says in a real directory and tells a Recorder of it,
// as the one who traps the calls would.
type lab struct {
	t       testing.TB
	root    string
	out     string // stands for $OUT in a script: a directory outside
	rec     *Recorder
	before  *Snapshot
	initial []string // paths that exist before
}

// newLab makes the entries of before, "name" or "name/" for a directory, with
// the directories above them.
func newLab(t testing.TB, cfg Config, before ...string) *lab {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, root: filepath.Join(base, "repo"), out: filepath.Join(base, "out")}
	for _, dir := range []string{l.root, l.out} {
		l.must(os.Mkdir(dir, 0o755))
	}
	for _, name := range before {
		path := l.abs(name)
		if strings.HasSuffix(name, "/") {
			l.must(os.MkdirAll(path, 0o755))
			continue
		}
		l.must(os.MkdirAll(filepath.Dir(path), 0o755))
		if _, err := os.Lstat(path); err != nil {
			l.must(os.WriteFile(path, []byte(name), 0o644))
		}
	}
	cfg.Root = l.root
	l.start(cfg)
	return l
}

// start takes the snapshot before and begins to record.
func (l *lab) start(cfg Config) {
	l.before = l.take()
	cfg.Before = l.before
	l.rec = New(cfg)
	l.initial = nil
	for dir, in := range l.before.dirs {
		for _, c := range in {
			l.initial = append(l.initial, join(dir, c.name))
		}
	}
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) take() *Snapshot {
	l.t.Helper()
	s, err := Take(context.Background(), l.root)
	l.must(err)
	return s
}

func (l *lab) abs(name string) string {
	if rest, ok := strings.CutPrefix(name, "$OUT"); ok {
		return filepath.Join(l.out, rest)
	}
	return filepath.Join(l.root, name)
}

func (l *lab) state(path string) State {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return State{}
	}
	return State{
		Exists: true, Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR,
		Dev: st.Dev, Ino: st.Ino, Nlink: uint64(st.Nlink),
	}
}

// script runs lines of "call path [to]". "!" before a call hides it from the recorder.
func (l *lab) script(lines string) {
	l.t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		call, hidden := strings.CutPrefix(line, "!")
		if err := l.call(hidden, strings.Fields(call)); err != nil {
			l.t.Fatalf("%s: %v", line, err)
		}
	}
}

// call makes one call. The event comes first and only if the call can succeed,
// which is found out by making it: the states are read before, the event is
// recorded after.
func (l *lab) call(hidden bool, f []string) error {
	path := l.abs(f[1])
	e := Event{Call: f[0], Path: path, Before: l.state(path), Actor: func() int { return 7 }}
	if len(f) > 2 {
		e.To = l.abs(f[2])
		e.ToBefore = l.state(e.To)
	}
	var err error
	switch f[0] {
	case "create":
		e.Op, err = Create, write(path, os.O_CREATE|os.O_EXCL)
	case "mkdir":
		e.Op, err = Create, os.Mkdir(path, 0o755)
	case "write":
		e.Op, err = Modify, write(path, os.O_APPEND)
	case "chmod":
		e.Op, err = Meta, os.Chmod(path, 0o700)
	case "remove":
		e.Op, err = Remove, os.Remove(path)
	case "rename":
		e.Op, err = Rename, unix.Rename(path, e.To)
	case "exchange":
		e.Op, err = Exchange, unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, e.To, unix.RENAME_EXCHANGE)
	case "link":
		e.Op, err = Link, os.Link(path, e.To)
	default:
		return fmt.Errorf("unknown call %q", f[0])
	}
	if err == nil && !hidden {
		l.rec.Record(e)
	}
	return err
}

func write(path string, flag int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|flag, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	return cmpErr(err, f.Close())
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func paths(rows []Row) []string {
	list := make([]string, 0, len(rows))
	for _, r := range rows {
		list = append(list, r.Path)
	}
	slices.Sort(list)
	return list
}
