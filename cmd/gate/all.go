package main

import (
	"bytes"
	"errors"
	"fmt"
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
	status := 0
	for _, name := range names {
		path := filepath.Join(where.root, name)
		c, err := place{ledger.Home(path), where.root}.contract(path, "")
		if err != nil {
			return 0, err
		}
		concerned, err := touched(c.ledger.Paths, changed)
		if err != nil {
			return 0, fmt.Errorf("%s: paths: %w", name, err)
		}
		if known && !concerned {
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

// ledgers are those of the repository that git does not ignore, sorted.
func ledgers(where place) ([]string, error) {
	out, err := git(where.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*"+ledgerName)
	if err != nil {
		return nil, fmt.Errorf("look for ledgers: git ls-files: %w", err)
	}
	var names []string
	for name := range bytes.SplitSeq(out, []byte{0}) {
		if path := string(name); filepath.Base(path) == ledgerName && !slices.Contains(names, path) {
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
	ref := o.base
	if t, event := targetOf(a.getenv); ref == "" && event && a.inCI() {
		ref = t.ref
	}
	if ref == "" {
		return nil, false, nil
	}
	if _, err := git(where.root, "rev-parse", "--verify", "--quiet", "--end-of-options", ref+"^{commit}"); err != nil {
		return nil, false, nil // a file; or what base says of it in a moment
	}
	out, err := git(where.root, "diff", "--name-only", "-z", "--no-renames", ref, "--")
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
