package strace

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var texts = regexp.MustCompile(`"[^"]*"|<(/|socket:|pipe:)[^>]*>`)

// coded turns the strings and paths of a readable log into strace's -xx form.
func coded(log string) string {
	return texts.ReplaceAllStringFunc(log, func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s[1 : len(s)-1]) {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
		return s[:1] + b.String() + s[len(s)-1:]
	})
}

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		log  string
		want []Call
	}{
		{"empty", "", nil},
		{"a call", `7 openat(AT_FDCWD</r>, "a", O_RDONLY|O_CLOEXEC) = 3</r/a>`, []Call{
			{Line: 1, Task: 7, Name: "openat", Args: []string{`AT_FDCWD<\x2f\x72>`, `"\x61"`, "O_RDONLY|O_CLOEXEC"}, Ret: `3<\x2f\x72\x2f\x61>`},
		}},
		{"padding and an error", `7     mkdir("a", 0777)          = -1 EEXIST (File exists)`, []Call{
			{Line: 1, Task: 7, Name: "mkdir", Args: []string{`"\x61"`, "0777"}, Ret: "-1 EEXIST (File exists)"},
		}},
		{"no arguments", "7 fork() = 8", []Call{{Line: 1, Task: 7, Name: "fork", Ret: "8"}}},
		{"brackets within arguments", `7 sendmsg(3, {msg_name={sa_family=AF_UNIX, sun_path="a"}, msg_iov=[{iov_base=""..., iov_len=1}]}, 0) = 1`, []Call{
			{Line: 1, Task: 7, Name: "sendmsg", Args: []string{"3", `{msg_name={sa_family=AF_UNIX, sun_path="\x61"}, msg_iov=[{iov_base=""..., iov_len=1}]}`, "0"}, Ret: "1"},
		}},
		{"syntax in a name", `7 unlink("a) = 0, (") = 0`, []Call{
			{Line: 1, Task: 7, Name: "unlink", Args: []string{`"\x61\x29\x20\x3d\x20\x30\x2c\x20\x28"`}, Ret: "0"},
		}},
		{"resumed, in order of return", "7 rmdir(\"a\" <unfinished ...>\n8 chdir(\"b\") = 0\n7 <... rmdir resumed>)              = 0", []Call{
			{Line: 2, Task: 8, Name: "chdir", Args: []string{`"\x62"`}, Ret: "0"},
			{Line: 3, Task: 7, Name: "rmdir", Args: []string{`"\x61"`}, Ret: "0"},
		}},
		{"resumed with arguments", "7 clone(child_stack=NULL, flags=CLONE_FS <unfinished ...>\n7 <... clone resumed>, tls=0x1) = 9", []Call{
			{Line: 2, Task: 7, Name: "clone", Args: []string{"child_stack=NULL", "flags=CLONE_FS", "tls=0x1"}, Ret: "9"},
		}},
		{"killed within a call", "7 connect(3, NULL, 0 <unfinished ...>\n7 +++ killed by SIGKILL +++", []Call{
			{Line: 2, Task: 7, Name: "connect", Args: []string{"3", "NULL", "0"}, Ret: "?"},
			{Line: 2, Task: 7, Ended: true},
		}},
		{"a thread that executes takes the leader's id", "8 fchdir(3 <unfinished ...>\n7 chdir(\"b\" <unfinished ...>\n7 +++ superseded by execve in pid 8 +++\n7 <... fchdir resumed>) = 0", []Call{
			{Line: 4, Task: 7, Name: "fchdir", Args: []string{"3"}, Ret: "0"},
		}},
		{"signals and personalities", "7 --- SIGCHLD {si_signo=SIGCHLD} ---\n7 [ Process PID=7 runs in 32 bit mode. ]\n7 +++ exited with 1 +++", []Call{
			{Line: 3, Task: 7, Ended: true},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(coded(tt.log)))
			if err != nil {
				t.Fatalf("Parse: %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ name, log, want string }{
		{"no task", "open(\"a\") = 3", "line 1: no task id"},
		{"no call", "7 hello", "line 1: no call"},
		{"unbalanced", "1 fork() = 2\n7 open({\"a\") = 3", "line 2: unbalanced"},
		{"no result", "7 fork()", "line 1: no result"},
		{"resumed from nowhere", "7 <... fork resumed>) = 8", "never began"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls, err := Parse(strings.NewReader(coded(tt.log)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse: got %v, %v; want an error with %q", calls, err, tt.want)
			}
		})
	}
}

func TestCallResult(t *testing.T) {
	tests := []struct {
		ret   string
		ok    bool
		errno string
		n     int
	}{
		{"0", true, "", 0},
		{`3<\x2f>`, true, "", 3},
		{"-1 ENOENT (No such file or directory)", false, "ENOENT", -1},
		{"-1 ENOSYS (Function not implemented) (INJECTED)", false, "ENOSYS", -1},
		{"?", false, "", -1},
		{"? ERESTARTSYS (To be restarted if SA_RESTART is set)", false, "", -1},
	}
	for _, tt := range tests {
		c := Call{Ret: tt.ret}
		if c.OK() != tt.ok || c.Errno() != tt.errno || c.Int() != tt.n {
			t.Errorf("%q: got %v %q %d, want %v %q %d", tt.ret, c.OK(), c.Errno(), c.Int(), tt.ok, tt.errno, tt.n)
		}
	}
}

// FuzzParse: whatever stands in a log, reading it and its arguments ends and
// does not panic.
func FuzzParse(f *testing.F) {
	f.Add(coded("7 openat(AT_FDCWD</r>, \"a\", O_RDONLY) = 3</r/a>\n"))
	f.Add(coded("7 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(1), sin_addr=inet_addr(\"127.0.0.1\")}, 16 <unfinished ...>\n7 <... connect resumed>) = 0\n"))
	f.Add("7 +++ superseded by execve in pid 8 +++\n7 a(]) = \n")
	f.Fuzz(func(t *testing.T, log string) {
		calls, err := Parse(strings.NewReader(log))
		if err != nil {
			return
		}
		for _, c := range calls {
			for _, arg := range append(c.Args, c.Ret) {
				String(arg)
				Descriptor(arg)
				Members(arg)
				Address(arg)
			}
		}
	})
}
