package emu

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// matrixCase is a matrix instruction and a kernel that executes it with one warp.
type matrixCase struct {
	form    *ptx.Form
	text    string // mnemonic of the instruction
	program string
	d, a, b ptx.Type // in the order of the mnemonic
	c       ptx.Type
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
	for lane := range lanes {
		at := lane*c.stride() + 8*c.counts[0]
		for k, t := range []ptx.Type{c.a, c.b, c.c} {
			e := elementTypes[t]
			for range c.counts[k+1] {
				var word uint64
				for n := range e.perRegister() {
					word |= element(t) & (1<<(e.bits-1)<<1 - 1) << (n * e.bits)
				}
				binary.LittleEndian.PutUint64(buf[at:], word)
				at += 8
			}
		}
	}
	return buf
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
		f, ok := map[ptx.Type]format{ptx.F16: formatF16, ptx.BF16: formatBF16, ptx.TF32: formatTF32, ptx.E4M3: formatE4M3,
			ptx.E5M2: formatE5M2}[t]
		switch {
		case kind < 6:
			return 0
		case !ok: // an accumulator or an integer type
			return encodeElement(rng, t, sign*math.Ldexp(1+rng.Float64(), rng.IntN(30)-20-60*rng.IntN(3)))
		case kind < 9:
			return encodeElement(rng, t, sign*math.Ldexp(float64(1+rng.IntN(1<<rng.IntN(f.precision)))/math.Ldexp(1,
				f.precision-1), f.minExp))
		}
		return encodeElement(rng, t, sign*math.Ldexp(1+rng.Float64(),
			choose(f.minExp < -100, rng.IntN(110), rng.IntN(15)+f.minExp)))
	},
}

// encodeElement returns v as an element of type t. For integer types of 8 bits or fewer it returns
// random bits.
func encodeElement(rng *rand.Rand, t ptx.Type, v float64) uint64 {
	switch t {
	case ptx.BF16:
		return uint64(codecBF16.encode(v))
	case ptx.TF32:
		return elementTypes[ptx.F32].encode(v)
	case ptx.E4M3, ptx.E5M2:
		return encoderOf(t, variant{finite: true})(v)
	case ptx.F16, ptx.F32, ptx.F64:
		return elementTypes[t].encode(v)
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

// TestNearestAccumulation checks that the two accumulation modes differ by at most the rounding
// error of a sum.
func TestNearestAccumulation(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range matrixCases(t) {
		if c.d != ptx.F32 {
			continue
		}
		in := c.operandBytes(func(ty ptx.Type) uint64 { return inputs["sizes"](rng, c, ty) })
		hopper, near := c.results(c.run(t, in, Hopper)), c.results(c.run(t, in, Nearest))
		far := 0
		for k := 0; k < len(near); k += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(hopper[k:]))
			y := math.Float32frombits(binary.LittleEndian.Uint32(near[k:]))
			if math.Abs(float64(x-y)) > 1e-4*(1+math.Abs(float64(y))) {
				far++
			}
		}
		if far > 0 {
			t.Errorf("%s: %d of %d elements differ by more than the rounding error", c.text, far, len(near)/4)
		}
	}
}
