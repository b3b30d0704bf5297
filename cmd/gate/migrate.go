package main

import (
	"bytes"
	"os"

	"github.com/org/gate/ledger"
)

// migrateOptions are the flags of gate migrate.
type migrateOptions struct {
	ledger, root string
}

func (o *migrateOptions) syntax() syntax {
	return syntax{
		name: "migrate",
		options: []option{
			{"ledger", "FILE", text(&o.ledger)},
			{"root", "DIR", text(&o.root)},
		},
	}
}

// migrateCommand is gate migrate: it brings a ledger to the newest version that
// this gate knows. A version fixes what a row means, so a ledger of an earlier
// one is good for ever and nothing but this command changes it. There is one
// version so far; a later one makes the rows anew from a run.
func (a *app) migrateCommand(args []string) (int, error) {
	var o migrateOptions
	if _, err := o.syntax().parse(args); err != nil {
		return 0, err
	}
	where, err := locate(o.root)
	if err != nil {
		return 0, err
	}
	files, err := where.files(o.ledger, "")
	if err != nil {
		return 0, err
	}
	l, _, err := ledger.Load(files.ledger)
	if err != nil {
		return 0, err
	}
	name := where.relative(files.ledger)
	had, err := os.ReadFile(files.ledger)
	if err != nil {
		return 0, err
	}
	if bytes.Equal(had, l.Encode()) {
		return 0, a.say("%s is of version %d, the newest that this gate knows: nothing changes", name, l.Version)
	}
	if err := ledger.Write(files.ledger, l); err != nil {
		return 0, err
	}
	return 0, a.say("%s is of version %d, the newest that this gate knows: spelled as gate writes it, and nothing else changes", name, l.Version)
}
