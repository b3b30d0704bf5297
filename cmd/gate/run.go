package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/ledger"
	"github.com/org/gate/runner"
)

// runOptions are the flags of gate run.
type runOptions struct {
	ledger, record, root string
	base, part           string
	mode, evidence       string
	timeout              time.Duration
	doors                map[string]string
	trace                string
	json, quiet, noColor bool
	isolate, all         bool
}

func (o *runOptions) syntax() syntax {
	return syntax{
		name: "run",
		options: []option{
			{"ledger", "FILE", text(&o.ledger)},
			{"record", "FILE", text(&o.record)},
			{"base", "REF", text(&o.base)},
			{"part", "NAME", text(&o.part)},
			{"mode", "enforce|audit", choice(&o.mode, ledger.Enforce, ledger.Audit)},
			evidenceOption(&o.evidence),
			timeoutOption(&o.timeout),
			{"door", "NAME=HOST:PORT", o.addDoor},
			{"root", "DIR", text(&o.root)},
			{"all", "", toggle(&o.all)},
			{"isolate", "", toggle(&o.isolate)},
			{"trace", "FILE", text(&o.trace)},
			{"json", "", toggle(&o.json)},
			{"quiet", "", toggle(&o.quiet)},
			{"no-color", "", toggle(&o.noColor)},
		},
		command: true,
	}
}

func evidenceOption(p *string) option {
	return option{"evidence", "namespace|notify|weak", choice(p, ledger.TierNamespace, ledger.TierNotify, ledger.TierWeak)}
}

func timeoutOption(p *time.Duration) option {
	return option{"timeout", "90s", func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return errors.New("want a time above zero with its unit, such as 90s or 10m")
		}
		*p = d
		return nil
	}}
}

// addDoor takes ENDPOINT=HOST:PORT.
func (o *runOptions) addDoor(v string) error {
	name, far, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return errors.New("want an endpoint of allow_net, =, and the address it leads to")
	}
	host, port, err := net.SplitHostPort(far)
	if err != nil {
		return fmt.Errorf("want HOST:PORT after =: %w", err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return errors.New("want HOST:PORT after =, with a port from 1 to 65535")
	}
	if _, twice := o.doors[name]; twice {
		return fmt.Errorf("%s has a door already", name)
	}
	if o.doors == nil {
		o.doors = map[string]string{}
	}
	o.doors[name] = far
	return nil
}

// runCommand is gate run.
func (a *app) runCommand(args []string) (int, error) {
	var o runOptions
	p, err := o.syntax().parse(args)
	if err != nil {
		return 0, err
	}
	if o.all {
		return a.runAll(&o, p.command)
	}
	c, err := openContract(o.root, o.ledger, o.record)
	if err != nil {
		return 0, err
	}
	return a.runContract(c, &o, p.command)
}

// runContract runs a command, or the ledger's, and judges it.
func (a *app) runContract(c contract, o *runOptions, command []string) (int, error) {
	base, err := a.base(o.base, c.where, c.files.ledger, o.ledger != "" || o.all)
	if err != nil {
		return 0, err
	}
	cfg, err := a.configure(o, ledger.Under(c.ledger, base), command)
	if err != nil {
		return 0, err
	}
	cfg.Dir, cfg.Root = c.where.dir, c.where.root
	if home := ledger.Home(c.files.ledger); len(command) == 0 && within(c.where.root, home) {
		cfg.Dir = home // what the ledger pins, it pins there
	}
	cfg.LedgerPath, cfg.LedgerSum = c.files.ledger, c.sum
	if err := writable(c.files.record); err != nil {
		return 0, err
	}
	if o.trace != "" {
		if st, err := os.Stat(filepath.Dir(o.trace)); err != nil || !st.IsDir() {
			return 0, hint(fmt.Errorf("--trace %s: there is no directory %s", o.trace, filepath.Dir(o.trace)), "mkdir -p %s", filepath.Dir(o.trace))
		}
		if err := c.files.spare("--trace", o.trace, c.files.ledger, c.files.record); err != nil {
			return 0, err
		}
	}
	record, err := a.recordRun(cfg, o, base, c.files.record)
	if err != nil {
		return 0, err
	}
	verdict := ledger.Compare(c.ledger, record, ledger.Options{CI: a.inCI(), Mode: cfg.Mode, Base: base})
	return verdict.ExitCode(), a.showVerdict(&verdict, o, c.where.relative(c.files.record))
}

// showVerdict prints the verdict on stderr, and as JSON on stdout if asked to.
func (a *app) showVerdict(v *ledger.Verdict, o *runOptions, record string) error {
	if o.json {
		if err := a.printVerdict(v); err != nil {
			return err
		}
	}
	if o.quiet && v.Status == ledger.Match {
		return nil
	}
	return ledger.Render(a.stderr, v, ledger.RenderOptions{Color: a.colored(a.stderr, o.noColor), File: record})
}

// configure makes the run from the flags and the ledger. A flag can never
// loosen what the ledger asks for where nobody watches.
func (a *app) configure(o *runOptions, l *ledger.Ledger, command []string) (runner.Config, error) {
	cfg := runner.Config{
		Command: command,
		Env:     a.environ,
		Stdin:   a.stdin, Stdout: a.stdout, Stderr: a.stderr,
		Ledger:   l,
		Mode:     l.Mode,
		Isolate:  o.isolate || a.inCI(),
		Evidence: o.evidence,
		Timeout:  o.timeout,
		Doors:    o.doors,
		Version:  version(),
	}
	if len(command) == 0 {
		cfg.Command = l.Command
	}
	if len(cfg.Command) == 0 {
		return cfg, hint(errors.New("the ledger pins no command, and none was given"), "gate run -- COMMAND")
	}
	if o.json {
		cfg.Stdout = a.stderr // stdout is the verdict's
	}
	if o.mode != "" {
		if a.inCI() && o.mode == ledger.Audit && l.Mode != ledger.Audit {
			return cfg, hint(errors.New("--mode audit where CI is set: only the ledger can say so there"), "leave the flag out")
		}
		cfg.Mode = o.mode
	}
	if lowest := lowestTier(l); o.evidence != "" && slices.Index(tiers(), o.evidence) > slices.Index(tiers(), lowest) {
		return cfg, hint(fmt.Errorf("--evidence %s is less than the ledger asks for: %s", o.evidence, lowest), "gate doctor says what this host can do")
	}
	if o.part != "" && !slices.Contains(l.Parts, o.part) {
		return cfg, hint(fmt.Errorf("--part %s: the ledger has no such part", o.part), "parts has %s", orList(l.Parts))
	}
	for name := range o.doors {
		if cfg.Mode != ledger.Audit && !slices.Contains(l.AllowNet, name) {
			return cfg, hint(fmt.Errorf("--door %s: the ledger does not allow that endpoint", name), "allow_net has %s", orList(l.AllowNet))
		}
	}
	return cfg, nil
}

// tiers lists the tiers of evidence, best first.
func tiers() []string {
	return []string{ledger.TierNamespace, ledger.TierNotify, ledger.TierWeak}
}

// lowestTier is the weakest evidence that l accepts.
func lowestTier(l *ledger.Ledger) string {
	if l.Evidence == "" {
		return ledger.TierNotify
	}
	return l.Evidence
}

// recordRun makes the run and writes its record. If there is none to write, or
// it cannot be written, the record of an earlier run is removed: it would be
// taken for this one's.
func (a *app) recordRun(cfg runner.Config, o *runOptions, base *ledger.Base, path string) (*ledger.Record, error) {
	record, err := a.observe(cfg, o.quiet, o.trace)
	if err == nil {
		record.Part = o.part
		if base != nil {
			record.Base = &ledger.BaseFile{Ref: base.Ref, SHA256: base.SHA256}
		}
		err = ledger.WriteRecord(path, record)
	}
	if err == nil {
		return record, nil
	}
	return nil, errors.Join(err, removeRecord(path))
}

// removeRecord removes the regular file at path, if there is one.
func removeRecord(path string) error {
	st, err := os.Lstat(path)
	if err == nil && st.Mode().IsRegular() {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the record of an earlier run is still there: %w", err)
	}
	return nil
}

// writable looks whether a record can be put at path, before a long run ends
// with nowhere to put it.
func writable(path string) error {
	const way = "--record FILE, in a directory that can be written"
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return hint(fmt.Errorf("the record cannot be written: %s is not a regular file", path), way)
	}
	if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
		return hint(fmt.Errorf("the record cannot be written: access %s: %w", filepath.Dir(path), err), way)
	}
	return nil
}
