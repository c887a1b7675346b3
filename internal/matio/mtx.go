package matio

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
)

// mtxTypes maps each type to the field of the files that it is written to.
var mtxTypes = textTypes(func(t dtype.Type) string {
	if t.Info().Integer {
		return "integer"
	}
	return "real"
})

// maxLine is the maximum length of a line in bytes. The limit of the format itself is 1024.
const maxLine = 64 << 10

// mtxReader reads a Matrix Market file line by line (Boisvert, Pozo and Remington, "The Matrix
// Market Exchange Formats: Initial Design", NISTIR 5935).
type mtxReader struct {
	*source
	in   *bufio.Reader
	line int // number of the line last read, counted from 1

	coordinate bool
	integer    bool
	pattern    bool // entries have no value and count as 1
	natural    bool // integers are not negative
	// mirror is the factor of the mirrored entry: 1 in symmetric matrices, -1 in skew-symmetric
	// ones, and 0 in general ones.
	mirror float64
	lower  bool // an entry of a symmetric matrix is below the diagonal
	upper  bool // one is above it

	m *Matrix
}

// readMtx reads an array file, or a coordinate file into a dense matrix. Entries with the same
// coordinates are summed in the element type that is read, as in SciPy.
func readMtx(s *source) (*Matrix, error) {
	r, n, err := openMtx(s)
	if err != nil {
		return nil, err
	}
	entries, err := r.sizes(n)
	if err != nil {
		return nil, err
	}
	read := r.readArray
	if r.coordinate {
		read = func() error { return r.readCoordinates(entries) }
	}
	if err := read(); err != nil {
		return nil, err
	}
	switch _, err := r.next(); {
	case err == nil:
		return nil, r.wrong("want only %d entries", entries)
	case err != io.EOF:
		return nil, err
	}
	return r.m, nil
}

// openMtx reads the banner and the sizes.
func openMtx(s *source) (*mtxReader, []uint64, error) {
	in, err := s.text(maxLine)
	if err != nil {
		return nil, nil, err
	}
	r := &mtxReader{source: s, in: in}
	if err := r.banner(); err != nil {
		return nil, nil, err
	}
	n, err := r.sizeLine()
	return r, n, err
}

// listMtx lists the matrix without reading its entries.
func listMtx(s *source) ([]Entry, error) {
	_, n, err := openMtx(s)
	if err != nil {
		return nil, err
	}
	return []Entry{{Type: textEntry, Native: dtype.F64, Shape: n[:2]}}, nil
}

// next reads the next line that is neither blank nor a comment. The first line is the banner, not a
// comment.
func (r *mtxReader) next() ([]byte, error) {
	for {
		line, err := r.in.ReadSlice('\n')
		r.line++
		switch {
		case err == bufio.ErrBufferFull:
			return nil, r.wrong("longer than %d bytes", maxLine)
		case err != nil && err != io.EOF:
			return nil, r.readError(err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && (r.line == 1 || line[0] != '%') {
			return line, nil
		}
		if err == io.EOF {
			return nil, err
		}
	}
}

// wrong returns an error about the line last read.
func (r *mtxReader) wrong(format string, args ...any) error {
	return r.fail(ErrFormat, "line %d: %s", r.line, fmt.Sprintf(format, args...))
}

// isMtxBanner reports whether text starts like a Matrix Market file. Some files have only one %.
func isMtxBanner(text string) bool {
	text = strings.ToLower(text)
	return strings.HasPrefix(text, "%%matrixmarket") || strings.HasPrefix(text, "%matrixmarket")
}

// banner reads the first line.
func (r *mtxReader) banner() error {
	line, err := r.next()
	if err != nil && err != io.EOF {
		return err
	}
	words := strings.Fields(strings.ToLower(string(line)))
	if r.line != 1 || len(words) != 5 || !isMtxBanner(words[0]) || words[1] != "matrix" {
		return r.fail(ErrFormat, "file starts with %s, want %%%%MatrixMarket matrix FORMAT FIELD SYMMETRY",
			shorten(line))
	}
	format, field, symmetry := words[2], words[3], words[4]
	r.coordinate = format == "coordinate"
	r.natural = field == "unsigned-integer"
	r.integer = field == "integer" || r.natural
	r.pattern = field == "pattern"
	switch {
	case format != "array" && format != "coordinate":
		return r.fail(gemm.ErrUnsupported, "format %.40q, want array or coordinate", format)
	case field != "real" && field != "double" && !r.integer && !r.pattern:
		return r.fail(gemm.ErrUnsupported, "field %.40q, want real, integer or pattern", field)
	case r.pattern && !r.coordinate:
		return r.fail(ErrFormat, "array with field pattern has no values: want coordinate")
	case symmetry == "symmetric":
		r.mirror = 1
	case symmetry == "skew-symmetric":
		r.mirror = -1
	case symmetry != "general":
		return r.fail(gemm.ErrUnsupported, "symmetry %.40q, want general, symmetric or skew-symmetric", symmetry)
	}
	return nil
}

// sizeLine reads the sizes: rows, columns and, in a coordinate file, entries.
func (r *mtxReader) sizeLine() ([]uint64, error) {
	line, err := r.next()
	if err == io.EOF {
		return nil, r.fail(ErrFormat, "the file ends before its sizes")
	}
	if err != nil {
		return nil, err
	}
	want := "rows columns"
	if r.coordinate {
		want = "rows columns entries"
	}
	words := strings.Fields(string(line))
	if len(words) != len(strings.Fields(want)) {
		return nil, r.wrong("%s, want sizes as %q", shorten(line), want)
	}
	n := make([]uint64, len(words))
	for i, word := range words {
		if n[i], err = strconv.ParseUint(word, 10, 64); err != nil {
			return nil, r.wrong("%s, want sizes as %q", shorten(line), want)
		}
	}
	return n, nil
}

// sizes allocates a matrix with the sizes n if the file is large enough for it. It returns the
// number of entries that follow.
func (r *mtxReader) sizes(n []uint64) (entries uint64, err error) {
	// An array is stored in column-major order.
	l, err := r.layout(nativeElement(r.textType()), n[:2], !r.coordinate)
	if err != nil {
		return 0, err
	}
	if r.mirror != 0 && l.Rows != l.Cols {
		return 0, r.wrong("symmetric matrix is %d×%d: want a square matrix", l.OpRows(), l.OpCols())
	}
	least := uint64(2) // minimum bytes of an entry: a digit and a newline
	switch side := uint64(l.Rows); {
	case r.coordinate:
		entries = n[2]
		least = 4 // two indices, each with a separator
	case r.mirror == 0:
		entries = uint64(l.Len())
	default:
		entries = side * (side + 1) / 2
		if r.mirror < 0 {
			entries -= side // the diagonal is zero and not stored
		}
	}
	if most := (uint64(r.size) + 1) / least; entries > most {
		return 0, r.wrong("%d entries take at least %d bytes each: the file has only %d bytes", entries, least, r.size)
	}
	if r.coordinate {
		if err := r.checkExpansion(l, r.size); err != nil {
			return 0, err
		}
	}
	if err := r.room(l); err != nil {
		return 0, err
	}
	r.m = &Matrix{Layout: l, Data: alloc(l.Bytes())}
	return entries, nil
}

// readArray reads the entries of an array file.
func (r *mtxReader) readArray() error {
	if r.m.Len() == 0 {
		return nil // without rows, the number of columns is not limited by the size of the file
	}
	for j := range r.m.OpCols() {
		top := 0
		if r.mirror != 0 {
			top = j
		}
		if r.mirror < 0 {
			top++
		}
		for i := top; i < r.m.OpRows(); i++ {
			line, err := r.entry()
			if err == nil {
				err = r.add(i, j, line)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// readCoordinates reads the entries of a coordinate file.
func (r *mtxReader) readCoordinates(entries uint64) error {
	for range entries {
		line, err := r.entry()
		if err != nil {
			return err
		}
		i, line, err := r.index(line, "row", r.m.Rows)
		if err != nil {
			return err
		}
		j, line, err := r.index(line, "column", r.m.Cols)
		if err != nil {
			return err
		}
		r.lower, r.upper = r.lower || i > j, r.upper || i < j
		if r.mirror != 0 && r.lower && r.upper || r.mirror < 0 && i == j {
			return r.wrong("entry (%d, %d): want only one triangle of a symmetric matrix, "+
				"without the diagonal if skew-symmetric", i+1, j+1)
		}
		if err := r.add(i, j, line); err != nil {
			return err
		}
	}
	return nil
}

// entry reads the line of the next entry.
func (r *mtxReader) entry() ([]byte, error) {
	line, err := r.next()
	if err == io.EOF {
		err = r.fail(ErrFormat, "the file ends before its last entry")
	}
	return line, err
}

// index reads a number from 1 to n at the start of line and returns it minus 1.
func (r *mtxReader) index(line []byte, what string, n int) (i int, rest []byte, err error) {
	word := line
	if end := bytes.IndexAny(line, " \t"); end >= 0 {
		word, rest = line[:end], bytes.TrimLeft(line[end:], " \t")
	}
	i, err = strconv.Atoi(string(word))
	if err != nil || i < 1 || i > n {
		return 0, nil, r.wrong("%s %s, want a number from 1 to %d", what, shorten(word), n)
	}
	return i - 1, rest, nil
}

// add adds a value to the element (i, j) and to its mirror image.
func (r *mtxReader) add(i, j int, text []byte) error {
	v, ok := number{float: 1}, len(text) == 0
	if !r.pattern {
		v, ok = parseNumber(text, r.m.Type)
		ok = ok && !(r.integer && bytes.ContainsAny(text, ".dDeEnNiI")) && !(r.natural && v.float < 0)
	}
	if !ok {
		if r.pattern {
			return r.wrong("%s after the indices, want nothing because the field is pattern", shorten(text))
		}
		return r.wrong("%s, want one number", shorten(text))
	}
	err := r.addTo(i, j, v, text)
	if err == nil && r.mirror != 0 && i != j {
		v.float *= r.mirror
		err = r.addTo(j, i, v, text)
	}
	return err
}

// addTo rounds v to the type of the matrix and adds it to the element (i, j).
func (r *mtxReader) addTo(i, j int, v number, text []byte) error {
	t, n := r.m.Type, r.m.Index(i, j)
	fits := v.fits(t)
	if old := t.At(r.m.Data, n); fits && old != 0 { // 0 + v would lose the sign of a zero
		v.float = t.Round(v.float)
		sum := v.float + old
		v.large = math.IsInf(sum, 0) && !math.IsInf(v.float, 0) && !math.IsInf(old, 0)
		v.float, text = sum, strconv.AppendFloat(nil, sum, 'g', -1, 64)
		fits = v.fits(t)
	}
	if !fits {
		if err := r.refuse(t, i, j, v.String(text, r.line)); err != nil {
			return err
		}
	}
	t.Set(r.m.Data, n, v.float)
	return nil
}

func writeMtx(w io.Writer, _ string, l gemm.Layout, data []byte) error {
	if _, err := fmt.Fprintf(w, "%%%%MatrixMarket matrix array %s general\n%d %d\n", mtxTypes[l.Type], l.OpRows(),
		l.OpCols()); err != nil {
		return err
	}
	return writeNumbers(w, l.T(), data, '\n')
}
