package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/explain"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
)

// explainFlags are the flags of `tilework explain`.
type explainFlags struct {
	shape, gpu, tile, dtype, precision, format string
	transA, transB, trace, ptx                 bool
	regs                                       int
}

func explainCommand() *cobra.Command {
	var f explainFlags
	var kernels []string
	for _, k := range choose.Kernels() {
		kernels = append(kernels, k.Name)
	}
	c := &cobra.Command{
		Use:   "explain KERNEL",
		Short: "Show the operations, memory traffic and occupancy of a GPU kernel",
		Long: `explain analyses a GPU kernel. KERNEL is one of ` + strings.Join(kernels, ", ") + `.
It derives the number of operations, loads and bytes step by step, and from them the arithmetic
intensity and the position on the roofline. It also shows the occupancy, the cost of padding,
and the counters of an emulated run on a small product. It needs no GPU.

--trace shows a tiny product element by element instead: the thread that loads each element, and
the terms of each partial sum. --ptx prints the PTX of the kernel.`,
		Example: `  tilework explain tiled --tile 16 --shape 1024x1024x1024 --gpu h200
  tilework explain naive --shape 1000x1000x1000 --gpu t4 --format json
  tilework explain wgmma --shape 4096x4096x4096 --dtype bfloat16
  tilework explain mma --precision tf32 --gpu a100-sxm-80gb
  tilework explain tiled --tile 2 --shape 4x4x4 --trace
  tilework explain tiled --tile 8 --ptx`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("explain takes one kernel, found %d arguments%s: want one of %s; see tilework explain --help",
					len(args), inParens(args), strings.Join(kernels, ", "))
			}
			return nil
		},
		ValidArgs: kernels,
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), args[0], c.OutOrStdout())
		},
	}
	fl := c.Flags()
	shapeFlag(c, &f.shape,
		"the `SHAPE` MxNxK of the product, or N for three equal sizes (default: 1024x1024x1024, for --trace 4x4x4)")
	fl.StringVar(&f.gpu, "gpu", "h200", "a `GPU` or an architecture: "+strings.Join(model.LookupNames(), ", "))
	fl.StringVar(&f.tile, "tile", "",
		"the kernel's `TILE`, such as 16 or 128x128x8/8x8 (default: the tile that mul would choose without split-K, for "+
			"--trace the smallest)")
	fl.StringVar(&f.dtype, "dtype", "",
		"the element `TYPE` of A and B: "+strings.Join(typeNames(), ", ")+" (default: float32 if the kernel supports it)")
	fl.StringVar(&f.precision, "precision", gemm.Native.String(),
		"the `PRECISION` of the multiplication: "+precisionDocs())
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	fl.IntVar(&f.regs, "regs", 0,
		"the `NUMBER` of registers per thread, as reported by ptxas (0: the recorded number, if there is one)")
	fl.BoolVar(&f.trace, "trace", false,
		fmt.Sprintf("show each element of a product of at most %d×%d×%d",
			explain.MaxTrace, explain.MaxTrace, explain.MaxTrace))
	fl.BoolVar(&f.ptx, "ptx", false, "print the PTX of the kernel")
	exclusive(c, "trace", "ptx")
	formatFlag(c, &f.format, "table", "json")
	complete(c, "gpu", model.LookupNames()...)
	complete(c, "dtype", typeNames()...)
	complete(c, "precision", precisionNames()...)
	return c
}

func (f *explainFlags) run(ctx context.Context, name string, stdout io.Writer) error {
	if err := checkKernel(name, backend.DeviceName{Kind: backend.GPU}); err != nil {
		return err
	}
	k, err := choose.Find(name)
	if err != nil {
		return err
	}
	precision, err := gemm.ParsePrecision(f.precision)
	if err != nil {
		return fmt.Errorf("--precision: %w", err)
	}
	if f.dtype == "" {
		f.dtype = usualType(k, precision).String()
	}
	p, err := f.problem(precision)
	if err != nil {
		return err
	}
	m, err := model.Lookup(f.gpu)
	if err != nil {
		return fmt.Errorf("--gpu: %w", err)
	}
	tile, err := f.parseTile(k, p, m)
	if err != nil {
		return err
	}
	switch {
	case f.ptx:
		return f.printPTX(stdout, k, tile, p)
	case f.trace:
		t, err := explain.NewTrace(ctx, k, tile, p)
		if err != nil {
			return err
		}
		return f.print(stdout, t)
	case f.regs < 0:
		return fmt.Errorf("--regs %d: want 0 or more", f.regs)
	}
	x, err := explain.New(ctx, k, tile, p, m, explain.Options{Registers: f.regs})
	if err != nil {
		return err
	}
	return f.print(stdout, x)
}

// usualType returns float32, or the first supported type if the kernel or the precision does not
// support float32.
func usualType(k *kernel.Kernel, precision gemm.Precision) dtype.Type {
	types := k.Types()
	if precision != gemm.Native {
		types = precision.Info().For
	}
	if slices.Contains(types, dtype.F32) {
		return dtype.F32
	}
	return types[0]
}

// print writes an analysis as text or JSON.
func (f *explainFlags) print(w io.Writer, analysis interface{ Text() string }) error {
	if f.format == "json" {
		return writeJSON(w, analysis)
	}
	_, err := io.WriteString(w, analysis.Text())
	return err
}

func (f *explainFlags) printPTX(w io.Writer, k *kernel.Kernel, tile kernel.Tile, p *gemm.Problem) error {
	if f.format != "table" {
		return fmt.Errorf("--format %s with --ptx: PTX has only one format, want no --format", f.format)
	}
	if err := k.Check(p, kernel.Tile{}, kernel.Align{}, nil); err != nil {
		return err
	}
	m, err := k.Emit(k.Config(p, tile))
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, m.String())
	return err
}

// problem returns the product that the flags describe, with dense matrices.
func (f *explainFlags) problem(precision gemm.Precision) (*gemm.Problem, error) {
	shape := f.shape
	switch {
	case shape == "" && f.trace:
		shape = "4x4x4"
	case shape == "":
		shape = "1024x1024x1024"
	}
	shapes, err := bench.ParseShapes(shape)
	if err != nil {
		return nil, fmt.Errorf("--shape: %w", err)
	}
	if len(shapes) != 1 {
		return nil, fmt.Errorf("--shape %s: found %d shapes, want one, such as 1024x512x256", shape, len(shapes))
	}
	in, err := dtype.Parse(f.dtype)
	if err != nil {
		return nil, fmt.Errorf("--dtype: %w", err)
	}
	out := in
	if r := in.Info().Results; len(r) > 0 {
		out = r[0]
	}
	p, err := (&bench.Sample{Shape: shapes[0], TransA: f.transA, TransB: f.transB}).Problem(in, out)
	if err != nil {
		return nil, err
	}
	if p, err = p.WithPrecision(precision); err != nil {
		return nil, fmt.Errorf("--precision %s: %w", f.precision, err)
	}
	return &p, nil
}

// parseTile parses --tile. Without the flag it returns the tile that mul would choose, or the
// smallest tile for a trace.
func (f *explainFlags) parseTile(k *kernel.Kernel, p *gemm.Problem, m *model.Model) (kernel.Tile, error) {
	switch {
	case f.tile == "" && f.trace:
		shapes := k.Tiles
		return shapes[len(shapes)-1], nil
	case f.tile == "":
		return explain.Tile(k, p, m)
	}
	s, err := k.ParseTile(f.tile)
	if err != nil {
		return s, fmt.Errorf("--tile: %w", err)
	}
	return s, nil
}
