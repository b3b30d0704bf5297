package egress

import "strings"

// Hint says, for some endpoints, what usually stands behind an attempt and
// what to do instead; "" for the others.
func Hint(endpoint string) string {
	e, err := parse(endpoint)
	if err != nil {
		return ""
	}
	switch {
	case e.Transport == Unix && (strings.HasSuffix(e.Path, "/docker.sock") || strings.HasSuffix(e.Path, "/podman.sock")):
		return "Testcontainers needs a service and a door instead: run the service beside the suite and list its port in allow_net"
	case e.Transport == Vsock:
		return "no namespace holds AF_VSOCK, so gate refuses it"
	case e.Transport == Raw && e.Path == "io_uring":
		return "programs fall back to ordinary calls where io_uring is missing, as in most containers"
	case e.Transport == Raw && e.Path == "dns":
		return "a message to the name server that is no query"
	case e.ports == ephemeralPorts:
		return "a loopback port of the ephemeral range that no process of the run holds"
	}
	return ""
}
