package gpu

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/verify"
	"tilework/ptx"
	"tilework/ptx/build"
)

// The Freivalds product multiplies op(A) by [verify.NumVectors] vectors, in float64 or, for
// integers, modulo 2^32. It reads the matrix once and is limited by memory bandwidth: a
// verification reads about 3·N² elements, while the product itself takes N³ multiply-adds.
//
// A block has eight warps, which read consecutive elements. If the rows of op(A) are contiguous,
// each warp takes productRows rows. The block iterates over chunks of columns. It copies the chunk
// of the vectors, which are several times as large as the elements, to shared memory, and each
// value that a thread loads from there serves all rows of its warp. If the columns of op(A) are
// contiguous, a block takes 32 rows, one per lane, and its warps partition the columns. Partial
// sums are added in the order of lanes or warps.
//
// For op(A) of M×K, the input has rowSums rows of K elements: the vectors and then weights w. The
// output has rowSums rows of M elements: op(A) times the vectors and then √Σ(a·w)² of each row.
// plainProduct has no weights, and its last row of output is the Euclidean norm of each row of
// op(A). Its output for one matrix can therefore be the input of weightedProduct for another.
// Integers are checked exactly, and have neither weights nor norms.
//
// ScaleA and ScaleB of the Config are the numbers of rows and columns of op(A) that share a block
// scale.
var (
	weightedProduct = newProduct("freivalds_product", "a matrix times vectors, and the weighted norms of its rows", true)
	plainProduct    = newProduct("freivalds_product_norms", "a matrix times vectors, and the norms of its rows", false)
)

func newProduct(name, adds string, weighted bool) *kernel.Kernel {
	return &kernel.Kernel{
		Name:         name,
		Adds:         adds,
		SM:           80,
		BlockThreads: func(kernel.Tile) device.Dim3 { return device.Dim3{X: 32, Y: productWarps, Z: 1} },
		Write: func(k *build.Kernel, c kernel.Config) {
			s := &productWriter{Kernel: k, config: c, num: number(c.In), weighted: weighted}
			s.declareParams()
			k.Threads(32, productWarps, 1)
			if c.TransA {
				s.contiguousColumns()
			} else {
				s.contiguousRows(c.VecA)
			}
		},
	}
}

// productArgs describes a launch of a Freivalds product.
type productArgs struct {
	*matrix
	vectors, out device.Ptr
}

// productParams lists the parameters of a Freivalds product.
var productParams = []kernel.Param[productArgs]{
	{Name: "rows", Type: kernel.TypeU64, Value: func(a *productArgs) uint64 { return uint64(a.layout.OpRows()) }},
	{Name: "cols", Type: kernel.TypeU64, Value: func(a *productArgs) uint64 { return uint64(a.layout.OpCols()) }},
	{Name: "A", Type: typeElement, Pointer: true, Value: func(a *productArgs) uint64 { return uint64(a.at) }},
	{Name: "ld", Type: kernel.TypeU64, Value: func(a *productArgs) uint64 { return uint64(a.layout.LD) }},
	{Name: "vectors", Type: typeNumber, Pointer: true, Value: func(a *productArgs) uint64 { return uint64(a.vectors) }},
	{Name: "out", Type: typeNumber, Pointer: true, Value: func(a *productArgs) uint64 { return uint64(a.out) }},
	{
		Name: "scales", Type: kernel.TypeF32, Pointer: true, When: hasBlockScales,
		Value: func(a *productArgs) uint64 { return uint64(a.scales) },
	},
	{
		Name: "scalesRowStride", Type: kernel.TypeU64, When: hasBlockScales,
		Value: func(a *productArgs) uint64 { return uint64(a.blocks.Index(1, 0)) },
	},
	{
		Name: "scalesColStride", Type: kernel.TypeU64, When: hasBlockScales,
		Value: func(a *productArgs) uint64 { return uint64(a.blocks.Index(0, 1)) },
	},
}

func typeElement(c *kernel.Config) ptx.Type { return kernel.PTXTypes[c.In] }
func typeNumber(c *kernel.Config) ptx.Type  { return number(c.In) }
func hasBlockScales(c *kernel.Config) bool  { return c.ScaleA > 0 }

// declareParams declares productParams.
func (k *productWriter) declareParams() {
	d := &kernel.Declarer[productArgs]{Kernel: k.Kernel, Config: &k.config, Params: productParams}
	k.rows, k.cols = d.Value("rows"), d.Value("cols")
	k.at, k.ld = d.Pointer("A").ReadOnly(), d.Value("ld")
	k.b, k.out = d.Pointer("vectors").ReadOnly(), d.Pointer("out")
	if d.Has("scales") {
		k.scales = d.Pointer("scales").ReadOnly()
		k.scalesRowStride, k.scalesColStride = d.Value("scalesRowStride"), d.Value("scalesColStride")
	}
}

// number returns the type of the arithmetic on matrices of type t.
func number(t dtype.Type) ptx.Type {
	if t.Info().Integer {
		return ptx.U32
	}
	return ptx.F64
}

const productWarps = 8

// productRows is the number of contiguous rows of op(A) per warp.
const productRows = 4

// rowSums is the number of sums per row: one per vector, and the norm.
const rowSums = verify.NumVectors + 1

// rowBytes is the number of bytes of a contiguous row that a thread prefetches.
const rowBytes = kernel.MaxVectorBytes

// maxElements limits the elements that a thread prefetches, because the vectors' values for them
// take shared memory.
const maxElements = 8

// vectorLen returns the number of elements per load that the layout's alignment allows.
func vectorLen(l gemm.Layout) int { return kernel.VectorLen(l, elementsPerThread(l.Type)) }

func elementsPerThread(t dtype.Type) int { return min(t.Elements(rowBytes), maxElements) }

// columnUnroll is the number of contiguous columns that a thread loads in advance.
const columnUnroll = 8

// raw maps a size in bytes to the type that loads it.
var raw = map[int]ptx.Type{1: ptx.U8, 2: ptx.U16, 4: ptx.U32, 8: ptx.U64}

// productWriter emits the kernel.
type productWriter struct {
	*build.Kernel
	config     kernel.Config
	num        ptx.Type // of the arithmetic
	weighted   bool
	rows, cols build.Reg
	at         build.Ptr
	ld         build.Reg
	b, out     build.Ptr
	scales     build.Ptr
	// scalesRowStride and scalesColStride are the distances between the scales of blocks that are
	// adjacent along the columns and along the rows of op(A).
	scalesRowStride, scalesColStride build.Reg
}

// count returns the number of sums per row.
func (k *productWriter) count() int {
	if k.num == ptx.U32 {
		return verify.NumVectors
	}
	return rowSums
}

// read returns the number of rows of the input.
func (k *productWriter) read() int {
	if k.weighted {
		return k.count()
	}
	return verify.NumVectors
}

// sums returns accumulators for a row.
func (k *productWriter) sums(row int) []build.Reg {
	return k.Vars(fmt.Sprintf("sum%d_", row), k.num, k.count(), 0)
}

// add adds the elements of a column, one per row, to the rows' sums. b returns a row of the input
// in that column.
func (k *productWriter) add(sums [][]build.Reg, elements []build.Reg, b func(row int) build.Reg) {
	for n := range k.count() {
		factor := build.Reg{}
		if n < k.read() {
			factor = b(n)
		}
		for r, x := range elements {
			switch {
			case n < verify.NumVectors:
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

// store writes sum n of a row.
func (k *productWriter) store(n, row, sum build.Reg) {
	if k.num == ptx.F64 {
		root := k.Fresh(ptx.F64)
		k.Do("sqrt.rn.f64", root, sum)
		sum = k.Select(k.Eq(n, verify.NumVectors), root, sum)
	}
	k.Matrix(k.out, k.count(), k.rows, k.rows).Store(k.To(ptx.U64, n), row, sum)
}

// scale returns the block scale of an element.
func (k *productWriter) scale(row, col build.Reg) build.Reg {
	row, col = k.Div(k.Min(row, k.Sub(k.rows, 1)), k.config.ScaleA), k.Div(k.Min(col, k.Sub(k.cols, 1)), k.config.ScaleB)
	return k.To(ptx.F64, k.scales.At(k.Mad(row, k.scalesRowStride, k.Mul(col, k.scalesColStride))).Load())
}

// contiguousRows emits the kernel for contiguous rows of op(A), with loads of vec elements. While a
// thread multiplies its elements of one chunk of columns, it loads those of the next.
func (k *productWriter) contiguousRows(vec int) {
	size := k.at.Elem().Bytes()
	if vec*size == rowBytes && size < 8 && k.num == ptx.F64 {
		k.MinBlocks(2) // which need too many registers with shorter loads
	} else {
		k.MinBlocks(1)
	}
	lane, warp := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	first := k.Mul(k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), productWarps, k.To(ptx.U64, warp)), productRows)
	first = k.Named("first", first)
	a := k.Matrix(k.at, k.rows, k.cols, k.ld)
	mine := k.Mul(lane, vec) // the thread's first column of each group
	from := a.At(first, k.To(ptx.U64, mine))
	present := k.To(ptx.U32, k.Min(k.Sub(k.Max(k.rows, first), first), productRows)) // rows within the matrix
	var sums [productRows][]build.Reg
	for r := range sums {
		sums[r] = k.sums(r)
	}

	// A chunk consists of groups of columns, with one load per thread each. Small elements are
	// loaded as words.
	chunk := 32 * elementsPerThread(k.config.In)
	memory, loaded, n := k.at.Elem(), k.at.Loaded(), vec
	if size < 4 && vec > 1 {
		word := min(4, vec*size)
		memory, n = raw[word], vec*size/word
		loaded = memory
	}
	held := make([][productRows][]build.Reg, chunk/(32*vec))
	load := func(group int, number build.Reg) {
		col := k.Mad(k.To(ptx.U64, number), chunk, group*32*vec)
		inside := k.Lt(k.Add(col, k.To(ptx.U64, mine)), k.cols)
		row := from.At(col)
		for r := range productRows {
			for i, x := range row.As(memory).LoadVecOr0(k.And(inside, k.Gt(present, r)), n) {
				k.Set(held[group][r][i], x)
			}
			row = row.Skip(a.ByteOffset(1, 0))
		}
	}
	begin := k.Var("begin", ptx.U32, 0)
	for group := range held {
		for r := range productRows {
			for range n {
				held[group][r] = append(held[group][r], k.Fresh(loaded))
			}
		}
		load(group, begin)
	}
	b := newVectorChunks(k, chunk, vec)
	b.fetch(begin)
	k.For(0, k.To(ptx.U32, k.CeilDiv(k.cols, chunk)), func(number build.Reg) {
		next := k.Add(number, 1)
		k.CopyWait(0)
		k.Barrier() // the chunk has arrived, and no thread still reads the one before it
		b.fetch(next)
		for group, rows := range held {
			scales := k.groupScales(first, k.Add(k.Mad(k.To(ptx.U64, number), chunk, group*32*vec), k.To(ptx.U64, mine)), vec)
			for e := range vec {
				var x [productRows]build.Reg
				for r := range rows {
					x[r] = k.element(rows[r], e)
					if scales != nil {
						x[r] = k.Mul(x[r], scales[r][e])
					}
				}
				column := b.from(number, group, e)
				k.add(sums[:], x[:], func(row int) build.Reg { return column.Load(row, 0) })
			}
			load(group, next)
		}
	})
	k.CopyWait(0)
	k.storeTotals(lane, warp, first, slices.Concat(sums[:]...))
}

// storeTotals adds up the sums of a warp's lanes and stores them: sums has those of the rows from
// first on. Half of the lanes add the other half's sums to theirs and write them to shared memory.
// Then lane n adds up sum n. The padding by one column avoids bank conflicts.
func (k *productWriter) storeTotals(lane, warp, first build.Reg, sums []build.Reg) {
	count, all, half := k.count(), len(sums), 16
	parts := k.Shared("parts", k.num, productWarps*all, half+1)
	for _, sum := range sums {
		k.Set(sum, k.Add(sum, k.ShuffleXor(sum, half)))
	}
	k.If(k.Lt(lane, half), func() {
		for n, sum := range sums {
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

// groupScales returns the block scales of vec columns from col in each of a warp's rows, or nil
// without block scales. A block holds whole groups of rows and columns, so one scale serves a
// group.
func (k *productWriter) groupScales(first, col build.Reg, vec int) [][]build.Reg {
	if k.config.ScaleA == 0 {
		return nil
	}
	scales := make([][]build.Reg, productRows)
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

// element returns element i of a vector load as a number.
func (k *productWriter) element(loaded []build.Reg, i int) build.Reg {
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
		return k.To(k.num, k.Bits(ptx.F32, k.And(word, uint32(0xffff0000))))
	case elem == ptx.S8:
		return k.number(k.Shr(k.Bits(ptx.S32, k.Shl(word, 24-shift)), 24))
	case size == 1:
		return k.number(k.And(k.Shr(word, shift), 0xff))
	default:
		return k.number(k.Bits(elem, k.To(ptx.U16, k.Shr(word, shift))))
	}
}

// number converts an element to the type of the arithmetic.
func (k *productWriter) number(x build.Reg) build.Reg { return toNumber(k.Kernel, x, k.config.In) }

func toNumber(k *build.Kernel, x build.Reg, t dtype.Type) build.Reg {
	if t == dtype.F8E4M3 || t == dtype.F8E5M2 {
		return kernel.FromFloat8(k, x, t, number(t))
	}
	return k.To(number(t), x)
}

// vectorChunks holds chunks of columns of the input in shared memory, double-buffered.
type vectorChunks struct {
	k     *productWriter
	chunk int // columns
	vec   int // elements per load of the matrix
	s     build.Array
}

func newVectorChunks(k *productWriter, chunk, vec int) *vectorChunks {
	return &vectorChunks{
		k: k, chunk: chunk, vec: vec,
		s: k.Shared("chunks", k.num, 2*k.read(), chunk),
	}
}

// buffer returns the first row of a chunk's buffer.
func (v *vectorChunks) buffer(number build.Reg) build.Reg {
	return v.k.Mul(v.k.Rem(number, 2), v.k.read())
}

// swizzle returns the position of a column. It avoids bank conflicts between threads, whose columns
// are vec apart.
func (v *vectorChunks) swizzle(col build.Reg) build.Reg {
	together := 128 / v.k.num.Bytes() // values per access of all banks
	return v.k.Xor(col, v.k.Rem(v.k.Div(col, together), v.vec))
}

// fetch starts copying a chunk to its buffer. Each thread copies a column of all rows or of some.
func (v *vectorChunks) fetch(number build.Reg) {
	k := v.k
	const threads = 32 * productWarps
	tid := k.Mad(k.ThreadIdx(build.Y), 32, k.ThreadIdx(build.X))
	col, row := tid, k.To(ptx.U32, 0)
	if v.chunk < threads {
		col, row = k.Rem(tid, v.chunk), k.Div(tid, v.chunk)
	}
	p := k.Mad(k.To(ptx.U64, number), v.chunk, k.To(ptx.U64, col))
	b := k.Matrix(k.b, k.read(), k.cols, k.cols)
	from, to := b.At(k.To(ptx.U64, row), p), v.s.At(k.Add(v.buffer(number), row), v.swizzle(col))
	for n := 0; n < k.read(); n += threads / v.chunk {
		k.When(k.Lt(k.Add(row, n), k.read()), func() {
			k.CopyAsync(to, from, k.num.Bytes(), k.Lt(p, k.cols))
		})
		from, to = from.Skip(b.ByteOffset(threads/v.chunk, 0)), to.At(threads)
	}
	k.CopyCommit()
}

// from returns the chunk starting at the column of the thread's element e of a group.
func (v *vectorChunks) from(number build.Reg, group, e int) build.Array {
	k := v.k
	mine := v.swizzle(k.Mul(k.ThreadIdx(build.X), v.vec))
	return v.s.From(0, k.Xor(k.Mad(v.buffer(number), v.chunk, mine), e)).From(0, group*32*v.vec)
}

// contiguousColumns emits the kernel for contiguous columns of op(A).
func (k *productWriter) contiguousColumns() {
	lane, warp := k.To(ptx.U64, k.ThreadIdx(build.X)), k.To(ptx.U64, k.ThreadIdx(build.Y))
	a := k.Matrix(k.at, k.cols, k.rows, k.ld).T()
	b := k.Matrix(k.b, k.read(), k.cols, k.cols)
	first := k.Named("row", k.Mad(k.To(ptx.U64, k.BlockIdx(build.X)), 32, lane))
	row := k.Min(first, k.Sub(k.rows, 1)) // rows outside the matrix repeat the last one
	sums := k.sums(0)
	k.ForUnrolled(0, k.CeilDiv(k.Sub(k.Max(k.cols, warp), warp), productWarps), columnUnroll, func(n build.Reg) {
		col := k.Mad(n, productWarps, warp)
		x := k.number(a.Load(row, col))
		if k.config.ScaleA > 0 {
			x = k.Mul(x, k.scale(row, col))
		}
		k.add([][]build.Reg{sums}, []build.Reg{x}, func(row int) build.Reg { return b.Load(row, col) })
	})

	// Warp n adds up sum n of the block's 32 rows.
	count := k.count()
	parts := k.Shared("parts", k.num, productWarps*count, 33)
	for n, sum := range sums {
		parts.Store(k.To(ptx.U32, k.Mad(warp, count, n)), k.To(ptx.U32, lane), sum)
	}
	k.Barrier()
	k.If(k.And(k.Lt(first, k.rows), k.Lt(warp, count)), func() {
		total := k.Var("total", k.num, 0)
		for n := range productWarps {
			k.Set(total, k.Add(total, parts.Load(k.To(ptx.U32, k.Add(warp, n*count)), k.To(ptx.U32, lane))))
		}
		k.store(k.To(ptx.U32, warp), first, total)
	})
}

// vectorBytes returns the memory that the vectors of a Freivalds product take, with their weights
// or norms, for the given number of elements per vector.
func vectorBytes(elements int) int { return 8 * rowSums * elements }

// matrix is a matrix in the memory of a device.
type matrix struct {
	at     device.Ptr
	layout gemm.Layout
	// scales are the block scales, or 0. They are laid out by blocks, one for each block of high
	// rows and wide columns of op(matrix).
	scales     device.Ptr
	blocks     gemm.Layout
	high, wide int
}

// multiply enqueues a Freivalds product of op(m). vectors and out are laid out as described at
// [weightedProduct]. A norm is not finite if an element of its row is not. The error is
// ErrUnsupported for GPUs before sm_80, or one of the device.
func multiply(ctx context.Context, b *exec.Backend, m *matrix, vectors, out device.Ptr, weighted bool) error {
	body, l := plainProduct, m.layout
	if weighted && number(l.Type) == ptx.F64 {
		body = weightedProduct
	}
	if l.OpRows() == 0 {
		return ctx.Err()
	}
	config := kernel.Config{In: l.Type, Out: dtype.F64, TransA: l.Trans, ScaleA: m.high, ScaleB: m.wide}
	rowsPerBlock := 32
	if !l.Trans {
		config.VecA, rowsPerBlock = vectorLen(l), productWarps*productRows
		config.LimitVectors(kernel.Align{gemm.A: 1 << bits.TrailingZeros64(uint64(m.at)|kernel.MaxVectorBytes)})
	}
	return launch(ctx, b, body, config, kernel.Tiles(l.OpRows(), rowsPerBlock), productParams,
		&productArgs{m, vectors, out})
}

// launch launches a kernel with the given number of blocks. params lists its parameters, whose
// values are those of l.
func launch[L any](ctx context.Context, b *exec.Backend, k *kernel.Kernel, c kernel.Config, blocks int,
	params []kernel.Param[L], l *L) error {
	info := b.Device.Info()
	if info.Target.SM < k.SM {
		return fmt.Errorf("%w: verifying a product on %s, of sm_%d; want sm_%d or later",
			gemm.ErrUnsupported, info.Name, info.Target.SM, k.SM)
	}
	c.Lines, c.PDL = info.Emulated, info.Target.SM >= kernel.PDLSM
	f, err := b.Function(ctx, k, c)
	if err != nil {
		return err
	}
	var args device.Params
	kernel.Encode(&args, params, &c, l)
	return b.Device.Launch(ctx, f, device.Launch{
		Grid:   device.Dim3{X: blocks, Y: 1, Z: 1},
		Block:  k.BlockThreads(kernel.Tile{}),
		PDL:    c.PDL,
		Params: args.Bytes(),
	})
}
