//go:build !linux

package rusage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Of works on Linux only.
func Of(pid int) (Usage, error) {
	return Usage{}, fmt.Errorf("read the CPU clock of process %d: %w", pid, errors.ErrUnsupported)
}

// Meter works on Linux only: elsewhere nothing traps exits, and Watch says so.
type Meter struct{}

// SigChild is never called where nothing is trapped.
func (*Meter) SigChild(tid int, ignored, noWait bool) {}

// Exit is never called where nothing is trapped.
func (*Meter) Exit(tid int) {}

// Metered has seen nothing.
func (*Meter) Metered() Metered { return Metered{} }

// Watch works on Linux only.
func (*Meter) Watch(ctx context.Context, root int, every time.Duration, report func(Usage)) error {
	return fmt.Errorf("sample the CPU time of the tree below process %d: %w", root, errors.ErrUnsupported)
}

// Cgroup works on Linux only.
type Cgroup struct{}

// NewCgroup works on Linux only.
func NewCgroup() (*Cgroup, error) {
	return nil, fmt.Errorf("make a cgroup: %w", errors.ErrUnsupported)
}

// FD is never called, since there is no Cgroup to be had.
func (*Cgroup) FD() int { return -1 }

// Usage works on Linux only.
func (*Cgroup) Usage() (Usage, error) {
	return Usage{}, fmt.Errorf("read a cgroup: %w", errors.ErrUnsupported)
}

// Close has nothing to remove.
func (*Cgroup) Close() error { return nil }
