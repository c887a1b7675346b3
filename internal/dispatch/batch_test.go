package dispatch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/cpu"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// TestBatch checks that RunBatch computes small and large products of several devices, and that its
// errors contain the index of the product.
func TestBatch(t *testing.T) {
	var batch []Job
	add := func(d string, m, n, k int) {
		p, b := product(t, dtype.F64, dtype.F64, m, n, k, gemm.Epilogue{})
		pl, err := New(t.Context(), Request{Problem: p, Device: name(t, d)})
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, Job{*pl, b})
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
	if _, err := New(t.Context(), Request{Problem: many, Device: name(t, "cpu")}); !errors.Is(err, gemm.ErrUnsupported) {
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
		for i := range batch {
			clear(batch[i].Buffers[gemm.C])
		}
		c.change()
		err := RunBatch(t.Context(), batch)
		// The message names first the product whose memory has the lower address.
		a, b, _ := strings.Cut(c.text, " shares memory with ")
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) {
			t.Errorf("change %d: got error %v, want %v with %q", i, err, c.want, c.text)
		}
		batch = before
		for j, p := range batch {
			if dtype.F64.At(p.Buffers[gemm.C], 0) != 0 {
				t.Errorf("change %d: product %d was computed although another one is invalid", i, j)
			}
		}
	}
}

// TestBatchStops checks that small products on one thread stop at the first error.
func TestBatchStops(t *testing.T) {
	batch := make([]Job, 100)
	for i := range batch {
		p := &batch[i]
		p.Problem, p.Buffers = product(t, dtype.F64, dtype.F64, 2, 3, 4, gemm.Epilogue{})
		p.Request.Device, p.Request.Threads = name(t, "cpu"), 1
		p.Verify, p.Within = i == 0, 1e-300 // fails as rounding errors exceed this limit
		if err := p.Decide(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	err := RunBatch(t.Context(), batch)
	if !errors.Is(err, gemm.ErrVerify) || !strings.HasPrefix(err.Error(), "product 0 of the batch: ") {
		t.Errorf("got error %v, want ErrVerify of product 0", err)
	}
	if last := batch[len(batch)-1].Buffers[gemm.C]; dtype.F64.At(last, 0) != 0 {
		t.Error("the last product was computed although the first one failed")
	}
}

// TestBatchOfOneB checks that finding overlaps of many products with the same B takes little time.
func TestBatchOfOneB(t *testing.T) {
	batch := make([]Job, 50_000)
	for i := range batch {
		batch[i].Problem, batch[i].Buffers = product(t, dtype.F64, dtype.F64, 1, 1, 1, gemm.Epilogue{})
		batch[i].Buffers[gemm.B] = batch[0].Buffers[gemm.B]
	}
	testkit.CheckCost(t, len(batch)*int(unsafe.Sizeof(batch[0])), 1, func() {
		if err := checkBatch(membersOf(batch)); err != nil {
			t.Error(err)
		}
	})
}

// TestBatchThreads checks the number of goroutines for small products of a batch. A few
// microseconds of work wake no worker.
func TestBatchThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64)) // the most threads
	for _, tc := range []struct {
		n, count int
		want     func(threads int) bool
	}{
		{4, 256, func(threads int) bool { return threads == 1 }},
		{32, 256, func(threads int) bool { return threads > 1 }},
		{16, 10_000, func(threads int) bool { return threads > 8 }},
	} {
		var one Job
		one.Problem, one.Buffers = product(t, dtype.F32, dtype.F32, tc.n, tc.n, tc.n, gemm.Epilogue{})
		one.Request.Device = name(t, "cpu")
		if err := one.Decide(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := smallProducts{batch: make([]Member, tc.count)}
		for i := range s.batch {
			s.batch[i].Product = &one
		}
		n, work := s.count()
		if threads := cpu.ThreadsFor(work, 64); n != tc.count || !tc.want(threads) {
			t.Errorf("%d products of %d³, %v: %d on %d threads", tc.count, tc.n, work, n, threads)
		}
	}
}
