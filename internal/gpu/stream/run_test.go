package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/program"
	"tilework/internal/sentinel"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	ptxemu "tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

func init() { testkit.CollectRarely() }

// randomSchedule returns a random schedule of many steps for M, N and K of a few dozen.
func randomSchedule(rng *rand.Rand, pl *Plan) *schedule {
	o := randomOrder(rng, pl)
	unit := kernel.MaxVectorBytes
	if pl.host.BlockScaled() {
		unit = gemm.ScaleBlock
	}
	some := func() int { return unit * (1 + rng.IntN(3)) }
	if pl.host.Epilogue.Gated || rng.IntN(3) == 0 { // the sums of the first factor of a gated product need a single stream
		return pl.blocked(o, blocking{some(), some(), [...]int{1 + rng.IntN(3), 1 + rng.IntN(3), 1 + rng.IntN(3)}})
	}
	side := pl.host.M
	if !o.byRows {
		side = pl.host.N
	}
	return pl.overlapped(o, append(program.First(o.head).Cut(some()), program.Range(o.head, side).Cut(some())...))
}

// randomOrder returns a random order. It cuts at multiples of a vector, as units does.
func randomOrder(rng *rand.Rand, pl *Plan) order {
	p := pl.host
	o := order{[]program.Span{program.First(p.K)}, p.M, rng.IntN(2) == 0}
	if !o.byRows {
		o.head = p.N
	}
	if sliceable(p) && p.K > 1 {
		o.slices = program.First(p.K).Cut(kernel.MaxVectorBytes * (1 + rng.IntN(ints.CeilDiv(p.K, kernel.MaxVectorBytes))))
		o.head = min(kernel.MaxVectorBytes*(1+rng.IntN(ints.CeilDiv(o.head, kernel.MaxVectorBytes))), o.head)
	}
	return o
}

// forced returns a plan of p with a random schedule, which depends on seed and p only.
func forced(t *testing.T, b *Backend, p *gemm.Problem, opt exec.Options, seed uint64) *Plan {
	t.Helper()
	pl, err := b.Plan(p, opt)
	if err != nil {
		t.Fatal(err)
	}
	if p.M > 0 && p.N > 0 && p.ReadsAB() {
		h := fnv.New64()
		fmt.Fprint(h, *p)
		pl.Steps = randomSchedule(rand.New(rand.NewPCG(seed, h.Sum64())), pl)
	}
	return pl
}

// TestOverlapConformance runs the conformance suite with random schedules under the checkers. The
// emulator executes the work of streams in a random order that respects their waits.
func TestOverlapConformance(t *testing.T) {
	cases := 60
	if !testkit.Full() {
		cases = 15
	}
	for _, opt := range []exec.Options{{Kernel: "naive"}, {Kernel: "blocked", Tile: "64x64x8/8x4/4"},
		{Kernel: "tiled", Tile: "8", KeepLayout: true}} {
		t.Run(opt.Kernel, func(t *testing.T) {
			t.Parallel()
			seed := testrand.Seed(t)
			d, err := emu.Open(emu.Options{Seed: seed, Watch: emu.Checking(
				check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}},
				func(r *check.Report) {
					for _, f := range r.Findings {
						t.Error(f.String())
					}
				})})
			if err != nil {
				t.Fatal(err)
			}
			b := New(d)
			k, err := choose.Find(opt.Kernel)
			if err != nil {
				t.Fatal(err)
			}
			steps := atomic.Int64{}
			gemmtest.Run(t, gemmtest.Implementation{
				Name: "overlapped " + opt.Kernel,
				Gemm: func(ctx context.Context, p *gemmtest.Problem, m gemmtest.Buffers) error {
					pl := forced(t, b, p, opt, seed)
					steps.Add(int64(len(pl.Schedule().steps)))
					return pl.Run(ctx, m)
				},
				Supports:   func(p *gemmtest.Problem) bool { return k.Check(p, kernel.Tile{}, kernel.Align{}, nil) == nil },
				Tiles:      []int{8, 16},
				Volume:     1 << 15,
				Cases:      cases,
				Concurrent: true,
				Cancels:    true,
			})
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%d bytes of device memory leaked", n)
			}
			t.Logf("the schedules had %d steps", steps.Load())
		})
	}
}

// wholeNumbers returns a product with a transposed A and a bias, and its buffers, which hold small
// random integers.
func wholeNumbers(t *testing.T, rng *rand.Rand, m, n, k int, beta complex128) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	p, _, err := gemm.New(2, gemm.Dense(dtype.F32, k, m).T(), gemm.Dense(dtype.F32, k, n), beta,
		gemm.Dense(dtype.F32, m, n), gemm.Epilogue{Bias: gemm.BiasCol})
	if err != nil {
		t.Fatal(err)
	}
	noise := func(n int) []byte {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.IntN(17) - 8)
		}
		return dtype.Bytes(x)
	}
	return &p, gemm.Buffers{gemm.A: noise(m * k), gemm.B: noise(k * n), gemm.C: noise(m * n), gemm.Bias: noise(n)}
}

// computed runs pl with a copy of C from b and returns that copy.
func computed(ctx context.Context, pl *Plan, b gemm.Buffers) ([]byte, error) {
	b[gemm.C] = bytes.Clone(b[gemm.C])
	err := pl.Run(ctx, b)
	return b[gemm.C], err
}

// wanted returns C of p computed by the naive kernel in one step.
func wanted(t *testing.T, p *gemm.Problem, m gemm.Buffers) []byte {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pl, err := New(d).Plan(p, exec.Options{Kernel: "naive"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := computed(t.Context(), pl, m)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tapped wraps a device and calls call before each operation. If call returns false for "wait", the
// wait is skipped.
type tapped struct {
	device.Device
	call func(op string) (do bool)
}

func (d *tapped) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &tappedStream{s, d}, err
}

// tappedStream is a stream of a tapped device.
type tappedStream struct {
	device.Stream
	tap *tapped
}

func (s *tappedStream) Wait(e device.Event) error {
	if !s.tap.call("wait") {
		return nil
	}
	return s.Stream.Wait(e)
}

func (s *tappedStream) CopyIn(ctx context.Context, p device.Ptr, b []byte, r device.Rows) error {
	s.tap.call("copy in")
	return s.Stream.CopyIn(ctx, p, b, r)
}

func (s *tappedStream) CopyOut(ctx context.Context, b []byte, p device.Ptr, r device.Rows) error {
	s.tap.call("copy out")
	return s.Stream.CopyOut(ctx, b, p, r)
}

func (d *tapped) Wait(e device.Event) error {
	if !d.call("wait") {
		return nil
	}
	return d.Device.Wait(e)
}

func (d *tapped) Alloc(n int) (device.Ptr, error) {
	d.call("alloc")
	return d.Device.Alloc(n)
}

func (d *tapped) Launch(ctx context.Context, f device.Function, l device.Launch) error {
	d.call("launch")
	return d.Device.Launch(ctx, f, l)
}

// TestOverlapCancelled cancels the context at each device call in turn. It checks that Run returns
// context.Canceled or the right result, that nothing stays allocated, and that a later run
// succeeds.
func TestOverlapCancelled(t *testing.T) {
	seed := testrand.Seed(t)
	p, m := wholeNumbers(t, rand.New(rand.NewPCG(seed, 0)), 40, 32, 24, 0.5)
	want := wanted(t, p, m)
	d, err := emu.Open(emu.Options{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	for name, build := range schedules {
		var calls, at int64
		var cancel context.CancelFunc
		b := New(&tapped{d, func(string) bool {
			if atomic.AddInt64(&calls, 1) == at {
				cancel()
			}
			return true
		}})
		pl, err := b.Plan(p, exec.Options{Kernel: "naive"})
		if err != nil {
			t.Fatal(err)
		}
		pl.Steps = build(pl, program.First(p.K).Cut(p.K))
		for at = 1; ; at++ {
			ctx, stop := context.WithCancel(t.Context())
			cancel, calls = stop, 0
			c, err := computed(ctx, pl, m)
			stop()
			if calls < at {
				if err != nil || !bytes.Equal(c, want) {
					t.Errorf("%s, not cancelled: error %v, right result: %v", name, err, bytes.Equal(c, want))
				}
				break
			}
			if err == nil && !bytes.Equal(c, want) || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at call %d: error %v, want %v or the right result", name, at, err, context.Canceled)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%s, cancelled at call %d: %d bytes of device memory leaked", name, at, n)
			}
		}
		if at < 20 {
			t.Errorf("%s: Run made fewer than %d device calls, want at least 20", name, at)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOverlapLaunchFails fails the kernel of each step in turn while it runs. It checks that Run
// returns the error and that the next run computes the right result.
func TestOverlapLaunchFails(t *testing.T) {
	seed := testrand.Seed(t)
	p, m := wholeNumbers(t, rand.New(rand.NewPCG(seed, 0)), 40, 32, 24, 0.5)
	want := wanted(t, p, m)
	for name, build := range schedules {
		broken := errors.New("injected fault")
		launches, failAt := 0, 0
		d, err := emu.Open(emu.Options{Seed: seed, Watch: func(*ptxemu.Launch) emu.Done {
			launches++
			return func(_ *ptxemu.Program, _ ptxemu.Stats, err error) error {
				if launches == failAt {
					return broken
				}
				return err
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := New(d)
		pl, err := b.Plan(p, exec.Options{Kernel: "naive"})
		if err != nil {
			t.Fatal(err)
		}
		pl.Steps = build(pl, program.First(p.K).Cut(p.K))
		for failAt = 1; failAt <= len(pl.Steps.steps); failAt++ {
			launches = 0
			if _, err := computed(t.Context(), pl, m); !errors.Is(err, device.ErrLaunch) || !errors.Is(err, broken) {
				t.Errorf("%s, launch %d failed: Run returned %v, want ErrLaunch and the injected fault", name, failAt, err)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%s, launch %d failed: %d bytes of device memory leaked", name, failAt, n)
			}
			launches = failAt
			if c, err := computed(t.Context(), pl, m); err != nil || !bytes.Equal(c, want) {
				t.Errorf("%s, run after launch %d failed: error %v, right result: %v", name, failAt, err, bytes.Equal(c, want))
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// schedules builds schedules of several steps for the naive kernel, which supports all of them. The
// keys are names of the kinds of schedules.
var schedules = map[string]func(pl *Plan, slices []program.Span) *schedule{
	"panels": func(pl *Plan, slices []program.Span) *schedule {
		return pl.overlapped(order{slices, pl.host.M, true}, program.First(pl.host.M).Cut(ints.CeilDiv(pl.host.M, 5)))
	},
	"head": func(pl *Plan, slices []program.Span) *schedule {
		o := order{slices, ints.CeilDiv(pl.host.N, 3), false}
		return pl.overlapped(o, append(program.First(o.head).Cut(ints.CeilDiv(o.head, 2)),
			program.Range(o.head, pl.host.N)))
	},
	"blocks": func(pl *Plan, slices []program.Span) *schedule {
		return pl.blocked(order{slices, pl.host.M, true}, blocking{16, 16, [...]int{2, 1, 3}})
	},
}

// TestLessMemory reduces the device memory until a product no longer fits. As long as it fits in
// smaller parts, the result must be the same bit for bit. Then Run must return ErrOutOfMemory.
func TestLessMemory(t *testing.T) {
	rng := testrand.New(t)
	next := int64(2) // each size is next/3 of the one before
	if !testkit.Full() {
		next = 1
	}
	for _, beta := range []complex128{0, 0.5} {
		p, m := wholeNumbers(t, rng, 200, 150, 100, beta)
		a := dtype.View[float32](m[gemm.A])
		for i := range a {
			a[i] += rng.Float32() // sums are no longer exact, so the result depends on their order
		}
		var want []byte
		for memory, least := int64(1<<20), int64(4<<10); ; memory = memory * next / 3 {
			d, err := emu.Open(emu.Options{Memory: memory, Seed: rng.Uint64()})
			if err != nil {
				t.Fatal(err)
			}
			b := New(d)
			pl, err := b.Plan(p, exec.Options{Kernel: "naive"})
			if err != nil {
				t.Fatal(err)
			}
			o := pl.once()
			if sliceable(p) {
				o = order{program.First(p.K).Cut(30), 70, true}
			}
			pl.Steps = pl.overlapped(o, append(program.First(o.head).Cut(64), program.Range(o.head, p.M).Cut(64)...))
			c, err := computed(t.Context(), pl, m)
			if n := d.Used(); n != 0 {
				t.Errorf("%d bytes of memory: %d bytes leaked", memory, n)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if want == nil {
				want = c
			}
			if err != nil {
				if !errors.Is(err, sentinel.ErrOutOfMemory) || !errors.Is(err, device.ErrOutOfMemory) ||
					!strings.Contains(err.Error(), "smallest blocks") {
					t.Errorf("%d bytes of memory: error %v, want ErrOutOfMemory for the smallest blocks", memory, err)
				}
				if memory > 50<<10 {
					t.Errorf("%d bytes of memory are not enough, want at most 50 KiB: %v", memory, err)
				}
				t.Logf("beta %v: %v", beta, err)
				break
			}
			if !bytes.Equal(c, want) {
				t.Errorf("%d bytes of memory: the result differs from the result with 1 MiB", memory)
			}
			if memory < least {
				t.Fatalf("%d bytes of memory are enough, want ErrOutOfMemory", memory)
			}
		}
	}
}

// TestCompiledOnce checks that Compile loads all modules that a run in one step needs, so that Run
// loads no others.
func TestCompiledOnce(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, elem := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		loads := &loadCounter{Device: d}
		b, p := New(loads), testkit.Product(t, elem, elem, 40, 40, 40)
		plan, err := b.Plan(p, exec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Compile(t.Context()); err != nil {
			t.Fatal(err)
		}
		compiled := loads.count
		m := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()),
			gemm.C: make([]byte, p.C().Bytes())}
		if err := plan.Run(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if compiled == 0 || loads.count != compiled {
			t.Errorf("%v: Compile loaded %d modules, and Run loaded %d more", p, compiled, loads.count-compiled)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// loadCounter wraps a device and counts the modules that it loads.
type loadCounter struct {
	device.Device
	count int
}

func (l *loadCounter) Load(ctx context.Context, ptx string) (device.Module, error) {
	l.count++
	return l.Device.Load(ctx, ptx)
}
