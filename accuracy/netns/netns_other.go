//go:build !linux

package netns

import (
	"context"
	"errors"
)

var errLinux = errors.New("namespaces: only on Linux")

// Run needs Linux.
func Run(context.Context, Command) (Result, error) { return Result{}, errLinux }

// Inside needs Linux.
func Inside() int { return 1 }
