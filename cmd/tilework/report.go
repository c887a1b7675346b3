package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework/internal/bench"
	"tilework/internal/matio"
	"tilework/internal/regular"
	"tilework/internal/report"
)

// reportFlags are the flags of `tilework report`.
type reportFlags struct {
	out, svg string
	brief    bool
	force    bool
}

func reportCommand() *cobra.Command {
	var f reportFlags
	c := &cobra.Command{
		Use:   "report FILE...",
		Short: "Turn the records of bench into an HTML page with charts",
		Long: `report reads records of bench (from bench -o, or bench --format jsonl, json or tsv) and writes one
HTML file, which can be read without a network. The page begins with the most important
figures and one chart. It continues with times and rates by size, the size from which the GPU
is faster, the textbook's three charts, the gain of each kernel over the previous one, the speed
relative to each library, the roofline, and the cost of copies. With many shapes, such as those of bench --suite random, a
scatter shows the speed relative to the fastest library against the size of the product. Products
that are neither square nor timed beside a library have a chart of their rates. Each
chart has a one-sentence summary and a table, which is also available as CSV.

With several files, the first is the baseline. The page shows the measurements that are faster
or slower than in the baseline, and whether the differences are statistically significant.
Files without a common measurement, for example of a CPU and of a GPU, form one study.
The file - is standard input. An output that ends in .tsv is not a page but a compact table of
the records for version control: one row per record, without samples, and the machine once. With
--brief it has only the ratios to the libraries, not their times, and no details of the kernels.`,
		Example: `  tilework bench --kernels all --sizes 64..1024x2 --peers all -o cpu.jsonl
  tilework report cpu.jsonl -o report.html
  tilework report before.jsonl after.jsonl -o change.html
  tilework report cpu.jsonl h200.jsonl -o report.html --svg charts
  tilework report cpu.jsonl -o cpu.tsv`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no file: want files of records, as bench -o writes them (see tilework report --help)")
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"jsonl", "json", "tsv"}, cobra.ShellCompDirectiveFilterFileExt),
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "write the page or, if it ends in .tsv, the table to this `FILE`")
	fl.StringVar(&f.svg, "svg", "", "write each chart into this `FOLDER` as an SVG file")
	fl.BoolVar(&f.brief, "brief", false, "leave the times of libraries and the details of kernels out of a table")
	forceFlag(c, &f.force)
	return c
}

func (f *reportFlags) run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if f.out == "" && f.svg == "" {
		return errors.New("nothing to write: want -o FILE.html or --svg FOLDER")
	}
	sources, err := readSources(ctx, args, stdin)
	if err != nil {
		return err
	}
	r, err := report.New(sources)
	if err != nil {
		return err
	}
	files, err := f.render(r, sources)
	if err != nil {
		return err
	}
	if f.svg != "" && len(r.Charts()) == 0 {
		fmt.Fprintln(stderr, "warning: the records have no chart, so --svg writes no file")
	}
	for _, file := range files {
		old, err := os.Stat(file.path)
		if err != nil {
			continue // the file does not exist, or writing it will report the error
		}
		isOld := func(path string) bool { read, err := os.Stat(path); return err == nil && os.SameFile(old, read) }
		if slices.ContainsFunc(args, isOld) {
			return fmt.Errorf("%s is both an input and an output: want another output", file.path)
		}
		if old.IsDir() {
			return fmt.Errorf("%s is a folder: name a file", file.path)
		}
		if err := matio.CheckReplace(file.path, f.force); err != nil {
			return err
		}
	}
	if f.brief && outExtension(f.out) != tableExtension {
		return errors.New("--brief is for a table: want -o FILE.tsv")
	}
	if f.out != "" && !slices.Contains([]string{".html", ".htm", tableExtension}, outExtension(f.out)) {
		return fmt.Errorf("-o %s: want a file that ends in .html for a page, or in .tsv for a table", f.out)
	}
	if f.svg != "" {
		if err := os.MkdirAll(f.svg, 0o777); err != nil {
			return err
		}
	}
	for _, file := range files {
		if err := matio.WriteFile(file.path, file.content, f.force); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(stdout, file.path); err != nil {
			return err
		}
	}
	return nil
}

// tableExtension is that of an output with a table of the records.
const tableExtension = ".tsv"

func outExtension(path string) string { return strings.ToLower(filepath.Ext(path)) }

// output is a file to write.
type output struct {
	path    string
	content []byte
}

// render returns the contents of all files. None is written before all are complete.
func (f *reportFlags) render(r *report.Report, sources []report.Source) ([]output, error) {
	var files []output
	add := func(path string, write func(io.Writer) error) error {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		files = append(files, output{path, b.Bytes()})
		return nil
	}
	if f.out != "" {
		write := r.WriteHTML
		if outExtension(f.out) == tableExtension {
			write = func(w io.Writer) error { return f.writeTable(w, sources) }
		}
		if err := add(f.out, write); err != nil {
			return nil, err
		}
	}
	if f.svg == "" {
		return files, nil
	}
	for _, c := range r.Charts() {
		if err := add(filepath.Join(f.svg, c.ID+".svg"), c.WriteSVG); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writeTable writes the records of all sources as one table.
func (f *reportFlags) writeTable(w io.Writer, sources []report.Source) error {
	tsv, err := bench.FindFormat("tsv")
	if err != nil {
		return err
	}
	var records []bench.Record
	for _, s := range sources {
		records = append(records, s.Records...)
	}
	if f.brief {
		records = slices.DeleteFunc(records, func(r bench.Record) bool { return r.Peer })
		for i := range records {
			records[i].Detail = ""
		}
	}
	return tsv.Write(w, records, 0)
}

// readSources reads files of records, or stdin for -, and gives each a name that differs from the
// others.
func readSources(ctx context.Context, paths []string, stdin io.Reader) ([]report.Source, error) {
	var sources []report.Source
	names, read := distinct(paths), map[string]bool{}
	for i, path := range paths {
		if read[path] {
			return nil, fmt.Errorf("%s is named twice", path)
		}
		read[path] = true
		records, err := readRecordFile(ctx, path, stdin)
		if err != nil {
			return nil, err
		}
		name := names[i]
		if path == "-" {
			name = "standard input"
		}
		sources = append(sources, report.Source{Name: name, Records: records})
	}
	return sources, nil
}

// distinct returns a short name for each path: the last element without the extension, or if all
// of these are equal, the last folder that is not. If some but not all of the names are equal, it
// returns the paths.
func distinct(paths []string) []string {
	parts := make([][]string, len(paths))
	for i, path := range paths {
		clean := filepath.ToSlash(filepath.Clean(path))
		parts[i] = strings.Split(strings.TrimSuffix(clean, filepath.Ext(clean)), "/")
	}
	last := func(parts []string) string { return parts[len(parts)-1] }
	differs := func(p []string) bool { return len(p) < 2 || last(p) != last(parts[0]) }
	for len(parts) > 1 && !slices.ContainsFunc(parts, differs) {
		for i := range parts {
			parts[i] = parts[i][:len(parts[i])-1]
		}
	}
	names, taken := make([]string, len(paths)), map[string]bool{}
	for i := range parts {
		names[i] = last(parts[i])
		taken[names[i]] = true
	}
	if len(taken) < len(names) {
		return paths
	}
	return names
}

func readRecordFile(ctx context.Context, path string, stdin io.Reader) ([]bench.Record, error) {
	if path != "-" {
		file, err := regular.Open(path)
		if err != nil {
			return nil, matio.FileError(err)
		}
		defer file.Close()
		stdin = file
	}
	records, err := await(ctx, func() ([]bench.Record, error) { return bench.ReadRecords(stdin) })
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%s: record %d is incomplete (bench --resume completes the file, unless bench is still "+
			"writing it)", path, len(records)+1)
	case err != nil:
		return nil, fmt.Errorf("%s: not a file of records: %w", path, err)
	case len(records) == 0:
		return nil, fmt.Errorf("%s has no records", path)
	}
	return records, nil
}

// await returns the results of f, or the error of ctx if it ends first. In the second case f keeps
// running, because nothing ends a read of standard input.
func await[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return v, ctx.Err()
	}
}
