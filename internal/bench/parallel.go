package bench

import (
	"runtime"
	"sync"
)

// parallel splits the numbers below n into ranges and calls f for each range concurrently.
func parallel(n int, f func(from, to int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		f(0, n)
		return
	}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() { f(i*n/workers, (i+1)*n/workers) })
	}
	all.Wait()
}
