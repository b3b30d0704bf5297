package tree

import (
	"io/fs"
	"syscall"
)

// Stamp is what changes when a file is written or its metadata is.
type Stamp struct {
	Size         int64
	Inode        uint64
	UID, GID     uint32
	Mtime, Ctime syscall.Timespec
}

func stamp(info fs.FileInfo) Stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		panic("BUG: os.Lstat gave no Stat_t")
	}
	return Stamp{st.Size, st.Ino, st.Uid, st.Gid, st.Mtim, st.Ctim}
}
