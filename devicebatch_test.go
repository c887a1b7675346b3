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

// equalTo fails the test at the first element in which got differs from want.
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

// wholes returns count matrices of whole numbers. Those at odd indices are transposed views.
func wholes(rng *rand.Rand, count, rows, cols int) Batch[float32] {
	all := make(Batch[float32], count)
	for i := range all {
		if all[i] = whole[float32](rng, rows, cols); i%2 == 1 {
			all[i] = whole[float32](rng, cols, rows).T()
		}
	}
	return all
}

// TestDeviceBatch compares batches on a device with single products. The batches are uploaded,
// transposed, side by side in long rows, or share an operand.
func TestDeviceBatch(t *testing.T) {
	d := emulated(t)
	ctx, rng := t.Context(), rand.New(rand.NewPCG(1, 2))
	const count, m, n, k = 5, 7, 12, 9
	a, b := wholes(rng, count, m, k), wholes(rng, count, n, k)
	da, err := Upload(ctx, d, a)
	if err != nil {
		t.Fatal(err)
	}
	db, err := Upload(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := NewDeviceMatrix[float32](d, m, count*n)
	if err != nil {
		t.Fatal(err)
	}
	c := rows.Sub(0, 0, m, n).Batch(count, n)
	bias := make([]float32, n)
	for i := range bias {
		bias[i] = float32(i)
	}
	if err := Gemm(ctx, 2, da, db.T(), 0, c, WithColBias(Vector(bias...)), WithVerify()); err != nil {
		t.Fatal(err)
	}
	plan, err := PlanGemm(t.Context(), da, db.T(), c, WithKernel("tiled"))
	if err != nil || plan.Kernel != "tiled" || plan.M != m ||
		!strings.Contains(plan.Detail, "a batch") {
		t.Errorf("unexpected plan %v, error %v", plan, err)
	}
	shared := mustBatch(t, d, count, n, m)
	if err := Gemm(ctx, 1, db.Matrix(0).Batch(count, 0), da.T(), 0, shared); err != nil {
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
		if err := Gemm(ctx, 2, a[i], b[i].T(), 0, want, WithColBias(Vector(bias...)), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
		equalTo(t, "C", got[i], want)
		if want, err = Mul(ctx, b[0], a[i].T(), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
		equalTo(t, "C with a shared A", others[i], want)
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
	b, err := NewDeviceBatch[float32](d, count, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDeviceGroups compares groups of rows, some of them empty, with products of their rows. The
// group ends are on the host or on the device. Rows after the last group must not change.
func TestDeviceGroups(t *testing.T) {
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
	db, err := Upload(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	ends := GroupEnds(rows...)
	known, err := Upload(ctx, d, ends)
	if err != nil {
		t.Fatal(err)
	}
	for _, groups := range []Operand[int32]{ends, known} {
		c, err := Upload(ctx, d, before)
		if err != nil {
			t.Fatal(err)
		}
		if err := Gemm(ctx, 1, da, db, 1, c, WithGroups(groups), WithVerify()); err != nil {
			t.Fatal(err)
		}
		got, err := c.Download(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := PlanGemm(t.Context(), da, db, c, WithGroups(groups)); err != nil || plan.M != 50 ||
			!strings.Contains(plan.Detail, "groups") {
			t.Errorf("unexpected plan %v, error %v", plan, err)
		}
		want, from := before.clone(), 0
		for g, n := range rows {
			if err := Gemm(ctx, 1, a.Sub(from, 0, n, k), b[g], 1, want.Sub(from, 0, n, want.Cols()),
				WithDevice("cpu")); err != nil {
				t.Fatal(err)
			}
			from += n
		}
		equalTo(t, "C", got, want)
	}
	if err := known.Close(); err != nil {
		t.Error(err)
	}
	if err := Gemm(ctx, 1, da, db, 0, mustBatch(t, d, 1, 50, n).Matrix(0), WithGroups(known)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed group ends: %v, want ErrClosed", err)
	}
}

// TestBatchRefuses checks the errors of invalid batches and groups on a device.
func TestBatchRefuses(t *testing.T) {
	d := emulated(t)
	ctx := t.Context()
	m, err := NewDeviceMatrix[float32](d, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	b := mustBatch(t, d, 3, 8, 8)
	groups, two := GroupEnds(4, 5, 0), GroupEnds(4, 4)
	for name, c := range map[string]struct {
		err, want error
	}{
		"unequal counts":             {Gemm(ctx, 1, b, mustBatch(t, d, 2, 8, 8), 0, mustBatch(t, d, 3, 8, 8)), ErrShape},
		"mismatched sizes":           {Gemm(ctx, 1, b, b, 0, mustBatch(t, d, 3, 8, 9)), ErrShape},
		"C is A":                     {Gemm(ctx, 1, b, b, 0, b), ErrOverlap},
		"C shared by all products":   {Gemm(ctx, 1, b, b, 0, m.Batch(3, 0)), ErrShape},
		"past the end of the memory": {m.Batch(2, 8).Err(), ErrShape},
		"negative stride":            {m.Batch(2, -1).Err(), ErrShape},
		"zero DeviceBatch":           {Gemm(ctx, 1, b, DeviceBatch[float32]{}, 0, b), ErrNoDevice},
		"index out of range":         {b.Matrix(3).Err(), ErrShape},
		"more group rows than A has": {Gemm(ctx, 1, m, b, 0, mustBatch(t, d, 1, 8, 8).Matrix(0), WithGroups(groups)),
			ErrShape},
		"more matrices in B than groups": {Gemm(ctx, 1, m, b, 0, mustBatch(t, d, 1, 8, 8).Matrix(0), WithGroups(two)),
			ErrShape},
		"groups with a transposed A": {Gemm(ctx, 1, m.T(), mustBatch(t, d, 2, 8, 8), 0, mustBatch(t, d, 1, 8, 8).Matrix(0),
			WithGroups(two)), ErrUnsupported},
		"groups with a transposed C": {Gemm(ctx, 1, m, mustBatch(t, d, 2, 8, 8), 0, mustBatch(t, d, 1, 8, 8).Matrix(0).T(),
			WithGroups(two)), ErrUnsupported},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: error %v, want %v", name, c.err, c.want)
		}
	}
	if err := GroupEnds(1, -1).Err(); !errors.Is(err, ErrShape) {
		t.Errorf("a group of -1 rows: %v, want ErrShape", err)
	}
	empty := mustBatch(t, d, 0, 8, 8)
	if err := Gemm(ctx, 1, empty, empty, 0, mustBatch(t, d, 0, 8, 8)); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
}

// TestBatchOnGPU compares a batch of host matrices that share B with single products. The GPU
// computes the batch in one launch.
func TestBatchOnGPU(t *testing.T) {
	ctx, rng := t.Context(), rand.New(rand.NewPCG(5, 6))
	const count, m, n, k = 6, 5, 11, 8
	a, b := wholes(rng, count, m, k), wholes(rng, 1, k, n)[0]
	for i := range a {
		a[i] = a[i].clone() // the layouts are equal
	}
	bs, c := make(Batch[float32], count), make(Batch[float32], count)
	long := whole[float32](rng, m, count*n)
	for i := range c {
		bs[i], c[i] = b, long.Sub(0, i*n, m, n)
	}
	want := long.clone()
	for i := range a {
		if err := Gemm(ctx, 1, a[i], b, 2, want.Sub(0, i*n, m, n), WithDevice("cpu")); err != nil {
			t.Fatal(err)
		}
	}
	if err := Gemm(ctx, 1, a, bs, 2, c, WithDevice("emu")); err != nil {
		t.Fatal(err)
	}
	equalTo(t, "C", long, want)
}

// TestGroups compares groups of rows with products of their rows, on the CPU and on a GPU, with a
// bias for each row, and with matrices of B that have different layouts.
func TestGroups(t *testing.T) {
	ctx, rng := t.Context(), rand.New(rand.NewPCG(7, 8))
	const m, n, k = 30, 9, 7
	rows := []int{4, 0, 17, 2}
	a, before := whole[float32](rng, m, k), whole[float32](rng, m, n)
	mixed, alike := wholes(rng, len(rows), k, n), make(Batch[float32], len(rows))
	bias := make([]float32, m)
	for i := range bias {
		bias[i] = float32(i)
	}
	want, from := before.clone(), 0
	for g := range rows {
		alike[g] = mixed[g].clone()
		err := Gemm(ctx, 1, a.Sub(from, 0, rows[g], k), alike[g], 1, want.Sub(from, 0, rows[g], n), WithDevice("cpu"),
			WithRowBias(Vector(bias[from:from+rows[g]]...)))
		if err != nil {
			t.Fatal(err)
		}
		from += rows[g]
	}
	for _, device := range []string{"cpu", "emu"} {
		for _, b := range []Batch[float32]{mixed, alike} {
			c := before.clone()
			if err := Gemm(ctx, 1, a, b, 1, c, WithGroups(GroupEnds(rows...)), WithDevice(device),
				WithRowBias(Vector(bias...))); err != nil {
				t.Fatal(err)
			}
			equalTo(t, "C on "+device, c, want)
		}
		for name, rows := range map[string][]int{"too few groups": {1, 2}, "too many rows": {20, 10, 1, 0},
			"negative rows": {1, -1, 1, 1}} {
			if err := Gemm(ctx, 1, a, alike, 0, before.clone(), WithGroups(GroupEnds(rows...)),
				WithDevice(device)); !errors.Is(err, ErrShape) {
				t.Errorf("%s: error %v, want ErrShape", name, err)
			}
		}
	}
}
