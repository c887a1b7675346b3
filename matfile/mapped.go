package matfile

import (
	"context"

	"tilework"
	"tilework/dtype"
)

// Mapped is a matrix whose memory may be a mapped file. The system reads the parts of the file that
// are used, and can drop them again, so that the matrix may be larger than the machine's memory.
type Mapped[T dtype.Element] struct {
	matrix tilework.Matrix[T]
	file   *Any
}

// Map maps the matrix with the given name into memory, if the system is Linux and the file is an
// .npy or .safetensors file with aligned elements of type T in the machine's byte order. Otherwise
// it reads the matrix like [Read], into memory that must be free.
//
// The caller closes the result. The matrix must not be written to. If another program makes the
// file shorter, an access to the missing part ends the program, and other changes of the file
// change the matrix.
func Map[T dtype.Element](ctx context.Context, name string, o *ReadOptions) (*Mapped[T], error) {
	file, err := read(ctx, name, dtype.Of[T](), o, 1)
	if err != nil {
		return nil, err
	}
	m, err := As[T](file)
	return &Mapped[T]{m, file}, err
}

// Matrix returns the matrix. It must not be used after Close.
func (m *Mapped[T]) Matrix() tilework.Matrix[T] { return m.matrix }

// IsMapped reports whether the memory of the matrix is a mapped file.
func (m *Mapped[T]) IsMapped() bool { return m.file.IsMapped() }

// Close releases the memory of the matrix. Further calls do nothing.
func (m *Mapped[T]) Close() error {
	m.matrix = tilework.Matrix[T]{}
	return m.file.Close()
}
