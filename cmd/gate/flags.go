package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// option is one flag of a subcommand. The same table parses, suggests and
// completes. (The standard flag package reports errors as text only and can
// not tell whether "--" was there.)
type option struct {
	name  string // without dashes
	value string // what its value is called in messages; "" for a switch
	set   func(string) error
}

// syntax is what a subcommand accepts.
type syntax struct {
	name     string
	options  []option
	operands int  // how many words it takes besides its flags
	command  bool // takes a command after "--"
}

// errHelp asks for the help text of the subcommand.
var errHelp = errors.New("help wanted")

// parsed is what stands beside the flags.
type parsed struct {
	operands []string
	command  []string // what follows "--"
	dashes   bool     // "--" was there
}

// parse sets the options that args name. Flags may be written with one dash or
// two, with "=VALUE" or the value in the next word, before or after operands;
// "--" ends them.
func (s syntax) parse(args []string) (parsed, error) {
	var p parsed
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			p.dashes, p.command = true, args[i+1:]
			break
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			if s.command {
				return p, hint(fmt.Errorf("%q stands where a flag was expected: the command to run follows --", arg),
					"gate %s", shellJoin(slices.Concat([]string{s.name}, args[:i], []string{"--"}, args[i:])))
			}
			p.operands = append(p.operands, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if name == "h" || name == "help" {
			return p, errHelp
		}
		k := slices.IndexFunc(s.options, func(o option) bool { return o.name == name })
		if k < 0 {
			return p, s.unknown(arg, name)
		}
		o := s.options[k]
		switch {
		case o.value == "" && hasValue:
			return p, hint(fmt.Errorf("--%s takes no value", name), "gate %s --%s", s.name, name)
		case o.value != "" && !hasValue:
			if i++; i == len(args) {
				return p, hint(fmt.Errorf("--%s needs a value", name), "--%s %s", name, o.value)
			}
			value = args[i]
		}
		if err := o.set(value); err != nil {
			return p, hint(fmt.Errorf("--%s %q: %w", name, value, err), "--%s %s", name, o.value)
		}
	}
	return p, s.check(p)
}

// check counts what parse found beside the flags.
func (s syntax) check(p parsed) error {
	usage := fmt.Sprintf("gate help %s", s.name)
	switch {
	case p.dashes && !s.command:
		return hint(fmt.Errorf("gate %s takes no command", s.name), "%s", usage)
	case p.dashes && len(p.command) == 0:
		return hint(errors.New("no command follows --"), "gate %s -- go test ./...", s.name)
	case len(p.operands) > s.operands:
		return hint(fmt.Errorf("unexpected argument %q", p.operands[s.operands]), "%s", usage)
	}
	return nil
}

// unknown is the error for a flag that does not exist.
func (s syntax) unknown(arg, name string) error {
	names := make([]string, len(s.options))
	for i, o := range s.options {
		names[i] = o.name
	}
	err := fmt.Errorf("gate %s has no flag %q", s.name, arg)
	if near := nearest(name, names); near != "" {
		return hint(err, "did you mean --%s?", near)
	}
	if len(names) == 0 {
		return hint(err, "it takes none")
	}
	return hint(err, "its flags are --%s", strings.Join(names, " --"))
}

// text, toggle and choice make the set function of an option.

func text(p *string) func(string) error {
	return func(v string) error {
		if v == "" {
			return errors.New("empty")
		}
		*p = v
		return nil
	}
}

func toggle(p *bool) func(string) error {
	return func(string) error { *p = true; return nil }
}

func choice(p *string, legal ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(legal, v) {
			return fmt.Errorf("want %s", orList(legal))
		}
		*p = v
		return nil
	}
}

// orList joins words as prose: "a, b or c".
func orList(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest is the candidate that name was probably meant to be: at most two
// edits away and shorter than a rewrite, or "".
func nearest(name string, candidates []string) string {
	best, bestDist := "", 3
	for _, c := range candidates {
		if d := distance(name, c); d < bestDist && d < len(name) {
			best, bestDist = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two words, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// shellJoin writes words so that a shell reads them back as they are.
func shellJoin(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		plain := w != "" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-") == ""
		if !plain {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted[i] = w
	}
	return strings.Join(quoted, " ")
}
