package emu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tilework/internal/device"
)

// stream is an order of work. As long as a device has no stream but its own, it does at
// once what it is asked for. With others beside it, work is put off until somebody waits
// for it, and whose turn it is then the device's seed decides among all that the waits
// between the streams allow: where one is missing, results change.
type stream struct {
	device *Device
	queue  []work
	fault  *fault // of what was done here or waited for
}

// fault is work that failed. Sync and CopyOut of its stream report it, and of every
// stream that waits for a place behind it; once it is reported, places that its stream
// comes to later have nothing to do with it.
type fault struct {
	err      error
	reported bool
}

// work is something to be done, or a place to wait for, or one to mark.
type work struct {
	do   func() error
	wait *event
	mark *event
}

// event is a place in a stream.
type event struct {
	past  bool
	at    time.Time
	fault *fault
}

// lock makes the device's streams the caller's, unless the context ends before.
func (d *Device) lock(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Device) unlock() { <-d.turn }

// single says that there is no stream but the device's own, with nothing put off.
func (d *Device) single() bool { return len(d.streams) == 1 && d.stream.done() }

// NewStream makes a stream beside the device's own.
func (d *Device) NewStream() (device.Stream, error) {
	d.turn <- struct{}{}
	defer d.unlock()
	s := &stream{device: d}
	d.streams = append(d.streams, s)
	return s, nil
}

// Close does what was put off, and takes the stream out of the device.
func (s *stream) Close() error {
	d := s.device
	err := s.Sync(context.Background())
	d.turn <- struct{}{}
	defer d.unlock()
	d.streams = slices.DeleteFunc(d.streams, func(x *stream) bool { return x == s && s != d.stream })
	return err
}

// ask does work, or puts it off. Its error is that of work that was done at once.
func (s *stream) ask(ctx context.Context, w work) error {
	d := s.device
	if err := d.lock(ctx); err != nil {
		return err
	}
	if d.single() && w.do != nil {
		d.unlock() // so that callers' kernels run side by side
		return w.do()
	}
	defer d.unlock()
	if d.single() {
		return s.perform(w)
	}
	s.queue = append(s.queue, w)
	if d.rng.IntN(4) == 0 {
		for range d.rng.IntN(8) {
			d.step()
		}
	}
	return nil
}

func (s *stream) perform(w work) error {
	switch {
	case w.do != nil:
		return w.do()
	case w.mark != nil:
		w.mark.past, w.mark.at = true, time.Now()
		if s.fault != nil && !s.fault.reported {
			w.mark.fault = s.fault
		}
	case w.wait.fault != nil:
		s.fault = w.wait.fault
	}
	return nil
}

// step does a piece of the work that was put off, of a stream by chance, and says
// whether there was any.
func (d *Device) step() bool {
	var ready []*stream
	for _, s := range d.streams {
		if len(s.queue) > 0 && (s.queue[0].wait == nil || s.queue[0].wait.past) {
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return false
	}
	// One stream runs far ahead of the others, and then another one: that finds more
	// than turns that are fair.
	if !slices.Contains(ready, d.ahead) || d.rng.IntN(16) == 0 {
		d.ahead = ready[d.rng.IntN(len(ready))]
	}
	s := d.ahead
	w := s.queue[0]
	s.queue = s.queue[1:]
	// A launch that its own context ended is that caller's affair, who knows.
	if err := s.perform(w); err != nil && !ended(err) {
		s.fault = &fault{err: err}
	}
	return true
}

func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// settle does what was put off until that is so. There is always something to do until
// then: a stream can only be told to wait for a place that was marked before.
func (d *Device) settle(ctx context.Context, until func() bool) error {
	for !until() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d.step()
	}
	return nil
}

// finish does all that was put off.
func (d *Device) finish() {
	d.turn <- struct{}{}
	defer d.unlock()
	for d.step() {
	}
}

func (s *stream) done() bool { return len(s.queue) == 0 }

// come waits until all that the stream was asked for is done, and reports its fault.
func (s *stream) come(ctx context.Context) error {
	if err := s.device.settle(ctx, s.done); err != nil {
		return err
	}
	f := s.fault
	s.fault = nil
	if f == nil {
		return nil
	}
	f.reported = true
	return f.err
}

// Sync waits until all that was asked for is done.
func (s *stream) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.device.lock(ctx); err != nil {
		return err
	}
	defer s.device.unlock()
	return s.come(ctx)
}

// CopyIn copies rows to the device.
func (s *stream) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	if err := rows.Check(len(src)); err != nil {
		return err
	}
	read := make([]byte, 0, rows.Count*rows.Width)
	for i := range rows.Count {
		if err := ctx.Err(); err != nil {
			return err
		}
		read = append(read, src[i*rows.Host:][:rows.Width]...)
	}
	return s.ask(ctx, work{do: func() error {
		for i := range rows.Count {
			at := uint64(dst) + uint64(i)*uint64(rows.Device)
			if err := s.device.memory.Write(at, read[i*rows.Width:][:rows.Width]); err != nil {
				return typed(err)
			}
		}
		return nil
	}})
}

// CopyOut copies rows from the device.
func (s *stream) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	if err := rows.Check(len(dst)); err != nil {
		return err
	}
	d := s.device
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	if err := s.come(ctx); err != nil {
		return err
	}
	for i := range rows.Count {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.memory.Read(uint64(src)+uint64(i)*uint64(rows.Device), dst[i*rows.Host:][:rows.Width]); err != nil {
			return typed(err)
		}
	}
	return nil
}

// Record marks a place.
func (s *stream) Record() (device.Event, error) {
	e := &event{}
	return &mark{s.device, e}, s.ask(context.Background(), work{mark: e})
}

// Wait puts off what is asked for from now on until the device has come to a place.
func (s *stream) Wait(e device.Event) error {
	m, ok := e.(*mark)
	if !ok || m.device != s.device {
		return fmt.Errorf("waiting for an event of another device than %s (%T)", s.device.info.Name, e)
	}
	return s.ask(context.Background(), work{wait: m.event})
}

// mark is an event and whose it is.
type mark struct {
	device *Device
	*event
}

// Since is the time that passed on this machine: what an emulated kernel took, not
// what the GPU would have.
func (m *mark) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*mark)
	if !ok || from.device != m.device {
		return 0, fmt.Errorf("an event of another device (%T)", earlier)
	}
	if err := m.device.lock(ctx); err != nil {
		return 0, err
	}
	defer m.device.unlock()
	err := m.device.settle(ctx, func() bool { return m.past && from.past })
	return m.at.Sub(from.at), err
}

func (m *mark) Free() error { return nil }
