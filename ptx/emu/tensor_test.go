package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// tensorProgram is a kernel of 128 threads that copies its input to shared memory, and words to
// columns of tensor memory. One thread runs ISSUE, and all threads store columns of tensor memory.
// The address of shared memory is in %sm, and that of 64 columns of tensor memory in %tm.
const tensorProgram = `.version 9.0
.target sm_110a
.address_size 64
.visible .entry k(.param .u64 in)
{
	.reg .b32 %t, %sm, %a, %tm, %row, %v<16>, %w;
	.reg .b64 %in, %p, %out, %x, %y;
	.reg .pred %q, %first, %none;
	.shared .align 1024 .b8 sm[SHARED];
	.shared .align 16 .b8 bar[16];
	mov.u32 %t, %tid.x;
	mov.u32 %sm, sm;
	ld.param.u64 %in, [in];
	setp.eq.u32 %first, %t, 0;
	@%first mbarrier.init.shared::cta.b64 [bar], 1;
	setp.ge.u32 %q, %t, 32;
	@%q bra COPY;
	tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [bar+8], 64;
	tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
COPY:
	shl.b32 %a, %t, 2;
	cvt.u64.u32 %p, %a;
	add.u64 %p, %p, %in;
	add.u32 %a, %a, %sm;
	add.u32 %row, %sm, SHARED;
WORD:
	ld.global.b32 %w, [%p];
	st.shared.b32 [%a], %w;
	add.u64 %p, %p, 512;
	add.u32 %a, %a, 512;
	setp.lt.u32 %q, %a, %row;
	@%q bra WORD;
	bar.sync 0;
	ld.shared.b32 %tm, [bar+8];
	shr.u32 %row, %t, 5;
	shl.b32 %row, %row, 21;
	add.u32 %row, %row, %tm;
	cvt.u64.u32 %p, %t;
	mad.lo.u64 %p, %p, 16, %in;
	ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%p+SHARED];
	tcgen05.st.sync.aligned.32x32b.x4.b32 [%row+32], {%v0, %v1, %v2, %v3};
	mov.b32 %w, 0x7f7f7f7f;
	tcgen05.st.sync.aligned.32x32b.x4.b32 [%row+40], {%w, %w, %w, %w};
	tcgen05.wait::st.sync.aligned;
	fence.proxy.async.shared::cta;
	tcgen05.fence::before_thread_sync;
	bar.sync 0;
	tcgen05.fence::after_thread_sync;
	@!%first bra WAIT;
	setp.ne.u32 %none, %t, %t;
	shr.u32 %a, %sm, 4;
	cvt.u64.u32 %x, %a;
ISSUE
	tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
	@!%q bra WAIT;
	tcgen05.fence::after_thread_sync;
LOAD
	tcgen05.wait::ld.sync.aligned;
	cvt.u64.u32 %out, %t;
	mad.lo.u64 %out, %out, 64, %in;
	add.u64 %out, %out, SHARED;
	st.global.v4.b32 [%out+2048], {%v0, %v1, %v2, %v3};
	st.global.v4.b32 [%out+2064], {%v4, %v5, %v6, %v7};
	st.global.v4.b32 [%out+2080], {%v8, %v9, %v10, %v11};
	st.global.v4.b32 [%out+2096], {%v12, %v13, %v14, %v15};
	tcgen05.fence::before_thread_sync;
	bar.sync 0;
	tcgen05.fence::after_thread_sync;
	setp.lt.u32 %q, %t, 32;
	@%q tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, 64;
	ret;
}
`

// loadColumns loads 16 columns of tensor memory from column col.
func loadColumns(col int) string {
	return fmt.Sprintf("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%%v0, %%v1, %%v2, %%v3, %%v4, %%v5, %%v6, %%v7, "+
		"%%v8, %%v9, %%v10, %%v11, %%v12, %%v13, %%v14, %%v15}, [%%row+%d];", col)
}

// runTensorProgram runs tensorProgram with the given bytes in shared memory and words of each lane
// in columns 32 to 35 of tensor memory. It returns 16 words of each thread.
func runTensorProgram(
	t *testing.T, shared []byte, words *[tensorLanes][4]uint32, issue, load string,
) (out [tensorLanes][16]uint32, err error) {
	t.Helper()
	text := strings.NewReplacer("SHARED", fmt.Sprint(len(shared)), "ISSUE", issue, "LOAD", load).Replace(tensorProgram)
	p := loadText(t, "tensor.ptx", text)
	in, encodeErr := binary.Append(append([]byte{}, shared...), binary.LittleEndian, words)
	if encodeErr != nil {
		t.Fatal(encodeErr)
	}
	buf := append(in, make([]byte, 64*tensorLanes)...)
	mem := NewMemory(MemoryOptions{})
	addr := upload(t, mem, buf)
	_, err = p.Run(t.Context(), mem, Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{tensorLanes, 1, 1},
		Params: pack(t, p, "k", addr), Seed: uint64(len(issue)), MaxInstructions: 1 << 20})
	download(t, mem, addr, buf)
	if _, decodeErr := binary.Decode(buf[len(in):], binary.LittleEndian, &out); decodeErr != nil {
		t.Fatal(decodeErr)
	}
	return out, err
}

// coreMatrix returns the offset of a byte of a K-major matrix without a swizzle: 8 rows of 16 bytes
// follow each other, first along K.
func coreMatrix(row, at, rowBytes int) int { return row/8*8*rowBytes + at/16*128 + row%8*16 + at%16 }

// descriptorOf returns the text that sets a register to the descriptor of such a matrix.
func descriptorOf(register string, start, rowBytes int) string {
	return fmt.Sprintf("add.u64 %s, %%x, %#x;\n", register, uint64(start/16)|8<<16|uint64(8*rowBytes/16)<<32|1<<46)
}

// sparseKinds lists the kinds of tcgen05.mma.sp with CUTLASS's layouts of the metadata. The strides
// of 8 rows, of two groups of them and of 16 rows, and of a column of A, which is 128, give a sum.
// Its remainder by 128 is the lane, and its quotient the position in the lane. With split, the lane
// is 8 further on for columns from split on, and the position starts again.
var sparseKinds = []struct {
	text       string
	typ        ptx.Type
	descriptor uint32
	chunk      int // columns of A that four bits describe
	rows       [3]int
	split      int
}{
	{"kind::f16", ptx.F16, 1 << 4, 4, [3]int{1, 2048, 16}, 16},
	{"kind::tf32", ptx.TF32, 1<<4 | 2<<7 | 2<<10, 2, [3]int{1, 1024, 16}, 8},
	{"kind::f8f6f4", ptx.E4M3, 1 << 4, 4, [3]int{1, 8, 16}, 128},
	{"kind::i8", ptx.S8, 2<<4 | 1<<7 | 1<<10, 4, [3]int{1, 8, 16}, 128},
	{"kind::mxf8f6f4.block_scale", ptx.E4M3, 1 << 23, 4, [3]int{1, 8, 16}, 128},
	{"kind::mxf4.block_scale", ptx.E2M1, 1<<23 | 1<<7 | 1<<10, 8, [3]int{1, 8, 16}, 128},
}

// TestSparseTensorProduct multiplies random sparse matrices of small integers, whose sums are
// exact, with every kind of tcgen05.mma.sp. The metadata are placed by CUTLASS's strides.
func TestSparseTensorProduct(t *testing.T) {
	rng := testrand.New(t)
	const n, rowBytes = 16, 32 // of packed A
	for _, kind := range sparseKinds {
		for selector := range choose(kind.split < 128, 2, 1) {
			e := elementOf(kind.typ)
			values := smallValues(e)
			k := 2 * rowBytes * 8 / e.bits
			shared := make([]byte, 128*rowBytes+n*2*rowBytes)
			set := func(start, row, column, rowBytes int, v uint64) {
				bit := column * e.bits
				at := start + coreMatrix(row, bit/8, rowBytes)
				if e.bits == 4 {
					shared[at] |= byte(v << (bit % 8))
					return
				}
				for b := range e.bits / 8 {
					shared[at+b] = byte(v >> (8 * b))
				}
			}
			var meta [tensorLanes][4]uint32
			dense := make([]float64, 128*k)
			for row := range 128 {
				stored := 0
				for at := 0; at < k; at += kind.chunk {
					pair := [][2]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 1}, {2, 3}}[rng.IntN(7)]
					index := pair[0] | pair[1]<<2
					var places []int
					switch kind.chunk {
					case 2:
						half := rng.IntN(2)
						index, places = [2]int{0b0100, 0b1110}[half], []int{half}
					case 4:
						places = pair[:]
					default:
						places = []int{2 * pair[0], 2*pair[0] + 1, 2 * pair[1], 2*pair[1] + 1}
					}
					for _, place := range places {
						v := values[rng.IntN(len(values))]
						dense[row*k+at+place] = e.decode(v)
						set(0, row, stored, rowBytes, v)
						stored++
					}
					sum := row%8*kind.rows[0] + row/8%2*kind.rows[1] + row/16*kind.rows[2] + at%kind.split*128 + at/kind.split*8
					bit := sum / 128 * 4 / kind.chunk
					meta[sum%128][bit/32+selector] |= uint32(index) << (bit % 32)
				}
			}
			right := make([]float64, n*k)
			for col := range n {
				for x := range k {
					v := values[rng.IntN(len(values))]
					right[col*k+x] = e.decode(v)
					set(128*rowBytes, col, x, 2*rowBytes, v)
				}
			}
			descriptor := kind.descriptor | uint32(selector) | 1<<2 | n/8<<17 | 128/16<<24
			scales := ""
			if strings.HasSuffix(kind.text, "block_scale") {
				scales = " [%tm+40], [%tm+40],"
			}
			issue := descriptorOf("%y", 128*rowBytes, 2*rowBytes) + descriptorOf("%x", 0, rowBytes) + fmt.Sprintf(
				"tcgen05.mma.sp.cta_group::1.%s [%%tm], %%x, %%y, [%%tm+32], %#x,%s %%none;\n", kind.text, descriptor, scales)
			got, err := runTensorProgram(t, shared, &meta, issue, loadColumns(0))
			if err != nil {
				t.Fatalf("%s: %v", kind.text, err)
			}
			for row := range 128 {
				for col := range n {
					want := 0.0
					for x := range k {
						want += dense[row*k+x] * right[col*k+x]
					}
					sum := float64(math.Float32frombits(got[row][col]))
					if kind.typ == ptx.S8 {
						sum = float64(int32(got[row][col]))
					}
					if sum != want {
						t.Fatalf("%s, selector %d: element (%d, %d) is %v, want %v", kind.text, selector, row, col, sum, want)
					}
				}
			}
		}
	}
}

// TestSparseTensorFaults checks the errors of tcgen05.mma.sp.
func TestSparseTensorFaults(t *testing.T) {
	shared := make([]byte, 8192)
	for _, c := range []struct {
		descriptor uint32
		meta       string
		want       string
	}{
		{1<<4 | 16/8<<17 | 128/16<<24, "[%tm+32]", "is that of a dense A"},
		{1<<4 | 1<<2 | 16/8<<17 | 64/16<<24, "[%tm+32]", "does not support a sparse A of 64 rows"},
		{1<<4 | 1<<2 | 2 | 16/8<<17 | 128/16<<24, "[%tm+32]", "sparsity selector 2: want 0 or 1"},
		{1<<4 | 1<<2 | 16/8<<17 | 128/16<<24, "[%tm+33]", "want lane 0 and an even column"},
		{1<<4 | 1<<2 | 16/8<<17 | 128/16<<24, "[%tm+32]", "the metadata 0b0000 of row 0 and columns 0 to 3"},
	} {
		issue := descriptorOf("%y", 4096, 64) + descriptorOf("%x", 0, 32) + fmt.Sprintf(
			"tcgen05.mma.sp.cta_group::1.kind::f16 [%%tm], %%x, %%y, %s, %#x, %%none;\n", c.meta, c.descriptor)
		_, err := runTensorProgram(t, shared, &[tensorLanes][4]uint32{}, issue, loadColumns(0))
		if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("descriptor %#x: %v, want a misuse: %s", c.descriptor, err, c.want)
		}
	}
}

// TestNarrowFloats expands 4-bit and 6-bit floats while it copies them to tensor memory, and
// multiplies them from there. B is the identity, so D is A.
func TestNarrowFloats(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct {
		from string
		typ  ptx.Type
		code uint32
	}{{"b4x16_p64", ptx.E2M1, 5}, {"b6x16_p32", ptx.E2M3, 3}, {"b6x16_p32", ptx.E3M2, 4}} {
		const n = 16
		e := elementOf(c.typ)
		shared := make([]byte, 128*32+n*32)
		var want [128][32]float64
		for row := range want {
			for k := range want[row] {
				v := rng.IntN(1 << e.bits)
				want[row][k] = e.decode(uint64(v))
				bit := k % 16 * e.bits
				at := coreMatrix(row, k/16*16, 32) + bit/8
				shared[at] |= byte(v << (bit % 8))
				if bit%8+e.bits > 8 {
					shared[at+1] |= byte(v >> (8 - bit%8))
				}
			}
		}
		for k := range n {
			shared[128*32+coreMatrix(k, k, 32)] = 0x38 // 1 in e4m3
		}
		issue := descriptorOf("%y", 128*32, 32) + descriptorOf("%x", 0, 32) + fmt.Sprintf(
			"tcgen05.cp.cta_group::1.128x256b.b8x16.%s [%%tm+16], %%x;\n"+
				"tcgen05.mma.cta_group::1.kind::f8f6f4 [%%tm], [%%tm+16], %%y, %#x, %%none;\n",
			c.from, 1<<4|c.code<<7|n/8<<17|128/16<<24)
		got, err := runTensorProgram(t, shared, &[tensorLanes][4]uint32{}, issue, loadColumns(0))
		if err != nil {
			t.Fatalf("%s: %v", c.from, err)
		}
		for row := range want {
			for k := range n {
				if v := float64(math.Float32frombits(got[row][k])); v != want[row][k] {
					t.Fatalf("%v: element (%d, %d) is %v, want %v", c.typ, row, k, v, want[row][k])
				}
			}
		}
	}
}

// TestTensorReduction loads the four words of each lane with each variant of tcgen05.ld.red.
func TestTensorReduction(t *testing.T) {
	rng := testrand.New(t)
	nan := math.Float32bits(float32(math.NaN()))
	var words [tensorLanes][4]uint32
	for lane := range words {
		for k := range words[lane] {
			words[lane][k] = choose(rng.IntN(6) == 0, nan, math.Float32bits(float32(rng.IntN(9)-4)))
		}
	}
	for _, op := range []string{"min", "max"} {
		for _, typ := range []string{"u32", "s32", "f32", "abs.f32", "NaN.f32", "abs.NaN.f32"} {
			got, err := runTensorProgram(t, make([]byte, 512), &words, "", fmt.Sprintf(
				"tcgen05.ld.red.sync.aligned.32x32b.x4.%s.%s {%%v0, %%v1, %%v2, %%v3}, %%v4, [%%row+32];", op, typ))
			if err != nil {
				t.Fatal(err)
			}
			for lane, row := range words {
				var want uint32
				better := func(less, more bool) bool { return op == "min" && less || op == "max" && more }
				for k, v := range row {
					x, y := math.Float32frombits(v), math.Float32frombits(want)
					if strings.Contains(typ, "abs") {
						x = float32(math.Abs(float64(x)))
						v = math.Float32bits(x)
					}
					switch {
					case k == 0:
						want = v
					case typ == "u32":
						want = choose(better(v < want, v > want), v, want)
					case typ == "s32":
						want = choose(better(int32(v) < int32(want), int32(v) > int32(want)), v, want)
					case strings.Contains(typ, "NaN"):
						want = choose(x != x || y == y && better(x < y, x > y), v, want)
					default:
						want = choose(y != y || better(x < y, x > y), v, want)
					}
				}
				if typ != "u32" && typ != "s32" && math.IsNaN(float64(math.Float32frombits(want))) {
					want = 0x7fffffff
				}
				if [4]uint32(got[lane][:4]) != row || got[lane][4] != want {
					t.Fatalf("%s.%s of %x is %x, want %x", op, typ, row, got[lane][:5], want)
				}
			}
		}
	}
}

// TestPaddedSpans checks that the padding of 4-bit and 6-bit elements does not count as read.
func TestPaddedSpans(t *testing.T) {
	const word = 128>>4<<16 | 256>>4<<32 // 128 bytes between core matrices along K
	for _, c := range []struct {
		kind  string
		typ   ptx.Type
		spans int
		bytes int // of each span
	}{
		{"f8f6f4", ptx.E2M1, 16, 8}, {"mxf8f6f4", ptx.E3M2, 16, 12}, {"f8f6f4", ptx.E4M3, 1, 256}, {"mxf4", ptx.E2M1, 1, 128},
	} {
		k := slices.IndexFunc(tensorKinds, func(kind tensorKind) bool { return kind.name == c.kind })
		spans := (&tensorProduct{kind: &tensorKinds[k]}).matrix(word, 8, 32, c.typ, false).spans(0, 8)
		if len(spans) != c.spans || spans[0].Size != c.bytes || spans[len(spans)-1].Size != c.bytes {
			t.Errorf("%s, %v: spans %v, want %d of %d bytes", c.kind, c.typ, spans, c.spans, c.bytes)
		}
	}
}
