package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tilework/internal/table"
)

// column is a column of a table of T. The function get returns its value for a row.
type column[T any] struct {
	table.Column
	get func(T) any
}

// listFormats are the values of --format of commands that print lists.
var listFormats = []string{"table", "json", "jsonl", "csv"}

// listFlags are the flags that control the printing of a list.
type listFlags struct {
	format string
	wide   bool
}

// addTo adds the flags --format and --wide to c. The first format is the default.
func (o *listFlags) addTo(c *cobra.Command, formats ...string) {
	formatFlag(c, &o.format, formats...)
	c.Flags().BoolVar(&o.wide, "wide", false,
		"print all columns of a table, without fitting it to the width of the terminal")
}

// pipeWidth is the width in characters of tables written to files and pipes.
const pipeWidth = 120

// width returns the line width of w in characters: that of the terminal, or else the environment
// variable COLUMNS, or else pipeWidth. It returns 0 for no limit.
func (o *listFlags) width(w io.Writer) int {
	if o.wide {
		return 0
	}
	if f := fileOf(w); f != nil {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	return pipeWidth
}

// writeList prints rows in one of listFormats. A table has the columns; the other formats have the
// JSON fields of the rows.
func writeList[T any](w io.Writer, o listFlags, columns []column[T], rows []T) error {
	switch o.format {
	case "json":
		if rows == nil {
			rows = []T{} // encoded as [], not null
		}
		return writeJSON(w, rows)
	case "jsonl":
		e := jsonEncoder(w)
		for _, r := range rows {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return writeCSV(w, rows)
	}
	shown := make([]table.Column, len(columns))
	for i, c := range columns {
		shown[i] = c.Column
	}
	return table.Write(w, o.width(w), shown, cells(columns, rows))
}

// writeJSON prints v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := jsonEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// jsonEncoder returns an encoder that does not escape < and >, which the names of types may have.
func jsonEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// cells returns the text of the columns of each row.
func cells[T any](columns []column[T], rows []T) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		for _, c := range columns {
			out[i] = append(out[i], fmt.Sprint(c.get(r)))
		}
	}
	return out
}

// fixed returns a column that is always printed in full.
func fixed[T any](title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title}, get}
}

// dropped returns a column that a narrow table omits. Columns of a higher rank are omitted first.
func dropped[T any](rank int, title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title, Drop: rank}, get}
}

// wrapped returns a column whose cells continue on further lines if the table is narrow.
func wrapped[T any](title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title, Wrap: true}, get}
}
