// Package need is for tests that want something of the host: they skip where
// it is missing and say what they wanted and what they found. Where
// GATE_MUST_WORK=1, as in CI, nothing may be missing, and they fail.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// Everything reports whether nothing may be missing.
func Everything() bool { return os.Getenv("GATE_MUST_WORK") == "1" }

// That goes on with the test if ok.
func That(t testing.TB, ok bool, wanted, found string) {
	t.Helper()
	if ok {
		return
	}
	if Everything() {
		t.Fatalf("wanted %s, found %s", wanted, found)
	}
	t.Skipf("wanted %s, found %s", wanted, found)
}

// Success goes on with the test if an attempt at what is wanted had no error.
func Success(t testing.TB, wanted string, err error) {
	t.Helper()
	if err != nil {
		That(t, false, wanted, err.Error())
	}
}

// Program finds a program in PATH.
func Program(t testing.TB, name string) (path string) {
	t.Helper()
	path, err := exec.LookPath(name)
	Success(t, name, err)
	return path
}

// Root leaves a test to root's run of the tests: an ordinary user's skips it
// everywhere.
func Root(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, found an ordinary user")
	}
}
