package writeset

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestTake(t *testing.T) {
	l := newLab(t, Config{}, "a", "d/e/f", ".git/HEAD", "empty/")
	l.must(os.Symlink("../out", filepath.Join(l.root, "link")))
	l.must(os.WriteFile(filepath.Join(l.out, "beyond"), nil, 0o644))
	s := l.take()
	var got []string
	for _, p := range []string{".", "a", "d", "d/e", "d/e/f", ".git", ".git/HEAD", "empty", "link", "link/beyond", "b", "d/x", "a/x", ""} {
		if e, ok := s.Lookup(p); ok {
			if e.Dir() {
				p += "/"
			}
			got = append(got, p)
		}
	}
	want := []string{"./", "a", "d/", "d/e/", "d/e/f", ".git/", ".git/HEAD", "empty/", "link"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if s.Len() != len(want) || s.Unreadable() != nil {
		t.Errorf("Len = %d, Unreadable = %q, want %d and none", s.Len(), s.Unreadable(), len(want))
	}

	var st unix.Stat_t
	l.must(unix.Lstat(filepath.Join(l.root, "a"), &st))
	wantEntry := Entry{
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: 1, Size: 1, Dev: st.Dev, Ino: st.Ino,
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
	if e, _ := s.Lookup("a"); e != wantEntry {
		t.Errorf("Lookup(a) = %+v, want %+v", e, wantEntry)
	}
}

func TestTakeErrors(t *testing.T) {
	if _, err := Take(context.Background(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no root: got %v, want ENOENT", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Take(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want context.Canceled", err)
	}
}

// TestTakeDeep has a path that is longer than any single call could name.
func TestTakeDeep(t *testing.T) {
	root := t.TempDir()
	const depth = 40
	name := strings.Repeat("n", 200)
	fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(fd, name, 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	s, err := Take(context.Background(), root)
	if err != nil || s.Len() != depth+1 || s.Unreadable() != nil {
		t.Fatalf("Take = %d entries, unreadable %q, %v, want %d", s.Len(), s.Unreadable(), err, depth+1)
	}
}

func TestDiff(t *testing.T) {
	l := newLab(t, Config{}, "same", "write", "chmod", "times", "remove", "d/gone", "d/sub/gone", "file-then-dir")
	tick := time.Unix(1_000_000_000, 0)
	l.must(os.Chtimes(filepath.Join(l.root, "times"), tick, tick))
	l.start(Config{})
	l.script(`
		!write write
		!chmod chmod
		!remove remove
		!create new
		!remove d/gone
		!remove d/sub/gone
		!remove d/sub
		!remove file-then-dir
		!mkdir file-then-dir
		!create file-then-dir/x`)
	l.must(os.Chtimes(filepath.Join(l.root, "times"), tick, tick)) // only ctime tells
	kinds := map[ChangeKind]string{Created: "+", Removed: "-", Changed: "~"}
	var got []string
	for _, c := range Diff(l.before, l.take()) {
		got = append(got, kinds[c.Kind]+c.Path)
	}
	want := []string{"~.", "~chmod", "~d", "-d/gone", "-d/sub", "-d/sub/gone", "~file-then-dir", "+file-then-dir/x", "+new", "-remove", "~times", "~write"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Diff (-want +got):\n%s", diff)
	}
	if d := Diff(l.take(), l.take()); len(d) > 0 {
		t.Errorf("Diff of nothing: %v", d)
	}
}

// TestUnreadable runs as nobody: root reads every directory.
func TestUnreadable(t *testing.T) {
	const variable = "WRITESET_TEST_UNREADABLE"
	if root := os.Getenv(variable); root != "" {
		before, err := Take(context.Background(), root)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"closed", "listed"}, before.Unreadable()); diff != "" {
			t.Errorf("Unreadable (-want +got):\n%s", diff)
		}
		after := &Snapshot{self: before.self, dirs: map[string][]child{".": before.dirs["."], "open": before.dirs["open"], "closed": {{name: "x"}}}}
		if d := Diff(before, after); len(d) > 0 {
			t.Errorf("Diff = %v, want none: what is below was not seen before", d)
		}
		return
	}
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"closed": 0, "listed": 0o444, "open": 0o755} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Error(err)
			}
		})
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestUnreadable$")
	cmd.Env = append(os.Environ(), variable+"="+root)
	cmd.Dir = root
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chmod(filepath.Dir(root), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as another user: %v\n%s", err, out)
	}
}
