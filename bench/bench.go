package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const usage = `Usage: go run ./bench [flags]

Flags:
  -gate PATH       the gate to measure; else ./cmd/gate is built
  -subject CMD     measure this in place of "GATE run --quiet --record FILE --";
                   split at blanks, the workload is appended
  -suite DIR       a Go module whose tests are case a; else $GATE_BENCH_SUITE,
                   else the tests of github.com/google/go-cmp, as in go.mod
  -rounds N        rounds of a case, at least 5 (default 5)
  -only CASES      letters of the cases to run (default abcdef)
  -dir DIR         where the repositories are made (default: the temporary
                   directory)

Cases: a  a real Go suite
       b  300,000 read-only opens
       c  50,000 times create, write, close, unlink
       d  2,000 short processes
       e  a repository of 100,000 files: what it adds to "true"
       f  "true": the fixed cost
`

// config is what the flags say.
type config struct {
	gate    string
	subject []string
	suite   string
	rounds  int
	only    string
	dir     string
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == workVerb {
		if err := work(args[1:]); err != nil {
			fmt.Fprintf(stderr, "bench: error: workload %q: %v\n", args[1:], err)
			return 1
		}
		return 0
	}
	cfg, err := parseFlags(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: error: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := bench(ctx, cfg, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "bench: error: %v\n", err)
		return 1
	}
	return 0
}

func parseFlags(args []string) (config, error) {
	var cfg config
	var subject string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.gate, "gate", "", "")
	flags.StringVar(&subject, "subject", "", "")
	flags.StringVar(&cfg.suite, "suite", os.Getenv("GATE_BENCH_SUITE"), "")
	flags.IntVar(&cfg.rounds, "rounds", 5, "")
	flags.StringVar(&cfg.only, "only", "abcdef", "")
	flags.StringVar(&cfg.dir, "dir", os.TempDir(), "")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	cfg.subject = strings.Fields(subject)
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.rounds < 5:
		return cfg, fmt.Errorf("-rounds %d: want at least 5, fewer say nothing", cfg.rounds)
	case strings.Trim(cfg.only, "abcdef") != "":
		return cfg, fmt.Errorf("-only %q: want letters from a to f", cfg.only)
	}
	return cfg, nil
}

// bench makes what the cases need below one temporary directory, runs them and
// prints the table.
func bench(ctx context.Context, cfg config, stdout, stderr io.Writer) (err error) {
	for _, tool := range []string{"unshare", "ip", "strace", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w (Debian: apt-get install util-linux iproute2 strace git)", err)
		}
	}
	tmp, err := os.MkdirTemp(cfg.dir, "gate-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if cfg.gate == "" && len(cfg.subject) == 0 {
		cfg.gate = filepath.Join(tmp, "gate")
		if _, err := output(ctx, "", "env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-trimpath", "-o", cfg.gate, "./cmd/gate"); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	lab := &lab{ctx: ctx, cfg: cfg, tmp: tmp, self: self, log: stderr}

	kernel, err := output(ctx, "", "uname", "-sr")
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d cores, %s, %s %s/%s, %d rounds\n\n", runtime.NumCPU(), kernel, runtime.Version(), runtime.GOOS, runtime.GOARCH, cfg.rounds)
	fmt.Fprint(stdout, "| case | unshare -rn | gate | strace | gate : unshare (min-max) | gate : strace (min-max) | target |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, c := range []struct {
		letter byte
		run    func() (string, error)
	}{
		{'a', lab.suite}, {'b', lab.opens}, {'c', lab.creates}, {'d', lab.processes}, {'e', lab.files}, {'f', lab.nothing},
	} {
		if !strings.Contains(cfg.only, string(c.letter)) {
			continue
		}
		line, err := c.run()
		if err != nil {
			return fmt.Errorf("case %c: %w", c.letter, err)
		}
		fmt.Fprintf(stdout, "| %c %s |\n", c.letter, line)
	}
	return nil
}

// lab runs workloads in repositories of its own.
type lab struct {
	ctx  context.Context
	cfg  config
	tmp  string
	self string
	log  io.Writer
}

func (l *lab) suite() (string, error) {
	module := l.cfg.suite
	command := []string{"go", "test", "-count=1", "./..."}
	if module == "" {
		dir, err := output(l.ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/go-cmp")
		if err != nil {
			return "", err
		}
		module = dir
		// This one compares the addresses of two maps' keys and fails when the
		// garbage collector has used one twice.
		command = append(command, "-skip=TestDiff/Reporter/LargeMapKey")
	}
	// A copy: the module cache is read-only, and a repository is wanted.
	repo, err := l.repo("suite", []string{"**"}, []string{"**"})
	if err != nil {
		return "", err
	}
	if _, err := output(l.ctx, "", "cp", "-R", module+"/.", repo); err != nil {
		return "", err
	}
	if _, err := output(l.ctx, "", "chmod", "-R", "u+w", repo); err != nil {
		return "", err
	}
	return l.compare("`go test` of "+filepath.Base(module), "<= 1.02", repo, command...)
}

func (l *lab) opens() (string, error) {
	repo, err := l.repo("opens", nil, nil)
	if err != nil {
		return "", err
	}
	return l.compare("300,000 read-only opens", "<= 1.03", repo, l.self, workVerb, "opens", "300000")
}

func (l *lab) creates() (string, error) {
	repo, err := l.repo("creates", nil, []string{"work/*"})
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(repo, "work"), 0o755); err != nil {
		return "", err
	}
	return l.compare("50,000 create+write+close+unlink", "<= 2.5", repo, l.self, workVerb, "creates", "50000")
}

func (l *lab) processes() (string, error) {
	repo, err := l.repo("processes", nil, nil)
	if err != nil {
		return "", err
	}
	return l.compare("2,000 short processes", "<= 1.25", repo, l.self, workVerb, "processes", "2000")
}

func (l *lab) files() (string, error) {
	empty, err := l.repo("empty", nil, nil)
	if err != nil {
		return "", err
	}
	full, err := l.repo("full", nil, nil)
	if err != nil {
		return "", err
	}
	for i := range 100_000 {
		dir := filepath.Join(full, strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644); err != nil {
			return "", err
		}
	}
	times, err := l.rounds([]contender{l.subject(empty), l.subject(full)}, "true")
	if err != nil {
		return "", err
	}
	added := make([]float64, l.cfg.rounds)
	for i := range added {
		added[i] = times[1][i] - times[0][i]
	}
	return fmt.Sprintf("`true` among 100,000 files | | %.3f s | | added: %s s | | <= 0.4 s", median(times[1]), spread(added, "%.3f")), nil
}

func (l *lab) nothing() (string, error) {
	repo, err := l.repo("nothing", nil, nil)
	if err != nil {
		return "", err
	}
	return l.compare("`true`", "<= 60 ms", repo, "true")
}

// repo makes a repository with a ledger that the workload matches, so that
// gate runs as it does on a good day. fold and rows are the ledger's own.
func (l *lab) repo(name string, fold, rows []string) (string, error) {
	dir := filepath.Join(l.tmp, name)
	if _, err := output(l.ctx, "", "git", "init", "-q", dir); err != nil {
		return "", err
	}
	ledger := fmt.Sprintf(`{"version": 1, "allow_net": [], "cpu_budget": 36000, "fold": [%s], "write_paths": [%s]}`+"\n", quoted(fold), quoted(rows))
	return dir, os.WriteFile(filepath.Join(dir, "capability.ledger.json"), []byte(ledger), 0o644)
}

func quoted(list []string) string {
	var q []string
	for _, s := range list {
		q = append(q, strconv.Quote(s))
	}
	return strings.Join(q, ", ")
}

// contender is a command that runs a workload, in a directory.
type contender struct {
	name   string
	prefix []string
	dir    string
	record string // a file that it must have written anew, or ""
}

func (l *lab) subject(dir string) contender {
	if len(l.cfg.subject) > 0 {
		return contender{name: "subject", prefix: l.cfg.subject, dir: dir}
	}
	record := filepath.Join(l.tmp, "record.json")
	return contender{name: "gate", prefix: []string{l.cfg.gate, "run", "--quiet", "--record", record, "--"}, dir: dir, record: record}
}

// compare runs a workload under all three and gives a line of the table.
func (l *lab) compare(name, target, dir string, workload ...string) (string, error) {
	times, err := l.rounds([]contender{
		{name: "unshare", prefix: []string{"unshare", "-rn", "--", "sh", "-c", `ip link set lo up && exec "$@"`, "sh"}, dir: dir},
		l.subject(dir),
		{name: "strace", prefix: []string{"strace", "-f", "--seccomp-bpf", "-e", "trace=connect,openat", "-o", "/dev/null", "--"}, dir: dir},
	}, workload...)
	if err != nil {
		return "", err
	}
	ratio := func(other []float64) []float64 {
		r := make([]float64, len(other))
		for i := range r {
			r[i] = times[1][i] / other[i]
		}
		return r
	}
	return fmt.Sprintf("%s | %.3f s | %.3f s | %.3f s | %s | %s | %s", name, median(times[0]), median(times[1]), median(times[2]),
		spread(ratio(times[0]), "%.2f"), spread(ratio(times[2]), "%.2f"), target), nil
}

// rounds times the workload under each contender, once unmeasured to warm the
// caches, then in every round, every other round in reverse order. The result
// has a list of seconds for each contender.
func (l *lab) rounds(contenders []contender, workload ...string) ([][]float64, error) {
	order := make([]int, len(contenders))
	for i := range order {
		order[i] = i
	}
	times := make([][]float64, len(contenders))
	for round := -1; round < l.cfg.rounds; round++ {
		for _, i := range order {
			c := contenders[i]
			argv := append(slices.Clone(c.prefix), workload...)
			begin := time.Now()
			if _, err := output(l.ctx, c.dir, argv...); err != nil {
				return nil, err
			}
			took := time.Since(begin).Seconds()
			// What is fast because it did not watch must not win.
			if c.record != "" {
				if err := os.Remove(c.record); err != nil {
					return nil, fmt.Errorf("%s left no record: %w", c.name, err)
				}
			}
			fmt.Fprintf(l.log, "round %d, %s: %.3f s\n", round+1, c.name, took)
			if round >= 0 {
				times[i] = append(times[i], took)
			}
		}
		slices.Reverse(order)
	}
	return times, nil
}

// output runs a command and gives what it printed; its standard error is in
// the error.
func output(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	// What the measured command thinks of CI is not at issue.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CI=") }), "LC_ALL=C")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %q in %q: %w\n%s%s", argv, dir, err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// spread is the median and, in parentheses, the least and the greatest value.
func spread(values []float64, format string) string {
	return fmt.Sprintf(format+" ("+format+"-"+format+")", median(values), slices.Min(values), slices.Max(values))
}
