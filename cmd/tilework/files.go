package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/internal/matio"
	"tilework/matfile"
)

// fileRow describes an array in a file.
type fileRow struct {
	File   string   `json:"file"`
	Member string   `json:"member,omitempty"` // name in an archive
	Type   string   `json:"type"`
	Shape  []uint64 `json:"shape"`
	Error  string   `json:"error,omitempty"`

	name string // for mul
}

var fileColumns = []column[fileRow]{
	fixed("FILE", func(r fileRow) any { return shellQuote(r.name) }),
	fixed("TYPE", func(r fileRow) any { return r.Type }),
	fixed("SHAPE", func(r fileRow) any { return r.shape() }),
	wrapped("ERROR", func(r fileRow) any { return r.Error }),
}

// shape formats the shape of the array: "3×4".
func (r fileRow) shape() string {
	sizes := make([]string, len(r.Shape))
	for i, n := range r.Shape {
		sizes[i] = fmt.Sprint(n)
	}
	return strings.Join(sizes, "×")
}

// shellQuote returns text as one word for a shell. Control characters and invalid UTF-8 become the
// escapes of $'…', so that they do not reach a terminal.
func shellQuote(text string) string {
	special := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_@%+=:,./-", c)
	}
	hidden := func(c rune) bool { return !unicode.IsPrint(c) }
	switch {
	case text != "" && utf8.ValidString(text) && !strings.ContainsFunc(text, special):
		return text
	case utf8.ValidString(text) && !strings.ContainsFunc(text, hidden):
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

// stdinArgs replaces a positional argument such as -::w, which would be taken for flags, by another
// name of the same matrix of standard input.
func stdinArgs(root *cobra.Command, args []string) []string {
	c, _, err := root.Find(args)
	if err != nil {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		rest, dash := strings.CutPrefix(arg, "-")
		if dash && rest != "" && matio.IsStd(arg) && (i == 0 || !takesValue(c, args[i-1])) {
			args[i] = matio.StdinPath + rest
		}
	}
	return args
}

// takesValue reports whether the argument is a flag of c whose value is the next argument.
func takesValue(c *cobra.Command, arg string) bool {
	var f *pflag.Flag
	if name, long := strings.CutPrefix(arg, "--"); long {
		f = c.Flags().Lookup(name)
	} else if len(arg) > 1 && arg[0] == '-' {
		f = c.Flags().ShorthandLookup(arg[len(arg)-1:])
	}
	return f != nil && f.NoOptDefVal == ""
}

func filesCommand() *cobra.Command {
	var f inputFlags
	var output listFlags
	c := &cobra.Command{
		Use:   "files FILE...",
		Short: "List the arrays in files",
		Long: `files lists the arrays in each file: the name to use for the array in mul, quoted for a shell if it
needs it, the element type as the file spells it, and the shape. A file or an array that cannot be
read has the reason in its row, and the exit code is then 2. The file - is standard input.`,
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
			f.options.Stdin = c.InOrStdin()
			rows, failed := []fileRow{}, 0
			for _, file := range args {
				arrays, err := matfile.List(c.Context(), file, &f.options)
				switch {
				case c.Context().Err() != nil:
					return c.Context().Err()
				case err != nil:
					arrays = []matfile.Array{{Name: file, Err: err}}
				}
				for _, a := range arrays {
					row := fileRow{file, a.Member, a.Spelling, a.Shape, "", a.Name}
					if a.Err != nil {
						row.Error = a.Err.Error()
						failed++
					}
					rows = append(rows, row)
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
