package writeset

import (
	"cmp"
	"slices"
	"strings"
)

// Snapshot is the metadata of every entry of a work tree at one moment, .git
// and the root itself included. It holds no contents: a write leaves its mark
// in ctime, which no ordinary call can set. (Before Linux 6.13 that clock ticks
// every few milliseconds, so a second write within the same tick, of the same
// size, can leave none.)
type Snapshot struct {
	self       Entry
	dirs       map[string][]child // repo-relative directory ("." for the root) -> entries, sorted by name
	unreadable []string           // directories that could not be read, sorted
	size       int
}

type child struct {
	name string
	Entry
}

// Entry is the metadata of one path, as lstat(2) gives it.
type Entry struct {
	Mode, UID, GID uint32 // Mode is st_mode: type and permissions
	Nlink          uint32
	Size           int64
	Dev, Ino       uint64
	Mtime, Ctime   int64 // nanoseconds since 1970
}

// Of st_mode, inode(7): the type, and the type of a directory.
const (
	typeMask = 0o170000
	typeDir  = 0o040000
)

// Dir reports whether the entry is a directory.
func (e Entry) Dir() bool { return e.Mode&typeMask == typeDir }

// Len is the number of entries, the root included.
func (s *Snapshot) Len() int { return s.size }

// Unreadable are the directories that could not be read: what is below them
// was not observed.
func (s *Snapshot) Unreadable() []string { return s.unreadable }

// Lookup finds a repo-relative path, "." being the root.
func (s *Snapshot) Lookup(path string) (Entry, bool) {
	if path == "." {
		return s.self, true
	}
	dir, name := split(path)
	in := s.dirs[dir]
	i, ok := slices.BinarySearchFunc(in, name, func(c child, name string) int { return cmp.Compare(c.name, name) })
	if !ok {
		return Entry{}, false
	}
	return in[i].Entry, true
}

// hides reports whether the path lies below a directory that was not readable.
func (s *Snapshot) hides(path string) bool {
	return slices.ContainsFunc(s.unreadable, func(dir string) bool { return inside(dir, path) })
}

// inside reports whether a repo-relative path lies below a directory.
func inside(dir, path string) bool {
	return dir == "." && path != "." || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// split cuts a repo-relative path into its directory and its name.
func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return ".", path
}

// join is the inverse of split.
func join(dir, name string) string {
	if dir == "." {
		return name
	}
	return dir + "/" + name
}

// ChangeKind is what a Change is about.
type ChangeKind uint8

// The kinds of change.
const (
	Created ChangeKind = iota + 1
	Removed
	Changed // any field of Entry differs
)

// Change is one path that is not the same in two snapshots. Before is zero for
// Created, After for Removed.
type Change struct {
	Path          string
	Kind          ChangeKind
	Before, After Entry
}

// Diff lists what differs, sorted by path. What is below a directory that one
// of the two could not read is left out.
func Diff(before, after *Snapshot) []Change {
	var changes []Change
	if before.self != after.self {
		changes = append(changes, Change{".", Changed, before.self, after.self})
	}
	hidden := func(dir string) bool {
		return before.hides(join(dir, "x")) || after.hides(join(dir, "x"))
	}
	for dir, old := range before.dirs {
		if !hidden(dir) {
			changes = diffDir(changes, dir, old, after.dirs[dir])
		}
	}
	for dir, now := range after.dirs {
		if _, both := before.dirs[dir]; !both && !hidden(dir) {
			changes = diffDir(changes, dir, nil, now)
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return changes
}

// diffDir merges the sorted entries of one directory.
func diffDir(changes []Change, dir string, old, now []child) []Change {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].name < now[0].name:
			changes = append(changes, Change{join(dir, old[0].name), Removed, old[0].Entry, Entry{}})
			old = old[1:]
		case len(old) == 0 || now[0].name < old[0].name:
			changes = append(changes, Change{join(dir, now[0].name), Created, Entry{}, now[0].Entry})
			now = now[1:]
		default:
			if old[0].Entry != now[0].Entry {
				changes = append(changes, Change{join(dir, old[0].name), Changed, old[0].Entry, now[0].Entry})
			}
			old, now = old[1:], now[1:]
		}
	}
	return changes
}
