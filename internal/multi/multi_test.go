package multi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func init() { testkit.CollectRarely() }

// gpus makes the devices gpu:0 to gpu:n-1 emulated GPUs until the end of the test, and returns
// them.
func gpus(t *testing.T, n int) []*faulty.Device {
	t.Helper()
	return models(t, slices.Repeat([]string{"h200"}, n)...)
}

// models does the same with GPUs of the given models.
func models(t *testing.T, names ...string) []*faulty.Device {
	t.Helper()
	n := len(names)
	all := make([]*faulty.Device, n)
	rng := testrand.New(t)
	for i := range all {
		m, err := model.Lookup(names[i])
		if err != nil {
			t.Fatal(err)
		}
		d, err := emu.Open(emu.Options{Model: m, Seed: rng.Uint64()})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = faulty.New(d)
	}
	restore := gpu.Substitute(func(d backend.DeviceName) (device.Device, error) {
		if d.Index >= n {
			return nil, fmt.Errorf("%w: gpu:%d", device.ErrIndex, d.Index)
		}
		return all[d.Index], nil
	})
	t.Cleanup(func() {
		if err := restore(); err != nil && !errors.Is(err, errFault) && !errors.Is(err, device.ErrLost) {
			t.Error(err)
		}
	})
	return all
}

// divided returns the plan of p on all GPUs, divided even if one GPU is predicted to be as fast.
func divided(p *gemm.Problem, name string, limit int) (*plan, error) {
	b := Backend{backend.DeviceName{Kind: backend.GPU, List: backend.AllGPUs}}
	all, err := b.open()
	if err != nil {
		return nil, err
	}
	problem := *p
	first, err := all[0].Plan(&problem, gpu.Options(name))
	if err != nil {
		return nil, err
	}
	first.Limit = limit
	shares, err := divide(first, all)
	return &plan{whole: first, shares: shares}, err
}

// TestBits computes products on 1, 2, 3, 4 and 8 GPUs, in all and in little memory. All results
// must have the bits of one GPU, and the progress must end with all work. Without TILEWORK_FULL,
// the seed selects one of the last three counts.
func TestBits(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct {
		in, out dtype.Type
		m, n, k int
		f32x3   bool
		beta    complex128
		rows    bool // row-invariant
	}{
		{in: dtype.F32, out: dtype.F32, m: 300, n: 100, k: 60},
		{in: dtype.F32, out: dtype.F32, m: 70, n: 500, k: 90, beta: 0.5},
		{in: dtype.BF16, out: dtype.BF16, m: 260, n: 300, k: 70}, {in: dtype.F64, out: dtype.F64, m: 200, n: 90, k: 40},
		{in: dtype.F32, out: dtype.F32, m: 140, n: 70, k: 50, f32x3: true},
		{in: dtype.I8, out: dtype.I32, m: 17, n: 16, k: 33},
		{in: dtype.F32, out: dtype.F32, m: 100, n: 40, k: 1500, rows: true},
		{in: dtype.BF16, out: dtype.F32, m: 40, n: 300, k: 200, rows: true},
	} {
		p, _, err := gemm.New(1, gemm.Dense(c.in, c.m, c.k), gemm.Dense(c.in, c.k, c.n), c.beta, gemm.Dense(c.out, c.m, c.n),
			gemm.Epilogue{Bias: gemm.BiasCol})
		if err == nil && c.f32x3 {
			p, err = p.WithPrecision(gemm.F32x3)
		}
		if c.rows {
			p = p.WithRowInvariance()
		}
		if err != nil {
			t.Fatal(err)
		}
		m := testkit.Filled(rng, &p)
		counts := []int{1, 2, 3, 4, 8}
		if !testkit.Full() {
			counts = []int{1, 2, []int{3, 4, 8}[rng.IntN(3)]}
		}
		var want []byte
		for _, n := range counts {
			t.Run(fmt.Sprintf("%v on %d", &p, n), func(t *testing.T) {
				gpus(t, n)
				for _, limit := range []int{0, 100<<10 + 100*c.k} {
					pl, err := divided(&p, "", limit)
					if err != nil {
						t.Fatal(err)
					}
					var done, total int64
					pl.ReportProgress(func(d, of int64) { done, total = d, of })
					got := m
					got[gemm.C] = bytes.Clone(m[gemm.C])
					if err := errors.Join(pl.Prepare(t.Context()), pl.Run(t.Context(), &got)); err != nil {
						t.Fatal(err)
					}
					if want == nil {
						want = got[gemm.C]
					}
					if !bytes.Equal(got[gemm.C], want) {
						t.Errorf("limit %d: other bits than on one GPU: %s", limit, pl.Detail())
					}
					if all := int64(c.m * c.n * c.k); done != all || total != all {
						t.Errorf("limit %d: reported %d of %d, want %d", limit, done, total, all)
					}
					if n == 2 && len(pl.shares) != 2 && c.m > 64 {
						t.Errorf("%d shares", len(pl.shares))
					}
				}
			})
		}
	}
}

// TestBreakdown measures divided products. The times of each GPU must add up, and together the GPUs
// must copy A, B and C: from the host, or from each other.
func TestBreakdown(t *testing.T) {
	p := testkit.Product(t, dtype.F32, dtype.F32, 300, 200, 50)
	rng := testrand.New(t)
	for _, n := range []int{1, 2, 3, 4} {
		gpus(t, n)
		pl, err := divided(p, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		b := testkit.Filled(rng, p)
		all, err := pl.RunBreakdown(t.Context(), &b)
		if err != nil || len(all) != n {
			t.Fatalf("%d splits on %d GPUs, error %v", len(all), n, err)
		}
		in, out := 0, 0
		for i, s := range all {
			in, out = in+s.FromHost+s.FromGPUs, out+s.ToHost
			sum := s.Compute + s.Copies + s.Waiting
			if math.Abs(sum-s.Seconds) > 1e-9 || s.Compute <= 0 || s.Copies+s.Overlapped <= 0 || s.Waiting < 0 ||
				s.Device != (backend.DeviceName{Kind: backend.GPU, Index: i}).String() {
				t.Errorf("GPU %d of %d: %+v", i, n, s)
			}
		}
		if want := 4 * (300*50 + n*50*200); in != want || out != 4*300*200 {
			t.Errorf("%d GPUs copied %d bytes in and %d out, want %d and %d", n, in, out, want, 4*300*200)
		}
	}
	all := gpus(t, 2)
	pl, err := divided(p, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	b := testkit.Filled(rng, p)
	all[1].Fail(3, errFault)
	if _, err := pl.RunBreakdown(t.Context(), &b); !errors.Is(err, errFault) {
		t.Errorf("error %v, want that of the second GPU", err)
	}
}

// TestArchitectures divides products among GPUs of two architectures. It is an error where their
// tensor cores add in different ways.
func TestArchitectures(t *testing.T) {
	models(t, "a100-sxm-80gb", "h200")
	for _, x := range []struct {
		in     dtype.Type
		kernel string
		want   error
	}{{dtype.BF16, "mma", gemm.ErrUnsupported}, {dtype.F32, "blocked", nil}, {dtype.F32, "skinny", nil}} {
		l := gemm.Dense(x.in, 64, 64)
		p, _, err := gemm.New(1, l, l, 0, l, gemm.Epilogue{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = divided(&p, x.kernel, 0); !errors.Is(err, x.want) {
			t.Errorf("%s: error %v, want %v", x.kernel, err, x.want)
		}
	}
}

// TestConformance runs the conformance suite on three GPUs.
func TestConformance(t *testing.T) {
	gpus(t, 3)
	naive, err := choose.Find("naive")
	if err != nil {
		t.Fatal(err)
	}
	cases := 40
	if !testkit.Full() {
		cases = 10
	}
	gemmtest.Run(t, gemmtest.Implementation{
		Name: "three GPUs",
		Gemm: func(ctx context.Context, p *gemmtest.Problem, m gemmtest.Buffers) error {
			if p.Empty() || !p.ReadsAB() {
				pl, err := Backend{backend.DeviceName{Kind: backend.GPU, List: "0,1,2"}}.Plan(p, &backend.Options{}, nil)
				if err != nil {
					return err
				}
				return pl.Run(ctx, &m)
			}
			pl, err := divided(p, "naive", 0)
			if err != nil {
				return err
			}
			return pl.Run(ctx, &m)
		},
		Supports:   func(p *gemmtest.Problem) bool { return naive.Check(p, kernel.Tile{}, kernel.Align{}, nil) == nil },
		Tiles:      []int{16},
		Volume:     1 << 15,
		Cases:      cases,
		Concurrent: true,
		Cancels:    true,
	})
}

var errFault = errors.New("injected fault")

// checkLeft checks that the failure of a call has left nothing on the GPUs.
func checkLeft(t *testing.T, all []*faulty.Device, call string) {
	t.Helper()
	for i, d := range all {
		for _, left := range d.Leaks() {
			if left != "module" && left != "stream" {
				t.Errorf("%s failed: %s left on gpu:%d", call, left, i)
			}
		}
	}
}

// TestFaults fails each call of one of three GPUs in turn. The product must fail with an error that
// names the GPU, or recover from an allocation, and leave nothing on any GPU.
func TestFaults(t *testing.T) {
	p := testkit.Product(t, dtype.F32, dtype.F32, 100, 40, 30)
	m := gemm.Buffers{make([]byte, p.A().Bytes()), make([]byte, p.B().Bytes()), make([]byte, p.C().Bytes())}
	for _, kind := range []error{errFault, device.ErrLost, device.ErrOutOfMemory} {
		failed := 0
		for n := 1; ; n++ {
			all := gpus(t, 3)
			pl, err := divided(p, "naive", 0)
			if err != nil {
				t.Fatal(err)
			}
			all[1].Fail(n, kind)
			err = errors.Join(pl.Prepare(t.Context()), pl.Run(t.Context(), &m))
			call := all[1].FailedCall()
			recovered := err == nil && kind == device.ErrOutOfMemory && strings.HasPrefix(call, "Alloc")
			switch {
			case call == "" && err != nil:
				t.Errorf("no call failed: %v", err)
			case call != "" && !recovered && (!errors.Is(err, kind) || !strings.Contains(err.Error(), "device gpu:1: ")):
				t.Errorf("%s failed with %v: error %v", call, kind, err)
			}
			all[1].Fail(0, nil)
			checkLeft(t, all, call)
			if call == "" {
				break
			}
			failed++
		}
		if failed < 10 {
			t.Errorf("%v: failed %d calls, want at least 10", kind, failed)
		}
	}
}

// TestDevices checks the errors of lists, and that a small product is not divided.
func TestDevices(t *testing.T) {
	gpus(t, 2)
	for name, want := range map[string]string{"gpu:0,1": "", "gpu:1,0": "", "gpu:all": "", "gpu:0,2": "device gpu:0,2: "} {
		d, err := backend.ParseDevice(name)
		if err != nil {
			t.Fatal(err)
		}
		err = Backend{d}.Open()
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, sentinel.ErrNoDevice) ||
			!strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	p := testkit.Product(t, dtype.F32, dtype.F32, 20, 20, 20)
	pl, err := Backend{backend.DeviceName{Kind: backend.GPU, List: "0,1"}}.Plan(p, &backend.Options{}, nil)
	if err != nil || len(pl.(*plan).shares) != 1 || !strings.Contains(pl.Why(), "one GPU") {
		t.Errorf("a small product: plan %+v, error %v", pl, err)
	}
	large := testkit.Product(t, dtype.F32, dtype.F32, 16384, 16384, 16384)
	pl, err = Backend{backend.DeviceName{Kind: backend.GPU, List: "0,1"}}.Plan(large, &backend.Options{}, nil)
	if err != nil || len(pl.(*plan).shares) != 2 {
		t.Fatalf("a large product: plan %+v, error %v", pl, err)
	}
	one, err := gpu.Backend{Device: backend.DeviceName{Kind: backend.GPU}}.Plan(large, &backend.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", one.Detail(), pl.Detail())
}
