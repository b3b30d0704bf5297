package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func shortRead(got, want int) error {
	if got < want {
		return unix.EFAULT
	}
	return nil
}

func errText(err error) string {
	if err == nil {
		return "cut short"
	}
	return err.Error()
}

// readMemory reads from another process, up to where its memory ends.
func readMemory(tid int, addr uint64, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	local := unix.Iovec{Base: &b[0], Len: uint64(len(b))}
	// One remote vector a page: the kernel stops between vectors only.
	var remote [4]unix.RemoteIovec
	vectors := remote[:0]
	for at, left := addr, uint64(len(b)); left > 0; {
		size := min(left, pageSize-at%pageSize)
		vectors = append(vectors, unix.RemoteIovec{Base: uintptr(at), Len: int(size)})
		at, left = at+size, left-size
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&vectors[0])), uintptr(len(vectors)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// pageSize is the smallest that Linux uses: a read that stops at its borders
// stops at those of larger pages too.
const pageSize = 4096

// readString reads up to the NUL. PATH_MAX bounds it, as in the kernel.
func readString(tid int, addr uint64, buf []byte) (string, error) {
	const pathMax = 4096
	for have, step := 0, 256; have < pathMax; step = pathMax {
		want := min(step, pathMax-have)
		n, err := readMemory(tid, addr+uint64(have), buf[have:have+want])
		if err != nil {
			return "", err
		}
		for i, c := range buf[have : have+n] {
			if c == 0 {
				return string(buf[:have+i]), nil
			}
		}
		have += n
		if n < want {
			return "", unix.EFAULT // memory ends before the string does
		}
	}
	return "", unix.ENAMETOOLONG
}
