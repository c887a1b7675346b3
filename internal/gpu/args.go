package gpu

import (
	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// elements are the types of PTX that hold element types, one row each.
var elements = map[dtype.Type]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16,
	dtype.F8E4M3: ptx.E4M3, dtype.F8E5M2: ptx.E5M2, dtype.I8: ptx.S8, dtype.I32: ptx.S32,
}

// product is what a kernel knows of the product that it computes.
type product struct {
	*build.Kernel
	config  Config
	acc     ptx.Type // what is summed in
	scale   ptx.Type // of alpha, beta and the epilogue
	index   ptx.Type // of rows and columns
	m, n, k build.Reg
	a, b, c build.Matrix // op(A), op(B) and C
	// from and to are the part of K that the block sums; sums is where its part of
	// the sums goes if K is split.
	from, to build.Value
	sums     build.Matrix
	part     build.Reg // how long the parts are

	alpha, beta build.Reg
	// readC says that beta is not 0; rounded to its type here it may be nevertheless.
	readC build.Reg
	bias  build.Ptr

	// Of a batch: how many products it has, the bytes from each one's A, B and C to the
	// next one's, and where the rows of groups end.
	count   build.Reg
	strides [3]build.Reg
	ends    build.Ptr

	scalesA, scalesB blockScales
	vectors          [gemm.Extras]build.Ptr // scales of rows, of columns and of all, and a function's data
	d                build.Matrix           // the residual
	// factor is what the other launch of a gated product has computed.
	factor build.Matrix
	// row0 and col0 are where C lies in the whole of it, as a function is told.
	row0, col0 build.Reg
}

// declare declares the parameters that all kernels share, in the order in which
// arguments lays them out.
func declare(k *build.Kernel, c Config) *product {
	g := &product{Kernel: k, config: c, acc: elements[c.In.Info().Accum], scale: elements[c.scaleType()], index: ptx.U32}
	if c.Wide {
		g.index = ptx.U64
	}
	g.m, g.n, g.k = k.Param("M", g.index), k.Param("N", g.index), k.Param("K", g.index)
	in, out := elements[c.In], elements[c.Out]
	operand := func(name string, trans bool, rows, cols build.Reg) build.Matrix {
		p, ld := k.Pointer(name, in).ReadOnly(), k.Param("ld"+name, ptx.U64)
		if trans {
			return k.Matrix(p, cols, rows, ld).T()
		}
		return k.Matrix(p, rows, cols, ld)
	}
	g.a = operand("A", c.TransA, g.m, g.k)
	g.b = operand("B", c.TransB, g.k, g.n)
	g.c = k.Matrix(k.Pointer("C", out), g.m, g.n, k.Param("ldC", ptx.U64))
	g.alpha, g.beta = k.Param("alpha", g.scale), k.Param("beta", g.scale)
	g.readC = k.Ne(k.Param("readC", ptx.U32), 0)
	if c.Epilogue.Bias != gemm.BiasNone {
		g.bias = k.Pointer("bias", out).ReadOnly()
	}
	for x := range gemm.Extra(gemm.Extras) {
		switch {
		case !c.Epilogue.Has(x):
		case x == gemm.Residual:
			p, ld := k.Pointer("D", out).ReadOnly(), k.Param("ldD", ptx.U64)
			g.d = k.Matrix(p, g.m, g.n, ld)
		case x == gemm.Up:
			if c.Factor.Valid() {
				p, ld := k.Pointer("factor", elements[c.Factor]).ReadOnly(), k.Param("ldFactor", ptx.U64)
				g.factor = k.Matrix(p, g.m, g.n, ld)
			}
		default:
			g.vectors[x] = k.Pointer(scaleNames[x], g.scale).ReadOnly()
		}
	}
	g.declareScales()
	if c.Epilogue.Function != nil {
		g.row0, g.col0 = k.Param("row0", g.index), k.Param("col0", g.index)
	}
	g.from, g.to = 0, g.k
	if c.Shape.Split > 1 {
		g.split()
	}
	g.declareBatch()
	return g
}

var scaleNames = [gemm.Extras]string{gemm.RowScale: "rowScale", gemm.ColScale: "colScale", gemm.OutScale: "outScale", gemm.Data: "data"}

// arguments are a launch's values of the parameters.
func arguments(c Config, p *gemm.Problem, m Memory) (args device.Params) {
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
				args.U64(uint64(sumsRow(p)))
			}
		default:
			args.Ptr(m.Extras[x])
		}
	}
	scaleArguments(&args, p, m)
	if c.Epilogue.Function != nil {
		size(m.row0)
		size(m.col0)
	}
	if m.Sums != 0 {
		size(m.part)
		args.Ptr(m.Sums)
	}
	batchArguments(&args, p, m)
	return args
}

// blockRow is the number of the block's row of tiles: a grid has them along y and,
// where these are not enough, along z, which else has the parts of K.
func (g *product) blockRow() build.Reg {
	if g.config.Shape.Split > 1 {
		return g.BlockIdx(build.Y)
	}
	return g.Mad(g.BlockIdx(build.Z), g.GridDim(build.Y), g.BlockIdx(build.Y))
}

// origin is the first row and the first column of C that the block computes.
func (g *product) origin() (row, col build.Reg) {
	s := g.config.Shape
	first, row, _ := g.own()
	return g.Mad(g.To(g.index, row), s.M, first), g.Mul(g.To(g.index, g.BlockIdx(build.X)), s.N)
}

// grouped is origin with the tiles in another order: blocks that run at the same time
// compute up to so many rows of tiles side by side, so that their tiles of A and B are
// few and come from the L2 cache.
func (g *product) grouped(rows int) (row, col build.Reg) {
	k := g.Kernel
	across := k.GridDim(build.X)
	first, at, down := g.own()
	i, j := g.groupedTile(k.Mad(at, across, k.BlockIdx(build.X)), down, across, rows)
	s := g.config.Shape
	return k.Mad(k.To(g.index, i), s.M, first), k.Mul(k.To(g.index, j), s.N)
}

// groupedTile is the place of tile n of down×across, in that order.
func (g *product) groupedTile(n, down, across build.Reg, rows int) (i, j build.Reg) {
	k := g.Kernel
	whole := k.Mul(across, rows) // the tiles of a group
	first := k.Mul(k.Div(n, whole), rows)
	in := k.Rem(n, whole)
	height := k.Min(k.Sub(down, first), rows)
	return k.Add(first, k.Rem(in, height)), k.Div(in, height)
}

// sum is an element of A or B, as it was loaded, in the type that products are summed in.
func (g *product) sum(x build.Reg) build.Reg { return g.converted(x, g.acc) }

// total is a sum in the type of the epilogue.
func (g *product) total(sum build.Reg) build.Reg {
	if g.acc == g.scale {
		return sum
	}
	return g.To(g.scale, sum)
}

// value is an element of C or of an operand of the epilogue, as it was loaded, in the type of the
// epilogue.
func (g *product) value(x build.Reg) build.Reg { return g.converted(x, g.scale) }

func (g *product) converted(x build.Reg, to ptx.Type) build.Reg {
	if x.Type() != ptx.U32 {
		return g.To(to, x)
	}
	return fromFloat8(g.Kernel, x, g.config.In, to)
}

// The operands, as indices.
const (
	inA = iota
	inB
	inC
	inD  // the residual, whose parts are C's
	inUp // a second B, whose parts are B's
	matrices
)

func roundUp(n, unit int) int { return ceilDiv(n, unit) * unit }
