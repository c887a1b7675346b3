package auto

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/dl"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/sentinel"
)

// Chooser decides between the CPU and one GPU. It selects the one that takes less time from host
// memory back to host memory, according to measurements of both.
//
// It measures on first use, for a fraction of a second, and keeps the measurements in the cache. A
// decision depends on the product and the measurements only, not on the history of the process.
type Chooser struct {
	Machine
	cache *cache.Cache

	mu     sync.Mutex // guards the fields below, and is held during measurements
	cpus   map[kind]cpuTimes
	gpus   map[kind]gpuEntry
	start  float64 // seconds to start using the GPU; 0 if not known yet
	opened *opened // nil until this process uses the GPU
}

// kind identifies products of one speed, apart from their size.
type kind struct {
	types   Types
	threads int // on the CPU
}

// gpuEntry holds the times of the GPU, and the size from which it is faster than the CPU, in words.
type gpuEntry struct {
	gpuTimes
	crossover string
}

// Identity identifies a GPU for measurements, and gives its memory.
type Identity struct {
	Key    string
	Memory int64 // bytes
}

// opened is the result of the first use of the GPU.
type opened struct {
	Identity
	err error
}

// Types holds the element types of A and B and of C.
type Types struct{ In, Out dtype.Type }

func (p Types) String() string {
	if p.In == p.Out {
		return p.In.String()
	}
	return p.In.String() + " → " + p.Out.String()
}

// Machine gives a chooser access to the CPU and the GPU.
type Machine struct {
	GPU backend.DeviceName
	// Present returns an error if there is no GPU, without starting to use it.
	Present func() error
	// Identify starts the driver and identifies the GPU. Open opens the GPU for products.
	Identify func() (Identity, error)
	Open     func() error
	// IsOpen reports whether the process uses the GPU already.
	IsOpen func() bool
	// Trial returns a function that times square products on d.
	Trial func(d backend.DeviceName, types Types, threads int) Trial
}

// NewChooser returns a chooser that keeps its measurements in a cache.
func NewChooser(m Machine, c *cache.Cache) *Chooser {
	return &Chooser{Machine: m, cache: c, cpus: map[kind]cpuTimes{}, gpus: map[kind]gpuEntry{}}
}

const (
	// MinFlopsForGPU is the work below which no GPU is faster: launching a product and waiting for it
	// takes about 20 µs, in which one core does as much.
	MinFlopsForGPU = 2e6
	// usualProducts is the assumed number of products of one size per process, unless the request says
	// that there is only one. If all of them take less than starting the GPU, the CPU computes them.
	usualProducts = 1000
	// minStart is a lower bound, in seconds, of the time to start using any GPU. A product that takes
	// less does not start one to measure that time.
	minStart = 0.05
)

// Decision is an automatic choice of a device, and its reason. The zero value is no decision.
// String formats the reason.
type Decision struct {
	Device backend.DeviceName
	Reason
	gpu         backend.DeviceName // the candidate GPU
	here, there float64            // predicted seconds on the CPU and on the GPU
	start       float64            // seconds to start using the GPU; 0 if that does not count
	bytes       float64            // size of the matrices
	crossover   string
	Err         error // why there is no GPU, or no measurement
	Refused     error // why the GPU cannot compute it after all
}

// Reason is the reason of a decision between the CPU and a GPU.
type Reason uint8

const (
	_ Reason = iota
	tooSmallForGPU
	noDriver
	NoGPU
	noMeasurementHere
	noMeasurementThere
	notWorthBeginning
	tooLargeForGPU
	faster
)

func (c Decision) String() string {
	s := c.words()
	if c.Refused != nil {
		s += fmt.Sprintf(", which cannot compute it: %v", c.Refused)
	}
	return s
}

func (c Decision) words() string {
	switch c.Reason {
	case tooSmallForGPU:
		return "too small for a GPU to pay"
	case noDriver: // where the driver was looked for concerns only those who request a GPU
		return "no NVIDIA driver here"
	case NoGPU:
		return "no GPU: " + strings.TrimPrefix(c.Err.Error(), sentinel.ErrNoDevice.Error()+": ")
	case noMeasurementHere:
		return fmt.Sprintf("the CPU could not be measured: %v", c.Err)
	case noMeasurementThere:
		return fmt.Sprintf("%v could not be measured: %v", c.gpu, c.Err)
	case notWorthBeginning:
		least := ""
		if c.start == minStart {
			least = "at least "
		}
		return fmt.Sprintf("about %s here, not worth starting %v, which takes %s%s", words(c.here), c.gpu, least,
			words(c.start))
	case tooLargeForGPU:
		return fmt.Sprintf("the matrices take %s, too much for %v", host.Bytes(uint64(c.bytes)), c.gpu)
	case faster:
		s := fmt.Sprintf("about %s here against %s on %v", words(c.here), words(c.there), c.gpu)
		if c.start > 0 {
			s += fmt.Sprintf(" and %s to start it", words(c.start))
		}
		return s + c.crossover
	}
	return ""
}

// Choose sets made, which must be zero, to the CPU or the GPU and the reason. If ctx ends during a
// measurement, made.Err wraps its error.
func (c *Chooser) Choose(ctx context.Context, p *gemm.Problem, threads int, once bool, made *Decision) {
	made.Device.Kind = backend.CPU
	if p.Flops() < MinFlopsForGPU {
		made.Reason = tooSmallForGPU
		return
	}
	made.gpu = c.GPU
	if err := c.Present(); errors.Is(err, dl.ErrSearchPath) {
		made.Reason, made.Err = NoGPU, err
		return
	} else if err != nil {
		made.Reason = noDriver
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := kind{Types{p.In(), p.Out()}, cpu.Workers(threads)}
	times, err := c.cpuTimes(ctx, u)
	if err != nil {
		made.Reason, made.Err = noMeasurementHere, err
		return
	}
	made.here = times.seconds(p.Flops())
	start, all := c.knownStart(), float64(usualProducts)
	if once {
		all = 1
	}
	if made.here*all <= start {
		made.Reason, made.start = notWorthBeginning, start
		return
	}
	gpu := c.open()
	if gpu.err != nil {
		made.Reason, made.Err = NoGPU, gpu.err
		return
	}
	made.bytes = traffic(p)
	if made.bytes > 0.9*float64(gpu.Memory) {
		made.Reason = tooLargeForGPU
		return
	}
	entry, err := c.gpuTimes(ctx, u, gpu.Identity, times)
	if err != nil {
		made.Reason, made.Err = noMeasurementThere, err
		return
	}
	made.Reason, made.crossover = faster, entry.crossover
	made.there = entry.seconds(side(p), p.Flops())
	if once {
		made.start = c.start
	}
	if made.there+made.start < made.here {
		made.Device = c.GPU
	}
}

// words formats a time with two digits.
func words(s float64) string {
	d, unit := seconds(s), time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit).String()
}
