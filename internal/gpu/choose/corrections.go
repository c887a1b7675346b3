package choose

import (
	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// correction multiplies the predicted time of a kernel's candidates in a case that its model does
// not explain. The comment of the case gives the measurement. A case without a measurement says
// so: its factor leaves the product to the kernel that was measured.
type correction struct {
	kernel  *kernel.Kernel
	factor  float64
	applies func(j *job, c *kernel.Config) bool
}

// correction returns the factor for a candidate.
func (j *job) correction(k *kernel.Kernel, c *kernel.Config) float64 {
	factor := 1.0
	for _, x := range j.costs.corrections {
		if x.kernel == k && x.applies(j, c) {
			factor *= x.factor
		}
	}
	return factor
}

// hopperCorrections are those of an H200.
var hopperCorrections = []correction{
	{kernel.Skinny, 5, wideC},
	{kernel.Skinny, 3, tf32Matrix},
	{kernel.Tiled, 2, halfBatch},
	{kernel.Blocked, 1.6, fewRows},
	{kernel.Blocked, 1.5, narrowTypes},
	{kernel.Blocked, 2, halfBatch},
	{kernel.MMA, 1.2, skewedHalf},
	{kernel.MMA, 1.25, smallTF32},
	{kernel.MMA, 1.3, bytes},
	{kernel.MMA, 1.5, smallBytes},
	{kernel.MMA, 2, halfBatch},
	{sm90.WGMMA, 1.1, tallExposed},
	{sm90.WGMMA, 1.1, unevenRounds},
	{sm90.WGMMA, 1.12, tf32Vector},
	{sm90.WGMMA, 1.3, tf32SwapAB},
	{sm90.WGMMA, 1.375, thinB},
	{sm90.WGMMA, 2, rarePacking},
}

// fewColumns is the largest number of rows or columns of C of a slim product.
const fewColumns = 16

// wideC: the kernel skinny reads the long operand several times where C has more than 8 rows and
// columns, or 4 of float64. Not measured, except that 8×14336×4096 of float64 took 139.9 µs, and
// 113.9 with mma.
func wideC(j *job, _ *kernel.Config) bool {
	most := kernel.MaxSkinny
	if j.In() == dtype.F64 {
		most /= 2
	}
	return min(j.M, j.N) > most
}

// tf32Matrix: the kernel skinny in tf32 with more than one row and column. Not measured.
func tf32Matrix(j *job, _ *kernel.Config) bool {
	return j.Precision == gemm.TF32 && min(j.M, j.N) > 1
}

// halfBatch: batches of 16-bit types were measured with wgmma only
// (docs/results/batches-h200.jsonl).
func halfBatch(j *job, c *kernel.Config) bool {
	return j.Batch.Kind != gemm.Single && j.In().Bits() == 16 && !rarePacking(j, c)
}

// fewRows: the kernel blocked with up to 8 rows or columns. 1×14336×4096 of bfloat16 took 58.4 µs,
// and 36.5 were predicted; so did 1, 2 and 4×28672×4096 (docs/results/selector-h200.json).
func fewRows(j *job, _ *kernel.Config) bool { return min(j.M, j.N) <= kernel.MaxSkinny }

// narrowTypes: the kernel blocked converts elements of less than 4 bytes, with more rows. 64³ of
// bfloat16 took 3.9 µs, and 2.8 were predicted.
func narrowTypes(j *job, c *kernel.Config) bool { return j.In().Bits() < 32 && !fewRows(j, c) }

// skewedHalf: 509³ and 511³ of 16-bit types, whose rows begin within lines of the L2 cache, took
// mma 5.0 µs, and 4.0 were predicted.
func skewedHalf(j *job, _ *kernel.Config) bool {
	in, longest := j.In(), max(j.M, j.N, j.K)
	skewed := in.Bytes(j.A().LD)%frag.SwizzleBytes != 0 || in.Bytes(j.B().LD)%frag.SwizzleBytes != 0
	return j.Batch.Kind == gemm.Single && in.Bits() == 16 && longest > 320 && longest <= 512 && skewed
}

// smallTF32: products in tf32 with sides of up to 320. 251³, 256³ and 257³ were measured with wgmma
// only, when they took 3.7 to 5.3 µs with a K-major B.
func smallTF32(j *job, _ *kernel.Config) bool {
	return j.Precision == gemm.TF32 && max(j.M, j.N, j.K) <= 320
}

// bytes: 127³ of int8 took mma 3.8 µs, and 2.2 were predicted. Other single products of 8-bit types
// were measured with wgmma only.
func bytes(j *job, _ *kernel.Config) bool {
	return j.In().Bits() == 8 && j.Batch.Kind == gemm.Single
}

// smallBytes: products of 8-bit types with sides of up to 512. wgmma may pack their operands. Not
// measured with mma.
func smallBytes(j *job, c *kernel.Config) bool {
	return bytes(j, c) && min(j.M, j.N) >= 128 && max(j.M, j.N, j.K) <= 512
}

// tallExposed: a tile with 128 rows per warpgroup does not hide the store of C where K is short or
// an SM has few tiles. Such tiles were 3 to 15 % faster than 128×256 at 4096³, 4096×4096×1024, 32
// products of 1024³ and 64 of 768³, but 2 % slower at 2048³ and 4 % at 64 products of 512³.
func tallExposed(j *job, c *kernel.Config) bool {
	const depth, batchDepth, rounds = 1024, 768, 4
	switch {
	case c.Tile.RowsPerThread <= 2 || c.In.Bits() != 16 || c.Epilogue != (gemm.Epilogue{}):
		return false
	case j.Batch.Kind != gemm.Single:
		return j.K < batchDepth
	}
	return j.K < depth || kernel.TileCount(j.Problem, c.Tile) < rounds*j.device.SMs
}

// unevenRounds: few rows in tiles of 64 columns, which some SMs have one of and others two, where
// tiles of 128 are one for each SM. 16×14336×4096 of bfloat16 took 31.9 µs, and mma 29.1.
func unevenRounds(j *job, _ *kernel.Config) bool {
	half := j.In().Bits() == 16 || j.Precision == gemm.TF32
	return half && j.Batch.Kind == gemm.Single && j.M <= fewColumns &&
		kernel.CeilDiv(j.N, 128) <= j.device.SMs && kernel.CeilDiv(j.N, sm90.WarpgroupRows) > j.device.SMs
}

// tf32Vector: vectors in tf32. 16×4096×4096 took 20.1 µs, and 18.0 were predicted; 1×4096×4096 took
// the kernel skinny 17.4.
func tf32Vector(j *job, _ *kernel.Config) bool {
	return j.Precision == gemm.TF32 && min(j.M, j.N) == 1
}

// tf32SwapAB: small products and few rows in tf32 with an MN-major B. 128³ took 3.08 µs, and mma
// 2.85; 16×4096×4096 took 21.4 µs, and mma 20.8.
func tf32SwapAB(j *job, _ *kernel.Config) bool {
	if j.Precision != gemm.TF32 || j.Batch.Kind != gemm.Single || j.Epilogue.Gated || j.N < 2 {
		return false
	}
	kMajor := j.packing(kernel.Tile{SwapAB: true}).product.B().Trans
	return !kMajor && (j.M <= fewColumns || max(j.M, j.N, j.K) <= 128)
}

// thinB: fewer columns of an MN-major B than the 64 of a TMA box. 4096×16×4096 of bfloat16 took
// 14.3 µs, and 10.4 were predicted.
func thinB(j *job, _ *kernel.Config) bool {
	return j.In().Bits() == 16 && j.Batch.Kind == gemm.Single && j.N > 1 && j.N <= fewColumns && !j.B().Trans
}

// rarePacking: an operand is packed whose elements are used fewer than 128 times. The rate of
// packing was measured on large operands only.
func rarePacking(j *job, c *kernel.Config) bool {
	const enough = 128
	products := 1
	if j.Batch.Kind == gemm.Grouped {
		products = max(j.Batch.Count, 1)
	}
	packed := j.packing(c.Tile).packed
	return packed[gemm.A] && j.N < enough || (packed[gemm.B] || packed[gemm.Up]) && j.M/products < enough
}
