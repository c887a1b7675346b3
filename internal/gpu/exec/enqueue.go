package exec

import (
	"context"
	"math"
	"slices"
	"sync/atomic"

	"tilework/internal/device"
	"tilework/internal/gpu/kernel"
)

// launches are the launches of a product in the order of a stream.
type launches []launch

// launch is a launch of a compiled kernel.
type launch struct {
	kernel   *kernel.Kernel
	function device.Function
	device.Launch
}

// launchKey identifies the launches of a product on matrices and in scratch memory at fixed
// addresses.
type launchKey struct {
	plan    *Plan     // see [Plan.origin]
	factors [4]uint64 // the bits of alpha and beta, as -0 equals 0
	memory  kernel.Memory
	scratch device.Ptr
	flags   device.Ptr // of stream-K, or 0 in a stream without them
}

// launchKey returns the key of the launches of pl.Scaled(alpha, beta) on matrices at m.
func (pl *Plan) launchKey(alpha, beta complex128, m *kernel.Memory, scratch, flags device.Ptr) launchKey {
	bits := math.Float64bits
	factors := [4]uint64{bits(real(alpha)), bits(imag(alpha)), bits(real(beta)), bits(imag(beta))}
	return launchKey{pl.origin, factors, *m, scratch, flags}
}

// Enqueue enqueues the product on matrices in device memory, in the layouts of [Plan.Problem], and
// does not wait for its completion.
func (pl *Plan) Enqueue(ctx context.Context, m kernel.Memory) error {
	return pl.EnqueueScaled(ctx, pl.device.Alpha, pl.device.Beta, pl.stream, pl.scratch, &m)
}

// EnqueueScaled enqueues pl.Scaled(alpha, beta).In(s, scratch), or pl.Scaled(alpha, beta) if s is
// nil. It does not copy the plan of a repeated product.
func (pl *Plan) EnqueueScaled(ctx context.Context, alpha, beta complex128, s device.Stream, scratch device.Ptr,
	m *kernel.Memory) error {
	return pl.enqueue(ctx, alpha, beta, s, scratch, m)
}

func (pl *Plan) enqueue(ctx context.Context, alpha, beta complex128, s device.Stream, scratch device.Ptr,
	m *kernel.Memory) (err error) {
	d := pl.backend.Device
	switch {
	case s != nil:
		return pl.launch(ctx, alpha, beta, s, scratch, m)
	case pl.scratchBytes == 0:
		return pl.launch(ctx, alpha, beta, d, 0, m)
	}
	if scratch, err = d.Alloc(pl.scratchBytes); err != nil {
		return err
	}
	defer func() { err = device.Join(err, d.Free(scratch)) }()
	return pl.launch(ctx, alpha, beta, d, scratch, m)
}

// launch enqueues the launches in a stream. Encoding them takes longer than enqueuing them, so they
// are kept for the next product of the same matrices.
func (pl *Plan) launch(ctx context.Context, alpha, beta complex128, s device.Stream, scratch device.Ptr,
	m *kernel.Memory) (err error) {
	var flags device.Ptr
	if pl.Config.Tile.StreamK && s == device.Stream(pl.backend.Device) {
		if flags, err = pl.backend.clearFlags(ctx); err != nil {
			return err
		}
	}
	all, err := pl.backend.launches.Get(pl.launchKey(alpha, beta, m, scratch, flags), func() (launches, error) {
		r := recorder{base: scratch, flags: flags}
		pl.Scaled(alpha, beta).addTo(&r, *m)
		return pl.backend.prepare(ctx, r.steps)
	})
	if err != nil {
		return err
	}
	if pl.Counted != nil {
		all = all.counted(pl.Kernel, pl.Counted)
	}
	if pl.Around != nil {
		return pl.around(ctx, s, all)
	}
	return all.enqueue(ctx, s)
}

// around enqueues the launches through [Plan.Around].
func (pl *Plan) around(ctx context.Context, s device.Stream, all launches) error {
	return pl.Around(s, func() error { return all.enqueue(ctx, s) })
}

// counted returns the launches with a call of f after each block of kernel k; see [Plan.Counted].
func (all launches) counted(k *kernel.Kernel, f func(ended, blocks int64)) launches {
	all = slices.Clone(all)
	var ended atomic.Int64
	blocks := int64(0)
	for i := range all {
		if all[i].kernel == k {
			blocks += int64(all[i].Grid.Count())
			all[i].BlockEnded = func() { f(ended.Add(1), blocks) }
		}
	}
	return all
}

// prepare returns the launches of steps. It compiles the kernels that are not in the cache.
func (b *Backend) prepare(ctx context.Context, steps []step) (launches, error) {
	all := make(launches, len(steps))
	for i, s := range steps {
		f, err := b.Function(ctx, s.kernel, s.config)
		if err != nil {
			return nil, err
		}
		l, err := s.encode(b.Device)
		if err != nil {
			return nil, err
		}
		all[i] = launch{s.kernel, f, l}
	}
	return all, nil
}

// enqueue enqueues the launches.
func (all launches) enqueue(ctx context.Context, s device.Stream) error {
	for i := range all {
		if err := s.Launch(ctx, all[i].function, all[i].Launch); err != nil {
			return err
		}
	}
	return nil
}
