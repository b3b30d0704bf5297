package ledger

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/org/gate/writeset"
)

// folds is a list of fold globs; the first that matches a row wins.
type folds []writeset.Glob

// parseFolds reads the fold globs of a ledger or a record.
func parseFolds(patterns []string) (folds, error) { return writeset.ParseGlobs(patterns) }

// match gives the glob that a row which is not folded falls under, or "".
func (f folds) match(row string) (string, error) {
	text, err := rowText(row)
	if err != nil {
		return "", err
	}
	for _, g := range f {
		if g.Match(text) {
			return g.String(), nil
		}
	}
	return "", nil
}

// rowText is what a fold is matched against: the raw path of a row or, for the
// names below a directory that came and went, the raw directory and "/*".
func rowText(row string) (string, error) {
	if row == "*" {
		return row, nil
	}
	if dir, ok := strings.CutSuffix(row, "/*"); ok {
		text, err := writeset.Unquote(dir)
		return text + "/*", err
	}
	return writeset.Unquote(row)
}

// foldedSet is the rows of a record under a list of folds.
type foldedSet struct {
	rows []string              // sorted, distinct; every fold is one, hit or not
	from map[string][]WriteRow // what each of rows stands for; nothing for a fold that was not hit
}

// fold puts rows under folds. On an error the set is still one, of the rows
// that could be read, for a report that can be no match.
func fold(rows []WriteRow, patterns []string) (foldedSet, error) {
	set := foldedSet{from: map[string][]WriteRow{}}
	f, err := parseFolds(patterns)
	for _, row := range rows {
		glob, rowErr := f.match(row.Path)
		if rowErr != nil {
			err = rowErr
		}
		if glob == "" {
			glob = row.Path
		}
		set.from[glob] = append(set.from[glob], row)
	}
	set.rows = slices.Concat(slices.Collect(maps.Keys(set.from)), patterns)
	slices.Sort(set.rows)
	set.rows = slices.Compact(set.rows)
	return set, err
}

// checkRow says why a row can never be one of write_paths, or nil. A fold is a
// row too; whether row is one, the caller knows.
func checkRow(row string, f folds) error {
	text, err := rowText(row)
	if err != nil {
		if writeset.IsGlob(row) {
			return fmt.Errorf("row %q: a glob that is no fold of this file", row)
		}
		return err
	}
	if path.IsAbs(text) || text != path.Clean(text) || text == ".." || strings.HasPrefix(text, "../") {
		return fmt.Errorf("row %q: wanted a clean path below the repository", row)
	}
	if glob, err := f.match(row); err != nil || glob != "" {
		return fmt.Errorf("row %q: falls under the fold %q and is never recorded by itself", row, glob)
	}
	return nil
}

// place is the form of an allow_write entry: absolute, or below a variable.
var place = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(/|\$[A-Za-z_][A-Za-z0-9_]*/?)(.*)$`) })

// checkPlace says why an entry of allow_write is no place, or nil. It expands
// nothing and looks at no file; writeset.Places does.
func checkPlace(entry string) error {
	m := place().FindStringSubmatch(entry)
	switch {
	case m == nil:
		return fmt.Errorf("entry %q: wanted an absolute path or one that begins with a variable", entry)
	case m[2] == "" && !strings.HasSuffix(m[1], "/"):
		return nil // the variable alone
	case strings.Contains(m[2], "$"), m[1][0] == '$' && m[2] != "" && !strings.HasSuffix(m[1], "/"):
		return fmt.Errorf("entry %q: a $ is expanded only at the start, as a whole component", entry)
	}
	_, err := writeset.ParseGlob(m[2])
	return err
}

// writable gives the allow_write entry of a ledger that covers an outside row.
// What the run found covered by an entry of the same spelling is. Else the
// texts are matched: a row and an entry that spell one place with and without
// a variable do not meet, and the row is drift until it is run again.
func writable(l *Ledger, row OutsideRow) (string, bool) {
	entries := l.AllowWrite
	if !l.HasAllowWrite {
		entries = writeset.DefaultAllow()
	}
	if row.Allowed != "" && slices.Contains(entries, row.Allowed) {
		return row.Allowed, true
	}
	for _, entry := range entries {
		glob, err := writeset.ParseGlob(strings.TrimPrefix(entry, "/"))
		text, isAbs := strings.CutPrefix(rawOutside(row.Path), "/")
		if err == nil && isAbs == strings.HasPrefix(entry, "/") && glob.Match(text) {
			return entry, true
		}
	}
	return "", false
}

// rawOutside takes the quotes off the path of an outside row; one that sums up
// several is a glob and stays.
func rawOutside(row string) string {
	if text, err := writeset.Unquote(row); err == nil {
		return text
	}
	return row
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// few gives the first three of a list, for a sentence.
func few(list []string) string {
	if len(list) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:3], ", "), len(list)-3)
	}
	return strings.Join(list, ", ")
}
