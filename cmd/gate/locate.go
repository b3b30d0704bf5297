package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/org/gate/ledger"
)

// Where gate init puts a ledger, and a run its record: beside the ledger.
const (
	ledgerName = "capability.ledger.json"
	recordName = "capability.actual.json"
)

// place is where a subcommand works. All paths are absolute.
type place struct {
	dir  string // working directory, symlinks resolved
	root string // the repository, symlinks resolved
}

// locate finds the repository: flag, or the nearest directory from the working
// directory upwards that holds .git.
func locate(flag string) (place, error) {
	dir, err := os.Getwd()
	if err != nil {
		return place{}, fmt.Errorf("find the working directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return place{}, fmt.Errorf("resolve the working directory: %w", err)
	}
	if flag != "" {
		return locateRoot(dir, flag)
	}
	for root := dir; ; root = filepath.Dir(root) {
		_, err := os.Lstat(filepath.Join(root, ".git"))
		if err == nil {
			return place{dir, root}, checkGit(filepath.Join(root, ".git"))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return place{}, fmt.Errorf("look for .git: %w", err)
		}
		if root == filepath.Dir(root) {
			return place{}, hint(fmt.Errorf("%s is not in a git repository", dir), "git init, or --root DIR")
		}
	}
}

// locateRoot takes the repository from the flag --root. It need not be one of
// git's.
func locateRoot(dir, flag string) (place, error) {
	root, err := filepath.EvalSymlinks(flag)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return place{}, fmt.Errorf("--root %s: %w", flag, err)
	}
	if st, err := os.Stat(root); err != nil {
		return place{}, fmt.Errorf("--root %s: %w", flag, err)
	} else if !st.IsDir() {
		return place{}, fmt.Errorf("--root %s: not a directory", flag)
	}
	if !within(root, dir) {
		return place{}, hint(fmt.Errorf("the working directory %s is not inside --root %s", dir, root), "cd %s", root)
	}
	return place{dir, root}, nil
}

// checkGit refuses a .git that git itself would not take: a directory without
// HEAD, a file that does not name a directory (gitrepository-layout(5)).
func checkGit(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at the repository: %w", err)
	}
	const way = "git init, or --root DIR"
	if st.IsDir() {
		if _, err := os.Lstat(filepath.Join(path, "HEAD")); err != nil {
			return hint(fmt.Errorf("%s is not a git repository: %w", path, err), way)
		}
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("look at the repository: %w", err)
	}
	if !bytes.HasPrefix(data, []byte("gitdir: ")) {
		return hint(fmt.Errorf(`%s is neither a directory nor a file that begins with "gitdir: "`, path), way)
	}
	return nil
}

// within says whether path is dir or lies below it; both absolute and clean.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// resolve makes a path absolute and resolves the symlinks of its directory,
// which must exist; the last component may be missing.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// relative is path as seen from the repository, for messages and records.
func (p place) relative(path string) string {
	if rel, err := filepath.Rel(p.root, path); err == nil {
		return rel
	}
	return path
}

// files are the two files of a run.
type files struct {
	ledger, record string
}

// files finds the ledger and says where its record goes.
func (p place) files(ledgerFlag, recordFlag string) (files, error) {
	var f files
	path, err := ledger.Nearest(p.dir, p.root, ledgerFlag)
	if err != nil {
		return f, err
	}
	if f.ledger, err = resolve(path); err != nil {
		return f, fmt.Errorf("find the ledger: %w", err)
	}
	if recordFlag == "" {
		recordFlag = filepath.Join(filepath.Dir(f.ledger), recordName)
	}
	if f.record, err = resolve(recordFlag); err != nil {
		return f, fmt.Errorf("--record %s: %w", recordFlag, err)
	}
	return f, f.spare("--record", f.record, f.ledger)
}

// contract is a ledger, and the place that it speaks for.
type contract struct {
	where  place
	files  files
	ledger *ledger.Ledger
	sum    string // of the ledger's file, as Load gives it
}

// openContract finds and reads what the flags --root, --ledger and --record
// name.
func openContract(root, ledgerFlag, recordFlag string) (c contract, err error) {
	where, err := locate(root)
	if err != nil {
		return c, err
	}
	return where.contract(ledgerFlag, recordFlag)
}

func (p place) contract(ledgerFlag, recordFlag string) (c contract, err error) {
	c.where = p
	if c.files, err = c.where.files(ledgerFlag, recordFlag); err != nil {
		return c, err
	}
	c.ledger, c.sum, err = ledger.Load(c.files.ledger)
	return c, err
}

// spare refuses an output file that has another use in this run.
func (f files) spare(flag, path string, taken ...string) error {
	path, err := resolve(path)
	if err != nil || !slices.Contains(taken, path) {
		return nil // where it cannot be resolved it cannot be opened either
	}
	what := "record"
	if path == f.ledger {
		what = "ledger"
	}
	return hint(fmt.Errorf("%s would replace the %s %s", flag, what, path), "name another file")
}
