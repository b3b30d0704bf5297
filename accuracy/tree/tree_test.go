package tree

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestListAndRestore(t *testing.T) {
	root, saved := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := func(p string) string { return filepath.Join(root, p) }
	must(os.Mkdir(in("d"), 0o755))
	must(os.WriteFile(in("d/f"), []byte("x"), 0o640))
	must(os.Symlink("d/f", in("l")))
	must(os.Chtimes(in("d/f"), time.Time{}, time.Unix(1e9, 7)))
	before, err := List(root)
	must(err)

	s, err := Save(t.Context(), root, saved)
	must(err)
	must(os.WriteFile(in("d/f"), []byte("y"), 0o640))
	must(os.Chmod(in("d"), 0o700))
	must(os.Remove(in("l")))
	must(os.WriteFile(in("new"), nil, 0o600))
	changed, err := List(root)
	must(err)
	for _, p := range []string{"d", "d/f"} {
		if !before[p].Changed(changed[p]) {
			t.Errorf("%s: change not seen", p)
		}
	}
	if before["."].Changed(changed["."]) {
		t.Error("the root counts as changed by what was made in it")
	}

	must(s.Restore(t.Context()))
	after, err := List(root)
	must(err)
	type look struct {
		Mode   fs.FileMode
		Target string
	}
	seen := func(l Listing) map[string]look {
		m := map[string]look{}
		for p, e := range l {
			m[p] = look{e.Mode, e.Target}
		}
		return m
	}
	if diff := cmp.Diff(seen(before), seen(after)); diff != "" {
		t.Errorf("restored (-want +got):\n%s", diff)
	}
	info, err := os.Stat(in("d/f"))
	must(err)
	if !info.ModTime().Equal(time.Unix(1e9, 7)) {
		t.Errorf("restored with time %v", info.ModTime())
	}
}

func TestListErrors(t *testing.T) {
	if l, err := List(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Errorf("List of nothing: got %v, want an error", l)
	}
}
