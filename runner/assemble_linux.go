package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/org/gate/egress"
	"github.com/org/gate/ledger"
	"github.com/org/gate/rusage"
	"github.com/org/gate/sandbox"
	"github.com/org/gate/writeset"
)

// assemble makes the record complete, after the tree is dead.
func (r *run) assemble(ctx context.Context, rec *ledger.Record, exit sandbox.Exit) error {
	rec.Git = <-r.commit
	rec.Exit = exit.Code
	if exit.Signal != 0 {
		rec.Exit = 128 + exit.Signal
		rec.Signal = unix.SignalName(syscall.Signal(exit.Signal))
	}
	if err := r.readJournal(); err != nil {
		return err
	}
	after, err := writeset.Take(ctx, r.cfg.Root)
	if err != nil {
		return err
	}
	if r.h.trace != nil {
		for _, c := range writeset.Diff(r.before, after) {
			r.h.trace.change(c)
		}
	}
	r.addWrites(rec, r.h.writes.Finish(r.before, after))
	rec.Gaps = append(rec.Gaps, unreadable(r.before, after)...)
	r.addNet(rec, r.h.net.Finish())
	r.addCPU(rec, exit)
	r.filesRecord(rec)
	r.outputRecord(rec)
	for _, s := range exit.Survivors {
		r.h.findings.add("survivor", "outlived the command and was ended: "+strings.Join(s.Argv, " "), -1)
	}
	rec.Gaps = append(r.h.gaps.gaps(), rec.Gaps...)
	rec.Findings = append(rec.Findings, r.h.findings.findings(r.h.who)...)
	if err := r.checkLedger(rec); err != nil {
		return err
	}
	rec.Derive()
	if err := r.h.trace.failed(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func (r *run) addWrites(rec *ledger.Record, res writeset.Result) {
	rec.WriteRows = []ledger.WriteRow{}
	for _, w := range res.Rows {
		row := ledger.WriteRow{Path: w.Path, Fold: w.Fold, Count: w.Count, Calls: w.Calls, Witness: []string{}, Who: r.h.who.get(w.Actor)}
		if w.Syscall {
			row.Witness = append(row.Witness, ledger.WitnessSyscall)
		}
		if w.Snapshot {
			row.Witness = append(row.Witness, ledger.WitnessSnapshot)
		}
		rec.WriteRows = append(rec.WriteRows, row)
		if w.Flag != "" {
			rec.Findings = append(rec.Findings, ledger.Finding{Kind: "flagged-path", Detail: w.Path + ": " + w.Flag, Who: row.Who})
		}
	}
	for _, o := range res.Outside {
		rec.Outside = append(rec.Outside, ledger.OutsideRow{Path: o.Path, Allowed: o.Allowed, Count: o.Count, Calls: o.Calls, Who: r.h.who.get(o.Actor)})
	}
	for _, f := range res.Folded {
		rec.Folded = append(rec.Folded, ledger.Folded(f))
	}
	for _, g := range res.Gaps {
		rec.Gaps = append(rec.Gaps, ledger.Gap(g))
	}
	if r.cfg.LedgerPath != "" {
		rec.LedgerFile = &ledger.LedgerFile{
			Path: relative(r.cfg.Root, r.cfg.LedgerPath), SHA256: r.cfg.LedgerSum, Changed: len(res.Protected) > 0,
		}
	}
}

// checkLedger holds the file against what was read before the start.
func (r *run) checkLedger(rec *ledger.Record) error {
	if rec.LedgerFile == nil {
		return nil
	}
	data, err := os.ReadFile(r.cfg.LedgerPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the ledger again: %w", err)
	}
	sum := sha256.Sum256(data)
	if err != nil || hex.EncodeToString(sum[:]) != r.cfg.LedgerSum {
		rec.LedgerFile.Changed = true
	}
	return nil
}

func (r *run) addNet(rec *ledger.Record, res egress.Result) {
	rec.NetRows = []ledger.NetRow{}
	for _, n := range res.Rows {
		rec.NetRows = append(rec.NetRows, ledger.NetRow{
			Endpoint: n.Endpoint, Count: n.Count, Witness: n.Witness.Names(), Calls: n.Calls, Door: n.Door, Who: r.h.who.get(n.Actor),
		})
	}
	for _, g := range res.Gaps {
		rec.Gaps = append(rec.Gaps, ledger.Gap(g))
	}
	for _, v := range res.Visible {
		rec.Findings = append(rec.Findings, ledger.Finding{
			Kind:   "socket-visible-to-host",
			Detail: v.Endpoint + " was bound where processes outside can see it; one of them could hand a connection in",
			Who:    r.h.who.get(v.Actor),
		})
	}
	if r.tier == sandbox.Namespace {
		for _, u := range r.doors.Use() {
			rec.Doors = append(rec.Doors, ledger.DoorUse(u))
			if u.Refused > 0 && u.Connections == 0 && r.cfg.Mode != ledger.Audit {
				rec.Findings = append(rec.Findings, ledger.Finding{
					Kind: "door-closed", Detail: fmt.Sprintf("nobody answered at %s, the far end of the door %s", u.Far, u.Endpoint),
				})
			}
		}
	}
}

func (r *run) addCPU(rec *ledger.Record, exit sandbox.Exit) {
	w := rusage.Witnesses{
		Reaped: rusage.Usage{User: exit.User, System: exit.System}, Metered: r.meter.Metered(),
		Init: rusage.Usage{User: exit.InitUser, System: exit.InitSystem},
	}
	if r.group != nil {
		if u, err := r.group.Usage(); err == nil {
			w.Cgroup = &u
		} else {
			r.h.findings.add("cpu-witnesses", "the run's cgroup cannot be read: "+err.Error(), -1)
		}
	}
	total, notes := w.Total()
	rec.CPUSec = total.User.Seconds()
	rec.CPU = ledger.CPU{
		Reaped: w.Reaped.User.Seconds(), AutoReaped: w.AutoReaped.User.Seconds(), Sampled: w.Sampled.User.Seconds(),
		System: total.System.Seconds(), Processes: r.h.exits,
	}
	if w.Cgroup != nil {
		rec.CPU.Cgroup = max(0, (w.Cgroup.User - w.Init.User).Seconds())
	}
	for _, n := range notes {
		r.h.findings.add("cpu-witnesses", n, -1)
	}
	if lost := w.Killed + w.Misread; lost > 0 && w.Cgroup == nil {
		// Nobody counted what these used after their last sample.
		rec.Gaps = append(rec.Gaps, ledger.Gap{
			Kind: "cpu-lost", Count: lost,
			Detail: "processes that nobody waits for were killed or could not be read at their exit, and there is no cgroup to count them",
		})
	}
}

// readJournal merges what in-process interceptors wrote. The tree may have put
// anything there: what is no file is not opened, or a pipe would hold gate up
// for ever and a link lead it to what only gate may read.
func (r *run) readJournal() error {
	f, err := os.OpenFile(r.journal, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var info fs.FileInfo
	if err == nil {
		defer f.Close()
		info, err = f.Stat()
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("is not a file (mode %v)", info.Mode())
	}
	if err != nil {
		r.h.net.Gap(egress.Gap{Kind: "egress-log", Detail: "the in-process journal: " + err.Error(), Count: 1})
		return nil
	}
	gaps, err := egress.ReadJournal(f, r.h.net.InProcess)
	for _, g := range gaps {
		r.h.net.Gap(g)
	}
	return err
}

// unreadable makes a gap of the directories that only one of the snapshots
// could read. One that neither could, the tree could not enter either.
func unreadable(before, after *writeset.Snapshot) []ledger.Gap {
	count := map[string]int{}
	for _, dir := range append(before.Unreadable(), after.Unreadable()...) {
		count[dir]++
	}
	var gaps []ledger.Gap
	for _, dir := range slices.Sorted(maps.Keys(count)) {
		if count[dir] == 1 {
			gaps = append(gaps, ledger.Gap{Kind: "unreadable-directory", Detail: writeset.Quote(dir) + " could be read only before or only after the run", Count: 1})
		}
	}
	return gaps
}
