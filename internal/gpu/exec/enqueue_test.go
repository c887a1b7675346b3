package exec

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/testkit"
	"tilework/ptx"
)

// logged is a device that records loads, tensor maps and launches, and executes nothing.
type logged struct {
	*devicetest.Null
	loads, encoded int
	launches       []device.Launch
	failed         error // of launches and frees
}

func (d *logged) Load(ctx context.Context, text string) (device.Module, error) {
	d.loads++
	return d.Null.Load(ctx, text)
}

// EncodeTensorMap returns the base of the tensor as its encoding.
func (d *logged) EncodeTensorMap(m *ptx.TensorMap) (encoded [ptx.TensorMapBytes]byte, err error) {
	d.encoded++
	copy(encoded[:], fmt.Sprint(m.Base))
	return encoded, nil
}

func (d *logged) Launch(_ context.Context, _ device.Function, l device.Launch) error {
	d.launches = append(d.launches, l)
	return d.failed
}

func (d *logged) Free(at device.Ptr) error { return errors.Join(d.Null.Free(at), d.failed) }

// at returns different addresses for the operands that p uses.
func at(p *gemm.Problem, first device.Ptr) (m kernel.Memory) {
	for o := range gemm.Operands {
		if p.Uses(o) {
			m[o] = first + device.Ptr(o)<<32
		}
	}
	return m
}

// launchesOf returns the launches of a plan in scratch memory at an address.
func launchesOf(t *testing.T, d *logged, pl *Plan, m kernel.Memory, scratch device.Ptr) []device.Launch {
	t.Helper()
	d.launches = nil
	if err := pl.In(d, scratch).Enqueue(t.Context(), m); err != nil {
		t.Fatalf("%v: %v", pl.Problem(), err)
	}
	return d.launches
}

// TestLaunchesAreKept enqueues products on one backend, again and again with other matrices,
// scratch memory and factors. The launches must be those of a backend that has enqueued nothing
// else, and those of a repeated product must not be encoded again.
func TestLaunchesAreKept(t *testing.T) {
	d := &logged{Null: hopper()}
	shared := New(d)
	plans, kept := 0, 0
	for _, c := range products(t) {
		pl, err := shared.Plan(&c.problem, Options{Align: c.align, KeepLayout: true})
		if err != nil {
			continue
		}
		plans++
		other := pl.Part(c.problem, 128, 256)
		for round := range 2 {
			for _, v := range []struct {
				plan           *Plan
				alpha, beta    complex128
				first, scratch device.Ptr
			}{
				{pl, 1, 0, 1 << 40, 1 << 50}, {pl, 2, 0, 1 << 40, 1 << 50}, {pl, 1, 3, 1 << 40, 1 << 50},
				{pl, 1, complex(math.Copysign(0, -1), 0), 1 << 40, 1 << 50}, {pl, 1, 0, 1 << 41, 1 << 50},
				{pl, 1, 0, 1 << 40, 1 << 51}, {other, 1, 0, 1 << 40, 1 << 50},
			} {
				scaled, m := v.plan.Scaled(v.alpha, v.beta), at(&c.problem, v.first)
				before := d.encoded
				got := launchesOf(t, d, scaled, m, v.scratch)
				if round > 0 && d.encoded > before {
					t.Errorf("%v: %d tensor maps are encoded again", &c.problem, d.encoded-before)
				}
				kept += d.encoded - before
				fresh := *scaled
				fresh.backend = &Backend{Device: d, compiled: shared.compiled} // without launches
				if want := launchesOf(t, d, &fresh, m, v.scratch); !reflect.DeepEqual(got, want) {
					t.Fatalf("%v: launches %+v, want %+v", &c.problem, got, want)
				}
			}
		}
	}
	if plans < 50 || kept == 0 {
		t.Errorf("%d plans, %d tensor maps, want at least 50 and some", plans, kept)
	}
}

// TestCompile checks that the launches of a compiled plan load no further kernels, and that
// CompileTime counts each kernel once.
func TestCompile(t *testing.T) {
	for _, c := range products(t) {
		d := &logged{Null: hopper()}
		b := New(d)
		pl, err := b.Plan(&c.problem, Options{Align: c.align, KeepLayout: true})
		if err != nil {
			continue
		}
		if got := pl.CompileTime(); got != 0 {
			t.Errorf("%v: CompileTime %v before the compilation, want 0", &c.problem, got)
		}
		if err := pl.Compile(t.Context()); err != nil {
			t.Fatal(err)
		}
		loads, took := d.loads, pl.CompileTime()
		launchesOf(t, d, pl, at(&c.problem, 1<<40), 1<<50)
		if d.loads != loads {
			t.Errorf("%v with %s: %d kernels compiled, and %d more at the launch", &c.problem, pl.Spec(), loads, d.loads-loads)
		}
		for _, entry := range b.compiled {
			took -= entry.took
		}
		if took != 0 {
			t.Errorf("%v with %s: CompileTime is %v more than the time of all kernels", &c.problem, pl.Spec(), took)
		}
	}
}

// loadCounter is a device that counts the modules that it loads, from any number of goroutines.
type loadCounter struct {
	*devicetest.Null
	loads atomic.Int32
}

func (d *loadCounter) Load(ctx context.Context, text string) (device.Module, error) {
	d.loads.Add(1)
	return d.Null.Load(ctx, text)
}

// TestConcurrentEnqueue enqueues a product with scratch memory and several kernels from many
// goroutines. Each kernel must be compiled once, and nothing may race.
func TestConcurrentEnqueue(t *testing.T) {
	d := &loadCounter{Null: hopper()}
	b := New(d)
	p := testkit.Product(t, dtype.BF16, dtype.BF16, 255, 255, 4095)
	pl, err := b.Plan(p, Options{Kernel: "wgmma", Tile: "64x64x64/2x16/8*4", KeepLayout: true})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			for i := range 20 {
				if err := pl.Scaled(complex(float64(n%4+1), 0), 0).Enqueue(t.Context(), at(p, device.Ptr(i%3+1)<<40)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got, want := int(d.loads.Load()), len(pl.kernels()); got != want || want != 3 {
		t.Errorf("compiled %d kernels of %d, want 3 of 3", got, want)
	}
}

// TestErrorsAreJoined checks that a failed launch and a failed free of its scratch memory are
// reported in one line.
func TestErrorsAreJoined(t *testing.T) {
	d := &logged{Null: hopper(), failed: errors.New("failure")}
	p := testkit.Product(t, dtype.F32, dtype.F32, 64, 64, 4096)
	pl, err := New(d).Plan(p, Options{Kernel: "blocked", Tile: "16x64x16/4x4/4*3", KeepLayout: true})
	if err != nil {
		t.Fatal(err)
	}
	err = pl.Enqueue(t.Context(), at(p, 1<<40))
	if err == nil || strings.Count(err.Error(), "failure") != 2 || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want both failures in a line", err)
	}
}

// BenchmarkEnqueue measures the host's time to enqueue a product, without that of the driver: on
// the same matrices again and again, and on other ones each time.
func BenchmarkEnqueue(b *testing.B) {
	on := New(hopper())
	for _, x := range []struct {
		name string
		p    *gemm.Problem
	}{
		{"blocked", testkit.Product(b, dtype.F32, dtype.F32, 512, 512, 512)},
		{"wgmma", testkit.Product(b, dtype.BF16, dtype.BF16, 1024, 1024, 1024)},
		{"packed", testkit.Product(b, dtype.BF16, dtype.BF16, 4095, 4095, 4095)},
	} {
		pl, err := on.Plan(x.p, Options{KeepLayout: true})
		if err != nil {
			b.Fatal(err)
		}
		for name, step := range map[string]device.Ptr{"same": 0, "other": 256} {
			b.Run(x.name+"/"+name, func(b *testing.B) {
				m := at(x.p, 1<<40)
				b.ReportAllocs()
				for b.Loop() {
					m[gemm.C] += step
					if err := pl.Enqueue(b.Context(), m); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
