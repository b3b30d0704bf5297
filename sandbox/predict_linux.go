package sandbox

import "golang.org/x/sys/unix"

// A call that cannot succeed is no write, so each rule here answers: will the
// kernel let this go through? They follow fs/namei.c and fs/attr.c. Where
// they cannot know (a full disk, a quota, a lease), they say yes.

// mayWrite: contents of an existing file.
func (v *view) mayWrite(c *creds, f *target) bool {
	return v.may(c, f.path, &f.st, mayWrite)
}

// mayAdd: a new name in the target's parent directory.
func (v *view) mayAdd(c *creds, f *target) bool {
	if f.exists {
		return false
	}
	_, ok := v.mayChange(c, f)
	return ok
}

// mayChange: the names in the target's parent directory. The directory is
// looked at only where that can matter.
func (v *view) mayChange(c *creds, f *target) (dir unix.Stat_t, ok bool) {
	if c.has(unix.CAP_DAC_OVERRIDE) && c.has(unix.CAP_FOWNER) {
		return dir, true
	}
	if dir, ok = v.parent(f); !ok {
		return dir, false
	}
	return dir, v.may(c, parentPath(f.path), &dir, mayWrite|mayExec)
}

// mayDrop: the target's name in its parent directory, sticky bit and all.
func (v *view) mayDrop(c *creds, f *target) bool {
	if !f.exists {
		return false
	}
	dir, ok := v.mayChange(c, f)
	sticky := dir.Mode&unix.S_ISVTX != 0
	return ok && (!sticky || c.uid == f.st.Uid || c.uid == dir.Uid || c.has(unix.CAP_FOWNER))
}

// may looks at the mode bits, and asks the kernel before it says no: an
// access control list may grant what they deny.
func (v *view) may(c *creds, path string, st *unix.Stat_t, want uint32) bool {
	if c.allows(st, want) {
		return true
	}
	if !v.shared || v.credsDiffer || v.rootsDiffer {
		return false
	}
	rel := path[1:]
	if rel == "" {
		rel = "."
	}
	return unix.Faccessat(v.root, rel, want, unix.AT_EACCESS) == nil
}

func parentPath(p string) string {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			return p[:i]
		}
	}
	return "/"
}

// special tells whether a file is one that holds nothing: character and block
// devices, pipes, and sockets.
func special(f *target) bool {
	return f.is(unix.S_IFCHR) || f.is(unix.S_IFBLK) || f.is(unix.S_IFIFO) || f.is(unix.S_IFSOCK)
}

// opens tells what an open with write intent will do; 0: nothing to a file.
func (v *view) opens(c *creds, f *target, flags uint64) Op {
	if flags&unix.O_PATH != 0 {
		return 0
	}
	if flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return 0 // no name; linkat may give it one
	}
	create := flags&oCreat != 0
	if !f.exists {
		if create && flags&unix.O_DIRECTORY == 0 && !f.slash && v.mayAdd(c, f) {
			return Create
		}
		return 0
	}
	switch {
	case create && flags&oExcl != 0, f.is(unix.S_IFDIR), f.is(unix.S_IFLNK), special(f), flags&unix.O_DIRECTORY != 0:
		return 0
	}
	if flags&writeFlags == 0 {
		return 0 // openat2 is always looked at
	}
	// O_CREAT alone cannot change a file that is there. It counts all the
	// same: a cold and a warm run would differ by it.
	want := uint32(0)
	if flags&(oWronly|oRdwr|oTrunc) != 0 {
		want |= mayWrite
	}
	if flags&oWronly == 0 {
		want |= 4
	}
	if !v.may(c, f.path, &f.st, want) {
		return 0
	}
	return Modify
}

// removes: unlink (dir false) or rmdir.
func (v *view) removes(c *creds, f *target, dir bool) bool {
	if f.dot || !v.mayDrop(c, f) || f.is(unix.S_IFDIR) != dir {
		return false
	}
	return !dir || v.empty(f.path)
}

// renames: from over to, with the flags of renameat2(2).
func (v *view) renames(c *creds, from, to *target, flags uint64) bool {
	if from.dot || to.dot || !v.mayDrop(c, from) || !v.sameDevice(from, to) {
		return false
	}
	same := to.exists && from.st.Dev == to.st.Dev && from.st.Ino == to.st.Ino // rename(2): does nothing
	if flags&unix.RENAME_EXCHANGE != 0 {
		return !same && v.mayDrop(c, to) && !within(to.path, from.path) && !within(from.path, to.path)
	}
	if !to.exists {
		return v.mayAdd(c, to) && (from.is(unix.S_IFDIR) || !to.slash) && !(from.is(unix.S_IFDIR) && within(to.path, from.path))
	}
	switch {
	case same, flags&unix.RENAME_NOREPLACE != 0, !v.mayDrop(c, to), from.is(unix.S_IFDIR) != to.is(unix.S_IFDIR):
		return false
	case to.is(unix.S_IFDIR):
		return v.empty(to.path) && !within(to.path, from.path)
	}
	return true
}

// sameDevice: neither rename nor link crosses file systems (EXDEV).
func (v *view) sameDevice(from, to *target) bool {
	a, ok1 := v.parent(from)
	b, ok2 := v.parent(to)
	return ok1 && ok2 && a.Dev == b.Dev
}

// links: a hard link to from, named to. See also proc(5), protected_hardlinks.
func (v *view) links(c *creds, from, to *target) bool {
	if !from.exists || from.is(unix.S_IFDIR) || !v.sameDevice(from, to) || !v.mayAdd(c, to) {
		return false
	}
	if c.owns(&from.st) {
		return true
	}
	return from.is(unix.S_IFREG) && from.st.Mode&unix.S_ISUID == 0 && v.may(c, from.path, &from.st, 4|mayWrite)
}

// within tells whether a path lies below a directory.
func within(path, dir string) bool {
	return len(path) > len(dir) && path[:len(dir)] == dir && path[len(dir)] == '/'
}
