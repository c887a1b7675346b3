package cuda

import (
	"fmt"
	"regexp"
	"strings"
	"unsafe"

	"tilework/internal/device"
	"tilework/ptx"
)

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
	params     int // bytes of its parameters; -1 where the text does not tell
	places     []place
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
	f := k.module.params.entry(k.name)
	if k.params = paramBytes(f); f == nil {
		return nil
	}
	return k.findPlaces(f)
}

// paramBytes is what an entry's parameters take together; -1 if that cannot be told.
func paramBytes(f *ptx.Func) int {
	if f == nil {
		return -1
	}
	return f.ParamBytes()
}

// signatures are the parameters that a text's entries declare, by the entry's name.
type signatures map[string]string

var entry = regexp.MustCompile(`\.entry\s+([\w$%]+)\s*\(([^)]*)\)`)

// newSignatures finds the entries of a text. The driver tells of a kernel's parameters
// too, but where they end only by failing.
func newSignatures(text string) signatures {
	s := signatures{}
	for _, m := range entry.FindAllStringSubmatch(text, -1) {
		s[m[1]] = m[2]
	}
	return s
}

// entry is an entry with its parameters alone; nil if they cannot be told.
func (s signatures) entry(name string) *ptx.Func {
	params, ok := s[name]
	if !ok {
		return nil
	}
	// Parsed without the body, which may be long, and of a target that has it all.
	m, err := ptx.Parse(name, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry "+name+"("+params+") { ret; }")
	if err != nil {
		return nil
	}
	return m.Funcs()[0]
}
