package main

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// words is what a parse of the test syntax gives.
type words struct {
	Mode, Name string
	Quiet      bool
	N          int
	Operands   []string
	Command    []string
	Dashes     bool
}

func parseWords(args []string, operands int, command bool) (words, error) {
	var w words
	s := syntax{
		name: "test",
		options: []option{
			{"mode", "enforce|audit", choice(&w.Mode, "enforce", "audit")},
			{"name", "NAME", text(&w.Name)},
			{"quiet", "", toggle(&w.Quiet)},
			{"n", "N", func(v string) (err error) { w.N, err = strconv.Atoi(v); return err }},
		},
		operands: operands,
		command:  command,
	}
	p, err := s.parse(args)
	w.Operands, w.Command, w.Dashes = p.operands, p.command, p.dashes
	return w, err
}

func TestParse(t *testing.T) {
	tests := []struct {
		name     string
		in       []string
		operands int
		command  bool
		want     words
	}{
		{name: "nothing", in: nil, command: true, want: words{}},
		{name: "value in the same word", in: []string{"--mode=audit"}, want: words{Mode: "audit"}},
		{name: "value in the next word", in: []string{"--mode", "audit"}, want: words{Mode: "audit"}},
		{name: "value that begins with a dash", in: []string{"--name", "-x"}, want: words{Name: "-x"}},
		{name: "value with an equals sign", in: []string{"--name=a=b"}, want: words{Name: "a=b"}},
		{name: "one dash", in: []string{"-quiet", "-mode=enforce"}, want: words{Quiet: true, Mode: "enforce"}},
		{name: "the last one wins", in: []string{"--n=1", "--n=2"}, want: words{N: 2}},
		{name: "flags after an operand", in: []string{"a", "--quiet"}, operands: 1, want: words{Operands: []string{"a"}, Quiet: true}},
		{name: "a dash is an operand", in: []string{"-"}, operands: 1, want: words{Operands: []string{"-"}}},
		{
			name: "what follows the dashes is the command's", in: []string{"--quiet", "--", "make", "--mode", "x", "--", "-h"}, command: true,
			want: words{Quiet: true, Dashes: true, Command: []string{"make", "--mode", "x", "--", "-h"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseWords(tt.in, tt.operands, tt.command)
			if err != nil {
				t.Fatalf("parse(%q): %v", tt.in, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("parse(%q) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name     string
		in       []string
		command  bool
		want     string
		wantHint string
	}{
		{name: "unknown", in: []string{"--xyz"}, want: `gate test has no flag "--xyz"`, wantHint: "its flags are --mode --name --quiet --n"},
		{name: "misspelt", in: []string{"--mdoe=audit"}, want: `gate test has no flag "--mdoe=audit"`, wantHint: "did you mean --mode?"},
		{name: "illegal value", in: []string{"--mode", "off"}, want: `--mode "off": want enforce or audit`, wantHint: "--mode enforce|audit"},
		{name: "empty value", in: []string{"--name="}, want: `--name "": empty`, wantHint: "--name NAME"},
		{name: "no value", in: []string{"--name"}, want: "--name needs a value", wantHint: "--name NAME"},
		{name: "value for a switch", in: []string{"--quiet=1"}, want: "--quiet takes no value", wantHint: "gate test --quiet"},
		{name: "surplus operand", in: []string{"a"}, want: `unexpected argument "a"`, wantHint: "gate help test"},
		{name: "command where none is taken", in: []string{"--", "a"}, want: "gate test takes no command", wantHint: "gate help test"},
		{name: "no command", in: []string{"--"}, command: true, want: "no command follows --", wantHint: "gate test -- go test ./..."},
		{
			name: "command without dashes", in: []string{"--n", "2", "sh", "-c", "echo 'a b'"}, command: true,
			want: `"sh" stands where a flag was expected: the command to run follows --`, wantHint: `gate test --n 2 -- sh -c 'echo '\''a b'\'''`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseWords(tt.in, 0, tt.command)
			if err == nil {
				t.Fatalf("parse(%q) succeeded, want %q", tt.in, tt.want)
			}
			if err.Error() != tt.want {
				t.Errorf("parse(%q): got error %q, want %q", tt.in, err, tt.want)
			}
			var h hinted
			if !errors.As(err, &h) || h.hint != tt.wantHint {
				t.Errorf("parse(%q): got hint %q, want %q", tt.in, h.hint, tt.wantHint)
			}
		})
	}
	if _, err := parseWords([]string{"--quiet", "-h"}, 0, true); !errors.Is(err, errHelp) {
		t.Errorf("parse -h: got %v, want errHelp", err)
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"run", "run", 0}, {"rnu", "run", 2}, {"chekc", "check", 2}, {"kitten", "sitting", 3},
	}
	for _, tt := range tests {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
