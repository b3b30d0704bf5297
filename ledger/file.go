package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// Load reads and parses a ledger from a regular file and gives the SHA-256 of
// its bytes, in hex. A symlink, a directory, a device or a file of more than
// MaxLedgerSize bytes is refused without being read.
func Load(path string) (l *Ledger, sum string, err error) {
	data, err := readFile(path, MaxLedgerSize)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && errors.Is(err, fs.ErrNotExist) {
			e.Hint = initHint
		}
		return nil, "", err
	}
	return ParseSum(path, data)
}

// ParseSum is Load for bytes that are there already; path is for messages.
func ParseSum(path string, data []byte) (l *Ledger, sum string, err error) {
	l, err = Parse(path, data)
	if err != nil {
		return nil, "", err
	}
	digest := sha256.Sum256(data)
	return l, hex.EncodeToString(digest[:]), nil
}

// LoadRecord reads and parses a record, under the same rules as Load and a
// bound of MaxRecordSize bytes.
func LoadRecord(path string) (*Record, error) {
	data, err := readFile(path, MaxRecordSize)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && errors.Is(err, fs.ErrNotExist) {
			e.Hint = "gate run writes it"
		}
		return nil, err
	}
	return ParseRecord(path, data)
}

// readFile reads a regular file of at most limit bytes. It looks before it
// opens, so that a FIFO or a device is never touched, and again at what it
// opened (O_NOFOLLOW: open(2)), so that nothing can be put there in between.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, readError(path, err)
	}
	if err := regular("read", path, info); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, readError(path, err)
	}
	defer f.Close() // opened for reading: nothing can be lost
	if info, err = f.Stat(); err != nil {
		return nil, readError(path, err)
	}
	if err := regular("read", path, info); err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, tooBig(path, info.Size(), limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, readError(path, err)
	}
	if int64(len(data)) > limit { // it grew
		return nil, tooBig(path, int64(len(data)), limit)
	}
	return data, nil
}

func readError(path string, err error) error {
	e := &Error{Op: "read", Path: path, Err: err}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		e.Err = pathErr.Err // its text repeats the path
	}
	if errors.Is(err, fs.ErrPermission) {
		e.Hint = "chmod u+r " + path
	}
	return e
}

// regular refuses everything but a regular file.
func regular(op, path string, info fs.FileInfo) error {
	kind := ""
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		kind = "a symbolic link"
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	default:
		kind = "a device"
	}
	return &Error{
		Op: op, Path: path,
		Msg:  "found " + kind + ", wanted a regular file",
		Hint: "what a link or a device gives can differ from what was reviewed: name the file itself",
	}
}

// Write writes a ledger in its canonical form, atomically: whatever happens,
// path holds the old file or the new one. An existing file keeps its mode; a
// symlink or a device is refused.
func Write(path string, l *Ledger) error {
	data := l.Encode()
	if _, err := Parse(path, data); err != nil {
		return &Error{Op: "write", Path: path, Msg: "not a valid ledger", Err: err}
	}
	return replaceFile(path, data)
}

// WriteRecord writes a record, under the same rules as Write.
func WriteRecord(path string, r *Record) error {
	data, err := r.Encode()
	if err != nil {
		return &Error{Op: "write", Path: path, Err: err}
	}
	return replaceFile(path, data)
}

func replaceFile(path string, data []byte) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil:
		if err := regular("write", path, info); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return &Error{Op: "write", Path: path, Err: err}
	}
	// The temporary file lies in the same directory: a rename is atomic within
	// one file system only. renameio syncs before it renames.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)),
		renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		return writeError(path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = Own(f.File, path)
	}
	if err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return writeError(path, errors.Join(err, f.Cleanup()))
	}
	return nil
}

// Own gives a file that root is about to put at path to whom the file there
// belongs, or else its directory: under sudo the repository is an ordinary
// user's. For anybody but root it does nothing.
func Own(f *os.File, path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(st.Uid), int(st.Gid))
	}
	return nil
}

func writeError(path string, err error) error {
	e := &Error{Op: "write", Path: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = "mkdir -p " + filepath.Dir(path)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "the disk is full: make room there, or name another place"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		e.Hint = "the directory cannot be written; name another place"
	}
	return e
}
