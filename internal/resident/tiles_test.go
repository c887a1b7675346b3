package resident

import (
	"math"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestPartTiles checks that a product whose tiles fill the SMs of one GPU once has smaller tiles on
// several, and is then predicted to be faster, unless the caller names the tile.
func TestPartTiles(t *testing.T) {
	for _, c := range []struct {
		gpus, m, n, k int
		kind          dtype.Type
		kernel        string
		most          float64 // time by that of one GPU
	}{
		{2, 2048, 2048, 2048, dtype.F32, "", 0.72},
		{2, 2048, 2048, 2048, dtype.F32, "blocked", 0.72},
		{4, 2048, 2048, 2048, dtype.F32, "", 0.55},
		{2, 2150, 528, 7128, dtype.F32, "", 0.80}, // in three parts of K
		{4, 2048, 2048, 2048, dtype.F64, "", 0.65},
	} {
		d, _ := openCounted(t, c.gpus)
		d.dividesAll = true
		p := plain(t, d, c.kind, c.m, c.n, c.k, split.Rows)
		p.Kernel = c.kernel
		if err := p.with(func(x planned) error {
			one, got := x.product.Plan().Seconds(), x.division.Division.Seconds
			if got > c.most*one || !x.division.Several() || !strings.HasPrefix(x.division.String(), "parts with ") {
				t.Errorf("%+v: %.0f µs, want at most %.2f of the %.0f µs of one GPU: %v", c, 1e6*got, c.most, 1e6*one, x.division)
			}
			p.Kernel = x.product.Plan().Spec()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := p.with(func(x planned) error {
			if x.division.plan != x.product.Plan() {
				t.Errorf("%+v with tile %s: %v", c, p.Kernel, x.division)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartOrders checks that tiles for parts have the kernel and the order of the sums of one GPU,
// save time, and are not those of products that one GPU computes.
func TestPartOrders(t *testing.T) {
	rng := testrand.New(t)
	const sm = 90
	others := 0
	for _, n := range []int{2, 3, 8} {
		d, _ := openCounted(t, n)
		d.dividesAll = true
		for range testkit.Cases(60, 300) {
			side := func() int { return int(64 * math.Exp2(7*rng.Float64())) } // 64 to 8192
			kind := []dtype.Type{dtype.F32, dtype.BF16, dtype.F64}[rng.IntN(3)]
			p := plain(t, d, kind, side(), side(), side(), split.By(rng.IntN(3)))
			if rng.IntN(4) == 0 {
				p.Problem = p.WithRowInvariance()
			}
			if err := p.with(func(x planned) error {
				v := x.division
				if v.plan == x.product.Plan() {
					return nil
				}
				others++
				q := x.product.Plan().Problem()
				want, known := x.product.Plan().Kernel.Order(q, x.product.Plan().Config.Tile, sm)
				got, ok := v.plan.Kernel.Order(q, v.plan.Config.Tile, sm)
				if !ok || !known || got != want || v.plan.Kernel != x.product.Plan().Kernel && p.Invariance == 0 {
					t.Errorf("%v: order %v of %s, want %v of %s", q, got, v.plan.Spec(), want, x.product.Plan().Spec())
				}
				same := d.product(x.product.Plan(), q)
				same.Places = v.Places
				if limit := (1 - leastGain) * same.Divide().Seconds; !v.Several() || v.Division.Seconds > limit {
					t.Errorf("%v: %.1f µs, want at most %.1f µs: %v", q, 1e6*v.Division.Seconds, 1e6*limit, v)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for o := range p.Operands[:3] {
				if err := p.Operands[o].On.Memory.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if others == 0 {
		t.Error("no product with a tile for its parts")
	}
}
