package runner

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What a gate left that was killed goes; what a living one has stays, and so
// does what only looks like it.
func TestLeftovers(t *testing.T) {
	parent := repository(t, "gate-run-mine/f", "gate-run-link/f", "other/f")
	make := func() (string, *os.File) {
		t.Helper()
		dir, lock, err := ownDir(parent)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "work/work"), 0o755), os.Chmod(filepath.Join(dir, "work/work"), 0)); err != nil {
			t.Fatal(err)
		}
		return dir, lock
	}
	alive, lock := make()
	defer lock.Close()
	dead, locked := make()
	if err := errors.Join(locked.Close(), os.Symlink("../gate-run-mine/f", filepath.Join(parent, "gate-run-link", lockName))); err != nil {
		t.Fatal(err)
	}
	another, lock2 := make()
	defer lock2.Close()
	for _, tt := range []struct {
		path string
		want bool
	}{
		{alive, true}, {another, true}, {dead, false},
		{parent + "/gate-run-mine/f", true}, {parent + "/gate-run-link/f", true}, {parent + "/other/f", true},
	} {
		if got := exists(tt.path); got != tt.want {
			t.Errorf("%s is there: %v, want %v", tt.path, got, tt.want)
		}
	}
}
