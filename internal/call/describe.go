package call

import (
	"time"

	"tilework/internal/gemm"
)

// Description describes how a product would be computed, and why.
type Description struct {
	Problem                     gemm.Problem
	Device, Kernel, Detail, Why string
	Threads                     int           // maximum number of goroutines; 0 on a GPU
	Compile                     time.Duration // see [dispatch.Plan.CompileTime]
}
