package strace

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestString(t *testing.T) {
	tests := []struct {
		name, in, want string
		ok             bool
	}{
		{"bytes", `"\x2f\xff\x0a"`, "/\xff\n", true},
		{"empty", `""`, "", true},
		{"cut short", `"\x2f"...`, "", false},
		{"NULL", "NULL", "", false},
		{"unreadable", "0x7f001234", "", false},
		{"not hexadecimal", `"/tmp"`, "", false},
		{"half a byte", `"\x2"`, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := String(tt.in); got != tt.want || ok != tt.ok {
				t.Errorf("String(%s) = %q, %v; want %q, %v", tt.in, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestDescriptor(t *testing.T) {
	tests := []struct {
		name, in string
		want     FD
		ok       bool
	}{
		{"file", `3</r/a>`, FD{N: 3, Path: "/r/a"}, true},
		{"deleted", `3</r/a>(deleted)`, FD{N: 3, Path: "/r/a", Deleted: true}, true},
		{"working directory", `AT_FDCWD</r>`, FD{N: AtCwd, Path: "/r"}, true},
		{"bare", `4`, FD{N: 4}, true},
		{"negative", `-1`, FD{N: -1}, true},
		{"none", `NULL`, FD{}, false},
		{"open decoration", `3<`, FD{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Descriptor(coded(tt.in))
			if ok != tt.ok {
				t.Fatalf("Descriptor(%s): got ok %v, want %v", tt.in, ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got); ok && diff != "" {
				t.Errorf("Descriptor(%s) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	fd, _ := Descriptor(coded(`6<socket:[40051]>`))
	if inode, ok := fd.Socket(); inode != "40051" || !ok {
		t.Errorf("Socket() = %q, %v; want 40051, true", inode, ok)
	}
	fd, _ = Descriptor(coded(`6</r/socket:[1]>`))
	if inode, ok := fd.Socket(); ok {
		t.Errorf("Socket() of a file = %q, true; want false", inode)
	}
}

func TestAddress(t *testing.T) {
	tests := []struct {
		name, in string
		want     Sockaddr
		ok       bool
	}{
		{"IPv4", `{sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}`,
			Sockaddr{Family: "AF_INET", Inet: netip.MustParseAddrPort("192.0.2.1:53")}, true},
		{"IPv6", `{sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "2001:db8::1", &sin6_addr), sin6_scope_id=0}`,
			Sockaddr{Family: "AF_INET6", Inet: netip.MustParseAddrPort("[2001:db8::1]:443")}, true},
		{"IPv4 in IPv6", `{sa_family=AF_INET6, sin6_port=htons(1), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::ffff:127.0.0.1", &sin6_addr), sin6_scope_id=0}`,
			Sockaddr{Family: "AF_INET6", Inet: netip.MustParseAddrPort("127.0.0.1:1")}, true},
		{"unix path", `{sa_family=AF_UNIX, sun_path="/run/a b"}`, Sockaddr{Family: "AF_UNIX", Path: "/run/a b"}, true},
		{"abstract", `{sa_family=AF_UNIX, sun_path=@"x"}`, Sockaddr{Family: "AF_UNIX", Path: "x", Abstract: true}, true},
		{"unnamed", `{sa_family=AF_UNIX}`, Sockaddr{Family: "AF_UNIX"}, true},
		{"none", `{sa_family=AF_UNSPEC, sa_data=""}`, Sockaddr{Family: "AF_UNSPEC"}, true},
		{"NULL", `NULL`, Sockaddr{}, false},
		{"unreadable", `0x7ffe`, Sockaddr{}, false},
		{"no address", `{sa_family=AF_INET, sin_port=htons(1), sin_addr=inet_addr("x")}`, Sockaddr{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Address(coded(tt.in))
			if ok != tt.ok {
				t.Fatalf("Address(%s): got ok %v, want %v", tt.in, ok, tt.ok)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); ok && diff != "" {
				t.Errorf("Address(%s) (-want +got):\n%s", tt.in, diff)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	if !Flags("O_RDONLY|O_CREAT|O_CLOEXEC", "O_WRONLY", "O_CREAT") {
		t.Error("O_CREAT not found")
	}
	if Flags("O_RDWR_NOT|O_CREATE", "O_RDWR", "O_CREAT") {
		t.Error("part of a word taken for the word")
	}
}
