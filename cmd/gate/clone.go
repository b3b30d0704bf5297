package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/org/gate/sandbox"
)

// freshClone is a clone of the commit that is checked out, as CI would have
// it: without caches, build output, or what else lies about in a work tree.
type freshClone struct {
	place
	parent string // temporary directory around it
}

// cloneFresh makes one. It keeps the name of the repository's directory and
// the working directory below it.
func cloneFresh(where place) (*freshClone, error) {
	parent, err := os.MkdirTemp("", "gate-clone-")
	if err != nil {
		return nil, err
	}
	c := &freshClone{parent: parent}
	root := filepath.Join(parent, filepath.Base(where.root))
	if err := c.fill(where, root); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

func (c *freshClone) fill(where place, root string) error {
	if os.Geteuid() == 0 && os.Getenv("SUDO_UID") != "" {
		return errors.New("under sudo it would belong to root, and the suite does not run as root")
	}
	// --no-local copies: a hard link into the repository's objects would be a
	// way to write there (git-clone(1)). One commit is what CI checks out, and all
	// that a shallow or partial repository may have.
	clone := exec.Command("git", "clone", "--quiet", "--no-local", "--depth=1", where.root, root)
	if out, err := clone.CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, strings.TrimSpace(string(bytes.ReplaceAll(bytes.ReplaceAll(out, []byte("\n"), []byte(" ")), []byte{0}, nil))))
	}
	if out, err := exec.Command("git", "-C", root, "rev-parse", "--verify", "--quiet", "HEAD").CombinedOutput(); err != nil {
		return fmt.Errorf("there is no commit yet: git rev-parse: %w%s", err, out)
	}
	var err error
	if c.root, err = filepath.EvalSymlinks(root); err != nil {
		return err
	}
	c.dir = filepath.Join(c.root, where.relative(where.dir))
	if _, err := os.Stat(c.dir); err != nil {
		return fmt.Errorf("the working directory is not in the commit: %w", err)
	}
	return nil
}

// remove deletes the clone, also what the suite made read-only in it.
func (c *freshClone) remove() error { return sandbox.RemoveAll(c.parent) }
