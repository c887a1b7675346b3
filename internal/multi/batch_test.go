package multi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// divideAll makes batches of any predicted time be divided until the end of the test.
func divideAll(t *testing.T) {
	before := minDivided
	minDivided = 0
	t.Cleanup(func() { minDivided = before })
}

// planOn returns the plan of p on the first n GPUs.
func planOn(t *testing.T, p *gemm.Problem, n, limit int) *plan {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	pl, err := Backend{backend.DeviceName{Kind: backend.GPU, List: strings.Join(list, ",")}}.Plan(p,
		&backend.Options{GPUMemory: limit}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pl.(*plan)
}

// batch is a list of products, or of groups of rows of one product.
type batch struct {
	problem *gemm.Problem
	all     []gemm.Buffers
	bs      [][]byte // of groups, whose other operands are those of all[0]
	ends    []int32
}

// randomBatch returns a batch of random matrices. All products may share A or B.
func randomBatch(t *testing.T, rng *rand.Rand, count int, groups bool) *batch {
	t.Helper()
	kinds := [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.F64, dtype.F64},
		{dtype.I8, dtype.I32}}
	kind := kinds[rng.IntN(len(kinds))]
	x := &batch{}
	m, n, k := 1+rng.IntN(40), 1+rng.IntN(40), 1+rng.IntN(40)
	if groups {
		m = 0
		for range count {
			m += rng.IntN(2) * rng.IntN(30)
			x.ends = append(x.ends, int32(m))
		}
		m++ // a row after the last group
	}
	b, c := gemm.Dense(kind[0], k, n), gemm.Dense(kind[1], m, n)
	if rng.IntN(2) == 0 {
		b = gemm.Dense(kind[0], n, k).T()
	}
	b.LD, c.LD = b.LD+rng.IntN(3), c.LD+rng.IntN(3)
	p, _, err := gemm.New(1, gemm.Dense(kind[0], m, k), b, complex(float64(rng.IntN(2)), 0), c,
		gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))})
	if err != nil {
		t.Fatal(err)
	}
	x.problem = &p
	shared := rng.IntN(3)
	for i := range count {
		b := testkit.Filled(rng, &p)
		if i > 0 {
			b[gemm.Bias] = x.all[0][gemm.Bias]
			if shared < int(gemm.C) {
				b[shared] = x.all[0][shared]
			}
		}
		x.all, x.bs = append(x.all, b), append(x.bs, b[gemm.B])
	}
	return x
}

// run computes the batch and returns all C.
func (x *batch) run(ctx context.Context, pl *plan) (all [][]byte, err error) {
	var copies []gemm.Buffers
	for _, b := range x.all {
		b[gemm.C] = bytes.Clone(b[gemm.C])
		copies, all = append(copies, b), append(all, b[gemm.C])
	}
	if x.ends != nil {
		return all[:1], pl.RunGroups(ctx, "", &copies[0], x.bs, x.ends)
	}
	return all, pl.RunBatch(ctx, "", copies)
}

// TestBatchBits computes batches and groups of rows on 1, 2, 3 and 4 GPUs, in all and in little
// memory. All results must have the bits of one GPU.
func TestBatchBits(t *testing.T) {
	divideAll(t)
	rng := testrand.New(t)
	gpus(t, 4)
	for range testkit.Cases(12, 100) {
		for _, groups := range []bool{false, true} {
			x := randomBatch(t, rng, 1+rng.IntN(9), groups)
			want, err := x.run(t.Context(), planOn(t, x.problem, 1, 0))
			if err != nil {
				t.Fatal(err)
			}
			for n := 2; n <= 4; n++ {
				limit := 0
				if !groups && rng.IntN(2) == 0 {
					limit = 40 << 10
				}
				got, err := x.run(t.Context(), planOn(t, x.problem, n, limit))
				if err != nil {
					t.Fatalf("%d of %v on %d GPUs, limit %d: %v", len(x.all), x.problem, n, limit, err)
				}
				for i := range want {
					if !bytes.Equal(got[i], want[i]) {
						t.Errorf("%d of %v, groups %v, on %d GPUs, limit %d: product %d has other bits than on one GPU", len(x.all),
							x.problem, x.ends, n, limit, i)
					}
				}
			}
		}
	}
}

// TestEmptyLastGroup checks groups of rows whose last one is empty and begins after the last row of
// C, where a GPU has no other group.
func TestEmptyLastGroup(t *testing.T) {
	divideAll(t)
	rng := testrand.New(t)
	gpus(t, 2)
	c := gemm.Dense(dtype.F32, 5, 4)
	c.LD += 2
	p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 5, 3), gemm.Dense(dtype.F32, 3, 4), 0, c, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	x := &batch{problem: &p, all: []gemm.Buffers{testkit.Filled(rng, &p)}, ends: []int32{5, 5}}
	for range x.ends {
		x.bs = append(x.bs, x.all[0][gemm.B])
	}
	want, err := x.run(t.Context(), planOn(t, &p, 1, 0))
	if err != nil {
		t.Fatal(err)
	}
	got, err := x.run(t.Context(), planOn(t, &p, 2, 0))
	if err != nil || !bytes.Equal(got[0], want[0]) {
		t.Errorf("other bits on two GPUs than on one, or %v", err)
	}
}

// TestBatchFaults fails each call of one of two GPUs in turn. The batch must fail with an error
// that names the GPU, or recover from a lack of memory, and leave nothing on any GPU.
func TestBatchFaults(t *testing.T) {
	divideAll(t)
	rng := testrand.New(t)
	for _, groups := range []bool{false, true} {
		x := randomBatch(t, rng, 6, groups)
		if groups {
			for x.problem.M == 1 {
				x = randomBatch(t, rng, 6, groups)
			}
			x.ends = []int32{1, 1, 1, 1, 1, int32(x.problem.M)} // the second GPU has the last group
		}
		gpus(t, 1)
		want, err := x.run(t.Context(), planOn(t, x.problem, 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []error{errFault, device.ErrLost, device.ErrOutOfMemory} {
			failures := 0
			for n := 1; ; n++ {
				all := gpus(t, 2)
				pl := planOn(t, x.problem, 2, 0)
				all[1].Fail(n, kind)
				got, err := x.run(t.Context(), pl)
				call := all[1].FailedCall()
				recovered := err == nil && kind == device.ErrOutOfMemory && !groups // in smaller parts
				if err == nil && !slices.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("after %q: other bits than on one GPU", call)
				}
				if call == "" && err != nil || call != "" && !recovered && (!errors.Is(err, kind) ||
					!strings.Contains(err.Error(), "device gpu:1: ")) {
					t.Errorf("%q failed with %v: error %v", call, kind, err)
				}
				all[1].Fail(0, nil)
				checkLeft(t, all, call)
				if call == "" {
					break
				}
				failures++
			}
			if failures < 5 {
				t.Errorf("groups %v: %d calls of the second GPU failed, want at least 5", groups, failures)
			}
		}
	}
}

// TestBatchDivision checks the description of a batch, and that a short one stays on one GPU.
func TestBatchDivision(t *testing.T) {
	gpus(t, 3)
	p := testkit.Product(t, dtype.F32, dtype.F32, 16, 16, 16)
	pl := planOn(t, p, 3, 0)
	if got, want := pl.Division(3), "gpu computes products 0 to 2"; got != want {
		t.Errorf("a short batch: %q, want %q", got, want)
	}
	enough := int(3*time.Millisecond/pl.whole.Predicted()) / 3 * 3
	want := fmt.Sprintf("gpu computes products 0 to %d; gpu:1 computes products %d to %d; gpu:2 computes products "+
		"%d to %d", enough/3-1, enough/3, enough/3*2-1, enough/3*2, enough-1)
	if got := pl.Division(enough); got != want {
		t.Errorf("%d products: %q, want %q", enough, got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pl.RunBatch(ctx, "", []gemm.Buffers{testkit.Filled(testrand.New(t), p)}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	if err := pl.RunBatch(t.Context(), "", nil); err != nil {
		t.Errorf("an empty batch: error %v", err)
	}
}
