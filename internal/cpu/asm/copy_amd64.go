package asm

import "unsafe"

// Copy copies len(dst) bytes of src, and around the caches what is whole lines of dst: for
// what is not read here again soon. As many bytes of next are fetched meanwhile, which are to
// be copied next, if it is not nil. Before others are told of the copy there is a [Fence].
func Copy(dst, src, next []byte) {
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % Line)
	if !AVX2.Supported || len(dst) < head+Line {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	const most = 2048 // lines, some 10 µs
	if next == nil {
		next = src
	}
	ahead := uintptr(unsafe.Pointer(unsafe.SliceData(next)))
	n := head
	for n+Line <= len(dst) {
		lines := min((len(dst)-n)/Line, most)
		CopyLines(&dst[n], &src[n], ahead+uintptr(n), lines)
		n += lines * Line
	}
	copy(dst[n:], src[n:])
}
