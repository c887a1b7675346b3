package cpu

import "testing"

// TestLinesAhead checks that the tiles of two panels together prefetch all lines of the second one,
// wherever its rows start within lines: the lines of its rows' last elements, and those before
// them.
func TestLinesAhead(t *testing.T) {
	t.Run("float32", func(t *testing.T) { checkLinesAhead[float32](t, 16) })
	t.Run("float64", func(t *testing.T) { checkLinesAhead[float64](t, 8) })
}

func checkLinesAhead[T scalar](t *testing.T, line int) {
	const rows, lines = 5, 2 // of a panel
	cols := lines * line
	for ld := 3 * cols; ld < 3*cols+line; ld++ {
		data := make([]T, rows*ld+line)
		fetched := map[int]bool{}
		for panel := 1; panel <= 2; panel++ {
			at := linesAhead(data, panel*cols, ld, rows)
			for range lines {
				first, apart := at.take(rows)
				for i := range rows {
					fetched[(indexOf(t, data, first)+i*apart)/line] = true
				}
			}
		}
		for i := range rows {
			for j := 2 * cols; j < 3*cols; j++ {
				if !fetched[(i*ld+j)/line] {
					t.Errorf("rows %d elements apart: element %d of row %d is not prefetched", ld, j-2*cols, i)
				}
			}
		}
	}
}

// indexOf returns the index of an element of data.
func indexOf[T scalar](t *testing.T, data []T, p *T) int {
	t.Helper()
	for i := range data {
		if &data[i] == p {
			return i
		}
	}
	t.Fatal("the element is not in data")
	return 0
}
