package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tilework/internal/device"
	"tilework/internal/gemm"
)

// DeviceSubject is something that multiplies matrices that are on a device.
type DeviceSubject interface {
	Name() string
	// Prepare does once what a caller who multiplies many times would do once. The
	// function that it returns asks the device for p on the matrices that it is given
	// and does not wait. ErrUnsupported means that the subject does not do such
	// products, which is no failure. A subject may be a fmt.Stringer, as a [Subject].
	//
	// One that has a choice can try: try says how many seconds a product takes in the
	// way of the measurement.
	Prepare(ctx context.Context, p *gemm.Problem, try Try) (Enqueue, error)
}

// Enqueue asks a device for a product.
type Enqueue func(ctx context.Context, m Matrices) error

// Try times a product, in seconds.
type Try func(run Enqueue) (seconds float64, err error)

// Matrices are where a problem's matrices are on a device.
type Matrices struct {
	A, B, C, Bias device.Ptr
	Ends          device.Ptr              // of groups of rows: of each the first row behind it, an int32
	Extras        [gemm.Extras]device.Ptr // what else the epilogue reads
}

// MeasureOn is [Measure] on a device: the matrices stay there, with the problem's
// layouts, and the device's own events tell the time. Cold is from a memory twice as
// large as o.Environment.GPUCache. An emulated device's events are this machine's
// clock.
func MeasureOn(ctx context.Context, d device.Device, c Case, kernels, peers []DeviceSubject, o Options) ([]Record, error) {
	if o.Warmup == 0 {
		o.Warmup = 200 * time.Millisecond // a GPU's clock follows its power, and that its work
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
		o.Lead = 200 * time.Microsecond // brings the kernel back into the caches for instructions
	}
	if s, ok := d.(device.Sensing); ok {
		o.sense = s.Sensors
	}
	return measureAt(ctx, c, runs, o, func(data *operands) (site, error) {
		return newDeviceSite(ctx, d, &c.Problem, data, slices.Concat(kernels, peers), o)
	})
}

// deviceSite is a device's memory and its clock.
type deviceSite struct {
	device   device.Device
	subjects []DeviceSubject
	problem  *gemm.Problem
	memory   device.Ptr
	copies   []Matrices
	data     *operands
	order    *rotation
	holder   *holder
	// asking is the most that it took lately to ask the device for a product.
	asking time.Duration
}

// deviceAlign is where matrices begin: at multiples of what [device.Device.Alloc]
// promises, so that each copy of them is as good as the first.
const deviceAlign = 256

func newDeviceSite(ctx context.Context, d device.Device, p *gemm.Problem, data *operands, subjects []DeviceSubject, o Options) (_ site, err error) {
	s := &deviceSite{device: d, subjects: subjects, problem: p, data: data}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	host := [...][]byte{data.A, data.B, data.C, data.Bias, data.ends, 4 + gemm.Extras: nil}
	copy(host[5:], data.Extras[:])
	size := 0 // of a set
	var offsets [len(host)]int
	for i, b := range host {
		offsets[i] = size
		size += (len(b) + deviceAlign - 1) / deviceAlign * deviceAlign
	}
	_, n := deviceSets(p, o)
	if s.memory, err = d.Alloc(n * size); err != nil {
		return nil, err
	}
	for set := range n {
		at := s.memory + device.Ptr(set*size)
		m := Matrices{
			A: at + device.Ptr(offsets[0]), B: at + device.Ptr(offsets[1]), C: at + device.Ptr(offsets[2]), Bias: at + device.Ptr(offsets[3]),
			Ends: at + device.Ptr(offsets[4]),
		}
		for x := range m.Extras {
			m.Extras[x] = at + device.Ptr(offsets[5+x])
		}
		s.copies = append(s.copies, m)
	}
	if err := s.upload(ctx, host[:], offsets[:], size); err != nil {
		return nil, err
	}
	s.order = data.rotation(n)
	s.holder, err = newHolder(ctx, d)
	return s, err
}

// upload fills the sets of matrices, many small ones with one copy.
func (s *deviceSite) upload(ctx context.Context, host [][]byte, offsets []int, size int) error {
	const enough = 4 << 20
	if size > enough {
		for _, m := range s.copies {
			for i, b := range host {
				if err := s.device.CopyIn(ctx, m.A+device.Ptr(offsets[i]), b, device.Whole(len(b))); err != nil {
					return err
				}
			}
		}
		return nil
	}
	together := min(len(s.copies), enough/size)
	block := make([]byte, together*size)
	for i, b := range host {
		for set := range together {
			copy(block[set*size+offsets[i]:], b)
		}
	}
	for set := 0; set < len(s.copies); set += together {
		n := min(together, len(s.copies)-set) * size
		if err := s.device.CopyIn(ctx, s.copies[set].A, block[:n], device.Whole(n)); err != nil {
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

// try is the median of a few timings, each of as many products as are worth timing.
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
		timings = 1 // which hardly differ
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
	at := s.copies[0].C
	if err := s.device.CopyIn(ctx, at, s.data.C, device.Whole(len(s.data.C))); err != nil {
		return nil, 0, err
	}
	took, err := s.between(ctx, func() error { return run(ctx, 0) })
	if err != nil {
		return nil, 0, err
	}
	c := make([]byte, len(s.data.C))
	return c, took, s.device.CopyOut(ctx, c, at, device.Whole(len(c)))
}

// time holds the device until all products are asked for, so that it never waits for
// the host between two of them. Where the asking took longer than the holding, as when
// the driver loads a kernel just then, the time is not the device's, and is taken again.
func (s *deviceSite) time(ctx context.Context, run product, n int) (took time.Duration, err error) {
	const tries = 4
	for range tries {
		held, err := s.holder.hold(ctx, time.Duration(n)*s.asking)
		if err != nil {
			return 0, err
		}
		start := time.Now()
		asked := time.Duration(0)
		took, err = s.between(ctx, func() error {
			for range n {
				if err := run(ctx, s.order.next()); err != nil {
					return err
				}
			}
			asked = time.Since(start)
			return nil
		})
		if err != nil {
			return 0, err
		}
		s.asking = max(asked/time.Duration(n), s.asking/2)
		if asked <= held {
			break
		}
	}
	return took, nil
}

// between is the device's time for what f asks of it.
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

// batch is long beside the pauses between two timings, in which the device would cool
// down, where that does not take more launches than a driver lets queue up.
func (s *deviceSite) batch() (time.Duration, int) { return 10 * time.Millisecond, 64 }
func (s *deviceSite) sets() int                   { return len(s.copies) }

func (s *deviceSite) steps(int) (*Steps, error) { return nil, nil }

func (s *deviceSite) close() error {
	err := errors.Join(s.device.Free(s.memory), s.holder.close())
	if err != nil {
		return fmt.Errorf("giving the measurement's memory back: %w", err)
	}
	return nil
}
