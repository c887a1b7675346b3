package host

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
)

// budget is the memory, in bytes, that can still be allocated under one limit.
type budget struct {
	free uint64
	of   string // completes "3 GiB are" in a message
}

// The least sizes, in bytes, of allocations that are checked: below them, a check costs more than
// the allocation. A process whose memory is limited reaches the limit by small ones too.
const (
	checkedSize = 64 << 20
	limitedSize = 64 << 10
)

// Available returns the memory, in bytes, that can still be allocated without swapping and
// within the limits of the process. It is false where the system does not tell.
func Available() (uint64, bool) {
	b, ok := tightest(append(systemBudgets(), processBudgets()...))
	return b.free, ok
}

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

// CheckMemory refuses an allocation that cannot succeed, because Go ends the
// process when memory runs out. The error is ErrOutOfMemory, and names the thing to be
// allocated.
func CheckMemory(bytes int, what string) error {
	if bytes < limitedSize || bytes < checkedSize && !limited() {
		return nil
	}
	if b, ok := tightest(append(systemBudgets(), processBudgets()...)); ok && uint64(bytes) > b.free {
		return fmt.Errorf("%w: %s takes %s, and %s are %s", gemm.ErrOutOfMemory, what, Bytes(uint64(bytes)), Bytes(b.free), b.of)
	}
	return nil
}

// FileSystem describes the file system that holds a folder.
type FileSystem struct {
	Free     uint64 // bytes that a user may still write
	InMemory bool   // whether its files take memory, as on a RAM disk
	Memory   uint64 // in that case, the memory that is free for files and programs
}

// FileSystemOf returns the file system of a folder. It is false where the system does not tell.
func FileSystemOf(folder string) (FileSystem, bool) { return fileSystemOf(folder) }
