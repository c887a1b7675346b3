// Package table prints tables that fit the width of a terminal.
package table

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Column describes one column of a table.
type Column struct {
	Title string
	// Wrap allows cells to continue on further lines, broken at spaces.
	Wrap bool
	// Drop ranks the columns that are dropped if the table is too wide. The column with the
	// highest rank is dropped first, and columns with 0 are never dropped.
	Drop int
}

const (
	gap      = 2  // spaces between columns
	minWidth = 24 // wrapped columns become narrower than this only if no column is left to drop
)

// Write prints a table with one cell per row and column, below the titles. If the table is wider
// than width characters, Write first wraps and then drops columns, beginning with columns that have
// the same text in every row. A last line names the dropped columns. A width of 0 is no limit.
func Write(w io.Writer, width int, columns []Column, rows [][]string) error {
	t := &layout{columns: columns, rows: rows}
	for i := range columns {
		t.shown = append(t.shown, i)
	}
	t.fit(width)
	var b strings.Builder
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.Title
	}
	for _, row := range append([][]string{titles}, rows...) {
		t.writeRow(&b, row)
	}
	if len(t.dropped) > 0 {
		note := "Not shown (--wide shows all columns): " + strings.Join(t.droppedTitles(), ", ")
		b.WriteString(Fold(note, width) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// layout is a table that is being fitted to a width.
type layout struct {
	columns []Column
	rows    [][]string
	shown   []int // indices of the shown columns, in order
	dropped []int // indices of the dropped columns, in the order of dropping
	widths  []int // of the shown columns
}

// fit chooses the shown columns and their widths.
func (t *layout) fit(width int) {
	queue := t.dropOrder()
	for {
		t.shrink(width, minWidth)
		if width == 0 || t.total() <= width {
			return
		}
		if len(queue) == 0 {
			t.shrink(width, 1)
			return
		}
		drop := queue[0]
		queue = queue[1:]
		t.dropped = append(t.dropped, drop)
		t.shown = slices.DeleteFunc(t.shown, func(i int) bool { return i == drop })
	}
}

// dropOrder returns the columns that may be dropped, in the order of dropping.
func (t *layout) dropOrder() []int {
	var order []int
	for i, c := range t.columns {
		if c.Drop > 0 {
			order = append(order, i)
		}
	}
	constant := func(i int) int {
		if _, same := t.constant(i); same {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(constant(a), constant(b)), cmp.Compare(t.columns[b].Drop, t.columns[a].Drop))
	})
	return order
}

// constant returns the text of a column if it is the same in every row. It reports false for tables
// with fewer than two rows.
func (t *layout) constant(column int) (text string, same bool) {
	if len(t.rows) < 2 {
		return "", false
	}
	for _, row := range t.rows {
		if row[column] != t.rows[0][column] {
			return "", false
		}
	}
	return t.rows[0][column], true
}

// droppedTitles returns the titles of the dropped columns, with the text of constant columns.
func (t *layout) droppedTitles() []string {
	names := make([]string, len(t.dropped))
	for i, column := range t.dropped {
		names[i] = t.columns[column].Title
		if text, same := t.constant(column); same && text != "" {
			names[i] += " " + text
		}
	}
	return names
}

// shrink sets the widths of the shown columns to their widest cells. If the table is then too wide,
// it makes wrapped columns narrower, but not narrower than the argument narrowest or their longest
// word.
func (t *layout) shrink(width, narrowest int) {
	t.widths = make([]int, len(t.shown))
	least := make([]int, len(t.shown))
	for i, column := range t.shown {
		cells := []string{t.columns[column].Title}
		for _, row := range t.rows {
			cells = append(cells, row[column])
		}
		for _, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			for word := range strings.FieldsSeq(cell) {
				least[i] = max(least[i], utf8.RuneCountInString(word))
			}
		}
		least[i] = max(least[i], narrowest)
	}
	for width > 0 && t.total() > width {
		widest := -1
		for i, column := range t.shown {
			if t.columns[column].Wrap && t.widths[i] > least[i] && (widest < 0 || t.widths[i] > t.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.widths[widest]--
	}
}

// total returns the width of the table.
func (t *layout) total() int {
	sum := gap * (len(t.widths) - 1)
	for _, w := range t.widths {
		sum += w
	}
	return sum
}

// writeRow writes a row, which takes several lines if a cell is wrapped.
func (t *layout) writeRow(b *strings.Builder, row []string) {
	cells := make([][]string, len(t.shown))
	height := 1
	for i, column := range t.shown {
		cells[i] = []string{row[column]}
		if t.columns[column].Wrap {
			cells[i] = wrapped(row[column], t.widths[i])
		}
		height = max(height, len(cells[i]))
	}
	for n := range height {
		var line strings.Builder
		for i, lines := range cells {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}
			line.WriteString(text)
			line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(text)+gap))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
}

// wrapped breaks text at spaces into lines of at most width characters, except for longer words.
func wrapped(text string, width int) []string {
	if utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	return strings.Split(Fold(text, width), "\n")
}

// Fold breaks text at spaces into lines of at most width characters. A longer word gets its own
// line. A width of 0 is no limit.
func Fold(text string, width int) string {
	if width == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case at == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
