package truth

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quote writes a path as a row: as it is, or in C quotes, as git prints it
// with core.quotePath=false, where it holds a control character, a backslash,
// a double quote, one of `*?[`, or bytes that are not UTF-8.
func quote(path string) string {
	var b strings.Builder
	plain := true
	for rest := path; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		char := rest[:size]
		rest = rest[size:]
		short := strings.Index("\a\b\t\n\v\f\r\"\\", char)
		switch {
		case short >= 0:
			b.WriteString(`\` + `abtnvfr"\`[short:short+1])
			plain = false
		case unicode.IsControl(r), r == utf8.RuneError && size == 1:
			for _, c := range []byte(char) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
			plain = false
		default:
			b.WriteString(char)
			plain = plain && !strings.Contains("*?[", char)
		}
	}
	if plain {
		return path
	}
	return `"` + b.String() + `"`
}

// Unquote gives back the bytes of a row. A row of transient names keeps its
// "/*"; a row that is not quoted is itself.
func Unquote(row string) string {
	quoted, star := strings.CutSuffix(row, `"/*`)
	if !star {
		quoted = strings.TrimSuffix(row, `"`)
	}
	quoted, ok := strings.CutPrefix(quoted, `"`)
	if !ok {
		return row
	}
	var b []byte
	for quoted != "" {
		c := quoted[0]
		quoted = quoted[1:]
		if c == '\\' {
			c = quoted[0]
			if short := strings.IndexByte(`abtnvfr"\`, c); short >= 0 {
				c, quoted = "\a\b\t\n\v\f\r\"\\"[short], quoted[1:]
			} else {
				c, quoted = (quoted[0]-'0')<<6|(quoted[1]-'0')<<3|(quoted[2]-'0'), quoted[3:]
			}
		}
		b = append(b, c)
	}
	if star {
		b = append(b, "/*"...)
	}
	return string(b)
}
