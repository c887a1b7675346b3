package gemmtest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit/testrand"
)

// declared returns an Implementation with the given Gemm that declares everything else.
func declared(gemm func(context.Context, *Problem, Buffers) error) Implementation {
	return Implementation{Name: "planted", Gemm: gemm, Tiles: []int{24}, Concurrent: true, Cancels: true}
}

func TestPlainLoopPasses(t *testing.T) {
	impl := declared(new(plain).multiply)
	impl.Batch = new(plain).batch(offsets)
	Run(t, impl)
}

// TestLimits checks that an implementation that declares its limits passes.
func TestLimits(t *testing.T) {
	var f plain
	impl := declared(nil)
	impl.Concurrent, impl.Cancels, impl.Volume = false, false, 1000
	impl.Types = []Pair{{dtype.F32, dtype.F32}, {dtype.I8, dtype.I32}}
	impl.Supports = func(p *Problem) bool {
		return !p.A().Trans && p.Epilogue == (Epilogue{}) && p.Beta == 0 // so products cannot be accumulated
	}
	impl.Gemm = func(ctx context.Context, p *Problem, b Buffers) error {
		if p.M*p.N*p.K > impl.Volume {
			t.Errorf("%v exceeds the declared volume", p)
		}
		if !impl.supports(p) {
			return ErrUnsupported
		}
		return f.multiply(ctx, p, b)
	}
	r := Check(t.Context(), impl, Options{Cases: 400, Seed: testrand.Seed(t)})
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	for _, c := range r.Checks {
		idle := slices.Contains([]string{"concurrent", "cancel", "linear", "split", "scales", "batch"}, c.Name)
		if (c.Cases == 0) != idle || c.Cases == 0 && c.Skipped == 0 {
			t.Errorf("%s: %d cases, %d skipped", c.Name, c.Cases, c.Skipped)
		}
	}
}

// faults lists faulty implementations and the check that must detect each one with the default
// number of cases.
var faults = []struct {
	check, fault string
	gemm         func(context.Context, *Problem, Buffers) error
}{
	{"exact", "transposes are ignored", (&plain{index: func(l Layout, i, j int) int { return i*l.LD + j }}).multiply},
	{"exact", "leading dimensions are ignored",
		(&plain{index: func(l Layout, i, j int) int { l.LD = l.Cols; return l.Index(i, j) }}).multiply},
	{"exact", "the last of more than 16 terms is dropped",
		(&plain{order: func(k int) []int { return steps(k)[:k-k/17%2] }}).multiply},
	{"exact", "padding of A is read", after(func(p *Problem, b Buffers) {
		if p.ReadsAB() && !p.A().Trans && p.A().LD > p.A().Cols && p.M > 1 && p.N > 0 {
			p.Out().Set(b[gemm.C], 0, p.Out().At(b[gemm.C], 0)+0*p.In().At(b[gemm.A], p.A().Cols))
		}
	})},
	{"exact", "the last element is not written", func(ctx context.Context, p *Problem, b Buffers) error {
		if p.C().Len() == 0 {
			return nil
		}
		last := p.C().Index(p.M-1, p.N-1)
		old := p.Out().At(b[gemm.C], last)
		err := new(plain).multiply(ctx, p, b)
		p.Out().Set(b[gemm.C], last, old)
		return err
	}},
	{"exact", "one column beyond a tile is lost", after(func(p *Problem, b Buffers) {
		if p.N == 25 && p.M > 0 {
			p.Out().Set(b[gemm.C], p.C().Index(p.M-1, 24), 0)
		}
	})},
	{"exact", "beta is treated as 1", func(ctx context.Context, p *Problem, b Buffers) error {
		q := *p
		if q.Beta != 0 {
			q.Beta = 1
		}
		return new(plain).multiply(ctx, &q, b)
	}},
	{"exact", "panics on an empty matrix", after(func(p *Problem, b Buffers) { _ = b[gemm.C][0] })},
	{"wrap", "int32 sums saturate", saturating},
	{"bound", "float16 products are summed in bfloat16", (&plain{sum: func(p *Problem, s float64) float64 {
		if p.Out() == dtype.F16 {
			s = dtype.BF16.Round(s)
		}
		return s
	}}).multiply},
	{"bound", "float32 operands are truncated to tf32", (&plain{operand: func(p *Problem, v float64) float64 {
		if p.In() == dtype.F32 {
			v = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ 0x1fff))
		}
		return v
	}}).multiply},
	{"bound", "float64 sums are kept in float32",
		(&plain{sum: func(_ *Problem, s float64) float64 { return dtype.F32.Round(s) }}).multiply},
	{"bound", "sums below the normal range are flushed", (&plain{sum: func(_ *Problem, s float64) float64 {
		if math.Abs(s) < 0x1p-126 {
			return 0
		}
		return s
	}}).multiply},
	{"unread", "the old C is read though beta is 0", (&plain{readOld: true}).multiply},
	{"unread", "A and B are read though alpha is 0", (&plain{readAB: true}).multiply},
	{"nonfinite", "zeros in A are skipped", (&plain{skip: func(a, _ float64) bool { return a == 0 }}).multiply},
	{"nonfinite", "zeros in B are skipped", (&plain{skip: func(_, b float64) bool { return b == 0 }}).multiply},
	{"nonfinite", "relu converts NaN to zero", (&plain{act: func(a gemm.Activation, x float64) float64 {
		if a == gemm.ActReLU && !(x > 0) {
			return 0
		}
		return a.Info().F(x)
	}}).multiply},
	{"memory", "one element past the end is written", after(func(p *Problem, b Buffers) {
		poke(b[gemm.C], p.C().Bytes(), 0)
	})},
	{"memory", "one byte before the start is written", after(func(p *Problem, b Buffers) { poke(b[gemm.C], -1, 0xff) })},
	{"memory", "the padding of C is written", after(func(p *Problem, b Buffers) {
		if p.C().LD > p.C().Cols && p.M > 1 {
			p.Out().Set(b[gemm.C], p.C().Cols, math.NaN())
		}
	})},
	{"memory", "A is modified", after(func(p *Problem, b Buffers) { b[gemm.A][0]++ })},
	{"repeat", "the order of the terms changes", (&plain{order: rand.Perm}).multiply},
	{"transpose", "products with three rows lose one", after(func(p *Problem, b Buffers) {
		if p.M == 3 {
			p.Out().Set(b[gemm.C], p.C().Index(2, 0), 0)
		}
	})},
	{"split", "the first element is lost where C has padding", after(func(p *Problem, b Buffers) {
		if p.C().LD > p.N && p.N > 0 && p.M > 0 {
			p.Out().Set(b[gemm.C], 0, 0)
		}
	})},
	{"linear", "sums above 20 are clamped",
		(&plain{sum: func(_ *Problem, s float64) float64 { return min(s, 20) }}).multiply},
	{"epilogue", "the bias has the wrong direction", (&plain{bias: func(p *Problem, i, j int) int {
		if p.Epilogue.Bias == BiasRow {
			i = j
		}
		return i % p.BiasLen()
	}}).multiply},
	{"epilogue", "the residual is subtracted", (&plain{extra: func(_ *Problem, x gemm.Operand, v float64) float64 {
		if x == gemm.Residual {
			v = -v
		}
		return v
	}}).multiply},
	{"epilogue", "scales lose their signs", (&plain{extra: func(_ *Problem, x gemm.Operand, v float64) float64 {
		if x != gemm.Residual {
			v = math.Abs(v)
		}
		return v
	}}).multiply},
	{"epilogue", "the gate's factor is rounded to bfloat16", (&plain{up: dtype.BF16.Round}).multiply},
	{"epilogue", "gelu is approximated by x·σ(1.702·x)", (&plain{act: func(a gemm.Activation, x float64) float64 {
		if a == gemm.ActGELU {
			return x / (1 + math.Exp(-1.702*x))
		}
		return a.Info().F(x)
	}}).multiply},
	{"epilogue", "gelu and gelu-tanh are the same", (&plain{act: func(a gemm.Activation, x float64) float64 {
		if a == gemm.ActGELUTanh {
			a = gemm.ActGELU
		}
		return a.Info().F(x)
	}}).multiply},
	{"scales", "the scales of the first block are used for all of K",
		(&plain{block: func(int) int { return 0 }}).multiply},
	{"scales", "a block of K ends a term early", (&plain{block: func(k int) int { return k / 127 * 127 }}).multiply},
	{"zeros", "uint8 is read as int8", (&plain{operand: func(_ *Problem, v float64) float64 {
		if v > math.MaxInt8 {
			v -= 256
		}
		return v
	}}).multiply},
	{"zeros", "zero points of columns are added", (&plain{extra: func(_ *Problem, x gemm.Operand, v float64) float64 {
		if x == gemm.ColZero {
			v = -v
		}
		return v
	}}).multiply},
	{"concurrent", "callers share their operands' memory", sharing()},
	{"cancel", "the context is ignored", (&plain{ignoreContext: true}).multiply},
	{"cancel", "a cancelled product is finished in the background",
		func(ctx context.Context, p *Problem, b Buffers) error {
			err := new(plain).multiply(ctx, p, b)
			if err != nil {
				go late(b[gemm.C])
			}
			return err
		}},
}

// steps returns 0, 1, …, k-1.
func steps(k int) []int {
	s := make([]int, k)
	for i := range s {
		s[i] = i
	}
	return s
}

// poke writes the byte at offset at from b, which may be out of bounds.
func poke(b []byte, at int, v byte) {
	*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at)) ^= v | 1
}

// late writes to memory after Gemm has returned. The data race is intended. It writes several
// times: on a loaded machine, it can run before the check begins to watch or, after a single sleep,
// when the check has ended.
//
//go:norace
func late(b []byte) {
	for range 8 {
		b[0]++
		time.Sleep(watchTime / 16)
	}
}

func saturating(ctx context.Context, p *Problem, b Buffers) error {
	if !p.Out().Info().Integer {
		return new(plain).multiply(ctx, p, b)
	}
	clamp := func(x float64) float64 { return min(max(x, math.MinInt32), math.MaxInt32) }
	for i := range p.M {
		for j := range p.N {
			var sum float64
			for k := 0; p.ReadsAB() && k < p.K; k++ {
				sum = clamp(sum + p.In().At(b[gemm.A], p.A().Index(i, k))*p.B().Type.At(b[gemm.B], p.B().Index(k, j)))
			}
			sum = clamp(sum * real(p.Alpha))
			if p.Beta != 0 {
				sum = clamp(sum + clamp(real(p.Beta)*p.Out().At(b[gemm.C], p.C().Index(i, j))))
			}
			p.Out().Set(b[gemm.C], p.C().Index(i, j), sum)
		}
	}
	return nil
}

// sharing returns a Gemm that uses the A of the last caller, if it is long enough. It waits briefly
// so that another caller can intervene.
func sharing() func(context.Context, *Problem, Buffers) error {
	var mu sync.Mutex
	var last Buffers
	return func(ctx context.Context, p *Problem, b Buffers) error {
		mu.Lock()
		last = b
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		if len(last[gemm.A]) >= len(b[gemm.A]) {
			b[gemm.A] = last[gemm.A]
		}
		mu.Unlock()
		return new(plain).multiply(ctx, p, b)
	}
}

func TestPlantedFaults(t *testing.T) {
	for _, tc := range faults {
		t.Run(tc.check+"/"+strings.ReplaceAll(tc.fault, " ", "_"), func(t *testing.T) {
			impl := declared(tc.gemm)
			i := slices.IndexFunc(checks, func(c check) bool { return c.Name == tc.check })
			if r := checks[i].run(t.Context(), &impl, Options{Seed: testrand.Seed(t)}); r.Failures == 0 {
				t.Errorf("fault not found in %d cases", r.Cases)
			} else if _, err := json.Marshal(r); err != nil {
				t.Errorf("marshalling the report: %v", err)
			} else if testing.Verbose() {
				t.Log(r.Lines[0])
			}
		})
	}
}

// batchFaults lists functions that return wrong offsets of the matrices in a batch.
var batchFaults = map[string]func(p *Problem, ends []int32, n int) (a, b, c, from, to int){
	"all products use the first B": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, _, c, from, to = offsets(p, ends, n)
		return a, 0, c, from, to
	},
	"a shared A is treated as strided": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = offsets(p, ends, n)
		if ends == nil && p.Batch.Stride[gemm.A] == 0 && p.A().Len() > 1 && n == 1 {
			a = 1
		}
		return a, b, c, from, to
	},
	"a group begins a row late": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = offsets(p, ends, n)
		if ends != nil && to > from+1 {
			a, c, from = a+p.A().LD, c+p.C().LD, from+1
		}
		return a, b, c, from, to
	},
	"a group ends a row late": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = offsets(p, ends, n)
		if ends != nil && n == len(ends)-1 {
			to = min(to+1, p.M)
		}
		return a, b, c, from, to
	},
}

func TestPlantedBatches(t *testing.T) {
	for fault, at := range batchFaults {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			impl := declared(nil)
			impl.Batch = new(plain).batch(at)
			r := Check(t.Context(), impl, Options{Seed: testrand.Seed(t), Only: "batch", Cases: 300})
			if r.Err() == nil {
				t.Errorf("fault not found in %d cases", r.Checks[0].Cases)
			}
		})
	}
}

// TestUndeclared checks that accepting products outside the declared limits is detected.
func TestUndeclared(t *testing.T) {
	impl := declared(new(plain).multiply)
	impl.Supports = func(p *Problem) bool { return !p.B().Trans }
	r := Check(t.Context(), impl, Options{Seed: testrand.Seed(t), Cases: 200})
	for _, c := range r.Checks {
		if (c.Failures > 0) != (c.Name == "refuse") {
			t.Errorf("%s: %d failures: %q", c.Name, c.Failures, c.Lines)
		}
	}
	if err := r.Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("Err() = %v, want %v", err, ErrFailed)
	}
}

// TestEveryCheckFindsSomething checks that every check detects some fault.
func TestEveryCheckFindsSomething(t *testing.T) {
	for _, c := range Checks() {
		found := c.Name == "refuse" || c.Name == "batch" // see TestUndeclared, TestPlantedBatches
		for _, p := range faults {
			found = found || p.check == c.Name
		}
		if !found || c.About == "" {
			t.Errorf("check %q has no fault or no description", c.Name)
		}
	}
}

// TestReproducible checks that the same seed gives the same cases.
func TestReproducible(t *testing.T) {
	impl := declared((&plain{skip: func(a, _ float64) bool { return a == 0 }}).multiply)
	opt := Options{Seed: testrand.Seed(t), Cases: 300}
	one, two := Check(t.Context(), impl, opt), Check(t.Context(), impl, opt)
	for i := range one.Checks {
		if one.Checks[i].Name == "cancel" {
			continue // depends on timing
		}
		if !slices.Equal(one.Checks[i].Lines, two.Checks[i].Lines) {
			t.Errorf("first run: %q\nsecond run: %q", one.Checks[i].Lines, two.Checks[i].Lines)
		}
	}
}

// TestStops checks that a cancelled run ends and reports the cancellation.
func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r := Check(ctx, declared(new(plain).multiply), Options{Cases: 100, Progress: func(string, int, int) {
		if n++; n == 10 {
			cancel()
		}
	}})
	if err := r.Err(); !errors.Is(err, context.Canceled) || n > 11 {
		t.Errorf("got error %v after %d cases, want a cancellation after at most 11", err, n)
	}
}

// TestInOrder checks that results arrive in order, that only a few are computed ahead, and that the
// workers end with the iteration.
func TestInOrder(t *testing.T) {
	before := goleak.IgnoreCurrent()
	for _, workers := range []int{1, 3, 8} {
		var asked atomic.Int64
		got := 0
		for n := range inOrder(math.MaxInt, workers, func(n int) int {
			asked.Add(1)
			if n%5 == 0 {
				time.Sleep(time.Millisecond)
			}
			return n
		}) {
			if n != got {
				t.Fatalf("%d workers: got result %d, want %d", workers, n, got)
			}
			if got++; got == 100 {
				break
			}
		}
		if n := int(asked.Load()); n > 100+2*workers {
			t.Errorf("%d workers computed %d results, of which 100 were used", workers, n)
		}
		for n := range inOrder(7, workers, func(n int) int { return n }) {
			got = n
		}
		if got != 6 {
			t.Errorf("%d workers: the last of 7 results is %d", workers, got)
		}
		func() {
			defer func() {
				if r := recover(); r != "no result" {
					t.Errorf("%d workers: the iteration panics with %v, want the panic of the function", workers, r)
				}
			}()
			for range inOrder(9, workers, func(int) int { panic("no result") }) {
				t.Errorf("%d workers: a result after a panic", workers)
			}
		}()
	}
	goleak.VerifyNone(t, before)
}
