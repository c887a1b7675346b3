package check

import "math/bits"

// historicTransactions returns the number of half-warps and of memory transactions of an access
// at compute capability 1.0. A half-warp takes one transaction, or two for 16-byte words, if its
// thread k accesses word k of an aligned segment in words of 4, 8 or 16 bytes. Otherwise it takes
// one transaction for each thread (CUDA C Programming Guide 3.2, appendix G.3.2).
func historicTransactions(addr *[32]uint64, mask uint32, size int) (halves, transactions int64) {
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
