package runner

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
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
// result would pass for a run. What the user set by any means stays in force.
func TestSuiteEnv(t *testing.T) {
	dir := repository(t)
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write("mod/go.mod", "module m\n")
	write("mod/sub/f", "")
	write("plain/sub/go.mod", "module m\n")
	write("home/.config/go/env", "# by hand\nGOPROXY=off\nGOFLAGS=-mod=mod\nGOFLAGS=-tags=home '-ldflags=-s -w'\n")
	write("xdg/go/env", "GOFLAGS=-tags=xdg\n")
	write("empty/go/env", "GOFLAGS=\n")
	write("file", "GOFLAGS=-tags=file\n")
	write("go/bin/go", "#!/bin/sh\n")
	write("go/go.env", "GOFLAGS=-tags=tree\n")
	home := "HOME=" + dir + "/home"
	for _, tt := range []struct {
		name, dir string
		env       []string
		want      string
		note      bool
	}{
		{"none", "mod", nil, "-count=1", true},
		{"below the module", "mod/sub", nil, "-count=1", true},
		{"above a module", "plain", nil, "-count=1", false},
		{"environment", "mod", []string{"GOFLAGS=-trimpath", home}, "-count=1 -trimpath", true},
		{"own count", "mod", []string{"GOFLAGS=-count=3"}, "-count=1 -count=3", true},
		{"go env -w", "mod", []string{home}, "-count=1 -tags=home '-ldflags=-s -w'", true},
		{"empty is unset", "mod", []string{"GOFLAGS=", home}, "-count=1 -tags=home '-ldflags=-s -w'", true},
		{"XDG_CONFIG_HOME", "mod", []string{home, "XDG_CONFIG_HOME=" + dir + "/xdg"}, "-count=1 -tags=xdg", true},
		{"relative XDG_CONFIG_HOME", "mod", []string{home, "XDG_CONFIG_HOME=xdg"}, "-count=1", true},
		{"GOENV", "mod", []string{home, "GOENV=" + dir + "/file"}, "-count=1 -tags=file", true},
		{"GOENV=off", "mod", []string{home, "GOENV=off"}, "-count=1", true},
		{"missing GOENV", "mod", []string{home, "GOENV=" + dir + "/nowhere"}, "-count=1", true},
		{"the Go tree", "mod", []string{"PATH=" + dir + "/go/bin"}, "-count=1 -tags=tree", true},
		{"GOROOT", "mod", []string{"GOROOT=" + dir + "/go"}, "-count=1 -tags=tree", true},
		{"user before tree", "mod", []string{"GOROOT=" + dir + "/go", "XDG_CONFIG_HOME=" + dir + "/empty"}, "-count=1", true},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			in := append([]string{"GATE_EGRESS_LOG=/other", "A=1"}, tt.env...)
			env, note := suiteEnv(Config{Root: dir, Dir: filepath.Join(dir, tt.dir), Env: in}, "/journal")
			if got := lookup(env)("GOFLAGS"); got != tt.want {
				t.Errorf("GOFLAGS = %q, want %q", got, tt.want)
			}
			if got := lookup(env)("GATE_EGRESS_LOG"); got != "/journal" {
				t.Errorf("GATE_EGRESS_LOG = %q, want /journal", got)
			}
			for _, key := range []string{"GOFLAGS=", "GATE_EGRESS_LOG="} {
				if n := len(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return !strings.HasPrefix(e, key) })); n != 1 {
					t.Errorf("%d entries %s, want 1", n, key)
				}
			}
			if want := "GOFLAGS=" + strconv.Quote(tt.want); tt.note != strings.Contains(note, want) {
				t.Errorf("note = %q, want %s: %v", note, want, tt.note)
			}
		})
	}
}

// A tier that cannot be made is refused before anything is.
func TestNoSuchTier(t *testing.T) {
	for _, tier := range []string{ledger.TierWeak, "strong"} {
		dir := repository(t)
		_, err := Run(t.Context(), Config{Command: []string{"/bin/sh", "-c", ": >f"}, Dir: dir, Root: dir, Evidence: tier})
		var setup *sandbox.SetupError
		if !errors.As(err, &setup) || !strings.Contains(err.Error(), "want namespace or notify") {
			t.Errorf("%s: got %v, want a set-up error that says what can be made", tier, err)
		}
		if exists(filepath.Join(dir, "f")) {
			t.Errorf("%s: the command ran", tier)
		}
	}
}

func TestReplays(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"go", "test", "./..."}, ""},
		{[]string{"npx", "turbo", "run", "test"}, "turbo"},
		{[]string{"./gradlew", "check"}, "gradle"},
		{[]string{"/opt/bin/bazel", "test", "//..."}, "bazel"},
		{[]string{"pnpm", "exec", "nx", "test"}, "nx"},
	} {
		if got := replays(tt.command); got != tt.want || (fresh(got) == "") != (tt.want == "") {
			t.Errorf("%q: got %q, want %q", tt.command, got, tt.want)
		}
	}
}
