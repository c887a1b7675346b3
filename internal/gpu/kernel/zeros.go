package kernel

import (
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Products of uint8 or with zero points take more launches than others. [SignedSums] copies uint8
// as int8 and sums operands along K, a kernel multiplies int8 to int32 sums, and [SplitKSum] adds
// the parts of these and corrects them before its epilogue; see [gemm.Problem.Signed].

// CoreOf returns the product that a kernel computes for p, whose matrices are aligned to a: p
// itself, or [gemm.Problem.Core] with the layouts of the copies as int8 and of the sums.
func CoreOf(p *gemm.Problem, a Align) (*gemm.Problem, Align) {
	if !p.Shifted() {
		return p, a
	}
	q := p.Core()
	if !p.ReadsAB() {
		return &q, a
	}
	for _, o := range []gemm.Operand{gemm.A, gemm.B} {
		if p.Layouts[o].Type != q.Layouts[o].Type {
			q.Layouts[o], a[o] = gemm.Padded(q.Layouts[o]), 0
		}
	}
	q.C().LD, a[gemm.C] = PartialSumLD(&q), 0
	return &q, a
}

// SignedSums sums the elements of a matrix of int8, or of uint8 less 128, along K, and copies uint8
// as int8. With TransA, K extends across the stored rows. Rows are summed by a warp each, and
// columns by the warps of a block together.
var SignedSums = &Kernel{
	Name:         "signed_sums",
	Adds:         "the sums along K of int8 operands, and copies of uint8 as int8",
	SM:           75,
	BlockThreads: func(Tile) device.Dim3 { return device.Dim3{X: 32, Y: signedSumsWarps, Z: 1} },
	Write:        writeSignedSums,
}

const (
	signedSumsWarps  = 16 // per block
	signedSumsUnroll = 8  // elements that a thread loads ahead
)

// SignedSumsArgs describes a launch of SignedSums.
type SignedSumsArgs struct {
	From, To device.Ptr // To is 0 for int8
	Sums     device.Ptr
	Layout   gemm.Layout
	LD       int // of the copy
}

// signedSumsParams lists the parameters of SignedSums.
var signedSumsParams = []Param[SignedSumsArgs]{
	{Name: "rows", Type: TypeU64, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.Layout.Rows) }},
	{Name: "cols", Type: TypeU64, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.Layout.Cols) }},
	{Name: "from", Type: typeByte, Pointer: true, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.From) }},
	{Name: "ldFrom", Type: TypeU64, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.Layout.LD) }},
	{Name: "to", Type: typeByte, Pointer: true, When: isUnsigned,
		Value: func(a *SignedSumsArgs) uint64 { return uint64(a.To) }},
	{Name: "ldTo", Type: TypeU64, When: isUnsigned, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.LD) }},
	{Name: "sums", Type: TypeU32, Pointer: true, Value: func(a *SignedSumsArgs) uint64 { return uint64(a.Sums) }},
}

func typeByte(*Config) ptx.Type { return ptx.U8 }
func isUnsigned(c *Config) bool { return c.In == dtype.U8 }

// Launch returns the launch for configuration c.
func (a *SignedSumsArgs) Launch(c *Config) device.Launch {
	l := device.Launch{Grid: device.Dim3{X: Tiles(a.Layout.Rows, signedSumsWarps), Y: 1, Z: 1},
		Block: SignedSums.BlockThreads(Tile{}), PDL: c.PDL}
	if c.TransA {
		l.Grid.X = Tiles(a.Layout.Cols, 32)
	}
	var params device.Params
	Encode(&params, signedSumsParams, c, a)
	l.Params = params.Bytes()
	return l
}

func writeSignedSums(k *build.Kernel, c Config) {
	d := &Declarer[SignedSumsArgs]{k, &c, signedSumsParams}
	rows, cols := d.Value("rows"), d.Value("cols")
	from := k.Matrix(d.Pointer("from").ReadOnly(), rows, cols, d.Value("ldFrom"))
	var to build.Matrix
	if isUnsigned(&c) {
		to = k.Matrix(d.Pointer("to"), rows, cols, d.Value("ldTo"))
	}
	sums := d.Pointer("sums")
	k.Threads(32, signedSumsWarps, 1)
	x, y := k.ThreadIdx(build.X), k.ThreadIdx(build.Y)
	lane, warp := k.To(ptx.U64, x), k.To(ptx.U64, y)
	block := k.To(ptx.U64, k.BlockIdx(build.X))

	// Bytes are summed as unsigned: an int8 with its highest bit flipped is larger by SignedOffset.
	sum := k.Var("sum", ptx.U32, 0)
	add := func(row, col, inside build.Reg) {
		v := from.At(row, col).LoadVecOr0(inside, 1)[0]
		flipped := k.Xor(v, gemm.SignedOffset)
		if !isUnsigned(&c) {
			v = k.Select(inside, flipped, 0)
		} else {
			k.If(inside, func() { to.At(row, col).Store(flipped) })
		}
		k.Set(sum, k.Add(sum, v))
	}
	if !c.TransA {
		row := k.Mad(block, signedSumsWarps, warp)
		k.ForUnrolled(0, k.CeilDiv(cols, 32), signedSumsUnroll, func(n build.Reg) {
			col := k.Mad(n, 32, lane)
			add(row, col, k.And(k.Lt(row, rows), k.Lt(col, cols)))
		})
		for distance := 16; distance > 0; distance /= 2 {
			k.Set(sum, k.Add(sum, k.ShuffleXor(sum, distance)))
		}
		k.If(k.And(k.Lt(row, rows), k.Eq(lane, 0)), func() {
			sums.At(row).Store(k.Sub(sum, k.Mul(k.To(ptx.U32, cols), gemm.SignedOffset)))
		})
		return
	}
	col := k.Mad(block, 32, lane)
	k.ForUnrolled(0, k.CeilDiv(rows, signedSumsWarps), signedSumsUnroll, func(n build.Reg) {
		row := k.Mad(n, signedSumsWarps, warp)
		add(row, col, k.And(k.Lt(row, rows), k.Lt(col, cols)))
	})
	parts := k.Shared("parts", ptx.U32, signedSumsWarps, 32)
	parts.Store(y, x, sum)
	k.Barrier()
	k.If(k.And(k.Eq(warp, 0), k.Lt(col, cols)), func() {
		for n := 1; n < signedSumsWarps; n++ {
			k.Set(sum, k.Add(sum, parts.Load(n, x)))
		}
		sums.At(col).Store(k.Sub(sum, k.Mul(k.To(ptx.U32, rows), gemm.SignedOffset)))
	})
}

// zeroParams lists the parameters of a launch that corrects sums for zero points: the caller's zero
// points, and the sums along K that SignedSums has computed.
var zeroParams = slices.Concat(
	vectorParam(gemm.RowZero, typeSum),
	vectorParam(gemm.ColZero, typeSum),
	[]Param[Args]{
		{Name: "rowSums", Type: typeSum, Pointer: true, When: (*Config).shiftsCols,
			Value: func(a *Args) uint64 { return uint64(a.OperandSums[gemm.A]) }},
		{Name: "colSums", Type: typeSum, Pointer: true, When: (*Config).shiftsRows,
			Value: func(a *Args) uint64 { return uint64(a.OperandSums[gemm.B]) }},
	},
)

// shiftsRows reports whether the rows of op(A) as int8 have zero points, shiftsCols whether the
// columns of op(B) have.
func (c *Config) shiftsRows() bool { return c.Epilogue.RowZero || c.UnsignedA }
func (c *Config) shiftsCols() bool { return c.Epilogue.ColZero || c.UnsignedB }

// declareZeros declares zeroParams.
func (g *Writer) declareZeros(d *Declarer[Args]) {
	g.declareVectors(d, gemm.RowZero, gemm.ColZero)
	if d.Has("rowSums") {
		g.rowSums = d.Pointer("rowSums").ReadOnly()
	}
	if d.Has("colSums") {
		g.colSums = d.Pointer("colSums").ReadOnly()
	}
}

// withoutZeros returns sums, of elements of a row from (row, col) on, corrected for zero points:
// Σ(a − za)·(b − zb) = Σa·b − za·Σb − zb·(Σa − K·za).
func (g *Writer) withoutZeros(row, col build.Reg, sums []build.Reg) []build.Reg {
	c, k := &g.Config, g.Kernel
	if !c.shiftsRows() && !c.shiftsCols() {
		return sums
	}
	zero := func(o gemm.Operand, at build.Reg, unsigned bool) build.Reg {
		z := k.Var("", g.AccType, 0)
		if c.Epilogue.Reads(o) {
			z = g.vectors[o].At(at).Load()
		}
		if unsigned {
			z = k.Sub(z, gemm.SignedOffset)
		}
		return z
	}
	var za, rowSum build.Reg
	if c.shiftsRows() {
		za = zero(gemm.RowZero, row, c.UnsignedA)
	}
	if c.shiftsCols() {
		rowSum = g.rowSums.At(row).Load()
		if c.shiftsRows() {
			rowSum = k.Sub(rowSum, k.Mul(k.To(g.AccType, g.K), za))
		}
	}
	all := make([]build.Reg, len(sums))
	for j, x := range sums {
		at := k.Add(col, j)
		if c.shiftsRows() {
			x = k.Sub(x, k.Mul(za, g.colSums.At(at).Load()))
		}
		if c.shiftsCols() {
			x = k.Sub(x, k.Mul(zero(gemm.ColZero, at, c.UnsignedB), rowSum))
		}
		all[j] = x
	}
	return all
}
