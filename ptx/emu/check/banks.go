package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// BankModel says how shared memory serves a warp: words of 4 bytes lie in Banks banks
// in turn, and one wavefront reads or writes one word of each bank. Lanes that want
// the same word share it. An access is served in phases of so many lanes as could at
// best be served at once.
type BankModel struct {
	Banks int // up to 32
	Lanes int // the lanes that are served together if each wants 4 bytes or less
}

// The models of the GPUs' generations (CUDA C++ Programming Guide, "Compute
// Capabilities").
var (
	// ModernBanks: since compute capability 2.0 a whole warp, so that 8-byte
	// accesses go by half warps and 16-byte ones by quarters.
	ModernBanks = BankModel{Banks: 32, Lanes: 32}
	// HistoricBanks: of compute capability 1.x, by half warps.
	HistoricBanks = BankModel{Banks: 16, Lanes: 16}
)

// Wavefronts says how many wavefronts the access to size bytes at addr[i] by each lane
// i of mask takes, and how many it would without conflicts.
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
		// The different words that the phase wants, chained by bank, from 1.
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

// SharedStats measures an instruction's loads or stores of shared memory.
type SharedStats struct {
	Requests   int64 // accesses of a warp
	Wavefronts int64 // that they took
	Ideal      int64 // that they had taken without conflicts
}

// wavefronts returns the wavefronts of an access, which is cut into rs, on [ModernBanks]: none
// for [Atomic].
func (rs *runs) wavefronts(a *emu.Access) (actual, ideal int) {
	switch {
	case directionOf(a.Site, a.Kind) == Atomic:
		return 0, 0
	case rs.oneWavefront(a.Size):
		return 1, 1
	}
	return ModernBanks.Wavefronts(a.Addr, a.Mask, a.Size)
}

// add counts one access, which has no wavefronts if ideal is 0.
func (s *SharedStats) add(wavefronts, ideal int) {
	if ideal == 0 {
		return
	}
	s.Requests++
	s.Wavefronts += int64(wavefronts)
	s.Ideal += int64(ideal)
}

// oneWavefront reports whether an access plainly takes one wavefront, as that of a
// tidy kernel does: whether the words of its runs are in different banks. A false says
// nothing.
func (r *runs) oneWavefront(size int) bool {
	if size > 4 {
		return false
	}
	var used uint32
	end := uint64(0) // of the words that were looked at
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

// conflicts reports what exceeds the limit, in wavefronts a request.
func (s *SharedStats) conflicts(site *emu.Site, limit float64) *Finding {
	extra := s.Wavefronts - s.Ideal
	if limit < 0 || float64(extra) <= limit*float64(s.Requests) {
		return nil
	}
	return &Finding{
		Checker: Banks, Severity: Advice, Site: site, Count: int(s.Requests),
		Message: fmt.Sprintf("bank conflicts: an access to shared memory takes %s wavefronts on average where %s would do: do the lanes of a warp go down a column? Let threadIdx.x run along the rows, or pad each row by one element",
			ratio(s.Wavefronts, s.Requests), ratio(s.Ideal, s.Requests)),
	}
}
