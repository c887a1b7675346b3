package cpu

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
)

// Packed is a B of products on the processor, laid out once as a kernel's micro-kernels
// read it. It may be used by any number of products at once.
//
// It holds blocks of kc steps of K, each with all of N in panels of NR columns, in B's
// own type: what a product would pack for itself, halves aside, which it widens panel by
// panel as they come. kc depends on K alone, as in any product by tiles, and so the bits
// of a result are the same. (Products with few rows or columns, or with a small C and a long K,
// are summed in another order where B is not packed.)
type Packed struct {
	layout gemm.Layout
	kernel *Kernel
	data   []byte
}

// Layout is that of the matrix it was made from, Bytes how much memory it takes: as much
// as that matrix, K and N rounded up to whole steps and panels.
func (b *Packed) Layout() gemm.Layout { return b.layout }
func (b *Packed) Bytes() int          { return len(b.data) }
func (b *Packed) Kernel() *Kernel     { return b.kernel }

// Pack lays out the matrix of layout l at b, which is not used afterwards. Of the options
// it heeds the kernel and the threads. The errors are ErrUnsupported, ErrOutOfMemory
// and the context's.
func Pack(ctx context.Context, l gemm.Layout, b []byte, o Options) (*Packed, error) {
	// Any product with this B has the kernel that this one has.
	p, _, err := gemm.New(1, gemm.Dense(l.Type, 1, l.OpRows()), l, 0, gemm.Dense(resultOf(l.Type), 1, l.OpCols()), gemm.Epilogue{})
	if err != nil {
		return nil, err
	}
	c, err := chooseCached(o.Kernel, p.A.Type)
	if err != nil {
		return nil, err
	}
	return c.kernel.pack(ctx, &p, b, o.Threads)
}

// pack packs the B of p.
func (k *Kernel) pack(ctx context.Context, p *gemm.Problem, b []byte, threads int) (*Packed, error) {
	switch {
	case !k.Multiplies(p.A.Type):
		return nil, k.errNoArithmetic(p.A.Type)
	case k.naive:
		return nil, fmt.Errorf("%w: kernel %s packs nothing", gemm.ErrUnsupported, k.Name)
	case p.Accum() == dtype.F32:
		return pack(ctx, k, k.f32, p, b, threads)
	case p.Accum() == dtype.F64:
		return pack(ctx, k, k.f64, p, b, threads)
	default:
		return pack(ctx, k, k.i32, p, b, threads)
	}
}

func resultOf(in dtype.Type) dtype.Type {
	if r := in.Info().Results; len(r) > 0 {
		return r[0]
	}
	return in // gemm.New refuses it
}

// prepacked is how a kernel cuts a B of K steps and N columns.
type packedLayout struct {
	k, kc   int // steps, and those of a block
	columns int // N, rounded up to whole panels
	size    int // bytes of a word
}

func (mk *microKernel[T]) newPackedLayout(p *gemm.Problem) packedLayout {
	k := mk.steps(p.K)
	cut := packedLayout{k: k, kc: mk.blockOf(k), columns: ceilDiv(p.N, mk.NR) * mk.NR, size: p.B.Type.Size()}
	if mk.Group > 1 || cut.size == 1 {
		cut.size = int(unsafe.Sizeof(*new(T)))
	}
	return cut
}

// at is where the panel of column j begins in the block from step p0 on, in words; top
// rows stand above the first step of each panel.
func (c *packedLayout) at(p0, j, top int) int {
	return p0/c.kc*(top+c.kc)*c.columns + j*(top+min(c.kc, c.k-p0))
}

func pack[T scalar](ctx context.Context, k *Kernel, mk *microKernel[T], p *gemm.Problem, b []byte, threads int) (*Packed, error) {
	cut, top := mk.newPackedLayout(p), mk.headerRows()
	blocks, panels := ceilDiv(cut.k, cut.kc), cut.columns/mk.NR
	bytes := (blocks*top + cut.k) * cut.columns * cut.size
	if err := host.CheckMemory(bytes, fmt.Sprintf("the packed %v matrix", p.B)); err != nil {
		return nil, err
	}
	packed := &Packed{layout: p.B, kernel: k, data: allocAligned(bytes)}
	o := operandB(p, &gemm.Buffers{B: b}, mk)
	halves := cut.size < int(unsafe.Sizeof(*new(T)))
	err := ParallelFor(ctx, blocks*panels, threads, func(i int) {
		p0, j := i/panels*cut.kc, i%panels*mk.NR
		deep := min(cut.kc, cut.k-p0)
		m := getWorkspace(allocBytes[T](deep) + allocBytes[T]((top+deep)*mk.NR))
		defer m.put()
		tmp, panel := alloc[T](&m, deep), alloc[T](&m, (top+deep)*mk.NR)
		at := cut.at(p0, j, top)
		if !halves {
			panel = dtype.View[T](packed.data)[at:][:len(panel)]
		}
		o.pack(panel[top*mk.NR:], mk.NR, j, min(mk.NR, p.N-j), p0, deep, tmp)
		if top > 0 {
			mk.Compensate(deep, &panel[0])
		}
		if halves {
			narrowing[T](p.B.Type)(packed.data, at, panel)
		}
	})
	if err != nil {
		return nil, err
	}
	return packed, nil
}

// fewRows is how many rows of A halves of B are widened for again and again. (Above, they
// are widened once for all rows of a tile.)
const widenPerTileRows = 32

// rowsInPlace is how many rows of A are read where they lie beside a B that was packed before,
// which comes from memory: a packed one, of whole tiles, takes as much of L1 as rows of B do.
const packedInPlaceRows = 16

// takePacked has the product use a B that was packed before.
func (d *blocked[T]) usePacked(p *gemm.Problem, packed *Packed) {
	d.packedLayout = d.newPackedLayout(p)
	d.packedB = dtype.View[T](packed.data)
	if d.m <= packedInPlaceRows && d.canReadInPlace(p) {
		d.packsA = false
	}
	if d.halves = d.packedLayout.size < dtype.Of[T]().Size(); d.halves {
		d.b.raw = packed.data
		switch {
		case d.m > widenPerTileRows:
		case p.B.Type == dtype.F16:
			d.halfKernel = d.PackedF16
		case p.B.Type == dtype.BF16:
			d.halfKernel = d.PackedBF16
		}
	}
}

// panel is where the block's panel of column j begins, and what is read after it.
func (d *blocked[T]) panel(w *phaseState, j, worker int) (b *T, ahead []T) {
	deep, all := d.headerRows()+w.deep, d.bPack
	at := j * deep
	if d.packedB != nil {
		at, all = d.packedLayout.at(w.p0, w.j0+j, d.headerRows()), d.packedB
		switch {
		case d.halfKernel != nil:
			halves := dtype.View[T](d.b.raw[2*at:])
			return unsafe.SliceData(halves), halves[min(d.NR*deep/2, len(halves)-1):]
		case d.halves:
			panel := d.panelOf(worker)[:w.deep*d.NR]
			d.b.copyRun(panel, at)
			return unsafe.SliceData(panel), d.packedB[min((at+d.NR*deep)/2, len(d.packedB)-1):]
		}
	}
	if b, ahead = &all[at], all[at:]; j+d.NR < w.cols {
		ahead = ahead[d.NR*deep:]
	}
	return b, ahead
}
