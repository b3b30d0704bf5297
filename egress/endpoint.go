package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is one far end as a row and a ledger spell it, or a pattern for
// several. The zero value is none. Endpoints can be compared with ==.
//
//	host:port       TCP
//	host:port/udp   UDP
//	dns:name        a name that was looked up and never connected to
//	unix:/path      a socket in the file system (Places says how it is shortened)
//	unix:@name      an abstract socket
//	vsock:cid:port  a virtual machine or its host
//	raw:label       a way out that has no port: raw:icmp:8.8.8.8, raw:io_uring
//
// Addresses are spelled as RFC 5952 says, IPv6 in brackets, and an address
// that means loopback in disguise (0.0.0.0, [::], ::ffff:127.0.0.1,
// localhost) as loopback. Names are lower case without a final dot. A name or
// path with other characters stands in double quotes, with C escapes; what is
// quoted is never a pattern.
type Endpoint struct {
	Transport Transport
	// Host is an address without brackets or a name: TCP, UDP, DNS.
	Host string
	// Port is 0 for the ports ":eph" and ":*".
	Port uint16
	// Path is, unquoted, what follows the prefix: Unix, Vsock, Raw.
	Path string

	ports   ports
	pattern bool
}

// ports says which ports an Endpoint means.
type ports uint8

const (
	onePort        ports = iota
	ephemeralPorts       // ":eph": a loopback port of the ephemeral range
	anyPort              // ":*": a pattern
)

const example = "files.example.com:443"

// Parse reads an entry of a ledger. It accepts the canonical spelling alone;
// the error for any other names the canonical one.
func Parse(s string) (Endpoint, error) {
	e, err := parse(s)
	if err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q: %w", s, err)
	}
	if canonical := e.String(); canonical != s {
		return Endpoint{}, fmt.Errorf("endpoint %q: not the canonical spelling; write %s", s, canonical)
	}
	return e, nil
}

// String is the canonical spelling. It holds no control characters.
func (e Endpoint) String() string {
	switch e.Transport {
	case DNS:
		return "dns:" + e.host()
	case Unix:
		if e.pattern || (printable(e.Path) && !strings.ContainsAny(e.Path, `*?[\"`)) {
			return "unix:" + e.Path
		}
		return "unix:" + quote(e.Path)
	case Vsock:
		return "vsock:" + e.Path
	case Raw:
		if e.Host == "" {
			return "raw:" + e.Path
		}
		return "raw:" + e.Path + ":" + e.host()
	}
	port := strconv.Itoa(int(e.Port))
	switch e.ports {
	case ephemeralPorts:
		port = "eph"
	case anyPort:
		port = "*"
	}
	s := e.host() + ":" + port
	if e.Transport == UDP {
		s += "/udp"
	}
	return s
}

// host is Host as it is spelled: in brackets, plain or quoted.
func (e Endpoint) host() string {
	_, isAddr := e.Addr()
	switch {
	case isAddr && strings.Contains(e.Host, ":"), e.pattern && strings.Contains(e.Host, ":"):
		return "[" + e.Host + "]"
	case isAddr, e.pattern && strings.ContainsAny(e.Host, "*?"):
		return e.Host
	case !plainName(e.Host) || (e.Transport != DNS && e.Transport != Raw && isPrefix(e.Host)):
		return quote(e.Host)
	}
	return e.Host
}

// Addr is Host as an address, if it is one.
func (e Endpoint) Addr() (netip.Addr, bool) {
	if e.Transport == DNS {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(e.Host)
	return a, err == nil
}

// IsPattern says that e stands for more than one endpoint. A pattern allows
// attempts and opens no door.
func (e Endpoint) IsPattern() bool { return e.pattern }

// Broad says in half a sentence what is wide about a pattern, and "" for a
// literal endpoint.
func (e Endpoint) Broad() string {
	switch {
	case !e.pattern:
		return ""
	case e.Transport == Unix:
		return "allows every socket path that it matches"
	case strings.Trim(e.Host, "*?.") == "":
		return "allows every host"
	case strings.HasPrefix(e.Host, "*") && strings.Count(e.Host, ".") < 2 && !strings.Contains(e.Host, ":"):
		return "allows every name below a top-level domain"
	case e.ports == anyPort:
		return "allows every port"
	}
	return "allows every host that it matches"
}

// door says whether e, in an allow list, opens a door.
func (e Endpoint) door() bool {
	return (e.Transport == TCP || e.Transport == UDP) && !e.pattern && e.ports == onePort && e.Port != 0
}

// parse reads any spelling whose meaning is clear.
func parse(s string) (Endpoint, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "dns":
		return parseLookup(rest)
	case "unix":
		return parseUnix(rest)
	case "vsock":
		return parseVsock(rest)
	case "raw":
		return parseRaw(rest)
	}
	return parseInet(s)
}

// isPrefix says that a host of this name would be read as another kind.
func isPrefix(name string) bool {
	return slices.Contains([]string{"dns", "unix", "vsock", "raw"}, name)
}

func parseInet(s string) (Endpoint, error) {
	if strings.Contains(s, "://") {
		return Endpoint{}, fmt.Errorf("a URL is no endpoint; write host and port, e.g. %s", example)
	}
	e := Endpoint{Transport: TCP}
	body, udp := strings.CutSuffix(s, "/udp")
	if udp {
		e.Transport = UDP
	} else {
		body = strings.TrimSuffix(s, "/tcp")
	}
	host, port, quoted, err := splitHost(body)
	if err != nil {
		return Endpoint{}, err
	}
	if err := e.setHost(host, quoted); err != nil {
		return Endpoint{}, err
	}
	port, ok := strings.CutPrefix(port, ":")
	if !ok {
		return Endpoint{}, fmt.Errorf("it has no port; write it with one, e.g. %s:443", e.host())
	}
	return e, e.setPort(port)
}

// splitHost cuts s behind its host, which is quoted, in brackets, or ends at
// the last colon.
func splitHost(s string) (host, rest string, quoted bool, err error) {
	switch {
	case strings.HasPrefix(s, `"`):
		host, rest, err = unquote(s)
		return host, rest, true, err
	case strings.HasPrefix(s, "["):
		host, rest, ok := strings.Cut(s[1:], "]")
		if !ok || !strings.Contains(host, ":") {
			return "", "", false, errors.New("brackets hold an IPv6 address, e.g. [2001:db8::1]:443")
		}
		return host, rest, false, nil
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
		return "", "", false, fmt.Errorf("an IPv6 address needs brackets and a port, e.g. [%s]:443", a)
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		return s[:i], s[i:], false, nil
	}
	return s, "", false, nil
}

// setHost sets an address, a name or, if it is not quoted, a pattern.
func (e *Endpoint) setHost(host string, quoted bool) error {
	if a, err := netip.ParseAddr(host); err == nil && !quoted {
		e.Host = canonicalAddr(a).String()
		return nil
	}
	e.Host = canonicalName(host)
	e.pattern = !quoted && strings.ContainsAny(host, "*?")
	switch {
	case e.Host == "":
		return fmt.Errorf("it has no host, e.g. %s", example)
	case e.Host == "localhost" || strings.HasSuffix(e.Host, ".localhost"):
		e.Host = "127.0.0.1"
	case e.pattern && !patternName(e.Host), !e.pattern && !quoted && !plainName(e.Host):
		return fmt.Errorf("%q is neither an address nor a host name, e.g. %s", host, example)
	case e.pattern:
		return nil
	case emptyLabel(e.Host):
		return fmt.Errorf("%q has an empty label, e.g. %s", host, example)
	case likeAddress(e.Host):
		return fmt.Errorf("%q looks like an address and is none, e.g. 192.0.2.1:443", host)
	}
	return nil
}

func (e *Endpoint) setPort(port string) error {
	addr, _ := e.Addr()
	switch {
	case port == "*":
		e.ports, e.pattern = anyPort, true
		return nil
	case port == "eph" && addr.IsLoopback():
		e.ports = ephemeralPorts
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is no port; a port is a number up to 65535, e.g. %s:443", port, e.host())
	}
	e.Port = uint16(n)
	return nil
}

func parseLookup(s string) (Endpoint, error) {
	host, quoted := s, strings.HasPrefix(s, `"`)
	if quoted {
		var rest string
		var err error
		if host, rest, err = unquote(s); err != nil {
			return Endpoint{}, err
		} else if rest != "" {
			return Endpoint{}, fmt.Errorf("%q follows the name", rest)
		}
	}
	e := Endpoint{Transport: DNS, Host: canonicalName(host)}
	if e.Host == "" || (e.Host != "." && emptyLabel(e.Host)) {
		return Endpoint{}, errors.New("an empty name or label, e.g. dns:files.example.com")
	}
	e.pattern = !quoted && strings.ContainsAny(host, "*?")
	if e.pattern && !patternName(e.Host) {
		return Endpoint{}, fmt.Errorf("%q is no pattern for names, e.g. dns:*.example.com", host)
	}
	return e, nil
}

func parseUnix(s string) (Endpoint, error) {
	e := Endpoint{Transport: Unix, Path: s}
	if strings.HasPrefix(s, `"`) {
		var rest string
		var err error
		if e.Path, rest, err = unquote(s); err != nil {
			return Endpoint{}, err
		} else if rest != "" {
			return Endpoint{}, fmt.Errorf("%q follows the path", rest)
		}
	} else if strings.ContainsAny(s, "*?[") {
		e.pattern = true
		if !printable(s) || strings.ContainsAny(s, `\"`) {
			return Endpoint{}, errors.New("a pattern holds no backslash, quote or control character, e.g. unix:/tmp/x-*")
		}
		if _, err := glob(s, "[^/]"); err != nil {
			return Endpoint{}, err
		}
	}
	if strings.HasPrefix(e.Path, "@") {
		if e.Path == "@" {
			return Endpoint{}, errors.New("an abstract socket has a name, e.g. unix:@/tmp/.X11-unix/X0")
		}
		return e, nil
	}
	if e.Path == "" || strings.Contains(e.Path, "\x00") {
		return Endpoint{}, errors.New("it has no path, e.g. unix:/run/docker.sock")
	}
	if variable, _, _ := strings.Cut(e.Path, "/"); strings.HasPrefix(variable, "$") && !slices.Contains(placeNames, variable) {
		return Endpoint{}, fmt.Errorf("%s is not known here; a path begins with /, %s, or is relative to the repository",
			variable, strings.Join(placeNames, "/, "))
	}
	e.Path = canonicalPath(e.Path)
	if e.Path == ".." || strings.HasPrefix(e.Path, "../") {
		return Endpoint{}, errors.New("a relative path lies inside the repository; write one outside from / on")
	}
	return e, nil
}

func parseVsock(s string) (Endpoint, error) {
	cid, port, ok := strings.Cut(s, ":")
	for _, part := range []*string{&cid, &port} {
		if *part == "*" {
			continue
		}
		n, err := strconv.ParseUint(*part, 10, 32)
		if err != nil || !ok {
			return Endpoint{}, errors.New("a vsock endpoint is a context id and a port, each a number or *, e.g. vsock:2:1024")
		}
		*part = strconv.FormatUint(n, 10)
	}
	return Endpoint{Transport: Vsock, Path: cid + ":" + port}, nil
}

func parseRaw(s string) (Endpoint, error) {
	label, host, hasHost := strings.Cut(s, ":")
	e := Endpoint{Transport: Raw, Path: label}
	if label == "" || !plainName(label) {
		return Endpoint{}, errors.New("raw: is followed by a word of lower-case letters, e.g. raw:icmp:8.8.8.8 or raw:io_uring")
	}
	if !hasHost {
		return e, nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]" // clear enough; Parse then names the brackets
	}
	host, rest, quoted, err := splitHost(host)
	if err == nil && rest != "" {
		err = fmt.Errorf("%q follows the address; a raw endpoint has no port, e.g. raw:icmp:8.8.8.8", rest)
	}
	if err == nil {
		err = e.setHost(host, quoted)
	}
	if err == nil && e.pattern {
		err = errors.New("a raw endpoint is no pattern, e.g. raw:icmp:8.8.8.8")
	}
	return e, err
}

// canonicalAddr maps the spellings of one address to one: no IPv4-mapped
// IPv6, no zone, loopback for the unspecified address (connect(2) to it
// reaches the own host).
func canonicalAddr(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	switch {
	case a == netip.IPv4Unspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case a == netip.IPv6Unspecified():
		return netip.IPv6Loopback()
	}
	return a
}

// canonicalName is a host name in lower case (ASCII alone, as RFC 4343 has
// it) and without the final dot; the root stays ".".
func canonicalName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	if len(b) > 1 && b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	return string(b)
}

// plainName says that s needs no quotes as a name.
func plainName(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_') {
			return false
		}
	}
	return s != ""
}

// patternName says that s is a pattern for names or, with its colons, for
// IPv6 addresses.
func patternName(s string) bool {
	rest := strings.NewReplacer("*", "", "?", "", ":", "").Replace(s)
	return rest == "" || plainName(rest)
}

func emptyLabel(name string) bool {
	return slices.Contains(strings.Split(name, "."), "")
}

// likeAddress says that the last label of name is a number, which no
// top-level domain is (RFC 3696, section 2): an address, or one with a slip.
func likeAddress(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// canonicalPath cleans a path in ledger spelling. Two names have moved and
// left a link behind on most machines: /var/run is /run now, and the socket of
// the system log is systemd's where there is systemd. A relative path that
// would read as an abstract name or a variable gets a leading "./".
func canonicalPath(p string) string {
	dotted := strings.HasPrefix(p, "./")
	p = path.Clean(p)
	if rest, ok := below("/var/run", p); ok {
		p = path.Join("/run", rest)
	}
	if p == "/run/systemd/journal/dev-log" {
		return "/dev/log"
	}
	if dotted && (p[0] == '@' || p[0] == '$') {
		return "./" + p
	}
	return p
}
