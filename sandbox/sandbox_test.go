//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == InitArg {
		os.Exit(Init(os.Args[2:]))
	}
	os.Exit(m.Run())
}

type logger struct{ t *testing.T }

func (l logger) File(c *FileCall, who Caller) { l.t.Logf("file %+v by %+v", *c, who.Actor()) }
func (l logger) Connect(c *NetCall, who Caller) Answer {
	l.t.Logf("connect %+v by %v", *c, who.Actor().Chain)
	return Answer{}
}
func (l logger) Bind(c *NetCall, who Caller)            { l.t.Logf("bind %+v", *c) }
func (l logger) SigChild(pid int, ignored bool)         { l.t.Logf("sigchild %d %v", pid, ignored) }
func (l logger) Exit(pid int)                           { l.t.Logf("exit %d", pid) }
func (l logger) Refused(label, call string, who Caller) { l.t.Logf("refused %s %s", label, call) }
func (l logger) Gap(kind, detail string)                { l.t.Logf("GAP %s %s", kind, detail) }
func (l logger) Found(kind, detail string, who Caller)  { l.t.Logf("found %s %s", kind, detail) }

func TestFirst(t *testing.T) {
	cmdline := os.Getenv("CMDLINE")
	if cmdline == "" {
		cmdline = "id; hostname; cat /proc/self/status | grep -i cap; ls -l /proc/self; cat /etc/resolv.conf; echo hi > x; mkdir d; mv x d/y; rm -r d; ln -s /etc q; rm q; chmod 700 .; python3 -c 'import socket;s=socket.socket();s.connect((\"8.8.8.8\",80))'"
	}
	sh, _ := exec.LookPath("sh")
	start := time.Now()
	b, err := Open(t.Context(), Spec{Tier: Tier(os.Getenv("TIER")), Argv: []string{"sh", "-c", cmdline}, Path: sh, Dir: t.TempDir(), Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	fmt.Println("open", time.Since(start))
	var h Handler = logger{t}
	if os.Getenv("QUIET") != "" {
		h = quiet{}
	}
	e, err := b.Run(t.Context(), h)
	fmt.Println("run", time.Since(start), b.UserNS)
	t.Logf("%+v %v", e, err)
}

type quiet struct{}

func (quiet) File(c *FileCall, who Caller)           {}
func (quiet) Connect(c *NetCall, who Caller) Answer  { return Answer{} }
func (quiet) Bind(c *NetCall, who Caller)            {}
func (quiet) SigChild(pid int, ignored bool)         {}
func (quiet) Exit(pid int)                           {}
func (quiet) Refused(label, call string, who Caller) {}
func (quiet) Gap(kind, detail string)                {}
func (quiet) Found(kind, detail string, who Caller)  {}
