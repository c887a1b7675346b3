package main

import (
	"context"
	"fmt"
	"io"
	"sync"

	"tilework/internal/bench"
	"tilework/internal/device"
	emulator "tilework/internal/device/emu"
	"tilework/internal/dispatch"
	"tilework/internal/explain"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// onEmulator counts what products do on an emulated GPU of our own, which is watched.
func (f *benchFlags) onEmulator(ctx context.Context, at dispatch.Device, problems []gemm.Problem, stderr io.Writer) (bencher, error) {
	if f.cold.value {
		return bencher{}, fmt.Errorf("--cold: the emulator has no caches, and counts what they would be asked for (want --device cpu or gpu)")
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
		return bencher{}, fmt.Errorf("--device %s: %w", f.device, sentinel(err))
	}
	backend := gpu.New(dev)
	release := func() error { return device.Join(backend.Close(), dev.Close()) }
	return f.onDevice(ctx, at, backend, release, problems, stderr,
		func(ctx context.Context, d device.Device, c bench.Case, kernels, peers []bench.DeviceSubject, o bench.Options) ([]bench.Record, error) {
			return bench.CountOn(ctx, d, c, kernels, peers, t.count, o)
		})
}

// tally sums up what launches did.
type tally struct {
	mu  sync.Mutex
	sum bench.Counts
}

// count is what the launches of one product did.
func (t *tally) count(product func() error) (*bench.Counts, error) {
	t.mu.Lock()
	t.sum = bench.Counts{Then: new(bench.ThenCounts)}
	t.mu.Unlock()
	if err := product(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.sum
	return &sum, nil
}

// watch has a launch measured. Faults are for `tilework emulate` and the tests to find:
// looking for them would take several times as long.
func (t *tally) watch(l *emu.Launch) emulator.Done {
	checks := check.New(check.Options{
		Only:         []check.Checker{check.Banks, check.Coalesce, check.Count},
		MaxConflicts: check.Unlimited, MaxScatter: check.Unlimited,
	})
	then := new(explain.Then)
	l.Observers = append(l.Observers, checks, then)
	return func(p *emu.Program, s emu.Stats, err error) error {
		if err == nil {
			t.add(s, checks.Report(p, s, nil), then)
		}
		return err
	}
}

func (t *tally) add(s emu.Stats, r *check.Report, then *explain.Then) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.sum
	global := &r.Counts.Spaces[ptx.Global]
	c.Instructions += int64(s.Instructions)
	c.Flops += r.Counts.Flops + r.Counts.IntegerOps
	c.LoadBytes += global.LoadBytes
	c.StoreBytes += global.StoreBytes
	c.DistinctSectors += r.SectorsRead + r.SectorsWritten
	for i := range r.Accesses {
		a := &r.Accesses[i]
		c.Sectors += a.Global.Sectors
		c.IdealSectors += a.Global.Ideal
		c.SharedRequests += a.Shared.Requests
		c.Wavefronts += a.Shared.Wavefronts
		c.IdealWavefronts += a.Shared.Ideal
	}
	c.Then.HalfWarps += then.HalfWarps.Load()
	c.Then.Transactions += then.Transactions.Load()
	c.Then.Wavefronts += then.Wavefronts.Load()
	c.Then.IdealWavefronts += then.IdealWavefronts.Load()
}
