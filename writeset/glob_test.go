package writeset

import (
	"strings"
	"testing"
)

func TestGlobMatch(t *testing.T) {
	tests := []struct {
		glob, path string
		want       bool
	}{
		{"a.txt", "a.txt", true},
		{"a.txt", "b/a.txt", false},
		{"*.txt", ".txt", true},
		{"*.txt", "b/a.txt", false},
		{"**/*.txt", "a.txt", true},
		{"**/*.txt", "b/.c/a.txt", true},
		{"out/**", "out", true},
		{"out/**", "out/a/b", true},
		{"out/**", "outer", false},
		{"out/*", "out/a/b", false},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"?", "é", true},
		{"?", "\xff", true},
		{"?", "/", false},
		{"[a-c]x", "bx", true},
		{"[!a-c]x", "bx", false},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{`\{a,b\}`, "{a,b}", true},
		{"[{]", "{", true},
		{"**", ".", true},
		{"*", "*", true},
	}
	for _, tt := range tests {
		g, err := ParseGlob(tt.glob)
		if err != nil {
			t.Errorf("ParseGlob(%q): %v", tt.glob, err)
			continue
		}
		if got := g.Match(tt.path); got != tt.want {
			t.Errorf("glob %q, path %q: got %v, want %v", tt.glob, tt.path, got, tt.want)
		}
	}
}

func TestParseGlobRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", "empty"},
		{"not UTF-8", "a\xff", "not UTF-8"},
		{"replacement character", "a\uFFFD", "not UTF-8"},
		{"line feed", "a\nb", "control character"},
		{"poses as a quoted path", `"a*"`, "double quote"},
		{"absolute", "/a/*", "absolute"},
		{"slash at the end", "a/", "dir/**"},
		{"class not closed", "a[b", "without its ]"},
		{"backslash at the end", `a\`, `\ at the end`},
		{"alternatives", "{a,b}", "alternatives"},
		{"stray brace", "a}", "alternatives"},
		{"parent", "a/../b", `".."`},
		{"dot", "./a", `"."`},
		{"empty component", "a//b", `""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := ParseGlob(tt.in)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseGlob(%q) = %v, %v, want an error with %q", tt.in, g, err, tt.want)
			}
		})
	}
}

func FuzzEscapeGlob(f *testing.F) {
	for _, s := range []string{"a", `"a"`, "a*b", "{a}", "\xff", "a\nb", `\`, "[a]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path == "" || path[0] == '/' || strings.HasSuffix(path, "/") {
			return
		}
		for part := range strings.SplitSeq(path, "/") {
			if part == "" || part == "." || part == ".." {
				return
			}
		}
		g, err := ParseGlob(EscapeGlob(path))
		if err != nil {
			t.Fatal(err)
		}
		if !g.Match(path) || g.Match(path+"x") || g.Match("x"+path) {
			t.Errorf("glob %q does not single out %q", g, path)
		}
	})
}
