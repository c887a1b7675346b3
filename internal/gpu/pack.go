package gpu

import (
	"context"
	"errors"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// The copy engine takes matrices whose rows begin at multiples of 16 bytes, and the tensor
// cores elements of other than 16 bits along K alone. What lies otherwise is packed first,
// by a launch of its own, and float32 in F32x3 taken apart: that reads and writes the
// operand once, which costs little beside a product that uses each element many times.

// packed is the layout from which a boxed kernel reads an operand that lies as l does, at an
// address of that alignment; 0 stands for one that will do. along says that the operand's
// neighbours in memory are neighbours along K.
func packed(l gemm.Layout, precision gemm.Precision, align int, along bool) gemm.Layout {
	if precision == gemm.F32x3 {
		if l.Type == dtype.F32 {
			return planesOf(l)
		}
		return l
	}
	turned := l.Type.Size() != 2 && !along
	if turned {
		l.Rows, l.Cols, l.Trans = l.Cols, l.Rows, !l.Trans
	}
	if turned || l.Rows > 1 && l.LD*l.Type.Size()%maxVector != 0 || align > 0 && align < maxVector {
		return lined(l)
	}
	return l
}

// lined is a layout whose rows begin at whole lines of the L2 cache, of which boxes have
// rows then.
func lined(l gemm.Layout) gemm.Layout {
	unit := frag.SwizzleBytes / l.Type.Size()
	l.LD = ceilDiv(l.Cols, unit) * unit
	return l
}

// packing is p as a boxed kernel is launched for it: with operands that are packed where it
// cannot read them as they are, which packs says of A and of B.
func packing(p *gemm.Problem, a Align) (q gemm.Problem, packs [2]bool) {
	q = *p
	if p.ReadsAB() {
		q.A, q.B = asRow(p.A), asRow(p.B)
		before := q
		q.A, q.B = packed(q.A, p.Precision, a.A, !q.A.Trans), packed(q.B, p.Precision, a.B, q.B.Trans)
		packs = [2]bool{q.A != before.A || a.A > 0 && a.A < maxVector, q.B != before.B || a.B > 0 && a.B < maxVector}
	}
	return q, packs
}

// asRow is the same matrix as a row, if it is a column without gaps: boxes are copied of
// that as it lies.
func asRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// packing is p as the kernel is launched for it.
func (k *Kernel) packing(p *gemm.Problem, a Align) (q gemm.Problem, packs [2]bool) {
	if !k.boxed {
		return *p, packs
	}
	return packing(p, a)
}

// often is how many uses of each element make packing an operand worth its while.
const often = 128

// worthPacking is false for a product that uses the elements of an operand that has to be
// packed so few times that reading it is what takes the time.
func (k *Kernel) worthPacking(p *gemm.Problem, a Align) bool {
	if p.Precision == gemm.F32x3 {
		return true // in it there is no other kernel
	}
	_, packs := k.packing(p, a)
	return !(packs[0] && p.N < often || packs[1] && p.M < often)
}

// Packed is p with operands that lie as the kernel reads them.
func (k *Kernel) Packed(p *gemm.Problem) gemm.Problem {
	q, _ := k.packing(p, Align{})
	return q
}

// packs says whether the plan takes launches that pack A or B.
func (pl *Plan) packs() bool {
	_, packs := pl.Kernel.packing(&pl.device, pl.align)
	return packs[0] || packs[1]
}

// enqueuePacked starts the launches that pack what has to be, and the product.
func (pl *Plan) enqueuePacked(ctx context.Context, m Memory) (err error) {
	d := pl.backend.Device
	q, packs := pl.Kernel.packing(&pl.device, pl.align)
	sub := *pl
	sub.device, sub.align = q, Align{C: pl.align.C}
	for i, x := range []struct {
		at       *device.Ptr
		from, to gemm.Layout
	}{{&m.A, pl.device.A, q.A}, {&m.B, pl.device.B, q.B}} {
		if !packs[i] {
			continue
		}
		from := *x.at
		if *x.at, err = d.Alloc(x.to.Rows * x.to.LD * x.to.Type.Size()); err != nil {
			return err
		}
		at := *x.at
		defer func() { err = errors.Join(err, d.Free(at)) }()
		if err := pl.pack(ctx, x.from, from, x.to, at); err != nil {
			return err
		}
	}
	return sub.enqueue(ctx, m)
}

// pack starts the launch that packs a matrix.
func (pl *Plan) pack(ctx context.Context, from gemm.Layout, source device.Ptr, to gemm.Layout, target device.Ptr) error {
	t := packText(from, to, pl.Config)
	f, err := pl.backend.function(ctx, t.kernel, t.config)
	if err != nil {
		return err
	}
	cols, ld := to.Cols, to.LD*to.Type.Size()/wordBytes
	if t.kernel == planes {
		from = asRow(from)
		cols, ld = from.Cols, to.LD/planeParts
	}
	var args device.Params
	args.U64(uint64(to.Rows))
	args.U64(uint64(cols))
	args.Ptr(source)
	args.U64(uint64(from.LD))
	args.Ptr(target)
	args.U64(uint64(ld))
	s := t.config.Shape
	return pl.on().Launch(ctx, f, device.Launch{
		Grid:   device.Dim3{X: ceilDiv(cols, s.N), Y: min(ceilDiv(to.Rows, s.M), maxGridRows), Z: 1},
		Block:  t.kernel.threads(s),
		Params: args.Bytes(), Overlaps: t.config.Overlaps,
	})
}

// pack copies a matrix to one with other rows, or transposes it. Tiles pass through shared
// memory, so that both sides move neighbours together, wherever they begin.
var pack = &Kernel{
	Name:    "pack",
	Adds:    "a matrix for bulk copies: rows at multiples of 16 bytes, transposed if need be",
	SM:      75,
	check:   func(Shape) error { return nil },
	threads: func(Shape) device.Dim3 { return device.Dim3{X: packThreads, Y: 1, Z: 1} },
	write:   writePack,
}

const (
	packThreads = 256
	packSide    = 64 // of a tile
	wordBytes   = 4
)

// packText is what packs a matrix of one layout to another; TransA says that rows become
// columns.
func packText(from, to gemm.Layout, c Config) compiledKey {
	c = Config{In: from.Type, Out: to.Type, TransA: from.Trans != to.Trans, Shape: square(packSide, 0), Overlaps: c.Overlaps, Lines: c.Lines}
	if from.Type != to.Type {
		return compiledKey{planes, c}
	}
	return compiledKey{pack, c}
}

// packElements are types of PTX to move elements in, by their size.
var packElements = map[int]ptx.Type{1: ptx.U8, 2: ptx.U16, 4: ptx.U32}

func writePack(k *build.Kernel, c Config) {
	size := c.In.Size()
	elem := packElements[size]
	rows, cols := k.Param("rows", ptx.U64), k.Param("cols", ptx.U64)
	from := k.Pointer("from", elem).ReadOnly()
	ldFrom := k.Param("ldFrom", ptx.U64)
	source := k.Matrix(from, rows, cols, ldFrom)
	if c.TransA {
		source = k.Matrix(from, cols, rows, ldFrom).T()
	}
	to := k.Pointer("to", ptx.U32)
	target := k.Matrix(to, rows, cols, k.Param("ldTo", ptx.U64)) // of words

	k.Threads(packThreads, 1, 1)
	tid := k.ThreadIdx(build.X)
	// Rows are an odd number of words, so that a column has all banks.
	tile := k.Shared("tile", elem, packSide, packSide+wordBytes/size)
	col0 := k.Mul(k.To(ptx.U64, k.BlockIdx(build.X)), packSide)
	row0 := k.Var("row0", ptx.U64, k.Mul(k.To(ptx.U64, k.BlockIdx(build.Y)), packSide))
	k.While(func() build.Reg { return k.Lt(row0, rows) }, func() {
		k.Comment("neighbouring threads read neighbours")
		const passes = packSide * packSide / packThreads
		values := make([]build.Reg, passes)
		place := func(n int) (i, j build.Reg) {
			i, j = k.Add(k.Div(tid, packSide), n*packThreads/packSide), k.Rem(tid, packSide)
			if c.TransA {
				i, j = j, i
			}
			return i, j
		}
		for n := range values {
			i, j := place(n)
			values[n] = source.LoadOr0(k.Add(row0, k.To(ptx.U64, i)), k.Add(col0, k.To(ptx.U64, j)))
		}
		for n, v := range values {
			i, j := place(n)
			tile.Store(i, j, v)
		}
		k.Barrier()
		k.Comment("each thread writes 16 bytes")
		each := maxVector / size
		for n := 0; n < packSide*packSide/each; n += packThreads {
			at := k.Add(tid, n)
			i, j := k.Div(at, packSide/each), k.Mul(k.Rem(at, packSide/each), each)
			words := make([]build.Value, maxVector/wordBytes)
			from := tile.From(i, j)
			for w := range words {
				words[w] = packWord(k, from, w*wordBytes/size, size)
			}
			row, col := k.Add(row0, k.To(ptx.U64, i)), k.Add(col0, k.To(ptx.U64, j))
			k.If(k.And(k.Lt(at, packSide*packSide/each), target.Inside(row, col)), func() {
				target.At(row, k.Div(col, wordBytes/size)).StoreVec(words...)
			})
		}
		k.Barrier()
		k.Set(row0, k.Add(row0, k.Mul(k.To(ptx.U64, k.GridDim(build.Y)), packSide)))
	})
}

// packWord is the elements of a tile's row from column j on as one word.
func packWord(k *build.Kernel, row build.Array, j, size int) build.Value {
	word := k.To(ptx.U32, row.Load(0, j))
	for e := 1; e < wordBytes/size; e++ {
		word = k.Or(word, k.Shl(k.To(ptx.U32, row.Load(0, j+e)), 8*size*e))
	}
	return word
}

// packTexts are the texts with which the plan packs.
func (pl *Plan) packTexts() (texts []compiledKey) {
	q, packs := pl.Kernel.packing(&pl.device, pl.align)
	for i, l := range [2][2]gemm.Layout{{pl.device.A, q.A}, {pl.device.B, q.B}} {
		if packs[i] {
			texts = append(texts, packText(l[0], l[1], pl.Config))
		}
	}
	return texts
}
