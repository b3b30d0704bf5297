package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got)\n%s", file, diff)
	}
}

func TestRender(t *testing.T) {
	seen := []string{WitnessSyscall}
	for _, tc := range []struct {
		name string
		edit func(l *Ledger, r *Record, o *RenderOptions)
	}{
		{"match", func(*Ledger, *Record, *RenderOptions) {}},
		{"match-color", func(_ *Ledger, _ *Record, o *RenderOptions) { o.Color = true }},
		{"stale", func(l *Ledger, _ *Record, _ *RenderOptions) {
			l.AllowNet, l.CPUBudget = append(l.AllowNet, "*.example.com:443"), 100
		}},
		{"stale-folds", func(l *Ledger, r *Record, _ *RenderOptions) {
			l.Fold = append(l.Fold, "a/cold-*", "b/cold-*")
			l.WritePaths, l.Writes = append(l.WritePaths, "a/cold-*", "b/cold-*"), ""
			r.Fold = l.Fold
			r.Derive()
		}},
		{"drift", func(_ *Ledger, r *Record, _ *RenderOptions) {
			who := &Who{Chain: []string{"sh", "go", "foo.test"}, PID: 4711, Dir: "internal/foo"}
			r.NetRows = append(r.NetRows, NetRow{Endpoint: "files.example.com:443", Count: 3, Witness: []string{WitnessSyscall, WitnessPacket}, Who: who})
			addNet(r, "127.0.0.1:6379")
			r.CPUSec = 12.345
			for _, p := range []string{"pkg/__pycache__/a.pyc", "pkg/__pycache__/b.pyc"} {
				addWrite(r, WriteRow{Path: p, Count: 1, Witness: seen, Who: who})
			}
			addWrite(r, WriteRow{Path: "pkg/aa", Count: 1, Witness: []string{WitnessSnapshot}})
			r.WriteRows = r.WriteRows[:len(r.WriteRows)-1] // testdata/golden/a.json
			r.Outside = append(r.Outside, OutsideRow{Path: "$HOME/.gitconfig", Count: 1, Who: who})
			r.Findings = []Finding{{Kind: "survivor", Detail: "a daemon outlived the command", Who: who}}
			r.Derive()
		}},
		{"many", func(_ *Ledger, r *Record, o *RenderOptions) {
			o.File = "capability.actual.json"
			for i := range 25 {
				r.WriteRows = append(r.WriteRows, WriteRow{Path: fmt.Sprintf("out/%02d", i), Witness: seen})
			}
			r.Derive()
		}},
		{"failed", func(_ *Ledger, r *Record, _ *RenderOptions) { r.Exit = 1 }},
		{"interrupted", func(_ *Ledger, r *Record, _ *RenderOptions) {
			r.Exit, r.Signal, r.Interrupted = 143, "SIGTERM", "SIGTSTP"
		}},
		{"killed", func(_ *Ledger, r *Record, _ *RenderOptions) {
			r.Exit, r.Signal, r.Killed, r.CPUSec = 137, "SIGKILL", KilledCPU, 10.2
		}},
		{"incomplete", func(l *Ledger, r *Record, _ *RenderOptions) {
			l.Prove = true
			r.Gaps = []Gap{{Kind: "write-cap", Detail: "more than 100000 paths were written; later ones were not kept"}}
			r.Interrupted = "SIGINT"
		}},
		{"partial", func(_ *Ledger, r *Record, _ *RenderOptions) { r.Command = []string{"go", "vet"} }},
		{"audit", func(l *Ledger, r *Record, _ *RenderOptions) { l.Mode = Audit; addNet(r, "telemetry.example.com:443") }},
		{"digest", func(l *Ledger, _ *Record, _ *RenderOptions) {
			l.WritePaths, l.HasPaths, l.Writes = nil, false, emptyDigest
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, r, o := goodLedger(), goodRecord(), RenderOptions{}
			tc.edit(l, r, &o)
			v := Compare(l, r, Options{})
			var buf bytes.Buffer
			if err := Render(&buf, &v, o); err != nil {
				t.Fatal(err)
			}
			golden(t, "render-"+tc.name, buf.Bytes())
		})
	}
}

// Whatever a record says, the terminal acts on none of it, and no line can be
// taken for one of gate's.
func TestRenderHostile(t *testing.T) {
	evil := hostile + "\ngate: match\r\xff\x00"
	who := &Who{Chain: []string{evil}, Dir: evil}
	v := Verdict{
		Status: Failed, Exit: 1, Signal: evil, Interrupted: evil, Mode: evil,
		Columns:  []Column{{Name: evil}},
		Drifts:   []Drift{{Column: evil, Kind: evil, Row: evil, Who: who, Witness: []string{evil}, Cause: evil, Do: evil}},
		Reasons:  []Reason{{evil, evil, evil}},
		Stale:    []Stale{{Key: evil, Entry: evil, Detail: evil}},
		Notes:    []string{evil},
		Findings: []Finding{{Kind: evil, Detail: evil, Who: who}},
	}
	var buf bytes.Buffer
	if err := Render(&buf, &v, RenderOptions{File: evil}); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(buf.String(), "\n"), "\n") {
		if !strings.HasPrefix(line, "gate: ") || i > 0 && line == "gate: match" {
			t.Errorf("line %d is not gate's: %q", i, line)
		}
		if j := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); j >= 0 || strings.Contains(line, "\ufffd") {
			t.Errorf("line %d has a raw character: %q", i, line)
		}
	}
}

func TestVerdictJSON(t *testing.T) {
	l, r := goodLedger(), goodRecord()
	addNet(r, "files.example.com:443")
	v := Compare(l, r, Options{})
	text, err := v.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "verdict-json", text)

	l, r = goodLedger(), goodRecord()
	v = Compare(l, r, Options{})
	if text, err = v.Encode(); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"columns", "drifts", "reasons", "stale", "notes", "findings"} {
		if _, ok := m[key].([]any); !ok {
			t.Errorf("%s: got %v, want a list even if it is empty", key, m[key])
		}
	}
}

func TestHint(t *testing.T) {
	inner := &Error{Op: "read", Path: "x", Msg: "bad", Hint: "inner"}
	outer := &Error{Op: "load", Path: "y", Err: fmt.Errorf("wrapped: %w", inner)}
	if got := Hint(fmt.Errorf("run: %w", outer)); got != "inner" {
		t.Errorf("got %q, want the hint of the cause", got)
	}
	if got, want := outer.Error(), "load y: wrapped: read x: bad"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Hint(errors.New("plain")); got != "" {
		t.Errorf("got %q, want none", got)
	}
}
