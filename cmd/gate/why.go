package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/org/gate/ledger"
)

// whyOptions are the flags of gate why.
type whyOptions struct {
	ledger, record, root string
}

func (o *whyOptions) syntax() syntax {
	return syntax{
		name: "why",
		options: []option{
			{"record", "FILE", text(&o.record)},
			{"ledger", "FILE", text(&o.ledger)},
			{"root", "DIR", text(&o.root)},
		},
		operands: 1,
	}
}

// whyCommand is gate why: it says who made a row of the last record.
func (a *app) whyCommand(args []string) (int, error) {
	var o whyOptions
	p, err := o.syntax().parse(args)
	if err != nil {
		return 0, err
	}
	if len(p.operands) == 0 || p.operands[0] == "" {
		return 0, hint(errors.New("no row named"), "gate why ROW, as the verdict spells it")
	}
	path := o.record
	if path == "" {
		where, err := locate(o.root)
		if err != nil {
			return 0, err
		}
		files, err := where.files(o.ledger, "")
		if err != nil {
			return 0, err
		}
		path = files.record
	}
	record, err := ledger.LoadRecord(path)
	if err != nil {
		return 0, err
	}
	found, near := origins(record, a.asRow(p.operands[0]))
	if len(found) == 0 {
		err := fmt.Errorf("%s has no row %s", path, p.operands[0])
		if len(near) > 0 {
			return 0, hint(err, "did you mean %s?", orList(near))
		}
		return 0, hint(err, "its rows are in net, write_paths and outside")
	}
	var text strings.Builder
	for _, f := range found {
		f.print(&text, record.Started)
	}
	return 0, a.print(text.String())
}

// asRow undoes what a shell makes of a row outside: $HOME/x becomes /home/me/x.
func (a *app) asRow(name string) string {
	home := a.getenv("HOME")
	if rest, ok := strings.CutPrefix(name, home+"/"); ok && home != "" {
		return "$HOME/" + rest
	}
	return name
}

// origin is where a row came from.
type origin struct {
	row, column string
	count       int64
	seen        []string // witnesses and calls
	note        string
	who         *ledger.Who
}

// origins finds the rows of a name, or of a fold or place of that name, and
// otherwise some whose names hold it.
func origins(r *ledger.Record, name string) (found []origin, near []string) {
	look := func(o origin, names ...string) {
		switch {
		case slices.Contains(names, name):
			found = append(found, o)
		case len(near) < 5 && strings.Contains(o.row, name):
			near = append(near, o.row)
		}
	}
	for _, n := range r.NetRows {
		o := origin{row: n.Endpoint, column: "net", count: n.Count, seen: append(slices.Clone(n.Witness), n.Calls...), who: n.Who}
		if n.Door {
			o.note = "the ledger opens a door to it"
		}
		look(o, n.Endpoint)
	}
	for _, w := range r.WriteRows {
		o := origin{row: w.Path, column: "writes", count: w.Count, seen: append(slices.Clone(w.Witness), w.Calls...), who: w.Who}
		if w.Fold != "" {
			o.note = "counts as the fold " + w.Fold
		}
		look(o, w.Path, w.Fold)
	}
	for _, w := range r.Outside {
		o := origin{row: w.Path, column: "outside", count: w.Count, seen: w.Calls, who: w.Who}
		if w.Allowed != "" {
			o.note = "allow_write covers it; whoever was the first there"
		}
		look(o, w.Path, w.Allowed)
	}
	return found, near
}

func (o *origin) print(text *strings.Builder, started time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(text, "  %-8s %s\n", name, ledger.Printable(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintln(text, ledger.Printable(o.row))
	line("column", "%s, %d times, seen by %s", o.column, o.count, strings.Join(o.seen, ", "))
	if o.note != "" {
		line("note", "%s", o.note)
	}
	if o.who == nil {
		line("who", "nobody was seen: no call names it")
		return
	}
	line("who", "%s (pid %d)", strings.Join(o.who.Chain, " > "), o.who.PID)
	if len(o.who.Argv) > 0 {
		line("command", "%s", shellJoin(o.who.Argv))
	}
	if o.who.Dir != "" {
		line("in", "%s", o.who.Dir)
	}
	if len(o.who.Chain) > 0 && strings.HasSuffix(o.who.Chain[len(o.who.Chain)-1], ".test") {
		line("package", "./%s, since a Go test runs in the directory of its package", strings.TrimPrefix(o.who.Dir, "."))
	}
	if t := o.who.Test; t != nil {
		switch {
		case len(t.Running) > 0:
			line("test", "%s, as the suite's output tells", orList(t.Running))
		default:
			line("test", "the next result that the suite printed is that of %s", t.Next)
		}
	}
	line("first", "%.3f s after the start, %s", o.who.At.Sub(started).Seconds(), o.who.At.Format(time.RFC3339))
}
