package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
)

// inputFlags are the flags that control how files with matrices are read, and the matrices read.
type inputFlags struct {
	allowOverflow, csvHeader bool
	csvDelimiter             string

	csv    matio.CSV
	stdin  io.Reader
	stderr io.Writer
	open   []*matio.Matrix
}

func (f *inputFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(&f.allowOverflow, "allow-overflow", false, "read numbers that are too large for the type as infinities, with a warning, instead of refusing the file")
	f.declareCSV(c)
}

func (f *inputFlags) declareCSV(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(&f.csvHeader, "csv-header", false, "skip the first line of .csv files")
	fl.StringVar(&f.csvDelimiter, "csv-delimiter", "", "the character between numbers in .csv files, tab or space (default: a semicolon, comma, tab or blanks, as in the first line of numbers)")
}

// parse checks the flags, and that of the named inputs at most one is standard input.
func (f *inputFlags) parse(inputs []namedFile) (err error) {
	f.csv.Header = f.csvHeader
	if f.csv.Delimiter, err = parseDelimiter(f.csvDelimiter); err != nil {
		return err
	}
	var std []string
	for _, in := range inputs {
		if matio.IsStd(in.file) {
			std = append(std, in.name)
		}
	}
	if len(std) > 1 {
		return fmt.Errorf("%s are all standard input (-): want a file for all but one", strings.Join(std, ", "))
	}
	return nil
}

// namedFile is a file with the argument or flag that names it.
type namedFile struct{ name, file string }

// parseDelimiter reads --csv-delimiter.
func parseDelimiter(text string) (byte, error) {
	switch text {
	case "":
		return 0, nil
	case "tab", `\t`:
		return '\t', nil
	case "space":
		return ' ', nil
	}
	if c := rune(text[0]); len(text) > 1 || c > unicode.MaxASCII || unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("+-.\"\r\n", c) {
		return 0, fmt.Errorf("--csv-delimiter %s: want one character that is no part of a number, tab or space", text)
	}
	return text[0], nil
}

// read reads a matrix.
func (f *inputFlags) read(ctx context.Context, file string, o matio.ReadOptions) (*matio.Matrix, error) {
	o.Room, o.CSV, o.Stdin = host.CheckMemory, f.csv, f.stdin
	if f.allowOverflow {
		o.Overflow = func(first error, count int) {
			fmt.Fprintf(f.stderr, "warning: %v; numbers read as infinities: %d\n", first, count)
		}
	}
	m, err := matio.Read(ctx, file, o)
	switch {
	case errors.Is(err, matio.ErrOverflow):
		return nil, fmt.Errorf("%w; --allow-overflow reads it as an infinity", err)
	case errors.Is(err, matio.ErrNeedsType):
		return nil, fmt.Errorf("%w; --dtype float64 converts A and B, and so does %s where the numbers fit", err, strings.Join(multiplied()[1:], ", "))
	case err != nil:
		return nil, err
	}
	f.open = append(f.open, m)
	return m, nil
}

// multiplied are the names of the types that are multiplied, float64 first.
func multiplied() []string {
	var names []string
	for _, t := range dtype.All() {
		if len(t.Info().Results) > 0 {
			names = append(names, t.String())
		}
	}
	return names
}

// checkUnchanged returns an error if a file was written to after it was read: it may not have been
// whole by then.
func (f *inputFlags) checkUnchanged() error {
	for _, m := range f.open {
		if err := m.CheckUnchanged(); err != nil {
			return err
		}
	}
	return nil
}

// inputs lists the files that mul reads.
func (f *mulFlags) inputs(fileA, fileB string) []namedFile {
	all := []namedFile{{"A", fileA}, {"B", fileB}, {"--c", f.c}, {"--bias", f.epilogue.bias}}
	for _, x := range extraFlags {
		all = append(all, namedFile{"--" + x.flag, f.epilogue.files[x.extra]})
	}
	return all
}

// checkRoom refuses a product whose result does not fit the memory or the file system of its
// file, and warns of one that may not fit.
func (f *mulFlags) checkRoom(p *gemm.Problem, plan *dispatch.Plan, stderr io.Writer) error {
	need := p.C.Bytes() + plan.Memory()
	product := fmt.Sprintf("the product with its %d×%d result", p.M, p.N)
	if err := host.CheckMemory(need, product); err != nil {
		return err
	}
	least, most, folder, err := matio.OutputSize(f.out, p.C)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	system, known := host.FileSystemOf(folder)
	if folder == "" || !known {
		return nil
	}
	free, of := system.Free, "in its file system"
	if system.InMemory && system.Memory < uint64(need)+free {
		free, of = system.Memory-min(system.Memory, uint64(need)), "on its RAM disk besides the product's own memory"
	}
	takes := func(n int64) string {
		return fmt.Sprintf("%s takes %s, and %s are free %s", f.out, host.Bytes(uint64(n)), host.Bytes(free), of)
	}
	switch {
	case uint64(least) > free:
		return fmt.Errorf("-o: %s", takes(least))
	case uint64(most) > free:
		fmt.Fprintf(stderr, "warning: -o: at the most, %s\n", takes(most))
	}
	return nil
}
