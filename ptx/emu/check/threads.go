package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// threads is a set of threads of a block, as masks of lanes by warp.
type threads [32]uint32

// bounds returns the numbers of the first and the last thread of a set that is not empty,
// and how many it has.
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

// text names the threads: "thread (3,0,0)", "threads (0,0,0) to (7,0,0)".
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

// plural returns the form of a verb that goes with the number of threads.
func (s *threads) plural(one, many string) string {
	if _, _, count := s.bounds(); count == 1 {
		return one
	}
	return many
}

// verb returns the threads' text with a verb in the right number.
func (s *threads) verb(b *emu.BlockInfo, one, many string) string {
	return s.text(b) + " " + s.plural(one, many)
}
