// Package host asks the operating system about the machine.
package host

import (
	"fmt"
	"runtime"

	"tilework/internal/gemm"
)

// Available is the memory, in bytes, that can still be allocated without
// swapping; false where the system does not say.
func Available() (uint64, bool) { return available() }

// CheckMemory refuses an allocation that cannot succeed, because Go ends the
// process when memory runs out. The error is ErrOutOfMemory; what stands for the
// thing to be allocated.
func CheckMemory(bytes int, what string) error {
	// Below this size asking costs more than allocating.
	if bytes < 64<<20 {
		return nil
	}
	if avail, ok := Available(); ok && uint64(bytes) > avail {
		return fmt.Errorf("%w: %s takes %s, and %s are free", gemm.ErrOutOfMemory, what, Bytes(uint64(bytes)), Bytes(avail))
	}
	return nil
}

// Bytes is a number of bytes in words: "1.5 GiB".
func Bytes(n uint64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, u := float64(n)/(1<<10), 0
	for ; v >= 1024 && u < len(units)-1; u++ {
		v /= 1024
	}
	return fmt.Sprintf("%.3g %ciB", v, units[u])
}

// Processor is the processor's name as the system gives it, or its architecture
// where it does not.
func Processor() string {
	if name := processor(); name != "" {
		return name
	}
	return runtime.GOARCH
}
