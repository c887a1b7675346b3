package stream

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/program"
	"tilework/internal/table"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// h100 is a device with the properties of an H100. Its only usable method is Info.
type h100 struct{ device.Device }

func (h100) Info() *device.Info {
	return &device.Info{
		Name: "NVIDIA H100 80GB HBM3", Target: ptx.Target{SM: 90, Suffix: "a"}, SMs: 132, Memory: 85_520_809_984,
		MaxThreads: 1024, MaxShared: 227 << 10, MaxGrid: device.Dim3{X: 1<<31 - 1, Y: 1<<16 - 1, Z: 1<<16 - 1},
	}
}

// square returns the plan of an n×n×n product on an H100 with a limit of its memory.
func square(t *testing.T, in dtype.Type, precision gemm.Precision, n, limit int) *Plan {
	t.Helper()
	m := gemm.Dense(in, n, n)
	p, _, err := gemm.New(1, m, m, 0, gemm.Dense(in.Info().Results[0], n, n), gemm.Epilogue{})
	if err == nil {
		p, err = p.WithPrecision(precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(h100{}).Plan(&p, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl.Limit = limit
	return pl
}

// largest is the product of each type whose predicted times are in docs/large.md.
var largest = []struct {
	in        dtype.Type
	precision gemm.Precision
	n         int
}{{dtype.F32, gemm.Native, 49152}, {dtype.F64, gemm.Native, 49152}, {dtype.F32, gemm.F32x3, 49152},
	{dtype.BF16, gemm.Native, 65536}}

// TestLimited plans large products with less and less memory. Each schedule must fit. It logs the
// blocks and the predicted rates, and checks that 16 GiB cost less than 5 %.
func TestLimited(t *testing.T) {
	for _, c := range largest {
		var most float64
		for _, limit := range []int{0, 16 << 30, 4 << 30, 1 << 30, 256 << 20} {
			pl := square(t, c.in, c.precision, c.n, limit)
			rate := pl.host.Flops() / pl.Predicted().Seconds() / 1e12
			t.Logf("%v %v %d, %5d MiB: %5.1f TFLOP/s: %s", c.in, c.precision, c.n, limit>>20, rate, pl.Detail())
			if n := pl.Steps.Memory(); limit > 0 && n > limit {
				t.Errorf("%v %v %d: needs %d bytes, more than %d", c.in, c.precision, c.n, n, limit)
			}
			if most = max(most, rate); limit == 16<<30 && rate < 0.95*most {
				t.Errorf("%v %v %d: %.1f TFLOP/s in 16 GiB, %.1f in all memory", c.in, c.precision, c.n, rate, most)
			}
		}
	}
}

// TestLargePage checks the plan in docs/large.md.
func TestLargePage(t *testing.T) {
	pl := square(t, dtype.F64, gemm.Native, 49152, 16<<30)
	testkit.CheckPage(t, "../../../docs/large.md", "computed: plan, by internal/gpu/stream.TestLargePage",
		testkit.Fenced(table.Fold(pl.Detail(), 150)))
}

// TestStatedMinimum checks the documented minimum: 256 MiB suffice for sides of up to 50,000. The
// types are those with the longest elements on the device, in place and packed.
func TestStatedMinimum(t *testing.T) {
	for _, c := range []struct {
		in        dtype.Type
		precision gemm.Precision
	}{{dtype.F64, gemm.Native}, {dtype.F32, gemm.Native}, {dtype.F32, gemm.F32x3}} {
		pl := square(t, c.in, c.precision, 50_000, 0)
		if n := pl.smallest(pl.Schedule().order).Memory(); n > 256<<20 {
			t.Errorf("%v %v: needs %d bytes", c.in, c.precision, n)
		}
	}
}

// TestWalk checks that a walk visits each block once, and loads a band whenever it is not among the
// last of its side.
func TestWalk(t *testing.T) {
	for _, c := range []struct{ rows, cols, heldA, heldB int }{
		{1, 1, 1, 1}, {5, 1, 1, 1}, {1, 5, 1, 3}, {7, 9, 1, 1}, {7, 9, 2, 1}, {9, 7, 3, 3}, {12, 12, 12, 12},
		{12, 12, 5, 5}, {20, 30, 2, 9},
	} {
		bands := func(n int) []program.Span { return program.First(n * 16).Cut(16) }
		seen := map[[2]int]bool{}
		var held [2][]int
		loads := 0
		walk(newSide(bands(c.rows), c.heldA, c.cols), newSide(bands(c.cols), c.heldB, c.rows),
			func(row, col int, loadsA, loadsB bool) {
				for side, x := range [...]struct {
					band, most int
					loads      bool
				}{{row, c.heldA, loadsA}, {col, c.heldB, loadsB}} {
					if x.loads {
						held[side] = append(held[side], x.band)
						held[side] = held[side][max(0, len(held[side])-x.most):]
						loads++
					}
					there := false
					for _, band := range held[side] {
						there = there || band == x.band
					}
					if !there {
						t.Fatalf("%+v: block (%d, %d): side %d holds %v", c, row, col, side, held[side])
					}
				}
				if seen[[2]int{row, col}] {
					t.Fatalf("%+v: block (%d, %d) is visited twice", c, row, col)
				}
				seen[[2]int{row, col}] = true
			})
		if len(seen) != c.rows*c.cols {
			t.Errorf("%+v: visited %d blocks", c, len(seen))
		}
		// Without replacements, each band is loaded once.
		if all := c.rows + c.cols; c.heldA >= c.rows && c.heldB >= c.cols && loads != all {
			t.Errorf("%+v: %d loads, want %d", c, loads, all)
		}
		t.Logf("%+v: %d loads", c, loads)
	}
}

// TestScratchOfParts cuts a product whose operands TMA reads in place into two blocks. The last one
// has 8 columns, so B is packed. The schedule must have scratch memory for it, and a single
// stream of kernels.
func TestScratchOfParts(t *testing.T) {
	const m, n, k = 512, 264, 256
	p, _, err := gemm.New(1, gemm.Dense(dtype.BF16, m, k), gemm.Dense(dtype.BF16, k, n), 0,
		gemm.Dense(dtype.BF16, m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(h100{}).Plan(&p, exec.Options{Kernel: "wgmma"})
	if err != nil {
		t.Fatal(err)
	}
	if pl.ScratchBytes() > 0 {
		t.Fatal("the whole product packs operands: want one that does not")
	}
	s := pl.blocked(pl.once(), blocking{rows: m, cols: 256, held: [gemm.C + 1]int{1, 1, 2}})
	needed := 0
	for i := range s.steps {
		needed = max(needed, pl.step(&s.steps[i], s.packs).ScratchBytes())
		if s.steps[i].concurrent {
			t.Errorf("step %d runs beside others, which use the same scratch memory", i)
		}
	}
	if needed == 0 || s.scratch < needed {
		t.Errorf("%d bytes of scratch memory: want %d", s.scratch, needed)
	}
}
