package resident

import (
	"context"
	"fmt"

	"tilework/internal/backend"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/multi"
	"tilework/internal/program"
	"tilework/internal/sentinel"
	"tilework/internal/split"
)

// Matrix is a matrix in device memory, Offset bytes after its start. The zero Matrix is empty and
// on no device.
type Matrix struct {
	Memory *Memory
	Offset int
	Layout gemm.Layout
}

// New allocates a matrix with undefined elements, on several GPUs divided in the given way. A
// matrix whose products would not be faster is on the first GPU alone or whole on each. The device
// chooses the leading dimension. The errors are those of [GPUs.Alloc], and ErrShape.
func New(d *GPUs, l gemm.Layout, by split.By) (Matrix, error) {
	return allocate(d, l, 1, by, split.EvenUnit(by, l.Rows, l.Cols, len(d.members), d.unit))
}

// NewBatch allocates count matrices, one after the other, and returns the first. Several GPUs have
// some whole matrices each, some columns of each if by is Columns, or all if by is OnEach.
// Otherwise it is like New.
func NewBatch(d *GPUs, l gemm.Layout, count int, by split.By) (Matrix, error) {
	unit := max(l.Rows, 1)
	if by == split.Columns {
		unit = split.EvenUnit(by, l.Rows, l.Cols, len(d.members), d.unit)
	}
	m, err := allocate(d, l, count, by, unit)
	m.Layout.Rows = l.Rows
	return m, err
}

// allocate allocates count matrices below each other. Several GPUs divide the rows or columns of
// all at multiples of unit, if their products are then faster.
func allocate(d *GPUs, one gemm.Layout, count int, by split.By, unit int) (Matrix, error) {
	l := one
	l.Rows *= count
	if err := l.Check("the matrix"); err != nil {
		return Matrix{}, err
	}
	there := gemm.Padded(l)
	if err := there.Check("the matrix"); err != nil {
		return Matrix{}, err
	}
	elements := gemm.Dense(l.Type, l.Rows, l.Cols)
	if !d.Divided() {
		m, err := d.Alloc(there.Bytes(), elements)
		return Matrix{Memory: m, Layout: there}, err
	}
	asked := by
	if by != split.OnEach {
		switch d.placementOf(one, count) {
		case onFirst:
			unit = max(l.Rows, l.Cols, 1)
		case onEach:
			by = split.OnEach
		}
	}
	b := &block{device: d, asked: asked, unit: unit, layout: there, size: there.Bytes()}
	whole := split.New(by, l.Rows, l.Cols, d.weights, unit)
	b.whole = &whole
	var sizes []int
	for i := range d.members {
		part := split.LayoutOf(l.Type, b.whole.Part(i))
		b.ld = append(b.ld, part.LD)
		sizes = append(sizes, part.Bytes())
	}
	m, err := d.alloc(b, sizes, elements)
	return Matrix{Memory: m, Layout: there}, err
}

// at returns the address of the matrix on a single GPU, or its offset in the block.
func (m Matrix) at() device.Ptr {
	if m.Memory.device.Divided() {
		return device.Ptr(m.Offset)
	}
	return m.Memory.at[0] + device.Ptr(m.Offset)
}

// place returns the place of the matrix in its block.
func (m Matrix) place() split.Place {
	at, ld := m.Layout.Type.Elements(m.Offset), m.Memory.layout.LD
	return split.Place{Matrix: m.Memory.whole, Row: at / ld, Col: at % ld}
}

// placeOf returns the place of the first of count matrices, which begin every stride elements. The
// error is ErrUnsupported unless they are below each other or side by side.
func (m Matrix) placeOf(count, stride int) (split.Place, error) {
	at, ld := m.place(), m.Memory.layout.LD
	switch end := at.Col + (count-1)*stride + m.Layout.Cols; {
	case count < 2:
	case stride%ld == 0:
		at.Step.Rows = stride / ld
	case end <= at.Matrix.Cols:
		at.Step.Cols = stride
	default:
		return at, fmt.Errorf("%w: %d matrices of %v on %v that begin every %d elements of rows of %d: want them below each "+
			"other or side by side", gemm.ErrUnsupported, count, m.Layout, m.Memory.device, stride, ld)
	}
	return at, nil
}

// part returns the stored elements of the matrix as a part of its block.
func (m Matrix) part() program.Rect {
	at := m.place()
	return program.RectAt(at.Row, at.Col, m.Layout.Rows, m.Layout.Cols)
}

// Part returns the part of the matrix that this process stores, which is all of it.
func (m Matrix) Part() program.Rect {
	return program.First(m.Layout.OpRows()).By(program.First(m.Layout.OpCols()))
}

// address returns the address of a part of the block, which a member has.
func (b *block) address(member int, part program.Rect) device.Ptr {
	has, ld := b.whole.Part(member), b.ld[member]
	return b.at[member] + device.Ptr(split.Offset(b.layout.Type, has, ld, part))
}

// CopyIn copies the matrix from host memory, where its stored rows have layout l. The errors are
// the context's, the device's and ErrClosed.
func (m Matrix) CopyIn(ctx context.Context, host []byte, l gemm.Layout) error {
	return m.use(ctx, func() error {
		return m.eachPiece(ctx, host, l, m.Memory.whole.Holds, func(ctx context.Context, d device.Device, p piece) error {
			return d.CopyIn(ctx, p.at, p.host, p.rows)
		})
	})
}

// CopyOut copies the matrix to host memory, where its stored rows have layout l, after all earlier
// work. The errors are those of CopyIn and of that work.
func (m Matrix) CopyOut(ctx context.Context, host []byte, l gemm.Layout) error {
	once := func(part program.Rect) []split.Piece { return m.Memory.whole.Pieces(part, 0) }
	return m.use(ctx, func() error {
		return m.eachPiece(ctx, host, l, once, func(ctx context.Context, d device.Device, p piece) error {
			return d.CopyOut(ctx, p.host, p.at, p.rows)
		})
	})
}

// piece is the part of a copy between the host and one GPU.
type piece struct {
	at   device.Ptr
	host []byte
	rows device.Rows
}

// eachPiece calls f for the pieces of a copy, those of different members at the same time. divide
// divides the matrix into the pieces of members.
func (m Matrix) eachPiece(ctx context.Context, host []byte, l gemm.Layout, divide func(program.Rect) []split.Piece,
	f func(context.Context, device.Device, piece) error) error {
	b := m.Memory.block
	d := b.device
	if !d.Divided() {
		return f(ctx, d.first().Device, piece{m.at(), host, exec.Rows(l, m.Layout)})
	}
	part := m.part()
	pieces := divide(part)
	return multi.Each(ctx, len(pieces), func(i int) backend.DeviceName { return d.members[pieces[i].Member].name },
		func(ctx context.Context, i int) error {
			x := pieces[i]
			there := m.Layout
			there.Rows, there.Cols, there.LD = x.Part.Rows.Len(), x.Part.Cols.Len(), b.ld[x.Member]
			here := there
			here.LD = l.LD
			from := host[split.Offset(l.Type, part, l.LD, x.Part):]
			return f(ctx, d.members[x.Member].backend.Device,
				piece{b.address(x.Member, x.Part), from, exec.Rows(here, there)})
		})
}

// isRow reports whether a vector is stored as one row, as kernels read it.
func (m Matrix) isRow() bool {
	if m.Memory.device.Divided() {
		return m.Layout.Rows <= 1
	}
	_, contiguous := m.Layout.Row()
	return contiguous
}

// row enqueues a copy of a vector on a single GPU to one row, and returns the copy.
func (m Matrix) row(ctx context.Context) (Matrix, error) {
	l, _ := m.Layout.Row()
	to, err := New(m.Memory.device, l, split.OnEach)
	if err != nil {
		return to, err
	}
	err = m.use(ctx, func() error {
		d, size := m.Memory.device.first().Device, l.Type.Bytes(1)
		return d.CopyPeer(to.at(), d, m.at(), device.PeerRows{Count: l.Cols, Width: size,
			FromPitch: m.Layout.LD * size, ToPitch: size})
	})
	if err != nil {
		err = device.Join(err, to.Memory.Close())
	}
	return to, err
}

// use calls f, during which the matrix stays allocated, unless the matrix is empty.
func (m Matrix) use(ctx context.Context, f func() error) error {
	if err := m.there("the matrix"); err != nil {
		return err
	}
	d := m.Memory.device
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := m.Memory.hold(); err != nil {
		return err
	}
	defer m.Memory.release()
	if err := ctx.Err(); err != nil || m.Layout.Len() == 0 {
		return err
	}
	return f()
}

func (m Matrix) there(name string) error {
	if m.Memory == nil {
		return fmt.Errorf("%w: %s is on none", sentinel.ErrNoDevice, name)
	}
	return nil
}
