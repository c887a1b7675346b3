package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// threads is a set of threads of a block, as lane masks by warp.
type threads [32]uint32

// bounds returns the first and the last thread of a non-empty set, and its size.
func (s *threads) bounds() (first, last, count int) {
	first = -1
	for warp, mask := range s {
		if mask == 0 {
			continue
		}
		if first < 0 {
			first = warp*32 + bits.TrailingZeros32(mask)
		}
		last = warp*32 + 31 - bits.LeadingZeros32(mask)
		count += bits.OnesCount32(mask)
	}
	return first, last, count
}

// first returns the first thread.
func (s *threads) first(b *emu.BlockInfo) emu.Dim3 {
	n, _, _ := s.bounds()
	return thread(b, n)
}

// text describes the threads: "thread (3,0,0)", "threads (0,0,0) to (7,0,0)".
func (s *threads) text(b *emu.BlockInfo) string {
	first, last, count := s.bounds()
	switch from, to := thread(b, first), thread(b, last); {
	case count == 1:
		return fmt.Sprintf("thread %v", from)
	case count == last-first+1:
		return fmt.Sprintf("threads %v to %v", from, to)
	default:
		return fmt.Sprintf("%d of the threads %v to %v", count, from, to)
	}
}

// plural returns one if the set has one thread, and otherwise many.
func (s *threads) plural(one, many string) string {
	if _, _, count := s.bounds(); count == 1 {
		return one
	}
	return many
}

// verb returns the description of the threads followed by the verb in the right number.
func (s *threads) verb(b *emu.BlockInfo, one, many string) string {
	return s.text(b) + " " + s.plural(one, many)
}
