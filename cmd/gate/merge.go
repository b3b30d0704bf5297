package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/org/gate/ledger"
)

func mergeSyntax() syntax { return syntax{name: "merge-ledger", operands: 3} }

// mergeCommand is gate merge-ledger: a merge driver of git's (gitattributes(5),
// "Defining a custom merge driver"), called with %O %A %B. The result replaces
// the second file; another status than 0 leaves a conflict to the user.
func (a *app) mergeCommand(args []string) (int, error) {
	p, err := mergeSyntax().parse(args)
	if err != nil {
		return 0, err
	}
	if len(p.operands) != 3 {
		return 0, hint(errors.New("want the three files that git gives a merge driver"), "git config merge.gate-ledger.driver 'gate merge-ledger %%O %%A %%B'")
	}
	base, ours, theirs := p.operands[0], p.operands[1], p.operands[2]
	sides := map[string]*ledger.Ledger{}
	for _, name := range p.operands {
		data, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if len(data) == 0 && name == base {
			continue // both sides made one
		}
		if sides[name], err = ledger.Parse(name, data); err != nil {
			return 0, err
		}
	}
	merged, changes, err := ledger.Merge(sides[base], sides[ours], sides[theirs])
	if err != nil {
		return 0, err
	}
	if err := a.showChanges(ours, changes); err != nil {
		return 0, err
	}
	if err := a.say("run the suite before you commit it: nobody has seen a run of this ledger"); err != nil {
		return 0, err
	}
	return 0, ledger.Write(ours, merged)
}

// acceptMerge is gate accept --merge: it settles the ledger of a merge that git
// has stopped at. The stages are base, ours and theirs (gitrevisions(7), :N:path).
func (a *app) acceptMerge(o *acceptOptions) (int, error) {
	where, err := locate(o.root)
	if err != nil {
		return 0, err
	}
	files, err := where.files(o.ledger, o.record)
	if err != nil {
		return 0, err
	}
	name := where.relative(files.ledger)
	var sides [3]*ledger.Ledger
	for i := range sides {
		stage := fmt.Sprintf(":%d:./%s", i+1, name)
		data, err := git(where.root, "cat-file", "blob", stage)
		switch {
		case err != nil && i == 0:
			continue // both sides made one
		case err != nil:
			return 0, hint(fmt.Errorf("%s is in no conflict: git has no %s", name, stage), "gate accept, without --merge, takes what the last run did")
		}
		if sides[i], err = ledger.Parse(stage, data); err != nil {
			return 0, err
		}
	}
	merged, changes, err := ledger.Merge(sides[0], sides[1], sides[2])
	if err != nil {
		return 0, err
	}
	if err := a.showChanges(name, changes); err != nil {
		return 0, err
	}
	if err := ledger.Write(files.ledger, merged); err != nil {
		return 0, err
	}
	if err := a.judgeMerged(merged, files.record); err != nil {
		return 0, err
	}
	return 0, a.say("merged; when a run matches it: git add %s", shellJoin([]string{name}))
}

// judgeMerged says what the last record, if there is one, says of a merged
// ledger. It is of one side at best, so it is only a hint.
func (a *app) judgeMerged(l *ledger.Ledger, path string) error {
	record, err := ledger.LoadRecord(path)
	if errors.Is(err, os.ErrNotExist) {
		return a.say("there is no record to judge it by: gate run")
	}
	if err != nil {
		return err
	}
	verdict := ledger.Compare(l, record, ledger.Options{})
	if err := a.say("the last record, which is of before the merge: %s", verdict.Status); err != nil {
		return err
	}
	for _, d := range verdict.Drifts {
		if err := a.say("  %s %s %s", d.Column, d.Kind, ledger.Printable(d.Row)); err != nil {
			return err
		}
	}
	return nil
}
