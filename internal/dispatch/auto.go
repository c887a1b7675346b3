package dispatch

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"tilework/dtype"
	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/host"
)

// chooser decides between the processor and one GPU: for the one that takes less time
// from the caller's memory back to it, by what both were measured to take.
//
// It measures when it first has to know, for a fraction of a second, and keeps what it
// has measured in the cache. What it decides depends on the product and on what was
// measured, not on what the process did before.
type chooser struct {
	gpu   Device
	cache *cache.Cache
	// present tells whether there may be a GPU, without beginning with it; identify
	// begins with it, as far as to tell what it is.
	present  func() error
	identify func() (identity, error)
	trials   func(d Device, types pair, threads int) trial

	mu     sync.Mutex // guards what follows, and is held while measuring
	speeds map[kind]processor
	shots  map[kind]shot
	start  float64 // seconds that it takes to begin with the GPU; 0 before anybody asked
	begun  *begun  // nil before this process has
}

// kind is what the speed of a product depends on besides its size.
type kind struct {
	types   pair
	threads int // of the processor
}

// shot is how fast the GPU is, and what follows from that.
type shot struct {
	oneShot
	crossover string
}

// identity is what the measurements of a GPU depend on, and what it holds.
type identity struct {
	key    string
	memory int64 // bytes
}

// begun is what came of beginning with the GPU.
type begun struct {
	identity
	err error
}

// pair is the element types of a product, of A and B and of C.
type pair struct{ In, Out dtype.Type }

func (p pair) String() string {
	if p.In == p.Out {
		return p.In.String()
	}
	return p.In.String() + " → " + p.Out.String()
}

// shared is the process's one chooser.
var shared struct {
	once sync.Once
	*chooser
}

func theChooser() *chooser {
	shared.once.Do(func() {
		shared.chooser = newChooser(Device{Kind: "gpu"}, cache.Open(), cuda.Present, func() (identity, error) {
			cards, err := cuda.List()
			if err != nil {
				return identity{}, err
			}
			c := cards[0]
			return identity{fmt.Sprint(c.UUID, c.Name, c.PCI, c.Driver), c.Memory}, nil
		})
	})
	return shared.chooser
}

func newChooser(d Device, c *cache.Cache, present func() error, identify func() (identity, error)) *chooser {
	return &chooser{
		gpu: d, cache: c, present: present, identify: identify, trials: tryOn,
		speeds: map[kind]processor{}, shots: map[kind]shot{},
	}
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

// choose is the processor or the GPU, and why.
func (c *chooser) choose(r Request) (Device, string) {
	cpus, p := Device{Kind: "cpu"}, r.Problem
	if p.Flops() < tooSmall {
		return cpus, "too small for a GPU to pay"
	}
	if err := c.present(); err != nil {
		return cpus, noGPU(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	u := kind{pair{p.A.Type, p.C.Type}, cpu.Workers(r.Threads)}
	speed, err := c.processor(u)
	if err != nil {
		return cpus, fmt.Sprintf("the processor could not be measured: %v", err)
	}
	here, start, all := speed.seconds(p.Flops()), c.knownStart(), float64(often)
	if r.Once {
		all = 1
	}
	if here*all <= start {
		least := ""
		if start == leastStart {
			least = "at least "
		}
		return cpus, fmt.Sprintf("about %s here, not worth beginning with %v, which takes %s%s", words(here), c.gpu, least, words(start))
	}
	gpu := c.begin()
	if gpu.err != nil {
		return cpus, noGPU(gpu.err)
	}
	bytes := traffic(p)
	if most := 0.9 * float64(gpu.memory); bytes > most {
		return cpus, fmt.Sprintf("the matrices take %s, too much for %v", host.Bytes(uint64(bytes)), c.gpu)
	}
	shot, err := c.shot(u, gpu.identity, speed)
	if err != nil {
		return cpus, fmt.Sprintf("%v could not be measured: %v", c.gpu, err)
	}
	there := shot.seconds(side(p), p.Flops())
	why := fmt.Sprintf("about %s here against %s on %v", words(here), words(there), c.gpu)
	if r.Once {
		there += c.start
		why += fmt.Sprintf(" and %s to begin with it", words(c.start))
	}
	why += shot.crossover
	if there < here {
		return c.gpu, why
	}
	return cpus, why
}

func noGPU(err error) string {
	return "no GPU: " + strings.TrimPrefix(err.Error(), device.ErrNoDevice.Error()+": ")
}

// words is a time to two digits.
func words(s float64) string {
	d, unit := seconds(s), time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// automatic plans a product on the device that it is best computed on.
func automatic(r Request) (*Plan, error) {
	if r.Kernel != "" {
		return byKernel(r)
	}
	if p := r.Problem.Precision; p != gemm.Native {
		r.Device = Device{Kind: "gpu"}
		pl, err := newGPU(r)
		if err != nil {
			return nil, fmt.Errorf("precision %v is for GPUs, real or emulated (device emu): %w", p, err)
		}
		return pl, nil
	}
	d, why := theChooser().choose(r)
	return r.planOn(d, why)
}

// planOn plans a product on a device that was chosen unasked: where a GPU cannot
// compute it after all, the processor does.
func (r Request) planOn(d Device, why string) (*Plan, error) {
	chosen := r
	if d.IsGPU() {
		chosen.Device = d
		pl, err := newGPU(chosen)
		if err == nil {
			pl.Why = why + "; " + pl.Why
			return pl, nil
		}
		why = fmt.Sprintf("%s, which cannot compute it: %v", why, err)
	}
	chosen.Device = Device{Kind: "cpu"}
	pl, err := newCPU(chosen)
	if err != nil {
		return nil, err
	}
	pl.Why = why + "; " + pl.Why
	return pl, nil
}

// byKernel plans a product on the device that has the kernel that was asked for.
func byKernel(r Request) (*Plan, error) {
	if _, err := gpu.Find(GPUOptions(r.Kernel).Kernel); err != nil {
		r.Device = Device{Kind: "cpu"}
		return newCPU(r)
	}
	r.Device = Device{Kind: "gpu"}
	pl, err := newGPU(r)
	if err != nil {
		return nil, fmt.Errorf("kernel %s runs on GPUs, real or emulated (device emu): %w", r.Kernel, err)
	}
	return pl, nil
}
