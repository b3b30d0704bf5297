package writeset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Digest is the SHA-256, in lower-case hex, of the sorted, distinct rows joined
// by one LF, without a final LF. Rows sort as bytes. Of no rows at all it is
// e3b0c442...b855, the hash of the empty string.
func Digest(rows []string) string {
	sum := sha256.Sum256([]byte(strings.Join(distinct(rows), "\n")))
	return hex.EncodeToString(sum[:])
}

// Set is what the digest is taken of: each row, or the glob it is folded
// into, and every fold glob, hit or not. Sorted and distinct.
func Set(rows []Row, folds []Glob) []string {
	set := make([]string, 0, len(rows)+len(folds))
	for _, r := range rows {
		if r.Fold != "" {
			set = append(set, r.Fold)
		} else {
			set = append(set, r.Path)
		}
	}
	return distinct(appendGlobs(set, folds))
}

// Refold applies the fold globs of a ledger to rows that are not folded, each
// as Row.Path spells it, and returns the set. A row that is neither a path nor
// one of transient names ("dir/*") is an error: what lies behind a glob of
// another ledger cannot be told, so a record that lists only part of what it
// folded (Result.Folded) cannot be refolded unless both have that glob.
func Refold(rows []string, folds []Glob) ([]string, error) {
	set := make([]string, 0, len(rows)+len(folds))
	for _, row := range rows {
		text, err := matchText(row)
		if err != nil {
			return nil, fmt.Errorf("fold: %w", err)
		}
		if g := firstMatch(folds, text); g >= 0 {
			row = folds[g].String()
		}
		set = append(set, row)
	}
	return distinct(appendGlobs(set, folds)), nil
}

func appendGlobs(set []string, folds []Glob) []string {
	for _, g := range folds {
		set = append(set, g.String())
	}
	return set
}

// distinct returns the rows sorted, each once. The argument is left alone.
func distinct(rows []string) []string {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	return slices.Compact(rows)
}
