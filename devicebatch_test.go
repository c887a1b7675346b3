package tilework

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// emulated opens the emulated GPU.
func emulated(t *testing.T) *Device {
	t.Helper()
	d, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// equalTo says where a matrix is not what it should be.
func equalTo(t *testing.T, what string, got, want Matrix[float32]) {
	t.Helper()
	for i := range want.Rows() {
		for j := range want.Cols() {
			if got.At(i, j) != want.At(i, j) {
				t.Fatalf("%s: element (%d, %d) is %v, want %v", what, i, j, got.At(i, j), want.At(i, j))
			}
		}
	}
}

// wholes are matrices of whole numbers, of which the odd ones are transposed views.
func wholes(rng *rand.Rand, count, rows, cols int) []Matrix[float32] {
	all := make([]Matrix[float32], count)
	for i := range all {
		if all[i] = whole[float32](rng, rows, cols); i%2 == 1 {
			all[i] = whole[float32](rng, cols, rows).T()
		}
	}
	return all
}

// TestGemmBatchOn: batches that were uploaded, that are transposed, that lie side by side in
// long rows and that share an operand give what single products give.
func TestGemmBatchOn(t *testing.T) {
	d := emulated(t)
	ctx, rng := t.Context(), rand.New(rand.NewPCG(1, 2))
	const count, m, n, k = 5, 7, 12, 9
	a, b := wholes(rng, count, m, k), wholes(rng, count, n, k)
	da, err := UploadBatch(ctx, d, a)
	if err != nil {
		t.Fatal(err)
	}
	db, err := UploadBatch(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := NewOn[float32](d, m, count*n)
	if err != nil {
		t.Fatal(err)
	}
	c := rows.Sub(0, 0, m, n).Batch(count, n)
	bias := make([]float32, n)
	for i := range bias {
		bias[i] = float32(i)
	}
	if err := GemmBatchOn(ctx, 2, da, db.T(), 0, c, WithColBias(bias), WithVerify()); err != nil {
		t.Fatal(err)
	}
	if plan, err := PlanGemmBatchOn(da, db.T(), c, WithKernel("tiled")); err != nil || plan.Kernel != "tiled" || plan.M != m || !strings.Contains(plan.Detail, "a batch") {
		t.Errorf("plan %v, error %v", plan, err)
	}
	shared := mustBatch(t, d, count, n, m)
	if err := GemmBatchOn(ctx, 1, db.Matrix(0).Batch(count, 0), da.T(), 0, shared); err != nil {
		t.Fatal(err)
	}
	others, err := shared.Download(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Download(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		want := New[float32](m, n)
		if err := Gemm(ctx, 2, a[i], b[i].T(), 0, want, WithColBias(bias), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
		equalTo(t, "C", got[i], want)
		if want, err = Mul(ctx, b[0], a[i].T(), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
		equalTo(t, "C of a shared A", others[i], want)
	}
	back, err := da.Download(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range back {
		equalTo(t, "A", back[i], a[i])
	}
}

func mustBatch(t *testing.T, d *Device, count, rows, cols int) DeviceBatch[float32] {
	t.Helper()
	b, err := NewBatchOn[float32](d, count, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGemmGroupedOn: groups of rows, some of them empty, give what products of their rows give,
// whether the host or the device knows where they end; rows behind them stay as they are.
func TestGemmGroupedOn(t *testing.T) {
	d := emulated(t)
	ctx, rng := t.Context(), rand.New(rand.NewPCG(3, 4))
	const n, k = 20, 9
	rows := []int{3, 0, 40, 1}
	a, b := whole[float32](rng, 50, k), wholes(rng, len(rows), k, n)
	before := whole[float32](rng, 50, n)
	da, err := Upload(ctx, d, a)
	if err != nil {
		t.Fatal(err)
	}
	db, err := UploadBatch(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	known, err := UploadGroups(ctx, d, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, groups := range []Groups{known, GroupsOf(known.ends)} {
		c, err := Upload(ctx, d, before)
		if err != nil {
			t.Fatal(err)
		}
		if err := GemmGroupedOn(ctx, 1, da, db, groups, 1, c, WithVerify()); err != nil {
			t.Fatal(err)
		}
		got, err := c.Download(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := PlanGemmGroupedOn(da, db, groups, c); err != nil || plan.M != 50 || !strings.Contains(plan.Detail, "groups") {
			t.Errorf("plan %v, error %v", plan, err)
		}
		want, from := before.Clone(), 0
		for g, n := range rows {
			if err := Gemm(ctx, 1, a.Sub(from, 0, n, k), b[g], 1, want.Sub(from, 0, n, want.Cols()), WithDevice("cpu")); err != nil {
				t.Fatal(err)
			}
			from += n
		}
		equalTo(t, "C", got, want)
	}
	if err := known.Close(); err != nil {
		t.Error(err)
	}
	if err := GemmGroupedOn(ctx, 1, da, db, known, 0, mustBatch(t, d, 1, 50, n).Matrix(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("groups that were closed: %v", err)
	}
}

// TestBatchRefuses: what is no batch is refused, with the reason.
func TestBatchRefuses(t *testing.T) {
	d := emulated(t)
	ctx := t.Context()
	m, err := NewOn[float32](d, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	b := mustBatch(t, d, 3, 8, 8)
	groups, err := UploadGroups(ctx, d, []int{4, 5, 0})
	if err != nil {
		t.Fatal(err)
	}
	two, err := UploadGroups(ctx, d, []int{4, 4})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err, want error
	}{
		"other counts":             {GemmBatchOn(ctx, 1, b, mustBatch(t, d, 2, 8, 8), 0, mustBatch(t, d, 3, 8, 8)), ErrShape},
		"sizes that do not fit":    {GemmBatchOn(ctx, 1, b, b, 0, mustBatch(t, d, 3, 8, 9)), ErrShape},
		"C that is A":              {GemmBatchOn(ctx, 1, b, b, 0, b), ErrOverlap},
		"C that all share":         {GemmBatchOn(ctx, 1, b, b, 0, m.Batch(3, 0)), ErrShape},
		"beyond the memory":        {m.Batch(2, 8).Err(), ErrShape},
		"a stride below 0":         {m.Batch(2, -1).Err(), ErrShape},
		"a zero batch":             {GemmBatchOn(ctx, 1, b, DeviceBatch[float32]{}, 0, b), ErrNoDevice},
		"no such matrix":           {b.Matrix(3).Err(), ErrShape},
		"more rows than A has":     {GemmGroupedOn(ctx, 1, m, b, groups, 0, mustBatch(t, d, 1, 8, 8).Matrix(0)), ErrShape},
		"other groups than B":      {GemmGroupedOn(ctx, 1, m, b, two, 0, mustBatch(t, d, 1, 8, 8).Matrix(0)), ErrShape},
		"groups of a transposed A": {GemmGroupedOn(ctx, 1, m.T(), mustBatch(t, d, 2, 8, 8), two, 0, mustBatch(t, d, 1, 8, 8).Matrix(0)), ErrUnsupported},
		"groups of a transposed C": {GemmGroupedOn(ctx, 1, m, mustBatch(t, d, 2, 8, 8), two, 0, mustBatch(t, d, 1, 8, 8).Matrix(0).T()), ErrUnsupported},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want %v", name, c.err, c.want)
		}
	}
	if _, err := UploadGroups(ctx, d, []int{1, -1}); !errors.Is(err, ErrShape) {
		t.Errorf("a group of -1 rows: %v", err)
	}
	empty := mustBatch(t, d, 0, 8, 8)
	if err := GemmBatchOn(ctx, 1, empty, empty, 0, mustBatch(t, d, 0, 8, 8)); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
}

// TestBatchOnGPU: a batch of matrices on the host, small ones and one with a B that all share,
// is what single products are, on a GPU that computes it in one launch.
func TestBatchOnGPU(t *testing.T) {
	ctx, rng := t.Context(), rand.New(rand.NewPCG(5, 6))
	const count, m, n, k = 6, 5, 11, 8
	a, b := wholes(rng, count, m, k), wholes(rng, 1, k, n)[0]
	for i := range a {
		a[i] = a[i].Clone() // the layouts are equal
	}
	bs, c := make([]Matrix[float32], count), make([]Matrix[float32], count)
	long := whole[float32](rng, m, count*n)
	for i := range c {
		bs[i], c[i] = b, long.Sub(0, i*n, m, n)
	}
	want := long.Clone()
	for i := range a {
		if err := Gemm(ctx, 1, a[i], b, 2, want.Sub(0, i*n, m, n), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
	}
	if err := GemmBatch(ctx, 1, a, bs, 2, c, WithDevice("emu")); err != nil {
		t.Fatal(err)
	}
	equalTo(t, "C", long, want)
}

// TestGemmGrouped: groups of rows give what products of their rows give, on the processor and
// on a GPU, with a bias along rows, and where B's lie in different ways.
func TestGemmGrouped(t *testing.T) {
	ctx, rng := t.Context(), rand.New(rand.NewPCG(7, 8))
	const m, n, k = 30, 9, 7
	rows := []int{4, 0, 17, 2}
	a, before := whole[float32](rng, m, k), whole[float32](rng, m, n)
	mixed, alike := wholes(rng, len(rows), k, n), make([]Matrix[float32], len(rows))
	bias := make([]float32, m)
	for i := range bias {
		bias[i] = float32(i)
	}
	want, from := before.Clone(), 0
	for g := range rows {
		alike[g] = mixed[g].Clone()
		err := Gemm(ctx, 1, a.Sub(from, 0, rows[g], k), alike[g], 1, want.Sub(from, 0, rows[g], n), WithDevice("cpu"), WithRowBias(bias[from:from+rows[g]]))
		if err != nil {
			t.Fatal(err)
		}
		from += rows[g]
	}
	for _, device := range []string{"cpu", "emu"} {
		for _, b := range [][]Matrix[float32]{mixed, alike} {
			c := before.Clone()
			if err := GemmGrouped(ctx, 1, a, b, rows, 1, c, WithDevice(device), WithRowBias(bias)); err != nil {
				t.Fatal(err)
			}
			equalTo(t, "C on "+device, c, want)
		}
		for name, rows := range map[string][]int{"too few groups": {1, 2}, "too many rows": {20, 10, 1, 0}, "less than no rows": {1, -1, 1, 1}} {
			if err := GemmGrouped(ctx, 1, a, alike, rows, 0, before.Clone(), WithDevice(device)); !errors.Is(err, ErrShape) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	}
}
