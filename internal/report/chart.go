package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
)

// Section is a question and the charts that answer it.
type Section struct {
	ID       string // the anchor of a link
	Title    string
	Question string
	Charts   []*Chart
}

// Chart answers a question for one device and element type with a sentence, a drawing and a table.
type Chart struct {
	ID      string // for links and file names: "rate-gpu-float32"
	Title   string
	Answer  string // with figures from the records
	Drawing Drawing
	Notes   []string // how to read the chart
	Table   Table
}

// Drawing is [Lines] or [Rows].
type Drawing interface {
	// keys returns the legend.
	keys() []Key
	// draw lays the drawing out at a width.
	draw(width float64) *canvas
}

// Key is an entry of a legend.
type Key struct {
	Name   string
	Mark   mark
	Color  *paint
	Marker int // index in markers
	Dash   []float64
}

// mark is the kind of sample of a legend entry.
type mark int

const (
	markLine     mark = iota // a line with points
	markLineOnly             // a line
	markPoint                // a point
	markBar                  // a bar
)

// Table holds the figures of a drawing. The first columns name the row.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Column is a heading. Unit is the unit of the numbers in a CSV file.
type Column struct{ Name, Unit string }

// Heading returns the name with the unit, or the name alone if the cells contain the unit.
func (c Column) Heading() string {
	switch c.Unit {
	case "", "s", "%", "×":
		return c.Name
	}
	return c.Name + ", " + c.Unit
}

// Cell is an entry of a table. Number is NaN for a cell that is sorted as text.
type Cell struct {
	Text   string
	Number float64
}

func textCell(s string) Cell { return Cell{s, math.NaN()} }

func numberCell(text string, number float64) Cell { return Cell{text, number} }

// IsNumber reports whether the cell is sorted, aligned and written to CSV as a number.
func (c Cell) IsNumber() bool { return !math.IsNaN(c.Number) }

// Plain returns the cell without unit or rounding.
func (c Cell) Plain() string {
	switch {
	case !c.IsNumber():
		return c.Text
	case c.Number == math.Trunc(c.Number) && math.Abs(c.Number) < 1e15:
		return strconv.FormatFloat(c.Number, 'f', 0, 64)
	}
	return strconv.FormatFloat(c.Number, 'g', -1, 64)
}

// add appends a row.
func (t *Table) add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Numeric reports whether the first cell in column i that is not empty is a number.
func (t *Table) Numeric(i int) bool {
	for _, r := range t.Rows {
		if r[i].Text != "" {
			return r[i].IsNumber()
		}
	}
	return false
}

// writeCSV writes the table with its units in the header.
func (t *Table) writeCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	var header []string
	for _, column := range t.Columns {
		name := column.Name
		if column.Unit != "" {
			name += " (" + column.Unit + ")"
		}
		header = append(header, name)
	}
	records := [][]string{header}
	for _, row := range t.Rows {
		var record []string
		for _, cell := range row {
			record = append(record, cell.Plain())
		}
		records = append(records, record)
	}
	return c.WriteAll(records)
}

// CSV returns the table as a data URL, which needs no network.
func (t *Table) CSV() (string, error) {
	var b strings.Builder
	if err := t.writeCSV(&b); err != nil {
		return "", fmt.Errorf("table as CSV: %w", err)
	}
	return "data:text/csv;charset=utf-8," + url.PathEscape(b.String()), nil
}

// Legend returns the entries that show and hide parts of the drawing.
func (c *Chart) Legend() []Key { return c.Drawing.keys() }
