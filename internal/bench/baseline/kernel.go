// Package baseline has the GPU kernels that a benchmark compares ours with, besides those of
// libraries: kernels in PTX files, and epilogues that are not fused with the product.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/ptx"
)

// Kernel is an external kernel in PTX, for example compiled by nvcc, for comparison with the
// kernels of this module. Its declaration must be
//
//	extern "C" __global__ void name(const T *A, const T *B, T *C,
//	                                int m, int n, int k, int lda, int ldb, int ldc, S alpha, S beta)
//
// The matrices are row-major. S is the type of alpha and beta that package dtype lists for T and
// C's type. The caller must verify the results.
type Kernel struct {
	Entry      string
	Rows, Cols int         // tile of C per block
	Block      device.Dim3 // threads per block

	device   device.Device
	module   device.Module
	function device.Function
}

// OpenKernel compiles a PTX file for a device. spec names the kernel and its launch, such as
// "tiled16:16x16/16x16": the entry, the rows and columns of C per block, and the threads of a block
// in x and y.
func OpenKernel(ctx context.Context, d device.Device, file, spec string) (*Kernel, error) {
	k, err := parseKernel(spec)
	if err != nil {
		return nil, err
	}
	k.device = d
	text, err := ptx.ReadFile(file)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return nil, fmt.Errorf("cuda: %s: %w", file, path.Err)
	}
	if k.module, err = d.Load(ctx, text); err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", file, err)
	}
	if k.function, err = k.module.Function(k.Entry); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: %s: %w", file, err), k.Close())
	}
	return k, nil
}

func parseKernel(spec string) (*Kernel, error) {
	k := &Kernel{Block: device.Dim3{Z: 1}}
	bad := func() (*Kernel, error) {
		return nil, fmt.Errorf("kernel %q: want ENTRY:ROWSxCOLS/XxY, with the tile of C and the threads of a block, such "+
			"as tiled16:16x16/16x16", spec)
	}
	entry, launch, ok := strings.Cut(spec, ":")
	if !ok || entry == "" {
		return bad()
	}
	k.Entry = entry
	var rest string
	n, _ := fmt.Sscanf(launch+" .", "%dx%d/%dx%d %s", &k.Rows, &k.Cols, &k.Block.X, &k.Block.Y, &rest)
	if n != 5 || rest != "." || min(k.Rows, k.Cols, k.Block.X, k.Block.Y) < 1 {
		return bad()
	}
	return k, nil
}

// Close unloads the kernel.
func (k *Kernel) Close() error { return k.module.Unload() }

// CheckSupported returns ErrUnsupported if the kernel's parameters cannot express p.
func (k *Kernel) CheckSupported(p *gemm.Problem) error {
	if p.Epilogue != (gemm.Epilogue{}) {
		return fmt.Errorf("%w: kernel %s: epilogue %v: want none", gemm.ErrUnsupported, k.Entry, p.Epilogue)
	}
	for _, n := range []int{p.M, p.N, p.K, p.A().LD, p.B().LD, p.C().LD} {
		if n > math.MaxInt32 {
			return fmt.Errorf("%w: kernel %s: size %d: want at most %d", gemm.ErrUnsupported, k.Entry, n, math.MaxInt32)
		}
	}
	return nil
}

// Enqueue launches the kernel on matrices in the device's memory and does not wait for it.
func (k *Kernel) Enqueue(ctx context.Context, p *gemm.Problem, a, b, c device.Ptr) error {
	var args device.Params
	for _, at := range []device.Ptr{a, b, c} {
		args.Ptr(at)
	}
	for _, n := range []int{p.M, p.N, p.K, p.A().LD, p.B().LD, p.C().LD} {
		args.U32(uint32(n))
	}
	for _, v := range []float64{real(p.Alpha), real(p.Beta)} {
		switch p.ScaleType() {
		case dtype.F64:
			args.F64(v)
		case dtype.F32:
			args.F32(float32(v))
		default:
			args.U32(uint32(int32(v)))
		}
	}
	grid := device.Dim3{X: ints.CeilDiv(p.N, k.Cols), Y: ints.CeilDiv(p.M, k.Rows), Z: 1}
	return k.device.Launch(ctx, k.function, device.Launch{Grid: grid, Block: k.Block, Params: args.Bytes()})
}
