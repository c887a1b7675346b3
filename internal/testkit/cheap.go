package testkit

import (
	"runtime/metrics"
	"testing"
	"time"
)

// most is how long any input may take, which the fuzzer keeps below a few KiB.
const most = time.Second

// constant is the memory that may be taken however short the input is: for messages,
// for headers whose tokens are garbage as soon as they are read, for buffers.
const constant = 1 << 20

// Allocated is how many bytes of memory f takes in all, what it gives back included.
// Other goroutines count too. Small objects are counted by the span, of some KiB, that
// was filled with them: [runtime.ReadMemStats] would be exact and stops every goroutine,
// which takes longer than most inputs of a fuzzer do.
func Allocated(f func()) uint64 {
	before := taken()
	f()
	return taken() - before
}

// taken is how many bytes of memory the process has ever taken.
func taken() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Cheap runs f, which reads an input of so many bytes, and fails t if that takes a
// second, three times in turn, as a machine may be busy with something else, or more
// memory than factor times the input and 1 MiB.
func Cheap(t testing.TB, input int, factor uint64, f func()) {
	t.Helper()
	start := time.Now()
	took := Allocated(f)
	if limit := factor*uint64(input) + constant; took > limit {
		t.Errorf("%d bytes took %d bytes of memory, want at most %d", input, took, limit)
	}
	fastest := time.Since(start)
	for range 2 {
		if fastest <= most {
			return
		}
		start = time.Now()
		f()
		fastest = min(fastest, time.Since(start))
	}
	if fastest > most {
		t.Errorf("%d bytes took %v, want at most %v", input, fastest, most)
	}
}
