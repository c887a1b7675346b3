package bench

import (
	"bytes"
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// clock is a clock that only tests advance. Sensors read it from another goroutine.
type clock struct{ t atomic.Int64 }

func (c *clock) now() time.Duration { return time.Duration(c.t.Load()) }

func (c *clock) advance(d time.Duration) { c.t.Add(int64(d)) }

// fake is a subject that multiplies correctly by default and advances the clock by its cost.
type fake struct {
	name   string
	clock  *clock
	cost   func(call int) time.Duration
	spoil  func(p *gemm.Problem, b gemm.Buffers) // corrupts the result
	fail   func(call int) error
	refuse error // from Prepare
	seen   func(b gemm.Buffers)
	calls  int
}

func (f *fake) Name() string   { return f.name }
func (f *fake) String() string { return f.name + " 1.0" }

func (f *fake) Prepare(_ context.Context, p *gemm.Problem) (func(*gemm.Buffers) error, error) {
	if f.refuse != nil {
		return nil, f.refuse
	}
	return func(b *gemm.Buffers) error {
		call := f.calls
		f.calls++
		if f.seen != nil {
			f.seen(*b)
		}
		if f.fail != nil {
			if err := f.fail(call); err != nil {
				return err
			}
		}
		if p.Beta != 0 || untouched(p, b[gemm.C]) { // other results are not checked
			multiply(p, *b)
			if f.spoil != nil {
				f.spoil(p, *b)
			}
		}
		if f.cost != nil {
			f.clock.advance(f.cost(call))
		}
		return nil
	}, nil
}

// untouched reports whether C still has its initial value.
func untouched(p *gemm.Problem, c []byte) bool {
	clean := make([]byte, p.Out().Size())
	poison(p.Out(), clean)
	return bytes.Equal(c[:len(clean)], clean)
}

// multiply computes p by its definition. It rounds to the accumulator type after each step, like a
// simple kernel.
func multiply(p *gemm.Problem, b gemm.Buffers) {
	rounding := func(t dtype.Type) func(float64) float64 {
		if t == dtype.I32 {
			return func(v float64) float64 { return float64(int32(int64(v))) }
		}
		return t.Round
	}
	add, round := rounding(p.Accum()), rounding(p.ScaleType())
	for i := range p.M {
		for j := range p.N {
			product := func(l gemm.Layout, of []byte) (sum float64) {
				for k := range p.K {
					sum = add(sum + p.In().At(b[gemm.A], p.A().Index(i, k))*l.Type.At(of, l.Index(k, j)))
				}
				return round(real(p.Alpha) * round(sum))
			}
			v := product(p.Layouts[gemm.B], b[gemm.B])
			at := p.C().Index(i, j)
			if p.Beta != 0 {
				v = round(v + round(real(p.Beta)*p.Out().At(b[gemm.C], at)))
			}
			switch p.Epilogue.Bias {
			case gemm.BiasRow:
				v = round(v + p.Out().At(b[gemm.Bias], i))
			case gemm.BiasCol:
				v = round(v + p.Out().At(b[gemm.Bias], j))
			}
			v = round(p.Epilogue.Activation.Info().F(v))
			if p.Epilogue.Gated {
				v = round(v * product(p.Layouts[gemm.Up], b[gemm.Up]))
			}
			p.Out().Set(b[gemm.C], at, v)
		}
	}
}

// every returns a constant cost.
func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

func shape(t *testing.T, s Shape, in, out dtype.Type) Case {
	t.Helper()
	p, err := (&Sample{Shape: s}).Problem(in, out)
	if err != nil {
		t.Fatal(err)
	}
	return Case{Problem: p, Device: "cpu", Threads: 2}
}

// quick returns options for a fake clock and a machine with 1 MiB of cache.
func quick(c *clock) Options {
	return Options{Lead: -1,
		MinReps: 5, MinTime: 100 * time.Millisecond, MaxTime: time.Second, Warmup: 10 * time.Millisecond,
		Seed: 7, Environment: &Environment{OS: "plan9", Arch: "mips", CPU: "R3000", Cores: 1, Cache: 1 << 20,
			Memory: 1 << 30}, now: c.now,
	}
}

func measure(t *testing.T, c Case, o Options, subjects ...Subject) ([]Record, error) {
	t.Helper()
	records, err := Measure(context.Background(), c, subjects, nil, o)
	for i := range records {
		if err := records[i].check(); err != nil {
			t.Errorf("record %d is invalid: %v", i, err)
		}
	}
	return records, err
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }
