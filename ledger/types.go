// Package ledger is the committed contract (Ledger), the record of a run
// (Record), and the pure comparison of the two (Compare -> Verdict).
//
// It parses and writes both files strictly and canonically and renders a
// Verdict. It starts no process and, but for Load and the writers, touches
// no file, clock or environment.
package ledger

import (
	"time"

	"github.com/org/gate/writeset"
)

// Version is the version of both files that this package reads and writes.
const Version = 1

// Modes of a ledger and of a run.
const (
	Enforce = "enforce" // refuse, record, and go red
	Audit   = "audit"   // record alone: how a first ledger is made
)

// Tiers of evidence, best first.
const (
	TierNamespace = "namespace"
	TierNotify    = "notify"
	TierWeak      = "weak"
)

// Why gate ended a run.
const (
	KilledCPU     = "cpu_budget"
	KilledTimeout = "timeout"
)

// What saw a row.
const (
	WitnessSyscall   = "syscall"
	WitnessPacket    = "packet"
	WitnessResolver  = "resolver"
	WitnessInProcess = "in-process"
	WitnessSnapshot  = "snapshot"
)

// Ledger is capability.ledger.json. Keys: see docs/ledger.md. Parse gives it
// with every list sorted but Command and Fold, whose order means something.
type Ledger struct {
	Version       int      `json:"version,omitempty"`
	Command       []string `json:"command,omitempty"` // nil: not pinned
	Mode          string   `json:"mode,omitempty"`    // Enforce (also when absent) or Audit
	AllowNet      []string `json:"allow_net,omitempty"`
	CPUBudget     float64  `json:"cpu_budget"`       // user CPU seconds, > 0, at most MaxBudget
	Writes        string   `json:"writes,omitempty"` // SHA-256 in hex; "" if absent
	WritePaths    []string `json:"write_paths,omitempty"`
	HasPaths      bool     `json:"-"`                     // write_paths stands in the file (it may be an empty list)
	AllowWrite    []string `json:"allow_write,omitempty"` // nothing and HasAllowWrite false: the defaults of writeset
	HasAllowWrite bool     `json:"-"`
	Fold          []string `json:"fold,omitempty"`     // first match wins
	Evidence      string   `json:"evidence,omitempty"` // lowest tier accepted; "": any but weak
	Prove         bool     `json:"prove,omitempty"`
	Parts         []string `json:"parts,omitempty"`
	Paths         []string `json:"paths,omitempty"`
	SelfAccept    bool     `json:"self_accept,omitempty"`
	MinTests      int64    `json:"min_tests,omitempty"` // tests that must pass, as the output tells; 0: any
}

// MaxBudget bounds cpu_budget: about 31 years, which a time.Duration holds.
const MaxBudget = 1e9

// Accepted is the digest that a run must have: Writes, or if that is absent
// the digest of WritePaths.
func (l *Ledger) Accepted() string {
	if l.Writes != "" {
		return l.Writes
	}
	return writeset.Digest(l.WritePaths)
}

// Who made the first attempt of a row.
type Who struct {
	Chain []string  `json:"chain"`          // program names from the command down
	PID   int       `json:"pid"`            // as seen by gate
	Argv  []string  `json:"argv,omitempty"` // of the last in the chain, shortened
	Dir   string    `json:"dir,omitempty"`  // working directory, relative to the repository where it lies inside
	At    time.Time `json:"at"`
	Test  *TestTold `json:"test,omitempty"` // nil: the output does not tell
}

// TestTold is what the suite's own output told of the moment: no witness, but a
// way to the test behind a row.
type TestTold struct {
	Running []string `json:"running,omitempty"` // the tests that ran then; several where they run in parallel
	Next    string   `json:"next,omitempty"`    // where results alone are printed: the first one after it
}

// Tests are the outcomes that the suite's own output told of.
type Tests struct {
	Passed  int64 `json:"passed"`
	Failed  int64 `json:"failed"`
	Skipped int64 `json:"skipped"`
}

// NetRow is one endpoint.
type NetRow struct {
	Endpoint string   `json:"endpoint"`
	Count    int64    `json:"count"`
	Witness  []string `json:"witness"` // "syscall", "packet", "resolver", "in-process"
	Calls    []string `json:"calls,omitempty"`
	Door     bool     `json:"door,omitempty"` // gate forwarded it
	Who      *Who     `json:"who,omitempty"`  // nil: no call was seen that names it
}

// WriteRow is one path of the repository in normal form, before folding.
type WriteRow struct {
	Path    string   `json:"path"`           // as written in the ledger: C-quoted where needed
	Fold    string   `json:"fold,omitempty"` // the fold glob of the ledger that it is counted under
	Count   int64    `json:"count"`
	Calls   []string `json:"calls,omitempty"`
	Witness []string `json:"witness"` // "syscall", "snapshot"
	Who     *Who     `json:"who,omitempty"`
}

// OutsideRow is a write outside the repository. Those that allow_write
// covers are summed up a glob (Allowed set, Path is the glob).
type OutsideRow struct {
	Path    string   `json:"path"`
	Allowed string   `json:"allowed,omitempty"` // the allow_write entry that covers it
	Count   int64    `json:"count"`
	Calls   []string `json:"calls,omitempty"`
	Who     *Who     `json:"who,omitempty"`
}

// Gap is something that was not observed. A record with a gap never matches.
type Gap struct {
	Kind   string `json:"kind"`   // short, stable: "write-cap", "unreadable-arguments"
	Detail string `json:"detail"` // one sentence
	Count  int64  `json:"count,omitempty"`
}

// Finding is worth a human's look but decides nothing by itself.
type Finding struct {
	Kind   string `json:"kind"` // "setuid-program", "survivor", "socket-visible-to-host", "witnesses-disagree"
	Detail string `json:"detail"`
	Who    *Who   `json:"who,omitempty"`
}

// CPU is how the figure of column 2 came about, in seconds of user time.
type CPU struct {
	Reaped     float64 `json:"reaped"`           // what wait4 gave for the tree
	AutoReaped float64 `json:"auto_reaped"`      // children no wait4 ever returned, read at their exit
	Sampled    float64 `json:"sampled"`          // second witness: the sum over /proc while running
	Cgroup     float64 `json:"cgroup,omitempty"` // second witness where a cgroup could be made
	System     float64 `json:"system"`
	Processes  int64   `json:"processes"` // exits seen
}

// DoorUse is what went through a door.
type DoorUse struct {
	Endpoint    string `json:"endpoint"`
	Far         string `json:"far"`
	Connections int64  `json:"connections"`
	Refused     int64  `json:"refused"` // the far end was down
	BytesOut    int64  `json:"bytes_out"`
	BytesIn     int64  `json:"bytes_in"`
}

// Record is capability.actual.json: what one run did. Whoever assembles one
// fills in the rows and calls Derive for the keys that follow from them.
type Record struct {
	Version int      `json:"version"`
	Gate    string   `json:"gate"` // gate's version
	Command []string `json:"command"`
	Dir     string   `json:"dir"` // working directory, relative to the repository: "."

	Exit        int    `json:"exit"`                  // status as a shell gives it: 128+n after signal n
	Signal      string `json:"signal,omitempty"`      // "SIGXCPU": how the command itself died
	Interrupted string `json:"interrupted,omitempty"` // "SIGINT": the run was asked to stop
	Killed      string `json:"killed,omitempty"`      // "cpu_budget" or "timeout": gate ended it

	Evidence string    `json:"evidence"` // "namespace", "notify", "weak"
	Mode     string    `json:"mode"`
	Gaps     []Gap     `json:"gaps"`
	Findings []Finding `json:"findings,omitempty"`

	Net        []string `json:"net"` // of NetRows
	CPUSec     float64  `json:"cpu_sec"`
	CPUBudget  float64  `json:"cpu_budget"`
	Writes     string   `json:"writes"`      // digest of WritePaths
	WritePaths []string `json:"write_paths"` // of WriteRows and Fold
	Fold       []string `json:"fold"`        // the globs this run was folded by, in order

	NetRows   []NetRow     `json:"net_rows"`
	CPU       CPU          `json:"cpu"`
	WriteRows []WriteRow   `json:"write_rows"`
	Folded    []Folded     `json:"folded,omitempty"`
	Outside   []OutsideRow `json:"outside,omitempty"`
	Doors     []DoorUse    `json:"doors,omitempty"`
	Files     *Files       `json:"files,omitempty"`
	Tests     *Tests       `json:"tests,omitempty"` // nil: the output does not tell

	Started    time.Time   `json:"started"`
	Ended      time.Time   `json:"ended"`
	Host       Host        `json:"host"`
	Git        *Git        `json:"git,omitempty"`
	LedgerFile *LedgerFile `json:"ledger,omitempty"`
	Base       *BaseFile   `json:"base,omitempty"` // nil: the ledger decided for itself

	PositiveControl *PositiveControl `json:"positive_control,omitempty"`
	Part            string           `json:"part,omitempty"`
	Joined          bool             `json:"-"` // made by Join, of all parts
}

// Files says how the file system was closed to the tree.
type Files struct {
	ReadOnly bool     `json:"read_only"` // outside the repository and allow_write
	Private  []string `json:"private"`   // entries of allow_write that were empty directories, which are gone
	Layered  []string `json:"layered"`   // entries of allow_write whose changes were thrown away
	Cold     []string `json:"cold"`      // caches of allow_write that held nothing before the run
	Added    []Added  `json:"added"`     // what the run put into the layered caches: little, if they were warm
}

// Added is what a run put into one cache, which was thrown away after it.
type Added struct {
	Place string `json:"place"` // entry of allow_write
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Folded says that rows under one fold glob were too many to list each.
type Folded struct {
	Glob   string `json:"glob"`
	Count  int64  `json:"count"`  // distinct paths counted under it
	Listed int64  `json:"listed"` // of these, how many stand in write_rows
}

// Host is where the run took place.
type Host struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel,omitempty"`
	UID    int    `json:"uid"`
	Name   string `json:"name,omitempty"`
}

// Git is the revision that was tested.
type Git struct {
	Commit  string   `json:"commit"`
	Parents []string `json:"parents"`
}

// LedgerFile is the ledger that the run was started with.
type LedgerFile struct {
	Path    string `json:"path"`              // repo-relative
	SHA256  string `json:"sha256"`            // of the file's bytes as read before the start
	Changed bool   `json:"changed,omitempty"` // the tree changed, removed or recreated it
}

// BaseFile is the ledger that decided what the run could open.
type BaseFile struct {
	Ref    string `json:"ref"`              // git's revision, or a file
	SHA256 string `json:"sha256,omitempty"` // of the ledger there; absent if there is none
}

// PositiveControl is the outcome of the canaries that ran in the same sandbox.
type PositiveControl struct {
	Passed  int    `json:"passed"`
	Total   int    `json:"total"`
	Version string `json:"version"`
}
