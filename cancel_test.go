package tilework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tilework/internal/testkit"
)

// TestCancelledAnywhere cancels the context of a product at each point that checks it. The call
// must return the context's error or the complete product. Afterwards C must not change, and
// neither device memory nor goroutines may be left.
func TestCancelledAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	a, b := whole[float32](rng, 70, 40), whole[float32](rng, 40, 50)
	large, wide := whole[float32](rng, 300, 200), whole[float32](rng, 200, 220)
	many := func(m Matrix[float32]) Batch[float32] { return Batch[float32]{m, m, m} }
	for _, test := range []struct {
		name string
		c    []Matrix[float32]
		run  func(ctx context.Context, c []Matrix[float32]) error
	}{
		{"small", []Matrix[float32]{New[float32](70, 50)}, func(ctx context.Context, c []Matrix[float32]) error {
			return Gemm(ctx, 1, a, b, 0, c[0], WithDevice("cpu"))
		}},
		{"verified", []Matrix[float32]{New[float32](70, 50)}, func(ctx context.Context, c []Matrix[float32]) error {
			return Gemm(ctx, 1, a, b, 0, c[0], WithDevice("cpu"), WithVerify(), WithReLU())
		}},
		{"portable", []Matrix[float32]{New[float32](300, 220)}, func(ctx context.Context, c []Matrix[float32]) error {
			return Gemm(ctx, 1, large, wide, 0, c[0], WithKernel("portable"), WithDevice("cpu"))
		}},
		{"textbook", []Matrix[float32]{New[float32](70, 50)}, func(ctx context.Context, c []Matrix[float32]) error {
			return Gemm(ctx, 1, a, b, 0, c[0], WithKernel("loop"), WithDevice("cpu"))
		}},
		{"batch", []Matrix[float32]{New[float32](70, 50), New[float32](70, 50), New[float32](70, 50)},
			func(ctx context.Context, c []Matrix[float32]) error {
				return Gemm(ctx, 1, many(a), many(b), 0, Batch[float32](c), WithDevice("cpu"))
			}},
		{"emulated", []Matrix[float32]{New[float32](70, 50)}, func(ctx context.Context, c []Matrix[float32]) error {
			return Gemm(ctx, 1, a, b, 0, c[0], WithDevice("emu"), WithKernel("blocked"))
		}},
		{"resident", []Matrix[float32]{New[float32](70, 50)}, func(ctx context.Context, c []Matrix[float32]) error {
			d, err := Open("emu")
			if err != nil {
				return err
			}
			defer d.Close()
			on := make([]DeviceMatrix[float32], 2)
			for i, m := range []Matrix[float32]{a, b} {
				if on[i], err = Upload(ctx, d, m); err != nil {
					return err
				}
			}
			p, err := Mul(ctx, on[0], on[1], WithVerify())
			if err != nil {
				return err
			}
			got, err := p.Download(ctx)
			copy(c[0].data, got.data)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := New[float32](test.c[0].Rows(), test.c[0].Cols())
			all := []Matrix[float32]{want}
			for range test.c[1:] {
				all = append(all, want.clone())
			}
			// The first call starts worker goroutines that outlive it.
			if err := test.run(t.Context(), all); err != nil {
				t.Fatal(err)
			}
			substitute(t, 0)
			before := goleak.IgnoreCurrent()
			ends := 0
			testkit.CancelEverywhere(testkit.Repeats(60, 500), func(ctx *testkit.CountdownContext) {
				for i := range test.c {
					clear(test.c[i].data)
				}
				err := test.run(ctx, test.c)
				ends++
				switch {
				case err == nil:
					for i := range test.c {
						if !slices.Equal(test.c[i].data, want.data) {
							t.Fatalf("cancellation %d: no error, but C differs from the uncancelled product", ends)
						}
					}
				case !ctx.Ended() || !errors.Is(err, context.Canceled):
					t.Fatalf("cancellation %d (context ended: %v): error %v, want context.Canceled", ends, ctx.Ended(), err)
				}
				was := fmt.Sprint(test.c[0].data)
				time.Sleep(200 * time.Microsecond)
				if fmt.Sprint(test.c[0].data) != was {
					t.Fatalf("cancellation %d: C changed after the call returned", ends)
				}
			})
			if ends < 2 {
				t.Error("no call checks the context")
			}
			t.Logf("%d cancellations", ends)
			goleak.VerifyNone(t, before)
		})
	}
}

// TestNilContext passes a nil context to every function that takes a context: the error must say
// so, and no result may change.
func TestNilContext(t *testing.T) {
	d, err := Open("emu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	x := FromSlice(2, 2, []float32{1, 2, 3, 4})
	on, err := Upload(t.Context(), d, x)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := Upload(t.Context(), d, Batch[float32]{x, x})
	if err != nil {
		t.Fatal(err)
	}
	c := New[float32](2, 2)
	result, err := Upload(t.Context(), d, c)
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	for name, err := range map[string]error{
		"Gemm":              Gemm(none, 1, x, x, 0, c),
		"Gemm, batch":       Gemm(none, 1, Batch[float32]{x}, Batch[float32]{x}, 0, Batch[float32]{c}),
		"Gemm, groups":      Gemm(none, 1, x, Batch[float32]{x}, 0, c, WithGroups(Vector[int32](2))),
		"Gemm on a device":  Gemm(none, 1, on, on, 0, result),
		"Gemm, wrong sizes": Gemm(none, 1, x, New[float32](3, 3), 0, c),
		"Mul":               second(Mul(none, x, x)),
		"Mul, batch":        second(Mul(none, Batch[float32]{x}, Batch[float32]{x})),
		"Mul on a device":   second(Mul(none, on, on)),
		"Copy":              Copy(none, c, x),
		"Copy to a device":  Copy(none, result, x),
		"Copy of a batch":   Copy(none, Batch[float32]{c, c}, batch),
		"Upload":            second(Upload(none, d, x)),
		"Upload, batch":     second(Upload(none, d, Batch[float32]{x})),
		"Download":          second(on.Download(none)),
		"Download, batch":   second(batch.Download(none)),
		"Sync":              d.Sync(none),
		"Pack":              second(Pack(none, x)),
		"PlanGemm":          second(PlanGemm(none, x, x, c)),
		"TuneGemm":          second(TuneGemm(none, x, x, c, time.Second)),
		"OpenRanks":         second(OpenRanks(none, nil, "cpu")),
	} {
		if !errors.Is(err, errNilContext) {
			t.Errorf("%s: error %v, want %v", name, err, errNilContext)
		}
	}
	got, err := result.Download(t.Context())
	if want := make([]float32, 4); err != nil || !slices.Equal(got.Data(), want) || !slices.Equal(c.Data(), want) {
		t.Errorf("results %v and %v, error %v: want zeros", c, got, err)
	}
}
