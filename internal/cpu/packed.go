package cpu

import (
	"context"
	"fmt"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/ints"
)

// Packed is a B packed in advance for the micro-kernels of one kernel. Any number of products may
// use it at the same time.
//
// It consists of blocks of kc steps of K. Each block holds all columns in panels of NR, in the
// words that a product would pack for itself, except that 16-bit floats stay 16 bits wide and are
// widened panel by panel. kc depends on K alone, as in the blocked algorithm, and so the results
// have the same bits. (Products with few rows or columns, or with a small C and a long K, are
// summed in another order if B is not packed.)
type Packed struct {
	layout gemm.Layout
	kernel *Kernel
	data   []byte
	sums   []int32 // along K of each column, of elements of int8
}

// Layout returns the layout of the original matrix.
func (b *Packed) Layout() gemm.Layout { return b.layout }

// Bytes returns the size of the packed matrix: that of the original with K and N rounded up to
// whole steps and panels.
func (b *Packed) Bytes() int { return len(b.data) }

// Kernel returns the kernel for which the matrix is packed.
func (b *Packed) Kernel() *Kernel { return b.kernel }

// Pack packs the matrix of layout l at b, which is not used afterwards. It uses the kernel and
// threads of o. An error wraps ErrUnsupported or ErrOutOfMemory, or is the context's error.
func Pack(ctx context.Context, l gemm.Layout, b []byte, o *backend.Options) (*Packed, error) {
	// The kernel does not depend on the shape, so a problem with one row selects the right one.
	p, _, err := gemm.New(1, gemm.Dense(l.Type, 1, l.OpRows()), l, 0, gemm.Dense(resultOf(l.Type), 1, l.OpCols()),
		gemm.Epilogue{})
	if err != nil {
		return nil, err
	}
	c, err := chooseCached(o.Kernel, p.In())
	if err != nil {
		return nil, err
	}
	if o.RowInvariant {
		p = p.WithRowInvariance()
	}
	if c.kernel, err = c.kernel.with(&backend.Config{}, &p); err != nil {
		return nil, err
	}
	return c.kernel.pack(ctx, &p, b, o.Threads)
}

// pack packs the B of p, uint8 as int8.
func (k *Kernel) pack(ctx context.Context, p *gemm.Problem, b []byte, threads int) (*Packed, error) {
	given, s := *p.B(), operandSums{l: *p.B(), data: b, alongK: p.B().Trans}
	if p.Accum() == dtype.I32 {
		s.sums = make([]int32, p.N)
	}
	if given.Type == dtype.U8 {
		if err := host.CheckMemory(given.Rows*given.Cols, fmt.Sprintf("a copy of the %v matrix", given)); err != nil {
			return nil, err
		}
		s.to = make([]byte, given.Rows*given.Cols)
		q := p.Signed()
		p, b = &q, s.to
		p.B().LD = max(given.Cols, 1)
	}
	if err := s.run(ctx, threads); err != nil {
		return nil, err
	}
	packed, err := k.packPanels(ctx, p, b, threads)
	if err != nil {
		return nil, err
	}
	packed.layout, packed.sums = given, s.sums
	return packed, nil
}

// packPanels packs the B of p.
func (k *Kernel) packPanels(ctx context.Context, p *gemm.Problem, b []byte, threads int) (*Packed, error) {
	switch {
	case !k.Multiplies(p.In()):
		return nil, k.errNoArithmetic(p.In())
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
	return in // gemm.New reports the error
}

// packedLayout describes the division of a packed B into blocks and panels.
type packedLayout struct {
	k, kc   int // steps of K in all, and in a block
	columns int // N, rounded up to whole panels
	size    int // bytes per word
}

func (mk *microKernel[T]) newPackedLayout(p *gemm.Problem) packedLayout {
	k := mk.steps(p.K)
	cut := packedLayout{k: k, kc: mk.blockOf(k), columns: ints.CeilDiv(p.N, mk.NR) * mk.NR, size: p.B().Type.Size()}
	if mk.Group > 1 || cut.size == 1 {
		cut.size = int(unsafe.Sizeof(*new(T)))
	}
	return cut
}

// at returns the position, in words, of column j's panel in the block that starts at step p0. Each
// panel has top rows before its first step.
func (c *packedLayout) at(p0, j, top int) int {
	return p0/c.kc*(top+c.kc)*c.columns + j*(top+min(c.kc, c.k-p0))
}

func pack[T scalar](ctx context.Context, k *Kernel, mk *microKernel[T], p *gemm.Problem, b []byte,
	threads int) (*Packed, error) {
	cut, top := mk.newPackedLayout(p), mk.headerRows()
	blocks, panels := ints.CeilDiv(cut.k, cut.kc), cut.columns/mk.NR
	bytes := (blocks*top + cut.k) * cut.columns * cut.size
	if err := host.CheckMemory(bytes, fmt.Sprintf("the packed %v matrix", p.Layouts[gemm.B])); err != nil {
		return nil, err
	}
	packed := &Packed{layout: p.Layouts[gemm.B], kernel: k, data: allocAligned(bytes)}
	o := operandB(p, &gemm.Buffers{gemm.B: b}, mk)
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
			narrowing[T](p.B().Type)(packed.data, at, panel)
		}
	})
	if err != nil {
		return nil, err
	}
	return packed, nil
}

// widenPerTileRows is the maximum number of rows of A for which 16-bit elements of B are widened
// again for each use. With more rows they are widened once for all rows of a tile.
const widenPerTileRows = 32

// packedInPlaceRows is the maximum number of rows of A that are read unpacked if B is packed in
// advance and read from memory. A packed A consists of whole tiles and takes as much of L1 as rows
// of B do.
const packedInPlaceRows = 16

// usePacked sets up the product for a B that was packed in advance.
func (d *blocked[T]) usePacked(p *gemm.Problem, packed *Packed) {
	d.packedLayout = d.mk.newPackedLayout(p)
	d.packedB = dtype.View[T](packed.data)
	if d.m <= packedInPlaceRows && d.mk.canReadInPlace(p) {
		d.packsA = false
	}
	if d.halves = d.packedLayout.size < dtype.Of[T]().Size(); d.halves {
		d.b.raw = packed.data
		if d.m <= widenPerTileRows {
			d.tiles = d.mk.wideningTiles(p.B().Type, d.m)
			d.height = d.tiles.height
		}
	}
}

// panel returns the block's panel of column j, and the elements to prefetch next.
func (d *blocked[T]) panel(w *phaseState, j, worker int) (b *T, ahead []T) {
	deep, all := d.mk.headerRows()+w.deep, d.bPack
	at := j * deep
	if d.packedB != nil {
		at, all = d.packedLayout.at(w.p0, w.j0+j, d.mk.headerRows()), d.packedB
		switch {
		case d.tiles.kernels != nil:
			halves := dtype.View[T](d.b.raw[2*at:])
			return unsafe.SliceData(halves), halves[min(d.mk.NR*deep/2, len(halves)-1):]
		case d.halves:
			panel := d.panelOf(worker)[:w.deep*d.mk.NR]
			d.b.copyRun(panel, at)
			return unsafe.SliceData(panel), d.packedB[min((at+d.mk.NR*deep)/2, len(d.packedB)-1):]
		}
	}
	if d.copies && !d.keeps {
		return &all[worker*d.kc*d.mk.NR], all[len(all)-1:]
	}
	if b, ahead = &all[at], all[at:]; j+d.mk.NR < w.cols {
		ahead = ahead[d.mk.NR*deep:]
	}
	return b, ahead
}
