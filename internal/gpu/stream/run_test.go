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
	"tilework/internal/testkit"
	ptxemu "tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// randomSchedule is one of many steps, for sides of a few dozen.
func randomSchedule(rng *rand.Rand, pl *Plan) *schedule {
	o := randomOrder(rng, pl)
	unit := kernel.MaxVectorBytes
	if pl.host.BlockScaled() {
		unit = gemm.ScaleBlock
	}
	some := func() int { return unit * (1 + rng.IntN(3)) }
	if pl.host.Epilogue.Gated || rng.IntN(3) == 0 { // what the first factor's sums are in belongs to one stream
		return pl.streamed(o, some(), some())
	}
	side := pl.host.M
	if !o.byRows {
		side = pl.host.N
	}
	return pl.overlapped(o, append(cutSpan(span{0, o.head}, some()), cutSpan(span{o.head, side}, some())...))
}

// randomOrder cuts at whole vectors, as units does.
func randomOrder(rng *rand.Rand, pl *Plan) order {
	p := pl.host
	o := order{[]span{{0, p.K}}, p.M, rng.IntN(2) == 0}
	if !o.byRows {
		o.head = p.N
	}
	if sliceable(p) && p.K > 1 {
		o.slices = cutSpan(span{0, p.K}, kernel.MaxVectorBytes*(1+rng.IntN(kernel.CeilDiv(p.K, kernel.MaxVectorBytes))))
		o.head = min(kernel.MaxVectorBytes*(1+rng.IntN(kernel.CeilDiv(o.head, kernel.MaxVectorBytes))), o.head)
	}
	return o
}

// forced is a plan with a random schedule, the same for the same product.
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

// TestOverlapConformance: whatever the schedule, products are as they should be, on a
// device that does what streams are asked for in any order that their waits allow, with
// the checkers watching.
func TestOverlapConformance(t *testing.T) {
	cases := 60
	if !testkit.Full() {
		cases = 15
	}
	for _, opt := range []exec.Options{{Kernel: "naive"}, {Kernel: "blocked", Shape: "64x64x8/8x4/4"}, {Kernel: "tiled", Shape: "8", KeepLayout: true}} {
		t.Run(opt.Kernel, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
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
				t.Errorf("%d bytes are still allocated", n)
			}
			t.Logf("%d steps", steps.Load())
		})
	}
}

// wholeNumbers is a random product of small whole numbers, its memory and its result.
func wholeNumbers(t *testing.T, rng *rand.Rand, m, n, k int, beta float64) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	p, _, err := gemm.New(2, gemm.Dense(dtype.F32, k, m).T(), gemm.Dense(dtype.F32, k, n), beta, gemm.Dense(dtype.F32, m, n), gemm.Epilogue{Bias: gemm.BiasCol})
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

// computed is C after a run, which starts from the C of the buffers.
func computed(ctx context.Context, pl *Plan, b gemm.Buffers) ([]byte, error) {
	b[gemm.C] = bytes.Clone(b[gemm.C])
	err := pl.Run(ctx, b)
	return b[gemm.C], err
}

// wanted is C as a product in one step makes it.
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

// tapped is a device whose calls can be listened to, and the waits left out.
type tapped struct {
	device.Device
	call func(what string) (do bool)
}

func (d *tapped) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	return &tappedStream{s, d}, err
}

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

// TestWaitsAreNeeded: a schedule without any one of its waits fails on some order of
// work. The first, for memory that another product may still use, is not among them: the
// emulator never uses an address twice.
func TestWaitsAreNeeded(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p, m := wholeNumbers(t, rng, 40, 32, 24, 0)
	want := wanted(t, p, m)
	for name, build := range schedules {
		run := func(seed uint64, without int64) (waits int64, right bool) {
			d, err := emu.Open(emu.Options{Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			var n atomic.Int64
			tap := &tapped{d, func(what string) bool { return what != "wait" || n.Add(1) != without }}
			b := New(tap)
			pl, err := b.Plan(p, exec.Options{Kernel: "naive"})
			if err != nil {
				t.Fatal(err)
			}
			pl.Steps = build(pl, cutSpan(span{0, p.K}, 12))
			c, err := computed(t.Context(), pl, m)
			return n.Load(), err == nil && bytes.Equal(c, want)
		}
		waits, right := run(seed, 0)
		if !right {
			t.Fatalf("%s: wrong with all waits", name)
		}
		for without := int64(2); without <= waits; without++ {
			i, found := seed, false
			for ; !found && i < seed+400; i++ {
				_, right := run(i, without)
				found = !right
			}
			t.Logf("%s: without wait %d of %d wrong in run %d", name, without, waits, i-seed)
			if !found {
				t.Errorf("%s: wait %d of %d is never missed", name, without, waits)
			}
		}
	}
}

// TestOverlapCancelled: a context that ends at any call ends the product, nothing stays
// allocated, and the next product is right.
func TestOverlapCancelled(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
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
		pl.Steps = build(pl, cutSpan(span{0, p.K}, p.K))
		for at = 1; ; at++ {
			ctx, stop := context.WithCancel(t.Context())
			cancel, calls = stop, 0
			c, err := computed(ctx, pl, m)
			stop()
			if calls < at {
				if err != nil || !bytes.Equal(c, want) {
					t.Errorf("%s, never cancelled: %v, right: %v", name, err, bytes.Equal(c, want))
				}
				break
			}
			if err == nil && !bytes.Equal(c, want) || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, cancelled at call %d: %v", name, at, err)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%s, cancelled at call %d: %d bytes are left", name, at, n)
			}
		}
		if at < 20 {
			t.Errorf("%s: only %d calls", name, at)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOverlapLaunchFails: whichever step's kernel fails while it runs, the product does,
// and the next one is right.
func TestOverlapLaunchFails(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p, m := wholeNumbers(t, rand.New(rand.NewPCG(seed, 0)), 40, 32, 24, 0.5)
	want := wanted(t, p, m)
	for name, build := range schedules {
		broken := errors.New("broken on purpose")
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
		pl.Steps = build(pl, cutSpan(span{0, p.K}, p.K))
		for failAt = 1; failAt <= len(pl.Steps.steps); failAt++ {
			launches = 0
			if _, err := computed(t.Context(), pl, m); !errors.Is(err, device.ErrLaunch) || !errors.Is(err, broken) {
				t.Errorf("%s, launch %d: %v", name, failAt, err)
			}
			if n := d.Used(); n != 0 {
				t.Errorf("%s, launch %d: %d bytes are left", name, failAt, n)
			}
			launches = failAt
			if c, err := computed(t.Context(), pl, m); err != nil || !bytes.Equal(c, want) {
				t.Errorf("%s, after launch %d: %v, right: %v", name, failAt, err, bytes.Equal(c, want))
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// schedules are schedules of several steps for the naive kernel, which takes any.
var schedules = map[string]func(pl *Plan, slices []span) *schedule{
	"panels": func(pl *Plan, slices []span) *schedule {
		return pl.overlapped(order{slices, pl.host.M, true}, cutSpan(span{0, pl.host.M}, kernel.CeilDiv(pl.host.M, 5)))
	},
	"head": func(pl *Plan, slices []span) *schedule {
		o := order{slices, kernel.CeilDiv(pl.host.N, 3), false}
		return pl.overlapped(o, append(cutSpan(span{0, o.head}, kernel.CeilDiv(o.head, 2)), span{o.head, pl.host.N}))
	},
	"streamed": func(pl *Plan, slices []span) *schedule {
		return pl.streamed(order{slices, pl.host.M, true}, kernel.CeilDiv(pl.host.M, 2), kernel.CeilDiv(pl.host.N, 2))
	},
}

// TestLessMemory: a device with too little memory for the whole product computes it in
// smaller parts, bit by bit alike, down to the smallest, and then says so.
func TestLessMemory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	next := int64(2) // thirds
	if !testkit.Full() {
		next = 1
	}
	for _, beta := range []float64{0, 0.5} {
		p, m := wholeNumbers(t, rng, 200, 150, 100, beta)
		a := dtype.View[float32](m[gemm.A])
		for i := range a {
			a[i] += rng.Float32() // no longer exact: the order of sums shows
		}
		var want []byte
		for memory, least := int64(1<<20), int64(4<<10); ; memory = memory * next / 3 {
			d, err := emu.Open(emu.Options{Memory: memory, Seed: seed})
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
				o = order{cutSpan(span{0, p.K}, 30), 70, true}
			}
			pl.Steps = pl.overlapped(o, append(cutSpan(span{0, o.head}, 64), cutSpan(span{o.head, p.M}, 64)...))
			c, err := computed(t.Context(), pl, m)
			if n := d.Used(); n != 0 {
				t.Errorf("%d bytes of memory: %d are left", memory, n)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if want == nil {
				want = c
			}
			if err != nil {
				if !errors.Is(err, gemm.ErrOutOfMemory) || !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "smallest parts") {
					t.Errorf("%d bytes of memory: %v", memory, err)
				}
				if memory > 50<<10 {
					t.Errorf("%d bytes of memory are not enough: %v", memory, err)
				}
				t.Logf("beta %v: %v", beta, err)
				break
			}
			if !bytes.Equal(c, want) {
				t.Errorf("%d bytes of memory: other bits", memory)
			}
			if memory < least {
				t.Fatalf("%d bytes of memory are enough", memory)
			}
		}
	}
}

// TestCompiledOnce: what a plan compiles is what a product in one step runs.
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
		m := gemm.Buffers{gemm.A: make([]byte, p.A().Bytes()), gemm.B: make([]byte, p.B().Bytes()), gemm.C: make([]byte, p.C().Bytes())}
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

// loadCounter counts the modules that are loaded on a device.
type loadCounter struct {
	device.Device
	count int
}

func (l *loadCounter) Load(ctx context.Context, ptx string) (device.Module, error) {
	l.count++
	return l.Device.Load(ctx, ptx)
}
