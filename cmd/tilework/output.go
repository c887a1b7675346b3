package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// column is one column of a table of T: its heading and what stands in it.
type column[T any] struct {
	name string
	get  func(T) any
}

// listFormats are the forms that lists come out in.
var listFormats = []string{"table", "json", "jsonl", "csv"}

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

// complete offers the values to the shell's completion of a flag.
func complete(c *cobra.Command, flag string, values ...string) {
	// The only error is that the flag does not exist or has its values already.
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// writeList prints rows in one of listFormats: as they marshal for the JSON
// ones, by the columns for the others.
func writeList[T any](w io.Writer, format string, columns []column[T], rows []T) error {
	switch format {
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
		c := csv.NewWriter(w)
		for i := -1; i < len(rows); i++ {
			if err := c.Write(cells(columns, rows, i)); err != nil {
				return err
			}
		}
		c.Flush()
		return c.Error()
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := -1; i < len(rows); i++ {
		fmt.Fprintln(t, strings.Join(cells(columns, rows, i), "\t"))
	}
	return t.Flush()
}

// cells is row i in words; row -1 is the headings.
func cells[T any](columns []column[T], rows []T, i int) []string {
	out := make([]string, len(columns))
	for j, c := range columns {
		if i < 0 {
			out[j] = c.name
		} else {
			out[j] = fmt.Sprint(c.get(rows[i]))
		}
	}
	return out
}
