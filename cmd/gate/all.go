package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/org/gate/ledger"
	"github.com/org/gate/writeset"
)

// runAll runs the command of every ledger of the repository, each in the
// directory that its ledger speaks for, and returns the first status that is
// not 0. One that the change does not concern, by its paths, is left out.
func (a *app) runAll(o *runOptions, command []string) (int, error) {
	if len(command) > 0 || o.ledger != "" || o.record != "" || o.trace != "" || o.json {
		return 0, hint(errors.New("--all runs what each ledger pins and writes each record beside its ledger"), "leave out the command, --ledger, --record, --trace and --json")
	}
	where, err := locate(o.root)
	if err != nil {
		return 0, err
	}
	names, err := ledgers(where)
	if err != nil {
		return 0, err
	}
	changed, known, err := a.changed(o, where)
	if err != nil {
		return 0, err
	}
	status, err := a.gone(o, where, names)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		path := filepath.Join(where.root, name)
		c, err := place{ledger.Home(path), where.root}.contract(path, "")
		if err != nil {
			return 0, err
		}
		concerned := true
		if known {
			if concerned, err = a.concerned(o, c, name, changed); err != nil {
				return 0, fmt.Errorf("%s: paths: %w", name, err)
			}
		}
		if !concerned {
			if err := a.say("%s: not run, the change touches none of %s", name, strings.Join(c.ledger.Paths, ", ")); err != nil {
				return 0, err
			}
			continue
		}
		if !o.quiet {
			if err := a.say("%s:", name); err != nil {
				return 0, err
			}
		}
		code, err := a.runContract(c, o, nil)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		if o.quiet && code != 0 {
			if err := a.say("that was %s", name); err != nil {
				return 0, err
			}
		}
		if status == 0 {
			status = code
		}
	}
	return status, nil
}

// gone says which ledgers of the base a patch has taken away: nobody would miss
// the runs that they asked for.
func (a *app) gone(o *runOptions, where place, names []string) (status int, err error) {
	ref := a.baseRef(o)
	if ref == "" {
		return 0, nil
	}
	id, err := commitOf(where, target{ref: ref, fetch: fetch(strings.TrimPrefix(ref, "origin/"))})
	if err != nil {
		return 0, err
	}
	out, err := git(where.root, "ls-tree", "-r", "-z", "--name-only", id)
	if err != nil {
		return 0, fmt.Errorf("list the ledgers at the base: git ls-tree: %w", err)
	}
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if path := string(name); filepath.Base(path) == ledgerName && !slices.Contains(names, path) {
			status = ledger.ExitDrift
			if err := a.say("drift: %s is at the base %s, and gone here", path, ref); err != nil {
				return 0, err
			}
		}
	}
	return status, nil
}

// concerned reports whether a change touches what a ledger is for, as it says
// itself or as its base said.
func (a *app) concerned(o *runOptions, c contract, name string, changed []string) (bool, error) {
	base, err := a.base(o.base, c.where, c.files.ledger, true)
	if err != nil {
		return false, err
	}
	if base == nil || base.Ledger == nil || slices.Contains(changed, name) {
		return true, nil
	}
	now, err := touched(c.ledger.Paths, changed)
	if err != nil || now {
		return now, err
	}
	return touched(base.Ledger.Paths, changed)
}

// baseRef is the revision to compare with; "" where there is none, or the base
// is a file.
func (a *app) baseRef(o *runOptions) string {
	if info, err := os.Stat(o.base); err == nil && info.Mode().IsRegular() {
		return ""
	}
	if t, event := targetOf(a.getenv); o.base == "" && event && a.inCI() {
		return t.ref
	}
	return o.base
}

// ledgers are those of the repository that git does not ignore, sorted.
func ledgers(where place) ([]string, error) {
	out, err := git(where.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*"+ledgerName)
	if err != nil {
		return nil, fmt.Errorf("look for ledgers: git ls-files: %w", err)
	}
	var names []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		path := string(name)
		if filepath.Base(path) != ledgerName || slices.Contains(names, path) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(where.root, path)); err == nil { // the index may have what the work tree has not
			names = append(names, path)
		}
	}
	slices.Sort(names)
	if names == nil {
		return nil, hint(fmt.Errorf("no ledger in %s", where.root), "gate init -- COMMAND")
	}
	return names, nil
}

// changed lists the paths that differ from the base; known is false where there
// is no base to compare with.
func (a *app) changed(o *runOptions, where place) (paths []string, known bool, err error) {
	ref := a.baseRef(o)
	if ref == "" {
		return nil, false, nil
	}
	id, err := commitOf(where, target{ref: ref, fetch: fetch(strings.TrimPrefix(ref, "origin/"))})
	if err != nil {
		return nil, false, err
	}
	out, err := git(where.root, "diff", "--name-only", "-z", "--no-renames", id, "--")
	if err != nil {
		return nil, false, fmt.Errorf("list what changed since %s: git diff: %w", ref, err)
	}
	for path := range bytes.SplitSeq(out, []byte{0}) {
		if len(path) > 0 {
			paths = append(paths, string(path))
		}
	}
	return paths, true, nil
}

// touched says whether one of the paths matches one of the globs; no globs stand
// for every path.
func touched(globs, paths []string) (bool, error) {
	if len(globs) == 0 {
		return true, nil
	}
	parsed, err := writeset.ParseGlobs(globs)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		return slices.ContainsFunc(parsed, func(g writeset.Glob) bool { return g.Match(path) })
	}), nil
}
