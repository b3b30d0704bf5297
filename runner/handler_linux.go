package runner

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/org/gate/egress"
	"github.com/org/gate/ledger"
	"github.com/org/gate/rusage"
	"github.com/org/gate/sandbox"
	"github.com/org/gate/writeset"
)

// actors interns who made a call and when, so that a row carries an index.
type actors struct {
	root  string
	mu    sync.Mutex
	who   []ledger.Who
	first map[*sandbox.Actor]int // index in list
	list  []sighting
}

// sighting is one actor at one time.
type sighting struct {
	who int32
	at  time.Time
}

// Bounds of the lists. Beyond them, a call carries the time of its actor's
// first one, and a new actor is nobody.
const (
	maxSightings = 1 << 20
	maxActors    = 1 << 16
)

// of gives the function that a recorder calls when it starts a row.
func (a *actors) of(c sandbox.Caller) func() int {
	return func() int { return a.add(c.Actor()) }
}

func (a *actors) add(actor *sandbox.Actor) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, known := a.first[actor]
	switch {
	case len(a.list) == maxSightings && known:
		return first
	case len(a.list) == maxSightings, !known && len(a.who) == maxActors:
		return -1
	case known:
		a.list = append(a.list, sighting{a.list[first].who, time.Now()})
	default:
		a.first[actor] = len(a.list)
		a.list = append(a.list, sighting{int32(len(a.who)), time.Now()})
		a.who = append(a.who, ledger.Who{
			Chain: actor.Chain, PID: actor.PID, Argv: actor.Argv, Dir: relative(a.root, actor.Dir),
		})
	}
	return len(a.list) - 1
}

// get is nil for an index that stands for nobody.
func (a *actors) get(i int) *ledger.Who {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i < 0 || i >= len(a.list) {
		return nil
	}
	who := a.who[a.list[i].who]
	who.At = a.list[i].at
	return &who
}

// relative spells a directory as seen from the repository, where it lies inside.
func relative(root, dir string) string {
	if dir == root {
		return "."
	}
	if rest, ok := strings.CutPrefix(dir, root+"/"); ok {
		return rest
	}
	return dir
}

// handler takes what the sandbox decodes to the three recorders.
type handler struct {
	net    *egress.Recorder
	writes *writeset.Recorder
	cpu    *rusage.Meter
	who    *actors
	trace  *trace
	shared *shared // Notify alone

	redirected map[inode]bool // files outside that the caller sent an output to

	gaps     tally
	findings tally
	exits    int64
}

var _ sandbox.Handler = (*handler)(nil)

// ops maps the sandbox's operations to those of column 3.
var ops = map[sandbox.Op]writeset.Op{
	sandbox.Create: writeset.Create, sandbox.Modify: writeset.Modify, sandbox.Meta: writeset.Meta,
	sandbox.Remove: writeset.Remove, sandbox.Rename: writeset.Rename, sandbox.Exchange: writeset.Exchange,
	sandbox.Link: writeset.Link,
}

// renamings maps those that give a socket another name to what column 1 calls them.
var renamings = map[sandbox.Op]egress.Renaming{
	sandbox.Rename: egress.Moved, sandbox.Exchange: egress.Swapped, sandbox.Link: egress.Linked, sandbox.Remove: egress.Unlinked,
}

// inode is a file, whatever its path.
type inode struct{ dev, ino uint64 }

func (h *handler) File(c *sandbox.FileCall, who sandbox.Caller) {
	if c.Op == sandbox.Modify && h.redirected[inode{c.Before.Dev, c.Before.Ino}] {
		return // the caller's redirection: /dev/stdout opens it anew
	}
	h.writes.Record(writeset.Event{
		Op: ops[c.Op], Call: c.Call,
		Path: c.Path, Before: writeset.State(c.Before),
		To: c.To, ToBefore: writeset.State(c.ToBefore),
		Actor: h.who.of(who),
	})
	if how := renamings[c.Op]; how != 0 {
		h.net.Rename(how, c.Path, c.To, c.Before.Dir || c.ToBefore.Dir)
	}
	h.trace.file(c, who)
}

func (h *handler) Connect(c *sandbox.NetCall, who sandbox.Caller) sandbox.Answer {
	transport, label := transportOf(c)
	h.trace.net(c.Call, c, who)
	if h.shared != nil && h.shared.serves(c.Addr) {
		return h.shared.lookup(c, h.who.of(who))
	}
	attempt := egress.Attempt{
		Call: c.Call, Transport: transport, Addr: c.Addr, Path: c.Path, Exists: c.Exists, Label: label,
		Actor: h.who.of(who),
	}
	if transport == egress.Raw && c.Addr.IsValid() {
		attempt.Errno = int(syscall.ENETUNREACH) // in the namespace every address would answer a ping
	}
	a := answer(h.net.Attempt(attempt))
	switch {
	case h.shared == nil:
		return a
	case h.shared.sinks(c, transport):
		actor := h.who.add(who.Actor()) // the sink may be tried when this method has returned
		attempt.Actor, attempt.Unwitnessed = func() int { return actor }, true
		return h.shared.sink(c.Addr, func() sandbox.Answer { return answer(h.net.Attempt(attempt)) })
	}
	return h.shared.farEnd(a, c, transport)
}

// packet takes what the second witness sees.
func (h *handler) packet(p egress.Packet) {
	h.trace.packet(p)
	h.net.Packet(p)
}

func answer(d egress.Decision) sandbox.Answer {
	a := sandbox.Answer{Errno: d.Errno}
	if d.Later != nil {
		a.Later = func() sandbox.Answer { return answer(d.Later()) }
	}
	return a
}

func (h *handler) Bind(c *sandbox.NetCall, who sandbox.Caller) {
	transport, _ := transportOf(c)
	h.net.Bind(egress.Bind{Transport: transport, Addr: c.Addr, Path: c.Path, Actor: h.who.of(who)})
	h.trace.net("bind", c, who)
}

// Numbers of the socket API (bits/socket.h, linux/in.h); the sandbox hands
// them on as the kernel has them.
const (
	afUnix, afVsock                 = 1, 40
	sockStream, sockDgram, sockRaw  = 1, 2, 3
	protoTCP, protoUDP, protoMPTCP  = 6, 17, 262
	protoICMP, protoICMPv6, protoIP = 1, 58, 0
)

// transportOf tells what a socket speaks, and the label of what has no port.
func transportOf(c *sandbox.NetCall) (egress.Transport, string) {
	switch {
	case c.Family == afUnix:
		return egress.Unix, ""
	case c.Family == afVsock:
		return egress.Vsock, c.Label
	case c.Label != "":
		return egress.Raw, c.Label
	case c.Type == sockRaw, c.Protocol == protoICMP, c.Protocol == protoICMPv6:
		return egress.Raw, egress.ProtocolName(uint8(c.Protocol))
	case c.Type == sockStream && (c.Protocol == protoTCP || c.Protocol == protoMPTCP || c.Protocol == protoIP):
		return egress.TCP, ""
	case c.Type == sockDgram && (c.Protocol == protoUDP || c.Protocol == protoIP):
		return egress.UDP, ""
	case c.Protocol > 0 && c.Protocol < 256 && c.Type != sandbox.SockUnknown:
		return egress.Raw, egress.ProtocolName(uint8(c.Protocol))
	}
	return egress.Unknown, ""
}

func (h *handler) SigChild(tid int, ignored, noWait bool) { h.cpu.SigChild(tid, ignored, noWait) }

func (h *handler) Exit(tid int) {
	h.exits++
	h.cpu.Exit(tid)
}

func (h *handler) Refused(label, call string, who sandbox.Caller) {
	h.net.Attempt(egress.Attempt{Call: call, Transport: egress.Raw, Label: label, Actor: h.who.of(who)})
	h.trace.refused(label, call, who)
}

func (h *handler) Gap(kind, detail string) { h.gaps.add(kind, detail, -1) }

func (h *handler) Found(kind, detail string, who sandbox.Caller) {
	h.findings.add(kind, detail, h.who.add(who.Actor()))
}

// tally counts notes of one kind and keeps the first of each detail, so that
// a storm of them stays small.
type tally struct {
	mu    sync.Mutex
	notes []note
}

type note struct {
	kind, detail string
	count        int64
	actor        int
}

// maxNotes bounds the distinct notes of one run; later ones raise the last.
const maxNotes = 100

func (t *tally) add(kind, detail string, actor int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.notes {
		if t.notes[i].kind == kind && (t.notes[i].detail == detail || i == maxNotes-1) {
			t.notes[i].count++
			return
		}
	}
	if len(t.notes) == maxNotes {
		t.notes[maxNotes-1].count++
		return
	}
	t.notes = append(t.notes, note{kind, detail, 1, actor})
}

func (t *tally) gaps() []ledger.Gap {
	out := []ledger.Gap{}
	for _, n := range t.notes {
		out = append(out, ledger.Gap{Kind: n.kind, Detail: n.detail, Count: n.count})
	}
	return out
}

func (t *tally) findings(who *actors) []ledger.Finding {
	var out []ledger.Finding
	for _, n := range t.notes {
		detail := n.detail
		if n.count > 1 {
			detail = fmt.Sprintf("%s (%d times)", detail, n.count)
		}
		out = append(out, ledger.Finding{Kind: n.kind, Detail: detail, Who: who.get(n.actor)})
	}
	return out
}

// resolved follows the symlinks of a directory; one that does not exist stays
// as it is, and an unset one stays empty.
func resolved(dir string) string {
	if dir == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}
