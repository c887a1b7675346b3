package matio

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// npyTypes maps types to their spellings in a NumPy header, without the byte order. See
// numpy.lib.format for the file format and numpy.dtype.str for the spellings.
var npyTypes = map[dtype.Type]string{
	dtype.F64: "f8", dtype.F32: "f4", dtype.F16: "f2", dtype.I8: "i1", dtype.U8: "u1", dtype.I32: "i4",
}

// npyAliases maps further spellings of element types to those of numpy.dtype.str: the type
// characters of C, without those whose size depends on the system.
var npyAliases = map[string]string{
	"d": "f8", "f": "f4", "e": "f2", "b": "i1", "h": "i2", "i": "i4", "q": "i8",
	"B": "u1", "H": "u2", "I": "u4", "Q": "u8", "?": "b1",
}

// npyKinds maps the first letter of a spelling to a description for messages.
var npyKinds = map[byte]string{
	'b': "booleans", 'i': "integers", 'u': "unsigned integers", 'f': "floating-point numbers", 'c': "complex numbers",
	'm': "time differences", 'M': "dates", 'O': "Python objects", 'S': "byte strings",
	'a': "byte strings", 'U': "text", 'V': "raw memory",
}

const (
	npyMagic     = "\x93NUMPY"
	npyMaxHeader = 64 << 10
)

// npyHeader is the header of an array file.
type npyHeader struct {
	npyDict
	element element
	big     bool  // the elements are big-endian
	length  int64 // length of the header in bytes, including the magic string
}

// readNpy reads an array file.
func readNpy(s *source) (*Matrix, error) {
	h, err := s.npyHeader(s.section(0, s.size), s.size)
	if err != nil {
		return nil, err
	}
	l, err := s.npyLayout(h, s.size)
	if err != nil {
		return nil, err
	}
	return s.loadOrMap(h.length, s.size-h.length, l, h.element, h.big)
}

// npyLayout returns the layout of an array file of size bytes.
func (s *source) npyLayout(h npyHeader, size int64) (gemm.Layout, error) {
	l, err := s.layout(h.element, h.shape, h.fortran)
	if err == nil {
		err = s.checkSize(l, h.element, size-h.length)
	}
	return l, err
}

// listNpy lists the array of an array file.
func listNpy(s *source) ([]Entry, error) {
	e, err := s.npyEntry(s.section(0, s.size), s.size)
	return []Entry{e}, err
}

// npyEntry describes the array of an array file of size bytes. The error is also that of a shape
// which does not fit the size.
func (s *source) npyEntry(r io.Reader, size int64) (Entry, error) {
	d, length, err := s.npyDict(r, size)
	e, _, unknown := s.npyElement(d.descr)
	if err == nil && unknown == nil {
		err = s.checkLength(d.shape, e.Name, e.Bytes(1), size-length)
	}
	return Entry{Type: d.descr, Shape: d.shape, Native: e.native}, err
}

// npyHeader reads the header of an array file of size bytes.
func (s *source) npyHeader(r io.Reader, size int64) (h npyHeader, err error) {
	if h.npyDict, h.length, err = s.npyDict(r, size); err == nil {
		h.element, h.big, err = s.npyElement(h.descr)
	}
	return h, err
}

// npyDict reads the dictionary of the header and returns the length of the header in bytes.
func (s *source) npyDict(r io.Reader, size int64) (d npyDict, length int64, err error) {
	var start [12]byte
	pre := start[:10] // missing bytes of a short file stay zero and fail the checks below
	if _, err := io.ReadFull(r, pre); err != nil && !isEOF(err) {
		return d, 0, s.readError(err)
	}
	if string(pre[:6]) != npyMagic {
		return d, 0, s.fail(ErrFormat, "file starts with %q, want %q", pre[:6], npyMagic)
	}
	text := int64(binary.LittleEndian.Uint16(pre[8:]))
	switch pre[6] {
	case 1:
	case 2, 3:
		pre = start[:]
		if _, err := io.ReadFull(r, pre[10:]); err != nil && !isEOF(err) {
			return d, 0, s.readError(err)
		}
		text = int64(binary.LittleEndian.Uint32(pre[8:]))
	default:
		return d, 0, s.fail(gemm.ErrUnsupported, "NumPy format version %d.%d, want 1 to 3", pre[6], pre[7])
	}
	length = int64(len(pre)) + text
	switch {
	case text > npyMaxHeader:
		return d, 0, s.fail(ErrFormat, "header has %d bytes: want at most %d", text, npyMaxHeader)
	case length > size:
		return d, 0, s.fail(ErrFormat, "header has %d bytes, the file only %d", length, size)
	}
	header := make([]byte, text)
	if _, err := io.ReadFull(r, header); err != nil {
		return d, 0, s.readError(err)
	}
	if d, err = parseNpyDict(string(header)); err != nil {
		return d, 0, fmt.Errorf("%s: %w", oneLine(s.spec), err)
	}
	return d, length, nil
}

// npySpelling splits a spelling such as "<f4" into byte order and the kind and bytes. Without an
// order, or with that of "=f4" or "|f4", elements are in the order of the machine, as in NumPy.
func npySpelling(descr string) (big bool, spelling string) {
	big, spelling = bigEndian, descr
	if len(descr) > 0 && strings.IndexByte("<>|=", descr[0]) >= 0 {
		big, spelling = descr[0] == '>' || bigEndian && descr[0] != '<', descr[1:]
	}
	if name, ok := npyAliases[spelling]; ok {
		spelling = name
	}
	return big, spelling
}

// npyElement returns the element with a spelling such as "<f4".
func (s *source) npyElement(descr string) (e element, big bool, err error) {
	big, spelling := npySpelling(descr)
	e, ok := s.format.element(spelling)
	if t := s.opt.Type; spelling == "V1" && (t == dtype.F8E4M3 || t == dtype.F8E5M2) {
		e, ok = nativeElement(t), true
	}
	switch {
	case spelling == "V1" && !ok:
		return e, false, s.fail(gemm.ErrUnsupported,
			"elements of type %q, which can be float8_e4m3fn or float8_e5m2: want one as the wanted type", descr)
	case !ok:
		kind := ""
		if spelling != "" && npyKinds[spelling[0]] != "" {
			kind = " (" + npyKinds[spelling[0]] + ")"
		}
		return e, false, s.fail(gemm.ErrUnsupported, "elements of type %.40q%s, want %s", descr, kind,
			s.format.elementNames())
	}
	return e, big, nil
}

// startNpy returns the start of an array file in the byte order of the machine, up to the elements.
func startNpy(_ string, l gemm.Layout) ([]byte, error) {
	order := "<"
	switch {
	case l.Type.Bits() == 8:
		order = "|"
	case bigEndian:
		order = ">"
	}
	return npyStart(order+npyTypes[l.Type], fmt.Sprintf("%d, %d", l.OpRows(), l.OpCols())), nil
}

// writeNpy writes an array file.
func writeNpy(w io.Writer, member string, l gemm.Layout, data []byte) error {
	start, err := startNpy(member, l)
	if err != nil {
		return err
	}
	if _, err := w.Write(start); err != nil {
		return err
	}
	return writeRows(w, l, data, bigEndian)
}
