package egress

// Instruction is one instruction of classic BPF, struct sock_filter of
// linux/filter.h.
type Instruction struct {
	Op     uint16
	Jt, Jf uint8
	K      uint32
}

// Operation codes, linux/bpf_common.h.
const (
	loadWord  = 0x20 // A = word at K
	loadHalf  = 0x28
	loadByte  = 0x30
	loadLen   = 0x80 // A = length of the packet
	byteAtX   = 0x50 // A = byte at X + K
	headerX   = 0xb1 // X = 4 * (low half of the byte at K): length of an IPv4 header
	subtractX = 0x1c // A -= X
	maskA     = 0x54 // A &= K
	ifEqual   = 0x15 // A == K
	ifAtLeast = 0x35 // A >= K
	ifBits    = 0x45 // A & K != 0
	returnK   = 0x06
)

const (
	packetType     = 0xfffff000 + 4 // SKF_AD_OFF + SKF_AD_PKTTYPE
	packetOutgoing = 4              // PACKET_OUTGOING, linux/if_packet.h
	snapLen        = 512            // headers, and those embedded in an ICMP message
)

// step is an instruction with names in place of distances: where to go if
// the condition holds and if not. "" is the next step.
type step struct {
	label   string
	op      uint16
	k       uint32
	yes, no string
}

// Filter is the program for an AF_PACKET socket of type SOCK_DGRAM: it takes
// the outgoing packets that Decode may have something to say about, and all
// of those whose headers it cannot follow. Loopback traffic other than
// connection requests and ICMP stays in the kernel.
//
// The socket must not receive before the filter is attached: create it with
// protocol 0, attach, then bind it to lo with ETH_P_ALL (packet(7); bound to
// one protocol, a socket sees no outgoing packets). The usual receive buffer
// holds about 250 packets; ask for megabytes (SO_RCVBUFFORCE, socket(7)).
func Filter() []Instruction {
	return assemble([]step{
		{op: loadWord, k: packetType}, // lo delivers every packet twice: sent, then received
		{op: ifEqual, k: packetOutgoing, no: "drop"},
		{op: loadByte, k: 0},
		{op: maskA, k: 0xf0},
		{op: ifEqual, k: 0x40, yes: "ip4"},
		{op: ifEqual, k: 0x60, yes: "ip6", no: "drop"},

		{label: "ip4", op: loadByte, k: 9},
		{op: ifEqual, k: protoTCP, yes: "tcp4"},
		{op: ifEqual, k: protoICMP, yes: "take"},
		{op: loadWord, k: 16},
		{op: maskA, k: 0xff000000},
		{op: ifEqual, k: 0x7f000000, yes: "drop", no: "take"},

		{label: "tcp4", op: loadHalf, k: 6},
		{op: ifBits, k: 0x3fff, yes: "take"}, // a fragment
		{op: headerX, k: 0},
		{op: loadLen},
		{op: subtractX},
		{op: ifAtLeast, k: 1 << 31, yes: "take"}, // less than nothing: a load beyond the end
		{op: ifAtLeast, k: 14, no: "take"},       // would drop the packet
		{op: byteAtX, k: 13},
		{op: maskA, k: 0x12}, // SYN, ACK
		{op: ifEqual, k: 0x02, yes: "take", no: "drop"},

		{label: "ip6", op: loadByte, k: 6},
		{op: ifEqual, k: protoTCP, yes: "tcp6"},
		{op: ifEqual, k: protoUDP, no: "take"}, // ICMPv6, extension headers and the rest
		{op: loadWord, k: 24},                  // the destination: ::1?
		{op: ifEqual, k: 0, no: "take"},
		{op: loadWord, k: 28},
		{op: ifEqual, k: 0, no: "take"},
		{op: loadWord, k: 32},
		{op: ifEqual, k: 0, no: "take"},
		{op: loadWord, k: 36},
		{op: ifEqual, k: 1, yes: "drop", no: "take"},

		{label: "tcp6", op: loadLen},
		{op: ifAtLeast, k: 54, no: "take"},
		{op: loadByte, k: 53},
		{op: maskA, k: 0x12},
		{op: ifEqual, k: 0x02, no: "drop"},

		{label: "take", op: returnK, k: snapLen},
		{label: "drop", op: returnK, k: 0},
	})
}

// assemble turns labels into distances. All jumps go forward.
func assemble(steps []step) []Instruction {
	at := map[string]int{}
	for i, s := range steps {
		if s.label != "" {
			at[s.label] = i
		}
	}
	distance := func(from int, label string) uint8 {
		if label == "" {
			return 0
		}
		return uint8(at[label] - from - 1)
	}
	var program []Instruction
	for i, s := range steps {
		program = append(program, Instruction{Op: s.op, Jt: distance(i, s.yes), Jf: distance(i, s.no), K: s.k})
	}
	return program
}
