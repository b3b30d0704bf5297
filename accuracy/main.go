// Command accuracy holds gate's record of a run against what strace saw of
// another run of the same command. See usage.txt.
//
// The two share no code: what gate records by seccomp notifications and
// packets is reduced here from a system call log, by package truth.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/org/gate/accuracy/netns"
)

//go:embed usage.txt
var usage string

// Exit statuses.
const (
	same      = 0
	different = 1
	failed    = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{netns.InsideArg}) {
		return netns.Inside()
	}
	suite, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return same
	case err != nil:
		fmt.Fprintf(stderr, "accuracy: error: %v\naccuracy: hint: accuracy -h\n", err)
		return failed
	}
	report, err := suite.measure(context.Background())
	if err != nil {
		fmt.Fprintf(stderr, "accuracy: error: %s: %v\n", suite.name, err)
		return failed
	}
	if _, err := io.WriteString(stdout, report.String()); err != nil {
		fmt.Fprintf(stderr, "accuracy: error: %v\n", err)
		return failed
	}
	if report.differs() {
		return different
	}
	return same
}

// suite is one command on one repository, and how to run it.
type suite struct {
	name    string
	root    string // absolute, symlinks resolved
	dir     string // likewise
	command []string
	gate    string // absolute; "" to ask only for the truth
	folds   []string
	user    string
	timeout time.Duration
	keep    string
	cpu     bool
}

// parse reads the command line.
func parse(args []string) (suite, error) {
	var s suite
	cwd := "."
	flags := flag.NewFlagSet("accuracy", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.gate, "gate", "", "")
	flags.StringVar(&cwd, "cwd", cwd, "")
	flags.Func("fold", "", func(glob string) error { s.folds = append(s.folds, glob); return nil })
	flags.StringVar(&s.user, "user", "root", "")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Minute, "")
	flags.StringVar(&s.keep, "keep", "", "")
	flags.BoolVar(&s.cpu, "cpu", true, "")
	own, command, found := cut(args, "--")
	if err := flags.Parse(own); err != nil {
		return suite{}, err
	}
	if !found || len(command) == 0 {
		return suite{}, errors.New("no command; wanted: NAME ROOT -- COMMAND")
	}
	if flags.NArg() != 2 {
		return suite{}, fmt.Errorf("wanted NAME and ROOT before --, got %q", flags.Args())
	}
	s.name, s.command = flags.Arg(0), command
	var err error
	if s.root, err = real(flags.Arg(1)); err != nil {
		return suite{}, err
	}
	if s.dir, err = real(filepath.Join(s.root, cwd)); err != nil {
		return suite{}, err
	}
	if s.gate != "" {
		if s.gate, err = filepath.Abs(s.gate); err != nil {
			return suite{}, err
		}
	}
	return s, nil
}

func cut(args []string, at string) (before, after []string, found bool) {
	i := slices.Index(args, at)
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// real makes a path absolute and free of symbolic links.
func real(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// column is one of the two that are compared row by row.
type column struct {
	name        string
	truth, gate []string // sorted
}

// missing are the rows of the truth that gate has not; extra the reverse.
func (c column) missing() []string { return without(c.truth, c.gate) }
func (c column) extra() []string   { return without(c.gate, c.truth) }

func without(list, other []string) []string {
	var rest []string
	for _, row := range list {
		if !slices.Contains(other, row) {
			rest = append(rest, row)
		}
	}
	return rest
}

// report is the outcome of one suite.
type report struct {
	name                string
	gated               bool // gate was run
	exitTruth, exitGate int
	columns             []column
	gaps                []string // of gate's record
	notes               []string // of the truth
	cpuGate, cpuBare    float64  // user seconds; cpuBare is 0 if not asked for
	evidence            string
}

func (r report) differs() bool {
	if !r.gated {
		return false
	}
	for _, c := range r.columns {
		if len(c.missing())+len(c.extra()) > 0 {
			return true
		}
	}
	return r.exitGate != r.exitTruth || len(r.gaps) > 0
}

// String is the report: a line for each difference, then one that sums up.
func (r report) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, r.name+": "+format+"\n", args...) }
	for _, note := range r.notes {
		line("note: %s", note)
	}
	if !r.gated {
		for _, c := range r.columns {
			for _, row := range c.truth {
				line("%s %s", c.name, row)
			}
			line("%s: %d rows", c.name, len(c.truth))
		}
		line("exit %d", r.exitTruth)
		return b.String()
	}
	for _, gap := range r.gaps {
		line("gap: %s", gap)
	}
	if r.exitGate != r.exitTruth {
		line("exit %d under gate, %d under strace", r.exitGate, r.exitTruth)
	}
	sums := []string{}
	for _, c := range r.columns {
		for _, row := range c.missing() {
			line("%s missing %s", c.name, row)
		}
		for _, row := range c.extra() {
			line("%s extra   %s", c.name, row)
		}
		sums = append(sums, fmt.Sprintf("%s %d rows, %d missing, %d extra",
			c.name, len(c.truth), len(c.missing()), len(c.extra())))
	}
	cpu := fmt.Sprintf("cpu_sec %.2f", r.cpuGate)
	if r.cpuBare > 0 {
		cpu += fmt.Sprintf(" (bare %.2f)", r.cpuBare)
	}
	verdict := "same"
	if r.differs() {
		verdict = "DIFFERENT"
	}
	line("%s: %s; %s; exit %d; evidence %s", verdict, strings.Join(sums, "; "), cpu, r.exitTruth, r.evidence)
	return b.String()
}
