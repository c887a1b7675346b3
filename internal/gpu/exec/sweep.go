package exec

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// A product is verified by matrices times vectors, in one reading of each matrix
// (Freivalds; package ref says how). It is limited by memory: 3·N² elements are read for
// the product's N³ multiply-adds.

// SweepVectors is how many vectors a sweep multiplies by.
const SweepVectors = 4

// sweep multiplies a matrix by vectors, in float64, or modulo 2^32 where it is of whole numbers. A
// block has eight warps. Where op(A)
// has its rows in memory, each warp takes some rows, and a block some hundred columns of
// all of its rows at a time: what the vectors hold there, many times the bytes of an
// element, is in shared memory, and what a thread loads of it serves all of its rows. Where
// op(A) has its columns in memory, a block takes 32 rows of it, a lane each, and its
// warps share out the columns. Either way a warp reads consecutive elements, and what it
// sums is put together in the lanes' or the warps' order.
//
// Its arguments are those of a product op(A)·B with K columns of op(A), B of
// sweepSums rows of K, and C of as many rows of M: the vectors, and behind them in B the
// weights w, in C √Σ(a·w)² of each row. In sweepNorms, which has no weights, that is the row's
// Euclidean norm. So the output of sweepNorms for one matrix can be the input of sweep for another.
// Integers, which are checked exactly, have neither.
//
// Of block scales a Config's ScaleA and ScaleB say here how many rows and how many columns of
// op(A) share one.
var (
	sweep      = sweepKernel("sweep", "a matrix times vectors, to verify a product by", true)
	sweepNorms = sweepKernel("sweep_norms", "a matrix times vectors, and the norms of its rows", false)
)

func sweepKernel(name, adds string, weighted bool) *kernel.Kernel {
	return &kernel.Kernel{
		Name:         name,
		Adds:         adds,
		SM:           80,
		CheckTile:    func(kernel.Tile) error { return nil },
		BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: 32, Y: sweepWarps, Z: 1} },
		Write: func(k *build.Kernel, c kernel.Config) {
			s := &sweeper{
				Kernel: k, config: c, num: number(c.In), weighted: weighted,
				rows: k.Param("rows", ptx.U64), cols: k.Param("cols", ptx.U64),
				at: k.Pointer("A", kernel.PTXTypes[c.In]).ReadOnly(), ld: k.Param("ld", ptx.U64),
			}
			s.b, s.out = k.Pointer("vectors", s.num).ReadOnly(), k.Pointer("out", s.num)
			if c.ScaleA > 0 {
				s.scales = k.Pointer("scales", ptx.F32).ReadOnly()
				s.down, s.across = k.Param("down", ptx.U64), k.Param("across", ptx.U64)
			}
			k.Threads(32, sweepWarps, 1)
			if c.TransA {
				s.columns()
			} else {
				s.alongRows(c.VecA)
			}
		},
	}
}

// number is what a matrix is multiplied by vectors in.
func number(t dtype.Type) ptx.Type {
	if t.Info().Integer {
		return ptx.U32
	}
	return ptx.F64
}

const sweepWarps = 8

// sweepRows is how many rows of op(A) a warp takes that has them in memory.
const sweepRows = 4

// sweepSums is how many sums there are of a row.
const sweepSums = SweepVectors + 1

// sweepPiece is how many bytes of a row a thread has under way where they lie in memory, and
// sweepVec the elements that are loaded at once, if alignment lets them.
const sweepPiece = kernel.MaxVectorBytes

// sweepMost is the most elements of that: of the vectors, they take shared memory.
const sweepMost = 8

func sweepVec(l gemm.Layout) int { return kernel.VectorLen(l, sweepElements(l.Type)) }

func sweepElements(t dtype.Type) int { return min(sweepPiece/t.Size(), sweepMost) }

// sweepUnroll is how many columns a thread has under way where they lie in memory.
const sweepUnroll = 8

// raw are types in which so many bytes can be moved and compared.
var raw = map[int]ptx.Type{1: ptx.U8, 2: ptx.U16, 4: ptx.U32, 8: ptx.U64}

// sweeper writes the kernel.
type sweeper struct {
	*build.Kernel
	config       kernel.Config
	num          ptx.Type // what it computes in
	weighted     bool
	rows, cols   build.Reg
	at           build.Ptr
	ld           build.Reg
	b, out       build.Ptr
	scales       build.Ptr
	down, across build.Reg // elements from a scale to the next one of op(A)'s rows, and columns
}

// count is how many sums a row has.
func (k *sweeper) count() int {
	if k.num == ptx.U32 {
		return SweepVectors
	}
	return sweepSums
}

// read is how many rows of B are read.
func (k *sweeper) read() int {
	if k.weighted {
		return k.count()
	}
	return SweepVectors
}

// sums are zeros to add to, for a row.
func (k *sweeper) sums(row int) []build.Reg {
	return k.Vars(fmt.Sprintf("sum%d_", row), k.num, k.count(), 0)
}

// add adds the shares of some rows' elements in a column, in which b is what B has in a row.
func (k *sweeper) add(sums [][]build.Reg, elements []build.Reg, b func(row int) build.Reg) {
	for n := range k.count() {
		factor := build.Reg{}
		if n < k.read() {
			factor = b(n)
		}
		for r, x := range elements {
			switch {
			case n < SweepVectors:
				k.FMA(sums[r][n], x, factor)
			case k.weighted:
				x = k.Mul(x, factor)
				fallthrough
			default:
				k.FMA(sums[r][n], x, x)
			}
		}
	}
}

// store writes sum number n of a row.
func (k *sweeper) store(n, row, sum build.Reg) {
	if k.num == ptx.F64 {
		root := k.Fresh(ptx.F64)
		k.Do("sqrt.rn.f64", root, sum)
		sum = k.Select(k.Eq(n, SweepVectors), root, sum)
	}
	k.Matrix(k.out, k.count(), k.rows, k.rows).Store(k.To(ptx.U64, n), row, sum)
}

// scale is the block scale of an element.
func (k *sweeper) scale(row, col build.Reg) build.Reg {
	row, col = k.Div(k.Min(row, k.Sub(k.rows, 1)), k.config.ScaleA), k.Div(k.Min(col, k.Sub(k.cols, 1)), k.config.ScaleB)
	return k.To(ptx.F64, k.scales.At(k.Mad(row, k.down, k.Mul(col, k.across))).Load())
}

// alongRows is the kernel where op(A) has its rows in memory, which are loaded in vectors of
// so many elements. While a thread multiplies what it has of a chunk of columns, what it wants
// of the next is under way.
func (k *sweeper) alongRows(vec int) {
	size := k.at.Elem().Bytes()
	if vec*size == sweepPiece && size < 8 && k.num == ptx.F64 {
		k.MinBlocks(2) // which the registers of shorter vectors leave no room for
	} else {
		k.MinBlocks(1)
	}
	lane, warp := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	first := k.Mul(k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), sweepWarps, k.To(ptx.U64, warp)), sweepRows)
	first = k.Named("first", first)
	a := k.Matrix(k.at, k.rows, k.cols, k.ld)
	mine := k.Mul(lane, vec) // the thread's first column of each patch
	from := a.At(first, k.To(ptx.U64, mine))
	there := k.To(ptx.U32, k.Min(k.Sub(k.Max(k.rows, first), first), sweepRows)) // of the rows
	var sums [sweepRows][]build.Reg
	for r := range sums {
		sums[r] = k.sums(r)
	}

	// A chunk is patches of a vector of elements a thread. Small elements come in words.
	chunk := 32 * sweepElements(k.config.In)
	memory, loaded, n := k.at.Elem(), k.at.Loaded(), vec
	if size < 4 && vec > 1 {
		word := min(4, vec*size)
		memory, n = raw[word], vec*size/word
		loaded = memory
	}
	held := make([][sweepRows][]build.Reg, chunk/(32*vec))
	load := func(patch int, number build.Reg) {
		col := k.Mad(k.To(ptx.U64, number), chunk, patch*32*vec)
		inside := k.Lt(k.Add(col, k.To(ptx.U64, mine)), k.cols)
		row := from.At(col)
		for r := range sweepRows {
			for i, x := range row.As(memory).LoadVecOr0(k.And(inside, k.Gt(there, r)), n) {
				k.Set(held[patch][r][i], x)
			}
			row = row.Skip(a.ByteOffset(1, 0))
		}
	}
	begin := k.Var("begin", ptx.U32, 0)
	for patch := range held {
		for r := range sweepRows {
			for range n {
				held[patch][r] = append(held[patch][r], k.Fresh(loaded))
			}
		}
		load(patch, begin)
	}
	b := newVectorChunks(k, chunk, vec)
	b.fetch(begin)
	k.For(0, k.To(ptx.U32, k.CeilDiv(k.cols, chunk)), func(number build.Reg) {
		next := k.Add(number, 1)
		k.CopyWait(0)
		k.Barrier() // the chunk is there, and nobody reads the one before it any more
		b.fetch(next)
		for patch, rows := range held {
			scales := k.patchScales(first, k.Add(k.Mad(k.To(ptx.U64, number), chunk, patch*32*vec), k.To(ptx.U64, mine)), vec)
			for e := range vec {
				var x [sweepRows]build.Reg
				for r := range rows {
					x[r] = k.element(rows[r], e)
					if scales != nil {
						x[r] = k.Mul(x[r], scales[r][e])
					}
				}
				column := b.from(number, patch, e)
				k.add(sums[:], x[:], func(row int) build.Reg { return column.Load(row, 0) })
			}
			load(patch, next)
		}
	})
	k.CopyWait(0)

	// Half of a warp's lanes put their sums side by side, to which the others' were
	// added; then lane n adds up number n of them. One column more keeps what each
	// lane reads apart.
	count, half := k.count(), 16
	all := sweepRows * count
	parts := k.Shared("parts", k.num, sweepWarps*all, half+1)
	for _, sum := range slices.Concat(sums[:]...) {
		k.Set(sum, k.Add(sum, k.ShuffleXor(sum, half)))
	}
	k.If(k.Lt(lane, half), func() {
		for n, sum := range slices.Concat(sums[:]...) {
			parts.Store(k.Mad(warp, all, n), lane, sum)
		}
	})
	k.Barrier()
	at := k.Add(first, k.To(ptx.U64, k.Div(lane, count)))
	k.If(k.And(k.Lt(at, k.rows), k.Lt(lane, all)), func() {
		total := k.Var("total", k.num, 0)
		for n := range half {
			k.Set(total, k.Add(total, parts.Load(k.Mad(warp, all, lane), n)))
		}
		k.store(k.Rem(lane, count), at, total)
	})
}

// patchScales are the block scales of a vector from col on in each of a warp's rows, if there are
// any: rows and vectors begin at multiples of their numbers, which a block of scales has.
func (k *sweeper) patchScales(first, col build.Reg, vec int) [][]build.Reg {
	if k.config.ScaleA == 0 {
		return nil
	}
	scales := make([][]build.Reg, sweepRows)
	for r := range scales {
		for e := range vec {
			switch {
			case r > 0 && k.config.ScaleA > 1:
				scales[r] = scales[0]
			case e > 0 && k.config.ScaleB > 1:
				scales[r] = append(scales[r], scales[r][0])
			default:
				scales[r] = append(scales[r], k.scale(k.Add(first, r), k.Add(col, e)))
			}
		}
	}
	return scales
}

// element is element i of what a vector load brought, as a number.
func (k *sweeper) element(loaded []build.Reg, i int) build.Reg {
	elem, size := k.at.Elem(), k.at.Elem().Bytes()
	per := loaded[0].Type().Bits() / 8 / size
	if size >= 4 || k.config.VecA == 1 { // not in words
		return k.number(loaded[i])
	}
	word, shift := k.To(ptx.U32, loaded[i/per]), i%per*8*size
	switch {
	case elem == ptx.BF16 && shift == 0:
		return k.To(k.num, k.Bits(ptx.F32, k.Shl(word, 16)))
	case elem == ptx.BF16:
		return k.To(k.num, k.Bits(ptx.F32, k.And(word, 0xffff0000)))
	case elem == ptx.S8:
		return k.number(k.Shr(k.Bits(ptx.S32, k.Shl(word, 24-shift)), 24))
	case size == 1:
		return k.number(k.And(k.Shr(word, shift), 0xff))
	default:
		return k.number(k.Bits(elem, k.To(ptx.U16, k.Shr(word, shift))))
	}
}

// number is an element, as it is loaded by itself, as a number.
func (k *sweeper) number(x build.Reg) build.Reg { return toNumber(k.Kernel, x, k.config.In) }

func toNumber(k *build.Kernel, x build.Reg, t dtype.Type) build.Reg {
	if t == dtype.F8E4M3 || t == dtype.F8E5M2 {
		return kernel.FromFloat8(k, x, t, number(t))
	}
	return k.To(number(t), x)
}

// vectorChunks is the rows of B in one chunk of columns after the other, in two places of
// shared memory in turns.
type vectorChunks struct {
	k     *sweeper
	chunk int // columns
	vec   int // elements of a vector of the matrix
	s     build.Array
}

func newVectorChunks(k *sweeper, chunk, vec int) *vectorChunks {
	return &vectorChunks{
		k: k, chunk: chunk, vec: vec,
		s: k.Shared("chunks", k.num, 2*k.read(), chunk),
	}
}

// place is the first row of shared memory of a chunk.
func (v *vectorChunks) place(number build.Reg) build.Reg {
	return v.k.Mul(v.k.Rem(number, 2), v.k.read())
}

// spread is where a column lies. Threads whose columns are apart would else meet in the banks.
func (v *vectorChunks) spread(col build.Reg) build.Reg {
	together := 128 / v.k.num.Bytes() // values are read from all banks at once
	return v.k.Xor(col, v.k.Rem(v.k.Div(col, together), v.vec))
}

// fetch has a chunk copied to its place, each thread a column of every row, or of some.
func (v *vectorChunks) fetch(number build.Reg) {
	k := v.k
	const threads = 32 * sweepWarps
	tid := k.Mad(k.ThreadIdx(build.Y), 32, k.ThreadIdx(build.X))
	col, row := tid, k.To(ptx.U32, 0)
	if v.chunk < threads {
		col, row = k.Rem(tid, v.chunk), k.Div(tid, v.chunk)
	}
	p := k.Mad(k.To(ptx.U64, number), v.chunk, k.To(ptx.U64, col))
	b := k.Matrix(k.b, k.read(), k.cols, k.cols)
	from, to := b.At(k.To(ptx.U64, row), p), v.s.At(k.Add(v.place(number), row), v.spread(col))
	for n := 0; n < k.read(); n += threads / v.chunk {
		k.When(k.Lt(k.Add(row, n), k.read()), func() {
			k.CopyAsync(to, from, k.num.Bytes(), k.Lt(p, k.cols))
		})
		from, to = from.Skip(b.ByteOffset(threads/v.chunk, 0)), to.At(threads)
	}
	k.CopyCommit()
}

// from is the chunk from the thread's column on that its element e of a patch is in.
func (v *vectorChunks) from(number build.Reg, patch, e int) build.Array {
	k := v.k
	mine := v.spread(k.Mul(k.ThreadIdx(build.X), v.vec))
	return v.s.From(0, k.Xor(k.Mad(v.place(number), v.chunk, mine), e)).From(0, patch*32*v.vec)
}

// columns is the kernel where op(A) has its columns in memory.
func (k *sweeper) columns() {
	lane, warp := k.To(ptx.U64, k.ThreadIdx(build.X)), k.To(ptx.U64, k.ThreadIdx(build.Y))
	a := k.Matrix(k.at, k.cols, k.rows, k.ld).T()
	b := k.Matrix(k.b, k.read(), k.cols, k.cols)
	first := k.Named("row", k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), 32, lane))
	row := k.Min(first, k.Sub(k.rows, 1)) // a row that is not there is the last once more
	sums := k.sums(0)
	k.ForUnrolled(0, k.CeilDiv(k.Sub(k.Max(k.cols, warp), warp), sweepWarps), sweepUnroll, func(n build.Reg) {
		col := k.Mad(n, sweepWarps, warp)
		x := k.number(a.Load(row, col))
		if k.config.ScaleA > 0 {
			x = k.Mul(x, k.scale(row, col))
		}
		k.add([][]build.Reg{sums}, []build.Reg{x}, func(row int) build.Reg { return b.Load(row, col) })
	})

	// Warp n adds up sum n of the block's 32 rows.
	count := k.count()
	parts := k.Shared("parts", k.num, sweepWarps*count, 33)
	for n, sum := range sums {
		parts.Store(k.To(ptx.U32, k.Mad(warp, count, n)), k.To(ptx.U32, lane), sum)
	}
	k.Barrier()
	k.If(k.And(k.Lt(first, k.rows), k.Lt(warp, count)), func() {
		total := k.Var("total", k.num, 0)
		for n := range sweepWarps {
			k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Add(warp, n*count)), k.To(ptx.U32, lane))))
		}
		k.store(k.To(ptx.U32, warp), first, total)
	})
}

// SweepBytes is how much memory of the device the vectors of a sweep take that have so many
// elements, with the weights or norms behind them.
func SweepBytes(elements int) int { return 8 * sweepSums * elements }

// Swept is a matrix on a device that is multiplied by vectors.
type Swept struct {
	At     device.Ptr
	Layout gemm.Layout
	// Scales are the block scales, if there are any: Blocks says where they are for blocks of High
	// rows and Wide columns of op(matrix).
	Scales     device.Ptr
	Blocks     gemm.Layout
	High, Wide int
}

// Sweep asks for op(matrix) times vectors
// with one value for each of its columns: [SweepVectors] of them one behind the other
// and, if weighted, as many weights w. What comes out has one value for each row and, behind
// the vectors, √Σ(x·w)² of the row or, unweighted, its Euclidean norm: neither is finite where an
// element is not. All is computed in float64, but of whole numbers modulo 2^32, and then there are
// neither weights nor norms. The errors are those of [Plan.Run], and
// ErrUnsupported for GPUs before sm_80.
func (b *Backend) Sweep(ctx context.Context, m *Swept, vectors, out device.Ptr, weighted bool) error {
	body, l := sweepNorms, m.Layout
	if weighted && number(l.Type) == ptx.F64 {
		body = sweep
	}
	if l.OpRows() == 0 {
		return ctx.Err()
	}
	config := kernel.Config{In: l.Type, Out: dtype.F64, TransA: l.Trans, ScaleA: m.High, ScaleB: m.Wide}
	high := 32
	if !l.Trans {
		config.VecA, high = sweepVec(l), sweepWarps*sweepRows
		config.LimitVectors(kernel.Align{gemm.A: 1 << bits.TrailingZeros64(uint64(m.At)|kernel.MaxVectorBytes)})
	}
	var args device.Params
	args.U64(uint64(l.OpRows()))
	args.U64(uint64(l.OpCols()))
	args.Ptr(m.At)
	args.U64(uint64(l.LD))
	args.Ptr(vectors)
	args.Ptr(out)
	if m.High > 0 {
		args.Ptr(m.Scales)
		args.U64(uint64(m.Blocks.Index(1, 0)))
		args.U64(uint64(m.Blocks.Index(0, 1)))
	}
	return b.launch(ctx, body, config, kernel.CeilDiv(l.OpRows(), high), args)
}

// launch launches a kernel of a verification in that many blocks.
func (b *Backend) launch(ctx context.Context, k *kernel.Kernel, c kernel.Config, blocks int, args device.Params) error {
	info := b.Device.Info()
	if info.Target.SM < k.SM {
		return fmt.Errorf("%w: verifying a product on %s, of sm_%d; want sm_%d or later", gemm.ErrUnsupported, info.Name, info.Target.SM, k.SM)
	}
	c.Lines, c.PDL = info.Emulated, info.Target.SM >= kernel.PDLSM
	f, err := b.Function(ctx, k, c)
	if err != nil {
		return Sentinel(err)
	}
	grid := device.Dim3{X: blocks, Y: 1, Z: 1}
	return Sentinel(b.Device.Launch(ctx, f, device.Launch{Grid: grid, Block: k.BlockThreads(kernel.Tile{}), PDL: c.PDL, Params: args.Bytes()}))
}
