package egress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// input is a socket that is read until the run is over.
type input struct {
	socket   syscall.Conn
	deadline func(time.Time) error
	next     func() error // waits for one message or connection and handles it
}

// drainTime bounds the reading of what is left in a socket; it is reached
// only when somebody still writes to it.
const drainTime = time.Second

// serve handles input until ctx is done, and then what is queued already: what
// a process sent just before it died is not lost.
func (in input) serve(ctx context.Context) error {
	if err := in.deadline(time.Time{}); err != nil {
		return fmt.Errorf("set deadline (the descriptor must be non-blocking): %w", err)
	}
	interrupted := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { interrupted <- in.deadline(time.Unix(1, 0)) })
	defer stop()
	for {
		err := in.next()
		if err == nil {
			continue
		}
		if ctx.Err() == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		break
	}
	if err := errors.Join(<-interrupted, in.deadline(time.Now().Add(drainTime))); err != nil {
		return err
	}
	for {
		queued, err := in.queued()
		if err != nil || !queued {
			return err
		}
		if err := in.next(); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// queued says whether next would return at once.
func (in input) queued() (bool, error) {
	raw, err := in.socket.SyscallConn()
	if err != nil {
		return false, err
	}
	var n int
	var pollErr error
	err = raw.Control(func(fd uintptr) {
		for {
			n, pollErr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if pollErr != unix.EINTR {
				return
			}
		}
	})
	return n > 0, errors.Join(err, pollErr)
}
