package sandbox

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Owner finds the process that holds the socket with a local address, for
// what only a packet or the resolver saw. It walks the tables of sockets and
// descriptors, so it is for first sightings alone; the socket may be gone by
// then.
func (b *Box) Owner(network string, local netip.AddrPort) (Caller, bool) {
	var who Caller
	b.holders(best(b.sockets(network), local), func(tid int) bool {
		who = &task{v: b.view, tid: tid}
		return true
	})
	return who, who != nil
}

// Holder tells who gets what is sent to an address of this host: a socket of
// the tree, or one of somebody else's. Neither: nobody listens there. Where
// several sockets share the address (SO_REUSEPORT) and one of them is
// somebody else's, so is the address.
func (b *Box) Holder(network string, to netip.AddrPort) (tree, foreign bool) {
	listening := b.sockets(network)
	if network == "tcp" {
		const tcpListen = 0x0A // include/net/tcp_states.h
		listening = selected(listening, func(e socketEntry) bool { return e.state == tcpListen })
	}
	inodes := best(listening, to)
	if len(inodes) == 0 {
		return false, false
	}
	b.holders(inodes, func(int) bool { return len(inodes) == 0 })
	return len(inodes) == 0, len(inodes) > 0
}

// holders calls found for each task of the tree that holds one of the sockets,
// once for each socket, which it takes out of the set. It ends when found says
// so. Threads are looked at last: nearly all share the table of their process.
func (b *Box) holders(inodes map[string]bool, found func(tid int) (enough bool)) {
	if len(inodes) == 0 {
		return
	}
	tree := descendants(b.InitPID)
	for _, pid := range tree {
		if inTable(pid, inodes, found) {
			return
		}
	}
	for _, pid := range tree {
		threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
		if err != nil {
			continue // it has ended
		}
		for _, t := range threads {
			if tid, err := strconv.Atoi(t.Name()); err == nil && tid != pid && inTable(tid, inodes, found) {
				return
			}
		}
	}
}

// inTable looks through the descriptors of one task.
func inTable(tid int, inodes map[string]bool, found func(tid int) bool) bool {
	dir := "/proc/" + strconv.Itoa(tid) + "/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended
	}
	for _, fd := range fds {
		text, err := os.Readlink(dir + "/" + fd.Name())
		if err != nil || !inodes[text] {
			continue
		}
		delete(inodes, text)
		if found(tid) {
			return true
		}
	}
	return false
}

// socketEntry is a line of a table of sockets.
type socketEntry struct {
	local netip.AddrPort
	six   bool // of the table of IPv6
	state uint64
	inode string
}

// sockets reads both tables of a transport; there may be no IPv6.
func (b *Box) sockets(network string) []socketEntry {
	var out []socketEntry
	for _, six := range []bool{false, true} {
		name := fmt.Sprintf("/proc/%d/net/%s", b.InitPID, network)
		if six {
			name += "6"
		}
		if data, err := os.ReadFile(name); err == nil {
			out = append(out, socketEntries(string(data), six)...)
		}
	}
	return out
}

// socketEntries reads a table as proc_pid_net(5) shows it: the second column
// is the local address, the fourth the state, the tenth the inode, which is 0
// for a socket that no process has any more.
func socketEntries(table string, six bool) []socketEntry {
	var out []socketEntry
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[9] == "0" {
			continue
		}
		local, ok := hexAddress(f[1])
		state, err := strconv.ParseUint(f[3], 16, 8)
		if ok && err == nil {
			out = append(out, socketEntry{local, six, state, "socket:[" + f[9] + "]"})
		}
	}
	return out
}

// hexAddress reads "0100007F:1538": words of 32 bits in the byte order of the
// machine, and the port.
func hexAddress(text string) (netip.AddrPort, bool) {
	addr, port, _ := strings.Cut(text, ":")
	b, err1 := hex.DecodeString(addr)
	n, err2 := strconv.ParseUint(port, 16, 16)
	if err1 != nil || err2 != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}

func selected(entries []socketEntry, want func(socketEntry) bool) []socketEntry {
	var out []socketEntry
	for _, e := range entries {
		if want(e) {
			out = append(out, e)
		}
	}
	return out
}

// best are the sockets that the kernel would choose from for an address, by
// what /proc calls them.
func best(entries []socketEntry, to netip.AddrPort) map[string]bool {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	top, out := 0, map[string]bool{}
	for _, e := range entries {
		rank := e.rank(to)
		if rank > top {
			top = rank
			clear(out)
		}
		if rank == top && rank > 0 {
			out[e.inode] = true
		}
	}
	return out
}

// rank orders sockets as the kernel does (net/ipv4/inet_hashtables.c,
// __inet_lookup_listener; net/ipv4/udp.c, compute_score): the very address
// before any address, and for IPv4 a socket of that family before one of both.
// 0: not reached by it. That a socket of :: may be of IPv6 alone no table
// shows; it then stands in nobody's way.
func (e *socketEntry) rank(to netip.AddrPort) int {
	a := e.local.Addr()
	switch {
	case e.local.Port() != to.Port():
		return 0
	case a == to.Addr() && !e.six:
		return 4
	case a == to.Addr():
		return 3
	case !a.IsUnspecified() || to.Addr().Is6() && !e.six:
		return 0
	case !e.six:
		return 2
	}
	return 1
}
