package runner

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Under sudo the suite has the home of the user that it runs as, and what the
// caller of sudo kept or set stays.
func TestCallersEnv(t *testing.T) {
	caller := &user.User{Username: "ann", HomeDir: "/home/ann"}
	root := &user.User{Username: "root", HomeDir: "/root"}
	for _, tt := range []struct{ name, in, want string }{
		{"sudo", "HOME=/root USER=root LOGNAME=root A=1", "A=1 HOME=/home/ann USER=ann LOGNAME=ann"},
		{"sudo -E", "HOME=/home/ann USER=root LOGNAME=root", "HOME=/home/ann USER=ann LOGNAME=ann"},
		{"set on purpose", "HOME=/srv/ci USER=ci LOGNAME=ci", "HOME=/srv/ci USER=ci LOGNAME=ci"},
		{"none", "A=1", "A=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(callersEnv(strings.Fields(tt.in), caller, root), " ")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// GOFLAGS has one entry: of two, a Go program takes the first, and a cached
// result would pass for a run.
func TestSuiteEnv(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env, note := suiteEnv(Config{Root: dir, Dir: dir, Env: []string{"GATE_EGRESS_LOG=/other", "GOFLAGS=-trimpath", "A=1"}}, "/journal")
	want := []string{"A=1", "GATE_EGRESS_LOG=/journal", "GOFLAGS=-trimpath -count=1"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if !strings.Contains(note, `GOFLAGS="-trimpath -count=1"`) {
		t.Errorf("note = %q, want it to say GOFLAGS", note)
	}
}
