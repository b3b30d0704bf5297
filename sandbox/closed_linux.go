package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// graft is a mount that is made before the file system is closed, and put in
// its place afterwards.
type graft struct {
	target string
	fd     int
}

// inOrder gives the mounts, shallow ones first: a mount hides what was mounted
// below it before.
func (c *Closed) inOrder() []Mount {
	return slices.SortedStableFunc(slices.Values(c.Mounts), func(a, b Mount) int { return cmp.Compare(a.Target, b.Target) })
}

// store is the directory of the mount at a place in that order.
func (c *Closed) store(i int) string { return filepath.Join(c.Store, strconv.Itoa(i)) }

// Upper is where the changes of the Layer at a target are, as seen by whoever
// made the box. It does not exist where no layer could be made.
func (c *Closed) Upper(target string) string {
	i := slices.IndexFunc(c.inOrder(), func(m Mount) bool { return m.Target == target })
	return filepath.Join(c.store(i), upperName)
}

const upperName = "upper" // below the store of a Layer

// closeFiles gives the tree the file system that c describes. It returns the
// overlays that could not be had, each with its reason; what they were to
// cover is open as it is.
//
// A mount can be made read-only by anyone who may mount, and a read-only one
// that came from a more privileged namespace can never be made writable again
// (mount_namespaces(7)). So what stays writable is cloned first, then all is
// closed at once, and the clones are put back on top.
func closeFiles(c *Closed, owner *User, userNS bool) (unlayered []string, err error) {
	var grafts []graft
	defer func() {
		for _, g := range grafts {
			err = errors.Join(err, unix.Close(g.fd))
		}
	}()
	empty := map[string]string{} // an empty directory -> what is mounted there
	for i, m := range c.inOrder() {
		store := c.store(i)
		fd, err := m.prepare(store, owner, userNS)
		if err != nil && m.Kind == Layer {
			unlayered = append(unlayered, m.Target+": "+err.Error())
			m.Kind = Keep
			fd, err = m.prepare(store, owner, userNS)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", m.Target, err)
		}
		grafts = append(grafts, graft{m.Target, fd})
		if err := m.standIn(empty); err != nil {
			return nil, err
		}
		if m.Kind == Empty {
			empty[m.Target] = store
		}
	}
	if c.ReadOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
			return nil, fmt.Errorf("make every mount read-only: mount_setattr (Linux 5.12): %w", err)
		}
	}
	for _, g := range grafts {
		if err := unix.MoveMount(g.fd, "", unix.AT_FDCWD, g.target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return nil, fmt.Errorf("move_mount to %s: %w", g.target, err)
		}
	}
	return unlayered, nil
}

// prepare makes the mount, detached. store is a name that is free.
func (m *Mount) prepare(store string, owner *User, userNS bool) (fd int, err error) {
	switch m.Kind {
	case Keep:
		return clone(m.Target)
	case KeepReadOnly:
		if fd, err = clone(m.Target); err != nil {
			return -1, err
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return -1, errors.Join(fmt.Errorf("mount_setattr: %w", err), unix.Close(fd))
		}
		return fd, nil
	case Instead:
		return clone(m.Source)
	case Empty:
		if err := likeness(m.Target, store, owner); err != nil {
			return -1, err
		}
		return clone(store)
	case Layer:
		return m.overlay(store, owner, userNS)
	}
	return -1, fmt.Errorf("BUG: mount of kind %d", m.Kind)
}

// clone is a detached copy of the mounts at and below a path.
func clone(path string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open_tree %s: %w", path, err)
	}
	return fd, nil
}

// likeness makes an empty directory with the mode and owner of another.
func likeness(of, path string, owner *User) error {
	var st unix.Stat_t
	if err := unix.Stat(of, &st); err != nil {
		return fmt.Errorf("stat %s: %w", of, err)
	}
	if err := unix.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("mkdir %s: %w", path, err)
	}
	if os.Geteuid() == 0 && owner != nil && st.Uid == owner.UID {
		if err := unix.Chown(path, int(st.Uid), int(st.Gid)); err != nil {
			return fmt.Errorf("chown %s: %w", path, err)
		}
	}
	if err := unix.Chmod(path, st.Mode&0o7777); err != nil {
		return fmt.Errorf("chmod %s: %w", path, err)
	}
	return nil
}

// overlay mounts what stands at the target with a layer above that takes every
// change (Documentation/filesystems/overlayfs.rst).
func (m *Mount) overlay(store string, owner *User, userNS bool) (fd int, err error) {
	upper, work := filepath.Join(store, upperName), filepath.Join(store, "work")
	if err := unix.Mkdir(store, 0o755); err != nil {
		return -1, fmt.Errorf("mkdir %s: %w", store, err)
	}
	if err := errors.Join(likeness(m.Target, upper, owner), likeness(m.Target, work, owner)); err != nil {
		return -1, err
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen overlay: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fs)) }()
	for _, o := range [][2]string{{"lowerdir", m.Target}, {"upperdir", upper}, {"workdir", work}} {
		// A colon or a backslash separates and escapes in these.
		value := strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(o[1])
		if err := unix.FsconfigSetString(fs, o[0], value); err != nil {
			return -1, fmt.Errorf("overlay %s=%s: %w", o[0], value, err)
		}
	}
	if userNS { // trusted.* attributes are real root's
		if err := unix.FsconfigSetFlag(fs, "userxattr"); err != nil {
			return -1, fmt.Errorf("overlay userxattr: %w", err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("overlay over %s: %w", m.Target, err)
	}
	if fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return -1, fmt.Errorf("fsmount overlay: %w", err)
	}
	return fd, nil
}

// standIn makes something to mount on, if the target lies in a directory that
// will be an empty one.
func (m *Mount) standIn(empty map[string]string) error {
	for dir, store := range empty {
		rest, ok := strings.CutPrefix(m.Target, dir+"/")
		if !ok {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(m.Target, &st); err != nil {
			return fmt.Errorf("stat %s: %w", m.Target, err)
		}
		at := filepath.Join(store, rest)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return fmt.Errorf("make a place for %s: %w", m.Target, err)
			}
			continue
		}
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("make a place for %s: %w", m.Target, err)
		}
	}
	return nil
}
