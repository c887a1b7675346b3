package kernel

import (
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
			return SplitLayout(l)
		}
		return l
	}
	transposed := l.Type.Size() != 2 && !along
	if transposed {
		l.Rows, l.Cols, l.Trans = l.Cols, l.Rows, !l.Trans
	}
	if transposed || l.Rows > 1 && l.LD*l.Type.Size()%MaxVectorBytes != 0 || align > 0 && align < MaxVectorBytes {
		return lined(l)
	}
	return l
}

// lined is a layout whose rows begin at whole lines of the L2 cache, of which boxes have
// rows then.
func lined(l gemm.Layout) gemm.Layout {
	unit := frag.SwizzleBytes / l.Type.Size()
	l.LD = CeilDiv(l.Cols, unit) * unit
	return l
}

// packs says of A, of B and of a second B whether it is packed.
type Repacked [3]bool

func (p Repacked) Any() bool { return p != Repacked{} }

// packing is p as a boxed kernel is launched for it with tiles of that shape: with operands that are
// packed where it cannot read them as they are. Turned tiles read a B that runs across K.
func Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, is Repacked) {
	q = *p
	if !p.ReadsAB() {
		return q, is
	}
	a = a.least(spacing(p))
	if p.Batch.Kind != gemm.Grouped { // whose rows of A are cut anywhere
		q.A = ColumnAsRow(p.A)
	}
	if b, up := ColumnAsRow(p.B), ColumnAsRow(p.Up); !p.Epilogue.Gated || b.Trans == up.Trans { // as they stay alike
		q.B, q.Up = b, up
	}
	for i, x := range []struct {
		l      *gemm.Layout
		align  int
		along  bool
		uses   int // of each element
		stride *int
		read   bool
	}{
		{&q.A, a.A, !q.A.Trans, p.N, &q.Batch.A, true},
		{&q.B, a.B, q.B.Trans || s.SwapAB, p.M, &q.Batch.B, true},
		{&q.Up, a.Up, q.Up.Trans, p.M, new(int), p.Epilogue.Gated},
	} {
		if !x.read {
			continue
		}
		before := *x.l
		*x.l = packed(before, p.Precision, x.align, x.along)
		if p.Batch.Kind == gemm.Single && narrow(*x.l) && x.uses >= MinUsesToPack {
			*x.l = lined(*x.l)
		}
		is[i] = *x.l != before || x.align > 0 && x.align < MaxVectorBytes
		if is[i] && *x.stride > 0 { // one behind the other
			*x.stride = x.l.Rows * x.l.LD
		}
	}
	return q, is
}

// narrow is a matrix of rows of which several are in a sector of the L2 cache: the copy engine is
// slow at them. On an H200 4096×4096×16 of int8 takes 25.7 µs packed, and took 27.9.
func narrow(l gemm.Layout) bool { return l.Rows > 1 && l.LD*l.Type.Size() < SectorBytes }

// asRow is the same matrix as a row, if it is a column without gaps: boxes are copied of
// that as it lies.
func ColumnAsRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// packing is p as the kernel is launched for it.
func (k *Kernel) Repack(p *gemm.Problem, s Tile, a Align) (q gemm.Problem, is Repacked) {
	if !k.TMA {
		return *p, is
	}
	return Repack(p, s, a)
}

// Packed is p with operands that lie as the kernel reads them with tiles of that shape.
func (k *Kernel) Packed(p *gemm.Problem, s Tile) gemm.Problem {
	q, _ := k.Repack(p, s, Align{})
	return q
}

// packParams are the parameters of a text that packs: where the block's matrix is and goes to.
func declarePackParams(k *build.Kernel, elem, to ptx.Type) (from, target build.Ptr) {
	from, target = k.Pointer("from", elem).ReadOnly(), k.Pointer("to", to)
	z := k.To(ptx.U64, k.BlockIdx(build.Z))
	return from.Skip(k.Mul(z, k.Param("apart", ptx.U64))), target.Skip(k.Mul(z, k.Param("targets", ptx.U64)))
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
	from, to := declarePackParams(k, w.elem, ptx.U32)
	var first []build.Reg
	names := []string{"rows", "cols", "ldFrom", "ldTo"} // the last one of words
	for _, name := range names {
		first = append(first, k.Param(name, ptx.U64))
	}
	second := k.Ne(k.BlockIdx(build.Z), 0) // or a further one of a batch, which are alike
	of := make([]build.Reg, len(names))
	for i, name := range names {
		of[i] = k.Select(second, k.Param(name+"2", ptx.U64), first[i])
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
	copy := w.row
	if c.TransA {
		copy = w.tile()
	}
	k.While(func() build.Reg { return k.Lt(w.row0, w.rows) }, func() {
		copy()
		k.Set(w.row0, k.Add(w.row0, k.Mul(k.To(ptx.U64, k.GridDim(build.Y)), c.Tile.M)))
	})
}

// row copies parts of two rows for each warp, word by word. Where a row begins within a word
// of the source, each word that is written is a part of two neighbours; the first of a row and
// its last are made of elements, as their neighbours are not the row's.
func (w *packWriter) row() {
	k, size := w.Kernel, w.elem.Bytes()
	lane, warp := k.Rem(w.tid, 32), k.Div(w.tid, 32)
	col := k.Add(w.col0, k.To(ptx.U64, k.Mul(lane, WordBytes/size))) // of the lane's first word
	left := k.Mul(w.left(col, w.cols), size)                         // bytes of a row from there on
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
			k.Set(values[n], joined(k, elements, size))
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
func (w *packWriter) left(from, all build.Reg) build.Reg {
	const far = 1 << 20
	return w.To(ptx.S32, w.Select(w.Lt(from, all), w.Min(w.Sub(all, from), far), 0))
}

// tile transposes a tile, which passes through shared memory, so that both sides move
// neighbours together. What a thread reads, and what it writes, lies in one column of the source
// and of the target: it goes down that, so that it has few registers and an SM many threads, on
// which it depends how much is under way from memory.
func (w *packWriter) tile() func() {
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
		left := k.Select(k.Lt(row, w.rows), w.left(col, w.cols), 0)
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
		left = k.Select(k.Lt(col, w.cols), w.left(row, w.rows), 0)
		at, step = w.target.At(row, k.Div(col, WordBytes/size)), w.target.ByteOffset(write, 0)
		for n := 0; n < PackSide; n += write {
			from := tile.From(k.Add(to, n), vector)
			words := make([]build.Value, MaxVectorBytes/WordBytes)
			for x := range words {
				elements := make([]build.Reg, WordBytes/size)
				for e := range elements {
					elements[e] = from.Load(0, x*WordBytes/size+e)
				}
				words[x] = joined(k, elements, size)
			}
			k.If(k.Gt(left, n), func() { at.StoreVec(words...) })
			at = at.Skip(step)
		}
		k.Barrier()
	}
}

// joined is elements of so many bytes, side by side in a word.
func joined(k *build.Kernel, elements []build.Reg, size int) build.Reg {
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
