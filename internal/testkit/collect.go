package testkit

import (
	"os"
	"runtime/debug"
)

// CollectRarely reduces the number of garbage collections to a quarter, as long as the process
// takes less than a GiB of memory. It is for packages whose tests build and emulate many kernels:
// with the default up to a third of their CPU time is the collector's. The environment variables
// GOGC and GOMEMLIMIT come before it.
func CollectRarely() {
	const limit = 1 << 30
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
