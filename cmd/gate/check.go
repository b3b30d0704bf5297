package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/org/gate/ledger"
)

// checkOptions are the flags of gate check.
type checkOptions struct {
	ledger, root  string
	base          string
	json, noColor bool
}

func (o *checkOptions) syntax() syntax {
	return syntax{
		name: "check",
		options: []option{
			{"ledger", "FILE", text(&o.ledger)},
			{"base", "REF", text(&o.base)},
			{"root", "DIR", text(&o.root)},
			{"json", "", toggle(&o.json)},
			{"no-color", "", toggle(&o.noColor)},
		},
		operands: maxRecords,
	}
}

// maxRecords bounds the parts that are judged together.
const maxRecords = 1000

// checkCommand is gate check.
func (a *app) checkCommand(args []string) (int, error) {
	var o checkOptions
	p, err := o.syntax().parse(args)
	if err != nil {
		return 0, err
	}
	if len(p.operands) == 0 {
		return 0, hint(errors.New("no record named"), "gate check "+recordName)
	}
	where, err := locate(o.root)
	if err != nil {
		return 0, err
	}
	path, err := ledger.Nearest(where.dir, where.root, o.ledger)
	if err != nil {
		return 0, err
	}
	if path, err = resolve(path); err != nil {
		return 0, fmt.Errorf("find the ledger: %w", err)
	}
	l, _, err := ledger.Load(path)
	if err != nil {
		return 0, err
	}
	base, err := a.base(o.base, where, path, o.ledger != "")
	if err != nil {
		return 0, err
	}
	record, err := loadRecords(l, p.operands)
	if err != nil {
		return 0, err
	}
	verdict := ledger.Compare(l, record, ledger.Options{CI: a.inCI(), Base: base})
	if o.json {
		return verdict.ExitCode(), a.printVerdict(&verdict)
	}
	return verdict.ExitCode(), ledger.Render(a.stdout, &verdict, ledger.RenderOptions{
		Color: a.colored(a.stdout, o.noColor), File: strings.Join(p.operands, ", "),
	})
}

// loadRecords reads a record, or those of all parts as one.
func loadRecords(l *ledger.Ledger, names []string) (*ledger.Record, error) {
	var records []*ledger.Record
	for _, name := range names {
		r, err := ledger.LoadRecord(name)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	if len(records) == 1 {
		return records[0], nil
	}
	return ledger.Join(l, records, names)
}

// printVerdict prints a verdict as JSON on stdout.
func (a *app) printVerdict(v *ledger.Verdict) error {
	data, err := v.Encode()
	if err != nil {
		return err
	}
	return a.print(string(data))
}
