package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Encode gives the canonical form of a ledger: fixed order of keys, lists
// sorted (but command and fold, whose order means something) and one row a
// line, two spaces, a final newline, keys at their default left out.
// Parse(l.Encode()) gives l back, and encodes to the same bytes.
func (l *Ledger) Encode() []byte {
	w := ledgerWriter{}
	w.key("version", Version)
	if l.Command != nil {
		w.inline("command", l.Command)
	}
	if l.Mode != "" && l.Mode != Enforce {
		w.key("mode", l.Mode)
	}
	w.rows("allow_net", sorted(l.AllowNet))
	w.key("cpu_budget", l.CPUBudget)
	if l.Writes != "" {
		w.key("writes", l.Writes)
	}
	if l.HasPaths {
		w.rows("write_paths", sorted(l.WritePaths))
	}
	if l.HasAllowWrite {
		w.rows("allow_write", sorted(l.AllowWrite))
	}
	if len(l.Fold) > 0 {
		w.rows("fold", l.Fold)
	}
	if l.Evidence != "" {
		w.key("evidence", l.Evidence)
	}
	if l.Prove {
		w.key("prove", true)
	}
	if len(l.Parts) > 0 {
		w.rows("parts", sorted(l.Parts))
	}
	if len(l.Paths) > 0 {
		w.rows("paths", sorted(l.Paths))
	}
	if l.SelfAccept {
		w.key("self_accept", true)
	}
	if l.MinTests > 0 {
		w.key("min_tests", l.MinTests)
	}
	w.buf.WriteString("\n}\n")
	return w.buf.Bytes()
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// A ledgerWriter writes the members of one object.
type ledgerWriter struct{ buf bytes.Buffer }

func (w *ledgerWriter) name(name string) {
	open := ",\n"
	if w.buf.Len() == 0 {
		open = "{\n"
	}
	fmt.Fprintf(&w.buf, "%s  %q: ", open, name)
}

func (w *ledgerWriter) key(name string, value any) {
	w.name(name)
	w.buf.Write(scalar(value))
}

func (w *ledgerWriter) inline(name string, list []string) {
	w.name(name)
	w.buf.WriteByte('[')
	for i, s := range list {
		if i > 0 {
			w.buf.WriteString(", ")
		}
		w.buf.Write(scalar(s))
	}
	w.buf.WriteByte(']')
}

func (w *ledgerWriter) rows(name string, list []string) {
	w.name(name)
	if len(list) == 0 {
		w.buf.WriteString("[]")
		return
	}
	for i, s := range list {
		open := ",\n    "
		if i == 0 {
			open = "[\n    "
		}
		w.buf.WriteString(open)
		w.buf.Write(scalar(s))
	}
	w.buf.WriteString("\n  ]")
}

// scalar encodes a string, a bool, a number. A value without a JSON form (NaN)
// becomes null, which Parse refuses.
func scalar(value any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return []byte("null")
	}
	return escapeUnprintable(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}

// escapeUnprintable writes every character of a JSON text that is not
// printable as \u: such a character can only stand in a string, and encoding/json
// lets C1 controls, bidirectional overrides and other invisible ones through,
// which a terminal or a review page would act on.
func escapeUnprintable(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out = append(out, text[i:i+n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}
