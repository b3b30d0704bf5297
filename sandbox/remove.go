package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// RemoveAll deletes what a tree has left, once it is dead: overlayfs and suites
// leave directories that their owner may not enter or change.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	open := func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	}
	return errors.Join(filepath.WalkDir(dir, open), os.RemoveAll(dir))
}
