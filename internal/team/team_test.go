package team

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/device/faulty"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/ref"
	"tilework/internal/sentinel"
	"tilework/internal/split"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ranks"
)

// each calls f for n ranks at the same time and returns the errors.
func each(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() { errs[r] = f(r) })
	}
	all.Wait()
	return errs
}

// joined returns a group of n ranks of this process.
func joined(t testing.TB, n int, timeout time.Duration) []*ranks.Group {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*ranks.Group, n)
	if err := errors.Join(each(n, func(r int) (err error) {
		c := ranks.Config{Rank: r, Size: n, Address: listener.Addr().String(), Timeout: timeout}
		if r == 0 {
			c.Listener = listener
		}
		all[r], err = ranks.Join(t.Context(), c)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range all {
			g.Close()
		}
	})
	return all
}

// teams opens a device at each of n ranks. Matrices are divided at every row, and panels are small.
func teams(t testing.TB, n int, device string) []*Team {
	t.Helper()
	return teamsOn(t, slices.Repeat([]string{device}, n))
}

// teamsOn is teams with the devices of the ranks.
func teamsOn(t testing.TB, devices []string) []*Team {
	t.Helper()
	n := len(devices)
	groups, all := joined(t, n, 20*time.Second), make([]*Team, n)
	if err := errors.Join(each(n, func(r int) (err error) {
		if all[r], err = Open(t.Context(), groups[r], devices[r]); err == nil {
			all[r].unit, all[r].panelBytes = 1, 1<<10
		}
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(each(n, func(r int) error { return all[r].Close() })...); err != nil {
			t.Error(err)
		}
	})
	return all
}

// example is a product with the whole operands in host memory.
type example struct {
	gemm.Problem
	memory gemm.Buffers
	by     [gemm.Operands]split.By
}

// random returns a random product. Its sums are exact if exact is set.
func random(t testing.TB, rng *rand.Rand, elem dtype.Type, most int, exact bool) *example {
	t.Helper()
	m, n, k := 1+rng.IntN(most), 1+rng.IntN(most), 1+rng.IntN(most)
	layout := func(rows, cols int) gemm.Layout {
		if rng.IntN(2) == 0 {
			return gemm.Padded(gemm.Dense(elem, cols, rows)).T()
		}
		return gemm.Padded(gemm.Dense(elem, rows, cols))
	}
	e, beta := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))}, complex(float64(rng.IntN(2)), 0)
	gated := rng.IntN(4) == 0
	if gated {
		e, beta = gemm.Epilogue{Gated: true}, 0
	}
	p, _, err := gemm.New(complex(float64(1+rng.IntN(2)), 0), layout(m, k), layout(k, n), beta,
		gemm.Padded(gemm.Dense(elem, m, n)), e)
	switch {
	case err == nil && gated:
		p.Layouts[gemm.Up] = *p.B()
		_, err = p.Complete()
	case err == nil && rng.IntN(3) == 0:
		p.Epilogue.Residual = true
		p.Layouts[gemm.Residual] = gemm.Padded(gemm.Dense(elem, m, n))
		_, err = p.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	x := &example{Problem: p}
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		l := p.Layout(o)
		x.by[o] = split.By(rng.IntN(3))
		x.memory[o] = dtype.Bytes(make([]float64, l.Bytes()/8+1))[:l.Bytes()]
		for i := range l.Len() {
			v := rng.NormFloat64()
			if exact {
				v = float64(rng.IntN(7) - 3)
			}
			l.Type.Set(x.memory[o], i, v)
		}
	}
	return x
}

// square returns a product of n×n matrices of float32.
func square(t testing.TB, n int) *example {
	t.Helper()
	l := gemm.Padded(gemm.Dense(dtype.F32, n, n))
	p, _, err := gemm.New(1, l, l, 0, l, gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	x := &example{Problem: p}
	for o := range gemm.Bias {
		if p.Uses(o) {
			x.memory[o] = dtype.Bytes(make([]float64, l.Bytes()/8+1))[:l.Bytes()]
		}
	}
	return x
}

// matrices makes the matrices of the product on a team, with this rank's parts of x.
func (x *example) matrices(ctx context.Context, t *Team) (p *Job, err error) {
	p = &Job{Problem: x.Problem}
	for o := range gemm.Operands {
		if !x.Uses(o) {
			continue
		}
		if o > gemm.Up {
			p.Operands[o].Host = x.memory[o]
			continue
		}
		l := x.Layout(o)
		stored := l
		stored.Trans = false
		m, err := t.New(stored, x.by[o])
		if err != nil {
			return nil, err
		}
		at := m.Memory.own()
		if !at.Empty() {
			if err := m.CopyIn(ctx, x.memory[o][l.Type.Bytes(at.Rows.From*l.LD+at.Cols.From):], l); err != nil {
				return nil, err
			}
		}
		m.Layout.Trans = l.Trans
		p.Operands[o].On = m
	}
	return p, nil
}

// result copies this rank's part of C into whole, which has the layout of C.
func (x *example) result(ctx context.Context, p *Job, whole []byte) error {
	m := p.Operands[gemm.C].On
	at, l := m.Memory.own(), *x.C()
	if at.Empty() {
		return nil
	}
	return m.CopyOut(ctx, whole[l.Type.Bytes(at.Rows.From*l.LD+at.Cols.From):], l)
}

// compute computes the product on all ranks and returns C, as each rank stores it.
func (x *example) compute(t testing.TB, all []*Team) []byte {
	t.Helper()
	parts := make([][]byte, len(all))
	if err := errors.Join(each(len(all), func(r int) error {
		p, err := x.matrices(t.Context(), all[r])
		if err == nil {
			err = all[r].Gemm(t.Context(), p, nil)
		}
		if err == nil {
			parts[r] = make([]byte, x.C().Bytes())
			err = x.result(t.Context(), p, parts[r])
		}
		for _, o := range p.Operands {
			if o.On.Memory != nil {
				err = errors.Join(err, o.On.Memory.Close())
			}
		}
		return err
	})...); err != nil {
		t.Fatalf("%v: %v", &x.Problem, err)
	}
	whole := make([]byte, x.C().Bytes())
	l := x.C()
	parted := split.Even(x.by[gemm.C], l.Rows, l.Cols, all[0].weights, all[0].unit)
	for r := range all {
		part := parted.Part(r)
		for i := part.Rows.From; i < part.Rows.To; i++ {
			from, to := l.Type.Bytes(i*l.LD+part.Cols.From), l.Type.Bytes(i*l.LD+part.Cols.To)
			if x.by[gemm.C] == split.OnEach && r > 0 && !slices.Equal(whole[from:to], parts[r][from:to]) {
				t.Fatalf("%v: ranks 0 and %d have other copies of row %d of C", &x.Problem, r, i)
			}
			copy(whole[from:to], parts[r][from:to])
		}
	}
	return whole
}

// TestGemm computes random products on several ranks with every division, on the CPU and on
// emulated GPUs, and compares them with the reference.
func TestGemm(t *testing.T) {
	rng := testrand.New(t)
	for _, device := range []string{"cpu", "emu"} {
		for _, n := range []int{1, 2, 3, 4} {
			all := teams(t, n, device)
			products := 4
			if device == "cpu" {
				products = 20
			}
			for range testkit.Short(products) {
				elem := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16}[rng.IntN(3)]
				x := random(t, rng, elem, 90, true)
				want := ref.Gemm(&x.Problem, x.memory)
				for pick := range 3 + rng.IntN(3) {
					for _, team := range all {
						team.pick = func(plans []split.Division) int { return pick * 7 % len(plans) }
						clear(team.divisions)
					}
					c := x.compute(t, all)
					if err := want.Exactly(c); err != nil {
						t.Errorf("%d ranks on %s, division %d of %v, %v: %v", n, device, pick, &x.Problem, x.by, err)
					}
				}
			}
		}
	}
}

// TestBits compares products of random numbers on several ranks with the same product on one.
func TestBits(t *testing.T) {
	rng := testrand.New(t)
	for _, device := range []string{"cpu", "emu"} {
		one := teams(t, 1, device)
		for _, n := range []int{2, 4} {
			all := teams(t, n, device)
			products := 3
			if device == "cpu" {
				products = 20
			}
			if testkit.Full() {
				products *= 5
			}
			for range testkit.Short(products) {
				x := random(t, rng, []dtype.Type{dtype.F32, dtype.F64, dtype.BF16}[rng.IntN(3)], 150, false)
				if got, want := x.compute(t, all), x.compute(t, one); !slices.Equal(got, want) {
					t.Errorf("%d ranks on %s, %v, %v: other bits than one rank", n, device, &x.Problem, x.by)
				}
			}
		}
	}
}

// TestRecent checks that the ranks plan a product once: the next ones with other matrices of the
// same shapes need one exchange, and have the same bits. Other factors and layouts are planned.
func TestRecent(t *testing.T) {
	all := teams(t, 3, "cpu")
	x := square(t, 100)
	rng := testrand.New(t)
	for o := range gemm.C {
		for i := range x.Layout(o).Len() {
			x.Layout(o).Type.Set(x.memory[o], i, rng.NormFloat64())
		}
	}
	var first []byte
	for i, test := range []struct {
		change           func()
		agreed, gathered int
	}{
		{func() {}, 2, 1},
		{func() {}, 1, 0},
		{func() { x.Alpha = 2 }, 2, 1},
		{func() { x.by[gemm.B] = split.OnEach }, 2, 1},
		{func() {}, 1, 0},
		{func() { x.Alpha = 1 }, 2, 1},
		{func() { x.by[gemm.B] = split.Rows }, 1, 0},
	} {
		test.change()
		agreed, gathered := all[1].agreements, all[1].exchanges
		c := x.compute(t, all)
		agreed, gathered = all[1].agreements-agreed, all[1].exchanges-gathered
		if agreed != test.agreed || gathered != test.gathered {
			t.Errorf("product %d: %d agreements and %d other exchanges, want %d and %d", i, agreed, gathered, test.agreed,
				test.gathered)
		}
		if first == nil {
			first = c
		}
		if x.Alpha == 1 && !slices.Equal(c, first) {
			t.Errorf("product %d: other bits than the first", i)
		}
	}
}

// TestHang makes the device of a rank hang in each call that waits for it, and cancels the product
// at this rank. All ranks must end, with an error that names it unless they need nothing from it.
// The device's memory must stay allocated, because it may still write there.
func TestHang(t *testing.T) {
	x := square(t, 64)
	x.by[gemm.C] = split.OnEach
	cancelled := 0
	for n, failed := 1, "yes"; failed != ""; n++ {
		var below [3]*faulty.Device
		restore := gpu.Substitute(func(d backend.DeviceName) (device.Device, error) {
			inner, err := emu.Open(emu.Options{Seed: uint64(n + d.Index)})
			below[d.Index] = faulty.New(inner)
			return below[d.Index], err
		})
		all := teamsOn(t, []string{"gpu:0", "gpu:1", "gpu:2"})
		all[1].drainTimeout = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		errs := each(len(all), func(r int) error {
			p, err := x.matrices(t.Context(), all[r])
			if err != nil || r != 1 {
				return errors.Join(err, all[r].Gemm(t.Context(), p, nil))
			}
			below[1].Hang(n, cancel)
			return all[1].Gemm(ctx, p, nil)
		})
		cancel()
		closed := each(len(all), func(r int) error { return all[r].Close() })
		failed = below[1].FailedCall()
		for r, err := range errs {
			switch {
			case r == 1 && err != nil && !errors.Is(err, context.Canceled),
				r != 1 && err != nil && err.Error() != "rank 1 was interrupted":
				t.Errorf("%s hung: rank %d: error %v, want that rank 1 was cancelled", failed, r, err)
			case (r == 1 && failed != "") != errors.Is(closed[r], sentinel.ErrNoDevice):
				t.Errorf("%s hung: rank %d: Close returned %v", failed, r, closed[r])
			}
		}
		if freed := below[1].Counts()["Free"]; errs[1] != nil && freed > 0 {
			t.Errorf("%s hung: %d blocks of memory were freed", failed, freed)
		}
		if errs[1] != nil {
			cancelled++
		}
		below[1].Fail(0, nil)
		if err := restore(); err != nil {
			t.Error(err)
		}
	}
	if cancelled < 10 {
		t.Errorf("%d products were cancelled, want at least 10", cancelled)
	}
}

// TestWhyNoNCCL checks the reasons for which ranks use TCP.
func TestWhyNoNCCL(t *testing.T) {
	gpu := func(name, version string) member { return member{GPU: name, NCCL: version, Reason: "not installed"} }
	for want, all := range map[string][]member{
		"":                          {gpu("a 1", "2.27.3"), gpu("a 2", "2.27.3"), gpu("b 1", "2.26.0")},
		"rank 1: not installed":     {gpu("a 1", "2.27.3"), gpu("a 2", "")},
		`rank 0: \x1b[31mred\n`:     {{Reason: "\x1b[31mred\n"}},
		"ranks 0 and 2 share a GPU": {gpu("a 1", "2.27.3"), gpu("a 2", "2.27.3"), gpu("a 1", "2.27.3")},
	} {
		if got := whyNoNCCL(all); got != want {
			t.Errorf("%v: %q, want %q", all, got, want)
		}
	}
}
