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
var PTXTypes = [...]ptx.Type{
	dtype.F64: ptx.F64, dtype.F32: ptx.F32, dtype.F16: ptx.F16, dtype.BF16: ptx.BF16,
	dtype.F8E4M3: ptx.E4M3, dtype.F8E5M2: ptx.E5M2, dtype.I8: ptx.S8, dtype.I32: ptx.S32,
}

// Param is a parameter of a kernel. A [Declarer] declares a list of parameters in the kernel's PTX,
// and [Encode] encodes the same list for a launch. L describes a launch.
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

// Declarer declares the parameters that configuration Config has, in order, one per call.
type Declarer[L any] struct {
	Kernel *build.Kernel
	Config *Config
	Params []Param[L] // those that are not declared yet
}

// Has reports whether the next parameter has the given name.
func (d *Declarer[L]) Has(name string) bool { return d.skipAbsent() && d.Params[0].Name == name }

// Value declares the next parameter and returns the register that holds its value. It panics if the
// parameter has another name.
func (d *Declarer[L]) Value(name string) build.Reg { return d.Kernel.Param(name, d.next(name)) }

// Pointer declares the next parameter and returns the pointer. It panics if the parameter has
// another name.
func (d *Declarer[L]) Pointer(name string) build.Ptr { return d.Kernel.Pointer(name, d.next(name)) }

// next removes the next parameter from the list and returns its type.
func (d *Declarer[L]) next(name string) ptx.Type {
	if !d.skipAbsent() {
		panic(fmt.Sprintf("kernel: declares parameter %s, which is not in the list", name))
	}
	p := &d.Params[0]
	if p.Name != name {
		panic(fmt.Sprintf("kernel: declares parameter %s, want %s, which is next in the list", name, p.Name))
	}
	d.Params = d.Params[1:]
	return p.Type(d.Config)
}

// skipAbsent removes parameters that the configuration does not have from the front of the list. It
// reports whether one is left.
func (d *Declarer[L]) skipAbsent() bool {
	for len(d.Params) > 0 && !d.Params[0].present(d.Config) {
		d.Params = d.Params[1:]
	}
	return len(d.Params) > 0
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
func typeSum(c *Config) ptx.Type      { return PTXTypes[c.Accum()] }
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
	// Handed is the address of the accumulators that blocks with stream-K hand over, and Flags that
	// of a flag for each warp, which is set while they wait there. See streamk.go.
	Handed, Flags device.Ptr
	// OperandSums are the addresses of the sums along K of A and B, of a product with zero points.
	OperandSums [gemm.B + 1]device.Ptr
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
	gemm.FunctionData: "data", gemm.RowZero: "rowZero", gemm.ColZero: "colZero",
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
			if a.Problem.Beta != 0 {
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
	streamParams,
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
	d := &Declarer[Args]{Kernel: k, Config: &c, Params: sharedParams}
	g.M, g.N, g.K = d.Value("M"), d.Value("N"), d.Value("K")
	g.A = g.declareMatrix(d, "A", "ldA", c.TransA, g.M, g.K)
	g.B = g.declareMatrix(d, "B", "ldB", c.TransB, g.K, g.N)
	g.C = g.declareMatrix(d, "C", "ldC", false, g.M, g.N)
	g.alpha, g.beta = d.Value("alpha"), d.Value("beta")
	g.ReadC = g.Ne(d.Value("readC"), 0)
	g.declareVectors(d, gemm.Bias, gemm.RowScale, gemm.ColScale)
	if d.Has("D") {
		g.Residual = g.declareMatrix(d, "D", "ldD", false, g.M, g.N)
	}
	g.declareVectors(d, gemm.OutScale)
	if d.Has("factor") {
		g.factor = g.declareMatrix(d, "factor", "ldFactor", false, g.M, g.N)
	}
	g.declareVectors(d, gemm.FunctionData)
	if d.Has("scalesA") {
		g.ScalesA = g.declareScales(d, "A", c.ScaleA, g.M)
		g.ScalesB = g.declareScales(d, "B", c.ScaleB, g.N)
	}
	if d.Has("row0") {
		g.row0, g.col0 = d.Value("row0"), d.Value("col0")
	}
	g.KBegin, g.KEnd = 0, g.K
	if d.Has("part") {
		g.declareSplit(d)
	}
	if d.Has("partLength") {
		g.partLength = d.Value("partLength")
	}
	if d.Has("handed") {
		g.handed, g.flags = d.Pointer("handed"), d.Pointer("flags")
	}
	if d.Has("count") {
		g.count = d.Value("count")
	}
	if d.Has("ends") {
		g.ends = d.Pointer("ends").ReadOnly()
	}
	for o := range g.Strides {
		if name := "stride" + gemm.Operand(o).String(); d.Has(name) {
			g.Strides[o] = d.Value(name)
		}
	}
	return g
}

// declareMatrix declares the pointer to a matrix of rows×cols elements, or to one that is stored
// transposed, and its leading dimension. All matrices but C are read-only.
func (g *Writer) declareMatrix(d *Declarer[Args], name, ldName string, trans bool, rows, cols build.Reg) build.Matrix {
	at := d.Pointer(name)
	if name != "C" {
		at = at.ReadOnly()
	}
	ld := d.Value(ldName)
	if trans {
		return g.Matrix(at, cols, rows, ld).T()
	}
	return g.Matrix(at, rows, cols, ld)
}

// declareVectors declares the pointers to those of the given vectors that the epilogue reads.
func (g *Writer) declareVectors(d *Declarer[Args], operands ...gemm.Operand) {
	for _, o := range operands {
		if d.Has(vectorParams[o]) {
			g.vectors[o] = d.Pointer(vectorParams[o]).ReadOnly()
		}
	}
}
