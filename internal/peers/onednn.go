package peers

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/dl"
	"tilework/internal/gemm"
)

// matmul is the interface of oneDNN 3. It compiles a primitive for each problem and executes it
// with memory objects, which hold the addresses of the matrices.
var matmul = &api{
	procs: []string{
		dnnlMatmul, dnnlEngine, dnnlStream, dnnlLayout, dnnlAttr, dnnlScratchpad, dnnlScratchpadOf, dnnlPrimitive, dnnlMemory,
		dnnlMemoryAt,
		dnnlExecute, dnnlFreeLayout, dnnlFreeAttr, dnnlFreePlan, dnnlFreePrimitive, dnnlFreeMemory,
	},
	types:   []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.I8},
	onlyAB:  true,
	product: func(p *Peer, pr *gemm.Problem) (func(*gemm.Buffers) error, error) { return p.newMatmul(pr) },
}

// Functions of oneDNN. They return a dnnl_status_t.
const (
	dnnlEngine        = "dnnl_engine_create"
	dnnlStream        = "dnnl_stream_create"
	dnnlLayout        = "dnnl_memory_desc_create_with_strides"
	dnnlAttr          = "dnnl_primitive_attr_create"
	dnnlScratchpad    = "dnnl_primitive_attr_set_scratchpad_mode"
	dnnlScratchpadOf  = "dnnl_primitive_desc_query_md" // returns a memory descriptor
	dnnlMatmul        = "dnnl_matmul_primitive_desc_create"
	dnnlPrimitive     = "dnnl_primitive_create"
	dnnlMemory        = "dnnl_memory_create"
	dnnlMemoryAt      = "dnnl_memory_set_data_handle"
	dnnlExecute       = "dnnl_primitive_execute"
	dnnlFreeLayout    = "dnnl_memory_desc_destroy"
	dnnlFreeAttr      = "dnnl_primitive_attr_destroy"
	dnnlFreePlan      = "dnnl_primitive_desc_destroy"
	dnnlFreePrimitive = "dnnl_primitive_destroy"
	dnnlFreeMemory    = "dnnl_memory_destroy"
)

// Constants of oneDNN's headers.
const (
	dnnlUnimplemented = 3           // a dnnl_status_t
	dnnlCPU           = 1           // a dnnl_engine_kind_t
	dnnlInOrder       = 1           // a dnnl_stream_flags_t
	dnnlByCaller      = 1           // a dnnl_scratchpad_mode_t
	dnnlScratchpadMD  = 136         // the dnnl_query_t of the scratchpad's memory descriptor
	dnnlNoAddress     = 0           // memory whose address is set later
	dnnlAllocate      = ^uintptr(0) // memory allocated by the library
)

// dnnlTypes holds the values of dnnl_data_type_t.
var dnnlTypes = map[dtype.Type]uintptr{dtype.F16: 1, dtype.BF16: 2, dtype.F32: 3, dtype.I32: 4, dtype.I8: 5}

// dnnlCores names the values of dnnl_cpu_isa_t as the library's log messages do.
var dnnlCores = map[uintptr]string{
	0x1: "sse41", 0x3: "avx", 0x7: "avx2", 0xf: "avx2_vnni", 0x1f: "avx2_vnni_2", 0x27: "avx512_core",
	0x67: "avx512_core_vnni",
	0xe7: "avx512_core_bf16", 0x1ef: "avx512_core_fp16", 0xfef: "avx512_core_amx", 0x1fef: "avx512_core_amx_fp16",
}

// prepareOneDNN creates one engine and one stream for all products. A CPU stream holds no state of
// the primitives that it runs.
func prepareOneDNN(p *Peer) error {
	if err := p.dnnl(dnnlEngine, uintptr(unsafe.Pointer(&p.engine)), dnnlCPU, 0); err != nil {
		return err
	}
	return p.dnnl(dnnlStream, uintptr(unsafe.Pointer(&p.stream)), p.engine, dnnlInOrder)
}

// describeOneDNN reads the structure dnnl_version_t. OpenMP stores the number of threads per OS
// thread.
func describeOneDNN(p *Peer) {
	at := p.call("dnnl_version")
	v := *(**struct {
		major, minor, patch int32
		hash                uintptr
	})(unsafe.Pointer(&at)) // memory of the library, which does not move
	p.Version, p.Config = fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch), dl.String(v.hash)
	isa := p.call("dnnl_get_effective_cpu_isa")
	if p.Core = dnnlCores[isa]; p.Core == "" {
		p.Core = fmt.Sprintf("isa %#x", isa)
	}
	p.threadsPerCaller = true
}

// dnnl calls a function that returns a dnnl_status_t.
//
//go:uintptrescapes
func (p *Peer) dnnl(name string, args ...uintptr) error {
	switch status := int32(p.call(name, args...)); status {
	case 0:
		return nil
	case dnnlUnimplemented:
		return fmt.Errorf("%w: by this build of oneDNN on this CPU", gemm.ErrUnsupported)
	default:
		return fmt.Errorf("%s: status %d", name, status)
	}
}

// primitive is a product that the library has compiled.
type primitive struct {
	peer    *Peer
	handle  uintptr
	layouts [4]uintptr // of A, B, C and the scratchpad, which belongs to plan
	plan    uintptr

	mu   sync.Mutex
	idle []*arguments
}

// arguments holds the arguments of one execution: an array of dnnl_exec_arg_t.
type arguments [4]struct {
	index  int32 // DNNL_ARG_SRC, _WEIGHTS, _DST, _SCRATCHPAD
	memory uintptr
}

// argumentIndex holds the index of each argument, in the order of [primitive].layouts.
var argumentIndex = [4]int32{1, 33, 17, 80}

// newMatmul creates a primitive. A finalizer frees it once the returned function is unreachable.
func (p *Peer) newMatmul(pr *gemm.Problem) (func(*gemm.Buffers) error, error) {
	x := &primitive{peer: p}
	runtime.SetFinalizer(x, (*primitive).free)
	for i, l := range []gemm.Layout{pr.Layouts[gemm.A], pr.Layouts[gemm.B], pr.Layouts[gemm.C]} {
		dims, strides := [2]int64{int64(l.OpRows()), int64(l.OpCols())}, [2]int64{int64(l.LD), 1}
		if l.Trans {
			strides = [2]int64{1, int64(l.LD)}
		}
		err := p.dnnl(dnnlLayout, uintptr(unsafe.Pointer(&x.layouts[i])), 2, uintptr(unsafe.Pointer(&dims)),
			dnnlTypes[l.Type], uintptr(unsafe.Pointer(&strides)))
		if err != nil {
			return nil, err
		}
	}
	// A primitive's own scratchpad allows one execution at a time, so each set of arguments has one.
	var attr uintptr
	if err := p.dnnl(dnnlAttr, uintptr(unsafe.Pointer(&attr))); err != nil {
		return nil, err
	}
	defer p.call(dnnlFreeAttr, attr)
	if err := p.dnnl(dnnlScratchpad, attr, dnnlByCaller); err != nil {
		return nil, err
	}
	if err := p.dnnl(dnnlMatmul, uintptr(unsafe.Pointer(&x.plan)), p.engine, x.layouts[0], x.layouts[1], 0, x.layouts[2],
		attr); err != nil {
		return nil, err
	}
	x.layouts[3] = p.call(dnnlScratchpadOf, x.plan, dnnlScratchpadMD, 0)
	return x.run, p.dnnl(dnnlPrimitive, uintptr(unsafe.Pointer(&x.handle)), x.plan)
}

func (x *primitive) run(b *gemm.Buffers) error {
	args, err := x.arguments()
	if err != nil {
		return err
	}
	for i, matrix := range [][]byte{b[gemm.A], b[gemm.B], b[gemm.C]} {
		if err := x.peer.dnnl(dnnlMemoryAt, args[i].memory, uintptr(unsafe.Pointer(unsafe.SliceData(matrix)))); err != nil {
			return err
		}
	}
	err = x.peer.dnnl(dnnlExecute, x.handle, x.peer.stream, uintptr(len(args)), uintptr(unsafe.Pointer(args)))
	runtime.KeepAlive(b)
	x.mu.Lock()
	x.idle = append(x.idle, args)
	x.mu.Unlock()
	return err
}

// arguments returns a set of arguments that is not in use.
func (x *primitive) arguments() (*arguments, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := len(x.idle) - 1; last >= 0 {
		args := x.idle[last]
		x.idle = x.idle[:last]
		return args, nil
	}
	args := new(arguments)
	for i := range args {
		address := uintptr(dnnlNoAddress)
		if argumentIndex[i] == argumentIndex[3] {
			address = dnnlAllocate
		}
		args[i].index = argumentIndex[i]
		if err := x.peer.dnnl(dnnlMemory, uintptr(unsafe.Pointer(&args[i].memory)), x.layouts[i], x.peer.engine,
			address); err != nil {
			return nil, err
		}
	}
	return args, nil
}

func (x *primitive) free() {
	for _, args := range x.idle {
		for _, a := range args {
			x.peer.call(dnnlFreeMemory, a.memory)
		}
	}
	x.peer.call(dnnlFreePrimitive, x.handle)
	x.peer.call(dnnlFreePlan, x.plan)
	for _, l := range x.layouts[:3] {
		x.peer.call(dnnlFreeLayout, l)
	}
}
