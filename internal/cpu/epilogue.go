package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// epilogue turns the sums of a tile into elements of C: it adds β·C if the micro-kernels could not,
// applies the operations of gemm.Epilogue, and rounds to C's type. It works on a tile that was just
// computed and is still in the cache, in vectors if the kernel has functions for it and otherwise
// in plain Go.
type epilogue[T scalar] struct {
	needed bool // false if there is nothing to do
	spec   gemm.Epilogue
	bias   []byte
	biasT  []T // bias, if its type is T
	// Operands of the epilogue: scales of type T, and a residual of C's type.
	rowScale, colScale, outScale []T
	residual                     []byte
	ldr                          int
	up                           []T // the second product of a gated one, rows ldup apart
	ldup                         int
	vectors                      *asm.Epilogue[T]
	act                          func(m, n int, c *T, ldc int) // the activation in vectors, or nil

	zeros zeroTerms[T] // correct the sums before anything else

	// floatEpilogue runs on integer sums that are converted to float32. They are converted in place
	// and multiplied by the factor.
	floatEpilogue *epilogue[float32]
	factor        []T // a single element; empty if the sums need no conversion

	// C's memory and conversions, if C has another type than the sums.
	cType  dtype.Type
	raw    []byte
	ld     int
	beta   T
	packer asm.Packer
	widen  func(dst []T, raw []byte, at int)
	narrow func(raw []byte, at int, src []T)
}

// prepare sets up the epilogue of p for sums of type T and the kernel mk, which is nil for the
// naive kernel. f must be zero.
func (f *epilogue[T]) prepare(p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T]) {
	converts := p.Out() != p.Accum()
	if !converts && p.Epilogue == (gemm.Epilogue{}) {
		return
	}
	if mk == nil {
		f.vectors = &asm.Epilogue[T]{}
	} else {
		f.vectors = &mk.Epilogue
	}
	f.zeros = zeroTermsOf[T](p, b)
	if p.ScaleType() != dtype.Of[T]() {
		f.needed, f.floatEpilogue = true, new(epilogue[float32])
		f.floatEpilogue.prepare(p, b, mk.floatKernel())
		f.floatEpilogue.factor = []float32{float32(real(p.Alpha))}
		if !p.ReadsAB() {
			f.floatEpilogue.factor[0] = 0 // 0 even if alpha is infinite
		}
		return
	}
	f.needed, f.spec, f.bias, f.cType = true, p.Epilogue, b[gemm.Bias], p.Out()
	if mk != nil {
		f.packer = mk.wideners.of(p.Out())
	}
	f.act = activation(f.vectors, p.Epilogue.Activation)
	f.rowScale, f.colScale = dtype.View[T](b[gemm.RowScale]), dtype.View[T](b[gemm.ColScale])
	f.outScale = dtype.View[T](b[gemm.OutScale])
	f.residual, f.ldr = b[gemm.Residual], p.Layouts[gemm.Residual].LD
	if p.Epilogue.Gated {
		f.up, f.ldup = dtype.View[T](b[gemm.Up]), p.N // Run has put it there
	}
	if !converts {
		f.biasT = dtype.View[T](b[gemm.Bias])
	} else {
		f.raw, f.ld, f.beta = b[gemm.C], p.C().LD, T(real(p.Beta))
		f.widen, f.narrow = widening[T](p.Out()), narrowing[T](p.Out())
	}
}

// alphaOf returns the factor that the micro-kernels apply to sums of type T: alpha, or 1 if the
// sums are converted first.
func alphaOf[T scalar](p *gemm.Problem) T {
	if p.ScaleType() != dtype.Of[T]() {
		return 1
	}
	return T(real(p.Alpha))
}

// floatKernel returns the micro-kernel whose epilogue finishes mk's sums after their conversion to
// float32. nil selects plain Go.
func (mk *microKernel[T]) floatKernel() *microKernel[float32] {
	if mk == nil {
		return nil
	}
	return mk.floatEpilogue
}

// Finish applies the epilogue to sums, which hold M×N elements of α·op(A)·op(B) + β·C in the
// problem's ScaleType without padding, and writes C. The operands are in b. For a gated product
// b[gemm.Up] holds the second product's sums. Finish overwrites sums, and returns true.
func (pl *Plan) Finish(sums []byte, b gemm.Buffers) bool {
	p, k := *pl.Problem, pl.Kernel
	p.Beta, p.Epilogue = 0, p.Epilogue.WithoutZeros() // the sums are correct
	switch t := p.ScaleType(); {
	case p.Converts():
		applyEpilogue(&p, &b, k.i32.floatKernel(), dtype.View[float32](sums))
	case t == dtype.F32:
		applyEpilogue(&p, &b, k.f32, dtype.View[float32](sums))
	case t == dtype.F64:
		applyEpilogue(&p, &b, k.f64, dtype.View[float64](sums))
	default:
		applyEpilogue(&p, &b, k.i32, dtype.View[int32](sums))
	}
	return true
}

func applyEpilogue[T scalar](p *gemm.Problem, b *gemm.Buffers, mk *microKernel[T], sums []T) {
	var f epilogue[T]
	f.prepare(p, b, mk)
	if f.needed {
		f.apply(sums, p.N, 0, 0, p.M, p.N, make([]T, epilogueCols))
	}
	if f.raw != nil {
		return
	}
	c := dtype.View[T](b[gemm.C])
	for i := range p.M {
		copy(c[i*p.C().LD:][:p.N], sums[i*p.N:])
	}
}

// activation returns v's function for a, or nil if it has none.
func activation[T scalar](v *asm.Epilogue[T], a gemm.Activation) func(m, n int, c *T, ldc int) {
	switch a {
	case gemm.ActReLU:
		return v.ReLU
	case gemm.ActGELU:
		return v.GELU
	case gemm.ActGELUTanh:
		return v.GELUTanh
	case gemm.ActSiLU:
		return v.SiLU
	}
	return nil
}

// The epilogue processes a tile in blocks of epilogueRows×epilogueCols: large enough that the calls
// take little time, and small enough to stay in L1 from one step to the next. A block with
// conversions needs epilogueCols elements of memory.
const (
	epilogueCols = 256
	epilogueRows = 12
)

// apply runs the epilogue on rows×cols sums at c, which belong at (i0, j0) of C. tmp is memory for
// [epilogueCols] elements.
func (f *epilogue[T]) apply(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	if f.zeros.row != nil {
		f.zeros.correct(f.vectors, c, ldc, i0, j0, rows, cols)
	}
	if f.floatEpilogue != nil {
		f.floatEpilogue.apply(asFloat32(c), ldc, i0, j0, rows, cols, asFloat32(tmp))
		return
	}
	for j := 0; j < cols; j += epilogueCols {
		n := min(epilogueCols, cols-j)
		for i := 0; i < rows; i += epilogueRows {
			m := min(epilogueRows, rows-i)
			if below := i + m; below < rows {
				f.prefetch(i0+below, j0+j, min(epilogueRows, rows-below), n)
			}
			f.applyBlock(c[i*ldc+j:], ldc, i0+i, j0+j, m, n, tmp)
		}
	}
}

// prefetch fetches the matrix operands of rows×cols elements at (i0, j0) into the cache while their
// sums are computed.
func (f *epilogue[T]) prefetch(i0, j0, rows, cols int) {
	if f.floatEpilogue != nil {
		f.floatEpilogue.prefetch(i0, j0, rows, cols)
		return
	}
	if f.spec.Residual {
		asm.FetchRows(rows, f.cType.Bytes(cols), &f.residual[f.cType.Bytes(i0*f.ldr+j0)], f.cType.Bytes(f.ldr))
	}
	if f.spec.Gated {
		t := dtype.Of[T]()
		asm.FetchRows(rows, t.Bytes(cols), (*byte)(unsafe.Pointer(&f.up[i0*f.ldup+j0])), t.Bytes(f.ldup))
	}
}

// applyBlock runs all steps on at most [epilogueRows] rows and [epilogueCols] columns.
func (f *epilogue[T]) applyBlock(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	var t sums[T] // set field by field: a composite literal causes store-forwarding stalls
	t.c, t.ldc, t.rows, t.cols = c, ldc, rows, cols
	v, e := f.vectors, &f.spec
	if len(f.factor) > 0 {
		t.convert(v.FromInt32, f.factor)
	}
	if f.raw != nil && f.beta != 0 {
		f.addBetaC(c, ldc, i0, j0, rows, cols, tmp)
	}
	if len(f.rowScale) > 0 {
		t.zipVector(v.ScaleRow, times, f.rowScale[i0:], 1, 0)
	}
	if len(f.colScale) > 0 {
		t.zipVector(v.ScaleCol, times, f.colScale[j0:], 0, 1)
	}
	switch e.Bias {
	case gemm.BiasRow:
		t.zipVector(v.BiasRow, plus, f.biases(i0, rows, tmp), 1, 0)
	case gemm.BiasCol:
		t.zipVector(v.BiasCol, plus, f.biases(j0, cols, tmp), 0, 1)
	}
	if e.Activation != gemm.ActNone {
		f.applyActivation(&t)
	}
	if e.Gated {
		t.zipMatrix(v.Times, times, f.up[i0*f.ldup+j0:], f.ldup)
	}
	if e.Residual {
		f.addResidual(&t, i0, j0)
	}
	if e.OutScale {
		t.zipVector(v.Scale, times, f.outScale, 0, 0)
	}
	if e.Saturate {
		f.saturate(&t)
	}
	if f.raw != nil {
		f.round(c, ldc, i0, j0, rows, cols)
	}
}

// sums is a block of rows×cols sums, rows ldc apart.
type sums[T scalar] struct {
	c               []T
	ldc, rows, cols int
}

func plus[T scalar](x, y T) T  { return x + y }
func times[T scalar](x, y T) T { return x * y }

// zipVector applies op to each element (i, j) and v[i*down+j*across]. It uses the given vector
// function unless it is nil.
func (t *sums[T]) zipVector(vectors func(m, n int, c *T, ldc int, v *T), op func(x, y T) T, v []T, down, across int) {
	if vectors != nil {
		vectors(t.rows, t.cols, &t.c[0], t.ldc, &v[0])
		return
	}
	for i := range t.rows {
		row := t.c[i*t.ldc:][:t.cols]
		for j, x := range row {
			row[j] = op(x, v[i*down+j*across])
		}
	}
}

// convert replaces int32 sums by float32 numbers times a factor. It uses the given vector function
// unless it is nil.
func (t *sums[T]) convert(vectors func(m, n int, c *T, ldc int, v *T), factor []T) {
	if vectors != nil {
		vectors(t.rows, t.cols, &t.c[0], t.ldc, &factor[0])
		return
	}
	for i := range t.rows {
		row := t.c[i*t.ldc:][:t.cols]
		for j, x := range dtype.View[int32](dtype.Bytes(row)) {
			row[j] = T(factor[0] * T(x))
		}
	}
}

// zipMatrix is zipVector for a matrix with rows ldv apart.
func (t *sums[T]) zipMatrix(vectors func(m, n int, c *T, ldc int, v *T, ldv int), op func(x, y T) T, v []T, ldv int) {
	if vectors != nil {
		vectors(t.rows, t.cols, &t.c[0], t.ldc, &v[0], ldv)
		return
	}
	t.zipVector(nil, op, v, ldv, 1)
}

// applyActivation applies the activation to the sums.
func (f *epilogue[T]) applyActivation(t *sums[T]) {
	if f.act != nil {
		f.act(t.rows, t.cols, &t.c[0], t.ldc)
		return
	}
	apply := f.spec.Activation.Info().F
	for i := range t.rows {
		row := t.c[i*t.ldc:][:t.cols]
		for j, x := range row {
			row[j] = T(apply(float64(x)))
		}
	}
}

// addResidual adds a matrix of C's type and widens it if necessary.
func (f *epilogue[T]) addResidual(t *sums[T], i0, j0 int) {
	at := i0*f.ldr + j0
	if f.cType == dtype.Of[T]() {
		t.zipMatrix(f.vectors.Add, plus, dtype.View[T](f.residual)[at:], f.ldr)
		return
	}
	whole := 0
	if f.packer.AddOld != nil {
		if whole = t.cols &^ 7; whole > 0 {
			f.packer.AddOld(t.rows, whole, floatAddr(t.c), t.ldc, halfAddr(f.residual, at), f.ldr, 1)
		}
	}
	for i := range t.rows {
		for j := whole; j < t.cols; j++ {
			t.c[i*t.ldc+j] += T(f.cType.At(f.residual, at+i*f.ldr+j))
		}
	}
}

// saturate clamps the sums to the finite range of C's type. NaN stays NaN.
func (f *epilogue[T]) saturate(t *sums[T]) {
	most := T(f.cType.Info().Max)
	for i := range t.rows {
		row := t.c[i*t.ldc:][:t.cols]
		for j, x := range row {
			row[j] = max(-most, min(x, most))
		}
	}
}

// addBetaC adds β times the old C.
func (f *epilogue[T]) addBetaC(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	whole := 0
	if f.packer.AddOld != nil {
		if whole = cols &^ 7; whole > 0 {
			f.packer.AddOld(rows, whole, floatAddr(c), ldc, halfAddr(f.raw, i0*f.ld+j0), f.ld, float32(f.beta))
		}
	}
	for i := range rows {
		old := tmp[:cols-whole]
		f.widen(old, f.raw, (i0+i)*f.ld+j0+whole)
		sums := c[i*ldc+whole:][:len(old)]
		for x, v := range old {
			sums[x] += T(f.beta * v)
		}
	}
}

// round writes the finished elements to C.
func (f *epilogue[T]) round(c []T, ldc, i0, j0, rows, cols int) {
	whole := 0
	if f.packer.Narrow != nil {
		if whole = cols &^ 7; whole > 0 {
			f.packer.Narrow(rows, whole, halfAddr(f.raw, i0*f.ld+j0), f.ld, floatAddr(c), ldc)
		}
	}
	if whole == cols {
		return
	}
	for i := range rows {
		f.narrow(f.raw, (i0+i)*f.ld+j0+whole, c[i*ldc+whole:i*ldc+cols])
	}
}

// halfAddr returns the address of an element of a 16-bit matrix. floatAddr returns that of the
// sums, which are float32 if C is a 16-bit matrix.
func halfAddr(raw []byte, at int) *uint16 { return (*uint16)(unsafe.Pointer(&raw[2*at])) }

func floatAddr[T scalar](c []T) *float32 { return (*float32)(unsafe.Pointer(unsafe.SliceData(c))) }

// asFloat32 returns the memory of int32 sums as float32.
func asFloat32[T scalar](c []T) []float32 { return dtype.View[float32](dtype.Bytes(c)) }

// biases returns n elements of the bias, from element at on, converted to T.
func (f *epilogue[T]) biases(at, n int, tmp []T) []T {
	if f.raw == nil {
		return f.biasT[at : at+n]
	}
	whole := 0
	if f.packer.CopyRows != nil {
		whole = n &^ 7
		f.packer.CopyRows(1, whole, wordAddr(tmp), whole, &f.bias[f.cType.Bytes(at)], 0)
	}
	f.widen(tmp[whole:n], f.bias, at+whole)
	return tmp[:n]
}

// narrowings holds the conversions, which are created once because creating one allocates memory.
var narrowings = map[dtype.Type]func(raw []byte, at int, src []float32){
	dtype.F32:    func(raw []byte, at int, src []float32) { copy(dtype.View[float32](raw)[at:], src) },
	dtype.F16:    narrowWith(dtype.Float16From32),
	dtype.BF16:   narrowWith(dtype.BFloat16From32),
	dtype.F8E4M3: narrowWith(dtype.Float8E4M3From32),
	dtype.F8E5M2: narrowWith(dtype.Float8E5M2From32),
}

// narrowing returns the conversion from the accumulator type to an element type of C.
func narrowing[T scalar](to dtype.Type) (f func(raw []byte, at int, src []T)) {
	f, _ = any(narrowings[to]).(func([]byte, int, []T))
	return f
}

func narrowWith[O dtype.Element](convert func(float32) O) func(raw []byte, at int, src []float32) {
	return func(raw []byte, at int, src []float32) {
		for i, v := range src {
			dtype.View[O](raw)[at+i] = convert(v)
		}
	}
}
