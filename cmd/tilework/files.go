package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/matio"
)

// fileRow describes an array in a file.
type fileRow struct {
	File string `json:"file"`
	matio.Entry
}

var fileColumns = []column[fileRow]{
	fixed("FILE", func(r fileRow) any { return r.name() }),
	fixed("TYPE", func(r fileRow) any { return r.Type }),
	fixed("SHAPE", func(r fileRow) any { return r.shape() }),
	wrapped("ERROR", func(r fileRow) any { return r.Error }),
}

// name returns the name of the array in the syntax of mul's arguments.
func (r fileRow) name() string {
	if r.Member == "" {
		return r.File
	}
	return r.File + "::" + r.Member
}

// shape formats the shape of the array: "3×4".
func (r fileRow) shape() string {
	sizes := make([]string, len(r.Shape))
	for i, n := range r.Shape {
		sizes[i] = fmt.Sprint(n)
	}
	return strings.Join(sizes, "×")
}

func filesCommand() *cobra.Command {
	var f inputFlags
	var output listFlags
	c := &cobra.Command{
		Use:   "files FILE...",
		Short: "List the arrays in files",
		Long: `files lists the arrays in each file: the name to use for the array in mul, the element type as
the file spells it, and the shape. A file or an array that cannot be read has the reason in its
row, and the exit code is then 2. The file - is standard input.`,
		Example: `  tilework files model.safetensors
  tilework files a.npy x.csv --format json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no file: want one or more files (see tilework files --help)")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			var inputs []namedFile
			for _, file := range args {
				inputs = append(inputs, namedFile{file, file})
			}
			if err := f.parse(inputs); err != nil {
				return err
			}
			rows, failed := []fileRow{}, 0
			for _, file := range args {
				entries, err := matio.List(c.Context(), file, matio.ReadOptions{CSV: f.csv, Stdin: c.InOrStdin()})
				switch {
				case c.Context().Err() != nil:
					return c.Context().Err()
				case err != nil:
					entries = []matio.Entry{{Error: err.Error()}}
				}
				for _, e := range entries {
					rows = append(rows, fileRow{file, e})
					if e.Error != "" {
						failed++
					}
				}
			}
			if err := writeList(c.OutOrStdout(), output, fileColumns, rows); err != nil || failed == 0 {
				return err
			}
			return fmt.Errorf("%d of %d %s cannot be read: see the column ERROR", failed, len(rows),
				plural("array", len(rows)))
		},
	}
	f.declareCSV(c)
	output.addTo(c, listFormats...)
	return c
}
