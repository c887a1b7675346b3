package matio

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"unsafe"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/mapping"
)

// element describes the elements of a file.
type element struct {
	*dtype.Info            // only the name in NumPy and the bits are set for foreign elements
	native      dtype.Type // the type with the same representation; Invalid if elements must be converted
	load        func(dst []float64, b []byte)
	loadOdd     func(dst []float64, b []byte) // rounds to odd; nil if load is exact
}

// nativeElement returns the element of a dtype.
func nativeElement(t dtype.Type) element { return element{Info: t.Info(), native: t, load: t.Load} }

// foreign lists the elements that must be converted, with their spellings.
var foreign = []struct {
	element
	npy, safetensors string
}{
	{converted[int64]("int64"), "i8", "I64"},
	{converted[uint64]("uint64"), "u8", "U64"},
	{converted[uint32]("uint32"), "u4", "U32"},
	{converted[int16]("int16"), "i2", "I16"},
	{converted[uint16]("uint16"), "u2", "U16"},
	{element{Info: &dtype.Info{Name: "bool", Size: 1}, load: loadBools}, "b1", "BOOL"},
}

// npyForeign and safetensorsForeign map spellings to foreign elements. NumPy has no bfloat16 and no
// 8-bit floats: those of the Python package ml_dtypes are stored as raw memory, or as f1.
var npyForeign, safetensorsForeign = func() (npy, safetensors map[string]element) {
	npy = map[string]element{
		"V2": nativeElement(dtype.BF16), "bfloat16": nativeElement(dtype.BF16),
		"float8_e4m3fn": nativeElement(dtype.F8E4M3),
		"f1":            nativeElement(dtype.F8E5M2), "float8_e5m2": nativeElement(dtype.F8E5M2),
	}
	safetensors = map[string]element{}
	for _, f := range foreign {
		npy[f.npy], safetensors[f.safetensors] = f.element, f.element
	}
	return npy, safetensors
}()

// converted returns the element of a Go type that matrices cannot have.
func converted[T int16 | int64 | uint16 | uint32 | uint64](name string) element {
	e := element{
		Info: &dtype.Info{Name: name, Size: int(unsafe.Sizeof(*new(T)))},
		load: func(dst []float64, b []byte) {
			for i, v := range goSlice[T](b, len(dst)) {
				dst[i] = float64(v)
			}
		},
	}
	if e.Size > 6 {
		e.loadOdd = func(dst []float64, b []byte) {
			for i, v := range goSlice[T](b, len(dst)) {
				if v < 0 {
					dst[i] = -toOdd(-uint64(v))
				} else {
					dst[i] = toOdd(uint64(v))
				}
			}
		}
	}
	return e
}

// goSlice returns b as n elements.
func goSlice[T any](b []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// loader returns the function that loads elements as float64s from which t rounds.
func (e element) loader(t dtype.Type) func(dst []float64, b []byte) {
	if e.loadOdd != nil && t != dtype.F64 {
		return e.loadOdd
	}
	return e.load
}

// loadBools converts each nonzero byte to 1.
func loadBools(dst []float64, b []byte) {
	for i := range dst {
		dst[i] = 0
		if b[i] != 0 {
			dst[i] = 1
		}
	}
}

// batch is the number of elements that load reads at a time.
const batch = 32 << 10

// loadOrMap maps the elements of l, which take length bytes of the file from offset, if the options
// ask for it and the elements need no conversion. Those of a stream are in memory already.
// Otherwise it loads them.
func (s *source) loadOrMap(offset, length int64, l gemm.Layout, e element, big bool) (*Matrix, error) {
	aligned := offset%int64(max(1, e.Size)) == 0
	same := aligned && e.native == l.Type && (e.Size <= 1 || big == bigEndian)
	switch {
	case same && s.spooled != nil:
		return &Matrix{Layout: l, Data: s.spooled[offset : offset+length : offset+length]}, nil
	case same && s.opt.Map > 0 && l.Bytes() >= s.opt.Map && s.file != nil:
		data, unmap, err := mapping.Read(s.file, offset, l.Bytes())
		if err == nil {
			return &Matrix{Layout: l, Data: data, unmap: unmap}, nil
		}
	}
	return s.load(s.section(offset, length), l, e, big, 0)
}

// load reads the elements of l from r, where they are stored as e in the given byte order, and
// converts them to the type of l. packed is the size of a compressed stream, or 0 for other
// streams. A compressed stream may hold fewer elements than its header claims, so memory grows with
// the elements read.
func (s *source) load(r io.Reader, l gemm.Layout, e element, big bool, packed int) (*Matrix, error) {
	if err := s.room(l); err != nil {
		return nil, err
	}
	swap := e.Size > 1 && big != bigEndian
	load := e.loader(l.Type)
	first := l.Bytes()
	if packed > 0 {
		first = min(first, max(64<<10, 4*packed))
	}
	data := alloc(first)
	var raw []byte
	var values []float64
	if e.native != l.Type {
		n := min(batch, l.Len())
		raw, values = alloc(e.Bytes(n)), make([]float64, n)
	}
	for n := 0; n < l.Len(); {
		count := min(batch, l.Len()-n)
		if l.Type.Bytes(n+count) > len(data) {
			size := min(l.Bytes(), max(2*len(data), l.Type.Bytes(n+count)))
			if err := s.roomFor(size, l); err != nil {
				return nil, err
			}
			more := alloc(size)
			copy(more, data)
			data = more
		}
		in := data[l.Type.Bytes(n):l.Type.Bytes(n+count)]
		if values != nil {
			in = raw[:e.Bytes(count)]
		}
		k, err := io.ReadFull(r, in)
		if isEOF(err) {
			return nil, s.fail(ErrFormat, "elements take %d bytes, the member ends after %d", e.Bytes(l.Len()),
				e.Bytes(n)+k)
		}
		if err != nil {
			return nil, s.readError(err)
		}
		if swap {
			swapBytes(in, e.Size)
		}
		if values != nil {
			load(values[:count], in)
			if err := s.store(l, data, n, values[:count]); err != nil {
				return nil, err
			}
		}
		n += count
	}
	return &Matrix{Layout: l, Data: data}, nil
}

// store rounds values to the type of l and stores them, starting at element first.
func (s *source) store(l gemm.Layout, data []byte, first int, values []float64) error {
	for i, v := range values {
		if fitsType(l.Type, v) {
			continue
		}
		row, col := (first+i)/l.LD, (first+i)%l.LD
		if l.Trans {
			row, col = col, row
		}
		if err := s.refuse(l.Type, row, col, fmt.Sprint(v)); err != nil {
			return err
		}
	}
	l.Type.Store(data[l.Type.Bytes(first):], values)
	return nil
}

// fitsType reports whether t can hold v. An integer type must hold v exactly. A floating-point type
// rounds v, but a finite v must not become an infinity or a NaN.
func fitsType(t dtype.Type, v float64) bool {
	in := t.Info()
	if in.Integer {
		return t.Round(v) == v
	}
	if !(math.Abs(v) > in.Max) {
		return true
	}
	r := t.Round(v)
	return r == r && math.IsInf(r, 0) == math.IsInf(v, 0)
}

// refuse returns the error for an element that t cannot hold. If overflow is accepted, it counts
// the element instead. Row and column are counted from 0.
func (s *source) refuse(t dtype.Type, row, col int, value string) error {
	in := t.Info()
	if in.Integer {
		return s.fail(ErrRange, "row %d, column %d: %s is out of range for %v: want an integer from %.0f to %.0f",
			row+1, col+1, value, t, t.Round(math.Inf(-1)), in.Max)
	}
	if s.overflows == 0 {
		s.firstOverflow = s.fail(ErrOverflow, "row %d, column %d: %s is too large for %v: want at most %v", row+1,
			col+1, value, t, in.Max)
	}
	if s.opt.Overflow == nil {
		return s.firstOverflow
	}
	s.overflows++
	return nil
}

// bigEndian reports whether the machine is big-endian.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1
