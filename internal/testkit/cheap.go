package testkit

import (
	"runtime"
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
// Other goroutines count too.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// counted is how many bytes of memory the process has taken so far, for little: small
// objects are counted when their span is full or is collected, so that between two counts
// there may be some spans too few, or what others took.
func counted() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Cheap runs f, which reads an input of so many bytes, and fails t if that takes a
// second, three times in turn, as a machine may be busy with something else, or more
// memory than factor times the input and 1 MiB.
func Cheap(t testing.TB, input int, factor uint64, f func()) {
	t.Helper()
	limit := factor*uint64(input) + constant
	start, before := time.Now(), counted()
	f()
	fastest := time.Since(start)
	if counted()-before > limit/2 { // or else it is not worth stopping the world for
		if took := Allocated(f); took > limit {
			t.Errorf("%d bytes took %d bytes of memory, want at most %d", input, took, limit)
		}
	}
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
