package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
)

func init() { testkit.CollectRarely() }

// TestMeasure checks that a slowdown of a whole round does not change the ratios.
func TestMeasure(t *testing.T) {
	c := new(clock)
	var order []string
	noisy := func(name string, base time.Duration) *fake {
		return &fake{name: name, clock: c, seen: func(gemm.Buffers) { order = append(order, name) },
			cost: func(int) time.Duration {
				round := max(len(order)-1, 0) / 3
				return base * time.Duration(1+round%4)
			}}
	}
	a, b, p := noisy("a", 6*time.Millisecond), noisy("b", 12*time.Millisecond), noisy("p", 18*time.Millisecond)
	o := quick(c)
	o.Warmup = 1 // one call: each subject is called twice before the rounds
	o.Peak = func(in dtype.Type, _ string, threads int) float64 {
		if in != dtype.F32 || threads != 2 {
			t.Errorf("Peak(%v) with %d threads, want float32 with 2", in, threads)
		}
		return 1
	}
	records, err := Measure(context.Background(), shape(t, Shape{10, 20, 30}, dtype.F32, dtype.F32), []Subject{a, b},
		[]Subject{p}, o)
	if err != nil {
		t.Fatal(err)
	}
	timed := order[6 : len(order)-3] // without the verified products before and after
	if len(timed)%3 != 0 {
		t.Fatalf("the rounds are incomplete: %v", timed)
	}
	for round := range len(timed) / 3 {
		var want []string
		for i := range 3 {
			want = append(want, []string{"a", "b", "p"}[inTurn(round, i, 3)])
		}
		if got := timed[3*round : 3*round+3]; !slices.Equal(got, want) {
			t.Errorf("round %d: got order %v, want %v", round, got, want)
		}
	}
	for i, want := range []struct {
		name  string
		peer  bool
		speed float64
	}{{"a", false, 3}, {"b", false, 1.5}, {"p", true, 0}} {
		r := records[i]
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", want.name, err)
		}
		if r.Subject != want.name || r.Peer != want.peer || r.Detail != want.name+" 1.0" || !r.Verified || r.Batch != 1 ||
			r.Buffers != 1 || r.Seed != 7 || r.Environment.CPU != "R3000" {
			t.Errorf("got record %+v", r)
		}
		if r.Reps < 5 || float64(r.Reps)*r.Seconds.Min < 0.1/4 || r.Reps != len(timed)/3 {
			t.Errorf("%s: got %d reps, want %d", want.name, r.Reps, len(timed)/3)
		}
		if v, ok := r.RatioTo("p"); ok == want.peer || !near(v.Speed, want.speed) && !want.peer {
			t.Errorf("%s: speed over p is %v, want %v", want.name, v.Speed, want.speed)
		}
		if percent, known := r.PercentOfPeak(); !known || !near(percent, 100*r.GFLOPS) ||
			!near(r.GFLOPS, 12000/r.Seconds.Median/1e9) {
			t.Errorf("%s: got %v GFLOP/s as %v %% of the peak", want.name, r.GFLOPS, percent)
		}
	}
}

func TestShortProductsAreBatched(t *testing.T) {
	c := new(clock)
	f := &fake{name: "f", clock: c, cost: every(time.Microsecond)}
	records, err := measure(t, shape(t, Cube(4), dtype.F32, dtype.F32), quick(c), f)
	if err != nil {
		t.Fatal(err)
	}
	if r := records[0]; r.Batch != 32 || !near(r.Seconds.Median, 1e-6) || r.Seconds.Spread > 1e-9 {
		t.Errorf("got batches of %d products of %v s, want 32 of 1 µs", r.Batch, r.Seconds.Median)
	}
}

// TestVerifyWithInitialC checks that each subject is verified against the initial C.
func TestVerifyWithInitialC(t *testing.T) {
	c := new(clock)
	v := shape(t, Cube(8), dtype.F32, dtype.F32)
	v.Problem.Beta = 1
	a := &fake{name: "a", clock: c, cost: every(time.Millisecond)}
	b := &fake{name: "b", clock: c, cost: every(time.Millisecond)}
	records, err := measure(t, v, quick(c), a, b)
	if err != nil {
		t.Fatal(err)
	}
	if records[0].ErrorRatio != records[1].ErrorRatio || records[0].ErrorRatio == 0 {
		t.Errorf("equal results have error ratios %v and %v", records[0].ErrorRatio, records[1].ErrorRatio)
	}
}

// TestStoppedClock checks that a measurement ends although the clock does not advance.
func TestStoppedClock(t *testing.T) {
	c := new(clock)
	f := &fake{name: "f", clock: c}
	o := quick(c)
	o.MinTime, o.MinReps, o.MaxTime = 1, 2, 100
	if _, err := measure(t, shape(t, Cube(1), dtype.F32, dtype.F32), o, f); err != nil {
		t.Fatal(err)
	}
}

// TestSlowSubject checks that a subject slower than MaxTime is timed once, and that the others
// still reach MinTime.
func TestSlowSubject(t *testing.T) {
	c := new(clock)
	slow := &fake{name: "slow", clock: c, cost: every(3 * time.Second)}
	fast := &fake{name: "fast", clock: c, cost: every(time.Millisecond)}
	records, err := measure(t, shape(t, Cube(4), dtype.F32, dtype.F32), quick(c), slow, fast)
	if err != nil {
		t.Fatal(err)
	}
	if slow.calls != 2 || records[0].Reps != 1 {
		t.Errorf("slow ran %d times with %d reps, want 2 and 1", slow.calls, records[0].Reps)
	}
	if n := records[1].Reps * records[1].MedianOf; n < 100 {
		t.Errorf("fast has %d timings, want 100 in 100 ms", n)
	}
}

// TestBalance checks that a fast subject takes the median of several timings, so that a slow one
// need not run until the fast one has reached MinTime.
func TestBalance(t *testing.T) {
	c := new(clock)
	slow := &fake{name: "slow", clock: c, cost: every(40 * time.Millisecond)}
	fast := &fake{name: "fast", clock: c, cost: func(call int) time.Duration {
		if call%10 == 0 {
			return 5 * time.Millisecond // a disturbance
		}
		return 100 * time.Microsecond
	}}
	records, err := measure(t, shape(t, Cube(4), dtype.F32, dtype.F32), quick(c), slow, fast)
	if err != nil {
		t.Fatal(err)
	}
	if s, f := records[0], records[1]; s.Reps != 5 || s.MedianOf != 1 || f.Reps != 5 || f.MedianOf != 200 ||
		f.Seconds.Max > 101e-6 {
		t.Errorf("slow: %d reps of %d timings; fast: %d reps of %d timings, %+v", s.Reps, s.MedianOf, f.Reps, f.MedianOf,
			f.Seconds)
	}
}

func TestFailures(t *testing.T) {
	boom := errors.New("boom\nand smoke")
	spoiled := 0
	for _, c := range []struct {
		name string
		f    fake
		want string
		is   error // nil if it is not a failure
	}{
		{"wrong element", fake{spoil: func(p *gemm.Problem, b gemm.Buffers) { p.Out().Set(b[gemm.C], 5, 1e3) }},
			"times its bound", gemm.ErrVerify},
		{"missing element", fake{spoil: func(p *gemm.Problem, b gemm.Buffers) { poison(p.Out(), b[gemm.C][:4]) }},
			"NaN times", gemm.ErrVerify},
		{"wrong element after the timings", fake{spoil: func(p *gemm.Problem, b gemm.Buffers) {
			if spoiled++; spoiled > 1 {
				p.Out().Set(b[gemm.C], 5, 1e3)
			}
		}}, "after the timings", gemm.ErrVerify},
		{"unsupported", fake{refuse: fmt.Errorf("%w: such products", gemm.ErrUnsupported)}, "such products", nil},
		{"preparation", fake{refuse: boom}, "boom and smoke", boom},
		{"first product", fake{fail: func(int) error { return boom }}, "boom", boom},
		{"warm-up", fake{fail: func(call int) error {
			if call == 1 {
				return boom
			}
			return nil
		}}, "boom", boom},
		{"timing", fake{fail: func(call int) error {
			if call == 30 {
				return boom
			}
			return nil
		}}, "boom", boom},
	} {
		t.Run(c.name, func(t *testing.T) {
			clk := new(clock)
			bad, good := c.f, &fake{name: "good", clock: clk, cost: every(time.Millisecond)}
			bad.name, bad.clock, bad.cost = "bad", clk, every(time.Millisecond)
			records, err := Measure(context.Background(), shape(t, Cube(6), dtype.F32, dtype.F32), []Subject{good},
				[]Subject{&bad}, quick(clk))
			if !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
				t.Errorf("got error %v, want %v", err, c.is)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "bad: ") {
				t.Errorf("got error %q, want the prefix \"bad: \"", err)
			}
			if len(records) != 2 {
				t.Fatalf("got %d records, want 2", len(records))
			}
			g, b := records[0], records[1]
			if g.Error != "" || g.Reps < 5 || len(g.Versus) != 0 {
				t.Errorf("the other subject: got record %+v, want timings", g)
			}
			if !strings.Contains(b.Error, c.want) || strings.Contains(b.Error, "\n") || b.Verified || b.Reps != 0 ||
				b.GFLOPS != 0 || b.Samples != nil || b.Seconds != (Timing{}) {
				t.Errorf("the failed subject: got record %+v, want an error alone", b)
			}
			if err := b.check(); err != nil {
				t.Errorf("its record is invalid: %v", err)
			}
		})
	}
}

func TestMeasureErrors(t *testing.T) {
	c := new(clock)
	f := &fake{name: "f", clock: c, cost: every(time.Millisecond)}
	small := quick(c)
	small.Environment.Memory = 1000
	failing := quick(c)
	failing.Verify = func(context.Context, *gemm.Problem, gemm.Buffers) (Check, error) {
		return nil, sentinel.ErrOutOfMemory
	}
	for _, v := range []struct {
		name     string
		c        Case
		o        Options
		subjects []Subject
		is       error
		want     string
	}{
		{"empty", shape(t, Shape{0, 1, 1}, dtype.F32, dtype.F32), quick(c), []Subject{f}, gemm.ErrShape, "0×1×1"},
		{"duplicate name", shape(t, Cube(1), dtype.F32, dtype.F32), quick(c), []Subject{f, f}, nil,
			`two subjects have the name "f"`},
		{"more than the memory", shape(t, Cube(30), dtype.F32, dtype.F32), small, []Subject{f}, sentinel.ErrOutOfMemory,
			"need 0.0 GiB, and this machine has 0.0 GiB"},
		{"more than any memory", shape(t, Shape{1 << 30, 1 << 30, 1}, dtype.F32, dtype.F32), quick(c), []Subject{f},
			sentinel.ErrOutOfMemory, "need 8589934600.0 GiB, and this machine has 1.0 GiB"},
		{"failing verifier", shape(t, Cube(1), dtype.F32, dtype.F32), failing, []Subject{f}, sentinel.ErrOutOfMemory,
			"preparing the check"},
	} {
		t.Run(v.name, func(t *testing.T) {
			records, err := Measure(context.Background(), v.c, v.subjects, nil, v.o)
			if err == nil || records != nil || v.is != nil && !errors.Is(err, v.is) || !strings.Contains(err.Error(), v.want) {
				t.Errorf("got %d records, error %v, want %q", len(records), err, v.want)
			}
		})
	}
}

// TestCancel checks that the timings before the context ends are kept.
func TestCancel(t *testing.T) {
	for _, after := range []int{0, 1, 2, 10, 40, 41, 60} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			c := new(clock)
			ctx, cancel := context.WithCancel(context.Background())
			calls := 0
			count := func(gemm.Buffers) {
				if calls++; calls == after {
					cancel()
				}
			}
			if after == 0 {
				cancel()
			}
			a := &fake{name: "a", clock: c, cost: every(time.Millisecond), seen: count}
			b := &fake{name: "b", clock: c, cost: every(time.Millisecond), seen: count}
			records, err := Measure(ctx, shape(t, Cube(4), dtype.F32, dtype.F32), []Subject{a, b}, nil, quick(c))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want %v", err, context.Canceled)
			}
			if calls > after {
				t.Errorf("%d products ran after the context ended", calls-after)
			}
			const before = 2 * 11 // for each subject: one verified product, ten to warm up
			reps := 0
			for i := range records {
				reps += records[i].Reps
				// 100 timings of 1 ms reach MinTime.
				if r := &records[i]; r.Interrupted != (r.Reps < 100) {
					t.Errorf("%d timings: Interrupted is %v", r.Reps, r.Interrupted)
				}
				if err := records[i].check(); err != nil {
					t.Error(err)
				}
			}
			if want := max(0, after-before); reps != want {
				t.Errorf("got %d timings, want %d", reps, want)
			}
		})
	}
}

// TestCold checks that the sets of operands exceed the cache size twice, and that a product uses a
// set again only after all other sets.
func TestCold(t *testing.T) {
	c := new(clock)
	var seen []uintptr
	f := &fake{name: "f", clock: c, cost: every(time.Millisecond), seen: func(b gemm.Buffers) {
		for _, m := range [][]byte{b[gemm.A], b[gemm.B], b[gemm.C]} {
			if uintptr(unsafe.Pointer(&m[0]))%align != 0 {
				t.Error("a matrix is not aligned to a cache line")
			}
		}
		seen = append(seen, uintptr(unsafe.Pointer(&b[gemm.A][0])))
	}}
	o := quick(c)
	o.Cold = true
	records, err := measure(t, shape(t, Cube(128), dtype.F32, dtype.F32), o, f)
	if err != nil {
		t.Fatal(err)
	}
	n := records[0].Buffers
	if bytes := n * 3 * 128 * 128 * 4; bytes < 2<<20 || !records[0].Cold {
		t.Errorf("%d sets of operands have %d bytes, want twice the cache size %d", n, bytes, 1<<20)
	}
	seen = seen[1 : len(seen)-1] // without the verified products
	for i := range len(seen) - n + 1 {
		if distinct := slices.Compact(slices.Sorted(slices.Values(seen[i : i+n]))); len(distinct) != n {
			t.Fatalf("products %d to %d used %d sets of operands, want %d", i, i+n, len(distinct), n)
		}
	}
	order := slices.IsSorted(seen[:n])
	if order {
		t.Error("the sets are used in the order of their addresses")
	}
}

// TestLead checks that the lead hides the slowdown at the start of a turn for multithreaded
// subjects.
func TestLead(t *testing.T) {
	c := new(clock)
	last := ""
	var since time.Duration
	disturbed := func(name string) *fake {
		return &fake{name: name, clock: c, cost: func(int) time.Duration {
			if last != name {
				last, since = name, c.now()
			}
			if c.now()-since < 26*time.Millisecond {
				return 9 * time.Millisecond
			}
			return time.Millisecond
		}}
	}
	o := quick(c)
	o.Lead = 0
	for threads, want := range map[int]time.Duration{1: 9 * time.Millisecond, 2: time.Millisecond} {
		kase := shape(t, Cube(4), dtype.F32, dtype.F32)
		kase.Threads = threads
		records, err := Measure(t.Context(), kase, []Subject{disturbed("a"), disturbed("b")}, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if got := time.Duration(r.Seconds.Median * 1e9); got.Round(time.Microsecond) != want {
				t.Errorf("%d threads: %s: got a median of %v, want %v", threads, r.Subject, got, want)
			}
		}
	}
}

// TestInTurn checks that each subject has one turn per round, that all subjects are first equally
// often, and that with three or more, none follows the same subject in more than half of the
// rounds.
func TestInTurn(t *testing.T) {
	for n := 1; n <= 9; n++ {
		rounds := 8 * n
		var order []int
		first := make([]int, n)
		for round := range rounds {
			seen := make([]bool, n)
			for i := range n {
				k := inTurn(round, i, n)
				if seen[k] {
					t.Errorf("%d subjects: subject %d has two turns in round %d", n, k, round)
				}
				seen[k] = true
				order = append(order, k)
			}
			first[order[round*n]]++
		}
		before := map[[2]int]int{}
		for i := 1; i < len(order); i++ {
			before[[2]int{order[i-1], order[i]}]++
		}
		for k := range n {
			if first[k] != 8 {
				t.Errorf("subject %d of %d is first in %d of %d rounds", k, n, first[k], rounds)
			}
			for other := range n {
				if b := before[[2]int{other, k}]; n > 2 && b > rounds/2+1 {
					t.Errorf("%d subjects: %d follows %d in %d of %d rounds", n, k, other, b, rounds)
				}
			}
		}
	}
}

// packing is a fake [Packer].
type packing struct {
	fake
	packed map[*byte]bool
}

func (l *packing) PackB(_ context.Context, b gemm.Buffers) error {
	l.packed[&b[gemm.B][0]] = true
	return nil
}

// idle is a fake [Unchecked] subject that multiplies nothing.
type idle struct{ fake }

func (*idle) Unchecked() {}

func (f *idle) Prepare(context.Context, *gemm.Problem) (func(*gemm.Buffers) error, error) {
	return func(*gemm.Buffers) error { f.clock.advance(time.Millisecond); return nil }, nil
}

// TestPackerAndUnchecked checks that a Packer receives every set of operands before its first
// product and is verified, and that an Unchecked subject is timed and not verified.
func TestPackerAndUnchecked(t *testing.T) {
	c := new(clock)
	l := &packing{fake: fake{name: "packing", clock: c, cost: every(2 * time.Millisecond)}, packed: map[*byte]bool{}}
	unknown := 0
	l.seen = func(b gemm.Buffers) {
		if !l.packed[&b[gemm.B][0]] {
			unknown++
		}
	}
	o := quick(c)
	o.Cold = true
	peer := &idle{fake{name: "idle", clock: c}}
	records, err := Measure(t.Context(), shape(t, Cube(64), dtype.F32, dtype.F32), []Subject{l}, []Subject{peer}, o)
	if err != nil {
		t.Fatal(err)
	}
	if r := records[0]; unknown > 0 || len(l.packed) != r.Buffers || r.Buffers < 2 || !r.Verified {
		t.Errorf("%d products without PackB, %d of %d sets packed, verified %v", unknown, len(l.packed), r.Buffers,
			r.Verified)
	}
	if v, ok := records[0].RatioTo("idle"); !ok || !near(v.Speed, 0.5) || records[1].Verified {
		t.Errorf("got speed %v over idle and verified %v, want 0.5 and false", v.Speed, records[1].Verified)
	}
	l.spoil = func(p *gemm.Problem, b gemm.Buffers) { p.Out().Set(b[gemm.C], 5, 1e6) }
	if _, err := Measure(t.Context(), shape(t, Cube(64), dtype.F32, dtype.F32), []Subject{l}, nil, o); !errors.Is(err,
		gemm.ErrVerify) {
		t.Errorf("wrong product with packed B: got error %v, want ErrVerify", err)
	}
}

// TestBandwidth checks the bytes of A, B and C for single, batched and grouped products.
func TestBandwidth(t *testing.T) {
	r := Record{In: "int8", Out: "int32", M: 2, N: 3, K: 5, Reps: 1, Seconds: Timing{Median: 0.5}}
	if got := r.Bandwidth(); got != 2*(2*5+5*3+4*2*3) {
		t.Errorf("one product: got %v B/s", got)
	}
	if r.Products = 4; r.Bandwidth() != 4*2*(2*5+5*3+4*2*3) {
		t.Errorf("four products: got %v B/s", r.Bandwidth())
	}
	if r.Products, r.Groups = 0, []int{1, 1}; r.Bandwidth() != 2*(2*5+2*5*3+4*2*3) {
		t.Errorf("two groups: got %v B/s", r.Bandwidth())
	}
	if r.Groups, r.Epilogue = nil, "swiglu"; r.Bandwidth() != 2*(2*5+2*5*3+4*2*3) {
		t.Errorf("gated product: got %v B/s", r.Bandwidth())
	}
}
