package sandbox

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// file handles the calls that write.
func (s *supervisor) file(c *call, n *notification, t *task) {
	path, err := s.path(t, n, c.path)
	var path2 string
	if err == nil && (c.do == doRename || c.do == doLink) {
		path2, err = s.path(t, n, c.path2)
	}
	flags, resolve, fErr := s.flags(c, n, t)
	if err = errors.Join(err, fErr); err != nil {
		// The kernel refuses these as well: a bad address, an endless string.
		if !errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.ENAMETOOLONG) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EAGAIN) {
			s.report = func() { s.handler.Gap("unreadable-arguments", c.name+": "+errText(err)) }
		}
		return
	}
	op := &fileOp{s: s, c: c, t: t, who: s.view.credsOf(t), flags: flags, resolve: resolve}
	op.run(arg32(n, c.dirfd), path, arg32(n, c.dirfd2), path2, n)
}

// credsOf are the credentials of a task: the tree's until one changed them.
func (v *view) credsOf(t *task) *creds {
	if !v.credsDiffer {
		return &v.creds
	}
	s, err := readStatus(t.tid)
	if err != nil {
		return &v.creds // it has died, and the call with it
	}
	if s.creds.caps != 0 {
		// If the maps cannot be read, the capabilities count for every file: a
		// row too many, not one too few.
		if ids, err := readIDs(t); err == nil {
			s.creds.ids = ids
		}
	}
	return &s.creds
}

func arg32(n *notification, i int8) int32 {
	if i == none {
		return atFDCWD
	}
	return int32(n.args[i])
}

// path reads a string argument; "" if the call has none or it is NULL.
func (s *supervisor) path(t *task, n *notification, i int8) (string, error) {
	if i == none || n.args[i] == 0 {
		return "", nil
	}
	return readString(t.tid, n.args[i], s.buf[:])
}

// flags are the open or AT_ flags of a call, wherever they are, and the
// RESOLVE_ flags of openat2.
func (s *supervisor) flags(c *call, n *notification, t *task) (flags, resolve uint64, err error) {
	switch {
	case c.name == "creat":
		return oCreat | oWronly | oTrunc, 0, nil
	case c.name == "openat2":
		return readOpenHow(t.tid, n.args[2], n.args[3])
	case c.flags != none:
		return n.args[c.flags], 0, nil
	}
	return 0, 0, nil
}

// readOpenHow reads struct open_how of openat2(2). It is EINVAL or EAGAIN where
// build_open_flags of fs/open.c says so; a flag that is not known here may be
// one of a newer kernel.
func readOpenHow(tid int, addr, size uint64) (flags, resolve uint64, err error) {
	var b [24]byte
	if size < uint64(len(b)) {
		return 0, 0, unix.EINVAL
	}
	got, err := readMemory(tid, addr, b[:])
	if err != nil || got < len(b) {
		return 0, 0, errors.Join(err, shortRead(got, len(b)))
	}
	flags, resolve = binary.NativeEndian.Uint64(b[:]), binary.NativeEndian.Uint64(b[16:])
	mode := binary.NativeEndian.Uint64(b[8:])
	makes := flags&oCreat != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE
	switch {
	case mode != 0 && !makes, resolve&scoped == scoped:
		return 0, 0, unix.EINVAL
	case resolve&resolveCached != 0 && (makes || flags&oTrunc != 0):
		return 0, 0, unix.EAGAIN
	}
	return flags, resolve, nil
}

// fileOp is one call that may write.
type fileOp struct {
	s     *supervisor
	c     *call
	t     *task
	who   *creds
	flags uint64
	// resolve are the RESOLVE_ flags of openat2.
	resolve uint64
}

func (o *fileOp) run(dirfd int32, path string, dirfd2 int32, path2 string, n *notification) {
	v := o.s.view
	from, err := o.first(dirfd, path, n)
	if err != nil {
		o.lost(err)
		return
	}
	switch o.c.do {
	case doOpen:
		if op := v.opens(o.who, &from, o.flags); op != 0 {
			o.emit(op, &from, nil)
		}
	case doMake, doSymlink:
		dir := o.c.name == "mkdir" || o.c.name == "mkdirat"
		if (dir || !from.slash) && o.mayMake(n) && v.mayAdd(o.who, &from) {
			o.emit(Create, &from, nil)
		}
	case doRemove:
		dir := o.c.name == "rmdir" || o.flags&unix.AT_REMOVEDIR != 0
		if v.removes(o.who, &from, dir) {
			o.emit(Remove, &from, nil)
		}
	case doRename:
		to, err := v.find(o.t, dirfd2, path2, false)
		o.lost(err)
		if err == nil && v.renames(o.who, &from, &to, o.flags) {
			op := Rename
			if o.flags&unix.RENAME_EXCHANGE != 0 {
				op = Exchange
			}
			o.emit(op, &from, &to)
		}
	case doLink:
		to, err := v.find(o.t, dirfd2, path2, false)
		o.lost(err)
		switch {
		case err != nil || to.slash || !v.mayAdd(o.who, &to):
		case from.path == "": // an O_TMPFILE gets its name
			o.emit(Create, &to, nil)
		case v.links(o.who, &from, &to):
			o.emit(Link, &from, &to)
		}
	case doTruncate:
		if from.is(unix.S_IFREG) && v.mayWrite(o.who, &from) {
			o.emit(Modify, &from, nil)
		}
	case doMeta, doMetaFD:
		if from.exists && o.changesMeta(&from, n) {
			o.emit(Meta, &from, nil)
		}
	}
}

// lost makes a gap of a path that leads somewhere unknown. All other errors
// say that there is nothing which the call could change.
func (o *fileOp) lost(err error) { o.s.lost(o.c, err) }

func (s *supervisor) lost(c *call, err error) {
	kind := ""
	switch {
	case errors.Is(err, errPlace):
		kind = "foreign-mount"
	case errors.Is(err, errUnnamed):
		kind = "unnamed-path"
	default:
		return
	}
	s.report = func() { s.handler.Gap(kind, c.name+": "+err.Error()) }
}

// first resolves the first path of a call by the rules of that call.
func (o *fileOp) first(dirfd int32, path string, n *notification) (target, error) {
	v := o.s.view
	byFD := o.c.do == doMetaFD
	switch o.c.name {
	case "utimensat", "futimesat", "file_setattr", "setxattrat", "removexattrat", "fchownat", "fchmodat2":
		byFD = path == "" // NULL (futimens), or AT_EMPTY_PATH
	case "linkat":
		byFD = path == "" && o.flags&unix.AT_EMPTY_PATH != 0
	}
	if byFD {
		if dirfd == atFDCWD {
			return v.find(o.t, atFDCWD, ".", true)
		}
		f, err := v.findFD(o.t, dirfd)
		return o.unnamed(f, err)
	}
	if path == "" {
		return target{}, errMissing
	}
	f, err := v.findWith(o.t, dirfd, path, o.follows(path), o.resolve)
	return o.unnamed(f, err)
}

// unnamed lets linkat go on with a file that has no name.
func (o *fileOp) unnamed(f target, err error) (target, error) {
	if errors.Is(err, errNoFile) && o.c.do == doLink {
		return target{}, nil
	}
	return f, err
}

// follows tells whether the call follows a link in the last place. A slash
// behind it makes every call do so but those that change names.
func (o *fileOp) follows(path string) bool {
	slash := strings.HasSuffix(path, "/")
	switch o.c.do {
	case doOpen:
		return slash || o.flags&unix.O_NOFOLLOW == 0 && o.flags&(oCreat|oExcl) != oCreat|oExcl
	case doTruncate:
		return true
	case doLink:
		return o.flags&unix.AT_SYMLINK_FOLLOW != 0
	case doMeta:
		switch o.c.name {
		case "lchown", "lsetxattr", "lremovexattr":
			return slash
		}
		return slash || o.flags&unix.AT_SYMLINK_NOFOLLOW == 0
	}
	return false
}

// changesMeta follows setattr_prepare of fs/attr.c.
func (o *fileOp) changesMeta(f *target, n *notification) bool {
	v := o.s.view
	switch o.c.name {
	case "chown", "lchown", "fchown", "fchownat":
		i := 1
		if o.c.name == "fchownat" {
			i = 2
		}
		return o.mayChown(f, uint32(n.args[i]), uint32(n.args[i+1]))
	case "utime", "utimes":
		return o.mayTouch(f, n.args[1])
	case "futimesat", "utimensat":
		return o.mayTouch(f, n.args[2])
	case "setxattr", "lsetxattr", "fsetxattr":
		return o.mayXattr(f, n.args[1], func() (uint64, error) { return n.args[4], nil })
	case "setxattrat": // struct xattr_args: value, size, flags
		return o.mayXattr(f, n.args[3], func() (uint64, error) {
			word, err := o.word(n.args[4] + 8)
			return word >> 32, err
		})
	case "removexattr", "lremovexattr", "fremovexattr":
		return o.mayXattr(f, n.args[1], func() (uint64, error) { return unix.XATTR_REPLACE, nil })
	case "removexattrat":
		return o.mayXattr(f, n.args[3], func() (uint64, error) { return unix.XATTR_REPLACE, nil })
	case "ioctl":
		return v.mayIoctl(o.who, f, uint32(n.args[1]))
	}
	return o.who.owns(&f.st)
}

// word reads 8 bytes of the task's memory.
func (o *fileOp) word(addr uint64) (uint64, error) {
	var b [8]byte
	got, err := readMemory(o.t.tid, addr, b[:])
	return binary.NativeEndian.Uint64(b[:]), errors.Join(err, shortRead(got, len(b)))
}

func (o *fileOp) mayMake(n *notification) bool {
	switch o.c.name {
	case "mknod":
		return mayMake(o.who, uint32(n.args[1]), n.args[2])
	case "mknodat":
		return mayMake(o.who, uint32(n.args[2]), n.args[3])
	}
	return true
}

// mayTouch follows vfs_utimes of fs/utimes.c: the owner may set any time,
// whoever may write the present one; and utimensat may set none.
func (o *fileOp) mayTouch(f *target, times uint64) bool {
	now := times == 0
	if !now && o.c.name == "utimensat" { // struct timespec: seconds, nanoseconds
		access, err1 := o.word(times + 8)
		change, err2 := o.word(times + 24)
		if errors.Join(err1, err2) != nil || access == unix.UTIME_OMIT && change == unix.UTIME_OMIT {
			return false // EFAULT; or it succeeds and does nothing
		}
		now = access == unix.UTIME_NOW && change == unix.UTIME_NOW
	}
	return o.who.owns(&f.st) || now && o.s.view.mayWrite(o.who, f)
}

// mayXattr: the name and the flags of xattr(7) that the call has.
func (o *fileOp) mayXattr(f *target, name uint64, flags func() (uint64, error)) bool {
	v := o.s.view
	text, err := readString(o.t.tid, name, o.s.buf[:])
	if err != nil || !v.mayXattr(o.who, f, text) {
		return false // EFAULT, ERANGE
	}
	if strings.HasPrefix(text, aclPrefix) {
		return true // set or removed whatever there was
	}
	want, err := flags()
	switch {
	case err != nil:
		return false // EFAULT
	case want&unix.XATTR_REPLACE != 0:
		return v.hasXattr(f.path, text) // else ENODATA
	case want&unix.XATTR_CREATE != 0:
		return v.xattr(f.path, text) != nil // else EEXIST
	}
	return true
}

// mayChown follows chown_ok and chgrp_ok. In a user namespace with one uid
// any other is refused with EINVAL.
func (o *fileOp) mayChown(f *target, uid, gid uint32) bool {
	const same = ^uint32(0)
	if ids := o.who.ids; ids != nil {
		ok1, ok2 := true, true
		if uid != same {
			uid, ok1 = ids.uid.outside(uid)
		}
		if gid != same {
			gid, ok2 = ids.gid.outside(gid)
		}
		if !ok1 || !ok2 {
			return false
		}
	}
	if o.who.over(unix.CAP_CHOWN, &f.st) {
		return true
	}
	if uid != same && uid != f.st.Uid || gid != same && gid != f.st.Gid && !o.who.inGroup(gid) {
		return false
	}
	return uid == same && gid == same || o.who.uid == f.st.Uid
}

func (o *fileOp) emit(op Op, f, to *target) {
	if f.proc || to != nil && to.proc {
		return // not files
	}
	if op == Rename || op == Exchange {
		o.s.view.moved(f, to)
	}
	c := &FileCall{Op: op, Call: o.c.name, Path: f.path, Before: f.node()}
	if to != nil {
		c.To, c.ToBefore = to.path, to.node()
	}
	// A name that goes is seldom a row by itself: who did it need not be
	// looked up before the call goes on.
	o.t.remember(op != Remove)
	o.s.report = func() { o.s.handler.File(c, o.t) }
}
