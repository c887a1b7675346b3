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

// Counts holds the counters of one launch, summed over its blocks. `tilework bench --device emu`
// and `tilework explain` print them.
type Counts struct {
	// Opcodes counts the executed instructions by opcode.
	Opcodes []OpcodeCount
	// Flops is the number of floating-point operations executed by threads and by tensor cores.
	// Additions and multiplications count as one, fused multiply-adds as two, per thread and per
	// half of a packed pair. A matrix instruction counts as 2·M·N·K. Operations on the zeros that
	// pad a tile are included.
	Flops int64
	// IntegerOps is the number of integer operations of matrix instructions, dot products (dp4a,
	// dp2a) and signed 32-bit multiply-adds (mad.lo.s32). Other integer instructions are not
	// counted, because most of them compute addresses.
	IntegerOps int64
	// Global and Shared count the accesses to global and shared memory, by place and direction.
	Global []GlobalCounts
	Shared []SharedCounts
	// DistinctSectors is the number of distinct sectors of global memory that the launch
	// accesses. It equals the traffic of a cache of unlimited size. SectorsRead and
	// SectorsWritten are the numbers of distinct sectors that are read and written. A sector can
	// be in both. DistinctSectors is at most the total of Sectors in Global.
	DistinctSectors, SectorsRead, SectorsWritten int64
}

// Operations returns IntegerOps if integers is set, and otherwise Flops.
func (c *Counts) Operations(integers bool) int64 {
	if integers {
		return c.IntegerOps
	}
	return c.Flops
}

// OpcodeCount is the number of executions of an opcode, by warps and by threads.
type OpcodeCount struct {
	Opcode         string
	Warps, Threads int64
}

// Direction is the effect of an access on memory.
type Direction uint8

const (
	Load   Direction = iota // reads
	Store                   // writes
	Atomic                  // reads and writes in one step: atom, red and all mbarrier operations
)

var directionNames = [...]string{"load", "store", "atomic"}

// String returns the direction's name: "load", "store" or "atomic".
func (d Direction) String() string { return directionNames[d] }

func directionOf(s *emu.Site, k emu.AccessKind) Direction {
	switch {
	case isMbarrier(s):
		return Atomic
	case !isWrite(k):
		return Load
	case !isRead(k):
		return Store
	}
	return Atomic
}

// isMbarrier reports whether an instruction is an operation on an mbarrier. Dedicated hardware
// executes these operations, and the number of polls depends on the order in which warps run.
func isMbarrier(s *emu.Site) bool { return s.Instr != nil && s.Instr.Op == "mbarrier" }

// Accesses counts the accesses to one place in one direction.
type Accesses struct {
	Place     string // from [Options].Place; empty without it
	Direction Direction
	// Requests is the number of accesses by warps. A bulk copy is one request.
	Requests int64
	// RequestedBytes is the total number of bytes requested. A byte counts once for each lane that
	// accesses it.
	RequestedBytes int64

	first int // index of the first instruction, which orders the rows
}

// String returns the direction and the place, such as "load A".
func (a *Accesses) String() string { return strings.TrimSpace(a.Direction.String() + " " + a.Place) }

// GlobalCounts counts accesses to global memory.
type GlobalCounts struct {
	Accesses
	// Traffic is the sum of the traffic of all requests, including bulk copies (TMA). A
	// request moves each 32-byte sector that it touches once.
	Traffic
	// HalfWarps and Transactions count the same requests by the rules of compute capability
	// 1.0, if [Options].Historic is set. They do not include bulk copies.
	HalfWarps, Transactions int64
}

// SharedCounts counts accesses of warps to shared memory. It does not include the writes of bulk
// copies and the reads of wgmma, which bypass the threads.
type SharedCounts struct {
	Accesses
	// Wavefronts is the number of wavefronts of the requests, and Ideal the number without bank
	// conflicts. A wavefront accesses at most one word of each of the 32 banks. Atomics count
	// as no wavefronts, because their use of the banks is undocumented.
	Wavefronts, Ideal int64
	// HistoricWavefronts and HistoricIdeal are the same counts for the 16 banks of compute
	// capability 1.x, if [Options].Historic is set.
	HistoricWavefronts, HistoricIdeal int64
}

// counter counts the accesses of one worker.
type counter struct {
	opts   *Options
	global []GlobalCounts
	shared []SharedCounts
}

// row returns the index in rows of the row with the place and direction of a. It adds the row if
// there is none.
func row[R any](rows *[]R, accesses func(*R) *Accesses, a Accesses) int {
	for i := range *rows {
		if r := accesses(&(*rows)[i]); r.Place == a.Place && r.Direction == a.Direction {
			r.first = min(r.first, a.first)
			return i
		}
	}
	var r R
	*accesses(&r) = Accesses{Place: a.Place, Direction: a.Direction, first: a.first}
	*rows = append(*rows, r)
	return len(*rows) - 1
}

func ofGlobal(g *GlobalCounts) *Accesses { return &g.Accesses }
func ofShared(s *SharedCounts) *Accesses { return &s.Accesses }

// like returns the place and direction of an access.
func (c *counter) like(site *emu.Site, d Direction, space ptx.Space, addr uint64) Accesses {
	a := Accesses{Direction: d, first: site.Index}
	if c.opts.Place != nil {
		a.Place = c.opts.Place(space, addr)
	}
	return a
}

// add adds one request of the given number of bytes.
func (a *Accesses) add(bytes int) {
	a.Requests++
	a.RequestedBytes += int64(bytes)
}

// rowOf returns the row of an access. The row depends on the instruction alone if accesses have no
// places. known is then its index plus one, or 0 before the first access of the instruction.
func rowOf[R any](c *counter, rows *[]R, accesses func(*R) *Accesses, a *emu.Access, known *int) *R {
	if *known == 0 || c.opts.Place != nil {
		*known = row(rows, accesses, c.like(a.Site, directionOf(a.Site, a.Kind), a.Space, firstAddr(a))) + 1
	}
	return &(*rows)[*known-1]
}

// globalAccess counts a warp's access to global memory with traffic t.
func (c *counter) globalAccess(a *emu.Access, in *instruction, t Traffic) {
	g := rowOf(c, &c.global, ofGlobal, a, &in.globalRow)
	g.Accesses.add(bits.OnesCount32(a.Mask) * a.Size)
	g.Traffic.add(t)
	if c.opts.Historic {
		halves, transactions := historicTransactions(a.Addr, a.Mask, a.Size)
		g.HalfWarps += halves
		g.Transactions += transactions
	}
}

// sharedAccess counts a warp's access to shared memory and its wavefronts.
func (c *counter) sharedAccess(a *emu.Access, in *instruction, wavefronts, ideal int) {
	s := rowOf(c, &c.shared, ofShared, a, &in.sharedRow)
	s.add(bits.OnesCount32(a.Mask) * a.Size)
	s.Wavefronts += int64(wavefronts)
	s.Ideal += int64(ideal)
	if c.opts.Historic && s.Direction != Atomic {
		historic, ideal := HistoricBanks.Wavefronts(a.Addr, a.Mask, a.Size)
		s.HistoricWavefronts += int64(historic)
		s.HistoricIdeal += int64(ideal)
	}
}

func firstAddr(a *emu.Access) uint64 { return a.Addr[bits.TrailingZeros32(a.Mask)] }

// bulk counts the global-memory side of a bulk copy.
func (c *counter) bulk(b *emu.Bulk) {
	if len(b.Spans) == 0 {
		return
	}
	direction := directionOf(b.Site, b.Kind)
	if b.Atomic {
		direction = Atomic
	}
	g := &c.global[row(&c.global, ofGlobal, c.like(b.Site, direction, b.Space, b.Spans[0].Addr))]
	bytes := 0
	for _, s := range b.Spans {
		bytes += s.Size
	}
	g.Accesses.add(bytes)
	g.Traffic.add(spanTraffic(b.Spans))
}

// merge adds the counts of a worker.
func (c *Counts) merge(d *counter) {
	for i := range d.global {
		from := &d.global[i]
		to := &c.Global[row(&c.Global, ofGlobal, from.Accesses)]
		to.Accesses.merge(&from.Accesses)
		to.Traffic.add(from.Traffic)
		to.HalfWarps += from.HalfWarps
		to.Transactions += from.Transactions
	}
	for i := range d.shared {
		from := &d.shared[i]
		to := &c.Shared[row(&c.Shared, ofShared, from.Accesses)]
		to.Accesses.merge(&from.Accesses)
		to.Wavefronts += from.Wavefronts
		to.Ideal += from.Ideal
		to.HistoricWavefronts += from.HistoricWavefronts
		to.HistoricIdeal += from.HistoricIdeal
	}
}

func (a *Accesses) merge(b *Accesses) {
	a.Requests += b.Requests
	a.RequestedBytes += b.RequestedBytes
}

// sort orders the rows by their first instructions.
func (c *Counts) sort() {
	order := func(a, b *Accesses) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.Place, b.Place),
			cmp.Compare(a.Direction, b.Direction))
	}
	slices.SortFunc(c.Global, func(a, b GlobalCounts) int { return order(&a.Accesses, &b.Accesses) })
	slices.SortFunc(c.Shared, func(a, b SharedCounts) int { return order(&a.Accesses, &b.Accesses) })
}

// instructions adds the executions of all instructions.
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

// threadFlops is the number of floating-point operations per element, by opcode. Opcodes that
// only move, compare or select are not listed.
var threadFlops = map[string]int64{
	"add": 1, "sub": 1, "mul": 1, "fma": 2, "mad": 2, "div": 1, "rcp": 1, "sqrt": 1, "rsqrt": 1,
	"sin": 1, "cos": 1, "lg2": 1, "ex2": 1, "tanh": 1,
}

// operations returns the operations of one execution of an instruction, as defined by [Counts]:
// for the warp as a whole, and for each thread that takes part.
func operations(i *ptx.Instr) (perWarp, perThread int64, integer bool) {
	switch {
	case i.Op == "mma" || i.Op == "wmma" && i.Has("mma"):
		return matrixOperations(i), 0, i.Type(0).Class() != ptx.Float
	case i.Op == "wgmma" && i.Has("mma_async"):
		// Each of the four warps of the group executes it.
		return matrixOperations(i) / 4, 0, i.Type(0).Class() != ptx.Float
	case i.Op == "dp4a":
		return 0, 8, true
	case i.Op == "dp2a":
		return 0, 4, true
	case len(i.Args) == 0:
		return 0, 0, false
	case i.Op == "mad" && i.Has("lo") && i.Type(0) == ptx.S32:
		return 0, 2, true
	case i.Type(0).Class() != ptx.Float:
		return 0, 0, false
	}
	perThread = threadFlops[i.Op]
	if strings.HasSuffix(i.Type(0).String(), "x2") {
		perThread *= 2
	}
	return 0, perThread, false
}

// matrixOperations returns 2·M·N·K of a matrix instruction, or 0 if its shape is unknown.
func matrixOperations(i *ptx.Instr) int64 {
	var m, n, k int64
	if _, err := fmt.Sscanf(i.Mod("shape"), "m%dn%dk%d", &m, &n, &k); err != nil {
		return 0
	}
	return 2 * m * n * k
}
