package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/org/gate/ledger"
	"github.com/org/gate/runner"
)

// fakeApp runs in a repository of its own, with runs made by execute.
func fakeApp(t *testing.T, env map[string]string, run execute) (a *app, dir string) {
	t.Helper()
	dir = repository(t)
	t.Chdir(dir)
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdout.Close() })
	return &app{
		stdin: os.Stdin, stdout: stdout, stderr: stdout,
		getenv:  func(name string) string { return env[name] },
		execute: run,
	}, dir
}

// quietRecord is of a run that did nothing.
func quietRecord(cfg runner.Config) *ledger.Record {
	r := &ledger.Record{
		Version: ledger.Version, Command: cfg.Command, Dir: ".", Mode: cfg.Mode,
		Evidence: ledger.TierNamespace, CPUBudget: 60,
	}
	r.Derive()
	return r
}

func TestConfigure(t *testing.T) {
	pinned := &ledger.Ledger{Command: []string{"make", "test"}, Mode: ledger.Enforce, AllowNet: []string{"127.0.0.1:5432"}, CPUBudget: 1}
	lax := &ledger.Ledger{Mode: ledger.Audit, Evidence: ledger.TierWeak}
	tests := []struct {
		name    string
		ledger  *ledger.Ledger
		args    []string
		ci      string
		want    runner.Config // Command, Mode, Evidence, Timeout and Doors alone
		wantErr string
	}{
		{
			name: "the ledger's", ledger: pinned,
			want: runner.Config{Command: pinned.Command, Mode: ledger.Enforce},
		},
		{
			name: "the flags'", ledger: pinned, args: []string{"--mode=audit", "--evidence=notify", "--timeout=1m", "--door", "127.0.0.1:5432=[::1]:15432", "--", "true"},
			want: runner.Config{
				Command: []string{"true"}, Mode: ledger.Audit, Evidence: ledger.TierNotify, Timeout: time.Minute,
				Doors: map[string]string{"127.0.0.1:5432": "[::1]:15432"},
			},
		},
		{name: "audit in CI", ledger: pinned, args: []string{"--mode=audit"}, ci: "1", wantErr: "--mode audit where CI is set: only the ledger can say so there"},
		{
			name: "audit in CI by the ledger", ledger: lax, args: []string{"--mode=audit", "--", "true"}, ci: "true",
			want: runner.Config{Command: []string{"true"}, Mode: ledger.Audit},
		},
		{
			name: "stricter in CI", ledger: lax, args: []string{"--mode=enforce", "--", "true"}, ci: "false",
			want: runner.Config{Command: []string{"true"}, Mode: ledger.Enforce},
		},
		{name: "too weak", ledger: pinned, args: []string{"--evidence=weak"}, wantErr: "--evidence weak is less than the ledger asks for: notify"},
		{
			name: "weak by the ledger", ledger: lax, args: []string{"--evidence=weak", "--", "true"},
			want: runner.Config{Command: []string{"true"}, Mode: ledger.Audit, Evidence: ledger.TierWeak},
		},
		{name: "a door to nowhere", ledger: pinned, args: []string{"--door=127.0.0.1:1=a:1"}, wantErr: "--door 127.0.0.1:1: the ledger does not allow that endpoint"},
		{name: "no command", ledger: lax, wantErr: "the ledger pins no command, and none was given"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o runOptions
			p, err := o.syntax().parse(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			a := &app{getenv: func(name string) string { return map[string]string{"CI": tt.ci}[name] }}
			got, err := a.configure(&o, tt.ledger, p.command)
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Fatalf("got %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got = runner.Config{Command: got.Command, Mode: got.Mode, Evidence: got.Evidence, Timeout: got.Timeout, Doors: got.Doors}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Only the record of the run that was asked for last may stand there.
func TestRecordIsTheLastRuns(t *testing.T) {
	succeed := func(_ context.Context, cfg runner.Config) (*ledger.Record, error) { return quietRecord(cfg), nil }
	a, dir := fakeApp(t, nil, succeed)
	path := filepath.Join(dir, recordName)
	status, err := a.runCommand([]string{"--", "true"})
	if err != nil || status != 0 {
		t.Fatalf("got status %d (%v), want 0", status, err)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	broken := errors.New("the sandbox broke")
	a.execute = func(context.Context, runner.Config) (*ledger.Record, error) {
		// Until the run has ended the old file is there.
		if now, err := os.ReadFile(path); err != nil || string(now) != string(first) {
			t.Errorf("during the run: got %q (%v), want the record of the first", now, err)
		}
		return nil, broken
	}
	if _, err = a.runCommand([]string{"--", "true"}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if statusOf(err) != ledger.ExitCannot {
		t.Errorf("got status %d, want %d", statusOf(err), ledger.ExitCannot)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of the first run is still there (%v)", err)
	}

	// A record that cannot be encoded is none.
	a.execute = func(_ context.Context, cfg runner.Config) (*ledger.Record, error) {
		r := quietRecord(cfg)
		r.Writes = "nonsense"
		return r, nil
	}
	if _, err := a.runCommand([]string{"--", "true"}); err == nil {
		t.Error("a record that contradicts itself was taken")
	}
}

// Where stdout cannot be written the verdict was not told: that is no match.
func TestVerdictMustBeTold(t *testing.T) {
	a, _ := fakeApp(t, nil, func(_ context.Context, cfg runner.Config) (*ledger.Record, error) { return quietRecord(cfg), nil })
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	a.stdout = full
	if _, err := a.runCommand([]string{"--json", "--", "true"}); err == nil {
		t.Error("gate run --json >/dev/full succeeded")
	}
}
