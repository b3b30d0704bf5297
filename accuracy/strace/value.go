package strace

import (
	"net/netip"
	"strconv"
	"strings"
)

// String reads a string argument, `"\x2f\x74"`. ok is false for NULL, for an
// address strace could not read behind, and for a string cut short.
func String(arg string) (s string, ok bool) {
	if len(arg) < 2 || arg[0] != '"' || arg[len(arg)-1] != '"' {
		return "", false
	}
	return unhex(arg[1 : len(arg)-1])
}

// unhex decodes \xNN sequences. Anything else is not a string of Options.
func unhex(s string) (string, bool) {
	if len(s)%4 != 0 {
		return "", false
	}
	b := make([]byte, 0, len(s)/4)
	for ; s != ""; s = s[4:] {
		if s[:2] != `\x` {
			return "", false
		}
		n, err := strconv.ParseUint(s[2:4], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(n))
	}
	return string(b), true
}

// FD is a descriptor argument or result.
type FD struct {
	N       int    // the number; -100 for AT_FDCWD
	Path    string // what is behind it: an absolute path, "socket:[17]", "pipe:[3]"; "" if not told
	Deleted bool   // the path has been unlinked
}

// AtCwd is AT_FDCWD of openat(2).
const AtCwd = -100

// Descriptor reads `3<\x2f\x74>`, `AT_FDCWD<\x2f>`, `3<\x2f>(deleted)` or a
// bare number. ok is false if it is none of these.
func Descriptor(arg string) (fd FD, ok bool) {
	number, rest, decorated := strings.Cut(arg, "<")
	if number == "AT_FDCWD" {
		fd.N = AtCwd
	} else {
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil {
			return FD{}, false
		}
		fd.N = n
	}
	if !decorated {
		return fd, true
	}
	path, after, closed := strings.Cut(rest, ">")
	if !closed {
		return FD{}, false
	}
	if fd.Path, ok = unhex(path); !ok {
		return FD{}, false
	}
	fd.Deleted = after == "(deleted)"
	return fd, true
}

// Socket is the inode of the socket behind a descriptor: it stays the same
// however the descriptor is duplicated, inherited or handed on.
func (fd FD) Socket() (inode string, ok bool) {
	inode, ok = strings.CutPrefix(fd.Path, "socket:[")
	return strings.TrimSuffix(inode, "]"), ok
}

// Flags tells whether a flag word, `O_RDWR|O_CREAT`, has any of the names.
func Flags(arg string, names ...string) bool {
	for word := range strings.SplitSeq(arg, "|") {
		for _, name := range names {
			if word == name {
				return true
			}
		}
	}
	return false
}

// Members reads a structure, `{sa_family=AF_INET, sin_port=htons(53)}`, into
// its members, in order of writing. A member without a name has the name "".
func Members(arg string) ([]Member, bool) {
	list, ok := Elements(arg, '{')
	if !ok {
		return nil, false
	}
	members := make([]Member, 0, len(list))
	for _, field := range list {
		name, value, named := strings.Cut(field, "=")
		if !named || strings.ContainsAny(name, `("{[`) {
			name, value = "", field
		}
		members = append(members, Member{name, value})
	}
	return members, true
}

// Member is one field of a structure.
type Member struct{ Name, Value string }

// Elements reads what a bracket, '{' or '[', encloses.
func Elements(arg string, bracket byte) ([]string, bool) {
	if arg == "" || arg[0] != bracket {
		return nil, false
	}
	list, _, ok := fields(arg[1:])
	return list, ok
}

// Sockaddr is the far or near end named in a call.
type Sockaddr struct {
	Family   string         // "AF_INET", "AF_INET6", "AF_UNIX", "AF_UNSPEC", ...
	Inet     netip.AddrPort // of AF_INET and AF_INET6; IPv4-mapped addresses as IPv4, without zone
	Path     string         // of AF_UNIX: as given, without the final NUL; the name of an abstract one
	Abstract bool
}

// Address reads a socket address. ok is false for NULL and for what strace
// could not read.
func Address(arg string) (sa Sockaddr, ok bool) {
	members, ok := Members(arg)
	if !ok {
		return Sockaddr{}, false
	}
	var addr netip.Addr
	var port uint16
	for _, m := range members {
		value := m.Value
		switch {
		case m.Name == "sa_family":
			sa.Family = value
		case m.Name == "sin_port", m.Name == "sin6_port":
			n, err := strconv.ParseUint(inside(value, "htons("), 10, 16)
			if err != nil {
				return Sockaddr{}, false
			}
			port = uint16(n)
		case m.Name == "sin_addr", strings.HasPrefix(value, "inet_pton(AF_INET6, "):
			_, quoted, _ := strings.Cut(value, `"`)
			quoted, _, _ = strings.Cut(quoted, `"`)
			text, decoded := unhex(quoted)
			a, err := netip.ParseAddr(text)
			if !decoded || err != nil {
				return Sockaddr{}, false
			}
			addr = a.Unmap().WithZone("")
		case m.Name == "sun_path":
			value, sa.Abstract = strings.CutPrefix(value, "@")
			if sa.Path, ok = String(value); !ok {
				return Sockaddr{}, false
			}
		}
	}
	if addr.IsValid() {
		sa.Inet = netip.AddrPortFrom(addr, port)
	}
	return sa, sa.Family != ""
}

// inside strips `f(` and the closing bracket.
func inside(s, prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(s, prefix), ")")
}
