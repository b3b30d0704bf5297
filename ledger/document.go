package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// A document is a JSON text that was read strictly: UTF-8 without a byte order
// mark, one object, no key twice. Every value keeps its place, so that a later
// check can name the line.
//
// encoding/json alone is too kind for a contract: it takes repeated keys (the
// last wins), keys in any case, null for anything, and turns bytes and escapes
// that are no character into U+FFFD.
type document struct {
	name string // for messages
	data []byte
	root *node
}

// A node is one value of a document.
type node struct {
	kind    nodeKind
	start   int     // offset of its first byte
	text    string  // string: its value; number: its literal
	members []*node // object and list: the values, in the order of the file
	keys    []key   // object: keys[i] belongs to members[i]
}

type key struct {
	name  string
	start int
}

type nodeKind uint8

const (
	objectNode nodeKind = iota
	listNode
	stringNode
	numberNode
	boolNode
	nullNode
)

func (k nodeKind) String() string {
	return [...]string{"an object", "a list", "a string", "a number", "true or false", "null"}[k]
}

// get returns the value of a key of an object, or nil.
func (n *node) get(name string) *node {
	for i, k := range n.keys {
		if k.name == name {
			return n.members[i]
		}
	}
	return nil
}

// readDocument reads data as one JSON object.
func readDocument(name string, data []byte) (*document, error) {
	d := &document{name: name, data: data}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, d.errorAt(0, "the file is empty, wanted a JSON object", "")
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return nil, d.errorAt(0, "found a byte order mark, wanted plain UTF-8", "save the file as UTF-8 without BOM")
	}
	if off := invalidUTF8(data); off >= 0 {
		return nil, d.errorAt(off, fmt.Sprintf("found the byte 0x%02x, wanted UTF-8", data[off]),
			"paths that are not UTF-8 are written C-quoted, as git prints them: \"\\303\\050\"")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, d.syntaxError(err)
	}
	r := reader{document: d, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	root, err := r.value()
	if err != nil {
		return nil, err
	}
	if root.kind != objectNode {
		return nil, d.errorAt(root.start, fmt.Sprintf("found %s, wanted an object", root.kind), "")
	}
	d.root = root
	return d, nil
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// errorAt is an Error that names the line and the column (in characters, both
// from 1) of an offset.
func (d *document) errorAt(off int, msg, hint string) error {
	off = max(0, min(off, len(d.data)))
	before := d.data[:off]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return &Error{Op: "parse", Path: fmt.Sprintf("%s:%d:%d", d.name, line, column), Msg: msg, Hint: hint}
}

// syntaxError places what encoding/json says. Its Offset counts the bytes that
// were read, so the one it stumbled over is the one before.
func (d *document) syntaxError(err error) error {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return &Error{Op: "parse", Path: d.name, Err: err}
	}
	off, msg := int(syntax.Offset)-1, syntax.Error()
	if msg == "unexpected end of JSON input" {
		off, msg = len(d.data), "the file ends in the middle of a value"
	}
	hint := ""
	if off < len(d.data) && bytes.HasPrefix(d.data[off:], []byte("<<<<<<<")) {
		return d.errorAt(off, "a merge conflict stands here", "gate accept --merge settles it")
	}
	if strings.Contains(msg, "looking for beginning of object key") || strings.Contains(msg, "looking for beginning of value") {
		hint = "JSON has no comments and no comma after the last entry"
	}
	return d.errorAt(off, msg, hint)
}

// A reader turns the tokens of a text that is known to be valid JSON into nodes.
type reader struct {
	*document
	dec *json.Decoder
}

func (r *reader) token() (json.Token, int, error) {
	start := int(r.dec.InputOffset())
	for start < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,:"), r.data[start]) >= 0 {
		start++
	}
	tok, err := r.dec.Token()
	if err != nil {
		return nil, start, r.syntaxError(err)
	}
	if _, ok := tok.(string); ok {
		if off := loneSurrogate(r.data[start:r.dec.InputOffset()]); off >= 0 {
			return nil, start, r.errorAt(start+off, "found half of a surrogate pair, wanted a character", "")
		}
	}
	return tok, start, nil
}

// loneSurrogate gives the offset of a \u escape in the raw string that stands
// for no character, or -1.
func loneSurrogate(raw []byte) int {
	unit := func(i int) rune {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0
		}
		v, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 32)
		if err != nil {
			return 0
		}
		return rune(v)
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if u := unit(i); utf16.IsSurrogate(u) {
			if utf16.DecodeRune(u, unit(i+6)) == utf8.RuneError {
				return i
			}
			i += 6
		}
		i++
	}
	return -1
}

func (r *reader) value() (*node, error) {
	tok, start, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &node{start: start}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			n.kind = objectNode
			return n, r.object(n)
		}
		n.kind = listNode
		return n, r.list(n)
	case string:
		n.kind, n.text = stringNode, t
	case json.Number:
		n.kind, n.text = numberNode, t.String()
	case bool:
		n.kind = boolNode
	case nil:
		n.kind = nullNode
	}
	return n, nil
}

func (r *reader) list(n *node) error {
	for r.dec.More() {
		v, err := r.value()
		if err != nil {
			return err
		}
		n.members = append(n.members, v)
	}
	_, _, err := r.token()
	return err
}

func (r *reader) object(n *node) error {
	seen := map[string]int{}
	for r.dec.More() {
		tok, start, err := r.token()
		if err != nil {
			return err
		}
		name := tok.(string) // valid JSON: a key is a string
		if first, ok := seen[name]; ok {
			line := 1 + bytes.Count(r.data[:first], []byte("\n"))
			return r.errorAt(start, fmt.Sprintf("key %q stands here again (first on line %d), wanted it once", name, line), "")
		}
		seen[name] = start
		v, err := r.value()
		if err != nil {
			return err
		}
		n.keys = append(n.keys, key{name, start})
		n.members = append(n.members, v)
	}
	_, _, err := r.token()
	return err
}

// version is the probe that comes before any other check: a file of a later
// version may have keys that mean nothing here. A file without it is of
// version 1 if optional says so.
func (d *document) version(want int, optional bool) error {
	v := d.root.get("version")
	if v == nil {
		if optional {
			return nil
		}
		return d.errorAt(d.root.start, "key \"version\" is missing, wanted "+strconv.Itoa(want), "")
	}
	if v.kind != numberNode {
		return d.errorAt(v.start, fmt.Sprintf("version: found %s, wanted %d", v.kind, want), "")
	}
	if v.text != strconv.Itoa(want) {
		return d.errorAt(v.start, fmt.Sprintf("version: found %s, this gate knows %d", v.text, want), "use the gate that wrote the file, or a later one")
	}
	return nil
}

// decode checks every value below the root against the type of *to, and then
// fills it. to is a pointer to a struct with json tags; a field without
// omitempty is required.
func (d *document) decode(to any) error {
	if err := d.check(d.root, reflect.TypeOf(to).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(d.data, to); err != nil {
		return &Error{Op: "parse", Path: d.name, Msg: "BUG: checked but not decoded", Err: err}
	}
	return nil
}

// check compares a value with the Go type it is meant for; at is its path of
// keys, for messages.
func (d *document) check(n *node, t reflect.Type, at string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	wrong := func(wanted string) error {
		found := n.kind.String()
		if n.kind == numberNode {
			found = n.text
		}
		return d.errorAt(n.start, fmt.Sprintf("%s: found %s, wanted %s", at, found, wanted), "")
	}
	if t == reflect.TypeFor[time.Time]() {
		if n.kind == stringNode {
			if _, err := time.Parse(time.RFC3339, n.text); err == nil {
				return nil
			}
		}
		return wrong("a time as in RFC 3339")
	}
	switch t.Kind() {
	case reflect.Struct:
		if n.kind != objectNode {
			return wrong("an object")
		}
		return d.checkObject(n, t, at)
	case reflect.Slice:
		if n.kind != listNode {
			return wrong("a list")
		}
		for i, m := range n.members {
			if err := d.check(m, t.Elem(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case reflect.String:
		if n.kind != stringNode {
			return wrong("a string")
		}
	case reflect.Bool:
		if n.kind != boolNode {
			return wrong("true or false")
		}
	case reflect.Int, reflect.Int64:
		if n.kind != numberNode {
			return wrong("a whole number")
		}
		if _, err := strconv.ParseInt(n.text, 10, t.Bits()); err != nil {
			return wrong("a whole number")
		}
	case reflect.Float64:
		if n.kind != numberNode {
			return wrong("a number")
		}
		if f, err := strconv.ParseFloat(n.text, 64); err != nil || math.IsInf(f, 0) {
			return wrong("a number of at most 1.8e308")
		}
	default:
		return fmt.Errorf("BUG: no rule for %s", t)
	}
	return nil
}

func (d *document) checkObject(n *node, t reflect.Type, at string) error {
	types := map[string]reflect.Type{}
	var names, required []string
	for i := range t.NumField() {
		name, opts, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		types[name] = t.Field(i).Type
		names = append(names, name)
		if opts != "omitempty" {
			required = append(required, name)
		}
	}
	prefix := ""
	if at != "" {
		prefix = at + "."
	}
	for i, k := range n.keys {
		ft, ok := types[k.name]
		if !ok {
			msg := fmt.Sprintf("found the unknown key %q, wanted one of %s", prefix+k.name, strings.Join(names, ", "))
			return d.errorAt(k.start, msg, didYouMean(k.name, names))
		}
		if err := d.check(n.members[i], ft, prefix+k.name); err != nil {
			return err
		}
	}
	for _, name := range required {
		if n.get(name) == nil {
			return d.errorAt(n.start, fmt.Sprintf("key %q is missing", prefix+name), "")
		}
	}
	return nil
}

// didYouMean is a hint that names the legal word nearest to what was found, or "".
func didYouMean(found string, legal []string) string {
	squash := strings.NewReplacer("-", "", "_", "", " ", "")
	plain := func(s string) string { return squash.Replace(strings.ToLower(s)) }
	best, bestDistance := "", 3 // more than two edits is another word
	for _, word := range legal {
		if d := editDistance(plain(found), plain(word)); d < bestDistance && d < len(word)/2+1 {
			best, bestDistance = word, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// editDistance is Levenshtein's, over bytes. Inputs beyond 64 bytes count as
// entirely different.
func editDistance(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, above[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
