package dispatch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"tilework/internal/cache"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// machine is what every measurement depends on: the processor, our kernels, and what
// the entries of the cache mean.
var machine = sync.OnceValue(func() string {
	const format = 2
	var kernels strings.Builder
	for _, k := range Kernels(Device{}) {
		fmt.Fprintln(&kernels, k)
	}
	return fmt.Sprintf("%d, %s/%s, %s, kernels %x", format, runtime.GOOS, runtime.GOARCH, host.Processor(), sha256.Sum256([]byte(kernels.String())))
})

// processor is the processor's speed.
func (c *chooser) processor(u kind) (processor, error) {
	if known, ok := c.speeds[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("processor, %s, %v, %d threads", machine(), u.types, u.threads)
	speed, err := recall(c.cache, key, processor.valid, func() (processor, error) {
		return measureProcessor(c.trials(Device{Kind: "cpu"}, u.types, u.threads))
	})
	if err == nil {
		c.speeds[u] = speed
	}
	return speed, err
}

// shot is the GPU's speed, and where it overtakes a processor of that speed.
func (c *chooser) shot(u kind, id identity, here processor) (shot, error) {
	if known, ok := c.shots[u]; ok {
		return known, nil
	}
	key := fmt.Sprintf("gpu, %s, %v, %s, %d threads", machine(), u.types, id.key, runtime.GOMAXPROCS(0))
	speed, err := recall(c.cache, key, oneShot.valid, func() (oneShot, error) {
		return measureGPU(c.trials(c.gpu, u.types, 0))
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
	c.Alone(func() {
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
func (c *chooser) knownStart() float64 {
	if c.start == 0 && !(c.cache.Get(startKey(), &c.start) && c.start >= leastStart) {
		c.start = leastStart
	}
	return c.start
}

// begin begins with the GPU, once, and measures what that takes where it can: in a
// process that has not done so already, on a machine where none has.
func (c *chooser) begin() *begun {
	if c.begun != nil {
		return c.begun
	}
	fresh := c.knownStart() == leastStart && !isOpen(c.gpu)
	from := time.Now()
	c.begun = &begun{}
	if c.begun.identity, c.begun.err = c.identify(); c.begun.err == nil {
		_, c.begun.err = backend(c.gpu)
	}
	if fresh && c.begun.err == nil {
		c.start = max(time.Since(from).Seconds(), leastStart)
		_ = c.cache.Put(startKey(), c.start) // if not, it is measured again
	}
	return c.begun
}

// tryOn computes products of zeros on a device, as anybody's products are computed: from
// memory that was touched before into memory that was.
func tryOn(d Device, types pair, threads int) trial {
	var pl *Plan
	var b gemm.Buffers
	return func(n int) (time.Duration, error) {
		if pl == nil || pl.Problem.N != n {
			p, _, err := gemm.New(1, gemm.Dense(types.In, n, n), gemm.Dense(types.In, n, n), 0, gemm.Dense(types.Out, n, n), gemm.Epilogue{})
			if err != nil {
				return 0, err
			}
			if pl, err = New(Request{Problem: p, Device: d, Threads: threads, Timed: true}); err != nil {
				return 0, err
			}
			b = gemm.Buffers{A: touched(p.A), B: touched(p.B), C: touched(p.C)}
		}
		err := pl.Run(context.Background(), b)
		return pl.Took(), err
	}
}

// touched is memory for a matrix that the system has given a place.
func touched(l gemm.Layout) []byte {
	b := make([]byte, l.Bytes())
	const page = 4096
	for i := 0; i < len(b); i += page {
		b[i] = 0
	}
	return b
}
