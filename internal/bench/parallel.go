package bench

import (
	"runtime"
	"sync"
)

// parallel cuts the numbers below n into stretches and calls f for each, at the same
// time.
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
