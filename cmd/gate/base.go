package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/org/gate/ledger"
)

// target is the revision that a change is to be merged into, as a CI system
// tells it.
type target struct {
	ref   string // of git
	fetch string // the command that gets it into a shallow clone
}

// targetOf finds the target in the variables of a CI system. event says that
// this is a run for a change that is to be merged, whether or not the target
// could be told.
//
// Sources: GitHub "Variables reference" (GITHUB_EVENT_NAME, GITHUB_BASE_REF),
// GitLab "Predefined CI/CD variables reference" (CI_MERGE_REQUEST_*), Buildkite
// "Environment variables" (BUILDKITE_PULL_REQUEST, false where there is none).
func targetOf(getenv func(string) string) (t target, event bool) {
	branch := ""
	switch {
	case strings.HasPrefix(getenv("GITHUB_EVENT_NAME"), "pull_request"):
		event, branch = true, getenv("GITHUB_BASE_REF")
	case getenv("CI_MERGE_REQUEST_IID") != "":
		event, branch = true, getenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
	case getenv("BUILDKITE_PULL_REQUEST") != "" && getenv("BUILDKITE_PULL_REQUEST") != "false":
		event, branch = true, getenv("BUILDKITE_PULL_REQUEST_BASE_BRANCH")
	}
	if branch == "" {
		return target{}, event
	}
	return target{ref: "origin/" + branch, fetch: fetch(branch)}, event
}

// fetch is the command that gets a branch into a shallow clone, where it is then
// called origin/BRANCH.
func fetch(branch string) string {
	return fmt.Sprintf("git fetch --depth=1 origin +refs/heads/%s:refs/remotes/origin/%s", branch, branch)
}

// base reads the ledger that decides what this run may open: the one that the
// flag names, or where CI is set the one of the target of a pull request; nil
// where neither is. named says that the ledger was not looked for: where it was,
// the one that would have been found at the base decides, so that a patch cannot
// put a ledger of its own in its place, nor take it away.
func (a *app) base(flag string, where place, ledgerPath string, named bool) (*ledger.Base, error) {
	if flag != "" {
		if info, err := os.Stat(flag); err == nil && info.Mode().IsRegular() {
			l, sum, err := ledger.Load(flag)
			return &ledger.Base{Ref: flag, Ledger: l, SHA256: sum}, err
		}
		return atRevision(where, target{ref: flag, fetch: fetch(strings.TrimPrefix(flag, "origin/"))}, ledgerPath, named)
	}
	if !a.inCI() {
		return nil, nil
	}
	t, event := targetOf(a.getenv)
	switch {
	case !event:
		return nil, nil
	case t.ref == "":
		return nil, hint(errors.New("this is a run for a pull request, and its target branch is not told: a patch would decide about its own ledger"), "--base REF")
	}
	return atRevision(where, t, ledgerPath, named)
}

// atRevision reads a ledger from git. A revision that is not there is an error;
// a ledger that is not there opens nothing.
func atRevision(where place, t target, ledgerPath string, named bool) (*ledger.Base, error) {
	id, err := commitOf(where, t)
	if err != nil {
		return nil, err
	}
	name, other := where.relative(ledgerPath), ""
	if !named {
		held, err := holding(where, id)
		if err != nil {
			return nil, err
		}
		if held != "" && held != name {
			name, other = held, held
		}
	}
	found, err := git(where.root, "ls-tree", "-z", id, "--", name)
	if err != nil {
		return nil, fmt.Errorf("look for %s at the base %s: git ls-tree: %w", name, t.ref, err)
	}
	if len(found) == 0 {
		return &ledger.Base{Ref: t.ref}, nil
	}
	if !strings.HasPrefix(string(found), "100") { // 100644, 100755; a link is 120000
		return nil, fmt.Errorf("%s at the base %s is not a regular file", name, t.ref)
	}
	data, err := git(where.root, "cat-file", "blob", id+":./"+name)
	if err != nil {
		return nil, fmt.Errorf("read %s at the base %s: git cat-file: %w", name, t.ref, err)
	}
	l, sum, err := ledger.ParseSum(t.ref+":"+name, data)
	if err != nil {
		return nil, err
	}
	return &ledger.Base{Ref: t.ref, Ledger: l, SHA256: sum, Other: other}, nil
}

// holding is the ledger that would be found from the working directory at a
// commit: ledger.Nearest, in git. "" if there is none.
func holding(where place, id string) (string, error) {
	for dir := where.dir; ; dir = filepath.Dir(dir) {
		var places []string
		for _, p := range ledger.StandardPlaces() {
			places = append(places, where.relative(filepath.Join(dir, p)))
		}
		out, err := git(where.root, append([]string{"ls-tree", "-z", "--name-only", id, "--"}, places...)...)
		if err != nil {
			return "", fmt.Errorf("look for a ledger at the base: git ls-tree: %w", err)
		}
		switch names := strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 }); {
		case len(names) == 1:
			return names[0], nil
		case len(names) > 1:
			return "", fmt.Errorf("at the base there are %s, wanted one", strings.Join(names, " and "))
		}
		if dir == where.root || dir == filepath.Dir(dir) {
			return "", nil
		}
	}
}

// commitOf finds a revision in this clone.
func commitOf(where place, t target) (id string, err error) {
	commit, err := git(where.root, "rev-parse", "--verify", "--quiet", "--end-of-options", t.ref+"^{commit}")
	if err != nil { // a branch that only the remote has
		commit, err = git(where.root, "rev-parse", "--verify", "--quiet", "--end-of-options", "refs/remotes/origin/"+t.ref+"^{commit}")
	}
	if err != nil {
		return "", hint(fmt.Errorf("the base %s is not in this clone: git rev-parse: %w", t.ref, err), "%s", t.fetch)
	}
	return strings.TrimSpace(string(commit)), nil
}

// git runs git in a directory and returns what it printed. What it said on
// stderr goes into the error.
func git(dir string, args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("git is not installed")
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return out, err
}
