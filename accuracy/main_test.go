package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/org/gate/accuracy/netns"
	"github.com/org/gate/internal/need"
)

// TestMain lets the test binary be the init of its own namespaces.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{netns.InsideArg}) {
		os.Exit(netns.Inside())
	}
	os.Exit(m.Run())
}

// needs is for what the harness makes namespaces and runs programs for.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	need.Root(t)
	for _, p := range programs {
		need.Program(t, p)
	}
}

// TestTruth runs small programs for real. Each begins in an empty repository
// with the directory "d" and the file "f" in it.
func TestTruth(t *testing.T) {
	tests := []struct {
		name   string
		tool   string // that runs the program: "sh", "python3", "cc"
		text   string
		net    []string
		writes []string
		exit   int
	}{
		{
			name: "files, by the shell", tool: "sh",
			text: `
				echo x >new.tmp; mv new.tmp new         # a temporary name
				echo x >gone; rm gone                   # no trace
				mkdir d/gone; rmdir d/gone
				mkdir d 2>/dev/null; rmdir e 2>/dev/null # calls that fail
				cat f >/dev/null                        # reading
				ln -s d l; echo x >l/through; rm l      # through a link
				chmod 600 f
				(cd d; touch "b*")                      # another directory
				exit 3`,
			writes: []string{`"d/b*"`, "*", "d/*", "d/through", "f", "new"},
			exit:   3,
		},
		{
			name: "endpoints, by Python", tool: "python3",
			text: `
import socket, threading
def tcp(host, port):
    try: socket.create_connection((host, port), 5)
    except OSError: pass
def send(host, port):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (host, port))
tcp("files.example.com", 443)
tcp("203.0.113.7", 80)
tcp("127.0.0.1", 5432)
socket.getaddrinfo("looked.up.example", 80)        # selects among addresses, sends nothing
try: socket.getaddrinfo("never.invalid", 80)
except OSError: pass
send("stats.example", 8125)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("203.0.113.8", 9))  # sends nothing
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(("203.0.113.9", 9)); u.send(b"x")
s = socket.create_server(("", 0)); tcp(socket.gethostname(), s.getsockname()[1])     # served here
s = socket.create_server(("127.0.0.1", 8080)); tcp("localhost", 8080)
for path in "/run/docker.sock", "\0agent", "own.sock":
    try: socket.socket(socket.AF_UNIX).connect(path)
    except OSError: pass
socket.socket(socket.AF_UNIX).bind("own.sock")     # served here after all
`,
			net: []string{
				"127.0.0.1:5432", "203.0.113.7:80", "203.0.113.9:9/udp", "dns:looked.up.example", "dns:never.invalid",
				"files.example.com:443", "stats.example:8125/udp", "unix:/run/docker.sock", "unix:@agent",
			},
			writes: []string{"own.sock"},
		},
		{
			name: "calls that no shell makes, in C", tool: "cc",
			text: `
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <unistd.h>

static void *to_d(void *p) { return chdir("d") ? p : 0; }

static void *becomes(void *p) { execlp("sh", "sh", "-c", "touch by-thread; (sleep 1000 &) ; (trap '' TERM; sleep 1000) & exit 4", (char *)0); return p; }

int main(void) {
	char fd[64];
	int t = open(".", O_TMPFILE | O_RDWR, 0600);           // a file without a name
	sprintf(fd, "/proc/self/fd/%d", t);
	linkat(AT_FDCWD, fd, AT_FDCWD, "named", AT_SYMLINK_FOLLOW);
	open(".", O_TMPFILE | O_RDWR, 0600);
	mkdir("x", 0777);
	renameat2(AT_FDCWD, "x", AT_FDCWD, "f", RENAME_EXCHANGE);
	unlink("x");
	mkfifo("pipe", 0600);
	close(open("pipe", O_RDWR));
	unlink("pipe");

	struct mmsghdr m[2];                                   // two datagrams, one call
	struct sockaddr_in to[2];
	memset(m, 0, sizeof m);
	memset(to, 0, sizeof to);
	for (int i = 0; i < 2; i++) {
		to[i].sin_family = AF_INET;
		to[i].sin_port = htons(7 + i);
		to[i].sin_addr.s_addr = inet_addr("203.0.113.1");
		m[i].msg_hdr.msg_name = &to[i];
		m[i].msg_hdr.msg_namelen = sizeof to[i];
	}
	sendmmsg(socket(AF_INET, SOCK_DGRAM, 0), m, 2, 0);

	pthread_t thread;
	pthread_create(&thread, 0, to_d, 0);                   // threads share a directory
	pthread_join(thread, 0);
	mkdir("below-d", 0777);
	pthread_create(&thread, 0, becomes, 0);                // a thread that executes; two survivors
	for (;;) pause();
}
`,
			net:    []string{"203.0.113.1:7/udp", "203.0.113.1:8/udp"},
			writes: []string{"*", "d/below-d", "d/by-thread", "f", "named"},
			exit:   4,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			needs(t, "strace", "ip", tt.tool)
			s := repository(t)
			s.command = program(t, tt.tool, tt.text)
			r, err := s.measure(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			want := []column{{"net", tt.net, nil}, {"writes", tt.writes, nil}}
			if diff := cmp.Diff(want, r.columns, cmp.AllowUnexported(column{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("rows (-want +got):\n%snotes: %q", diff, r.notes)
			}
			if r.exitTruth != tt.exit || len(r.notes) > 0 {
				t.Errorf("got exit %d, notes %q; want %d, none", r.exitTruth, r.notes, tt.exit)
			}
			if left := names(t, s.root); !slices.Equal(left, []string{"d", "f"}) {
				t.Errorf("left behind in the repository: %q, want it as it was", left)
			}
		})
	}
}

// repository is a suite on a small tree, without a command.
func repository(t *testing.T) suite {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "f"), "f\n", 0o644)
	return suite{name: "test", root: root, dir: root, user: "root", timeout: time.Minute, keep: t.TempDir()}
}

// program makes a command of a text.
func program(t *testing.T, tool, text string) []string {
	t.Helper()
	if tool != "cc" {
		return []string{tool, "-c", text}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.c"), text, 0o644)
	out, err := exec.Command("cc", "-w", "-pthread", "-o", filepath.Join(dir, "p"), filepath.Join(dir, "p.c")).CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v: %s", err, out)
	}
	return []string{filepath.Join(dir, "p")}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestRun compares with a stand-in for gate that leaves a given record.
func TestRun(t *testing.T) {
	needs(t, "strace", "ip", "sh")
	tests := []struct {
		name   string
		record string
		exit   int
		want   []string // lines of the report, in order
	}{
		{
			"the same", `{"exit":0,"evidence":"namespace","net":[],"cpu_sec":0.5,"write_paths":["d/**","new"],"gaps":[]}`, same,
			[]string{"suite: same: net 0 rows, 0 missing, 0 extra; writes 2 rows, 0 missing, 0 extra; cpu_sec 0.50; exit 0; evidence namespace"},
		},
		{
			"rows differ", `{"exit":0,"evidence":"namespace","net":["a:1"],"write_paths":["d/**","other"]}`, different,
			[]string{
				"suite: net extra   a:1", "suite: writes missing new", "suite: writes extra   other",
				"suite: DIFFERENT: net 0 rows, 0 missing, 1 extra; writes 2 rows, 1 missing, 1 extra; cpu_sec 0.00; exit 0; evidence namespace",
			},
		},
		{
			"a gap and another exit status", `{"exit":1,"evidence":"notify","write_paths":["d/**","new"],"gaps":[{"kind":"write-cap","detail":"Too many."}]}`, different,
			[]string{
				"suite: gap: write-cap: Too many.", "suite: exit 1 under gate, 0 under strace",
				"suite: DIFFERENT: net 0 rows, 0 missing, 0 extra; writes 2 rows, 0 missing, 0 extra; cpu_sec 0.00; exit 0; evidence notify",
			},
		},
		{"no record", ``, failed, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := repository(t)
			gate := filepath.Join(t.TempDir(), "gate")
			write(t, gate, "#!/bin/sh\n# run --ledger L --record R -- CMD\ntest \"$1 $2 $4 $6\" = 'run --ledger --record --' || exit 125\n"+
				"printf '%s' '"+tt.record+"' >\"$5\"\nexit 121\n", 0o755)
			var stdout, stderr bytes.Buffer
			status := run([]string{"-gate", gate, "-fold", "d/**", "-cpu=false", "suite", s.root, "--", "sh", "-c", "touch d/x new"}, &stdout, &stderr)
			if status != tt.exit {
				t.Errorf("exit status %d, want %d; stderr: %s", status, tt.exit, stderr.String())
			}
			got := strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n")
			if diff := cmp.Diff(tt.want, got); tt.want != nil && diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOneAtATime(t *testing.T) {
	need.Root(t)
	s := repository(t)
	s.command = []string{"true"}
	unlock, err := lock(s.root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.measure(t.Context()); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("measure on a locked repository: got %v, want an error", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{"help", []string{"-h"}, same, ""},
		{"no command", []string{"name", "/"}, failed, "no command"},
		{"no root", []string{"name", "--", "true"}, failed, "wanted NAME and ROOT"},
		{"unknown flag", []string{"-x", "name", "/", "--", "true"}, failed, "flag provided but not defined: -x"},
		{"a root that does not exist", []string{"name", "/does/not/exist", "--", "true"}, failed, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if got := run(tt.args, &stdout, &stderr); got != tt.status || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("got exit status %d, stderr %q; want %d, %q", got, stderr.String(), tt.status, tt.stderr)
			}
			if help := stdout.String() == usage; help != (tt.status == same) {
				t.Errorf("stdout: %q", stdout.String())
			}
		})
	}
}

func TestFold(t *testing.T) {
	got, err := fold([]string{`"odd*/x"`, "a/b", "a/*", "c"}, []string{"a/*", "odd\\**/**", "unused"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a/*", "c", "odd\\**/**", "unused"}, got); diff != "" {
		t.Errorf("fold (-want +got):\n%s", diff)
	}
	if _, err := fold([]string{"a"}, []string{"["}); err == nil {
		t.Error("fold took a glob that is none")
	}
}
