package auto

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/host"
)

// machine identifies the CPU, the build and the format of the cache entries, on which every
// measurement depends.
var machine = sync.OnceValue(func() string {
	const format = 3
	return fmt.Sprintf("%d, %s/%s, %s, %s", format, runtime.GOOS, runtime.GOARCH, host.CPUName(), cache.Build())
})

// cpuTimes returns the measured times of the CPU.
func (c *Chooser) cpuTimes(ctx context.Context, u kind) (cpuTimes, error) {
	if known, ok := c.cpus[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("cpu, %s, %v, %d threads", machine(), u.types, u.threads)
	times, err := recall(c.cache, key, cpuTimes.valid, func() (cpuTimes, error) {
		return measureCPU(ctx, c.Trial(backend.DeviceName{Kind: backend.CPU}, u.types, u.threads))
	})
	if err == nil {
		c.cpus[u] = times
	}
	return times, err
}

// gpuTimes returns the measured times of the GPU, and the size from which it is faster than a CPU
// with the given times.
func (c *Chooser) gpuTimes(ctx context.Context, u kind, id Identity, here cpuTimes) (gpuEntry, error) {
	if known, ok := c.gpus[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("gpu, %s, %v, %s, %d threads", machine(), u.types, id.Key, runtime.GOMAXPROCS(0))
	times, err := recall(c.cache, key, gpuTimes.valid, func() (gpuTimes, error) {
		return measureGPU(ctx, c.Trial(c.GPU, u.types, 0))
	})
	s := gpuEntry{gpuTimes: times}
	if err == nil {
		if n, ok := crossover(here, times); ok {
			s.crossover = fmt.Sprintf("; for squares of %v the measured crossover is near %d", u.types, n)
		}
		c.gpus[u] = s
	}
	return s, err
}

// recall returns a measurement from the cache, or measures and stores it. A measurement that cannot
// be stored is repeated by the next process.
func recall[T any](c *cache.Cache, key string, valid func(T) bool, measure func() (T, error)) (v T, err error) {
	if c.Get(key, &v) && valid(v) {
		return v, nil
	}
	c.Exclusive(func() {
		if c.Get(key, &v) && valid(v) { // another process has measured meanwhile
			return
		}
		if v, err = measure(); err == nil {
			_ = c.Put(key, v)
		}
	})
	return v, err
}

func startKey() string { return "start, " + machine() }

// knownStart returns the seconds to start using the GPU, or a lower bound if that is not known.
func (c *Chooser) knownStart() float64 {
	if c.start == 0 && !(c.cache.Get(startKey(), &c.start) && c.start >= minStart) {
		c.start = minStart
	}
	return c.start
}

// open opens the GPU, once. It measures the time if this is the first use in this process and no
// other process has measured it.
func (c *Chooser) open() *opened {
	if c.opened != nil {
		return c.opened
	}
	fresh := c.knownStart() == minStart && !c.IsOpen()
	from := time.Now()
	c.opened = &opened{}
	if c.opened.Identity, c.opened.err = c.Identify(); c.opened.err == nil {
		c.opened.err = c.Open()
	}
	if fresh && c.opened.err == nil {
		c.start = max(time.Since(from).Seconds(), minStart)
		_ = c.cache.Put(startKey(), c.start) // if not, it is measured again
	}
	return c.opened
}
