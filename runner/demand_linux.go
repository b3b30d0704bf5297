package runner

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/org/gate/egress"
	"github.com/org/gate/sandbox"
)

// demand opens doors while the tree runs: audit refuses nothing, and there is no
// ledger yet that could have named them.
type demand struct {
	far map[string]string // --door: endpoint -> far end
	box *sandbox.Box
	run *witnesses      // of the run, whose end closes the doors
	ctx context.Context // the life of the doors

	mu    sync.Mutex
	doors egress.DoorSet
	open  map[sandbox.Listen]bool
}

// to makes sure that an endpoint can be reached at an address of the namespace.
// A TCP server that does not answer gets no listener: to the tree the port is
// closed, and it may bind it itself.
func (d *demand) to(e egress.Endpoint, at netip.AddrPort) error {
	door := d.door(e)
	if err := door.Ready(); err != nil {
		return err
	}
	l := sandbox.Listen{Network: "tcp", Addr: at}
	if e.Transport == egress.UDP {
		l.Network = "udp"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[l] {
		return nil
	}
	f, err := d.box.Listen(l)
	if err != nil {
		return fmt.Errorf("door %s: %w", e, err)
	}
	defer f.Close() // a copy is used
	if l.Network == "udp" {
		conn, err := net.FilePacketConn(f)
		if err != nil {
			return fmt.Errorf("door %s: %w", e, err)
		}
		d.run.run(func() error { return door.ServeUDP(conn.(*net.UDPConn)) })
	} else {
		listener, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("door %s: %w", e, err)
		}
		d.run.run(func() error { return door.ServeTCP(listener.(*net.TCPListener)) })
	}
	d.open[l] = true
	return nil
}

// used are the doors that somebody came to. Address-selection probes, which send
// nothing, open some as well.
func (d *demand) used() egress.DoorSet {
	doors := maps.Clone(d.doors)
	maps.DeleteFunc(doors, func(_ string, door *egress.Door) bool {
		u := door.Use()
		return u.Connections == 0 && u.Refused == 0
	})
	return doors
}

// door is the one of an endpoint, made at the first attempt.
func (d *demand) door(e egress.Endpoint) *egress.Door {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := e.String()
	door := d.doors[name]
	if door == nil {
		far, ok := d.far[name]
		if !ok {
			far = net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
		}
		door = egress.OpenDoor(d.ctx, e, far)
		d.doors[name] = door
	}
	return door
}
