package check

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Counts is what a launch did in sum.
type Counts struct {
	Opcodes []OpcodeCount // those that were executed, by opcode
	// Flops is the floating-point operations of all threads: an addition and a
	// multiplication are one each, a fused one is two, as is a packed pair of one.
	// A matrix instruction has 2·M·N·K. IntegerOps is the same for integer matrix
	// instructions; other integer arithmetic is overhead and not counted.
	Flops, IntegerOps int64
	// Spaces are the accesses by state space. Bytes are those of each lane, though
	// several lanes may share one.
	Spaces [ptx.Param + 1]SpaceCounts
}

// OpcodeCount is how often instructions of an opcode were executed: by warps, and by
// threads.
type OpcodeCount struct {
	Opcode         string
	Warps, Threads int64
}

// SpaceCounts counts the accesses to a state space: how many of a warp, and their bytes.
type SpaceCounts struct {
	Loads, Stores, Atomics             int64
	LoadBytes, StoreBytes, AtomicBytes int64
}

func (c *Counts) access(a *emu.Access) {
	s := &c.Spaces[a.Space]
	n := int64(bits.OnesCount32(a.Mask) * a.Size)
	switch a.Kind {
	case emu.Read, emu.AsyncRead:
		s.Loads++
		s.LoadBytes += n
	case emu.Write, emu.AsyncWrite:
		s.Stores++
		s.StoreBytes += n
	default:
		s.Atomics++
		s.AtomicBytes += n
	}
}

// bulk counts a half of a bulk copy. What wgmma reads of shared memory is not counted: it
// goes past the threads.
func (c *Counts) bulk(b *emu.Bulk) {
	if isMatrix(b.Site) {
		return
	}
	s := &c.Spaces[b.Space]
	n := int64(0)
	for _, span := range b.Spans {
		n += int64(span.Size)
	}
	if b.Kind == emu.AsyncRead {
		s.Loads++
		s.LoadBytes += n
	} else {
		s.Stores++
		s.StoreBytes += n
	}
}

// isMatrix tells the operands of wgmma from bulk copies.
func isMatrix(s *emu.Site) bool { return s.Instr != nil && s.Instr.Op == "wgmma" }

func (c *Counts) merge(d *Counts) {
	for i := range d.Spaces {
		to, from := &c.Spaces[i], &d.Spaces[i]
		to.Loads += from.Loads
		to.Stores += from.Stores
		to.Atomics += from.Atomics
		to.LoadBytes += from.LoadBytes
		to.StoreBytes += from.StoreBytes
		to.AtomicBytes += from.AtomicBytes
	}
}

// instructions adds how often the emulator executed each instruction.
func (c *Counts) instructions(sites []*emu.Site, counts []emu.Count) {
	byOpcode := map[string]*OpcodeCount{}
	for i, n := range counts {
		if n.Executed == 0 {
			continue
		}
		s := sites[i]
		o := byOpcode[s.Opcode]
		if o == nil {
			o = &OpcodeCount{Opcode: s.Opcode}
			byOpcode[s.Opcode] = o
		}
		o.Warps += int64(n.Executed)
		o.Threads += int64(n.Lanes)
		perWarp, perThread, integer := operations(s.Instr)
		ops := perWarp*int64(n.Executed) + perThread*int64(n.Lanes)
		if integer {
			c.IntegerOps += ops
		} else {
			c.Flops += ops
		}
	}
	for _, o := range byOpcode {
		c.Opcodes = append(c.Opcodes, *o)
	}
	slices.SortFunc(c.Opcodes, func(a, b OpcodeCount) int { return cmp.Compare(a.Opcode, b.Opcode) })
}

// threadFlops is the floating-point operations on one element, by opcode. What only
// moves, compares or selects has none.
var threadFlops = map[string]int64{
	"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "rcp": 1, "sqrt": 1, "rsqrt": 1,
	"sin": 1, "cos": 1, "lg2": 1, "ex2": 1, "tanh": 1,
}

// operations is what an execution of an instruction computes, for the warp as a whole
// and for each thread that takes part.
func operations(i *ptx.Instr) (perWarp, perThread int64, integer bool) {
	var m, n, k int64
	switch {
	case i.Op == "mma" || i.Op == "wmma" && i.Has("mma"):
		if _, err := fmt.Sscanf(i.Mod("shape"), "m%dn%dk%d", &m, &n, &k); err != nil {
			return 0, 0, false
		}
		return 2 * m * n * k, 0, i.Type(0).Class() != ptx.Float
	case i.Op == "wgmma" && i.Has("mma_async"):
		// Each of the four warps of the group executes it.
		if _, err := fmt.Sscanf(i.Mod("shape"), "m%dn%dk%d", &m, &n, &k); err != nil {
			return 0, 0, false
		}
		return 2 * m * n * k / 4, 0, i.Type(0).Class() != ptx.Float
	case len(i.Args) == 0 || i.Type(0).Class() != ptx.Float:
		return 0, 0, false
	}
	perThread = threadFlops[i.Op]
	if strings.HasSuffix(i.Type(0).String(), "x2") {
		perThread *= 2
	}
	return 0, perThread, false
}
