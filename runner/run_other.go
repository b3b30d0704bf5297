//go:build !linux

package runner

import (
	"context"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

// Run fails: see sandbox.ErrUnsupported.
func Run(context.Context, Config) (*ledger.Record, error) { return nil, sandbox.ErrUnsupported }
