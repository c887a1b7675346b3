package kernel

import (
	"fmt"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// PTXTypes maps element types to the PTX types that hold them.
var PTXTypes = map[dtype.Type]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16,
	dtype.F8E4M3: ptx.E4M3, dtype.F8E5M2: ptx.E5M2, dtype.I8: ptx.S8, dtype.I32: ptx.S32,
}

// Param is a parameter of a kernel. [Declare] or a [Declarer] declares a list of parameters in the
// kernel's PTX, and [Encode] encodes the same list for a launch. L describes a launch.
type Param[L any] struct {
	Name string
	// Type returns the type of the value or, for a pointer, of the elements that it points to.
	Type    func(c *Config) ptx.Type
	Pointer bool
	// When reports whether configuration c has the parameter. Nil means that all configurations
	// have it.
	When func(c *Config) bool
	// Value returns the bits of the value in a launch.
	Value func(l *L) uint64
}

// present reports whether configuration c has the parameter.
func (p *Param[L]) present(c *Config) bool { return p.When == nil || p.When(c) }

// declare declares the parameter. It returns the pointer, or the register that holds the value.
func (p *Param[L]) declare(k *build.Kernel, c *Config) (value build.Reg, at build.Ptr) {
	if p.Pointer {
		return value, k.Pointer(p.Name, p.Type(c))
	}
	return k.Param(p.Name, p.Type(c)), at
}

// Declare declares the parameters that configuration c has, in order, and calls bind with each:
// with the pointer, or with the register that holds the value.
func Declare[L any](k *build.Kernel, params []Param[L], c *Config,
	bind func(name string, value build.Reg, at build.Ptr)) {
	for i := range params {
		if p := &params[i]; p.present(c) {
			value, at := p.declare(k, c)
			bind(p.Name, value, at)
		}
	}
}

// Declarer declares the parameters that configuration Config has, in order, one per call. It is for
// kernels that load parameters between other instructions.
type Declarer[L any] struct {
	Kernel *build.Kernel
	Config *Config
	Params []Param[L] // those that are not declared yet
}

// Value declares the next parameter and returns the register that holds its value. It panics if the
// parameter has another name.
func (d *Declarer[L]) Value(name string) build.Reg {
	value, _ := d.next(name)
	return value
}

// Pointer declares the next parameter and returns the pointer. It panics if the parameter has
// another name.
func (d *Declarer[L]) Pointer(name string) build.Ptr {
	_, at := d.next(name)
	return at
}

func (d *Declarer[L]) next(name string) (build.Reg, build.Ptr) {
	for len(d.Params) > 0 {
		p := &d.Params[0]
		d.Params = d.Params[1:]
		if !p.present(d.Config) {
			continue
		}
		if p.Name != name {
			panic(fmt.Sprintf("kernel: declares parameter %s, want %s, which is next in the list", name, p.Name))
		}
		return p.declare(d.Kernel, d.Config)
	}
	panic(fmt.Sprintf("kernel: declares parameter %s, which is not in the list", name))
}

// Encode appends the values of the parameters that configuration c has, in order, to args.
func Encode[L any](args *device.Params, params []Param[L], c *Config, l *L) {
	for i := range params {
		switch p := &params[i]; {
		case !p.present(c):
		case p.Pointer || p.Type(c).Bytes() == 8:
			args.U64(p.Value(l))
		default:
			args.U32(uint32(p.Value(l)))
		}
	}
}

// TypeU32, TypeU64, TypeF32 and TypeF64 are the [Param.Type] of numbers whose type does not depend
// on the configuration.
func TypeU32(*Config) ptx.Type { return ptx.U32 }
func TypeU64(*Config) ptx.Type { return ptx.U64 }
func TypeF32(*Config) ptx.Type { return ptx.F32 }
func TypeF64(*Config) ptx.Type { return ptx.F64 }

func typeIn(c *Config) ptx.Type       { return PTXTypes[c.In] }
func typeOut(c *Config) ptx.Type      { return PTXTypes[c.Out] }
func typeSum(c *Config) ptx.Type      { return PTXTypes[c.In.Info().Accum] }
func typeEpilogue(c *Config) ptx.Type { return PTXTypes[c.scaleType()] }
func typeFactor(c *Config) ptx.Type   { return PTXTypes[c.Factor] }

// typeIndex returns the type of sizes and of row and column numbers.
func typeIndex(c *Config) ptx.Type {
	if c.Wide {
		return ptx.U64
	}
	return ptx.U32
}

// Args describes a launch of a kernel that computes a product, or a part of one.
type Args struct {
	Config  *Config
	Problem *gemm.Problem
	Memory
	// PartialSums is the address of the partial sums of a split-K product. SplitLen is the length
	// of a part of K.
	PartialSums device.Ptr
	SplitLen    int
	// Row0 and Col0 are the offset of C in the caller's C, if the problem computes only a part of
	// it.
	Row0, Col0 int
}

// scalar returns the bits of alpha or beta in the type of the epilogue.
func (a *Args) scalar(v float64) uint64 {
	switch a.Config.scaleType() {
	case dtype.F64:
		return math.Float64bits(v)
	case dtype.F32:
		return uint64(math.Float32bits(float32(v)))
	}
	return uint64(uint32(int32(v)))
}

// stride returns the distance in bytes between operand o of one product of a batch and of the next.
func (a *Args) stride(o gemm.Operand) uint64 {
	return uint64(a.Problem.Layouts[o].Type.Bytes(a.Problem.Batch.Stride[o]))
}

// vectorParams holds the names of the parameters that point to vectors of the epilogue.
var vectorParams = [gemm.Operands]string{
	gemm.Bias: "bias", gemm.RowScale: "rowScale", gemm.ColScale: "colScale", gemm.OutScale: "outScale",
	gemm.FunctionData: "data",
}

// sharedParams lists the parameters of every kernel that computes products. Tensor maps follow
// them.
var sharedParams = slices.Concat(
	[]Param[Args]{
		{Name: "M", Type: typeIndex, Value: func(a *Args) uint64 { return uint64(a.Problem.M) }},
		{Name: "N", Type: typeIndex, Value: func(a *Args) uint64 { return uint64(a.Problem.N) }},
		{Name: "K", Type: typeIndex, Value: func(a *Args) uint64 {
			if !a.Problem.ReadsAB() {
				return 0 // no term is computed
			}
			return uint64(a.Problem.K)
		}},
	},
	matrixParams("A", gemm.A, typeIn, nil),
	matrixParams("B", gemm.B, typeIn, nil),
	matrixParams("C", gemm.C, typeOut, nil),
	[]Param[Args]{
		{Name: "alpha", Type: typeEpilogue, Value: func(a *Args) uint64 {
			if !a.Problem.ReadsAB() {
				return a.scalar(0) // an infinite alpha would turn the zero sum into NaN
			}
			return a.scalar(real(a.Problem.Alpha))
		}},
		{Name: "beta", Type: typeEpilogue, Value: func(a *Args) uint64 { return a.scalar(real(a.Problem.Beta)) }},
		{Name: "readC", Type: TypeU32, Value: func(a *Args) uint64 {
			if a.Problem.Beta != 0 { // a nonzero beta can round to 0 in the type of the epilogue
				return 1
			}
			return 0
		}},
	},
	vectorParam(gemm.Bias, typeOut),
	vectorParam(gemm.RowScale, typeEpilogue),
	vectorParam(gemm.ColScale, typeEpilogue),
	matrixParams("D", gemm.Residual, typeOut, func(c *Config) bool { return c.Epilogue.Residual }),
	vectorParam(gemm.OutScale, typeEpilogue),
	factorParams,
	vectorParam(gemm.FunctionData, typeEpilogue),
	blockScaleParams("A", func(a *Args) gemm.Layout { return a.Problem.Layouts[gemm.ScaleA] }, gemm.ScaleA),
	blockScaleParams("B", func(a *Args) gemm.Layout { return a.Problem.Layouts[gemm.ScaleB].T() }, gemm.ScaleB),
	[]Param[Args]{
		{Name: "row0", Type: typeIndex, When: hasFunction, Value: func(a *Args) uint64 { return uint64(a.Row0) }},
		{Name: "col0", Type: typeIndex, When: hasFunction, Value: func(a *Args) uint64 { return uint64(a.Col0) }},
	},
	splitParams(func(c *Config) bool { return c.Tile.SplitK > 1 }),
	[]Param[Args]{{Name: "partLength", Type: typeIndex, When: func(c *Config) bool { return c.Tile.SerialK > 1 },
		Value: func(a *Args) uint64 { return uint64(SplitLen(a.Problem, a.Config.Tile)) }}},
	[]Param[Args]{
		{Name: "count", Type: TypeU32, When: isBatch, Value: func(a *Args) uint64 { return uint64(a.Problem.Batch.Count) }},
		{Name: "ends", Type: TypeU32, Pointer: true, When: isGrouped,
			Value: func(a *Args) uint64 { return uint64(a.Memory[gemm.GroupEnds]) }},
		{Name: "strideA", Type: TypeU64, When: isStrided, Value: func(a *Args) uint64 { return a.stride(gemm.A) }},
		{Name: "strideB", Type: TypeU64, When: isBatch, Value: func(a *Args) uint64 { return a.stride(gemm.B) }},
		{Name: "strideC", Type: TypeU64, When: isStrided, Value: func(a *Args) uint64 { return a.stride(gemm.C) }},
	},
)

func isBatch(c *Config) bool     { return c.Batch != gemm.Single }
func isStrided(c *Config) bool   { return c.Batch == gemm.Strided }
func isGrouped(c *Config) bool   { return c.Batch == gemm.Grouped }
func hasFunction(c *Config) bool { return c.Epilogue.Function != nil }

// matrixParams returns the parameters of a matrix: a pointer and a leading dimension.
func matrixParams(name string, o gemm.Operand, elem func(*Config) ptx.Type, when func(*Config) bool) []Param[Args] {
	return []Param[Args]{
		{Name: name, Type: elem, Pointer: true, When: when, Value: func(a *Args) uint64 { return uint64(a.Memory[o]) }},
		{Name: "ld" + name, Type: TypeU64, When: when,
			Value: func(a *Args) uint64 { return uint64(a.Problem.Layouts[o].LD) }},
	}
}

// factorParams lists the parameters of the factor of a gated product that another launch computed.
// Its address replaces that of Up, which this launch does not read.
var factorParams = []Param[Args]{
	{
		Name: "factor", Type: typeFactor, Pointer: true, When: func(c *Config) bool { return c.Factor.Valid() },
		Value: func(a *Args) uint64 { return uint64(a.Memory[gemm.Up]) },
	},
	{
		Name: "ldFactor", Type: TypeU64, When: func(c *Config) bool { return c.Factor.Valid() },
		Value: func(a *Args) uint64 { return uint64(PartialSumLD(a.Problem)) },
	},
}

// vectorParam returns the parameter that points to a vector of the epilogue.
func vectorParam(o gemm.Operand, elem func(*Config) ptx.Type) []Param[Args] {
	return []Param[Args]{{
		Name: vectorParams[o], Type: elem, Pointer: true,
		When:  func(c *Config) bool { return c.Epilogue.Reads(o) },
		Value: func(a *Args) uint64 { return uint64(a.Memory[o]) },
	}}
}

// DeclareParams declares the parameters that all kernels share.
func DeclareParams(k *build.Kernel, c Config) *Writer {
	g := &Writer{Kernel: k, Config: c, AccType: typeSum(&c), EpilogueType: typeEpilogue(&c), IndexType: typeIndex(&c)}
	Declare(k, sharedParams, &c, g.bind)
	if c.Tile.SplitK < 2 {
		g.KBegin, g.KEnd = 0, g.K
	}
	return g
}

// bind stores a parameter in g. The pointer to a matrix precedes its leading dimension.
func (g *Writer) bind(name string, value build.Reg, at build.Ptr) {
	switch name {
	case "M":
		g.M = value
	case "N":
		g.N = value
	case "K":
		g.K = value
	case "A", "B", "D", "factor":
		g.pending = at.ReadOnly()
	case "C":
		g.pending = at
	case "ldA":
		g.A = g.operand(g.Config.TransA, g.M, g.K, value)
	case "ldB":
		g.B = g.operand(g.Config.TransB, g.K, g.N, value)
	case "ldC":
		g.C = g.operand(false, g.M, g.N, value)
	case "ldD":
		g.Residual = g.operand(false, g.M, g.N, value)
	case "ldFactor":
		g.factor = g.operand(false, g.M, g.N, value)
	case "alpha":
		g.alpha = value
	case "beta":
		g.beta = value
	case "readC":
		g.ReadC = g.Ne(value, 0)
	case "row0":
		g.row0 = value
	case "col0":
		g.col0 = value
	case "part":
		g.splitLen = value
	case "sums":
		g.bindPartialSums(at)
	case "partLength":
		g.partLength = value
	case "count":
		g.count = value
	case "ends":
		g.ends = at.ReadOnly()
	case "strideA":
		g.Strides[gemm.A] = value
	case "strideB":
		g.Strides[gemm.B] = value
	case "strideC":
		g.Strides[gemm.C] = value
	case "scalesA", "scalesB":
		// Not read-only: the assembler would move such loads past barriers, to just before their
		// use.
		g.pending = at
	case "acrossA", "acrossB":
		g.pendingStride = value
	case "alongA":
		g.ScalesA = blockScales{g.Kernel, g.pending, g.pendingStride, value, g.Config.ScaleA, g.M}
	case "alongB":
		g.ScalesB = blockScales{g.Kernel, g.pending, g.pendingStride, value, g.Config.ScaleB, g.N}
	default:
		g.vectors[slices.Index(vectorParams[:], name)] = at.ReadOnly()
	}
}

// operand returns a matrix of rows×cols elements, or one stored transposed, at the pointer that was
// bound last.
func (g *Writer) operand(trans bool, rows, cols, ld build.Reg) build.Matrix {
	if trans {
		return g.Matrix(g.pending, cols, rows, ld).T()
	}
	return g.Matrix(g.pending, rows, cols, ld)
}

// Writer writes a kernel that computes a product. It holds the kernel's parameters.
type Writer struct {
	*build.Kernel
	Config       Config
	AccType      ptx.Type // of the accumulators
	EpilogueType ptx.Type // of alpha, beta and the epilogue
	IndexType    ptx.Type // of row and column numbers
	M, N, K      build.Reg
	A, B, C      build.Matrix // op(A), op(B) and C
	// KBegin and KEnd delimit the part of K that the block multiplies. With split-K, sums receives
	// the partial sums, and splitLen is the length of a part.
	KBegin, KEnd build.Value
	sums         build.Matrix
	splitLen     build.Reg
	// partLength is the length of a part of K, with serial parts.
	partLength build.Reg

	alpha, beta build.Reg
	// ReadC is a predicate: beta is not 0. It is true even if beta rounds to 0 in the type of the
	// epilogue.
	ReadC build.Reg

	// count is the number of products of a batch. Strides are the distances in bytes between the A,
	// B and C of one product and of the next. ends points to the ends of the groups of rows.
	count   build.Reg
	Strides [gemm.C + 1]build.Reg
	ends    build.Ptr

	ScalesA, ScalesB blockScales
	vectors          [gemm.Operands]build.Ptr // bias, scales, and the data of a custom epilogue function
	Residual         build.Matrix
	// factor is the factor of a gated product that another launch computed.
	factor build.Matrix
	// row0 and col0 are the offset of C in the caller's C, for a custom epilogue function.
	row0, col0 build.Reg

	pending       build.Ptr // the pointer bound last, whose leading dimension follows
	pendingStride build.Reg
}

// blockRow returns the number of the block's row of tiles. Grids have rows of tiles along y and, if
// there are too many, along z. With split-K, z holds the parts of K instead.
func (g *Writer) blockRow() build.Reg {
	if g.Config.Tile.SplitK > 1 {
		return g.BlockIdx(build.Y)
	}
	return g.Mad(g.BlockIdx(build.Z), g.GridDim(build.Y), g.BlockIdx(build.Y))
}

// TileOrigin returns the first row and the first column of C that the block computes.
func (g *Writer) TileOrigin() (row, col build.Reg) {
	s := g.Config.Tile
	first, row, _ := g.selectProduct()
	return g.Mad(g.To(g.IndexType, row), s.M, first), g.Mul(g.To(g.IndexType, g.BlockIdx(build.X)), s.N)
}

// groupedTileOrigin returns TileOrigin with a swizzled rasterization for L2 reuse: blocks that run
// at the same time compute adjacent tiles from up to rows rows of tiles, so that they share tiles
// of A and B in the L2 cache.
func (g *Writer) groupedTileOrigin(rows int) (row, col build.Reg) {
	k := g.Kernel
	across := k.GridDim(build.X)
	first, at, down := g.selectProduct()
	i, j := g.GroupedTile(k.Mad(at, across, k.BlockIdx(build.X)), down, across, rows)
	s := g.Config.Tile
	return k.Mad(k.To(g.IndexType, i), s.M, first), k.Mul(k.To(g.IndexType, j), s.N)
}

// GroupedTile returns the row and column of tile n among tileRows×tileCols tiles, in the
// rasterization order of groupedTileOrigin.
func (g *Writer) GroupedTile(n, tileRows, tileCols build.Reg, rows int) (i, j build.Reg) {
	k := g.Kernel
	whole := k.Mul(tileCols, rows) // the tiles of a group
	first := k.Mul(k.Div(n, whole), rows)
	in := k.Rem(n, whole)
	height := k.Min(k.Sub(tileRows, first), rows)
	return k.Add(first, k.Rem(in, height)), k.Div(in, height)
}

// ToAccType converts a loaded element of A or B to the type of the accumulators.
func (g *Writer) ToAccType(x build.Reg) build.Reg { return g.converted(x, g.AccType) }

// SumToEpilogueType converts a sum to the type of the epilogue.
func (g *Writer) SumToEpilogueType(sum build.Reg) build.Reg {
	if g.AccType == g.EpilogueType {
		return sum
	}
	return g.To(g.EpilogueType, sum)
}

// ToEpilogueType converts a loaded element of C, or of an operand of the epilogue, to the type of
// the epilogue.
func (g *Writer) ToEpilogueType(x build.Reg) build.Reg { return g.converted(x, g.EpilogueType) }

// converted converts x, an element as it was loaded, to another type. An 8-bit float is loaded as a
// U32.
func (g *Writer) converted(x build.Reg, to ptx.Type) build.Reg {
	if x.Type() != ptx.U32 {
		return g.To(to, x)
	}
	return FromFloat8(g.Kernel, x, g.Config.In, to)
}

// RoundUp returns the smallest multiple of unit that is at least n.
func RoundUp(n, unit int) int { return CeilDiv(n, unit) * unit }
