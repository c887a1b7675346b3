// Package model knows GPUs by name: how many blocks an SM holds and what limits
// it, how fast a GPU can calculate and read at best, and which of the two bounds
// a kernel.
//
// There are two tables. An [Arch] is what all GPUs of one compute capability
// share, and [Arch.Occupancy] works on it alone; a [Model] is one product, with
// its number of SMs, its memory and its peak rates. [Lookup] finds either by
// name. [Textbook] makes an SM from the numbers of an exercise. Nothing here
// asks a device; the tables say where each figure is from.
package model

import (
	"fmt"
	"math"
)

// Arch is what all GPUs of one compute capability share: the limits of a
// streaming multiprocessor (SM) and the units in which it gives out what it has.
// Sizes are in bytes, registers are of 32 bits. On an SM made by [Textbook], a
// limit of zero is no limit.
type Arch struct {
	SM    int    // 90 is compute capability 9.0; 0 is a textbook SM
	Title string // the architecture's name: "Hopper"

	WarpSize           int // threads that get their slots and registers together
	MaxThreadsPerBlock int
	MaxThreadsPerSM    int
	MaxBlocksPerSM     int

	RegistersPerSM   int
	MaxRegsPerThread int
	RegAllocUnit     int // a warp's registers are rounded up to a multiple of this
	Partitions       int // parts of the SM, each with its share of the registers; a warp lives in one

	SharedPerSM         int
	SharedPerBlock      int // what a block may have without asking
	SharedPerBlockOptIn int // what it may have when the kernel's attribute is raised
	SharedReserved      int // what the system takes of each block's allocation
	SharedAllocUnit     int // a block's allocation is rounded up to a multiple of this

	Banks       int // shared memory banks, each 4 bytes wide
	SectorBytes int // smallest piece of global memory that is moved
}

// arches is the table of compute capabilities. The limits are those of the CUDA
// C++ Programming Guide 13, "Technical Specifications per Compute Capability";
// the units and the reserved kilobyte those of NVIDIA's occupancy calculator
// (cuda_occupancy.h of CUDA 13), which also has the rows 10.3 and 12.1.
var arches = []*Arch{
	cuda(Arch{SM: 75, Title: "Turing", MaxThreadsPerSM: 1024, MaxBlocksPerSM: 16, SharedPerSM: 64 << 10, SharedAllocUnit: 256}),
	cuda(Arch{SM: 80, Title: "Ampere", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 164 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 86, Title: "Ampere", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 16, SharedPerSM: 100 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 87, Title: "Ampere", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 16, SharedPerSM: 164 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 89, Title: "Ada Lovelace", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 90, Title: "Hopper", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 100, Title: "Blackwell", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 103, Title: "Blackwell Ultra", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 110, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 228 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 120, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 121, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10, SharedAllocUnit: 128, SharedReserved: 1 << 10}),
}

// cuda completes a row with what has been the same since Turing.
func cuda(a Arch) *Arch {
	a.WarpSize = 32
	a.MaxThreadsPerBlock = 1024
	a.RegistersPerSM = 64 << 10
	a.MaxRegsPerThread = 255
	a.RegAllocUnit = 256
	a.Partitions = 4
	a.SharedPerBlock = 48 << 10
	a.SharedPerBlockOptIn = a.SharedPerSM - a.SharedReserved
	a.Banks = 32
	a.SectorBytes = 32
	return &a
}

// Textbook is an SM by the rules of an exercise: nothing is rounded up, nothing
// is reserved, and a block may have all that the SM has. It holds so many
// threads, bytes of shared memory, blocks and registers; zero is no limit, which
// the threads need, since occupancy is a share of them.
func Textbook(threads, sharedBytes, blocks, registers int) (*Arch, error) {
	if threads < 1 || threads > math.MaxInt32 {
		return nil, fmt.Errorf("an SM with %s: want 1 to %s", Count(threads, "thread"), Commas(math.MaxInt32))
	}
	for _, limit := range []struct {
		what  string
		value int
	}{{"bytes of shared memory", sharedBytes}, {"blocks", blocks}, {"registers", registers}} {
		if limit.value < 0 || limit.value > math.MaxInt32 {
			return nil, fmt.Errorf("an SM with %s %s: want 0, which is no limit, to %s", Commas(limit.value), limit.what, Commas(math.MaxInt32))
		}
	}
	return &Arch{
		Title:               "textbook",
		WarpSize:            1,
		MaxThreadsPerBlock:  1024,
		MaxThreadsPerSM:     threads,
		MaxBlocksPerSM:      blocks,
		RegistersPerSM:      registers,
		MaxRegsPerThread:    registers,
		RegAllocUnit:        1,
		Partitions:          1,
		SharedPerSM:         sharedBytes,
		SharedPerBlock:      sharedBytes,
		SharedPerBlockOptIn: sharedBytes,
		SharedAllocUnit:     1,
		Banks:               32,
		SectorBytes:         32,
	}, nil
}

// Arches lists the compute capabilities in the order of the table. The rows are
// shared: read them only.
func Arches() []*Arch { return append([]*Arch(nil), arches...) }

// MaxWarpsPerSM is the number of warps that an SM holds at once; on a textbook
// SM, which knows no warps, the number of threads.
func (a *Arch) MaxWarpsPerSM() int { return a.MaxThreadsPerSM / a.WarpSize }

// String is the architecture as a compiler's target, "sm_90".
func (a *Arch) String() string {
	if a.SM == 0 {
		return "textbook SM"
	}
	return fmt.Sprintf("sm_%d", a.SM)
}
