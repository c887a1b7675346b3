package cuda

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"tilework/internal/device"
)

// A copy goes through a few pieces of pinned memory in turn, which the device reads
// and writes itself: while it moves one piece, goroutines fill or empty the next. It
// is so several times as fast as from the caller's memory, and the device never
// touches that, so that a copy can be left at any time.
const (
	slotBytes = 4 << 20
	slotCount = 4
)

type staging struct {
	mine  chan struct{} // holds one element while a copy uses the slots
	slots [slotCount]slot
}

func newStaging() staging { return staging{mine: make(chan struct{}, 1)} }

// leave ends a copy, done or not.
func (s *staging) leave() {
	for i := range s.slots {
		s.slots[i].landing = nil
	}
	<-s.mine
}

// slot is a piece of pinned memory, which comes with its first use.
type slot struct {
	address uintptr
	event   uintptr // when the device has done with it
	state   slotState
	// landing is the piece that the device writes here for the copy under way, which
	// then takes it to its place; nil for a copy in, and once the copy has been left.
	landing *piece
}

type slotState int

const (
	idle   slotState = iota
	begun            // the device uses it until nobody knows when
	marked           // the device uses it until its event
)

func (s *slot) memory() []byte { return unsafe.Slice((*byte)(pointer(s.address)), slotBytes) }

// transfer is one copy.
type transfer struct {
	gpu  *GPU
	in   bool // from the host to the device
	host []byte
	at   device.Ptr
	rows device.Rows
}

// CopyIn copies to the device, at the speed of the link.
func (g *GPU) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	return g.copy(ctx, &transfer{gpu: g, in: true, host: src, at: dst, rows: rows})
}

// CopyOut copies from the device, at the speed of the link.
func (g *GPU) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	return g.copy(ctx, &transfer{gpu: g, host: dst, at: src, rows: rows})
}

func (g *GPU) copy(ctx context.Context, t *transfer) error {
	if err := t.check(); err != nil {
		return err
	}
	select {
	case g.staging.mine <- struct{}{}:
		defer g.staging.leave()
	case <-ctx.Done():
		return ctx.Err()
	}
	n := 0
	next := func() *slot {
		n++
		return &g.staging.slots[n%slotCount]
	}
	for p := range t.pieces() {
		s := next()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := t.settle(ctx, s); err != nil {
			return err
		}
		if err := t.start(s, p); err != nil {
			return err
		}
	}
	for range slotCount {
		if err := t.settle(ctx, next()); err != nil {
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

// pieces cuts the rows into pieces, from the first to the last.
func (t *transfer) pieces() iter.Seq[piece] {
	r := t.rows
	return func(yield func(piece) bool) {
		if r.Count == 0 {
			return
		}
		count := max(1, slotBytes/r.Width)
		if r.Device > t.gpu.info.maxPitch {
			count = 1
		}
		for row := 0; row < r.Count; row += count {
			for col := 0; col < r.Width; col += slotBytes {
				p := piece{row: row, count: min(count, r.Count-row), col: col, width: min(slotBytes, r.Width-col)}
				if !yield(p) {
					return
				}
			}
		}
	}
}

// start has the device begin with a piece.
func (t *transfer) start(s *slot, p piece) error {
	g := t.gpu
	if err := g.openSlot(s); err != nil {
		return err
	}
	if t.in {
		t.move(s, p)
	}
	return g.within(func() error {
		s.state = begun
		if !t.in {
			s.landing = &p
		}
		if err := g.issue(t, s, p); err != nil {
			return err
		}
		if err := g.call(cuEventRecord, s.event, g.stream); err != nil {
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
		err = t.gpu.wait(ctx, cuStreamQuery, t.gpu.stream)
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

// openSlot gives a slot its memory and its event.
func (g *GPU) openSlot(s *slot) error {
	if s.event != 0 {
		return nil
	}
	return g.within(func() error {
		if s.address == 0 {
			if err := g.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&s.address)), slotBytes, 0); err != nil {
				return err
			}
		}
		const disableTiming = 2 // CU_EVENT_DISABLE_TIMING
		return g.call(cuEventCreate, uintptr(unsafe.Pointer(&s.event)), disableTiming)
	})
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
func (g *GPU) issue(t *transfer, s *slot, p piece) error {
	at := uintptr(t.at) + uintptr(p.row)*uintptr(t.rows.Device) + uintptr(p.col)
	if p.count == 1 {
		if t.in {
			return g.call(cuMemcpyIn, at, s.address, uintptr(p.width), g.stream)
		}
		return g.call(cuMemcpyOut, s.address, at, uintptr(p.width), g.stream)
	}
	c := memcpy2D{width: uintptr(p.width), height: uintptr(p.count)}
	c.src = side2D{kind: onHost, host: s.address, pitch: uintptr(p.width)}
	c.dst = side2D{kind: onDevice, device: at, pitch: uintptr(t.rows.Device)}
	if !t.in {
		c.src, c.dst = c.dst, c.src
	}
	return g.call(cuMemcpy2D, uintptr(unsafe.Pointer(&c)), g.stream)
}

// move copies a piece between its slot and the caller's memory.
func (t *transfer) move(s *slot, p piece) {
	slot, r := s.memory(), t.rows
	// One thread copies some 10 GB/s, the device five times that.
	share(p.count, p.width, func(row, count, col, width int) {
		for i := row; i < row+count; i++ {
			here := slot[i*p.width+col:][:width]
			there := t.host[(p.row+i)*r.Host+p.col+col:][:width]
			if t.in {
				copy(here, there)
			} else {
				copy(there, here)
			}
		}
	})
}

// share cuts rows of so many bytes among goroutines, where that is worth it: by rows,
// or a single one by columns.
func share(count, width int, f func(row, count, col, width int)) {
	const grain, most = 512 << 10, 8
	workers := min(count*width/grain, runtime.GOMAXPROCS(0), most)
	if workers <= 1 {
		f(0, count, 0, width)
		return
	}
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if count == 1 {
				from, to := i*width/workers, (i+1)*width/workers
				f(0, 1, from, to-from)
				return
			}
			from, to := i*count/workers, (i+1)*count/workers
			f(from, to-from, 0, width)
		})
	}
	all.Wait()
}
