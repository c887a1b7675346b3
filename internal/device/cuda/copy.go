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
	"tilework/internal/mapping"
)

// transfer is one copy between host and device.
type transfer struct {
	*queue
	in   bool // from the host to the device
	host []byte
	at   device.Ptr
	rows device.Rows

	staging *staging // set by run
}

// CopyIn copies to the device through pinned buffers.
func (s *queue) CopyIn(ctx context.Context, dst device.Ptr, src []byte, rows device.Rows) error {
	t := &transfer{queue: s, in: true, host: src, at: dst, rows: rows}
	return t.run(ctx, s.gpu.stagingIn)
}

// CopyOut copies from the device through pinned buffers.
func (s *queue) CopyOut(ctx context.Context, dst []byte, src device.Ptr, rows device.Rows) error {
	t := &transfer{queue: s, host: dst, at: src, rows: rows}
	return t.run(ctx, s.gpu.stagingOut)
}

// run cuts the copy into pieces and distributes them to goroutines, each with its own buffers. The
// first error ends the copy.
func (t *transfer) run(ctx context.Context, s *staging) error {
	if err := t.check(); err != nil {
		return err
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	defer s.release()
	t.staging = s
	pieces := t.partition()
	var next atomic.Int64
	var once sync.Once
	var failed error
	work := func(d *bufferRing) {
		if err := t.work(ctx, d, pieces, &next); err != nil {
			once.Do(func() { failed = err })
			next.Store(int64(pieces.count))
		}
	}
	var group taskGroup
	for i := 1; i < min(s.workers, pieces.count); i++ {
		t.gpu.workers.run(&group, func() { work(&s.rings[i]) })
	}
	work(&s.rings[0])
	group.close()
	return failed
}

// work copies pieces until none are left. When it returns, pieces to the device are enqueued and
// pieces from the device are in host memory.
func (t *transfer) work(ctx context.Context, d *bufferRing, pieces partition, next *atomic.Int64) error {
	for {
		i := int(next.Add(1)) - 1
		if i >= pieces.count {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b := d.next()
		if err := t.complete(ctx, b); err != nil {
			return err
		}
		if err := t.start(b, pieces.piece(i)); err != nil {
			return err
		}
	}
	if t.in {
		return nil
	}
	for range t.staging.perWorker {
		if err := t.complete(ctx, d.next()); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if the copy exceeds the host slice or the device allocation. It merges
// contiguous rows into one.
func (t *transfer) check() error {
	if err := t.rows.Check(len(t.host)); err != nil {
		return err
	}
	r := &t.rows
	if r.Count == 0 || r.Width == 0 {
		r.Count = 0
		return nil
	}
	if r.Count > 1 && r.HostPitch == r.Width && r.DevicePitch == r.Width {
		*r = device.Whole(r.Count * r.Width)
	}
	hi, lo := bits.Mul64(uint64(r.Count-1), uint64(r.DevicePitch))
	n := lo + uint64(r.Width)
	if hi != 0 || n < lo || n > math.MaxInt {
		return fmt.Errorf("%d rows that are %d bytes apart on the device: want less than 2^63 bytes in total", r.Count,
			r.DevicePitch)
	}
	return t.gpu.checkOwned(t.at, int(n))
}

// piece is a rectangle of a copy that fits in one buffer, where its rows are contiguous. col and
// width are in bytes.
type piece struct{ row, count, col, width int }

// partition divides the rows of a copy into pieces of several whole rows, or into parts of a row
// if a row is longer than a piece.
type partition struct {
	rows         device.Rows
	pieceRows    int
	pieceBytes   int // of each row
	piecesPerRow int
	count        int // number of pieces
}

// partition divides the copy. Pieces are as large as a buffer unless the copy is too small to fill
// all buffers.
func (t *transfer) partition() partition {
	r := t.rows
	if r.Count == 0 {
		return partition{}
	}
	// r.Count*r.Width cannot overflow, because all these bytes are in a host slice.
	s := t.staging.stagingSize
	n := min(s.bytes, max(minPieceBytes, r.Count*r.Width/(s.workers*s.perWorker)))
	p := partition{rows: r, pieceRows: max(1, n/r.Width), pieceBytes: min(n, r.Width)}
	if r.DevicePitch > t.gpu.info.maxPitch {
		p.pieceRows = 1
	}
	p.piecesPerRow = (r.Width-1)/p.pieceBytes + 1
	p.count = ((r.Count-1)/p.pieceRows + 1) * p.piecesPerRow
	return p
}

// piece returns the i-th piece.
func (p partition) piece(i int) piece {
	x := piece{row: i / p.piecesPerRow * p.pieceRows, col: i % p.piecesPerRow * p.pieceBytes}
	x.count, x.width = min(p.pieceRows, p.rows.Count-x.row), min(p.pieceBytes, p.rows.Width-x.col)
	return x
}

// start enqueues the copy of p through buffer b.
func (t *transfer) start(b *buffer, p piece) error {
	g := t.gpu
	if err := b.open(g); err != nil {
		return err
	}
	if t.in {
		if err := t.move(b, p); err != nil {
			return err
		}
	}
	return g.within(func() error {
		b.state, b.stream = issued, t.stream
		if !t.in {
			b.pending = &p
		}
		if err := t.issue(b, p); err != nil {
			return err
		}
		if err := g.call(cuEventRecord, b.event, t.stream); err != nil {
			return err
		}
		b.state = recorded
		return nil
	})
}

// complete waits until the GPU no longer uses b and moves a pending piece to the caller's memory.
func (t *transfer) complete(ctx context.Context, b *buffer) error {
	var err error
	switch b.state {
	case idle:
		return nil
	case issued:
		err = t.gpu.wait(ctx, cuStreamQuery, b.stream)
	case recorded:
		err = t.gpu.wait(ctx, cuEventQuery, b.event)
	}
	if err != nil {
		return err
	}
	b.state = idle
	if b.pending != nil {
		err = t.move(b, *b.pending)
	}
	b.pending = nil
	return err
}

// memcpy2D is CUDA_MEMCPY2D of cuda.h.
type memcpy2D struct {
	src, dst      side2D
	width, height uintptr
}

// side2D is the source or the destination of a memcpy2D.
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

// issue enqueues the copy of p between b and device memory.
func (t *transfer) issue(b *buffer, p piece) error {
	at := uintptr(t.at) + uintptr(p.row)*uintptr(t.rows.DevicePitch) + uintptr(p.col)
	if p.count == 1 || t.rows.DevicePitch == p.width {
		n := uintptr(p.count) * uintptr(p.width)
		if t.in {
			return t.gpu.call(cuMemcpyIn, at, b.address, n, t.stream)
		}
		return t.gpu.call(cuMemcpyOut, b.address, at, n, t.stream)
	}
	c := memcpy2D{width: uintptr(p.width), height: uintptr(p.count)}
	c.src = side2D{kind: onHost, host: b.address, pitch: uintptr(p.width)}
	c.dst = side2D{kind: onDevice, device: at, pitch: uintptr(t.rows.DevicePitch)}
	if !t.in {
		c.src, c.dst = c.dst, c.src
	}
	return t.gpu.call(cuMemcpy2D, uintptr(unsafe.Pointer(&c)), t.stream)
}

// move copies p between b and the caller's memory.
func (t *transfer) move(b *buffer, p piece) error {
	return mapping.Access(func() { t.moveRows(b, p) })
}

func (t *transfer) moveRows(b *buffer, p piece) {
	pinned, r := b.memory(), t.rows
	row := func(i int) []byte { return t.host[(p.row+i)*r.HostPitch+p.col:][:p.width] }
	for i := range p.count {
		part := pinned[i*p.width:][:p.width]
		if t.in {
			t.staging.move(part, row(i), row(min(i+1, p.count-1)))
		} else {
			t.staging.move(row(i), part, nil)
		}
	}
	asm.Fence()
}
