package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/org/gate/accuracy/netns"
	"github.com/org/gate/accuracy/strace"
	"github.com/org/gate/accuracy/tree"
	"github.com/org/gate/accuracy/truth"
)

// measurement is one suite being run.
type measurement struct {
	suite
	uid, gid uint32
	env      []string
	work     string // directory for what the runs leave, outside the repository
	saved    tree.Saved
	unlock   func() error // lets others at the repository again
}

// measure runs the suite under gate (if there is one), under strace and bare,
// on the same tree each time.
func (s suite) measure(ctx context.Context) (r report, err error) {
	m, err := s.prepare(ctx)
	if err != nil {
		return report{}, err
	}
	defer func() {
		err = errors.Join(err, m.saved.Restore(ctx), m.unlock())
		if s.keep == "" {
			err = errors.Join(err, os.RemoveAll(m.work))
		}
	}()
	r = report{name: s.name, gated: s.gate != ""}
	var rec record
	if r.gated {
		if rec, err = m.gated(ctx); err != nil {
			return report{}, err
		}
		r.exitGate, r.cpuGate, r.evidence = rec.Exit, rec.CPUSec, rec.Evidence
		for _, g := range rec.Gaps {
			r.gaps = append(r.gaps, g.Kind+": "+g.Detail)
		}
	}
	rows, exit, err := m.traced(ctx)
	if err != nil {
		return report{}, err
	}
	r.exitTruth, r.notes = exit, rows.Notes
	writes, err := fold(rows.Writes, s.folds)
	if err != nil {
		return report{}, err
	}
	r.columns = []column{{"net", rows.Net, rec.Net}, {"writes", writes, rec.WritePaths}}
	if r.gated && s.cpu {
		if r.cpuBare, err = m.bare(ctx); err != nil {
			return report{}, err
		}
	}
	return r, nil
}

// prepare saves the tree and finds out who runs what.
func (s suite) prepare(ctx context.Context) (*measurement, error) {
	who, err := user.Lookup(s.user)
	if err != nil {
		return nil, err
	}
	uid, errUID := strconv.ParseUint(who.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return nil, fmt.Errorf("user %s: %w", s.user, err)
	}
	m := &measurement{suite: s, uid: uint32(uid), gid: uint32(gid), work: s.keep}
	if m.work == "" {
		if m.work, err = os.MkdirTemp("", "accuracy-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(m.work, 0o755); err != nil {
		return nil, err
	}
	if m.work, err = real(m.work); err != nil {
		return nil, err
	}
	if err := os.Chown(m.work, int(uid), int(gid)); err != nil {
		return nil, err
	}
	m.env = []string{"HOME=" + who.HomeDir, "USER=" + who.Username, "LOGNAME=" + who.Username}
	for _, v := range os.Environ() {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND":
		default:
			m.env = append(m.env, v)
		}
	}
	copied := filepath.Join(m.work, "tree")
	if err := os.RemoveAll(copied); err != nil {
		return nil, err
	}
	if m.unlock, err = lock(s.root); err != nil {
		return nil, err
	}
	if m.saved, err = tree.Save(ctx, s.root, copied); err != nil {
		return nil, errors.Join(err, m.unlock())
	}
	return m, nil
}

// record is what is read of gate's record.
type record struct {
	Exit       int
	Evidence   string
	Net        []string
	CPUSec     float64  `json:"cpu_sec"`
	WritePaths []string `json:"write_paths"`
	Gaps       []struct{ Kind, Detail string }
}

// gated runs the suite under gate against an empty ledger. Gate's verdict is
// of no interest, its record is.
func (m *measurement) gated(ctx context.Context) (record, error) {
	if err := m.saved.Restore(ctx); err != nil {
		return record{}, err
	}
	folds := append([]string{}, m.folds...) // never nil: the file has no null
	rows := slices.Sorted(slices.Values(folds))
	ledger, err := json.Marshal(map[string]any{
		"version": 1, "allow_net": []string{}, "cpu_budget": 1e6, "fold": folds, "write_paths": append([]string{}, rows...),
	})
	if err != nil {
		return record{}, err
	}
	ledgerFile, recordFile := filepath.Join(m.work, "ledger.json"), filepath.Join(m.work, "record.json")
	if err := os.WriteFile(ledgerFile, ledger, 0o644); err != nil {
		return record{}, err
	}
	if err := os.Remove(recordFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return record{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	args := append([]string{"run", "--ledger", ledgerFile, "--record", recordFile, "--"}, m.command...)
	cmd := exec.CommandContext(ctx, m.gate, args...)
	cmd.Dir, cmd.Env = m.dir, append(slices.Clip(m.env), "PWD="+m.dir)
	cmd.SysProcAttr = as(m.uid, m.gid)
	out, runErr := cmd.CombinedOutput()
	if err := os.WriteFile(filepath.Join(m.work, "gate.out"), out, 0o644); err != nil {
		return record{}, err
	}
	data, err := os.ReadFile(recordFile)
	if err != nil {
		return record{}, fmt.Errorf("gate left no record: %w: %v: %s", err, runErr, tail(out))
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		return record{}, fmt.Errorf("read %s: %w", recordFile, err)
	}
	return rec, nil
}

// traced runs the suite under strace and reduces the log.
func (m *measurement) traced(ctx context.Context) (truth.Rows, int, error) {
	if err := m.saved.Restore(ctx); err != nil {
		return truth.Rows{}, 0, err
	}
	log := filepath.Join(m.work, "strace.log")
	args := append([]string{"strace"}, strace.Options()...)
	args = append(args, "-e", "trace="+truth.Syscalls,
		// As under gate: calls made through a ring could be seen by nobody.
		"-e", "inject=io_uring_setup:error=ENOSYS",
		"-o", log, "--")
	before, err := tree.List(m.root)
	if err != nil {
		return truth.Rows{}, 0, err
	}
	result, err := netns.Run(ctx, m.inside(append(args, m.command...), "strace.out", true))
	if err != nil {
		return truth.Rows{}, 0, err
	}
	after, err := tree.List(m.root)
	if err != nil {
		return truth.Rows{}, 0, err
	}
	f, err := os.Open(log)
	if err != nil {
		return truth.Rows{}, 0, err
	}
	calls, err := strace.Parse(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return truth.Rows{}, 0, err
	}
	rows := truth.Reduce(truth.Run{
		Places: m.places(), Dir: m.dir, Calls: calls, Before: before, After: after,
		Lookups: truth.Lookups{Asked: result.Asked, Names: result.Names},
	})
	return rows, result.Exit, nil
}

// bare runs the suite under nothing and gives its user CPU seconds.
func (m *measurement) bare(ctx context.Context) (float64, error) {
	if err := m.saved.Restore(ctx); err != nil {
		return 0, err
	}
	result, err := netns.Run(ctx, m.inside(m.command, "bare.out", false))
	return result.UserSec, err
}

func (m *measurement) inside(args []string, output string, tracer bool) netns.Command {
	return netns.Command{
		Args: args, Dir: m.dir, Env: append(slices.Clip(m.env), "PWD="+m.dir),
		Output: filepath.Join(m.work, output), UID: m.uid, GID: m.gid, Tracer: tracer, Timeout: m.timeout,
	}
}

// places are the directories whose names stand in unix rows.
func (m *measurement) places() truth.Places {
	get := func(name, otherwise string) string {
		for _, v := range m.env {
			if value, ok := strings.CutPrefix(v, name+"="); ok && value != "" {
				otherwise = value
			}
		}
		if resolved, err := filepath.EvalSymlinks(otherwise); err == nil {
			return resolved
		}
		return otherwise // it does not exist: nothing to resolve
	}
	return truth.Places{
		Root: m.root, Home: get("HOME", ""), TmpDir: get("TMPDIR", "/tmp"),
		RuntimeDir: get("XDG_RUNTIME_DIR", "/run/user/"+strconv.Itoa(int(m.uid))),
	}
}

// fold puts the glob in place of each row that it matches; a glob is in the
// set whether or not it was hit. Rows are matched unquoted.
func fold(rows, globs []string) ([]string, error) {
	set := map[string]bool{}
	for _, g := range globs {
		set[g] = true
	}
	for _, row := range rows {
		kept := row
		for _, g := range globs {
			hit, err := doublestar.Match(g, truth.Unquote(row))
			if err != nil {
				return nil, fmt.Errorf("fold %s: %w", g, err)
			}
			if hit {
				kept = g
				break
			}
		}
		set[kept] = true
	}
	folded := make([]string, 0, len(set))
	for row := range set {
		folded = append(folded, row)
	}
	slices.Sort(folded)
	return folded, nil
}

// tail is the end of an output, for an error message.
func tail(out []byte) []byte {
	out = bytes.TrimSpace(out)
	return out[max(0, len(out)-2000):]
}
