// Package cpu multiplies on the processor: the one list of its kernels, the five
// loops around a micro-kernel ([blocked.go]), packing, and the helpers that
// share the work.
//
// A kernel is either a whole algorithm of its own (the seeds' triple loop) or a
// set of micro-kernels, one for each type that products are summed in; the rest
// (loops, packing, edges, conversions, epilogues, threads) all of those share.
package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// Kernel is a row of the list.
type Kernel struct {
	Name string
	Adds string // one line: what this rung adds to the one before it
	ISA  string // the instruction sets it needs; empty: none beyond Go's own

	has func() bool // whether this processor has them
	// textbook says that the kernel is the triple loop, for any type; the others are
	// their micro-kernels.
	textbook bool
	f32      *micro[float32]
	f64      *micro[float64]
	i32      *micro[int32]
}

// scalar is what products are summed in on the processor.
type scalar interface{ float32 | float64 | int32 }

// micro is a micro-kernel for one type and the sizes of the blocks around it.
//
// The micro-kernel computes an mr×nr tile of C, held in registers, from a panel
// of A and one of B (BLIS's names: Van Zee and van de Geijn, "BLIS: A Framework
// for Rapidly Instantiating BLAS Functionality", 2015). kc is chosen so that a
// panel of B stays in the L1 cache, mc so that an mc×kc block of A stays in L2,
// and ms×kc and kc×ns, what is packed at a time, in L3.
type micro[T scalar] struct {
	asm.Kernels[T]
	mc, kc int // kc counts steps, which for int8 multiply several values of K
	ms, ns int

	formsA, formsB forms // how panels are made; what has no form is packed in plain Go
}

// forms are those of the element types.
type forms map[dtype.Type]asm.Form

var (
	floats = forms{dtype.F32: asm.FormF32, dtype.F16: asm.FormF16, dtype.BF16: asm.FormBF16}
	quads  = forms{dtype.I8: asm.FormI8x4}
	uquads = forms{dtype.I8: asm.FormU8x4}
	pairs  = forms{dtype.I8: asm.FormI8x2}
)

// kernels is the one list: dispatch, tests, bench and the docs range over it.
// Later rows are faster.
var kernels = []*Kernel{
	{
		Name:     "loop",
		Adds:     "the textbook: three loops, one thread, a sum for each element of C",
		has:      func() bool { return true },
		textbook: true,
	},
	{
		Name: "portable",
		Adds: "blocks that fit the caches, packed operands, 4×4 tiles in registers, all cores; plain Go",
		has:  func() bool { return true },
		f32:  &micro[float32]{Kernels: portable[float32](), mc: 128, kc: 256, ms: 2048, ns: 2048},
		f64:  &micro[float64]{Kernels: portable[float64](), mc: 64, kc: 256, ms: 2048, ns: 2048},
		i32:  &micro[int32]{Kernels: portable[int32](), mc: 128, kc: 256, ms: 2048, ns: 2048},
	},
	{
		Name: "avx2",
		Adds: "6×16 tiles (float64: 6×8, int8: 4×16) in 256-bit registers with fused multiply-add",
		ISA:  "AVX2+FMA",
		has:  func() bool { return asm.F32AVX2.ISA.Supported },
		f32:  &micro[float32]{Kernels: asm.F32AVX2, mc: 144, kc: 256, ms: 4096, ns: 4096, formsA: floats, formsB: floats},
		f64:  &micro[float64]{Kernels: asm.F64AVX2, mc: 72, kc: 256, ms: 4096, ns: 2048},
		i32:  &micro[int32]{Kernels: asm.I8AVX2, mc: 144, kc: 256, ms: 4096, ns: 4096, formsA: pairs, formsB: pairs},
	},
	{
		Name: "avx512",
		Adds: "8×32 tiles (float64: 8×16) in 512-bit registers, edges under masks",
		ISA:  "AVX-512 F, DQ, BW, VL",
		has:  func() bool { return asm.F32AVX512.ISA.Supported },
		f32:  &micro[float32]{Kernels: asm.F32AVX512, mc: 192, kc: 512, ms: 4096, ns: 4096, formsA: floats, formsB: floats},
		f64:  &micro[float64]{Kernels: asm.F64AVX512, mc: 192, kc: 384, ms: 4096, ns: 2048},
	},
	{
		Name: "vnni",
		Adds: "int8 alone: 8×32 tiles, four products and their sum in one step of each 32 bits",
		ISA:  "AVX-512 VNNI",
		has:  func() bool { return asm.I8VNNI.ISA.Supported },
		i32:  &micro[int32]{Kernels: asm.I8VNNI, mc: 192, kc: 512, ms: 4096, ns: 4096, formsA: uquads, formsB: quads},
	},
}

// EnvISA is the environment variable that names the fastest kernel to be chosen
// unasked, so that a slower path can be tested on a processor that has more. It is read
// once.
const EnvISA = "TILEWORK_CPU"

var environment = sync.OnceValue(func() string { return os.Getenv(EnvISA) })

// Kernels lists the kernels, slowest first.
func Kernels() []*Kernel { return kernels }

// Available reports whether this processor can run k.
func (k *Kernel) Available() bool { return k.has() }

// Sums reports whether k has arithmetic that sums in t.
func (k *Kernel) Sums(t dtype.Type) bool {
	switch {
	case k.textbook:
		return true
	case t == dtype.F32:
		return k.f32 != nil
	case t == dtype.F64:
		return k.f64 != nil
	case t == dtype.I32:
		return k.i32 != nil
	}
	return false
}

// Types lists the element types that k multiplies.
func (k *Kernel) Types() []dtype.Type {
	var types []dtype.Type
	for _, t := range dtype.All() {
		if in := t.Info(); len(in.Results) > 0 && k.Sums(in.Accum) {
			types = append(types, t)
		}
	}
	return types
}

// Tiles lists the sizes at which k's blocks begin anew, for tests of what happens
// around them.
func (k *Kernel) Tiles() []int {
	var sizes []int
	sizes = appendTiles(sizes, k.f32)
	sizes = appendTiles(sizes, k.f64)
	sizes = appendTiles(sizes, k.i32)
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func appendTiles[T scalar](sizes []int, mk *micro[T]) []int {
	if mk == nil {
		return sizes
	}
	return append(sizes, mk.MR, mk.NR, mk.mc, mk.kc*mk.Group)
}

// names is the list in words, for messages.
func names() string {
	var s []string
	for _, k := range kernels {
		s = append(s, k.Name)
	}
	return strings.Join(s, ", ")
}

func find(name string) (int, bool) {
	for i, k := range kernels {
		if k.Name == name {
			return i, true
		}
	}
	return 0, false
}

// choice is a kernel and what decided for it.
type choice struct {
	kernel *Kernel
	named  bool   // it was asked for by name
	limit  string // what the environment allows, if it says so
}

// choose returns the kernel of that name, or, without a name, the fastest one
// that this processor can run and limit, if it names one, allows.
func choose(name, limit string, sums dtype.Type) (choice, error) {
	if name != "" {
		i, ok := find(name)
		switch k := kernels[max(i, 0)]; {
		case !ok:
			return choice{}, fmt.Errorf("%w: no CPU kernel %q (there are %s)", gemm.ErrUnsupported, name, names())
		case !k.Available():
			return choice{}, fmt.Errorf("%w: kernel %s needs %s, which this processor lacks", gemm.ErrUnsupported, name, k.ISA)
		default:
			return choice{kernel: k, named: true}, nil
		}
	}
	last := len(kernels) - 1
	if limit != "" {
		i, ok := find(limit)
		if !ok {
			return choice{}, fmt.Errorf("%w: %s=%s: no such CPU kernel (there are %s)", gemm.ErrUnsupported, EnvISA, limit, names())
		}
		if !kernels[i].Available() {
			return choice{}, fmt.Errorf("%w: %s=%s: the kernel needs %s, which this processor lacks", gemm.ErrUnsupported, EnvISA, limit, kernels[i].ISA)
		}
		last = i
	}
	for i := last; i > 0; i-- {
		if k := kernels[i]; k.Available() && k.Sums(sums) {
			return choice{kernel: k, limit: limit}, nil
		}
	}
	return choice{kernel: kernels[0], limit: limit}, nil // the loop sums in everything
}
