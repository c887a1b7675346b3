// Package tilework multiplies matrices: on the processor, on an NVIDIA GPU where
// the driver is installed, or on an emulated one; there is nothing else to install.
//
//	a := tilework.FromSlice(2, 3, []float32{1, 2, 3, 4, 5, 6})
//	b := tilework.FromSlice(3, 2, []float32{1, 0, 0, 1, 1, 1})
//	c, err := tilework.Mul(ctx, a, b) // 2×2
//
// A [Matrix] is a view of a slice: rows one after the other, with room between
// them if wanted. Sub-matrices and transposes are views of the same memory and
// cost nothing.
//
// [Mul] allocates its result; [MulInto] writes into a matrix that is there;
// [Gemm] is the whole of BLAS's operation, C ← α·A·B + β·C; [GemmBatch] does many
// at once, and [GemmGrouped] one for each group of A's rows, as a mixture of experts does. All take [Option]s and a context. [PlanGemm] tells what would run,
// where, and why, without running it; [TuneGemm] measures what is fastest for a shape
// on this machine and has it run from then on.
//
// Weights that many products on the processor share are packed once, by [Pack], and
// multiplied by [MulPacked] or [GemmPacked].
//
// # Matrices that stay on a device
//
// [Open] a GPU, or an emulated one, and matrices can stay there: [Upload] brings one,
// [MulOn] and [GemmOn] multiply without waiting, [DeviceMatrix.Download] waits and
// brings the result.
//
//	dev, err := tilework.Open("gpu")
//	defer dev.Close()
//	w, err := tilework.Upload(ctx, dev, weights)
//	h, err := tilework.MulOn(ctx, x, w.T(), tilework.WithActivation("relu"))
//	y, err := tilework.MulOn(ctx, h, v)
//	out, err := y.Download(ctx)
//
// Many products of one size are one launch, by [GemmBatchOn] on a [DeviceBatch], and so are
// those of groups of rows, by [GemmGroupedOn]; where [Groups] end may be known to the device
// alone, as a router there leaves it.
//
// A device does what it is asked for in order; [DeviceMatrix.Close] therefore needs no
// waiting. What fails while nobody waits is the error of the next Download or
// [Device.Sync].
//
// # What is done on the way out
//
// Options say what happens to each element before the result is rounded and written:
// [WithRowScale] and [WithColScale], [WithRowBias] or [WithColBias], [WithActivation],
// [WithGated], [WithResidual], [WithOutputScale], a function of the caller's with
// [WithDeviceFunc], and [WithSaturation], in that order whatever theirs is. It is done in the
// kernel, and costs no pass over the result. [WithBlockScales] is before all of them: those
// scales differ along K, and belong to the product itself.
//
// # What is promised
//
// float32 in means float32 arithmetic. β = 0 means that C's old values are not
// read, whatever they are; otherwise every NaN and infinity propagates. The same
// inputs give the same bits, run after run, at any number of threads. Nothing
// falls back silently: what is asked for works or says why not. All functions
// may be called from any number of goroutines at once.
//
// # Errors
//
// Errors wrap one of [ErrShape], [ErrOverlap], [ErrUnsupported], [ErrNoDevice],
// [ErrOutOfMemory], [ErrVerify], [ErrLaunch], [ErrDeviceLost] and [ErrClosed], or are
// the context's. When a product ends
// with an error after it began (the context ended, verification failed), C holds
// anything.
package tilework
