package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// probeArg makes Init the command that Probe runs in each tier, and probePath
// is the name that it tries to make a node at.
const (
	probeArg  = "probe"
	probePath = "gate-probe"
)

// probed makes one call that must be seen: mkdir in its working directory,
// which Probe made for it.
func probed() int {
	if err := unix.Mkdir(probePath, 0o700); err != nil {
		return 1
	}
	return 0
}

// Probe tests what this host can do, by doing it: a user namespace may be
// created and still carry no rights, a filter be loaded and its notifications
// be forbidden. It returns the best tier that works, or "".
func Probe(ctx context.Context) ([]Feature, Tier) {
	var tier Tier
	features := []Feature{kernel(), filterFlags()}
	for _, t := range []Tier{Namespace, Notify} {
		f := try(ctx, t)
		if f.OK && tier == "" {
			tier = t
		}
		features = append(features, f)
	}
	features = append(features, userNamespaces(), appArmor(), procMount(), tracing(), container(), sudo(), cgroup())
	return features, tier
}

// try runs a command that makes one known call in a tier, and looks whether
// it was seen, arguments and all.
func try(ctx context.Context, t Tier) Feature {
	f := Feature{Name: string(t) + " tier", Tested: "ran a command in it and looked for its one call", Needed: string(t)}
	var seen sighting
	exit, userNS, err := trial(ctx, t, &seen)
	var setup *SetupError
	switch {
	case errors.As(err, &setup):
		f.Found = err.Error()
		f.Repair = repair(t)
	case err != nil:
		f.Found = err.Error()
	case exit.Code != 0 || exit.Signal != 0:
		f.Found = fmt.Sprintf("the command ended with status %d, signal %d", exit.Code, exit.Signal)
	case !seen.ok:
		f.Found = "the call was not seen: " + seen.gap
		f.Repair = "sysctl -w kernel.yama.ptrace_scope=1"
	default:
		f.OK, f.Found = true, "set up, call seen, process tree reaped"
		if userNS {
			f.Found += " (in a user namespace with one uid)"
		}
	}
	return f
}

func trial(ctx context.Context, t Tier, seen *sighting) (exit Exit, userNS bool, err error) {
	dir, err := os.MkdirTemp("", "gate-probe-")
	if err != nil {
		return exit, false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return exit, false, err
	}
	seen.path = filepath.Join(dir, probePath)
	self, err := os.Executable()
	if err != nil {
		return exit, false, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return exit, false, err
	}
	defer null.Close()
	box, err := Open(ctx, Spec{
		Tier: t, Path: self, Argv: []string{self, InitArg, probeArg}, Dir: dir, Env: os.Environ(),
		Stdin: null, Stdout: null, Stderr: null,
	})
	if err != nil {
		return exit, false, err
	}
	defer box.Close()
	exit, err = box.Run(ctx, seen)
	return exit, box.UserNS, err
}

// sighting is a Handler that waits for the probe's call.
type sighting struct {
	path string
	ok   bool
	gap  string
}

func (s *sighting) File(c *FileCall, _ Caller) {
	s.ok = s.ok || c.Op == Create && c.Path == s.path
}
func (s *sighting) Connect(*NetCall, Caller) Answer { return Answer{} }
func (s *sighting) Bind(*NetCall, Caller)           {}
func (s *sighting) SigChild(int, bool, bool)        {}
func (s *sighting) Exit(int)                        {}
func (s *sighting) Refused(string, string, Caller)  {}
func (s *sighting) Gap(kind, detail string)         { s.gap = kind + ": " + detail }
func (s *sighting) Found(string, string, Caller)    {}

// repair is the command that most likely makes a tier work here.
func repair(t Tier) string {
	if t == Notify {
		return "run gate where seccomp(2) is allowed and no other supervisor listens (docker: --security-opt seccomp=unconfined)"
	}
	switch {
	case os.Geteuid() == 0 && inContainer() != "":
		return "docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined ..., or use the notify tier"
	case sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	case sysctl("kernel/unprivileged_userns_clone") == "0":
		return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
	case sysctl("user/max_user_namespaces") == "0":
		return "sudo sysctl -w user.max_user_namespaces=15000"
	}
	return "sudo -E gate run ... (the suite still runs as you)"
}

func sysctl(name string) string {
	data, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func kernel() Feature {
	f := Feature{Name: "kernel", Tested: "uname; user notification needs 5.5, close_range with CLOEXEC 5.11", Needed: string(Notify), Repair: "use a kernel of 5.11 or later"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.Found = err.Error()
		return f
	}
	release := unix.ByteSliceToString(u.Release[:])
	f.Found = release + " on " + runtime.GOARCH
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		f.Found += ", a version that cannot be read"
		return f
	}
	_, err := auditArch(runtime.GOARCH)
	f.OK = err == nil && (major > 5 || major == 5 && minor >= 11)
	return f
}

// filterFlags asks for flags with a null program: a known flag gives EFAULT,
// an unknown one EINVAL (seccomp(2)).
func filterFlags() Feature {
	f := Feature{Name: "seccomp flags", Tested: "seccomp with each flag and a null program", OK: true}
	var have, lack []string
	for _, x := range []struct {
		name string
		flag uintptr
	}{
		{"NEW_LISTENER (5.0)", unix.SECCOMP_FILTER_FLAG_NEW_LISTENER},
		{"WAIT_KILLABLE_RECV (5.19)", unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
	} {
		_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, x.flag, 0)
		if errno == unix.EFAULT {
			have = append(have, x.name)
		} else {
			lack = append(lack, x.name+": "+errno.Error())
		}
	}
	f.Found = strings.Join(have, ", ")
	if len(lack) > 0 {
		f.OK = false
		f.Found += "; not " + strings.Join(lack, ", ")
		f.Repair = "use a kernel of 5.19 or later (without the last flag, signals can restart a call; gate then recognises it)"
	}
	return f
}

func userNamespaces() Feature {
	f := Feature{Name: "user namespaces", Tested: "user.max_user_namespaces, kernel.unprivileged_userns_clone", OK: true, Needed: string(Namespace)}
	limit, clone := sysctl("user/max_user_namespaces"), sysctl("kernel/unprivileged_userns_clone")
	f.Found = "max " + limit
	if clone != "" {
		f.Found += ", unprivileged_userns_clone " + clone
	}
	if os.Geteuid() == 0 {
		f.Found += " (root does without)"
		f.Needed = ""
	}
	if limit == "" || limit == "0" || clone == "0" {
		f.OK, f.Repair = false, "sudo sysctl -w user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1"
	}
	return f
}

func appArmor() Feature {
	f := Feature{Name: "AppArmor", Tested: "kernel.apparmor_restrict_unprivileged_userns (Ubuntu 23.10 and later)", OK: true}
	switch v := sysctl("kernel/apparmor_restrict_unprivileged_userns"); v {
	case "":
		f.Found = "no such restriction"
	case "1":
		f.Found, f.OK = "user namespaces of ordinary users carry no rights", os.Geteuid() == 0
		f.Needed, f.Repair = string(Namespace), "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	default:
		f.Found = "restriction is off (" + v + ")"
	}
	return f
}

// procMount: a new /proc may be mounted in a user namespace only where the
// old one is not covered in part (mount_namespaces(7)).
func procMount() Feature {
	f := Feature{Name: "/proc", Tested: "looked for mounts below /proc", OK: true}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.OK, f.Found = false, err.Error()
		return f
	}
	var covered []string
	for line := range strings.Lines(string(data)) {
		if p := strings.Fields(line); len(p) > 4 && strings.HasPrefix(p[4], "/proc/") && p[4] != "/proc/sys/fs/binfmt_misc" {
			covered = append(covered, p[4])
		}
	}
	f.Found = "whole"
	if len(covered) > 0 {
		f.Found = "partly covered: " + strings.Join(covered, " ")
		f.OK = os.Geteuid() == 0
		f.Needed, f.Repair = string(Namespace), "docker run --security-opt systempaths=unconfined ..."
	}
	return f
}

func tracing() Feature {
	f := Feature{Name: "ptrace scope", Tested: "kernel.yama.ptrace_scope", OK: true}
	switch v := sysctl("kernel/yama/ptrace_scope"); v {
	case "":
		f.Found = "no Yama"
	case "0", "1":
		f.Found = v + " (gate reads its own descendants)"
	default:
		f.Found, f.OK = v+": the arguments of calls can be read by root alone", os.Geteuid() == 0
		f.Needed, f.Repair = string(Notify), "sudo sysctl -w kernel.yama.ptrace_scope=1"
	}
	return f
}

func inContainer() string {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return mark
		}
	}
	return os.Getenv("container")
}

func container() Feature {
	f := Feature{Name: "container", Tested: "/.dockerenv, /run/.containerenv, $container, Seccomp in /proc/self/status", OK: true, Found: "none seen"}
	if mark := inContainer(); mark != "" {
		f.Found = "yes (" + mark + ")"
	}
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(data)) {
			if n, ok := strings.CutPrefix(line, "Seccomp_filters:"); ok && strings.TrimSpace(n) != "0" {
				f.Found += ", " + strings.TrimSpace(n) + " filters over this process"
			}
		}
	}
	return f
}

func sudo() Feature {
	f := Feature{Name: "sudo", Tested: "sudo -n true", OK: true}
	if os.Geteuid() == 0 {
		f.Found = "gate is root"
		if uid := os.Getenv("SUDO_UID"); uid != "" {
			f.Found += ", the suite will run as uid " + uid
		}
		return f
	}
	if err := exec.Command("sudo", "-n", "true").Run(); err != nil {
		f.Found = "not without a password: " + err.Error()
		return f
	}
	f.Found = "works without a password"
	return f
}

func cgroup() Feature {
	f := Feature{Name: "cgroup", Tested: "looked for a cgroup v2 directory that can be written", OK: true, Found: "none: CPU is counted by wait4 and at exit"}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			f.Found = dir
			if unix.Access(dir, unix.W_OK) != nil {
				f.Found += ", not writable for uid " + strconv.Itoa(os.Geteuid())
			}
		}
	}
	return f
}
