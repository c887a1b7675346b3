// Package cpu multiplies matrices on the CPU. It holds the list of CPU kernels, the algorithms that
// drive their micro-kernels (the blocked algorithm of BLIS and several for small or skinny
// matrices), packing, and the worker pool.
//
// A kernel is either a complete algorithm (the naive triple loop) or a set of micro-kernels, one
// for each accumulator type. All kernels with micro-kernels share the loops, packing, edge
// handling, type conversions, epilogues and threading.
package cpu

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
	"tilework/internal/names"
)

// Kernel is one entry of the kernel list.
type Kernel struct {
	Name string
	Adds string // the improvement over the kernel before it, in one line
	ISA  string // the required instruction sets; empty if plain Go is enough

	isAvailable func() bool // reports whether this CPU supports ISA
	// naive marks the triple loop, which handles every type and has no micro-kernels.
	naive bool
	f32   *microKernel[float32]
	f64   *microKernel[float64]
	i32   *microKernel[int32]

	onlyTypes []dtype.Type // the supported element types; nil for all with a micro-kernel for their accumulator
	slower    func() bool  // reports whether a kernel earlier in the list is faster on this CPU; nil for never
	flushes   bool         // whether subnormal numbers are flushed to zero
	ordered   bool         // whether the block sizes are those of row-invariant products
}

// scalar lists the accumulator types of the CPU kernels.
type scalar interface{ float32 | float64 | int32 }

// microKernel is a micro-kernel for one accumulator type and its block sizes.
//
// The micro-kernel computes an MR×NR tile of C, held in registers, from a panel of A and a panel of
// B (names as in Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS
// Functionality", 2015). kc is chosen so that a panel of B stays in the L1 cache, mc so that an
// mc×kc block of A stays in L2, and ms×kc and kc×ns, which are packed at a time, in L3.
type microKernel[T scalar] struct {
	asm.Kernels[T]
	mc, kc int // kc counts steps; a step of int8 multiplies several values of K
	ms, ns int

	// packersA and packersB fill the panels. wideners convert 16-bit elements to the accumulator
	// type and back. Types without an entry use plain Go.
	packersA, packersB, wideners packers

	// floatEpilogue runs the epilogue on integer sums converted to float32; nil selects plain Go.
	floatEpilogue *microKernel[float32]

	costs  func() *costs // of this CPU; nil if there is a single method
	forced method        // requested by a [backend.Config], or zero
}

// packers holds one packer per element type, indexed by the type.
type packers []asm.Packer

// of returns the packer for t, or one without functions if there is none.
func (f packers) of(t dtype.Type) asm.Packer {
	if int(t) < len(f) {
		return f[t]
	}
	return asm.Packer{}
}

var (
	floatPackers   = packers{dtype.F32: asm.PackerF32, dtype.F16: asm.PackerF16, dtype.BF16: asm.PackerBF16}
	float64Packers = packers{dtype.F64: asm.PackerF64}
	int8x4Packers  = packers{dtype.I8: asm.PackerI8x4}
	uint8x4Packers = packers{dtype.I8: asm.PackerU8x4}
	int8x2Packers  = packers{dtype.I8: asm.PackerI8x2}
	bf16x2Packers  = packers{dtype.BF16: asm.PackerBF16x2}
)

// The float32 micro-kernels also run the epilogue of int8 sums that are converted to float32.
var (
	f32AVX2 = &microKernel[float32]{Kernels: asm.F32AVX2, costs: costsOfAVX2, mc: 96, kc: 512, ms: 4096, ns: 4096,
		packersA: floatPackers, packersB: floatPackers, wideners: floatPackers}
	f32AVX512 = &microKernel[float32]{Kernels: asm.F32AVX512, costs: costsOfAVX512, mc: 144, kc: 768, ms: 4096, ns: 4096,
		packersA: floatPackers, packersB: floatPackers, wideners: floatPackers}
)

// kernels lists all CPU kernels, slowest first. Dispatch, tests, benchmarks and docs iterate over
// it.
var kernels = []*Kernel{
	{
		Name:        "loop",
		Adds:        "the textbook: three loops, one thread, a sum for each element of C",
		isAvailable: func() bool { return true },
		naive:       true,
	},
	{
		Name:        "portable",
		Adds:        "blocks that fit the caches, packed operands, 4×4 tiles in registers, all cores; plain Go",
		isAvailable: func() bool { return true },
		f32:         &microKernel[float32]{Kernels: portable[float32](), mc: 128, kc: 256, ms: 2048, ns: 2048},
		f64:         &microKernel[float64]{Kernels: portable[float64](), mc: 64, kc: 256, ms: 2048, ns: 2048},
		i32:         &microKernel[int32]{Kernels: portable[int32](), mc: 128, kc: 256, ms: 2048, ns: 2048},
	},
	{
		Name:        "avx2",
		Adds:        "6×16 tiles (float64: 6×8, int8: 4×16) in 256-bit registers with fused multiply-add",
		ISA:         "AVX2+FMA",
		isAvailable: func() bool { return asm.F32AVX2.ISA.Supported },
		f32:         f32AVX2,
		f64: &microKernel[float64]{Kernels: asm.F64AVX2, costs: costsOfAVX2, mc: 48, kc: 512, ms: 4096, ns: 2048,
			packersA: float64Packers, packersB: float64Packers},
		i32: &microKernel[int32]{Kernels: asm.I8AVX2, mc: 144, kc: 256, ms: 4096, ns: 4096,
			packersA: int8x2Packers, packersB: int8x2Packers, floatEpilogue: f32AVX2},
	},
	{
		Name:        "avx512",
		Adds:        "12×32 tiles (float64: 12×16) in 512-bit registers, masked edges",
		ISA:         "AVX-512 F, DQ, BW, VL",
		isAvailable: func() bool { return asm.F32AVX512.ISA.Supported },
		f32:         f32AVX512,
		f64: &microKernel[float64]{Kernels: asm.F64AVX512, costs: costsOfAVX512, mc: 144, kc: 384, ms: 4096, ns: 2048,
			packersA: float64Packers, packersB: float64Packers},
	},
	{
		Name:        "vnni",
		Adds:        "int8 only: 8×32 tiles, four products and their sum in one step of each 32 bits",
		ISA:         "AVX-512 VNNI",
		isAvailable: func() bool { return asm.I8VNNI.ISA.Supported },
		i32: &microKernel[int32]{Kernels: asm.I8VNNI, mc: 192, kc: 512, ms: 4096, ns: 4096,
			packersA: uint8x4Packers, packersB: int8x4Packers, floatEpilogue: f32AVX512},
	},
	{
		Name:        "avx512bf16",
		Adds:        "bfloat16 only: 12×32 tiles, two products and their sum in one step of each 32 bits",
		ISA:         "AVX-512 BF16",
		isAvailable: func() bool { return asm.BF16AVX512.ISA.Supported },
		f32: &microKernel[float32]{Kernels: asm.BF16AVX512, costs: costsOfAVX512BF16, mc: 144, kc: 512, ms: 4096, ns: 4096,
			packersA: bf16x2Packers, packersB: bf16x2Packers, wideners: floatPackers},
		onlyTypes: []dtype.Type{dtype.BF16}, slower: fmaBeatsBF16, flushes: true,
	},
	{
		Name:        "amx",
		Adds:        "int8 and bfloat16 only: 32×32 tiles, 16 steps of 16×16 words in one instruction",
		ISA:         "AMX with INT8 and BF16, on Linux",
		isAvailable: func() bool { return asm.I8AMX.ISA.Supported && asm.AllowTiles() },
		f32: &microKernel[float32]{Kernels: asm.BF16AMX, costs: costsOfAMX, mc: 256, kc: 1024, ms: 4096, ns: 4096,
			packersA: bf16x2Packers, packersB: bf16x2Packers, wideners: floatPackers},
		i32: &microKernel[int32]{Kernels: asm.I8AMX, mc: 256, kc: 1024, ms: 4096, ns: 4096,
			packersA: int8x4Packers, packersB: int8x4Packers, floatEpilogue: f32AVX512},
		onlyTypes: []dtype.Type{dtype.I8, dtype.BF16}, flushes: true,
	},
}

// fmaBeatsBF16 reports whether float32 FMAs reach more operations per second than bfloat16 dot
// products. An Emerald Rapids issues four FMAs in the time of one dot product, a Zen 5 issues as
// many of each.
var fmaBeatsBF16 = sync.OnceValue(func() bool {
	return asm.BF16AVX512.ISA.Supported && peak(asm.F32AVX512, 5) > peak(asm.BF16AVX512, 5)
})

// EnvISA is the environment variable that names the fastest kernel for automatic selection. It lets
// tests run a slower kernel on a CPU that supports a faster one. It is read once.
const EnvISA = "TILEWORK_CPU"

var environment = sync.OnceValue(func() string { return os.Getenv(EnvISA) })

// Kernels lists the kernels, slowest first.
func Kernels() []*Kernel { return kernels }

// Available reports whether this CPU can run k.
func (k *Kernel) Available() bool { return k.isAvailable() }

// Multiplies reports whether k multiplies matrices of element type t.
func (k *Kernel) Multiplies(t dtype.Type) bool {
	in := t.Info()
	if len(in.Results) == 0 || k.onlyTypes != nil && !slices.Contains(k.onlyTypes, t.Signed()) {
		return false
	}
	switch in.Accum {
	case dtype.F32:
		return k.naive || k.f32 != nil
	case dtype.F64:
		return k.naive || k.f64 != nil
	default:
		return k.naive || k.i32 != nil
	}
}

// Accuracy describes the rounding of k when it computes p.
func (k *Kernel) Accuracy(p *gemm.Problem) gemm.Accuracy {
	acc := gemm.AccuracyOf(p)
	acc.FlushesToZero = k.flushes && !p.Accum().Info().Integer
	return acc
}

// Types lists the element types that k multiplies.
func (k *Kernel) Types() []dtype.Type {
	var types []dtype.Type
	for _, t := range dtype.All() {
		if k.Multiplies(t) {
			types = append(types, t)
		}
	}
	return types
}

// Tiles lists the tile and block sizes of k. Tests try sizes around them.
func (k *Kernel) Tiles() []int {
	var sizes []int
	sizes = appendTiles(sizes, k.f32)
	sizes = appendTiles(sizes, k.f64)
	sizes = appendTiles(sizes, k.i32)
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func appendTiles[T scalar](sizes []int, mk *microKernel[T]) []int {
	if mk == nil {
		return sizes
	}
	return append(sizes, mk.MR, mk.NR, mk.mc, mk.kc*mk.Group)
}

// find returns the index of the kernel with a name. The error is ErrUnsupported.
func find(name string) (int, error) {
	i, err := names.Find("CPU kernel", name, kernels, func(k **Kernel) string { return (*k).Name })
	if err != nil {
		return 0, fmt.Errorf("%w: %w", gemm.ErrUnsupported, err)
	}
	return i, nil
}

// choice is a kernel and the reason for its selection.
type choice struct {
	kernel *Kernel
	named  bool   // the caller requested it by name
	limit  string // the value of EnvISA, or empty
}

// chooseCached is [choose] with the limit from the environment. A choice without a name depends on
// the type alone and is cached.
func chooseCached(name string, in dtype.Type) (choice, error) {
	if name != "" {
		return choose(name, "", in)
	}
	kept := &cachedChoices[in]
	if c := kept.Load(); c != nil {
		return *c, nil
	}
	c, err := choose("", environment(), in)
	if err == nil {
		kept.Store(&c)
	}
	return c, err
}

var cachedChoices [256]atomic.Pointer[choice] // indexed by element type

// CheckEnv returns an error unless [EnvISA] is empty or names a kernel that this CPU can run.
func CheckEnv() error {
	_, err := fastestIndex(environment())
	return err
}

// fastestIndex returns the index of the fastest kernel that limit allows.
func fastestIndex(limit string) (int, error) {
	if limit == "" {
		return len(kernels) - 1, nil
	}
	i, err := find(limit)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", EnvISA, err)
	}
	if !kernels[i].Available() {
		return 0, fmt.Errorf("%w: %s=%s: the kernel needs %s, which this CPU lacks", gemm.ErrUnsupported, EnvISA, limit,
			kernels[i].ISA)
	}
	return i, nil
}

// choose returns the kernel called name. For an empty name it returns the fastest kernel for
// matrices of type in that this CPU supports, and no faster one than limit unless limit is empty.
func choose(name, limit string, in dtype.Type) (choice, error) {
	if name != "" {
		i, err := find(name)
		switch k := kernels[i]; {
		case err != nil:
			return choice{}, err
		case !k.Available():
			return choice{}, fmt.Errorf("%w: kernel %s needs %s, which this CPU lacks", gemm.ErrUnsupported, name,
				k.ISA)
		default:
			return choice{kernel: k, named: true}, nil
		}
	}
	last, err := fastestIndex(limit)
	if err != nil {
		return choice{}, err
	}
	for i := last; i > 0; i-- {
		k := kernels[i]
		if !k.Multiplies(in) || !k.Available() {
			continue
		}
		if k.slower == nil || k.Name == limit || !k.slower() {
			return choice{kernel: k, limit: limit}, nil
		}
	}
	return choice{kernel: kernels[0], limit: limit}, nil // the naive loop multiplies every type
}
