package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tilework/internal/table"
)

// column is one column of a table of T: its heading and the value of each row.
type column[T any] struct {
	table.Column
	get func(T) any
}

// listFormats are the formats of lists.
var listFormats = []string{"table", "json", "jsonl", "csv"}

// listFlags are the flags that decide how a verb prints its list.
type listFlags struct {
	format string
	wide   bool
}

// addTo gives c the flags --format, with the first of formats the default, and --wide.
func (o *listFlags) addTo(c *cobra.Command, formats ...string) {
	formatFlag(c, &o.format, formats...)
	c.Flags().BoolVar(&o.wide, "wide", false, "print all columns of a table, and do not fit it to the terminal")
}

// pipeWidth is the width of a table that goes to a file or a pipe.
const pipeWidth = 120

// width returns the characters of a line on w: of the terminal, or as COLUMNS has it, and 0 for
// no limit.
func (o *listFlags) width(w io.Writer) int {
	if o.wide {
		return 0
	}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	return pipeWidth
}

// formatFlag gives c the flag --format, with the first of formats the default.
func formatFlag(c *cobra.Command, format *string, formats ...string) {
	c.Flags().StringVar(format, "format", formats[0], "how the result is printed: "+strings.Join(formats, ", "))
	complete(c, "format", formats...)
	old := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		for _, f := range formats {
			if *format == f {
				if old != nil {
					return old(c, args)
				}
				return nil
			}
		}
		return fmt.Errorf("--format %s: unknown format (want %s)", *format, strings.Join(formats, ", "))
	}
}

// keptFiles is the rule for every verb that writes files, as their helps state it.
const keptFiles = "replace files that exist; without it they are kept, and it is an error"

// forceFlag gives c the flag --force.
func forceFlag(c *cobra.Command, force *bool) {
	c.Flags().BoolVar(force, "force", false, keptFiles)
}

// complete offers the values to the shell's completion of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// The only error is that the flag does not exist or has its values already.
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// writeList prints rows in one of listFormats: as they marshal for the JSON
// ones, by the columns for the others.
func writeList[T any](w io.Writer, o listFlags, columns []column[T], rows []T) error {
	switch o.format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	case "jsonl":
		e := json.NewEncoder(w)
		for _, r := range rows {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		titles := make([]string, len(columns))
		for i, c := range columns {
			titles[i] = c.Title
		}
		return csv.NewWriter(w).WriteAll(append([][]string{titles}, cells(columns, rows)...))
	}
	shown := make([]table.Column, len(columns))
	for i, c := range columns {
		shown[i] = c.Column
	}
	return table.Write(w, o.width(w), shown, cells(columns, rows))
}

// cells returns the rows as text.
func cells[T any](columns []column[T], rows []T) [][]string {
	out := make([][]string, len(rows))
	for i, r := range rows {
		for _, c := range columns {
			out[i] = append(out[i], fmt.Sprint(c.get(r)))
		}
	}
	return out
}

// fixed, dropped and wrapped make a column that is always whole, one that a narrow table leaves
// out, the highest rank first, and one whose cells continue on further lines.
func fixed[T any](title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title}, get}
}

func dropped[T any](rank int, title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title, Drop: rank}, get}
}

func wrapped[T any](title string, get func(T) any) column[T] {
	return column[T]{table.Column{Title: title, Wrap: true}, get}
}
