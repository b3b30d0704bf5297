package sandbox

import "fmt"

// Instruction is one of classic BPF, laid out as struct sock_filter
// (linux/filter.h).
type Instruction struct {
	Op     uint16
	Jt, Jf uint8
	K      uint32
}

// Opcodes and return values; linux/filter.h, linux/seccomp.h, linux/audit.h.
const (
	bpfLoad = 0x20 // BPF_LD | BPF_W | BPF_ABS
	bpfJeq  = 0x15 // BPF_JMP | BPF_JEQ | BPF_K
	bpfJge  = 0x35 // BPF_JMP | BPF_JGE | BPF_K
	bpfJset = 0x45 // BPF_JMP | BPF_JSET | BPF_K
	bpfRet  = 0x06 // BPF_RET | BPF_K

	retAllow  = 0x7fff0000
	retNotify = 0x7fc00000
	retErrno  = 0x00050000

	auditArchAMD64 = 0xc000003e
	auditArchARM64 = 0xc00000b7

	// x32 calls share the audit architecture of amd64 and set this bit.
	x32Bit = 0x40000000
)

// Offsets in struct seccomp_data.
const (
	offNr   = 0
	offArch = 4
)

func offArgLow(i int8) uint32  { return 16 + 8*uint32(i) }
func offArgHigh(i int8) uint32 { return offArgLow(i) + 4 }

// auditArch is the AUDIT_ARCH_ value of an architecture in GOARCH's naming.
func auditArch(arch string) (uint32, error) {
	switch arch {
	case "amd64":
		return auditArchAMD64, nil
	case "arm64":
		return auditArchARM64, nil
	}
	return 0, fmt.Errorf("no system call table for %s (there is one for amd64 and arm64)", arch)
}

// Filter builds the seccomp program for an architecture ("amd64", "arm64")
// and a tier from the table of calls. What is not in the table is allowed;
// calls of a foreign architecture (i386, x32, arm) are handed to the
// supervisor, which refuses them: their numbers and arguments mean something
// else.
//
// Every row is a self-contained block, since a conditional jump of classic
// BPF reaches 255 instructions at most. A call that is not in the table is
// decided by its number alone, so the kernel (5.11 and later) caches it and
// does not run the program at all.
func Filter(arch string, tier Tier) ([]Instruction, error) {
	audit, err := auditArch(arch)
	if err != nil {
		return nil, err
	}
	p := []Instruction{
		{Op: bpfLoad, K: offArch},
		{Op: bpfJeq, Jt: 1, K: audit},
		{Op: bpfRet, K: retNotify},
		{Op: bpfLoad, K: offNr},
	}
	if arch == "amd64" {
		p = append(p,
			Instruction{Op: bpfJge, Jf: 1, K: x32Bit},
			Instruction{Op: bpfRet, K: retNotify})
	}
	for i := 0; i < len(calls); {
		nr := calls[i].nr(arch)
		group := []call{calls[i]}
		// Rows of one call stand together and share its block.
		for i++; i < len(calls) && calls[i].name == group[0].name; i++ {
			group = append(group, calls[i])
		}
		if nr == none {
			continue
		}
		var body []Instruction
		for _, c := range group {
			body = append(body, c.block(tier)...)
		}
		body = append(body, Instruction{Op: bpfRet, K: retAllow})
		if len(body) > 255 {
			return nil, fmt.Errorf("BUG: the filter block of %s has %d instructions", group[0].name, len(body))
		}
		p = append(p, Instruction{Op: bpfJeq, Jf: uint8(len(body)), K: uint32(nr)})
		p = append(p, body...)
	}
	return append(p, Instruction{Op: bpfRet, K: retAllow}), nil
}

// block is the block that returns if the row's condition holds and falls
// through if it does not.
func (c *call) block(tier Tier) []Instruction {
	notify := Instruction{Op: bpfRet, K: retNotify}
	low := Instruction{Op: bpfLoad, K: offArgLow(c.test)}
	switch c.when {
	case always:
		return []Instruction{notify}
	case never:
		return []Instruction{{Op: bpfRet, K: retErrno | c.want}}
	case writeIntent:
		return []Instruction{low, {Op: bpfJset, Jf: 1, K: writeFlags}, notify}
	case argAny:
		return []Instruction{low, {Op: bpfJset, Jf: 1, K: c.want}, notify}
	case argIs:
		return []Instruction{low, {Op: bpfJeq, Jf: 1, K: c.want}, notify}
	case argSet:
		return setBlock(c.test, notify)
	case argIsSet:
		set := setBlock(c.test+1, notify)
		return append([]Instruction{low, {Op: bpfJeq, Jf: uint8(len(set)), K: c.want}}, set...)
	case otherFamily:
		block := []Instruction{low}
		pass := families(tier)
		for i, f := range pass {
			block = append(block, Instruction{Op: bpfJeq, Jt: uint8(len(pass) - i), K: f})
		}
		return append(block, notify)
	}
	panic(fmt.Sprintf("BUG: condition %d of %s", c.when, c.name))
}

// setBlock returns notify if the 64-bit argument i is not 0.
func setBlock(i int8, notify Instruction) []Instruction {
	return []Instruction{
		{Op: bpfLoad, K: offArgLow(i)},
		{Op: bpfJeq, Jf: 2, K: 0},
		{Op: bpfLoad, K: offArgHigh(i)},
		{Op: bpfJeq, Jt: 1, K: 0},
		notify,
	}
}
