package emu

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/number"
)

// Reference operations on exact numbers. encode does the rounding, except for the sign of an exact
// zero.

func addNumbers(x, y exactNumber, r number.Rounding) exactNumber {
	switch {
	case x.nan || y.nan || x.inf && y.inf && x.neg != y.neg:
		return exactNumber{nan: true}
	case x.inf:
		return x
	case y.inf:
		return y
	}
	z := exactNumber{value: new(big.Rat).Add(x.value, y.value)}
	z.neg = z.value.Sign() < 0
	if z.value.Sign() == 0 {
		z.neg = x.neg && y.neg || x.neg != y.neg && r == number.Down
	}
	return z
}

func mulNumbers(x, y exactNumber) exactNumber {
	neg := x.neg != y.neg
	switch {
	case x.nan || y.nan || x.inf && !y.inf && y.value.Sign() == 0 || y.inf && !x.inf && x.value.Sign() == 0:
		return exactNumber{nan: true}
	case x.inf || y.inf:
		return exactNumber{inf: true, neg: neg}
	}
	return exactNumber{neg: neg, value: new(big.Rat).Mul(x.value, y.value)}
}

func divNumbers(x, y exactNumber) exactNumber {
	neg := x.neg != y.neg
	switch {
	case x.nan || y.nan || x.inf && y.inf || !x.inf && !y.inf && x.value.Sign() == 0 && y.value.Sign() == 0:
		return exactNumber{nan: true}
	case x.inf || !y.inf && y.value.Sign() == 0:
		return exactNumber{inf: true, neg: neg}
	case y.inf:
		return exactNumber{neg: neg, value: new(big.Rat)}
	}
	return exactNumber{neg: neg, value: new(big.Rat).Quo(x.value, y.value)}
}

// sqrtNumber returns the square root, or a number that rounds to the same value.
func sqrtNumber(x exactNumber) exactNumber {
	switch {
	case x.nan || x.neg && (x.inf || x.value.Sign() != 0):
		return exactNumber{nan: true}
	case x.inf || x.value.Sign() == 0:
		return x
	}
	const bits = 1 << 11 // precise enough for every format, even for the smallest root
	n := scaled(new(big.Rat).Set(x.value), 2*bits)
	whole := new(big.Int).Quo(n.Num(), n.Denom())
	root := new(big.Int).Sqrt(whole)
	y := new(big.Rat).SetInt(root)
	if new(big.Rat).Mul(y, y).Cmp(n) != 0 {
		y.Add(y, big.NewRat(1, 2)) // any value after the last bit makes the result inexact
	}
	return exactNumber{value: scaled(y, -bits)}
}

func lessNumber(x, y exactNumber) bool {
	rank := func(n exactNumber) *big.Rat {
		if n.inf {
			return scaled(big.NewRat(choose[int64](n.neg, -1, 1), 1), 5000)
		}
		return n.value
	}
	c := rank(x).Cmp(rank(y))
	return c < 0 || c == 0 && x.neg && !y.neg
}

func minNumbers(x, y exactNumber) exactNumber {
	switch {
	case x.nan:
		return y
	case y.nan:
		return x
	case lessNumber(x, y):
		return x
	}
	return y
}

func maxNumbers(x, y exactNumber) exactNumber {
	switch {
	case x.nan:
		return y
	case y.nan:
		return x
	case lessNumber(x, y):
		return y
	}
	return x
}

// flushed returns n, or a zero of the same sign if n is subnormal in the format.
func (f floatFormat) flushed(n exactNumber) exactNumber {
	if !n.nan && !n.inf && n.value.Sign() != 0 && new(big.Rat).Abs(n.value).Cmp(scaled(big.NewRat(1, 1), 1-f.bias())) < 0 {
		return exactNumber{neg: n.neg, value: new(big.Rat)}
	}
	return n
}

// floatReference computes an instruction with exact numbers. It supports the rounding modifiers,
// .ftz, .sat, .relu and .NaN.
func floatReference(
	mods string, ty ptx.Type, args []uint64, op func(r number.Rounding, v []exactNumber) exactNumber,
) uint64 {
	f := floatFormats[ty]
	has := func(m string) bool { return strings.Contains(mods+".", "."+m+".") }
	r := number.Nearest
	for name, mode := range number.Roundings {
		if has(name) {
			r = mode
		}
	}
	v := make([]exactNumber, len(args))
	anyNaN := false
	for k := range args {
		if v[k] = f.decode(args[k]); has("ftz") {
			v[k] = f.flushed(v[k])
		}
		anyNaN = anyNaN || v[k].nan
	}
	n := op(r, v)
	if has("NaN") && anyNaN {
		n = exactNumber{nan: true}
	}
	n = f.decode(f.encode(n, r))
	if has("ftz") {
		n = f.flushed(n)
	}
	zero := exactNumber{value: new(big.Rat)}
	switch {
	case has("sat") && (n.nan || n.neg):
		n = zero
	case has("sat") && (n.inf || n.value.Cmp(big.NewRat(1, 1)) > 0):
		n = exactNumber{value: big.NewRat(1, 1)}
	case has("relu") && n.neg && !n.nan:
		n = zero
	}
	return f.encode(n, r)
}

var floatOps = []struct {
	op   string
	args int
	mods map[ptx.Type][]string
	do   func(r number.Rounding, v []exactNumber) exactNumber
}{
	{"add", 2, arithmeticMods, func(r number.Rounding, v []exactNumber) exactNumber { return addNumbers(v[0], v[1], r) }},
	{"sub", 2, arithmeticMods, func(r number.Rounding, v []exactNumber) exactNumber {
		v[1].neg = !v[1].neg
		if v[1].value != nil {
			v[1].value = new(big.Rat).Neg(v[1].value)
		}
		return addNumbers(v[0], v[1], r)
	}},
	{"mul", 2, arithmeticMods, func(_ number.Rounding, v []exactNumber) exactNumber { return mulNumbers(v[0], v[1]) }},
	{"fma", 3, map[ptx.Type][]string{
		ptx.F32:  {".rn", ".rz", ".rm", ".rp", ".rn.ftz", ".rz.ftz", ".rn.sat", ".rp.ftz.sat"},
		ptx.F64:  {".rn", ".rz", ".rm", ".rp"},
		ptx.F16:  {".rn", ".rn.ftz", ".rn.sat", ".rn.ftz.relu", ".rn.relu"},
		ptx.BF16: {".rn", ".rn.relu"},
	}, func(r number.Rounding, v []exactNumber) exactNumber {
		return addNumbers(mulNumbers(v[0], v[1]), v[2], r)
	}},
	{"div", 2, divisionMods, func(_ number.Rounding, v []exactNumber) exactNumber { return divNumbers(v[0], v[1]) }},
	{"rcp", 1, divisionMods, func(_ number.Rounding, v []exactNumber) exactNumber {
		return divNumbers(exactNumber{value: big.NewRat(1, 1)}, v[0])
	}},
	{"sqrt", 1, divisionMods, func(_ number.Rounding, v []exactNumber) exactNumber { return sqrtNumber(v[0]) }},
	{"min", 2, extremeMods, func(_ number.Rounding, v []exactNumber) exactNumber { return minNumbers(v[0], v[1]) }},
	{"max", 2, extremeMods, func(_ number.Rounding, v []exactNumber) exactNumber { return maxNumbers(v[0], v[1]) }},
}

var arithmeticMods = map[ptx.Type][]string{
	ptx.F32:  {"", ".rn", ".rz", ".rm", ".rp", ".ftz", ".sat", ".rz.ftz", ".rp.ftz.sat"},
	ptx.F64:  {"", ".rn", ".rz", ".rm", ".rp"},
	ptx.F16:  {"", ".rn", ".ftz", ".sat", ".rn.ftz.sat"},
	ptx.BF16: {"", ".rn"},
}

var divisionMods = map[ptx.Type][]string{
	ptx.F32: {".rn", ".rz", ".rm", ".rp", ".rn.ftz", ".rz.ftz"},
	ptx.F64: {".rn", ".rz", ".rm", ".rp"},
}

var extremeMods = map[ptx.Type][]string{
	ptx.F32: {"", ".ftz", ".NaN", ".ftz.NaN"}, ptx.F64: {""},
	ptx.F16: {"", ".ftz", ".NaN", ".ftz.NaN"}, ptx.BF16: {"", ".NaN"},
}

func TestFloatArithmetic(t *testing.T) {
	rng := testrand.New(t)
	for _, o := range floatOps {
		for ty, list := range o.mods {
			for _, mods := range list {
				operands := strings.Join([]string{"%a", "%b", "%c"}[:o.args], ", ")
				want := func(v []uint64) uint64 { return floatReference(mods, ty, v, o.do) }
				check(t, rng, fmt.Sprintf("%s%s.%v %%d, %s", o.op, mods, ty, operands), ty, repeat(ty, o.args), want)
				if ty.Bits() > 16 {
					continue
				}
				pair := choose(ty == ptx.F16, ptx.F16x2, ptx.BF16x2)
				args := sampleArgs(rng, repeat(ty, 2*o.args))
				for n, row := range args {
					packed := make([]uint64, o.args)
					for k := range packed {
						packed[k] = row[k] | row[k+o.args]<<16
					}
					args[n] = packed
				}
				checkRows(t, fmt.Sprintf("%s%s.%v %%d, %s", o.op, mods, pair, operands), ptx.B32, repeat(ptx.B32, o.args), args,
					func(v []uint64) uint64 {
						lo, hi := make([]uint64, len(v)), make([]uint64, len(v))
						for k := range v {
							lo[k], hi[k] = v[k]&0xffff, v[k]>>16
						}
						return want(lo) | want(hi)<<16
					})
			}
		}
	}
}

// TestVectorLoops compares the AVX2 loops with the portable ones.
func TestVectorLoops(t *testing.T) {
	rng := testrand.New(t)
	list := sampleValues(rng, ptx.F32)
	for range 20000 {
		var a, b, c, got, want [lanes]float32
		for i := range a {
			a[i], b[i], c[i] = pick32(rng, list), pick32(rng, list), pick32(rng, list)
		}
		fmaF32(&got, &a, &b, &c)
		fmaF32Go(&want, &a, &b, &c)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%x·%x+%x is %x, want %x", a[i], b[i], c[i], got[i], want[i])
			}
		}
	}
	var a, b, got, want [lanes]uint64
	var a32, b32, got32, want32 [lanes]uint32
	for i := range a {
		a[i], b[i], a32[i], b32[i] = rng.Uint64(), rng.Uint64(), rng.Uint32(), rng.Uint32()
	}
	addU64(&got, &a, &b)
	addGo(&want, &a, &b)
	addU32(&got32, &a32, &b32)
	addGo(&want32, &a32, &b32)
	if got != want || got32 != want32 {
		t.Error("sums of integers differ")
	}
}

func pick32(rng *rand.Rand, list []uint64) float32 {
	if rng.IntN(2) == 0 {
		return math.Float32frombits(rng.Uint32())
	}
	return math.Float32frombits(uint32(list[rng.IntN(len(list))]))
}

func TestGather(t *testing.T) {
	rng := testrand.New(t)
	words := make([]uint32, 64)
	for i := range words {
		words[i] = rng.Uint32()
	}
	for n := range 4000 {
		var a [lanes]uint64
		shift := rng.Uint64()
		for i := range a {
			a[i] = 4*rng.Uint64N(64) - shift
		}
		want := true
		if n%2 == 1 { // invalidate one lane
			bad := []uint64{256, 1, 2, 255, 1 << 63, ^uint64(0), ^uint64(3), 1<<63 + 4}[rng.IntN(8)]
			a[rng.IntN(lanes)], want = bad-shift, false
		}
		var d, plain [lanes]uint32
		if got := gatherU32(&d, &a, shift, 253, ptr(words)); got != want {
			t.Fatalf("got %v, want %v for %#x + %#x", got, want, a, shift)
		}
		var off, offGo [lanes]uint64
		if got := offsets(&off, &a, shift, 253, 3); got != want || offsetsGo(&offGo, &a, shift, 253, 3) != want ||
			off != offGo {
			t.Fatalf("got %v %#x, want %v for %#x + %#x", got, off, want, a, shift)
		}
		if gather[uint32](&plain, &a, shift, 253, ptr(words)) && plain != d {
			t.Fatalf("%v, want %v", d, plain)
		}
	}
}

func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(&s[0]) }
