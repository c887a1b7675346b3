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
)

// declared is a full implementation but for its Gemm.
func declared(gemm func(context.Context, *Problem, Buffers) error) Implementation {
	return Implementation{Name: "planted", Gemm: gemm, Tiles: []int{24}, Concurrent: true, Cancels: true}
}

func TestPlainLoopPasses(t *testing.T) {
	impl := declared(new(plain).multiply)
	impl.Batch = new(plain).batch(places)
	Run(t, impl)
}

// TestLimits: an implementation with limits passes when it declares them.
func TestLimits(t *testing.T) {
	var f plain
	impl := declared(nil)
	impl.Concurrent, impl.Cancels, impl.Volume = false, false, 1000
	impl.Types = []Pair{{dtype.F32, dtype.F32}, {dtype.I8, dtype.I32}}
	impl.Supports = func(p *Problem) bool {
		return !p.A.Trans && p.Epilogue == (Epilogue{}) && p.Beta == 0 // so nothing can be accumulated
	}
	impl.Gemm = func(ctx context.Context, p *Problem, b Buffers) error {
		if p.M*p.N*p.K > impl.Volume {
			t.Errorf("%v is larger than the declared volume", p)
		}
		if !impl.takes(p) {
			return ErrUnsupported
		}
		return f.multiply(ctx, p, b)
	}
	r := Check(t.Context(), impl, Options{Cases: 400, Seed: rand.Uint64()})
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	for _, c := range r.Checks {
		idle := slices.Contains([]string{"concurrent", "cancel", "linear", "split", "batch"}, c.Name)
		if (c.Cases == 0) != idle || c.Cases == 0 && c.LeftOut == 0 {
			t.Errorf("%s: %d cases, %d left out", c.Name, c.Cases, c.LeftOut)
		}
	}
}

// planted are wrong implementations and the check that must find each with the
// default number of cases.
var planted = []struct {
	check, fault string
	gemm         func(context.Context, *Problem, Buffers) error
}{
	{"exact", "transposes are ignored", (&plain{index: func(l Layout, i, j int) int { return i*l.LD + j }}).multiply},
	{"exact", "leading dimensions are ignored", (&plain{index: func(l Layout, i, j int) int { l.LD = l.Cols; return l.Index(i, j) }}).multiply},
	{"exact", "the last of more than 16 terms is dropped", (&plain{order: func(k int) []int { return steps(k)[:k-k/17%2] }}).multiply},
	{"exact", "padding of A is read", after(func(p *Problem, b Buffers) {
		if p.ReadsAB() && !p.A.Trans && p.A.LD > p.A.Cols && p.M > 1 && p.N > 0 {
			p.C.Type.Set(b.C, 0, p.C.Type.At(b.C, 0)+0*p.A.Type.At(b.A, p.A.Cols))
		}
	})},
	{"exact", "the last element is not written", func(ctx context.Context, p *Problem, b Buffers) error {
		if p.C.Len() == 0 {
			return nil
		}
		last := p.C.Index(p.M-1, p.N-1)
		old := p.C.Type.At(b.C, last)
		err := new(plain).multiply(ctx, p, b)
		p.C.Type.Set(b.C, last, old)
		return err
	}},
	{"exact", "one column beyond a tile is lost", after(func(p *Problem, b Buffers) {
		if p.N == 25 && p.M > 0 {
			p.C.Type.Set(b.C, p.C.Index(p.M-1, 24), 0)
		}
	})},
	{"exact", "beta is taken for 1", func(ctx context.Context, p *Problem, b Buffers) error {
		q := *p
		if q.Beta != 0 {
			q.Beta = 1
		}
		return new(plain).multiply(ctx, &q, b)
	}},
	{"exact", "panics on an empty matrix", after(func(p *Problem, b Buffers) { _ = b.C[0] })},
	{"wrap", "int32 sums saturate", saturating},
	{"bound", "float16 products are summed in bfloat16", (&plain{sum: func(p *Problem, s float64) float64 {
		if p.C.Type == dtype.F16 {
			s = dtype.BF16.Round(s)
		}
		return s
	}}).multiply},
	{"bound", "float32 operands are truncated to tf32", (&plain{operand: func(p *Problem, v float64) float64 {
		if p.A.Type == dtype.F32 {
			v = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ 0x1fff))
		}
		return v
	}}).multiply},
	{"bound", "float64 sums are kept in float32", (&plain{sum: func(_ *Problem, s float64) float64 { return dtype.F32.Round(s) }}).multiply},
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
	{"nonfinite", "relu makes a NaN zero", (&plain{act: func(a gemm.Activation, x float64) float64 {
		if a == gemm.ActReLU && !(x > 0) {
			return 0
		}
		return a.Info().F(x)
	}}).multiply},
	{"memory", "one element past the end is written", after(func(p *Problem, b Buffers) {
		poke(b.C, p.C.Bytes(), 0)
	})},
	{"memory", "one byte before the start is written", after(func(p *Problem, b Buffers) { poke(b.C, -1, 0xff) })},
	{"memory", "the padding of C is written", after(func(p *Problem, b Buffers) {
		if p.C.LD > p.C.Cols && p.M > 1 {
			p.C.Type.Set(b.C, p.C.Cols, math.NaN())
		}
	})},
	{"memory", "A is modified", after(func(p *Problem, b Buffers) { b.A[0]++ })},
	{"repeat", "the order of the terms changes", (&plain{order: rand.Perm}).multiply},
	{"transpose", "products of three rows are taken for two", after(func(p *Problem, b Buffers) {
		if p.M == 3 {
			p.C.Type.Set(b.C, p.C.Index(2, 0), 0)
		}
	})},
	{"split", "the first element is lost where C has padding", after(func(p *Problem, b Buffers) {
		if p.C.LD > p.N && p.N > 0 && p.M > 0 {
			p.C.Type.Set(b.C, 0, 0)
		}
	})},
	{"linear", "products above 20 are cut", (&plain{sum: func(_ *Problem, s float64) float64 { return min(s, 20) }}).multiply},
	{"epilogue", "the bias runs the other way", (&plain{bias: func(p *Problem, i, j int) int {
		if p.Epilogue.Bias == BiasRow {
			i = j
		}
		return i % p.BiasLen()
	}}).multiply},
	{"epilogue", "the residual is subtracted", (&plain{extra: func(_ *Problem, x gemm.Extra, v float64) float64 {
		if x == gemm.Residual {
			v = -v
		}
		return v
	}}).multiply},
	{"epilogue", "scales have lost their signs", (&plain{extra: func(_ *Problem, x gemm.Extra, v float64) float64 {
		if x != gemm.Residual {
			v = math.Abs(v)
		}
		return v
	}}).multiply},
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
	{"concurrent", "callers share their operands' memory", sharing()},
	{"cancel", "the context is ignored", (&plain{ignoreContext: true}).multiply},
	{"cancel", "a cancelled product is finished in the background", func(ctx context.Context, p *Problem, b Buffers) error {
		err := new(plain).multiply(ctx, p, b)
		if err != nil {
			go late(b.C)
		}
		return err
	}},
}

// steps is 0, 1, …, k-1.
func steps(k int) []int {
	s := make([]int, k)
	for i := range s {
		s[i] = i
	}
	return s
}

// poke writes a byte next to memory, as a bad pointer would.
func poke(b []byte, at int, v byte) {
	*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at)) ^= v | 1
}

// late writes to memory that its caller no longer has. The race is its fault.
//
//go:norace
func late(b []byte) {
	time.Sleep(watched / 4)
	b[0]++
}

func saturating(ctx context.Context, p *Problem, b Buffers) error {
	if !p.C.Type.Info().Integer {
		return new(plain).multiply(ctx, p, b)
	}
	clamp := func(x float64) float64 { return min(max(x, math.MinInt32), math.MaxInt32) }
	for i := range p.M {
		for j := range p.N {
			var sum float64
			for k := 0; p.ReadsAB() && k < p.K; k++ {
				sum = clamp(sum + p.A.Type.At(b.A, p.A.Index(i, k))*p.B.Type.At(b.B, p.B.Index(k, j)))
			}
			sum = clamp(sum * p.Alpha)
			if p.Beta != 0 {
				sum = clamp(sum + clamp(p.Beta*p.C.Type.At(b.C, p.C.Index(i, j))))
			}
			p.C.Type.Set(b.C, p.C.Index(i, j), sum)
		}
	}
	return nil
}

// sharing multiplies by the A of whoever called last, if that is long enough. It
// waits a little, so that another caller comes in between.
func sharing() func(context.Context, *Problem, Buffers) error {
	var mu sync.Mutex
	var last Buffers
	return func(ctx context.Context, p *Problem, b Buffers) error {
		mu.Lock()
		last = b
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		if len(last.A) >= len(b.A) {
			b.A = last.A
		}
		mu.Unlock()
		return new(plain).multiply(ctx, p, b)
	}
}

func TestPlantedFaults(t *testing.T) {
	for _, tc := range planted {
		t.Run(tc.check+"/"+strings.ReplaceAll(tc.fault, " ", "_"), func(t *testing.T) {
			seed := rand.Uint64()
			impl := declared(tc.gemm)
			i := slices.IndexFunc(checks, func(c check) bool { return c.Name == tc.check })
			if r := checks[i].run(t.Context(), &impl, Options{Seed: seed}); r.Failures == 0 {
				t.Errorf("not found in %d cases of seed %d", r.Cases, seed)
			} else if _, err := json.Marshal(r); err != nil {
				t.Errorf("the report is not to be written: %v", err)
			} else if testing.Verbose() {
				t.Log(r.Lines[0])
			}
		})
	}
}

// plantedBatches are wrong places of products' matrices.
var plantedBatches = map[string]func(p *Problem, ends []int32, n int) (a, b, c, from, to int){
	"all have the first B": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, _, c, from, to = places(p, ends, n)
		return a, 0, c, from, to
	},
	"a shared A is taken for many": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = places(p, ends, n)
		if ends == nil && p.Batch.A == 0 && p.A.Len() > 1 && n == 1 {
			a = 1
		}
		return a, b, c, from, to
	},
	"a group begins a row late": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = places(p, ends, n)
		if ends != nil && to > from+1 {
			a, c, from = a+p.A.LD, c+p.C.LD, from+1
		}
		return a, b, c, from, to
	},
	"a group ends a row late": func(p *Problem, ends []int32, n int) (a, b, c, from, to int) {
		a, b, c, from, to = places(p, ends, n)
		if ends != nil && n == len(ends)-1 {
			to = min(to+1, p.M)
		}
		return a, b, c, from, to
	},
}

func TestPlantedBatches(t *testing.T) {
	for fault, at := range plantedBatches {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			seed := rand.Uint64()
			impl := declared(nil)
			impl.Batch = new(plain).batch(at)
			r := Check(t.Context(), impl, Options{Seed: seed, Only: "batch", Cases: 300})
			if r.Err() == nil {
				t.Errorf("not found in %d cases of seed %d", r.Checks[0].Cases, seed)
			}
		})
	}
}

// TestUndeclared: an implementation that takes what it does not declare is found.
func TestUndeclared(t *testing.T) {
	impl := declared(new(plain).multiply)
	impl.Supports = func(p *Problem) bool { return !p.B.Trans }
	r := Check(t.Context(), impl, Options{Seed: rand.Uint64(), Cases: 200})
	for _, c := range r.Checks {
		if (c.Failures > 0) != (c.Name == "refuse") {
			t.Errorf("%s: %d failures: %q", c.Name, c.Failures, c.Lines)
		}
	}
	if err := r.Err(); !errors.Is(err, ErrFailed) {
		t.Errorf("the report's error is %v", err)
	}
}

// TestEveryCheckFindsSomething: no check is there for show.
func TestEveryCheckFindsSomething(t *testing.T) {
	for _, c := range Checks() {
		found := c.Name == "refuse" || c.Name == "batch" // TestUndeclared, TestPlantedBatches
		for _, p := range planted {
			found = found || p.check == c.Name
		}
		if !found || c.About == "" {
			t.Errorf("check %q has no planted fault or no description", c.Name)
		}
	}
}

// TestReproducible: the same seed gives the same cases.
func TestReproducible(t *testing.T) {
	impl := declared((&plain{skip: func(a, _ float64) bool { return a == 0 }}).multiply)
	opt := Options{Seed: rand.Uint64(), Cases: 300}
	one, two := Check(t.Context(), impl, opt), Check(t.Context(), impl, opt)
	for i := range one.Checks {
		if one.Checks[i].Name == "cancel" {
			continue // timing decides
		}
		if !slices.Equal(one.Checks[i].Lines, two.Checks[i].Lines) {
			t.Errorf("%q\nthen\n%q", one.Checks[i].Lines, two.Checks[i].Lines)
		}
	}
}

// TestStops: a cancelled run ends and says so.
func TestStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	r := Check(ctx, declared(new(plain).multiply), Options{Cases: 100, Progress: func(string, int, int) {
		if n++; n == 10 {
			cancel()
		}
	}})
	if err := r.Err(); !errors.Is(err, context.Canceled) || n > 11 {
		t.Errorf("stopped with %v after %d cases", err, n)
	}
}

// TestInOrder: results come in their order, whoever is done first, a few ahead and no more,
// and nobody goes on when nobody wants them.
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
				t.Fatalf("%d workers: %d, want %d", workers, n, got)
			}
			if got++; got == 100 {
				break
			}
		}
		if n := int(asked.Load()); n > 100+2*workers {
			t.Errorf("%d workers computed %d results for 100", workers, n)
		}
		for n := range inOrder(7, workers, func(n int) int { return n }) {
			got = n
		}
		if got != 6 {
			t.Errorf("%d workers: the last of 7 is %d", workers, got)
		}
	}
	goleak.VerifyNone(t, before)
}
