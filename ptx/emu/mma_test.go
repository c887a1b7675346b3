package emu

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/internal/dot"
	"tilework/ptx/emu/internal/number"
)

// matrixCase is a matrix instruction and a kernel that executes it with one warp.
type matrixCase struct {
	form    *ptx.Form
	text    string // mnemonic of the instruction
	program string
	d, a, b ptx.Type // in the order of the mnemonic
	c       ptx.Type
	k       int    // products per sum
	counts  [4]int // registers of d, a, b and c
	types   [4]ptx.Type
}

// matrixCases returns a case for each combination of types and layouts of mma with dense matrices
// on Hopper.
func matrixCases(t *testing.T) []*matrixCase {
	t.Helper()
	var cases []*matrixCase
	for _, f := range ptx.FormsOf("mma") {
		if len(f.Operands) > 4 || strings.Contains(f.Text, "kind::") {
			continue
		}
		mods := [][]string{nil}
		for k := range f.Slots {
			var next [][]string
			values := f.Slots[k].Values
			if f.Slots[k].Optional {
				values = append([]string{""}, values...)
			}
			for _, m := range mods {
				for _, v := range values {
					next = append(next, append(m[:len(m):len(m)], v))
				}
			}
			mods = next
		}
		for _, m := range mods {
			cases = append(cases, newMatrixCase(t, f, m))
		}
	}
	return cases
}

func newMatrixCase(t *testing.T, f *ptx.Form, mods []string) *matrixCase {
	i := &ptx.Instr{Op: f.Op}
	for _, m := range mods {
		if m != "" {
			i.Mods = append(i.Mods, m)
		}
	}
	for k := range f.Operands {
		i.Args = append(i.Args, sampleOperand(&f.Operands[k], func(string) string { return "" }, k))
	}
	if err := ptx.Bind(i); err != nil {
		t.Fatal(err)
	}
	c := &matrixCase{form: f, text: i.Mnemonic()}
	c.d, c.a, c.b, c.c = elementsOf(i)
	_, _, c.k = shapeOf(i)
	var decls, loads, lists [4]string
	offset := 0
	for k, arg := range i.Args {
		ty := i.Type(k).Info().Storage
		c.types[k], c.counts[k] = ty, len(arg.(*ptx.Vector).Elems)
		name := "%" + "dabc"[k:k+1] + "_"
		decls[k] = fmt.Sprintf("\t.reg .%v %s<%d>;\n", ty, name, c.counts[k])
		var list []string
		for n := range c.counts[k] {
			list = append(list, fmt.Sprintf("%s%d", name, n))
			move := "ld.global.b%d %s%d, [%%p+%d];\n"
			if k == 0 {
				move = "st.global.b%[1]d [%%p+%[4]d], %[2]s%[3]d;\n"
			}
			loads[k] += fmt.Sprintf("\t"+move, ty.Bits(), name, n, 8*offset)
			offset++
		}
		lists[k] = "{" + strings.Join(list, ", ") + "}"
	}
	c.program = fmt.Sprintf(`.version 8.8
.target sm_90a
.address_size 64
.visible .entry k (.param .u64 buf, .param .u32 n)
{
	.reg .b64 %%p;
	.reg .b32 %%i;
%s	ld.param.u64 %%p, [buf];
	mov.u32 %%i, %%tid.x;
	mad.wide.u32 %%p, %%i, %d, %%p;
%s%s%s	%s %s;
%s	ret;
}
`, strings.Join(decls[:], ""), 8*offset, loads[1], loads[2], loads[3], c.text, strings.Join(lists[:], ", "), loads[0])
	return c
}

// stride returns the bytes per lane in the buffer: eight for each register, starting with those of
// d.
func (c *matrixCase) stride() int { return 8 * (c.counts[0] + c.counts[1] + c.counts[2] + c.counts[3]) }

// operandBytes returns the operands of a warp, with elements from the function element.
func (c *matrixCase) operandBytes(element func(t ptx.Type) uint64) []byte {
	buf := make([]byte, lanes*c.stride())
	c.eachElement(buf, func(_ int, t ptx.Type, _ uint64) uint64 {
		return element(t) & (1<<(elementOf(t).bits-1)<<1 - 1)
	})
	return buf
}

// eachElement replaces each element of a, b and c in buf by the result of f. Operand 1 is a.
func (c *matrixCase) eachElement(buf []byte, f func(operand int, t ptx.Type, bits uint64) uint64) {
	for lane := range lanes {
		at := lane*c.stride() + 8*c.counts[0]
		for k, t := range []ptx.Type{c.a, c.b, c.c} {
			e := elementOf(t)
			for range c.counts[k+1] {
				old, word := binary.LittleEndian.Uint64(buf[at:]), uint64(0)
				for n := range e.perRegister() {
					word |= f(k+1, t, old>>(n*e.bits)&(1<<(e.bits-1)<<1-1)) << (n * e.bits)
				}
				binary.LittleEndian.PutUint64(buf[at:], word)
				at += 8
			}
		}
	}
}

func (c *matrixCase) run(t *testing.T, buf []byte, mode Accumulate) []byte {
	t.Helper()
	p := loadText(t, c.text, c.program)
	mem := NewMemory(MemoryOptions{})
	addr := upload(t, mem, buf)
	_, err := p.Run(context.Background(), mem, Launch{
		Entry: "k", Block: Dim3{lanes, 1, 1}, Grid: Dim3{1, 1, 1}, Params: pack(t, p, "k", addr, uint32(lanes)),
		Accumulate: mode,
	})
	if err != nil {
		t.Fatalf("%s: %v", c.text, err)
	}
	out := make([]byte, len(buf))
	download(t, mem, addr, out)
	return out
}

// inputs generates the elements of the recorded vectors: small integers, numbers of many
// magnitudes, or mostly zeros and subnormals, so that a subnormal is the largest term of many sums.
var inputs = map[string]func(rng *rand.Rand, c *matrixCase, t ptx.Type) uint64{
	"whole": func(rng *rand.Rand, _ *matrixCase, t ptx.Type) uint64 {
		return encodeElement(rng, t, float64(rng.IntN(7)-3))
	},
	"sizes": func(rng *rand.Rand, _ *matrixCase, t ptx.Type) uint64 {
		return encodeElement(rng, t, rng.NormFloat64()*math.Ldexp(1, rng.IntN(17)-8))
	},
	"subnormal": func(rng *rand.Rand, _ *matrixCase, t ptx.Type) uint64 {
		kind, sign := rng.IntN(10), float64(1-2*rng.IntN(2))
		f, ok := map[ptx.Type]*number.Format{ptx.F16: number.F16, ptx.BF16: number.BF16, ptx.TF32: number.TF32,
			ptx.E4M3: number.E4M3, ptx.E5M2: number.E5M2}[t]
		switch {
		case kind < 6:
			return 0
		case !ok: // an accumulator or an integer type
			return encodeElement(rng, t, sign*math.Ldexp(1+rng.Float64(), rng.IntN(30)-20-60*rng.IntN(3)))
		case kind < 9:
			return encodeElement(rng, t, sign*math.Ldexp(float64(1+rng.IntN(1<<rng.IntN(f.Precision)))/math.Ldexp(1,
				f.Precision-1), f.MinExp))
		}
		return encodeElement(rng, t, sign*math.Ldexp(1+rng.Float64(),
			choose(f.MinExp < -100, rng.IntN(110), rng.IntN(15)+f.MinExp)))
	},
}

// encodeElement returns v as an element of type t. For integer types of 8 bits or fewer it returns
// random bits.
func encodeElement(rng *rand.Rand, t ptx.Type, v float64) uint64 {
	switch t {
	case ptx.BF16:
		return number.BF16.Encode(v)
	case ptx.TF32:
		return number.F32.Encode(v)
	case ptx.E4M3, ptx.E5M2:
		return encoderOf(t, variant{finite: true})(v)
	case ptx.F16, ptx.F32, ptx.F64:
		return number.Of(t).Encode(v)
	case ptx.S32:
		return uint64(uint32(int32(v)))
	}
	return rng.Uint64()
}

// input returns the operands of a recorded vector.
func (c *matrixCase) input(kind string, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	return c.operandBytes(func(t ptx.Type) uint64 { return inputs[kind](rng, c, t) })
}

// results returns the registers of d, lane by lane.
func (c *matrixCase) results(buf []byte) []byte {
	var out []byte
	for lane := range lanes {
		for n := range c.counts[0] {
			at := lane*c.stride() + 8*n
			out = append(out, buf[at:at+c.types[0].Bytes()]...)
		}
	}
	return out
}

// TestMmaMatchesH200 compares mma with recorded results of an H200: the positions of the elements
// and every bit of the sums.
func TestMmaMatchesH200(t *testing.T) {
	byText := map[string]*matrixCase{}
	for _, c := range matrixCases(t) {
		byText[c.text] = c
	}
	text, err := os.ReadFile("testdata/mma-h200.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		c, kind := byText[f[0]], f[1]
		seed, err := strconv.ParseUint(f[2], 10, 64)
		if c == nil || err != nil || inputs[kind] == nil {
			t.Fatalf("cannot read %.100s", line)
		}
		seen[c.text] = true
		if got := hex.EncodeToString(c.results(c.run(t, c.input(kind, seed), Hopper))); got != f[3] {
			t.Errorf("%s, %s:\ngot  %s\nwant %s", c.text, kind, got, f[3])
		}
	}
	for text := range byText {
		if !seen[text] {
			t.Errorf("no recorded vector for %s", text)
		}
	}
}

// TestNearestAccumulation checks that the two accumulation modes differ by at most their rounding
// errors, and that the bound of these errors is small enough to find one lost term.
func TestNearestAccumulation(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range matrixCases(t) {
		if c.d != ptx.F32 {
			continue
		}
		in := c.operandBytes(func(ty ptx.Type) uint64 { return inputs["sizes"](rng, c, ty) })
		near, bounds := c.sums(t, in, Nearest), c.sums(t, c.magnitudes(in), Nearest)
		differing := func(hopper []float64) (n int) {
			for k, x := range hopper {
				if math.Abs(x-near[k]) > c.roundoff()*bounds[k] {
					n++
				}
			}
			return n
		}
		if n := differing(c.sums(t, in, Hopper)); n > 0 {
			t.Errorf("%s: %d of %d elements differ by more than the rounding errors", c.text, n, len(near))
		}
		if differing(c.sums(t, c.withoutLargest(in), Hopper)) == 0 {
			t.Errorf("%s: no difference was found without the largest element of A", c.text)
		}
	}
}

// sums returns the float32 results of the instruction.
func (c *matrixCase) sums(t *testing.T, in []byte, mode Accumulate) []float64 {
	t.Helper()
	var sums []float64
	for b := range slices.Chunk(c.results(c.run(t, in, mode)), 4) {
		sums = append(sums, float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	}
	return sums
}

// roundoff returns a bound of the difference between the accumulation modes, as a factor of
// Σ|a·b| + |c|. In the latter, subnormal numbers count as the smallest normal number, to which the
// tensor core aligns them.
func (c *matrixCase) roundoff() float64 {
	const (
		truncation = 1.0 / (1 << dot.AlignedBits) // of a term: the largest is at least 2^exponent
		toZero     = 0x1p-23                      // of a sum, to float32
		toNearest  = 0x1p-24
		higher     = 0x1p-25 // errors of errors, and of float64
	)
	products := float64(c.k)
	nearest := toNearest + higher // the error of Nearest itself
	switch {
	case c.a.Bits() == 8: // two sums of the tensor core, and the addition of c
		return (products+2)*truncation + 2*toZero + toNearest + nearest
	case c.a == ptx.F16 && c.k == 4: // fused operations, and the addition of c
		return products*toNearest + toNearest + nearest
	default: // the products and c
		return (products+1)*truncation + toZero + nearest
	}
}

// magnitudes returns the operands without signs and with subnormal numbers raised to the smallest
// normal number.
func (c *matrixCase) magnitudes(in []byte) []byte {
	out := slices.Clone(in)
	c.eachElement(out, func(_ int, t ptx.Type, bits uint64) uint64 {
		sign := uint64(1) << (elementOf(t).bits - 1)
		v := math.Abs(elementOf(t).decode(bits))
		if least := math.Ldexp(1, number.Of(t).MinExp); v > 0 && v < least {
			return encodeElement(nil, t, least)
		}
		return bits &^ sign
	})
	return out
}

// withoutLargest returns the operands with the largest element of A set to zero.
func (c *matrixCase) withoutLargest(in []byte) []byte {
	out, largest := slices.Clone(in), 0.0
	magnitude := func(bits uint64) float64 { return math.Abs(elementOf(c.a).decode(bits)) }
	c.eachElement(out, func(operand int, _ ptx.Type, bits uint64) uint64 {
		if operand == 1 {
			largest = max(largest, magnitude(bits))
		}
		return bits
	})
	done := false
	c.eachElement(out, func(operand int, _ ptx.Type, bits uint64) uint64 {
		if operand != 1 || done || magnitude(bits) < largest {
			return bits
		}
		done = true
		return 0
	})
	return out
}
