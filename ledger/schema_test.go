package ledger

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	s, err := c.Compile(filepath.Join("..", "schema", name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(doc)
}

func TestLedgerSchema(t *testing.T) {
	s := schema(t, "capability.ledger.schema.json")
	const ok = `"cpu_budget": 1, "writes": "` + emptyDigest + `"`
	for _, tc := range []struct {
		name, in string
		good     bool
	}{
		{"every key", fullText(), true},
		{"the article's", `{"allow_net": [], ` + ok + `}`, true},
		{"rows alone", `{"cpu_budget": 1, "write_paths": ["..a", "a..", "a/..b", ".", "*", "\"a\\t\""]}`, true},
		{"places", `{"allow_write": ["$HOME", "$A/b", "/tmp/**", "/a..b"], ` + ok + `}`, true},
		{"patterns", `{"allow_net": ["*.example.com:443", "unix:/tmp/*"], ` + ok + `}`, true},
		{"parts", `{"parts": ["a", "linux, go 1"], ` + ok + `}`, true},
		{"canonical", string(goodLedger().Encode()), true},

		{"a list", `[]`, false},
		{"no budget", `{"writes": "` + emptyDigest + `"}`, false},
		{"neither rows nor digest", `{"cpu_budget": 1}`, false},
		{"unknown key", `{"alow_net": [], ` + ok + `}`, false},
		{"key in another case", `{"Mode": "audit", ` + ok + `}`, false},
		{"version", `{"version": 2, ` + ok + `}`, false},
		{"version as text", `{"version": "1", ` + ok + `}`, false},
		{"null", `{"mode": null, ` + ok + `}`, false},
		{"mode", `{"mode": "off", ` + ok + `}`, false},
		{"evidence", `{"evidence": "", ` + ok + `}`, false},
		{"empty command", `{"command": [], ` + ok + `}`, false},
		{"nameless command", `{"command": [""], ` + ok + `}`, false},
		{"NUL in the command", `{"command": ["a", "\u0000"], ` + ok + `}`, false},
		{"budget zero", `{"cpu_budget": 0, "write_paths": []}`, false},
		{"budget too big", `{"cpu_budget": 1e10, "write_paths": []}`, false},
		{"budget as text", `{"cpu_budget": "1", "write_paths": []}`, false},
		{"digest", `{"cpu_budget": 1, "writes": "E3"}`, false},
		{"endpoint without port", `{"allow_net": ["example.com"], ` + ok + `}`, false},
		{"endpoint twice", `{"allow_net": ["a:1", "a:1"], ` + ok + `}`, false},
		{"endpoint of a number", `{"allow_net": [1], ` + ok + `}`, false},
		{"row twice", `{"cpu_budget": 1, "write_paths": ["a", "a"]}`, false},
		{"absolute row", `{"cpu_budget": 1, "write_paths": ["/a"]}`, false},
		{"climbing row", `{"cpu_budget": 1, "write_paths": ["a/../../b"]}`, false},
		{"climbing row, quoted", `{"cpu_budget": 1, "write_paths": ["\"../\\t\""]}`, false},
		{"climbing row, at the end", `{"cpu_budget": 1, "write_paths": ["a/.."]}`, false},
		{"raw control character", `{"cpu_budget": 1, "write_paths": ["a\tb"]}`, false},
		{"empty row", `{"cpu_budget": 1, "write_paths": [""]}`, false},
		{"row with a final slash", `{"cpu_budget": 1, "write_paths": ["a/"]}`, false},
		{"absolute fold", `{"fold": ["/a"], ` + ok + `}`, false},
		{"climbing fold", `{"fold": ["../a"], ` + ok + `}`, false},
		{"empty fold", `{"fold": [""], ` + ok + `}`, false},
		{"relative place", `{"allow_write": ["tmp/**"], ` + ok + `}`, false},
		{"variable inside", `{"allow_write": ["/tmp/$A"], ` + ok + `}`, false},
		{"variable with a tail", `{"allow_write": ["$A.b"], ` + ok + `}`, false},
		{"climbing place", `{"allow_write": ["$A/../b"], ` + ok + `}`, false},
		{"root as a place", `{"allow_write": ["/"], ` + ok + `}`, false},
		{"nameless part", `{"parts": [""], ` + ok + `}`, false},
		{"part with blanks around it", `{"parts": [" a"], ` + ok + `}`, false},
		{"prove as text", `{"prove": "yes", ` + ok + `}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := validate(t, s, []byte(tc.in))
			if (err == nil) != tc.good {
				t.Errorf("schema: got %v, want good %v", err, tc.good)
			}
			// The rows that stand there for their form alone need not hash.
			if _, err := Parse("l.json", []byte(tc.in)); (err == nil) != tc.good {
				t.Errorf("Parse: got %v, want good %v", err, tc.good)
			}
		})
	}
}

func TestRecordSchema(t *testing.T) {
	s := schema(t, "capability.actual.schema.json")
	if err := validate(t, s, editRecord(t, func(map[string]any) {})); err != nil {
		t.Errorf("unedited: %v", err)
	}
	text, err := everyKey().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, s, text); err != nil {
		t.Errorf("every key: %v", err)
	}
	for _, tc := range recordEdits {
		t.Run(tc.name, func(t *testing.T) {
			if err := validate(t, s, editRecord(t, tc.edit)); (err != nil) != tc.schema {
				t.Errorf("got %v, want an error %v", err, tc.schema)
			}
		})
	}
}

// everyKey is a record in which no key is left out.
func everyKey() *Record {
	r := goodRecord()
	who := *r.NetRows[0].Who
	who.Argv = []string{"-test.v"}
	r.Exit, r.Signal, r.Interrupted, r.Killed, r.Part = 137, "SIGKILL", "SIGTERM", KilledTimeout, "1"
	r.Gaps = []Gap{{Kind: "x", Detail: "y", Count: 1}}
	r.Findings = []Finding{{Kind: "x", Detail: "y", Who: &who}}
	r.NetRows[0].Who = &who
	r.CPU.Cgroup = 1
	r.WriteRows[0].Calls = []string{"openat"}
	r.Folded = []Folded{{Glob: "cache/**", Count: 2, Listed: 1}}
	r.Outside[0].Calls, r.Outside[0].Who = []string{"openat"}, &who
	r.Doors = []DoorUse{{Endpoint: "127.0.0.1:5432", Far: "127.0.0.1:5433"}}
	r.Files = &Files{Private: []string{}, Layered: []string{}, Cold: []string{}, Added: []Added{{Place: "$GOCACHE/**", Files: 1, Bytes: 2}}}
	r.Host.Kernel, r.Host.Name = "6.18", "h"
	r.Git = &Git{Parents: []string{"x"}}
	r.LedgerFile.Changed = true
	r.PositiveControl = &PositiveControl{}
	r.Base = &BaseFile{Ref: "origin/main", SHA256: "x"}
	return r
}

// The schemas name the same keys as the types do.
func TestSchemaKeys(t *testing.T) {
	for name, typ := range map[string]reflect.Type{
		"capability.ledger.schema.json": reflect.TypeFor[Ledger](),
		"capability.actual.schema.json": reflect.TypeFor[Record](),
	} {
		t.Run(name, func(t *testing.T) {
			var keys, known []string
			for key := range schema(t, name).Properties {
				keys = append(keys, key)
			}
			for i := range typ.NumField() {
				if key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); key != "" && key != "-" {
					known = append(known, key)
				}
			}
			slices.Sort(keys)
			slices.Sort(known)
			if !slices.Equal(keys, known) {
				t.Errorf("got %v, want %v", keys, known)
			}
		})
	}
}
