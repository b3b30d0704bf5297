//go:build !linux

package runner

import (
	"context"
	"os"
	"os/signal"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

// Run fails: see sandbox.ErrUnsupported.
func Run(context.Context, Config) (*ledger.Record, error) { return nil, sandbox.ErrUnsupported }

// Signals are those that gate takes for its command while one runs.
func Signals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, os.Interrupt)
	return c, func() { signal.Stop(c) }
}
