package tilework

import (
	"math/rand/v2"
	"testing"
)

// TestGroupOperands checks that each group of rows uses its own rows of the row scales, row bias
// and residual, for matrices on the host.
func TestGroupOperands(t *testing.T) {
	ctx, rng := t.Context(), rand.New(rand.NewPCG(5, 7))
	const m, n, k = 7, 3, 4
	rows := []int{3, 0, 4}
	a, b := whole[float32](rng, m, k), wholes(rng, len(rows), k, n)
	scale, bias, residual := whole[float32](rng, 1, m), whole[float32](rng, 1, m), whole[float32](rng, m, n)
	want, from := New[float32](m, n), 0
	for g, count := range rows {
		opts := []Option{
			WithRowScale(scale.Sub(0, from, 1, count)), WithRowBias(bias.Sub(0, from, 1, count)),
			WithResidual(residual.Sub(from, 0, count, n)), WithDevice("cpu"),
		}
		if err := Gemm(ctx, 1, a.Sub(from, 0, count, k), b[g], 0, want.Sub(from, 0, count, n), opts...); err != nil {
			t.Fatal(err)
		}
		from += count
	}
	for _, device := range []string{"cpu", "emu"} {
		got, err := Mul(ctx, a, Batch[float32](b), WithGroups(GroupEnds(rows...)), WithDevice(device),
			WithRowScale(scale), WithRowBias(bias), WithResidual(residual))
		if err != nil {
			t.Fatal(err)
		}
		equalTo(t, "C on "+device, got, want)
	}
}
