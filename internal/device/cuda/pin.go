package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// Index returns the number of the GPU in the process.
func (g *GPU) Index() int { return int(g.info.handle) }

// Pin locks host memory in place, so that the GPU accesses it directly, until unpin is called.
// Pinning takes about as long as a copy of the memory. tilework itself pins no memory of its
// caller; libraries that it is compared with are faster if the caller has pinned it.
func (g *GPU) Pin(memory []byte) (unpin func() error, err error) {
	if len(memory) == 0 {
		return nil, errors.New("cannot pin 0 bytes of memory: want at least 1")
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	const portable = 1 // CU_MEMHOSTREGISTER_PORTABLE
	err = g.within(func() error {
		return g.call(cuMemHostRegister, at, uintptr(len(memory)), portable)
	})
	if err != nil {
		return nil, fmt.Errorf("pinning %d bytes: %w", len(memory), err)
	}
	return func() error { return g.within(func() error { return g.call(cuMemHostUnregister, at) }) }, nil
}
