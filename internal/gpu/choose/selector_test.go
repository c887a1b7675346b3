package choose_test

import (
	"encoding/json"
	"os"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
)

// studied is a record of `tilework tune --exhaustive` on an H200: the speed of each way to compute
// a product, except those of less than half the speed of the default at that time.
type studied struct {
	M, N, K int
	In, Out dtype.Type
	TransB  bool `json:"trans_b"`
	Ways    []struct {
		Kernel string
		Tile   string `json:"Shape"`
		Speed  float64
	}
}

// TestSelector checks that on nine of ten products the choice is within 5 % of the fastest way of
// an exhaustive search, and that no choice is a third slower.
func TestSelector(t *testing.T) {
	const close, share, far = 1.05, 0.9, 1.34
	data, err := os.ReadFile("../../../docs/results/selector-h200.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []studied
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, near := stream.New(d), 0
	for _, x := range all {
		a, bb := gemm.Dense(x.In, x.M, x.K), gemm.Dense(x.In, x.K, x.N)
		if x.TransB {
			bb = gemm.Dense(x.In, x.N, x.K).T()
		}
		p, _, err := gemm.New(1, kernel.Padded(a), kernel.Padded(bb), 0, kernel.Padded(gemm.Dense(x.Out, x.M, x.N)),
			gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := b.Plan(&p, exec.Options{KeepLayout: true})
		if err != nil {
			t.Fatal(err)
		}
		best, chosen := x.Ways[0], 0.0
		for _, w := range x.Ways {
			if w.Speed > best.Speed {
				best = w
			}
			if w.Kernel == plan.Kernel.Name && w.Tile == plan.Config.Tile.String() {
				chosen = w.Speed
			}
		}
		slower := best.Speed / chosen
		if slower < close {
			near++
			continue
		}
		t.Logf("%v: %s:%v is %.3f × slower than %s:%s", &p, plan.Kernel.Name, plan.Config.Tile, slower, best.Kernel,
			best.Tile)
		if slower > far {
			t.Errorf("%v: %s:%v was not measured, or is %.2f × slower than the best", &p, plan.Kernel.Name, plan.Config.Tile,
				slower)
		}
	}
	if float64(near) < share*float64(len(all)) {
		t.Errorf("within 5 %% of the best on %d of %d products", near, len(all))
	}
	t.Logf("within 5 %% of the best on %d of %d products", near, len(all))
}
