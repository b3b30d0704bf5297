package ledger

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const crashEnv = "GATE_LEDGER_TEST_WRITES"

// TestCrash kills a process that writes the two files over and over: whatever
// the moment, what stands there is the old file or the new one.
func TestCrash(t *testing.T) {
	if dir := os.Getenv(crashEnv); dir != "" {
		writeForEver(t, dir)
	}
	dir := t.TempDir()
	for round := range 20 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(out)
		for range 2 + round {
			if !in.Scan() || in.Text() != "written" {
				t.Fatalf("the writer said %q: %v", in.Text(), errors.Join(cmd.Process.Kill(), cmd.Wait()))
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		var killed *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &killed) {
			t.Fatalf("got %v, want death by a signal", err)
		}
		if _, _, err := Load(filepath.Join(dir, "l.json")); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if _, err := LoadRecord(filepath.Join(dir, "r.json")); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

func writeForEver(t *testing.T, dir string) {
	r := goodRecord()
	l := &Ledger{Version: Version, CPUBudget: 1, HasPaths: true}
	for n := 1; ; n++ {
		r.CPU.System, l.CPUBudget = float64(n), float64(n)
		err := errors.Join(Write(filepath.Join(dir, "l.json"), l), WriteRecord(filepath.Join(dir, "r.json"), r))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("written\n"); err != nil {
			t.Fatal(err)
		}
	}
}
