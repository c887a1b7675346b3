// Package model describes GPUs: the number of blocks that an SM holds and the resource that limits
// it, the peak rates of arithmetic and memory, and the roofline.
//
// There are two tables. An [Arch] holds the limits that all GPUs of one compute capability share,
// which suffice for [Arch.Occupancy]. A [Model] is one GPU product with its number of SMs, its
// memory and its peak rates. [Lookup] finds either by name. [Textbook] returns an SM with the
// numbers of an exercise. The package accesses no device. The tables state the source of each
// figure.
package model

import (
	"fmt"
	"math"

	"tilework/internal/phrase"
)

// Arch holds the limits and allocation units of a streaming multiprocessor (SM), which all GPUs of
// one compute capability share. Sizes are in bytes, registers have 32 bits. For an SM made by
// [Textbook], a limit of zero means no limit.
type Arch struct {
	SM    int    // 90 is compute capability 9.0; 0 is a textbook SM
	Title string // name of the architecture: "Hopper"

	WarpSize           int // threads that are allocated together
	MaxThreadsPerBlock int
	MaxThreadsPerSM    int
	MaxBlocksPerSM     int

	RegistersPerSM   int
	MaxRegsPerThread int
	RegAllocUnit     int // a warp's registers are rounded up to a multiple of this
	Partitions       int // of the SM, each with an equal part of the registers; a warp belongs to one

	SharedPerSM         int
	SharedPerBlock      int // default maximum per block
	SharedPerBlockOptIn int // maximum per block if the kernel's attribute is set
	SharedReserved      int // used by the system in each block's allocation
	SharedAllocUnit     int // a block's allocation is rounded up to a multiple of this

	Banks       int // shared memory banks, each 4 bytes wide
	SectorBytes int // unit of transfers from and to global memory
}

// arches is the table of compute capabilities. The limits are from the CUDA C++ Programming Guide
// 13, "Technical Specifications per Compute Capability". The units, the reserved kilobyte, and the
// rows 10.3 and 12.1 are from NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 13).
var arches = []*Arch{
	cuda(Arch{SM: 75, Title: "Turing", MaxThreadsPerSM: 1024, MaxBlocksPerSM: 16, SharedPerSM: 64 << 10,
		SharedAllocUnit: 256}),
	cuda(Arch{SM: 80, Title: "Ampere", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 164 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 86, Title: "Ampere", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 16, SharedPerSM: 100 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 87, Title: "Ampere", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 16, SharedPerSM: 164 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 89, Title: "Ada Lovelace", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 90, Title: "Hopper", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 100, Title: "Blackwell", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 103, Title: "Blackwell Ultra", MaxThreadsPerSM: 2048, MaxBlocksPerSM: 32, SharedPerSM: 228 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 110, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 228 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 120, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
	cuda(Arch{SM: 121, Title: "Blackwell", MaxThreadsPerSM: 1536, MaxBlocksPerSM: 24, SharedPerSM: 100 << 10,
		SharedAllocUnit: 128, SharedReserved: 1 << 10}),
}

// cuda completes a row with the values that are the same for all rows.
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

// Textbook returns an SM by the rules of an exercise: nothing is rounded up or reserved, and a
// block may use the whole SM. Zero means no limit. The number of threads must have a limit, because
// occupancy is relative to it.
func Textbook(threads, sharedBytes, blocks, registers int) (*Arch, error) {
	if threads < 1 || threads > math.MaxInt32 {
		return nil, fmt.Errorf("an SM with %s: want 1 to %s", phrase.Count(threads, "thread"), phrase.Commas(math.MaxInt32))
	}
	for _, limit := range []struct {
		what  string
		value int
	}{{"bytes of shared memory", sharedBytes}, {"blocks", blocks}, {"registers", registers}} {
		if limit.value < 0 || limit.value > math.MaxInt32 {
			return nil, fmt.Errorf("an SM with %s %s: want 0 (no limit) to %s", phrase.Commas(limit.value), limit.what,
				phrase.Commas(math.MaxInt32))
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

// MaxWarpsPerSM returns the number of warps that an SM holds, or for a textbook SM, which has no
// warps, the number of threads.
func (a *Arch) MaxWarpsPerSM() int { return a.MaxThreadsPerSM / a.WarpSize }

// String returns the compilation target, "sm_90".
func (a *Arch) String() string {
	if a.SM == 0 {
		return "textbook SM"
	}
	return fmt.Sprintf("sm_%d", a.SM)
}
