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

// maxField is the maximum length of a field in bytes. The exact value of a float64 takes up to
// about 770 digits.
const maxField = 4 << 10

// blanks are the characters that may surround a number. Lines of blanks are skipped.
const blanks = " \t\r\n"

// utf8Mark is the byte order mark that some programs write before text in UTF-8.
const utf8Mark = "\xef\xbb\xbf"

// CSV holds options for reading .csv files.
type CSV struct {
	Header    bool // skip the first line that is not blank
	Delimiter byte // between numbers; ' ' is any number of blanks, 0 detects the delimiter from the first line
}

// csvReader reads the fields of a CSV file.
type csvReader struct {
	*source
	in  *bufio.Reader
	sep byte
	raw []byte

	line, column int  // of the field last read, counted from 1
	last         bool // the field last read ends its line
}

// readCSV reads the file twice: first to count rows and columns, so that the matrix is allocated
// once, then to parse the numbers.
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
	// Each number takes at least a digit and a separator, except for the last. This bounds the
	// memory for a file with one long line and many short ones.
	room := int(min(int64(l.Len()), s.size/2+1))
	if err := s.room(l); err != nil {
		return nil, err
	}
	t := l.Type
	data := alloc(t.Bytes(room))
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
			return nil, s.fail(ErrFormat, "line %d goes on after column %d, the last of the first line", c.line,
				cols)
		case c.last && c.column < cols:
			return nil, s.fail(ErrFormat, "line %d ends after column %d: want %d columns as in the first line", c.line,
				c.column, cols)
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

// listCSV lists the matrix without parsing its numbers.
func listCSV(s *source) ([]Entry, error) {
	c := &csvReader{source: s, sep: s.opt.CSV.Delimiter}
	rows, cols, err := c.measure()
	return []Entry{{Type: textEntry, Native: dtype.F64, Shape: []uint64{uint64(rows), uint64(cols)}}}, err
}

// number parses the field last read. Its row is counted from 0.
func (c *csvReader) number(field []byte, t dtype.Type, row int) (float64, error) {
	v, ok := parseNumber(field, t)
	switch {
	case len(field) == 0:
		return 0, c.fail(ErrFormat, "line %d, column %d is empty", c.line, c.column)
	case !ok && row == 0 && !c.opt.CSV.Header:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is not a number (--csv-header skips a header line)",
			c.line, c.column, shorten(field))
	case !ok:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is not a number", c.line, c.column, shorten(field))
	case !v.fits(t):
		return v.float, c.refuse(t, row, c.column-1, v.String(field, c.line))
	}
	return v.float, nil
}

// rewind moves to the start of the file, after the byte order mark and the header line.
func (c *csvReader) rewind() error {
	c.in = bufio.NewReaderSize(c.section(0, c.size), 64<<10)
	c.line, c.column, c.last = 1, 0, false
	mark, err := c.in.Peek(len(utf8Mark))
	if err != nil && err != io.EOF {
		return c.readError(err)
	}
	if string(mark) == utf8Mark {
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

// measure counts the non-blank lines and the columns of the first one. It detects the delimiter
// from that line unless the options give one.
func (c *csvReader) measure() (rows, cols int, err error) {
	if err := c.rewind(); err != nil {
		return 0, 0, err
	}
	var first firstLine
	blank := true // only blanks so far in this line
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
	word  bool // the last byte belongs to a word
}

// add counts a part of the line.
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

// delimiter returns the byte that separates numbers. In a line with semicolons, commas are not
// delimiters.
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

// columns returns the number of columns of the line.
func (f *firstLine) columns(sep byte) int {
	if sep == ' ' {
		return f.words
	}
	return f.bytes[sep] + 1
}

func isBlank(b byte) bool { return strings.IndexByte(blanks, b) >= 0 }

// next reads a field without surrounding blanks. It skips blank lines and returns io.EOF after the
// last line.
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

// skipBlanks skips the blanks after a field and a newline that follows them.
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
		return fmt.Errorf("%w: CSV cannot represent a %d×%d matrix", gemm.ErrUnsupported, l.OpRows(), l.OpCols())
	}
	return writeNumbers(w, l, data, ',')
}
