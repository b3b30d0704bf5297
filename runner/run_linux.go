package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/org/gate/egress"
	"github.com/org/gate/ledger"
	"github.com/org/gate/rusage"
	"github.com/org/gate/sandbox"
	"github.com/org/gate/writeset"
)

const (
	sampleEvery = 100 * time.Millisecond
	statusEvery = 250 * time.Millisecond
	// After a request to stop: from the signal to SIGKILL.
	stopGrace   = 10 * time.Second
	budgetGrace = 2 * time.Second
)

// Run runs a command in the sandbox and records what it did. An error means
// that there is no record: the run could not be set up (sandbox.SetupError),
// the command not be started (sandbox.StartError), or gate itself failed.
func Run(ctx context.Context, cfg Config) (rec *ledger.Record, err error) {
	r, err := newRun(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, r.close()); err != nil {
			rec = nil
		}
	}()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r.record(ctx)
}

// run is one run under way.
type run struct {
	cfg     Config
	path    string // of the program
	env     []string
	envNote string
	ledger  *ledger.Ledger
	allow   egress.AllowList
	fold    []writeset.Glob
	places  []writeset.Place
	aliases map[string]string
	journal string // file of GATE_EGRESS_LOG
	tmp     string // gate's own files of this run
	locks   []*os.File

	out            output
	stdout, stderr *os.File // the command's

	h     *handler
	meter *rusage.Meter
	group *rusage.Cgroup // nil where none can be made
	names *egress.Names
	doors egress.DoorSet
	box   *sandbox.Box
	tier  sandbox.Tier

	files                  *sandbox.Closed // nil: the tree has the host's file system as it is
	private, layered, cold []string        // entries of allow_write that are Empty, Layer, and caches without anything in them
	home                   *os.File        // locked, see holdHome
	made                   []string        // what was made for it on the host, and goes again if nobody used it

	demand *demand          // audit alone
	listen []sandbox.Listen // sockets of the doors
	doorOf []string         // door that listen[i] belongs to

	before *writeset.Snapshot
	commit <-chan *ledger.Git
}

func newRun(cfg Config) (*run, error) {
	if err := canMake(cfg.Evidence); err != nil {
		return nil, err
	}
	if u := sudoUser(cfg.Env); u != nil {
		cfg.Env = withoutSudo(cfg.Env, u)
	}
	r := &run{cfg: cfg, ledger: cfg.Ledger, meter: &rusage.Meter{}, names: egress.NewNames()}
	if r.ledger == nil {
		r.ledger = &ledger.Ledger{}
	}
	var err error
	if r.path, err = lookPath(cfg.Command[0], cfg.Dir, cfg.Env); err != nil {
		return nil, err
	}
	if r.allow, err = egress.ParseAllowList(r.ledger.AllowNet); err != nil {
		return nil, fmt.Errorf("allow_net: %w", err)
	}
	if r.fold, err = writeset.ParseGlobs(r.ledger.Fold); err != nil {
		return nil, fmt.Errorf("fold: %w", err)
	}
	getenv := lookup(cfg.Env)
	r.places = writeset.DefaultPlaces(getenv)
	if r.ledger.HasAllowWrite {
		if r.places, err = writeset.Places(r.ledger.AllowWrite, getenv); err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(cfg.LedgerPath, "ledger"), err)
		}
	}
	if r.aliases, err = gitAliases(cfg.Root); err != nil {
		return nil, err
	}
	var lock *os.File
	if r.tmp, lock, err = scratch(cfg.Root); err != nil {
		return nil, err
	}
	r.locks = append(r.locks, lock)
	if err := r.handOver(r.tmp); err != nil {
		return nil, errors.Join(err, r.close())
	}
	// In a directory of its own, which is the one of gate's that stays writable.
	r.journal = filepath.Join(r.tmp, "journal", "egress.jsonl")
	if err := r.journalDir(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	if err := r.pipeOutput(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.env, r.envNote = suiteEnv(cfg, r.journal)
	return r, nil
}

// canMake refuses a tier of which gate can make no record.
func canMake(tier string) error {
	switch tier {
	case "", ledger.TierNamespace, ledger.TierNotify:
		return nil
	}
	return &sandbox.SetupError{
		Tier: sandbox.Tier(tier), Step: "choose the tier",
		Err: fmt.Errorf("this version cannot make such a record: want %s or %s", ledger.TierNamespace, ledger.TierNotify),
	}
}

// close ends what is left of the tree, and removes what the run needed
// outside the repository.
func (r *run) close() error {
	if r.box != nil {
		r.box.Close()
	}
	if r.group != nil {
		if err := r.group.Close(); err != nil {
			return fmt.Errorf("remove the run's cgroup: %w", err)
		}
	}
	if err := r.out.close(); err != nil {
		return fmt.Errorf("close the command's output: %w", err)
	}
	for _, lock := range r.locks {
		defer lock.Close() // nil where there are no locks; else empty, and held until all is removed
	}
	if err := errors.Join(r.restore(), os.RemoveAll(r.tmp)); err != nil {
		return fmt.Errorf("remove gate's own files of the run: %w", err)
	}
	return nil
}

// journalDir makes the directory of the in-process journal.
func (r *run) journalDir() error {
	dir := filepath.Dir(r.journal)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for the in-process journal: %w", err)
	}
	return r.handOver(dir)
}

// handOver gives what gate has made to the suite's user, if that is another.
func (r *run) handOver(path string) error {
	u := sudoUser(r.cfg.Env)
	if u == nil {
		return nil
	}
	if err := os.Chown(path, int(u.UID), int(u.GID)); err != nil {
		return fmt.Errorf("hand %s to the suite's user: %w", path, err)
	}
	return nil
}

// open takes the first snapshot and sets the sandbox up, both at once.
func (r *run) open(ctx context.Context) error {
	type snapshot struct {
		s   *writeset.Snapshot
		err error
	}
	taken := make(chan snapshot, 1)
	go func() {
		s, err := writeset.Take(ctx, r.cfg.Root)
		taken <- snapshot{s, err}
	}()
	r.commit = revision(ctx, r.cfg.Root)
	if os.Geteuid() == 0 {
		// A third witness of CPU, and no more: without it the two others stand.
		r.group, _ = rusage.NewCgroup()
	}
	why, boxErr := r.openBox(ctx)
	first := <-taken
	r.before = first.s
	err := errors.Join(boxErr, first.err)
	if err == nil {
		r.h, err = r.handler()
	}
	if err != nil {
		return err
	}
	if why != nil {
		r.h.findings.add("lower-tier", "no namespaces here, so packets are not witnessed: "+why.Error(), -1)
	}
	return nil
}

// openBox tries the tiers that are wanted, best first. A lower one than the
// best is taken only where nobody asked for a tier; why says what was amiss.
func (r *run) openBox(ctx context.Context) (why, err error) {
	if r.doors, err = egress.OpenDoors(ctx, egress.Doors(r.allow), r.ledgerDoors()); err != nil {
		return nil, err
	}
	tiers := []sandbox.Tier{sandbox.Namespace, sandbox.Notify}
	switch want := r.cfg.Evidence; {
	case want != "":
		tiers = []sandbox.Tier{sandbox.Tier(want)}
	case r.ledger.Evidence == ledger.TierNamespace:
		tiers = tiers[:1]
	}
	r.listenFor()
	if tiers[0] == sandbox.Namespace {
		if r.files, err = r.closed(); err != nil {
			return nil, err
		}
	}
	for _, tier := range tiers {
		if r.box, err = sandbox.Open(ctx, r.spec(tier)); err == nil {
			r.tier = tier
			return why, nil
		}
		var setup *sandbox.SetupError
		if !errors.As(err, &setup) {
			return nil, err
		}
		why = errors.Join(why, err)
	}
	return nil, why
}

// ledgerDoors are the far ends of --door that the ledger has an endpoint for; in
// audit there may be others, for doors that open on demand.
func (r *run) ledgerDoors() map[string]string {
	if r.cfg.Mode != ledger.Audit {
		return r.cfg.Doors
	}
	r.demand = &demand{far: r.cfg.Doors, doors: egress.DoorSet{}, open: map[sandbox.Listen]bool{}}
	far := map[string]string{}
	for _, e := range egress.Doors(r.allow) {
		if to, ok := r.cfg.Doors[e.String()]; ok {
			far[e.String()] = to
		}
	}
	return far
}

// listenFor plans a socket for each address of each door. The addresses of a
// name are gate's own, so that the door is reached by that name.
func (r *run) listenFor() {
	for _, e := range egress.Doors(r.allow) {
		addrs := []netip.Addr{}
		if a, ok := e.Addr(); ok {
			addrs = append(addrs, a)
		} else if v4, v6, ok := r.names.Allot(e.Host); ok {
			addrs = append(addrs, v4, v6)
		}
		network := "tcp"
		if e.Transport == egress.UDP {
			network = "udp"
		}
		for _, a := range addrs {
			r.listen = append(r.listen, sandbox.Listen{Network: network, Addr: netip.AddrPortFrom(a, e.Port)})
			r.doorOf = append(r.doorOf, e.String())
		}
	}
}

func (r *run) spec(tier sandbox.Tier) sandbox.Spec {
	s := sandbox.Spec{
		Tier: tier, Argv: r.cfg.Command, Path: r.path, Dir: r.cfg.Dir, Env: r.env,
		Stdin: r.cfg.Stdin, Stdout: r.stdout, Stderr: r.stderr,
		User: sudoUser(r.cfg.Env), Scratch: r.tmp,
	}
	if r.group != nil {
		s.CgroupFD = r.group.FD()
	}
	if r.cfg.LedgerPath != "" {
		s.ReadOnly = []string{r.cfg.LedgerPath}
	}
	if r.limited() {
		s.CPUSoft, s.CPUHard = rusage.Budget{Seconds: r.ledger.CPUBudget}.Rlimit()
	}
	if tier == sandbox.Namespace {
		s.Listen, s.Closed, s.FirstPID = r.listen, r.files, cmp.Or(r.cfg.FirstPID, 1000)
		for _, in := range egress.Filter() {
			s.PacketFilter = append(s.PacketFilter, sandbox.Instruction(in))
		}
	}
	return s
}

// limited tells whether the budget is enforced; audit only records.
func (r *run) limited() bool { return r.ledger.CPUBudget > 0 && r.cfg.Mode != ledger.Audit }

// handler makes the recorders, once it is known what stood there before.
func (r *run) handler() (*handler, error) {
	getenv := lookup(r.cfg.Env)
	home := resolved(getenv("HOME"))
	config := egress.Config{
		Mode: egress.Namespaced, Allow: r.allow, Audit: r.cfg.Mode == ledger.Audit,
		Places: egress.Places{
			Root: r.cfg.Root, Home: home,
			RuntimeDir: resolved(or(getenv("XDG_RUNTIME_DIR"), "/run/user/"+strconv.Itoa(os.Getuid()))),
			TmpDir:     resolved(or(getenv("TMPDIR"), "/tmp")),
		},
		Own:      []netip.Addr{sandbox.OwnIPv4, sandbox.OwnIPv6},
		Resolver: []netip.AddrPort{sandbox.ResolverAddr},
		Names:    r.names, Doors: r.doors,
	}
	config.EphemeralLo, config.EphemeralHi = 32768, 60999 // a new network namespace starts with these
	if r.demand != nil && r.tier == sandbox.Namespace {
		r.demand.box = r.box
		config.OnDemand = r.demand.to
	}
	if r.tier == sandbox.Notify {
		config.Mode, config.UDPWitness, config.Own, config.Resolver, config.Doors = egress.Shared, true, nil, nil, nil
		if lo, hi, err := ephemeralPorts(); err == nil {
			config.EphemeralLo, config.EphemeralHi = lo, hi
		}
		box := r.box
		config.Holder = func(t egress.Transport, to netip.AddrPort) egress.Holder {
			network := "tcp"
			if t == egress.UDP {
				network = "udp"
			}
			tree, foreign := box.Holder(network, to)
			switch {
			case tree:
				return egress.Tree
			case foreign:
				return egress.Stranger
			}
			return egress.Nobody
		}
	}
	if r.files != nil && r.tier == sandbox.Namespace {
		for _, m := range r.files.Mounts {
			if m.Kind == sandbox.Empty {
				config.Places.Private = append(config.Places.Private, m.Target)
			}
		}
	}
	protected := []string{}
	if r.cfg.LedgerPath != "" {
		protected = append(protected, relative(r.cfg.Root, r.cfg.LedgerPath))
	}
	h := &handler{
		net: egress.New(config),
		writes: writeset.New(writeset.Config{
			Root: r.cfg.Root, Aliases: r.aliases, Home: home, Before: r.before, Fold: r.fold, Allow: r.places, Protected: protected,
		}),
		cpu: r.meter, who: &actors{root: r.cfg.Root, first: map[*sandbox.Actor]int{}}, trace: newTrace(r.cfg.Trace, r.cfg.Root),
		redirected: map[inode]bool{},
	}
	r.inherited(h)
	if r.envNote != "" {
		h.findings.add("environment", r.envNote, -1)
	}
	if tool := replays(r.cfg.Command); tool != "" {
		h.findings.add("cached-results", tool+" may replay a result and execute nothing, which leaves no rows"+fresh(tool), -1)
	}
	if r.tier == sandbox.Notify {
		var err error
		if h.shared, err = newShared(r, h.packet); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// inherited looks at the descriptors that the command gets from outside. A
// file of the repository behind one of them is written without any open.
func (r *run) inherited(h *handler) {
	for i, f := range []*os.File{r.cfg.Stdin, r.cfg.Stdout, r.cfg.Stderr} {
		if f == nil {
			continue
		}
		name := []string{"stdin", "stdout", "stderr"}[i]
		flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
		if err != nil {
			continue // closed: nothing is inherited
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			continue
		}
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFSOCK && !r.out.replaces(f):
			h.findings.add("inherited-socket", name+" is a socket that was made outside; what goes through it is not recorded", -1)
		case st.Mode&unix.S_IFMT == unix.S_IFREG && flags&unix.O_ACCMODE != unix.O_RDONLY:
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			if err != nil {
				h.gaps.add("inherited-file", "readlink "+name+": "+err.Error(), -1)
				continue
			}
			if !strings.HasPrefix(path, r.cfg.Root+"/") {
				// The caller's own redirection, and no write of the suite's.
				h.redirected[inode{uint64(st.Dev), st.Ino}] = true
			} else {
				h.writes.Record(writeset.Event{
					Op: writeset.Modify, Call: name, Path: path,
					Before: writeset.State{Exists: true, Dev: uint64(st.Dev), Ino: st.Ino, Nlink: uint64(st.Nlink)},
				})
				h.findings.add("inherited-file", name+" is a file of the repository, "+relative(r.cfg.Root, path)+", and so it counts as written; redirect it to a place outside", -1)
			}
		}
	}
}

// ephemeralPorts is net.ipv4.ip_local_port_range of the host (ip(7)).
func ephemeralPorts() (lo, hi uint16, err error) {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscan(string(data), &lo, &hi)
	return lo, hi, err
}

// record starts the command and the witnesses, and puts together what they saw.
func (r *run) record(ctx context.Context) (*ledger.Record, error) {
	rec := &ledger.Record{
		Version: ledger.Version, Gate: r.cfg.Version, Command: r.cfg.Command, Dir: relative(r.cfg.Root, r.cfg.Dir),
		Evidence: string(r.tier), Mode: or(r.cfg.Mode, ledger.Enforce), CPUBudget: r.ledger.CPUBudget,
		Fold: append([]string{}, r.ledger.Fold...), Host: host(r.cfg.Env),
		Started: time.Now(),
	}
	w, err := r.watch(ctx)
	if err != nil {
		return nil, err
	}
	meterCtx, stopMeter := context.WithCancel(ctx)
	defer stopMeter()
	stop := &stopper{box: r.box, rec: rec}
	metered := make(chan error, 1)
	status := &status{run: r, rec: rec}
	go func() {
		metered <- r.meter.Watch(meterCtx, r.box.InitPID, sampleEvery, func(u rusage.Usage) {
			status.sample(u)
			if b := (rusage.Budget{Seconds: r.ledger.CPUBudget}); r.limited() && b.Over(u.User) {
				stop.kill(ledger.KilledCPU, syscall.SIGXCPU, budgetGrace)
			}
		})
	}()
	ended := make(chan struct{})
	var minders sync.WaitGroup
	minders.Add(1)
	go func() { defer minders.Done(); r.mind(ended, stop, status) }()

	defer catchBrokenPipe()()
	runErr := r.out.start()
	exit, err := r.box.Run(ctx, r.h)
	close(ended)
	runErr = errors.Join(runErr, err)
	if r.demand != nil {
		runErr = errors.Join(runErr, r.demand.doors.Close())
	}
	minders.Wait()
	stopMeter()
	meterErr := <-metered
	watchErr := w.stop()
	if r.demand != nil {
		maps.Copy(r.doors, r.demand.used()) // nobody reads them any more
	}
	rec.Ended = time.Now()
	r.box.Close()
	runErr = errors.Join(runErr, r.out.finish(rec.Interrupted != ""))
	if err := errors.Join(runErr, meterErr, watchErr, ctx.Err()); err != nil {
		return nil, err
	}
	return rec, r.assemble(ctx, rec, exit)
}

// host says where the run takes place, and as whom.
func host(env []string) ledger.Host {
	h := ledger.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, UID: os.Getuid()}
	if u := sudoUser(env); u != nil {
		h.UID = int(u.UID)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
		h.Name = unix.ByteSliceToString(u.Nodename[:])
	}
	return h
}
