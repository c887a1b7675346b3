package explain

import (
	"math/bits"
	"sync/atomic"

	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Then is an observer that sums up what the accesses of warps would have taken on the first
// GPUs, which served half-warps: of global memory by the rule of compute capability 1.0, of
// shared memory with the 16 banks of 1.x.
type Then struct {
	HalfWarps, Transactions     atomic.Int64 // global memory
	Wavefronts, IdealWavefronts atomic.Int64 // shared memory; the ideal is without conflicts
}

// Block implements [emu.Observer].
func (t *Then) Block(*emu.BlockInfo) *emu.Hooks { return &emu.Hooks{Access: t.access} }

func (t *Then) access(a *emu.Access) {
	switch a.Space {
	case ptx.Global:
		halves, transactions := coalescedThen(a.Addr, a.Mask, a.Size)
		t.HalfWarps.Add(halves)
		t.Transactions.Add(transactions)
	case ptx.Shared:
		then, ideal := check.HistoricBanks.Wavefronts(a.Addr, a.Mask, a.Size)
		t.Wavefronts.Add(int64(then))
		t.IdealWavefronts.Add(int64(ideal))
	}
}

// coalescedThen is how many half-warps an access of a warp was at compute capability
// 1.0, and how many memory transactions it took: one (two for 16-byte words) for a
// half-warp whose thread k accesses word k of an aligned segment, in words of 4, 8 or
// 16 bytes; otherwise one for each thread (CUDA C Programming Guide 3.2, appendix G.3.2).
func coalescedThen(addr *[32]uint64, mask uint32, size int) (halves, transactions int64) {
	for first := 0; first < 32; first += 16 {
		half := mask >> first & 0xffff
		if half == 0 {
			continue
		}
		halves++
		segment := addr[first+bits.TrailingZeros32(half)] / uint64(16*size) * uint64(16*size)
		ordered := size == 4 || size == 8 || size == 16
		for k := range 16 {
			ordered = ordered && (half>>k&1 == 0 || addr[first+k] == segment+uint64(k*size))
		}
		switch {
		case !ordered:
			transactions += int64(bits.OnesCount32(half))
		case size == 16:
			transactions += 2
		default:
			transactions++
		}
	}
	return halves, transactions
}
