package gpu

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"tilework/gemmtest"
	"tilework/internal/device"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/model"
	"tilework/ptx/emu/check"
)

// shapes are those of a list of a kernel's, and the smallest with clusters of both kinds, if
// it can have them, and with K split, so that parts have all sizes.
// The short test takes the smallest alone, whole and split once: what it looks for is in
// every shape.
func shapes(k *Kernel, list []Shape) []Shape {
	parts := []int{2, 5, 40}
	s := list[len(list)-1]
	if testing.Short() {
		list, parts = []Shape{s}, []int{5}
	}
	if k.clusters() {
		pair := Shape{M: 128, N: 128, K: s.K, RowsPerThread: 4, ColsPerThread: 32, Stages: 3, Cluster: 2}
		along := Shape{M: 16, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, Along: 2}
		three := Shape{M: 192, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, Cluster: 2} // warpgroups; B's boxes are halved
		few := Shape{M: 32, N: 16, K: s.K, RowsPerThread: 2, ColsPerThread: 4, Stages: 3}                 // of both sides
		list = append(append([]Shape{three, few}, list...), pair, along)
	}
	if k.splits {
		for _, s.Split = range parts {
			list = append(slices.Clip(list), s)
		}
	}
	return list
}

// smallest are the last of a kernel's shapes: the smallest, with clusters and with K split.
func smallest(list []Shape) []Shape { return list[max(len(list)-6, 0):] }

// emulable are a kernel's shapes whose blocks the emulator runs in some tenths of a second.
// Larger ones of tensor cores hold nothing but more of the same warps, or warpgroups.
func emulable(k *Kernel) []Shape {
	most := 64 * 64 // elements of a tile
	if k.boxed {
		most = 128 * 128
	}
	return slices.DeleteFunc(slices.Clone(k.Shapes()), func(s Shape) bool { return k.Tensor && s.M*s.N > most })
}

// fewSMs is an emulated H200 of which little is left, so that blocks that stay on their SM
// have more than one tile.
func fewSMs(t *testing.T, o emu.Options) *emu.Device {
	t.Helper()
	h200, err := model.Lookup("h200")
	if err != nil {
		t.Fatal(err)
	}
	few := *h200
	few.SMs = 3
	o.Model = &few
	d, err := emu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// cases is how many of n cases a shape of k is given, so that no kernel has more than
// the others, and in the short test no shape more than in the long one.
func cases(n int, k *Kernel) int { return max(n/len(emulable(k)), 1) }

// TestConformance: every kernel multiplies as it should and frees what it takes, in its
// smallest shape, whole and split; TestChecked takes all shapes.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("TestChecked multiplies the same, under the checkers")
	}
	for _, k := range Kernels() {
		for _, s := range smallest(shapes(k, emulable(k))) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := fewSMs(t, emu.Options{})
				conform(t, d, cases(50, k), Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true}, gemm.Native)
				if n := d.Used(); n != 0 {
					t.Errorf("%d bytes are still allocated", n)
				}
			})
		}
	}
}

// TestPrecisions: in other arithmetic than the elements' own a kernel multiplies as it says,
// under the checkers too.
func TestPrecisions(t *testing.T) {
	for _, k := range Kernels() {
		for _, precision := range gemm.Precisions() {
			if len(k.others[precision]) == 0 {
				continue
			}
			p := precise(t, precision)
			fitting := slices.DeleteFunc(emulable(k), func(s Shape) bool { return k.Fits(p, s) != nil })
			list := smallest(shapes(k, fitting))
			if testing.Short() {
				list = list[:1]
			}
			for _, s := range list {
				t.Run(fmt.Sprintf("%s:%v in %v", k.Name, s, precision), func(t *testing.T) {
					t.Parallel()
					d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
					conform(t, d, 8, Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true}, precision)
				})
			}
		}
	}
}

// precise is a product in a precision.
func precise(t *testing.T, precision gemm.Precision) *gemm.Problem {
	t.Helper()
	in := precision.Info().For[0]
	l := gemm.Dense(in, 64, 64)
	p, _, err := gemm.New(1, l, l, 0, gemm.Dense(in.Info().Results[0], 64, 64), gemm.Epilogue{})
	if err == nil {
		p, err = p.In(precision)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestOlder: a kernel that has better instructions for newer GPUs multiplies as it
// should without them.
func TestOlder(t *testing.T) {
	for _, k := range Kernels() {
		if len(k.better) == 0 {
			continue
		}
		m, err := model.Lookup(fmt.Sprintf("sm_%d", k.SM))
		if err != nil {
			t.Fatal(err)
		}
		s := k.Shapes()[len(k.Shapes())-1]
		t.Run(k.Name+":"+s.String(), func(t *testing.T) {
			t.Parallel()
			d, err := emu.Open(emu.Options{Model: m})
			if err != nil {
				t.Fatal(err)
			}
			conform(t, d, cases(50, k), Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true}, gemm.Native)
		})
	}
}

// checked is an emulated GPU on which a finding is an error of the test.
func checked(t *testing.T, o check.Options) *emu.Device {
	t.Helper()
	return fewSMs(t, emu.Options{Watch: emu.Checking(o, func(r *check.Report) {
		for _, f := range r.Findings {
			t.Error(f.String())
		}
	})})
}

// TestChecked: every kernel passes under the checkers, and none of them finds anything:
// no race, no divergent barrier, no access that leaves a matrix, no read of what nobody
// wrote.
func TestChecked(t *testing.T) {
	for _, k := range Kernels() {
		for _, s := range shapes(k, emulable(k)) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				d := checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds, check.Uninit}})
				conform(t, d, cases(25, k), Options{Kernel: k.Name, Shape: s.String(), KeepLayout: true}, gemm.Native)
			})
		}
	}
}

// TestLimits: on full tiles no access to memory costs more than the kernel declares.
func TestLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("the checkers that it needs run in TestChecked, too")
	}
	for _, k := range Kernels() {
		for _, s := range emulable(k) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				for _, pair := range gemmtest.Pairs() {
					for trans := range 4 {
						m, n, depth := s.M, max(s.N, 32), max(2*s.K, 32)
						if trans&1 != 0 {
							m = max(m, 32)
						}
						a, b := gemm.Dense(pair.In, m, depth), gemm.Dense(pair.In, depth, n)
						if trans&1 != 0 {
							a = gemm.Dense(pair.In, depth, m).T()
						}
						if trans&2 != 0 {
							b = gemm.Dense(pair.In, n, depth).T()
						}
						if pair.Out != pair.In.Info().Results[0] {
							continue // what differs is a store that other types have too
						}
						p, _, err := gemm.New(1, a, b, 1, gemm.Dense(pair.Out, m, n), gemm.Epilogue{})
						if err != nil {
							t.Fatal(err)
						}
						for _, precision := range k.Precisions() {
							if q, err := p.In(precision); err == nil && (k.Supports(&p) != nil || k.Fits(&p, s) != nil) {
								p = q // what it does in no other way
							}
						}
						if k.Supports(&p) != nil || k.Fits(&p, s) != nil {
							continue
						}
						l := k.Limits(k.Config(&p, s))
						d := checked(t, check.Options{MaxConflicts: l.Conflicts, MaxScatter: l.Scatter})
						plan, err := New(d).Plan(&p, Options{Kernel: k.Name, Shape: s.String()})
						if err != nil {
							t.Fatal(err)
						}
						err = plan.Run(t.Context(), gemm.Buffers{A: make([]byte, a.Bytes()), B: make([]byte, b.Bytes()), C: make([]byte, p.C.Bytes())})
						if err != nil {
							t.Error(err)
						}
						if t.Failed() {
							t.Fatalf("%v", plan.Config)
						}
					}
				}
			})
		}
	}
}

// conform runs the suite through the seam, with so many cases if TILEWORK_CASES does
// not say: emulated products take their time.
func conform(t *testing.T, d device.Device, cases int, opt Options, precision gemm.Precision) {
	b := New(d)
	k, err := Find(opt.Kernel)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.ParseShape(opt.Shape)
	if err != nil {
		t.Fatal(err)
	}
	in := func(p *gemmtest.Problem) *gemmtest.Problem {
		q := *p
		q.Precision = precision
		return &q
	}
	gemmtest.Run(t, gemmtest.Implementation{
		Name: opt.Kernel + ":" + opt.Shape,
		Gemm: func(ctx context.Context, p *gemmtest.Problem, m gemmtest.Buffers) error {
			plan, err := b.Plan(in(p), opt)
			if err != nil {
				return err
			}
			return plan.Run(ctx, m)
		},
		Supports:   func(p *gemmtest.Problem) bool { return k.Supports(in(p)) == nil && k.Fits(in(p), s) == nil },
		Accuracy:   func(p *gemmtest.Problem) gemmtest.Accuracy { return k.Accuracy(in(p)) },
		Tiles:      []int{s.M, s.N, max(s.K, 1)},
		Volume:     1 << 17,
		Cases:      cases,
		Concurrent: true,
		Cancels:    true,
	})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
