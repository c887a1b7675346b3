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
	transposed := l.Type.Size() != 2 && !along
	if transposed {
		l.Rows, l.Cols, l.Trans = l.Cols, l.Rows, !l.Trans
	}
	if transposed || l.Rows > 1 && l.LD*l.Type.Size()%maxVector != 0 || align > 0 && align < maxVector {
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

// packs says of A, of B and of a second B whether it is packed.
type packs [3]bool

func (p packs) any() bool { return p != packs{} }

// packing is p as a boxed kernel is launched for it with tiles of that shape: with operands that are
// packed where it cannot read them as they are. Turned tiles read a B that runs across K.
func packing(p *gemm.Problem, s Shape, a Align) (q gemm.Problem, is packs) {
	q = *p
	if !p.ReadsAB() {
		return q, is
	}
	a = a.least(spacing(p))
	if p.Batch.Kind != gemm.Grouped { // whose rows of A are cut anywhere
		q.A = asRow(p.A)
	}
	if b, up := asRow(p.B), asRow(p.Up); !p.Epilogue.Gated || b.Trans == up.Trans { // as they stay alike
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
		{&q.B, a.B, q.B.Trans || s.Turned, p.M, &q.Batch.B, true},
		{&q.Up, a.Up, q.Up.Trans, p.M, new(int), p.Epilogue.Gated},
	} {
		if !x.read {
			continue
		}
		before := *x.l
		*x.l = packed(before, p.Precision, x.align, x.along)
		if p.Batch.Kind == gemm.Single && narrow(*x.l) && x.uses >= often {
			*x.l = lined(*x.l)
		}
		is[i] = *x.l != before || x.align > 0 && x.align < maxVector
		if is[i] && *x.stride > 0 { // one behind the other
			*x.stride = x.l.Rows * x.l.LD
		}
	}
	return q, is
}

// narrow is a matrix of rows of which several are in a sector of the L2 cache: the copy engine is
// slow at them. On an H200 4096×4096×16 of int8 takes 25.7 µs packed, and took 27.9.
func narrow(l gemm.Layout) bool { return l.Rows > 1 && l.LD*l.Type.Size() < sectorBytes }

// asRow is the same matrix as a row, if it is a column without gaps: boxes are copied of
// that as it lies.
func asRow(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 && l.LD == 1 {
		l.Rows, l.Cols, l.LD, l.Trans = 1, l.Rows, l.Rows, !l.Trans
	}
	return l
}

// packing is p as the kernel is launched for it.
func (k *Kernel) packing(p *gemm.Problem, s Shape, a Align) (q gemm.Problem, is packs) {
	if !k.boxed {
		return *p, is
	}
	return packing(p, s, a)
}

// often is how many uses of each element make packing an operand worth its while, and oftenTurned
// those of a batch's that is transposed: on an H200 64 products of 512³ of int8 took 71 µs with B
// transposed before and 46 with mma, 32 of 1024³ of e4m3 156 and 272.
const often, oftenTurned = 128, 1024

// worthPacking is false for a product that uses the elements of an operand that has to be
// packed so few times that reading it is what takes the time.
func (k *Kernel) worthPacking(p *gemm.Problem, a Align) bool {
	if p.Precision == gemm.F32x3 {
		return true // in it there is no other kernel
	}
	q, is := k.packing(p, Shape{Turned: turnable(p) == nil}, a)
	uses := [...]int{p.N, p.M, p.M}
	if p.Batch.Kind == gemm.Grouped {
		uses[inB] /= max(p.Batch.Count, 1)
	}
	for i, l := range [...][2]gemm.Layout{{p.A, q.A}, {p.B, q.B}, {p.Up, q.Up}} {
		enough := often
		if p.Batch.Kind != gemm.Single && l[0].Trans != l[1].Trans {
			enough = oftenTurned
		}
		if is[i] && uses[i] < enough {
			return false
		}
	}
	return true
}

// Packed is p with operands that lie as the kernel reads them with tiles of that shape.
func (k *Kernel) Packed(p *gemm.Problem, s Shape) gemm.Problem {
	q, _ := k.packing(p, s, Align{})
	return q
}

// packs says whether the plan takes launches that pack operands.
func (pl *Plan) packs() bool {
	_, is := pl.Kernel.packing(&pl.device, pl.Config.Shape, pl.align)
	return is.any()
}

// enqueuePacked starts the launches that pack what has to be, and the product.
func (pl *Plan) enqueuePacked(ctx context.Context, m Memory) (err error) {
	d := pl.backend.Device
	q, is := pl.Kernel.packing(&pl.device, pl.Config.Shape, pl.align)
	sub := *pl
	sub.device, sub.align = q, Align{C: pl.align.C}
	var all []repacked
	for i, x := range []struct {
		at         *device.Ptr
		from, to   gemm.Layout
		apart, now int // in a batch
	}{
		{&m.A, pl.device.A, q.A, pl.device.Batch.A, q.Batch.A},
		{&m.B, pl.device.B, q.B, pl.device.Batch.B, q.Batch.B},
		{&m.Extras[gemm.Up], pl.device.Up, q.Up, 0, 0},
	} {
		if !is[i] {
			continue
		}
		r := repacked{from: x.from, source: *x.at, to: x.to, count: 1}
		if x.apart > 0 {
			r.count, r.apart, r.targets = pl.device.Batch.Count, x.apart*x.from.Type.Size(), x.now*x.to.Type.Size()
		}
		if r.target, err = d.Alloc(r.count * x.to.Rows * x.to.LD * x.to.Type.Size()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Free(r.target)) }()
		*x.at = r.target
		all = append(all, r)
	}
	if err := pl.pack(ctx, all...); err != nil {
		return err
	}
	return sub.enqueue(ctx, m)
}

// repacked is a matrix that is packed to another place, or so many of a batch, the bytes from one
// to the next being apart, and targets where they are packed to.
type repacked struct {
	from, to       gemm.Layout
	source, target device.Ptr
	count          int
	apart, targets int
}

// pack starts the launches that pack matrices: one for two, if one text packs both and neither
// is a batch's.
func (pl *Plan) pack(ctx context.Context, all ...repacked) error {
	for len(all) > 0 {
		t, together := pl.packText(all[0].from, all[0].to), 1
		if t.kernel == pack && len(all) > 1 && all[0].count*all[1].count == 1 && pl.packText(all[1].from, all[1].to) == t {
			together = 2
		}
		f, err := pl.backend.function(ctx, t.kernel, t.config)
		if err != nil {
			return err
		}
		if err := pl.on().Launch(ctx, f, t.packs(all[:together])); err != nil {
			return err
		}
		all = all[together:]
	}
	return nil
}

// packs is the launch of the text that packs matrices along z: those of an operand, or both
// operands, of which the second lies as far from the first as a batch's matrices do.
func (t compiledKey) packs(all []repacked) device.Launch {
	var args device.Params
	s, l := t.config.Shape, device.Launch{Grid: device.Dim3{Z: max(all[0].count, len(all))}, Overlaps: t.config.Overlaps}
	first, last := all[0], all[len(all)-1]
	if len(all) > 1 {
		first.apart, first.targets = int(last.source-first.source), int(last.target-first.target)
	}
	shape := func(r repacked) {
		cols, ld := r.to.Cols, r.to.LD*r.to.Type.Size()/wordBytes
		if t.kernel == planes {
			if r.from.Rows != r.to.Rows {
				r.from = asRow(r.from)
			}
			cols, ld = r.from.Cols, r.to.LD/planeParts
		}
		for _, n := range []int{r.to.Rows, cols, r.from.LD, ld} {
			args.U64(uint64(n))
		}
		l.Grid.X = max(l.Grid.X, ceilDiv(cols, s.N))
		l.Grid.Y = max(l.Grid.Y, min(ceilDiv(r.to.Rows, s.M), maxGridRows))
	}
	args.Ptr(first.source)
	args.Ptr(first.target)
	args.U64(uint64(first.apart))
	args.U64(uint64(first.targets))
	if shape(first); t.kernel == pack {
		shape(last)
	}
	l.Block, l.Params = t.kernel.threads(s), args.Bytes()
	return l
}

// packParams are the parameters of a text that packs: where the block's matrix is and goes to.
func packParams(k *build.Kernel, elem, to ptx.Type) (from, target build.Ptr) {
	from, target = k.Pointer("from", elem).ReadOnly(), k.Pointer("to", to)
	z := k.To(ptx.U64, k.BlockIdx(build.Z))
	return from.Skip(k.Mul(z, k.Param("apart", ptx.U64))), target.Skip(k.Mul(z, k.Param("targets", ptx.U64)))
}

// pack copies a matrix to one with other rows, or transposes it: or two, of which the blocks
// that are second along z have the other one.
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
	packSide    = 64 // of a tile that is transposed
	wordBytes   = 4
	packWords   = 4 // of a row, that a lane copies
	packRows    = 2 // for each warp
)

// packText is what packs a matrix of one layout to another; TransA says that rows become
// columns. Blocks that transpose are so small that those SMs which are done first with what was
// launched before would get eight each, and the others none, where there are not enough for all: they do
// not overlap it then.
func (pl *Plan) packText(from, to gemm.Layout) compiledKey {
	c := Config{In: from.Type, Out: to.Type, TransA: from.Trans != to.Trans, Shape: square(packSide, 0), Overlaps: pl.Config.Overlaps, Lines: pl.Config.Lines}
	switch {
	case from.Type != to.Type:
		return compiledKey{planes, c}
	case c.TransA:
		const held = 8
		sms, blocks := pl.backend.Device.Info().SMs, ceilDiv(to.Rows, packSide)*ceilDiv(to.Cols, packSide)
		c.Overlaps = c.Overlaps && (blocks <= sms || blocks > held/2*sms)
	default: // parts of rows for each warp
		c.Shape.M, c.Shape.N = packRows*packThreads/32, packWords*32*wordBytes/from.Type.Size()
	}
	return compiledKey{pack, c}
}

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
	from, to := packParams(k, w.elem, ptx.U32)
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

	k.Threads(packThreads, 1, 1)
	w.tid = k.ThreadIdx(build.X)
	w.col0 = k.Mul(k.To(ptx.U64, k.BlockIdx(build.X)), c.Shape.N)
	w.row0 = k.Var("row0", ptx.U64, k.Mul(k.To(ptx.U64, k.BlockIdx(build.Y)), c.Shape.M))
	copy := w.row
	if c.TransA {
		copy = w.tile()
	}
	k.While(func() build.Reg { return k.Lt(w.row0, w.rows) }, func() {
		copy()
		k.Set(w.row0, k.Add(w.row0, k.Mul(k.To(ptx.U64, k.GridDim(build.Y)), c.Shape.M)))
	})
}

// row copies parts of two rows for each warp, word by word. Where a row begins within a word
// of the source, each word that is written is a part of two neighbours; the first of a row and
// its last are made of elements, as their neighbours are not the row's.
func (w *packWriter) row() {
	k, size := w.Kernel, w.elem.Bytes()
	lane, warp := k.Rem(w.tid, 32), k.Div(w.tid, 32)
	col := k.Add(w.col0, k.To(ptx.U64, k.Mul(lane, wordBytes/size))) // of the lane's first word
	left := k.Mul(w.left(col, w.cols), size)                         // bytes of a row from there on
	type word struct {
		from, to           build.Ptr
		low, high, shift   build.Reg
		inside, edge, left build.Reg
	}
	var words []word
	for n := range packRows {
		row := k.Add(w.row0, k.To(ptx.U64, k.Add(warp, n*packThreads/32)))
		off := k.To(ptx.U32, k.And(w.source.At(row, 0).Address(), wordBytes-1))
		split := k.Ne(off, 0)
		here := k.Select(k.Lt(row, w.rows), left, 0)
		// How far what a word takes of the source, two words or one, must reach.
		spare := k.Sub(here, k.To(ptx.S32, k.Select(split, k.Sub(2*wordBytes, off), wordBytes)))
		first := k.And(split, k.Eq(col, 0))
		from, to, shift := w.source.At(row, col), w.target.At(row, k.Div(col, wordBytes/size)), k.Mul(off, 8)
		aligned := from.Skip(k.Sub(0, k.To(ptx.U64, off))).As(ptx.U32)
		for n := range packWords {
			step := n * 32 * wordBytes
			whole := k.Ge(spare, step)
			if n == 0 {
				whole = k.And(whole, k.Not(first))
			}
			x := word{from: from.Skip(step), to: to.Skip(step), shift: shift, left: k.Sub(here, step)}
			x.inside = k.Gt(x.left, 0)
			x.edge = k.And(x.inside, k.Not(whole))
			x.low = aligned.Skip(step).LoadVecOr0(whole, 1)[0]
			x.high = aligned.Skip(step+wordBytes).LoadVecOr0(k.And(whole, split), 1)[0]
			words = append(words, x)
		}
	}
	values := make([]build.Reg, len(words)) // of edges, which come while the others are on their way
	for n, x := range words {
		values[n] = k.Var("", ptx.U32, 0)
		k.If(x.edge, func() {
			elements := make([]build.Reg, wordBytes/size)
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
	tile := k.Shared("tile", w.elem, packSide, packSide+wordBytes/size)
	each := maxVector / size
	place := func(across int) (down, at build.Reg) { return k.Div(w.tid, across), k.Rem(w.tid, across) }
	// Of its column, and of its row of vectors, a thread has every so manieth element.
	const read = packThreads / packSide
	write := packThreads * each / packSide
	j, i := place(packSide)
	to, vector := place(packSide / each)
	to, vector = k.Named("to", to), k.Named("vector", k.Mul(vector, each))
	return func() {
		k.Comment("neighbouring threads read neighbours")
		row, col := k.Add(w.row0, k.To(ptx.U64, i)), k.Add(w.col0, k.To(ptx.U64, j))
		left := k.Select(k.Lt(row, w.rows), w.left(col, w.cols), 0)
		at, step := w.source.At(row, col), w.source.Apart(0, read)
		values := make([]build.Reg, packSide/read)
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
		at, step = w.target.At(row, k.Div(col, wordBytes/size)), w.target.Apart(write, 0)
		for n := 0; n < packSide; n += write {
			from := tile.From(k.Add(to, n), vector)
			words := make([]build.Value, maxVector/wordBytes)
			for x := range words {
				elements := make([]build.Reg, wordBytes/size)
				for e := range elements {
					elements[e] = from.Load(0, x*wordBytes/size+e)
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

// packTexts are the texts with which the plan packs.
func (pl *Plan) packTexts() (texts []compiledKey) {
	q, is := pl.Kernel.packing(&pl.device, pl.Config.Shape, pl.align)
	for i, l := range [...][2]gemm.Layout{{pl.device.A, q.A}, {pl.device.B, q.B}, {pl.device.Up, q.Up}} {
		if is[i] {
			texts = append(texts, pl.packText(l[0], l[1]))
		}
	}
	return texts
}
