package exec

import (
	"math"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// A plan lists the steps of a product in one place. The kernels to compile, the size of the scratch
// memory and the launches all follow from that list.

// step is a launch of a product.
type step struct {
	kernelKey
	// encode returns the launch with its arguments.
	encode func(kernel.Host) (device.Launch, error)
}

// recorder collects the steps of a product in the order of their stream, and assigns the scratch
// memory in which they pass data to each other.
type recorder struct {
	steps []step
	base  device.Ptr // of the scratch memory
	flags device.Ptr // see launchKey
	taken int        // bytes of it, or math.MaxInt if there are more
}

// scratchAlign is the alignment of each part of the scratch memory, that of [device.Device.Alloc].
const scratchAlign = 256

// take returns the address of scratch memory for an array of the given sizes.
func (r *recorder) take(t dtype.Type, sizes ...int) device.Ptr {
	at := r.base + device.Ptr(r.taken)
	elements, bytes := 1, float64(t.Size())
	for _, n := range sizes {
		elements, bytes = elements*n, bytes*float64(n)
	}
	if float64(r.taken)+bytes >= math.MaxInt-scratchAlign {
		r.taken = math.MaxInt
		return at
	}
	r.taken += ints.RoundUp(t.Bytes(elements), scratchAlign)
	return at
}

// add adds a launch of a kernel that computes a product.
func (r *recorder) add(k *kernel.Kernel, a kernel.Args) {
	r.steps = append(r.steps, step{kernelKey{k, a.Config.CompileKey()}, func(on kernel.Host) (device.Launch, error) {
		return k.Launch(a, on)
	}})
}

// record returns the steps of the product without the addresses of its matrices: the kernels, and
// the size of the scratch memory.
func (pl *Plan) record() (r recorder) {
	if pl.stream == nil || pl.stream == device.Stream(pl.backend.Device) {
		r.flags = 1
	}
	pl.addTo(&r, kernel.Memory{})
	return r
}

// addTo adds the steps of the product.
func (pl *Plan) addTo(r *recorder, m kernel.Memory) {
	p := &pl.device
	switch {
	case p.Empty():
	case p.Batch.Kind == gemm.Strided && p.Batch.Count > pl.Kernel.MaxProducts():
		pl.addBatchChunks(r, m)
	case pl.isShifted():
		pl.addShifted(r, m)
	case pl.Config.Factor.Valid():
		pl.addGated(r, m)
	default:
		pl.addProduct(r, m)
	}
}

// addBatchChunks adds a strided batch in several launches of as many products as a grid can have.
func (pl *Plan) addBatchChunks(r *recorder, m kernel.Memory) {
	count, most := pl.device.Batch.Count, pl.Kernel.MaxProducts()
	for first := 0; first < count; first += most {
		chunk, at := *pl, m
		chunk.device.Batch.Count = min(count-first, most)
		for o := range gemm.C + 1 {
			at[o] += device.Ptr(pl.device.Layouts[o].Type.Bytes(first * pl.device.Batch.Stride[o]))
		}
		chunk.addTo(r, at)
	}
}

// addGated adds the two launches of a gated product: A·Up into scratch memory, and A·B, whose
// epilogue multiplies by it.
func (pl *Plan) addGated(r *recorder, m kernel.Memory) {
	other := *pl
	other.device = pl.device.Other()
	other.device.C().LD = kernel.PartialSumLD(&pl.device)
	other.align = kernel.Align{gemm.A: pl.align[gemm.A], gemm.B: pl.align[gemm.Up]}
	other.Config = pl.configFor(&other.device)
	other.Config.LimitVectors(other.align)
	c := other.device.C()
	factor := r.take(c.Type, c.Rows, c.LD)
	other.addTo(r, kernel.Memory{gemm.A: m[gemm.A], gemm.B: m[gemm.Up], gemm.C: factor})
	m[gemm.Up] = factor
	pl.addProduct(r, m)
}

// addProduct adds the packing of operands and the product or, of a gated one in two launches, the
// second.
func (pl *Plan) addProduct(r *recorder, m kernel.Memory) { pl.addSums(r, m, nil) }

// addSums is addProduct for a product whose last launch, unless nil, is that of last, which takes
// the sums.
func (pl *Plan) addSums(r *recorder, m kernel.Memory, last *kernel.Args) {
	packed, which := pl.packed()
	if !which.Any() {
		pl.addKernel(r, m, last)
		return
	}
	var copies []operandCopy
	for _, o := range kernel.Packable {
		if which[o] {
			x := pl.packing(o, &packed.device)
			x.source, x.target = m[o], r.take(x.to.Type, x.count, x.to.Rows, x.to.LD)
			m[o] = x.target
			copies = append(copies, x)
		}
	}
	pl.addPacking(r, copies)
	packed.addKernel(r, m, last)
}

// addKernel adds the launch of the kernel. Split-K takes two: the kernel computes partial sums in
// scratch memory, and another adds them and writes C.
func (pl *Plan) addKernel(r *recorder, m kernel.Memory, last *kernel.Args) {
	p, s := &pl.device, pl.Config.Tile
	a := kernel.Args{Config: &pl.Config, Problem: p, Memory: m, Row0: pl.row0, Col0: pl.col0}
	if s.StreamK {
		a = pl.handOver(r, a)
	}
	second := a
	if last != nil {
		second = *last
	}
	switch {
	case s.SplitK > 1:
		second.PartialSums = r.take(p.Accum(), kernel.SplitCount(p, s), p.M, kernel.PartialSumLD(p))
		second.SplitLen = kernel.SplitLen(p, s)
		partial := pl.Config.PartialSums()
		first := a
		first.Config, first.Memory[gemm.C] = &partial, 0
		first.PartialSums, first.SplitLen = second.PartialSums, second.SplitLen*max(s.SerialK, 1)
		r.add(pl.Kernel, first)
	case last == nil:
		r.add(pl.Kernel, a)
		return
	default: // the sums are a single part
		second.PartialSums, second.SplitLen = r.take(p.Accum(), p.M, p.C().LD), p.K
		a.Memory[gemm.C] = second.PartialSums
		r.add(pl.Kernel, a)
	}
	total := kernel.SplitKSumConfig(*second.Config)
	second.Config = &total
	r.add(kernel.SplitKSum, second)
}

// handOver adds the memory of stream-K to the launch. In a stream without flags, and for a product
// without steps, it replaces the kernel by that without stream-K, which has the same bits.
func (pl *Plan) handOver(r *recorder, a kernel.Args) kernel.Args {
	if r.flags == 0 || !a.Problem.ReadsAB() {
		plain := *a.Config
		plain.Tile.StreamK = false
		a.Config = &plain
		return a
	}
	t := a.Config.Tile
	a.Handed = r.take(a.Problem.Accum(), pl.Kernel.HandedTiles(a.Config, a.Problem, pl.backend.Info()), t.M, t.N)
	a.Flags = r.flags
	return a
}
