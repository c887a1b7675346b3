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

	"tilework/dtype"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
	"tilework/matfile"
)

// inputFlags are the flags that control the reading of matrices, and the matrices read so far.
type inputFlags struct {
	allowOverflow bool
	csvDelimiter  string

	options matfile.ReadOptions
	stderr  io.Writer
	warned  []string // the files with a warning
	open    []*input
}

// input is a matrix that was read from a file.
type input struct {
	gemm.Layout
	Data []byte
	file *matfile.Any
}

// newInput returns the matrix of a file.
func newInput(m *matfile.Any) *input {
	l := gemm.Dense(m.Type, m.Rows, m.Cols)
	if m.Transposed {
		l = gemm.Dense(m.Type, m.Cols, m.Rows).T()
	}
	return &input{l, m.Data, m}
}

func (f *inputFlags) declare(c *cobra.Command) {
	fl := c.Flags()
	fl.BoolVar(&f.allowOverflow, "allow-overflow", false,
		"read numbers that are too large for the type as infinities, with a warning instead of an error")
	fl.BoolVar(&f.options.Expand, "allow-expansion", false,
		"read matrices that are far larger than their files (sparse .mtx, compressed .npz) if they fit into memory")
	f.declareCSV(c)
}

func (f *inputFlags) declareCSV(c *cobra.Command) {
	fl := c.Flags()
	fl.IntVar(&f.options.CSVHeader, "csv-header", 0,
		"skip the first line of .csv files that is not blank, or with =`N` the first N of them")
	fl.Lookup("csv-header").NoOptDefVal = "1"
	fl.BoolVar(&f.options.CSVMissing, "csv-missing", false, "read empty fields and NA in .csv files as NaN")
	fl.StringVar(&f.csvDelimiter, "csv-delimiter", "",
		"the `CHARACTER` between numbers in .csv files, or \"tab\" or \"space\" (default: the semicolon, comma, tab or "+
			"blanks in the first line of numbers)")
}

// parse checks the flags, and returns an error if more than one input is standard input.
func (f *inputFlags) parse(inputs []namedFile) (err error) {
	if f.options.CSVHeader < 0 {
		return fmt.Errorf("--csv-header=%d: want a number of lines", f.options.CSVHeader)
	}
	if f.options.CSVDelimiter, err = parseDelimiter(f.csvDelimiter); err != nil {
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

// read reads a matrix of type t, or of the type of the file for Invalid, with the settings of the
// flags.
func (f *inputFlags) read(ctx context.Context, file string, t dtype.Type, dims matfile.Dims) (*input, error) {
	o := f.options
	o.Dims = dims
	if f.allowOverflow {
		o.Overflow = func(first error, count int) {
			if !slices.Contains(f.warned, file) { // a file can be both A and B
				fmt.Fprintf(f.stderr, "warning: %v; read %d %s as infinite\n", first, count, plural("number", count))
				f.warned = append(f.warned, file)
			}
		}
	}
	read, err := matfile.ReadAny(ctx, file, t, &o)
	switch {
	case errors.Is(err, matfile.ErrOverflow):
		return nil, fmt.Errorf("%w; --allow-overflow reads such numbers as infinities", err)
	case errors.Is(err, matfile.ErrExpansion):
		return nil, fmt.Errorf("%w; --allow-expansion reads it if it fits into memory", err)
	case err != nil:
		return nil, err
	}
	m := newInput(read)
	f.open = append(f.open, m)
	return m, nil
}

// readOperand reads A or B.
func (f *inputFlags) readOperand(ctx context.Context, file string, t dtype.Type, dims matfile.Dims) (*input, error) {
	m, err := f.read(ctx, file, t, dims)
	if err == nil && len(m.Type.Info().Results) == 0 {
		err = fmt.Errorf("%s: %w: elements of type %v", file, matfile.ErrNeedsType, m.Type)
	}
	if errors.Is(err, matfile.ErrNeedsType) {
		err = fmt.Errorf("%w; --dtype float64 converts A and B, as do %s if the numbers fit", err,
			strings.Join(productTypes()[1:], ", "))
	}
	return m, err
}

// close releases mapped files.
func (f *inputFlags) close() error {
	var errs []error
	for _, m := range f.open {
		errs = append(errs, m.file.Close())
	}
	return errors.Join(errs...)
}

// isMapped reports whether data is that of a mapped file.
func (f *inputFlags) isMapped(data []byte) bool {
	return len(data) > 0 && slices.ContainsFunc(f.open, func(m *input) bool {
		return m.file.IsMapped() && len(m.Data) > 0 && &m.Data[0] == &data[0]
	})
}

// checkUnchanged returns an error if a file was written to since it was read. It may have been read
// while it was being written.
func (f *inputFlags) checkUnchanged() error {
	for _, m := range f.open {
		if err := m.file.CheckUnchanged(); err != nil {
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

// result is the memory of C, which becomes a file.
type result struct {
	matfile.Any
	mapped *matio.Result // the file, if Data is mapped
}

// discard releases the memory, and removes the mapped file unless it was committed.
func (r *result) discard() {
	if r.mapped != nil {
		r.mapped.Discard()
	}
}

// commit writes the result to the file, or gives the mapped file its name.
func (f *mulFlags) commit(ctx context.Context, r *result, stdout io.Writer) error {
	switch {
	case r.mapped != nil:
		return r.mapped.Commit(ctx)
	case matio.IsStd(f.out):
		return r.Encode(ctx, stdout, f.out)
	}
	if err := matio.CheckOutput(f.out, r.Type, f.force); err != nil { // it may exist now
		return err
	}
	return r.Write(ctx, f.out)
}

// newResult returns memory for the result. The errors report that the product does not fit into
// memory, or its result into the file system of the output file.
func (f *mulFlags) newResult(plan *dispatch.Plan, stderr io.Writer) (*result, error) {
	p := &plan.Problem
	room := func(bytes int) error {
		return host.CheckMemory(bytes+plan.Memory(), fmt.Sprintf("the product with its %d×%d result", p.M, p.N))
	}
	c, need := p.Layouts[gemm.C], 0
	maps := c.Bytes() >= mapFrom && matio.Maps(f.out, c)
	if !maps {
		need = c.Bytes()
	}
	if err := room(need); err != nil {
		return nil, err
	}
	if err := f.checkDisk(p, need+plan.Memory(), stderr); err != nil {
		return nil, err
	}
	r := &result{Any: matfile.Any{Type: c.Type, Rows: c.Rows, Cols: c.Cols}}
	if maps {
		file, err := matio.NewResult(f.out, c, f.force)
		if err == nil {
			r.mapped, r.Data = file, file.Data
			return r, nil
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return nil, fmt.Errorf("-o: %w", err)
		}
		if err := room(c.Bytes()); err != nil {
			return nil, err
		}
	}
	r.Data = alignedBytes(c.Bytes())
	return r, nil
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
