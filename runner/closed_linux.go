package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
	"github.com/org/gate/writeset"
)

// closed plans the file system that the tree gets. Outside the repository and
// the places of allow_write it is read-only, unless all is only being
// recorded. An isolated run has temporary places that are empty and private,
// and caches whose changes are thrown away, so that nothing it leaves reaches
// the steps after it.
func (r *run) closed() (*sandbox.Closed, error) {
	readOnly := r.cfg.Mode != ledger.Audit && r.cfg.Ledger != nil // nil: a first one is made
	c := &sandbox.Closed{ReadOnly: readOnly}
	add := func(kind sandbox.MountKind, target, source string) {
		again := func(m sandbox.Mount) bool { return m.Target == target }
		if !slices.ContainsFunc(c.Mounts, again) {
			c.Mounts = append(c.Mounts, sandbox.Mount{Kind: kind, Target: target, Source: source})
		}
	}
	add(sandbox.Keep, r.cfg.Root, "")
	for dir := range r.aliases {
		if exists(dir) {
			add(sandbox.Keep, dir, "")
		}
	}
	add(sandbox.Keep, filepath.Dir(r.journal), "")
	r.holdHome()
	if err := r.expireGoTests(add); err != nil {
		return nil, err
	}
	if readOnly || r.cfg.Isolate {
		for _, p := range r.places {
			if cold(p) {
				r.cold = append(r.cold, p.Entry)
			}
			dir, err := r.present(p)
			if err != nil {
				return nil, err
			}
			kind := r.kindOf(p)
			switch kind {
			case sandbox.Empty:
				r.private = append(r.private, p.Entry)
			case sandbox.Layer:
				r.layered = append(r.layered, p.Entry)
			}
			covered := func(m sandbox.Mount) bool { return m.Kind == kind && within(m.Target, dir) }
			if dir != "" && !within(r.cfg.Root, dir) && !slices.ContainsFunc(c.Mounts, covered) {
				add(kind, dir, "")
			}
		}
	}
	r.keepPrograms(c.Mounts, add)
	var err error
	c.Store, err = r.store()
	return c, err
}

// filesRecord says in the record how the file system was closed, and makes a
// gap of what an isolated run could not keep to itself.
func (r *run) filesRecord(rec *ledger.Record) {
	if r.tier != sandbox.Namespace {
		if r.cfg.Isolate {
			r.h.findings.add("not-isolated", "temporary places and caches are shared with the host in this tier", -1)
		}
		return
	}
	rec.Files = &ledger.Files{
		ReadOnly: r.files.ReadOnly,
		Private:  append([]string{}, r.private...), Layered: append([]string{}, r.layered...), Cold: append([]string{}, r.cold...),
		Added: r.added(),
	}
	for _, u := range r.box.Unlayered {
		r.h.gaps.add("shared-cache", "changes of a cache could not be kept from the steps after this run: "+u, -1)
	}
}

// added sums up what the tree put into each layered cache: little, where that
// was warm.
func (r *run) added() []ledger.Added {
	list := []ledger.Added{}
	for _, m := range r.files.Mounts {
		if m.Kind != sandbox.Layer {
			continue
		}
		a := ledger.Added{Place: r.entryOf(m.Target)}
		err := filepath.WalkDir(r.files.Upper(m.Target), func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				a.Files, a.Bytes = a.Files+1, a.Bytes+info.Size()
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it does not, where no layer could be made
			r.h.findings.add("cache-size", "what the run put into "+a.Place+" could not be summed up: "+err.Error(), -1)
		}
		if a.Files > 0 {
			list = append(list, a)
		}
	}
	return list
}

// entryOf gives the first entry of allow_write that is a directory.
func (r *run) entryOf(dir string) string {
	for _, p := range r.places {
		if p.Dir == dir {
			return p.Entry
		}
	}
	return dir
}

// keepPrograms keeps what PATH leads to where an empty directory would hide it.
func (r *run) keepPrograms(mounts []sandbox.Mount, add func(kind sandbox.MountKind, target, source string)) {
	for _, path := range append(filepath.SplitList(lookup(r.cfg.Env)("PATH")), r.path) {
		real := resolved(path)
		hidden := func(m sandbox.Mount) bool {
			return m.Kind == sandbox.Empty && m.Target != real && within(m.Target, real)
		}
		if filepath.IsAbs(path) && exists(real) && !within(r.cfg.Root, real) && slices.ContainsFunc(mounts, hidden) {
			add(sandbox.KeepReadOnly, real, "")
		}
	}
}

// cold reports whether a place is a cache that holds nothing yet: a suite that
// fills it uses ten to a hundred times the CPU time of one that finds it full.
func cold(p writeset.Place) bool {
	if slices.Contains(writeset.Temporary(), p.Entry) || !slices.Contains(writeset.DefaultAllow(), p.Entry) {
		return false
	}
	dir, err := os.Open(p.Dir)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer dir.Close() // read-only
	_, err = dir.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// kindOf is what becomes of a place that the tree may write to.
func (r *run) kindOf(p writeset.Place) sandbox.MountKind {
	switch {
	case !r.cfg.Isolate:
	case slices.Contains(writeset.Temporary(), p.Entry):
		return sandbox.Empty
	case slices.Contains(writeset.DefaultAllow(), p.Entry):
		return sandbox.Layer
	}
	return sandbox.Keep
}

// present gives the directory of a place, or the file if it names one. A
// directory that is missing is made, since below a read-only one the tree could
// not; close removes it if it is still empty then. "" where nothing can be
// made: there the tree could not either.
func (r *run) present(p writeset.Place) (string, error) {
	if exists(p.Dir) {
		return p.Dir, nil
	}
	if p.Pattern == "" { // the name of a file, or of what is to be one
		if dir := filepath.Dir(p.Dir); exists(dir) {
			return dir, nil
		}
		return "", nil
	}
	var missing []string
	dir := p.Dir
	for ; !exists(dir); dir = filepath.Dir(dir) {
		missing = append(missing, dir)
	}
	if dir == "/" { // a home that is not there: nobody's
		return "", nil
	}
	for _, dir := range slices.Backward(missing) {
		err := os.Mkdir(dir, 0o755)
		switch {
		case errors.Is(err, fs.ErrExist): // another gate was faster
			continue
		case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOTDIR):
			return "", nil
		case err != nil:
			return "", fmt.Errorf("make %s, for %s: %w", dir, p.Entry, err)
		}
		r.made = append(r.made, dir)
		if err := r.handOver(dir); err != nil {
			return "", err
		}
	}
	return p.Dir, nil
}

// expireGoTests puts a file of this run's own in place of the one by which the
// go command knows from when on test results hold ("go clean -testcache"
// writes it), so that a cached result is none even where a Makefile drops
// GOFLAGS.
func (r *run) expireGoTests(add func(kind sandbox.MountKind, target, source string)) error {
	caches, err := writeset.Places([]string{"$GOCACHE/**"}, lookup(r.cfg.Env))
	if err != nil || !exists(caches[0].Dir) {
		return nil // GOCACHE=off, or no cache yet
	}
	target, own := filepath.Join(caches[0].Dir, "testexpire.txt"), filepath.Join(r.tmp, "testexpire.txt")
	if !exists(target) {
		f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			return nil // nor can the suite write results there
		}
		if err == nil {
			err = errors.Join(ledger.Own(f, caches[0].Dir), f.Close())
		}
		if err != nil {
			return fmt.Errorf("expire Go's test results: %w", err)
		}
		r.made = append(r.made, target)
	}
	now := strconv.FormatInt(time.Now().UnixNano(), 10) + "\n"
	if err := os.WriteFile(own, []byte(now), 0o666); err != nil {
		return fmt.Errorf("expire Go's test results: %w", err)
	}
	if err := r.handOver(own); err != nil {
		return err
	}
	add(sandbox.Instead, target, own)
	return nil
}

// store makes the directory for what is thrown away: on a disk, if there is one
// to be had.
func (r *run) store() (string, error) {
	var first error
	for _, dir := range []string{filepath.Dir(r.tmp), "/var/tmp"} {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil && (st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC || within(r.cfg.Root, resolved(dir))) {
			continue
		}
		if err == nil {
			var made string
			var lock *os.File
			if made, lock, err = ownDir(dir); err == nil {
				r.locks = append(r.locks, lock)
				return made, os.Chmod(made, 0o711) // the suite's user passes through to its layers
			}
		}
		first = errors.Join(first, err)
	}
	made, err := os.MkdirTemp(r.tmp, "store-") // memory is better than none
	return made, errors.Join(err, first)
}

// holdHome locks the home directory, shared, for as long as this run may use what
// it or another has made there. Without it nothing that was made is removed.
func (r *run) holdHome() {
	home, err := os.Open(lookup(r.cfg.Env)("HOME"))
	if err != nil {
		return
	}
	r.home = home
	if unix.Flock(int(home.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil {
		r.home = nil
		_ = home.Close() // read-only
	}
}

// alone reports whether no other run holds the home directory. It has mounted on
// what this one made, and a mount goes with the name below it.
func (r *run) alone() bool {
	return r.home != nil && unix.Flock(int(r.home.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// restore removes what was made for the closed file system.
func (r *run) restore() error {
	var err error
	if r.files != nil && r.files.Store != "" {
		err = sandbox.RemoveAll(r.files.Store)
	}
	if r.home != nil {
		defer r.home.Close()
	}
	if len(r.made) == 0 || !r.alone() {
		return err
	}
	for _, path := range slices.Backward(r.made) {
		if st, statErr := os.Lstat(path); statErr == nil && st.Mode().IsRegular() && st.Size() > 0 {
			continue // somebody uses it
		}
		if rmErr := os.Remove(path); rmErr != nil && !errors.Is(rmErr, unix.ENOTEMPTY) && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// within says whether path is dir or lies below it; both absolute and clean.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
