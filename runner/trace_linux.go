package runner

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/org/gate/egress"
	"github.com/org/gate/sandbox"
	"github.com/org/gate/writeset"
)

// trace writes every recorded event as a JSON line: evidence to read, never
// compared. Hostile text is quoted as in a record. A nil trace writes nothing.
type trace struct {
	root string
	mu   sync.Mutex
	out  *json.Encoder
	err  error
}

// event is one line.
type event struct {
	Time     time.Time `json:"time"`
	PID      int       `json:"pid,omitempty"`
	Program  string    `json:"program,omitempty"`
	Call     string    `json:"call,omitempty"`
	Path     string    `json:"path,omitempty"`
	To       string    `json:"to,omitempty"`
	Endpoint string    `json:"endpoint,omitempty"`
	Witness  string    `json:"witness"` // "syscall", "packet", "resolver", "snapshot"
}

func newTrace(w io.Writer, root string) *trace {
	if w == nil {
		return nil
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return &trace{root: root, out: out}
}

func (t *trace) write(e event, who sandbox.Caller) {
	if who != nil {
		e.PID = who.PID()
		e.Program = who.Program()
	}
	e.Time = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Encode(e); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *trace) file(c *sandbox.FileCall, who sandbox.Caller) {
	if t == nil {
		return
	}
	e := event{Call: c.Call, Path: writeset.Quote(relative(t.root, c.Path)), Witness: "syscall"}
	if c.To != "" {
		e.To = writeset.Quote(relative(t.root, c.To))
	}
	t.write(e, who)
}

func (t *trace) net(call string, c *sandbox.NetCall, who sandbox.Caller) {
	if t == nil {
		return
	}
	e := event{Call: call, Witness: "syscall"}
	switch transport, label := transportOf(c); {
	case transport == egress.Unix:
		e.Endpoint = "unix:" + writeset.Quote(c.Path)
	case c.Addr.IsValid() && transport == egress.UDP:
		e.Endpoint = c.Addr.String() + "/udp"
	case c.Addr.IsValid():
		e.Endpoint = c.Addr.String()
	default:
		e.Endpoint = label
	}
	t.write(e, who)
}

func (t *trace) refused(label, call string, who sandbox.Caller) {
	if t == nil {
		return
	}
	t.write(event{Call: call, Endpoint: "raw:" + label, Witness: "syscall"}, who)
}

func (t *trace) packet(p egress.Packet) {
	if t == nil {
		return
	}
	e := event{Endpoint: p.Dst.String(), Witness: "packet"}
	switch p.Transport {
	case egress.UDP:
		e.Endpoint += "/udp"
	case egress.Raw:
		e.Endpoint = "raw:" + egress.ProtocolName(p.Proto) + ":" + p.Dst.Addr().String()
	}
	t.write(e, nil)
}

func (t *trace) lookup(l egress.Lookup) {
	if t == nil {
		return
	}
	t.write(event{Call: l.Type, Endpoint: "dns:" + l.Name, Witness: "resolver"}, nil)
}

func (t *trace) change(c writeset.Change) {
	if t == nil {
		return
	}
	names := map[writeset.ChangeKind]string{writeset.Created: "created", writeset.Removed: "removed", writeset.Changed: "changed"}
	t.write(event{Call: names[c.Kind], Path: writeset.Quote(c.Path), Witness: "snapshot"}, nil)
}

// failed is the first error of a write.
func (t *trace) failed() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
