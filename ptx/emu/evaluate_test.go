package emu

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// evaluate runs an instruction such as "add.u32 %d, %a, %b" once for each row of args and returns
// the bits of the results. Predicates are represented as 0 and 1.
func evaluate(t testing.TB, text string, result ptx.Type, types []ptx.Type, args [][]uint64) []uint64 {
	t.Helper()
	program, stride := evaluator(text, result, types)
	p := loadText(t, text, program)
	buf := make([]byte, stride*len(args))
	for n, row := range args {
		for k, v := range row {
			binary.LittleEndian.PutUint64(buf[n*stride+8*k:], v)
		}
	}
	mem := NewMemory(MemoryOptions{})
	addr := upload(t, mem, buf)
	const threads = 128
	_, err := p.Run(context.Background(), mem, Launch{
		Entry: "k", Block: Dim3{threads, 1, 1}, Grid: Dim3{(len(args) + threads - 1) / threads, 1, 1},
		Params: pack(t, p, "k", addr, uint32(len(args))),
	})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	download(t, mem, addr, buf)
	out := make([]uint64, len(args))
	for n := range out {
		out[n] = binary.LittleEndian.Uint64(buf[(n+1)*stride-8:])
	}
	return out
}

// evaluator returns the kernel that evaluate runs, and the bytes per row of its buffer. A row
// consists of eight bytes for each argument and for the result.
func evaluator(text string, result ptx.Type, types []ptx.Type) (program string, stride int) {
	stride = 8 * (len(types) + 1)
	var body strings.Builder
	for k, t := range types {
		name := "%" + "abce"[k:k+1]
		s := t.Info().Storage
		if s == ptx.Pred {
			fmt.Fprintf(&body, "\t.reg .pred %s;\n\tld.global.u32 %%w, [%%p+%d];\n\tsetp.ne.u32 %s, %%w, 0;\n", name, 8*k, name)
		} else {
			fmt.Fprintf(&body, "\t.reg .%v %s;\n\tld.global.b%d %s, [%%p+%d];\n", s, name, s.Bits(), name, 8*k)
		}
	}
	s := result.Info().Storage
	fmt.Fprintf(&body, "\t.reg .%v %%d;\n", s)
	if !strings.HasSuffix(text, "}") {
		text += ";"
	}
	switch {
	case s == ptx.Pred:
		fmt.Fprintf(&body, "\t%s\n\tselp.u32 %%w, 1, 0, %%d;\n\tst.global.u32 [%%p+%d], %%w;\n", text, stride-8)
	default:
		fmt.Fprintf(&body, "\t%s\n\tst.global.b%d [%%p+%d], %%d;\n", text, s.Bits(), stride-8)
	}
	return fmt.Sprintf(`.version 9.3
.target sm_100a
.address_size 64
.visible .entry k (.param .u64 buf, .param .u32 n)
{
	.reg .b64 %%p;
	.reg .b32 %%i, %%x, %%y, %%w;
	.reg .pred %%past;
	mov.u32 %%x, %%ctaid.x;
	mov.u32 %%y, %%ntid.x;
	mov.u32 %%i, %%tid.x;
	mad.lo.u32 %%i, %%x, %%y, %%i;
	ld.param.u32 %%w, [n];
	setp.ge.u32 %%past, %%i, %%w;
	@%%past bra DONE;
	ld.param.u64 %%p, [buf];
	mad.wide.u32 %%p, %%i, %d, %%p;
	st.global.u64 [%%p+%d], 0;
%sDONE:
	ret;
}
`, stride, stride-8, body.String()), stride
}

// sampleValues returns bit patterns of a type: special and boundary values, and some random ones.
func sampleValues(rng *rand.Rand, t ptx.Type) []uint64 {
	var v []uint64
	add := func(bits ...uint64) { v = append(v, bits...) }
	mask := ^uint64(0) >> (64 - t.Bits())
	random := func() uint64 { return rng.Uint64() & mask }
	switch t {
	case ptx.Pred:
		return []uint64{0, 1}
	case ptx.F32:
		for _, f := range []float32{0, 1, 1.5, 0.1, 3, math.MaxFloat32, math.SmallestNonzeroFloat32, 0x1p-126,
			0x0.fffffep-126, 0x1p-64, 0x1p64, 0x1p24, 0x1.000002p0, 0.5, 2.5} {
			add(uint64(math.Float32bits(f)), uint64(math.Float32bits(-f)))
		}
		add(0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001)
		random = func() uint64 {
			if rng.IntN(4) == 0 {
				return rng.Uint64() & mask
			}
			// Exponents are close together so that sums cancel and round.
			return uint64(rng.Uint32()&0x807fffff | uint32(120+rng.IntN(16))<<23)
		}
	case ptx.F64:
		for _, f := range []float64{0, 1, 1.5, 0.1, 3, math.MaxFloat64, math.SmallestNonzeroFloat64, 0x1p-1022,
			0x0.fffffffffffffp-1022, 0x1p53, 0x1.0000000000001p0, 1e300, 1e-300} {
			add(math.Float64bits(f), math.Float64bits(-f))
		}
		add(0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0xfffdeadbeef12345, 0x7ff4123456789abc)
		random = func() uint64 {
			if rng.IntN(4) == 0 {
				return rng.Uint64()
			}
			return rng.Uint64()&0x800fffffffffffff | uint64(1010+rng.IntN(24))<<52
		}
	case ptx.F16:
		add(0, 0x8000, 1, 0x3ff, 0x400, 0x3c00, 0xbc00, 0x3c01, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x8001, 0x4248)
	case ptx.BF16:
		add(0, 0x8000, 1, 0x7f, 0x80, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x8001)
	default:
		add(0, 1, 2, 3, 7, 31, 32, 33, mask, mask-1, mask>>1, mask>>1+1, mask/3)
	}
	for range 12 {
		add(random())
	}
	return v
}

// sampleArgs returns all combinations of sample values, or a random selection if there are many.
func sampleArgs(rng *rand.Rand, types []ptx.Type) [][]uint64 {
	const most = 600
	lists := make([][]uint64, len(types))
	all := 1
	for k, t := range types {
		lists[k] = sampleValues(rng, t)
		all *= len(lists[k])
	}
	var out [][]uint64
	for n := range min(all, most) {
		row := make([]uint64, len(types))
		at := n
		for k, list := range lists {
			if all > most {
				row[k] = list[rng.IntN(len(list))]
			} else {
				row[k], at = list[at%len(list)], at/len(list)
			}
		}
		out = append(out, row)
	}
	return out
}

// The reference implementations compute with arbitrary precision.

// asInt returns the value of bits as integer type t.
func asInt(t ptx.Type, bits uint64) *big.Int {
	if t.Class() == ptx.Signed {
		return big.NewInt(int64(extend(t, bits)))
	}
	return new(big.Int).SetUint64(extend(t, bits))
}

// wrapped returns the low bits of v.
func wrapped(t ptx.Type, v *big.Int) uint64 {
	m := new(big.Int).Lsh(big.NewInt(1), uint(t.Bits()))
	return new(big.Int).Mod(v, m).Uint64()
}

// saturated returns the bits of v, clamped to the range of the type.
func saturated(t ptx.Type, v *big.Int) uint64 {
	lo, hi := integerLimits(t)
	switch {
	case v.Cmp(big.NewInt(lo)) < 0:
		v = big.NewInt(lo)
	case v.Cmp(new(big.Int).SetUint64(hi)) > 0:
		v = new(big.Int).SetUint64(hi)
	}
	return wrapped(t, v)
}

// floatFormat is a floating-point format, given by the widths of its exponent and fraction.
type floatFormat struct{ exp, frac int }

var floatFormats = map[ptx.Type]floatFormat{
	ptx.F64: {11, 52}, ptx.F32: {8, 23}, ptx.F16: {5, 10}, ptx.BF16: {8, 7},
}

// exactNumber is a floating-point value of arbitrary precision: NaN, an infinity, a zero with a
// sign, or a rational number.
type exactNumber struct {
	nan, inf, neg bool
	value         *big.Rat
}

func (f floatFormat) bias() int { return 1<<(f.exp-1) - 1 }

func (f floatFormat) decode(bits uint64) exactNumber {
	frac := bits & (1<<f.frac - 1)
	exp := int(bits>>f.frac) & (1<<f.exp - 1)
	n := exactNumber{neg: bits>>(f.exp+f.frac)&1 != 0, value: new(big.Rat)}
	switch {
	case exp == 1<<f.exp-1:
		n.nan, n.inf = frac != 0, frac == 0
		return n
	case exp == 0:
		exp = 1
	default:
		frac |= 1 << f.frac
	}
	n.value = scaled(new(big.Rat).SetInt(new(big.Int).SetUint64(frac)), exp-f.bias()-f.frac)
	if n.neg {
		n.value.Neg(n.value)
	}
	return n
}

// scaled returns v·2^exp. It modifies v.
func scaled(v *big.Rat, exp int) *big.Rat {
	p := new(big.Int).Lsh(big.NewInt(1), uint(max(exp, -exp)))
	if exp >= 0 {
		return v.Mul(v, new(big.Rat).SetInt(p))
	}
	return v.Quo(v, new(big.Rat).SetInt(p))
}

// roundInt rounds |v| to an integer. neg is the sign of v, which matters in the directed modes.
func roundInt(v *big.Rat, neg bool, r number.Rounding) *big.Int {
	q, rest := new(big.Int).QuoRem(v.Num(), v.Denom(), new(big.Int))
	half := rest.Lsh(rest, 1).Cmp(v.Denom())
	inexact := rest.Sign() != 0
	upward := false
	switch r {
	case number.Nearest:
		upward = half > 0 || half == 0 && q.Bit(0) == 1
	case number.AwayTies:
		upward = half >= 0
	case number.Down:
		upward = neg && inexact
	case number.Up:
		upward = !neg && inexact
	}
	if upward {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// encode rounds n once and returns its bits. A NaN becomes the canonical NaN of the format.
func (f floatFormat) encode(n exactNumber, r number.Rounding) uint64 {
	var sign uint64
	if n.neg {
		sign = 1 << (f.exp + f.frac)
	}
	infinity := uint64(1<<f.exp-1) << f.frac
	switch {
	case n.nan && f.exp == 11:
		return 0x7ff8000000000000
	case n.nan:
		return 1<<(f.exp+f.frac) - 1
	case n.inf:
		return sign | infinity
	case n.value.Sign() == 0:
		return sign
	}
	v := new(big.Rat).Abs(n.value)
	// Find e with 2^e ≤ v < 2^(e+1).
	e := v.Num().BitLen() - v.Denom().BitLen()
	if v.Cmp(scaled(big.NewRat(1, 1), e)) < 0 {
		e--
	}
	e = max(e, 1-f.bias())
	m := roundInt(scaled(v, f.frac-e), n.neg, r)
	if m.BitLen() > f.frac+1 {
		e++
		m.Rsh(m, 1)
	}
	if e > f.bias() {
		if r == number.ToZero || r == number.Down && !n.neg || r == number.Up && n.neg {
			return sign | infinity - 1
		}
		return sign | infinity
	}
	bits := m.Uint64()
	if m.BitLen() == f.frac+1 {
		bits += uint64(e+f.bias()-1) << f.frac
	}
	return sign | bits
}

func TestReferenceEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		b := rng.Uint32()
		if f := math.Float32frombits(b); f == f {
			if got := floatFormats[ptx.F32].encode(floatFormats[ptx.F32].decode(uint64(b)), number.Nearest); got != uint64(b) {
				t.Fatalf("%#x became %#x", b, got)
			}
		}
		f := math.Float64frombits(rng.Uint64()&0x800fffffffffffff | uint64(850+rng.IntN(320))<<52)
		want := uint64(math.Float32bits(float32(f)))
		exact := floatFormats[ptx.F64].decode(math.Float64bits(f))
		if got := floatFormats[ptx.F32].encode(exact, number.Nearest); got != want {
			t.Fatalf("%v became %#x, want %#x", f, got, want)
		}
	}
}
