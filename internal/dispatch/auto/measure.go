package auto

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/host"
)

// machine is what every measurement depends on: the CPU, the build, and the meaning of the
// cache's entries.
var machine = sync.OnceValue(func() string {
	const format = 3
	return fmt.Sprintf("%d, %s/%s, %s, %s", format, runtime.GOOS, runtime.GOARCH, host.CPUName(), cache.Build())
})

// processor is the processor's speed.
func (c *Chooser) processor(u kind) (processor, error) {
	if known, ok := c.speeds[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("processor, %s, %v, %d threads", machine(), u.types, u.threads)
	speed, err := recall(c.cache, key, processor.valid, func() (processor, error) {
		return measureProcessor(c.Trial(backend.Device{Kind: "cpu"}, u.types, u.threads))
	})
	if err == nil {
		c.speeds[u] = speed
	}
	return speed, err
}

// shot is the GPU's speed, and where it overtakes a processor of that speed.
func (c *Chooser) shot(u kind, id Identity, here processor) (shot, error) {
	if known, ok := c.shots[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("gpu, %s, %v, %s, %d threads", machine(), u.types, id.Key, runtime.GOMAXPROCS(0))
	speed, err := recall(c.cache, key, oneShot.valid, func() (oneShot, error) {
		return measureGPU(c.Trial(c.GPU, u.types, 0))
	})
	s := shot{oneShot: speed}
	if err == nil {
		if n, ok := crossover(here, speed); ok {
			s.crossover = fmt.Sprintf("; for squares of %v the measured crossover is near %d", u.types, n)
		}
		c.shots[u] = s
	}
	return s, err
}

// recall finds a measurement in the cache, or makes it and leaves it there: what cannot
// be kept will be measured again.
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

// knownStart is the seconds that it takes to begin with the GPU, as far as that is known.
func (c *Chooser) knownStart() float64 {
	if c.start == 0 && !(c.cache.Get(startKey(), &c.start) && c.start >= leastStart) {
		c.start = leastStart
	}
	return c.start
}

// begin begins with the GPU, once, and measures what that takes where it can: in a
// process that has not done so already, on a machine where none has.
func (c *Chooser) begin() *begun {
	if c.begun != nil {
		return c.begun
	}
	fresh := c.knownStart() == leastStart && !c.IsOpen()
	from := time.Now()
	c.begun = &begun{}
	if c.begun.Identity, c.begun.err = c.Identify(); c.begun.err == nil {
		c.begun.err = c.Open()
	}
	if fresh && c.begun.err == nil {
		c.start = max(time.Since(from).Seconds(), leastStart)
		_ = c.cache.Put(startKey(), c.start) // if not, it is measured again
	}
	return c.begun
}
