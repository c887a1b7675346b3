package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A round shows the device as the other subjects left it. Alone, a subject shows two other speeds.
// A burst follows idling, at the highest clock rate that the power limit allows for a moment. A
// sustained run lasts until the clock rate has settled, at the power limit if the subject draws so
// much; then a product that needs less energy is faster.
const (
	bursts = 3
	idling = 300 * time.Millisecond // before each burst
)

// alone measures each subject that was timed without the others, if the options ask for it.
func (m *measurement) alone(ctx context.Context) {
	if m.o.Sustained == 0 {
		return
	}
	for _, r := range m.runs {
		if r.err == nil && len(r.times) > 0 && ctx.Err() == nil {
			r.err = failure(ctx, errors.Join(m.burst(ctx, r), m.sustained(ctx, r)))
		}
	}
}

// burst records the median time of a product in several bursts of one timing.
func (m *measurement) burst(ctx context.Context, r *run) error {
	var times []float64
	for range bursts {
		if err := m.o.sleep(ctx, idling); err != nil {
			return err
		}
		took, err := m.site.time(ctx, r.multiply, r.batch)
		if err != nil {
			return err
		}
		times = append(times, took.Seconds()/float64(r.batch))
	}
	slices.Sort(times)
	r.record.Burst = quantile(times, 0.5)
	return nil
}

// sustained records the time and the energy of a product in a long run. The energy counter of a
// device lags by up to a tenth of a second, so it is first read when the subject has run for a
// while: then the lag shifts both readings equally.
func (m *measurement) sustained(ctx context.Context, r *run) error {
	const shareBefore = 5
	if _, _, err := m.runFor(ctx, r, m.o.Sustained/shareBefore); err != nil {
		return err
	}
	before, err := m.o.joules()
	if err != nil {
		return err
	}
	products, seconds, err := m.runFor(ctx, r, m.o.Sustained)
	if err != nil {
		return err
	}
	after, err := m.o.joules()
	if err != nil {
		return err
	}
	if ctx.Err() == nil {
		r.record.Sustained, r.record.Joules = seconds, (after-before)/float64(products)
	}
	return nil
}

// runFor runs a subject for at least d. It returns the number of products and the median of their
// times in seconds. It counts the products one by one, because a timing can repeat its batch.
func (m *measurement) runFor(ctx context.Context, r *run, d time.Duration) (products int, seconds float64, err error) {
	counted := func(ctx context.Context, set int) error {
		products++
		return r.multiply(ctx, set)
	}
	var times []float64
	for start := m.o.now(); products == 0 || m.o.now()-start < d && ctx.Err() == nil; {
		took, err := m.site.time(ctx, counted, r.batch)
		if err != nil {
			return 0, 0, err
		}
		times = append(times, took.Seconds()/float64(r.batch))
	}
	slices.Sort(times)
	return products, quantile(times, 0.5), nil
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

// sleep waits for d, or until ctx ends, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
