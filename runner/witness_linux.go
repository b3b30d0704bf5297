package runner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/org/gate/egress"
	"github.com/org/gate/sandbox"
)

// witnesses are the readers of what the namespace's own sockets see.
type witnesses struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	errs   []error
	doors  egress.DoorSet
}

func (w *witnesses) run(f func() error) {
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		if err := f(); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.errs = append(w.errs, err)
		}
	}()
}

// stop ends the readers once their sockets are empty.
func (w *witnesses) stop() error {
	w.cancel()
	err := w.doors.Close()
	w.done.Wait()
	return errors.Join(append(w.errs, err)...)
}

func (r *run) watch(ctx context.Context) (*witnesses, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &witnesses{cancel: cancel, doors: r.doors}
	if r.h.shared != nil {
		r.h.shared.serve(ctx, w)
		return w, nil
	}
	if r.demand != nil {
		r.demand.run, r.demand.ctx = w, ctx
	}
	fail := func(what string, err error) (*witnesses, error) {
		cancel()
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	udp, err := net.FilePacketConn(r.box.ResolverUDP)
	if err != nil {
		return fail("resolver's UDP socket", err)
	}
	tcp, err := net.FileListener(r.box.ResolverTCP)
	if err != nil {
		return fail("resolver's TCP socket", err)
	}
	resolver := egress.NewResolver(r.names, sandbox.HostName, []netip.Addr{sandbox.OwnIPv4, sandbox.OwnIPv6}, r.lookup)
	w.run(func() error { return resolver.ServeUDP(ctx, udp.(*net.UDPConn)) })
	w.run(func() error { return resolver.ServeTCP(ctx, tcp.(*net.TCPListener)) })
	w.run(func() error {
		gaps, err := egress.ReadPackets(ctx, r.box.Packets, r.h.packet)
		for _, g := range gaps {
			r.h.net.Gap(g)
		}
		return err
	})
	for i, f := range r.box.Listeners {
		door := r.doors[r.doorOf[i]]
		if r.listen[i].Network == "udp" {
			conn, err := net.FilePacketConn(f)
			if err != nil {
				return fail("socket of door "+r.doorOf[i], err)
			}
			w.run(func() error { return door.ServeUDP(conn.(*net.UDPConn)) })
			continue
		}
		l, err := net.FileListener(f)
		if err != nil {
			return fail("socket of door "+r.doorOf[i], err)
		}
		w.run(func() error { return door.ServeTCP(l.(*net.TCPListener)) })
	}
	return w, nil
}

// lookup journals a question to the resolver. Who asked is found by the address
// that the question came from: that process waits for the answer right now.
func (r *run) lookup(l egress.Lookup) {
	r.h.trace.lookup(l)
	if l.Actor == nil {
		l.Actor = func() int { return r.asker(l.Client) }
	}
	r.h.net.Lookup(l)
}

func (r *run) asker(client netip.AddrPort) int {
	for _, network := range []string{"udp", "tcp"} {
		if who, ok := r.box.Owner(network, client); ok {
			return r.h.who.add(who.Actor())
		}
	}
	return -1
}
