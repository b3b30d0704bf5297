//go:build !linux

package egress

import (
	"context"
	"errors"
	"os"
)

// ReadPackets needs AF_PACKET, which only Linux has.
func ReadPackets(context.Context, *os.File, func(Packet)) ([]Gap, error) {
	return nil, errors.New("read packets: only Linux has packet sockets")
}
