// Package runner takes a command in and gives a ledger.Record out: it wires
// the sandbox to the three recorders and assembles what they saw.
//
// It judges nothing (ledger.Compare does) and prints nothing.
package runner

import (
	"io"
	"os"
	"time"

	"github.com/org/gate/ledger"
)

// Config is one run.
type Config struct {
	Command []string
	Dir     string   // working directory of the command, absolute
	Root    string   // the repository, absolute, symlinks resolved
	Env     []string // as os.Environ gives it

	Stdin, Stdout, Stderr *os.File

	Ledger     *ledger.Ledger // nil while a first one is made: nothing is allowed, nothing is folded
	LedgerPath string         // absolute; read-only for the tree. "" if there is none
	LedgerSum  string         // SHA-256 of its bytes as read, hex

	Mode     string            // "enforce" or "audit"
	FirstPID int               // of the command in its PID namespace; 0: 1000
	Isolate  bool              // nothing that the tree leaves in temporary places and caches outlives the run
	Evidence string            // "" for the best tier of this host, or the tier to use
	Timeout  time.Duration     // wall clock; 0: none
	Doors    map[string]string // endpoint of the ledger -> far end on this machine
	Trace    io.Writer         // nil, or where every event goes as a JSON line
	Version  string            // gate's own

	Status  func(Status)     // nil, or called about four times a second while the command runs
	Signals <-chan os.Signal // SIGINT, SIGTERM, SIGHUP, SIGQUIT for gate itself
}

// Status is a run in progress.
type Status struct {
	Elapsed   time.Duration
	CPU       float64 // user CPU seconds so far
	Budget    float64
	Endpoints int // distinct so far
	Writes    int
}
