package peers

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
	"tilework/ptx"
)

// Kernel is a kernel of somebody's own, such as nvcc writes in PTX, for comparison
// with one of ours. It is declared like
//
//	extern "C" __global__ void name(const T *A, const T *B, T *C,
//	                                int m, int n, int k, int lda, int ldb, int ldc, S alpha, S beta)
//
// on row-major matrices, with S the type of alpha and beta that dtype's table has for T and
// C's type. Nothing is known about its results: verify them.
type Kernel struct {
	Entry      string
	Rows, Cols int         // the part of C that a block computes
	Block      device.Dim3 // threads

	device   device.Device
	module   device.Module
	function device.Function
}

// OpenKernel compiles a file of PTX for a device. The kernel is named with its
// launch, "tiled16:16x16/16x16": the entry, the rows and columns of C that a block
// computes, and the threads of a block along x and y.
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
		return nil, fmt.Errorf("kernel %q: want ENTRY:ROWSxCOLS/XxY, the part of C that a block computes and its threads, such as tiled16:16x16/16x16", spec)
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

// Supports refuses what cannot be said to the kernel. The error is ErrUnsupported.
func (k *Kernel) Supports(p *gemm.Problem) error {
	if p.Epilogue != (gemm.Epilogue{}) {
		return fmt.Errorf("%w: kernel %s: bias or activation", gemm.ErrUnsupported, k.Entry)
	}
	for _, n := range []int{p.M, p.N, p.K, p.A.LD, p.B.LD, p.C.LD} {
		if n > math.MaxInt32 {
			return fmt.Errorf("%w: kernel %s: size %d (want at most %d)", gemm.ErrUnsupported, k.Entry, n, math.MaxInt32)
		}
	}
	return nil
}

// Enqueue starts the kernel on matrices that are on the device, and does not wait for
// its end.
func (k *Kernel) Enqueue(ctx context.Context, p *gemm.Problem, a, b, c device.Ptr) error {
	var args device.Params
	for _, at := range []device.Ptr{a, b, c} {
		args.Ptr(at)
	}
	for _, n := range []int{p.M, p.N, p.K, p.A.LD, p.B.LD, p.C.LD} {
		args.U32(uint32(n))
	}
	for _, v := range []float64{p.Alpha, p.Beta} {
		switch p.ScaleType() {
		case dtype.F64:
			args.F64(v)
		case dtype.F32:
			args.F32(float32(v))
		default:
			args.U32(uint32(int32(v)))
		}
	}
	grid := device.Dim3{X: (p.N + k.Cols - 1) / k.Cols, Y: (p.M + k.Rows - 1) / k.Rows, Z: 1}
	return k.device.Launch(ctx, k.function, device.Launch{Grid: grid, Block: k.Block, Params: args.Bytes()})
}
