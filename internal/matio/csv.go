package matio

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

var csvTypes = textTypes(dtype.Type.String)

// maxField is the most bytes of a field: room for the 770 digits or so that the
// exact value of a float64 can take.
const maxField = 4 << 10

// blanks may surround a number. A line of blanks is skipped.
const blanks = " \t\r\n"

// CSV describes the text of .csv files.
type CSV struct {
	Header    bool // whether the first line that is not blank is skipped
	Delimiter byte // between numbers; ' ' is any blanks, and 0 the delimiter of the first line of numbers
}

// csvReader reads the fields of a CSV file one after the other.
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
	c := &csvReader{source: s, sep: s.opt.CSV.Delimiter}
	rows, cols, err := c.measure()
	if err != nil {
		return nil, err
	}
	l, err := s.layout(nativeElement(s.textType()), []uint64{uint64(rows), uint64(cols)}, false)
	if err != nil {
		return nil, err
	}
	if err := c.rewind(); err != nil {
		return nil, err
	}
	// A number takes a digit and a separator, except for the last: a file whose
	// lines are shorter than its first cannot need more.
	room := min(l.Len(), int(s.size/2)+1)
	if err := s.room(l); err != nil {
		return nil, err
	}
	t := l.Type
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
		v, err := c.number(field, t, n/cols)
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

func listCSV(s *source) ([]Entry, error) {
	c := &csvReader{source: s, sep: s.opt.CSV.Delimiter}
	rows, cols, err := c.measure()
	return []Entry{{Type: textEntry, Shape: []uint64{uint64(rows), uint64(cols)}}}, err
}

// number returns the value of the field last read, which is in a row counted from 0.
func (c *csvReader) number(field []byte, t dtype.Type, row int) (float64, error) {
	v, ok := parseNumber(field, t)
	switch {
	case len(field) == 0:
		return 0, c.fail(ErrFormat, "line %d, column %d is empty", c.line, c.column)
	case !ok && row == 0 && !c.opt.CSV.Header:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is no number (--csv-header skips a header line)", c.line, c.column, shorten(field))
	case !ok:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is no number", c.line, c.column, shorten(field))
	case !v.fits(t):
		return v.float, c.refuse(t, row, c.column-1, v.String(field, c.line))
	}
	return v.float, nil
}

// rewind goes to the start of the file, after its byte order mark and its header line.
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
	for blank := true; blank && c.opt.CSV.Header; {
		part, err := c.in.ReadSlice('\n')
		blank = len(bytes.Trim(part, blanks)) == 0
		for err == bufio.ErrBufferFull {
			_, err = c.in.ReadSlice('\n')
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return c.readError(err)
		}
		c.line++
	}
	return nil
}

// measure counts the lines that are not blank and the columns of the first of
// them, and finds the delimiter of that line unless the options give one.
func (c *csvReader) measure() (rows, cols int, err error) {
	if err := c.rewind(); err != nil {
		return 0, 0, err
	}
	var first firstLine
	blank := true // so far, of this line
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
		if rows == 1 && !blank {
			first.add(part)
		}
		if err == nil { // the line ends
			blank = true
		}
	}
	if rows == 0 {
		return 0, 0, c.fail(ErrFormat, "the file holds no numbers")
	}
	if c.sep == 0 {
		c.sep = first.delimiter()
	}
	return rows, first.columns(c.sep), nil
}

// firstLine counts the bytes, and the words between blanks, of the first line of numbers.
type firstLine struct {
	bytes [256]int
	words int
	word  bool // whether the last byte was one of a word
}

func (f *firstLine) add(part []byte) {
	for _, b := range part {
		f.bytes[b]++
		word := !isBlank(b)
		if word && !f.word {
			f.words++
		}
		f.word = word
	}
}

// delimiter returns the byte that separates numbers. A comma beside semicolons is none.
func (f *firstLine) delimiter() byte {
	for _, sep := range []byte{';', ',', '\t'} {
		if f.bytes[sep] > 0 {
			return sep
		}
	}
	if f.words > 1 {
		return ' '
	}
	return ','
}

func (f *firstLine) columns(sep byte) int {
	if sep == ' ' {
		return f.words
	}
	return f.bytes[sep] + 1
}

func isBlank(b byte) bool { return strings.IndexByte(blanks, b) >= 0 }

// next reads a field, without the blanks around it. Blank lines are skipped;
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
		case c.sep == ' ' && isBlank(b):
			if len(c.raw) > 0 {
				return c.raw, c.skipBlanks()
			}
		case b == c.sep:
			return bytes.Trim(c.raw, blanks), nil
		case len(c.raw) == maxField:
			return nil, c.fail(ErrFormat, "line %d, column %d is longer than %d bytes", c.line, c.column, maxField)
		default:
			c.raw = append(c.raw, b)
		}
	}
}

// skipBlanks skips the blanks after a field, and the end of the line if it follows.
func (c *csvReader) skipBlanks() error {
	for {
		b, err := c.in.ReadByte()
		switch {
		case err == io.EOF, err == nil && b == '\n':
			c.last = true
			return nil
		case err != nil:
			return c.readError(err)
		case !isBlank(b):
			return c.in.UnreadByte()
		}
	}
}

func writeCSV(w io.Writer, _ string, l gemm.Layout, data []byte) error {
	if l.Rows == 0 || l.Cols == 0 {
		return fmt.Errorf("%w: CSV cannot say that a matrix is %d×%d", gemm.ErrUnsupported, l.OpRows(), l.OpCols())
	}
	return writeNumbers(w, l, data, ',')
}
