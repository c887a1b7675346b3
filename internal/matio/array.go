package matio

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// Array is a numeric array of an .npy file, with any number of dimensions.
type Array struct {
	Type  string // as in NumPy, without the byte order: "f4", "u2", "b1"
	Shape []int
	Data  []byte // row by row, little-endian
}

// arrayTypes lists the element types of an Array.
var arrayTypes = []string{"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}

// Spelling returns the type of an Array for the name of an element type, such as "u4" for "u32".
func Spelling(name string) (spelling string, ok bool) {
	spelling, ok = spellings[name]
	return spelling, ok
}

// SpelledNames returns the names that [Spelling] takes, in order.
func SpelledNames() []string { return slices.Sorted(maps.Keys(spellings)) }

var spellings = map[string]string{
	"u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "s8": "i1", "s16": "i2", "s32": "i4", "s64": "i8", "i8": "i1",
	"i16": "i2", "i32": "i4", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
}

// Matrix returns the type of the elements and true if the array is a matrix of a type that
// multiplications take.
func (a *Array) Matrix() (t dtype.Type, ok bool) {
	for t, spelling := range npyTypes {
		if spelling == a.Type && len(a.Shape) == 2 {
			return t, true
		}
	}
	return dtype.Invalid, false
}

// Element returns element i as text.
func (a *Array) Element(i int) string {
	data := a.Data[i*a.Size():][:a.Size()]
	for t, spelling := range npyTypes {
		if spelling == a.Type {
			return strconv.FormatFloat(t.At(data, 0), 'g', 6, 64)
		}
	}
	var word [8]byte
	copy(word[:], data)
	bits := binary.LittleEndian.Uint64(word[:])
	if a.Type[0] == 'i' {
		unused := 64 - 8*a.Size()
		return strconv.FormatInt(int64(bits<<unused)>>unused, 10)
	}
	return strconv.FormatUint(bits, 10)
}

// Size returns the size of an element in bytes.
func (a *Array) Size() int { return int(a.Type[1] - '0') }

// ReadArray reads the .npy file at path without converting its elements. It returns the errors of
// [Read], and [gemm.ErrUnsupported] for other formats, streams, elements that are no numbers and
// arrays of several dimensions in Fortran order.
func ReadArray(ctx context.Context, path string, o ReadOptions) (*Array, error) {
	if filepath.Ext(path) != ".npy" || IsStream(path) {
		return nil, fmt.Errorf("%s: not a regular .npy file: %w", oneLine(path), gemm.ErrUnsupported)
	}
	s, err := openSource(ctx, path, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	a, err := s.readArray()
	if changed := s.checkUnchanged(); changed != nil {
		return nil, changed
	}
	return a, err
}

func (s *source) readArray() (*Array, error) {
	d, length, err := s.npyDict(s.section(0, s.size), s.size)
	if err != nil {
		return nil, err
	}
	big, spelling := npySpelling(d.descr)
	switch {
	case !slices.Contains(arrayTypes, spelling):
		return nil, s.fail(gemm.ErrUnsupported, "elements of type %.40q, want one of %s", d.descr,
			strings.Join(arrayTypes, ", "))
	case d.fortran && len(d.shape) > 1:
		return nil, s.fail(gemm.ErrUnsupported, "an array of %d dimensions in Fortran order, want C order", len(d.shape))
	}
	a := &Array{Type: spelling}
	n := s.size - length
	if err := s.checkLength(d.shape, spelling, a.Size(), n); err != nil {
		return nil, err
	}
	for _, side := range d.shape {
		a.Shape = append(a.Shape, int(side))
	}
	if err := s.opt.room(int(n), "the array of "+oneLine(s.spec)); err != nil {
		return nil, err
	}
	a.Data = make([]byte, n)
	if _, err := io.ReadFull(s.section(length, n), a.Data); err != nil {
		return nil, s.readError(err)
	}
	if big {
		for k := 0; k < len(a.Data); k += a.Size() {
			slices.Reverse(a.Data[k : k+a.Size()])
		}
	}
	return a, nil
}

// checkLength returns an error unless the elements of an array, of size bytes each, take exactly
// have bytes.
func (s *source) checkLength(shape []uint64, typeName string, size int, have int64) error {
	n := uint64(size)
	for _, side := range shape {
		over, product := bits.Mul64(n, side)
		if over != 0 || max(side, product) > math.MaxInt {
			return s.fail(tooLarge(), "shape %v of %s has 2^%d or more bytes", shape, typeName, strconv.IntSize-1)
		}
		n = product
	}
	if n != uint64(have) {
		return s.fail(ErrFormat, "shape %v of type %s needs %d bytes, the file has %d", shape, typeName, n, have)
	}
	return nil
}

// Encode returns a as an .npy file.
func (a *Array) Encode() []byte {
	var shape strings.Builder
	for _, side := range a.Shape {
		fmt.Fprintf(&shape, "%d, ", side)
	}
	order := "<"
	if a.Size() == 1 {
		order = "|"
	}
	return append(npyStart(order+a.Type, shape.String()), a.Data...)
}

// npyStart returns the start of an .npy file in C order, up to the elements.
func npyStart(descr, shape string) []byte {
	shape = strings.TrimSuffix(shape, " ")
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	// Align the elements to 64 bytes, for readers that map the file.
	const prefix = len(npyMagic) + 4
	header += strings.Repeat(" ", 63-(prefix+len(header))%64) + "\n"
	start := append([]byte(npyMagic), 1, 0)
	start = binary.LittleEndian.AppendUint16(start, uint16(len(header)))
	return append(start, header...)
}
