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

// The copy engine takes matrices whose rows begin at multiples of 16 bytes, and the tensor
// cores elements of other than 16 bits along K alone. What lies otherwise is packed first,
// by a launch of its own, and float32 in F32x3 taken apart: that reads and writes the
// operand once, which costs little beside a product that uses each element many times.

// packedLayout is the layout from which a boxed kernel reads an operand that lies as l does, at an
// address of that alignment; 0 stands for one that will do. along says that the operand's
// neighbours in memory are neighbours along K.
func packedLayout(l gemm.Layout, precision gemm.Precision, align int, along bool) gemm.Layout {
	if precision == gemm.F32x3 {
		if l.Type == dtype.F32 {
			return SplitLayout(l)
		}
		return l
	}
	transposed := l.Type.Size() != 2 && !along
	if transposed {
		l.Rows, l.Cols, l.Trans = l.Cols, l.Rows, !l.Trans
	}
	if transposed || l.Rows > 1 && l.LD*l.Type.Size()%MaxVectorBytes != 0 || align > 0 && align < MaxVectorBytes {
		return alignRowsToLines(l)
	}
	return l
}

// lined is a layout whose rows begin at whole lines of the L2 cache, of which boxes have
// rows then.
func alignRowsToLines(l gemm.Layout) gemm.Layout {
	unit := frag.SwizzleBytes / l.Type.Size()
	l.LD = CeilDiv(l.Cols, unit) * unit
	return l
}

// Packable lists the operands that a plan packs where a TMA kernel cannot read them in place.
var Packable = [...]gemm.Operand{gemm.A, gemm.B, gemm.Up}

// Repacked reports, for each operand, whether it is packed.
type Repacked [gemm.Operands]bool

// Any reports whether an operand is packed.
func (r Repacked) Any() bool { return r != Repacked{} }

// Repack returns the problem for which a TMA kernel is launched to compute p with tile s: p with
// the layouts of packed operands where the kernel cannot read the operands in place. Tiles with
// swapAB read an MN-major B in place.
func Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, packed Repacked) {
	q = *p
	if !p.ReadsAB() {
		return q, packed
	}
	a = a.least(batchAlign(p))
	if p.Batch.Kind != gemm.Grouped { // a group may begin at any row of A
		q.Layouts[gemm.A] = ColumnAsRow(p.Layouts[gemm.A])
	}
	b, up := ColumnAsRow(p.Layouts[gemm.B]), ColumnAsRow(p.Layouts[gemm.Up])
	if !p.Epilogue.Gated || b.Trans == up.Trans { // both must have one transposition
		q.Layouts[gemm.B], q.Layouts[gemm.Up] = b, up
	}
	for _, o := range Packable {
		if !p.Uses(o) {
			continue
		}
		before := q.Layouts[o]
		kMajor := before.Trans == (o != gemm.A) || o == gemm.B && s.SwapAB
		l := packedLayout(before, p.Precision, a[o], kMajor)
		if p.Batch.Kind == gemm.Single && hasShortRows(l) && Uses(p, o) >= MinUsesToPack {
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

// Uses returns how often a product multiplies each element of A, B or Up.
func Uses(p *gemm.Problem, o gemm.Operand) int {
	if o == gemm.A {
		return p.N
	}
	return p.M
}

// narrow is a matrix of rows of which several are in a sector of the L2 cache: the copy engine is
// slow at them. On an H200 4096×4096×16 of int8 takes 25.7 µs packed, and took 27.9.
func hasShortRows(l gemm.Layout) bool { return l.Rows > 1 && l.LD*l.Type.Size() < SectorBytes }

// asRow is the same matrix as a row, if it is a column without gaps: boxes are copied of
// that as it lies.
func ColumnAsRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// packing is p as the kernel is launched for it.
func (k *Kernel) Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, packed Repacked) {
	if !k.TMA {
		return *p, packed
	}
	return Repack(p, s, a)
}

// Packed is p with operands that lie as the kernel reads them with tiles of that shape.
func (k *Kernel) Packed(p *gemm.Problem, s Tile) gemm.Problem {
	q, _ := k.Repack(p, s, Align{})
	return q
}

// PackArgs describes a launch of [Pack] or [SplitF32]. A launch packs the matrices of a batch, or
// one matrix of each of two operands: block z reads at From + z·Apart and writes at
// To + z·Targets, in bytes.
type PackArgs struct {
	From, To       device.Ptr
	Apart, Targets int
	Sizes          [2]PackSize // of the first matrix, and of those after it
}

// PackSize describes a matrix that is packed.
type PackSize struct {
	Rows, Cols int // of the packed matrix
	From       int // the leading dimension of the source, in elements
	// To is the leading dimension of the packed matrix, in words. SplitF32 takes the elements of one
	// term of a row.
	To int
}

// packOrigins returns the parameters that locate the matrices, with their element types.
func packOrigins(from, to func(*Config) ptx.Type) []Param[PackArgs] {
	return []Param[PackArgs]{
		{Name: "from", Type: from, Pointer: true, Value: func(a *PackArgs) uint64 { return uint64(a.From) }},
		{Name: "to", Type: to, Pointer: true, Value: func(a *PackArgs) uint64 { return uint64(a.To) }},
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
		packOrigins(func(c *Config) ptx.Type { return packElements[c.In.Size()] }, TypeU32),
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

// declarePackParams declares params and returns the pointers, moved to the block's matrix, and the
// values of the sizes in order.
func declarePackParams(k *build.Kernel, params []Param[PackArgs], c *Config) (from, to build.Ptr, sizes []build.Reg) {
	var z build.Reg
	Declare(k, params, c, func(name string, value build.Reg, at build.Ptr) {
		switch name {
		case "from":
			from = at.ReadOnly()
		case "to":
			to, z = at, k.To(ptx.U64, k.BlockIdx(build.Z))
		case "apart":
			from = from.Skip(k.Mul(z, value))
		case "targets":
			to = to.Skip(k.Mul(z, value))
		default:
			sizes = append(sizes, value)
		}
	})
	return from, to, sizes
}

// pack copies a matrix to one with other rows, or transposes it: or two, of which the blocks
// that are second along z have the other one.
var Pack = &Kernel{
	Name:         "pack",
	Adds:         "a matrix for bulk copies: rows at multiples of 16 bytes, transposed if need be",
	SM:           75,
	CheckTile:    func(Tile) error { return nil },
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: PackThreads, Y: 1, Z: 1} },
	Write:        writePack,
}

const (
	PackThreads = 256
	PackSide    = 64 // of a tile that is transposed
	WordBytes   = 4
	PackWords   = 4 // of a row, that a lane copies
	PackRows    = 2 // for each warp
)

// packElements are types of PTX to move elements in, by their size.
var packElements = map[int]ptx.Type{1: ptx.U8, 2: ptx.U16, 4: ptx.U32}

// packWriter writes the kernel.
type packWriter struct {
	*build.Kernel
	rows, cols     build.Reg // of what is written
	source, target build.Matrix
	elem           ptx.Type
	tid            build.Reg
	row0, col0     build.Reg // where the block begins
}

func writePack(k *build.Kernel, c Config) {
	w := &packWriter{Kernel: k, elem: packElements[c.In.Size()]}
	from, to, sizes := declarePackParams(k, packParams, &c)
	each := len(sizes) / 2
	second := k.Ne(k.BlockIdx(build.Z), 0) // or a later matrix of a batch, all of one size
	of := make([]build.Reg, each)
	for i := range of {
		of[i] = k.Select(second, sizes[each+i], sizes[i])
	}
	w.rows, w.cols = of[0], of[1]
	ldFrom, ldTo := of[2], of[3]
	w.source = k.Matrix(from, w.rows, w.cols, ldFrom)
	if c.TransA {
		w.source = k.Matrix(from, w.cols, w.rows, ldFrom).T()
	}
	w.target = k.Matrix(to, w.rows, w.cols, ldTo)

	k.Threads(PackThreads, 1, 1)
	w.tid = k.ThreadIdx(build.X)
	w.col0 = k.Mul(k.To(ptx.U64, k.BlockIdx(build.X)), c.Tile.N)
	w.row0 = k.Var("row0", ptx.U64, k.Mul(k.To(ptx.U64, k.BlockIdx(build.Y)), c.Tile.M))
	copy := w.copyRows
	if c.TransA {
		copy = w.transposeTiles()
	}
	k.While(func() build.Reg { return k.Lt(w.row0, w.rows) }, func() {
		copy()
		k.Set(w.row0, k.Add(w.row0, k.Mul(k.To(ptx.U64, k.GridDim(build.Y)), c.Tile.M)))
	})
}

// row copies parts of two rows for each warp, word by word. Where a row begins within a word
// of the source, each word that is written is a part of two neighbours; the first of a row and
// its last are made of elements, as their neighbours are not the row's.
func (w *packWriter) copyRows() {
	k, size := w.Kernel, w.elem.Bytes()
	lane, warp := k.Rem(w.tid, 32), k.Div(w.tid, 32)
	col := k.Add(w.col0, k.To(ptx.U64, k.Mul(lane, WordBytes/size))) // of the lane's first word
	left := k.Mul(w.remaining(col, w.cols), size)                    // bytes of a row from there on
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
		// How far what a word takes of the source, two words or one, must reach.
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
	values := make([]build.Reg, len(words)) // of edges, which come while the others are on their way
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

// left is how many of so many rows or columns there are from one on, as far as it matters.
func (w *packWriter) remaining(from, all build.Reg) build.Reg {
	const far = 1 << 20
	return w.To(ptx.S32, w.Select(w.Lt(from, all), w.Min(w.Sub(all, from), far), 0))
}

// tile transposes a tile, which passes through shared memory, so that both sides move
// neighbours together. What a thread reads, and what it writes, lies in one column of the source
// and of the target: it goes down that, so that it has few registers and an SM many threads, on
// which it depends how much is under way from memory.
func (w *packWriter) transposeTiles() func() {
	k, size := w.Kernel, w.elem.Bytes()
	// Rows are an odd number of words, so that a column has all banks.
	tile := k.Shared("tile", w.elem, PackSide, PackSide+WordBytes/size)
	each := MaxVectorBytes / size
	place := func(across int) (down, at build.Reg) { return k.Div(w.tid, across), k.Rem(w.tid, across) }
	// Of its column, and of its row of vectors, a thread has every so manieth element.
	const read = PackThreads / PackSide
	write := PackThreads * each / PackSide
	j, i := place(PackSide)
	to, vector := place(PackSide / each)
	to, vector = k.Named("to", to), k.Named("vector", k.Mul(vector, each))
	return func() {
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
		k.Barrier()
	}
}

// joined is elements of so many bytes, side by side in a word.
func packWord(k *build.Kernel, elements []build.Reg, size int) build.Reg {
	word := k.To(ptx.U32, elements[0])
	for e, x := range elements[1:] {
		word = k.Or(word, k.Shl(k.To(ptx.U32, x), 8*size*(e+1)))
	}
	return word
}

// often is how many uses of each element make packing an operand worth its while, and oftenTurned
// those of a batch's that is transposed: on an H200 64 products of 512³ of int8 took 71 µs with B
// transposed before and 46 with mma, 32 of 1024³ of e4m3 156 and 272.
const MinUsesToPack, MinUsesToTranspose = 128, 1024
