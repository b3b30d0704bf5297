package sandbox

import "testing"

// Maps as user_namespaces(7) shows them: blanks in front, one range a line.
func TestIDMap(t *testing.T) {
	m, err := parseIDs("         0       1002          1\n         1     100000      65536\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		inside, outside uint32
		mapped          bool
	}{{0, 1002, true}, {1, 100000, true}, {65536, 165535, true}, {65537, 165536, false}} {
		got, ok := m.outside(tt.inside)
		if ok != tt.mapped || ok && got != tt.outside {
			t.Errorf("%d: got %d, %v; want %d, %v", tt.inside, got, ok, tt.outside, tt.mapped)
		}
		if m.has(tt.outside) != tt.mapped {
			t.Errorf("outside %d: got %v, want %v", tt.outside, !tt.mapped, tt.mapped)
		}
	}
	if _, err := parseIDs("0 x 1\n"); err == nil {
		t.Error("got no error for a map that is none")
	}
}
