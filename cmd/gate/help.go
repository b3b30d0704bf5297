package main

import (
	"embed"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

//go:embed help/*.txt
var helpFiles embed.FS

// helpText is the help of a subcommand, or of gate itself for "gate".
func helpText(name string) (string, error) {
	text, err := helpFiles.ReadFile("help/" + name + ".txt")
	if err != nil {
		return "", fmt.Errorf("there is no help on %q", name)
	}
	if name == "run" || name == "check" {
		status, err := helpFiles.ReadFile("help/status.txt")
		if err != nil {
			return "", fmt.Errorf("BUG: %w", err)
		}
		text = append(text, status...)
	}
	return string(text), nil
}

func helpSyntax() syntax    { return syntax{name: "help", operands: 1} }
func versionSyntax() syntax { return syntax{name: "version"} }

// helpCommand is gate help [SUBCOMMAND].
func (a *app) helpCommand(args []string) (int, error) {
	p, err := helpSyntax().parse(args)
	if err != nil {
		return 0, err
	}
	if len(p.operands) == 0 {
		return a.printHelp("gate")
	}
	name := p.operands[0]
	if _, err := find(name); err != nil {
		return 0, err
	}
	return a.printHelp(name)
}

func (a *app) printHelp(name string) (int, error) {
	text, err := helpText(name)
	if err != nil {
		return 0, err
	}
	return 0, a.print(text)
}

// print writes text to stdout.
func (a *app) print(text string) error {
	if _, err := io.WriteString(a.stdout, text); err != nil {
		return fmt.Errorf("write stdout: %w", err)
	}
	return nil
}

// versionCommand is gate version.
func (a *app) versionCommand(args []string) (int, error) {
	if _, err := versionSyntax().parse(args); err != nil {
		return 0, err
	}
	return 0, a.print(fmt.Sprintf("gate %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
}

// version is that of the module, as the go command stamped it into the
// binary; "devel" where it did not.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
