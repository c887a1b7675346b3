package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework"
	"tilework/dtype"
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
	format                         string
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
Of an archive that holds several arrays, name one: weights.npz::w1.

A and B have the same element type; --dtype converts both on reading. What the other flags read
is converted to the type that it is wanted in. Products of
float16, bfloat16 and the 8-bit floats (e4m3, e5m2) are summed in float32. The result's types
(--out-dtype), the usual one first:
` + resultTypes() + `

Without --device the product goes to the processor or the first GPU, whichever takes
less time by what was measured on this machine; --verbose tells. The measurements are
kept in the user's cache directory, or in TILEWORK_CACHE, unless that is "off".`,
		Example: `  tilework mul a.npy b.npy -o c.npy
  tilework mul a.npy b.npy -o c.npy --verify --verbose
  tilework mul x.csv model.safetensors::w -o y.npy --dtype float32 --transpose-b
  tilework mul a.npy b.npy -o c.npy --alpha 2 --beta 0.5 --c c0.npy
  tilework mul x.npy w.npy -o y.npy --bias b.npy --activation gelu
  tilework mul x.npy model.safetensors::gate -o h.npy --transpose-b --activation silu --up model.safetensors::up
  tilework mul q.npy w.npy -o y.npy --dtype int8 --bias b.npy --residual y0.npy
  tilework mul q.npy w.npy -o y.npy --dtype int8 --out-dtype float32 --row-scale sx.npy --col-scale sw.npy --bias b.npy --activation relu
  tilework mul x8.safetensors w8.safetensors -o y.npy --row-scale sx.npy --col-scale sw.npy --out-dtype float16 --saturate`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("mul takes two files, A and B, and found %d%s (see tilework mul --help)", len(args), listed(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args[0], args[1], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.out, "out", "o", "", "the file to write C to (required); an archive is written with C alone")
	fl.BoolVar(&f.force, "force", false, "replace A, B or another file that is read, if -o names it (--c and --residual need no --force), or an archive with all that it holds")
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
	fl.BoolVar(&f.verify, "verify", false, "check the result with random vectors (Freivalds); exit 1 if it is wrong")
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
	request, epilogue, err := f.parse()
	if err != nil {
		return err
	}
	if err := f.keepInputs(fileA, fileB); err != nil {
		return err
	}
	start := time.Now()
	a, b, err := f.readFactors(ctx, fileA, fileB)
	if err != nil {
		return err
	}
	defer a.Close()
	defer b.Close()

	problem, err := f.problem(a.Layout, b.Layout, epilogue, fileA+" and "+fileB)
	if err != nil {
		return err
	}
	buffers := gemm.Buffers{A: a.Data, B: b.Data}
	defer f.epilogue.close()
	if err := f.epilogue.read(ctx, &problem, &buffers, f.transB); err != nil {
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
	// Whatever can be refused is refused before the long part.
	c := problem.C
	if err := matio.CheckOutput(f.out, c.Type); err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if !f.force {
		if err := matio.CheckKept(ctx, f.out); err != nil {
			return fmt.Errorf("-o: %w: name another file, or replace it with --force", err)
		}
	}
	if err := host.CheckMemory(c.Bytes(), fmt.Sprintf("the %d×%d result", problem.M, problem.N)); err != nil {
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

	start = time.Now()
	if err := matio.Write(ctx, f.out, c, buffers.C); err != nil {
		return fmt.Errorf("-o: %w", err)
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
	if r.Device, err = dispatch.ParseDevice(f.device); err != nil {
		return r, e, fmt.Errorf("--device: %w", err)
	}
	if f.kernel != "" {
		if err := knownKernel(f.kernel, r.Device); err != nil {
			return r, e, fmt.Errorf("--kernel: %w", err)
		}
	}
	if err := r.Device.Check(); err != nil {
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
	r.Kernel, r.Threads, r.Verify = f.kernel, f.threads, f.verify
	r.Once = true
	return r, e, nil
}

// keepInputs refuses to put C in the place of what it is made of, unless that is what is asked for:
// it would be whole, as outputs replace a file at once, but a slip of the pen would cost an input.
// C0 and the residual are what C is added to, and may well be replaced by it.
func (f *mulFlags) keepInputs(fileA, fileB string) error {
	e := &f.epilogue
	for _, in := range []string{fileA, fileB, e.bias, e.files[gemm.RowScale], e.files[gemm.ColScale], e.files[gemm.Up]} {
		if !f.force && matio.SameFile(f.out, in) {
			return fmt.Errorf("-o %s is one of the files to read: name another, or replace it with --force", f.out)
		}
	}
	return nil
}

func (f *mulFlags) readFactors(ctx context.Context, fileA, fileB string) (a, b *matio.Matrix, err error) {
	o := matio.ReadOptions{Room: host.CheckMemory}
	if f.dtype != "" {
		if o.Type, err = dtype.Parse(f.dtype); err != nil {
			return nil, nil, fmt.Errorf("--dtype: %w", err)
		}
	}
	if a, err = matio.Read(ctx, fileA, o); err != nil {
		return nil, nil, err
	}
	if b, err = matio.Read(ctx, fileB, o); err != nil {
		a.Close()
		return nil, nil, err
	}
	if f.transA {
		a.Layout = a.T()
	}
	if f.transB {
		b.Layout = b.T()
	}
	if a.Type != b.Type {
		err = fmt.Errorf("%w: %s holds %v and %s holds %v; --dtype converts both", gemm.ErrUnsupported, fileA, a.Type, fileB, b.Type)
		a.Close()
		b.Close()
		return nil, nil, err
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
	m, err := matio.Read(ctx, f.c, matio.ReadOptions{Type: p.C.Type, Room: host.CheckMemory})
	if err != nil {
		return err
	}
	defer m.Close()
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
