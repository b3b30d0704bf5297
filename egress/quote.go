package egress

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapes are the short forms of C that git uses (quote.c), byte to letter.
var escapes = map[byte]byte{
	'\a': 'a', '\b': 'b', '\t': 't', '\n': 'n', '\v': 'v', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\',
}

// printable says whether s can stand in a terminal as it is: valid UTF-8 of
// printable characters, so no control character and no text direction mark.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// quote writes s as git prints unusual paths: in double quotes, with C
// escapes, and \ooo in octal for every byte of what is not printable.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		letter, short := escapes[s[i]]
		switch {
		case short:
			b.WriteByte('\\')
			b.WriteByte(letter)
		case (r == utf8.RuneError && size == 1) || !unicode.IsPrint(r):
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	b.WriteByte('"')
	return b.String()
}

// unquote reads the quoted string that s begins with and returns what
// follows it.
func unquote(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			n, raw, err := unescape(s[i+1:])
			if err != nil {
				return "", "", err
			}
			b.WriteByte(raw)
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New(`the opening " has no closing one`)
}

// unescape decodes what follows a backslash and says how long that was.
func unescape(s string) (n int, c byte, err error) {
	if s == "" {
		return 0, 0, errors.New("a backslash ends it")
	}
	for raw, letter := range escapes {
		if s[0] == letter {
			return 1, raw, nil
		}
	}
	if len(s) < 3 || s[0] > '3' {
		return 0, 0, fmt.Errorf(`\%.1q is no escape; a byte is written as a backslash and three octal digits`, s)
	}
	for _, d := range []byte(s[:3]) {
		if d < '0' || d > '7' {
			return 0, 0, errors.New("a byte is written as a backslash and three octal digits")
		}
		c = c<<3 | (d - '0')
	}
	return 3, c, nil
}
