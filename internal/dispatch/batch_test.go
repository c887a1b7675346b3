package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"tilework/dtype"
	"tilework/internal/gemm"
)

// TestBatch checks that RunBatch computes small and large products of several devices, and that its
// errors contain the index of the product.
func TestBatch(t *testing.T) {
	var batch []Product
	add := func(d string, m, n, k int) {
		p, b := product(t, dtype.F64, dtype.F64, m, n, k, gemm.Epilogue{})
		pl, err := New(Request{Problem: p, Device: name(t, d)})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, Product{*pl, b})
	}
	for i := range 10 {
		add("cpu", 1+i, 2, 3)
	}
	add("cpu", 200, 210, 220)
	for range 3 { // in one launch
		add("emu", 8, 9, 10)
	}
	add("emu", 9, 9, 10)
	if err := RunBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for i, p := range batch {
		if got := dtype.F64.At(p.Buffers[gemm.C], p.Problem.C().Len()-1); got != float64(p.Problem.K) {
			t.Errorf("product %d: the last element is %v, want %d", i, got, p.Problem.K)
		}
	}
	if err := RunBatch(t.Context(), nil); err != nil {
		t.Errorf("an empty batch: %v", err)
	}

	many, err := batch[0].Problem.Strided(2, gemm.Batch{Stride: gemm.Strides{gemm.C: batch[0].Problem.C().Len()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Request{Problem: many, Device: name(t, "cpu")}); !errors.Is(err, gemm.ErrUnsupported) {
		t.Errorf("a batch as one product: got error %v, want ErrUnsupported", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RunBatch(ctx, batch); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got error %v", err)
	}
	for i, c := range []struct {
		change func()
		want   error
		text   string
	}{
		{func() { batch[3].Buffers[gemm.C] = batch[4].Buffers[gemm.C] }, gemm.ErrOverlap,
			"C of product 3 shares memory with C of product 4"},
		{func() { batch[3].Buffers[gemm.C] = batch[10].Buffers[gemm.B] }, gemm.ErrOverlap,
			"C of product 3 shares memory with B of product 10"},
		{func() { batch[10].Buffers[gemm.A] = batch[10].Buffers[gemm.A][:8] }, gemm.ErrShape,
			"product 10 of the batch: "},
		{func() { batch[2].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 2 of the batch: "},
		{func() { batch[11].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 11 of the batch: "},
		{func() { batch[12].Buffers[gemm.B] = nil }, gemm.ErrShape, "product 12 of the batch: "},
		{func() { batch[14].Buffers[gemm.A] = nil }, gemm.ErrShape, "product 14 of the batch: "},
	} {
		before := slices.Clone(batch)
		c.change()
		err := RunBatch(t.Context(), batch)
		// The message names first the product whose memory has the lower address.
		a, b, _ := strings.Cut(c.text, " shares memory with ")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
			t.Errorf("change %d: got error %v, want %v with %q", i, err, c.want, c.text)
		}
		batch = before
	}
}
