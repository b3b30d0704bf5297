package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/org/gate/ledger"
)

// records are those that gate accept is to take, with the names of their files.
type records struct {
	names []string
	list  []*ledger.Record
}

// recordsFrom reads a record, or every record below a directory, as a CI system
// hands artifacts out: each in a directory of its own.
func recordsFrom(path string) (records, error) {
	var out records
	info, err := os.Stat(path)
	if err != nil {
		return out, fmt.Errorf("--from: %w", err)
	}
	if !info.IsDir() {
		return out, out.add(path)
	}
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(name) != ".json" {
			return err
		}
		return out.add(name)
	})
	if err == nil && len(out.list) == 0 {
		err = hint(fmt.Errorf("--from %s: no record below it", path), "want files NAME.json that gate run has written")
	}
	return out, err
}

func (r *records) add(name string) error {
	record, err := ledger.LoadRecord(name)
	if err != nil {
		return err
	}
	r.names, r.list = append(r.names, name), append(r.list, record)
	return nil
}

// one gives the record to accept: that of all parts, or the only one.
func (r *records) one(l *ledger.Ledger) (*ledger.Record, error) {
	if len(r.list) == 1 {
		return r.list[0], nil
	}
	return ledger.Join(l, r.list, r.names)
}

// of refuses records that are not of a commit, nor of a merge of it.
func (r *records) of(commit string) error {
	for i, record := range r.list {
		g := record.Git
		if g == nil || g.Commit != commit && !slices.Contains(g.Parents, commit) {
			return hint(fmt.Errorf("%s was not made for commit %s", r.names[i], commit), "wait until the runs for the last push have ended")
		}
	}
	return nil
}

// recordsOfPR downloads the artifacts of a pull request's runs with GitHub's own
// command, which knows who the user is.
func recordsOfPR(dir, number string) (out records, err error) {
	if n, err := strconv.Atoi(number); err != nil || n < 1 {
		return out, fmt.Errorf("--from-pr %q: want the number of a pull request", number)
	}
	gh := func(args ...string) (string, error) {
		cmd := exec.Command("gh", args...)
		cmd.Dir = dir
		text, err := cmd.Output()
		var exit *exec.ExitError
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return "", hint(errors.New("--from-pr needs GitHub's command gh, which is not installed"), "download the records, then gate accept --from DIR")
		case errors.As(err, &exit):
			return "", fmt.Errorf("gh %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
		}
		return strings.TrimSpace(string(text)), err
	}
	commit, err := gh("pr", "view", number, "--json", "headRefOid", "--jq", ".headRefOid")
	if err != nil {
		return out, err
	}
	runs, err := gh("run", "list", "--commit", commit, "--json", "databaseId", "--jq", ".[].databaseId")
	if err != nil {
		return out, err
	}
	tmp, err := os.MkdirTemp("", "gate-pr-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	var failed error
	for _, run := range strings.Fields(runs) {
		// A run without artifacts is an error of gh's, and none of ours as long
		// as another has some.
		if _, err := gh("run", "download", run, "--pattern", "*capability*", "--dir", filepath.Join(tmp, run)); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if out, err = recordsFrom(tmp); err != nil {
		return out, errors.Join(err, failed)
	}
	return out, out.of(commit)
}
