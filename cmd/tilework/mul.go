package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/matio"
)

// mulFlags are the flags of `tilework mul`.
type mulFlags struct {
	out, device, kernel, precision string
	transA, transB                 bool
	alpha, beta                    float64
	c                              string
	epilogue                       epilogueFlags
	dtype, outDtype                string
	threads                        int
	force, verify, verbose         bool
	within                         string
	format                         string
	files                          inputFlags
}

func mulCommand() *cobra.Command {
	var f mulFlags
	c := &cobra.Command{
		Use:   "mul A B -o C",
		Short: "Multiply two matrices in files",
		Long: `mul computes C = alpha·op(A)·op(B) + beta·C0, with what the flags say done to each element x
on its way out, and writes C:

  x ← (act(rowScale·colScale·x + bias)·(alpha·op(A)·op(up)) + residual)·outputScale

All of this is float32, or float64 for float64 files. int8 products are summed exactly, in int32;
with --out-dtype float32, bfloat16 or float16 the sums are converted to float32 first, and
without it C is int32, which has whole alpha and beta, a bias, relu and a residual alone.

Files: ` + fileFormats() + `
Of an archive that holds several arrays, name one: model.safetensors::w1; tilework files lists
them. The examples' files are in the repository's folder examples/data. An input - is standard
input, in any of the formats; -o - writes .npy to standard output, and -o -.csv another format.
A 1-D A is a row and a 1-D B a column, as in NumPy's matmul; C always has two dimensions. A
file that is written to during the run is refused.

A and B have the same element type; --dtype converts both on reading, also from int64, int16,
bool and unsigned integers. The other flags' files are converted to the type that the product
needs. Floating-point types round to nearest; a number too large for the type is refused, or
with --allow-overflow read as an infinity. Integer types take whole numbers in their range alone.
The result's types (--out-dtype), the usual one first:
` + resultTypes() + `
How products are summed depends on the kernel:

` + sumsText() + `
Without --device the product goes to the processor or the first GPU, whichever takes
less time by what was measured on this machine; --verbose tells. The measurements are
kept in the user's cache directory, or in TILEWORK_CACHE, unless that is "off".`,
		Example: `  tilework mul a.npy b.npy -o c.npy
  tilework mul a.npy b.npy -o c.npy --force --verify --verbose
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype float32 --bias model.safetensors::bias --activation gelu
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype float32 --alpha 2 --beta 0.5 --c y0.csv
  tilework mul x.csv model.safetensors::gate -o h.npy --dtype float32 --transpose-b --activation silu --up model.safetensors::up
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype int8 --bias model.safetensors::bias --residual y0.csv
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype int8 --out-dtype float32 --col-scale model.safetensors::bias --activation relu
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype e4m3 --col-scale model.safetensors::bias --out-dtype float16 --saturate
  tilework mul x.csv model.safetensors::w1 -o - --dtype float32 | tilework mul - model.safetensors::gate -o -.csv`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("mul takes two files, A and B, and found %d%s (see tilework mul --help)", len(args), listed(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.files.stdin, f.files.stderr = c.InOrStdin(), c.ErrOrStderr()
			return f.run(c.Context(), args[0], args[1], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "the file to write C to (required); an archive is written with C alone")
	forceFlag(c, &f.force)
	f.files.declare(c)
	fl.StringVar(&f.device, "device", "auto", "where to compute: auto (the processor or the first GPU, whichever takes less time), cpu, gpu, gpu:N, gpu:UUID, emu, emu:MODEL")
	fl.StringVar(&f.kernel, "kernel", "", "the kernel to use, on a GPU with its tile if wanted (tiled:16); see the verb kernels (default: the fastest)")
	fl.StringVar(&f.precision, "precision", tilework.Native.String(), "the arithmetic: "+precisionDocs())
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	fl.Float64Var(&f.alpha, "alpha", 1, "factor of the product")
	fl.Float64Var(&f.beta, "beta", 0, "factor of C0; needs --c")
	fl.StringVar(&f.c, "c", "", "the file with C0, of the result's shape")
	f.epilogue.declare(c)
	fl.StringVar(&f.dtype, "dtype", "", "convert A and B to this element type (default: as in the files; text is float64)")
	fl.StringVar(&f.outDtype, "out-dtype", "", "the element type of C (default: the usual one for the inputs)")
	fl.IntVar(&f.threads, "threads", 0, "at most so many threads (default: all)")
	fl.BoolVar(&f.verify, "verify", false, "check the result with random vectors (Freivalds); exit 1 if it is wrong, or if an error of 1 % of a row's norm (8 roundoffs of C's type if that is more) could go unnoticed")
	fl.StringVar(&f.within, "verify-within", "", "--verify with a limit of your own on what could go unnoticed: 5% of a row's norm")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "say what was chosen and why, and what took how long")
	formatFlag(c, &f.format, "table", "json")
	complete(c, "device", "auto", "cpu", "gpu", "emu")
	complete(c, "kernel", kernelNames()...)
	complete(c, "precision", precisionNames()...)
	for _, flag := range []string{"dtype", "out-dtype"} {
		complete(c, flag, typeNames()...)
	}
	return c
}

func fileFormats() string {
	var s strings.Builder
	for _, f := range matio.Formats() {
		fmt.Fprintf(&s, "\n  %-13s %s", f.Ext, f.Doc)
	}
	return s.String()
}

// resultTypes lists for each type of A and B those that C may have.
func resultTypes() string {
	var s strings.Builder
	for _, in := range dtype.All() {
		var names []string
		for _, out := range in.Info().Results {
			names = append(names, out.String())
		}
		if len(names) > 0 {
			fmt.Fprintf(&s, "\n  %-13s %s", in, strings.Join(names, ", "))
		}
	}
	return s.String()
}

// listed is ": a, b" for what there is of a and b.
func listed(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return ": " + strings.Join(args, ", ")
}

func kernelNames() []string {
	var names []string
	for _, k := range tilework.Kernels() {
		names = append(names, k.Name)
	}
	return names
}

// precisionNames are the names of the precisions, and precisionDocs what they mean.
func precisionNames() (names []string) {
	for _, p := range gemm.Precisions() {
		names = append(names, p.String())
	}
	return names
}

func precisionDocs() string {
	var docs []string
	for _, p := range gemm.Precisions() {
		docs = append(docs, fmt.Sprintf("%v (%s)", p, p.Info().Doc))
	}
	return strings.Join(docs, ", ")
}

func typeNames() []string {
	var names []string
	for _, t := range dtype.All() {
		names = append(names, t.String())
	}
	return names
}

// leastMemory is the memory, in bytes, of the smallest product.
const leastMemory = 1 << 20

// mulResult is what mul reports.
type mulResult struct {
	M       int     `json:"m"`
	N       int     `json:"n"`
	K       int     `json:"k"`
	In      string  `json:"in"`
	Out     string  `json:"out"`
	Device  string  `json:"device"`
	Kernel  string  `json:"kernel"`
	Threads int     `json:"threads"`
	Detail  string  `json:"detail"`
	Why     string  `json:"why"`
	Read    float64 `json:"read_seconds"`
	Compile float64 `json:"compile_seconds,omitempty"` // the kernel, where there is a compiler
	Compute float64 `json:"seconds"`
	Write   float64 `json:"write_seconds"`
	GFLOPS  float64 `json:"gflops"`
	File    string  `json:"file"`
	// Verified is what the verification saw, if there was one.
	Verified *dispatch.Report `json:"verified,omitempty"`
}

func (f *mulFlags) run(ctx context.Context, fileA, fileB string, stdout, stderr io.Writer) error {
	// Under a limit the Go runtime itself may already lack memory for its threads.
	if err := host.CheckMemory(leastMemory, "a product of any size"); err != nil {
		return err
	}
	request, epilogue, err := f.parse()
	if err != nil {
		return err
	}
	if err := f.files.parse(f.inputs(fileA, fileB)); err != nil {
		return err
	}
	output := matio.WriteOptions{Replace: f.force, Stdout: stdout}
	if err := matio.CheckOutput(f.out, dtype.Invalid, output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	start := time.Now()
	a, b, err := f.readFactors(ctx, fileA, fileB)
	if err != nil {
		return err
	}
	problem, err := f.problem(a.Layout, b.Layout, epilogue, fileA+" and "+fileB)
	if err != nil {
		return err
	}
	buffers := gemm.Buffers{A: a.Data, B: b.Data}
	if err := f.epilogue.read(ctx, &f.files, &problem, &buffers, f.transB); err != nil {
		return err
	}
	request.Problem, request.Timed = problem, true
	bar := newProgress(stderr)
	defer bar.close()
	request.Progress = bar.update
	plan, err := dispatch.New(request)
	if err != nil {
		return err
	}
	// Errors that can be found before the product are.
	c := problem.C
	if err := matio.CheckOutput(f.out, c.Type, output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if err := f.checkRoom(&problem, plan, stderr); err != nil {
		return err
	}
	buffers.C = make([]byte, c.Bytes())
	if err := f.readC0(ctx, &problem, buffers.C); err != nil {
		return err
	}
	read := time.Since(start)
	if f.verbose {
		fmt.Fprintf(stderr, "%v on %v, kernel %s: %s (%s)\n", &problem, plan.Device, plan.Kernel, plan.Detail(), plan.Why())
		if text := plan.Reasoning(); text != "" {
			fmt.Fprintln(stderr, text)
		}
		notes(stderr)
	}

	if err := plan.Run(ctx, buffers); err != nil {
		return err
	}
	bar.close()

	if err := f.files.checkUnchanged(); err != nil {
		return err
	}
	start = time.Now()
	if err := matio.Write(ctx, f.out, c, buffers.C, output); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if matio.IsStd(f.out) {
		stdout = stderr // has the data
	}
	return f.report(stdout, stderr, mulResult{
		M: problem.M, N: problem.N, K: problem.K,
		In: a.Type.String(), Out: c.Type.String(),
		Device: plan.Device.String(), Kernel: plan.Kernel, Threads: plan.Threads, Detail: plan.Detail(), Why: plan.Why(),
		Read: read.Seconds(), Compile: plan.CompileTime().Seconds(), Compute: plan.Took().Seconds(), Write: time.Since(start).Seconds(),
		GFLOPS: problem.Flops() / plan.Took().Seconds() / 1e9,
		File:   f.out, Verified: plan.Verified(),
	})
}

// parse checks the flags that need no file.
func (f *mulFlags) parse() (r dispatch.Request, e gemm.Epilogue, err error) {
	if f.out == "" {
		return r, e, fmt.Errorf("where should the product go? give -o FILE (see tilework mul --help)")
	}
	if r.Device, err = backend.ParseDevice(f.device); err != nil {
		return r, e, fmt.Errorf("--device: %w", err)
	}
	if f.kernel != "" {
		if err := knownKernel(f.kernel, r.Device); err != nil {
			return r, e, fmt.Errorf("--kernel: %w", err)
		}
	}
	if err := dispatch.CheckDevice(r.Device); err != nil {
		return r, e, err
	}
	if e, err = f.epilogue.parse(); err != nil {
		return r, e, err
	}
	if f.beta != 0 && f.c == "" {
		return r, e, fmt.Errorf("--beta %v without --c: there is no C0 to multiply", f.beta)
	}
	if f.c != "" && f.beta == 0 {
		return r, e, fmt.Errorf("--c %s without --beta: a beta of 0 would ignore it", f.c)
	}
	if f.threads < 0 {
		return r, e, fmt.Errorf("--threads %d: want 1 or more, or 0 for all", f.threads)
	}
	if r.Within, err = parseWithin(f.within); err != nil {
		return r, e, err
	}
	r.Kernel, r.Threads, r.Verify = f.kernel, f.threads, f.verify || f.within != ""
	r.Once = true
	return r, e, nil
}

// parseWithin reads --verify-within: a percentage as a share, and 0 for the default.
func parseWithin(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	number, isPercent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !isPercent || !(x > 0) {
		return 0, fmt.Errorf("--verify-within %s: want a percentage above 0, such as 5%%", s)
	}
	return x / 100, nil
}

func (f *mulFlags) readFactors(ctx context.Context, fileA, fileB string) (a, b *matio.Matrix, err error) {
	o := matio.ReadOptions{OneD: matio.Row}
	if f.dtype != "" {
		if o.Type, err = dtype.Parse(f.dtype); err != nil {
			return nil, nil, fmt.Errorf("--dtype: %w", err)
		}
	}
	if a, err = f.files.read(ctx, fileA, o); err != nil {
		return nil, nil, err
	}
	o.OneD = matio.Column
	if b, err = f.files.read(ctx, fileB, o); err != nil {
		return nil, nil, err
	}
	if f.transA {
		a.Layout = a.T()
	}
	if f.transB {
		b.Layout = b.T()
	}
	if a.Type != b.Type {
		return nil, nil, fmt.Errorf("%w: %s holds %v and %s holds %v; --dtype converts both", gemm.ErrUnsupported, fileA, a.Type, fileB, b.Type)
	}
	return a, b, nil
}

// problem is the product of two factors, of the files that are named, as the flags want it, without
// what its epilogue reads.
func (f *mulFlags) problem(a, b gemm.Layout, e gemm.Epilogue, files string) (gemm.Problem, error) {
	out, err := f.resultType(a.Type)
	if err != nil {
		return gemm.Problem{}, err
	}
	precision, err := gemm.ParsePrecision(f.precision)
	if err != nil {
		return gemm.Problem{}, fmt.Errorf("--precision: %w", err)
	}
	p, _, err := gemm.New(f.alpha, a, b, f.beta, gemm.Dense(out, a.OpRows(), b.OpCols()), e)
	if err == nil {
		p, err = p.In(precision)
	}
	if errors.Is(err, gemm.ErrShape) {
		err = fmt.Errorf("%w%s", err, f.turned(a, b))
	}
	if err != nil {
		return gemm.Problem{}, fmt.Errorf("%s: %w", files, err)
	}
	return p, nil
}

// turned is the flag that would make factors fit that do not, in words, if there is one.
func (f *mulFlags) turned(a, b gemm.Layout) string {
	without := map[bool]string{true: "out"}
	switch {
	case a.OpCols() == b.OpCols():
		return fmt.Sprintf(" (they would with%s --transpose-b)", without[f.transB])
	case a.OpRows() == b.OpRows():
		return fmt.Sprintf(" (they would with%s --transpose-a)", without[f.transA])
	}
	return ""
}

func (f *mulFlags) resultType(in dtype.Type) (dtype.Type, error) {
	if f.outDtype != "" {
		t, err := dtype.Parse(f.outDtype)
		if err != nil {
			return 0, fmt.Errorf("--out-dtype: %w", err)
		}
		return t, nil
	}
	results := in.Info().Results
	if len(results) == 0 {
		return 0, fmt.Errorf("%w: matrices of %v cannot be multiplied; --dtype converts them", gemm.ErrUnsupported, in)
	}
	return results[0], nil
}

// readC0 fills c, the result's memory, with C0.
func (f *mulFlags) readC0(ctx context.Context, p *gemm.Problem, c []byte) error {
	if f.c == "" {
		return nil
	}
	m, err := f.files.read(ctx, f.c, matio.ReadOptions{Type: p.C.Type})
	if err != nil {
		return err
	}
	if m.OpRows() != p.M || m.OpCols() != p.N {
		return fmt.Errorf("%w: --c %s is %d×%d, want %d×%d like the product", gemm.ErrShape, f.c, m.OpRows(), m.OpCols(), p.M, p.N)
	}
	for i := range p.M {
		for j := range p.N {
			p.C.Type.Set(c, p.C.Index(i, j), m.Type.At(m.Data, m.Index(i, j)))
		}
	}
	return nil
}

func (f *mulFlags) report(stdout, stderr io.Writer, r mulResult) error {
	if f.format == "json" {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	if f.verbose {
		compiled := ""
		if r.Compile > 0 {
			compiled = fmt.Sprintf("compiled the kernel in %s, ", seconds(r.Compile))
		}
		fmt.Fprintf(stderr, "read in %s, %scomputed in %s, wrote in %s\n", seconds(r.Read), compiled, seconds(r.Compute), seconds(r.Write))
	}
	types := r.In
	if r.Out != r.In {
		types += " → " + r.Out
	}
	where := r.Device + ", " + r.Kernel
	if r.Threads > 0 {
		where += fmt.Sprintf(", %d %s", r.Threads, plural("thread", r.Threads))
	}
	line := fmt.Sprintf("%d×%d · %d×%d %s in %s, %.4g GFLOP/s (%s) → %s",
		r.M, r.K, r.K, r.N, types, seconds(r.Compute), r.GFLOPS, where, r.File)
	if r.Verified != nil {
		line += "\nverified: " + r.Verified.String()
	}
	_, err := fmt.Fprintln(stdout, line)
	return err
}

// seconds is a time in words: "1.23 ms".
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.3g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g s", s)
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
