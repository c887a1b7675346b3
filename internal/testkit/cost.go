package testkit

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"
)

// maxTime is the maximum CPU time for any input. Fuzzing uses inputs of at most a few KiB.
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
// more than factor times the input plus 1 MiB or, on Linux, takes more than one second of CPU time.
// That of its thread counts, however busy the machine is.
func CheckCost(t testing.TB, input int, factor uint64, f func()) {
	t.Helper()
	limit := factor*uint64(input) + constantBytes
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, start := approxAllocated(), threadTime()
	f()
	if took := threadTime() - start; took > maxTime {
		t.Errorf("an input of %d bytes took %v of CPU time, want at most %v", input, took, maxTime)
	}
	if approxAllocated()-before > limit/2 { // measure exactly
		if took := Allocated(f); took > limit {
			t.Errorf("an input of %d bytes took %d bytes of memory, want at most %d", input, took, limit)
		}
	}
}

// Lengths returns the lengths of inputs that show how the work of a parser grows: 1, 2, 4 and 8 MiB
// if Full is true, and a sixteenth of these otherwise.
func Lengths() []int {
	unit := Cases(64<<10, 1<<20)
	return []int{unit, 2 * unit, 4 * unit, 8 * unit}
}

// CheckLinear calls work with the input of each of the given lengths, which may be approximate. The
// function work returns a count, such as the number of bytes that a parser reads and allocates.
// CheckLinear fails t if the count for each byte of the input exceeds most, or twice the count for
// each byte of the shortest input, which is taken for one if it is less. Slices that grow by
// doubling allocate up to twice as much for each byte.
func CheckLinear(t testing.TB, name string, lengths []int, most uint64, input func(n int) string,
	work func(input string) uint64) {
	t.Helper()
	var first float64 // for each byte of the shortest input
	for i, n := range lengths {
		text := input(n)
		count := work(text)
		each := float64(count) / float64(len(text))
		if i == 0 {
			first = max(each, 1)
		}
		if each > 2*first || each > float64(most) {
			t.Errorf("%q: %d bytes take a work of %d, %.1f for each: want at most %d, and at most twice the %.1f of the "+
				"shortest input", name, len(text), count, each, most, first)
		}
	}
}
