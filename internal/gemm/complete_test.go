package gemm

import (
	"testing"

	"tilework/dtype"
)

// described returns products of all kinds, as a caller describes them. All can have a transposed C.
func described() map[string]Problem {
	f32, f8 := dtype.F32, dtype.F8E4M3
	a, b, c := Dense(f32, 2, 3), Dense(f32, 4, 3).T(), Dense(f32, 2, 4)
	scaled := Layouts{A: Dense(f8, 2, 300), B: Dense(f8, 300, 4), C: c, ScaleA: Dense(f32, 2, 3),
		ScaleB: Dense(f32, 1, 3).T()}
	return map[string]Problem{
		"plain":     {Layouts: Layouts{A: a, B: b, C: c}, Alpha: 1, Beta: 2},
		"epilogue":  {Layouts: Layouts{A: a, B: b, C: c}, Alpha: 1, Epilogue: Epilogue{Bias: BiasRow, ColScale: true}},
		"residual":  {Layouts: Layouts{A: a, B: b, C: c, Residual: Padded(c)}, Epilogue: Epilogue{Residual: true}},
		"scaled":    {Layouts: scaled, Alpha: 1},
		"tf32":      {Layouts: Layouts{A: a, B: b, C: c}, Alpha: 1, Precision: TF32},
		"strided":   {Layouts: Layouts{A: a, B: b, C: c}, Batch: Batch{Strided, 3, Strides{A: 10, B: 20, C: 30}}},
		"invariant": {Layouts: Layouts{A: a, B: b, C: c}, Alpha: 1, Invariance: InvariantRows},
	}
}

// TestCompleteAgain checks that a complete problem does not change when it is completed again.
func TestCompleteAgain(t *testing.T) {
	for name, p := range described() {
		if _, err := p.Complete(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again := p
		if swapped, err := again.Complete(); err != nil || swapped || again != p {
			t.Errorf("%s: completed again, swapped %v, error %v: %+v, want %+v", name, swapped, err, again, p)
		}
	}
}

// TestCompleteTransposed checks that the product of the transposes, whose C is transposed, is
// completed to the product itself.
func TestCompleteTransposed(t *testing.T) {
	for name, p := range described() {
		q := p
		q.Layouts = Layouts{A: p.Layouts[B].T(), B: p.Layouts[A].T(), C: p.Layouts[C].T()}
		if p.Epilogue.Residual {
			q.Layouts[Residual] = p.Layouts[Residual].T()
		}
		if p.BlockScaled() {
			q.Layouts[ScaleA], q.Layouts[ScaleB] = p.Layouts[ScaleB].T(), p.Layouts[ScaleA].T()
		}
		q.Epilogue = p.Epilogue.transposed()
		q.Batch.Stride[A], q.Batch.Stride[B] = p.Batch.Stride[B], p.Batch.Stride[A]
		swapped, err := q.Complete()
		if _, errP := p.Complete(); err != nil || errP != nil || !swapped {
			t.Fatalf("%s: swapped %v, errors %v and %v", name, swapped, err, errP)
		}
		if p.Invariance == InvariantRows {
			p.Invariance = InvariantColumns
		}
		if q != p {
			t.Errorf("%s: got %+v, want %+v", name, q, p)
		}
	}
	grouped := described()["plain"]
	grouped.Layouts[C].Trans, grouped.Layouts[C].Rows, grouped.Layouts[C].Cols = true, 4, 2
	grouped.Batch = Batch{Kind: Grouped, Count: 1}
	if _, err := grouped.Complete(); err == nil {
		t.Error("groups of rows of a transposed C: no error")
	}
}
