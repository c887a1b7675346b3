package emu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/ptx"
)

// hopperCase is a kernel whose output on an H200 was recorded. Its parameters are the addresses of
// the input and the output and, optionally, a tensor map of one of them.
type hopperCase struct {
	name    string
	text    string
	threads int
	shared  int // dynamic bytes
	in      []byte
	out     int // bytes of output, initialised to 0xee
	tensor  *ptx.TensorMap
	store   bool // the tensor map describes the output instead of the input
}

// run runs the kernel on d and returns its output.
func (c *hopperCase) run(t *testing.T, d device.Device) ([]byte, error) {
	t.Helper()
	ctx := t.Context()
	in, err1 := d.Alloc(len(c.in))
	out, err2 := d.Alloc(c.out)
	result := bytes.Repeat([]byte{0xee}, c.out)
	if err := errors.Join(err1, err2, d.CopyIn(ctx, in, c.in, device.Whole(len(c.in))),
		d.CopyIn(ctx, out, result, device.Whole(c.out))); err != nil {
		return nil, err
	}
	var params device.Params
	params.Ptr(in)
	params.Ptr(out)
	if c.tensor != nil {
		tm := *c.tensor
		if tm.Base = uint64(in); c.store {
			tm.Base = uint64(out)
		}
		encoded, err := d.EncodeTensorMap(&tm)
		if err != nil {
			return nil, err
		}
		params.TensorMap(encoded)
	}
	m, err := d.Load(ctx, c.text)
	if err != nil {
		return nil, err
	}
	f, err := m.Function("k")
	if err != nil {
		return nil, err
	}
	one := device.Dim3{X: 1, Y: 1, Z: 1}
	l := device.Launch{Grid: one, Block: device.Dim3{X: c.threads, Y: 1, Z: 1}, Shared: c.shared,
		Params: params.Bytes()}
	return result, errors.Join(d.Launch(ctx, f, l), d.CopyOut(ctx, result, out, device.Whole(c.out)), m.Unload(),
		d.Free(in), d.Free(out))
}

// kernel returns the PTX of a kernel with the given body. The body can use the thread index %t,
// the addresses %in and %out, the address %map of the tensor map and the dynamic shared memory s.
func kernel(decls, body string, tensor bool) string {
	param, load := "", ""
	if tensor {
		param, load = ", .param .align 64 .b8 tm[128]", "\tmov.b64 %map, tm;\n\tcvta.param.u64 %map, %map;\n"
	}
	return `.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k (.param .u64 pin, .param .u64 pout` + param + `)
{
	.reg .pred %q<4>;
	.reg .b64 %in, %out, %map, %p, %da, %db;
	.reg .b32 %t, %i, %a, %v, %w<4>;
` + decls + `	ld.param.u64 %in, [pin];
	ld.param.u64 %out, [pout];
	mov.u32 %t, %tid.x;
` + load + body + `	ret;
}
`
}

// fillShared returns PTX that copies n bytes of the input to shared memory, 4 bytes per thread and
// iteration, and makes them visible to the async proxy.
func fillShared(n, threads int) string {
	return fmt.Sprintf(`	mov.u32 %%i, %%t;
FILL:	mul.wide.u32 %%p, %%i, 4;
	add.u64 %%p, %%p, %%in;
	ld.global.b32 %%v, [%%p];
	mov.u32 %%a, s;
	mad.lo.u32 %%a, %%i, 4, %%a;
	st.shared.b32 [%%a], %%v;
	add.u32 %%i, %%i, %d;
	setp.lt.u32 %%q1, %%i, %d;
	@%%q1 bra FILL;
	fence.proxy.async;
	bar.sync 0;
`, threads, n/4)
}

// dumpShared returns PTX that copies n bytes of shared memory to the output.
func dumpShared(n, threads int) string {
	return fmt.Sprintf(`	bar.sync 0;
	mov.u32 %%i, %%t;
DUMP:	mov.u32 %%a, s;
	mad.lo.u32 %%a, %%i, 4, %%a;
	ld.shared.b32 %%v, [%%a];
	mul.wide.u32 %%p, %%i, 4;
	add.u64 %%p, %%p, %%out;
	st.global.b32 [%%p], %%v;
	add.u32 %%i, %%i, %d;
	setp.lt.u32 %%q1, %%i, %d;
	@%%q1 bra DUMP;
`, threads, n/4)
}

// matrixShared is the size in bytes of the shared memory that the matrix descriptors refer to.
const matrixShared = 32 << 10

// layout holds the fields of a wgmma matrix descriptor. Offsets are in bytes.
type layout struct {
	start, leading, stride, base int
	swizzle                      int
}

// word returns the encoded descriptor.
func (l layout) word() uint64 {
	mode := map[int]uint64{0: 0, 128: 1, 64: 2, 32: 3}[l.swizzle]
	return uint64(l.start>>4) | uint64(l.leading>>4)<<16 | uint64(l.stride>>4)<<32 | uint64(l.base)<<49 | mode<<62
}

// matrixCase executes one wgmma per pair of layouts of A and B. All of them add to the same
// accumulators, which are loaded from the input.
type matrixCase struct {
	name      string
	n, k      int
	d, a, b   string
	layouts   [][2]layout
	registers bool   // A is in registers instead of shared memory
	trans     [2]int // tnspA and tnspB, for 16-bit types
	signs     [2]int // 1 negates A or B
	suffix    string // "satfinite" or empty
	fresh     bool   // the first wgmma overwrites the accumulators (scale-d 0)
	numbers   numbers
	seed      uint64
}

// numbers selects the distribution of matrix elements.
type numbers int

const (
	whole     numbers = iota // integers from -3 to 3
	sizes                    // normal numbers of varied magnitude: results depend on summation order and truncation
	subnormal                // mostly zeros and subnormals, so that subnormals are the largest terms of many sums
)

// build returns the kernel and input of the case. The first half of shared memory is filled with
// elements of A and the second with elements of B, so every descriptor refers to a matrix.
func (m *matrixCase) build() *hopperCase {
	sums := m.n / 2
	reg, size := "b32", 4
	if m.d == "f16" {
		sums /= 2
	}
	rng := rand.New(rand.NewPCG(m.seed, 0))
	in := append(elements(rng, matrixShared/2, m.a, m.numbers), elements(rng, matrixShared/2, m.b, m.numbers)...)
	in = append(in, elements(rng, 128*16, m.a, m.numbers)...)
	in = append(in, elements(rng, 128*sums*4, m.d, m.numbers)...)
	var list, load, store []string
	for n := range sums {
		list = append(list, fmt.Sprintf("%%d%d", n))
		load = append(load, fmt.Sprintf("\tld.global.b32 %%d%d, [%%p+%d];\n", n, 4*n))
		store = append(store, fmt.Sprintf("\tst.global.b32 [%%p+%d], %%d%d;\n", 4*n, n))
	}
	a := "%da"
	if m.registers {
		a = "{%w0, %w1, %w2, %w3}"
	}
	types := strings.Join([]string{m.d, m.a, m.b}, ".")
	kind := fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n%dk%d%s.%s", m.n, m.k,
		map[bool]string{true: ".satfinite"}[m.suffix == "satfinite"], types)
	if m.a == "b1" {
		kind += ".and.popc"
	}
	tail := ""
	if m.d == "f16" || m.d == "f32" {
		tail = fmt.Sprintf(", %d, %d", 1-2*m.signs[0], 1-2*m.signs[1])
		if elementBytes[m.a] == 2 {
			if !m.registers {
				tail += fmt.Sprintf(", %d", m.trans[0])
			}
			tail += fmt.Sprintf(", %d", m.trans[1])
		}
	}
	body := fillShared(matrixShared, 128) +
		fmt.Sprintf("\tmul.wide.u32 %%p, %%t, 16;\n\tadd.u64 %%p, %%p, %%in;\n\tld.global.v4.b32 {%%w0, %%w1, %%w2, "+
			"%%w3}, [%%p+%d];\n", matrixShared) +
		fmt.Sprintf("\tmul.wide.u32 %%p, %%t, %d;\n\tadd.u64 %%p, %%p, %%in;\n\tadd.u64 %%p, %%p, %d;\n", sums*size,
			matrixShared+128*16) +
		strings.Join(load, "") + "\tmov.u32 %a, s;\n\tshr.u32 %a, %a, 4;\n\twgmma.fence.sync.aligned;\n"
	for n, l := range m.layouts {
		l[1].start += matrixShared / 2
		adds := 1
		if m.fresh && n == 0 {
			adds = 0
		}
		body += fmt.Sprintf("\tcvt.u64.u32 %%da, %%a;\n\tcvt.u64.u32 %%db, %%a;\n\tadd.u64 %%da, %%da, "+
			"%d;\n\tadd.u64 %%db, %%db, %d;\n\tsetp.ne.u32 %%q0, %d, 0;\n", int64(l[0].word()), int64(l[1].word()),
			adds) +
			fmt.Sprintf("\t%s {%s}, %s, %%db, %%q0%s;\n", kind, strings.Join(list, ", "), a, tail)
	}
	body += "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n" +
		fmt.Sprintf("\tmul.wide.u32 %%p, %%t, %d;\n\tadd.u64 %%p, %%p, %%out;\n", sums*size) + strings.Join(store, "")
	return &hopperCase{
		name: m.name, threads: 128, shared: matrixShared, in: in, out: 128 * sums * size,
		text: kernel(fmt.Sprintf("\t.reg .%s %%d<%d>;\n", reg, sums), body, false),
	}
}

// element returns the bits of a random element of type t.
func element(rng *rand.Rand, t string, of numbers) uint64 {
	if of == subnormal {
		return sparse(rng, t)
	}
	v := float64(rng.IntN(7) - 3)
	if of == sizes {
		v = rng.NormFloat64() * math.Ldexp(1, rng.IntN(9)-4)
	}
	switch t {
	case "f16":
		return uint64(dtype.Float16From64(v))
	case "bf16":
		return uint64(dtype.BFloat16From64(v))
	case "tf32", "f32":
		return uint64(math.Float32bits(float32(v)))
	case "e4m3", "e5m2":
		// A random sign and the magnitude 0, 1, 2 or 3, or any moderate magnitude for sizes.
		e4m3 := t == "e4m3"
		bits := map[bool][4]int{true: {0, 0x38, 0x40, 0x44}, false: {0, 0x3c, 0x40, 0x42}}[e4m3][rng.IntN(4)]
		if of == sizes {
			bits = map[bool]int{true: 0x18 + rng.IntN(0x40), false: 0x2c + rng.IntN(0x20)}[e4m3]
		}
		return uint64(bits | rng.IntN(2)<<7)
	case "s32":
		return uint64(uint32(rng.IntN(2000) - 1000))
	}
	return rng.Uint64()
}

// sparse returns the bits of a number that is usually zero or subnormal.
func sparse(rng *rand.Rand, t string) uint64 {
	fraction, exponents := 0, 15 // fraction bits and range of biased exponents
	switch t {
	case "f16":
		fraction = 10
	case "bf16", "tf32": // tf32 ignores the lower bits
		fraction, exponents = 7, 110
	case "e4m3":
		fraction = 3
	case "e5m2":
		fraction = 2
	case "f32": // accumulators, some in the range of subnormal bfloat16 products
		return rng.Uint64N(2) * uint64(math.Float32bits(float32(rng.NormFloat64()*math.Ldexp(1,
			rng.IntN(30)-20-60*rng.IntN(3)))))
	default:
		return rng.Uint64()
	}
	bits := uint64(0)
	switch kind := rng.IntN(10); {
	case kind < 6:
	case kind < 9:
		bits = uint64(rng.IntN(1<<fraction)) >> rng.IntN(fraction)
	default:
		bits = uint64(1+rng.IntN(exponents))<<fraction | uint64(rng.IntN(1<<fraction))
	}
	size := elementBytes[t] * 8
	if t == "tf32" {
		bits <<= 16
	}
	return bits | rng.Uint64N(2)<<(size-1)
}

var elementBytes = map[string]int{"f16": 2, "bf16": 2, "tf32": 4, "f32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1,
	"b1": 1, "s32": 4}

// elements returns n bytes of random elements of type t.
func elements(rng *rand.Rand, n int, t string, of numbers) []byte {
	var b []byte
	for size := elementBytes[t]; len(b) < n; {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], element(rng, t, of))
		b = append(b, word[:size]...)
	}
	return b
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	for i, rng := 0, seeded(seed); i < n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}
