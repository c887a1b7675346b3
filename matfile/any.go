package matfile

import (
	"context"
	"fmt"
	"io"
	"unsafe"

	"tilework"
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/matio"
)

// Any is a matrix whose element type is known at run time only. [As] returns it as a
// [tilework.Matrix].
type Any struct {
	Type       dtype.Type
	Rows, Cols int
	Transposed bool // Data holds the matrix column by column instead of row by row
	// Data holds the elements without gaps, in the byte order of the machine, aligned for the type. It
	// must not be written to if it is a mapped file.
	Data []byte

	file *matio.Matrix // nil unless it was read
}

// ReadAny reads the matrix with the given name as elements of type t. For [dtype.Invalid] it keeps
// the type of the file, which is float64 for text; the error wraps [ErrNeedsType] if no element
// type holds the elements unchanged. See [ReadOptions.MapFrom] for matrices that must be closed.
func ReadAny(ctx context.Context, name string, t dtype.Type, o *ReadOptions) (*Any, error) {
	mapFrom := 0
	if o != nil {
		mapFrom = o.MapFrom
	}
	return read(ctx, name, t, o, mapFrom)
}

// read reads a matrix, or maps it if mapFrom is positive and the matrix has at least as many bytes.
func read(ctx context.Context, name string, t dtype.Type, o *ReadOptions, mapFrom int) (*Any, error) {
	options, err := o.matio(ctx, t)
	if err != nil {
		return nil, err
	}
	options.Map = mapFrom
	return anyOf(matio.Read(ctx, name, options))
}

// anyOf returns a matrix that was read, which has no gaps between its rows.
func anyOf(m *matio.Matrix, err error) (*Any, error) {
	if err != nil {
		return nil, err
	}
	return &Any{Type: m.Type, Rows: m.OpRows(), Cols: m.OpCols(), Transposed: m.Trans, Data: m.Data, file: m}, nil
}

// As returns m as a matrix of its element type, which shares the memory of m. The error wraps
// [tilework.ErrUnsupported] if the elements have another type.
func As[T dtype.Element](m *Any) (tilework.Matrix[T], error) {
	l, err := m.layout()
	if err == nil && l.Type != dtype.Of[T]() {
		err = fmt.Errorf("%w: a matrix of %v as one of %v", tilework.ErrUnsupported, l.Type, dtype.Of[T]())
	}
	if err != nil {
		return tilework.Matrix[T]{}, err
	}
	out := tilework.FromSlice(l.Rows, l.Cols, dtype.View[T](m.Data))
	if l.Trans {
		out = out.T()
	}
	return out, out.Err()
}

// layout returns the layout of Data, or the error of fields that describe no matrix.
func (m *Any) layout() (gemm.Layout, error) {
	if !m.Type.Valid() {
		return gemm.Layout{}, fmt.Errorf("%w: a matrix of type %v", tilework.ErrUnsupported, m.Type)
	}
	l := gemm.Dense(m.Type, m.Rows, m.Cols)
	if m.Transposed {
		l = gemm.Dense(m.Type, m.Cols, m.Rows).T()
	}
	if err := l.Check("the matrix"); err != nil {
		return l, err
	}
	if len(m.Data) != l.Bytes() {
		return l, fmt.Errorf("%w: %d bytes for a %d×%d matrix of %v, want %d", tilework.ErrShape, len(m.Data), m.Rows, m.Cols,
			m.Type, l.Bytes())
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))); at%uintptr(m.Type.Size()) != 0 {
		return l, fmt.Errorf("%w: the matrix at address %#x is not aligned for %v", tilework.ErrUnsupported, at, m.Type)
	}
	return l, nil
}

// RowMajor returns m if it is stored row by row, and a copy otherwise. If ctx ends first, it
// returns its error.
func (m *Any) RowMajor(ctx context.Context) (*Any, error) {
	l, err := m.layout()
	if err != nil || !l.Trans {
		return m, err
	}
	stored := matio.Matrix{Layout: l, Data: m.Data}
	dense, data, err := stored.RowMajor(ctx)
	if err != nil {
		return nil, err
	}
	return &Any{Type: m.Type, Rows: dense.Rows, Cols: dense.Cols, Data: data}, nil
}

// Write writes m to a file, as [Write] does.
func (m *Any) Write(ctx context.Context, name string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	l, err := m.layout()
	if err != nil {
		return err
	}
	return matio.Write(ctx, name, l, m.Data, true)
}

// Encode writes m to w, as [Encode] does.
func (m *Any) Encode(ctx context.Context, w io.Writer, name string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	l, err := m.layout()
	if err != nil {
		return err
	}
	return matio.Encode(ctx, w, name, l, m.Data)
}

// CheckUnchanged returns an error that wraps [ErrChanged] if the file of m was modified after it
// was opened. It returns nil if the file was replaced by another one, or if m was not read from a
// file.
func (m *Any) CheckUnchanged() error {
	if m.file == nil {
		return nil
	}
	return m.file.CheckUnchanged()
}

// IsMapped reports whether Data is a mapped file.
func (m *Any) IsMapped() bool { return m.file != nil && m.file.Mapped() }

// Close releases Data if it is a mapped file. Further calls do nothing.
func (m *Any) Close() error {
	if !m.IsMapped() {
		return nil
	}
	m.Data = nil
	return m.file.Close()
}
