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
	width := 0
	for _, f := range r.Features {
		width = max(width, len(f.Name))
	}
	for _, f := range r.Features {
		state := "ok"
		if !f.OK {
			state = "missing"
		}
		fmt.Fprintf(&b, "%-7s  %-*s  %s: %s\n", state, width, f.Name, f.Tested, ledger.Printable(f.Found))
		if !f.OK && f.Repair != "" {
			fmt.Fprintf(&b, "%-7s  %-*s  repair: %s\n", "", width, "", f.Repair)
		}
	}
	tier := r.Tier
	if tier == "" {
		tier = "none"
	}
	fmt.Fprintf(&b, "%-7s  %s\n", "tier", tier)
	return b.String()
}
