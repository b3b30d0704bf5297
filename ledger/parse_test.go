package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/writeset"
)

const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// full is a ledger with every key, in canonical form.
const full = `{
  "version": 1,
  "command": ["go", "test", "-run", "<X> & 'Y'", "./..."],
  "mode": "audit",
  "allow_net": [
    "127.0.0.1:5432",
    "[2001:db8::1]:53/udp"
  ],
  "cpu_budget": 30.5,
  "writes": "%s",
  "write_paths": [
    "\"a\\tb\"",
    ".next/**",
    "testdata/golden/a.json",
    "tmp/*"
  ],
  "allow_write": [
    "$HOME/.cache/**",
    "$TMPDIR/**"
  ],
  "fold": [
    ".next/**"
  ],
  "evidence": "namespace",
  "prove": true,
  "parts": [
    "linux 1",
    "linux 2"
  ],
  "paths": [
    "src/**"
  ],
  "self_accept": true,
  "min_tests": 12
}
`

var fullRows = []string{`"a\tb"`, ".next/**", "testdata/golden/a.json", "tmp/*"}

func fullText() string { return fmt.Sprintf(full, writeset.Digest(fullRows)) }

func fullLedger() *Ledger {
	return &Ledger{
		Version: 1, Command: []string{"go", "test", "-run", "<X> & 'Y'", "./..."}, Mode: Audit,
		AllowNet: []string{"127.0.0.1:5432", "[2001:db8::1]:53/udp"}, CPUBudget: 30.5,
		Writes: writeset.Digest(fullRows), WritePaths: fullRows, HasPaths: true,
		AllowWrite: []string{"$HOME/.cache/**", "$TMPDIR/**"}, HasAllowWrite: true,
		Fold: []string{".next/**"}, Evidence: TierNamespace, Prove: true,
		Parts: []string{"linux 1", "linux 2"}, Paths: []string{"src/**"}, SelfAccept: true, MinTests: 12,
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     *Ledger
	}{
		{"the article's three keys", `{"allow_net": [], "cpu_budget": 30, "writes": "` + emptyDigest + `"}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 30, Writes: emptyDigest}},
		{"rows without digest", `{"cpu_budget": 0.5, "write_paths": ["b", "a"]}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 0.5, WritePaths: []string{"a", "b"}, HasPaths: true}},
		{"no rows without digest", `{"cpu_budget": 1e3, "write_paths": []}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 1000, HasPaths: true}},
		{"nothing outside", `{"cpu_budget": 1, "write_paths": [], "allow_write": []}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 1, HasPaths: true, HasAllowWrite: true}},
		{"the root of the repository", `{"cpu_budget": 1, "write_paths": [".", "*"]}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 1, WritePaths: []string{"*", "."}, HasPaths: true}},
		{"a surrogate pair and an escape", `{"cpu_budget": 1, "write_paths": ["\ud83d\ude00", "\u0041"]}`,
			&Ledger{Version: 1, Mode: Enforce, CPUBudget: 1, WritePaths: []string{"A", "😀"}, HasPaths: true}},
		{"every key", fullText(), fullLedger()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse("l.json", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	const ok = `"cpu_budget": 1, "writes": "` + emptyDigest + `"`
	for _, tc := range []struct {
		name, in string
		want     string // the error begins with "parse l.json:" and this
		hint     string // part of it
	}{
		{"empty", "", "1:1: the file is empty", ""},
		{"blank", " \n", "1:1: the file is empty", ""},
		{"byte order mark", "\xef\xbb\xbf{}", "1:1: found a byte order mark", "without BOM"},
		{"not UTF-8", "{\n\"é\": \"\xff\"}", "2:7: found the byte 0xff, wanted UTF-8", "C-quoted"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "1:1: found the byte 0xff", ""},
		{"no JSON", "version: 1", "1:1: invalid character 'v'", "no comments"},
		{"a comment", "{\n  // x\n}", "2:3: invalid character '/'", "no comments"},
		{"trailing comma", `{"version": 1,}`, "1:15: invalid character '}'", "no comma after the last"},
		{"cut off", `{"version": 1`, "1:14: the file ends in the middle", ""},
		{"trailing data", "{" + ok + "}\n{}", "2:1: invalid character '{' after top-level value", ""},
		{"a list", "[]", "1:1: found a list, wanted an object", ""},
		{"null", "null", "1:1: found null, wanted an object", ""},
		{"version before anything else", `{"later": true, "version": 2}`, "1:28: version: found 2, this gate knows 1", "later"},
		{"version as text", `{"version": "1"}`, `1:13: version: found a string, wanted 1`, ""},
		{"version as fraction", `{"version": 1.0}`, `1:13: version: found 1.0`, ""},
		{"unknown key", `{"alow_net": []}`, `1:2: found the unknown key "alow_net", wanted one of version, command`, `did you mean "allow_net"?`},
		{"key in another case", `{"Writes": ""}`, `1:2: found the unknown key "Writes"`, `did you mean "writes"?`},
		{"key with a dash", `{"allow-net": []}`, `1:2: found the unknown key "allow-net"`, `did you mean "allow_net"?`},
		{"repeated key", "{\n\"cpu_budget\": 1,\n\"cpu_budget\": 2}", `3:1: key "cpu_budget" stands here again (first on line 2)`, ""},
		{"repeated by an escape", `{"mode": "audit", "\u006dode": "enforce"}`, `1:19: key "mode" stands here again`, ""},
		{"repeated below", `{"x": [{"a": 1, "a": 2}]}`, `1:17: key "a" stands here again`, ""},
		{"half a surrogate pair", `{"cpu_budget": 1, "write_paths": ["a\ud800"]}`, `1:37: found half of a surrogate pair`, ""},
		{"a pair the wrong way", `{"\udc00\ud800": 1}`, `1:3: found half of a surrogate pair`, ""},
		{"null value", `{"mode": null, ` + ok + `}`, `1:10: mode: found null, wanted a string`, ""},
		{"text for a list", `{"allow_net": "a:1", ` + ok + `}`, `1:15: allow_net: found a string, wanted a list`, ""},
		{"number in a list", `{"allow_net": [1], ` + ok + `}`, `1:16: allow_net[0]: found 1, wanted a string`, ""},
		{"text for a bool", `{"prove": "yes", ` + ok + `}`, `1:11: prove: found a string, wanted true or false`, ""},
		{"no budget", `{"writes": "` + emptyDigest + `"}`, `1:1: key "cpu_budget" is missing`, ""},
		{"no tests", `{"min_tests": 0, ` + ok + `}`, `1:15: min_tests: found 0, wanted the number of tests`, "leave the key out"},
		{"fewer than no tests", `{"min_tests": -1, ` + ok + `}`, `1:15: min_tests: found -1`, ""},
		{"half a test", `{"min_tests": 1.5, ` + ok + `}`, `1:15: min_tests: found 1.5, wanted`, ""},
		{"tests as text", `{"min_tests": "12", ` + ok + `}`, `1:15: min_tests: found a string, wanted`, ""},
		{"tests beyond all", `{"min_tests": 99999999999999999999, ` + ok + `}`, `1:15: min_tests: found 99999999999999999999`, ""},
		{"budget zero", `{"cpu_budget": 0}`, `1:16: cpu_budget: found 0, wanted user CPU seconds`, ""},
		{"budget negative", `{"cpu_budget": -1}`, `1:16: cpu_budget: found -1`, ""},
		{"budget minus zero", `{"cpu_budget": -0}`, `1:16: cpu_budget: found -0`, ""},
		{"budget beyond a duration", `{"cpu_budget": 1e10}`, `1:16: cpu_budget: found 1e10`, ""},
		{"budget infinite", `{"cpu_budget": 1e999}`, `1:16: cpu_budget: found 1e999, wanted a number`, ""},
		{"budget as text", `{"cpu_budget": "30"}`, `1:16: cpu_budget: found a string, wanted a number`, ""},
		{"empty command", `{"command": [], ` + ok + `}`, `1:13: command: found no program`, "leave the key out"},
		{"command without a name", `{"command": [""], ` + ok + `}`, `1:13: command: found no program`, ""},
		{"command with NUL", `{"command": ["a", "\u0000"], ` + ok + `}`, `1:19: command[1]: found`, ""},
		{"command with what stands for no UTF-8", `{"command": ["\ufffd"], ` + ok + `}`, `1:14: command[0]: found`, ""},
		{"mode", `{"mode": "enforced", ` + ok + `}`, `1:10: mode: found "enforced", wanted one of enforce, audit`, `did you mean "enforce"?`},
		{"empty mode", `{"mode": "", ` + ok + `}`, `1:10: mode: found ""`, ""},
		{"evidence", `{"evidence": "strong", ` + ok + `}`, `1:14: evidence: found "strong", wanted one of namespace, notify, weak`, ""},
		{"empty evidence", `{"evidence": "", ` + ok + `}`, `1:14: evidence: found ""`, ""},
		{"endpoint without port", `{"allow_net": ["example.com"], ` + ok + `}`, `1:16: allow_net[0]: endpoint "example.com"`, "host:port"},
		{"endpoint twice", "{\"allow_net\": [\"a:1\",\n\"a:1\"], " + ok + `}`, `2:1: allow_net[1]: "a:1" stands here again`, ""},
		{"digest too short", `{"cpu_budget": 1, "writes": "e3b0"}`, `1:29: writes: found "e3b0", wanted a SHA-256`, emptyDigest},
		{"digest in capitals", `{"cpu_budget": 1, "writes": "` + strings.ToUpper(emptyDigest) + `"}`, `1:29: writes: found`, ""},
		{"neither digest nor rows", `{"cpu_budget": 1}`, `1:1: found neither "writes" nor "write_paths"`, "gate init"},
		{"rows that do not hash", `{` + ok + `, "write_paths": ["a"]}`, `1:29: writes: found ` + emptyDigest + `, but write_paths hashes to ` + writeset.Digest([]string{"a"}), "leave the key out"},
		{"row twice", `{"cpu_budget": 1, "write_paths": ["a", "a"]}`, `1:40: write_paths[1]: "a" stands here again`, ""},
		{"absolute row", `{"cpu_budget": 1, "write_paths": ["/etc/passwd"]}`, `1:35: write_paths[0]: row "/etc/passwd": wanted a clean path below the repository`, ""},
		{"row that climbs out", `{"cpu_budget": 1, "write_paths": ["../x"]}`, `1:35: write_paths[0]: row "../x"`, ""},
		{"row with .. inside", `{"cpu_budget": 1, "write_paths": ["a/../b"]}`, `1:35: write_paths[0]`, ""},
		{"row with ..", `{"cpu_budget": 1, "write_paths": [".."]}`, `1:35: write_paths[0]`, ""},
		{"row with a final slash", `{"cpu_budget": 1, "write_paths": ["a/"]}`, `1:35: write_paths[0]`, ""},
		{"empty row", `{"cpu_budget": 1, "write_paths": [""]}`, `1:35: write_paths[0]`, ""},
		{"row that needs quotes", `{"cpu_budget": 1, "write_paths": ["a\tb"]}`, `1:35: write_paths[0]`, ""},
		{"row with needless quotes", `{"cpu_budget": 1, "write_paths": ["\"ab\""]}`, `1:35: write_paths[0]`, ""},
		{"row with half its quotes", `{"cpu_budget": 1, "write_paths": ["\"a\\t"]}`, `1:35: write_paths[0]`, ""},
		{"quoted row that climbs out", `{"cpu_budget": 1, "write_paths": ["\"../a\\t\""]}`, `1:35: write_paths[0]`, ""},
		{"glob that is no fold", `{"cpu_budget": 1, "write_paths": ["a/**"]}`, `1:35: write_paths[0]: row "a/**": a glob that is no fold of this file`, ""},
		{"row under a fold", `{"cpu_budget": 1, "fold": ["a/**"], "write_paths": ["a/**", "a/b"]}`, `1:61: write_paths[1]: row "a/b": falls under the fold "a/**"`, ""},
		{"fold that is no row", `{"cpu_budget": 1, "fold": ["a/**"], "write_paths": ["b"]}`, `1:52: write_paths: the fold "a/**" is missing`, "add it as a row"},
		{"broken glob", `{"fold": ["a["], ` + ok + `}`, `1:11: fold[0]: glob "a["`, ""},
		{"absolute glob", `{"fold": ["/a"], ` + ok + `}`, `1:11: fold[0]`, ""},
		{"glob twice", `{"fold": ["a", "a"], ` + ok + `}`, `1:16: fold[1]: "a" stands here again`, ""},
		{"too many globs", `{"fold": [` + strings.Repeat(`"a",`, MaxFolds) + `"b"], ` + ok + `}`, `1:10: fold: found 257 globs, wanted at most 256`, ""},
		{"broken path filter", `{"paths": ["a/../b"], ` + ok + `}`, `1:12: paths[0]`, ""},
		{"relative place", `{"allow_write": ["tmp/**"], ` + ok + `}`, `1:18: allow_write[0]: entry "tmp/**"`, "$TMPDIR"},
		{"variable inside a place", `{"allow_write": ["/tmp/$USER/**"], ` + ok + `}`, `1:18: allow_write[0]`, ""},
		{"variable with a tail", `{"allow_write": ["$TMPDIR.x"], ` + ok + `}`, `1:18: allow_write[0]`, ""},
		{"place that climbs", `{"allow_write": ["$TMPDIR/../**"], ` + ok + `}`, `1:18: allow_write[0]`, ""},
		{"root as a place", `{"allow_write": ["/"], ` + ok + `}`, `1:18: allow_write[0]`, ""},
		{"nameless part", `{"parts": [""], ` + ok + `}`, `1:12: parts[0]: found ""`, ""},
		{"part with a control character", `{"parts": ["a\u001b"], ` + ok + `}`, `1:12: parts[0]: found "a\x1b"`, ""},
		{"part twice", `{"parts": ["a", "a"], ` + ok + `}`, `1:17: parts[1]`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := Parse("l.json", []byte(tc.in))
			if err == nil {
				t.Fatalf("got %+v, want an error", l)
			}
			if got, want := err.Error(), "parse l.json:"+tc.want; !strings.HasPrefix(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := Hint(err); !strings.Contains(got, tc.hint) {
				t.Errorf("hint: got %q, want %q in it", got, tc.hint)
			}
		})
	}
}

func TestParseDeep(t *testing.T) {
	for _, n := range []int{1000, 1 << 19} {
		in := `{"version": 1, "x": ` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
		if _, err := Parse("l.json", []byte(in)); err == nil {
			t.Errorf("depth %d: got no error", n)
		}
	}
}

func TestEncode(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   *Ledger
		want string
	}{
		{"every key", fullLedger(), fullText()},
		{"unsorted lists", &Ledger{CPUBudget: 2, AllowNet: []string{"b:1", "a:1"}, Writes: emptyDigest}, `{
  "version": 1,
  "allow_net": [
    "a:1",
    "b:1"
  ],
  "cpu_budget": 2,
  "writes": "` + emptyDigest + `"
}
`},
		{"rows alone, none", &Ledger{CPUBudget: 1, HasPaths: true}, `{
  "version": 1,
  "allow_net": [],
  "cpu_budget": 1,
  "write_paths": []
}
`},
		{"what a terminal acts on", &Ledger{CPUBudget: 1, Command: []string{"a\x1b[31m", "\u202e\u009b\U000e0001"}, HasPaths: true}, `{
  "version": 1,
  "command": ["a\u001b[31m", "\u202e\u009b\udb40\udc01"],
  "allow_net": [],
  "cpu_budget": 1,
  "write_paths": []
}
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(tc.in.Encode())); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		fullText(), `{"cpu_budget": 1, "write_paths": []}`, `{"cpu_budget":1e-300,"writes":"` + emptyDigest + `"}`,
		`{"cpu_budget": 1, "fold": ["a/*", "[!a-z]/**"], "write_paths": ["a/*", "[!a-z]/**", "B"]}`,
		`{"cpu_budget": 1, "write_paths": ["\"\\303\\050\"", "\ud83d\ude00"]}`, "{", `[1]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("l.json", data)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || strings.Contains(err.Error(), "BUG") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		text := l.Encode()
		again, err := Parse("l.json", text)
		if err != nil {
			t.Fatalf("own text refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(l, again); diff != "" {
			t.Fatalf("(-first +again)\n%s", diff)
		}
		if twice := again.Encode(); !bytes.Equal(text, twice) {
			t.Fatalf("no fixpoint:\n%s\n%s", text, twice)
		}
	})
}

// put writes a file below a directory of its own.
func put(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := put(t, dir, "good.json", fullText())
	l, sum, err := Load(good)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullLedger(), l); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(sum) != 64 {
		t.Errorf("sum: got %q, want 64 hex digits", sum)
	}

	link := filepath.Join(dir, "link.json")
	fifo := filepath.Join(dir, "fifo.json")
	big := put(t, dir, "big.json", "")
	if err := errors.Join(os.Symlink(good, link), syscall.Mkfifo(fifo, 0o666), os.Truncate(big, 50<<20)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, path, want, hint string }{
		{"none", filepath.Join(dir, "none.json"), "no such file", "gate init"},
		{"symlink", link, "found a symbolic link, wanted a regular file", "name the file itself"},
		{"directory", dir, "found a directory", ""},
		{"FIFO", fifo, "found a FIFO", ""},
		{"device", "/dev/zero", "found a device", ""},
		{"50 MB", big, "found 52428800 bytes, wanted at most 1048576", "is it the right file"},
		{"broken", put(t, dir, "broken.json", "{"), "broken.json:1:2", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Load(tc.path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) {
				t.Errorf("got %v, want %q and the path in it", err, tc.want)
			}
			if got := Hint(err); !strings.Contains(got, tc.hint) {
				t.Errorf("hint: got %q, want %q in it", got, tc.hint)
			}
		})
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := Find(dir, ""); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(Hint(err), "gate init") {
		t.Errorf("no ledger: got %v, hint %q", err, Hint(err))
	}
	if got, err := Find(dir, "x.json"); got != "x.json" || err != nil {
		t.Errorf("flag: got %q, %v", got, err)
	}
	want := put(t, dir, ".github/capability.ledger.json", "")
	if got, err := Find(dir, ""); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	put(t, dir, "capability.ledger.json", "")
	if got, err := Find(dir, ""); err == nil || !strings.Contains(Hint(err), "--ledger") {
		t.Errorf("two ledgers: got %q, %v, want an error: the second hides the first", got, err)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "l.json")
	if err := Write(file, fullLedger()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, fullLedger()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o640 {
		t.Errorf("mode: got %o, want the old 640", got)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path string
		l          *Ledger
	}{
		{"symlink", link, fullLedger()},
		{"directory", dir, fullLedger()},
		{"device", "/dev/null", fullLedger()},
		{"no directory", filepath.Join(dir, "none", "l.json"), fullLedger()},
		{"not valid", file, &Ledger{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := Write(tc.path, tc.l); err == nil {
				t.Error("got no error")
			}
		})
	}
	data, err := os.ReadFile(file)
	if err != nil || string(data) != fullText() {
		t.Errorf("the file changed: %v\n%s", err, data)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"l.json", "link"}; !slices.Equal(names, want) {
		t.Errorf("left behind: got %v, want %v", names, want)
	}
}
