package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Owner finds the process that holds the socket bound to a local port of the
// namespace, for what only a packet or the resolver saw. It walks the tables
// of sockets and descriptors, so it is for first sightings alone; the socket
// may be gone by then.
func (b *Box) Owner(network string, port uint16) (Caller, bool) {
	inodes := map[string]bool{}
	for _, table := range []string{network, network + "6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", b.InitPID, table))
		if err != nil {
			continue // no IPv6
		}
		for _, inode := range socketInodes(string(data), port) {
			inodes["socket:["+inode+"]"] = true
		}
	}
	if len(inodes) == 0 {
		return nil, false
	}
	for _, pid := range descendants(b.InitPID) {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		for _, fd := range fds {
			if text, err := os.Readlink(dir + "/" + fd.Name()); err == nil && inodes[text] {
				return &task{v: b.view, tid: pid, tgid: pid}, true
			}
		}
	}
	return nil, false
}

// socketInodes reads a table as proc_pid_net(5) shows it: the second column is
// the local address in hexadecimal, the tenth the inode.
func socketInodes(table string, port uint16) []string {
	want := fmt.Sprintf(":%04X", port)
	var out []string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 9 && strings.HasSuffix(f[1], want) {
			out = append(out, f[9])
		}
	}
	return out
}
