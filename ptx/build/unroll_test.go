package build_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu"
)

// gather returns a kernel for one thread that copies rows from..to of the second column of a
// matrix, in a loop unrolled n times, and then reads them again from shared memory.
func gather(n int, index ptx.Type, trans bool) *build.Kernel {
	k := build.New("gather")
	k.Threads(1, 1, 1)
	out, in := k.Pointer("out", ptx.U32), k.Pointer("in", ptx.U32).ReadOnly()
	from, to := k.Param("from", index), k.Param("to", index)
	m := k.Matrix(in, 64, 64, 64)
	if trans {
		m = m.T()
	}
	tile := k.Shared("tile", ptx.U32, 64, 3)
	at := func(i build.Reg) build.Reg { return k.To(ptx.U32, i) }
	k.ForUnrolled(from, to, n, func(i build.Reg) {
		x := m.Load(i, 1)
		out.At(i).Store(x)
		tile.Store(at(i), 2, x)
	})
	k.ForUnrolled(from, to, n, func(i build.Reg) {
		out.At(k.Add(i, 64)).Store(k.Add(tile.Load(at(i), 2), at(i)))
	})
	return k
}

// TestForUnrolled checks that each iteration is executed once and at its index for all unroll
// factors.
func TestForUnrolled(t *testing.T) {
	for _, index := range []ptx.Type{ptx.U32, ptx.U64, ptx.S32} {
		for _, trans := range []bool{false, true} {
			for _, n := range []int{1, 2, 3, 8} {
				program, err := emu.Load(parsed(t, gather(n, index, trans)))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range [][2]int{{0, 0}, {0, 1}, {0, 7}, {0, 8}, {0, 64}, {5, 5}, {5, 6}, {5, 28}, {63, 64}} {
					got := gathered(t, program, index, r[0], r[1])
					want := make([]uint32, 128)
					for i := r[0]; i < r[1]; i++ {
						want[i] = uint32(100*i + 1)
						if trans {
							want[i] = uint32(100 + i)
						}
						want[i+64] = want[i] + uint32(i)
					}
					if !slices.Equal(got, want) {
						t.Fatalf("%v, transposed %v, unrolled %d, from %d to %d:\n got %v\nwant %v", index, trans, n, r[0], r[1], got,
							want)
					}
				}
			}
		}
	}
}

func parsed(t *testing.T, k *build.Kernel) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse("kernel.ptx", text(t, k))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// gathered runs the kernel on a 64×64 matrix whose element (i, j) is 100·i + j.
func gathered(t *testing.T, p *emu.Program, index ptx.Type, from, to int) []uint32 {
	t.Helper()
	memory := emu.NewMemory(emu.MemoryOptions{})
	place := func(words []uint32) uint64 {
		b := make([]byte, 4*len(words))
		for i, w := range words {
			binary.LittleEndian.PutUint32(b[4*i:], w)
		}
		at, err := memory.Alloc(len(b))
		if err == nil {
			err = memory.Write(at, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	in := make([]uint32, 64*64)
	for i := range in {
		in[i] = uint32(100*(i/64) + i%64)
	}
	out := place(make([]uint32, 128))
	params := binary.LittleEndian.AppendUint64(nil, out)
	params = binary.LittleEndian.AppendUint64(params, place(in))
	for _, v := range []int{from, to} {
		if index.Bits() == 64 {
			params = binary.LittleEndian.AppendUint64(params, uint64(v))
		} else {
			params = binary.LittleEndian.AppendUint32(params, uint32(v))
		}
	}
	one := emu.Dim3{X: 1, Y: 1, Z: 1}
	if _, err := p.Run(t.Context(), memory, emu.Launch{Entry: "gather", Grid: one, Block: one,
		Params: params}); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4*128)
	if err := memory.Read(out, b); err != nil {
		t.Fatal(err)
	}
	got := make([]uint32, 128)
	for i := range got {
		got[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return got
}

// TestForUnrolledAddresses checks that an iteration adds to the address of the previous one, and
// that an index along a row needs no instructions.
func TestForUnrolledAddresses(t *testing.T) {
	k := build.New("sum")
	n, ld := k.Param("n", ptx.U32), k.Param("ld", ptx.U64)
	a := k.Matrix(k.Pointer("a", ptx.F32), n, n, ld)
	sum := k.Var("sum", ptx.F32, 0)
	k.ForUnrolled(0, n, 8, func(i build.Reg) { k.FMA(sum, a.Load(i, 0), a.Load(0, i)) })
	a.Store(0, 0, sum)
	list := strings.Join(instructions(t, k), "\n")
	_, loop, _ := strings.Cut(list, "loop:\n")
	loop, _, _ = strings.Cut(loop, "bra")
	for op, want := range map[string]int{"ld.global": 16, "add.u64": 7, "mad": 2, "cvt": 1, "add.u32": 1} {
		if got := strings.Count(loop, op); got != want {
			t.Errorf("%d %s, want %d, in\n%s", got, op, want, loop)
		}
	}
}

func TestForUnrolledErrors(t *testing.T) {
	k := build.New("k")
	k.ForUnrolled(0, 4, 0, func(build.Reg) {})
	if _, err := k.Build(); err == nil || !strings.Contains(err.Error(), "ForUnrolled(n = 0): want at least 1") {
		t.Errorf("unrolling 0 times: got error %v", err)
	}
}
