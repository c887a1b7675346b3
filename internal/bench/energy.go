package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// energies measures the energy of each subject that was timed, if the options ask for it.
func (m *measurement) energies(ctx context.Context) {
	if m.o.Energy == 0 {
		return
	}
	for _, r := range m.runs {
		if r.err == nil && len(r.times) > 0 && ctx.Err() == nil {
			r.err = failure(ctx, m.energy(ctx, r))
		}
	}
}

// energy runs a subject alone and records the energy of one product. The counter of a device lags
// by up to a tenth of a second, so it is first read when the subject has run for a while: then the
// lag shifts both readings equally.
func (m *measurement) energy(ctx context.Context, r *run) error {
	const shareBefore = 5
	if _, err := m.runFor(ctx, r, m.o.Energy/shareBefore); err != nil {
		return err
	}
	before, err := m.o.joules()
	if err != nil {
		return err
	}
	products, err := m.runFor(ctx, r, m.o.Energy)
	if err != nil {
		return err
	}
	after, err := m.o.joules()
	if err != nil {
		return err
	}
	if ctx.Err() == nil {
		r.record.Joules = (after - before) / float64(products)
	}
	return nil
}

// runFor runs a subject for at least d and returns the number of products. It counts them one by
// one, because a timing can repeat its batch.
func (m *measurement) runFor(ctx context.Context, r *run, d time.Duration) (products int, err error) {
	counted := func(ctx context.Context, set int) error {
		products++
		return r.multiply(ctx, set)
	}
	for start := m.o.now(); products == 0 || m.o.now()-start < d && ctx.Err() == nil; {
		if _, err := m.site.time(ctx, counted, r.batch); err != nil {
			return 0, err
		}
	}
	return products, nil
}

// joules reads the energy counter of the device.
func (o *Options) joules() (float64, error) {
	if o.sense == nil {
		return 0, fmt.Errorf("%w: the device has no sensors, so its energy cannot be measured", errors.ErrUnsupported)
	}
	s, err := o.sense()
	if err == nil && s.Energy == 0 {
		err = fmt.Errorf("%w: the device has no energy counter", errors.ErrUnsupported)
	}
	return s.Energy, err
}
