package ledger

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// RenderOptions of Render.
type RenderOptions struct {
	Color bool
	File  string // where the record lies, for "and 7 more, see FILE"; may be empty
}

// maxShown is how many rows of one kind a terminal gets.
const maxShown = 20

// Render writes a verdict for a terminal: one line a column, then each drift
// with who did it, its likely cause and what to do, then what the ledger
// allows in vain. Recorded text is hostile: control and invisible characters
// are escaped.
func Render(w io.Writer, v *Verdict, o RenderOptions) error {
	p := printer{v: v, o: o}
	p.head()
	for _, c := range v.Columns {
		p.column(c)
	}
	for _, r := range v.Reasons {
		if r.Kind == "killed" || r.Kind == "interrupted" {
			continue // the first line says it
		}
		p.line("%s %s: %s", p.paint(yellow, "incomplete"), r.Kind, r.Detail)
		p.indented("do", r.Do)
	}
	p.drifts()
	if v.Status == DriftFound && p.writesDiffer() {
		p.line("digest  %s", v.Writes)
		if p.acceptable() {
			p.line("accept  %s", p.acceptCommand())
		}
	}
	for _, f := range v.Findings {
		p.line("finding %s: %s%s", f.Kind, f.Detail, by(f.Who))
	}
	for _, n := range v.Notes {
		p.line("note    %s", n)
	}
	p.stale()
	_, err := w.Write(p.buf.Bytes())
	return err
}

// Encode gives a verdict as JSON, for --json; docs/ledger.md has its shape.
func (v *Verdict) Encode() ([]byte, error) {
	return encodeJSON(struct {
		Version  int `json:"version"`
		ExitCode int `json:"exit_code"`
		*Verdict
	}{Version, v.ExitCode(), v})
}

type printer struct {
	v   *Verdict
	o   RenderOptions
	buf bytes.Buffer
}

// Colours, as SGR parameters of ECMA-48.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// painted is a word of gate's own that may hold colour.
type painted string

func (p *printer) paint(color, text string) painted {
	if !p.o.Color {
		return painted(text)
	}
	return painted("\x1b[" + color + "m" + text + "\x1b[0m")
}

// line writes one line of the report. Every string passes through here or
// through indented, and is escaped.
func (p *printer) line(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = Printable(s)
		}
	}
	fmt.Fprintf(&p.buf, "gate: "+format+"\n", args...)
}

func (p *printer) indented(name, text string) {
	if text != "" {
		fmt.Fprintf(&p.buf, "gate:       %-6s %s\n", name, Printable(text))
	}
}

// head is the verdict in one line.
func (p *printer) head() {
	v := p.v
	color := red
	switch v.Status {
	case Match:
		color = green
	case Partial:
		if len(v.Drifts) == 0 {
			color = yellow
		}
	}
	why := ""
	switch {
	case v.Killed == KilledCPU:
		why = ": gate ended the run, it was over its CPU budget; a failure, not flakiness"
	case v.Killed == KilledTimeout:
		why = ": gate ended the run, it was over its time limit; a failure, not flakiness"
	case v.Interrupted != "":
		why = ": interrupted by " + v.Interrupted
	case v.Status == Failed && v.Signal != "":
		why = fmt.Sprintf(": the command died of %s (status %d)", v.Signal, v.Exit)
		if v.Signal == "SIGXCPU" {
			why += "; a failure, not flakiness"
		}
	case v.Status == Failed:
		why = fmt.Sprintf(": the command exited with status %d", v.Exit)
	case v.Status == Partial:
		why = ": this is no match"
	}
	if v.Mode == Audit {
		why += " (audit: it decides nothing)"
	}
	p.line("%s%s", p.paint(color, string(v.Status)), why)
}

// acceptable says that gate accept would take the record: see acceptable of a
// record.
func (p *printer) acceptable() bool {
	return len(p.v.Reasons) == 0 && !slices.ContainsFunc(p.v.Drifts, func(d Drift) bool { return d.Column == Run })
}

// acceptCommand: the digest stands for the written paths alone; anything else
// is agreed to on a terminal.
func (p *printer) acceptCommand() string {
	for _, d := range p.v.Drifts {
		if d.Column != Writes || d.Kind == Outside {
			return "gate accept"
		}
	}
	return "gate accept --writes " + p.v.Writes
}

func (p *printer) column(c Column) {
	word, color := "ok   ", green
	if !c.OK {
		word, color = "drift", red
	}
	var detail string
	switch c.Name {
	case Net:
		detail = count(c.Rows, "endpoint")
		if c.Extra > 0 {
			detail += fmt.Sprintf(", %d not in allow_net", c.Extra)
		}
	case CPUSec:
		detail = fmt.Sprintf("%.2f s of %s s", c.Seconds, formatSeconds(c.Budget))
	case Writes:
		detail = count(c.Rows, "row")
		if c.Extra > 0 {
			detail += fmt.Sprintf(", %d not accepted", c.Extra)
		}
		if c.Missing > 0 {
			detail += fmt.Sprintf(", %d missing", c.Missing)
		}
		if c.Outside > 0 {
			detail += fmt.Sprintf(", %d outside", c.Outside)
		}
	}
	p.line("  %s %s  %s", fmt.Sprintf("%-8s", c.Name), p.paint(color, word), detail)
}

func count(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun
	case 1:
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// drifts writes the drifts kind by kind; rows of one kind that have the same
// cause share its lines.
func (p *printer) drifts() {
	type kind struct{ column, kind string }
	shown := map[kind]int{}
	total := map[kind]int{}
	for _, d := range p.v.Drifts {
		total[kind{d.Column, d.Kind}]++
	}
	for i, d := range p.v.Drifts {
		k := kind{d.Column, d.Kind}
		if shown[k] == 0 {
			p.line("%s %s: %s", p.paint(red, "drift"), d.Column, heading(d.Kind))
		}
		shown[k]++
		if shown[k] > maxShown {
			if shown[k] == total[k] {
				p.more(total[k] - maxShown)
			}
			continue
		}
		p.line("    %s%s", d.Row, tries(d))
		if d.Who != nil {
			p.indented("who", strings.TrimPrefix(by(d.Who), ", by "))
		}
		last := i == len(p.v.Drifts)-1 || shown[k] == maxShown
		if next := i + 1; !last {
			n := p.v.Drifts[next]
			last = n.Column != d.Column || n.Kind != d.Kind || n.Cause != d.Cause || n.Do != d.Do
		}
		if last {
			p.indented("cause", d.Cause)
			p.indented("do", d.Do)
		}
	}
}

func (p *printer) more(n int) {
	see := "the record"
	if p.o.File != "" {
		see = p.o.File
	}
	p.line("    and %s more, see %s", fmt.Sprint(n), see)
}

func heading(kind string) string {
	switch kind {
	case Extra:
		return "not accepted"
	case Missing:
		return "accepted, and did not come"
	case Unattributed:
		return "not accepted, and no call was seen that wrote it"
	case Outside:
		return "outside the repository"
	case DigestOnly:
		return "the digest differs, and the ledger lists no rows to tell which; the record has them in write_paths"
	case OverBudget:
		return "over the budget"
	case OtherCommand:
		return "not the ledger's command"
	case LedgerEdited:
		return "the run tried to change, remove or recreate its ledger"
	case Loosened:
		return "opened, hidden or asked for less than at the base"
	}
	return kind
}

// tries says how often a row was tried and, if only one witness saw it, which.
func tries(d Drift) string {
	var notes []string
	if d.Count > 1 {
		notes = append(notes, fmt.Sprintf("%d times", d.Count))
	}
	if len(d.Witness) == 1 && d.Witness[0] != WitnessSyscall {
		notes = append(notes, "seen by "+d.Witness[0]+" alone")
	}
	if notes == nil {
		return ""
	}
	return "  (" + strings.Join(notes, ", ") + ")"
}

// by says who: ", by sh > go > foo.test (pid 42) in internal/foo".
func by(w *Who) string {
	if w == nil {
		return ""
	}
	s := fmt.Sprintf(", by %s (pid %d)", strings.Join(w.Chain, " > "), w.PID)
	if w.Dir != "" {
		s += " in " + w.Dir
	}
	return s
}

func (p *printer) writesDiffer() bool {
	for _, d := range p.v.Drifts {
		if d.Column == Writes && d.Kind != Outside {
			return true
		}
	}
	return false
}

// stale lists what was not needed. A warm run needs few of the folds that a cold
// one does, so those share a line.
func (p *printer) stale() {
	unused := false
	var folds, rest []Stale
	for _, s := range p.v.Stale {
		if s.Key == "fold" && !s.Broad {
			folds = append(folds, s)
		} else {
			rest = append(rest, s)
		}
	}
	if len(folds) == 1 {
		rest = append(rest, folds...)
	} else if len(folds) > 1 {
		unused = true
		p.line("%s   %d folds were not hit in this run; a cold one, in a fresh clone, may need them", p.paint(yellow, "stale"), len(folds))
	}
	for i, s := range rest {
		if i == maxShown {
			p.more(len(rest) - maxShown)
			break
		}
		word := "stale"
		if s.Broad {
			word = "broad"
		}
		unused = unused || !s.Broad
		p.line("%s   %s %s %s", p.paint(yellow, word), s.Key, s.Entry, s.Detail)
	}
	if unused {
		p.line("        gate accept --tighten takes away what is stale; was this a run like all others?")
	}
}

// Printable escapes what a terminal would act on or not show: control
// characters, directional marks, bytes that are not UTF-8. Recorded text is
// hostile.
func Printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}
