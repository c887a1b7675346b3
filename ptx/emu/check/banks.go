package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// BankModel describes the banks of shared memory. Consecutive 4-byte words are in consecutive
// banks, and one wavefront accesses one word of each bank. Lanes that access the same word share
// it. An access is processed in phases of as many lanes as one wavefront can serve in the best
// case.
type BankModel struct {
	Banks int // number of banks, up to 32
	Lanes int // lanes per phase for accesses of at most 4 bytes
}

// Bank models by compute capability (CUDA C++ Programming Guide, "Compute Capabilities").
var (
	// ModernBanks is the model since compute capability 2.0. A phase is a whole warp, a half
	// warp for 8-byte accesses, and a quarter warp for 16-byte accesses.
	ModernBanks = BankModel{Banks: 32, Lanes: 32}
	// HistoricBanks is the model of compute capability 1.x. A phase is a half warp.
	HistoricBanks = BankModel{Banks: 16, Lanes: 16}
)

// Wavefronts returns the number of wavefronts of an access in which each lane i of mask accesses
// size bytes at addr[i], and the number without bank conflicts.
func (m BankModel) Wavefronts(addr *[32]uint64, mask uint32, size int) (actual, ideal int) {
	perLane := max(size/4, 1)
	lanes := min(m.Lanes, m.Banks/perLane)
	if lanes == 0 {
		n := bits.OnesCount32(mask) * ((perLane + m.Banks - 1) / m.Banks)
		return n, n
	}
	for first := 0; first < 32; first += lanes {
		phase := mask >> first & uint32(1<<lanes-1)
		if phase == 0 {
			continue
		}
		// The distinct words of the phase, in linked lists by bank. Index 0 ends a list.
		var words [33]uint64
		var next, head, depth [33]uint8
		n, worst := uint8(0), uint8(1)
		for ; phase != 0; phase &= phase - 1 {
			low := addr[first+bits.TrailingZeros32(phase)] / 4
			for word := low; word < low+uint64(perLane); word++ {
				bank := word % uint64(m.Banks)
				k := head[bank]
				for k != 0 && words[k] != word {
					k = next[k]
				}
				if k == 0 {
					n++
					words[n], next[n] = word, head[bank]
					head[bank] = n
					depth[bank]++
					worst = max(worst, depth[bank])
				}
			}
		}
		actual += int(worst)
		ideal++
	}
	return actual, ideal
}

// SharedStats measures an instruction's loads from or stores to shared memory.
type SharedStats struct {
	Requests   int64 // number of accesses by warps
	Wavefronts int64 // total wavefronts of the requests
	Ideal      int64 // total wavefronts without bank conflicts
}

// wavefronts returns the wavefronts of an access, whose runs are r, with [ModernBanks]. It
// returns 0 for [Atomic].
func (r *runs) wavefronts(a *emu.Access) (actual, ideal int) {
	switch {
	case directionOf(a.Site, a.Kind) == Atomic:
		return 0, 0
	case r.oneWavefront(a.Size):
		return 1, 1
	}
	return ModernBanks.Wavefronts(a.Addr, a.Mask, a.Size)
}

// add adds one access. It ignores accesses with an ideal of 0.
func (s *SharedStats) add(wavefronts, ideal int) {
	if ideal == 0 {
		return
	}
	s.Requests++
	s.Wavefronts += int64(wavefronts)
	s.Ideal += int64(ideal)
}

// oneWavefront is a fast path. It returns true if the access takes one wavefront because the
// words of its runs are in different banks. If it returns false, the access can take any number.
func (r *runs) oneWavefront(size int) bool {
	if size > 4 {
		return false
	}
	var used uint32
	end := uint64(0) // end of the words visited so far
	for i := range r.byAddr[:r.n] {
		cur := &r.byAddr[i]
		first, last := max(cur.addr/4, end), (cur.addr+cur.bytes(size)-1)/4
		if first > last {
			continue
		}
		end = last + 1
		banks := bits.RotateLeft32(uint32(1<<(last-first+1)-1), int(first%32))
		if used&banks != 0 {
			return false
		}
		used |= banks
	}
	return true
}

// conflicts returns a finding if the extra wavefronts per request exceed limit, or nil.
func (s *SharedStats) conflicts(site *emu.Site, limit float64) *Finding {
	extra := s.Wavefronts - s.Ideal
	if limit < 0 || float64(extra) <= limit*float64(s.Requests) {
		return nil
	}
	return &Finding{
		Checker: Banks, Severity: Advice, Site: site, Count: int(s.Requests),
		Message: fmt.Sprintf("bank conflicts: an access to shared memory takes %s wavefronts on average, want %s: "+
			"if the lanes of a warp access a column, let threadIdx.x run along rows, or pad each row by one element",
			ratio(s.Wavefronts, s.Requests), ratio(s.Ideal, s.Requests)),
	}
}
