//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"runtime"
)

// InitArg is the hidden argument of gate's init; unused here.
const InitArg = "__init"

// ErrUnsupported: there are no namespaces and no seccomp outside Linux.
var ErrUnsupported = errors.New("recording needs Linux (this is " + runtime.GOOS + "); gate check and gate accept work everywhere")

// Box cannot be had here.
type Box struct{}

// Init fails.
func Init([]string) int { return 2 }

// Probe finds no tier.
func Probe(context.Context) ([]Feature, Tier) {
	return []Feature{{
		Name: "operating system", Tested: "runtime.GOOS", Found: runtime.GOOS, Needed: string(Notify),
		Repair: "run gate on Linux, or in a Linux virtual machine",
	}}, ""
}

// Open fails.
func Open(context.Context, Spec) (*Box, error) { return nil, ErrUnsupported }

// SetupError says at which step of the set-up a sandbox failed.
type SetupError struct {
	Tier Tier
	Step string
	Err  error
}

func (e *SetupError) Error() string {
	return string(e.Tier) + " tier: " + e.Step + ": " + e.Err.Error()
}
func (e *SetupError) Unwrap() error { return e.Err }
