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

// defaultMaxShared is the maximum shared memory of a block in bytes without an opt-in.
const defaultMaxShared = 48 << 10

// kernel implements [device.Function].
type kernel struct {
	module     *compiled
	name       string
	handle     uintptr
	resources  device.Resources
	maxThreads int
	params     int // bytes of all parameters; -1 if unknown
	moves      []paramMove
	maxDynamic int // current limit of dynamic shared memory in bytes; guarded by the GPU's mutex
}

func (k *kernel) Name() string                { return k.name }
func (k *kernel) Resources() device.Resources { return k.resources }

// Function returns the kernel with the given name.
func (m *module) Function(name string) (device.Function, error) {
	g := m.gpu
	g.mu.Lock()
	k, unloaded := m.kernels[name], m.unloaded
	g.mu.Unlock()
	switch {
	case unloaded:
		return nil, fmt.Errorf("kernel %q: module was unloaded", name)
	case strings.Contains(name, "\x00"):
		return nil, fmt.Errorf("kernel name %q contains a zero byte", name)
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

// find looks up the function and queries its resources and parameters.
func (k *kernel) find() error {
	g, name := k.module.gpu, append([]byte(k.name), 0)
	if err := g.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&k.handle)), k.module.handle,
		uintptr(unsafe.Pointer(unsafe.SliceData(name)))); err != nil {
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
	k.maxDynamic = max(0, defaultMaxShared-k.resources.Shared)
	f := k.module.params.entry(k.name)
	if k.params = paramBytes(f); f == nil {
		return nil
	}
	return k.findParamLayout(f)
}

// paramBytes returns the size of all parameters of f in bytes, or -1 if f is nil.
func paramBytes(f *ptx.Func) int {
	if f == nil {
		return -1
	}
	return f.ParamBytes()
}

// signatures maps the name of each kernel in a PTX module to its parameter list.
type signatures map[string]string

var entry = regexp.MustCompile(`\.entry\s+([\w$%]+)\s*\(([^)]*)\)`)

// parseSignatures returns the signatures of the kernels in PTX. The driver can report single
// parameters, but it reports their number only through an error after the last.
func parseSignatures(text string) signatures {
	s := signatures{}
	for _, m := range entry.FindAllStringSubmatch(text, -1) {
		s[m[1]] = m[2]
	}
	return s
}

// entry returns the kernel with the given name, without its body, or nil if it is unknown or its
// parameters cannot be parsed.
func (s signatures) entry(name string) *ptx.Func {
	params, ok := s[name]
	if !ok {
		return nil
	}
	// Leave out the body, which can be long, and use a target that supports all parameter types.
	m, err := ptx.Parse(name,
		".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry "+name+"("+params+") { ret; }")
	if err != nil {
		return nil
	}
	return m.Funcs()[0]
}
