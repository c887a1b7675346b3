package model

import (
	"fmt"
	"math"
	"sort"

	"tilework/internal/ints"
	"tilework/internal/phrase"
)

// Launch holds the resources of one block of a kernel.
type Launch struct {
	Threads       int `json:"threads"`         // per block
	SharedBytes   int `json:"shared_bytes"`    // static and dynamic, without the system's part
	RegsPerThread int `json:"regs_per_thread"` // 0: unknown, registers are not counted
}

// Resource is a limited resource of an SM.
type Resource string

// The resources, in the order of Occupancy.Limits.
const (
	Threads   Resource = "threads"
	Registers Resource = "registers"
	Shared    Resource = "shared memory"
	Blocks    Resource = "blocks"
)

// Limit is the number of blocks that one resource alone allows.
type Limit struct {
	Resource Resource `json:"resource"`
	Blocks   int      `json:"blocks"`
	Why      string   `json:"why"` // the arithmetic, as text
}

// Occupancy describes how many blocks of a launch an SM holds, and the limits.
type Occupancy struct {
	Arch   *Arch  `json:"-"`
	Launch Launch `json:"launch"`

	Blocks  int `json:"blocks"`  // resident blocks, the minimum of the limits
	Warps   int `json:"warps"`   // resident warps, including partial ones
	Threads int `json:"threads"` // resident threads
	// Fraction is Threads relative to the SM's maximum. WarpFraction is Warps relative to the
	// maximum, the measure of NVIDIA's tools. It is larger if the last warp of a block is partial.
	Fraction     float64 `json:"fraction"`
	WarpFraction float64 `json:"warp_fraction"`

	Limits  []Limit    `json:"limits"`  // one per limited resource
	Binding []Resource `json:"binding"` // the resources that allow no more than Blocks
}

// Occupancy computes how many blocks of l an SM holds. The rules are those of NVIDIA's occupancy
// calculator (cuda_occupancy.h, cudaOccupancyMaxActiveBlocksPerMultiprocessor), with the largest
// shared memory carveout. If an SM cannot hold one block, the error names the resource.
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

// Largest returns the largest amount of r per block for which an SM holds at least the given number
// of blocks, with the rest of l unchanged. The amount is in threads per block, registers per
// thread, or bytes of shared memory. It returns false if no amount suffices, or if the SM does not
// limit r.
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

// check returns an error if l exceeds the limits of a single block or thread.
func (a *Arch) check(l Launch) error {
	switch {
	case l.Threads < 1:
		return fmt.Errorf("a block with %s threads: want at least 1", phrase.Commas(l.Threads))
	case l.Threads > a.MaxThreadsPerBlock:
		return fmt.Errorf("a block with %s threads: want at most %s", square(l.Threads), phrase.Commas(a.MaxThreadsPerBlock))
	case l.RegsPerThread < 0:
		return fmt.Errorf("a thread with %s registers: want at least 1, or 0 for unknown", phrase.Commas(l.RegsPerThread))
	case a.MaxRegsPerThread > 0 && l.RegsPerThread > a.MaxRegsPerThread:
		return fmt.Errorf("a thread with %s registers: want at most %s on %v", phrase.Commas(l.RegsPerThread),
			phrase.Commas(a.MaxRegsPerThread), a)
	case l.SharedBytes < 0:
		return fmt.Errorf("a block with %s bytes of shared memory: want at least 0", phrase.Commas(l.SharedBytes))
	case a.SharedPerBlockOptIn > 0 && l.SharedBytes > a.SharedPerBlockOptIn:
		return fmt.Errorf("a block with %s bytes of shared memory: want at most %s on %v", phrase.Commas(l.SharedBytes),
			phrase.Commas(a.SharedPerBlockOptIn), a)
	}
	return nil
}

// warps returns the number of warps of a block.
func (a *Arch) warps(l Launch) int { return ints.CeilDiv(l.Threads, a.WarpSize) }

func (a *Arch) threadLimit(l Launch) Limit {
	slots := a.warps(l) * a.WarpSize
	each := fmt.Sprintf("each block needs %s", phrase.Count(l.Threads, "thread"))
	if slots != l.Threads {
		each = fmt.Sprintf("each block of %s needs %s, whole warps of %d", phrase.Count(l.Threads, "thread"),
			phrase.Commas(slots), a.WarpSize)
	}
	why := fmt.Sprintf("%s; the SM holds %s", each, phrase.Commas(a.MaxThreadsPerSM))
	return Limit{Threads, a.MaxThreadsPerSM / slots, why}
}

// registerLimit first counts the warps of each partition of the SM, because the registers of a warp
// are in one partition.
func (a *Arch) registerLimit(l Launch) Limit {
	if a.WarpSize == 1 {
		each := l.Threads * l.RegsPerThread
		return Limit{Registers, a.RegistersPerSM / each, fmt.Sprintf("each block needs %s × %d = %s registers; the SM has %s",
			phrase.Commas(l.Threads), l.RegsPerThread, phrase.Commas(each), phrase.Commas(a.RegistersPerSM))}
	}
	perWarp := ints.RoundUp(a.WarpSize*l.RegsPerThread, a.RegAllocUnit)
	perPartition := a.RegistersPerSM / a.Partitions
	warps := perPartition / perWarp * a.Partitions
	why := fmt.Sprintf("each warp needs %d × %d = %s registers", a.WarpSize, l.RegsPerThread,
		phrase.Commas(a.WarpSize*l.RegsPerThread))
	if perWarp != a.WarpSize*l.RegsPerThread {
		why += fmt.Sprintf(", %s in units of %d", phrase.Commas(perWarp), a.RegAllocUnit)
	}
	return Limit{Registers, warps / a.warps(l), fmt.Sprintf("%s; each of the SM's %d partitions has %s, so the SM holds "+
		"%s; a block has %d",
		why, a.Partitions, phrase.Commas(perPartition), phrase.Count(warps, "warp"), a.warps(l))}
}

func (a *Arch) sharedLimit(l Launch) Limit {
	needs := l.SharedBytes + a.SharedReserved
	each := ints.RoundUp(needs, a.SharedAllocUnit)
	why := fmt.Sprintf("each block needs %s", phrase.Count(l.SharedBytes, "byte"))
	if a.SharedReserved > 0 {
		why += fmt.Sprintf(" and %s for the system", phrase.Commas(a.SharedReserved))
	}
	if each != needs {
		why += fmt.Sprintf(", %s in units of %d", phrase.Commas(each), a.SharedAllocUnit)
	}
	why += fmt.Sprintf("; the SM has %s", phrase.Commas(a.SharedPerSM))
	if l.SharedBytes > a.SharedPerBlock {
		why += fmt.Sprintf(" (the kernel must request more than %s)", phrase.Commas(a.SharedPerBlock))
	}
	return Limit{Shared, a.SharedPerSM / each, why}
}

func (a *Arch) blockLimit() Limit {
	return Limit{Blocks, a.MaxBlocksPerSM, fmt.Sprintf("the SM holds at most %s, however small",
		phrase.Count(a.MaxBlocksPerSM, "block"))}
}
