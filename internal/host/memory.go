package host

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"

	"tilework/internal/sentinel"
)

// budget is the memory, in bytes, that can still be allocated under one limit.
type budget struct {
	free uint64
	of   string // the end of a message such as "3 GiB are free"
	// raise, if set, describes a limit with which bytes more can be allocated.
	raise func(bytes uint64) string
}

// The smallest allocations, in bytes, that CheckMemory checks. For smaller ones, a check costs more
// than the allocation.
const (
	minChecked        = 64 << 20
	minCheckedLimited = 64 << 10 // in a process with a memory limit, which small allocations can reach
)

// Available returns the number of bytes that can still be allocated without swapping and within the
// limits of the process. It returns false if this is unknown.
func Available() (uint64, bool) {
	b, ok := tightest(budgets())
	return b.free, ok
}

// budgets returns the memory that is left under each known limit.
func budgets() []budget {
	return slices.Concat(systemBudgets(), processBudgets(), addressBudgets(addressBits()))
}

// addressBits returns the number of bits of an address. WebAssembly has integers of 64 bits and
// addresses of 32.
func addressBits() int {
	if runtime.GOARCH == "wasm" {
		return 32
	}
	return strconv.IntSize
}

// addressBudgets returns the part of a 32-bit address space that the Go heap does not use yet, and
// nothing on other platforms. Windows leaves 2 GiB of the addresses to a program, and others leave
// more.
func addressBudgets(bits int) []budget {
	const usable = 3 << 29
	if bits > 32 {
		return nil
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return []budget{{free: less(usable, m.Sys-m.HeapIdle), of: "left of " + Bytes(usable) + " for a 32-bit program"}}
}

// less returns a - b, or 0 if b is larger.
func less(a, b uint64) uint64 { return a - min(a, b) }

// tightest returns the budget with the least free memory. It returns false if there are none.
func tightest(all []budget) (budget, bool) {
	if len(all) == 0 {
		return budget{}, false
	}
	return slices.MinFunc(all, func(a, b budget) int {
		if a.free < b.free {
			return -1
		}
		return 1
	}), true
}

// CheckMemory returns ErrOutOfMemory if an allocation cannot succeed. The Go runtime ends the
// process if memory runs out, so this must be checked before. The argument name describes the data
// in the error.
func CheckMemory(bytes int, name string) error {
	if bytes < minCheckedLimited || bytes < minChecked && !limited() && addressBits() > 32 {
		return nil
	}
	if b, ok := tightest(budgets()); ok && uint64(bytes) > b.free {
		want := ""
		if b.raise != nil {
			want = ": want at least " + b.raise(uint64(bytes))
		}
		return fmt.Errorf("%w: %s takes %s, and %s are %s%s",
			sentinel.ErrOutOfMemory, name, Bytes(uint64(bytes)), Bytes(b.free), b.of, want)
	}
	return nil
}

// FileSystem describes the file system that holds a folder.
type FileSystem struct {
	Free     uint64 // bytes that a user can still write
	InMemory bool   // files are stored in memory, as on a RAM disk
	Memory   uint64 // if InMemory: bytes of free memory
}

// FileSystemOf returns the file system of a folder. It returns false if the file system is unknown.
func FileSystemOf(folder string) (FileSystem, bool) { return fileSystemOf(folder) }
