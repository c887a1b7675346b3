package tilework

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"tilework/dtype"
)

// A matrix with more than maxShown rows prints its first and last edgeShown, and so for columns.
const (
	maxShown  = 8
	edgeShown = 3
)

// String returns the shape, the type and the elements. It shows at most eight rows and
// columns. Of a larger matrix it shows the corners, with … between them, and reads no other
// elements. If the matrix has an error it returns that instead.
func (m Matrix[T]) String() string {
	t := dtype.Of[T]()
	if m.err != nil {
		return invalid(t, "matrix", m.err)
	}
	rows, cols := shownIndices(m.Rows()), shownIndices(m.Cols())
	cells := make([][]string, len(rows))
	widths := make([]int, len(cols))
	for i, row := range rows {
		cells[i] = make([]string, len(cols))
		for j, col := range cols {
			cells[i][j] = ellipsis
			if row >= 0 && col >= 0 {
				cells[i][j] = elementText(t, dtype.ToFloat64(m.At(row, col)))
			}
			widths[j] = max(widths[j], utf8.RuneCountInString(cells[i][j]))
		}
	}
	var lines []string
	for i, row := range rows {
		line := ellipsis
		if row >= 0 {
			for j := range cols {
				cells[i][j] = fmt.Sprintf("%*s", widths[j], cells[i][j])
			}
			line = "[" + strings.Join(cells[i], " ") + "]"
		}
		lines = append(lines, line)
	}
	return fmt.Sprintf("%d×%d %v\n[%s]", m.Rows(), m.Cols(), t, strings.Join(lines, "\n "))
}

const ellipsis = "…"

// shownIndices returns the indices of the rows or columns that are shown of n, and −1 for the
// ellipsis in place of the others.
func shownIndices(n int) (indices []int) {
	for i := 0; i < n; i++ {
		if n > maxShown && i == edgeShown {
			indices = append(indices, -1)
			i = n - edgeShown
		}
		indices = append(indices, i)
	}
	return indices
}

// elementText returns an element with all digits of an integer, and six of a float.
func elementText(t dtype.Type, v float64) string {
	if t.Info().Integer {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func invalid(t dtype.Type, what string, err error) string {
	return fmt.Sprintf("invalid %v %s: %v", t, what, err)
}

// String returns the shape, the type and the device, or the error of the matrix. It downloads
// nothing.
func (m DeviceMatrix[T]) String() string {
	t := dtype.Of[T]()
	if m.err != nil {
		return invalid(t, "matrix", m.err)
	}
	return fmt.Sprintf("%d×%d %v matrix on %v", m.Rows(), m.Cols(), t, m.device())
}

// String returns the number of matrices, their shape, the type and the device, or the error of the
// batch. It downloads nothing.
func (b DeviceBatch[T]) String() string {
	t := dtype.Of[T]()
	if b.err != nil {
		return invalid(t, "batch", b.err)
	}
	return fmt.Sprintf("%d matrices of %d×%d %v on %v", b.count, b.Rows(), b.Cols(), t, b.device())
}

// String returns the shape and the type, or the error of the matrix.
func (m PackedMatrix[T]) String() string {
	t := dtype.Of[T]()
	if m.err != nil {
		return invalid(t, "matrix", m.err)
	}
	return fmt.Sprintf("%d×%d %v matrix, packed", m.Rows(), m.Cols(), t)
}

// String returns the name by which the device was opened, such as "gpu:0,1", and the rank if there
// are several.
func (d *Device) String() string {
	if d.check() != nil {
		return "no device"
	}
	return d.at.String()
}

// String reports whether the function reads data. It does not print the function's code.
func (f *DeviceFunc) String() string {
	switch {
	case f == nil || f.f == nil:
		return "no device function"
	case f.f.Reads():
		return "device function that reads data"
	}
	return "device function"
}
