package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/org/gate/ledger"
	"github.com/org/gate/sandbox"
)

// doctorOptions are the flags of gate doctor.
type doctorOptions struct {
	json bool
}

func (o *doctorOptions) syntax() syntax {
	return syntax{name: "doctor", options: []option{{"json", "", toggle(&o.json)}}}
}

// doctorReport is what gate doctor --json prints.
type doctorReport struct {
	Version  int               `json:"version"`
	Tier     string            `json:"tier"` // "" if none works
	Features []sandbox.Feature `json:"features"`
}

// doctorCommand is gate doctor.
func (a *app) doctorCommand(args []string) (int, error) {
	var o doctorOptions
	if _, err := o.syntax().parse(args); err != nil {
		return 0, err
	}
	features, tier := sandbox.Probe(context.Background())
	report := doctorReport{Version: 1, Tier: string(tier), Features: features}
	var err error
	if o.json {
		var data []byte
		if data, err = json.MarshalIndent(report, "", "  "); err == nil {
			err = a.print(string(data) + "\n")
		}
	} else {
		err = a.print(report.text())
	}
	if err == nil && report.Tier == "" {
		err = hint(errors.New("no tier works on this host: a run cannot be recorded"), "the repairs are above")
	}
	return 0, err
}

// text is one row a feature, with the repair of what is missing below it.
func (r doctorReport) text() string {
	var b strings.Builder
	width := len("tier")
	for _, f := range r.Features {
		width = max(width, len(f.Name))
	}
	row := func(state, name, text string) {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", state, width, name, ledger.Printable(text))
	}
	for _, f := range r.Features {
		state := "ok"
		switch {
		case !f.OK && f.Needed != "":
			state = "missing"
		case !f.OK:
			state = "no" // a tier works without it
		}
		row(state, f.Name, f.Tested+": "+f.Found)
		if !f.OK && f.Repair != "" {
			row("", "", "repair: "+f.Repair)
		}
	}
	if r.Tier == "" {
		row("missing", "tier", "none")
	} else {
		row("ok", "tier", r.Tier)
	}
	return b.String()
}
