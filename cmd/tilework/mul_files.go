package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
	"tilework/internal/sentinel"
)

// inputFlags are the flags that control the reading of matrices, and the matrices read so far.
type inputFlags struct {
	allowOverflow, allowExpansion bool
	csvDelimiter                  string

	mapFrom int // see [matio.ReadOptions.Map]
	csv     matio.CSV
	stdin   io.Reader
	stderr  io.Writer
	warned  []string // the files with a warning
	open    []*matio.Matrix
}

func (f *inputFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(&f.allowOverflow, "allow-overflow", false,
		"read numbers that are too large for the type as infinities, with a warning instead of an error")
	fl.BoolVar(&f.allowExpansion, "allow-expansion", false,
		"read matrices that are far larger than their files (sparse .mtx, compressed .npz) if they fit into memory")
	f.declareCSV(c)
}

func (f *inputFlags) declareCSV(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.csv.Header, "csv-header", 0,
		"skip the first line of .csv files that is not blank, or with =`N` the first N of them")
	fl.Lookup("csv-header").NoOptDefVal = "1"
	fl.BoolVar(&f.csv.Missing, "csv-missing", false, "read empty fields and NA in .csv files as NaN")
	fl.StringVar(&f.csvDelimiter, "csv-delimiter", "",
		"the `CHARACTER` between numbers in .csv files, or \"tab\" or \"space\" (default: the semicolon, comma, tab or "+
			"blanks in the first line of numbers)")
}

// parse checks the flags, and returns an error if more than one input is standard input.
func (f *inputFlags) parse(inputs []namedFile) (err error) {
	if f.csv.Header < 0 {
		return fmt.Errorf("--csv-header=%d: want a number of lines", f.csv.Header)
	}
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
		return fmt.Errorf("%s are standard input (-): want at most one", strings.Join(std, " and "))
	}
	return nil
}

// namedFile is a file and the argument or flag that names it.
type namedFile struct{ name, file string }

// parseDelimiter parses --csv-delimiter. It returns 0 if the flag is not given.
func parseDelimiter(text string) (byte, error) {
	switch text {
	case "":
		return 0, nil
	case "tab", `\t`:
		return '\t', nil
	case "space":
		return ' ', nil
	}
	if c := rune(text[0]); len(text) > 1 || c > unicode.MaxASCII || unicode.IsLetter(c) || unicode.IsDigit(c) ||
		strings.ContainsRune("+-.#\"\r\n", c) {
		return 0, fmt.Errorf("--csv-delimiter %s: want one character that cannot be part of a number, or tab or space", text)
	}
	return text[0], nil
}

// read reads a matrix with the options o and the settings of the flags.
func (f *inputFlags) read(ctx context.Context, file string, o matio.ReadOptions) (*matio.Matrix, error) {
	o.Room, o.CSV, o.Stdin, o.Map, o.Expand = host.CheckMemory, f.csv, f.stdin, f.mapFrom, f.allowExpansion
	if f.allowOverflow {
		o.Overflow = func(first error, count int) {
			if !slices.Contains(f.warned, file) { // a file can be both A and B
				fmt.Fprintf(f.stderr, "warning: %v; read %d %s as infinite\n", first, count, plural("number", count))
				f.warned = append(f.warned, file)
			}
		}
	}
	m, err := matio.Read(ctx, file, o)
	switch {
	case errors.Is(err, matio.ErrOverflow):
		return nil, fmt.Errorf("%w; --allow-overflow reads such numbers as infinities", err)
	case errors.Is(err, matio.ErrExpansion):
		return nil, fmt.Errorf("%w; --allow-expansion reads it if it fits into memory", err)
	case err != nil:
		return nil, err
	}
	f.open = append(f.open, m)
	return m, nil
}

// readOperand reads A or B.
func (f *inputFlags) readOperand(ctx context.Context, file string, o matio.ReadOptions) (*matio.Matrix, error) {
	m, err := f.read(ctx, file, o)
	if err == nil && len(m.Type.Info().Results) == 0 {
		err = fmt.Errorf("%s: %w: elements of type %v", file, matio.ErrNeedsType, m.Type)
	}
	if errors.Is(err, matio.ErrNeedsType) {
		err = fmt.Errorf("%w; --dtype float64 converts A and B, as do %s if the numbers fit", err,
			strings.Join(productTypes()[1:], ", "))
	}
	return m, err
}

// close releases mapped files.
func (f *inputFlags) close() error {
	var errs []error
	for _, m := range f.open {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// isMapped reports whether data is that of a mapped file.
func (f *inputFlags) isMapped(data []byte) bool {
	return len(data) > 0 && slices.ContainsFunc(f.open, func(m *matio.Matrix) bool {
		return m.Mapped() && len(m.Data) > 0 && &m.Data[0] == &data[0]
	})
}

// checkUnchanged returns an error if a file was written to since it was read. It may have been read
// while it was being written.
func (f *inputFlags) checkUnchanged() error {
	for _, m := range f.open {
		if err := m.CheckUnchanged(); err != nil {
			return err
		}
	}
	return nil
}

// inputs returns the files that mul reads, with "" for flags that are not given.
func (f *mulFlags) inputs(fileA, fileB string) []namedFile {
	all := []namedFile{{"A", fileA}, {"B", fileB}, {"--c", f.c}, {"--bias", f.epilogue.bias}}
	for _, x := range extraFlags {
		if _, number := f.epilogue.zeroNumber(x.extra); !number {
			all = append(all, namedFile{"--" + x.flag, f.epilogue.files[x.extra]})
		}
	}
	return all
}

// newResult returns memory for the result. The errors report that the product does not fit into
// memory, or its result into the file system of the output file.
func (f *mulFlags) newResult(plan *dispatch.Plan, o matio.WriteOptions, stderr io.Writer) (*matio.Result, error) {
	p := &plan.Problem
	room := func(bytes int) error {
		return host.CheckMemory(bytes+plan.Memory(), fmt.Sprintf("the product with its %d×%d result", p.M, p.N))
	}
	c, need := p.Layouts[gemm.C], 0
	if !matio.Maps(f.out, c, o) {
		need = c.Bytes()
	}
	if err := room(need); err != nil {
		return nil, err
	}
	if err := f.checkDisk(p, need+plan.Memory(), stderr); err != nil {
		return nil, err
	}
	r, err := matio.NewResult(f.out, c, o, room)
	if err != nil && !errors.Is(err, sentinel.ErrOutOfMemory) {
		err = fmt.Errorf("-o: %w", err)
	}
	return r, err
}

// checkDisk returns an error if the result does not fit into the file system of the output file,
// besides need bytes of memory if that is a RAM disk. It warns if the result may not fit, as when
// the size of text varies.
func (f *mulFlags) checkDisk(p *gemm.Problem, need int, stderr io.Writer) error {
	least, most, folder, err := matio.OutputSize(f.out, p.Layouts[gemm.C])
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	system, known := host.FileSystemOf(folder)
	if folder == "" || !known {
		return nil
	}
	free, of := system.Free, "in its file system"
	if system.InMemory && system.Memory < uint64(need)+free {
		free, of = system.Memory-min(system.Memory, uint64(need)), "on its RAM disk besides the memory of the product"
	}
	switch {
	case uint64(least) > free:
		return fmt.Errorf("-o: %s needs %s, and %s are free %s", f.out, host.Bytes(uint64(least)), host.Bytes(free), of)
	case uint64(most) > free:
		fmt.Fprintf(stderr, "warning: -o: %s may need up to %s, and %s are free %s\n",
			f.out, host.Bytes(uint64(most)), host.Bytes(free), of)
	}
	return nil
}
