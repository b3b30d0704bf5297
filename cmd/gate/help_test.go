package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHelpGolden(t *testing.T) {
	names := []string{"gate"}
	for _, c := range commands() {
		names = append(names, c.name)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			got, err := helpText(name)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "help", name+".golden")
			if update() {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("GATE_UPDATE=1 accepts it (-want +got):\n%s", diff)
			}
			for i, line := range strings.Split(got, "\n") {
				if len(line) > 80 || line != strings.TrimRight(line, " \t") {
					t.Errorf("line %d is longer than 80 columns or ends in blanks: %q", i+1, line)
				}
			}
		})
	}
}

// The help of a subcommand lists its flags, all of them and no others, each
// with a value if it takes one.
func TestHelpListsFlags(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^  --([a-z-]+)( [A-Z]+[A-Z=]*)?  `)
	for _, c := range commands() {
		t.Run(c.name, func(t *testing.T) {
			text, err := helpText(c.name)
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, m := range flag.FindAllStringSubmatch(text, -1) {
				entry := m[1]
				if m[2] != "" {
					entry += " VALUE"
				}
				got = append(got, entry)
			}
			for _, o := range c.syntax.options {
				entry := o.name
				if o.value != "" {
					entry += " VALUE"
				}
				want = append(want, entry)
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("flags in the help (-want +got):\n%s", diff)
			}
		})
	}
}
