package stream

import (
	"bytes"
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/model"
	"tilework/internal/program"
	"tilework/internal/ref"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestParts computes parts of products, by rows and by columns, in the order that the plan of the
// whole chooses and in slices of K for a head of C. The parts must have the bits of the whole.
func TestParts(t *testing.T) {
	rng := testrand.New(t)
	d, err := emu.Open(emu.Options{Seed: rng.Uint64()})
	if err != nil {
		t.Fatal(err)
	}
	b := New(d)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		d.Close()
	}()
	sliced := 0
	cases := largeCases(t, rng)
	for _, kernel := range []string{"naive", "tiled:16", "blocked:64x64x8/8x4/4"} {
		long := largeCase{name: "long sums", kernel: kernel, p: func() (gemm.Problem, error) {
			return *testkit.Product(t, dtype.F32, dtype.F32, 130, 140, 300), nil
		}}
		long.fill(t, rng)
		cases = append(cases, long)
	}
	for _, c := range cases {
		p, err := c.p()
		if err != nil {
			t.Fatal(err)
		}
		chosen := c.plan(t, b, &p)
		orders := []*order{nil}
		if rows, cols := chosen.units(); p.K > 128 && sliceable(&p) && chosen.ScratchBytes() == 0 {
			slices := []program.Span{program.First(128), program.Range(128, p.K)}
			orders = append(orders, &order{slices, rows, true}, &order{slices, p.M, true}, &order{slices, cols, false})
			sliced++
		}
		for _, o := range orders {
			whole := *chosen
			whole.sums = o
			want, err := computed(t.Context(), &whole, c.buffers)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			row, col := 1+rng.IntN(p.M-1), 1+rng.IntN(p.N-1)
			got := make([]byte, len(want))
			for _, areas := range [][2]gemm.Area{
				{{Rows: row, Cols: p.N}, {Row: row, Rows: p.M - row, Cols: p.N}},
				{{Rows: p.M, Cols: col}, {Col: col, Rows: p.M, Cols: p.N - col}},
				{{Rows: p.M, Cols: p.N - 1}, {Col: p.N - 1, Rows: p.M, Cols: 1}}, // a column is contiguous
			} {
				clear(got)
				for _, a := range areas {
					q, m, err := p.Part(a, &c.buffers)
					if err != nil {
						t.Fatal(err)
					}
					m[gemm.C] = make([]byte, q.C().Bytes())
					copyArea(q.C(), m[gemm.C], 0, 0, p.C(), c.buffers[gemm.C], a.Row, a.Col, a)
					part := whole.PartOf(&q, a.Row, a.Col)
					if m[gemm.C], err = computed(t.Context(), part, m); err != nil {
						t.Fatalf("%s, %v: %v", c.name, a, err)
					}
					copyArea(p.C(), got, a.Row, a.Col, q.C(), m[gemm.C], 0, 0, a)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s, %s: %v and %v have other bits than the whole", c.name, whole.Order(), areas[0], areas[1])
				}
			}
		}
	}
	if sliced != 3 {
		t.Errorf("%d products in slices of K, want 3", sliced)
	}
}

// copyArea copies the elements of an area from one matrix, from a position on, to another.
func copyArea(to *gemm.Layout, dst []byte, i, j int, from *gemm.Layout, src []byte, k, l int, a gemm.Area) {
	for row := range a.Rows {
		n := to.Type.Bytes(a.Cols)
		copy(dst[to.Type.Bytes(to.Index(i+row, j)):][:n], src[from.Type.Bytes(from.Index(k+row, l)):][:n])
	}
}

// planOn plans a product of 130×100×90 on a GPU model, which stays open until the end of the test.
func planOn(t *testing.T, name string, opt exec.Options) *Plan {
	t.Helper()
	m, err := model.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := emu.Open(emu.Options{Model: m})
	if err != nil {
		t.Fatal(err)
	}
	b := New(d)
	t.Cleanup(func() {
		if err := device.Join(b.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	pl, err := b.Plan(testkit.Product(t, dtype.F32, dtype.F32, 130, 100, 90), opt)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// TestOrder checks that the description of an order names all on which the bits depend.
func TestOrder(t *testing.T) {
	seen := map[string]string{}
	for _, x := range []struct {
		gpu  string
		opt  exec.Options
		sums *order
	}{
		{"h200", exec.Options{Kernel: "naive"}, nil},
		{"h200", exec.Options{Kernel: "tiled", Tile: "16"}, nil},
		{"h200", exec.Options{Kernel: "tiled", Tile: "32"}, nil},
		{"a100-sxm-80gb", exec.Options{Kernel: "tiled", Tile: "32"}, nil},
		{"h200", exec.Options{Kernel: "naive"}, &order{[]program.Span{program.First(16), program.Range(16, 90)}, 64, true}},
		{"h200", exec.Options{Kernel: "naive"}, &order{[]program.Span{program.First(16), program.Range(16, 90)}, 64, false}},
		{"h200", exec.Options{Kernel: "naive"}, &order{[]program.Span{program.First(16), program.Range(16, 90)}, 65, true}},
		{"h200", exec.Options{Kernel: "naive"}, &order{[]program.Span{program.First(32), program.Range(32, 90)}, 64, true}},
	} {
		name := fmt.Sprintf("%s %+v %+v", x.gpu, x.opt, x.sums)
		pl := planOn(t, x.gpu, x.opt)
		pl.sums = x.sums
		text := pl.Order()
		if other, taken := seen[text]; taken {
			t.Errorf("%s and %s have the order %q", name, other, text)
		}
		seen[text] = name
	}
}

// TestZeroPointsInSlices computes a product with zero points in slices of K. Each slice is
// corrected for its own terms. The sums must be those of the reference.
func TestZeroPointsInSlices(t *testing.T) {
	rng := testrand.New(t)
	d, err := emu.Open(emu.Options{Seed: rng.Uint64()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b := New(d)
	defer b.Close()
	for _, e := range []gemm.Epilogue{{RowZero: true, ColZero: true}, {ColZero: true, Bias: gemm.BiasCol}, {}} {
		p, _, err := gemm.New(-3, gemm.Dense(dtype.U8, 60, 300), gemm.Dense(dtype.I8, 300, 40), 0,
			gemm.Dense(dtype.I32, 60, 40), e)
		if err != nil {
			t.Fatal(err)
		}
		pl, err := b.Plan(&p, exec.Options{Kernel: "tiled", Tile: "16"})
		if err != nil {
			t.Fatal(err)
		}
		pl.sums = &order{[]program.Span{program.First(128), program.Range(128, 256), program.Range(256, 300)}, 32, true}
		buffers := testkit.Filled(rng, &p)
		for i := range buffers[gemm.A] {
			buffers[gemm.A][i] = byte(rng.Uint32())
		}
		got, err := computed(t.Context(), pl, buffers)
		if err == nil {
			err = ref.Values(&p, buffers).Exactly(got)
		}
		if err != nil {
			t.Errorf("%v, in %d steps: %v", e, len(pl.Steps.steps), err)
		}
		if len(pl.Steps.steps) < 3 {
			t.Errorf("%v: %d steps, want one for each slice", e, len(pl.Steps.steps))
		}
	}
}
