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

// CSV holds options for reading .csv files.
type CSV struct {
	Header    int  // skips that many lines that are not blank
	Delimiter byte // between numbers; ' ' is any number of blanks, 0 detects the delimiter from the first line
	Missing   bool // reads empty fields and NA as NaN
}

// csvReader reads the fields of a CSV file.
type csvReader struct {
	*source
	in  *bufio.Reader
	sep byte
	raw []byte

	line, column int  // of the field last read, counted from 1
	last         bool // the field last read ends its line

	marks   [256]bool // the bytes that may end a field, or quote it
	changed []byte    // a field with its decimal comma as a point
}

// openCSV returns a reader, and the numbers of rows and columns of the file.
func openCSV(s *source) (c *csvReader, rows, cols int, err error) {
	c = &csvReader{source: s, sep: s.opt.CSV.Delimiter}
	if c.sep == '#' || c.sep == '"' {
		return nil, 0, 0, s.fail(gemm.ErrUnsupported, "delimiter %c: want one that starts no comment and no quote", c.sep)
	}
	rows, cols, err = c.measure()
	for b := range c.marks {
		c.marks[b] = b == '\n' || b == '#' || b == '"' || b == int(c.sep) || c.sep == ' ' && isBlank(byte(b))
	}
	return c, rows, cols, err
}

// readCSV reads the file twice: first to count rows and columns, so that the matrix is allocated
// once, then to parse the numbers.
func readCSV(s *source) (*Matrix, error) {
	c, rows, cols, err := openCSV(s)
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
	// Each number takes at least a digit and a separator, except for the last, and one that may be
	// missing the separator. This bounds the memory for a file with one long line and many short ones.
	room := s.size/2 + 1
	if s.opt.CSV.Missing {
		room = s.size + 1
	}
	room = min(room, int64(l.Len()))
	if err := s.room(l); err != nil {
		return nil, err
	}
	data := alloc(l.Type.Bytes(int(room)))
	n, err := c.numbers(data, int(room), l)
	if err != nil {
		return nil, err
	}
	if n != l.Len() {
		return nil, s.fail(ErrFormat, "the file changed while it was read")
	}
	return &Matrix{Layout: l, Data: data}, nil
}

// numbers reads all numbers into data, which has room for the given number of them. It returns
// their count.
func (c *csvReader) numbers(data []byte, room int, l gemm.Layout) (n int, err error) {
	for ; ; n++ {
		field, err := c.next()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		v, err := c.number(field, l.Type, n/l.Cols)
		if err == nil && c.column == l.Cols && !c.last {
			err = c.endLine(l.Cols)
		}
		switch {
		case err != nil:
			return n, err
		case c.column < l.Cols && c.last:
			return n, c.fail(ErrFormat, "line %d ends after column %d: want %d columns as in the first line", c.line,
				c.column, l.Cols)
		case n == room:
			return n, c.fail(ErrFormat, "the file changed while it was read")
		}
		l.Type.Set(data, n, v)
	}
}

// endLine skips the delimiter that may follow the last column.
func (c *csvReader) endLine(cols int) error {
	field, err := c.next()
	if err == nil && (len(field) > 0 || !c.last || c.opt.CSV.Missing) {
		return c.fail(ErrFormat, "line %d goes on after column %d, the last of the first line", c.line, cols)
	}
	return err
}

// listCSV lists the matrix without parsing its numbers.
func listCSV(s *source) ([]Entry, error) {
	_, rows, cols, err := openCSV(s)
	return []Entry{{Type: textEntry, Native: dtype.F64, Shape: []uint64{uint64(rows), uint64(cols)}}}, err
}

// number parses the field last read. Its row is counted from 0.
func (c *csvReader) number(field []byte, t dtype.Type, row int) (float64, error) {
	if n := len(field); n > 1 && field[0] == '"' && field[n-1] == '"' {
		field = bytes.Trim(field[1:n-1], blanks)
	}
	if c.opt.CSV.Missing && (len(field) == 0 || string(field) == "NA") {
		field = []byte("nan")
	}
	v, ok := parseNumber(c.decimalPoint(field), t)
	switch {
	case len(field) == 0:
		return 0, c.fail(ErrFormat, "line %d, column %d is empty", c.line, c.column)
	case !ok && row == 0 && c.opt.CSV.Header == 0:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is not a number (--csv-header skips a header line)",
			c.line, c.column, shorten(field))
	case !ok:
		return 0, c.fail(ErrFormat, "line %d, column %d: %s is not a number", c.line, c.column, shorten(field))
	case !v.fits(t):
		return v.float, c.refuse(t, row, c.column-1, v.String(field, c.line))
	}
	return v.float, nil
}

// decimalPoint returns a field with its decimal comma as a point. A file whose delimiter is the
// comma has no decimal commas, and a field with a point or a second comma keeps them.
func (c *csvReader) decimalPoint(field []byte) []byte {
	if c.sep == ',' {
		return field
	}
	i := bytes.IndexByte(field, ',')
	if i < 0 || bytes.IndexByte(field[i+1:], ',') >= 0 || bytes.IndexByte(field, '.') >= 0 {
		return field
	}
	c.changed = append(c.changed[:0], field...)
	c.changed[i] = '.'
	return c.changed
}

// rewind moves to the start of the text, after the header lines.
func (c *csvReader) rewind() (err error) {
	c.line, c.column, c.last = 1, 0, false
	if c.in, err = c.text(64 << 10); err != nil {
		return err
	}
	for skipped := 0; skipped < c.opt.CSV.Header; c.line++ {
		blank := true
		part, err := c.in.ReadSlice('\n')
		for ; err == bufio.ErrBufferFull; part, err = c.in.ReadSlice('\n') {
			blank = blank && len(bytes.Trim(part, blanks)) == 0
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return c.readError(err)
		case !blank || len(bytes.Trim(part, blanks)) > 0:
			skipped++
		}
	}
	return nil
}

// measure counts the lines with numbers and the columns of the first one. It detects the delimiter
// from that line unless the options give one.
func (c *csvReader) measure() (rows, cols int, err error) {
	if err := c.rewind(); err != nil {
		return 0, 0, err
	}
	var first firstLine
	blank, comment := true, false // so far in this line
	for err != io.EOF {
		var part []byte
		part, err = c.in.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return 0, 0, c.readError(err)
		}
		text := part
		if comment {
			text = nil
		} else if i := bytes.IndexByte(part, '#'); i >= 0 {
			text, comment = part[:i], true
		}
		if blank && len(bytes.Trim(text, c.blanks())) > 0 {
			blank = false
			rows++
		}
		if rows == 1 && !blank {
			first.add(text)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if rows == 1 && c.sep == 0 { // the first line ends
			c.sep = first.delimiter(c.format.Ext)
		}
		blank, comment = true, false
	}
	if rows == 0 {
		return 0, 0, c.fail(ErrFormat, "the file holds no numbers")
	}
	return rows, first.columns(c.sep, c.opt.CSV.Missing), nil
}

// blanks returns the characters in lines that hold no numbers.
func (c *csvReader) blanks() string {
	if c.sep == '\t' {
		return " \r\n"
	}
	return blanks
}

// firstLine counts the bytes outside quotes, and the words between blanks, of the first line of
// numbers.
type firstLine struct {
	bytes  [256]int
	words  int
	word   bool // the last byte belongs to a word
	quoted bool
	end    byte // the last byte that is not a blank
	tabEnd byte // the last byte that is not a blank, or is a tab
}

// add counts a part of the line.
func (f *firstLine) add(part []byte) {
	for _, b := range part {
		if b == '"' {
			f.quoted = !f.quoted
		} else if !f.quoted {
			f.bytes[b]++
		}
		word := f.quoted || !isBlank(b)
		if word && !f.word {
			f.words++
		}
		f.word = word
		if word {
			f.end = b
		}
		if word || b == '\t' {
			f.tabEnd = b
		}
	}
}

// delimiter returns the byte that separates numbers in a file with the extension ext. In a line
// with semicolons, and with tabs in a .tsv file, commas are not delimiters.
func (f *firstLine) delimiter(ext string) byte {
	order := ";,\t"
	if ext == ".tsv" {
		order = "\t;,"
	}
	for _, sep := range []byte(order) {
		if f.bytes[sep] > 0 {
			return sep
		}
	}
	if f.words > 1 {
		return ' '
	}
	return ','
}

// columns returns the number of columns of the line. A delimiter at its end counts only before a
// number that is missing.
func (f *firstLine) columns(sep byte, missing bool) int {
	end := f.end
	switch sep {
	case ' ':
		return f.words
	case '\t':
		end = f.tabEnd
	}
	if end == sep && !f.quoted && !missing {
		return f.bytes[sep]
	}
	return f.bytes[sep] + 1
}

func isBlank(b byte) bool { return strings.IndexByte(blanks, b) >= 0 }

// next reads a field without surrounding blanks. It skips comments and blank lines, and returns
// io.EOF after the last line.
func (c *csvReader) next() ([]byte, error) {
	if c.last {
		c.line, c.column, c.last = c.line+1, 0, false
	}
	c.column++
	c.raw = c.raw[:0]
	quoted := false
	for {
		if err := c.plain(); err != nil {
			return nil, err
		}
		b, err := c.in.ReadByte()
		if b == '#' {
			b, err = '\n', c.skipLine()
		}
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
			c.raw, quoted = c.raw[:0], false
		case !quoted && c.sep == ' ' && isBlank(b):
			if len(c.raw) > 0 {
				return c.raw, c.skipBlanks()
			}
		case !quoted && b == c.sep:
			return bytes.Trim(c.raw, blanks), nil
		default:
			quoted = quoted != (b == '"')
			c.raw = append(c.raw, b)
		}
	}
}

// plain appends the buffered bytes that need no attention to the field.
func (c *csvReader) plain() error {
	ahead, _ := c.in.Peek(c.in.Buffered())
	n := 0
	for n < len(ahead) && !c.marks[ahead[n]] {
		n++
	}
	if len(c.raw)+n > maxField {
		return c.fail(ErrFormat, "line %d, column %d is longer than %d bytes", c.line, c.column, maxField)
	}
	c.raw = append(c.raw, ahead[:n]...)
	c.in.Discard(n)
	return nil
}

// skipLine skips the rest of the line and its newline.
func (c *csvReader) skipLine() error {
	for {
		if _, err := c.in.ReadSlice('\n'); err != bufio.ErrBufferFull {
			return err
		}
	}
}

// skipBlanks skips the blanks after a field, and a comment and a newline that follow them.
func (c *csvReader) skipBlanks() error {
	for {
		b, err := c.in.ReadByte()
		if b == '#' {
			b, err = '\n', c.skipLine()
		}
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

// csvWriter returns the function that writes numbers with sep between them.
func csvWriter(sep byte) func(io.Writer, string, gemm.Layout, []byte) error {
	return func(w io.Writer, _ string, l gemm.Layout, data []byte) error {
		if l.Rows == 0 || l.Cols == 0 {
			return fmt.Errorf("%w: CSV cannot represent a %d×%d matrix", gemm.ErrUnsupported, l.OpRows(), l.OpCols())
		}
		return writeNumbers(w, l, data, sep)
	}
}
