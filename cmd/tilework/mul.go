package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/call"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/host"
	"tilework/internal/mapping"
	"tilework/internal/matio"
	"tilework/matfile"
)

// mulFlags are the flags of `tilework mul`.
type mulFlags struct {
	out, device, kernel, precision string
	rowInvariant                   bool
	transA, transB                 bool
	alpha, beta                    factor
	betaGiven                      bool
	c                              string
	epilogue                       epilogueFlags
	dtype, outDtype                string
	threads                        int
	gpuMemory                      string
	force, verify, verbose         bool
	within                         string
	format                         string
	files                          inputFlags
	ranks                          ranksFlags
}

func mulCommand() *cobra.Command {
	var f mulFlags
	c := &cobra.Command{
		Use:   "mul A B -o C",
		Short: "Multiply two matrices in files",
		Long: `mul computes C = alpha·op(A)·op(B) + beta·C0 and writes C to a file. Flags add an epilogue,
which replaces each element x of C before it is rounded and stored:

  x ← (act(rowScale·colScale·x + bias)·(alpha·op(A)·op(up)) + residual)
      · outputScale

The epilogue is computed in float32, or in float64 for float64 matrices. Products of int8 and
uint8 matrices are summed exactly in int32, of elements less --zero-a and --zero-b. With --out-dtype float32, bfloat16 or float16 the sums are
converted to float32, and every flag is available, --up for int8 without zero points. Otherwise C
is int32: alpha and beta must be whole numbers, and the epilogue can have only a bias, relu and a
residual.

File formats:
` + fileFormats() + `

If a file holds several arrays, name one of them: model.safetensors::w1. The command
"tilework files" lists them. The file - is standard input, and -::w1 an array in it. The content of
standard input, of a pipe, and of a file without one of the extensions, such as a.npy.gz, selects
the format. -o - writes .npy to standard output, and -o -.csv, for example, another format.
A 1-D A is a row and a 1-D B a column, as in NumPy's matmul; C always has two dimensions. mul fails
if an input changes while mul runs. A sparse .mtx file or a compressed file that would take
more than 256 MiB and more than 64 times its size in memory needs --allow-expansion. The files of
the examples are in the folder examples/data of the repository.

A and B must have the same element type, or be int8 and uint8. --dtype converts both, also from
int64, int16, bool and unsigned integers. Other files are converted to the type that the product needs. Conversion to a
floating-point type rounds to nearest; a number too large for the type is an error, or an infinity
with --allow-overflow. Conversion to an integer type accepts only whole numbers in its range.
The types that C can have (--out-dtype), the default first:

` + resultTypes() + `

With --ranks several processes compute one product, each a part of C on its own device, and write it
to an .npy or .safetensors file on a file system that they share. The file has the bytes of that of
one process. A failed process ends all. docs/ranks.md has the commands for launchers.

The order and precision of the sums depend on the kernel: "tilework kernels" lists them.

Without --device, the CPU or the first GPU computes the product, depending on which is expected to
be faster from measurements on this machine. --verbose prints the choice. The measurements are
cached in the user's cache directory or in the directory TILEWORK_CACHE, or not at all if
TILEWORK_CACHE is "off".`,
		Example: `  tilework mul a.npy b.npy -o c.npy
  tilework mul a.npy b.npy -o c.npy --force --verify --verbose
  tilework mul a.npy b.npy -o c.npy --force --row-invariant --device emu --verbose
  tilework mul a.npy b.npy -o c.npy --force --ranks 2
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype float32 --bias model.safetensors::bias --activation gelu
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype float32 --alpha 2 --beta 0.5 --c y0.csv
  tilework mul x.csv model.safetensors::gate -o h.npy --dtype float32 --transpose-b --activation silu --up model.safetensors::up
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype int8 --bias model.safetensors::bias --residual y0.csv
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype int8 --out-dtype float32 --col-scale model.safetensors::bias --activation relu
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype int8 --zero-a -1 --out-dtype float32
  tilework mul x.csv model.safetensors::w1 -o y.npy --dtype e4m3 --col-scale model.safetensors::bias --out-dtype float16 --saturate
  tilework mul x.csv model.safetensors::w1 -o - --dtype float32 | tilework mul - model.safetensors::gate -o -.csv`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("mul takes two files, A and B, found %d%s; see tilework mul --help",
					len(args), inParens(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.files.options.Stdin, f.files.stderr = c.InOrStdin(), c.ErrOrStderr()
			f.betaGiven = c.Flags().Changed("beta")
			if f.ranks.timeout <= 0 {
				return fmt.Errorf("--rank-timeout %v: want more than 0", f.ranks.timeout)
			}
			if f.ranks.given() {
				return f.runRanks(c.Context(), c, args)
			}
			return f.run(c.Context(), args[0], args[1], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "",
		"the `FILE` to write C to (required); an archive will hold only C, and one that holds other arrays is not replaced")
	forceFlag(c, &f.force)
	fl.StringVar(&f.device, "device", "auto",
		"the `DEVICE` that computes: auto (the CPU or the first GPU, whichever is expected to be faster), cpu, gpu, gpu:N, "+
			"gpu:UUID, several GPUs as gpu:0,1 or gpu:all, emu, emu:MODEL, several as emu:MODEL,MODEL")
	fl.StringVar(&f.kernel, "kernel", "",
		"the `KERNEL` to use, for a GPU optionally with a tile (tiled:16); \"tilework kernels\" lists them, and "+
			"\"default\" is the one expected to be fastest (default: that one, or the one that was tuned)")
	fl.BoolVar(&f.rowInvariant, "row-invariant", false, rowInvariantDoc)
	fl.StringVar(&f.precision, "precision", gemm.Native.String(),
		"the `PRECISION` of the multiplication: "+precisionDocs())
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	f.alpha.value = 1
	fl.Var(&f.alpha, "alpha", "the `FACTOR` of the product")
	fl.Var(&f.beta, "beta", "the `FACTOR` of C0, which is not read if it is 0; needs --c")
	fl.StringVar(&f.c, "c", "", "the `FILE` with C0, a matrix of the shape of C")
	f.epilogue.declare(c)
	f.files.declare(c)
	fl.StringVar(&f.dtype, "dtype", "",
		"convert A and B to this element `TYPE` (default: as in the files; text is float64)")
	fl.StringVar(&f.outDtype, "out-dtype", "",
		"the element `TYPE` of C (default: the first one listed above for A and B)")
	fl.IntVar(&f.threads, "threads", 0, "maximum `NUMBER` of threads (default: all cores)")
	fl.StringVar(&f.gpuMemory, "gpu-memory", "",
		"maximum `BYTES` of GPU memory for the matrices, such as 16GiB (default: nine tenths of the GPU's); fewer change "+
			"no bit of the result")
	fl.BoolVar(&f.verify, "verify", false,
		"check the result with random vectors (Freivalds); exit 1 if it is wrong, or if the check could miss an error of "+
			"1 % of a row's norm (or 8 roundoffs of C's type if that is more)")
	fl.StringVar(&f.within, "verify-within", "",
		"like --verify, but with this limit on the errors that the check could miss, in `PERCENT` of a row's norm: 5%")
	fl.BoolVarP(&f.verbose, "verbose", "v", false,
		"print the chosen device and kernel with the reason, and the time of each step")
	f.ranks.declare(c)
	formatFlag(c, &f.format, "table", "json")
	complete(c, "device", "auto", "cpu", "gpu", "emu")
	complete(c, "kernel", append(kernelNames(), backend.DefaultKernel)...)
	complete(c, "precision", precisionNames()...)
	complete(c, "dtype", productTypes()...)
	complete(c, "out-dtype", typeNames()...)
	return c
}

func fileFormats() string {
	var all []definition
	for _, f := range matio.Formats() {
		all = append(all, definition{f.Ext, f.Doc})
	}
	return definitions(13, all)
}

// resultTypes lists for each element type of A and B the types that C can have.
func resultTypes() string {
	var all []definition
	for _, in := range dtype.All() {
		var names []string
		for _, out := range in.Info().Results {
			names = append(names, out.String())
		}
		if len(names) > 0 {
			all = append(all, definition{in.String(), strings.Join(names, ", ")})
		}
	}
	return definitions(13, all)
}

// inParens returns " (a, b)" for the arguments a and b, and nothing for none.
func inParens(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return " (" + strings.Join(args, ", ") + ")"
}

// mapFrom is the size in bytes from which mul maps files instead of reading and writing them. Tests
// replace it.
var mapFrom = 1 << 30

// minMulMemory is the memory in bytes that mul needs for the smallest product.
const minMulMemory = 1 << 20

func (f *mulFlags) run(ctx context.Context, fileA, fileB string, stdout, stderr io.Writer) error {
	k, err := f.prepare(fileA, fileB)
	if err != nil {
		return err
	}
	defer f.files.close()
	if err := f.checkOutput(dtype.Invalid, rawWriter(stdout)); err != nil {
		return err
	}
	start := time.Now()
	product, err := f.load(ctx, k, fileA, fileB)
	if err != nil {
		return err
	}
	bar := newProgress(stderr)
	defer bar.close()
	product.Once, product.Timed, product.Progress = true, true, bar.update
	if err := product.Decide(ctx); err != nil {
		return err
	}
	// Report errors of the output file before the product, which may take long.
	if err := f.checkOutput(product.Problem.Out(), rawWriter(stdout)); err != nil {
		return err
	}
	result, err := f.newResult(&product.Plan, stderr)
	if err != nil {
		return err
	}
	defer result.discard()
	product.Buffers[gemm.C] = result.Data
	if err := f.loadC0(ctx, product); err != nil {
		return err
	}
	read := time.Since(start)
	if f.verbose {
		printPlan(stderr, &product.Plan)
	}
	if err := f.multiply(ctx, product); err != nil {
		return err
	}
	bar.close()
	start = time.Now()
	if err := f.commit(ctx, result, rawWriter(stdout)); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if matio.IsStd(f.out) {
		stdout = stderr // standard output has the matrix
	}
	r := resultOf(&product.Plan, product.Took())
	r.Read, r.Compile, r.Write = read.Seconds(), product.CompileTime().Seconds(), time.Since(start).Seconds()
	r.File, r.Verified = f.out, product.Verified()
	return f.report(stdout, stderr, r)
}

// prepare checks everything that needs no matrix, and returns the call with its options.
func (f *mulFlags) prepare(fileA, fileB string) (*call.Call, error) {
	// Under a memory limit, such as ulimit -v, the Go runtime may fail to start threads.
	if err := host.CheckMemory(minMulMemory, "a product of any size"); err != nil {
		return nil, err
	}
	k, err := f.parse()
	if err != nil {
		return nil, err
	}
	if err := dispatch.CheckDevice(k.Device); err != nil {
		return nil, err
	}
	if k.Device.IsGPU() { // a kernel of the CPU would end the program if a mapped file is truncated
		f.files.options.MapFrom = mapFrom
	}
	return k, f.files.parse(f.inputs(fileA, fileB))
}

// checkOutput returns the error of writing a matrix of type t, which may be Invalid if the type is
// not known yet.
func (f *mulFlags) checkOutput(t dtype.Type, stdout io.Writer) error {
	if file, ok := stdout.(*os.File); ok && matio.IsStd(f.out) && closedAtStart(file) {
		return fmt.Errorf("-o %s: standard output is closed, or %s opened for reading and writing: want a pipe or a file",
			f.out, os.DevNull)
	}
	if err := matio.CheckOutput(f.out, t, f.force); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if matio.IsStd(f.out) && !matio.IsText(f.out) && isTerminal(stdout) {
		return fmt.Errorf("-o %s: the result is binary and standard output is a terminal: "+
			"want a redirection (> c.npy), a file, or text (-o -.csv)", f.out)
	}
	return nil
}

// loadC0 reads C0, if beta needs it, into the memory of C.
func (f *mulFlags) loadC0(ctx context.Context, product *dispatch.Job) error {
	p := &product.Problem
	c0, err := f.readC0(ctx, p)
	if err != nil || c0 == nil {
		return err
	}
	return fillC(ctx, p, product.Buffers[gemm.C], c0, gemm.Area{Rows: p.M, Cols: p.N})
}

// printPlan prints where the product runs, and why.
func printPlan(w io.Writer, plan *dispatch.Plan) {
	fmt.Fprintf(w, "%v on %v, kernel %s: %s (%s)\n", &plan.Problem, plan.Device(), plan.Kernel(), plan.Detail(),
		plan.Why())
	if text := plan.Reasoning(); text != "" {
		fmt.Fprintln(w, text)
	}
	fmt.Fprint(w, plan.Program())
	printCacheNotes(w)
}

// multiply computes the product. It returns an error if an input file changed meanwhile.
func (f *mulFlags) multiply(ctx context.Context, product *dispatch.Job) error {
	err := product.Run(ctx)
	if err != nil && !errors.Is(err, mapping.ErrFault) {
		return err
	}
	return cmp.Or(f.files.checkUnchanged(), err)
}

// load reads the operands of the product that the flags describe, and gives them to the call k with
// its options.
func (f *mulFlags) load(ctx context.Context, k *call.Call, fileA, fileB string) (*dispatch.Job, error) {
	a, b, err := f.readOperands(ctx, fileA, fileB)
	if err != nil {
		return nil, err
	}
	out, err := f.resultType(a.Type)
	if err != nil {
		return nil, err
	}
	if k.Precision, err = gemm.ParsePrecision(f.precision); err != nil {
		return nil, fmt.Errorf("--precision: %w", err)
	}
	k.GiveMatrix(gemm.A, a.Layout, a.Data)
	k.GiveMatrix(gemm.B, b.Layout, b.Data)
	k.GiveMatrix(gemm.C, gemm.Dense(out, a.OpRows(), b.OpCols()), nil)
	scale := a.Type.Info().ScaleType(out)
	k.Start(complex(f.alpha.in(scale), 0), complex(f.beta.in(scale), 0))
	product, err := k.Assemble() // for the types and sizes of the other operands
	if errors.Is(err, gemm.ErrShape) {
		err = fmt.Errorf("%w%s", err, f.suggestTranspose(a.Layout, b.Layout))
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", fileA, fileB, err)
	}
	if err := f.epilogue.read(ctx, &f.files, k, &product.Problem, f.transB); err != nil {
		return nil, err
	}
	return k.Assemble()
}

// parse checks the flags that need no file, and returns a call with the options that they set.
func (f *mulFlags) parse() (k *call.Call, err error) {
	k = call.New()
	if f.out == "" {
		return nil, fmt.Errorf("no output file: want -o FILE (see tilework mul --help)")
	}
	if k.Device, err = backend.ParseDevice(f.device); err != nil {
		return nil, fmt.Errorf("--device: %w", err)
	}
	if f.kernel != "" {
		if err := checkKernel(f.kernel, k.Device, backend.DefaultKernel); err != nil {
			return nil, fmt.Errorf("--kernel: %w", err)
		}
	}
	if k.Epilogue, err = f.epilogue.parse(); err != nil {
		return nil, err
	}
	if f.beta.value != 0 && f.c == "" {
		return nil, fmt.Errorf("--beta %v without --c: want --c FILE with the C0 that beta multiplies", f.beta.value)
	}
	if f.c != "" && !f.betaGiven {
		return nil, fmt.Errorf("--c %s without --beta: want --beta too, its default 0 ignores C0", f.c)
	}
	if err := dispatch.CheckThreads(f.threads); err != nil {
		return nil, fmt.Errorf("--threads: %w", err)
	}
	if k.GPUMemory, err = parseGPUMemory(f.gpuMemory); err != nil {
		return nil, err
	}
	if k.GPUMemory > 0 && k.Device.Kind == backend.CPU {
		return nil, fmt.Errorf("--gpu-memory %s with --device %s: want a GPU or emu", f.gpuMemory, f.device)
	}
	if k.Within, err = parseWithin(f.within); err != nil {
		return nil, err
	}
	k.Kernel, k.Threads, k.Verify, k.RowInvariant = f.kernel, f.threads, f.verify || f.within != "", f.rowInvariant
	return k, nil
}

// parseGPUMemory parses --gpu-memory. It returns 0 if the flag is not given.
func parseGPUMemory(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := parseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("--gpu-memory %w", err)
	}
	if n == 0 {
		return 0, fmt.Errorf("--gpu-memory %s: want 1 byte or more", text)
	}
	return n, nil
}

// parseWithin parses --verify-within. It returns 0.05 for "5%", and 0 if the flag is not given.
func parseWithin(s string) (float64, error) {
	if s == "" {
		return 0, nil
	}
	x, ok := parsePercent(s)
	if !ok || !(x > 0) {
		return 0, fmt.Errorf("--verify-within %s: want a percentage above 0, such as 5%%", s)
	}
	return x, nil
}

// readOperands reads A and B.
func (f *mulFlags) readOperands(ctx context.Context, fileA, fileB string) (a, b *input, err error) {
	var t dtype.Type
	if f.dtype != "" {
		if t, err = parseProductType(f.dtype); err != nil {
			return nil, nil, fmt.Errorf("--dtype: %w", err)
		}
	}
	if a, err = f.files.readOperand(ctx, fileA, t, matfile.RowOrMatrix); err != nil {
		return nil, nil, err
	}
	if b, err = f.files.readOperand(ctx, fileB, t, matfile.ColumnOrMatrix); err != nil {
		return nil, nil, err
	}
	if f.transA {
		a.Layout = a.T()
	}
	if f.transB {
		b.Layout = b.T()
	}
	if a.Type.Signed() != b.Type.Signed() {
		return nil, nil, fmt.Errorf("%w: %s holds %v and %s holds %v, want the same type; --dtype converts both",
			gemm.ErrUnsupported, fileA, a.Type, fileB, b.Type)
	}
	return a, b, nil
}

// suggestTranspose returns a hint if A and B, whose shapes do not match, would match with or
// without a transposition.
func (f *mulFlags) suggestTranspose(a, b gemm.Layout) string {
	with := map[bool]string{false: "with", true: "without"}
	switch {
	case a.OpCols() == b.OpCols():
		return fmt.Sprintf(" (the shapes match %s --transpose-b)", with[f.transB])
	case a.OpRows() == b.OpRows():
		return fmt.Sprintf(" (the shapes match %s --transpose-a)", with[f.transA])
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
	return in.Info().Results[0], nil
}

// readC0 reads C0. It returns nil without --c, and if beta is 0.
func (f *mulFlags) readC0(ctx context.Context, p *gemm.Problem) (*input, error) {
	if f.beta.value == 0 {
		return nil, nil
	}
	m, err := f.files.read(ctx, f.c, p.Out(), matfile.OnlyMatrix)
	if err != nil {
		return nil, fmt.Errorf("--c: %w", err)
	}
	if m.OpRows() != p.M || m.OpCols() != p.N {
		return nil, fmt.Errorf("%w: --c %s is %d×%d and the product is %d×%d: want the same shape",
			gemm.ErrShape, f.c, m.OpRows(), m.OpCols(), p.M, p.N)
	}
	return m, nil
}

// fillC fills c, the memory of p's C, with an area of C0.
func fillC(ctx context.Context, p *gemm.Problem, c []byte, c0 *input, a gemm.Area) error {
	if a.Cols == 0 {
		return nil // the number of empty rows is not limited by memory
	}
	fault := mapping.Access(func() {
		for i := 0; i < a.Rows && ctx.Err() == nil; i++ {
			for j := range a.Cols {
				p.Out().Set(c, p.C().Index(i, j), c0.Type.At(c0.Data, c0.Index(a.Row+i, a.Col+j)))
			}
		}
	})
	return cmp.Or(fault, ctx.Err())
}
