package cuda

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unsafe"

	"tilework/internal/device"
)

type digest [sha256.Size]byte

// compiled is a text that the driver compiled, or is compiling, for all who load it.
type compiled struct {
	gpu   *GPU
	text  digest
	ready chan struct{} // closed once the fields of the next group are set

	handle uintptr
	log    string
	err    error

	// Guarded by the GPU's mutex.
	users   int
	kernels map[string]*kernel
}

// module is one user of a compiled text.
type module struct {
	*compiled
	unloaded bool // guarded by the GPU's mutex
}

// Load compiles PTX text, once however often it is loaded before it is unloaded as
// often. The driver cannot be called back from compiling, so that ctx ends the
// waiting for another's compilation and not the caller's own.
func (g *GPU) Load(ctx context.Context, text string) (device.Module, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key := digest(sha256.Sum256([]byte(text)))
	g.mu.Lock()
	c, known := g.modules[key]
	if !known {
		c = &compiled{gpu: g, text: key, ready: make(chan struct{}), kernels: map[string]*kernel{}}
		g.modules[key] = c
	}
	c.users++
	g.mu.Unlock()

	m := &module{compiled: c}
	if !known {
		c.err = g.compile(c, text)
		if c.err != nil {
			g.mu.Lock()
			delete(g.modules, key)
			g.mu.Unlock()
		}
		close(c.ready)
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), m.Unload())
	}
	if c.err != nil {
		return nil, c.err
	}
	return m, nil
}

// logBytes is what the compiler may say, of each kind.
const logBytes = 64 << 10

// ignored finds the messages with which the compiler says that it did not do what
// the text asks for: a setmaxnreg ignored, a wgmma serialised.
var ignored = regexp.MustCompile(`\bC75\d\d\b`)

// compile has the driver compile a text, with cuModuleLoadDataEx: the linker's
// functions compile it as relocatable, which is slower code.
func (g *GPU) compile(c *compiled, text string) error {
	if strings.Contains(text, "\x00") {
		return fmt.Errorf("%w: the text has a zero byte", device.ErrCompile)
	}
	// One zero ends the text; more, because the driver first looks for other formats.
	image := append([]byte(text), make([]byte, 16)...)
	// CU_JIT_INFO_LOG_BUFFER and its size, CU_JIT_ERROR_LOG_BUFFER and its size,
	// CU_JIT_LOG_VERBOSE; the values are void*, be they pointers or not.
	options := []int32{3, 4, 5, 6, 12}
	var info, problems [logBytes]byte
	values := struct {
		info         *[logBytes]byte
		infoBytes    uintptr
		problems     *[logBytes]byte
		problemBytes uintptr
		verbose      uintptr
	}{&info, logBytes, &problems, logBytes, 1}

	start := time.Now()
	err := g.within(func() error {
		return g.call(cuModuleLoad, uintptr(unsafe.Pointer(&c.handle)), uintptr(unsafe.Pointer(unsafe.SliceData(image))),
			uintptr(len(options)), uintptr(unsafe.Pointer(unsafe.SliceData(options))), uintptr(unsafe.Pointer(&values)))
	})
	c.log = strings.TrimSpace(cString(info[:])) + fmt.Sprintf("\ncompiled in %.3f s for %v", time.Since(start).Seconds(), g.info.Target)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Log = cString(problems[:])
		if code(e.Code) == oldDriver {
			e.Text += fmt.Sprintf(" (the driver is for %v: update it)", g.driver.version)
		}
		return as(device.ErrCompile, e)
	}
	if err != nil {
		return err
	}
	if ignored.MatchString(c.log) {
		err := g.within(func() error {
			refused := c.handle
			c.handle = 0
			return g.call(cuModuleUnload, refused)
		})
		return errors.Join(fmt.Errorf("%w: the driver compiled it otherwise than it is written: %s", device.ErrCompile, oneLine(c.log)), err)
	}
	return nil
}

// Log is what the compiler said, and how long it took. It says less of a text that
// the driver kept from an earlier process.
func (m *module) Log() string { return m.log }

// Unload gives the compiled text back when nobody else uses it; a second time does
// nothing.
func (m *module) Unload() error {
	g := m.gpu
	return g.within(func() error {
		g.mu.Lock()
		last := !m.unloaded && m.users == 1
		if !m.unloaded {
			m.unloaded = true
			m.users--
		}
		if last {
			delete(g.modules, m.text)
		}
		g.mu.Unlock()
		if !last {
			return nil
		}
		return g.call(cuModuleUnload, m.handle)
	})
}

// Attributes of a function: CUfunction_attribute of cuda.h.
const (
	kernelMaxThreads = 0
	kernelShared     = 1 // static
	kernelLocal      = 3
	kernelRegisters  = 4
	kernelMaxDynamic = 8
)

// usualShared is what a block may have of shared memory without asking for more.
const usualShared = 48 << 10

// kernel is a function of a module.
type kernel struct {
	module     *compiled
	name       string
	handle     uintptr
	resources  device.Resources
	maxThreads int
	params     int // bytes of its parameters; -1 where the driver does not tell
	dynamic    int // bytes of dynamic shared memory that it may have; guarded by the GPU's mutex
}

func (k *kernel) Name() string                { return k.name }
func (k *kernel) Resources() device.Resources { return k.resources }

// Function finds a kernel and what it takes.
func (m *module) Function(name string) (device.Function, error) {
	g := m.gpu
	g.mu.Lock()
	k, unloaded := m.kernels[name], m.unloaded
	g.mu.Unlock()
	switch {
	case unloaded:
		return nil, fmt.Errorf("kernel %q of a module that has been unloaded", name)
	case strings.Contains(name, "\x00"):
		return nil, fmt.Errorf("no kernel has the name %q", name)
	case k != nil:
		return k, nil
	}
	k = &kernel{module: m.compiled, name: name}
	if err := g.within(k.find); err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if first := m.kernels[name]; first != nil {
		return first, nil
	}
	m.kernels[name] = k
	return k, nil
}

func (k *kernel) find() error {
	g, name := k.module.gpu, append([]byte(k.name), 0)
	if err := g.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&k.handle)), k.module.handle, uintptr(unsafe.Pointer(unsafe.SliceData(name)))); err != nil {
		return err
	}
	for _, a := range []struct {
		attribute uintptr
		to        *int
	}{
		{kernelMaxThreads, &k.maxThreads},
		{kernelShared, &k.resources.Shared},
		{kernelLocal, &k.resources.Spilled},
		{kernelRegisters, &k.resources.Registers},
	} {
		var v int32
		if err := g.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), a.attribute, k.handle); err != nil {
			return err
		}
		*a.to = int(v)
	}
	k.dynamic = max(0, usualShared-k.resources.Shared)
	return k.findParams()
}

// findParams finds where the last of the parameters ends.
func (k *kernel) findParams() error {
	g := k.module.gpu
	if !g.driver.has(cuFuncGetParamInfo) {
		k.params = -1
		return nil
	}
	for i := uintptr(0); ; i++ {
		var offset, size uintptr
		answer := g.driver.result(cuFuncGetParamInfo, k.handle, i, uintptr(unsafe.Pointer(&offset)), uintptr(unsafe.Pointer(&size)))
		if answer == invalidValue { // there are no more, which only this tells
			return nil
		}
		if err := g.check(cuFuncGetParamInfo, answer); err != nil {
			return err
		}
		k.params = int(offset + size)
	}
}
