package kernel

import (
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/build"
)

// TMA requires rows that begin at multiples of 16 bytes, and wgmma requires K-major operands for
// all but 16-bit elements. A separate launch packs operands in other layouts, and splits float32
// for F32x3. It reads and writes the operand once, which is cheap compared to a product that uses
// each element many times.

// packedLayout returns the layout in which a TMA kernel reads an operand that has layout l and
// address alignment align; an align of 0 means that the address is aligned. kMajor reports whether
// the operand is K-major.
func packedLayout(l gemm.Layout, precision gemm.Precision, align int, kMajor bool) gemm.Layout {
	if precision == gemm.F32x3 {
		if l.Type == dtype.F32 {
			return SplitLayout(l)
		}
		return l
	}
	transposed := l.Type.Bits() != 16 && !kMajor
	if transposed {
		l.Rows, l.Cols, l.Trans = l.Cols, l.Rows, !l.Trans
	}
	if transposed || l.Rows > 1 && l.Type.Bytes(l.LD)%MaxVectorBytes != 0 || align > 0 && align < MaxVectorBytes {
		return alignRowsToLines(l)
	}
	return l
}

// alignRowsToLines returns l with rows that begin at multiples of an L2 cache line, which is also
// the width of a TMA box.
func alignRowsToLines(l gemm.Layout) gemm.Layout {
	unit := l.Type.Elements(frag.SwizzleBytes)
	l.LD = Tiles(l.Cols, unit) * unit
	return l
}

// Packable lists the operands that a plan packs if a TMA kernel cannot read them in place.
var Packable = [...]gemm.Operand{gemm.A, gemm.B, gemm.Up}

// Repacked reports, for each operand, whether it is packed.
type Repacked [gemm.Operands]bool

// Any reports whether an operand is packed.
func (r Repacked) Any() bool { return r != Repacked{} }

// Repack returns the problem for which a TMA kernel is launched to compute p with tile s: p with
// the layouts of packed operands where the kernel cannot read the operands in place. Tiles of tf32
// with swapAB read an MN-major B in place, and with a K-major B their results have other bits.
// Gated tiles with N of 64 want a K-major B, and ragged tiles a K-major right operand. For these,
// contiguous columns remain columns: they may be parts of wider operands, for which the tile was
// chosen.
func Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, packed Repacked) {
	q = *p
	if !p.ReadsAB() {
		return q, packed
	}
	a = a.least(batchAlign(p))
	if p.Batch.Kind != gemm.Grouped && !(s.SwapAB && s.IsRagged()) { // a group may begin at any row of A
		q.Layouts[gemm.A] = ColumnAsRow(p.Layouts[gemm.A])
	}
	keepsB := s.SwapAB && p.Precision == gemm.TF32
	if !keepsB && !p.Epilogue.Gated && (s.SwapAB || !s.IsRagged()) {
		q.Layouts[gemm.B] = ColumnAsRow(p.Layouts[gemm.B])
	}
	for _, o := range Packable {
		if !p.Uses(o) {
			continue
		}
		before := q.Layouts[o]
		kMajor := before.Trans == (o != gemm.A) || o == gemm.B && keepsB
		l := packedLayout(before, p.Precision, a[o], kMajor)
		if p.Batch.Kind == gemm.Single && hasShortRows(l) && uses(p, o) >= minUsesToPack {
			l = alignRowsToLines(l)
		}
		packed[o] = l != before || a[o] > 0 && a[o] < MaxVectorBytes
		if packed[o] && q.Batch.Stride[o] > 0 { // packed matrices are contiguous
			q.Batch.Stride[o] = l.Rows * l.LD
		}
		q.Layouts[o] = l
	}
	return q, packed
}

// uses returns how often a product multiplies each element of A, B or Up.
func uses(p *gemm.Problem, o gemm.Operand) int {
	if o == gemm.A {
		return p.N
	}
	return p.M
}

// hasShortRows reports whether several rows of a matrix share a sector of the L2 cache. TMA is slow
// for such matrices: on an H200 4096×4096×16 in int8 takes 25.7 µs packed and 27.9 µs in place.
func hasShortRows(l gemm.Layout) bool { return l.Rows > 1 && l.Type.Bytes(l.LD) < SectorBytes }

// ColumnAsRow returns a contiguous column as the equivalent row, which TMA can read in place. It
// returns other layouts unchanged, and a single element, which is a row already.
func ColumnAsRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 && l.Rows > 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// Repack returns the problem for which k is launched to compute p, with the layouts of packed
// operands. Only TMA kernels pack operands.
func (k *Kernel) Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, packed Repacked) {
	if !k.TMA {
		return *p, packed
	}
	return Repack(p, s, a)
}

// Packed returns p with the operands in the layouts that the kernel reads with tile s.
func (k *Kernel) Packed(p *gemm.Problem, s Tile) gemm.Problem {
	q, _ := k.Repack(p, s, Align{})
	return q
}

// PackArgs describes a launch of [Pack] or [SplitF32]. A launch packs the matrices of a batch along
// z, or one matrix of each of two operands along x. Matrix n is read at From + n·Apart and written
// at To + n·Targets, in bytes modulo 2⁶⁴: the second operand may be below the first.
type PackArgs struct {
	From, To, Apart, Targets device.Ptr
	Blocks                   int // along x for the first operand; the others pack the second one
	Sizes                    [2]PackSize
}

// PackSize describes a matrix that is packed.
type PackSize struct {
	Rows, Cols int // of the packed matrix
	From       int // the leading dimension of the source, in elements
	// To is the leading dimension of the packed matrix, in words. For SplitF32 it is the number of
	// elements of one term of a row.
	To int
}

// packOrigins returns the parameters that locate the matrices, with their element types.
func packOrigins(from, to func(*Config) ptx.Type) []Param[PackArgs] {
	return []Param[PackArgs]{
		{Name: "from", Type: from, Pointer: true, Value: func(a *PackArgs) uint64 { return uint64(a.From) }},
		{Name: "to", Type: to, Pointer: true, Value: func(a *PackArgs) uint64 { return uint64(a.To) }},
		{Name: "blocks", Type: TypeU32, Value: func(a *PackArgs) uint64 { return uint64(a.Blocks) }},
		{Name: "apart", Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Apart) }},
		{Name: "targets", Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Targets) }},
	}
}

// packSizes returns the parameters that describe matrix i; ld is the name of [PackSize.To].
func packSizes(i int, suffix, ld string) []Param[PackArgs] {
	return []Param[PackArgs]{
		{Name: "rows" + suffix, Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Sizes[i].Rows) }},
		{Name: "cols" + suffix, Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Sizes[i].Cols) }},
		{Name: "ldFrom" + suffix, Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Sizes[i].From) }},
		{Name: ld + suffix, Type: TypeU64, Value: func(a *PackArgs) uint64 { return uint64(a.Sizes[i].To) }},
	}
}

var (
	packParams = slices.Concat(
		packOrigins(func(c *Config) ptx.Type { return packElements[c.In.Bits()] }, TypeU32),
		packSizes(0, "", "ldTo"), packSizes(1, "2", "ldTo"),
	)
	splitF32Params = slices.Concat(
		packOrigins(func(*Config) ptx.Type { return ptx.F32 }, func(*Config) ptx.Type { return ptx.U16 }),
		packSizes(0, "", "part"),
	)
)

// Encode returns the bytes of the parameters of k, which is [Pack] or [SplitF32].
func (a *PackArgs) Encode(k *Kernel) []byte {
	params := packParams
	if k == SplitF32 {
		params = splitF32Params
	}
	var args device.Params
	Encode(&args, params, &Config{}, a)
	return args.Bytes()
}

// packBlock describes the part of a matrix that a block of [Pack] or [SplitF32] packs.
type packBlock struct {
	from, to   build.Ptr // of its matrix
	second     build.Reg // whether it packs the second operand
	index      build.Reg // of the block among those of its operand along x
	row0, col0 build.Reg // its position in the packed matrix
}

// declarePackOrigins declares the parameters of packOrigins and returns the block without its
// position.
func declarePackOrigins(d *Declarer[PackArgs]) (b packBlock) {
	k := d.Kernel
	b.from = d.Pointer("from").ReadOnly()
	b.to, b.index = d.Pointer("to"), k.BlockIdx(build.X)
	blocks := d.Value("blocks")
	b.second = k.Ge(b.index, blocks)
	b.index = k.Sub(b.index, k.Select(b.second, blocks, 0))
	z := k.BlockIdx(build.Z)
	matrix := k.To(ptx.U64, k.Select(b.second, k.Add(z, 1), z))
	b.from = b.from.Skip(k.Mul(matrix, d.Value("apart")))
	b.to = b.to.Skip(k.Mul(matrix, d.Value("targets")))
	return b
}

// packSize holds the parameters of packSizes.
type packSize struct{ rows, cols, ldFrom, to build.Reg }

func declarePackSize(d *Declarer[PackArgs], suffix, ld string) packSize {
	return packSize{d.Value("rows" + suffix), d.Value("cols" + suffix), d.Value("ldFrom" + suffix), d.Value(ld + suffix)}
}

// place sets the block's position. Blocks pack tiles of the given size in row-major order.
func (b *packBlock) place(k *build.Kernel, cols build.Reg, s Tile) {
	across := k.To(ptx.U32, k.CeilDiv(cols, s.N))
	b.row0 = k.Mul(k.To(ptx.U64, k.Div(b.index, across)), s.M)
	b.col0 = k.Mul(k.To(ptx.U64, k.Rem(b.index, across)), s.N)
}

// Pack copies one or two matrices to layouts with aligned rows, or transposes them.
var Pack = &Kernel{
	Name:         "pack",
	Adds:         "a matrix for bulk copies: rows at multiples of 16 bytes, transposed if need be",
	SM:           75,
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: PackThreads, Y: 1, Z: 1} },
	Write:        writePack,
}

const (
	PackThreads = 256
	PackSide    = 64 // side of a tile that is transposed
	WordBytes   = 4
	PackWords   = 4 // words of a row that a lane copies
	PackRows    = 2 // rows that a warp copies
)

// packElements maps the bits of an element to a PTX type that moves it.
var packElements = map[int]ptx.Type{8: ptx.U8, 16: ptx.U16, 32: ptx.U32}

// packWriter writes kernel Pack.
type packWriter struct {
	k *build.Kernel
	packBlock
	rows, cols     build.Reg // of the packed matrix
	source, target build.Matrix
	elem           ptx.Type
	tid            build.Reg
}

func writePack(k *build.Kernel, c Config) {
	w := &packWriter{k: k, elem: packElements[c.In.Bits()]}
	d := &Declarer[PackArgs]{k, &c, packParams}
	w.packBlock = declarePackOrigins(d)
	first, second := declarePackSize(d, "", "ldTo"), declarePackSize(d, "2", "ldTo")
	of := func(first, second build.Reg) build.Reg { return k.Select(w.second, second, first) }
	w.rows, w.cols = of(first.rows, second.rows), of(first.cols, second.cols)
	ldFrom, ldTo := of(first.ldFrom, second.ldFrom), of(first.to, second.to)
	w.source = k.Matrix(w.from, w.rows, w.cols, ldFrom)
	if c.TransA {
		w.source = k.Matrix(w.from, w.cols, w.rows, ldFrom).T()
	}
	w.target = k.Matrix(w.to, w.rows, w.cols, ldTo)

	k.Threads(PackThreads, 1, 1)
	w.tid = k.ThreadIdx(build.X)
	w.place(k, w.cols, c.Tile)
	if c.TransA {
		w.transposeTile()
	} else {
		w.copyRows()
	}
}

// copyRows copies parts of two rows per warp, word by word. If a row of the source begins within a
// word, each word of the target combines two adjacent words of the source. The first and last word
// of a row are assembled from elements, because the words around them contain elements of other
// rows.
func (w *packWriter) copyRows() {
	k, size := w.k, w.elem.Bytes()
	lane, warp := k.Rem(w.tid, 32), k.Div(w.tid, 32)
	col := k.Add(w.col0, k.To(ptx.U64, k.Mul(lane, WordBytes/size))) // the column of the lane's first word
	left := k.Mul(w.remaining(col, w.cols), size)                    // bytes of the row from that column on
	type word struct {
		from, to           build.Ptr
		low, high, shift   build.Reg
		inside, edge, left build.Reg
	}
	var words []word
	for n := range PackRows {
		row := k.Add(w.row0, k.To(ptx.U64, k.Add(warp, n*PackThreads/32)))
		off := k.To(ptx.U32, k.And(w.source.At(row, 0).Address(), WordBytes-1))
		split := k.Ne(off, 0)
		here := k.Select(k.Lt(row, w.rows), left, 0)
		// Bytes of the row beyond the one or two source words of the lane's first word.
		spare := k.Sub(here, k.To(ptx.S32, k.Select(split, k.Sub(2*WordBytes, off), WordBytes)))
		first := k.And(split, k.Eq(col, 0))
		from, to, shift := w.source.At(row, col), w.target.At(row, k.Div(col, WordBytes/size)), k.Mul(off, 8)
		aligned := from.Skip(k.Sub(0, k.To(ptx.U64, off))).As(ptx.U32)
		for n := range PackWords {
			step := n * 32 * WordBytes
			whole := k.Ge(spare, step)
			if n == 0 {
				whole = k.And(whole, k.Not(first))
			}
			x := word{from: from.Skip(step), to: to.Skip(step), shift: shift, left: k.Sub(here, step)}
			x.inside = k.Gt(x.left, 0)
			x.edge = k.And(x.inside, k.Not(whole))
			x.low = aligned.Skip(step).LoadVecOr0(whole, 1)[0]
			x.high = aligned.Skip(step+WordBytes).LoadVecOr0(k.And(whole, split), 1)[0]
			words = append(words, x)
		}
	}
	values := make([]build.Reg, len(words)) // of first and last words; loaded while the other loads are in flight
	for n, x := range words {
		values[n] = k.Var("", ptx.U32, 0)
		k.If(x.edge, func() {
			elements := make([]build.Reg, WordBytes/size)
			for e := range elements {
				elements[e] = x.from.Skip(e*size).LoadVecOr0(k.Gt(x.left, e*size), 1)[0]
			}
			k.Set(values[n], packWord(k, elements, size))
		})
	}
	for n, x := range words {
		whole := k.Fresh(ptx.B32)
		k.Do("shf.r.wrap.b32", whole, x.low, x.high, x.shift)
		value := k.Select(x.edge, values[n], k.Bits(ptx.U32, whole))
		k.If(x.inside, func() { x.to.Store(value) })
	}
}

// remaining returns the number of rows or columns from one on, clamped to 0 and 2²⁰, beyond which
// the value does not matter.
func (w *packWriter) remaining(from, all build.Reg) build.Reg {
	const far = 1 << 20
	return w.k.To(ptx.S32, w.k.Select(w.k.Lt(from, all), w.k.Min(w.k.Sub(all, from), far), 0))
}

// transposeTile transposes a tile through shared memory, so that both loads and stores are
// coalesced. All elements that a thread reads are in one column of the source, and all that it
// writes in one column of the target. Walking along a column takes few registers, so an SM holds
// many threads, which keeps more loads in flight.
func (w *packWriter) transposeTile() {
	k, size := w.k, w.elem.Bytes()
	// Rows have an odd number of words, so accesses along a column have no bank conflicts.
	tile := k.Shared("tile", w.elem, PackSide, PackSide+WordBytes/size)
	each := MaxVectorBytes / size
	place := func(across int) (down, at build.Reg) { return k.Div(w.tid, across), k.Rem(w.tid, across) }
	// A thread accesses every read-th element of its column, and every write-th of its row of
	// vectors.
	const read = PackThreads / PackSide
	write := PackThreads * each / PackSide
	j, i := place(PackSide)
	to, vector := place(PackSide / each)
	vector = k.Mul(vector, each)

	k.Comment("neighbouring threads read neighbours")
	row, col := k.Add(w.row0, k.To(ptx.U64, i)), k.Add(w.col0, k.To(ptx.U64, j))
	left := k.Select(k.Lt(row, w.rows), w.remaining(col, w.cols), 0)
	at, step := w.source.At(row, col), w.source.ByteOffset(0, read)
	values := make([]build.Reg, PackSide/read)
	for n := range values {
		values[n] = at.LoadVecOr0(k.Gt(left, n*read), 1)[0]
		at = at.Skip(step)
	}
	column := tile.From(i, j)
	for n, v := range values {
		column.Store(0, n*read, v)
	}
	k.Barrier()
	k.Comment("each thread writes 16 bytes")
	row, col = k.Add(w.row0, k.To(ptx.U64, to)), k.Add(w.col0, k.To(ptx.U64, vector))
	left = k.Select(k.Lt(col, w.cols), w.remaining(row, w.rows), 0)
	at, step = w.target.At(row, k.Div(col, WordBytes/size)), w.target.ByteOffset(write, 0)
	for n := 0; n < PackSide; n += write {
		from := tile.From(k.Add(to, n), vector)
		words := make([]build.Value, MaxVectorBytes/WordBytes)
		for x := range words {
			elements := make([]build.Reg, WordBytes/size)
			for e := range elements {
				elements[e] = from.Load(0, x*WordBytes/size+e)
			}
			words[x] = packWord(k, elements, size)
		}
		k.If(k.Gt(left, n), func() { at.StoreVec(words...) })
		at = at.Skip(step)
	}
}

// packWord returns elements of the given size in bytes packed into a word.
func packWord(k *build.Kernel, elements []build.Reg, size int) build.Reg {
	word := k.To(ptx.U32, elements[0])
	for e, x := range elements[1:] {
		word = k.Or(word, k.Shl(k.To(ptx.U32, x), 8*size*(e+1)))
	}
	return word
}

// minUsesToPack is the number of uses of each element from which an operand with rows of less than
// a sector is packed.
const minUsesToPack = 128
