package cuda

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	"tilework/internal/cpu/asm"
	"tilework/internal/device"
)

// transfer is one copy.
type transfer struct {
	*queue
	in   bool // from the host to the device
	host []byte
	at   device.Ptr
	rows device.Rows
}

// CopyIn copies to the device, at the speed of the link.
func (s *queue) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	t := &transfer{queue: s, in: true, host: src, at: dst, rows: rows}
	return t.run(ctx, s.gpu.stagingIn)
}

// CopyOut copies from the device, at the speed of the link.
func (s *queue) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	t := &transfer{queue: s, host: dst, at: src, rows: rows}
	return t.run(ctx, s.gpu.stagingOut)
}

// run shares the pieces of a copy out to goroutines, each with a lane of its own. The
// first error ends them all.
func (t *transfer) run(ctx context.Context, ring *staging) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := ring.enter(ctx); err != nil {
		return err
	}
	defer ring.leave()
	cut := t.cut()
	var next atomic.Int64
	var once sync.Once
	var failed error
	work := func(l *lane) {
		if err := t.work(ctx, l, cut, &next); err != nil {
			once.Do(func() { failed = err })
			next.Store(int64(cut.count))
		}
	}
	var helpers helpers
	for i := 1; i < min(t.gpu.info.Staging.Threads, cut.count); i++ {
		t.gpu.crew.help(&helpers, func() { work(&ring.lanes[i]) })
	}
	work(&ring.lanes[0])
	helpers.end()
	return failed
}

// work moves pieces until there are none left. What comes in is then on its way, what
// goes out is in its place.
func (t *transfer) work(ctx context.Context, l *lane, c cut, next *atomic.Int64) error {
	for {
		i := int(next.Add(1)) - 1
		if i >= c.count {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s := l.next()
		if err := t.settle(ctx, s); err != nil {
			return err
		}
		if err := t.start(s, c.piece(i)); err != nil {
			return err
		}
	}
	if t.in {
		return nil
	}
	for range laneSlots {
		if err := t.settle(ctx, l.next()); err != nil {
			return err
		}
	}
	return nil
}

// check refuses what would leave the memory on either side.
func (t *transfer) check() error {
	if err := t.rows.Check(len(t.host)); err != nil {
		return err
	}
	r := &t.rows
	if r.Count == 0 || r.Width == 0 {
		r.Count = 0
		return nil
	}
	if r.Count > 1 && r.Host == r.Width && r.Device == r.Width {
		*r = device.Whole(r.Count * r.Width)
	}
	hi, lo := bits.Mul64(uint64(r.Count-1), uint64(r.Device))
	n := lo + uint64(r.Width)
	if hi != 0 || n < lo || n > math.MaxInt {
		return fmt.Errorf("a copy of %d rows that are %d bytes apart is more bytes than 63 bits count", r.Count, r.Device)
	}
	return t.gpu.owns(t.at, int(n))
}

// piece is a rectangle of a copy's rows that fits in a slot, where its rows stand
// side by side.
type piece struct{ row, count, col, width int }

// cut is how a copy's rows are cut into pieces: each so many rows whole, or, where a row
// is more than a piece, so many bytes of one.
type cut struct {
	rows       device.Rows
	high, wide int
	across     int // pieces side by side
	count      int
}

func (t *transfer) cut() cut {
	r := t.rows
	if r.Count == 0 {
		return cut{}
	}
	// The host has all of the rows' bytes, so that an int counts them.
	n := max(leastPiece, min(slotBytes, r.Count*r.Width/(laneCount*laneSlots)))
	c := cut{rows: r, high: max(1, n/r.Width), wide: min(n, r.Width)}
	if r.Device > t.gpu.info.maxPitch {
		c.high = 1
	}
	c.across = (r.Width-1)/c.wide + 1
	c.count = ((r.Count-1)/c.high + 1) * c.across
	return c
}

func (c cut) piece(i int) piece {
	p := piece{row: i / c.across * c.high, col: i % c.across * c.wide}
	p.count, p.width = min(c.high, c.rows.Count-p.row), min(c.wide, c.rows.Width-p.col)
	return p
}

// start has the device begin with a piece.
func (t *transfer) start(s *slot, p piece) error {
	g := t.gpu
	if err := s.open(g); err != nil {
		return err
	}
	if t.in {
		t.move(s, p)
	}
	return g.within(func() error {
		s.state, s.stream = begun, t.stream
		if !t.in {
			s.landing = &p
		}
		if err := t.issue(s, p); err != nil {
			return err
		}
		if err := g.call(cuEventRecord, s.event, t.stream); err != nil {
			return err
		}
		s.state = marked
		return nil
	})
}

// settle waits until the device has done with a slot, and takes what landed there to
// its place.
func (t *transfer) settle(ctx context.Context, s *slot) error {
	var err error
	switch s.state {
	case idle:
		return nil
	case begun:
		err = t.gpu.wait(ctx, cuStreamQuery, s.stream)
	case marked:
		err = t.gpu.wait(ctx, cuEventQuery, s.event)
	}
	if err != nil {
		return err
	}
	if s.landing != nil {
		t.move(s, *s.landing)
	}
	s.state, s.landing = idle, nil
	return nil
}

// memcpy2D is CUDA_MEMCPY2D of cuda.h.
type memcpy2D struct {
	src, dst      side2D
	width, height uintptr
}

// side2D is where a copy of rows comes from or goes to.
type side2D struct {
	x, y         uintptr
	kind         uint32
	host, device uintptr
	array, pitch uintptr
}

const (
	onHost   = 1 // CU_MEMORYTYPE_HOST
	onDevice = 2 // CU_MEMORYTYPE_DEVICE
)

// issue asks the device for a piece.
func (t *transfer) issue(s *slot, p piece) error {
	at := uintptr(t.at) + uintptr(p.row)*uintptr(t.rows.Device) + uintptr(p.col)
	if p.count == 1 || t.rows.Device == p.width {
		n := uintptr(p.count) * uintptr(p.width)
		if t.in {
			return t.gpu.call(cuMemcpyIn, at, s.address, n, t.stream)
		}
		return t.gpu.call(cuMemcpyOut, s.address, at, n, t.stream)
	}
	c := memcpy2D{width: uintptr(p.width), height: uintptr(p.count)}
	c.src = side2D{kind: onHost, host: s.address, pitch: uintptr(p.width)}
	c.dst = side2D{kind: onDevice, device: at, pitch: uintptr(t.rows.Device)}
	if !t.in {
		c.src, c.dst = c.dst, c.src
	}
	return t.gpu.call(cuMemcpy2D, uintptr(unsafe.Pointer(&c)), t.stream)
}

// move copies a piece between its slot and the caller's memory: around the caches, for
// neither is read here again, and what was there would have to be read first.
func (t *transfer) move(s *slot, p piece) {
	slot, r := s.memory(), t.rows
	row := func(i int) []byte { return t.host[(p.row+i)*r.Host+p.col:][:p.width] }
	for i := range p.count {
		here, there := slot[i*p.width:][:p.width], row(i)
		if t.in {
			asm.Copy(here, there, row(min(i+1, p.count-1)))
		} else {
			asm.Copy(there, here, nil)
		}
	}
	asm.Fence()
}
