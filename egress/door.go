package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTime  = 10 * time.Second
	readyTime = 10 * time.Second // how long a far end waits for its client
	flowIdle  = time.Minute      // of a UDP client without traffic
	maxFlows  = 1024             // connections or UDP clients of one door at a time
)

// DoorSet holds the endpoints that a ledger opens, by their spelling. Each
// goes through a listener in the namespace to a far end that the host can
// reach.
type DoorSet map[string]*Door

// OpenDoors makes a door for each endpoint. far gives the far end,
// "host:port", of those that lead elsewhere on this machine; it is an error
// for it to name an endpoint that is none. The doors end with ctx or Close.
func OpenDoors(ctx context.Context, endpoints []Endpoint, far map[string]string) (DoorSet, error) {
	doors := DoorSet{}
	for _, e := range endpoints {
		name, target := e.String(), net.JoinHostPort(e.Host, fmt.Sprint(e.Port))
		if other, ok := far[name]; ok {
			target = other
		}
		doors[name] = newDoor(ctx, e, target)
	}
	for name, target := range far {
		if doors[name] == nil {
			return nil, errors.Join(doors.Close(), fmt.Errorf("door %s: allow_net has no such endpoint; it opens %s", name, doors))
		}
		if _, port, err := net.SplitHostPort(target); err != nil || port == "" {
			return nil, errors.Join(doors.Close(), fmt.Errorf("door %s: far end %q is not host:port", name, target))
		}
	}
	return doors, nil
}

// OpenDoor makes one door to a far end, "host:port", of its own.
func OpenDoor(ctx context.Context, e Endpoint, far string) *Door { return newDoor(ctx, e, far) }

// String lists the doors, for messages.
func (ds DoorSet) String() string {
	if len(ds) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(ds)), ", ")
}

// Close ends all doors and waits for them.
func (ds DoorSet) Close() error {
	var errs []error
	for _, d := range ds {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// Use is what went through a door.
type Use struct {
	Endpoint    string
	Far         string
	Connections int64 // TCP connections, or distinct clients of a UDP door
	Refused     int64 // the far end was down, or there were too many at a time
	BytesOut    int64 // from the tree to the far end
	BytesIn     int64
}

// Use gives the use of all doors, sorted, those without any included.
func (ds DoorSet) Use() []Use {
	var all []Use
	for _, name := range slices.Sorted(maps.Keys(ds)) {
		all = append(all, ds[name].Use())
	}
	return all
}

// Door is one endpoint that the ledger opens.
type Door struct {
	endpoint Endpoint
	far      string
	ctx      context.Context // the life of the door
	cancel   context.CancelFunc
	dialer   net.Dialer
	slots    chan struct{} // one for each connection or UDP client

	connections, refused, out, in atomic.Int64

	mu      sync.Mutex
	ready   []*readyConn
	closed  bool
	running sync.WaitGroup
}

// readyConn is a far end that waits for its client.
type readyConn struct {
	*net.TCPConn
	expire *time.Timer
}

func newDoor(ctx context.Context, e Endpoint, far string) *Door {
	ctx, cancel := context.WithCancel(ctx)
	return &Door{
		endpoint: e, far: far, ctx: ctx, cancel: cancel,
		dialer: net.Dialer{Timeout: dialTime},
		slots:  make(chan struct{}, maxFlows),
	}
}

// Use gives what went through so far; the bytes of a TCP connection count
// when it has ended.
func (d *Door) Use() Use {
	return Use{
		Endpoint: d.endpoint.String(), Far: d.far,
		Connections: d.connections.Load(), Refused: d.refused.Load(),
		BytesOut: d.out.Load(), BytesIn: d.in.Load(),
	}
}

// Close ends the door: listeners, connections, attempts to dial. It waits for
// them.
func (d *Door) Close() error {
	d.cancel()
	d.mu.Lock()
	d.closed = true
	ready := d.ready
	d.ready = nil
	d.mu.Unlock()
	var errs []error
	for _, far := range ready {
		far.expire.Stop()
		errs = append(errs, far.Close())
	}
	d.running.Wait()
	return errors.Join(errs...)
}

// start runs f as a part of the door that Close waits for. It is false once
// the door is closed.
func (d *Door) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Go(f)
	return true
}

// Ready dials the far end of a TCP door and keeps the connection for the
// client that is about to be let in. A far end that is down is an error: the
// client is to be refused, as by a closed port. UDP doors are always ready.
func (d *Door) Ready() error {
	if d.endpoint.Transport == UDP {
		return nil
	}
	conn, err := d.dialTCP()
	if err != nil {
		d.refused.Add(1)
		return err
	}
	far := &readyConn{TCPConn: conn}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.ready) >= maxFlows {
		d.refused.Add(1)
		return errors.Join(fmt.Errorf("door %s: closed, or too many clients that never came", d.endpoint), conn.Close())
	}
	far.expire = time.AfterFunc(readyTime, func() { d.forget(far) })
	d.ready = append(d.ready, far)
	return nil
}

// forget closes a far end whose client has not come.
func (d *Door) forget(far *readyConn) {
	d.mu.Lock()
	i := slices.Index(d.ready, far)
	if i >= 0 {
		d.ready = slices.Delete(d.ready, i, i+1)
	}
	d.mu.Unlock()
	if i >= 0 {
		far.Close() // nothing was written that could be lost
	}
}

// take gives the far end for a client: one that is ready, or a new one.
func (d *Door) take() (*net.TCPConn, error) {
	d.mu.Lock()
	if len(d.ready) > 0 {
		far := d.ready[0]
		d.ready = slices.Delete(d.ready, 0, 1)
		d.mu.Unlock()
		far.expire.Stop()
		return far.TCPConn, nil
	}
	d.mu.Unlock()
	return d.dialTCP()
}

func (d *Door) dialTCP() (*net.TCPConn, error) {
	conn, err := d.dialer.DialContext(d.ctx, "tcp", d.far)
	if err != nil {
		return nil, fmt.Errorf("door %s: %w", d.endpoint, err)
	}
	return conn.(*net.TCPConn), nil
}

// ServeTCP lets clients in until the door is closed. It may run for several
// listeners (IPv4 and IPv6 of one name), which become the door's.
func (d *Door) ServeTCP(listener *net.TCPListener) error {
	stop := context.AfterFunc(d.ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()
	for {
		select {
		case d.slots <- struct{}{}:
		case <-d.ctx.Done():
			return nil
		}
		client, err := listener.AcceptTCP()
		if d.ctx.Err() != nil {
			if err == nil {
				client.Close()
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("door %s: %w", d.endpoint, err)
		}
		if !d.start(func() { defer d.release(); d.forward(client) }) {
			client.Close()
			return nil
		}
	}
}

func (d *Door) release() { <-d.slots }

// forward copies both ways until both sides have said their end, one breaks
// off, or the door is closed. Errors of a connection are passed on to the
// other side as a reset and are not the door's.
func (d *Door) forward(client *net.TCPConn) {
	defer client.Close()
	far, err := d.take()
	if err != nil {
		d.refused.Add(1)
		reset(client)
		return
	}
	defer far.Close()
	d.connections.Add(1)
	stop := context.AfterFunc(d.ctx, func() { reset(client); reset(far) })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { d.out.Add(copyHalf(far, client)) })
	both.Go(func() { d.in.Add(copyHalf(client, far)) })
	both.Wait()
}

// copyHalf copies one direction and passes its end on.
func copyHalf(to, from *net.TCPConn) int64 {
	n, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		reset(to)
		reset(from)
	}
	return n
}

// reset closes a connection so that the peer sees it broken off. It can only
// fail on one that is closed.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// flow is one UDP client and its socket on the host.
type flow struct {
	client netip.AddrPort
	conn   *net.UDPConn
	used   time.Time
}

// ServeUDP forwards datagrams until the door is closed: each client has a
// socket of its own on the host, and answers come from the door's socket,
// which must be bound to one address and becomes the door's.
func (d *Door) ServeUDP(conn *net.UDPConn) error {
	stop := context.AfterFunc(d.ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	var mu sync.Mutex // guards flows and their used
	flows := map[netip.AddrPort]*flow{}
	datagram := make([]byte, 65535)
	for {
		n, client, err := conn.ReadFromUDPAddrPort(datagram)
		if d.ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("door %s: %w", d.endpoint, err)
		}
		mu.Lock()
		f := flows[client]
		if f != nil {
			f.used = time.Now()
		}
		mu.Unlock()
		if f == nil {
			if f = d.newFlow(client); f == nil {
				d.refused.Add(1)
				continue
			}
			mu.Lock()
			flows[client] = f
			mu.Unlock()
			started := d.start(func() {
				defer d.release()
				defer f.conn.Close()
				d.answer(conn, f, func() bool {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(f.used) < flowIdle {
						return false
					}
					delete(flows, client)
					return true
				})
			})
			if !started {
				f.conn.Close()
				return nil
			}
		}
		d.out.Add(int64(n)) // before, since the answer may be faster than the count
		if _, err := f.conn.Write(datagram[:n]); err != nil {
			d.out.Add(int64(-n))
			d.refused.Add(1)
		}
	}
}

// newFlow opens the socket for a client; nil if there are too many or the far
// end cannot be resolved.
func (d *Door) newFlow(client netip.AddrPort) *flow {
	select {
	case d.slots <- struct{}{}:
	default:
		return nil
	}
	conn, err := d.dialer.DialContext(d.ctx, "udp", d.far)
	if err != nil {
		d.release()
		return nil
	}
	d.connections.Add(1)
	return &flow{client: client, conn: conn.(*net.UDPConn), used: time.Now()}
}

// answer carries datagrams back to a client until idle says that the flow has
// been given up, the socket breaks, or the door is closed.
func (d *Door) answer(door *net.UDPConn, f *flow, idle func() bool) {
	stop := context.AfterFunc(d.ctx, func() { f.conn.Close() })
	defer stop()
	datagram := make([]byte, 65535)
	for {
		if err := f.conn.SetReadDeadline(time.Now().Add(flowIdle)); err != nil {
			return
		}
		n, err := f.conn.Read(datagram)
		switch {
		case err == nil:
			d.in.Add(int64(n))
			if _, err := door.WriteToUDPAddrPort(datagram[:n], f.client); err != nil {
				d.in.Add(int64(-n))
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			if idle() {
				return
			}
		case errors.Is(err, net.ErrClosed):
			return
		default: // what an ICMP error left behind, ECONNREFUSED as a rule; reported once each
			d.refused.Add(1)
		}
	}
}
