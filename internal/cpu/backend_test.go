package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/testkit"
)

// TestTuningKey checks that choices tuned with fewer instruction sets have another key.
func TestTuningKey(t *testing.T) {
	if all, few := newTuningKey(""), newTuningKey("portable"); *all == *few {
		t.Errorf("the keys are equal: %+v", all)
	}
}

// TestReusePlan checks that planning into a plan that is reset allocates nothing and keeps nothing
// of the earlier product.
func TestReusePlan(t *testing.T) {
	p, other := testkit.Product(t, dtype.F32, dtype.F32, 8, 8, 8), testkit.Product(t, dtype.F64, dtype.F64, 9, 9, 9)
	o := &backend.Options{}
	old, err := Backend{}.Plan(p, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	old.CallTile(func(_, _, _, _ int) { t.Error("the function of the earlier product was called") })
	allocs := testing.AllocsPerRun(100, func() {
		old.Reset()
		pl, err := Backend{}.Plan(other, o, old)
		if err != nil || pl != old {
			t.Errorf("got another plan, or error %v", err)
		}
	})
	if pl := old.(*Plan); allocs != 0 || pl.Problem != other || pl.onTile != nil {
		t.Errorf("%v allocations, planned %v", allocs, pl.Problem)
	}
	old.Reset()
	if pl := old.(*Plan); pl.Problem != nil || pl.Kernel != nil {
		t.Errorf("after Reset the plan holds %v", pl.Problem)
	}
}
