package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tilework/internal/device"
	"tilework/internal/device/timeline"
	"tilework/internal/gemm"
	"tilework/internal/ints"
)

// DeviceSubject is an implementation that multiplies matrices in the memory of a device. Like a
// [Subject], it may be a fmt.Stringer.
type DeviceSubject interface {
	Name() string
	// Prepare does the work that is needed once for many products like p. The function it returns
	// enqueues p and does not wait for it. ErrUnsupported means that the subject does not support
	// p, and is not reported as a failure. A subject with several algorithms can use try to time
	// them in the same way as the measurement does.
	Prepare(ctx context.Context, p *gemm.Problem, try Try) (Enqueue, error)
}

// Enqueue enqueues a product on a device.
type Enqueue func(ctx context.Context, m Matrices) error

// Try returns the duration of a product in seconds.
type Try func(run Enqueue) (seconds float64, err error)

// Matrices holds the device address of each operand of a problem.
type Matrices [gemm.Operands]device.Ptr

// MeasureOn is [Measure] for matrices in the memory of a device. They have the problem's layouts,
// and times come from events of the device. With Cold, the sets of operands exceed twice
// o.Environment.GPUCache. The events of an emulated device use the host's clock.
func MeasureOn(ctx context.Context, d device.Device, c Case, kernels, peers []DeviceSubject, o Options) ([]Record,
	error) {
	if o.Warmup == 0 {
		o.Warmup = 200 * time.Millisecond // a GPU's clock rate settles under load
	}
	o = o.withDefaults()
	runs, err := newRuns(c, kernels, peers)
	if err != nil {
		return nil, err
	}
	if err := FitsOn(d, &c.Problem, o); err != nil {
		return nil, err
	}
	if o.Lead == 0 && len(runs) > 1 {
		o.Lead = 200 * time.Microsecond // reloads the kernel into the instruction caches
	}
	if s, ok := d.(device.SensorReader); ok {
		o.sense = s.Sensors
	}
	return measureAt(ctx, c, runs, o, func(data *operands) (site, error) {
		return newDeviceSite(ctx, d, &c.Problem, data, slices.Concat(kernels, peers), o)
	})
}

// deviceSite is a site in the memory of a device, timed by its events.
type deviceSite struct {
	device   device.Device
	subjects []DeviceSubject
	problem  *gemm.Problem
	memory   device.Ptr
	copies   []Matrices
	data     *operands
	order    *rotation
	holder   *holder
	now      func() time.Duration // the host's clock
	// enqueueing is the recent maximum of the host time to enqueue a product.
	enqueueing time.Duration
}

// deviceAlign is the alignment of matrices in bytes. [device.Device.Alloc] guarantees the same, so
// all sets of operands are aligned like the first.
const deviceAlign = 256

func newDeviceSite(ctx context.Context, d device.Device, p *gemm.Problem, data *operands, subjects []DeviceSubject,
	o Options) (_ site, err error) {
	s := &deviceSite{device: d, subjects: subjects, problem: p, data: data, now: o.hostNow}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	size := 0 // of a set
	var offsets [gemm.Operands]int
	for i, b := range data.Buffers {
		offsets[i] = size
		size += ints.RoundUp(len(b), deviceAlign)
	}
	_, n := deviceSets(p, o)
	if s.memory, err = d.Alloc(n * size); err != nil {
		return nil, err
	}
	for set := range n {
		at := s.memory + device.Ptr(set*size)
		var m Matrices
		for o := range m {
			m[o] = at + device.Ptr(offsets[o])
		}
		s.copies = append(s.copies, m)
	}
	if err := s.upload(ctx, data.Buffers[:], offsets[:], size); err != nil {
		return nil, err
	}
	s.order = data.rotation(n)
	s.holder, err = newHolder(ctx, d)
	return s, err
}

// upload fills the sets of matrices. It copies many small sets at once.
func (s *deviceSite) upload(ctx context.Context, host [][]byte, offsets []int, size int) error {
	const blockBytes = 4 << 20
	if size > blockBytes {
		for _, m := range s.copies {
			for i, b := range host {
				if err := s.device.CopyIn(ctx, m[gemm.A]+device.Ptr(offsets[i]), b, device.Whole(len(b))); err != nil {
					return err
				}
			}
		}
		return nil
	}
	together := min(len(s.copies), blockBytes/size)
	block := make([]byte, together*size)
	for i, b := range host {
		for set := range together {
			copy(block[set*size+offsets[i]:], b)
		}
	}
	for set := 0; set < len(s.copies); set += together {
		n := min(together, len(s.copies)-set) * size
		if err := s.device.CopyIn(ctx, s.copies[set][gemm.A], block[:n], device.Whole(n)); err != nil {
			return err
		}
	}
	return nil
}

func (s *deviceSite) prepare(ctx context.Context, i int) (product, error) {
	bind := func(run Enqueue) product {
		return func(ctx context.Context, set int) error { return run(ctx, s.copies[set]) }
	}
	run, err := s.subjects[i].Prepare(ctx, s.problem, func(run Enqueue) (float64, error) { return s.try(ctx, bind(run)) })
	if err != nil {
		return nil, err
	}
	return bind(run), nil
}

// try returns the median of a few timings in seconds per product. Each timing runs enough products
// to be accurate.
func (s *deviceSite) try(ctx context.Context, run product) (float64, error) {
	if _, err := s.time(ctx, run, 1); err != nil {
		return 0, err
	}
	once, err := s.time(ctx, run, 1)
	if err != nil {
		return 0, err
	}
	const enough, slow = time.Millisecond, 20 * time.Millisecond
	_, most := s.batch()
	n, timings := min(int(enough/max(once, 1))+1, most), 5
	if once > slow {
		timings = 1 // long timings vary little
	}
	var times []float64
	for range timings {
		took, err := s.time(ctx, run, n)
		if err != nil {
			return 0, err
		}
		times = append(times, took.Seconds()/float64(n))
	}
	return summarize(times).Median, nil
}

func (s *deviceSite) result(ctx context.Context, run product) ([]byte, time.Duration, error) {
	at := s.copies[0][gemm.C]
	if err := s.device.CopyIn(ctx, at, s.data.Buffers[gemm.C], device.Whole(len(s.data.Buffers[gemm.C]))); err != nil {
		return nil, 0, err
	}
	took, err := s.between(ctx, func() error { return run(ctx, 0) })
	if err != nil {
		return nil, 0, err
	}
	c := make([]byte, len(s.data.Buffers[gemm.C]))
	return c, took, s.device.CopyOut(ctx, c, at, device.Whole(len(c)))
}

// time holds the device until all products are enqueued, so that it does not wait for the host
// between two of them. If enqueueing took longer than the hold, for example because the driver
// loaded a kernel, the timing includes waiting and is repeated.
func (s *deviceSite) time(ctx context.Context, run product, n int) (took time.Duration, err error) {
	const tries = 4
	for range tries {
		held, err := s.holder.hold(ctx, time.Duration(n)*s.enqueueing)
		if err != nil {
			return 0, err
		}
		start := s.now()
		enqueued := time.Duration(0)
		took, err = s.between(ctx, func() error {
			for range n {
				if err := run(ctx, s.order.next()); err != nil {
					return err
				}
			}
			enqueued = s.now() - start
			return nil
		})
		if err != nil {
			return 0, err
		}
		s.enqueueing = max(enqueued/time.Duration(n), s.enqueueing/2)
		if enqueued <= held {
			break
		}
	}
	return took, nil
}

// between returns the device time of the work that f enqueues.
func (s *deviceSite) between(ctx context.Context, f func() error) (took time.Duration, err error) {
	from, err := s.device.Record()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Free()) }()
	if err := f(); err != nil {
		return 0, err
	}
	to, err := s.device.Record()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, to.Free()) }()
	return to.Since(ctx, from)
}

// batch returns a shortest timing that is much longer than the pauses between timings, in which the
// GPU's clock would change, and a largest number of launches that a driver can queue.
func (s *deviceSite) batch() (time.Duration, int) { return 10 * time.Millisecond, 64 }
func (s *deviceSite) sets() int                   { return len(s.copies) }

func (s *deviceSite) steps(int) (*Steps, error) { return nil, nil }

// breakdown implements site. Kernels without copies have none.
func (s *deviceSite) breakdown(context.Context, int, int) ([]timeline.Breakdown, error) {
	return nil, nil
}

func (s *deviceSite) close() error {
	err := errors.Join(s.device.Free(s.memory), s.holder.close())
	if err != nil {
		return fmt.Errorf("freeing the memory of the measurement: %w", err)
	}
	return nil
}
