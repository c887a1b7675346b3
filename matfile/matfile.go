// Package matfile reads matrices from files and streams, and writes them: .npy and .npz of NumPy,
// .safetensors, Matrix Market .mtx, and .csv. The command tilework reads, lists and writes matrices
// with this package.
//
//	a, err := matfile.Read[float32](ctx, "a.npy", nil)
//	w, err := matfile.Read[float32](ctx, "model.safetensors::layer.0.weight", nil)
//	c, err := tilework.Mul(ctx, a, w)
//	err = matfile.Write(ctx, "c.csv", c)
//
// # Names
//
// A name is the path of a file, or "path::member" for one array of an .npz or .safetensors file.
// The member may be omitted if exactly one array is a matrix, and is "c" by default in a file that
// is written. The extension selects the format, case-insensitively; .tsv, .txt and .dat are text
// like .csv. The first bytes of a file without one of these extensions select it, as for a pipe
// such as /dev/stdin, which is read to its end, and of a file that gzip has compressed.
//
// # Text
//
// Semicolons, commas, tabs or blanks separate numbers, as in the first line of numbers. A comma is
// a decimal comma unless it separates numbers. Numbers may be quoted, # starts a comment, a line
// may end with a delimiter, and a byte order mark selects UTF-16.
//
// # Elements
//
// The elements of every numeric type of these formats are converted to the type of the matrix. A
// conversion to a floating-point type rounds once, to nearest, ties to even. A number that is too
// large for the type is an error that wraps [ErrOverflow], unless [ReadOptions.Overflow] is set. A
// conversion to an integer type accepts only whole numbers in its range. [ReadAny] can keep the
// type of the file. An array of one dimension is a matrix of one row, see [ReadOptions.Dims].
//
// # Safety
//
// Files may come from strangers. Headers are checked against the size of the file before memory is
// allocated, a matrix must fit into the free memory, and [ErrExpansion] limits how much larger than
// its file it may be. Nothing in a file is executed. Reading fails if the file is modified
// meanwhile.
//
// # Errors
//
// Errors wrap one of those of this package, [tilework.ErrUnsupported] for an array that is not a
// matrix or a type that a format cannot store, [tilework.ErrOutOfMemory], [tilework.ErrShape], or
// an error of the operating system such as [io/fs.ErrNotExist], or are the context's. Each message
// is one line that contains the name. All functions are safe for concurrent use.
package matfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"tilework"
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
)

// Errors of files. Test for them with [errors.Is].
var (
	// ErrFormat reports a malformed file.
	ErrFormat = matio.ErrFormat
	// ErrMember reports a member that the file does not hold, or that must be named.
	ErrMember = matio.ErrMember
	// ErrOverflow reports a number that is too large for a floating-point type.
	ErrOverflow = matio.ErrOverflow
	// ErrRange reports a number that an integer type cannot hold.
	ErrRange = matio.ErrRange
	// ErrNeedsType reports elements that must be converted, such as int64. See [ReadAny].
	ErrNeedsType = matio.ErrNeedsType
	// ErrExpansion reports a sparse .mtx file or a compressed file whose matrix or content would
	// take more than 256 MiB and more than 64 times the bytes of the file. It wraps
	// [tilework.ErrOutOfMemory]. See [ReadOptions.Expand].
	ErrExpansion = matio.ErrExpansion
	// ErrChanged reports a file that was modified while it was read.
	ErrChanged = matio.ErrChanged
)

// ReadOptions controls how a matrix is read. A nil *ReadOptions is the zero value.
type ReadOptions struct {
	// Overflow, if set, accepts numbers that are too large for a floating-point type. They become
	// infinities, or NaNs in types without infinity. If there are any, Overflow is called once
	// after reading, with the error for the first one and their count.
	Overflow func(first error, count int)
	// Dims selects the shapes that are read. The zero value is [RowOrMatrix].
	Dims Dims
	// Stdin, if set, is read to its end for the name "-", which may have an extension ("-.csv") and a
	// member ("-::w"), and for /dev/stdin.
	Stdin io.Reader
	// MapFrom, if positive, is the size in bytes from which [ReadAny] maps a file, as [Map] does. The
	// caller then closes the matrix.
	MapFrom int
	// Expand accepts matrices that are far larger than their files, if they fit into the free
	// memory. See [ErrExpansion].
	Expand bool
	// CSVHeader is the number of lines that are not blank to skip at the start of a .csv file.
	CSVHeader int
	// CSVDelimiter is the character between the numbers of a .csv file. ' ' is any number of
	// blanks, and 0 the semicolon, comma, tab or blanks in the first line of numbers.
	CSVDelimiter byte
	// CSVMissing reads empty fields and NA in .csv files as NaN.
	CSVMissing bool
}

// Dims selects the shapes that are read, and the matrix that an array of one dimension becomes.
type Dims uint8

const (
	RowOrMatrix    Dims = iota // n elements become a 1×n matrix
	ColumnOrMatrix             // n elements become an n×1 matrix
	OnlyMatrix                 // an array of one dimension is refused
	OnlyVector                 // n elements, or a 1×n or n×1 matrix, become a 1×n matrix
)

// oneD holds the value of [matio.ReadOptions] for each Dims.
var oneD = [...]matio.OneD{
	RowOrMatrix: matio.Row, ColumnOrMatrix: matio.Column, OnlyMatrix: matio.NoMatrix, OnlyVector: matio.Vector,
}

// matio returns the options for reading elements of type t, or of any type for [dtype.Invalid].
func (o *ReadOptions) matio(ctx context.Context, t dtype.Type) (matio.ReadOptions, error) {
	if o == nil {
		o = &ReadOptions{}
	}
	if err := checkContext(ctx); err != nil {
		return matio.ReadOptions{}, err
	}
	if t != dtype.Invalid && !t.Valid() {
		return matio.ReadOptions{}, fmt.Errorf("%w: elements of type %v", tilework.ErrUnsupported, t)
	}
	if int(o.Dims) >= len(oneD) {
		return matio.ReadOptions{}, fmt.Errorf("ReadOptions.Dims is %d: want at most %d", o.Dims, len(oneD)-1)
	}
	return matio.ReadOptions{
		Type: t, OneD: oneD[o.Dims], Overflow: o.Overflow, Expand: o.Expand, Room: host.CheckMemory, Stdin: o.Stdin,
		CSV: matio.CSV{Header: o.CSVHeader, Delimiter: o.CSVDelimiter, Missing: o.CSVMissing},
	}, nil
}

// Read reads the matrix with the given name. A matrix that the file stores by columns is the
// transpose of one that is stored by rows.
func Read[T dtype.Element](ctx context.Context, name string, o *ReadOptions) (tilework.Matrix[T], error) {
	return matrix[T](read(ctx, name, dtype.Of[T](), o, 0))
}

// Decode reads a matrix from r, which it reads to its end. The name is that of a file that is not
// opened: its extension selects the format, or without a known one the content. "::" and a member
// may follow. If ctx ends while r waits, Decode returns, and a goroutine waits until r returns.
func Decode[T dtype.Element](ctx context.Context, r io.Reader, name string,
	o *ReadOptions) (tilework.Matrix[T], error) {
	options, err := o.matio(ctx, dtype.Of[T]())
	if err != nil {
		return tilework.Matrix[T]{}, err
	}
	return matrix[T](anyOf(matio.Decode(ctx, r, name, options)))
}

// matrix returns a matrix that was read as elements of type T.
func matrix[T dtype.Element](m *Any, err error) (tilework.Matrix[T], error) {
	if err != nil {
		return tilework.Matrix[T]{}, err
	}
	return As[T](m)
}

// Write writes m to the file with the given name, row by row, or column by column to a .mtx file.
// It writes a temporary file in the same folder and renames it, so that the file appears whole or,
// after an error, not at all. An existing file is replaced, except an archive that holds other
// arrays: the error then wraps [io/fs.ErrExist].
func Write[T dtype.Element](ctx context.Context, name string, m tilework.Matrix[T]) error {
	if err := cmp.Or(checkContext(ctx), m.Err()); err != nil {
		return err
	}
	return matio.Write(ctx, name, layout(m), dtype.Bytes(m.Data()), true)
}

// Encode writes m to w, as [Write] does to a file. The name is that of a file that is not opened:
// its extension selects the format, and it may name a member.
func Encode[T dtype.Element](ctx context.Context, w io.Writer, name string, m tilework.Matrix[T]) error {
	if err := cmp.Or(checkContext(ctx), m.Err()); err != nil {
		return err
	}
	return matio.Encode(ctx, w, name, layout(m), dtype.Bytes(m.Data()))
}

// layout returns the layout of the elements of m.
func layout[T dtype.Element](m tilework.Matrix[T]) gemm.Layout {
	stored := m
	if m.Transposed() {
		stored = m.T()
	}
	return gemm.Layout{Type: dtype.Of[T](), Rows: stored.Rows(), Cols: stored.Cols(), LD: max(m.Stride(), 1),
		Trans: m.Transposed()}
}

// Array describes an array of a file.
type Array struct {
	Name     string     // the name for Read: "w.npz::x"
	Member   string     // the name of the array in an archive: "x"
	Spelling string     // the type of the elements as the file spells it: "<f4", or "text"
	Type     dtype.Type // the type that holds them unchanged, or Invalid if there is none; float64 for text
	Shape    []uint64   // of any number of dimensions
	Err      error      // the reason why the array cannot be read, if its header gives one
}

// List returns all arrays of the file with the given name, including those that are not matrices.
// It reads headers only, except that it counts the lines of .csv files.
func List(ctx context.Context, name string, o *ReadOptions) ([]Array, error) {
	options, err := o.matio(ctx, dtype.Invalid)
	if err != nil {
		return nil, err
	}
	entries, err := matio.List(ctx, name, options)
	if err != nil {
		return nil, err
	}
	arrays := make([]Array, len(entries))
	for i, e := range entries {
		arrays[i] = Array{Name: e.Spec(name), Member: e.Member, Spelling: e.Type, Type: e.Native, Shape: e.Shape, Err: e.Err}
	}
	return arrays, nil
}

// checkContext returns an error for a nil context, as package tilework does.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return errors.New("nil Context: want one, such as context.Background()")
	}
	return nil
}
