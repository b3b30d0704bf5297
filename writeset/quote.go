package writeset

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Quote spells a repo-relative path (raw bytes) as a row of the set.
//
// A plain path is its own row. One that has a control character (C0, DEL, C1),
// a backslash, a double quote, one of *?[ or a byte that is not UTF-8 is put
// between double quotes and C-quoted as git prints it with core.quotePath=false
// (quote_c_style in git's quote.c): \a \b \t \n \v \f \r \" \\, and \ooo for
// every byte of another control character and for a byte that is not UTF-8.
// Other characters stay as they are: *?[ lose their meaning between quotes.
//
// So a row is a glob exactly if it has an unquoted *, ?, [ or backslash, and no
// file name can pose as one. Unquote reverses it.
func Quote(path string) string {
	if plain(path) {
		return path
	}
	var b strings.Builder
	b.Grow(len(path) + 8)
	b.WriteByte('"')
	for rest := path; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		char := rest[:n]
		rest = rest[n:]
		if esc := strings.IndexByte(escaped, char[0]); esc >= 0 {
			b.WriteByte('\\')
			b.WriteByte(letters[esc])
			continue
		}
		if broken(r, n) || unicode.IsControl(r) {
			for i := range len(char) {
				fmt.Fprintf(&b, `\%03o`, char[i])
			}
			continue
		}
		b.WriteString(char)
	}
	b.WriteByte('"')
	return b.String()
}

// escaped are the bytes that have an escape of one letter, letters those letters.
const (
	escaped = "\a\b\t\n\v\f\r\"\\"
	letters = `abtnvfr"\`
)

// globMeta are the bytes that make an unquoted row a glob.
const globMeta = `*?[\`

// plain reports whether the path is its own row.
func plain(path string) bool {
	for i, r := range path {
		if strings.ContainsRune(globMeta+`"`, r) || unicode.IsControl(r) {
			return false
		}
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(path[i:]); broken(r, n) {
				return false
			}
		}
	}
	return path != ""
}

// broken tells a byte that is not UTF-8 from a U+FFFD that stands in the text.
func broken(r rune, n int) bool { return r == utf8.RuneError && n == 1 }

// Unquote is the inverse of Quote. A row that is a glob, or that Quote would
// not have written this way, is an error: one path has one spelling.
func Unquote(row string) (string, error) {
	if IsGlob(row) {
		return "", fmt.Errorf("row %q: a glob, not a path", row)
	}
	path := row
	if strings.HasPrefix(row, `"`) {
		var err error
		if path, err = unescape(row); err != nil {
			return "", fmt.Errorf("row %q: %w", row, err)
		}
	}
	if want := Quote(path); want != row {
		return "", fmt.Errorf("row %q: not in normal form, want %q", row, want)
	}
	return path, nil
}

// unescape takes the quotes and escapes away. It is more lenient than Quote is
// strict; Unquote compares.
func unescape(row string) (string, error) {
	if len(row) < 2 || row[len(row)-1] != '"' {
		return "", fmt.Errorf("no closing double quote")
	}
	in := row[1 : len(row)-1]
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		if i++; i == len(in) {
			return "", fmt.Errorf("ends within an escape")
		}
		if k := strings.IndexByte(letters, in[i]); k >= 0 {
			out = append(out, escaped[k])
			continue
		}
		if i+2 >= len(in) || in[i] > '3' || !octal(in[i]) || !octal(in[i+1]) || !octal(in[i+2]) {
			return "", fmt.Errorf("unknown escape \\%c: want three octal digits or one of %s", in[i], letters)
		}
		out = append(out, (in[i]-'0')<<6|(in[i+1]-'0')<<3|(in[i+2]-'0'))
		i += 2
	}
	return string(out), nil
}

func octal(c byte) bool { return '0' <= c && c <= '7' }

// IsGlob reports whether a row stands for more than one path: a fold glob, or
// the row of transient names below a directory ("dir/*", "*" for the root, and
// `"odd\tdir"/*` where the directory itself needs quotes).
func IsGlob(row string) bool {
	if strings.HasPrefix(row, `"`) {
		return strings.HasSuffix(row, `"/*`)
	}
	return strings.ContainsAny(row, globMeta)
}

// transientRow is the row for names below dir that came and went.
func transientRow(dir string) string {
	if dir == "." {
		return "*"
	}
	return Quote(dir) + "/*"
}

// matchText is what a fold glob is matched against for a row that is not folded:
// the raw path, or the raw directory and "/*" for transient names. A quoted
// path ends with its quote, so "/*" at the end is never part of a path.
func matchText(row string) (string, error) {
	if row == "*" {
		return row, nil
	}
	if dir, ok := strings.CutSuffix(row, "/*"); ok {
		path, err := Unquote(dir)
		return path + "/*", err
	}
	return Unquote(row)
}
