package writeset

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Place is where the tree may write outside the repository: one entry of
// allow_write, expanded on this machine.
type Place struct {
	Entry   string // as the ledger spells it: "$HOME/.cache/**"
	Dir     string // its fixed part: absolute, clean, symlinks resolved as far as it exists
	Pattern string // the rest, relative to Dir: "**" for all below, "" for Dir alone
}

// Match reports whether the place covers a resolved absolute path. "dir/**"
// covers dir itself.
func (p Place) Match(path string) bool {
	rest, ok := below(p.Dir, path)
	switch {
	case !ok:
		return false
	case rest == "" || p.Pattern == "":
		return rest == "" && (p.Pattern == "" || p.Pattern == "**")
	case p.Pattern == "**":
		return true
	}
	return doublestar.MatchUnvalidated(p.Pattern, rest)
}

// below cuts the directory off a path: "" for the directory itself. A
// directory "" is the root, so that "/" needs no case of its own.
func below(dir, path string) (rest string, ok bool) {
	dir = strings.TrimSuffix(dir, "/")
	if !strings.HasPrefix(path, dir) {
		return "", false
	}
	if rest = path[len(dir):]; rest == "" {
		return "", true
	}
	return strings.TrimPrefix(rest, "/"), rest[0] == '/'
}

// DefaultAllow are the entries that hold where a ledger has no allow_write:
// temporary places, caches, and the Go tools' own counters.
func DefaultAllow() []string {
	return []string{
		"$TMPDIR/**", "/tmp/**", "/var/tmp/**", "/dev/shm/**",
		"$XDG_CACHE_HOME/**", "$GOCACHE/**", "$GOMODCACHE/**",
		"$HOME/.npm/**", "$CARGO_HOME/**", "$HOME/.m2/**", "$HOME/.gradle/**",
		"$XDG_CONFIG_HOME/go/telemetry/**",
	}
}

// Temporary are those of DefaultAllow that hold nothing which a later run would
// want.
func Temporary() []string { return DefaultAllow()[:4] }

// DefaultPlaces expands DefaultAllow. An entry that cannot be expanded here (no
// HOME, GOCACHE=off) is left out: nothing is allowed in its stead.
func DefaultPlaces(getenv func(string) string) []Place {
	var places []Place
	for _, entry := range DefaultAllow() {
		if p, err := parsePlace(entry, getenv); err == nil {
			places = append(places, p)
		}
	}
	return places
}

// Places expands the entries of a ledger's allow_write, each an absolute path
// or $VAR and a path, with globs as ParseGlob has them. $VAR stands only at
// the start, is expanded once, and its value is taken literally. getenv is
// os.Getenv. An error names the entry.
//
// A variable that is unset, empty or relative is an error, and so is one that
// leads to the root directory: $X/** never becomes /**. Those of the usual caches have defaults when
// they are unset or empty: TMPDIR, XDG_CACHE_HOME, XDG_CONFIG_HOME, GOCACHE,
// GOMODCACHE, CARGO_HOME.
func Places(entries []string, getenv func(string) string) ([]Place, error) {
	places := make([]Place, len(entries))
	for i, entry := range entries {
		p, err := parsePlace(entry, getenv)
		if err != nil {
			return nil, fmt.Errorf("allow_write entry %q: %w", entry, err)
		}
		places[i] = p
	}
	return places, nil
}

func parsePlace(entry string, getenv func(string) string) (Place, error) {
	base, rest := "/", entry
	if name, ok := strings.CutPrefix(entry, "$"); ok {
		name, rest, _ = strings.Cut(name, "/")
		value, err := variable(name, getenv)
		if err != nil {
			return Place{}, err
		}
		base = value
		if rest == "" {
			if strings.HasSuffix(entry, "/") {
				return Place{}, errors.New("ends with a slash; dir/** covers a directory and all below it")
			}
			return place(entry, base, "")
		}
	} else if rest, ok = strings.CutPrefix(entry, "/"); !ok {
		return Place{}, errors.New("want an absolute path or one that begins with $VAR")
	}
	if strings.Contains(rest, "$") {
		return Place{}, errors.New("a $ is expanded only at the start; ? matches one")
	}
	if why := faulty(rest); why != "" {
		return Place{}, errors.New(why)
	}
	for rest != "" {
		part, after, _ := strings.Cut(rest, "/")
		if strings.ContainsAny(part, globMeta) {
			break
		}
		base, rest = filepath.Join(base, part), after
	}
	return place(entry, base, rest)
}

func place(entry, dir, pattern string) (Place, error) {
	dir, err := resolve(dir)
	if err != nil {
		return Place{}, err
	}
	if dir == "/" && entry[0] == '$' {
		return Place{}, errors.New("the variable leads to the root directory, which would allow everything")
	}
	return Place{Entry: entry, Dir: dir, Pattern: pattern}, nil
}

// resolve follows the symlinks of the part of a path that exists: events carry
// resolved paths, and /tmp is /private/tmp on some systems.
func resolve(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && path != "/" {
		real, err = resolve(filepath.Dir(path))
		return filepath.Join(real, filepath.Base(path)), err
	}
	return real, err
}

// variable is the value of $name, clean and absolute, or its default.
func variable(name string, getenv func(string) string) (string, error) {
	value := getenv(name)
	if name == "GOPATH" { // a list; tools write to its first directory
		value, _, _ = strings.Cut(value, string(filepath.ListSeparator))
	}
	if value == "" {
		base, rest := fallback(name, getenv)
		switch {
		case base == "":
			return "", fmt.Errorf("$%s is not set", name)
		case base[0] == '$':
			dir, err := variable(base[1:], getenv)
			if err != nil {
				return "", fmt.Errorf("$%s is not set, its default needs %s: %w", name, base, err)
			}
			return filepath.Join(dir, rest), nil
		}
		return base, nil
	}
	if !filepath.IsAbs(value) {
		return "", fmt.Errorf("$%s is %q: want an absolute path", name, value)
	}
	return filepath.Clean(value), nil
}

// fallback is where a tool looks when the variable is unset: another variable
// and a path below it, or a fixed directory. "" for one without a default.
//
// Sources: POSIX (TMPDIR), the XDG base directory specification, go help
// environment, the Cargo book ("Cargo Home").
func fallback(name string, getenv func(string) string) (base, rest string) {
	switch name {
	case "TMPDIR":
		return "/tmp", ""
	case "XDG_CACHE_HOME":
		return "$HOME", ".cache"
	case "XDG_CONFIG_HOME":
		return "$HOME", ".config"
	case "CARGO_HOME":
		return "$HOME", ".cargo"
	case "GOCACHE":
		return "$XDG_CACHE_HOME", "go-build"
	case "GOMODCACHE":
		if getenv("GOPATH") != "" {
			return "$GOPATH", "pkg/mod"
		}
		return "$HOME", "go/pkg/mod"
	}
	return "", ""
}
