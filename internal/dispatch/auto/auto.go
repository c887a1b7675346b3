package auto

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// chooser decides between the processor and one GPU: for the one that takes less time
// from the caller's memory back to it, by what both were measured to take.
//
// It measures when it first has to know, for a fraction of a second, and keeps what it
// has measured in the cache. What it decides depends on the product and on what was
// measured, not on what the process did before.
type Chooser struct {
	Machine
	cache *cache.Cache

	mu     sync.Mutex // guards what follows, and is held while measuring
	speeds map[kind]processor
	shots  map[kind]shot
	start  float64 // seconds that it takes to begin with the GPU; 0 before anybody asked
	begun  *begun  // nil before this process has
}

// kind is what the speed of a product depends on besides its size.
type kind struct {
	types   Types
	threads int // of the processor
}

// shot is how fast the GPU is, and what follows from that.
type shot struct {
	oneShot
	crossover string
}

// Identity is what the measurements of a GPU depend on, and what it holds.
type Identity struct {
	Key    string
	Memory int64 // bytes
}

// begun is what came of beginning with the GPU.
type begun struct {
	Identity
	err error
}

// Types is the element types of a product, of A and B and of C.
type Types struct{ In, Out dtype.Type }

func (p Types) String() string {
	if p.In == p.Out {
		return p.In.String()
	}
	return p.In.String() + " → " + p.Out.String()
}

// Machine is the CPU and the GPU to decide between, as the chooser asks for them.
type Machine struct {
	GPU backend.Device
	// Present returns an error if there is no GPU, without starting to use it.
	Present func() error
	// Identify starts to use the GPU as far as to identify it, and Open for products.
	Identify func() (Identity, error)
	Open     func() error
	// IsOpen reports whether the process uses the GPU already.
	IsOpen func() bool
	// Trial returns a function that times square products on d.
	Trial func(d backend.Device, types Types, threads int) Trial
}

// New returns a chooser that keeps its measurements in a cache.
func NewChooser(m Machine, c *cache.Cache) *Chooser {
	return &Chooser{Machine: m, cache: c, speeds: map[kind]processor{}, shots: map[kind]shot{}}
}

const (
	// tooSmall is the work that no GPU is faster with: it takes some 20 µs to ask for
	// a product and to hear of its end, in which one core does as much.
	tooSmall = 2e6
	// often is how many products of a size a process is taken to compute where nobody
	// says that it is one: if all of them take less than to begin with a GPU, none is.
	often = 1000
	// leastStart is less than it takes anywhere to begin with a GPU, in seconds: nobody
	// begins with one to find that out for a product that is done before.
	leastStart = 0.05
)

// choice is a device that was chosen unasked, and why; the words are made when they are
// asked for. The zero value says nothing.
type Decision struct {
	Device backend.Device
	Reason
	gpu         backend.Device // the other one, if the processor was chosen
	here, there float64        // seconds on the processor and on the GPU …
	start       float64        // … and to begin with it; 0 where that does not count
	bytes       float64        // of the matrices
	crossover   string
	Err         error // why there is no GPU, or no measurement
	Refused     error // why the GPU cannot compute it after all
}

// because is what decided between the processor and a GPU.
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
		return "no GPU: " + strings.TrimPrefix(c.Err.Error(), device.ErrNoDevice.Error()+": ")
	case noMeasurementHere:
		return fmt.Sprintf("the processor could not be measured: %v", c.Err)
	case noMeasurementThere:
		return fmt.Sprintf("%v could not be measured: %v", c.gpu, c.Err)
	case notWorthBeginning:
		least := ""
		if c.start == leastStart {
			least = "at least "
		}
		return fmt.Sprintf("about %s here, not worth beginning with %v, which takes %s%s", words(c.here), c.gpu, least, words(c.start))
	case tooLargeForGPU:
		return fmt.Sprintf("the matrices take %s, too much for %v", host.Bytes(uint64(c.bytes)), c.gpu)
	case faster:
		s := fmt.Sprintf("about %s here against %s on %v", words(c.here), words(c.there), c.gpu)
		if c.start > 0 {
			s += fmt.Sprintf(" and %s to begin with it", words(c.start))
		}
		return s + c.crossover
	}
	return ""
}

// choose says in made, which is a choice of nothing, the processor or the GPU, and why.
func (c *Chooser) Choose(p *gemm.Problem, threads int, once bool, made *Decision) {
	made.Device.Kind = "cpu"
	if p.Flops() < tooSmall {
		made.Reason = tooSmallForGPU
		return
	}
	made.gpu = c.GPU
	if c.Present() != nil {
		made.Reason = noDriver
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := kind{Types{p.In(), p.Out()}, cpu.Workers(threads)}
	speed, err := c.processor(u)
	if err != nil {
		made.Reason, made.Err = noMeasurementHere, err
		return
	}
	made.here = speed.seconds(p.Flops())
	start, all := c.knownStart(), float64(often)
	if once {
		all = 1
	}
	if made.here*all <= start {
		made.Reason, made.start = notWorthBeginning, start
		return
	}
	gpu := c.begin()
	if gpu.err != nil {
		made.Reason, made.Err = NoGPU, gpu.err
		return
	}
	made.bytes = traffic(p)
	if made.bytes > 0.9*float64(gpu.Memory) {
		made.Reason = tooLargeForGPU
		return
	}
	shot, err := c.shot(u, gpu.Identity, speed)
	if err != nil {
		made.Reason, made.Err = noMeasurementThere, err
		return
	}
	made.Reason, made.crossover = faster, shot.crossover
	made.there = shot.seconds(side(p), p.Flops())
	if once {
		made.start = c.start
	}
	if made.there+made.start < made.here {
		made.Device = c.GPU
	}
}

// words is a time to two digits.
func words(s float64) string {
	d, unit := seconds(s), time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit).String()
}
