package peers

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// matmul is the face of oneDNN 3: a primitive is made for a product, and run on objects
// that say where its matrices are.
var matmul = &face{
	procs: []string{
		dnnlMatmul, dnnlEngine, dnnlStream, dnnlLayout, dnnlAttr, dnnlScratchpad, dnnlScratchpadOf, dnnlPrimitive, dnnlMemory, dnnlMemoryAt,
		dnnlExecute, dnnlFreeLayout, dnnlFreeAttr, dnnlFreePlan, dnnlFreePrimitive, dnnlFreeMemory,
	},
	types:   []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.I8},
	plain:   true,
	product: func(p *Peer, pr *gemm.Problem) (func(gemm.Buffers) error, error) { return p.newMatmul(pr) },
}

// Its functions, which answer with a dnnl_status_t.
const (
	dnnlEngine        = "dnnl_engine_create"
	dnnlStream        = "dnnl_stream_create"
	dnnlLayout        = "dnnl_memory_desc_create_with_strides"
	dnnlAttr          = "dnnl_primitive_attr_create"
	dnnlScratchpad    = "dnnl_primitive_attr_set_scratchpad_mode"
	dnnlScratchpadOf  = "dnnl_primitive_desc_query_md" // which answers with a layout
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

// The constants of its headers that are used here.
const (
	dnnlUnimplemented  = 3           // a dnnl_status_t
	dnnlProcessor      = 1           // a dnnl_engine_kind_t
	dnnlInOrder        = 1           // a dnnl_stream_flags_t
	dnnlByCaller       = 1           // a dnnl_scratchpad_mode_t
	dnnlScratchpadWhat = 136         // the dnnl_query_t that asks for the scratchpad's layout
	dnnlNowhere        = 0           // memory that is told its place later
	dnnlAllocate       = ^uintptr(0) // memory that the library is to allocate
)

// dnnlTypes are the values of dnnl_data_type_t.
var dnnlTypes = map[dtype.Type]uintptr{dtype.F16: 1, dtype.BF16: 2, dtype.F32: 3, dtype.I32: 4, dtype.I8: 5}

// dnnlCores are the values of dnnl_cpu_isa_t, as the library's own messages write them.
var dnnlCores = map[uintptr]string{
	0x1: "sse41", 0x3: "avx", 0x7: "avx2", 0xf: "avx2_vnni", 0x1f: "avx2_vnni_2", 0x27: "avx512_core", 0x67: "avx512_core_vnni",
	0xe7: "avx512_core_bf16", 0x1ef: "avx512_core_fp16", 0xfef: "avx512_core_amx", 0x1fef: "avx512_core_amx_fp16",
}

// prepareOneDNN makes the engine and the stream of all products. A stream of the processor
// keeps nothing of what runs in it.
func prepareOneDNN(p *Peer) error {
	if err := p.dnnl(dnnlEngine, uintptr(unsafe.Pointer(&p.engine)), dnnlProcessor, 0); err != nil {
		return err
	}
	return p.dnnl(dnnlStream, uintptr(unsafe.Pointer(&p.stream)), p.engine, dnnlInOrder)
}

// describeOneDNN reads the structure dnnl_version_t. OpenMP keeps the number of threads for
// each OS thread.
func describeOneDNN(p *Peer) {
	at := p.call("dnnl_version")
	v := *(**struct {
		major, minor, patch int32
		hash                uintptr
	})(unsafe.Pointer(&at)) // the library's memory, which does not move
	p.Version, p.Config = fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch), goString(v.hash)
	isa := p.call("dnnl_get_effective_cpu_isa")
	if p.Core = dnnlCores[isa]; p.Core == "" {
		p.Core = fmt.Sprintf("isa %#x", isa)
	}
	p.threadsPerCaller = true
}

// dnnl calls a function that answers with a dnnl_status_t.
//
//go:uintptrescapes
func (p *Peer) dnnl(name string, args ...uintptr) error {
	switch status := int32(p.call(name, args...)); status {
	case 0:
		return nil
	case dnnlUnimplemented:
		return fmt.Errorf("%w: by this build on this processor", gemm.ErrUnsupported)
	default:
		return fmt.Errorf("%s answers %d", name, status)
	}
}

// primitive is a product that the library has made code for.
type primitive struct {
	peer    *Peer
	handle  uintptr
	layouts [4]uintptr // of A, B, C and the scratchpad, which is the plan's
	plan    uintptr

	mu   sync.Mutex
	idle []*arguments
}

// arguments are what one run of a primitive is given: an array of dnnl_exec_arg_t.
type arguments [4]struct {
	index  int32 // DNNL_ARG_SRC, _WEIGHTS, _DST, _SCRATCHPAD
	memory uintptr
}

// argumentOf are the indices, in the order of [primitive].layouts.
var argumentOf = [4]int32{1, 33, 17, 80}

// newMatmul makes a primitive, which is freed when nobody can run it any more.
func (p *Peer) newMatmul(pr *gemm.Problem) (func(gemm.Buffers) error, error) {
	x := &primitive{peer: p}
	runtime.SetFinalizer(x, (*primitive).free)
	for i, l := range []gemm.Layout{pr.A, pr.B, pr.C} {
		dims, strides := [2]int64{int64(l.OpRows()), int64(l.OpCols())}, [2]int64{int64(l.LD), 1}
		if l.Trans {
			strides = [2]int64{1, int64(l.LD)}
		}
		err := p.dnnl(dnnlLayout, uintptr(unsafe.Pointer(&x.layouts[i])), 2, uintptr(unsafe.Pointer(&dims)), dnnlTypes[l.Type], uintptr(unsafe.Pointer(&strides)))
		if err != nil {
			return nil, err
		}
	}
	// A scratchpad of its own may be used by one thread alone; ours go with the arguments.
	var attr uintptr
	if err := p.dnnl(dnnlAttr, uintptr(unsafe.Pointer(&attr))); err != nil {
		return nil, err
	}
	defer p.call(dnnlFreeAttr, attr)
	if err := p.dnnl(dnnlScratchpad, attr, dnnlByCaller); err != nil {
		return nil, err
	}
	if err := p.dnnl(dnnlMatmul, uintptr(unsafe.Pointer(&x.plan)), p.engine, x.layouts[0], x.layouts[1], 0, x.layouts[2], attr); err != nil {
		return nil, err
	}
	x.layouts[3] = p.call(dnnlScratchpadOf, x.plan, dnnlScratchpadWhat, 0)
	return x.run, p.dnnl(dnnlPrimitive, uintptr(unsafe.Pointer(&x.handle)), x.plan)
}

func (x *primitive) run(b gemm.Buffers) error {
	args, err := x.arguments()
	if err != nil {
		return err
	}
	for i, matrix := range [][]byte{b.A, b.B, b.C} {
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

// arguments are some that nobody uses.
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
		place := uintptr(dnnlNowhere)
		if argumentOf[i] == argumentOf[3] {
			place = dnnlAllocate
		}
		args[i].index = argumentOf[i]
		if err := x.peer.dnnl(dnnlMemory, uintptr(unsafe.Pointer(&args[i].memory)), x.layouts[i], x.peer.engine, place); err != nil {
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
