package egress

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ReadPackets hands every packet of an AF_PACKET socket to sink until ctx is
// done and the socket is empty. The socket is of type SOCK_DGRAM, carries
// Filter and was non-blocking when the file was made of it; it stays the
// caller's. If the kernel had to drop packets, a gap says how many.
func ReadPackets(ctx context.Context, socket *os.File, sink func(Packet)) ([]Gap, error) {
	frame := make([]byte, snapLen)
	in := input{socket: socket, deadline: socket.SetReadDeadline, next: func() error {
		n, err := socket.Read(frame)
		if err != nil {
			return err
		}
		if p, ok := Decode(frame[:n]); ok {
			sink(p)
		}
		return nil
	}}
	if err := in.serve(ctx); err != nil {
		return nil, fmt.Errorf("read packets: %w", err)
	}
	return droppedPackets(socket)
}

// droppedPackets asks for the losses of the socket (packet(7), PACKET_STATISTICS).
func droppedPackets(socket *os.File) ([]Gap, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("read packet statistics: %w", err)
	}
	var stats *unix.TpacketStats
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		stats, sockErr = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if err := errors.Join(err, sockErr); err != nil {
		return nil, fmt.Errorf("getsockopt PACKET_STATISTICS: %w", err)
	}
	if stats.Drops == 0 {
		return nil, nil
	}
	return []Gap{{
		Kind: "packet-drops", Count: int64(stats.Drops),
		Detail: "packets came faster than they could be read; some endpoints may be missing",
	}}, nil
}
