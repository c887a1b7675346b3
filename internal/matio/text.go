package matio

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// textTypes returns the spellings of all types for a text format. Text can store numbers of every
// type but does not record the type.
func textTypes(spelling func(dtype.Type) string) map[dtype.Type]string {
	types := map[dtype.Type]string{}
	for _, t := range dtype.All() {
		types[t] = spelling(t)
	}
	return types
}

// textType returns the type to which text is converted.
func (s *source) textType() dtype.Type {
	if s.opt.Type == dtype.Invalid {
		return dtype.F64
	}
	return s.opt.Type
}

// textEntry is the type of text elements in an Entry.
const textEntry = "text"

// number is a number that was parsed for a type.
type number struct {
	float float64
	large bool // exceeds the range of the parser
}

// fits reports whether t can hold the number.
func (n number) fits(t dtype.Type) bool { return !n.large && fitsType(t, n.float) }

// String returns the spelling and the line of the number for a message.
func (number) String(text []byte, line int) string {
	return fmt.Sprintf("%.40s in line %d", text, line)
}

// ParseNumber parses a decimal number, an infinity or a NaN, as in a text file. The result is a
// number from which t rounds as from the number in the text. It is infinite if the number is too
// large. ParseNumber reports false for other texts.
func ParseNumber(text string, t dtype.Type) (v float64, ok bool) {
	n, ok := parseNumber([]byte(text), t)
	return n.float, ok
}

// parseNumber is like [ParseNumber], and reports whether the number is too large.
func parseNumber(text []byte, t dtype.Type) (n number, ok bool) {
	if bytes.ContainsAny(text, "xX_") { // reject Go's hexadecimal numbers and digit separators
		return n, false
	}
	bits := 64
	if t == dtype.F32 {
		bits = 32
	}
	v, err := strconv.ParseFloat(string(text), bits)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		if text = respell(text); text == nil {
			return n, false
		}
		v, err = strconv.ParseFloat(string(text), bits)
	}
	if err != nil {
		large := errors.Is(err, strconv.ErrRange)
		return number{v, large}, large
	}
	if bits == 64 && t != dtype.F64 {
		v = roundText(text, v, t)
	}
	return number{float: v}, true
}

// respell returns a number that C or Fortran writes as [strconv.ParseFloat] reads it: -nan without
// its sign, and 1D3 with e as the exponent. It returns nil for other texts.
func respell(text []byte) []byte {
	if len(text) == 4 && (text[0] == '-' || text[0] == '+') && bytes.EqualFold(text[1:], []byte("nan")) {
		return text[1:]
	}
	i := bytes.IndexAny(text, "dD")
	if i < 0 {
		return nil
	}
	text = bytes.Clone(text)
	text[i] = 'e'
	return text
}

// textSize returns bounds on the size of a text file in bytes. A number takes at least a digit and
// a separator, and at most all its digits with a sign, a point and an exponent.
func textSize(l gemm.Layout) (least, most int64) {
	n := int64(l.Rows) * int64(l.Cols)
	longest := int64(16) // such as -1.1754944e-38
	if l.Type == dtype.F64 {
		longest = 25 // such as -1.7976931348623157e+308
	}
	return 2 * n, longest*n + 1<<10
}

// appendNumber appends v, a value of type t, with the fewest digits that identify it as a float64,
// or for all other floating-point types as a float32, which holds their values exactly.
func appendNumber(b []byte, t dtype.Type, v float64) []byte {
	switch {
	case v != v:
		return append(b, "nan"...)
	case math.IsInf(v, 1):
		return append(b, "inf"...)
	case math.IsInf(v, -1):
		return append(b, "-inf"...)
	case t.Info().Integer:
		return strconv.AppendInt(b, int64(v), 10)
	case t == dtype.F64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 32)
}

// shorten quotes at most 40 bytes of text for a message.
func shorten(text []byte) string {
	if len(text) > 40 {
		return strconv.Quote(string(text[:40])) + "…"
	}
	return strconv.Quote(string(text))
}

// writeNumbers writes op(matrix) with one row per line and sep between the numbers of a row.
func writeNumbers(w io.Writer, l gemm.Layout, data []byte, sep byte) error {
	cols := l.OpCols()
	var line []byte
	return panels(l, data, func(rows []byte) error {
		for n := range l.Type.Elements(len(rows)) {
			line = append(appendNumber(line, l.Type, l.Type.At(rows, n)), sep)
			if (n+1)%cols == 0 {
				line[len(line)-1] = '\n'
			}
			if len(line) > 32<<10 {
				if _, err := w.Write(line); err != nil {
					return err
				}
				line = line[:0]
			}
		}
		_, err := w.Write(line)
		line = line[:0]
		return err
	})
}

// utf8Mark is the byte order mark that some programs write before text in UTF-8.
const utf8Mark = "\xef\xbb\xbf"

// text returns a reader of the text of the file, with a buffer of size bytes. It skips a byte order
// mark, and converts UTF-16 to UTF-8 after the mark of that encoding.
func (s *source) text(size int) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(s.section(0, s.size), size)
	mark, err := in.Peek(len(utf8Mark))
	if err != nil && err != io.EOF {
		return nil, s.readError(err)
	}
	var order binary.ByteOrder
	switch {
	case string(mark) == utf8Mark:
		in.Discard(len(mark))
		return in, nil
	case bytes.HasPrefix(mark, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(mark, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return in, nil
	}
	in.Discard(2)
	return bufio.NewReaderSize(&utf16Reader{in: in, order: order}, size), nil
}

// utf16Reader converts UTF-16 to UTF-8. Characters beyond 16 bits, which no number has, become
// replacement characters.
type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	buf   [utf8.UTFMax]byte
	rest  []byte // converted and not yet read
}

func (r *utf16Reader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(r.rest) == 0 {
			if _, err := io.ReadFull(r.in, r.buf[:2]); err != nil {
				return n, err
			}
			r.rest = r.buf[:utf8.EncodeRune(r.buf[:], rune(r.order.Uint16(r.buf[:])))]
		}
		k := copy(p[n:], r.rest)
		n, r.rest = n+k, r.rest[k:]
	}
	return n, nil
}
