package matio

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// npyTypes is how a NumPy header spells the types, byte order aside.
// (numpy.lib.format describes the file, numpy.dtype.str the spelling.)
var npyTypes = map[dtype.Type]string{
	dtype.F64: "f8", dtype.F32: "f4", dtype.F16: "f2", dtype.I8: "i1", dtype.I32: "i4",
}

// npyKinds names what the other letters of a spelling stand for.
var npyKinds = map[byte]string{
	'b': "booleans", 'i': "integers", 'u': "unsigned integers", 'f': "floating-point numbers", 'c': "complex numbers",
	'm': "time differences", 'M': "dates", 'O': "Python objects", 'S': "byte strings", 'a': "byte strings", 'U': "text", 'V': "raw memory",
}

const (
	npyMagic     = "\x93NUMPY"
	npyMaxHeader = 64 << 10
)

// npyHeader is what stands before the elements.
type npyHeader struct {
	layout gemm.Layout
	big    bool  // byte order of the elements
	length int64 // of the header, in bytes, magic included
}

func readNpy(s *source) (*Matrix, error) {
	h, err := s.npyHeader(s.section(0, s.size), s.size)
	if err != nil {
		return nil, err
	}
	if err := s.checkSize(h.layout, s.size-h.length); err != nil {
		return nil, err
	}
	return s.load(h.layout, h.length, h.big)
}

// npyHeader reads the header of an array file of size bytes.
func (s *source) npyHeader(r io.Reader, size int64) (npyHeader, error) {
	var h npyHeader
	var start [12]byte
	pre := start[:10] // what is missing of a short file stays zero, and is found by the checks below
	if _, err := io.ReadFull(r, pre); err != nil && !isEOF(err) {
		return h, s.readError(err)
	}
	if string(pre[:6]) != npyMagic {
		return h, s.fail(ErrFormat, "it starts with %q, want %q", pre[:6], npyMagic)
	}
	length := int64(binary.LittleEndian.Uint16(pre[8:]))
	switch pre[6] {
	case 1:
	case 2, 3:
		pre = start[:]
		if _, err := io.ReadFull(r, pre[10:]); err != nil && !isEOF(err) {
			return h, s.readError(err)
		}
		length = int64(binary.LittleEndian.Uint32(pre[8:]))
	default:
		return h, s.fail(gemm.ErrUnsupported, "NumPy format version %d.%d, want 1 to 3", pre[6], pre[7])
	}
	h.length = int64(len(pre)) + length
	switch {
	case length > npyMaxHeader:
		return h, s.fail(ErrFormat, "a header of %d bytes, want at most %d", length, npyMaxHeader)
	case h.length > size:
		return h, s.fail(ErrFormat, "a header of %d bytes, the file holds %d", h.length, size)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, s.readError(err)
	}
	d, err := parseNpyDict(string(text))
	if err != nil {
		return h, fmt.Errorf("%s: %w", oneLine(s.spec), err)
	}
	t, big, err := s.npyType(d.descr)
	if err != nil {
		return h, err
	}
	h.big = big
	h.layout, err = s.layout(t, d.shape, d.fortran)
	return h, err
}

// npyType reads a spelling such as "<f4": byte order, kind, bytes.
func (s *source) npyType(descr string) (t dtype.Type, big bool, err error) {
	order, spelling := byte('|'), descr
	if len(descr) > 0 && strings.IndexByte("<>|=", descr[0]) >= 0 {
		order, spelling = descr[0], descr[1:]
	}
	t = s.format.typeNamed(spelling)
	if t == dtype.Invalid {
		what := ""
		if spelling != "" && npyKinds[spelling[0]] != "" {
			what = " (" + npyKinds[spelling[0]] + ")"
		}
		return t, false, s.fail(gemm.ErrUnsupported, "elements of type %.40q%s, want %s", descr, what, typeNames(s.format.Types()))
	}
	switch {
	case order == '<', order == '>':
		return t, order == '>', nil
	case order == '|' && t.Size() == 1:
		return t, bigEndian, nil
	}
	return t, false, s.fail(ErrFormat, "elements of type %q, which does not say their byte order", descr)
}

func writeNpy(w io.Writer, _ string, l gemm.Layout, data []byte) error {
	order := '<'
	switch {
	case l.Type.Size() == 1:
		order = '|'
	case bigEndian:
		order = '>'
	}
	header := fmt.Sprintf("{'descr': '%c%s', 'fortran_order': False, 'shape': (%d, %d), }", order, npyTypes[l.Type], l.OpRows(), l.OpCols())
	// The elements start at a multiple of 64 bytes, so that they can be mapped.
	const before = len(npyMagic) + 4
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	start := append([]byte(npyMagic), 1, 0)
	start = binary.LittleEndian.AppendUint16(start, uint16(len(header)))
	if _, err := w.Write(append(start, header...)); err != nil {
		return err
	}
	return writeRows(w, l, data, bigEndian)
}
