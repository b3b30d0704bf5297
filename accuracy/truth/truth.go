// Package truth reduces what strace saw of a run to the rows a record must
// have: endpoints and written paths in gate's normal form.
//
// It is the reference gate is held against, so it shares no code with gate,
// takes only calls whose result is known, and believes the listing of the
// tree before and after where the log is silent. It runs nothing.
package truth

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/org/gate/accuracy/strace"
	"github.com/org/gate/accuracy/tree"
)

// Run is what was kept of one.
type Run struct {
	Places        // Root is the repository
	Dir    string // where the command started, absolute and resolved
	Calls  []strace.Call
	Before tree.Listing
	After  tree.Listing
	Lookups
}

// Rows are the two columns, sorted, without folds.
type Rows struct {
	Net    []string
	Writes []string
	Notes  []string // what the log could not tell; for a human to judge
}

// Syscalls are the calls that Reduce reads, for strace's -e trace=. The
// question mark lets an architecture be without one.
const Syscalls = "?open,openat,openat2,?creat,?mkdir,mkdirat,?rmdir,?unlink,unlinkat," +
	"?rename,?renameat,renameat2,?link,linkat,?symlink,symlinkat,?mknod,mknodat," +
	"truncate,ftruncate,fallocate,?chmod,fchmod,fchmodat,?fchmodat2,?chown,fchown,?lchown,fchownat," +
	"?utime,?utimes,?futimesat,utimensat,setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr," +
	"chdir,fchdir,chroot,?pivot_root,mount,unshare,setns,clone,clone3,?fork,?vfork," +
	"socket,connect,bind,sendto,sendmsg,sendmmsg,write,writev,io_uring_setup"

// reducer replays a run.
type reducer struct {
	run    Run
	names  *names
	cwds   *cwds
	writes *writes
	net    *network
	notes  map[string]bool
}

// Reduce replays the calls of a run. Symbolic links outside the repository
// are taken to be as they are now.
func Reduce(run Run) Rows { return reduce(run, os.Readlink) }

func reduce(run Run, readlink func(string) (string, error)) Rows {
	r := &reducer{
		run: run, names: newNames(run.Root, run.Before, readlink), cwds: newCwds(run.Dir, run.Calls),
		writes: newWrites(), net: newNetwork(), notes: map[string]bool{},
	}
	for _, c := range run.Calls {
		if c.Ended {
			r.cwds.end(c.Task)
			continue
		}
		r.call(c)
	}
	rows := r.writes.rows(run.Before, run.After)
	for p := range unexplained(run.Before, run.After) {
		if row := quote(p); !rows[row] {
			rows[row] = true
			r.note("%s changed without a call that names it", row)
		}
	}
	return Rows{
		Net:    sorted(r.net.rows(run.Lookups, run.Places)),
		Writes: sorted(rows),
		Notes:  sorted(r.notes),
	}
}

// unexplained lists what the disk shows to have changed.
func unexplained(before, after tree.Listing) map[string]bool {
	changed := map[string]bool{}
	for p, b := range before {
		if a, ok := after[p]; !ok || b.Changed(a) {
			changed[p] = true
		}
	}
	for p := range after {
		if _, ok := before[p]; !ok {
			changed[p] = true
		}
	}
	return changed
}

func (r *reducer) note(format string, args ...any) {
	r.notes[fmt.Sprintf(format, args...)] = true
}

func sorted(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for s := range set {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// call takes one call in. Those on files count only if they succeeded.
func (r *reducer) call(c strace.Call) {
	r.learnCwd(c)
	switch c.Name {
	case "socket":
		r.net.socket(c)
	case "io_uring_setup":
		r.net.other["raw:io_uring"] = true // refused: nobody could see what a ring does
	case "connect":
		r.net.connect(c, r.unixPath(c))
	case "sendto":
		r.net.send(c, c.Arg(4), c.Arg(3), r.unixPath(c))
	case "sendmsg":
		r.net.send(c, member(c.Arg(1), "msg_name"), c.Arg(2), r.unixPath(c))
	case "sendmmsg":
		list, _ := strace.Elements(c.Arg(1), '[')
		for i, message := range list {
			if i < c.Int() {
				r.net.send(c, member(member(message, "msg_hdr"), "msg_name"), c.Arg(3), r.unixPath(c))
			}
		}
	case "write", "writev":
		r.net.send(c, "", "", nil)
	default:
		if c.OK() {
			r.file(c)
		}
	}
}

// file takes in a call on files that succeeded.
func (r *reducer) file(c strace.Call) {
	flags := func(i int, names ...string) bool { return strace.Flags(c.Arg(i), names...) }
	switch c.Name {
	case "open":
		r.open(c, "", c.Arg(0), c.Arg(1))
	case "creat":
		r.open(c, "", c.Arg(0), "O_WRONLY|O_CREAT|O_TRUNC")
	case "openat":
		r.open(c, c.Arg(0), c.Arg(1), c.Arg(2))
	case "openat2":
		r.open(c, c.Arg(0), c.Arg(1), member(c.Arg(2), "flags"))

	case "mkdir":
		r.touch(r.at(c, "", c.Arg(0), false))
	case "mkdirat":
		r.touch(r.at(c, c.Arg(0), c.Arg(1), false))
	case "mknod":
		r.make(r.at(c, "", c.Arg(0), false), tree.Entry{Mode: kind(c.Arg(1))})
	case "mknodat":
		r.make(r.at(c, c.Arg(0), c.Arg(1), false), tree.Entry{Mode: kind(c.Arg(2))})
	case "symlink":
		target, _ := strace.String(c.Arg(0))
		r.make(r.at(c, "", c.Arg(1), false), tree.Entry{Mode: fs.ModeSymlink, Target: target})
	case "symlinkat":
		target, _ := strace.String(c.Arg(0))
		r.make(r.at(c, c.Arg(1), c.Arg(2), false), tree.Entry{Mode: fs.ModeSymlink, Target: target})
	case "bind":
		r.bind(c)
	case "link":
		r.link(r.at(c, "", c.Arg(0), false), r.at(c, "", c.Arg(1), false))
	case "linkat":
		r.link(r.at(c, c.Arg(0), c.Arg(1), flags(4, "AT_SYMLINK_FOLLOW")), r.at(c, c.Arg(2), c.Arg(3), false))

	case "rename":
		r.rename(r.at(c, "", c.Arg(0), false), r.at(c, "", c.Arg(1), false))
	case "renameat":
		r.rename(r.at(c, c.Arg(0), c.Arg(1), false), r.at(c, c.Arg(2), c.Arg(3), false))
	case "renameat2":
		from, to := r.at(c, c.Arg(0), c.Arg(1), false), r.at(c, c.Arg(2), c.Arg(3), false)
		switch {
		case flags(4, "RENAME_EXCHANGE"):
			r.exchange(from, to)
		default:
			r.rename(from, to)
		}
	case "unlink", "rmdir":
		r.remove(r.at(c, "", c.Arg(0), false))
	case "unlinkat":
		r.remove(r.at(c, c.Arg(0), c.Arg(1), false))

	case "truncate", "chmod", "chown", "utime", "utimes", "setxattr", "removexattr":
		r.touch(r.at(c, "", c.Arg(0), true))
	case "lchown", "lsetxattr", "lremovexattr":
		r.touch(r.at(c, "", c.Arg(0), false))
	case "ftruncate", "fallocate", "fchmod", "fchown", "fsetxattr", "fremovexattr":
		r.touch(r.behind(c.Arg(0)))
	case "fchmodat", "futimesat":
		r.touch(r.at(c, c.Arg(0), c.Arg(1), true))
	case "fchmodat2", "utimensat":
		r.touch(r.at(c, c.Arg(0), c.Arg(1), !flags(3, "AT_SYMLINK_NOFOLLOW")))
	case "fchownat":
		r.touch(r.at(c, c.Arg(0), c.Arg(1), !flags(4, "AT_SYMLINK_NOFOLLOW")))

	case "chdir":
		r.cwds.set(c.Task, r.at(c, "", c.Arg(0), true))
	case "fchdir":
		r.cwds.set(c.Task, r.behind(c.Arg(0)))
	case "unshare":
		if flags(0, "CLONE_FS", "CLONE_NEWNS", "CLONE_NEWUSER") { // the latter two imply it
			r.cwds.unshare(c.Task)
		}
		if flags(0, "CLONE_NEWNET", "CLONE_NEWNS") {
			r.note("unshare(%s): what follows may have happened elsewhere", c.Arg(0))
		}
	case "chroot", "pivot_root", "mount", "setns":
		r.note("%s: paths that follow may mean others than they say", c.Name)
	}
}

// at resolves a path argument relative to a descriptor argument, "" for the
// working directory. "" is what cannot be told.
func (r *reducer) at(c strace.Call, dirfd, arg string, follow bool) string {
	p, ok := strace.String(arg)
	if arg == "NULL" || ok && p == "" { // futimens(3), AT_EMPTY_PATH: the descriptor itself
		return r.behind(dirfd)
	}
	if !ok {
		r.note("line %d: %s with a path that cannot be read: %s", c.Line, c.Name, arg)
		return ""
	}
	base := r.cwds.of(c.Task)
	if dirfd != "" && !path.IsAbs(p) {
		base = r.behind(dirfd)
		if base == "" {
			r.note("line %d: %s below a descriptor of unknown path: %s", c.Line, c.Name, dirfd)
			return ""
		}
	}
	abs, ok := r.names.resolve(c.Task, base, p, follow)
	if !ok {
		r.note("line %d: %s of %s, which cannot be resolved", c.Line, c.Name, quote(p))
		return ""
	}
	return abs
}

// behind is the path a descriptor leads to, "" if it has none (any more).
func (r *reducer) behind(arg string) string {
	fd, ok := strace.Descriptor(arg)
	if !ok || fd.Deleted || !path.IsAbs(fd.Path) {
		return ""
	}
	return fd.Path
}

// unixPath resolves a socket's path as the caller of c sees it.
func (r *reducer) unixPath(c strace.Call) func(string) (string, bool) {
	return func(p string) (string, bool) {
		return r.names.resolve(c.Task, r.cwds.of(c.Task), p, true)
	}
}

// learnCwd takes the working directory from AT_FDCWD</path>.
func (r *reducer) learnCwd(c strace.Call) {
	for _, arg := range c.Args {
		if strings.HasPrefix(arg, "AT_FDCWD<") {
			if p := r.behind(arg); p != "" {
				r.cwds.set(c.Task, p)
			}
			return
		}
	}
}

// open counts if it was made with write intent on a file. The path is that of
// the descriptor it gave: the kernel's own answer.
func (r *reducer) open(c strace.Call, dirfd, arg, flags string) {
	fd, ok := strace.Descriptor(c.Ret)
	if !ok {
		return
	}
	r.names.opened(c.Task, fd)
	if strace.Flags(flags, "O_TMPFILE", "O_PATH") || !strace.Flags(flags, "O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC") {
		return
	}
	abs := r.behind(c.Ret)
	if fd.Deleted { // gone before strace looked
		abs = r.at(c, dirfd, arg, !strace.Flags(flags, "O_NOFOLLOW", "O_EXCL"))
	}
	if abs == "" {
		return
	}
	if e, ok := r.names.entry(abs); ok && e.Mode&(fs.ModeNamedPipe|fs.ModeDevice) != 0 {
		return
	}
	r.touch(abs)
}

// touch counts a write to an absolute path; "" is none.
func (r *reducer) touch(abs string) {
	if rel, ok := r.names.inside(abs); ok {
		r.writes.touch(rel)
	}
}

// make counts a name that is more than a plain file.
func (r *reducer) make(abs string, e tree.Entry) {
	if abs == "" {
		return
	}
	if e.Mode != 0 {
		r.names.put(abs, e)
	}
	r.touch(abs)
}

func (r *reducer) bind(c strace.Call) {
	sa, ok := strace.Address(c.Arg(1))
	if !ok {
		return
	}
	abs := ""
	if sa.Family == "AF_UNIX" && !sa.Abstract && sa.Path != "" {
		if abs, ok = r.names.resolve(c.Task, r.cwds.of(c.Task), sa.Path, false); ok {
			r.touch(abs)
		}
	}
	if a := sa.Inet.Addr().Unmap(); a.IsValid() && a.IsGlobalUnicast() && a != own4 && a != own6 {
		// The local default routes make it an address of this namespace.
		r.note("bind to %s succeeded; on a host it fails, and so it does under gate", a)
	}
	r.net.bind(c, sa, abs)
}

func (r *reducer) link(from, to string) {
	r.touch(from)
	r.touch(to)
	r.net.rename(from, to)
	if e, ok := r.names.entry(from); from != "" && to != "" && ok {
		r.names.put(to, e)
	}
}

func (r *reducer) remove(abs string) {
	if abs == "" {
		return
	}
	r.names.remove(abs)
	if rel, ok := r.names.inside(abs); ok {
		r.writes.remove(rel)
	}
}

func (r *reducer) rename(from, to string) {
	if from == "" || to == "" || from == to {
		r.touch(from)
		r.touch(to)
		return
	}
	relFrom, _ := r.names.inside(from)
	relTo, _ := r.names.inside(to)
	if relFrom != "" || relTo != "" {
		r.writes.rename(relFrom, relTo)
	}
	r.names.move(from, to)
	r.net.rename(from, to)
}

func (r *reducer) exchange(a, b string) {
	relA, inA := r.names.inside(a)
	relB, inB := r.names.inside(b)
	switch {
	case inA && inB:
		r.writes.exchange(relA, relB)
	case inA:
		r.writes.remove(relA)
		r.writes.touch(relA)
	case inB:
		r.writes.remove(relB)
		r.writes.touch(relB)
	}
	if a != "" && b != "" {
		r.names.exchange(a, b)
		r.net.rename(a, b)
		r.net.rename(b, a)
	}
}

// member is one field of a structure argument, "" if there is none.
func member(arg, name string) string {
	members, _ := strace.Members(arg)
	for _, m := range members {
		if m.Name == name {
			return m.Value
		}
	}
	return ""
}

// kind reads the type bits of mknod(2); a plain file is 0.
func kind(mode string) fs.FileMode {
	switch {
	case strace.Flags(mode, "S_IFIFO"):
		return fs.ModeNamedPipe
	case strace.Flags(mode, "S_IFCHR", "S_IFBLK"):
		return fs.ModeDevice
	case strace.Flags(mode, "S_IFSOCK"):
		return fs.ModeSocket
	}
	return 0
}
