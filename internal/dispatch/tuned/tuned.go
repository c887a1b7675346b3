package tuned

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"tilework/internal/cache"
	"tilework/internal/cpu"
	"tilework/internal/device/cuda"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/host"
)

// setting is what a tuned choice holds for: a device, and kernels.
type setting struct {
	device string
	rest   string // what else a measurement depends on: kernels, and a GPU's driver
}

func (s setting) key(p Form) string { return fmt.Sprintf("tuned, %s, %s, %v", s.device, s.rest, p) }

// ours says whether a key is of the same device, and with the same kernels.
func (s setting) ours(key string) (device, all bool) {
	device = strings.HasPrefix(key, "tuned, "+s.device+", ")
	return device, device && strings.HasPrefix(key, "tuned, "+s.device+", "+s.rest+", ")
}

// processorSetting is that of the processor, with the kernels that may be chosen.
func processorSetting() setting {
	return setting{
		fmt.Sprintf("cpu %s/%s %s", runtime.GOOS, runtime.GOARCH, host.CPUName()),
		fmt.Sprintf("%s, %s=%s", cache.Build(), cpu.EnvISA, os.Getenv(cpu.EnvISA)),
	}
}

// gpuSetting is that of a GPU; any of its kind will do. Its driver compiles the kernels.
func gpuSetting(b *exec.Backend) setting {
	in, driver := b.Device.Info(), ""
	if card, ok := b.Device.(*cuda.GPU); ok {
		driver = card.Details().Driver
	}
	return setting{
		fmt.Sprintf("gpu %s %v %d SMs", in.Name, in.Target, in.SMs),
		fmt.Sprintf("%s, driver %s", cache.Build(), driver),
	}
}

// tunings are the tuned choices that the cache holds, as this process has read them:
// once, so that equal products get equal bits, and changed only by its own tuning.
type tunings struct {
	shelf   *cache.Cache
	changes atomic.Uint64
	cpu     atomic.Pointer[book] // nil before the first plan on the processor

	mu   sync.Mutex // guards what follows, and is held while a book is written
	gpus map[setting]*book
}

// book is the choices for one setting. It is never changed.
type book struct {
	choices map[Form]*Tuned
	stale   int // choices for the device with other kernels or another driver
}

// current are the process's tunings, nil before anybody needed them.
var current atomic.Pointer[tunings]

func theTunings() *tunings {
	if t := current.Load(); t != nil {
		return t
	}
	current.CompareAndSwap(nil, newTunings(cache.Default()))
	return current.Load()
}

func newTunings(c *cache.Cache) *tunings {
	return &tunings{shelf: c.Section("tuned"), gpus: map[setting]*book{}}
}

// SubstituteCache has tuned choices read from and kept in another cache, until restore
// is called. It is for tests, and stands for a process that has just begun.
func Substitute(c *cache.Cache) (restore func()) {
	before := current.Swap(newTunings(c))
	return func() { current.Store(before) }
}

// read is the book of a setting.
func (t *tunings) read(s setting) *book {
	b := &book{choices: map[Form]*Tuned{}}
	t.shelf.All(func(key string, value []byte) {
		device, all := s.ours(key)
		if !device {
			return
		}
		if !all {
			b.stale++
			return
		}
		var x Tuned
		if json.Unmarshal(value, &x) == nil && x.valid() && key == s.key(x.Form) {
			b.choices[x.Form] = &x
		}
	})
	return b
}

// processor is the processor's book. It takes no time once it is there.
func (t *tunings) processor() *book {
	if b := t.cpu.Load(); b != nil {
		return b
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cpu.Load() == nil {
		t.cpu.Store(t.read(processorSetting()))
	}
	return t.cpu.Load()
}

// gpu is the book of a GPU's kind; nil for an emulated one, whose times are nobody's.
func (t *tunings) gpu(b *exec.Backend) *book {
	if b.Device.Info().Emulated {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := gpuSetting(b)
	if t.gpus[s] == nil {
		t.gpus[s] = t.read(s)
	}
	return t.gpus[s]
}

// find is the choice that was tuned for p, whose matrices have to lie as they did then;
// nil if there is none.
func (b *book) find(p *gemm.Problem, dense func(gemm.Layout) bool) *Tuned {
	if b == nil || len(b.choices) == 0 || p.Batch.Kind != gemm.Single || p.BlockScaled() || !p.ReadsAB() || !dense(p.Layouts[gemm.A]) || !dense(p.Layouts[gemm.B]) || !dense(p.Layouts[gemm.C]) {
		return nil
	}
	return b.choices[FormOf(p)]
}

// forCPU returns the choice that was tuned for p on the CPU, or nil.
func ForCPU(p *gemm.Problem) *Tuned {
	return theTunings().processor().find(p, func(l gemm.Layout) bool { return l.LD == max(l.Cols, 1) })
}

// forGPU returns the choice that was tuned for p on GPUs of b's model, or nil. The matrices must be
// dense, as the function tells of each.
func ForGPU(b *exec.Backend, p *gemm.Problem, dense func(gemm.Layout) bool) *Tuned {
	return theTunings().gpu(b).find(p, dense)
}
