// Package writeset is column 3 of a record: which paths of the repository a
// process tree wrote, in a form that is the same on every machine.
//
// It takes write events as they are made (first witness), a snapshot of the
// work tree before and after (second witness), and reduces both to rows:
// repo-relative paths in normal form. See docs/design.md, "Column 3".
//
// It traps nothing, runs nothing and knows no ledger file.
package writeset

// Op is what a call does to a path.
type Op uint8

// The operations. Modify covers truncate, append, and every open with write
// intent on a file that exists, whether or not a byte follows.
const (
	Create   Op = iota + 1 // the name did not exist: open(O_CREAT), mkdir, mknod, symlink, bind, linkat of an O_TMPFILE
	Modify                 // contents: open for write, truncate, fallocate, writable mapping
	Meta                   // metadata alone: chmod, chown, utime, xattr
	Remove                 // unlink, rmdir
	Rename                 // From -> To; what stood at To is replaced
	Exchange               // renameat2(RENAME_EXCHANGE)
	Link                   // hard link: Path is the source, To the new name
)

// State is what stood at a path at the moment before the call went on.
type State struct {
	Exists   bool
	Dir      bool
	Special  bool // a device or a pipe: what is written to it reaches no file
	Dev, Ino uint64
	Nlink    uint64
}

// Event is one call that is about to write. Paths are absolute, clean byte
// strings with the symlinks of every parent resolved; the last component is
// resolved too where the call follows it.
type Event struct {
	Op       Op
	Call     string // name of the system call, for the record: "openat", "rename"
	Path     string
	Before   State
	To       string // Rename, Exchange, Link
	ToBefore State
	// Actor interns who made the call and returns its index. It is called only
	// when the event starts a row, or what may become one: a name that is
	// created and removed a thousand times calls it a thousand times. nil: nobody.
	Actor func() int
}
