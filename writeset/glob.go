package writeset

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// Glob is a pattern for repo-relative paths, with the meaning doublestar v4
// gives it: * and ? within one component, ** as a whole component for any
// number of them, [a-z], [!a-z], and \ before a character that is meant itself.
// A leading dot is a character like any other, and "dir/**" matches dir too.
// Alternatives ({a,b}) are refused: {} stand unquoted in rows, so a file could
// pose as the glob.
type Glob struct{ pattern string }

// ParseGlob checks a pattern. The error says what is wrong with it.
func ParseGlob(pattern string) (Glob, error) {
	if why := faulty(pattern); why != "" {
		return Glob{}, fmt.Errorf("glob %q: %s", pattern, why)
	}
	return Glob{pattern}, nil
}

// ParseGlobs checks a list of patterns, such as the ledger's "fold".
func ParseGlobs(patterns []string) ([]Glob, error) {
	globs := make([]Glob, len(patterns))
	for i, p := range patterns {
		g, err := ParseGlob(p)
		if err != nil {
			return nil, err
		}
		globs[i] = g
	}
	return globs, nil
}

// faulty says what is wrong with a pattern, "" if nothing is.
func faulty(pattern string) string {
	switch {
	case pattern == "":
		return "empty"
	case !utf8.ValidString(pattern) || strings.ContainsRune(pattern, utf8.RuneError):
		return "not UTF-8, or has U+FFFD, which stands for any byte that is not"
	case strings.ContainsFunc(pattern, unicode.IsControl):
		return "has a control character; ? matches one"
	case pattern[0] == '"':
		return `begins with a double quote, which marks a quoted path; ["] matches one`
	case pattern[0] == '/':
		return "absolute; paths are relative to the repository"
	case strings.HasSuffix(pattern, "/"):
		return "ends with a slash; dir/** matches a directory and all below it"
	case !doublestar.ValidatePattern(escapeBraces(pattern)):
		return "a [ without its ], an empty [], or a \\ at the end"
	case escapeBraces(pattern) != pattern:
		return `has alternatives; write one glob each, or \{ for the character`
	}
	for part := range strings.SplitSeq(pattern, "/") {
		if part == "" || part == "." && pattern != "." || part == ".." {
			return fmt.Sprintf("component %q never occurs in a path", part)
		}
	}
	return ""
}

// escapeBraces puts a backslash before each brace that doublestar would take
// for alternatives: those neither escaped nor within a class.
func escapeBraces(pattern string) string {
	var b strings.Builder
	class := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			b.WriteByte(c)
			i++
			c = pattern[i]
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '{' || c == '}':
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// EscapeGlob returns a glob that matches the path, and, as far as the syntax
// can tell them apart, only it: what cannot stand in a glob becomes ?.
func EscapeGlob(path string) string {
	var b strings.Builder
	for i, r := range path {
		switch {
		case r == utf8.RuneError || unicode.IsControl(r):
			b.WriteByte('?')
		case i == 0 && r == '"':
			b.WriteString(`["]`)
		case strings.ContainsRune(globMeta+"{}", r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Match reports whether the glob matches the raw bytes of a repo-relative path.
// A byte that is not UTF-8 is one character.
func (g Glob) Match(path string) bool { return doublestar.MatchUnvalidated(g.pattern, path) }

// String is the pattern as it was given.
func (g Glob) String() string { return g.pattern }

// firstMatch is the index of the first glob that matches, -1 if none does.
func firstMatch(globs []Glob, text string) int {
	for i, g := range globs {
		if g.Match(text) {
			return i
		}
	}
	return -1
}
