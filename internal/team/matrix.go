package team

import (
	"context"
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/sentinel"
	"tilework/internal/split"
)

// Memory is a matrix that is divided among the ranks, with the memory of this rank's part.
type Memory struct {
	team  *Team
	whole split.Matrix
	block block // of this rank's part, in the layout of [split.LayoutOf]
}

// Team returns the team whose ranks store the matrix.
func (m *Memory) Team() *Team { return m.team }

// Matrix is a matrix that is divided among the ranks, or its transpose. Layout is that of the whole
// matrix.
type Matrix struct {
	Memory *Memory
	Layout gemm.Layout
}

// New allocates this rank's part of a matrix, whose elements are undefined. It does not
// communicate. The errors are ErrShape, ErrOutOfMemory and ErrClosed.
func (t *Team) New(l gemm.Layout, by split.By) (m Matrix, err error) {
	if err := l.Check("the matrix"); err != nil {
		return m, err
	}
	m.Layout = gemm.Padded(l)
	if err := m.Layout.Check("the matrix"); err != nil {
		return m, err
	}
	m.Memory = &Memory{team: t, whole: split.Even(by, l.Rows, l.Cols, t.weights, t.unit)}
	err = t.use(func() error {
		there := split.LayoutOf(l.Type, m.Memory.own())
		m.Memory.block, err = t.store.alloc(there.Bytes(), fmt.Sprintf("rank %d's part of a matrix of %v", t.group.Rank(), l))
		if err == nil {
			t.live[m.Memory] = struct{}{}
		}
		return err
	})
	return m, err
}

// own returns the stored rows and columns that this rank has.
func (m *Memory) own() program.Rect { return m.whole.Part(m.team.group.Rank()) }

// Part returns the rows and columns of the matrix that this rank has.
func (m Matrix) Part() program.Rect {
	if m.Layout.Trans {
		return m.Memory.own().T()
	}
	return m.Memory.own()
}

// By returns the way in which the matrix is divided.
func (m Matrix) By() split.By {
	if m.Layout.Trans {
		return m.Memory.whole.By.T()
	}
	return m.Memory.whole.By
}

// CopyIn copies this rank's part from host memory, where its stored rows have layout l. It does not
// communicate.
func (m Matrix) CopyIn(ctx context.Context, host []byte, l gemm.Layout) error {
	return m.move(func(s store, p part) error { return s.write(ctx, kernels, p, host, l.Type.Bytes(l.LD)) })
}

// CopyOut copies this rank's part to host memory, where its stored rows have layout l. It does not
// communicate.
func (m Matrix) CopyOut(ctx context.Context, host []byte, l gemm.Layout) error {
	return m.move(func(s store, p part) error { return s.read(ctx, kernels, host, l.Type.Bytes(l.LD), p) })
}

// move calls f with this rank's part, unless it is empty.
func (m Matrix) move(f func(store, part) error) error {
	t := m.Memory.team
	return t.use(func() error {
		if err := m.Memory.check(); err != nil {
			return err
		}
		l := split.LayoutOf(m.Layout.Type, m.Memory.own())
		if l.Len() == 0 {
			return nil
		}
		return f(t.store, part{m.Memory.block, l.Rows, l.Type.Bytes(l.Cols), l.Type.Bytes(l.LD)})
	})
}

// check returns ErrClosed if the matrix is closed. The caller uses the team.
func (m *Memory) check() error {
	if _, has := m.team.live[m]; !has {
		return fmt.Errorf("%w: a matrix of several ranks", sentinel.ErrClosed)
	}
	return nil
}

// Close frees this rank's part. A second call does nothing. The error is ErrNoDevice if the device
// hangs.
func (m *Memory) Close() error {
	t := m.team
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.check() != nil {
		return nil
	}
	delete(t.live, m)
	return t.free(m.block)
}
