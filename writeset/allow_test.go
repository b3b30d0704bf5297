package writeset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestPlaces(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, entry string
		env         map[string]string
		dir, glob   string
	}{
		{"absolute", base + "/x/**", nil, base + "/x", "**"},
		{"one file", base + "/x", nil, base + "/x", ""},
		{"variable alone", "$V", map[string]string{"V": base + "//y/"}, base + "/y", ""},
		{"variable and glob", "$V/a-*/**", map[string]string{"V": base}, base, "a-*/**"},
		{"symlink resolved, the rest need not exist", base + "/link/new/**", nil, base + "/real/new", "**"},
		{"value is literal", "$V/**", map[string]string{"V": base + "/*[x]"}, base + "/*[x]", "**"},
		{"value is expanded once", "$V/**", map[string]string{"V": base + "/$HOME"}, base + "/$HOME", "**"},
		{"cache below HOME", "$GOCACHE/**", map[string]string{"HOME": base}, base + "/.cache/go-build", "**"},
		{"cache below XDG", "$GOCACHE/**", map[string]string{"HOME": base, "XDG_CACHE_HOME": base + "/c"}, base + "/c/go-build", "**"},
		{"modules below GOPATH", "$GOMODCACHE/**", map[string]string{"GOPATH": base + "/g:/other"}, base + "/g/pkg/mod", "**"},
		{"modules below HOME", "$GOMODCACHE/**", map[string]string{"HOME": base}, base + "/go/pkg/mod", "**"},
		{"cargo", "$CARGO_HOME/**", map[string]string{"HOME": base}, base + "/.cargo", "**"},
		{"HOME is the root directory", "$HOME/.npm/**", map[string]string{"HOME": "/"}, "/.npm", "**"},
		{"everything, when it is written out", "/**", nil, "/", "**"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Places([]string{tt.entry}, env(tt.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]Place{{tt.entry, tt.dir, tt.glob}}, got); diff != "" {
				t.Errorf("Places (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlacesRefuses(t *testing.T) {
	tests := []struct {
		name, entry string
		env         map[string]string
		want        string
	}{
		{"unset", "$X/**", nil, "$X is not set"},
		{"relative value", "$X/**", map[string]string{"X": "tmp"}, "want an absolute path"},
		{"root directory", "$X/**", map[string]string{"X": "/"}, "allow everything"},
		{"roundabout root directory", "$X/**", map[string]string{"X": "/tmp/.."}, "allow everything"},
		{"default without HOME", "$GOCACHE/**", nil, "$HOME is not set"},
		{"switched off", "$GOCACHE/**", map[string]string{"GOCACHE": "off"}, "want an absolute path"},
		{"relative", "tmp/**", nil, "absolute path"},
		{"variable inside", "/a/$X", map[string]string{"X": "/b"}, "only at the start"},
		{"bad glob", "/a/[", nil, "without its ]"},
		{"slash at the end", "$X/", map[string]string{"X": "/b"}, "dir/**"},
		{"parent", "/a/../b", nil, `".."`},
		{"no name", "$/a", nil, "is not set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Places([]string{tt.entry}, env(tt.env))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.entry) {
				t.Errorf("Places(%q) = %v, %v, want an error with the entry and %q", tt.entry, got, err, tt.want)
			}
		})
	}
}

func TestPlaceMatch(t *testing.T) {
	tests := []struct {
		place Place
		path  string
		want  bool
	}{
		{Place{Dir: "/tmp", Pattern: "**"}, "/tmp", true},
		{Place{Dir: "/tmp", Pattern: "**"}, "/tmp/a/.b", true},
		{Place{Dir: "/tmp", Pattern: "**"}, "/tmpx", false},
		{Place{Dir: "/tmp/*", Pattern: "**"}, "/tmp/a/b", false},
		{Place{Dir: "/tmp/*", Pattern: "**"}, "/tmp/*/b", true},
		{Place{Dir: "/tmp/a"}, "/tmp/a", true},
		{Place{Dir: "/tmp/a"}, "/tmp/a/b", false},
		{Place{Dir: "/tmp", Pattern: "go-*"}, "/tmp/go-1", true},
		{Place{Dir: "/tmp", Pattern: "go-*"}, "/tmp", false},
		{Place{Dir: "/", Pattern: "**"}, "/etc/passwd", true},
	}
	for _, tt := range tests {
		if got := tt.place.Match(tt.path); got != tt.want {
			t.Errorf("%+v, path %s: got %v, want %v", tt.place, tt.path, got, tt.want)
		}
	}
}

func TestDefaultPlaces(t *testing.T) {
	count := func(vars map[string]string) int { return len(DefaultPlaces(env(vars))) }
	if got, want := count(map[string]string{"HOME": "/home/u"}), len(DefaultAllow()); got != want {
		t.Errorf("with HOME: got %d places, want %d", got, want)
	}
	if got, want := count(nil), 4; got != want { // the temporary ones
		t.Errorf("without HOME: got %d places, want %d", got, want)
	}
}
