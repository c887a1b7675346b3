package asm

import "unsafe"

// Copy copies len(dst) bytes from src. It writes whole cache lines of dst with non-temporal stores,
// for data that this core will not read soon. Unless next is nil, it also prefetches as many bytes
// from next, which the caller should copy next. A [Fence] must follow before another thread learns
// of the copy.
func Copy(dst, src, next []byte) {
	head := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % Line)
	if !AVX2.Supported || len(dst) < head+Line {
		copy(dst, src)
		return
	}
	copy(dst[:head], src)
	const most = 2048 // lines: about 10 µs
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
