package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// openDoor makes the door of one entry that leads to far, and closes it with
// the test.
func openDoor(t *testing.T, entry, far string) *Door {
	t.Helper()
	doors, err := OpenDoors(t.Context(), Doors(allow(t, entry)), map[string]string{entry: far})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := doors.Close(); err != nil {
			t.Error(err)
		}
	})
	return doors[entry]
}

// serveDoor lets clients in at an address on loopback.
func serveDoor(t *testing.T, d *Door) (address string) {
	t.Helper()
	listener := listenTCP(t)
	var served sync.WaitGroup
	served.Go(func() {
		if err := d.ServeTCP(listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(served.Wait)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// shout answers each connection with what it was sent in capitals, after the
// client has said its end.
func shout(t *testing.T) (address string) {
	t.Helper()
	listener := listenTCP(t)
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed below
			}
			served.Go(func() {
				defer conn.Close()
				text, err := io.ReadAll(conn)
				if err != nil {
					return // a client that broke off
				}
				if _, err := io.WriteString(conn, strings.ToUpper(string(text))); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); served.Wait() })
	return listener.Addr().String()
}

// say sends text, says its end and gives the answer.
func say(address, text string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func TestDoorTCP(t *testing.T) {
	far := shout(t)
	d := openDoor(t, "a.example:80", far)
	address := serveDoor(t, d)
	if err := d.Ready(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first finds its far end ready, the second has it dialled
		got, err := say(address, "hello")
		if err != nil || got != "HELLO" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if err := d.Ready(); err != nil { // nobody comes; Close ends it
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := Use{Endpoint: "a.example:80", Far: far, Connections: 2, BytesOut: 10, BytesIn: 10}
	if diff := cmp.Diff(want, d.Use()); diff != "" {
		t.Errorf("use, -want +got:\n%s", diff)
	}
	if err := d.Ready(); err == nil {
		t.Error("a closed door is ready")
	}
}

func TestDoorTCPFarEndDown(t *testing.T) {
	closed := listenTCP(t)
	closed.Close()
	d := openDoor(t, "a.example:80", closed.Addr().String())
	address := serveDoor(t, d)
	if err := d.Ready(); err == nil {
		t.Error("ready without a far end")
	}
	if got, err := say(address, "hello"); err == nil {
		t.Errorf("got %q, want a connection that breaks off", got)
	}
	if got := d.Use(); got.Refused != 2 || got.Connections != 0 {
		t.Errorf("use: got %+v", got)
	}
}

func TestDoorClosesConnections(t *testing.T) {
	d := openDoor(t, "a.example:80", shout(t))
	address := serveDoor(t, d)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a closed door", n)
	}
}

func TestDoorForgets(t *testing.T) {
	d := openDoor(t, "a.example:80", shout(t))
	if err := d.Ready(); err != nil {
		t.Fatal(err)
	}
	far := d.ready[0]
	d.forget(far)
	d.forget(far)
	if len(d.ready) != 0 {
		t.Errorf("got %d far ends, want none", len(d.ready))
	}
}

// echo answers each datagram with itself.
func echo(t *testing.T) (address string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		b := make([]byte, 100)
		for {
			n, client, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return // closed below
			}
			if _, err := conn.WriteToUDPAddrPort(b[:n], client); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(func() { conn.Close(); served.Wait() })
	return conn.LocalAddr().String()
}

func serveDoorUDP(t *testing.T, d *Door) (address string) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := d.ServeUDP(conn); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
	return conn.LocalAddr().String()
}

func TestDoorUDP(t *testing.T) {
	far := echo(t)
	d := openDoor(t, "127.0.0.1:8125/udp", far)
	if err := d.Ready(); err != nil {
		t.Errorf("a UDP door is always ready: %v", err)
	}
	address := serveDoorUDP(t, d)
	for _, text := range []string{"one", "second"} {
		client, err := net.Dial("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for range 2 {
			if _, err := io.WriteString(client, text); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 100)
			n, err := client.Read(b) // from the door's address alone, since connected
			if err != nil || string(b[:n]) != text {
				t.Fatalf("got %q, %v, want %q", b[:n], err, text)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := Use{Endpoint: "127.0.0.1:8125/udp", Far: far, Connections: 2, BytesOut: 18, BytesIn: 18}
	if diff := cmp.Diff(want, d.Use()); diff != "" {
		t.Errorf("use, -want +got:\n%s", diff)
	}
}

func TestDoorUDPFarEndDown(t *testing.T) {
	closed, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	d := openDoor(t, "127.0.0.1:8125/udp", closed.LocalAddr().String())
	client, err := net.Dial("udp", serveDoorUDP(t, d))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for d.Use().Refused == 0 { // the refusal comes back by ICMP, before or after the next datagram
		if _, err := io.WriteString(client, "x"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoorsErrors(t *testing.T) {
	endpoints := Doors(allow(t, "a.example:80", "b.example:80"))
	for _, tt := range []struct {
		name string
		far  map[string]string
		want string
	}{
		{"no such door", map[string]string{"c.example:80": "127.0.0.1:1"}, "it opens a.example:80, b.example:80"},
		{"no far end", map[string]string{"a.example:80": "127.0.0.1"}, "not host:port"},
		{"no port", map[string]string{"a.example:80": "127.0.0.1:"}, "not host:port"},
	} {
		_, err := OpenDoors(t.Context(), endpoints, tt.far)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q in it", tt.name, err, tt.want)
		}
	}
	if _, err := OpenDoors(t.Context(), nil, map[string]string{"a:1": "b:1"}); err == nil || !strings.Contains(err.Error(), "opens none") {
		t.Errorf("no doors: got %v", err)
	}
	doors, err := OpenDoors(t.Context(), Doors(allow(t, "[2001:db8::1]:80", "a.example:1")), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{{Endpoint: "[2001:db8::1]:80", Far: "[2001:db8::1]:80"}, {Endpoint: "a.example:1", Far: "a.example:1"}}
	if diff := cmp.Diff(want, doors.Use()); diff != "" {
		t.Errorf("use, -want +got:\n%s", diff)
	}
	if err := doors.Close(); err != nil {
		t.Error(err)
	}
}

func TestDoorEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	doors, err := OpenDoors(ctx, Doors(allow(t, "a.example:80")), map[string]string{"a.example:80": shout(t)})
	if err != nil {
		t.Fatal(err)
	}
	d := doors["a.example:80"]
	serveDoor(t, d)
	cancel()
	if err := d.Ready(); !errors.Is(err, context.Canceled) {
		t.Errorf("ready: got %v, want canceled", err)
	}
}
