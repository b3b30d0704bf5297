package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/org/gate/sandbox"
)

// lookPath finds the program as a shell does: a name with a slash is relative
// to the working directory, any other is searched in PATH. The errors are
// those of a shell: 127 not found, 126 found and not executable.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	var denied error
	dirs := filepath.SplitList(lookup(env)("PATH"))
	if name == "" {
		dirs = nil // it would name the directories themselves
	}
	for _, d := range dirs {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d) // "" and "." mean the working directory
		}
		path := filepath.Join(d, name)
		err := executable(path)
		if err == nil {
			return path, nil
		}
		var start *sandbox.StartError
		if errors.As(err, &start) && start.Code == 126 && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &sandbox.StartError{Code: 127, Err: fmt.Errorf("%s: command not found in PATH", cmp.Or(name, `""`))}
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &sandbox.StartError{Code: 127, Err: fmt.Errorf("%s: no such file", path)}
	case err != nil:
		return &sandbox.StartError{Code: 127, Err: err} // a directory of PATH that cannot be searched
	case info.IsDir():
		return &sandbox.StartError{Code: 126, Err: fmt.Errorf("%s: is a directory", path)}
	case info.Mode()&0o111 == 0:
		return &sandbox.StartError{Code: 126, Err: fmt.Errorf("%s: not executable (mode %04o)", path, info.Mode().Perm())}
	}
	return nil
}

// lookup is os.Getenv over an environment.
func lookup(env []string) func(string) string {
	return func(key string) string {
		for _, entry := range env { // the first one counts, as in getenv(3)
			if v, ok := strings.CutPrefix(entry, key+"="); ok {
				return v
			}
		}
		return ""
	}
}

// suiteEnv is the command's environment: the caller's, the journal for
// in-process interceptors, and -count=1 for Go tests, since a cached result
// executes nothing and has no rows. The flag is always there: a command may
// enter a module below its directory, and no other program looks at GOFLAGS.
// note says so where Go tests are to be expected. The user's own flags come
// last and win: any -count runs the tests anew.
func suiteEnv(cfg Config, journal string) (env []string, note string) {
	env = setenv(cfg.Env, "GATE_EGRESS_LOG", journal)
	flags := strings.TrimSpace("-count=1 " + goFlags(cfg.Dir, cfg.Env))
	env = setenv(env, "GOFLAGS", flags)
	if !goModule(cfg.Root, cfg.Dir) {
		return env, ""
	}
	return env, "ran with GOFLAGS=" + strconv.Quote(flags) + ": a cached Go test result would execute nothing"
}

// goFlags is GOFLAGS as the go command would find it ("go help environment"):
// in the environment, else in the file of "go env -w", else in go.env of the Go
// tree. A file that cannot be read counts for nothing there as well (readEnvFile
// of cmd/go/internal/cfg).
func goFlags(dir string, env []string) string {
	getenv := lookup(env)
	if flags := getenv("GOFLAGS"); flags != "" {
		return flags
	}
	for _, file := range []string{goUserFile(getenv), goTreeFile(dir, env)} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		flags, set := "", false
		for line := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "GOFLAGS="); ok {
				flags, set = value, true // the last one counts
			}
		}
		if set {
			return flags
		}
	}
	return ""
}

// goUserFile is where "go env -w" writes: GOENV, or go/env in what
// os.UserConfigDir is for this environment; "" for none.
func goUserFile(getenv func(string) string) string {
	file, config, home := getenv("GOENV"), getenv("XDG_CONFIG_HOME"), getenv("HOME")
	switch {
	case file == "off":
		return ""
	case file != "":
		return file
	case config == "" && home != "":
		config = filepath.Join(home, ".config")
	case !filepath.IsAbs(config):
		return ""
	}
	return filepath.Join(config, "go", "env")
}

// goTreeFile is go.env of the Go tree that PATH leads to; "" for none.
func goTreeFile(dir string, env []string) string {
	tree := lookup(env)("GOROOT")
	if tree == "" {
		program, err := lookPath("go", dir, env)
		if err != nil {
			return "" // no Go
		}
		tree = filepath.Dir(filepath.Dir(resolved(program)))
	}
	return filepath.Join(tree, "go.env")
}

// freshly is how build tools that keep results of their own, out of gate's
// reach, are told to execute all the same.
var freshly = map[string]string{
	"bazel":  "test --nocache_test_results --noremote_accept_cached",
	"gradle": "--rerun-tasks --no-build-cache",
	"nx":     "--skip-nx-cache",
	"turbo":  "--force",
}

// replays names such a tool in a command. One that a script of the suite's calls
// is seen in what it prints, see outputRecord.
func replays(command []string) (tool string) {
	for _, word := range command {
		switch base := filepath.Base(word); base {
		case "bazelisk":
			return "bazel"
		case "gradlew":
			return "gradle"
		default:
			if freshly[base] != "" {
				return base
			}
		}
	}
	return ""
}

// fresh is the advice for a tool, with what leads to it.
func fresh(tool string) string {
	if way := freshly[tool]; way != "" {
		return ": " + tool + " " + way
	}
	return ""
}

// goModule tells whether a directory lies in a Go module of the repository.
func goModule(root, dir string) bool {
	for {
		for _, name := range []string{"go.mod", "go.work"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
		if dir == root || len(dir) <= len(root) {
			return false
		}
		dir = filepath.Dir(dir)
	}
}

// scratch makes a directory for gate's own files, outside the repository: they
// come and go between its two snapshots.
func scratch(root string) (dir string, lock *os.File, err error) {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp", "/dev/shm"} {
		real := resolved(dir)
		if real == root || strings.HasPrefix(real, root+"/") {
			continue
		}
		if dir, lock, err := ownDir(real); err == nil {
			return dir, lock, nil
		}
	}
	return "", nil, fmt.Errorf("no directory outside %s for gate's own files: tried $TMPDIR, /tmp, /var/tmp and /dev/shm", root)
}

// withoutSudo is the environment of a run under sudo: the caller's own, as far
// as the system knows the caller.
func withoutSudo(env []string, u *sandbox.User) []string {
	caller, err := user.LookupId(strconv.FormatUint(uint64(u.UID), 10))
	if err != nil {
		return env // a number without an account has no home
	}
	root, err := user.LookupId("0")
	if err != nil {
		return env
	}
	return callersEnv(env, caller, root)
}

// setenv gives env with one value for key. A second entry would do nothing:
// getenv(3) takes the first.
func setenv(env []string, key, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(s string) bool { return strings.HasPrefix(s, key+"=") })
	return append(env, key+"="+value)
}

// callersEnv undoes what sudo does to the environment unless told otherwise
// (sudo(8), -H; sudoers(5), set_home): HOME, USER and LOGNAME are root's, whose
// caches the suite's user may not use. A value that is not root's was meant.
func callersEnv(env []string, caller, root *user.User) []string {
	out := env
	for _, v := range []struct{ key, root, caller string }{
		{"HOME", root.HomeDir, caller.HomeDir},
		{"USER", root.Username, caller.Username},
		{"LOGNAME", root.Username, caller.Username},
	} {
		if lookup(env)(v.key) == v.root && v.caller != "" {
			out = setenv(out, v.key, v.caller)
		}
	}
	return out
}

// sudoUser is who called sudo: the suite runs as that user, and gate alone as
// root. It is nil without sudo.
func sudoUser(env []string) *sandbox.User {
	get := lookup(env)
	if os.Geteuid() != 0 || get("SUDO_UID") == "" {
		return nil
	}
	uid, err1 := strconv.ParseUint(get("SUDO_UID"), 10, 32)
	gid, err2 := strconv.ParseUint(get("SUDO_GID"), 10, 32)
	if err1 != nil || err2 != nil || uid == 0 {
		return nil
	}
	return &sandbox.User{UID: uint32(uid), GID: uint32(gid), Groups: groupsOf(uint32(uid), uint32(gid))}
}
