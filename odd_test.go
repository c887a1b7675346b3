package tilework

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"tilework/internal/cache"
	"tilework/internal/dispatch/tuned"
)

// TestOddCalls calls the functions that take sizes with extreme values of int, and passes the
// resulting matrices to the functions that take matrices. Each call must either succeed or return
// one of the documented errors, without a panic.
func TestOddCalls(t *testing.T) {
	t.Cleanup(tuned.Substitute(cache.At(t.TempDir())))
	substitute(t, 1<<20)
	d := on(t, "emu")
	odd := []int{math.MinInt, -1, 0, 1, 3, 1 << min(31, strconv.IntSize-2), math.MaxInt/2 + 1, math.MaxInt}
	data := make([]float32, 12)
	matrices := []Matrix[float32]{{}, New[float32](3, 3), FromSlice(3, 4, data)}
	calm(t, "sizes", func(string) {
		for _, r := range odd {
			for _, c := range odd {
				matrices = append(matrices, FromSlice(r, c, data), New[float32](3, 4).Sub(r, c, 1, 1),
					New[float32](3, 4).T().Sub(1, 1, r, c))
				for _, stride := range odd {
					matrices = append(matrices, FromStrided(r, c, stride, data), FromStrided(r, c, stride, data).Sub(0, 0, r, c))
				}
				if r < 1<<20 || c < 1<<20 {
					continue
				}
				matrices = append(matrices, New[float32](r, c))
			}
		}
	})
	kept := matrices[:0]
	errs := map[string]bool{}
	for _, m := range matrices { // keep one matrix of each kind
		kind := fmt.Sprint(m.Rows(), m.Cols(), m.Stride(), m.Transposed(), m.Err() == nil)
		if m.Err() != nil {
			kind = fmt.Sprint(len(m.Err().Error()))
		}
		if !errs[kind] {
			errs[kind] = true
			kept = append(kept, m)
		}
	}
	ctx := t.Context()
	t.Logf("%d matrices", len(kept))
	good, bad := New[float32](3, 3), 0
	check := func(what string, err error) {
		if err != nil {
			bad++
			if !errors.Is(err, ErrShape) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, ErrOverlap) &&
				!errors.Is(err, ErrOutOfMemory) && !errors.Is(err, ErrNoDevice) {
				t.Errorf("%s: undocumented error %v", what, err)
			}
		}
	}
	for i, a := range kept {
		calm(t, fmt.Sprintf("a matrix %dx%d, %v", a.Rows(), a.Cols(), a.Err()), func(what string) {
			for _, b := range []Matrix[float32]{a, a.T(), good, kept[(i*7+3)%len(kept)]} {
				for _, opts := range [][]Option{nil, {WithDevice("emu")}, {WithVerify(), WithThreads(3)}, {WithResidual(b)},
					{WithColBias(Vector(data[:3]...))}} {
					_, err := Mul(ctx, a, b, opts...)
					check(what, err)
					check(what, Gemm(ctx, math.NaN(), b, a, math.Inf(1), good, opts...))
					check(what, Gemm(ctx, 1, good, good, 0, a, opts...))
					check(what, Gemm(ctx, 1, Batch[float32]{a, b}, Batch[float32]{b}, 0, Batch[float32]{good, a}, opts...))
					check(what, Gemm(ctx, 1, a, Batch[float32]{b, a}, 0, good, append(opts, WithGroups(GroupEnds(odd[:3]...)))...))
				}
				_, err := PlanGemm(t.Context(), a, b, good)
				check(what, err)
				packed, err := Pack(ctx, b)
				check(what, err)
				_, err = Mul(ctx, a, packed)
				check(what, err)
			}
			_ = a.clone()
			on, err := Upload(ctx, d, a)
			check(what, err)
			_, err = Mul(ctx, on, on)
			check(what, err)
			for _, n := range odd {
				_, err = Mul(ctx, on.Sub(n, 0, n, 1).T(), on.Sub(0, n, 1, n))
				check(what, err)
				batch := on.Batch(n, n)
				check(what, Gemm(ctx, 1, batch, batch, 0, batch))
				_ = batch.Matrix(0).Err()
				_ = batch.Matrix(n).Err()
			}
			_, err = on.Download(ctx)
			check(what, err)
			check(what, Copy(ctx, on, good))
			check(what, on.Close())
		})
	}
	calm(t, "device memory", func(what string) {
		for _, r := range odd {
			for _, c := range odd {
				m, err := NewDeviceMatrix[float32](d, r, c)
				check(what, err)
				check(what, m.Close())
				for _, n := range odd {
					b, err := NewDeviceBatch[float32](d, n, r, c)
					check(what, err)
					check(what, b.Close())
				}
			}
			check(what, GroupEnds(r, 1).Err())
			check(what, Gemm(ctx, 1, good, good, 0, New[float32](3, 3), WithThreads(r)))
		}
		_, err := NewDeviceMatrix[float32](nil, 1, 1)
		check(what, err)
		_, err = Upload(ctx, nil, good)
		check(what, err)
		_, err = TuneGemm(ctx, good, good, New[float32](3, 3), -time.Second)
		check(what, err)
	})
	if bad == 0 {
		t.Error("no call returned an error")
	}
}

// calm calls f and fails the test if f panics.
func calm(t *testing.T, what string, f func(what string)) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", what, r)
		}
	}()
	f(what)
}
