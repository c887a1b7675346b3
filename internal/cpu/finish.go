package cpu

import (
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu/asm"
	"tilework/internal/gemm"
)

// finisher turns sums into what C is to hold: β·C where the micro-kernels could
// not add it, the epilogue, and the rounding to C's type. It works on a tile of
// C that was just computed and so is still in the cache, in vectors where the kernel
// has them for it and otherwise in plain Go.
type finisher[T scalar] struct {
	needed   bool // false: there is nothing to finish
	epilogue gemm.Epilogue
	bias     []byte
	biasT    []T // where it is of the type of the sums
	// What else the epilogue reads: scales in the type of the sums, the residual in C's.
	rowScale, colScale, outScale []T
	residual                     []byte
	ldd                          int
	vectors                      *asm.Finish[T]
	act                          func(m, n int, c *T, ldc int) // the activation in vectors, if there is one
	// late says that the activation takes so long that it pays to have many elements to
	// compute it of; all else is done best as soon as a few are there.
	late bool

	// For a C of another type than the sums: its memory and the conversions.
	to     dtype.Type
	raw    []byte
	ld     int
	beta   T
	form   asm.Form
	widen  func(dst []T, raw []byte, at int)
	narrow func(raw []byte, at int, src []T)
}

// prepare readies an f of zeros for p and the kernel mk; the textbook's has none.
func (f *finisher[T]) prepare(p *gemm.Problem, b gemm.Buffers, mk *micro[T]) {
	converts := p.C.Type != dtype.Of[T]()
	if !converts && p.Epilogue == (gemm.Epilogue{}) {
		return
	}
	f.needed, f.epilogue, f.bias, f.to = true, p.Epilogue, b.Bias, p.C.Type
	if mk == nil {
		f.vectors = &asm.Finish[T]{}
	} else {
		f.vectors, f.form = &mk.Finish, mk.wide[p.C.Type]
	}
	f.act = activation(f.vectors, p.Epilogue.Activation)
	f.late = p.Epilogue.Activation > gemm.ActReLU
	f.rowScale, f.colScale = dtype.View[T](b.Extras[gemm.RowScale]), dtype.View[T](b.Extras[gemm.ColScale])
	f.outScale = dtype.View[T](b.Extras[gemm.OutScale])
	f.residual, f.ldd = b.Extras[gemm.Residual], p.Residual.LD
	if !converts {
		f.biasT = dtype.View[T](b.Bias)
	} else {
		f.raw, f.ld, f.beta = b.C, p.C.LD, T(p.Beta)
		f.widen, f.narrow = widening[T](p.C.Type), narrowing[T](p.C.Type)
	}
}

// Finish finishes sums, M×N of α·op(A)·op(B) + β·C in the type that the product is summed in
// without padding, as the product would have been: it does what the epilogue says, with the
// operands in b, and writes the C there. The sums are lost.
func (pl *Plan) Finish(sums []byte, b gemm.Buffers) {
	p := pl.Problem
	p.Beta = 0
	switch k := pl.Kernel; p.Accum() {
	case dtype.F32:
		finish(&p, b, k.f32, dtype.View[float32](sums))
	case dtype.F64:
		finish(&p, b, k.f64, dtype.View[float64](sums))
	default:
		finish(&p, b, k.i32, dtype.View[int32](sums))
	}
}

func finish[T scalar](p *gemm.Problem, b gemm.Buffers, mk *micro[T], sums []T) {
	var f finisher[T]
	f.prepare(p, b, mk)
	if f.needed {
		f.tile(sums, p.N, 0, 0, p.M, p.N, make([]T, finishing))
	}
	if f.raw != nil {
		return
	}
	c := dtype.View[T](b.C)
	for i := range p.M {
		copy(c[i*p.C.LD:][:p.N], sums[i*p.N:])
	}
}

// activation is the function of v that computes a, nil where it has none.
func activation[T scalar](v *asm.Finish[T], a gemm.Activation) func(m, n int, c *T, ldc int) {
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

// finishing is how many rows and columns of a tile are finished at once, and how many
// elements of memory that takes where C is converted.
const finishing = 256

// tile finishes rows×cols sums at c, which belong at (i0, j0) of C. tmp is memory for
// [finishing] elements.
func (f *finisher[T]) tile(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	for i := 0; i < rows; i += finishing {
		for j := 0; j < cols; j += finishing {
			c, rows, cols := c[i*ldc+j:], min(finishing, rows-i), min(finishing, cols-j)
			f.sum(c, ldc, i0+i, j0+j, rows, cols, tmp)
			f.rest(c, ldc, i0+i, j0+j, rows, cols)
		}
	}
}

// sum does the first part, for no more than [finishing] rows and columns: scales, and what
// is added.
func (f *finisher[T]) sum(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	if f.raw != nil && f.beta != 0 {
		f.addOld(c, ldc, i0, j0, rows, cols, tmp)
	}
	if len(f.rowScale)+len(f.colScale) > 0 {
		f.scale(c, ldc, i0, j0, rows, cols)
	}
	switch f.epilogue.Bias {
	case gemm.BiasRow:
		f.biasRow(c, ldc, f.biases(i0, rows, tmp), cols)
	case gemm.BiasCol:
		f.biasCol(c, ldc, f.biases(j0, cols, tmp), rows)
	}
}

// scale multiplies rows and columns by their scales, one after the other, as each product is
// rounded.
func (f *finisher[T]) scale(c []T, ldc, i0, j0, rows, cols int) {
	for i := range rows {
		row := c[i*ldc:][:cols]
		if len(f.rowScale) > 0 {
			for x := range row {
				row[x] *= f.rowScale[i0+i]
			}
		}
		if len(f.colScale) > 0 {
			for x, v := range f.colScale[j0:][:cols] {
				row[x] *= v
			}
		}
	}
}

// addLate does what comes behind the activation, but for the rounding.
func (f *finisher[T]) addLate(c []T, ldc, i0, j0, rows, cols int) {
	var most T
	if f.epilogue.Saturate {
		most = T(f.to.Info().Max)
	}
	for i := range rows {
		row := c[i*ldc:][:cols]
		if f.epilogue.Residual {
			at := (i0+i)*f.ldd + j0
			if f.raw == nil {
				for x, v := range dtype.View[T](f.residual)[at:][:cols] {
					row[x] += v
				}
			} else {
				for x := range row {
					row[x] += T(f.to.At(f.residual, at+x))
				}
			}
		}
		if f.epilogue.OutScale {
			for x := range row {
				row[x] *= f.outScale[0]
			}
		}
		if f.epilogue.Saturate {
			for x, v := range row {
				switch { // NaN stays
				case v > most:
					row[x] = most
				case v < -most:
					row[x] = -most
				}
			}
		}
	}
}

// rest does the other, for any number of them: the activation, what comes behind it and the
// rounding.
func (f *finisher[T]) rest(c []T, ldc, i0, j0, rows, cols int) {
	switch act := f.epilogue.Activation; {
	case act == gemm.ActNone:
	case f.act != nil:
		f.act(rows, cols, &c[0], ldc)
	default:
		apply := act.Info().F
		for i := range rows {
			for x, v := range c[i*ldc:][:cols] {
				c[i*ldc+x] = T(apply(float64(v)))
			}
		}
	}
	if f.epilogue.Residual || f.epilogue.OutScale || f.epilogue.Saturate {
		f.addLate(c, ldc, i0, j0, rows, cols)
	}
	if f.raw != nil {
		f.round(c, ldc, i0, j0, rows, cols)
	}
}

// addOld adds β times the old C.
func (f *finisher[T]) addOld(c []T, ldc, i0, j0, rows, cols int, tmp []T) {
	whole := 0
	if f.form.AddOld != nil {
		if whole = cols &^ 7; whole > 0 {
			f.form.AddOld(rows, whole, single(c), ldc, f.half(i0, j0), f.ld, float32(f.beta))
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
func (f *finisher[T]) round(c []T, ldc, i0, j0, rows, cols int) {
	whole := 0
	if f.form.Narrow != nil {
		if whole = cols &^ 7; whole > 0 {
			f.form.Narrow(rows, whole, f.half(i0, j0), f.ld, single(c), ldc)
		}
	}
	if whole == cols {
		return
	}
	for i := range rows {
		f.narrow(f.raw, (i0+i)*f.ld+j0+whole, c[i*ldc+whole:i*ldc+cols])
	}
}

// half is where element (i, j) of a C of 16 bits stands, single the sums where they are
// float32, as they are for such a C.
func (f *finisher[T]) half(i, j int) *uint16 {
	return (*uint16)(unsafe.Pointer(&f.raw[2*(i*f.ld+j)]))
}

func single[T scalar](c []T) *float32 { return (*float32)(unsafe.Pointer(unsafe.SliceData(c))) }

// biases are n of the bias's elements, from the one at on, in the type of the sums.
func (f *finisher[T]) biases(at, n int, tmp []T) []T {
	if f.raw == nil {
		return f.biasT[at : at+n]
	}
	whole := 0
	if f.form.Lay != nil {
		whole = n &^ 7
		f.form.Lay(1, whole, word(tmp), whole, &f.bias[at*f.to.Size()], 0)
	}
	f.widen(tmp[whole:n], f.bias, at+whole)
	return tmp[:n]
}

func (f *finisher[T]) biasRow(c []T, ldc int, bias []T, cols int) {
	if f.vectors.BiasRow != nil {
		f.vectors.BiasRow(len(bias), cols, &c[0], ldc, &bias[0])
		return
	}
	for i, v := range bias {
		for x := range cols {
			c[i*ldc+x] += v
		}
	}
}

func (f *finisher[T]) biasCol(c []T, ldc int, bias []T, rows int) {
	if f.vectors.BiasCol != nil {
		f.vectors.BiasCol(rows, len(bias), &c[0], ldc, &bias[0])
		return
	}
	for i := range rows {
		for x, v := range bias {
			c[i*ldc+x] += v
		}
	}
}

// The conversions, made once: to make a function of one costs memory.
var narrowings = map[dtype.Type]func(raw []byte, at int, src []float32){
	dtype.F16:    narrowWith(dtype.Float16From32),
	dtype.BF16:   narrowWith(dtype.BFloat16From32),
	dtype.F8E4M3: narrowWith(dtype.Float8E4M3From32),
	dtype.F8E5M2: narrowWith(dtype.Float8E5M2From32),
}

// narrowing is the conversion from what was summed to an element type of C.
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
