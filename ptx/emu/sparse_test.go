package emu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// metadataAt returns the lane and the bit of the metadata of a chunk of a row of A. The pictures of
// the manual show them; the formulas for 8-bit and 4-bit elements are those of CUTLASS (ELayout in
// mma_traits_sm120_sparse.hpp), those for 16 bits and tf32 follow from reorder_meta in
// host_reorder.h.
func metadataAt(bits, selector, words, row, chunk int) (lane, bit int) {
	if bits >= 16 { // four chunks of two rows in a word
		return row%8*4 + selector*words + chunk/4, chunk%4*4 + row/8*16
	}
	return row%8*4 + selector*2*words + chunk/8*2 + row/8, chunk % 8 * 4
}

// TestSparseMma multiplies random sparse matrices of small integers, whose sums are exact.
func TestSparseMma(t *testing.T) {
	rng := testrand.New(t)
	for _, f := range ptx.FormsOf("mma") {
		if !strings.HasPrefix(f.Text, "mma.sparse") {
			continue
		}
		for _, ordered := range []string{"sp", "sp::ordered_metadata"} {
			i := &ptx.Instr{Op: "mma"}
			for _, s := range f.Slots {
				if s.Name != "satfinite" {
					i.Mods = append(i.Mods, s.Values[rng.IntN(len(s.Values))])
				}
			}
			if i.Mods[0] = ordered; !slices.Contains(f.Slots[0].Values, ordered) {
				continue
			}
			for k := range f.Operands {
				i.Args = append(i.Args, sampleOperand(&f.Operands[k], func(string) string { return "" }, k))
			}
			ranges := f.Operands[5].Ranges[0]
			td, ta, tb, tc := elementsOf(bound(t, i))
			m, n, k := shapeOf(i)
			a, b, c, d := elementOf(ta), elementOf(tb), elementOf(tc), elementOf(td)
			if i.Has("kind::f8f6f4") {
				a, b = paddedType(ta), paddedType(tb)
			}
			chunk, unit := 4, 1
			switch {
			case ta == ptx.TF32:
				chunk = 2
			case ta.Bits() == 4 && ta.Class() != ptx.Float:
				chunk, unit = 8, 2
			}
			chunks := k / chunk
			words := choose(ta.Bits() >= 16, max(chunks/4, 1), max(chunks/8, 1))
			selector := rng.IntN(max(4/(words*choose(ta.Bits() >= 16, 1, 2)), 1))
			if int64(selector) > ranges.Hi {
				selector = 0
			}
			// The registers of each lane: a, b, c and the metadata.
			valuesA, valuesB := smallValues(a), smallValues(b)
			packed, dense := make([]uint64, m*k/2), make([]float64, m*k)
			var meta [lanes]uint32
			for row := range m {
				for x := range chunks {
					low, high := rng.IntN(4), rng.IntN(4)
					for high == low {
						high = rng.IntN(4)
					}
					if ordered != "sp" && low > high {
						low, high = high, low
					}
					index := low | high<<2
					places := []int{low * unit, high * unit}
					if chunk == 2 {
						index, places = [2]int{0b0100, 0b1110}[low%2], []int{low % 2}
					}
					lane, bit := metadataAt(ta.Bits(), selector, words, row, x)
					meta[lane] |= uint32(index) << bit
					at := row*k/2 + x*chunk/2
					for _, place := range places {
						for u := range unit {
							packed[at] = valuesA[rng.IntN(len(valuesA))]
							dense[row*k+x*chunk+place+u] = a.decode(packed[at])
							at++
						}
					}
				}
			}
			right, sums := make([]uint64, k*n), make([]uint64, m*n)
			for x := range right {
				right[x] = valuesB[rng.IntN(len(valuesB))]
			}
			for x := range sums {
				sums[x] = c.encode(float64(rng.IntN(9) - 4))
			}
			files := [][]uint32{
				registersOf(fragmentA(m, k/2, a.perRegister()), packed, k/2, a),
				registersOf(fragmentB(k, n, b.perRegister()), right, n, b), registersOf(fragmentC(m, n), sums, n, c), meta[:],
			}
			got := runSparse(t, i, selector, files, m*n*d.bits/lanes/32)
			f := fragmentC(m, n)
			for lane := range lanes {
				for r, at := range f.at[lane] {
					want := c.decode(sums[int(at.row)*n+int(at.col)])
					for x := range k {
						want += dense[int(at.row)*k+x] * b.decode(right[x*n+int(at.col)])
					}
					each := d.perRegister()
					word := uint64(got[(r/each)*lanes+lane]) >> (r % each * d.bits)
					if x := d.decode(word & (1<<d.bits - 1)); x != want {
						t.Fatalf("%s, selector %d: element %v is %v, want %v", i.Mnemonic(), selector, at, x, want)
					}
				}
			}
		}
	}
}

func bound(t *testing.T, i *ptx.Instr) *ptx.Instr {
	t.Helper()
	if err := ptx.Bind(i); err != nil {
		t.Fatal(err)
	}
	return i
}

// smallValues returns the encodings of the integers from -3 to 3 that the type has.
func smallValues(e *elementType) (bits []uint64) {
	for b := range uint64(1) << min(e.bits, 16) {
		if e.bits == 32 {
			b <<= 16
		}
		if v := e.decode(b); v == float64(int(v)) && v >= -3 && v <= 3 {
			bits = append(bits, b)
		}
	}
	return bits
}

// registersOf returns the registers of a fragment, lane by lane in each register.
func registersOf(f *fragment, m []uint64, cols int, e *elementType) []uint32 {
	each := e.perRegister()
	out := make([]uint32, len(f.at[0])/each*lanes)
	for lane := range f.at {
		for n, at := range f.at[lane] {
			out[n/each*lanes+lane] |= uint32(m[int(at.row)*cols+int(at.col)] & (1<<e.bits - 1) << (n % each * e.bits))
		}
	}
	return out
}

// runSparse executes a sparse mma with the given registers of a, b, c and the metadata, and returns
// the count registers of d.
func runSparse(t *testing.T, i *ptx.Instr, selector int, files [][]uint32, count int) []uint32 {
	t.Helper()
	var text strings.Builder
	var names []string
	var buf []uint32
	fmt.Fprintf(&text, ".version 9.3\n.target sm_120a\n.address_size 64\n.visible .entry k (.param .u64 p)\n{\n"+
		"\t.reg .b64 %%p;\n\t.reg .b32 %%t, %%d<%d>;\n\tld.param.u64 %%p, [p];\n\tmov.u32 %%t, %%tid.x;\n"+
		"\tmad.wide.u32 %%p, %%t, 4, %%p;\n", count)
	list := func(prefix string, n int) string {
		var all []string
		for r := range n {
			all = append(all, fmt.Sprintf("%%%s%d", prefix, r))
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	for k, file := range files {
		name := "abcm"[k : k+1]
		fmt.Fprintf(&text, "\t.reg .b32 %%%s<%d>;\n", name, len(file)/lanes)
		for r := range len(file) / lanes {
			fmt.Fprintf(&text, "\tld.global.b32 %%%s%d, [%%p+%d];\n", name, r, 4*(len(buf)+r*lanes))
		}
		buf = append(buf, file...)
		names = append(names, list(name, len(file)/lanes))
	}
	fmt.Fprintf(&text, "\t%s %s, %s, %%m0, %d;\n", i.Mnemonic(), list("d", count), strings.Join(names[:3], ", "),
		selector)
	for r := range count {
		fmt.Fprintf(&text, "\tst.global.b32 [%%p+%d], %%d%d;\n", 4*(len(buf)+r*lanes), r)
	}
	text.WriteString("\tret;\n}\n")
	buf = append(buf, make([]uint32, count*lanes)...)
	p := loadText(t, "sparse.ptx", text.String())
	mem := NewMemory(MemoryOptions{})
	raw, err := binary.Append(nil, binary.LittleEndian, buf)
	if err != nil {
		t.Fatal(err)
	}
	addr := upload(t, mem, raw)
	params, err := p.Pack("k", addr)
	if err == nil {
		_, err = p.Run(t.Context(), mem, Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{lanes, 1, 1}, Params: params})
	}
	if err == nil {
		err = mem.Read(addr, raw)
	}
	if err != nil {
		t.Fatalf("%s: %v", i.Mnemonic(), err)
	}
	if _, err := binary.Decode(raw, binary.LittleEndian, buf); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(buf[len(buf)-count*lanes:])
}
