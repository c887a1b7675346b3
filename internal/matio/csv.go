package matio

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"tilework/dtype"
	"tilework/internal/gemm"
)

var csvTypes = textTypes(dtype.Type.String)

// maxField is the most bytes of a field: room for the 770 digits or so that the
// exact value of a float64 can take.
const maxField = 4 << 10

// blanks may stand around a number, and a line of nothing else is left out.
const blanks = " \t\r\n"

// csvReader walks over the fields of a CSV file.
type csvReader struct {
	*source
	in  *bufio.Reader
	sep byte
	raw []byte

	line, column int  // of the field last read, from 1
	last         bool // whether that field ends its line
}

// readCSV reads the file twice: first to count its lines, so that the matrix has
// its size from the start, then for the numbers.
func readCSV(s *source) (*Matrix, error) {
	c := &csvReader{source: s}
	rows, cols, err := c.measure()
	if err != nil {
		return nil, err
	}
	if rows == 0 {
		return nil, s.fail(ErrFormat, "the file holds no numbers")
	}
	t := s.textType()
	l, err := s.layout(t, []uint64{uint64(rows), uint64(cols)}, false)
	if err != nil {
		return nil, err
	}
	if err := c.rewind(); err != nil {
		return nil, err
	}
	// A number takes a digit and a separator, but for the last: a file whose
	// lines are shorter than its first cannot ask for more.
	room := min(l.Len(), int(s.size/2)+1)
	data := alloc(room * t.Size())
	n := 0
	for ; ; n++ {
		field, err := c.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		v, err := c.number(field, t)
		switch {
		case err != nil:
			return nil, err
		case c.column > cols:
			return nil, s.fail(ErrFormat, "line %d has more than the %d columns of the first", c.line, cols)
		case c.last && c.column < cols:
			return nil, s.fail(ErrFormat, "line %d: the number of columns is %d, in the first line %d", c.line, c.column, cols)
		case n == room:
			return nil, s.fail(ErrFormat, "the file changed while it was read")
		}
		t.Set(data, n, v)
	}
	if n != l.Len() {
		return nil, s.fail(ErrFormat, "the file changed while it was read")
	}
	return &Matrix{Layout: l, Data: data}, nil
}

// number is the value of the field last read.
func (c *csvReader) number(field []byte, t dtype.Type) (float64, error) {
	v, ok := parseNumber(field, t)
	switch {
	case len(field) == 0:
		return 0, c.fail(ErrFormat, "line %d, column %d is empty", c.line, c.column)
	case !ok && c.line == 1:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is no number (a header line is not skipped)", c.line, c.column, shorten(field))
	case !ok:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is no number", c.line, c.column, shorten(field))
	case !holds(t, v):
		return 0, c.fail(gemm.ErrUnsupported, "line %d, column %d: %s, which %v cannot hold exactly", c.line, c.column, shorten(field), t)
	}
	return v, nil
}

// rewind goes to the start of the file, or past its byte order mark.
func (c *csvReader) rewind() error {
	c.in = bufio.NewReaderSize(c.section(0, c.size), 64<<10)
	c.line, c.column, c.last = 1, 0, false
	mark, err := c.in.Peek(3)
	if err != nil && err != io.EOF {
		return c.readError(err)
	}
	if string(mark) == "\xef\xbb\xbf" {
		c.in.Discard(len(mark))
	}
	return nil
}

// measure counts the lines that are not blank and the columns of the first of
// them, and finds out what separates those.
func (c *csvReader) measure() (rows, cols int, err error) {
	if err := c.rewind(); err != nil {
		return 0, 0, err
	}
	var commas, tabs int // of the first line
	blank := true        // so far, of this line
	first := true        // until the end of the first line that is not blank
	for err != io.EOF {
		var part []byte
		part, err = c.in.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return 0, 0, c.readError(err)
		}
		if blank && len(bytes.Trim(part, blanks)) > 0 {
			blank = false
			rows++
		}
		if first {
			commas += bytes.Count(part, []byte{','})
			tabs += bytes.Count(part, []byte{'\t'})
		}
		if err == nil { // the line ends
			if blank && first {
				commas, tabs = 0, 0
			}
			first = first && blank
			blank = true
		}
	}
	if commas == 0 && tabs > 0 {
		c.sep = '\t'
		return rows, tabs + 1, nil
	}
	c.sep = ','
	return rows, commas + 1, nil
}

// next reads a field, without the blanks around it. Blank lines are passed over;
// after the last line, the error is io.EOF.
func (c *csvReader) next() ([]byte, error) {
	if c.last {
		c.line, c.column, c.last = c.line+1, 0, false
	}
	c.column++
	c.raw = c.raw[:0]
	for {
		b, err := c.in.ReadByte()
		switch {
		case err != nil && err != io.EOF:
			return nil, c.readError(err)
		case err == io.EOF, b == '\n':
			field := bytes.Trim(c.raw, blanks)
			if c.column > 1 || len(field) > 0 {
				c.last = true
				return field, nil
			}
			if err == io.EOF {
				return nil, err
			}
			c.line++
			c.raw = c.raw[:0]
		case b == c.sep:
			return bytes.Trim(c.raw, blanks), nil
		case len(c.raw) == maxField:
			return nil, c.fail(ErrFormat, "line %d, column %d is longer than %d bytes", c.line, c.column, maxField)
		default:
			c.raw = append(c.raw, b)
		}
	}
}

func writeCSV(w io.Writer, _ string, l gemm.Layout, data []byte) error {
	if l.Rows == 0 || l.Cols == 0 {
		return fmt.Errorf("%w: CSV cannot say that a matrix is %d×%d", gemm.ErrUnsupported, l.OpRows(), l.OpCols())
	}
	return writeNumbers(w, l, data, ',')
}
