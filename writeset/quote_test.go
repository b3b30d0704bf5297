package writeset

import (
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "pkg/a b:c.txt", "pkg/a b:c.txt"},
		{"root", ".", "."},
		{"non-ASCII stays", "é/日本.txt", "é/日本.txt"},
		{"braces, dollar, hash stay", "a{b}$c#~!", "a{b}$c#~!"},
		{"glob characters", "a*b?c[d]", `"a*b?c[d]"`},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"letters", "\a\b\t\n\v\f\r", `"\a\b\t\n\v\f\r"`},
		{"octal", "\x00\x1b\x7f", `"\000\033\177"`},
		{"not UTF-8, beside what is", "é\xff\xc3", `"é\377\303"`},
		{"C1 control", "a\u0085b", `"a\302\205b"`},
		{"U+FFFD that stands there", "a\uFFFD", "a\uFFFD"},
		{"empty", "", `""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Quote(tt.in)
			if got != tt.want {
				t.Errorf("Quote(%q) = %s, want %s", tt.in, got, tt.want)
			}
			back, err := Unquote(got)
			if err != nil || back != tt.in {
				t.Errorf("Unquote(%s) = %q, %v, want %q", got, back, err, tt.in)
			}
		})
	}
}

func TestUnquoteRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty row", "", "not in normal form"},
		{"glob", "a/*", "a glob"},
		{"quoted directory of transients", `"a\tb"/*`, "a glob"},
		{"backslash outside quotes", `a\tb`, "a glob"},
		{"needless quotes", `"a"`, "not in normal form"},
		{"octal for a letter escape", `"\011"`, "not in normal form"},
		{"raw control character", "a\tb", "not in normal form"},
		{"not closed", `"a`, "no closing"},
		{"lone quote", `"`, "no closing"},
		{"ends in an escape", `"a\"`, "within an escape"},
		{"short octal", `"\01"`, "unknown escape"},
		{"octal above a byte", `"\400"`, "unknown escape"},
		{"unknown letter", `"\x41"`, "unknown escape"},
		{"quote within", `"a"b"`, "not in normal form"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Unquote(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Unquote(%s) = %q, %v, want an error with %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "a/*", `"`, "\x00", "\xff\uFFFD", "é\u0085", `a\`, `"a"/*`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		row := Quote(path)
		if back, err := Unquote(row); err != nil || back != path {
			t.Errorf("Unquote(Quote(%q)) = %q, %v", path, back, err)
		}
		if IsGlob(row) || strings.ContainsAny(row, "\n\x00\x1b") {
			t.Errorf("Quote(%q) = %q: a glob, or not one clean line", path, row)
		}
		// No path poses as a fold glob, unless it is the one path that the glob matches.
		if g, err := ParseGlob(row); err == nil && (g.String() != path || !g.Match(path)) {
			t.Errorf("Quote(%q) = %q is a glob for other paths", path, row)
		}
		if path != "" && path != "." {
			if text, err := matchText(transientRow(path)); err != nil || text != path+"/*" {
				t.Errorf("matchText(%s) = %q, %v, want %q", transientRow(path), text, err, path+"/*")
			}
		}
	})
}

func FuzzUnquote(f *testing.F) {
	for _, s := range []string{"", "a", `"\t"`, `"\377"`, `"a`, `a\b`, `"a"/*`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, row string) {
		if path, err := Unquote(row); err == nil && Quote(path) != row {
			t.Errorf("Unquote(%q) = %q, which is spelled %q", row, path, Quote(path))
		}
	})
}
