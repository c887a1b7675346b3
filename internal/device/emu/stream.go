package emu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"tilework/internal/device"
	"tilework/internal/mapping"
)

// stream implements [device.Stream]. While a device has only its default stream, work runs
// immediately. With several streams, work is deferred until a caller waits for it and then runs
// in an order drawn from the device's seed, limited only by the waits between the streams. A
// missing wait thus changes results.
type stream struct {
	device *Device
	queue  []work
	fault  *fault // of work of this stream or of a stream that it waited for; nil if none
}

// fault is the failure of deferred work. Sync and CopyOut report it, on its own stream and on
// every stream that waits for an event after it, also of other devices. Events that complete after
// it was reported no longer carry it.
type fault struct {
	err      error
	reported atomic.Bool
}

// work is one entry of a stream's queue: an operation, an event to wait for or an event to
// complete. Exactly one field is set.
type work struct {
	do   func() error
	wait *event
	mark *event
}

// event is a position in a stream. Streams of other devices read the other fields once complete is
// set.
type event struct {
	device   *Device
	stream   *stream
	complete atomic.Bool
	at       time.Time // of completion
	fault    *fault    // unreported failure of earlier work; nil if none
}

// needed returns the stream of the event until it is complete.
func (e *event) needed() *stream {
	if e.complete.Load() {
		return nil
	}
	return e.stream
}

// lock acquires the device's streams. It returns the context's error if ctx ends first.
func (d *Device) lock(ctx context.Context) error {
	select {
	case d.mu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Device) unlock() { <-d.mu }

// single reports whether the default stream is the only one and has no deferred work.
func (d *Device) single() bool { return len(d.streams) == 1 && len(d.stream.queue) == 0 }

// NewStream creates an additional stream.
func (d *Device) NewStream() (device.Stream, error) {
	d.mu <- struct{}{}
	defer d.unlock()
	s := &stream{device: d}
	d.streams = append(d.streams, s)
	return s, nil
}

// Close runs the deferred work and removes the stream from the device.
func (s *stream) Close() error {
	d := s.device
	err := s.Sync(context.Background())
	d.mu <- struct{}{}
	defer d.unlock()
	d.streams = slices.DeleteFunc(d.streams, func(x *stream) bool { return x == s && s != d.stream })
	return err
}

// enqueue runs w immediately or defers it. The error is that of work that ran immediately.
func (s *stream) enqueue(ctx context.Context, w work) error {
	d := s.device
	if err := d.lock(ctx); err != nil {
		return err
	}
	if d.single() && w.do != nil {
		d.unlock() // kernels of concurrent callers run concurrently
		return w.do()
	}
	defer d.unlock()
	if d.single() && w.ready() {
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

// ready reports whether w can be performed.
func (w *work) ready() bool { return w.wait == nil || w.wait.complete.Load() }

// perform runs, completes or waits for w, which must be ready.
func (s *stream) perform(w work) error {
	switch {
	case w.do != nil:
		return w.do()
	case w.mark != nil:
		w.mark.at = time.Now()
		if s.fault != nil && !s.fault.reported.Load() {
			w.mark.fault = s.fault
		}
		w.mark.complete.Store(true)
	case w.wait.fault != nil:
		s.fault = w.wait.fault
	}
	return nil
}

// step performs one deferred entry of a random stream. It reports whether one was ready.
func (d *Device) step() bool {
	var ready []*stream
	for _, s := range d.streams {
		if len(s.queue) > 0 && s.queue[0].ready() {
			ready = append(ready, s)
		}
	}
	if len(ready) == 0 {
		return false
	}
	// Letting one stream run far ahead of the others, and then another, exposes more missing
	// waits than fair scheduling.
	if !slices.Contains(ready, d.running) || d.rng.IntN(16) == 0 {
		d.running = ready[d.rng.IntN(len(ready))]
	}
	s := d.running
	w := s.queue[0]
	s.queue = s.queue[1:]
	// The end of a launch's own context is no fault: its caller controls that context.
	if err := s.perform(w); err != nil && !isContextError(err) {
		s.fault = &fault{err: err}
	}
	return true
}

// isContextError reports whether err comes from a context that has ended.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// runUntil performs deferred work until needed returns nil instead of a stream that has some. A
// stream can wait only for events that are already in a queue or complete, so until then some entry
// is ready here, or on a device for which the stream waits. The caller has locked d, and runUntil
// returns with d locked.
func (d *Device) runUntil(ctx context.Context, needed func() *stream) error {
	for s := needed(); s != nil; s = needed() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.step() {
			continue
		}
		e := s.awaited()
		if e == nil {
			continue
		}
		d.unlock() // the other device may in turn wait for this one
		err := e.device.complete(ctx, e)
		d.mu <- struct{}{}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaited returns the incomplete event of another device for which the stream waits, itself or
// through other streams of its device. It is nil if an entry has become ready meanwhile.
func (s *stream) awaited() *event {
	for len(s.queue) > 0 && !s.queue[0].ready() {
		e := s.queue[0].wait
		if e.device != s.device {
			return e
		}
		s = e.stream
	}
	return nil
}

// complete performs deferred work until an event of d is complete.
func (d *Device) complete(ctx context.Context, e *event) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	return d.runUntil(ctx, e.needed)
}

// finish performs all deferred work.
func (d *Device) finish() {
	d.mu <- struct{}{}
	defer d.unlock()
	busy := func() *stream {
		if i := slices.IndexFunc(d.streams, func(s *stream) bool { return len(s.queue) > 0 }); i >= 0 {
			return d.streams[i]
		}
		return nil
	}
	_ = d.runUntil(context.Background(), busy) // a context without an end is the only source of errors
}

// busy returns s until its queue is empty.
func (s *stream) busy() *stream {
	if len(s.queue) == 0 {
		return nil
	}
	return s
}

// drain performs all work of the stream and returns its fault, which is reported only once.
func (s *stream) drain(ctx context.Context) error {
	if err := s.device.runUntil(ctx, s.busy); err != nil {
		return err
	}
	f := s.fault
	s.fault = nil
	if f == nil {
		return nil
	}
	f.reported.Store(true)
	return f.err
}

// Sync waits until all work of the stream has finished.
func (s *stream) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.device.lock(ctx); err != nil {
		return err
	}
	defer s.device.unlock()
	return s.drain(ctx)
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
		err := mapping.Access(func() { read = append(read, src[i*rows.HostPitch:][:rows.Width]...) })
		if err != nil {
			return err
		}
	}
	return s.enqueue(ctx, work{do: func() error {
		for i := range rows.Count {
			at := uint64(dst) + uint64(i)*uint64(rows.DevicePitch)
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
	if err := s.drain(ctx); err != nil {
		return err
	}
	for i := range rows.Count {
		if err := ctx.Err(); err != nil {
			return err
		}
		var read error
		err := mapping.Access(func() {
			read = d.memory.Read(uint64(src)+uint64(i)*uint64(rows.DevicePitch), dst[i*rows.HostPitch:][:rows.Width])
		})
		if err != nil {
			return err
		}
		if read != nil {
			return typed(read)
		}
	}
	return nil
}

// CopyPeer enqueues a copy from another emulated GPU, or from this one.
func (s *stream) CopyPeer(dst device.Ptr, from device.Device, src device.Ptr, rows device.PeerRows) error {
	d := s.device
	peer, ok := from.(*Device)
	if !ok {
		return fmt.Errorf("cannot copy from a device of type %T: want an emulated GPU", from)
	}
	r, err := rows.Merged()
	if err != nil || r.Count == 0 {
		return err
	}
	return s.enqueue(context.Background(), work{do: func() error {
		row := make([]byte, r.Width)
		for i := range r.Count {
			if err := peer.memory.Read(uint64(src)+uint64(i)*uint64(r.FromPitch), row); err != nil {
				return typed(err)
			}
			if err := d.memory.Write(uint64(dst)+uint64(i)*uint64(r.ToPitch), row); err != nil {
				return typed(err)
			}
		}
		d.count(peer, r.Bytes())
		return nil
	}})
}

// Record enqueues an event.
func (s *stream) Record() (device.Event, error) {
	e := &event{device: s.device, stream: s}
	return e, s.enqueue(context.Background(), work{mark: e})
}

// Wait makes all work that is enqueued after this call wait for e.
func (s *stream) Wait(e device.Event) error {
	x, ok := e.(*event)
	if !ok {
		return fmt.Errorf("cannot wait for an event of type %T: want one of an emulated GPU", e)
	}
	return s.enqueue(context.Background(), work{wait: x})
}

// Since returns the elapsed time of the emulation, not an estimate of the time on the GPU.
func (e *event) Since(ctx context.Context, earlier device.Event) (time.Duration, error) {
	from, ok := earlier.(*event)
	if !ok || from.device != e.device {
		return 0, fmt.Errorf("cannot measure from an event of type %T: want an event of this %s", earlier,
			e.device.info.Name)
	}
	needed := func() *stream { return cmp.Or(e.needed(), from.needed()) }
	if needed() == nil {
		return e.at.Sub(from.at), nil
	}
	if err := e.device.lock(ctx); err != nil {
		return 0, err
	}
	defer e.device.unlock()
	err := e.device.runUntil(ctx, needed)
	return e.at.Sub(from.at), err
}

func (e *event) Free() error { return nil }
