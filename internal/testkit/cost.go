package testkit

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// maxTime is the maximum time for any input. Fuzzing uses inputs of at most a few KiB.
const maxTime = time.Second

// constantBytes is the memory that an input of any size may take, for error messages, tokens of
// headers and buffers.
const constantBytes = 1 << 20

// Allocated returns the number of bytes that f allocates, including garbage. It also counts the
// allocations of other goroutines during the call.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// approxAllocated returns the approximate number of bytes that the process has allocated so far. It
// is faster than runtime.ReadMemStats, which stops the world. The runtime counts small objects when
// their span is full or collected, so a difference of two results may miss some spans or include
// earlier ones.
func approxAllocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// CheckCost runs f, which reads an input of the given number of bytes. It fails t if f allocates
// more than factor times the input plus 1 MiB, or takes more than one second. As the machine may be
// busy, a slow f gets two more tries.
func CheckCost(t testing.TB, input int, factor uint64, f func()) {
	t.Helper()
	limit := factor*uint64(input) + constantBytes
	start, before := time.Now(), approxAllocated()
	f()
	fastest := time.Since(start)
	if approxAllocated()-before > limit/2 { // measure exactly
		if took := Allocated(f); took > limit {
			t.Errorf("an input of %d bytes took %d bytes of memory, want at most %d", input, took, limit)
		}
	}
	for range 2 {
		if fastest <= maxTime {
			return
		}
		start = time.Now()
		f()
		fastest = min(fastest, time.Since(start))
	}
	if fastest > maxTime {
		t.Errorf("an input of %d bytes took %v, want at most %v", input, fastest, maxTime)
	}
}
