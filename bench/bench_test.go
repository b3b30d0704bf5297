package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	tests := []struct {
		name string
		in   []float64
		want string
	}{
		{name: "odd", in: []float64{3, 1, 2}, want: "2.0 (1.0-3.0)"},
		{name: "even", in: []float64{4, 1, 2, 3}, want: "2.5 (1.0-4.0)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := spread(tt.in, "%.1f"); got != tt.want {
				t.Errorf("spread = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		status int
		stderr string
	}{
		{name: "help", args: []string{"-h"}},
		{name: "too few rounds", args: []string{"-rounds", "3"}, status: 2, stderr: "bench: error: -rounds 3: want at least 5, fewer say nothing\n"},
		{name: "no such case", args: []string{"-only", "ax"}, status: 2, stderr: "bench: error: -only \"ax\": want letters from a to f\n"},
		{name: "stray argument", args: []string{"x"}, status: 2, stderr: "bench: error: unexpected argument \"x\"\n"},
		{name: "bad workload", args: []string{"work", "sleep", "1"}, status: 1, stderr: "bench: error: workload [\"sleep\" \"1\"]: no such kind\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if got := run(tt.args, &stdout, &stderr); got != tt.status {
				t.Errorf("status = %d, want %d", got, tt.status)
			}
			if diff := cmp.Diff(tt.stderr, stderr.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if help := stdout.String() == usage; help != (tt.name == "help") {
				t.Errorf("stdout = %q", stdout.String())
			}
		})
	}
}
