package call

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestCallsAreClean checks that a call keeps no operand and no option of the product before,
// whether or not that reads them.
func TestCallsAreClean(t *testing.T) {
	k := New()
	number := gemm.Dense(dtype.F32, 1, 1)
	for o := range gemm.Operands {
		k.GiveMatrix(o, number, make([]byte, 4))
	}
	k.Epilogue.Bias, k.Threads, k.RowInvariant, k.Kernel = gemm.BiasRow, -1, true, "none"
	k.Start(1, 0)
	if err := k.Run(t.Context()); err == nil {
		t.Error("no error for -1 threads")
	}
	k.Release()
	k.alpha = 0
	if want := (Options{}); !reflect.DeepEqual(k.Options, want) {
		t.Errorf("a released call has %+v", k.Options)
	}
	for o, memory := range k.Memory {
		if b := k.product.Buffers; memory != nil || b[o] != nil {
			t.Errorf("a released call has the memory of %v", gemm.Operand(o))
		}
	}
}

// TestAssemble gives the operands of a product in two steps, as the command does, which reads a
// bias in the type and the size that the product of A and B has for it. The output scale is one
// number. Each step starts with a call that has the plan of the same product without options.
func TestAssemble(t *testing.T) {
	number := func(x ...float32) []byte { return dtype.Bytes(x) }
	row := func(n int) gemm.Layout { return gemm.Dense(dtype.F32, 1, n) }
	for range 3 {
		k := New()
		k.Threads = 1
		k.GiveMatrix(gemm.A, row(2), number(1, 2))
		k.GiveMatrix(gemm.B, gemm.Dense(dtype.F32, 2, 3), number(1, 2, 3, 4, 5, 6))
		k.GiveMatrix(gemm.C, row(3), make([]byte, 12))
		k.Start(1, 0)
		if err := k.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.Release()

		k = New()
		k.Threads = 1
		k.GiveMatrix(gemm.A, row(2), number(1, 2))
		k.GiveMatrix(gemm.B, gemm.Dense(dtype.F32, 2, 3), number(1, 2, 3, 4, 5, 6))
		k.GiveMatrix(gemm.C, row(3), nil)
		k.Start(1, 0)
		k.Epilogue = gemm.Epilogue{Bias: gemm.BiasCol, OutScale: true}
		p, err := k.Assemble()
		if err != nil || p.Problem.Layout(gemm.Bias) != row(3) {
			t.Fatalf("a bias of %v, error %v, want %v", p.Problem.Layout(gemm.Bias), err, row(3))
		}
		k.GiveMatrix(gemm.Bias, gemm.Dense(dtype.F32, 3, 1), number(100, 200, 300))
		k.GiveMatrix(gemm.OutScale, gemm.Dense(dtype.F64, 1, 1), dtype.Bytes([]float64{2}))
		if p, err = k.Assemble(); err != nil {
			t.Fatal(err)
		}
		c := make([]byte, 12)
		p.Buffers[gemm.C] = c
		if err := errors.Join(p.Decide(t.Context()), p.Run(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := dtype.View[float32](c); !slices.Equal(got, []float32{218, 424, 630}) {
			t.Fatalf("C is %v, want [218 424 630]", got)
		}
		k.Release()
	}
}

// TestReleaseBeforeStart checks that a call whose operands are refused can be released, also when
// it is the first of the process.
func TestReleaseBeforeStart(t *testing.T) {
	k := calls.New().(*Call)
	k.Release()
}
