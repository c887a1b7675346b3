package tilework

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/call"
	"tilework/internal/gemm"
	"tilework/internal/split"
)

// Gemm computes C ← α·A·B + β·C for A of m×k, B of k×n and C of m×n. With β = 0 the old C is not
// read; with α = 0 neither A nor B is read. α and β are rounded to float64 for float64 matrices and
// otherwise to float32; for an int32 C they must be integers. C must not share memory with A or B.
//
// The operands select the product:
//
//	A             B                            C             product
//	Matrix        Matrix or PackedMatrix       Matrix        on the CPU, or on a GPU and back
//	DeviceMatrix  DeviceMatrix                 DeviceMatrix  on the device that holds them
//	Batch         Batch                        Batch         C[i] ← α·A[i]·B[i] + β·C[i] for each i
//	DeviceBatch   DeviceBatch                  DeviceBatch   the same, in one launch
//	Matrix        Batch, with [WithGroups]     Matrix        a product for each group of rows
//	DeviceMatrix  DeviceBatch, [WithGroups]    DeviceMatrix  the same, in one launch
//
// The sizes of the products of a [Batch] may differ. No C may overlap another one or any A or B.
// On a GPU, products of one size are one launch unless they are verified.
//
// These are the types of C:
//
//	A, B                          sums      C
//	float64                       float64   float64
//	float32                       float32   float32, BFloat16, Float16
//	Float16                       float32   Float16, float32
//	BFloat16                      float32   BFloat16, float32
//	Float8E4M3 or Float8E5M2      float32   float32, BFloat16, Float16, as A and B
//	int8, uint8                   int32     int32, float32, BFloat16, Float16
//
// A and B have the same type, except that one may be int8 and the other uint8. Quantised operands
// may have zero points: see [WithZeroPoints].
//
// Sums in int32 are exact, but wrap beyond 32 bits. For a C of floats they are converted to
// float32, to nearest with ties to even; α, β and the epilogue then apply in float32. A C of 16 or
// 8 bits is rounded once, at the end. On a Hopper GPU the kernel wgmma sums 128 products of 8-bit
// floats in 14 bits before it adds them in float32, and with [WithFastAccumulation] all of them.
//
// A product of matrices on the host is finished when Gemm returns. A product of matrices on a
// device is only enqueued, usually before it starts. The first product of a kind waits until its
// kernel is compiled, and operands on the host are uploaded first. Errors of the device that occur
// later are returned by the next download or [Device.Sync], and C is then undefined.
//
// Operands on the host and on a device in one product, or on several devices, are ErrUnsupported.
// Options may have operands on the host for a product on a device.
func Gemm[T, U, R dtype.Element](ctx context.Context, alpha float64, a Operand[T], b Operand[U], beta float64,
	c Operand[R], opts ...Option) error {
	return run(ctx, newCall(alpha, a, b, beta, c, opts))
}

// newCall returns the call for a product. Release it in the end.
func newCall[T, U, R dtype.Element](alpha float64, a Operand[T], b Operand[U], beta float64, c Operand[R],
	opts []Option) *call.Call {
	k := call.New()
	apply(&k.Options, opts)
	start(k, alpha, a, b, beta, c)
	return k
}

// start gives the operands and factors of a product whose options are given.
func start[T, U, R dtype.Element](k *call.Call, alpha float64, a Operand[T], b Operand[U], beta float64, c Operand[R]) {
	if k.Division != split.Rows {
		k.Fail(fmt.Errorf("%w: %v is for a new matrix on a device, and this product makes none", ErrUnsupported, k.Division))
	}
	giveProduct(k, gemm.A, a)
	giveProduct(k, gemm.B, b)
	giveProduct(k, gemm.C, c)
	k.Start(complex(alpha, 0), complex(beta, 0))
}

// run computes the product and releases k.
func run(ctx context.Context, k *call.Call) error {
	if ctx == nil {
		k.Fail(errNilContext)
		ctx = context.Background()
	}
	err := k.Run(ctx)
	k.Release()
	return err
}

// giveProduct gives A, B or C.
func giveProduct[T dtype.Element](k *call.Call, o gemm.Operand, x Operand[T]) {
	if !describe(x, o, &k.Layouts[o], &k.Memory[o], k.Product(o)) {
		k.GiveOther(o)
	}
}
