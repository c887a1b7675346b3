package emu

import (
	"math"

	"tilework/ptx"
)

// The arithmetic of Blackwell's tensor cores, after the published model of MMA-Sim
// (github.com/microsoft/MMA-Sim; Li et al., 2025). It was not compared with a GPU.

const (
	// blackwellMinExp is the exponent of a zero, to which a sum is aligned at least.
	blackwellMinExp = -126
	// scaledBits is the number of bits that a sum of products of 4-bit floats keeps after the
	// leading bit of its largest scale.
	scaledBits = 35
	// scaledGroup is the number of products of 4-bit floats that are added exactly.
	scaledGroup = 16
)

// decodeUE8M0 returns the value of a scale that is a power of 2.
func decodeUE8M0(b uint8) float64 {
	if b == 0xff {
		return math.NaN()
	}
	return math.Ldexp(1, int(b)-127)
}

// encodeUE8M0 returns the bits of the power of 2 v, or of the smallest scale if v is 0. The result
// for infinities is NaN.
func encodeUE8M0(v float64) uint64 {
	if v-v != 0 {
		return 0xff
	}
	return uint64(math.Ilogb(max(v, 0x1p-127)) + 127)
}

// decodeUE4M3 returns the value of a scale in e4m3 without a sign.
func decodeUE4M3(b uint8) float64 { return math.Abs(decodeE4M3(b)) }

// scaleOperands holds the scales of an mma with block scales (manual:
// "warp-level-block-scaling"). Each scale is a byte of a register. Lanes 4g to 4g+3 hold those of
// rows g and g+8 of A and of column g of B.
type scaleOperands struct {
	a, b         uint32   // slots of the registers
	partA, partB []uint32 // slots of the first byte and of the lanes that hold the scales
	n            int      // scales of a row
	decode       func(bits uint8) float64
}

// scaleOperands decodes the scales of the current instruction.
func (d *decoder) scaleOperands(p *matrixProduct) *scaleOperands {
	i := d.i
	s := &scaleOperands{n: kindOf(i).perRow}
	if i.Has("scale_vec::4X") {
		s.n = 4
	}
	t := ptx.UE8M0
	if s.decode = decodeUE8M0; i.Has("ue4m3") {
		t, s.decode = ptx.UE4M3, decodeUE4M3
	}
	p.minExpScale = minExponents[t]
	for k := range i.Args {
		switch i.Operand(k).Name {
		case "scale-a":
			s.a = d.vector(k)[0]
		case "scale-b":
			s.b = d.vector(k)[0]
		case "part-a":
			s.partA = d.vector(k)
		case "part-b":
			s.partB = d.vector(k)
		}
	}
	return s
}

// ofRow returns the scales of row i of A: two lanes of a quad hold those of two rows.
func (s *scaleOperands) ofRow(w *warp, i int) []float64 {
	lane := i % 8 * 4
	part := reg[uint16](w, s.partA[1])[lane]
	return s.read(reg[uint32](w, s.a)[lane+int(part&1)*2+i/8], reg[uint16](w, s.partA[0])[lane])
}

// ofColumn returns the scales of column j of B.
func (s *scaleOperands) ofColumn(w *warp, j int) []float64 {
	lane := j * 4
	part := reg[uint16](w, s.partB[1])[lane]
	return s.read(reg[uint32](w, s.b)[lane+int(part&3)], reg[uint16](w, s.partB[0])[lane])
}

func (s *scaleOperands) read(word uint32, first uint16) []float64 {
	values := make([]float64, s.n)
	for k := range values {
		values[k] = s.decode(uint8(word >> (8 * (int(first&3) + k))))
	}
	return values
}

// decodeSmall returns a function that decodes floats with a sign, exponent bits and fraction bits,
// without infinities and NaNs.
func decodeSmall(exponent, fraction int) func(bits uint64) float64 {
	bias := 1<<(exponent-1) - 1
	return func(b uint64) float64 {
		e, f := int(b>>fraction)&(1<<exponent-1), float64(b&(1<<fraction-1))
		v := math.Ldexp(f, 1-bias-fraction)
		if e > 0 {
			v = math.Ldexp(1+math.Ldexp(f, -fraction), e-bias)
		}
		if b>>(exponent+fraction)&1 != 0 {
			return -v
		}
		return v
	}
}

// blackwellExponent returns the exponent by which x is aligned.
func blackwellExponent(x float64, least int) int {
	if x == 0 {
		return blackwellMinExp
	}
	return max(exponentOf(x), least)
}

// blackwellSum returns the dot product of row and col, times 2^shift, plus c. All terms are
// truncated alignedBits below the leading bit of the largest one and added.
func (p *matrixProduct) blackwellSum(row, col []float64, c float64, shift int) float64 {
	exp := blackwellExponent(c, minExponents[p.kind])
	special := exponentOf(c)
	for k, x := range row {
		exp = max(exp, blackwellExponent(x, p.minExps[0])+blackwellExponent(col[k], p.minExps[1])+shift)
		special = max(special, exponentOf(x), exponentOf(col[k]))
	}
	factor := math.Ldexp(1, shift)
	if special == specialExponent {
		for k, x := range row {
			c += x * col[k] * factor
		}
		return p.blackwellResult(c)
	}
	sum := truncated(c, alignedBits-exp)
	for k, x := range row {
		sum += truncated(x*col[k]*factor, alignedBits-exp)
	}
	return p.blackwellResult(math.Ldexp(float64(sum), exp-alignedBits))
}

// truncated returns x·2^bits without its fraction.
func truncated(x float64, bits int) int64 { return int64(math.Ldexp(x, bits)) }

// blackwellResult rounds a sum to the type of the accumulators.
func (p *matrixProduct) blackwellResult(sum float64) float64 {
	if p.kind == ptx.F16 {
		return formatF16.round(sum, nearest) + 0
	}
	if math.Abs(sum) >= 0x1p128 {
		return math.Inf(int(math.Copysign(1, sum)))
	}
	return formatF32.round(sum, toZero) + 0
}

// scaledElement returns the dot product of row and col plus c. Each scale applies to an equal part
// of the products.
func (p *matrixProduct) scaledElement(
	mode Accumulate, row, col []float64, c float64, scaleA, scaleB []float64,
) float64 {
	each := len(row) / len(scaleA)
	if mode == Nearest {
		for k, x := range row {
			c += x * col[k] * scaleA[k/each] * scaleB[k/each]
		}
		return p.rounded(c)
	}
	for k := range scaleA {
		if s := scaleA[k] * scaleB[k]; s != s {
			return s
		}
	}
	if len(scaleA) == 1 {
		return p.blackwellSum(row, col, c, exponentOf(scaleA[0])+exponentOf(scaleB[0]))
	}
	if exponentOf(c) == specialExponent {
		return c
	}
	exp := blackwellExponent(c, minExponents[p.kind])
	for k := range scaleA {
		exp = max(exp, blackwellExponent(scaleA[k], p.minExpScale)+blackwellExponent(scaleB[k], p.minExpScale))
	}
	sum := truncated(c, scaledBits-exp)
	for at := 0; at < len(row); at += scaledGroup {
		dot := 0.0
		for k := at; k < at+scaledGroup; k++ {
			dot += row[k] * col[k]
		}
		sum += truncated(dot*scaleA[at/each]*scaleB[at/each], scaledBits-exp)
	}
	return p.blackwellResult(math.Ldexp(float64(sum), exp-scaledBits))
}
