package sandbox

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

// A socket that is made just before the connect to it goes on.
func TestListenOnDemand(t *testing.T) {
	for _, addr := range []string{"198.18.5.5:4242", "[2001:db8::7]:443", "127.0.0.1:5432"} {
		t.Run(addr, func(t *testing.T) {
			to := netip.MustParseAddrPort(addr)
			exe := actor("dial", "tcp", addr)
			var box *Box
			served := make(chan error, 1)
			serve := func() error {
				f, err := box.Listen(Listen{"tcp", to})
				if err != nil {
					return err
				}
				l, err := net.FileListener(f)
				if err := errors.Join(err, f.Close()); err != nil {
					return err
				}
				go func() {
					conn, err := l.Accept()
					if err == nil {
						_, err = conn.Write([]byte("on demand"))
						err = errors.Join(err, conn.Close(), l.Close())
					}
					served <- err
				}()
				return nil
			}
			rec := &recorder{answer: func(*NetCall) Answer {
				return Answer{Later: func() Answer {
					if err := serve(); err != nil {
						served <- err
					}
					return Answer{}
				}}
			}}
			var stdout func() string
			box, stdout = openBox(t, Spec{Tier: Namespace, Argv: exe, Path: exe[0]})
			if _, err := box.Run(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Fatal(err)
			}
			if got := stdout(); got != "on demand\n" {
				t.Errorf("got %q", got)
			}
			if _, err := box.Listen(Listen{"tcp", to}); !errors.Is(err, errEnded) {
				t.Errorf("after the end: got %v, want %v", err, errEnded)
			}
		})
	}
}
