package model

import (
	"fmt"
	"math"
	"sort"
)

// Launch is what one block of a kernel takes.
type Launch struct {
	Threads       int `json:"threads"`         // in the block
	SharedBytes   int `json:"shared_bytes"`    // static and dynamic together, without what the system reserves
	RegsPerThread int `json:"regs_per_thread"` // 0: not known, registers are not counted
}

// Resource is something that an SM has a limited number of.
type Resource string

// The resources, in the order in which an [Occupancy] lists them.
const (
	Threads   Resource = "threads"
	Registers Resource = "registers"
	Shared    Resource = "shared memory"
	Blocks    Resource = "blocks"
)

// Limit is how many blocks one resource would allow if it were the only one.
type Limit struct {
	Resource Resource `json:"resource"`
	Blocks   int      `json:"blocks"`
	Why      string   `json:"why"` // the arithmetic, in words
}

// Occupancy is how many blocks of a launch an SM holds at once, and why.
type Occupancy struct {
	Arch   *Arch  `json:"-"`
	Launch Launch `json:"launch"`

	Blocks  int `json:"blocks"`  // resident blocks, the least of the limits
	Warps   int `json:"warps"`   // the warps of those blocks, a started one counting whole
	Threads int `json:"threads"` // the threads of those blocks
	// Fraction is Threads over the threads that the SM holds. WarpFraction is the same of
	// warps, NVIDIA's measure: it is larger where the last warp of a block is not full.
	Fraction     float64 `json:"fraction"`
	WarpFraction float64 `json:"warp_fraction"`

	Limits  []Limit    `json:"limits"`  // one for each resource that counts
	Binding []Resource `json:"binding"` // those that allow no more than Blocks
}

// Occupancy is how many blocks of l an SM holds at once. The rules are those of
// NVIDIA's occupancy calculator (cuda_occupancy.h, the CUDA runtime's
// cudaOccupancyMaxActiveBlocksPerMultiprocessor), with the SM's memory split in
// favour of shared memory. A launch that no SM can hold is an error that says
// what it asks too much of.
func (a *Arch) Occupancy(l Launch) (Occupancy, error) {
	if err := a.check(l); err != nil {
		return Occupancy{}, err
	}
	o := Occupancy{Arch: a, Launch: l, Blocks: math.MaxInt, Limits: []Limit{a.threadLimit(l)}}
	if a.RegistersPerSM > 0 && l.RegsPerThread > 0 {
		o.Limits = append(o.Limits, a.registerLimit(l))
	}
	if a.SharedPerSM > 0 && l.SharedBytes > 0 {
		o.Limits = append(o.Limits, a.sharedLimit(l))
	}
	if a.MaxBlocksPerSM > 0 {
		o.Limits = append(o.Limits, a.blockLimit())
	}
	for _, limit := range o.Limits {
		if limit.Blocks == 0 {
			return Occupancy{}, fmt.Errorf("too many %s for one block on %v: %s", limit.Resource, a, limit.Why)
		}
		o.Blocks = min(o.Blocks, limit.Blocks)
	}
	for _, limit := range o.Limits {
		if limit.Blocks == o.Blocks {
			o.Binding = append(o.Binding, limit.Resource)
		}
	}
	o.Warps = o.Blocks * a.warps(l)
	o.Threads = o.Blocks * l.Threads
	o.Fraction = float64(o.Threads) / float64(a.MaxThreadsPerSM)
	o.WarpFraction = float64(o.Warps) / float64(a.MaxWarpsPerSM())
	return o, nil
}

// Largest is the most of r that each block may take, the rest of l as it is, for
// an SM to hold at least so many blocks: threads in the block, registers of a
// thread, or bytes of shared memory. It is false when no amount will do, and when
// the SM sets r no limit.
func (a *Arch) Largest(l Launch, r Resource, blocks int) (int, bool) {
	var amount *int
	least, most := 1, 0
	switch r {
	case Threads:
		amount, most = &l.Threads, a.MaxThreadsPerBlock
	case Registers:
		amount, most = &l.RegsPerThread, a.MaxRegsPerThread
	case Shared:
		amount, least, most = &l.SharedBytes, 0, a.SharedPerBlockOptIn
	default:
		return 0, false
	}
	if most == 0 {
		return 0, false
	}
	n := sort.Search(most+1-least, func(i int) bool {
		*amount = least + i
		o, err := a.Occupancy(l)
		return err != nil || o.Blocks < blocks
	})
	return least + n - 1, n > 0
}

// check refuses what no SM is asked about: each quantity against the limit that
// a single block or thread has.
func (a *Arch) check(l Launch) error {
	switch {
	case l.Threads < 1:
		return fmt.Errorf("a block has at least 1 thread, got %s", Commas(l.Threads))
	case l.Threads > a.MaxThreadsPerBlock:
		return fmt.Errorf("a block has at most %s threads, got %s", Commas(a.MaxThreadsPerBlock), square(l.Threads))
	case l.RegsPerThread < 0:
		return fmt.Errorf("a thread with %s registers (0 is not known)", Commas(l.RegsPerThread))
	case a.MaxRegsPerThread > 0 && l.RegsPerThread > a.MaxRegsPerThread:
		return fmt.Errorf("a thread has at most %s registers on %v, got %s", Commas(a.MaxRegsPerThread), a, Commas(l.RegsPerThread))
	case l.SharedBytes < 0:
		return fmt.Errorf("a block with %s bytes of shared memory", Commas(l.SharedBytes))
	case a.SharedPerBlockOptIn > 0 && l.SharedBytes > a.SharedPerBlockOptIn:
		return fmt.Errorf("a block has at most %s bytes of shared memory on %v, got %s", Commas(a.SharedPerBlockOptIn), a, Commas(l.SharedBytes))
	}
	return nil
}

// warps is the number of warps of a block.
func (a *Arch) warps(l Launch) int { return ceilDiv(l.Threads, a.WarpSize) }

func (a *Arch) threadLimit(l Launch) Limit {
	slots := a.warps(l) * a.WarpSize
	each := fmt.Sprintf("each block needs %s", Count(l.Threads, "thread"))
	if slots != l.Threads {
		each = fmt.Sprintf("each block of %s takes the slots of %s, whole warps of %d", Count(l.Threads, "thread"), Commas(slots), a.WarpSize)
	}
	return Limit{Threads, a.MaxThreadsPerSM / slots, fmt.Sprintf("%s; the SM holds %s", each, Commas(a.MaxThreadsPerSM))}
}

// registerLimit counts warps for each partition of the SM first: a warp's
// registers lie in one partition, so what is left over in two does not add up.
func (a *Arch) registerLimit(l Launch) Limit {
	if a.WarpSize == 1 {
		each := l.Threads * l.RegsPerThread
		return Limit{Registers, a.RegistersPerSM / each, fmt.Sprintf("each block needs %s × %d = %s registers; the SM has %s",
			Commas(l.Threads), l.RegsPerThread, Commas(each), Commas(a.RegistersPerSM))}
	}
	perWarp := roundUp(a.WarpSize*l.RegsPerThread, a.RegAllocUnit)
	perPartition := a.RegistersPerSM / a.Partitions
	warps := perPartition / perWarp * a.Partitions
	why := fmt.Sprintf("each warp needs %d × %d = %s registers", a.WarpSize, l.RegsPerThread, Commas(a.WarpSize*l.RegsPerThread))
	if perWarp != a.WarpSize*l.RegsPerThread {
		why += fmt.Sprintf(", %s in units of %d", Commas(perWarp), a.RegAllocUnit)
	}
	return Limit{Registers, warps / a.warps(l), fmt.Sprintf("%s; each of the SM's %d partitions has %s, so the SM holds %s; a block has %d",
		why, a.Partitions, Commas(perPartition), Count(warps, "warp"), a.warps(l))}
}

func (a *Arch) sharedLimit(l Launch) Limit {
	needs := l.SharedBytes + a.SharedReserved
	each := roundUp(needs, a.SharedAllocUnit)
	why := fmt.Sprintf("each block needs %s", Count(l.SharedBytes, "byte"))
	if a.SharedReserved > 0 {
		why += fmt.Sprintf(" and %s for the system", Commas(a.SharedReserved))
	}
	if each != needs {
		why += fmt.Sprintf(", %s in units of %d", Commas(each), a.SharedAllocUnit)
	}
	why += fmt.Sprintf("; the SM has %s", Commas(a.SharedPerSM))
	if l.SharedBytes > a.SharedPerBlock {
		why += fmt.Sprintf(" (above %s the kernel has to ask for it)", Commas(a.SharedPerBlock))
	}
	return Limit{Shared, a.SharedPerSM / each, why}
}

func (a *Arch) blockLimit() Limit {
	return Limit{Blocks, a.MaxBlocksPerSM, fmt.Sprintf("the SM holds at most %s, however small", Count(a.MaxBlocksPerSM, "block"))}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceilDiv(a, b) * b }
