package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/org/gate/ledger"
)

// revision asks for the commit under test while the sandbox is set up; nil
// where git has no answer (no commit yet, no git, an owner that git does not
// trust).
func revision(ctx context.Context, root string) <-chan *ledger.Git {
	answer := make(chan *ledger.Git, 1)
	go func() {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "rev-list", "--parents", "-n", "1", "HEAD").Output()
		commits := strings.Fields(string(out))
		if err != nil || len(commits) == 0 {
			answer <- nil
			return
		}
		answer <- &ledger.Git{Commit: commits[0], Parents: commits[1:]}
	}()
	return answer
}

// gitAliases finds a git directory that lies elsewhere, as a work tree of
// git-worktree(1) and a submodule have it, so that its paths count as .git/...
// wherever the checkout is.
func gitAliases(root string) (map[string]string, error) {
	name := filepath.Join(root, ".git")
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
	if !ok {
		return nil, fmt.Errorf("%s: neither a directory nor a file that says gitdir", name)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	aliases := map[string]string{resolved(dir): ".git"}
	if common, err := os.ReadFile(filepath.Join(dir, "commondir")); err == nil {
		shared := strings.TrimSpace(string(common))
		if !filepath.IsAbs(shared) {
			shared = filepath.Join(dir, shared)
		}
		aliases[resolved(shared)] = ".git"
	}
	return aliases, nil
}

// groupsOf are the supplementary groups of a user, by the system's tables.
func groupsOf(uid, gid uint32) []uint32 {
	groups := []uint32{gid}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return groups
	}
	ids, err := u.GroupIds()
	if err != nil {
		return groups
	}
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil && uint32(n) != gid {
			groups = append(groups, uint32(n))
		}
	}
	return groups
}
