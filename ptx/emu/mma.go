package emu

import (
	"fmt"
	"math"

	"tilework/ptx"
)

// Accumulate selects how matrix instructions sum products of f16, bf16, tf32 and 8-bit floats.
// Products of float64 are accumulated by one fused multiply-add after the other in the order of K.
// Sums of integers are exact.
type Accumulate uint8

const (
	// Hopper reproduces the results of an H200 to the last bit, as observed. Up to 16 products and
	// the accumulator are aligned to the largest of them, truncated and added. The sum is truncated
	// again to float32, or rounded to f16. Two forms of mma are composed of other operations: with
	// 8-bit floats, of two f16 sums of the tensor core, which are then added to the accumulator;
	// and m8n8k4, of fused float32 operations. With 8-bit floats, wgmma adds 32 products and the
	// accumulator in 14 bits, and its float32 results have no more than 14 bits.
	Hopper Accumulate = iota
	// Nearest adds the products in float64 and rounds the sum to nearest once.
	Nearest
)

const (
	// termsPerSum is the number of products that a tensor core adds at a time. guardBits is the
	// number of bits that it keeps below the last bit of a float32.
	termsPerSum = 16
	guardBits   = 2
	// alignedBits is the number of bits that a sum keeps after the leading bit of its largest term.
	// fp8Bits is the same for wgmma with 8-bit floats.
	alignedBits = 23 + guardBits
	fp8Bits     = 13
	// minAlignExp is the minimum exponent to which a sum is aligned.
	minAlignExp = -133
)

// matrixProduct is a matrix instruction: d = a·b + c.
type matrixProduct struct {
	m, n, k    int
	fa, fb, fc *fragment
	fd         *fragment
	a, b, c, d *elementType
	pa, pb     []uint32
	pc, pd     []uint32
	kind       ptx.Type // type of the accumulators
	bitOp      string   // "and" or "xor", for 1-bit elements
	saturate   bool
	rnd        rounding
	quadrants  int // 4 for m8n8k4, which computes 4 products at once; otherwise 1
	unit       matrixUnit
	minExps    [2]int // exponents at which subnormal factors of A and B are aligned
	// minExpScale is the same for scales.
	minExpScale int
	scales      *scaleOperands  // nil without block scales
	sparse      *sparseMetadata // nil for a dense A
}

// matrixUnit identifies the arithmetic of a matrix product.
type matrixUnit uint8

const (
	mmaUnit matrixUnit = iota
	wgmmaUnit
	blackwellUnit // tcgen05.mma and block scales
)

// minExponents holds the exponents of the smallest normal numbers.
var minExponents = map[ptx.Type]int{
	ptx.F16: formatF16.minExp, ptx.BF16: formatBF16.minExp, ptx.TF32: formatTF32.minExp, ptx.F32: formatF32.minExp,
	ptx.E4M3: formatE4M3.minExp, ptx.E5M2: formatE5M2.minExp,
	ptx.E2M3: formatE2M3.minExp, ptx.E3M2: formatE3M2.minExp, ptx.E2M1: formatE2M1.minExp,
	ptx.UE4M3: formatE4M3.minExp, ptx.UE8M0: formatUE8M0.minExp,
}

// shapeOf parses the shape modifier, such as m16n8k16.
func shapeOf(i *ptx.Instr) (m, n, k int) {
	for _, mod := range i.Mods {
		if c, _ := fmt.Sscanf(mod, "m%dn%dk%d", &m, &n, &k); c == 3 {
			return m, n, k
		}
	}
	return 0, 0, 0
}

// elementsOf returns the types of d, a, b and c of a matrix instruction. wmma with f16 specifies
// only those of d and c.
func elementsOf(i *ptx.Instr) (d, a, b, c ptx.Type) {
	var ts []ptx.Type
	for _, mod := range i.Mods {
		if t, ok := ptx.ParseType(mod); ok {
			ts = append(ts, t)
		}
	}
	if len(ts) == 2 {
		return ts[0], ptx.F16, ptx.F16, ts[1]
	}
	return ts[0], ts[1], ts[2], ts[3]
}

func decodeMma(d *decoder) execFunc {
	i := d.i
	td, ta, tb, tc := elementsOf(i)
	p := &matrixProduct{
		kind: td, bitOp: i.Mod("bool"), saturate: i.Has("satfinite"), quadrants: 1,
		a: elementTypes[ta], b: elementTypes[tb], c: elementTypes[tc], d: elementTypes[td],
	}
	p.minExps = [2]int{minExponents[ta], minExponents[tb]}
	switch kind := kindOf(i); {
	case kind != nil:
		p.unit = blackwellUnit
		if kind.padded {
			p.a, p.b = paddedType(ta), paddedType(tb)
		}
	case ta.Bits() == 8:
		p.minExps = [2]int{formatF16.minExp, formatF16.minExp} // fp8Sum computes in f16
	}
	p.m, p.n, p.k = shapeOf(i)
	p.pd, p.pa, p.pb, p.pc = d.vector(0), d.vector(1), d.vector(2), d.vector(3)
	if r, ok := roundings[i.Mod("rnd")]; ok {
		p.rnd = r
	}
	switch {
	case p.a == nil || p.b == nil || p.c == nil || p.d == nil:
		return nil
	case i.Op == "wmma":
		plain := func(rows, cols int, slots []uint32, e *elementType) *fragment {
			return plainFragment(rows, cols, len(slots)*e.perRegister())
		}
		p.fa, p.fb = plain(p.m, p.k, p.pa, p.a), plain(p.k, p.n, p.pb, p.b)
		p.fc, p.fd = plain(p.m, p.n, p.pc, p.c), plain(p.m, p.n, p.pd, p.d)
	case p.m == 8 && p.k == 4 && ta == ptx.F16:
		p.fa, p.fb = quadrantA(i.Mod("alayout") == "row"), quadrantB(i.Mod("blayout") == "row")
		p.fc, p.fd = quadrantC(tc), quadrantC(td)
		p.quadrants = 4
	default:
		p.fc = fragmentC(p.m, p.n)
		p.fd = p.fc
		p.fb = fragmentB(p.k, p.n, p.b.perRegister())
		columns := p.k
		if i.Mod("sparse") != "" {
			p.sparse = d.sparseMetadata(p)
			columns /= 2
		}
		p.fa = fragmentA(p.m, columns, p.a.perRegister())
		if i.Has("block_scale") {
			p.scales = d.scaleOperands(p)
		}
	}
	return aligned(p.exec)
}

// aligned returns do for an instruction that all lanes of the warp must execute together.
func aligned(do execFunc) execFunc {
	return func(w *warp, in *inst) {
		if !w.converge(in, full) {
			return
		}
		if w.active != full {
			w.misuse(in, "lanes %#08x of the warp do not execute the instruction: want all lanes", full&^w.active)
			return
		}
		w.emitWarpSync(in, full, false)
		do(w, in)
	}
}

func (p *matrixProduct) exec(w *warp, in *inst) {
	a, b := make([]float64, p.fa.rows*p.fa.cols), make([]float64, p.fb.rows*p.fb.cols)
	c := make([]float64, p.fc.rows*p.fc.cols)
	w.gatherMatrix(a, p.fa, p.a, p.pa)
	w.gatherMatrix(b, p.fb, p.b, p.pb)
	w.gatherMatrix(c, p.fc, p.c, p.pc)
	mode, terms := w.block.run.launch.Accumulate, make([]float64, p.fa.cols)
	var places []int // of the elements of a row of A, if A is sparse
	for q := range p.quadrants {
		for i := range p.m {
			row := a[(q*p.m+i)*p.fa.cols:][:p.fa.cols]
			if p.sparse != nil {
				if places = p.sparse.row(w, in, i, places); places == nil {
					return
				}
			}
			for j := range p.n {
				for k := range terms {
					place := k
					if places != nil {
						place = places[k]
					}
					terms[k] = b[(q*p.k+place)*p.n+j]
				}
				at := &c[(q*p.m+i)*p.n+j]
				if p.scales != nil {
					*at = p.scaledElement(mode, row, terms, *at, p.scales.ofRow(w, i), p.scales.ofColumn(w, j))
				} else {
					*at = p.element(mode, row, terms, *at)
				}
			}
		}
	}
	w.scatterMatrix(c, p.fd, p.d, p.pd)
}

// element returns the dot product of row and col plus c.
func (p *matrixProduct) element(mode Accumulate, row, col []float64, c float64) float64 {
	switch {
	case p.bitOp != "":
		return wrap(c+popcount(p.bitOp, row, col), false)
	case p.kind == ptx.S32: // sums of 256 products of 8-bit integers are exact
		for k, x := range row {
			c += x * col[k]
		}
		return wrap(c, p.saturate)
	case p.kind == ptx.F64:
		for k, x := range row {
			c = fma64(x, col[k], c, p.rnd)
		}
		return c
	case mode == Nearest:
		for k, x := range row {
			c += x * col[k]
		}
		return p.rounded(c)
	case p.unit == blackwellUnit:
		return p.blackwellSum(row, col, c, 0)
	case p.quadrants > 1:
		return p.fmaSum(row, col, float32(c))
	case p.a.bits == 8 && p.unit == wgmmaUnit:
		sum := p.alignedSum(row, col, c, fp8Bits)
		if p.kind == ptx.F16 {
			return formatF16.round(sum, nearest) + 0
		}
		return truncate(sum, fp8Bits)
	case p.a.bits == 8:
		return p.fp8Sum(row, col, c)
	}
	for len(row) > 0 {
		n := min(termsPerSum, len(row))
		c = p.tensorCoreSum(row[:n], col[:n], c)
		row, col = row[n:], col[n:]
	}
	return c
}

// fmaSum computes element for m8n8k4. For float32, it sums all products and adds c. For f16, it
// sums the first two products and the last two separately and adds c between them.
func (p *matrixProduct) fmaSum(row, col []float64, c float32) float64 {
	sum := func(from, to int) (s float32) {
		for k := from; k < to; k++ {
			s = float32(fmaOdd(row[k], col[k], float64(s)))
		}
		return s
	}
	if p.kind == ptx.F16 {
		return p.rounded(float64(sum(0, 2) + c + sum(2, 4)))
	}
	return p.rounded(float64(sum(0, 4) + c))
}

// tensorCoreSum returns the dot product of row and col plus c as a tensor core computes it: rounded
// to nearest for f16 and truncated for float32. A zero result is positive.
func (p *matrixProduct) tensorCoreSum(row, col []float64, c float64) float64 {
	sum := p.alignedSum(row, col, c, alignedBits)
	if p.kind == ptx.F16 {
		return formatF16.round(sum, nearest) + 0
	}
	if math.Abs(sum) >= 0x1p128 {
		return math.Inf(int(math.Copysign(1, sum)))
	}
	return formatF32.round(sum, toZero) + 0
}

// rounded rounds v to nearest in the type of the accumulators.
func (p *matrixProduct) rounded(v float64) float64 {
	if p.kind == ptx.F16 {
		return formatF16.round(v, nearest)
	}
	return float64(float32(v))
}

// fp8Sum computes element for 8-bit floats. A first sum takes the lower two of the four elements in
// each register, and a second sum the upper two.
func (p *matrixProduct) fp8Sum(row, col []float64, c float64) float64 {
	var sum float64
	for half := range 2 {
		var x, y [termsPerSum]float64
		n := 0
		for k := 2 * half; k < len(row); k += 4 {
			copy(x[n:], row[k:k+2])
			copy(y[n:], col[k:k+2])
			n += 2
		}
		sum = p.tensorCoreSum(x[:n], y[:n], sum)
	}
	return p.rounded(addOdd(sum, c))
}

// wrap returns an integer as an int32: modulo 2^32, or saturated.
func wrap(v float64, saturate bool) float64 {
	if saturate {
		return min(max(v, math.MinInt32), math.MaxInt32)
	}
	return float64(int32(int64(v)))
}

// popcount returns the number of ones in the AND or XOR of two rows of bits.
func popcount(op string, row, col []float64) float64 {
	n := 0
	for k, x := range row {
		if op == "and" && x*col[k] == 1 || op == "xor" && x != col[k] {
			n++
		}
	}
	return float64(n)
}

// alignedSum returns the dot product of row and col plus c as a tensor core computes it, before it
// is rounded to the type of the accumulators: each term is truncated after the given number of bits
// below the leading bit of the largest term. (Fasi et al., "Numerical behavior of NVIDIA tensor
// cores", 2021, found the same for older GPUs, with fewer bits and terms.) For this alignment,
// subnormal factors and a subnormal c have the exponent of the smallest normal number. All values
// are normal as float64.
func (p *matrixProduct) alignedSum(row, col []float64, c float64, bits int) float64 {
	special := exponentOf(c)
	exp := max(minAlignExp, alignExponent(c, minExponents[p.kind]))
	for k, x := range row {
		// A tensor core adds the exponents of the factors. That of the product can be greater by
		// one.
		ex, ey := alignExponent(x, p.minExps[0]), alignExponent(col[k], p.minExps[1])
		exp, special = max(exp, ex+ey), max(special, ex, ey)
	}
	if special == specialExponent {
		for k, x := range row {
			c += x * col[k]
		}
		return c
	}
	scale := powerOfTwo(bits - exp)
	sum := int64(c * scale)
	for k, x := range row {
		sum += int64(x * col[k] * scale)
	}
	return float64(sum) / scale
}

// specialExponent is the result of exponentOf for infinities and NaNs.
const specialExponent = 1024

// exponentOf returns e for a normal x with |x| in [2^e, 2^(e+1)), and -1023 for 0.
func exponentOf(x float64) int { return int(math.Float64bits(x)>>52&0x7ff) - 1023 }

// alignExponent returns the exponent by which a tensor core aligns x. It is minExp for a subnormal
// x.
func alignExponent(x float64, least int) int {
	if x == 0 {
		return exponentOf(0)
	}
	return max(exponentOf(x), least)
}

// powerOfTwo returns 2^e for e from -1022 to 1023.
func powerOfTwo(e int) float64 { return math.Float64frombits(uint64(e+1023) << 52) }

// truncate truncates sum after the given number of bits below its leading bit.
func truncate(sum float64, bits int) float64 {
	if sum == 0 || math.IsInf(sum, 0) || sum != sum {
		return sum
	}
	ulp := exponentOf(sum) - bits
	return math.Ldexp(math.Trunc(math.Ldexp(sum, -ulp)), ulp)
}
