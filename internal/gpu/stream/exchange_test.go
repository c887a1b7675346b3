package stream

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/program"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// team is several emulated GPUs, with the plans of parts of one product.
type team struct {
	backends []*Backend
	plans    []*Plan
	whole    *Plan // on the first GPU
}

func (x *team) close() error {
	var errs []error
	for _, b := range x.backends {
		errs = append(errs, b.Close(), b.Device.Close())
	}
	return errors.Join(errs...)
}

// newTeam divides p equally among n emulated GPUs, which open opens. All schedules keep A, B and C
// on the device; their steps are drawn from rng.
func newTeam(t *testing.T, rng *rand.Rand, p *gemm.Problem, n int, open func(emu.Options) device.Device) *team {
	t.Helper()
	x := &team{}
	for range n {
		x.backends = append(x.backends, New(open(emu.Options{Seed: rng.Uint64()})))
	}
	var err error
	if x.whole, err = x.backends[0].Plan(p, exec.Options{Kernel: "naive"}); err != nil {
		t.Fatal(err)
	}
	o := randomOrder(rng, x.whole)
	x.whole.Steps = x.whole.overlapped(o, append(program.First(o.head).Cut(16),
		program.Range(o.head, length(p, o)).Cut(16)...))
	rows, cols := 16*(1+rng.IntN(2)), 16*(1+rng.IntN(2))
	from := 0
	for i, b := range x.backends {
		on, err := x.whole.On(b)
		if err != nil {
			t.Fatal(err)
		}
		to := x.whole.Cut(float64(i+1) / float64(n))
		if to > from {
			part := on.Share(from, to, n)
			const all = 99
			part.Steps = part.blocked(o, blocking{rows, cols, [...]int{all, all, 1 + rng.IntN(3)}})
			x.plans = append(x.plans, part)
		}
		from = to
	}
	return x
}

func emulated(t *testing.T, o emu.Options) *emu.Device {
	t.Helper()
	d, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// length returns the length of the side of C that the head of an order is part of.
func length(p *gemm.Problem, o order) int {
	if o.byRows {
		return p.M
	}
	return p.N
}

// TestExchange divides products among emulated GPUs that check kernels for elements that have not
// arrived. The result must have the bits of one GPU. All but one of the GPUs must receive each byte
// of the operand that all need from another GPU.
func TestExchange(t *testing.T) {
	rng := testrand.New(t)
	exchanged, others := 0, 0
	for range testkit.Cases(30, 120) {
		kind := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16}[rng.IntN(3)]
		m, n, k := 1+rng.IntN(150), 1+rng.IntN(150), 1+rng.IntN(60)
		a, b, c := gemm.Dense(kind, m, k), gemm.Dense(kind, k, n), gemm.Dense(kind, m, n)
		if rng.IntN(2) == 0 {
			a = gemm.Dense(kind, k, m).T()
		}
		if rng.IntN(2) == 0 {
			b = gemm.Dense(kind, n, k).T()
		}
		a.LD, b.LD, c.LD = a.LD+rng.IntN(3), b.LD+rng.IntN(3), c.LD+rng.IntN(3)
		p, _, err := gemm.New(1, a, b, complex(float64(rng.IntN(2)), 0), c, gemm.Epilogue{Bias: gemm.BiasCol})
		if err != nil {
			t.Fatal(err)
		}
		data := testkit.Filled(rng, &p)
		x := newTeam(t, rng, &p, 2+rng.IntN(3), func(o emu.Options) device.Device {
			o.Watch = emu.Checking(check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}},
				func(r *check.Report) {
					for _, f := range r.Findings {
						t.Error(f.String())
					}
				})
			return emulated(t, o)
		})
		want, got := data, data
		want[gemm.C], got[gemm.C] = bytes.Clone(data[gemm.C]), bytes.Clone(data[gemm.C])
		if err := x.whole.Run(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if _, err := RunTogether(t.Context(), x.plans, got); err != nil {
			t.Fatalf("%v on %d GPUs: %v", &p, len(x.plans), err)
		}
		if !bytes.Equal(got[gemm.C], want[gemm.C]) {
			t.Errorf("%v on %d GPUs: other bits than on one GPU", &p, len(x.plans))
		}
		copied, shared := int64(0), m*k
		for _, to := range x.backends {
			for _, from := range x.backends {
				copied += to.Device.(*emu.Device).Copied(from.Device.(*emu.Device))
			}
		}
		if x.whole.dividesRows() {
			shared = k * n
		}
		if full := int64(len(x.plans)-1) * int64(kind.Bytes(shared)); copied == full && copied > 0 {
			exchanged++
		} else if others++; copied != 0 {
			t.Errorf("%v on %d GPUs: %d bytes copied between GPUs, want %d or none", &p, len(x.plans), copied, full)
		}
		if err := x.close(); err != nil {
			t.Error(err)
		}
	}
	if exchanged < others {
		t.Errorf("%d products exchanged pieces and %d did not, want most to", exchanged, others)
	}
}

// TestExchangeFaults fails each call of each device in turn. All plans must end, nothing may stay
// allocated, and the next run must succeed.
func TestExchangeFaults(t *testing.T) {
	rng := testrand.New(t)
	p := testkit.Product(t, dtype.F32, dtype.F32, 64, 32, 8)
	var all []*faulty.Device
	x := newTeam(t, rng, p, 2, func(o emu.Options) device.Device {
		all = append(all, faulty.New(emulated(t, o)))
		return all[len(all)-1]
	})
	failure := errors.New("failure")
	for broken, d := range all {
		for call := 1; ; call++ {
			d.Fail(call, failure)
			number, err := RunTogether(t.Context(), x.plans, testkit.Filled(rng, p))
			failed := d.FailedCall()
			d.Fail(0, nil)
			if failed != "" && (!errors.Is(err, failure) || number != broken) || failed == "" && err != nil {
				t.Errorf("call %d, %q, of device %d failed: error %v of device %d", call, failed, broken, err, number)
			}
			for i, d := range all {
				if left := slices.DeleteFunc(d.Leaks(), kept); len(left) > 0 {
					t.Errorf("call %d of device %d failed: left on device %d: %v", call, broken, i, left)
				}
			}
			if failed == "" {
				break
			}
		}
	}
	if err := x.close(); err != nil {
		t.Error(err)
	}
}

// TestExchangeCancel cancels a divided product at some point.
func TestExchangeCancel(t *testing.T) {
	rng := testrand.New(t)
	p := testkit.Product(t, dtype.F32, dtype.F32, 48, 32, 20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x := newTeam(t, rng, p, 3, func(o emu.Options) device.Device { return emulated(t, o) })
	if _, err := RunTogether(ctx, x.plans, testkit.Filled(rng, p)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if err := x.close(); err != nil {
		t.Error(err)
	}
}

// TestBreakdown measures products on 1 to 4 emulated GPUs. The times of each GPU must add up, and
// the copied bytes must be those of its schedule.
func TestBreakdown(t *testing.T) {
	rng := testrand.New(t)
	for _, n := range []int{1, 2, 3, 4} {
		for range testkit.Cases(3, 20) {
			p := testkit.Product(t, dtype.F32, dtype.F32, 40+rng.IntN(100), 40+rng.IntN(100), 1+rng.IntN(40))
			x := newTeam(t, rng, p, n, func(o emu.Options) device.Device { return emulated(t, o) })
			var devices []device.Device
			for _, pl := range x.plans {
				devices = append(devices, pl.Backend().Device)
			}
			all, err := timeline.Measure(t.Context(), devices, func(lines []*timeline.Timeline) error {
				var timed []*Plan
				for i, pl := range x.plans {
					part := *pl
					part.Timeline = lines[i]
					timed = append(timed, &part)
				}
				_, err := RunTogether(t.Context(), timed, testkit.Filled(rng, p))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			whole, err := x.whole.RunBreakdown(t.Context(), testkit.Filled(rng, p))
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range append(all, whole) {
				pl := append(x.plans, x.whole)[i]
				work := pl.Schedule().program
				in, out := work.Bytes(program.Load, program.Copy), work.Bytes(program.Store)
				peers := 0
				for _, from := range x.backends {
					peers += int(pl.Backend().Device.(*emu.Device).Copied(from.Device.(*emu.Device)))
				}
				if i == len(x.plans) {
					peers = 0 // one GPU
				}
				if s.FromHost+s.FromGPUs != in || s.ToHost != out || s.FromGPUs != peers {
					t.Errorf("%v on %d GPUs: %+v, want %v bytes in, %d of them from GPUs, and %v out", p, n, s, in, peers, out)
				}
				if sum := s.Compute + s.Copies + s.Waiting; math.Abs(sum-s.Seconds) > 1e-9 || s.Compute <= 0 || s.Waiting < 0 ||
					s.Copies+s.Overlapped <= 0 {
					t.Errorf("%v on %d GPUs: %+v, want times above zero that add up", p, n, s)
				}
			}
			if err := x.close(); err != nil {
				t.Error(err)
			}
		}
	}
}
