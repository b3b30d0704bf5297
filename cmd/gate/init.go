package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/org/gate/ledger"
	"github.com/org/gate/runner"
)

// initOptions are the flags of gate init.
type initOptions struct {
	runs         int
	ledger, root string
	evidence     string
	timeout      time.Duration
	force        bool
	noClone      bool
}

// minRuns is how many runs it takes to see what differs between two.
const minRuns = 2

func (o *initOptions) syntax() syntax {
	return syntax{
		name: "init",
		options: []option{
			{"runs", "N", o.setRuns},
			{"ledger", "FILE", text(&o.ledger)},
			{"no-clone", "", toggle(&o.noClone)},
			{"force", "", toggle(&o.force)},
			evidenceOption(&o.evidence),
			timeoutOption(&o.timeout),
			{"root", "DIR", text(&o.root)},
		},
		command: true,
	}
}

func (o *initOptions) setRuns(v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < minRuns || n > 100 {
		return fmt.Errorf("want a number from %d to 100", minRuns)
	}
	o.runs = n
	return nil
}

// initCommand is gate init.
func (a *app) initCommand(args []string) (int, error) {
	o := initOptions{runs: minRuns}
	p, err := o.syntax().parse(args)
	if err != nil {
		return 0, err
	}
	if len(p.command) == 0 {
		return 0, hint(errors.New("no command to make a ledger for"), "gate init -- go test ./...")
	}
	where, err := locate(o.root)
	if err != nil {
		return 0, err
	}
	path, err := a.newLedger(where, &o)
	if err != nil {
		return 0, err
	}
	records, err := a.seedRuns(where, &o, p.command)
	if err != nil {
		return 0, err
	}
	l, folds, err := ledger.Seed(records, p.command)
	if err != nil {
		return 0, err
	}
	if err := ledger.Write(path, l); err != nil {
		return 0, err
	}
	record := filepath.Join(filepath.Dir(path), recordName)
	ignored, err := ignoreRecord(where, record)
	if err != nil {
		return 0, err
	}
	return 0, a.reportSeed(where, path, l, folds, ignored)
}

// newLedger is where the ledger goes: --ledger, the place of the one that is
// there, or the working directory, in which the command runs.
func (a *app) newLedger(where place, o *initOptions) (string, error) {
	path, err := ledger.Find(where.dir, o.ledger)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = filepath.Join(where.dir, ledgerName), nil
	}
	if err == nil {
		path, err = resolve(path)
	}
	if err != nil {
		return "", fmt.Errorf("find a place for the ledger: %w", err)
	}
	if home := ledger.Home(path); within(where.root, home) && home != where.dir {
		return "", hint(fmt.Errorf("a ledger at %s pins what is run in %s, and this is %s", where.relative(path), home, where.dir), "cd %s", home)
	}
	if _, err := os.Lstat(path); err == nil {
		if !o.force {
			return "", hint(fmt.Errorf("there is a ledger already: %s", path), "gate accept takes over what a run did; gate init --force begins anew")
		}
		if a.inCI() {
			return "", hint(errors.New("--force where CI is set: a ledger is replaced by a human"), "run it on your own machine and commit the ledger")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for a ledger: %w", err)
	}
	return path, writable(path)
}

// seedRuns runs the command as often as asked in the work tree, and once more
// in a fresh clone, since a cold checkout writes what a warm one does not.
func (a *app) seedRuns(where place, o *initOptions, command []string) ([]*ledger.Record, error) {
	var records []*ledger.Record
	for i := range o.runs {
		if err := a.say("run %d of %d: %s", i+1, o.runs, shellJoin(command)); err != nil {
			return nil, err
		}
		record, err := a.seedRun(where, o, i, command)
		if err == nil {
			err = knownGood(record)
		}
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w; no ledger was written", i+1, o.runs, err)
		}
		records = append(records, record)
	}
	var record *ledger.Record
	if !o.noClone {
		var err error
		if record, err = a.cloneRun(where, o, command); err != nil {
			return records, err
		}
	}
	if record == nil && o.runs < fewest {
		if err := a.say("one more run, in place of the one in a fresh clone: %s", shellJoin(command)); err != nil {
			return nil, err
		}
		var err error
		if record, err = a.seedRun(where, o, o.runs, command); err == nil {
			err = knownGood(record)
		}
		if err != nil {
			return nil, fmt.Errorf("one more run: %w; no ledger was written", err)
		}
	}
	if record == nil {
		return records, nil
	}
	return append(records, record), nil
}

// fewest is how many runs it takes to see that a name is not of every run: what
// one makes and the next takes away is written by both.
const fewest = 3

// seedRun is run number i. The pids of each begin elsewhere, so that a name with
// a pid in it is not taken for one that every run writes.
func (a *app) seedRun(where place, o *initOptions, i int, command []string) (*ledger.Record, error) {
	return a.observe(runner.Config{
		Command: command,
		Dir:     where.dir, Root: where.root,
		Env:   a.environ,
		Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr,
		Mode:     ledger.Audit,
		Evidence: o.evidence,
		Timeout:  o.timeout,
		FirstPID: 1000 + i*11000%30000, // below the smallest pid_max, 32768
		Version:  version(),
	}, false, "")
}

// cloneRun runs the command in a fresh clone. Many suites need files that git
// does not have, so one that cannot run there is said to and left out: the
// record is nil then.
func (a *app) cloneRun(where place, o *initOptions, command []string) (*ledger.Record, error) {
	const without = "no run in a fresh clone, whose rows may differ from these: "
	clone, err := cloneFresh(where)
	if err != nil {
		return nil, a.say("%s%v", without, err)
	}
	err = a.say("run in a fresh clone: %s", shellJoin(command))
	var record *ledger.Record
	if err == nil {
		record, err = a.seedRun(clone.place, o, o.runs, command)
	}
	if err = errors.Join(err, clone.remove()); err != nil {
		return nil, fmt.Errorf("run in a fresh clone: %w; no ledger was written", err)
	}
	if record.Interrupted != "" {
		return nil, fmt.Errorf("run in a fresh clone: %w; no ledger was written", knownGood(record))
	}
	if err := knownGood(record); err != nil {
		return nil, a.say("%s%v", without, err)
	}
	return record, nil
}

// knownGood refuses a run that did not pass, or was not wholly observed.
func knownGood(r *ledger.Record) error {
	switch {
	case r.Killed != "":
		return failed{fmt.Errorf("gate ended it: %s", r.Killed), ledger.ExitKilled}
	case r.Interrupted != "":
		return failed{fmt.Errorf("it was interrupted by %s", r.Interrupted), cmp.Or(r.Exit, ledger.ExitIncomplete)}
	case r.Exit != 0:
		return failed{fmt.Errorf("the command failed with status %d", r.Exit), r.Exit}
	case len(r.Gaps) > 0:
		err := fmt.Errorf("it was not wholly observed: %s: %s", r.Gaps[0].Kind, r.Gaps[0].Detail)
		return failed{hint(err, "gate doctor says what this host lacks"), ledger.ExitIncomplete}
	}
	return nil
}

// ignoreRecord adds the record to the .gitignore of the repository, unless git
// ignores it already, and says whether it did.
func ignoreRecord(where place, record string) (added bool, err error) {
	if !within(where.root, record) {
		return false, nil
	}
	rel := where.relative(record)
	// "-q" gives status 0 if the path is ignored; any other status, also that
	// git is missing, leaves it to the line below (git-check-ignore(1)).
	check := exec.Command("git", "-C", where.root, "check-ignore", "-q", "--", rel)
	if check.Run() == nil {
		return false, nil
	}
	path := filepath.Join(where.root, ".gitignore")
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("add the record to .gitignore: %w", err)
	}
	line := "/" + strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `).Replace(rel)
	if slices.Contains(strings.Split(string(data), "\n"), line) {
		return false, nil
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	data = append(data, line+"\n"...)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(where.root),
		renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		return false, fmt.Errorf("add the record to .gitignore: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = ledger.Own(f.File, path)
	}
	if err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return false, fmt.Errorf("add the record to .gitignore: %w", errors.Join(err, f.Cleanup()))
	}
	return true, nil
}

// reportSeed says what stands in the new ledger, for the human who will commit
// it.
func (a *app) reportSeed(where place, path string, l *ledger.Ledger, folds []ledger.Folding, ignored bool) error {
	lines := []string{
		fmt.Sprintf("wrote %s: net %d, cpu_budget %g s, writes %d", where.relative(path), len(l.AllowNet), l.CPUBudget, len(l.WritePaths)),
	}
	for _, endpoint := range l.AllowNet {
		lines = append(lines, fmt.Sprintf("  net    %s (does the suite need it?)", endpoint))
	}
	for _, row := range l.WritePaths {
		if !slices.Contains(l.Fold, row) {
			lines = append(lines, "  write  "+row)
		}
	}
	for _, f := range folds {
		lines = append(lines, fmt.Sprintf("  fold   %s (%s)", f.Glob, f.Reason))
	}
	for _, place := range l.AllowWrite {
		lines = append(lines, "  allow  "+place)
	}
	commit := []string{where.relative(path)}
	if ignored {
		lines = append(lines, "added the record to .gitignore")
		commit = append(commit, ".gitignore")
	}
	lines = append(lines, "read it, then commit it: git add "+shellJoin(commit))
	for _, line := range lines {
		if err := a.say("%s", line); err != nil {
			return err
		}
	}
	return nil
}
