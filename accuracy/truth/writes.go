package truth

import (
	"path"
	"slices"
	"strings"

	"github.com/org/gate/accuracy/tree"
)

// node is one file from the call that made it to the call that removed it,
// whatever it was called in between.
type node struct {
	path    string // the last it had inside the repository, relative
	brought bool   // a rename put it here from outside, with all that it held
}

// writes collects touched paths, relative to the repository.
type writes struct {
	touched map[string][]*node // path at the time -> the files that had it
	live    map[string]*node   // path now -> file, for those that were touched
}

func newWrites() *writes {
	return &writes{touched: map[string][]*node{}, live: map[string]*node{}}
}

// touch says that what stands at p was made, changed or is about to go.
func (w *writes) touch(p string) {
	n := w.live[p]
	if n == nil {
		n = &node{path: p}
		w.live[p] = n
	}
	if !slices.Contains(w.touched[p], n) {
		w.touched[p] = append(w.touched[p], n)
	}
}

// remove says that nothing stands at p any more.
func (w *writes) remove(p string) {
	w.touch(p)
	delete(w.live, p)
}

// rename moves from, and all below it, to to; either is "" if it lies outside
// the repository.
func (w *writes) rename(from, to string) {
	if from != "" {
		w.touch(from)
	}
	moved := w.take(from)
	w.take(to) // replaced
	if to == "" {
		return
	}
	for below, n := range moved {
		n.path = to + below
		w.live[n.path] = n
	}
	w.touch(to)
	if from == "" {
		w.live[to].brought = true
	}
}

// exchange swaps two paths with all below them.
func (w *writes) exchange(a, b string) {
	w.touch(a)
	w.touch(b)
	fromA, fromB := w.take(a), w.take(b)
	for below, n := range fromA {
		n.path = b + below
		w.live[n.path] = n
	}
	for below, n := range fromB {
		n.path = a + below
		w.live[n.path] = n
	}
	w.touch(a)
	w.touch(b)
}

// take removes p and all below it from the live files and returns them by the
// rest of their path.
func (w *writes) take(p string) map[string]*node {
	taken := map[string]*node{}
	if p == "" {
		return taken
	}
	for at, n := range w.live {
		if rest, ok := strings.CutPrefix(at, p); ok && (rest == "" || rest[0] == '/') {
			taken[rest] = n
			delete(w.live, at)
		}
	}
	return taken
}

// rows reduces the touched paths: a path that stood there before or stands
// there after is itself; else the file goes by the last name it had; else it
// left no trace and is its nearest directory that stands after, plus "/*".
func (w *writes) rows(before, after tree.Listing) map[string]bool {
	exists := func(p string) bool {
		_, was := before[p]
		_, is := after[p]
		return was || is
	}
	rows := map[string]bool{}
	for p, nodes := range w.touched {
		if exists(p) {
			rows[quote(p)] = true
			continue
		}
		for _, n := range nodes {
			if n.path != p && exists(n.path) {
				rows[quote(n.path)] = true
				continue
			}
			rows[trace(n.path, after)] = true
		}
	}
	for p := range after {
		if _, was := before[p]; !was && w.below(p) {
			rows[quote(p)] = true
		}
	}
	return rows
}

// below tells whether p came with a directory from outside.
func (w *writes) below(p string) bool {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if n := w.live[dir]; n != nil && n.brought {
			return true
		}
	}
	return false
}

// trace is the row of a path that left none.
func trace(p string, after tree.Listing) string {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if dir == "." {
			return "*"
		}
		if after[dir].Mode.IsDir() {
			return quote(dir) + "/*"
		}
	}
}
