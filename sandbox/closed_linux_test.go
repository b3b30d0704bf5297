package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/internal/need"
)

// closedScene is a file system with one of each kind of mount, and a script
// in it. It answers what the script printed and what stands outside afterwards.
func closedScene(t *testing.T, script string) (out outcome, outside map[string]string) {
	t.Helper()
	base := realDir(t)
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(base, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"other/f", "cache/f", "cache/gone", "tmp/f", "tmp/repo/f", "tmp/tool/f", "source"} {
		write(f, "outside\n")
	}
	if err := os.Mkdir(filepath.Join(base, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(base, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	at := func(path string) string { return filepath.Join(base, path) }
	closed := &Closed{
		ReadOnly: true, Store: at("store"), Mounts: []Mount{
			{Kind: Keep, Target: at("tmp/repo")},
			{Kind: Empty, Target: at("tmp")},
			{Kind: KeepReadOnly, Target: at("tmp/tool/f")},
			{Kind: Layer, Target: at("cache")},
			{Kind: Instead, Target: at("other/f"), Source: at("source")},
		},
	}
	out = scene{tier: Namespace, dir: at("tmp/repo"), argv: []string{"/bin/sh", "-c", script, at("")}, closed: closed}.run(t)
	if err := RemoveAll(closed.Store); err != nil {
		t.Errorf("remove the store: %v", err)
	}
	if _, err := os.Lstat(closed.Store); !os.IsNotExist(err) {
		t.Errorf("the store is still there: %v", err)
	}
	outside = map[string]string{}
	err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == "store" {
				return filepath.SkipDir
			}
			return err
		}
		text, err := os.ReadFile(path)
		outside[strings.TrimPrefix(path, base+"/")] = strings.TrimSpace(string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, outside
}

func TestClosed(t *testing.T) {
	untouched := func() map[string]string {
		return map[string]string{
			"other/f": "outside", "cache/f": "outside", "cache/gone": "outside", "tmp/f": "outside",
			"tmp/repo/f": "outside", "tmp/tool/f": "outside", "source": "outside",
		}
	}
	for _, tt := range []struct {
		name, guards, script, want string
		outside                    map[string]string // what differs
	}{
		{"elsewhere", "open(2): EROFS", `(echo x >other/g) 2>/dev/null || echo refused; mkdir other/d 2>/dev/null || echo refused; cat other/../source`, "refused\nrefused\noutside\n", nil},
		{"kept", "a mount on top of a read-only one", `echo inside >tmp/repo/f; cat tmp/repo/f`, "inside\n", map[string]string{"tmp/repo/f": "inside"}},
		{"empty", "nothing comes in, and nothing goes out", `ls tmp; ls tmp/tool; echo inside >tmp/f; cat tmp/f; stat -c %a tmp`, "repo\ntool\nf\ninside\n1777\n", nil},
		{"kept in an empty one, read-only", "its own mount", `cat tmp/tool/f; (echo x >tmp/tool/f) 2>/dev/null || echo refused`, "outside\nrefused\n", nil},
		{"layer", "overlayfs: changes go to the upper layer", `echo inside >cache/f; rm cache/gone; echo new >cache/new; cat cache/f; ls cache`, "inside\nf\nnew\n", nil},
		{"instead", "another file in its place", `echo inside >other/f; cat other/f`, "inside\n", map[string]string{"source": "inside"}},
		{"hard link", "link(2): EXDEV between mounts of one file system", `ln other/f tmp/repo/l 2>/dev/null || echo refused`, "refused\n", nil},
		{"remount", "mount_namespaces(7): read-only is locked in a less privileged one", `unshare -Urm sh -c 'mount -o remount,bind,rw / && touch other/g' 2>/dev/null || echo refused; touch other/g 2>/dev/null || echo refused`, "refused\nrefused\n", nil},
		{"bind mount", "a clone of a locked mount is locked as well", `unshare -Urm sh -c 'mount --bind other tmp/repo && touch tmp/repo/g' 2>/dev/null || echo refused`, "refused\n", nil},
		{"own mounts", "umount of what hides the rest: EINVAL, the mounts are locked together", `unshare -Urm sh -c 'umount tmp && touch tmp/g' 2>/dev/null || echo refused`, "refused\n", nil},
		{"devices", "special files are no part of the file system", `echo x >/dev/null && echo ok`, "ok\n", nil},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			need.Program(t, "unshare")
			out, outside := closedScene(t, `cd "$0" && { `+tt.script+`; }`)
			if len(out.Unlayered) > 0 {
				t.Errorf("unlayered: %q", out.Unlayered)
			}
			if out.Stdout != tt.want || out.Stderr != "" {
				t.Errorf("got %q, stderr %q, want %q (%s)", out.Stdout, out.Stderr, tt.want, tt.guards)
			}
			want := untouched()
			for path, text := range tt.outside {
				want[path] = text
			}
			if diff := cmp.Diff(want, outside); diff != "" {
				t.Errorf("outside afterwards (-want +got):\n%s", diff)
			}
		})
	}
}
