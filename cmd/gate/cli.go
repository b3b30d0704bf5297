package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/org/gate/ledger"
	"github.com/org/gate/runner"
	"github.com/org/gate/sandbox"
)

// app is one invocation of gate.
type app struct {
	stdin, stdout, stderr *os.File
	getenv                func(string) string
	environ               []string
	execute               execute
}

// execute makes one run; runner.Run in earnest.
type execute func(context.Context, runner.Config) (*ledger.Record, error)

// command is one subcommand.
type command struct {
	name   string
	about  string // for completion
	syntax syntax // for completion
	run    func(a *app, args []string) (int, error)
}

// commands lists the subcommands as help does.
func commands() []command {
	return []command{
		{"run", "run a command and compare it with the ledger", new(runOptions).syntax(), (*app).runCommand},
		{"init", "make a first ledger from a known-good revision", new(initOptions).syntax(), (*app).initCommand},
		{"accept", "accept what the last run did", new(acceptOptions).syntax(), (*app).acceptCommand},
		{"check", "judge a saved record", new(checkOptions).syntax(), (*app).checkCommand},
		{"why", "say who made a row of the last record", new(whyOptions).syntax(), (*app).whyCommand},
		{"merge-ledger", "merge two ledgers, as git's merge driver", mergeSyntax(), (*app).mergeCommand},
		{"migrate", "bring a ledger to the newest version", new(migrateOptions).syntax(), (*app).migrateCommand},
		{"doctor", "say what this host can do", new(doctorOptions).syntax(), (*app).doctorCommand},
		{"version", "print the version", versionSyntax(), (*app).versionCommand},
		{"help", "print the help of a subcommand", helpSyntax(), (*app).helpCommand},
		{"completion", "print a completion script", completionSyntax(), (*app).completionCommand},
	}
}

// run is gate: it returns the exit status.
func run(args []string, stdin, stdout, stderr *os.File) int {
	a := &app{
		stdin: stdin, stdout: stdout, stderr: stderr,
		getenv:  os.Getenv,
		environ: os.Environ(),
		execute: runner.Run,
	}
	if len(args) > 0 && args[0] == sandbox.InitArg {
		return sandbox.Init(args[1:]) // gate re-executed inside the namespaces
	}
	status, err := a.dispatch(args)
	if err != nil {
		return a.report(err)
	}
	return status
}

// dispatch runs the subcommand that args name.
func (a *app) dispatch(args []string) (int, error) {
	if len(args) == 0 {
		return 0, hint(errors.New("no subcommand"), "gate help")
	}
	switch args[0] {
	case "-h", "-help", "--help":
		return a.helpCommand(args[1:])
	case "-version", "--version":
		return a.versionCommand(args[1:])
	}
	c, err := find(args[0])
	if err != nil {
		return 0, err
	}
	status, err := c.run(a, args[1:])
	if errors.Is(err, errHelp) {
		return a.printHelp(c.name)
	}
	return status, err
}

// find is the subcommand of that name.
func find(name string) (command, error) {
	all := commands()
	names := make([]string, len(all))
	for i, c := range all {
		if c.name == name {
			return c, nil
		}
		names[i] = c.name
	}
	err := fmt.Errorf("there is no subcommand %q", name)
	if near := nearest(name, names); near != "" {
		return command{}, hint(err, "did you mean gate %s?", near)
	}
	return command{}, hint(err, "the subcommands are %s", strings.Join(names, " "))
}

// hinted is an error with a way out: a command or a value that works.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

func hint(err error, format string, args ...any) error {
	return hinted{err, fmt.Sprintf(format, args...)}
}

// failed is an error that is told with a status of its own.
type failed struct {
	error
	status int
}

func (f failed) Unwrap() error { return f.error }

// statusOf is the exit status that tells of err.
func statusOf(err error) int {
	var f failed
	var start *sandbox.StartError
	switch {
	case errors.As(err, &f):
		return f.status
	case errors.As(err, &start):
		return start.Code // 126 or 127, as a shell has it
	}
	return ledger.ExitCannot
}

// report prints err and its hint, and returns the exit status. That stderr
// cannot be written has nobody left to be told to; the status still says it.
func (a *app) report(err error) int {
	fmt.Fprintf(a.stderr, "gate: error: %s\n", ledger.Printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
	if way := hintOf(err); way != "" {
		fmt.Fprintf(a.stderr, "gate: hint: %s\n", ledger.Printable(way))
	}
	return statusOf(err)
}

// hintOf is the way out that err carries, or "".
func hintOf(err error) string {
	var h hinted
	var setup *sandbox.SetupError
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, &setup):
		return "gate doctor says what this host lacks, and the command that repairs it"
	}
	return ledger.Hint(err)
}

// say prints a line of gate's own on stderr.
func (a *app) say(format string, args ...any) error {
	if _, err := fmt.Fprintf(a.stderr, "gate: %s\n", ledger.Printable(fmt.Sprintf(format, args...))); err != nil {
		return fmt.Errorf("write stderr: %w", err)
	}
	return nil
}

// inCI says whether this is an automated run, where nothing may be loosened
// and nothing accepted. Any value but the empty one counts.
func (a *app) inCI() bool { return a.getenv("CI") != "" }

// colored says whether f may be coloured: https://no-color.org.
func (a *app) colored(f *os.File, refused bool) bool {
	return !refused && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb" && isTerminal(f)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
