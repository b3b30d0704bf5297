//go:build !linux

package writeset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Take reads the metadata of root and of everything below it, never following
// a symlink. A directory that cannot be read is no error: see Unreadable. What
// package os does not tell portably (owner, links, inode, ctime) is zero.
func Take(ctx context.Context, root string) (*Snapshot, error) {
	info, err := os.Lstat(root)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s := &Snapshot{self: entry(info), dirs: make(map[string][]child), size: 1}
	for queue := []string{"."}; len(queue) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		path := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		list, err := os.ReadDir(filepath.Join(root, path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.unreadable = append(s.unreadable, path)
			continue
		}
		var in []child
		for _, d := range list {
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("snapshot: %w", err)
			}
			in = append(in, child{d.Name(), entry(info)})
			if d.IsDir() {
				queue = append(queue, join(path, d.Name()))
			}
		}
		slices.SortFunc(in, func(a, b child) int { return cmp.Compare(a.name, b.name) })
		s.dirs[path] = in
		s.size += len(in)
	}
	slices.Sort(s.unreadable)
	return s, nil
}

// entry spells a FileInfo with the type bits of inode(7).
func entry(info fs.FileInfo) Entry {
	mode := uint32(info.Mode().Perm())
	switch info.Mode().Type() {
	case 0:
		mode |= 0o100000
	case fs.ModeDir:
		mode |= typeDir
	case fs.ModeSymlink:
		mode |= 0o120000
	case fs.ModeNamedPipe:
		mode |= 0o010000
	case fs.ModeSocket:
		mode |= 0o140000
	case fs.ModeDevice:
		mode |= 0o060000
	case fs.ModeDevice | fs.ModeCharDevice:
		mode |= 0o020000
	}
	return Entry{Mode: mode, Size: info.Size(), Mtime: info.ModTime().UnixNano()}
}
