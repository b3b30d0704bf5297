// Package tree lists a directory tree and puts it back as it was.
//
// It follows no symbolic link and opens no file that is listed.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Entry is what stands at one path.
type Entry struct {
	Mode   fs.FileMode
	Target string // of a symbolic link
	Stamp  Stamp
}

// Listing maps slash-separated paths relative to the root to what stands
// there; the root itself is ".".
type Listing map[string]Entry

// List walks the tree at root. A directory that goes away while it is being
// read is an error: nothing else may be at work in there.
func List(root string) (Listing, error) {
	l := Listing{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		e := Entry{Mode: info.Mode(), Stamp: stamp(info)}
		if e.Mode&fs.ModeSymlink != 0 {
			if e.Target, err = os.Readlink(path); err != nil {
				return err
			}
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		l[rel] = e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", root, err)
	}
	return l, nil
}

// Changed tells whether the file itself differs, not only what a directory
// holds: size, mode, owner, inode and both times, and for directories mode
// and owner alone.
func (e Entry) Changed(after Entry) bool {
	if e.Mode != after.Mode || e.Target != after.Target {
		return true
	}
	if e.Mode.IsDir() {
		return e.Stamp.UID != after.Stamp.UID || e.Stamp.GID != after.Stamp.GID
	}
	return e.Stamp != after.Stamp
}

// Saved is a copy of a tree.
type Saved struct {
	root, copy string
}

// Save copies the tree at root to dir, which must not exist yet.
func Save(ctx context.Context, root, dir string) (Saved, error) {
	if err := cp(ctx, root, dir); err != nil {
		return Saved{}, fmt.Errorf("save %s: %w", root, err)
	}
	return Saved{root, dir}, nil
}

// Restore empties the root and fills it from the copy. The root directory
// itself stays, so that its path and inode do.
func (s Saved) Restore(ctx context.Context) error {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.root, err)
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(s.root, e.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restore %s: %w", s.root, err)
	}
	// "copy/." : the contents, and the attributes of the root itself.
	if err := cp(ctx, s.copy+"/.", s.root); err != nil {
		return fmt.Errorf("restore %s: %w", s.root, err)
	}
	return nil
}

// cp is cp(1) --archive: times, modes, owners, links and special files as
// they are.
func cp(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "-a", "--", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp -a %s %s: %w: %s", from, to, err, out)
	}
	return nil
}
