package writeset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigest(t *testing.T) {
	tests := []struct {
		name string
		in   []string
		want string // sha256sum of the rows, as printf writes them
	}{
		{"empty", nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{"one, no final LF", []string{"a"}, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
		{"sorted and distinct", []string{"b", "a", "b"}, "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Digest(tt.in); got != tt.want {
				t.Errorf("Digest(%q) = %s, want %s", tt.in, got, tt.want)
			}
		})
	}
}

func TestSet(t *testing.T) {
	folds := globs(t, "out/**", "unused/*")
	rows := []Row{{Path: "z"}, {Path: "out/a", Fold: "out/**"}, {Path: "out/b", Fold: "out/**"}, {Path: "a"}}
	want := []string{"a", "out/**", "unused/*", "z"}
	if diff := cmp.Diff(want, Set(rows, folds)); diff != "" {
		t.Errorf("Set (-want +got):\n%s", diff)
	}
}

func TestRefold(t *testing.T) {
	tests := []struct {
		name  string
		rows  []string
		folds []string
		want  []string
		err   string
	}{
		{"nothing", nil, nil, []string{}, ""},
		{"a glob that is not hit is in the set", []string{"a"}, []string{"b/*"}, []string{"a", "b/*"}, ""},
		{"first match wins", []string{"out/a.log"}, []string{"out/*.log", "out/**"}, []string{"out/**", "out/*.log"}, ""},
		{"transient names", []string{"out/*", "*"}, []string{"out/**"}, []string{"*", "out/**"}, ""},
		{"transient names are no path", []string{"out/*"}, []string{"out/*.log"}, []string{"out/*", "out/*.log"}, ""},
		{"raw bytes are matched", []string{`"out/a*"`, `"o\tut"/*`}, []string{`out/a\*`, "o?ut/*"}, []string{"o?ut/*", `out/a\*`}, ""},
		{"glob of another ledger", []string{"out/*.log"}, []string{"out/*.log"}, nil, "a glob"},
		{"wide glob of another ledger", []string{"a/**"}, []string{"a/*"}, nil, "a glob"},
		{"bad row", []string{`"a"`}, nil, nil, "not in normal form"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Refold(tt.rows, globs(t, tt.folds...))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("Refold = %q, %v, want an error with %q", got, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Refold (-want +got):\n%s", diff)
			}
		})
	}
}

func globs(t *testing.T, patterns ...string) []Glob {
	t.Helper()
	gs, err := ParseGlobs(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return gs
}
