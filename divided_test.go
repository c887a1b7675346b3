package tilework

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"tilework/dtype"
)

// divisions holds the options for the divisions of a new matrix.
var divisions = map[string]Option{"rows": nil, "columns": WithColumnDivision(), "each": WithCopyOnEach()}

// TestDividedMatrices uploads, views, copies, multiplies and downloads matrices of every split on
// several emulated GPUs, and compares the results with those of the CPU.
func TestDividedMatrices(t *testing.T) {
	substitute(t, 0)
	for _, name := range []string{"emu:h200,h200", "emu:h200,h200,h200", "emu:h200,h200,h200,h200"} {
		d := on(t, name)
		rng := rand.New(rand.NewPCG(1, 2))
		a, b := whole[float32](rng, 70, 40), whole[float32](rng, 40, 90)
		want := plain(a, b)
		for wayA, ofA := range divisions {
			for wayB, ofB := range divisions {
				what := fmt.Sprintf("%s: A by %s, B by %s", name, wayA, wayB)
				x, y := upload(t, d, a.T().clone().T(), ofA), upload(t, d, b, ofB)
				sameAs(t, what+": A", download(t, x), plain(a, identity[float32](40)))
				c, err := Mul(t.Context(), x, y)
				if err != nil {
					t.Fatal(what, err)
				}
				sameAs(t, what, download(t, c), want)
				part, err := NewDeviceMatrix[float32](d, 100, 95, ofB)
				if err != nil {
					t.Fatal(err)
				}
				into := part.Sub(3, 2, 90, 70).T()
				if err := Gemm(t.Context(), 2, x, y, 0, into, WithVerify()); err != nil {
					t.Fatal(what, err)
				}
				if err := Gemm(t.Context(), -1, x, y, 1, into, WithKernel("tiled")); err != nil {
					t.Fatal(what, err)
				}
				sameAs(t, what+", twice", download(t, into), want)
				copied, err := NewDeviceMatrix[float32](d, 70, 90, ofA)
				if err == nil {
					err = Copy(t.Context(), copied, c)
				}
				if err != nil {
					t.Fatal(what, err)
				}
				sameAs(t, what+", copied", download(t, copied), want)
				for _, m := range []DeviceMatrix[float32]{x, y, c, part, copied} {
					if err := m.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := c.Download(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("download of a closed matrix: %v, want ErrClosed", err)
				}
			}
		}
		if err := d.Sync(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestDividedPlan checks the plan of a large product on two GPUs. It states the part of C that each
// computes and the copies between them.
func TestDividedPlan(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu:h200,h200")
	const n = 4096
	matrix := func(division Option) DeviceMatrix[dtype.BFloat16] {
		m, err := NewDeviceMatrix[dtype.BFloat16](d, n, n, division)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		ofB  Option
		want []string
	}{
		{nil, []string{"emu:h200 computes rows 0 to 2047 in ", " panels; emu:h200#1 computes rows 2048 to 4095 in ",
			"emu:h200 copies 16.78 MB from emu:h200#1", "emu:h200#1 copies 16.78 MB from emu:h200"}},
		{WithCopyOnEach(), []string{"emu:h200 computes rows 0 to 2047; emu:h200#1 computes rows 2048 to 4095"}},
	} {
		bias := WithColBias(Vector(make([]dtype.BFloat16, n)...))
		pl, err := PlanGemm(t.Context(), matrix(nil), matrix(c.ofB), matrix(nil), bias, WithReLU())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if text := pl.String(); !strings.Contains(text, want) || !strings.Contains(text, "on emu:h200,h200, kernel wgmma") {
				t.Errorf("plan %q, want %q", text, want)
			}
		}
		if len(c.want) == 1 && strings.Contains(pl.Detail, "copies") {
			t.Errorf("plan %q, want no copies", pl)
		}
	}
}

// TestDividedErrors checks calls that several GPUs refuse. None of them may affect later calls.
func TestDividedErrors(t *testing.T) {
	substitute(t, 1<<20)
	ctx := t.Context()
	d, alone := on(t, "emu:h200,h200"), on(t, "emu")
	a := upload(t, d, New[float32](16, 16))
	far := upload(t, alone, New[float32](16, 16))
	second := func(_ any, err error) error { return err }
	var none *Device
	odd, err := NewDeviceBatch[float32](d, 3, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		err  error
		want error
		text string
	}{
		{"listed twice", second(Open("gpu:1,1")), ErrNoDevice, "GPU 1 is listed twice"},
		{"no model", second(Open("emu:h200,")), ErrNoDevice, "want a list such as emu:h200,h200"},
		{"no Device", second(NewDeviceMatrix[float32](none, 1, 1, WithColumnDivision())), ErrNoDevice, "Open"},
		{"a batch at odd distances", Gemm(ctx, 1, a.Sub(0, 0, 4, 4).Batch(3, 9), a.Sub(0, 0, 4, 4).Batch(3, 0), 0, odd),
			ErrUnsupported, "below each other or side by side"},
		{"another device", Gemm(ctx, 1, a, far, 0, a), ErrUnsupported, "B is on device emu and C on emu:h200,h200"},
		{"overlap", Gemm(ctx, 1, a.Sub(0, 0, 8, 8), a.Sub(8, 8, 8, 8), 0, a.Sub(7, 7, 8, 8)), ErrOverlap, "C shares memory"},
		{"too large", second(NewDeviceMatrix[float32](d, 2048, 512)), ErrOutOfMemory, "device emu:h200"},
		{"unknown kernel", Gemm(ctx, 1, a, a.T(), 0, upload(t, d, New[float32](16, 16)), WithKernel("fast")), ErrUnsupported,
			`unknown GPU kernel "fast"`},
	} {
		if !errors.Is(test.err, test.want) || !strings.Contains(fmt.Sprint(test.err), test.text) {
			t.Errorf("%s: %v, want %v with %q", test.name, test.err, test.want, test.text)
		}
	}
	if _, err := Mul(ctx, a, a); err != nil {
		t.Error(err)
	}
}

// TestDividedBatches multiplies batches on several emulated GPUs: new ones, uploaded ones, views,
// and batches of host matrices. The results are those of one GPU.
func TestDividedBatches(t *testing.T) {
	substitute(t, 0)
	rng := rand.New(rand.NewPCG(7, 8))
	const count = 7
	var a, b Batch[float32]
	for range count {
		a, b = append(a, whole[float32](rng, 9, 5)), append(b, whole[float32](rng, 6, 5).T())
	}
	all := func(x Batch[float32], err error) (data []float32) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range x {
			data = append(data, m.clone().Data()...)
		}
		return data
	}
	want := all(Mul(t.Context(), a, b, WithDevice("emu:h200")))
	for _, name := range []string{"emu:h200,h200", "emu:h200,h200,h200"} {
		d := on(t, name)
		for way, ofB := range divisions {
			x, err := Upload(t.Context(), d, a)
			if err != nil {
				t.Fatal(err)
			}
			y, err := Upload(t.Context(), d, b, ofB)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Mul(t.Context(), x, y)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(all(c.Download(t.Context())), want) {
				t.Errorf("%s: other bits than on one GPU", name)
			}
			whole := way != "columns" // matrices of B
			if pl, err := PlanGemm(t.Context(), x, y, c); err != nil || strings.Contains(pl.Detail, "copies") == whole ||
				!strings.Contains(pl.Detail, "emu:h200 computes products 0 to ") {
				t.Errorf("%s: plan %q, %v, want products on each GPU, and copies: %v", name, pl, err, !whole)
			}
			// All products with the first B, into matrices side by side.
			side, err := NewDeviceMatrix[float32](d, 9, 6*count, ofB)
			if err != nil {
				t.Fatal(err)
			}
			if err := Gemm(t.Context(), 1, x, y.Matrix(0).Batch(count, 0), 0, side.Sub(0, 0, 9, 6).Batch(count, 6)); err != nil {
				t.Fatal(err)
			}
			got := download(t, side)
			for i := range count {
				sameAs(t, fmt.Sprintf("%s: matrix %d of those side by side", name, i), got.Sub(0, 6*i, 9, 6).clone(),
					plain(a[i], b[0]))
			}
		}
		if !slices.Equal(all(Mul(t.Context(), a, b, WithDevice(name))), want) {
			t.Errorf("host matrices on %s: other bits than on one GPU", name)
		}
		c := Batch[float32]{New[float32](9, 6), New[float32](9, 6)}
		if pl, err := PlanGemm(t.Context(), a[:2], b[:2], c, WithDevice(name)); err != nil ||
			!strings.Contains(pl.Detail, "emu:h200 computes products 0 to 1") {
			t.Errorf("host matrices on %s: plan %q, %v", name, pl, err)
		}
	}
}

// TestDividedGroups multiplies groups of rows on several emulated GPUs, with the ends of the groups
// on the host and on the GPUs. The results are those of one GPU.
func TestDividedGroups(t *testing.T) {
	substitute(t, 0)
	ctx, rng := t.Context(), rand.New(rand.NewPCG(9, 8))
	a, before := whole[float32](rng, 30, 8), whole[float32](rng, 30, 40)
	experts := Batch[float32](wholes(rng, 3, 8, 40))
	ends := GroupEnds(11, 0, 17) // and two rows of no group
	want := before.clone()
	if err := Gemm(ctx, 2, a, experts, 1, want, WithGroups(ends), WithDevice("cpu")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"emu:h200,h200", "emu:h200,h200,h200"} {
		d := on(t, name)
		routed := upload(t, d, ends)
		for _, ofB := range divisions {
			b, err := Upload(ctx, d, experts, ofB)
			if err != nil {
				t.Fatal(err)
			}
			for _, groups := range []Operand[int32]{ends, routed} {
				x, c := upload(t, d, a), upload(t, d, before, ofB)
				if err := Gemm(ctx, 2, x, b, 1, c, WithGroups(groups), WithVerify()); err != nil {
					t.Fatal(err)
				}
				equalTo(t, name, download(t, c), want)
				pl, err := PlanGemm(t.Context(), x, b, c, WithGroups(groups))
				if err != nil || !strings.Contains(pl.Detail, "computes ") {
					t.Errorf("%s: plan %q, %v, want the work of each GPU", name, pl, err)
				}
			}
		}
	}
}

// TestDividedHostProducts multiplies matrices of the host on a list of emulated GPUs.
func TestDividedHostProducts(t *testing.T) {
	substitute(t, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	a, b := random(rng, 30, 20), random(rng, 20, 40)
	want, err := Mul(t.Context(), a, b, WithDevice("emu:h200"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := Mul(t.Context(), a, b, WithDevice("emu:h200,h200"), WithVerify())
	if err != nil || !slices.Equal(got.Data(), want.Data()) {
		t.Errorf("error %v, same bits: %v", err, slices.Equal(got.Data(), want.Data()))
	}
}

// TestDividedCallers multiplies in several goroutines on one device of several GPUs.
func TestDividedCallers(t *testing.T) {
	substitute(t, 0)
	d := on(t, "emu:h200,h200,h200")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(i)))
			for range 3 {
				if err := chainOn(t.Context(), d, rng); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// chainOn computes (A·B)·B on a device and compares it with the CPU.
func chainOn(ctx context.Context, d *Device, rng *rand.Rand) error {
	a, b := whole[float32](rng, 50, 20), whole[float32](rng, 20, 20)
	x, err := Upload(ctx, d, a)
	if err != nil {
		return err
	}
	y, err := Upload(ctx, d, b, WithColumnDivision())
	if err != nil {
		return err
	}
	first, err := Mul(ctx, x, y)
	if err != nil {
		return err
	}
	second, err := Mul(ctx, first, y)
	if err := errors.Join(err, first.Close(), x.Close()); err != nil {
		return err
	}
	got, err := second.Download(ctx)
	if err != nil {
		return err
	}
	ab, err := Mul(ctx, a, b, WithDevice("cpu"))
	if err != nil {
		return err
	}
	want, err := Mul(ctx, ab, b, WithDevice("cpu"))
	if err == nil && !slices.Equal(got.Data(), want.Data()) {
		err = errors.New("the result differs from that of the CPU")
	}
	return errors.Join(err, y.Close(), second.Close())
}
