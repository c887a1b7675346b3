package exec

import (
	"context"
	"sync"
	"time"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/memo"
	"tilework/internal/model"
)

// Backend computes products on one device. It keeps compiled kernels, recent choices and recent
// launches. Its methods are safe for concurrent use, except that nothing may use it after Close.
type Backend struct {
	Device device.Device

	mu       sync.Mutex
	compiled map[kernelKey]*compiled

	choices  memo.Table[choiceKey, choose.Choice]
	launches memo.Table[launchKey, launches]

	flags flags
}

// choiceKey identifies an automatic choice on the device of a backend.
type choiceKey struct {
	problem gemm.Problem // with the layouts in device memory
	align   kernel.Align
}

// kernelKey identifies a compiled kernel.
type kernelKey struct {
	kernel *kernel.Kernel
	config kernel.Config
}

// compiled is an entry of the cache. Its mutex is held during compilation. An entry without a
// function has not been compiled, or compilation failed and the next request repeats it.
type compiled struct {
	mu       sync.Mutex
	module   device.Module
	function device.Function
	took     time.Duration // time to generate PTX and compile it
}

// sources holds the PTX of recent kernels, which the backends of several devices compile.
var sources = memo.Table[kernelKey, string]{Limit: 512}

// New returns a backend on d. The caller closes d after the backend.
func New(d device.Device) *Backend {
	return &Backend{Device: d, compiled: map[kernelKey]*compiled{}}
}

// Close unloads the compiled kernels.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, c := range b.compiled {
		if c.module != nil {
			errs = append(errs, c.module.Unload())
		}
	}
	clear(b.compiled)
	errs = append(errs, b.Device.Free(b.flags.at))
	return device.Join(errs...)
}

// Info describes the backend's device.
func (b *Backend) Info() *device.Info { return b.Device.Info() }

// Weight returns a number in proportion to the rate of the GPU.
func (b *Backend) Weight() float64 {
	info, clock := b.Info(), 1.
	if m, err := model.Lookup(info.Name); err == nil && !m.Generic() {
		clock = m.ClockHz
	}
	return clock * float64(max(info.SMs, 1))
}

// Function returns the kernel compiled for a configuration. It compiles a kernel once. The error
// is that of the device.
func (b *Backend) Function(ctx context.Context, k *kernel.Kernel, c kernel.Config) (device.Function, error) {
	key := kernelKey{k, c}
	entry := b.entry(key)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	if entry.function != nil {
		return entry.function, nil
	}
	start := time.Now()
	source, err := sourceOf(key)
	if err != nil {
		return nil, err
	}
	m, err := b.Device.Load(ctx, source)
	if err != nil {
		return nil, err
	}
	f, err := m.Function(k.Entry())
	if err != nil {
		return nil, device.Join(err, m.Unload())
	}
	entry.module, entry.function, entry.took = m, f, time.Since(start)
	return f, nil
}

// isCompiled reports whether a kernel is in the cache.
func (b *Backend) isCompiled(key kernelKey) bool {
	entry := b.entry(key)
	entry.mu.Lock()
	defer entry.mu.Unlock()
	return entry.function != nil
}

// sourceOf returns the PTX of a kernel. It keeps no functions of callers.
func sourceOf(key kernelKey) (string, error) {
	emit := func() (string, error) {
		m, err := key.kernel.Emit(key.config)
		if err != nil {
			return "", err
		}
		return m.String(), nil
	}
	if key.config.Epilogue.Function != nil {
		return emit()
	}
	return sources.Get(key, emit)
}

// entry returns the cache entry of a kernel, and creates it if necessary.
func (b *Backend) entry(key kernelKey) *compiled {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.compiled[key]
	if entry == nil {
		entry = &compiled{}
		b.compiled[key] = entry
	}
	return entry
}
