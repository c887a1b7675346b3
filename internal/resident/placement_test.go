package resident

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/split"
	"tilework/internal/table"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// placed returns the placement of a matrix.
func placed(m Matrix) placement {
	whole := m.Memory.whole
	if whole.By == split.OnEach {
		return onEach
	}
	for i := 1; i < whole.Members(); i++ {
		if !whole.Part(i).Empty() {
			return divided
		}
	}
	return onFirst
}

// TestPlacement checks which matrices are on the first GPU alone, and which on each.
func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		gpus, rows, cols int
		kind             dtype.Type
		by               split.By
		want             placement
	}{
		{2, 2048, 2048, dtype.BF16, split.Rows, onFirst},
		{2, 1, 4096, dtype.BF16, split.Columns, onFirst},
		{2, 0, 7, dtype.F32, split.Rows, onFirst},
		{2, 2048, 2048, dtype.BF16, split.OnEach, onEach},
		{2, 3072, 3072, dtype.BF16, split.Columns, onFirst}, // as fast on one GPU
		{2, 4096, 4096, dtype.BF16, split.Rows, onEach},     // a divided B costs one row more than squares gain
		{2, 1024, 1024, dtype.F32, split.Columns, onFirst},
		{2, 1536, 1536, dtype.F32, split.Columns, onEach},
		{2, 2048, 2048, dtype.F32, split.Columns, onEach}, // half of it with smaller tiles
		{2, 3072, 3072, dtype.F32, split.Columns, onEach},
		{2, 4096, 4096, dtype.F32, split.Columns, divided}, // 64 MiB
		{2, 2048, 2048, dtype.F64, split.Rows, onEach},
		{2, 9130, 208, dtype.F32, split.Rows, onFirst},
		{4, 1536, 1536, dtype.BF16, split.Rows, onFirst},
		{4, 2048, 2048, dtype.BF16, split.Rows, onFirst},
		{4, 1024, 4096, dtype.BF16, split.Columns, onFirst},
		{4, 4096, 4096, dtype.BF16, split.Rows, onEach},
		{4, 8192, 8192, dtype.BF16, split.Rows, divided},
		{8, 1536, 1536, dtype.BF16, split.Rows, onFirst}, // 19 µs on one, 29 µs to start all
		{8, 2560, 2560, dtype.BF16, split.Rows, onFirst},
	} {
		d, _ := openCounted(t, c.gpus)
		for range 2 { // predicted, and found
			m, err := New(d, gemm.Dense(c.kind, c.rows, c.cols), c.by)
			if err != nil {
				t.Fatal(err)
			}
			if got := placed(m); got != c.want || m.By() != c.by {
				t.Errorf("%d×%d %v, %v, on %d GPUs: placement %d, %v; want %d", c.rows, c.cols, c.kind, c.by, c.gpus, got, m.By(),
					c.want)
			}
		}
	}
	d, _ := openCounted(t, 2)
	for count, want := range map[int]placement{2: onFirst, 3000: divided} {
		m, err := NewBatch(d, gemm.Dense(dtype.F32, 64, 64), count, split.Rows)
		if err != nil {
			t.Fatal(err)
		}
		if got := placed(m); got != want {
			t.Errorf("%d matrices of %v: placement %d, want %d", count, m.Layout, got, want)
		}
	}
}

// TestPlacementPage checks the table of docs/gpus.md.
func TestPlacementPage(t *testing.T) {
	const step, most = 64, 8192 // rows
	kinds := []dtype.Type{dtype.BF16, dtype.F32, dtype.F64}
	rows := [][]string{{"type"}}
	for _, kind := range kinds {
		rows = append(rows, []string{kind.String()})
	}
	for _, n := range []int{2, 4, 8} {
		rows[0] = append(rows[0], fmt.Sprintf("%d GPUs", n))
		d, _ := openCounted(t, n)
		for i, kind := range kinds {
			of := func(steps int) placement { return d.placementOf(gemm.Dense(kind, step*steps, step*steps), 1) }
			steps := sort.Search(most/step, func(steps int) bool { return of(steps) != onFirst })
			if got := of(steps); got != onEach {
				t.Errorf("%d² %v on %d GPUs: placement %d, want %d", step*steps, kind, n, got, onEach)
			}
			rows[i+1] = append(rows[i+1], fmt.Sprintf("%d²", step*(steps-1)))
		}
	}
	testkit.CheckPage(t, "../../docs/gpus.md", "computed: placement, by internal/resident.TestPlacementPage",
		testkit.Table(rows...))
}

// TestDivisionPage checks the plan in docs/gpus.md.
func TestDivisionPage(t *testing.T) {
	d, _ := openCounted(t, 2)
	if err := plain(t, d, dtype.BF16, 6144, 6144, 6144, split.Rows).with(func(x planned) error {
		testkit.CheckPage(t, "../../docs/gpus.md", "computed: plan, by internal/resident.TestDivisionPage",
			testkit.Fenced(table.Fold(x.division.String(), 150)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPlacementSlowLinks checks that large matrices are divided even if copies between GPUs are
// slow, and that small ones are then on the first GPU alone.
func TestPlacementSlowLinks(t *testing.T) {
	d, _ := openSeveral(t, emu.Options{}, "t4", "t4")
	d.dividesAll = false
	for side, want := range map[int]placement{256: onFirst, 2048: onEach, 6000: divided} {
		if got := d.placementOf(gemm.Dense(dtype.F16, side, side), 1); got != want {
			t.Errorf("%d² on two T4: placement %d, want %d", side, got, want)
		}
	}
}

// TestPlacedBits compares random products of matrices that are on the first GPU and on each with
// those on one GPU, bit for bit, verified or not. Slow links make few elements enough for each.
func TestPlacedBits(t *testing.T) {
	rng := testrand.New(t)
	one, _ := openSeveral(t, emu.Options{}, "t4")
	counted := map[placement]int{}
	for _, n := range []int{1, 2, 3, 4, 8} {
		d, _ := openSeveral(t, emu.Options{}, slices.Repeat([]string{"t4"}, n)...)
		d.unit, d.dividesAll = split.UsualUnit, false
		for i := range testkit.Cases(2, 10) {
			short := func() int { return 1 + rng.IntN(16) }
			long := int(1000 * math.Exp2(6*rng.Float64()))
			c := &bitsCase{in: dtype.F16, out: dtype.F16, m: short(), n: short(), k: short(), transA: rng.IntN(2) == 0,
				transB: rng.IntN(2) == 0, beta: complex(float64(rng.IntN(2)), 0), seed: rng.Uint64(), verify: rng.IntN(3) == 0}
			*[]*int{&c.m, &c.n, &c.k}[rng.IntN(3)] = long // so two matrices are long
			if i == 0 {
				c.m, c.n, c.k = 2048, short(), 2048 // A is on each of two GPUs
			}
			for o := range gemm.C + 1 {
				c.splits[o] = split.By(rng.IntN(3))
				rows, cols := []int{c.m, c.k, c.m}[o], []int{c.k, c.n, c.n}[o]
				counted[d.placementOf(gemm.Dense(c.in, rows, cols), 1)]++
			}
			want, err := c.run(t.Context(), one)
			if err != nil {
				t.Fatalf("%+v on one GPU: %v", c, err)
			}
			if got, err := c.run(t.Context(), d); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%+v on %d GPUs: error %v, the bits of one GPU: %v", c, n, err, slices.Equal(got, want))
			}
		}
	}
	if counted[onFirst] == 0 || counted[onEach] == 0 {
		t.Errorf("placements %v, want matrices on the first GPU and on each", counted)
	}
}

// TestNeverSlower checks that the product of square matrices is not predicted to be slower than on
// one GPU, at any size and number of GPUs, and in all ways to divide B.
func TestNeverSlower(t *testing.T) {
	rng := testrand.New(t)
	counted := map[placement]int{}
	for _, n := range []int{2, 3, 4, 8} {
		d, _ := openCounted(t, n)
		for _, kind := range []dtype.Type{dtype.BF16, dtype.F32, dtype.F64} {
			for range testkit.Cases(16, 100) {
				side := int(64 * math.Exp2(7*rng.Float64())) // 64 to 8192
				p := plain(t, d, kind, side, side, side, split.By(rng.IntN(3)))
				counted[placed(p.c())]++
				if err := p.with(func(x planned) error {
					const launch, start, nearly = 5e-6, 5e-6 + callSeconds, 1.03 // on the GPU, and on the host
					if got, one := x.division.Division.Seconds, max(x.product.Plan().Seconds()+launch, start); got > nearly*one {
						t.Errorf("%d³ of %v on %d GPUs: %.1f µs, want at most the %.1f µs of one GPU: %v", side, kind, n, 1e6*got,
							1e6*one, x.division)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				for o := range gemm.C + 1 {
					if err := p.Operands[o].On.Memory.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if len(counted) != 3 {
		t.Errorf("placements %v, want all three", counted)
	}
}

// TestRecordedTimes compares the predicted times of divided products of float32 with those measured
// on two and four H200s. In other types the prediction for one GPU differs, because it leaves out
// that long products of them lower the clock.
func TestRecordedTimes(t *testing.T) {
	f, err := os.Open("../../docs/results/gpus-resident-h200.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := bench.ReadRecords(f)
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, r := range records {
		gpus, suffix, _ := strings.Cut(strings.TrimPrefix(r.Subject, "tilework@"), "/")
		by, known := map[string]split.By{"": split.Rows, "columns": split.Columns, "each": split.OnEach}[suffix]
		if r.In != "float32" || !strings.HasPrefix(gpus, "gpu:") || !known {
			continue
		}
		compared++
		d, _ := openCounted(t, 1+strings.Count(gpus, ","))
		p := plain(t, d, dtype.F32, r.M, r.M, r.M, by)
		if err := p.with(func(x planned) error {
			if got := x.division.Division.Seconds / r.Seconds.Median; math.Abs(got-1) > 0.05 {
				t.Errorf("%d³ on %s, B %v: predicted %.3f of the measured time", r.M, gpus, by, got)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if compared < 15 {
		t.Errorf("%d products compared, want at least 15", compared)
	}
}
