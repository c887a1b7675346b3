package auto

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/cache"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// world is a machine whose times are known: a processor, and a GPU that the emulator
// stands in for.
type world struct {
	processor float64 // operations a second
	gpu       law
	start     float64

	present, identify, tryCPU, tryGPU error // what goes wrong
	memory                            int64

	begun, trials atomic.Int32
}

// law is a GPU whose time is fixed, and that of its bytes, and that of its operations.
type law struct{ fixed, perByte, perFlop float64 }

func (l law) seconds(bytes, flops float64) float64 {
	return l.fixed + l.perByte*bytes + l.perFlop*flops
}

// ordinary has its crossover where 2n³/1e11 = 1e-4 + 12n²/1e10 + 2n³/1e13.
func ordinary() *world {
	return &world{processor: 1e11, gpu: law{1e-4, 1e-10, 1e-13}, start: 0.3, memory: 1 << 40}
}

const crossing = 195 // solves that

func (w *world) chooser(c *cache.Cache) *Chooser {
	trial := func(d backend.Device, types Types, _ int) Trial {
		return func(n int) (time.Duration, error) {
			w.trials.Add(1)
			flops := 2 * float64(n) * float64(n) * float64(n)
			if d.Kind == "cpu" {
				return seconds(flops / w.processor), w.tryCPU
			}
			bytes := float64(n * n * (2*types.In.Size() + types.Out.Size()))
			return seconds(w.gpu.seconds(bytes, flops)), w.tryGPU
		}
	}
	ch := NewChooser(Machine{
		GPU: backend.Device{Kind: "emu"}, Present: func() error { return w.present }, Trial: trial,
		Identify: func() (Identity, error) {
			w.begun.Add(1)
			return Identity{"a GPU", w.memory}, w.identify
		},
		Open: func() error { return nil }, IsOpen: func() bool { return false },
	}, c)
	ch.start = w.start
	return ch
}

// question is what a chooser is asked.
type question struct {
	Problem gemm.Problem
	Threads int
	Once    bool
}

// chosen is what the chooser chooses, and the reason in words.
func chosen(c *Chooser, r question) (backend.Device, string) {
	var made Decision
	c.Choose(&r.Problem, r.Threads, r.Once, &made)
	return made.Device, made.String()
}

// TestChoose: the device that takes less time, and the reason, and no beginning with a
// GPU that cannot pay.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name    string
		m, n, k int
		once    bool
		change  func(w *world)
		want    string // the device
		why     string
		begins  bool
	}{
		{name: "tiny", m: 64, n: 64, k: 64, want: "cpu", why: "too small for a GPU to pay"},
		{name: "empty", m: 0, n: 64, k: 64, want: "cpu", why: "too small"},
		{name: "below", m: crossing - 15, n: crossing - 15, k: crossing - 15, want: "cpu", why: "here, not worth starting emu, which takes 300ms"},
		{name: "below, begun at once", m: crossing - 15, n: crossing - 15, k: crossing - 15, begins: true,
			change: func(w *world) { w.start = 0 }, want: "cpu", why: "about 120µs here against 140µs on emu; for squares of float32 the measured crossover is near 19"},
		{name: "above, begun at once", m: crossing + 15, n: crossing + 15, k: crossing + 15, begins: true,
			change: func(w *world) { w.start = 0 }, want: "emu", why: "the measured crossover is near 19"},
		{name: "large", m: 1000, n: 1000, k: 1000, want: "emu", why: "about 20ms here against 1.5ms on emu", begins: true},
		{name: "large, once", m: 1000, n: 1000, k: 1000, once: true, want: "cpu", why: "about 20ms here, not worth starting emu, which takes 300ms"},
		{name: "once, as if for the first time", m: 1000, n: 1000, k: 1000, once: true, change: func(w *world) { w.start = 0 }, want: "cpu", why: "about 20ms here, not worth starting emu, which takes at least 50ms"},
		{name: "huge, once", m: 4000, n: 4000, k: 4000, once: true, want: "emu", why: "on emu and 300ms to start it", begins: true},
		{name: "more bytes than operations", m: 8000, n: 1, k: 8000, want: "cpu", why: "against 25ms on emu", begins: true},
		{name: "no driver", m: 1000, n: 1000, k: 1000, change: func(w *world) { w.present = errors.New("looked everywhere") }, want: "cpu", why: "no NVIDIA driver here"},
		{name: "no GPU", m: 1000, n: 1000, k: 1000, change: func(w *world) { w.identify = errors.New("it shows none") }, want: "cpu", why: "no GPU: it shows none", begins: true},
		{name: "a GPU that fails", m: 1000, n: 1000, k: 1000, change: func(w *world) { w.tryGPU = errors.New("burnt") }, want: "cpu", why: "emu could not be measured: burnt", begins: true},
		{name: "a CPU that fails", m: 1000, n: 1000, k: 1000, change: func(w *world) { w.tryCPU = errors.New("odd") }, want: "cpu", why: "the CPU could not be measured: odd"},
		{name: "too large", m: 1000, n: 1000, k: 1000, change: func(w *world) { w.memory = 13e6 }, want: "cpu", why: "the matrices take 11.4 MiB, too much for emu", begins: true},
		{name: "a slow GPU", m: 4000, n: 4000, k: 4000, change: func(w *world) { w.gpu = law{1e-4, 1e-10, 1e-10} }, want: "cpu", why: "about 1.3s here against 13s on emu", begins: true},
	} {
		w := ordinary()
		if c.change != nil {
			c.change(w)
		}
		d, why := chosen(w.chooser(nil), question{Problem: *testkit.Product(t, dtype.F32, dtype.F32, c.m, c.n, c.k), Once: c.once})
		if d.String() != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %v, %q; want %s, %q", c.name, d, why, c.want, c.why)
		}
		if begins := w.begun.Load() > 0; begins != c.begins {
			t.Errorf("%s: begins with the GPU: %v, want %v", c.name, begins, c.begins)
		}
	}
}

// TestCrossover: where the two times are about equal, and not without one.
func TestCrossover(t *testing.T) {
	w := ordinary()
	here, err := measureProcessor(w.chooser(nil).Trial(backend.Device{Kind: "cpu"}, Types{dtype.F32, dtype.F32}, 1))
	if err != nil {
		t.Fatal(err)
	}
	there, err := measureGPU(w.chooser(nil).Trial(w.chooser(nil).GPU, Types{dtype.F32, dtype.F32}, 1))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := crossover(here, there); !ok || math.Abs(float64(n-crossing)) > crossing/20 {
		t.Errorf("crossover near %d, %v; want %d", n, ok, crossing)
	}
	if n, ok := crossover(here, oneShot{Fixed: 1e-4, Bytes: curve{{512, 1}}, PerFlop: 1e-10}); ok {
		t.Errorf("a GPU that is always slower is faster from %d on", n)
	}
}

// TestMeasure: what is measured is what there is, in the time that there is.
func TestMeasure(t *testing.T) {
	for _, speed := range []float64{1e6, 1e8, 1e10, 1e13} {
		w := ordinary()
		w.processor = speed
		var spent time.Duration
		try := w.chooser(nil).Trial(backend.Device{Kind: "cpu"}, Types{dtype.F32, dtype.F32}, 1)
		c, err := measureProcessor(func(n int) (time.Duration, error) {
			took, err := try(n)
			spent += took
			return took, err
		})
		if err != nil || !c.valid() {
			t.Fatalf("%v, %v", c, err)
		}
		if len(c.Squares) > 1 && spent > processorBudget {
			t.Errorf("at %.0e operations a second measuring took %v", speed, spent)
		}
		for _, flops := range []float64{1, 1e6, 1e9, 1e12} {
			if got, want := c.seconds(flops), flops/speed; math.Abs(got-want) > 0.01*want+1e-9 {
				t.Errorf("at %.0e operations a second, %.0e take %g s, want %g", speed, flops, got, want)
			}
		}
	}
	for _, want := range []law{ordinary().gpu, {1e-5, 0, 1e-14}, {1e-3, 1e-9, 1e-12}, {1e-4, 1e-12, 1e-10}} {
		w := ordinary()
		w.gpu = want
		got, err := measureGPU(w.chooser(nil).Trial(backend.Device{Kind: "emu"}, Types{dtype.BF16, dtype.F32}, 1))
		if err != nil || !got.valid() {
			t.Fatalf("%v, %v", got, err)
		}
		for _, size := range [][3]int{{100, 100, 100}, {300, 300, 300}, {1000, 1000, 1000}, {10000, 10000, 10000}, {16, 4096, 4096}, {256, 256, 65536}} {
			p := *testkit.Product(t, dtype.BF16, dtype.F32, size[0], size[1], size[2])
			if g, w := got.seconds(side(&p), p.Flops()), want.seconds(traffic(&p), p.Flops()); math.Abs(g-w) > 0.2*w {
				t.Errorf("%v: %v takes %g s, want %g", want, size, g, w)
			}
		}
	}
}

// TestRemembers: a process measures once, however many goroutines ask, and the next one
// not at all, unless it is another card, or what is kept makes no sense.
func TestRemembers(t *testing.T) {
	dir := t.TempDir()
	large := *testkit.Product(t, dtype.F32, dtype.F32, 1000, 1000, 1000)
	choose := func(w *world, c *Chooser) int32 {
		t.Helper()
		before := w.trials.Load()
		if d, why := chosen(c, question{Problem: large}); d.Kind != "emu" {
			t.Errorf("%v: %s", d, why)
		}
		return w.trials.Load() - before
	}
	w := ordinary()
	first := w.chooser(cache.At(dir))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { chosen(first, question{Problem: large}) })
	}
	wg.Wait()
	measured := w.trials.Load()
	if n := choose(w, first); measured == 0 || n != 0 || w.begun.Load() != 1 {
		t.Errorf("%d trials at first and %d later, begun %d times", measured, n, w.begun.Load())
	}
	if n := choose(w, w.chooser(cache.At(dir))); n != 0 {
		t.Errorf("another process measures again: %d trials", n)
	}
	if n := choose(w, w.chooser(nil)); n != measured {
		t.Errorf("without a cache: %d trials, want %d", n, measured)
	}
	other := w.chooser(cache.At(dir))
	other.Identify = func() (Identity, error) { return Identity{"another GPU", w.memory}, nil }
	if n := choose(w, other); n == 0 || n >= measured {
		t.Errorf("another card: %d trials of %d", n, measured)
	}
	// What is kept of both devices is replaced by nonsense that reads well.
	store := cache.At(dir)
	key := fmt.Sprintf("processor, %s, float32, %d threads", machine(), 1)
	for _, nonsense := range []any{processor{}, processor{curve{{64, -1}}}, processor{curve{{64, 1}, {64, 2}}}, "text", nil} {
		if err := store.Put(key, nonsense); err != nil {
			t.Fatal(err)
		}
		again := w.chooser(store)
		before := w.trials.Load()
		if d, why := chosen(again, question{Problem: large, Threads: 1}); d.Kind != "emu" || w.trials.Load() == before {
			t.Errorf("%v is taken for a measurement: %v, %s", nonsense, d, why)
		}
	}
}

// TestStartIsMeasured: what it takes to begin with a GPU is measured in the process that
// first does, and counts in the next.
func TestStartIsMeasured(t *testing.T) {
	w, store := ordinary(), cache.At(t.TempDir())
	c := w.chooser(store)
	c.start = 0
	identify := c.Identify
	c.Identify = func() (Identity, error) {
		time.Sleep(100 * time.Millisecond)
		return identify()
	}
	once := question{Problem: *testkit.Product(t, dtype.F32, dtype.F32, 1500, 1500, 1500), Once: true} // 68 ms
	if d, why := chosen(c, once); d.Kind != "cpu" || !strings.Contains(why, "to start it") {
		t.Errorf("the first process: %v, %s", d, why)
	}
	next := w.chooser(store)
	next.start = 0
	before := w.begun.Load()
	if d, why := chosen(next, once); d.Kind != "cpu" || !strings.Contains(why, "not worth starting") || w.begun.Load() != before {
		t.Errorf("the next process: %v, %s, begun %d times", d, why, w.begun.Load()-before)
	}
}

func TestWords(t *testing.T) {
	for s, want := range map[float64]string{0: "0s", 1.234e-6: "1.2µs", 4.56e-4: "460µs", 0.0999: "100ms", 21.4: "21s", 1e300: "2388888h53m20s"} {
		if got := words(s); got != want {
			t.Errorf("%g s is %s, want %s", s, got, want)
		}
	}
}
