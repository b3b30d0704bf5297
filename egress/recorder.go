package egress

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Bounds of what is kept, whatever the tree does.
const (
	maxRows    = 10_000  // distinct endpoints, those included that may still turn out to be none
	maxBound   = 100_000 // Unix sockets bound by the tree
	maxVisible = 1_000
	maxProbes  = 10_000 // UDP connects that are remembered for the packet to come
)

// Config is what a Recorder has to know.
type Config struct {
	Mode   Mode
	Places Places
	Allow  AllowList
	Audit  bool // refuse nothing but Vsock, Raw and the probes of the C library

	// EphemeralLo to EphemeralHi are the ports that the kernel hands out
	// (net.ipv4.ip_local_port_range), both included.
	EphemeralLo, EphemeralHi uint16

	Own      []netip.Addr     // addresses of the namespace itself, loopback apart
	Resolver []netip.AddrPort // where the resolver listens: no rows, lookups are journalled by name
	Names    *Names           // nil: addresses have no names
	Doors    DoorSet          // Namespaced only

	// OnDemand opens a door to whatever an attempt in audit names, at the address
	// that is about to be tried. It may dial, and is called on another goroutine.
	// An error says that nobody is there. nil: doors open for the ledger alone.
	OnDemand func(e Endpoint, at netip.AddrPort) error

	// UDPWitness says that sockets which a UDP connect does not open are led to
	// one that reports their datagrams as packets; the connect alone is then no
	// attempt, as in Namespaced. Shared only.
	UDPWitness bool

	// Holder says, at the time of an attempt, who would get what is sent to a
	// loopback address; nil if nobody can tell. Shared only.
	Holder func(Transport, netip.AddrPort) Holder
}

// Holder is who holds the socket that an address leads to.
type Holder uint8

// The holders.
const (
	Nobody Holder = iota
	Tree
	Stranger
)

// Recorder takes attempts, binds, packets and lookups, answers the attempts,
// and reduces all to rows. It is safe for concurrent use.
type Recorder struct {
	config   Config
	own      map[netip.Addr]bool
	resolver map[netip.AddrPort]bool

	mu    sync.Mutex
	rows  map[Endpoint]*tally
	local map[port]*tally   // loopback ports nobody in the tree has bound so far
	paths map[string]*tally // Unix sockets that did not exist, likewise, by resolved path
	names map[string]*tally // looked up

	reached    map[string]bool // names with a row of their own
	boundPorts map[boundPort]bool
	boundPaths map[string]bool // Unix sockets that the tree ever bound, and whether what stands there is its own
	visible    map[string]int  // spelled path to actor
	probes     map[port]int    // actor of a UDP connect
	asker      int             // who spoke to the resolver last
	beyond     tally           // what there was no room for
	gaps       map[string]*Gap
}

// port is one port of an address. A probe is a UDP connect that may stand for
// either transport, since libraries sort TCP addresses with it. Where a
// stranger was found to listen, no bind of the tree explains the attempt.
type port struct {
	transport Transport
	addr      netip.AddrPort
	probe     bool
	stranger  bool
}

type boundPort struct {
	transport Transport
	port      uint16
}

// New gives a Recorder for one run.
func New(config Config) *Recorder {
	r := &Recorder{
		config: config, own: map[netip.Addr]bool{}, resolver: map[netip.AddrPort]bool{},
		rows: map[Endpoint]*tally{}, local: map[port]*tally{}, paths: map[string]*tally{}, names: map[string]*tally{},
		reached: map[string]bool{}, boundPorts: map[boundPort]bool{}, boundPaths: map[string]bool{},
		beyond: tally{actor: nobody}, visible: map[string]int{}, probes: map[port]int{}, asker: -1, gaps: map[string]*Gap{},
	}
	for _, a := range config.Own {
		r.own[canonicalAddr(a)] = true
	}
	for _, a := range config.Resolver {
		r.resolver[netip.AddrPortFrom(canonicalAddr(a.Addr()), a.Port())] = true
	}
	return r
}

// Error numbers of refused attempts.
const (
	refused      = int(syscall.ECONNREFUSED)
	unreachable  = int(syscall.ENETUNREACH)
	noSuchFamily = int(syscall.EAFNOSUPPORT)
)

// nobody is the actor of a row that no call is known for.
const nobody = -1

// Attempt records a call that names a far end and says what becomes of it.
//
// Namespaced: nothing leaves, so inet calls go on and the kernel refuses
// them; a door is dialled first. A UDP connect alone is no attempt (libraries
// sort addresses that way); the datagram that follows is one. A Unix socket
// that stands there, is not the tree's and is not named by a literal entry
// gets ECONNREFUSED.
//
// Shared: what no literal entry names gets ECONNREFUSED, loopback addresses
// that lead to no socket of the tree's included. A UDP connect to another host gets
// ENETUNREACH and, unless there is a UDPWitness, is a row if its port is not
// 0, which no service has.
//
// Audit lets all of these go on.
func (r *Recorder) Attempt(a Attempt) Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch a.Transport {
	case Unix:
		return r.unix(a)
	case Vsock:
		r.add(Endpoint{Transport: Vsock, Path: a.Label}, BySyscall, a.Call, a.Actor)
		return Decision{Errno: cmp.Or(a.Errno, noSuchFamily)}
	case Raw:
		return r.raw(a)
	case UDP:
		return r.inet(a, UDP)
	}
	return r.inet(a, TCP)
}

// inet judges TCP, UDP and what may be TCP.
func (r *Recorder) inet(a Attempt, transport Transport) Decision {
	if !a.Addr.IsValid() {
		return Decision{} // AF_UNSPEC, which undoes a connect
	}
	to := r.canonical(a.Addr)
	if r.resolver[to] {
		if a.Actor != nil {
			r.asker = a.Actor()
		}
		return Decision{}
	}
	e := r.endpoint(transport, to)
	probe := transport == UDP && a.Call == "connect"
	if r.config.Mode == Shared {
		return r.inetShared(a, e, to, probe)
	}
	door := r.config.Doors[e.String()]
	switch {
	case probe:
		r.remember(to, a.Actor)
	case door != nil || !to.Addr().IsLoopback():
		r.add(e, BySyscall, a.Call, a.Actor)
	default:
		r.addLocal(port{transport: a.Transport, addr: to}, BySyscall, a.Call, a.Actor)
	}
	if door == nil && r.onDemand(a.Transport, to, probe) {
		return Decision{Later: func() Decision {
			if err := r.config.OnDemand(e, to); err != nil {
				return Decision{Errno: refused}
			}
			return Decision{}
		}}
	}
	if door != nil && transport == TCP {
		return Decision{Later: func() Decision {
			if err := door.Ready(); err != nil {
				return Decision{Errno: refused} // counted by the door
			}
			return Decision{}
		}}
	}
	return Decision{}
}

// onDemand says that the way to an address is to be opened now: nobody in the
// tree holds it, and the rules make it a row.
func (r *Recorder) onDemand(t Transport, to netip.AddrPort, probe bool) bool {
	if r.config.OnDemand == nil || !r.config.Audit || to.Port() == 0 {
		return false
	}
	return !to.Addr().IsLoopback() || !r.isBound(port{transport: t, addr: to, probe: probe}) && !r.ephemeral(to.Port())
}

// inetShared judges an attempt where the kernel would really carry it out.
func (r *Recorder) inetShared(a Attempt, e Endpoint, to netip.AddrPort, probe bool) Decision {
	pass := r.config.Audit || r.config.Allow.opens(e)
	if !to.Addr().IsLoopback() {
		if probe && !pass && r.config.UDPWitness && !a.Unwitnessed {
			r.remember(to, a.Actor)
			return Decision{}
		}
		errno := refused
		if probe {
			errno = unreachable
		}
		if !probe || to.Port() != 0 {
			r.add(e, BySyscall, a.Call, a.Actor)
		}
		if pass {
			errno = 0
		}
		return Decision{Errno: errno}
	}
	key := port{transport: a.Transport, addr: to, probe: probe}
	holder := r.holder(key)
	if holder == Tree {
		return Decision{}
	}
	key.stranger = holder == Stranger
	if r.isBound(key) {
		if r.config.Holder == nil {
			return Decision{}
		}
	} else if r.config.Allow.opens(e) {
		r.add(e, BySyscall, a.Call, a.Actor) // by its own name, ephemeral or not
	} else if !probe || to.Port() != 0 {
		r.addLocal(key, BySyscall, a.Call, a.Actor)
	}
	if pass || probe && !key.stranger || (r.config.Holder == nil && r.ephemeral(to.Port())) {
		return Decision{}
	}
	return Decision{Errno: refused}
}

func (r *Recorder) raw(a Attempt) Decision {
	e := Endpoint{Transport: Raw, Path: a.Label}
	errno := a.Errno
	if a.Addr.IsValid() {
		to := r.canonical(a.Addr)
		if to.Addr().IsLoopback() {
			return Decision{Errno: errno}
		}
		e.Host = r.host(to.Addr())
		if r.config.Mode == Shared && !r.config.Audit && !r.config.Allow.opens(e) {
			errno = cmp.Or(errno, refused)
		}
	}
	r.add(e, BySyscall, a.Call, a.Actor)
	return Decision{Errno: errno}
}

// cLibrary says that a socket is one that the C library tries of itself in a
// lookup of hosts or users: nscd, systemd-resolved, and the modules systemd,
// sss and mdns of nsswitch.conf(5). They would answer from outside and hide the
// name, so they are refused, audit or not.
func cLibrary(path string) bool {
	switch path = canonicalPath(path); path {
	case "/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/avahi-daemon/socket":
		return true
	}
	return strings.HasPrefix(path, "/run/systemd/userdb/") || strings.HasPrefix(path, "/var/lib/sss/pipes/")
}

// autobound are the names that the kernel gives to abstract sockets (unix(7)).
var autobound = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^@[0-9a-f]{5}$") })

func (r *Recorder) unix(a Attempt) Decision {
	e := r.unixEndpoint(a.Path)
	abstract := strings.HasPrefix(a.Path, "@")
	switch {
	case a.Path == "@" || r.isOwn(a): // the kernel rejects an address without a name
		return Decision{}
	case abstract && autobound().MatchString(a.Path):
		// Never bound by name, so never seen as bound: in the namespace they
		// can only be the tree's. Elsewhere one row stands for them all.
		if r.config.Mode == Shared {
			r.add(Endpoint{Transport: Unix, Path: "@eph"}, BySyscall, a.Call, a.Actor)
		}
		return Decision{}
	case cLibrary(a.Path):
		if a.Exists {
			return Decision{Errno: refused}
		}
		return Decision{}
	}
	if a.Exists {
		// Somebody else's, whatever the tree binds there later on.
		r.add(e, BySyscall, a.Call, a.Actor)
	} else {
		find(r, r.paths, a.Path).see(BySyscall, a.Call, a.Actor)
	}
	reachable := a.Exists
	if abstract {
		reachable = r.config.Mode == Shared
	}
	if reachable && !r.config.Audit && !r.config.Allow.opens(e) {
		return Decision{Errno: refused}
	}
	return Decision{}
}

// Bind records an address that a socket of the tree takes. Attempts at it from
// before, when nobody was there, are no row either.
func (r *Recorder) Bind(b Bind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch b.Transport {
	case Unix:
		r.bindUnix(b)
	case Unknown, TCP, UDP:
		key := boundPort{b.Transport, b.Addr.Port()}
		if key.port == 0 || r.boundPorts[key] {
			return
		}
		r.boundPorts[key] = true
		for p := range r.local {
			if r.isBound(p) {
				delete(r.local, p)
			}
		}
	}
}

func (r *Recorder) bindUnix(b Bind) {
	if b.Path == "@" || b.Exists || r.boundPaths[b.Path] {
		return
	}
	if _, again := r.boundPaths[b.Path]; !again && len(r.boundPaths) >= maxBound {
		r.gap("bind-cap", fmt.Sprintf("more than %d Unix sockets were bound; later ones count as foreign", maxBound), 1)
		return
	}
	r.boundPaths[b.Path] = true
	delete(r.paths, b.Path)
	if strings.HasPrefix(b.Path, "@") {
		if r.config.Mode == Namespaced {
			return // abstract sockets belong to the network namespace
		}
	} else if r.config.Places.private(b.Path) {
		return
	}
	if len(r.visible) >= maxVisible {
		return // the first thousand make the point
	}
	actor := nobody
	if b.Actor != nil {
		actor = b.Actor()
	}
	r.visible[r.unixEndpoint(b.Path).String()] = actor
}

// isOwn says that an attempt leads to a socket of the tree, or to none where
// the tree has bound one: before or after, it is the same name.
func (r *Recorder) isOwn(a Attempt) bool {
	own, ever := r.boundPaths[a.Path]
	return own || ever && !a.Exists
}

// Renaming is what a call does to the names of files.
type Renaming uint8

// The kinds of renaming.
const (
	Moved    Renaming = iota + 1 // from is then at to
	Linked                       // from is at to as well
	Swapped                      // from and to have changed places
	Unlinked                     // from is gone
)

// Rename records that what stands at a path gets another: a socket of the
// tree stays its own there, and a foreign one does not become so by taking the
// place of one. dir says that a directory is moved, and all below it.
func (r *Recorder) Rename(how Renaming, from, to string, dir bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.boundPaths) == 0 {
		return
	}
	switch here := r.sockets(from, dir); how {
	case Moved:
		r.disown(from, here)
		r.disown(to, r.sockets(to, dir))
		r.give(to, here)
	case Linked:
		r.disown(to, r.sockets(to, false))
		r.give(to, here)
	case Swapped:
		there := r.sockets(to, dir)
		r.disown(from, here)
		r.disown(to, there)
		r.give(to, here)
		r.give(from, there)
	case Unlinked:
		r.disown(from, here)
	}
}

// sockets lists the tree's sockets at a path and, if it is a directory, below it,
// each as what follows the path.
func (r *Recorder) sockets(path string, dir bool) (rests []string) {
	if r.boundPaths[path] {
		rests = append(rests, "")
	}
	if !dir {
		return rests
	}
	for bound, own := range r.boundPaths {
		if rest, below := strings.CutPrefix(bound, path+"/"); below && own {
			rests = append(rests, "/"+rest)
		}
	}
	return rests
}

func (r *Recorder) disown(path string, rests []string) {
	for _, rest := range rests {
		r.boundPaths[path+rest] = false
	}
}

func (r *Recorder) give(path string, rests []string) {
	for _, rest := range rests {
		r.bindUnix(Bind{Transport: Unix, Path: path + rest})
	}
}

// Packet records a packet that was on its way out of the namespace.
func (r *Recorder) Packet(p Packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	src, dst := r.canonical(p.Src), r.canonical(p.Dst)
	local := dst.Addr().IsLoopback()
	if p.Refused && (r.rows[r.endpoint(UDP, dst)] != nil || !local && r.full()) {
		return // its datagram was seen
	}
	if p.Refused && !src.Addr().IsLoopback() {
		// The kernel reports to the sender of a datagram, and there was none.
		r.add(Endpoint{Transport: Raw, Path: ProtocolName(protoICMP), Host: r.host(src.Addr())}, ByPacket, "", nil)
		return
	}
	if p.Transport == Raw {
		if !local {
			r.add(Endpoint{Transport: Raw, Path: ProtocolName(p.Proto), Host: r.host(dst.Addr())}, ByPacket, "", nil)
		}
		return
	}
	if r.resolver[dst] {
		return
	}
	var actor func() int
	if who, ok := r.probes[port{transport: p.Transport, addr: dst}]; ok {
		actor = func() int { return who }
	}
	e := r.endpoint(p.Transport, dst)
	if local && r.config.Doors[e.String()] == nil {
		r.addLocal(port{transport: p.Transport, addr: dst}, ByPacket, "", actor)
		return
	}
	r.add(e, ByPacket, "", actor)
}

// Lookup records a question to the resolver. Where it names no actor, the
// process that spoke to the resolver last stands for it.
func (r *Recorder) Lookup(l Lookup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who := l.Actor
	if who == nil {
		asker := r.asker
		who = func() int { return asker }
	}
	switch l.Outcome {
	case Malformed:
		r.add(Endpoint{Transport: Raw, Path: "dns"}, ByResolver, "", who)
		return
	case Full:
		r.gap("name-cap", fmt.Sprintf("more than %d names were looked up; later ones got no address", maxNames), 1)
	}
	find(r, r.names, l.Name).see(ByResolver, "", who)
}

// InProcess records an endpoint of an in-process journal.
func (r *Recorder) InProcess(e Endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr, ok := e.Addr()
	switch {
	case ok && r.isLoopback(addr) && (e.Transport == TCP || e.Transport == UDP) && e.ports == onePort:
		r.addLocal(port{transport: e.Transport, addr: r.canonical(netip.AddrPortFrom(addr, e.Port))}, InProcess, "", nil)
	case e.Transport == DNS:
		find(r, r.names, e.Host).see(InProcess, "", nil)
	default:
		if ok {
			e.Host = r.host(addr)
		}
		r.add(e, InProcess, "", nil)
	}
}

// Gap records something that was not observed.
func (r *Recorder) Gap(g Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gap(g.Kind, g.Detail, g.Count)
}

func (r *Recorder) gap(kind, detail string, n int64) {
	if r.gaps[kind] == nil {
		r.gaps[kind] = &Gap{Kind: kind, Detail: detail}
	}
	r.gaps[kind].Count += n
}

// Live is how many rows there would be if the run ended now.
func (r *Recorder) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.reduce())
}

// Finish gives the rows. It is called when the tree is dead and ReadPackets
// and the resolver have returned.
func (r *Recorder) Finish() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := Result{Rows: r.reduce()}
	if n := r.beyond.count(); n > 0 {
		result.Gaps = append(result.Gaps, Gap{Kind: "net-cap", Detail: fmt.Sprintf("more than %d distinct endpoints; attempts at further ones were only counted", maxRows), Count: n})
	}
	for _, g := range r.gaps {
		result.Gaps = append(result.Gaps, *g)
	}
	slices.SortFunc(result.Gaps, func(a, b Gap) int { return cmp.Compare(a.Kind, b.Kind) })
	for endpoint, actor := range r.visible {
		result.Visible = append(result.Visible, Visible{endpoint, actor})
	}
	slices.SortFunc(result.Visible, func(a, b Visible) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return result
}

// reduce makes rows of everything that was seen and not explained.
func (r *Recorder) reduce() []Row {
	var rows []Row
	for e, t := range r.rows {
		row := t.row(e.String())
		row.Door = r.config.Doors[row.Endpoint] != nil
		rows = append(rows, row)
	}
	for p, t := range r.local {
		transport := p.transport
		if transport == Unknown {
			transport = TCP
		}
		e := r.endpoint(transport, p.addr)
		if r.ephemeral(e.Port) {
			e.Port, e.ports = 0, ephemeralPorts
			if addr := p.addr.Addr(); addr.Is4() {
				e.Host = "127.0.0.1"
			}
		}
		rows = append(rows, t.row(e.String()))
	}
	for path, t := range r.paths {
		rows = append(rows, t.row(r.unixEndpoint(path).String()))
	}
	for name, t := range r.names {
		if !r.reached[name] {
			rows = append(rows, t.row(Endpoint{Transport: DNS, Host: name}.String()))
		}
	}
	// A datagram to a door on loopback passes neither witness if its socket
	// was connected; the door itself has seen it.
	for name, d := range r.config.Doors {
		use := d.Use()
		if use.Connections == 0 || r.rows[d.endpoint] != nil {
			continue
		}
		actor := nobody
		addr, _ := d.endpoint.Addr()
		if who, ok := r.probes[port{transport: d.endpoint.Transport, addr: netip.AddrPortFrom(addr, d.endpoint.Port)}]; ok {
			actor = who
		}
		rows = append(rows, Row{Endpoint: name, Count: use.Connections, Witness: ByPacket, Door: true, Actor: actor})
	}
	return merge(rows)
}

// add counts an attempt at an endpoint that is a row in any case.
func (r *Recorder) add(e Endpoint, w Witness, call string, who func() int) {
	t := find(r, r.rows, e)
	t.see(w, call, who)
	if t != &r.beyond {
		r.reached[e.Host] = true
	}
}

// addLocal counts an attempt at a loopback port that is a row unless the tree
// binds it in the course of the run.
func (r *Recorder) addLocal(p port, w Witness, call string, who func() int) {
	if r.isBound(p) || (r.config.Mode == Namespaced && r.ephemeral(p.addr.Port())) {
		return
	}
	find(r, r.local, p).see(w, call, who)
}

// find gives the tally of a key; there is one for all that are too many.
func find[K comparable](r *Recorder, in map[K]*tally, key K) *tally {
	if t := in[key]; t != nil {
		return t
	}
	if r.full() {
		return &r.beyond
	}
	t := &tally{actor: nobody}
	in[key] = t
	return t
}

func (r *Recorder) full() bool {
	return len(r.rows)+len(r.local)+len(r.paths)+len(r.names) >= maxRows
}

// remember keeps who connected a UDP socket, for the datagram that may come.
// Past the bound only the attribution of further ones is lost.
func (r *Recorder) remember(to netip.AddrPort, who func() int) {
	key := port{transport: UDP, addr: to}
	if _, known := r.probes[key]; known || who == nil || len(r.probes) >= maxProbes {
		return
	}
	r.probes[key] = who()
}

// isLoopback says that an address reaches the tree itself.
func (r *Recorder) isLoopback(a netip.Addr) bool {
	a = canonicalAddr(a)
	return a.IsLoopback() || r.own[a]
}

// canonical maps the spellings of one far end to one; those of the namespace
// itself to loopback.
func (r *Recorder) canonical(ap netip.AddrPort) netip.AddrPort {
	a := canonicalAddr(ap.Addr())
	if r.own[a] {
		if a = netip.IPv6Loopback(); ap.Addr().Unmap().Is4() {
			a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
	}
	return netip.AddrPortFrom(a, ap.Port())
}

// host is the name or the address of a far end.
func (r *Recorder) host(a netip.Addr) string {
	if r.config.Names != nil {
		if name, ok := r.config.Names.NameOf(a); ok {
			return name
		}
	}
	return a.String()
}

func (r *Recorder) endpoint(t Transport, to netip.AddrPort) Endpoint {
	return Endpoint{Transport: t, Host: r.host(to.Addr()), Port: to.Port()}
}

func (r *Recorder) unixEndpoint(path string) Endpoint {
	if !strings.HasPrefix(path, "@") {
		path = r.config.Places.Spell(path)
	}
	return Endpoint{Transport: Unix, Path: path}
}

func (r *Recorder) ephemeral(port uint16) bool {
	return r.config.EphemeralLo <= port && port <= r.config.EphemeralHi && port != 0
}

// servers are the transports that a server on the port may have, first the
// one that the attempt itself has.
func (p port) servers() []Transport {
	switch {
	case p.probe:
		return []Transport{UDP, TCP}
	case p.transport == Unknown:
		return []Transport{TCP, UDP}
	}
	return []Transport{p.transport}
}

// isBound says that the tree has bound the port, at whatever address: a client
// tries both loopbacks for a server that listens on one. A bind of a transport
// that is not known stands for both.
func (r *Recorder) isBound(p port) bool {
	if p.stranger {
		return false
	}
	n := p.addr.Port()
	return r.boundPorts[boundPort{Unknown, n}] || slices.ContainsFunc(p.servers(), func(t Transport) bool {
		return r.boundPorts[boundPort{t, n}]
	})
}

// holder is who listens on a port now.
func (r *Recorder) holder(p port) Holder {
	if r.config.Holder == nil {
		return Nobody
	}
	for _, t := range p.servers() {
		if h := r.config.Holder(t, p.addr); h != Nobody {
			return h
		}
	}
	return Nobody
}
