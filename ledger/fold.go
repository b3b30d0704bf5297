package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/org/gate/writeset"
)

// Bounds of a fold list that a human still reads.
const (
	maxPatterns = 3  // of one directory; beyond, all its names are folded
	maxFolds    = 12 // in all; beyond, whole directories are folded
)

const pycacheGlob = "**/__pycache__/**"

// A varying name is an entry of a directory that is not the same in every run.
type varying struct {
	name string
	deep bool   // it has rows below
	runs string // one '1' or '0' a run: has it a row of this name or below it
}

// foldVarying gives folds that cover every row which is not in all sets, and
// so make the sets equal. The folds are made from the names, so that they
// cover those of a later run as well.
func foldVarying(sets []map[string]bool) ([]Folding, error) {
	rows := varyingRows(sets)
	stable := stableDirs(sets)
	var globs []string
	groups := map[string]map[string]*varying{} // directory -> name
	for _, row := range rows {
		text, err := rowText(row)
		if err != nil {
			return nil, err
		}
		if strings.Contains("/"+text+"/", "/__pycache__/") {
			globs = append(globs, pycacheGlob)
			continue
		}
		dir, name, deep := varyingName(text, stable)
		if groups[dir] == nil {
			groups[dir] = map[string]*varying{}
		}
		v := groups[dir][name]
		if v == nil {
			v = &varying{name: name, runs: strings.Repeat("0", len(sets))}
			groups[dir][name] = v
		}
		v.deep = v.deep || deep
		v.seen(row, sets)
	}
	for _, dir := range slices.Sorted(maps.Keys(groups)) {
		names := slices.Collect(maps.Values(groups[dir]))
		slices.SortFunc(names, func(a, b *varying) int { return cmp.Compare(a.name, b.name) })
		globs = append(globs, patterns(dir, names)...)
	}
	return assign(collapse(globs), rows)
}

// seen marks the runs that have a row.
func (v *varying) seen(row string, sets []map[string]bool) {
	runs := []byte(v.runs)
	for i, set := range sets {
		if set[row] {
			runs[i] = '1'
		}
	}
	v.runs = string(runs)
}

// varyingRows gives, sorted, the rows that some sets have and others lack.
func varyingRows(sets []map[string]bool) []string {
	count := map[string]int{}
	for _, set := range sets {
		for row := range set {
			count[row]++
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return n == len(sets) })
	return slices.Sorted(maps.Keys(count))
}

// stableDirs gives the directories below which every set has a row. The
// repository itself, ".", is one.
func stableDirs(sets []map[string]bool) map[string]bool {
	count := map[string]int{}
	for _, set := range sets {
		dirs := map[string]bool{}
		for row := range set {
			text, err := rowText(row)
			if err != nil {
				continue // foldVarying reports it
			}
			for dir := path.Dir(text); !dirs[dir]; dir = path.Dir(dir) {
				dirs[dir] = true
			}
		}
		for dir := range dirs {
			count[dir]++
		}
	}
	stable := map[string]bool{".": true}
	for dir, n := range count {
		stable[dir] = stable[dir] || n == len(sets)
	}
	return stable
}

// varyingName splits a path at the first name that is not in every run: the
// deepest stable directory above it, the name below that, and whether the path
// goes on below the name.
func varyingName(text string, stable map[string]bool) (dir, name string, deep bool) {
	dir, name = path.Dir(text), path.Base(text)
	for !stable[dir] {
		dir, name, deep = path.Dir(dir), path.Base(dir), true
	}
	return dir, name, deep
}

// patterns gives globs for the varying names of one directory, sorted by name:
// prefix*suffix for those that resemble one another, a literal one for a name
// that only some runs have and no other run has another in its stead, and * if
// neither will do or there would be more than a few. In the root of the
// repository it is never *: that would fold everything.
func patterns(dir string, names []*varying) []string {
	var globs []string
	groups, alone := clusters(names)
	for _, group := range groups {
		glob := pattern(group)
		if dir == "." && (glob == "*" || glob == "*/**") {
			alone = append(alone, group...)
			continue
		}
		globs = append(globs, glob)
	}
	for _, v := range alone {
		globs = append(globs, withBelow(writeset.EscapeGlob(v.name), v))
	}
	if dir == "." {
		return globs
	}
	random := slices.ContainsFunc(alone, func(v *varying) bool { return v.runs != alone[0].runs })
	if random || len(globs) > maxPatterns || slices.ContainsFunc(globs, func(g string) bool { return g == "*" || g == "*/**" }) {
		globs = []string{withBelow("*", names...)}
	}
	for i := range globs {
		globs[i] = writeset.EscapeGlob(dir) + "/" + globs[i]
	}
	return globs
}

// varyingPlaces gives entries of allow_write for the paths outside the
// repository that resemble one another and are not in all sets. They are
// narrower than folds: an entry too many opens a place that is not the
// suite's, so there is none for a whole directory, nor for what lies below a
// directory that is not in every run.
func varyingPlaces(sets []map[string]bool) []string {
	count := map[string]int{} // how many sets have the path
	for _, set := range sets {
		for text := range set {
			count[text]++
		}
	}
	groups := map[string][]*varying{}
	for _, text := range slices.Sorted(maps.Keys(count)) {
		if dir, name := path.Split(text); count[text] < len(sets) && dir != "" {
			groups[dir] = append(groups[dir], &varying{name: name})
		}
	}
	var entries []string
	for dir, names := range groups {
		alike, _ := clusters(names)
		for _, group := range alike {
			if glob := pattern(group); glob != "*" {
				entries = append(entries, placeEntry(dir)+strings.ReplaceAll(glob, "$", "?"))
			}
		}
	}
	return entries
}

// withBelow makes a glob cover what is below the names as well, if anything is.
func withBelow(glob string, names ...*varying) string {
	if slices.ContainsFunc(names, func(v *varying) bool { return v.deep }) {
		return glob + "/**" // dir/** matches dir, too
	}
	return glob
}

// alike is how many bytes two names must share at an end to be of one kind.
const alike = 3

// clusters puts together names that begin alike, then those left that end
// alike, and gives the rest.
func clusters(names []*varying) (groups [][]*varying, alone []*varying) {
	groups, alone = split(names, commonPrefix)
	slices.SortStableFunc(alone, func(a, b *varying) int { return cmp.Compare(reverse(a.name), reverse(b.name)) })
	bySuffix, alone := split(alone, commonSuffix)
	return append(groups, bySuffix...), alone
}

// split makes groups of neighbours that have enough in common, and gives the
// names that have no such neighbour.
func split(names []*varying, common func(a, b string) string) (groups [][]*varying, alone []*varying) {
	for start := 0; start < len(names); {
		end := start + 1
		for end < len(names) && len(common(names[end-1].name, names[end].name)) >= alike {
			end++
		}
		if end-start > 1 {
			groups = append(groups, names[start:end:end])
		} else {
			alone = append(alone, names[start])
		}
		start = end
	}
	return groups, alone
}

// pattern gives the glob for the names of one group. What they share by chance,
// such as the first letters of a random part, must not become part of it.
func pattern(group []*varying) string {
	prefix, suffix := group[0].name, group[0].name
	for _, v := range group[1:] {
		prefix, suffix = commonPrefix(prefix, v.name), commonSuffix(suffix, v.name)
	}
	prefix, suffix = stem(prefix, group), tail(suffix, group)
	for _, v := range group {
		if len(prefix)+len(suffix) > len(v.name) {
			suffix = ""
		}
	}
	return withBelow(writeset.EscapeGlob(prefix)+"*"+writeset.EscapeGlob(suffix), group...)
}

const (
	separators = "-_.:@~+=#, "
	digits     = "0123456789"
)

// counter is a run of digits that is a date, a process id or a count.
var counter = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[0-9]{2,}`) })

// stem shortens what names begin with to what they will always begin with: up
// to where a number begins in all of them, else to the last separator, else to
// a few letters (the fixed part of mkstemp's names has no end that shows).
func stem(prefix string, group []*varying) string {
	if at := counter().FindStringIndex(prefix); at != nil {
		prefix = prefix[:at[0]]
	}
	prefix = strings.TrimRight(prefix, digits)
	number := func(v *varying) bool {
		return len(v.name) > len(prefix) && strings.IndexByte(digits, v.name[len(prefix)]) >= 0
	}
	if !slices.ContainsFunc(group, func(v *varying) bool { return !number(v) }) {
		return prefix
	}
	if i := strings.LastIndexAny(prefix, separators); i >= 0 {
		return prefix[:i+1]
	}
	if len(prefix) > alike && utf8.RuneStart(prefix[alike]) {
		return prefix[:alike]
	}
	return prefix
}

// tail is the same from the other end; letters alone are chance there.
func tail(suffix string, group []*varying) string {
	if all := counter().FindAllStringIndex(suffix, -1); all != nil {
		suffix = suffix[all[len(all)-1][1]:]
	}
	suffix = strings.TrimLeft(suffix, digits)
	number := func(v *varying) bool {
		i := len(v.name) - len(suffix) - 1
		return i >= 0 && strings.IndexByte(digits, v.name[i]) >= 0
	}
	if !slices.ContainsFunc(group, func(v *varying) bool { return !number(v) }) {
		return suffix
	}
	if i := strings.IndexAny(suffix, separators); i >= 0 {
		return suffix[i:]
	}
	return ""
}

// commonPrefix ends where a character does.
func commonPrefix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	for n > 0 && (n < len(a) && !utf8.RuneStart(a[n]) || n < len(b) && !utf8.RuneStart(b[n])) {
		n--
	}
	return a[:n]
}

// commonSuffix begins where a character does.
func commonSuffix(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for n > 0 && !utf8.RuneStart(a[len(a)-n]) {
		n--
	}
	return a[len(a)-n:]
}

// reverse turns the bytes around, to sort by the end.
func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// collapse replaces the globs of whole directories, the deepest first, until a
// human can read the list. What lies in the root of the repository stays as it
// is: a fold of everything would be no contract.
func collapse(globs []string) []string {
	slices.Sort(globs)
	globs = slices.Compact(globs)
	for len(globs) > maxFolds {
		count := map[string]int{}
		for _, glob := range globs {
			for dir := fixedDir(glob); dir != "."; dir = path.Dir(dir) {
				count[dir]++
			}
		}
		best := ""
		depth := func(dir string) int { return strings.Count(dir, "/") }
		for _, dir := range slices.Sorted(maps.Keys(count)) {
			if count[dir] > 1 && (best == "" || depth(dir) > depth(best)) {
				best = dir
			}
		}
		if best == "" {
			break
		}
		globs = slices.DeleteFunc(globs, func(glob string) bool { return strings.HasPrefix(fixedDir(glob)+"/", best+"/") })
		globs = append(globs, best+"/**")
		slices.Sort(globs)
	}
	return globs
}

// fixedDir is the directory of a glob above its first special character.
func fixedDir(glob string) string {
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		glob = glob[:i]
	}
	return path.Dir(glob)
}

// assign puts each varying row under the glob that covers it and drops globs
// that cover none. A row that no glob covers gets one of its own.
func assign(globs, rows []string) ([]Folding, error) {
	f, err := parseFolds(globs)
	if err != nil {
		return nil, fmt.Errorf("BUG: %w", err)
	}
	under := map[string][]string{}
	for _, row := range rows {
		glob, err := f.match(row)
		if err != nil {
			return nil, err
		}
		if glob == "" {
			text, err := rowText(row)
			if err != nil {
				return nil, err
			}
			glob = writeset.EscapeGlob(text)
		}
		under[glob] = append(under[glob], row)
	}
	var foldings []Folding
	for _, glob := range slices.Sorted(maps.Keys(under)) {
		foldings = append(foldings, Folding{Glob: glob, Reason: foldReason(glob), Rows: under[glob]})
	}
	return foldings, nil
}

func foldReason(glob string) string {
	switch {
	case glob == pycacheGlob:
		return "Python byte code is written only where it is stale"
	case strings.HasSuffix(glob, "/**") && fixedDir(glob)+"/**" == glob:
		return "not everything below it was written in every run"
	case glob == `\*` || strings.HasSuffix(glob, `/\*`):
		return "names came and went there in some runs alone"
	case strings.ContainsAny(glob, "*?["):
		return "the names differ from run to run"
	}
	return "it was not written in every run"
}
