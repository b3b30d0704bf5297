package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/org/gate/ledger"
	"github.com/org/gate/writeset"
)

// acceptOptions are the flags of gate accept.
type acceptOptions struct {
	ledger, record, root string
	from, fromPR         string
	writes               string
	tighten, merge       bool
	fold                 []string
}

func (o *acceptOptions) syntax() syntax {
	return syntax{
		name: "accept",
		options: []option{
			{"writes", "DIGEST", o.setWrites},
			{"tighten", "", toggle(&o.tighten)},
			{"merge", "", toggle(&o.merge)},
			{"fold", "GLOB", func(v string) error { o.fold = append(o.fold, v); return nil }},
			{"ledger", "FILE", text(&o.ledger)},
			{"record", "FILE", text(&o.record)},
			{"from", "FILE|DIR", text(&o.from)},
			{"from-pr", "N", text(&o.fromPR)},
			{"root", "DIR", text(&o.root)},
		},
	}
}

func (o *acceptOptions) setWrites(v string) error {
	if b, err := hex.DecodeString(v); err != nil || len(b) != 32 {
		return errors.New("want 64 hexadecimal digits")
	}
	o.writes = strings.ToLower(v)
	return nil
}

// acceptCommand is gate accept.
func (a *app) acceptCommand(args []string) (int, error) {
	var o acceptOptions
	if _, err := o.syntax().parse(args); err != nil {
		return 0, err
	}
	if a.inCI() {
		return 0, hint(errors.New("CI is set: a ledger is accepted by a human"), "run gate accept on your own machine and commit the ledger")
	}
	if o.merge {
		return a.acceptMerge(&o)
	}
	c, err := openContract(o.root, o.ledger, o.record)
	if err != nil {
		return 0, err
	}
	name := c.where.relative(c.files.ledger)
	record, err := o.load(c)
	if err != nil {
		return 0, err
	}
	if record.LedgerFile == nil || record.LedgerFile.SHA256 != c.sum {
		return 0, hint(fmt.Errorf("the record was made with another ledger than %s", name), "gate run, then gate accept")
	}
	change := ledger.Accept
	if o.tighten {
		change = ledger.Tighten
	}
	l, folded, err := o.folding(c.ledger)
	if err != nil {
		return 0, err
	}
	next, changes, err := change(l, record)
	if err != nil {
		return 0, err
	}
	changes = append(folded, changes...)
	if len(changes) == 0 {
		return 0, a.say("nothing to accept: %s says what the run did", name)
	}
	if err := a.showChanges(name, changes); err != nil {
		return 0, err
	}
	if yes, err := a.agreed(&o, next, changes); err != nil {
		return 0, err
	} else if !yes {
		return ledger.ExitDrift, a.say("not accepted; the ledger is as it was")
	}
	if err := ledger.Write(c.files.ledger, next); err != nil {
		return 0, err
	}
	return 0, a.say("accepted; commit it: git add %s", shellJoin([]string{name}))
}

// folding adds the globs of --fold to a ledger, behind its own.
func (o *acceptOptions) folding(l *ledger.Ledger) (*ledger.Ledger, []ledger.Change, error) {
	if o.fold != nil && o.tighten {
		return nil, nil, errors.New("--fold and --tighten: want one of them")
	}
	out := *l
	out.Fold = slices.Clone(l.Fold)
	var changes []ledger.Change
	for _, glob := range o.fold {
		if _, err := writeset.ParseGlobs([]string{glob}); err != nil {
			return nil, nil, fmt.Errorf("--fold: %w", err)
		}
		if !slices.Contains(out.Fold, glob) {
			out.Fold = append(out.Fold, glob)
			changes = append(changes, ledger.Change{Key: "fold", New: glob})
		}
	}
	return &out, changes, nil
}

// load reads the record of the last run here, or those that were made elsewhere.
func (o *acceptOptions) load(c contract) (*ledger.Record, error) {
	var from records
	var err error
	switch {
	case o.from != "" && o.fromPR != "":
		return nil, errors.New("--from and --from-pr: want one of them")
	case o.from != "":
		from, err = recordsFrom(o.from)
	case o.fromPR != "":
		from, err = recordsOfPR(c.where.root, o.fromPR)
	default:
		return ledger.LoadRecord(c.files.record)
	}
	if err != nil {
		return nil, err
	}
	return from.one(c.ledger)
}

// showChanges prints one line a change.
func (a *app) showChanges(name string, changes []ledger.Change) error {
	if err := a.say("%s changes:", name); err != nil {
		return err
	}
	for _, c := range changes {
		line := "- " + c.Key + "  " + c.Old
		switch {
		case c.Old == "":
			line = "+ " + c.Key + "  " + c.New
		case c.New != "":
			line = "~ " + c.Key + "  " + c.Old + " -> " + c.New
		}
		if c.Detail != "" {
			line += "  (" + c.Detail + ")"
		}
		if err := a.say("  %s", line); err != nil {
			return err
		}
	}
	return nil
}

// agreed asks whether the changes are to be made. What only takes away needs
// no answer; a digest stands for the written paths, and for nothing else.
func (a *app) agreed(o *acceptOptions, next *ledger.Ledger, changes []ledger.Change) (bool, error) {
	if o.writes != "" {
		if o.writes != next.Accepted() {
			return false, hint(fmt.Errorf("--writes %s is not the digest of the record", o.writes), "it is %s: read the paths first", next.Accepted())
		}
		for _, c := range changes {
			if c.Key != "writes" && c.Key != "write_paths" && !o.tighten {
				return false, hint(fmt.Errorf("--writes stands for the written paths alone, and %s would change too", c.Key), "gate accept, on a terminal")
			}
		}
		return true, nil
	}
	if o.tighten {
		return true, nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return false, hint(errors.New("stdin and stderr are not a terminal to ask on"), "run it on one; where only written paths change: gate accept --writes %s", next.Accepted())
	}
	if _, err := io.WriteString(a.stderr, "gate: accept these changes? [y/N] "); err != nil {
		return false, fmt.Errorf("write stderr: %w", err)
	}
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
