package auto

import (
	"context"
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
	"tilework/internal/dl"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// fakeMachine is a machine with a CPU and a GPU of given speeds.
type fakeMachine struct {
	flops  float64 // floating-point operations of the CPU per second
	gpu    gpuTime
	start  float64 // seconds to start using the GPU
	memory int64   // of the GPU

	present, identify, tryCPU, tryGPU error // returned by the functions of the Machine

	opened, trials atomic.Int32
}

// gpuTime holds the coefficients of the time of a product on a GPU.
type gpuTime struct{ fixed, perByte, perFlop float64 }

func (l gpuTime) seconds(bytes, flops float64) float64 {
	return l.fixed + l.perByte*bytes + l.perFlop*flops
}

// newMachine returns a machine with its crossover at 2n³/1e11 = 1e-4 + 12n²/1e10 + 2n³/1e13.
func newMachine() *fakeMachine {
	return &fakeMachine{flops: 1e11, gpu: gpuTime{1e-4, 1e-10, 1e-13}, start: 0.3, memory: 1 << 40}
}

const crossing = 195 // the n of the crossover

func (m *fakeMachine) chooser(c *cache.Cache) *Chooser {
	trial := func(d backend.DeviceName, types Types, _ int) Trial {
		return func(ctx context.Context, n int) (time.Duration, error) {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			m.trials.Add(1)
			flops := 2 * float64(n) * float64(n) * float64(n)
			if d.Kind == backend.CPU {
				return seconds(flops / m.flops), m.tryCPU
			}
			bytes := float64(n * n * (2*types.In.Size() + types.Out.Size()))
			return seconds(m.gpu.seconds(bytes, flops)), m.tryGPU
		}
	}
	ch := NewChooser(Machine{
		GPU: backend.DeviceName{Kind: backend.Emulator}, Present: func() error { return m.present }, Trial: trial,
		Identify: func() (Identity, error) {
			m.opened.Add(1)
			return Identity{"a GPU", m.memory}, m.identify
		},
		Open: func() error { return nil }, IsOpen: func() bool { return false },
	}, c)
	ch.start = m.start
	return ch
}

// question holds the arguments of Choose.
type question struct {
	Problem gemm.Problem
	Threads int
	Once    bool
}

// chosen returns the device that the chooser selects, and the reason.
func chosen(c *Chooser, r question) (backend.DeviceName, string) {
	var made Decision
	c.Choose(context.Background(), &r.Problem, r.Threads, r.Once, &made)
	return made.Device, made.String()
}

// TestChooseEnds checks that the end of a context ends a measurement, and that a later product
// measures again.
func TestChooseEnds(t *testing.T) {
	c, p := newMachine().chooser(nil), *testkit.Product(t, dtype.F32, dtype.F32, 2*crossing, 2*crossing, 2*crossing)
	ended, end := context.WithCancel(t.Context())
	end()
	var made Decision
	if c.Choose(ended, &p, 0, false, &made); !errors.Is(made.Err, context.Canceled) {
		t.Errorf("decided on %v, %v, with error %v, want %v", made.Device, made, made.Err, context.Canceled)
	}
	if at, why := chosen(c, question{Problem: p}); at != c.GPU {
		t.Errorf("after a measurement that ended: %v, %s, want %v", at, why, c.GPU)
	}
}

// TestChoose checks that the chooser selects the faster device and states the reason, and that it
// does not open a GPU that cannot be worth it.
func TestChoose(t *testing.T) {
	square := func(n int) [3]int { return [3]int{n, n, n} }
	const below, above = crossing - 15, crossing + 15
	for _, c := range []struct {
		name   string
		size   [3]int // M, N, K
		once   bool
		change func(m *fakeMachine)
		want   string // the device
		why    string
		opens  bool
	}{
		{name: "tiny", size: square(64), want: "cpu", why: "too small for a GPU to pay"},
		{name: "empty", size: [3]int{0, 64, 64}, want: "cpu", why: "too small"},
		{name: "below the crossover", size: square(below), want: "cpu",
			why: "here, not worth starting emu, which takes 300ms"},
		{name: "below, quick start", size: square(below), change: func(m *fakeMachine) { m.start = 0 }, want: "cpu",
			why: "about 120µs here against 140µs on emu; for squares of float32 the measured crossover is near 19", opens: true},
		{name: "above, quick start", size: square(above), change: func(m *fakeMachine) { m.start = 0 }, want: "emu",
			why: "the measured crossover is near 19", opens: true},
		{name: "large", size: square(1000), want: "emu", why: "about 20ms here against 1.5ms on emu", opens: true},
		{name: "large, once", size: square(1000), once: true, want: "cpu",
			why: "about 20ms here, not worth starting emu, which takes 300ms"},
		{name: "once, start not measured", size: square(1000), once: true, change: func(m *fakeMachine) { m.start = 0 },
			want: "cpu", why: "about 20ms here, not worth starting emu, which takes at least 50ms"},
		{name: "huge, once", size: square(4000), once: true, want: "emu", why: "on emu and 300ms to start it", opens: true},
		{name: "limited by transfers", size: [3]int{8000, 1, 8000}, want: "cpu", why: "against 25ms on emu", opens: true},
		{name: "no driver", size: square(1000), change: func(m *fakeMachine) { m.present = errors.New("not found") },
			want: "cpu", why: "no NVIDIA driver here"},
		{name: "unsafe search path", size: square(1000), change: func(m *fakeMachine) { m.present = dl.ErrSearchPath },
			want: "cpu", why: "no GPU: no library is loaded"},
		{name: "no GPU", size: square(1000), change: func(m *fakeMachine) { m.identify = errors.New("the list is empty") },
			want: "cpu", why: "no GPU: the list is empty", opens: true},
		{name: "a GPU that fails", size: square(1000), change: func(m *fakeMachine) { m.tryGPU = errors.New("bad launch") },
			want: "cpu", why: "emu could not be measured: bad launch", opens: true},
		{name: "a CPU that fails", size: square(1000), change: func(m *fakeMachine) { m.tryCPU = errors.New("no memory") },
			want: "cpu", why: "the CPU could not be measured: no memory"},
		{name: "too large", size: square(1000), change: func(m *fakeMachine) { m.memory = 13e6 }, want: "cpu",
			why: "the matrices take 11.4 MiB, too much for emu", opens: true},
		{name: "a slow GPU", size: square(4000), change: func(m *fakeMachine) { m.gpu = gpuTime{1e-4, 1e-10, 1e-10} },
			want: "cpu", why: "about 1.3s here against 13s on emu", opens: true},
	} {
		m := newMachine()
		if c.change != nil {
			c.change(m)
		}
		p := testkit.Product(t, dtype.F32, dtype.F32, c.size[0], c.size[1], c.size[2])
		d, why := chosen(m.chooser(nil), question{Problem: *p, Once: c.once})
		if d.String() != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: got %v (%q), want %s (%q)", c.name, d, why, c.want, c.why)
		}
		if opens := m.opened.Load() > 0; opens != c.opens {
			t.Errorf("%s: opened the GPU: %v, want %v", c.name, opens, c.opens)
		}
	}
}

// TestCrossover checks that crossover finds the size at which the times are equal, if there is one.
func TestCrossover(t *testing.T) {
	m := newMachine()
	float32s := Types{dtype.F32, dtype.F32}
	here, err := measureCPU(t.Context(), m.chooser(nil).Trial(backend.DeviceName{Kind: backend.CPU}, float32s, 1))
	if err != nil {
		t.Fatal(err)
	}
	there, err := measureGPU(t.Context(), m.chooser(nil).Trial(m.chooser(nil).GPU, float32s, 1))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := crossover(here, there); !ok || math.Abs(float64(n-crossing)) > crossing/20 {
		t.Errorf("crossover near %d, %v; want %d", n, ok, crossing)
	}
	if n, ok := crossover(here, gpuTimes{Fixed: 1e-4, Bytes: curve{{512, 1}}, PerFlop: 1e-10}); ok {
		t.Errorf("a GPU that is always slower: got a crossover near %d", n)
	}
}

// TestFailedTrial checks that a measurement that fails is not used by the next call.
func TestFailedTrial(t *testing.T) {
	large := *testkit.Product(t, dtype.F32, dtype.F32, 1000, 1000, 1000)
	failure := errors.New("failure")
	for name, m := range map[string]*fakeMachine{"CPU": {tryCPU: failure}, "GPU": {tryGPU: failure}} {
		m.flops, m.gpu, m.start, m.memory = 1e11, newMachine().gpu, 0.3, 1<<40
		c := m.chooser(cache.At(t.TempDir()))
		for range 2 {
			if d, why := chosen(c, question{Problem: large}); d.Kind != backend.CPU || !strings.Contains(why, "failure") {
				t.Errorf("no trial on the %s: %v, %s", name, d, why)
			}
		}
	}
}

// TestNotOpened checks that a GPU that cannot be opened is not selected.
func TestNotOpened(t *testing.T) {
	c := newMachine().chooser(nil)
	c.Open = func() error { return errors.New("failure") }
	large := *testkit.Product(t, dtype.F32, dtype.F32, 1000, 1000, 1000)
	if d, why := chosen(c, question{Problem: large}); d.Kind != backend.CPU || why != "no GPU: failure" {
		t.Errorf("%v, %s", d, why)
	}
}

// TestCurve checks the times at, between, below and above the points of a curve.
func TestCurve(t *testing.T) {
	c := curve{{10, 1}, {40, 9}, {160, 36}}
	for n, want := range map[float64]float64{5: 0.25, 10: 1, 20: 3, 40: 9, 80: 18, 160: 36, 320: 288} {
		if got := c.at(n, 2, 3); math.Abs(got-want) > 1e-9*want {
			t.Errorf("size %v: %v s, want %v", n, got, want)
		}
	}
}

// TestValid checks that values that are no result of a measurement are refused.
func TestValid(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	ok := gpuTimes{Fixed: 1e-4, Bytes: curve{{64, 1}, {128, 2}}}
	if !ok.valid() {
		t.Errorf("%+v is refused", ok)
	}
	for _, c := range []curve{
		nil, {{0, 1}}, {{64, 0}}, {{64, -1}}, {{64, inf}}, {{64, nan}}, {{64, 1}, {64, 2}}, {{64, 1}, {32, 2}},
	} {
		if s := (gpuTimes{Fixed: 1, Bytes: c}); s.valid() || (cpuTimes{c}).valid() {
			t.Errorf("%v is accepted", c)
		}
	}
	for _, s := range []gpuTimes{
		{0, ok.Bytes, 0}, {-1, ok.Bytes, 0}, {inf, ok.Bytes, 0}, {nan, ok.Bytes, 0}, {1, ok.Bytes, -1},
		{1, ok.Bytes, inf}, {1, ok.Bytes, nan},
	} {
		if s.valid() {
			t.Errorf("%+v is accepted", s)
		}
	}
}

// TestTraffic checks that C is copied both ways if it is read.
func TestTraffic(t *testing.T) {
	p := *testkit.Product(t, dtype.F32, dtype.F32, 10, 20, 30)
	for beta, want := range map[complex128]float64{0: 4 * (300 + 600 + 200), 1: 4 * (300 + 600 + 2*200)} {
		if p.Beta = beta; traffic(&p) != want {
			t.Errorf("beta %v: %v bytes, want %v", beta, traffic(&p), want)
		}
	}
}

// TestMeasure checks that measurements predict the times of the machine and keep to their budget.
func TestMeasure(t *testing.T) {
	for _, speed := range []float64{1e6, 1e8, 1e10, 1e13} {
		m := newMachine()
		m.flops = speed
		var spent time.Duration
		try := m.chooser(nil).Trial(backend.DeviceName{Kind: backend.CPU}, Types{dtype.F32, dtype.F32}, 1)
		c, err := measureCPU(t.Context(), func(_ context.Context, n int) (time.Duration, error) {
			took, err := try(t.Context(), n)
			spent += took
			return took, err
		})
		if err != nil || !c.valid() {
			t.Fatalf("%v, %v", c, err)
		}
		if len(c.Squares) > 1 && spent > cpuBudget {
			t.Errorf("at %.0e flop/s: measuring took %v", speed, spent)
		}
		if n := c.Squares[len(c.Squares)-1].N; speed == 1e13 && n != largest {
			t.Errorf("at %.0e flop/s: the largest measured size is %d, want %d", speed, n, largest)
		}
		for _, flops := range []float64{1, 1e6, 1e9, 1e12} {
			if got, want := c.seconds(flops), flops/speed; math.Abs(got-want) > 0.01*want+1e-9 {
				t.Errorf("at %.0e flop/s: predicted %[3]g s for %.0[2]e operations, want %[4]g", speed, flops, got, want)
			}
		}
	}
	for _, want := range []gpuTime{newMachine().gpu, {1e-5, 0, 1e-14}, {1e-3, 1e-9, 1e-12}, {1e-4, 1e-12, 1e-10}} {
		m := newMachine()
		m.gpu = want
		trial := m.chooser(nil).Trial(backend.DeviceName{Kind: backend.Emulator}, Types{dtype.BF16, dtype.F32}, 1)
		got, err := measureGPU(t.Context(), trial)
		if err != nil || !got.valid() {
			t.Fatalf("%v, %v", got, err)
		}
		for _, size := range [][3]int{
			{100, 100, 100}, {300, 300, 300}, {1000, 1000, 1000}, {10000, 10000, 10000}, {16, 4096, 4096}, {256, 256, 65536},
		} {
			p := *testkit.Product(t, dtype.BF16, dtype.F32, size[0], size[1], size[2])
			g, w := got.seconds(side(&p), p.Flops()), want.seconds(traffic(&p), p.Flops())
			if math.Abs(g-w) > 0.2*w {
				t.Errorf("%+v: predicted %g s for %v, want %g", want, g, size, w)
			}
		}
	}
}

// TestBest checks that the shortest run counts, without the first, and that runs end at the limit.
func TestBest(t *testing.T) {
	for limit, want := range map[time.Duration][3]time.Duration{0: {7, 8, 2}, 12: {5, 13, 3}, 1000: {3, 33, 6}} {
		runs := 0
		shortest, total, err := best(t.Context(), func(context.Context, int) (time.Duration, error) {
			runs++
			return []time.Duration{1, 7, 5, 3, 8, 9, 2}[runs-1], nil
		}, 64, limit)
		if got := [3]time.Duration{shortest, total, time.Duration(runs)}; err != nil || got != want {
			t.Errorf("limit %d: shortest, total and runs are %d, %v, want %d", limit, got, err, want)
		}
	}
}

// TestSlowGPU checks that a slow GPU is not measured with the largest product.
func TestSlowGPU(t *testing.T) {
	got, err := measureGPU(t.Context(), func(_ context.Context, n int) (time.Duration, error) {
		if n == largest {
			t.Error("the largest product was measured")
		}
		return seconds(1e-6 * 2 * float64(n*n*n)), nil
	})
	if err != nil || math.Abs(got.PerFlop-1e-6) > 0.01e-6 {
		t.Errorf("%v s for each operation, %v, want 1e-6", got.PerFlop, err)
	}
}

// TestInvalidStart checks that a stored time to start the GPU is not used if it is too short.
func TestInvalidStart(t *testing.T) {
	store := cache.At(t.TempDir())
	if err := store.Put(startKey(), -1.0); err != nil {
		t.Fatal(err)
	}
	c := newMachine().chooser(store)
	c.start = 0
	if got := c.knownStart(); got != minStart {
		t.Errorf("%v s, want %v", got, minStart)
	}
}

// TestMeasuresOnce checks that goroutines share one measurement, and that the next process does not
// repeat it, except on another GPU or if the cache has invalid values.
func TestMeasuresOnce(t *testing.T) {
	dir := t.TempDir()
	large := *testkit.Product(t, dtype.F32, dtype.F32, 1000, 1000, 1000)
	choose := func(m *fakeMachine, c *Chooser) int32 {
		t.Helper()
		before := m.trials.Load()
		if d, why := chosen(c, question{Problem: large}); d.Kind != backend.Emulator {
			t.Errorf("%v: %s", d, why)
		}
		return m.trials.Load() - before
	}
	m := newMachine()
	first := m.chooser(cache.At(dir))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { chosen(first, question{Problem: large}) })
	}
	wg.Wait()
	measured := m.trials.Load()
	if n := choose(m, first); measured == 0 || n != 0 || m.opened.Load() != 1 {
		t.Errorf("%d trials at first and %d later, opened %d times", measured, n, m.opened.Load())
	}
	if n := choose(m, m.chooser(cache.At(dir))); n != 0 {
		t.Errorf("the next process: %d trials, want 0", n)
	}
	uncached := m.chooser(nil)
	if n, again := choose(m, uncached), choose(m, uncached); n != measured || again != 0 {
		t.Errorf("without a cache: %d trials and %d in the next call, want %d and 0", n, again, measured)
	}
	other := m.chooser(cache.At(dir))
	other.Identify = func() (Identity, error) { return Identity{"another GPU", m.memory}, nil }
	if n := choose(m, other); n == 0 || n >= measured {
		t.Errorf("another GPU: %d trials, want some, fewer than %d", n, measured)
	}
	// Invalid values that decode without an error.
	store := cache.At(dir)
	key := fmt.Sprintf("cpu, %s, float32, %d threads", machine(), 1)
	for _, invalid := range []any{
		cpuTimes{}, cpuTimes{curve{{64, -1}}}, cpuTimes{curve{{64, 1}, {64, 2}}}, "text", nil,
	} {
		if err := store.Put(key, invalid); err != nil {
			t.Fatal(err)
		}
		again := m.chooser(store)
		before := m.trials.Load()
		d, why := chosen(again, question{Problem: large, Threads: 1})
		if d.Kind != backend.Emulator || m.trials.Load() == before {
			t.Errorf("%v was used as a measurement: %v, %s", invalid, d, why)
		}
	}
}

// TestStartIsMeasured checks that the process that first opens the GPU measures the time, and that
// the next process counts it.
func TestStartIsMeasured(t *testing.T) {
	m, store := newMachine(), cache.At(t.TempDir())
	c := m.chooser(store)
	c.start = 0
	identify := c.Identify
	c.Identify = func() (Identity, error) {
		time.Sleep(100 * time.Millisecond)
		return identify()
	}
	once := question{Problem: *testkit.Product(t, dtype.F32, dtype.F32, 1500, 1500, 1500), Once: true} // 68 ms
	if d, why := chosen(c, once); d.Kind != backend.CPU || !strings.Contains(why, "to start it") {
		t.Errorf("the first process: %v, %s", d, why)
	}
	next := m.chooser(store)
	next.start = 0
	before := m.opened.Load()
	d, why := chosen(next, once)
	if d.Kind != backend.CPU || !strings.Contains(why, "not worth starting") || m.opened.Load() != before {
		t.Errorf("the next process: %v, %s, opened %d times", d, why, m.opened.Load()-before)
	}
}

// TestWords checks the format of times.
func TestWords(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0s", 1.234e-6: "1.2µs", 4.56e-4: "460µs", 0.0999: "100ms", 21.4: "21s", 1e300: "2388888h53m20s",
	} {
		if got := words(s); got != want {
			t.Errorf("%g s: got %s, want %s", s, got, want)
		}
	}
}
