package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/cache"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
)

// fitOptions returns options for a fit to some products, and the messages of Fit.
func fitOptions(t *testing.T, sizes ...int) (FitOptions, *[]string) {
	var products []*gemm.Problem
	for _, n := range sizes {
		products = append(products, testkit.Product(t, dtype.F32, dtype.F32, n, n, 2*n))
	}
	var notes []string
	return FitOptions{Device: gpu0, Time: time.Hour, products: slices.Values(products), tries: 1,
		Note: func(s string) { notes = append(notes, s) }}, &notes
}

// TestFit fits to a GPU on which each launch takes the same time. Predictions come close to it.
func TestFit(t *testing.T) {
	d := newSimulatedGPU(t)
	d.idle, d.mhz = true, 8 // 8,000 cycles per launch
	d.cost = func(string, device.Dim3) time.Duration { return time.Millisecond }
	o, notes := fitOptions(t, 8, 16, 24, 32, 40, 48, 56, 64, 72)
	passed := 0
	o.Progress = func(_, all time.Duration) {
		if passed++; all != o.Time {
			t.Errorf("progress of %v, want %v", all, o.Time)
		}
	}
	f, err := Fit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if f.Products != 6 || f.Before.Products != 3 || f.Candidates < 18 || f.Before.Loss != 0 ||
		f.After.Deviation > f.Before.Deviation/2 || !f.Better() || passed != 9 {
		t.Errorf("%+v after %d calls of Progress", f, passed)
	}
	if n := *notes; len(n) != 10 || !strings.HasPrefix(n[0], "float32->float32 native NN 8x8x16 16,8,8: ") ||
		n[9] != "measured 9 products; fitting" {
		t.Errorf("notes %q", n)
	}
	if s := f.Source[0]; !strings.HasPrefix(s, "simulated GPU, ") ||
		!strings.Contains(s, fmt.Sprintf(" %d candidates of 9 products on ", f.Candidates)) {
		t.Errorf("source %q", s)
	}
	c := cache.At(t.TempDir())
	if err := f.Keep(c); err != nil || len(choose.AllKept(c)) != 1 {
		t.Errorf("kept %v, %v", choose.AllKept(c), err)
	}
	if text, err := f.Text(); err != nil || !strings.Contains(string(text), `"Like": "`+f.From) {
		t.Errorf("%v, %s", err, text)
	}
}

// TestFitFaults checks the errors of Fit: bad options, calls of the GPU that fail, and a context
// that ends.
func TestFitFaults(t *testing.T) {
	d := newSimulatedGPU(t)
	d.idle = true
	for _, c := range []struct {
		change func(*FitOptions)
		want   string
	}{
		{func(o *FitOptions) { o.From = "h20" }, `unknown model "h20" (did you mean "h200"?)`},
		{func(o *FitOptions) { o.products = slices.Values([]*gemm.Problem{}) }, "0 products were measured"},
	} {
		o, _ := fitOptions(t, 8)
		c.change(&o)
		if _, err := Fit(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	o, _ := fitOptions(t, 8, 16, 24)
	d.fail = func(call, _ string) error {
		if call == "Launch" {
			return sentinel.ErrNoDevice
		}
		return nil
	}
	if _, err := Fit(t.Context(), o); !errors.Is(err, sentinel.ErrNoDevice) {
		t.Errorf("error %v, want a lost device", err)
	}
	d.fail, d.mhz = func(string, string) error { return nil }, 0
	if _, err := Fit(t.Context(), o); err == nil || !strings.Contains(err.Error(), "clock rate of the GPU is not known") {
		t.Errorf("error %v", err)
	}
	d.mhz = 1000
	for _, after := range []int{1, 2} {
		ctx, cancel := context.WithCancel(t.Context())
		o, _ := fitOptions(t, 8, 16, 24)
		o.Progress = func(time.Duration, time.Duration) {
			if after--; after == 0 {
				cancel()
			}
		}
		if _, err := Fit(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want an ended context", err)
		}
		cancel()
	}
	d.info.Emulated = true
	o, _ = fitOptions(t, 8)
	if _, err := Fit(t.Context(), o); !errors.Is(err, gemm.ErrUnsupported) ||
		!strings.Contains(err.Error(), "an emulated GPU has no times") {
		t.Errorf("error %v", err)
	}
}

// TestFitProducts checks that the products have all types in turns, are random ones and layers, and
// that two types do not have the same sizes.
func TestFitProducts(t *testing.T) {
	const most = 1 << 27
	var first []string
	types, sizes := map[dtype.Type]int{}, map[string]int{}
	n := 0
	for p := range fitProducts(7) {
		if n++; n > 100 {
			break
		}
		if p.M*p.K+p.K*p.N+p.M*p.N > most {
			t.Errorf("%v is too large", p)
		}
		if n <= 10 {
			first = append(first, p.String())
		}
		types[p.In()]++
		sizes[fmt.Sprint(p.M, p.N, p.K)]++
	}
	if len(types) != 5 || len(sizes) < 90 {
		t.Errorf("%d types and %d sizes among 100 products: %v", len(types), len(sizes), types)
	}
	n = 0
	for p := range fitProducts(7) {
		if p.String() != first[n] {
			t.Errorf("product %d is %v, and was %v", n, p, first[n])
		}
		if n++; n == len(first) {
			break
		}
	}
}
