package ledger

import (
	"fmt"
	"slices"
	"strings"

	"github.com/org/gate/writeset"
)

// Base is the ledger of the revision that a patch is to be merged into. What a
// ledger opens, its base decides: a patch cannot loosen the contract that it is
// judged by.
type Base struct {
	Ref    string  // as it was named: a git revision, or a file
	Ledger *Ledger // nil: there is none at the base, and nothing is open
	Other  string  // where that ledger stands, if a patch has put another in its place
	SHA256 string  // of the file's bytes, hex; "" if there is none
}

// Under is a ledger as far as its base allows: of the doors, the places and the
// rest of what opens something, no more than both have. l itself stays.
func Under(l *Ledger, base *Base) *Ledger {
	if base == nil {
		return l
	}
	out, b := *l, base.ledger()
	out.AllowNet = both(l.AllowNet, b.AllowNet)
	out.AllowWrite, out.HasAllowWrite = both(places(l), places(b)), l.HasAllowWrite || b.HasAllowWrite
	if !out.HasAllowWrite {
		out.AllowWrite = nil
	}
	if b.Mode != Audit {
		out.Mode = ""
	}
	if tierRank(floor(b)) > tierRank(floor(l)) {
		out.Evidence = b.Evidence
	}
	out.Prove = l.Prove || b.Prove
	out.SelfAccept = l.SelfAccept && b.SelfAccept
	out.MinTests = max(l.MinTests, b.MinTests)
	return &out
}

// ledger is what decides: where there is none, one that opens nothing.
func (b *Base) ledger() *Ledger {
	if b.Ledger == nil {
		return &Ledger{}
	}
	return b.Ledger
}

// loosened lists what a ledger opens, hides or asks for less than its base does,
// a row each.
func loosened(l *Ledger, base *Base) []string {
	var rows []string
	b := base.ledger()
	added := func(key string, now, then []string) {
		for _, entry := range now {
			if !slices.Contains(then, entry) {
				rows = append(rows, key+" + "+entry)
			}
		}
	}
	added("allow_net", l.AllowNet, b.AllowNet)
	added("allow_write", places(l), places(b))
	if l.Mode == Audit && b.Mode != Audit {
		rows = append(rows, "mode "+Audit)
	}
	if tierRank(floor(l)) < tierRank(floor(b)) {
		rows = append(rows, "evidence "+floor(l)+", at the base "+floor(b))
	}
	if b.Prove && !l.Prove {
		rows = append(rows, "prove, which the base wants")
	}
	if l.SelfAccept && !b.SelfAccept {
		rows = append(rows, "self_accept")
	}
	if l.MinTests < b.MinTests {
		rows = append(rows, fmt.Sprintf("min_tests %d, at the base %d", l.MinTests, b.MinTests))
	}
	if base.Other != "" {
		rows = append(rows, "another ledger than "+base.Other+", which holds at the base")
	}
	if base.Ledger == nil {
		return rows // a first ledger has its folds and its command from nowhere else
	}
	added("fold", l.Fold, b.Fold)
	if b.Command != nil && !slices.Equal(l.Command, b.Command) {
		rows = append(rows, "command "+strings.Join(l.Command, " ")+", at the base "+strings.Join(b.Command, " "))
	}
	return rows
}

// floor is the lowest tier that a ledger accepts.
func floor(l *Ledger) string {
	if l.Evidence == "" {
		return TierNotify
	}
	return l.Evidence
}

func places(l *Ledger) []string {
	if l.HasAllowWrite {
		return l.AllowWrite
	}
	return writeset.DefaultAllow()
}

// both keeps the entries of a that b has too, in the order of a.
func both(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
}
