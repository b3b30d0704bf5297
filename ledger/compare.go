package ledger

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/org/gate/egress"
	"github.com/org/gate/writeset"
)

// Status is a verdict in one word.
type Status string

// The statuses. Only Match says that the run kept the contract.
const (
	Match      Status = "match"
	DriftFound Status = "drift"      // it did something else than was accepted
	Incomplete Status = "incomplete" // not everything was observed
	Failed     Status = "failed"     // the command failed, or gate ended it
	Partial    Status = "partial"    // another command, or one part of several: judged for extra rows alone
)

// Columns of a record, and Run for what concerns the run as a whole.
const (
	Net    = "net"
	CPUSec = "cpu_sec"
	Writes = "writes"
	Run    = "run"
)

// Kinds of drift.
const (
	Extra        = "extra"         // a row that is not accepted
	Missing      = "missing"       // an accepted row that did not come (writes alone)
	Unattributed = "unattributed"  // an extra write that only the snapshot saw
	Outside      = "outside"       // a write outside the repository that allow_write does not cover
	DigestOnly   = "digest"        // the digest differs and the ledger lists no rows to tell which
	OverBudget   = "over-budget"   // more CPU than cpu_budget
	OtherCommand = "other-command" // in CI: not the ledger's command
	FewerTests   = "fewer-tests"   // fewer tests passed than min_tests wants
	LedgerEdited = "ledger-edited" // the tree tried to change, remove or recreate its ledger
	Loosened     = "loosened"      // the ledger opens or hides what its base does not
)

// Drift is one difference between a record and its ledger.
type Drift struct {
	Column  string   `json:"column"` // Net, CPUSec, Writes or Run
	Kind    string   `json:"kind"`
	Row     string   `json:"row"`             // as a ledger would spell it
	Count   int64    `json:"count,omitempty"` // how often it was tried
	Witness []string `json:"witness,omitempty"`
	Who     *Who     `json:"who,omitempty"`
	Cause   string   `json:"cause"` // likely
	Do      string   `json:"do"`
}

// Reason is why a verdict cannot be a match whatever the rows are.
type Reason struct {
	Kind   string `json:"kind"` // "gap", "interrupted", "killed", "evidence", "positive-control", "version", "record", "ledger", "part", "folded", "tests"
	Detail string `json:"detail"`
	Do     string `json:"do,omitempty"`
}

// Stale is a permission that the run did not need, or one that is broad.
// It decides nothing: the cheaper control is a smaller allowlist.
type Stale struct {
	Key    string `json:"key"`   // of the ledger
	Entry  string `json:"entry"` // as it stands there
	Detail string `json:"detail"`
	Broad  bool   `json:"broad,omitempty"` // used or not, it allows more than one endpoint or directory
}

// Column sums up one column.
type Column struct {
	Name    string  `json:"column"`
	OK      bool    `json:"ok"`
	Rows    int     `json:"rows"`              // distinct rows recorded; 0 for cpu_sec
	Extra   int     `json:"extra"`             // not accepted
	Missing int     `json:"missing"`           // accepted and not recorded
	Outside int     `json:"outside,omitempty"` // places outside the repository that allow_write does not cover
	Seconds float64 `json:"seconds,omitempty"` // cpu_sec
	Budget  float64 `json:"budget,omitempty"`  // cpu_sec
}

// Verdict is the outcome of Compare.
type Verdict struct {
	Status   Status    `json:"status"`
	Mode     string    `json:"mode"`
	Columns  []Column  `json:"columns"` // net, cpu_sec, writes
	Drifts   []Drift   `json:"drifts"`
	Reasons  []Reason  `json:"reasons"`
	Stale    []Stale   `json:"stale"`
	Notes    []string  `json:"notes"`
	Findings []Finding `json:"findings"`

	Exit        int    `json:"command_exit"` // the command's own status
	Signal      string `json:"signal,omitempty"`
	Killed      string `json:"killed,omitempty"`
	Interrupted string `json:"interrupted,omitempty"`
	Blind       bool   `json:"blind,omitempty"` // a positive control failed: nothing the record says can be believed

	Writes   string `json:"writes"`   // digest of the record's rows under the ledger's folds
	Accepted string `json:"accepted"` // digest that the ledger wants
}

// Options of Compare.
type Options struct {
	CI   bool   // another command than the ledger's is drift
	Mode string // the mode in force, Enforce or Audit; "" for the ledger's
	Base *Base  // nil: the ledger decides for itself
}

// Compare judges a record against a ledger. It is pure. It trusts neither: a
// ledger that Parse would refuse or a record that ParseRecord would refuse
// never matches.
//
// A verdict is a match only if the command succeeded, the record has no gap
// and is of the tier and controls the ledger wants, every endpoint is listed
// in allow_net, the CPU figure is within the budget, the set of written rows
// under the ledger's folds equals the accepted one, and nothing outside the
// repository was written but where allow_write says.
func Compare(l *Ledger, r *Record, o Options) Verdict {
	own := l
	l = Under(own, o.Base)
	c := comparison{l: l, r: r, o: o, causes: causes(), v: Verdict{
		Mode: l.Mode, Exit: r.Exit, Signal: r.Signal, Killed: r.Killed, Interrupted: r.Interrupted,
		Accepted: l.Accepted(), Findings: append([]Finding{}, r.Findings...),
		Drifts: []Drift{}, Reasons: []Reason{}, Stale: []Stale{}, Notes: []string{},
	}}
	if o.Mode != "" {
		c.v.Mode = o.Mode
	}
	c.run()
	c.base(own)
	c.net()
	c.cpu()
	c.writes()
	c.sort()
	c.decide()
	c.stale()
	return c.v
}

type comparison struct {
	l *Ledger
	r *Record
	o Options
	v Verdict

	causes  []cause
	partial bool // extra rows alone count

	allow    egress.AllowList
	foldHit  map[string]bool
	writable map[string]bool // entries of allow_write that a row needed
}

func (c *comparison) drift(d Drift) {
	d.Cause, d.Do = explain(c.causes, d)
	c.v.Drifts = append(c.v.Drifts, d)
}

func (c *comparison) reason(kind, detail, do string) {
	c.v.Reasons = append(c.v.Reasons, Reason{kind, detail, do})
}

func (c *comparison) note(format string, args ...any) {
	c.v.Notes = append(c.v.Notes, fmt.Sprintf(format, args...))
}

// run checks what concerns the run as a whole.
func (c *comparison) run() {
	l, r := c.l, c.r
	if l.Version != r.Version {
		c.reason("version", fmt.Sprintf("the ledger has version %d, the record %d", l.Version, r.Version), "run again with this gate")
	}
	if key, msg := r.inconsistency(); msg != "" {
		c.reason("record", fmt.Sprintf("%s: %s", key, msg), "run again; a record is never edited")
	}
	for _, g := range r.Gaps {
		c.reason("gap", g.Kind+": "+g.Detail, gapAdvice(g.Kind))
	}
	if r.Interrupted != "" {
		c.reason("interrupted", "the run was ended by "+r.Interrupted, "run again")
	}
	if r.Killed != "" {
		c.reason("killed", "gate ended the run: "+r.Killed, "")
	}
	if f := r.Files; r.Exit != 0 && f != nil && len(f.Private) > 0 {
		c.note("the run had temporary places of its own (%s): what a step before left there was not to be seen", strings.Join(f.Private, ", "))
	}
	c.tier()
	c.positiveControl()
	if other, pinned := otherCommand(l, r); other != "" {
		if c.o.CI {
			c.drift(Drift{Column: Run, Kind: OtherCommand, Row: other})
		} else {
			c.partial = true
			c.note("not the ledger's command (%s): judged for extra rows alone", pinned)
		}
	}
	c.part()
	c.tests()
	if r.LedgerFile != nil && r.LedgerFile.Changed {
		c.drift(Drift{Column: Run, Kind: LedgerEdited, Row: r.LedgerFile.Path})
	}
}

// base checks what the ledger as it stands in this revision adds to its base. It
// was refused, and is a drift even if nothing needed it.
func (c *comparison) base(own *Ledger) {
	if c.o.Base == nil {
		return
	}
	if c.o.Base.Ledger == nil {
		c.note("no ledger at %s: this one is new, and nothing is open yet", c.o.Base.Ref)
	}
	for _, row := range loosened(own, c.o.Base) {
		c.drift(Drift{Column: Run, Kind: Loosened, Row: row})
	}
}

// otherCommand spells the command of a record, if it is not the one that the
// ledger pins or was not run where the ledger stands, and the one that is.
func otherCommand(l *Ledger, r *Record) (other, pinned string) {
	if l.Command == nil {
		return "", ""
	}
	home := r.Dir
	if f := r.LedgerFile; f != nil && filepath.IsLocal(f.Path) {
		home = Home(f.Path)
	}
	spell := func(command []string, dir string) string { return strings.Join(command, " ") + " in " + dir }
	switch {
	case r.Dir != home:
		return spell(r.Command, r.Dir), spell(l.Command, home)
	case !slices.Equal(l.Command, r.Command):
		return strings.Join(r.Command, " "), strings.Join(l.Command, " ")
	}
	return "", ""
}

func (c *comparison) tier() {
	wanted := cmp.Or(c.l.Evidence, "any but weak")
	floor, rank := tierRank(floor(c.l)), tierRank(c.r.Evidence)
	if floor < 0 || rank < floor {
		c.reason("evidence", fmt.Sprintf("the record is of tier %q, the ledger wants %s", c.r.Evidence, wanted),
			"gate doctor says what this host lacks and how to repair it")
	}
}

func (c *comparison) positiveControl() {
	switch p := c.r.PositiveControl; {
	case p != nil && (p.Total <= 0 || p.Passed != p.Total):
		c.v.Blind = true
		c.reason("positive-control", fmt.Sprintf("%d of %d known-bad programs were seen: the detector is blind", p.Passed, p.Total), "gate doctor")
	case p == nil && c.l.Prove:
		c.reason("positive-control", "the ledger wants a positive control and none ran", "this version has none; take prove out of the ledger until then")
	}
}

// part places the record of one leg among several: its rows are a subset of
// the union that the ledger accepts, so none can be missing from it.
func (c *comparison) part() {
	part, parts := c.r.Part, c.l.Parts
	switch {
	case part == "" && (len(parts) == 0 || c.r.Joined):
	case slices.Contains(parts, part):
		c.partial = true
		c.note("part %s of %s: judged for extra rows alone; gate check with the records of all parts judges the whole", part, strings.Join(parts, ", "))
	case part == "" && !c.o.CI:
		c.partial = true
		c.note("no part of %s: judged for extra rows alone", strings.Join(parts, ", "))
	default:
		c.reason("part", fmt.Sprintf("the record is of part %q, the ledger names [%s]", part, strings.Join(parts, ", ")), "gate run --part NAME")
	}
}

// tests checks that no fewer tests passed than the ledger wants. A whole run
// alone can tell.
func (c *comparison) tests() {
	wanted := c.l.MinTests
	switch t := c.r.Tests; {
	case wanted <= 0 || c.partial:
	case t == nil:
		c.reason("tests", fmt.Sprintf("the ledger wants min_tests %d, and the output tells of no tests", wanted),
			"have the runner print its tests or their number (go test -v or -json, pytest, TAP, Jest, ...); docs/ledger.md lists what is understood")
	case t.Passed < wanted:
		c.drift(Drift{Column: Run, Kind: FewerTests, Row: fmt.Sprintf("passed %d, failed %d, skipped %d; min_tests is %d", t.Passed, t.Failed, t.Skipped, wanted)})
	}
}

func (c *comparison) net() {
	column := Column{Name: Net, Rows: len(c.r.NetRows)}
	allow, err := egress.ParseAllowList(c.l.AllowNet)
	if err != nil {
		c.reason("ledger", "allow_net: "+err.Error(), "")
	}
	c.allow = allow
	for _, row := range c.r.NetRows {
		if _, ok := allow.Match(row.Endpoint); ok {
			continue
		}
		column.Extra++
		c.drift(Drift{Column: Net, Kind: Extra, Row: row.Endpoint, Count: row.Count, Witness: row.Witness, Who: row.Who})
	}
	column.OK = column.Extra == 0
	c.v.Columns = append(c.v.Columns, column)
}

// endedThere marks the CPU row of a run that had no chance to use more.
const endedThere = ", and was ended there"

func (c *comparison) cpu() {
	l, r := c.l, c.r
	// Written so that a figure that is no number is over the budget.
	ok := r.CPUSec <= l.CPUBudget && r.Killed != KilledCPU
	if !ok {
		row := fmt.Sprintf("%.2f s of %s s", r.CPUSec, formatSeconds(l.CPUBudget))
		if r.Killed == KilledCPU {
			row += endedThere
		}
		c.drift(Drift{Column: CPUSec, Kind: OverBudget, Row: row})
		if f := r.Files; f != nil {
			if len(f.Cold) > 0 {
				c.note("these caches held nothing before the run, which costs CPU time: %s", strings.Join(f.Cold, ", "))
			}
			for _, a := range f.Added {
				c.note("the run put %d files, %.1f MB, into %s: what a warm cache holds costs no CPU time", a.Files, float64(a.Bytes)/1e6, a.Place)
			}
		}
	}
	c.v.Columns = append(c.v.Columns, Column{Name: CPUSec, OK: ok, Seconds: r.CPUSec, Budget: l.CPUBudget})
}

func (c *comparison) writes() {
	l, r := c.l, c.r
	column := Column{Name: Writes}
	set, err := fold(r.WriteRows, l.Fold)
	if err != nil {
		c.reason("ledger", "fold: "+err.Error(), "")
	}
	if r.unlisted() && !slices.Equal(l.Fold, r.Fold) {
		c.reason("folded", "the rows under a fold were too many to list, and the ledger folds otherwise than the run did", "run again with this ledger")
	}
	c.foldHit = map[string]bool{}
	for row := range set.from {
		c.foldHit[row] = true
	}
	for _, f := range r.Folded {
		c.foldHit[f.Glob] = true
	}
	c.v.Writes = writeset.Digest(set.rows)
	column.Rows = len(set.rows)

	accepted, recorded := setOf(l.WritePaths), setOf(set.rows)
	var unseen []string // by any call, and accepted
	for _, row := range set.rows {
		from := set.from[row]
		switch {
		case l.HasPaths && !accepted[row]:
			column.Extra++
			c.extraWrite(row, from)
		case len(from) > 0 && !seenByCall(from):
			unseen = append(unseen, row)
		}
	}
	for _, row := range l.WritePaths {
		if !recorded[row] && !c.partial {
			column.Missing++
			c.drift(Drift{Column: Writes, Kind: Missing, Row: row})
		}
	}
	switch {
	case l.HasPaths && l.Writes != "" && l.Writes != writeset.Digest(l.WritePaths):
		c.reason("ledger", "write_paths does not hash to writes", "")
	case !l.HasPaths && c.v.Writes != c.v.Accepted:
		column.Extra = len(set.rows)
		c.drift(Drift{Column: Writes, Kind: DigestOnly, Row: c.v.Writes})
	}
	if len(unseen) > 0 {
		c.note("%d rows of writes were seen in the snapshot alone, no call was seen that made them: %s", len(unseen), few(unseen))
	}
	c.outside(&column)
	column.OK = column.Extra == 0 && column.Missing == 0 && column.Outside == 0
	c.v.Columns = append(c.v.Columns, column)
}

func (c *comparison) extraWrite(row string, from []WriteRow) {
	d := Drift{Column: Writes, Kind: Extra, Row: row}
	for _, w := range from {
		d.Count += w.Count
		if d.Who == nil {
			d.Who = w.Who
		}
		for _, witness := range w.Witness {
			if !slices.Contains(d.Witness, witness) {
				d.Witness = append(d.Witness, witness)
			}
		}
	}
	if len(from) > 0 && !seenByCall(from) {
		d.Kind = Unattributed
	}
	c.drift(d)
}

func seenByCall(rows []WriteRow) bool {
	return slices.ContainsFunc(rows, func(w WriteRow) bool { return slices.Contains(w.Witness, WitnessSyscall) })
}

// outside checks the writes outside the repository. The run had the allow_write
// of its own ledger; what it allowed under an entry that this ledger lacks is
// judged anew.
func (c *comparison) outside(column *Column) {
	c.writable = map[string]bool{}
	for _, row := range c.r.Outside {
		if entry, ok := writable(c.l, row); ok {
			c.writable[entry] = true
			continue
		}
		column.Outside++
		c.drift(Drift{Column: Writes, Kind: Outside, Row: row.Path, Count: row.Count, Who: row.Who})
	}
}

// sort brings the drifts of one kind together, in the order of the columns.
func (c *comparison) sort() {
	order := []string{Run, Net, CPUSec, Writes, OtherCommand, LedgerEdited, Loosened, FewerTests, Extra, Unattributed, Missing, DigestOnly, Outside}
	slices.SortStableFunc(c.v.Drifts, func(a, b Drift) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.Column), slices.Index(order, b.Column)),
			cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)))
	})
}

// decide puts the verdict into one word. What is certain comes first: a failed
// run proves nothing, a blind one nothing either, and a row that is not
// accepted stays one whatever else was not observed. A row that did not come
// proves nothing in a run with a gap.
func (c *comparison) decide() {
	v := &c.v
	certain := slices.ContainsFunc(v.Drifts, func(d Drift) bool { return d.Kind != Missing })
	switch {
	case v.Exit != 0 || v.Killed != "":
		v.Status = Failed
	case v.Blind:
		v.Status = Incomplete
	case certain && !c.partial:
		v.Status = DriftFound
	case len(v.Reasons) > 0 && !certain:
		v.Status = Incomplete
	case c.partial:
		v.Status = Partial
	case len(v.Drifts) > 0:
		v.Status = DriftFound
	default:
		v.Status = Match
	}
}

// stale points out what the ledger allows and a whole, successful run of it
// did not need.
func (c *comparison) stale() {
	l, r := c.l, c.r
	add := func(key, entry, detail string, broad bool) {
		c.v.Stale = append(c.v.Stale, Stale{Key: key, Entry: entry, Detail: detail, Broad: broad})
	}
	whole := c.v.Status == Match || c.v.Status == DriftFound
	for _, entry := range c.allow.Endpoints() {
		if broad := entry.Broad(); broad != "" {
			add("allow_net", entry.String(), broad, true)
		}
	}
	if whole {
		for _, entry := range c.allow.Unused(r.Net) {
			add("allow_net", entry, "was never needed", false)
		}
	}
	for _, glob := range l.Fold {
		if base, _, _ := strings.Cut(glob, "/"); strings.ContainsAny(base, "*?[") && strings.HasSuffix(glob, "**") && !strings.Contains(glob, "/__pycache__/") {
			add("fold", glob, "is broad: it hides rows in every directory", true)
		}
		if whole && !c.foldHit[glob] {
			add("fold", glob, "was not hit in this run; a cold one, in a fresh clone, may need it", false)
		}
	}
	if l.HasAllowWrite && whole {
		for _, entry := range l.AllowWrite {
			// A list that says more than the defaults has to repeat them.
			if !c.writable[entry] && !slices.Contains(writeset.DefaultAllow(), entry) {
				add("allow_write", entry, "was not needed in this run; a cold one, in a fresh clone, may need it", false)
			}
		}
	}
	if whole && l.CPUBudget > slackBudget(r.CPUSec) {
		add("cpu_budget", formatSeconds(l.CPUBudget), fmt.Sprintf("is far above the %.2f s that were used", r.CPUSec), false)
	}
}

// slackBudget is the budget above which it is pointed out as stale: twice what
// a first ledger would have.
func slackBudget(seconds float64) float64 { return 2 * Headroom(seconds) }

// ExitCode is the exit status of a verdict; docs/ledger.md has the table.
func (v *Verdict) ExitCode() int {
	switch {
	case !slices.Contains([]Status{Match, DriftFound, Incomplete, Failed, Partial}, v.Status):
		return ExitCannot
	case v.Killed != "":
		return ExitKilled
	case v.Status == Failed:
		return v.Exit
	case v.Mode == Audit:
		return 0
	case v.Blind:
		return ExitBlind
	case v.Status == Incomplete:
		return ExitIncomplete
	case v.Status == DriftFound, v.Status == Partial && len(v.Drifts) > 0:
		return ExitDrift
	}
	return 0 // Match, or Partial without an extra row
}

// Exit statuses of gate beside the command's own.
const (
	ExitDrift      = 121
	ExitIncomplete = 122
	ExitBlind      = 123 // a positive control failed
	ExitKilled     = 124 // by a budget or time limit
	ExitCannot     = 125 // gate could not do its job
)
