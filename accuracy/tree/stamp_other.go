//go:build !linux

package tree

import (
	"io/fs"
	"time"
)

// Stamp is what changes when a file is written or its metadata is; coarser
// than on Linux, where alone the harness runs.
type Stamp struct {
	Size     int64
	UID, GID uint32
	Mtime    time.Time
}

func stamp(info fs.FileInfo) Stamp {
	return Stamp{Size: info.Size(), Mtime: info.ModTime()}
}
