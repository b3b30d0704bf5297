package truth

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/org/gate/accuracy/strace"
	"github.com/org/gate/accuracy/tree"
)

// names answers what a path meant at a given moment of the run: it knows the
// symbolic links and special files of the tree before the run, and replays
// what the calls did to them. Outside the tree it asks the disk as it is now.
type names struct {
	root     string // absolute, clean
	before   tree.Listing
	readlink func(string) (string, error) // outside the tree
	changed  map[string]tree.Entry        // absolute path -> what a call put there
	gone     map[string]bool              // absolute path -> taken away by a call
	fds      map[task]string              // where /proc/self/fd/N led when it was opened
}

// task is a descriptor of a thread.
type task struct{ id, fd int }

func newNames(root string, before tree.Listing, readlink func(string) (string, error)) *names {
	return &names{
		root: root, before: before, readlink: readlink,
		changed: map[string]tree.Entry{}, gone: map[string]bool{}, fds: map[task]string{},
	}
}

// inside gives the path relative to the root, "" for one that lies outside.
func (n *names) inside(abs string) (rel string, ok bool) {
	if abs == n.root {
		return ".", true
	}
	if rel, ok := strings.CutPrefix(abs, strings.TrimSuffix(n.root, "/")+"/"); ok {
		return rel, true
	}
	return "", false
}

// entry is what stands at an absolute path whose parents are resolved. ok is
// false where nothing is known to stand.
func (n *names) entry(abs string) (e tree.Entry, ok bool) {
	if e, ok := n.changed[abs]; ok {
		return e, true
	}
	if n.gone[abs] {
		return tree.Entry{}, false
	}
	if rel, ok := n.inside(abs); ok {
		e, ok := n.before[rel]
		return e, ok
	}
	if target, err := n.readlink(abs); err == nil {
		return tree.Entry{Mode: fs.ModeSymlink, Target: target}, true
	}
	return tree.Entry{}, false
}

func (n *names) put(abs string, e tree.Entry) {
	delete(n.gone, abs)
	n.changed[abs] = e
}

func (n *names) remove(abs string) {
	delete(n.changed, abs)
	n.gone[abs] = true
}

// move renames from to to with all that is known to be below.
func (n *names) move(from, to string) {
	moved := map[string]tree.Entry{}
	for _, abs := range n.below(from) {
		if e, ok := n.entry(abs); ok {
			moved[to+abs[len(from):]] = e
		}
		n.remove(abs)
	}
	for _, abs := range n.below(to) {
		n.remove(abs)
	}
	for abs, e := range moved {
		n.put(abs, e)
	}
}

// exchange swaps two paths with all that is known to be below.
func (n *names) exchange(a, b string) {
	aside := a + "\x00" // no path of the run
	n.move(a, aside)
	n.move(b, a)
	n.move(aside, b)
}

// below lists the known paths at and under abs.
func (n *names) below(abs string) []string {
	list := []string{abs}
	for p := range n.changed {
		if strings.HasPrefix(p, abs+"/") {
			list = append(list, p)
		}
	}
	if rel, ok := n.inside(abs); ok && n.before[rel].Mode.IsDir() {
		for p := range n.before {
			if full := n.root + "/" + p; strings.HasPrefix(full, abs+"/") {
				list = append(list, full)
			}
		}
	}
	return list
}

// resolve makes a path absolute and follows the symbolic links of its
// parents, and of its last component if follow is set. It is "" for a
// descriptor whose file has no name; ok is false for a path that leads through
// a loop of links or an unknown descriptor.
func (n *names) resolve(who int, cwd, p string, follow bool) (abs string, ok bool) {
	if !path.IsAbs(p) {
		p = cwd + "/" + p
	}
	done, rest := "", strings.Split(p, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir("/" + done)
			if done == "/" {
				done = ""
			}
			continue
		}
		next := done + "/" + part
		if !follow && strings.Join(rest, "") == "" {
			return next, true
		}
		target, link, known := n.follow(who, cwd, next)
		if !known {
			return "", false
		}
		if !link {
			done = next
			continue
		}
		if target == "" { // no symbolic link is empty
			return "", true
		}
		if links++; links > 40 { // the kernel's limit, path_resolution(7)
			return "", false
		}
		if path.IsAbs(target) {
			done = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	if done == "" {
		return "/", true
	}
	return done, true
}

// follow reads a symbolic link, the magic ones of proc(5) from the log.
func (n *names) follow(who int, cwd, abs string) (target string, link, known bool) {
	parts := strings.Split(abs, "/") // "", "proc", "self", ...
	self := len(parts) > 3 && parts[1] == "proc" &&
		(parts[2] == "self" || parts[2] == "thread-self" || parts[2] == strconv.Itoa(who))
	switch {
	case abs == "/proc/self" || abs == "/proc/thread-self" || strings.HasPrefix(abs, "/proc/") && !self:
		return "", false, true // stays as written, so that what follows is seen as the caller's
	case self && len(parts) == 4 && parts[3] == "cwd":
		return cwd, true, true
	case self && len(parts) == 4 && parts[3] == "root":
		return "/", true, true
	case self && len(parts) == 5 && parts[3] == "fd":
		fd, err := strconv.Atoi(parts[4])
		target, ok := n.fds[task{who, fd}]
		return target, true, err == nil && ok
	case self:
		return "", false, true
	}
	e, ok := n.entry(abs)
	if !ok || e.Mode&fs.ModeSymlink == 0 {
		return "", false, true
	}
	return e.Target, true, true
}

// opened remembers what a descriptor leads to, "" for a file without a name.
func (n *names) opened(who int, fd strace.FD) {
	if fd.Deleted {
		fd.Path = ""
	}
	n.fds[task{who, fd.N}] = fd.Path
}
