package kernel

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// elements are the types of PTX that hold element types, one row each.
var PTXTypes = map[dtype.Type]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16,
	dtype.F8E4M3: ptx.E4M3, dtype.F8E5M2: ptx.E5M2, dtype.I8: ptx.S8, dtype.I32: ptx.S32,
}

// product is what a kernel knows of the product that it computes.
type Writer struct {
	*build.Kernel
	Config       Config
	AccType      ptx.Type // what is summed in
	EpilogueType ptx.Type // of alpha, beta and the epilogue
	IndexType    ptx.Type // of rows and columns
	M, N, K      build.Reg
	a, b, C      build.Matrix // op(A), op(B) and C
	// from and to are the part of K that the block sums; sums is where its part of
	// the sums goes if K is split.
	KBegin, KEnd build.Value
	sums         build.Matrix
	SplitLen     build.Reg // how long the parts are

	alpha, beta build.Reg
	// readC says that beta is not 0; rounded to its type here it may be nevertheless.
	ReadC build.Reg
	bias  build.Ptr

	// Of a batch: how many products it has, the bytes from each one's A, B and C to the
	// next one's, and where the rows of groups end.
	count   build.Reg
	Strides [3]build.Reg
	ends    build.Ptr

	ScalesA, ScalesB blockScales
	vectors          [gemm.Extras]build.Ptr // scales of rows, of columns and of all, and a function's data
	Residual         build.Matrix           // the residual
	// factor is what the other launch of a gated product has computed.
	factor build.Matrix
	// row0 and col0 are where C lies in the whole of it, as a function is told.
	row0, col0 build.Reg
}

// declare declares the parameters that all kernels share, in the order in which
// arguments lays them out.
func DeclareParams(k *build.Kernel, c Config) *Writer {
	g := &Writer{Kernel: k, Config: c, AccType: PTXTypes[c.In.Info().Accum], EpilogueType: PTXTypes[c.scaleType()], IndexType: ptx.U32}
	if c.Wide {
		g.IndexType = ptx.U64
	}
	g.M, g.N, g.K = k.Param("M", g.IndexType), k.Param("N", g.IndexType), k.Param("K", g.IndexType)
	in, out := PTXTypes[c.In], PTXTypes[c.Out]
	operand := func(name string, trans bool, rows, cols build.Reg) build.Matrix {
		p, ld := k.Pointer(name, in).ReadOnly(), k.Param("ld"+name, ptx.U64)
		if trans {
			return k.Matrix(p, cols, rows, ld).T()
		}
		return k.Matrix(p, rows, cols, ld)
	}
	g.a = operand("A", c.TransA, g.M, g.K)
	g.b = operand("B", c.TransB, g.K, g.N)
	g.C = k.Matrix(k.Pointer("C", out), g.M, g.N, k.Param("ldC", ptx.U64))
	g.alpha, g.beta = k.Param("alpha", g.EpilogueType), k.Param("beta", g.EpilogueType)
	g.ReadC = k.Ne(k.Param("readC", ptx.U32), 0)
	if c.Epilogue.Bias != gemm.BiasNone {
		g.bias = k.Pointer("bias", out).ReadOnly()
	}
	for x := range gemm.Extra(gemm.Extras) {
		switch {
		case !c.Epilogue.Has(x):
		case x == gemm.Residual:
			p, ld := k.Pointer("D", out).ReadOnly(), k.Param("ldD", ptx.U64)
			g.Residual = k.Matrix(p, g.M, g.N, ld)
		case x == gemm.Up:
			if c.Factor.Valid() {
				p, ld := k.Pointer("factor", PTXTypes[c.Factor]).ReadOnly(), k.Param("ldFactor", ptx.U64)
				g.factor = k.Matrix(p, g.M, g.N, ld)
			}
		default:
			g.vectors[x] = k.Pointer(scaleNames[x], g.EpilogueType).ReadOnly()
		}
	}
	g.declareScales()
	if c.Epilogue.Function != nil {
		g.row0, g.col0 = k.Param("row0", g.IndexType), k.Param("col0", g.IndexType)
	}
	g.KBegin, g.KEnd = 0, g.K
	if c.Tile.SplitK > 1 {
		g.split()
	}
	g.declareBatch()
	return g
}

var scaleNames = [gemm.Extras]string{gemm.RowScale: "rowScale", gemm.ColScale: "colScale", gemm.OutScale: "outScale", gemm.Data: "data"}

// arguments are a launch's values of the parameters.
func packParams(c Config, p *gemm.Problem, m Memory) (args device.Params) {
	size := func(n int) {
		if c.Wide {
			args.U64(uint64(n))
		} else {
			args.U32(uint32(n))
		}
	}
	scalar := func(v float64) {
		switch c.scaleType() {
		case dtype.F64:
			args.F64(v)
		case dtype.F32:
			args.F32(float32(v))
		default:
			args.U32(uint32(int32(v)))
		}
	}
	depth, alpha := p.K, p.Alpha
	if !p.ReadsAB() {
		depth, alpha = 0, 0 // not a term is computed, and no infinite alpha multiplies their sum
	}
	size(p.M)
	size(p.N)
	size(depth)
	for _, x := range []struct {
		at device.Ptr
		l  gemm.Layout
	}{{m.A, p.A}, {m.B, p.B}, {m.C, p.C}} {
		args.Ptr(x.at)
		args.U64(uint64(x.l.LD))
	}
	scalar(alpha)
	scalar(p.Beta)
	readC := uint32(0)
	if p.Beta != 0 {
		readC = 1
	}
	args.U32(readC)
	if c.Epilogue.Bias != gemm.BiasNone {
		args.Ptr(m.Bias)
	}
	for x := range gemm.Extra(gemm.Extras) {
		switch {
		case !c.Epilogue.Has(x):
		case x == gemm.Residual:
			args.Ptr(m.Extras[x])
			args.U64(uint64(p.Residual.LD))
		case x == gemm.Up:
			if c.Factor.Valid() {
				args.Ptr(m.Extras[x])
				args.U64(uint64(PartialSumLD(p)))
			}
		default:
			args.Ptr(m.Extras[x])
		}
	}
	scaleArguments(&args, p, m)
	if c.Epilogue.Function != nil {
		size(m.Row0)
		size(m.Col0)
	}
	if m.Sums != 0 {
		size(m.SplitLen)
		args.Ptr(m.Sums)
	}
	batchArguments(&args, p, m)
	return args
}

// blockRow is the number of the block's row of tiles: a grid has them along y and,
// where these are not enough, along z, which else has the parts of K.
func (g *Writer) blockRow() build.Reg {
	if g.Config.Tile.SplitK > 1 {
		return g.BlockIdx(build.Y)
	}
	return g.Mad(g.BlockIdx(build.Z), g.GridDim(build.Y), g.BlockIdx(build.Y))
}

// origin is the first row and the first column of C that the block computes.
func (g *Writer) TileOrigin() (row, col build.Reg) {
	s := g.Config.Tile
	first, row, _ := g.selectProduct()
	return g.Mad(g.To(g.IndexType, row), s.M, first), g.Mul(g.To(g.IndexType, g.BlockIdx(build.X)), s.N)
}

// grouped is origin with the tiles in another order: blocks that run at the same time
// compute up to so many rows of tiles side by side, so that their tiles of A and B are
// few and come from the L2 cache.
func (g *Writer) grouped(rows int) (row, col build.Reg) {
	k := g.Kernel
	across := k.GridDim(build.X)
	first, at, down := g.selectProduct()
	i, j := g.GroupedTile(k.Mad(at, across, k.BlockIdx(build.X)), down, across, rows)
	s := g.Config.Tile
	return k.Mad(k.To(g.IndexType, i), s.M, first), k.Mul(k.To(g.IndexType, j), s.N)
}

// groupedTile is the place of tile n of down×across, in that order.
func (g *Writer) GroupedTile(n, down, across build.Reg, rows int) (i, j build.Reg) {
	k := g.Kernel
	whole := k.Mul(across, rows) // the tiles of a group
	first := k.Mul(k.Div(n, whole), rows)
	in := k.Rem(n, whole)
	height := k.Min(k.Sub(down, first), rows)
	return k.Add(first, k.Rem(in, height)), k.Div(in, height)
}

// sum is an element of A or B, as it was loaded, in the type that products are summed in.
func (g *Writer) ToAccType(x build.Reg) build.Reg { return g.converted(x, g.AccType) }

// total is a sum in the type of the epilogue.
func (g *Writer) SumToEpilogueType(sum build.Reg) build.Reg {
	if g.AccType == g.EpilogueType {
		return sum
	}
	return g.To(g.EpilogueType, sum)
}

// value is an element of C or of an operand of the epilogue, as it was loaded, in the type of the
// epilogue.
func (g *Writer) ToEpilogueType(x build.Reg) build.Reg { return g.converted(x, g.EpilogueType) }

func (g *Writer) converted(x build.Reg, to ptx.Type) build.Reg {
	if x.Type() != ptx.U32 {
		return g.To(to, x)
	}
	return FromFloat8(g.Kernel, x, g.Config.In, to)
}

// The operands, as indices.
const (
	InA = iota
	InB
	InC
	InD  // the residual, whose parts are C's
	InUp // a second B, whose parts are B's
	Matrices
)

func RoundUp(n, unit int) int { return CeilDiv(n, unit) * unit }
