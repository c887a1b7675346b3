package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pinThread keeps the calling goroutine on the first of the process's cores. The other threads of
// Go's runtime take the other cores. One of them wakes every 20 µs for some milliseconds after a
// product of a library, and on the same core would slow the product after it by a third.
func pinThread() (unpin func()) {
	var all, first unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return func() {}
	}
	for core := range len(all) * 64 {
		if all.IsSet(core) {
			first.Set(core)
			break
		}
	}
	runtime.LockOSThread()
	unix.SchedSetaffinity(0, &first) // without it the timings are right but vary more
	return func() {
		unix.SchedSetaffinity(0, &all)
		runtime.UnlockOSThread()
	}
}
