package writeset

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzNormalForm makes calls at random in a real directory and compares the
// rows with those of an oracle that keeps every event and has all the time in
// the world. Nothing may be unattributed, since every call was told.
func FuzzNormalForm(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08"))
	f.Add([]byte("\x04\x00\x01\x00\x05\x05\x03\x05\x00\x04\x01\x00"))
	seed := []byte{}
	for i := range 120 {
		seed = append(seed, byte(i*i*7+i/3), byte(i*31+i/7), byte(i*i+5*i/2))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, in []byte) {
		l := newLab(t, Config{}, "a/a", "a/b/a", "a/b/b", "b/a", "c")
		o := oracle{initial: map[string]bool{}, tokens: map[token]bool{}}
		for _, p := range l.initial {
			o.initial[p] = true
		}
		var log []string
		for ; len(in) >= 3; in = in[3:] {
			call := strings.Fields(randomCall(in[0], in[1], in[2]))
			if call[0] == "rename" && call[1] == call[2] {
				continue // does nothing
			}
			if l.call(false, call) == nil {
				log = append(log, strings.Join(call, " "))
				o.event(call)
			}
		}
		got := l.rec.Finish(l.before, l.take())
		want := o.rows(func(p string) (bool, bool) {
			st := l.state(l.abs(p))
			return st.Exists, st.Dir
		})
		var hidden []string
		for _, r := range got.Rows {
			if r.Unattributed() {
				hidden = append(hidden, r.Path)
			}
		}
		if diff := cmp.Diff(want, paths(got.Rows)); diff != "" || len(hidden) > 0 {
			t.Errorf("%s\nunattributed: %q\nrows (-want +got):\n%s", strings.Join(log, "\n"), hidden, diff)
		}
		live := 0
		l.rec.each(l.rec.root, func(n *node) {
			for _, tally := range []tally{n.own, n.gone} {
				if tally.count > 0 {
					live++
				}
			}
		})
		if l.rec.Live() != live {
			t.Errorf("%s\nLive() = %d, want %d", strings.Join(log, "\n"), l.rec.Live(), live)
		}
		nodes, dead := -1, 0
		l.rec.each(l.rec.root, func(n *node) {
			nodes++
			if n.dead {
				dead++
			}
		})
		if l.rec.nodes != nodes || l.rec.dead != dead {
			t.Errorf("%s\n%d nodes, %d dead, counted %d, %d", strings.Join(log, "\n"), nodes, dead, l.rec.nodes, l.rec.dead)
		}
	})
}

func (r *Recorder) each(n *node, do func(*node)) {
	do(n)
	for _, k := range n.kids {
		r.each(k, do)
	}
}

// randomCall picks a call and paths of up to three components, now and then one
// outside.
func randomCall(op, from, to byte) string {
	path := func(b byte) string {
		if b >= 243 {
			return "$OUT/" + string('a'+rune(b%3))
		}
		parts := []string{string('a' + rune(b%3)), string('a' + rune(b/3%3)), string('a' + rune(b/9%3))}
		return strings.Join(parts[:1+b/27%3], "/")
	}
	calls := []string{"create", "mkdir", "write", "chmod", "remove", "rename", "rename", "remove"}
	call := calls[int(op)%len(calls)]
	if call == "rename" {
		return fmt.Sprintf("%s %s %s", call, path(from), path(to))
	}
	return call + " " + path(from)
}

// oracle is the normal form as its definition has it.
type oracle struct {
	initial map[string]bool
	tokens  map[token]bool // whether what was written still stands there
}

// token is a path that was written or, if gone, a directory in which a path
// came and went.
type token struct {
	path string
	gone bool
}

func (o *oracle) event(call []string) {
	path := call[1]
	outside := func(p string) bool { return strings.HasPrefix(p, "$OUT") }
	switch {
	case outside(path):
		if call[0] == "rename" && !outside(call[2]) {
			o.tokens[token{call[2], false}] = true
		}
	case call[0] == "remove":
		o.end(path)
	case call[0] == "rename" && outside(call[2]):
		o.tokens[token{path, false}] = true
		for k := range maps.Clone(o.tokens) {
			if !k.gone && (k.path == path || inside(path, k.path)) {
				o.end(k.path)
			}
		}
	case call[0] == "rename":
		o.move(path, call[2])
		if o.initial[path] {
			o.tokens[token{path, false}] = false
		}
		o.tokens[token{call[2], false}] = true
	default:
		o.tokens[token{path, false}] = true
	}
}

// end books that a path no longer stands.
func (o *oracle) end(path string) {
	if o.initial[path] {
		o.tokens[token{path, false}] = false
		return
	}
	delete(o.tokens, token{path, false})
	dir, _ := split(path)
	o.tokens[token{dir, true}] = true
}

// move gives the tokens at and below one path the new prefix. What was there
// before the run keeps its token as well.
func (o *oracle) move(from, to string) {
	next := map[token]bool{}
	for k, stands := range o.tokens {
		if k.path != from && !inside(from, k.path) {
			next[k] = next[k] || stands
			continue
		}
		if !k.gone && o.initial[k.path] {
			next[k] = next[k] || false
		}
		if stands {
			next[token{to + k.path[len(from):], k.gone}] = true
		}
	}
	o.tokens = next
}

func (o *oracle) rows(look func(string) (exists, dir bool)) []string {
	set := []string{}
	for k := range o.tokens {
		exists, _ := look(k.path)
		if !k.gone && (exists || o.initial[k.path]) {
			set = append(set, k.path)
			continue
		}
		dir := k.path
		if !k.gone {
			dir, _ = split(dir)
		}
		for dir != "." {
			if exists, isDir := look(dir); exists && isDir {
				break
			}
			dir, _ = split(dir)
		}
		set = append(set, transientRow(dir))
	}
	return distinct(set)
}
