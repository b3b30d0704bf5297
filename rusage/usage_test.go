package rusage

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sec(user, system float64) Usage {
	return Usage{time.Duration(user * 1e9), time.Duration(system * 1e9)}
}

func TestTotal(t *testing.T) {
	group := func(u Usage) *Usage { return &u }
	tests := []struct {
		name  string
		in    Witnesses
		want  Usage
		notes []string // a part of each
	}{
		{name: "nothing ran", want: Usage{}},
		{name: "all waited for", in: Witnesses{Reaped: sec(3, 1)}, want: sec(3, 1)},
		{name: "both ways", in: Witnesses{Reaped: sec(3, 1), Metered: Metered{AutoReaped: sec(2, 0)}}, want: sec(5, 1)},
		{name: "samples see less", in: Witnesses{Reaped: sec(3, 1), Metered: Metered{Sampled: sec(1, 0)}}, want: sec(3, 1)},
		{name: "samples see a little more", in: Witnesses{Reaped: sec(3, 1), Metered: Metered{Sampled: sec(3.04, 1)}}, want: sec(3, 1)},
		{name: "samples see more", in: Witnesses{Reaped: sec(3, 1), Metered: Metered{Sampled: sec(4, 0.5)}}, want: sec(4, 1), notes: []string{"sampling saw 4.00 s"}},
		{name: "cgroup agrees", in: Witnesses{Reaped: sec(3, 1), Cgroup: group(sec(2.7, 1.3))}, want: sec(3, 1)},
		{name: "cgroup holds the init too", in: Witnesses{Reaped: sec(3, 1), Cgroup: group(sec(4, 1.1)), Init: sec(1, 0.1)}, want: sec(3, 1)},
		{name: "cgroup saw more", in: Witnesses{Reaped: sec(3, 1), Cgroup: group(sec(4, 1))}, want: sec(4, 1), notes: []string{"larger"}},
		{name: "cgroup saw less", in: Witnesses{Reaped: sec(3, 1), Cgroup: group(sec(1, 1))}, want: sec(3, 1), notes: []string{"left the cgroup"}},
		{name: "killed", in: Witnesses{Reaped: sec(3, 1), Metered: Metered{Killed: 2}}, want: sec(3, 1), notes: []string{"2 processes were killed"}},
		{name: "misread", in: Witnesses{Metered: Metered{Misread: 1, Err: errors.New("torn")}}, notes: []string{"torn"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, notes := tt.in.Total()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Total (-want +got):\n%s", diff)
			}
			if len(notes) != len(tt.notes) {
				t.Fatalf("notes = %q, want %d", notes, len(tt.notes))
			}
			for i, part := range tt.notes {
				if !strings.Contains(notes[i], part) {
					t.Errorf("note %q, want %q in it", notes[i], part)
				}
			}
		})
	}
}

func TestBudget(t *testing.T) {
	tests := []struct {
		name    string
		seconds float64
		user    time.Duration
		over    bool
		soft    uint64
	}{
		{name: "exactly on it", seconds: 30, user: 30 * time.Second, soft: 180},
		{name: "a nanosecond over", seconds: 30, user: 30*time.Second + 1, over: true, soft: 180},
		{name: "a fraction", seconds: 0.3, user: 200 * time.Millisecond, soft: 62},
		{name: "no limit to speak of", seconds: math.MaxFloat64, user: math.MaxInt64, soft: 1<<40 + 60},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := Budget{tt.seconds}
			if got := b.Over(tt.user); got != tt.over {
				t.Errorf("Over(%v) = %t, want %t", tt.user, got, tt.over)
			}
			if soft, hard := b.Rlimit(); soft != tt.soft || hard != soft+5 {
				t.Errorf("Rlimit = %d, %d, want %d, %d", soft, hard, tt.soft, tt.soft+5)
			}
		})
	}
}
