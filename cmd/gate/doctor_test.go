package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/sandbox"
)

func TestDoctorText(t *testing.T) {
	features := []sandbox.Feature{
		{Name: "namespace tier", Tested: "ran a command", Found: "EPERM", Needed: "namespace", Repair: "sudo sysctl -w a=1"},
		{Name: "cgroup", Tested: "made one", Found: "read-only\x1b[2J"},
		{Name: "notify tier", Tested: "ran a command", Found: "call seen", OK: true, Needed: "notify"},
	}
	tests := []struct {
		name string
		in   doctorReport
		want string
	}{
		{"a tier works", doctorReport{Tier: "notify", Features: features}, `missing  namespace tier  ran a command: EPERM
                         repair: sudo sysctl -w a=1
no       cgroup          made one: read-only\x1b[2J
ok       notify tier     ran a command: call seen
ok       tier            notify
`},
		{"none works", doctorReport{Features: features[:1]}, `missing  namespace tier  ran a command: EPERM
                         repair: sudo sysctl -w a=1
missing  tier            none
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.in.text()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
