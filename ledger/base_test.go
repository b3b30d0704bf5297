package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A patch gets nothing by what it adds to its own contract.
func TestBase(t *testing.T) {
	type change struct {
		name string
		head func(*Ledger)
		base func(*Ledger)
		rows []string
	}
	for _, tt := range []change{
		{name: "nothing", rows: nil},
		{"a door", func(l *Ledger) { l.AllowNet = []string{"127.0.0.1:5432"} }, nil, []string{"allow_net + 127.0.0.1:5432"}},
		{"a literal where there was a pattern", func(l *Ledger) { l.AllowNet = []string{"a.example.com:443"} }, func(l *Ledger) { l.AllowNet = []string{"*.example.com:443"} },
			[]string{"allow_net + a.example.com:443"}},
		{"audit", func(l *Ledger) { l.Mode = Audit }, nil, []string{"mode audit"}},
		{"no positive control", nil, func(l *Ledger) { l.Prove = true }, []string{"prove, which the base wants"}},
		{"less evidence", func(l *Ledger) { l.Evidence = TierNotify }, func(l *Ledger) { l.Evidence = TierNamespace }, []string{"evidence notify, at the base namespace"}},
		{"evidence left out", nil, func(l *Ledger) { l.Evidence = TierNamespace }, []string{"evidence notify, at the base namespace"}},
		{"weak evidence", func(l *Ledger) { l.Evidence = TierWeak }, nil, []string{"evidence weak, at the base notify"}},
		{"self_accept", func(l *Ledger) { l.SelfAccept = true }, nil, []string{"self_accept"}},
		{"fewer tests", func(l *Ledger) { l.MinTests = 3 }, func(l *Ledger) { l.MinTests = 20 }, []string{"min_tests 3, at the base 20"}},
		{"tests left out", nil, func(l *Ledger) { l.MinTests = 20 }, []string{"min_tests 0, at the base 20"}},
		{"more tests", func(l *Ledger) { l.MinTests = 21 }, func(l *Ledger) { l.MinTests = 20 }, nil},
		{"a fold", func(l *Ledger) { l.Fold = []string{"**"} }, nil, []string{"fold + **"}},
		{"a place", func(l *Ledger) { l.HasAllowWrite, l.AllowWrite = true, []string{"$HOME/**"} }, nil, []string{"allow_write + $HOME/**"}},
		{"the places left out", nil, func(l *Ledger) {
			l.HasAllowWrite, l.AllowWrite = true, []string{"$TMPDIR/**", "/tmp/**", "/var/tmp/**", "/dev/shm/**"}
		}, []string{
			"allow_write + $XDG_CACHE_HOME/**", "allow_write + $GOCACHE/**", "allow_write + $GOMODCACHE/**", "allow_write + $HOME/.npm/**",
			"allow_write + $CARGO_HOME/**", "allow_write + $HOME/.m2/**", "allow_write + $HOME/.gradle/**", "allow_write + $XDG_CONFIG_HOME/go/telemetry/**",
		}},
		{"another command", func(l *Ledger) { l.Command = []string{"true"} }, nil, []string{"command true, at the base go test"}},
		{"less of everything", func(l *Ledger) { l.HasAllowWrite = true }, func(l *Ledger) {
			l.Mode, l.AllowNet, l.Fold, l.SelfAccept = Audit, []string{"a.example.com:1"}, []string{"out/**"}, true
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			head, base := Ledger{Version: 1, Command: []string{"go", "test"}, CPUBudget: 1}, Ledger{Version: 1, Command: []string{"go", "test"}, CPUBudget: 1}
			for _, c := range []struct {
				l *Ledger
				f func(*Ledger)
			}{{&head, tt.head}, {&base, tt.base}} {
				if c.f != nil {
					c.f(c.l)
				}
			}
			b := &Base{Ref: "main", Ledger: &base}
			if diff := cmp.Diff(tt.rows, loosened(&head, b)); diff != "" {
				t.Errorf("loosened (-want +got):\n%s", diff)
			}
			// What is left opens nothing more than the base does.
			under := Under(&head, b)
			under.Command, under.Fold = base.Command, base.Fold
			if rows := loosened(under, b); rows != nil {
				t.Errorf("under its base it still has %q", rows)
			}
		})
	}
}

// A run for a ledger that its base does not have can open nothing.
func TestNoBase(t *testing.T) {
	head := Ledger{Version: 1, Command: []string{"x"}, CPUBudget: 1, AllowNet: []string{"a.example.com:1"}, Mode: Audit, SelfAccept: true, Fold: []string{"out/**"}}
	none := &Base{Ref: "main"}
	got := Under(&head, none)
	want := head
	want.AllowNet, want.Mode, want.SelfAccept = []string{}, "", false
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"allow_net + a.example.com:1", "mode audit", "self_accept"}, loosened(&head, none)); diff != "" {
		t.Errorf("loosened (-want +got):\n%s", diff)
	}
}
