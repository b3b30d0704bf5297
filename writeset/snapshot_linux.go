package writeset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Take reads the metadata of root and of everything below it, mounts included,
// never following a symlink. A directory that cannot be read is no error: see
// Unreadable. An entry that vanishes meanwhile is left out.
//
// Each directory is opened relative to the one above, so no path is ever too
// long and each name is resolved once; a few goroutines share the work.
func Take(ctx context.Context, root string) (*Snapshot, error) {
	var st unix.Stat_t
	if err := unix.Lstat(root, &st); err != nil {
		return nil, fmt.Errorf("snapshot: lstat %s: %w", root, err)
	}
	w := &walk{
		snap:  &Snapshot{self: entry(&st), dirs: make(map[string][]child), size: 1},
		queue: []job{{dir: &openDir{fd: unix.AT_FDCWD, jobs: 1}, name: root, path: "."}},
	}
	w.wake.L = &w.mu
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4) {
		workers.Go(func() { w.work(ctx) })
	}
	workers.Wait()
	if w.err != nil {
		return nil, fmt.Errorf("snapshot: %w", w.err)
	}
	slices.Sort(w.snap.unreadable)
	return w.snap, nil
}

// walk is a traversal in progress. The queue is a stack, which keeps the number
// of open directories near the depth of the tree.
type walk struct {
	mu    sync.Mutex
	wake  sync.Cond // the queue grew, or the walk is over
	snap  *Snapshot
	queue []job
	busy  int   // workers that may still add to the queue
	err   error // the first one; what is queued is then only closed
}

// job is a directory to read: name, relative to dir.
type job struct {
	dir        *openDir
	name, path string
}

// openDir is a descriptor that is closed when the last job below it is done.
type openDir struct{ fd, jobs int }

func (w *walk) work(ctx context.Context) {
	buf := make([]byte, 32<<10)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 {
			if w.busy == 0 {
				w.wake.Broadcast()
				return
			}
			w.wake.Wait()
		}
		j := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		if w.err == nil {
			w.err = ctx.Err()
		}
		if w.err == nil {
			w.busy++
			w.mu.Unlock()
			fd, in, err := readDir(j.dir.fd, j.name, buf)
			w.mu.Lock()
			w.busy--
			w.done(j.path, fd, in, err)
		}
		w.release(j.dir)
	}
}

// done books what one directory held, w.mu held.
func (w *walk) done(path string, fd int, in []child, err error) {
	switch {
	case err == nil:
		w.snap.dirs[path] = in
		w.snap.size += len(in)
		dir := &openDir{fd: fd, jobs: 1}
		for _, c := range in {
			if c.Dir() {
				dir.jobs++
				w.queue = append(w.queue, job{dir, c.name, join(path, c.name)})
			}
		}
		if dir.jobs > 1 {
			w.wake.Broadcast()
		}
		w.release(dir)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		// Removed or replaced since the directory above it was read.
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		w.err = fmt.Errorf("read directory %s: %w", Quote(path), err)
	default:
		w.snap.unreadable = append(w.snap.unreadable, path)
	}
}

// release counts one job of a directory as done, w.mu held.
func (w *walk) release(dir *openDir) {
	if dir.jobs--; dir.jobs == 0 && dir.fd != unix.AT_FDCWD {
		if err := unix.Close(dir.fd); err != nil && w.err == nil {
			w.err = fmt.Errorf("close directory: %w", err)
		}
	}
}

// readDir opens a directory and reads the metadata of its entries. It returns
// the descriptor too, unless there is an error.
func readDir(at int, name string, buf []byte) (fd int, in []child, err error) {
	fd, err = openDirectory(at, name)
	if err != nil {
		return -1, nil, err
	}
	names, err := readNames(fd, buf)
	if err == nil {
		in, err = statAll(fd, names)
	}
	if err != nil {
		return -1, nil, errors.Join(err, unix.Close(fd))
	}
	return fd, in, nil
}

func openDirectory(at int, name string) (fd int, err error) {
	return retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

func readNames(fd int, buf []byte) ([]string, error) {
	var names []string
	for {
		n, err := retry(func() (int, error) { return unix.Getdents(fd, buf) })
		if err != nil || n == 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

func statAll(fd int, names []string) ([]child, error) {
	in := make([]child, 0, len(names))
	var st unix.Stat_t
	for _, name := range names {
		_, err := retry(func() (int, error) { return 0, unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		in = append(in, child{name, entry(&st)})
	}
	slices.SortFunc(in, func(a, b child) int { return cmp.Compare(a.name, b.name) })
	return in, nil
}

// retry repeats a call that a signal interrupts, as network file systems and
// FUSE can be.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func entry(st *unix.Stat_t) Entry {
	return Entry{
		Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: uint32(st.Nlink),
		Size: st.Size, Dev: st.Dev, Ino: st.Ino,
		Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
}
