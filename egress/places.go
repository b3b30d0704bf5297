package egress

import (
	"path"
	"slices"
	"strings"
)

// placeNames are the variables that the path of a Unix socket may begin with.
var placeNames = []string{"$HOME", "$XDG_RUNTIME_DIR", "$TMPDIR"}

// Places are the directories that differ from machine to machine. Paths of
// Unix sockets are spelled relative to them, so that a ledger is the same
// everywhere. All are absolute, clean and free of symlinks; "" and "/" stand
// for none. Where a variable is unset, give its default: /run/user/UID, /tmp.
type Places struct {
	Root       string // the repository
	Home       string // $HOME
	RuntimeDir string // $XDG_RUNTIME_DIR
	TmpDir     string // $TMPDIR

	// Private are directories of the tree's own: what it binds there, nobody
	// outside can see.
	Private []string
}

// private reports whether a socket at a path is no way in from outside: the
// repository counts, since what is bound there is a row of column 3.
func (p Places) private(path string) bool {
	return slices.ContainsFunc(append([]string{p.Root}, p.Private...), func(dir string) bool {
		_, inside := below(dir, path)
		return inside
	})
}

// Spell gives the ledger spelling of an absolute path: relative to the
// repository where it lies inside, else with the variable of the place it
// lies below, else as it is. The deepest place wins.
func (p Places) Spell(abs string) string {
	abs = canonicalPath("/" + abs)
	best, spelled := "", abs
	for _, place := range []struct{ dir, name string }{
		{p.Root, ""}, {p.RuntimeDir, "$XDG_RUNTIME_DIR"}, {p.TmpDir, "$TMPDIR"}, {p.Home, "$HOME"},
	} {
		dir := canonicalPath("/" + place.dir)
		rest, ok := below(dir, abs)
		if !ok || dir == "/" || len(dir) <= len(best) {
			continue
		}
		best, spelled = dir, path.Join(place.name, rest)
		if place.name == "" {
			spelled = canonicalPath("./" + rest)
		}
	}
	return spelled
}

// below gives p relative to dir if it is dir or lies below it.
func below(dir, p string) (rest string, ok bool) {
	if p == dir {
		return "", true
	}
	return strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
