package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device"
	emulator "tilework/internal/device/emu"
	"tilework/internal/gemm"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// onEmulator returns a bencher that counts instructions, memory accesses and bank conflicts of
// products. It opens an emulated GPU of its own, whose launches a tally observes.
func (f *benchFlags) onEmulator(ctx context.Context, at backend.DeviceName, problems []gemm.Problem,
	stderr io.Writer) (bencher, error) {
	if f.cold.value {
		return bencher{}, fmt.Errorf("--cold: an emulated GPU has no caches (want --device cpu or gpu)")
	}
	t := new(tally)
	options := emulator.Options{Watch: t.watch}
	if at.Model != "" {
		m, err := model.Lookup(at.Model)
		if err != nil {
			return bencher{}, fmt.Errorf("--device %s: %w", f.device, err)
		}
		options.Model = m
	}
	dev, err := emulator.Open(options)
	if err != nil {
		return bencher{}, fmt.Errorf("--device %s: %w", f.device, err)
	}
	backend := stream.New(dev)
	release := func() error { return device.Join(backend.Close(), dev.Close()) }
	return f.onDevice(ctx, at, backend, release, problems, stderr,
		func(ctx context.Context, d device.Device, c bench.Case, kernels, peers []bench.DeviceSubject,
			o bench.Options) ([]bench.Record, error) {
			return bench.CountOn(ctx, d, c, kernels, peers, t.counter(&c.Problem), o)
		})
}

// tally adds up the counters of the launches of a product.
type tally struct {
	mu       sync.Mutex
	integers bool // the current product sums integers
	sum      bench.Counts
}

// counter returns a [bench.Counter] for products like p.
func (t *tally) counter(p *gemm.Problem) bench.Counter {
	return func(product func() error) (*bench.Counts, error) {
		t.mu.Lock()
		t.sum = bench.Counts{Historic: new(bench.HistoricCounts)}
		t.integers = p.Accum().Info().Integer
		t.mu.Unlock()
		if err := product(); err != nil {
			return nil, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		sum := t.sum
		return &sum, nil
	}
}

// watch adds an observer to l that counts. It leaves out the checkers for faults, with which a
// launch takes several times as long; `tilework emulate` and the tests run those.
func (t *tally) watch(l *emu.Launch) emulator.Done {
	checks := check.New(check.Options{Only: []check.Checker{check.Count}, Historic: true})
	l.Observers = append(l.Observers, checks)
	return func(p *emu.Program, s emu.Stats, err error) error {
		if err == nil {
			t.add(s, &checks.Report(p, s, nil).Counts)
		}
		return err
	}
}

// add adds the counters of a launch to the sum.
func (t *tally) add(s emu.Stats, counts *check.Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.sum
	c.Instructions += int64(s.Instructions)
	c.Issued += counts.Operations(t.integers)
	c.DistinctSectors += counts.DistinctSectors
	for i := range counts.Global {
		g := &counts.Global[i]
		switch g.Direction {
		case check.Load:
			c.LoadBytes += g.RequestedBytes
		case check.Store:
			c.StoreBytes += g.RequestedBytes
		}
		c.Sectors += g.Sectors
		c.IdealSectors += g.Ideal
		c.Historic.HalfWarps += g.HalfWarps
		c.Historic.Transactions += g.Transactions
	}
	for i := range counts.Shared {
		s := &counts.Shared[i]
		if s.Direction != check.Atomic {
			c.SharedRequests += s.Requests
		}
		c.Wavefronts += s.Wavefronts
		c.IdealWavefronts += s.Ideal
		c.Historic.Wavefronts += s.HistoricWavefronts
		c.Historic.IdealWavefronts += s.HistoricIdeal
	}
}
