package egress

import (
	"fmt"
	"regexp"
	"strings"
)

// AllowList is the list of endpoints that a ledger allows. The zero value
// allows nothing.
type AllowList struct {
	entries []entry
}

type entry struct {
	Endpoint
	match *regexp.Regexp // of a pattern: the Host, or the Path of a Unix socket
}

// ParseAllowList reads the entries of a ledger, in the spelling of Endpoint.
// In a pattern, * stands for any run of characters and ? for one; in the path
// of a Unix socket neither crosses a /, ** does, and [a-z] is one of a class.
func ParseAllowList(entries []string) (AllowList, error) {
	var l AllowList
	for _, s := range entries {
		e, err := Parse(s)
		if err != nil {
			return AllowList{}, err
		}
		parsed := entry{Endpoint: e}
		if e.pattern {
			text, one := e.Host, "."
			if e.Transport == Unix {
				text, one = samePlace(e.Path), "[^/]"
			}
			if parsed.match, err = glob(text, one); err != nil {
				return AllowList{}, fmt.Errorf("endpoint %q: %w", s, err)
			}
		}
		l.entries = append(l.entries, parsed)
	}
	return l, nil
}

// Match gives the entry that allows a row, a literal one if there is one. An
// entry with a host allows the mere lookup of that host as well.
func (l AllowList) Match(row string) (entry string, ok bool) {
	e, err := parse(row)
	if err != nil {
		return "", false
	}
	for _, patterns := range []bool{false, true} {
		for _, have := range l.entries {
			if have.pattern == patterns && have.covers(e) {
				return have.String(), true
			}
		}
	}
	return "", false
}

// Unused gives the entries that cover none of the rows.
func (l AllowList) Unused(rows []string) []string {
	used := make([]bool, len(l.entries))
	for _, row := range rows {
		e, err := parse(row)
		if err != nil {
			continue // no entry can cover what is no endpoint
		}
		for i, have := range l.entries {
			used[i] = used[i] || have.covers(e)
		}
	}
	var unused []string
	for i, have := range l.entries {
		if !used[i] {
			unused = append(unused, have.String())
		}
	}
	return unused
}

// Endpoints gives the entries in their order.
func (l AllowList) Endpoints() []Endpoint {
	var all []Endpoint
	for _, e := range l.entries {
		all = append(all, e.Endpoint)
	}
	return all
}

// Doors gives the entries that open a door: literal TCP and UDP endpoints.
func Doors(l AllowList) []Endpoint {
	var doors []Endpoint
	for _, e := range l.entries {
		if e.door() {
			doors = append(doors, e.Endpoint)
		}
	}
	return doors
}

// opens says that a literal entry names e, so that an attempt may go on where
// nothing else keeps it from leaving.
func (l AllowList) opens(e Endpoint) bool {
	for _, have := range l.entries {
		if !have.pattern && have.covers(e) {
			return true
		}
	}
	return false
}

func (a entry) covers(row Endpoint) bool {
	inet := a.Transport == TCP || a.Transport == UDP
	if row.Transport == DNS && inet {
		return a.coversText(a.Host, row.Host)
	}
	if a.Transport != row.Transport {
		return false
	}
	switch a.Transport {
	case TCP, UDP:
		return a.coversText(a.Host, row.Host) && (a.ports == anyPort || (a.ports == row.ports && a.Port == row.Port))
	case DNS:
		return a.coversText(a.Host, row.Host)
	case Unix:
		return a.coversText(samePlace(a.Path), samePlace(row.Path))
	case Vsock:
		cid, port, _ := strings.Cut(a.Path, ":")
		rowCID, rowPort, _ := strings.Cut(row.Path, ":")
		return (cid == "*" || cid == rowCID) && (port == "*" || port == rowPort)
	}
	return a.Endpoint == row
}

func (a entry) coversText(own, row string) bool {
	if a.match != nil {
		return a.match.MatchString(row)
	}
	return own == row
}

// samePlace makes /tmp and $TMPDIR one place: which of the two a path is
// spelled with depends on the machine.
func samePlace(p string) string {
	if rest, ok := below("/tmp", p); ok {
		return "$TMPDIR/" + rest
	}
	return p
}

// glob compiles a pattern. one is the expression for a character that * and ?
// stand for; where that is not every character there are ** and classes too.
func glob(pattern, one string) (*regexp.Regexp, error) {
	paths := one != "."
	var b strings.Builder
	b.WriteString("(?s)^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*' && paths && strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString(one + "*")
		case c == '?':
			b.WriteString(one)
		case c == '[' && paths:
			class, _, ok := strings.Cut(pattern[i+1:], "]")
			set := strings.TrimLeft(class, "!^")
			if !ok || set == "" || strings.Contains(set, "/") {
				return nil, fmt.Errorf("the [ in %s opens no class such as [a-z]; a path that holds one is written in double quotes", pattern)
			}
			b.WriteByte('[')
			if set != class {
				b.WriteString("^/")
			}
			b.WriteString(strings.NewReplacer(`\`, `\\`, `[`, `\[`, `^`, `\^`, `&`, `\&`).Replace(set) + "]")
			i += len(class) + 1
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	b.WriteByte('$')
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, fmt.Errorf("pattern %s: %w", pattern, err)
	}
	return re, nil
}
