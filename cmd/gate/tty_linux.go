package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminalSize is the size of the terminal behind f. ok is false where f is no
// terminal or may not be drawn on now: gate runs in the background, or a
// program has switched line mode off (a full-screen one does, termios(3)).
func terminalSize(f *os.File) (cols, rows int, ok bool) {
	fd := int(f.Fd())
	mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil || mode.Lflag&unix.ICANON == 0 || mode.Oflag&unix.OPOST == 0 {
		return 0, 0, false
	}
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}
