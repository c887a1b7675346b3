// Package tilework multiplies matrices on the CPU, on NVIDIA GPUs and on an emulated GPU, without
// cgo. A GPU needs its driver and nothing else.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"tilework"
//	)
//
//	func main() {
//		a := tilework.FromSlice(2, 3, []float32{1, 2, 3, 4, 5, 6})
//		b := tilework.FromSlice(3, 2, []float32{1, 0, 0, 1, 1, 1})
//		fmt.Println(tilework.Mul(context.Background(), a, b))
//	}
//
// # Products
//
// [Mul] returns the product A·B in new memory. [Gemm] computes C ← α·A·B + β·C in existing memory,
// also for a C of another type than A and B. Both take a context, options of type [Option], and
// operands of every kind: single matrices, packed ones, batches and groups of rows, on the host or
// on a device. [PlanGemm] reports the device and the kernel that would compute a product, and the
// reason. [TuneGemm] measures the fastest way to compute a product on this machine and selects it
// for later ones.
//
// # Matrices
//
// A [Matrix] is a view of a slice. Transposes and parts of a matrix are views of the same memory.
// [Vector] returns a slice as a matrix of one row. A [Batch] is a list of matrices. A
// [PackedMatrix] holds weights in the order in which the CPU's kernels read them: [Pack] them once
// and multiply by them many times.
//
// Elements are float64, float32, int8, uint8, int32 (as results of these), or the types of package
// tilework/dtype: Float16, BFloat16, Float8E4M3 and Float8E5M2. dtype.BFloat16From32 rounds a
// float32, and the method Float32 of an element converts it back.
//
// # Matrices on a device
//
// [Open] opens a GPU, or an emulated one, and [Upload] copies matrices to it. Products of a
// [DeviceMatrix] are only enqueued: they run in order, and their results stay on the device.
// [DeviceMatrix.Download] waits for a result and copies it to the host.
//
//	dev, err := tilework.Open("gpu")
//	defer dev.Close()
//	w, err := tilework.Upload(ctx, dev, weights)
//	h, err := tilework.Mul(ctx, x, w.T(), tilework.WithReLU())
//	y, err := tilework.Mul(ctx, h, v)
//	out, err := y.Download(ctx)
//
// The products of a [DeviceBatch] are one launch, and so are those of groups of rows
// ([WithGroups]). [DeviceMatrix.Close] frees memory after the products that use it. The error of a
// product that fails later is returned by the next download or [Device.Sync].
//
// # Files
//
// Package tilework/matfile reads matrices from files and writes them: .npy, .npz, .safetensors,
// .mtx and .csv.
//
// # Several processes
//
// Package tilework/ranks joins processes, on one or several hosts, to a group. [OpenRanks] opens a
// device whose matrices the processes of a group divide among them.
//
// # Epilogue
//
// Options change each element before the result is rounded and written. They apply in the order
// [WithRowScale] and [WithColScale], [WithRowBias] or [WithColBias], an activation, [WithGated],
// [WithResidual], [WithOutputScale], [WithDeviceFunc] and [WithSaturation], independent of the
// order in the call. They run in the kernel, without another pass over the result.
// [WithBlockScales] is part of the product itself, as these scales differ along K.
//
// # Guarantees
//
// float32 operands mean float32 arithmetic, unless an option selects another one. With β = 0
// the old C is not read. Otherwise NaN and infinities propagate. The same inputs give the same
// bits, in every run and with any number of threads. With [WithRowInvariance] a row of the result
// does not depend on the other rows. Nothing falls back silently to another device, precision or
// kernel. All functions are safe for concurrent use.
//
// # Errors
//
// Errors wrap one of [ErrShape], [ErrOverlap], [ErrUnsupported], [ErrNoDevice], [ErrOutOfMemory],
// [ErrVerify], [ErrLaunch], [ErrDeviceLost] and [ErrClosed], or are the context's. A nil context is
// an error. If a product fails after it started, because its context ended or its verification
// failed, C is undefined.
package tilework
