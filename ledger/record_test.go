package ledger

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goodRecord is the record of a run that goodLedger accepts.
func goodRecord() *Record {
	who := &Who{Chain: []string{"go", "x.test"}, PID: 7, Dir: "internal/x", At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	r := &Record{
		Version: Version, Gate: "0.1.0", Command: []string{"go", "test", "./..."}, Dir: ".",
		Evidence: TierNamespace, Mode: Enforce, Gaps: []Gap{},
		CPUSec: 3.5, CPUBudget: 10,
		Fold: []string{"cache/**"},
		NetRows: []NetRow{
			{Endpoint: "127.0.0.1:5432", Count: 3, Witness: []string{WitnessSyscall}, Calls: []string{"connect"}, Door: true, Who: who},
		},
		WriteRows: []WriteRow{
			{Path: "cache/a", Fold: "cache/**", Count: 1, Witness: []string{WitnessSyscall}, Who: who},
			{Path: "testdata/golden/a.json", Count: 2, Calls: []string{"openat"}, Witness: []string{WitnessSyscall, WitnessSnapshot}, Who: who},
		},
		Outside:    []OutsideRow{{Path: "$TMPDIR/**", Allowed: "$TMPDIR/**", Count: 12}},
		Started:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Ended:      time.Date(2026, 1, 2, 3, 4, 15, 0, time.UTC),
		Host:       Host{OS: "linux", Arch: "amd64", UID: 1000},
		LedgerFile: &LedgerFile{Path: "capability.ledger.json", SHA256: emptyDigest},
	}
	r.Derive()
	return r
}

func goodLedger() *Ledger {
	r := goodRecord()
	return &Ledger{
		Version: Version, Command: r.Command, Mode: Enforce, AllowNet: []string{"127.0.0.1:5432"}, CPUBudget: 10,
		Writes: r.Writes, WritePaths: r.WritePaths, HasPaths: true, Fold: r.Fold,
	}
}

// hostile is text that harms whoever prints it as it is.
const hostile = "\x1b]0;gone\x07</pre>&\"\\\u202e\u009b\u2028"

func TestRecordRoundTrip(t *testing.T) {
	r := goodRecord()
	r.Findings = []Finding{{Kind: "survivor", Detail: hostile}}
	r.Git = &Git{Commit: strings.Repeat("a", 40), Parents: []string{}}
	r.PositiveControl = &PositiveControl{Passed: 3, Total: 3, Version: "1"}
	r.Folded = []Folded{{Glob: "cache/**", Count: 9, Listed: 1}}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.IndexFunc(text, func(c rune) bool {
		return c < 0x20 && c != '\n' || 0x7f <= c && c < 0xa0 || c == '\u202e' || c == '\u2028'
	}); i >= 0 {
		t.Errorf("found the raw character %q in the text", text[i])
	}
	got, err := ParseRecord("r.json", text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again, err := got.Encode()
	if err != nil || !bytes.Equal(text, again) {
		t.Errorf("no fixpoint: %v\n%s\n%s", err, text, again)
	}
}

func TestRecordEncodeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*Record)
		want string
	}{
		{"not derived", func(r *Record) { r.Net = nil }, "net: is not"},
		{"no number", func(r *Record) { r.CPUSec = math.NaN() }, "cpu_sec: found NaN"},
		{"no number below", func(r *Record) { r.CPU.Reaped = math.Inf(1) }, "unsupported value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := goodRecord()
			tc.edit(r)
			if _, err := r.Encode(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q in it", err, tc.want)
			}
		})
	}
}

// recordEdits are edits of a good record's JSON, each of which ParseRecord must
// refuse. schema says whether the published schema refuses it as well, which
// it can where the form alone is wrong.
var recordEdits = []struct {
	name   string
	edit   func(m map[string]any)
	want   string
	schema bool
}{
	{"unknown key", func(m map[string]any) { m["extra"] = 1 }, `found the unknown key "extra"`, true},
	{"fewer tests than none", func(m map[string]any) { m["tests"] = map[string]any{"passed": -1, "failed": 0, "skipped": 0} }, "tests: found -1 passed", true},
	{"unknown key below", func(m map[string]any) { m["host"].(map[string]any)["OS"] = "x" }, `found the unknown key "host.OS"`, true},
	{"missing key", func(m map[string]any) { delete(m, "gaps") }, `key "gaps" is missing`, true},
	{"missing key below", func(m map[string]any) { delete(row(m, "write_rows", 0), "witness") }, `key "write_rows[0].witness" is missing`, true},
	{"null", func(m map[string]any) { m["net"] = nil }, "net: found null, wanted a list", true},
	{"version", func(m map[string]any) { m["version"] = 2 }, "version: found 2", true},
	{"no version", func(m map[string]any) { delete(m, "version") }, `key "version" is missing`, true},
	{"empty command", func(m map[string]any) { m["command"] = []any{} }, "command: is empty", true},
	{"status", func(m map[string]any) { m["exit"] = 256 }, "exit: found 256", true},
	{"fraction", func(m map[string]any) { m["exit"] = 0.5 }, "exit: found 0.5, wanted a whole number", true},
	{"tier", func(m map[string]any) { m["evidence"] = "good" }, `evidence: found "good"`, true},
	{"mode", func(m map[string]any) { m["mode"] = "off" }, `mode: found "off"`, true},
	{"killed", func(m map[string]any) { m["killed"] = "boredom" }, `killed: found "boredom"`, true},
	{"negative seconds", func(m map[string]any) { m["cpu_sec"] = -1 }, "cpu_sec: found -1", true},
	{"no time", func(m map[string]any) { m["started"] = "yesterday" }, "started: found a string, wanted a time", true},
	{"died of a signal with status 0", func(m map[string]any) { m["signal"] = "SIGKILL" }, "signal: the command died", false},
	{"an endpoint taken out of net", func(m map[string]any) { m["net"] = []any{} }, "net: is not the sorted list", false},
	{"an endpoint's row taken out", func(m map[string]any) { m["net_rows"] = []any{} }, "net: is not the sorted list", false},
	{"an endpoint twice", func(m map[string]any) { m["net_rows"] = append(m["net_rows"].([]any), row(m, "net_rows", 0)) }, "net: is not the sorted list", false},
	{"a row taken out of write_paths", func(m map[string]any) { m["write_paths"] = []any{"cache/**"} }, "write_paths: is not the sorted set", false},
	{"a write row taken out", func(m map[string]any) { m["write_rows"] = m["write_rows"].([]any)[:1] }, "write_paths: is not the sorted set", false},
	{"a write row twice", func(m map[string]any) { m["write_rows"] = append(m["write_rows"].([]any), row(m, "write_rows", 0)) }, "stands there twice", false},
	{"another digest", func(m map[string]any) { m["writes"] = emptyDigest }, "writes: found", false},
	{"a row under a fold that does not match", func(m map[string]any) { row(m, "write_rows", 1)["fold"] = "cache/**" }, "is counted under the fold", false},
	{"a row outside", func(m map[string]any) { row(m, "write_rows", 1)["path"] = "../x" }, "wanted a clean path", false},
	{"a fold that does not parse", func(m map[string]any) { m["fold"] = []any{"["} }, "glob", false},
	{"folded under no fold", func(m map[string]any) {
		m["folded"] = []any{map[string]any{"glob": "x/**", "count": 1, "listed": 0}}
	}, "which is no fold", false},
	{"folded rows listed that are not", func(m map[string]any) {
		m["folded"] = []any{map[string]any{"glob": "cache/**", "count": 9, "listed": 5}}
	}, "folded says", false},
	{"more controls passed than ran", func(m map[string]any) {
		m["positive_control"] = map[string]any{"passed": 4, "total": 3, "version": "1"}
	}, "positive_control: found 4 passed of 3", false},
}

func row(m map[string]any, key string, i int) map[string]any {
	return m[key].([]any)[i].(map[string]any)
}

// editRecord gives a good record's JSON after an edit.
func editRecord(t *testing.T, edit func(map[string]any)) []byte {
	t.Helper()
	text, err := goodRecord().Encode()
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	edit(m)
	if text, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseRecordRefuses(t *testing.T) {
	if _, err := ParseRecord("r.json", editRecord(t, func(map[string]any) {})); err != nil {
		t.Fatalf("unedited: %v", err)
	}
	for _, tc := range recordEdits {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ParseRecord("r.json", editRecord(t, tc.edit))
			if err == nil || !strings.HasPrefix(err.Error(), "parse r.json:") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a place and %q", err, tc.want)
			}
		})
	}
	t.Run("repeated key", func(t *testing.T) {
		text := bytes.Replace(editRecord(t, func(map[string]any) {}), []byte(`"exit":0`), []byte(`"exit":0,"exit":0`), 1)
		if _, err := ParseRecord("r.json", text); err == nil || !strings.Contains(err.Error(), `key "exit" stands here again`) {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	text, err := goodRecord().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecord("r.json", data)
		if err != nil {
			if strings.Contains(err.Error(), "BUG") {
				t.Fatal(err)
			}
			return
		}
		text, err := r.Encode()
		if err != nil {
			t.Fatalf("a record that was read cannot be written: %v", err)
		}
		if _, err := ParseRecord("r.json", text); err != nil {
			t.Fatalf("own text refused: %v", err)
		}
	})
}
