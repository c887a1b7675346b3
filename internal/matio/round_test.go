package matio

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit/testrand"
)

// nearest returns the value of t that is nearest to x, or of two the even one. It returns false if
// t cannot hold x.
func nearest(t dtype.Type, x *big.Rat) (v float64, ok bool) {
	in := t.Info()
	if in.Integer {
		v, _ = x.Float64()
		least := -in.Max - 1
		if t == dtype.U8 {
			least = 0
		}
		return v, x.IsInt() && least <= v && v <= in.Max
	}
	step := rat(in.Tiny)
	if x.Sign() != 0 {
		abs := new(big.Rat).Abs(x)
		e := abs.Num().BitLen() - abs.Denom().BitLen() // |x| is from 2^(e-1) to 2^(e+1)
		if pow2(e).Cmp(abs) > 0 {
			e--
		}
		if ulp := new(big.Rat).Mul(pow2(e+1), rat(in.Roundoff)); ulp.Cmp(step) > 0 {
			step = ulp
		}
	}
	steps := new(big.Rat).Quo(x, step)
	// Rounding adds 1/2 and takes the floor, which is one too many at a tie with an odd result.
	twice := new(big.Int).Lsh(steps.Num(), 1)
	twice.Add(twice, steps.Denom())
	n, m := new(big.Int).DivMod(twice, new(big.Int).Lsh(steps.Denom(), 1), new(big.Int))
	if m.Sign() == 0 && n.Bit(0) == 1 {
		n.Sub(n, big.NewInt(1))
	}
	v, _ = new(big.Rat).Mul(new(big.Rat).SetInt(n), step).Float64()
	return v, math.Abs(v) <= in.Max
}

// rat returns v, or nil if it is not finite.
func rat(v float64) *big.Rat { return new(big.Rat).SetFloat64(v) }

// pow2 returns 2^e.
func pow2(e int) *big.Rat {
	p := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(max(e, -e))))
	if e < 0 {
		p.Inv(p)
	}
	return p
}

// edges returns numbers of t: random ones, the largest and the smallest, and halves between two.
func edges(r *rand.Rand, t dtype.Type) []float64 {
	in := t.Info()
	all := []float64{0, in.Max, 1, 127, 128, -129, math.MaxInt32, math.MinInt32, in.Tiny, in.Tiny / 2, in.Tiny * 1.5}
	for range 100 {
		v := t.Round(math.Ldexp(2*r.Float64()-1, r.IntN(40)-20))
		half := in.Roundoff * math.Abs(v)
		all = append(all, v, v+0.5, v+half, v+half/2)
	}
	all = append(all, in.Max*(1+in.Roundoff/2), in.Max*(1+in.Roundoff), in.Max*(1+in.Roundoff*(1-0x1p-24)))
	return slices.DeleteFunc(all, func(v float64) bool { return rat(v) == nil })
}

// TestRoundedOnce converts each element type of a file, and text, to every type. The numbers are
// random and halfway between two values, or beside that by less than float64 can tell. Each result
// must be that of one rounding of the exact number, and numbers that do not fit must be refused.
func TestRoundedOnce(t *testing.T) {
	r := testrand.New(t)
	for _, to := range dtype.All() {
		for _, v := range edges(r, to) {
			checkTextRounding(t, to, rat(v))
			for _, from := range dtype.All() {
				b := alloc(8)
				from.Set(b, 0, v)
				if x := rat(from.At(b, 0)); x != nil { // finite
					checkElementRounding(t, nativeElement(from), to, b, x)
				}
			}
		}
		for _, f := range foreign {
			for range 400 {
				word := r.Uint64()>>r.IntN(64) | 1<<r.IntN(64)
				word = word &^ (1<<r.IntN(64) - 1) // a tie, for some types
				word += uint64(r.IntN(3)) - 1
				b := alloc(8)
				binary.NativeEndian.PutUint64(b, word)
				checkElementRounding(t, f.element, to, b, wordValue(f.npy, b))
			}
		}
	}
}

// wordValue returns the value of the bytes b as the NumPy type npy.
func wordValue(npy string, b []byte) *big.Rat {
	n := new(big.Int)
	switch word := binary.NativeEndian.Uint64(b); npy {
	case "i8":
		n.SetInt64(int64(word))
	case "u8":
		n.SetUint64(word)
	case "u4":
		n.SetUint64(uint64(binary.NativeEndian.Uint32(b)))
	case "i2":
		n.SetInt64(int64(int16(binary.NativeEndian.Uint16(b))))
	case "u2":
		n.SetUint64(uint64(binary.NativeEndian.Uint16(b)))
	case "u1":
		n.SetUint64(uint64(b[0]))
	case "b1":
		n.SetUint64(uint64(min(b[0], 1)))
	}
	return new(big.Rat).SetInt(n)
}

// checkElementRounding reads the element b of e as type to.
func checkElementRounding(t *testing.T, e element, to dtype.Type, b []byte, x *big.Rat) {
	t.Helper()
	var v [1]float64
	e.loader(to)(v[:], b)
	want, ok := nearest(to, x)
	if fits := fitsType(to, v[0]); fits != ok || ok && to.Round(v[0]) != want {
		t.Fatalf("%s %s as %v: got %v, fits: %v; want %v, %v", e.Name, x.RatString(), to, to.Round(v[0]), fits, want, ok)
	}
}

// checkTextRounding parses the number, and numbers a little above and below it, as type to.
func checkTextRounding(t *testing.T, to dtype.Type, x *big.Rat) {
	t.Helper()
	places, _ := x.FloatPrec()
	exact := x.FloatString(places)
	little, _ := new(big.Rat).SetString(fmt.Sprintf("1e-%d", places+30))
	texts := []string{exact, x.FloatString(places+20) + "e0", exact + "e-400", exact + "E+1", x.FloatString(17),
		x.FloatString(3), new(big.Rat).Add(x, little).FloatString(places + 30),
		new(big.Rat).Sub(x, little).FloatString(places + 30)}
	for _, text := range texts {
		x, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("cannot parse %s", text)
		}
		want, ok := nearest(to, x)
		got, parsed := parseNumber([]byte(text), to)
		if fits := got.fits(to); !parsed || fits != ok || ok && to.Round(got.float) != want {
			t.Fatalf("%s as %v: got %v, fits: %v; want %v, %v", text, to, to.Round(got.float), fits, want, ok)
		}
	}
}

// TestRoundedOnceFromFiles reads files of each kind whose numbers two roundings would change.
func TestRoundedOnceFromFiles(t *testing.T) {
	integer := func(descr string, n uint64) string {
		return npy("{'descr': '"+descr+"', 'fortran_order': False, 'shape': (1, 1)}", 0) +
			string(binary.LittleEndian.AppendUint64(nil, n))
	}
	const mtx = "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n"
	for _, c := range []struct {
		ext, content string
		typ          dtype.Type
		want         float64
	}{
		{".npy", integer("<i8", 9007199791611905), dtype.F32, 9007200328482816},
		{".npy", integer("<u8", 9223372586610589697), dtype.F32, 9223373136366403584},
		{".csv", "1.00048828125000000000000000000001", dtype.F16, 1.0009765625},
		{".csv", "0.5312500000000000000000000000000000000001", dtype.F8E4M3, 0.5625},
		{".mtx", mtx + "2 1 1.00048828125000000000000000000001\n2 1 1\n", dtype.F16, 2},
		{".mtx", mtx + "2 1 0.5312500000000000000000000000000000000001\n1 1 0\n", dtype.F8E4M3, 0.5625},
	} {
		m, err := readBytes(c.ext, []byte(c.content), ReadOptions{Type: c.typ})
		if err != nil {
			t.Errorf("%.60q: %v", c.content, err)
		} else if got := at(m, m.OpRows()-1, 0); got != c.want {
			t.Errorf("%.60q as %v is %v, want %v", c.content, c.typ, got, c.want)
		}
	}
	for _, text := range []string{
		"127.00000000000000000001", "1e-400", "0.99999999999999999999999", "-128.0000000000000000001",
	} {
		_, err := readBytes(".csv", []byte(text), ReadOptions{Type: dtype.I8})
		checkError(t, err, ErrRange, ".csv", "is out of range for int8")
	}
	_, err := readBytes(".mtx", []byte("%%MatrixMarket matrix coordinate real general\n1 1 2\n1 1 200\n1 1 -100\n"),
		ReadOptions{Type: dtype.I8})
	checkError(t, err, ErrRange, ".mtx", "200 in line 3 is out of range for int8")
}
