package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"github.com/org/gate/egress"
	"github.com/org/gate/writeset"
)

// MaxLedgerSize bounds a ledger, in bytes. A set that needs more rows than fit
// needs a fold.
const MaxLedgerSize = 1 << 20

// MaxFolds bounds the list of folds, each of which every row is matched with.
const MaxFolds = 256

// initHint is the way out where there is no ledger.
const initHint = "make one on a known-good revision: gate init -- COMMAND"

// Parse reads a ledger. It is strict: what it does not know it refuses, and
// each error is an *Error that names file, line and column. name is used in
// messages only.
func Parse(name string, data []byte) (*Ledger, error) {
	if len(data) > MaxLedgerSize {
		return nil, tooBig(name, int64(len(data)), MaxLedgerSize)
	}
	d, err := readDocument(name, data)
	if err != nil {
		return nil, err
	}
	if err := d.version(Version, true); err != nil {
		return nil, err
	}
	l := &Ledger{}
	if err := d.decode(l); err != nil {
		return nil, err
	}
	l.Version = Version
	l.HasPaths = d.root.get("write_paths") != nil
	l.HasAllowWrite = d.root.get("allow_write") != nil
	if l.Mode == "" && d.root.get("mode") == nil {
		l.Mode = Enforce
	}
	for _, check := range []func(*document, *Ledger) error{
		checkCommand, checkWords, checkBudget, checkMinTests, checkNet, checkGlobs, checkParts, checkWrites,
	} {
		if err := check(d, l); err != nil {
			return nil, err
		}
	}
	for _, list := range []*[]string{&l.AllowNet, &l.WritePaths, &l.AllowWrite, &l.Parts, &l.Paths} {
		slices.Sort(*list)
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(l.Fold) == 0 {
		l.Fold = nil
	}
	return l, nil
}

func checkCommand(d *document, l *Ledger) error {
	n := d.root.get("command")
	if n == nil {
		return nil
	}
	if len(l.Command) == 0 || l.Command[0] == "" {
		return d.errorAt(n.start, "command: found no program, wanted a list of strings such as [\"go\", \"test\", \"./...\"]",
			"leave the key out to pin no command")
	}
	for i, arg := range l.Command {
		// A record cannot carry bytes that are not UTF-8 and has U+FFFD in
		// their place: a ledger with that character could match the wrong command.
		if strings.ContainsAny(arg, "\x00\ufffd") {
			return d.errorAt(n.members[i].start, fmt.Sprintf("command[%d]: found %+q, wanted no NUL and no U+FFFD", i, arg), "")
		}
	}
	return nil
}

// checkWords checks the keys that take one of a few words.
func checkWords(d *document, l *Ledger) error {
	for _, c := range []struct {
		key, found string
		legal      []string
	}{
		{"mode", l.Mode, []string{Enforce, Audit}},
		{"evidence", l.Evidence, []string{TierNamespace, TierNotify, TierWeak}},
	} {
		n := d.root.get(c.key)
		if n == nil || slices.Contains(c.legal, c.found) {
			continue
		}
		return d.errorAt(n.start, fmt.Sprintf("%s: found %q, wanted one of %s", c.key, c.found, strings.Join(c.legal, ", ")),
			didYouMean(c.found, c.legal))
	}
	return nil
}

func checkBudget(d *document, l *Ledger) error {
	if l.CPUBudget > 0 && l.CPUBudget <= MaxBudget {
		return nil
	}
	n := d.root.get("cpu_budget")
	return d.errorAt(n.start, fmt.Sprintf("cpu_budget: found %s, wanted user CPU seconds, more than 0 and at most %g", n.text, MaxBudget), "")
}

func checkMinTests(d *document, l *Ledger) error {
	n := d.root.get("min_tests")
	if n == nil || l.MinTests > 0 {
		return nil
	}
	return d.errorAt(n.start, fmt.Sprintf("min_tests: found %s, wanted the number of tests that must pass, at least 1", n.text), "leave the key out to ask for none")
}

// each calls check for every string of a list and refuses what stands there twice.
func (d *document) each(name string, check func(s string) (msg, hint string)) error {
	n := d.root.get(name)
	if n == nil {
		return nil
	}
	seen := map[string]bool{}
	for i, m := range n.members {
		at := fmt.Sprintf("%s[%d]: ", name, i)
		if seen[m.text] {
			return d.errorAt(m.start, at+fmt.Sprintf("%q stands here again, wanted it once", m.text), "")
		}
		seen[m.text] = true
		if msg, hint := check(m.text); msg != "" {
			return d.errorAt(m.start, at+msg, hint)
		}
	}
	return nil
}

func checkNet(d *document, _ *Ledger) error {
	return d.each("allow_net", func(s string) (string, string) {
		if _, err := egress.Parse(s); err != nil {
			return err.Error(), "write host:port, host:port/udp, dns:name, unix:/path or unix:@name; IPv6 in brackets"
		}
		return "", ""
	})
}

func checkGlobs(d *document, l *Ledger) error {
	if len(l.Fold) > MaxFolds {
		return d.errorAt(d.root.get("fold").start, fmt.Sprintf("fold: found %d globs, wanted at most %d", len(l.Fold), MaxFolds),
			"fold whole directories: \"cache/**\"")
	}
	for _, name := range []string{"fold", "paths"} {
		err := d.each(name, func(s string) (string, string) {
			if _, err := writeset.ParseGlob(s); err != nil {
				return err.Error(), "globs are relative to the repository and know *, **, ? and [ ]"
			}
			return "", ""
		})
		if err != nil {
			return err
		}
	}
	return d.each("allow_write", func(s string) (string, string) {
		if err := checkPlace(s); err != nil {
			return err.Error(), "write an absolute path or one that begins with a variable, such as \"$TMPDIR/**\""
		}
		return "", ""
	})
}

func checkParts(d *document, _ *Ledger) error {
	return d.each("parts", func(s string) (string, string) {
		if s == "" || s != strings.TrimSpace(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Sprintf("found %+q, wanted a printable name without blanks around it", s), ""
		}
		return "", ""
	})
}

var hexDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

func checkWrites(d *document, l *Ledger) error {
	n := d.root.get("writes")
	if n != nil && !hexDigest().MatchString(l.Writes) {
		return d.errorAt(n.start, fmt.Sprintf("writes: found %q, wanted a SHA-256 as 64 lower-case hex digits", l.Writes),
			"the digest of the empty set is "+writeset.Digest(nil))
	}
	if !l.HasPaths {
		if n == nil {
			return d.errorAt(d.root.start, "found neither \"writes\" nor \"write_paths\", wanted one of them or both", initHint)
		}
		return nil
	}
	f, err := parseFolds(l.Fold)
	if err != nil {
		return fmt.Errorf("BUG: fold was checked before: %w", err)
	}
	isFold, isRow := setOf(l.Fold), setOf(l.WritePaths)
	err = d.each("write_paths", func(s string) (string, string) {
		if isFold[s] {
			return "", ""
		}
		if err := checkRow(s, f); err != nil {
			return err.Error(), "write the row as gate run prints it"
		}
		return "", ""
	})
	if err != nil {
		return err
	}
	paths := d.root.get("write_paths")
	for _, glob := range l.Fold {
		if !isRow[glob] {
			return d.errorAt(paths.start, fmt.Sprintf("write_paths: the fold %q is missing, wanted every fold as a row of its own", glob),
				"a fold is in the set whether or not it was hit: add it as a row")
		}
	}
	if digest := writeset.Digest(l.WritePaths); n != nil && l.Writes != digest {
		return d.errorAt(n.start, fmt.Sprintf("writes: found %s, but write_paths hashes to %s", l.Writes, digest),
			"if the rows are right, put their digest here or leave the key out")
	}
	return nil
}

// standardPlaces is where a ledger is looked for without --ledger.
var standardPlaces = [...]string{"capability.ledger.json", "tests/capability.ledger.json", ".github/capability.ledger.json"}

// StandardPlaces is where a ledger stands in a directory that has one.
func StandardPlaces() []string { return standardPlaces[:] }

// Find gives the path of the ledger: flag if it is not empty, else the one
// that stands in one of the three standard places below root. Two of them are
// an error: a patch could otherwise add a second ledger that hides the first.
// No ledger is an error for which errors.Is(err, fs.ErrNotExist) holds.
func Find(root, flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	var found []string
	for _, place := range standardPlaces {
		_, err := os.Lstat(filepath.Join(root, place))
		switch {
		case err == nil:
			found = append(found, place)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
			return "", &Error{Op: "find", Path: place, Err: err}
		}
	}
	switch len(found) {
	case 0:
		return "", &Error{
			Op: "find", Path: "capability.ledger.json", Hint: initHint,
			Msg: fmt.Sprintf("no ledger in %s (looked for %s)", root, strings.Join(standardPlaces[:], ", ")),
			Err: fs.ErrNotExist,
		}
	case 1:
		return filepath.Join(root, found[0]), nil
	}
	return "", &Error{
		Op: "find", Path: "capability.ledger.json",
		Msg:  "found " + strings.Join(found, " and ") + ", wanted one",
		Hint: "say which: --ledger " + found[0],
	}
}

// Nearest is Find in a directory of the repository, or in the nearest one above
// it that has a ledger, up to root: a repository may hold several.
func Nearest(dir, root, flag string) (string, error) {
	for flag == "" && dir != root && dir != filepath.Dir(dir) {
		path, err := Find(dir, "")
		if !errors.Is(err, fs.ErrNotExist) {
			return path, err
		}
		dir = filepath.Dir(dir)
	}
	return Find(root, flag)
}

// Home is the directory that a ledger speaks for: where it stands, or the one
// above tests and .github.
func Home(path string) string {
	dir := filepath.Dir(path)
	if base := filepath.Base(dir); base == "tests" || base == ".github" {
		return filepath.Dir(dir)
	}
	return dir
}

func tooBig(name string, size, limit int64) error {
	return &Error{
		Op: "read", Path: name,
		Msg:  "found " + strconv.FormatInt(size, 10) + " bytes, wanted at most " + strconv.FormatInt(limit, 10),
		Hint: "is it the right file? many rows under one directory are better a fold, such as \"cache/**\"",
	}
}
