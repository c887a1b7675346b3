package tilework_test

import (
	"context"
	"errors"
	"fmt"

	"tilework"
	"tilework/dtype"
	"tilework/ptx/build"
)

// This is the first program: the product of two matrices.
func Example() {
	a := tilework.FromSlice(2, 3, []float32{1, 2, 3, 4, 5, 6})
	b := tilework.FromSlice(3, 2, []float32{1, 0, 0, 1, 1, 1})
	fmt.Println(tilework.Mul(context.Background(), a, b))
	// Output:
	// 2×2 float32
	// [[ 4  5]
	//  [10 11]] <nil>
}

func ExampleMul() {
	a := tilework.FromSlice(2, 3, []float32{
		1, 2, 3,
		4, 5, 6,
	})
	b := tilework.FromSlice(3, 2, []float32{
		1, 0,
		0, 1,
		1, 1,
	})
	c, err := tilework.Mul(context.Background(), a, b)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Rows(), c.Cols(), c.Data())
	// Output: 2 2 [4 5 10 11]
}

func ExampleGemm_int8() {
	a := tilework.FromSlice(1, 2, []int8{100, 100})
	b := tilework.FromSlice(2, 1, []int8{100, 27})
	c := tilework.New[int32](1, 1) // sums of int8 products are int32
	if err := tilework.Gemm(context.Background(), 1, a, b, 0, c); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.At(0, 0))
	// Output: 12700
}

// A quantised layer: activations of uint8 with a zero point, weights of int8, and a scale for each
// output channel.
func ExampleWithZeroPoints() {
	x := tilework.FromSlice(1, 2, []uint8{130, 120}) // 2 and -8, with 128 for 0
	w := tilework.FromSlice(2, 2, []int8{3, 1, 1, -1})
	y := tilework.New[float32](1, 2)
	if err := tilework.Gemm(context.Background(), 1, x, w, 0, y, tilework.WithZeroPoints(tilework.Vector[int32](128), nil),
		tilework.WithColScale(tilework.Vector[float32](0.5, 0.25))); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [-1 2.5]
}

// A layer with weights in bfloat16. The bias has the type of the result, here float32.
func ExampleGemm_bfloat16() {
	toBFloat16 := func(values ...float32) []dtype.BFloat16 {
		var out []dtype.BFloat16
		for _, v := range values {
			out = append(out, dtype.BFloat16From32(v))
		}
		return out
	}
	x := tilework.FromSlice(1, 2, toBFloat16(1, 2))
	w := tilework.FromSlice(2, 2, toBFloat16(
		-3, 1,
		0.25, 2,
	))
	bias := tilework.Vector[float32](0, 1)
	y := tilework.New[float32](1, 2)
	err := tilework.Gemm(context.Background(), 1, x, w, 0, y, tilework.WithColBias(bias),
		tilework.WithReLU())
	fmt.Println(y.Data(), err)
	// Output: [0 6] <nil>
}

// A transpose is a view, and so is a part of a matrix: neither is copied.
func ExampleGemm() {
	a := tilework.FromSlice(3, 2, []float64{
		1, 4,
		2, 5,
		3, 6,
	})
	whole := tilework.New[float64](4, 4)
	corner := whole.Sub(2, 2, 2, 2)
	if err := tilework.Gemm(context.Background(), 0.5, a.T(), a, 0, corner); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(whole.Data())
	// Output: [0 0 0 0 0 0 0 0 0 0 7 16 0 0 16 38.5]
}

// Weights are packed once and multiplied many times.
func ExamplePack() {
	ctx := context.Background()
	w, err := tilework.Pack(ctx, tilework.FromSlice(2, 3, []float32{
		1, 0, 2,
		0, 1, 3,
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, x := range [][]float32{{1, 2}, {3, -4}} {
		y, err := tilework.Mul(ctx, tilework.FromSlice(1, 2, x), w, tilework.WithReLU())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(y.Data())
	}
	// Output:
	// [1 2 8]
	// [3 0 0]
}

// A function changes each tile of the result while it is in the cache.
func ExampleWithTileFunc() {
	a := tilework.FromSlice(2, 2, []float32{1, 2, 3, 4})
	clip := func(tile tilework.Matrix[float32], row, col int) {
		for i := range tile.Rows() {
			for j := range tile.Cols() {
				tile.Set(i, j, min(tile.At(i, j), 15))
			}
		}
	}
	c, err := tilework.Mul(context.Background(), a, a, tilework.WithTileFunc(clip))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Data())
	// Output: [7 10 15 15]
}

func ExampleBatch() {
	x := tilework.FromSlice(1, 2, []float32{1, 2})
	w := tilework.Batch[float32]{
		tilework.FromSlice(2, 1, []float32{1, 1}),
		tilework.FromSlice(2, 2, []float32{1, 2, 3, 4}),
	}
	y, err := tilework.Mul(context.Background(), tilework.Batch[float32]{x, x}, w)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y[0].Data(), y[1].Data())
	// Output: [3] [7 10]
}

func ExampleWithReLU() {
	x := tilework.FromSlice(1, 2, []float32{1, -1})
	w := tilework.FromSlice(2, 3, []float32{
		1, 2, 3,
		3, 2, 1,
	})
	y, err := tilework.Mul(context.Background(), x, w,
		tilework.WithColBias(tilework.Vector[float32](1, 1, 1)),
		tilework.WithReLU())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [0 1 3]
}

// Both weights of a gated layer are parts of one matrix. With SiLU in place of ReLU it is SwiGLU.
func ExampleWithGated() {
	x := tilework.FromSlice(1, 2, []float32{1, 2})
	both := tilework.FromSlice(2, 4, []float32{
		1, -1, 4, 0,
		1, -1, 0, 4,
	})
	gate, up := both.Sub(0, 0, 2, 2), both.Sub(0, 2, 2, 2)
	h, err := tilework.Mul(context.Background(), x, gate, tilework.WithGated(up), tilework.WithReLU())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(h.Data())
	// Output: [12 0]
}

// A leaky ReLU with a slope for each column is compiled into the kernel. "emu" opens an emulated
// GPU, "gpu" a real one.
func ExampleNewDeviceFunc() {
	leaky, err := tilework.NewDeviceFunc(func(k *build.Kernel, e tilework.DeviceElement) build.Reg {
		return k.Select(k.Lt(e.Value, 0), k.Mul(e.Value, e.Data.At(e.Col).Load()), e.Value)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	x := tilework.FromSlice(1, 2, []float32{1, -1})
	w := tilework.FromSlice(2, 3, []float32{
		1, 2, 3,
		3, 2, 5,
	})
	slopes := []float32{0.5, 0.25, 0.125}
	y, err := tilework.Mul(context.Background(), x, w, tilework.WithDevice("emu"),
		tilework.WithDeviceFunc(leaky, tilework.Vector(slopes...)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [-1 0 -0.25]
}

// Two products run on a device without a copy in between. "emu" opens an emulated GPU, "gpu" a real
// one.
func ExampleOpen() {
	ctx := context.Background()
	dev, err := tilework.Open("emu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close() // frees its matrices too
	x, err := tilework.Upload(ctx, dev, tilework.FromSlice(1, 2, []float32{1, -1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := tilework.Upload(ctx, dev, tilework.FromSlice(2, 2, []float32{1, 2, 3, 1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := tilework.Mul(ctx, x, w, tilework.WithReLU())
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := tilework.Mul(ctx, h, w.T())
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := y.Download(ctx) // waits for the products
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Data())
	// Output: [2 1]
}

// Two GPUs, here emulated ones, divide matrices among them. Each has some rows of x and some
// columns of w. A product copies the missing parts from one to the other.
func ExampleWithColumnDivision() {
	ctx := context.Background()
	dev, err := tilework.Open("emu:h200,h200") // "gpu:0,1" or "gpu:all" for real ones
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	x, err := tilework.Upload(ctx, dev, tilework.FromSlice(2, 2, []float32{1, 2, 3, 4}))
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := tilework.Upload(ctx, dev, tilework.FromSlice(2, 2, []float32{1, 1, 0, 1}), tilework.WithColumnDivision())
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := tilework.Mul(ctx, x, w)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := y.Download(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Data())
	// Output: [1 3 3 7]
}

// Three rows are routed to two experts: two to the first and one to the second.
func ExampleWithGroups() {
	x := tilework.FromSlice(3, 2, []float32{1, 2, 3, 4, 5, 6})
	experts := tilework.Batch[float32]{
		tilework.FromSlice(2, 1, []float32{1, 1}),
		tilework.FromSlice(2, 1, []float32{10, 100}),
	}
	y, err := tilework.Mul(context.Background(), x, experts, tilework.WithGroups(tilework.GroupEnds(2, 1)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [3 7 650]
}

// The groups are multiplied in one launch on a device.
func ExampleWithGroups_device() {
	ctx := context.Background()
	dev, err := tilework.Open("emu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close() // frees its matrices too
	x, err := tilework.Upload(ctx, dev, tilework.FromSlice(3, 2, []float32{1, 2, 3, 4, 5, 6}))
	if err != nil {
		fmt.Println(err)
		return
	}
	experts, err := tilework.Upload(ctx, dev, tilework.Batch[float32]{
		tilework.FromSlice(2, 1, []float32{1, 1}),
		tilework.FromSlice(2, 1, []float32{10, 100}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ends, err := tilework.Upload(ctx, dev, tilework.GroupEnds(2, 1)) // or a device matrix that a router wrote
	if err != nil {
		fmt.Println(err)
		return
	}
	y, err := tilework.Mul(ctx, x, experts, tilework.WithGroups(ends))
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := y.Download(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out.Data())
	// Output: [3 7 650]
}

// Along K the first 128 elements are multiples of 1/8 and the other 128 are multiples of 1000. Each
// block of 128 has a scale, so that both blocks are represented exactly.
func ExampleWithBlockScales() {
	ctx := context.Background()
	x, w := tilework.New[dtype.Float8E4M3](1, 256), tilework.New[dtype.Float8E4M3](256, 1)
	for k := range 256 {
		x.Set(0, k, dtype.Float8E4M3From32(1.5))
		w.Set(k, 0, dtype.Float8E4M3From32(1))
	}
	scalesX := tilework.FromSlice(1, 2, []float32{0.125, 1000}) // one for each row of x and each 128 elements along K
	scalesW := tilework.FromSlice(2, 1, []float32{1, 2})        // one for each block of w
	y := tilework.New[float32](1, 1)
	if err := tilework.Gemm(ctx, 1, x, w, 0, y, tilework.WithBlockScales(scalesX, scalesW)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.At(0, 0))
	// Output: 384024
}

// A quantized layer multiplies int8 matrices, each with a scale, into a float32 result.
func ExampleWithColScale() {
	x := tilework.FromSlice(1, 2, []int8{100, -50})
	w := tilework.FromSlice(2, 2, []int8{4, 1, 2, 8})
	y := tilework.New[float32](1, 2)
	err := tilework.Gemm(context.Background(), 1, x, w, 0, y,
		tilework.WithRowScale(tilework.Vector[float32](0.5)),
		tilework.WithColScale(tilework.Vector[float32](0.25, 0.125)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [37.5 -18.75]
}

// The result has a residual connection and is scaled by a number.
func ExampleWithResidual() {
	x := tilework.FromSlice(1, 2, []float32{1, 2})
	w := tilework.FromSlice(2, 2, []float32{1, 2, 3, 4})
	y, err := tilework.Mul(context.Background(), x, w,
		tilework.WithResidual(x),
		tilework.WithOutputScale(tilework.Vector(0.5)))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(y.Data())
	// Output: [4 6]
}

// Attention heads side by side in the rows of one matrix form a batch, computed in one launch.
func ExampleDeviceMatrix_Batch() {
	ctx := context.Background()
	dev, err := tilework.Open("emu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close() // frees its matrices too
	x, err := tilework.Upload(ctx, dev, tilework.FromSlice(1, 4, []float32{1, 2, 3, 4}))
	if err != nil {
		fmt.Println(err)
		return
	}
	heads := x.Sub(0, 0, 1, 2).Batch(2, 2) // two heads of two columns
	scores, err := tilework.Mul(ctx, heads, heads.T())
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := scores.Download(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(out[0].Data(), out[1].Data())
	// Output: [5] [25]
}

// The next input is copied into the memory of the one before it.
func ExampleCopy() {
	ctx := context.Background()
	dev, err := tilework.Open("emu")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close() // frees its matrices too
	x, err := tilework.NewDeviceMatrix[float32](dev, 1, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	y := tilework.New[float32](1, 2)
	for _, input := range [][]float32{{1, 2}, {3, 4}} {
		if err := tilework.Copy(ctx, x, tilework.Vector(input...)); err != nil {
			fmt.Println(err)
			return
		}
		if err := tilework.Copy(ctx, y, x); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(y.Data())
	}
	// Output:
	// [1 2]
	// [3 4]
}

func ExamplePlanGemm() {
	a, b, c := tilework.New[float32](64, 8), tilework.New[float32](8, 32), tilework.New[float32](64, 32)
	plan, err := tilework.PlanGemm(context.Background(), a, b, c, tilework.WithKernel("loop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Device, plan.Kernel, plan.Why)
	// Output: cpu loop requested by name
}

// Errors wrap sentinels. Their text states the value found and the value wanted.
func ExampleMul_error() {
	_, err := tilework.Mul(context.Background(), tilework.New[float32](2, 3), tilework.New[float32](4, 2))
	fmt.Println(errors.Is(err, tilework.ErrShape))
	fmt.Println(err)
	// Output:
	// true
	// shapes do not fit: A is 2×3 and B is 4×2: want a B of 3×2
}
