// Package build generates PTX from GPU kernels written in Go. Each method of [Kernel] adds the
// instructions that the same line of CUDA C would compile to, and [Kernel.Build] returns the
// module.
//
//	k := build.New("axpy")
//	k.Threads(256, 1, 1)
//	n, a := k.Param("n", ptx.U32), k.Param("a", ptx.F32)
//	x, y := k.Pointer("x", ptx.F32), k.Pointer("y", ptx.F32)
//	i := k.Mad(k.BlockIdx(build.X), 256, k.ThreadIdx(build.X))
//	k.If(k.Lt(i, n), func() {
//		y.At(i).Store(k.Mad(a, x.At(i).Load(), y.At(i).Load()))
//	})
//	module, err := k.Build()
//
// The module prints as the PTX source that the driver compiles. Package tilework/ptx/emu executes
// it on the CPU, and tilework/ptx/emu/check finds races and invalid accesses; see the example.
//
// Go values are compile-time constants of the kernel, and a [Reg] holds a run-time value. A Go
// for loop is therefore unrolled, and a Go if statement selects code at compile time.
// [Kernel.For] generates a loop, and [Kernel.If] a branch.
//
// # From CUDA C
//
//	CUDA C                         package build
//
//	threadIdx.x, blockIdx.y        k.ThreadIdx(build.X), k.BlockIdx(build.Y)
//	float sum = 0                  sum := k.Var("sum", ptx.F32, 0)
//	sum = x                        k.Set(sum, x)
//	sum += a*b                     k.FMA(sum, a, b)
//	a*b + c, p ? a : b             k.Mad(a, b, c), k.Select(p, a, b)
//	(float)i, __float_as_uint(x)   k.To(ptx.F32, i), k.Bits(ptx.U32, x)
//	if (p) {…} else {…}            k.If(p, func() {…}).Else(func() {…})
//	for (i = 0; i < n; i++) {…}    k.For(0, n, func(i build.Reg) {…})
//	while (i < n) {…}              k.While(func() build.Reg { return k.Lt(i, n) }, func() {…})
//	x[i], x[i] = v                 x.At(i).Load(), x.At(i).Store(v)
//	*(float4*)&x[i]                x.At(i).LoadVec(4)
//	__shared__ float s[8][32]      s := k.Shared("s", ptx.F32, 8, 32)
//	s[i][j], s[i][j] = v           s.Load(i, j), s.Store(i, j, v)
//	__syncthreads()                k.Barrier()
//	__shfl_xor_sync(~0, x, 16)     k.ShuffleXor(x, 16)
//	asm("…")                       k.Do("…", …)
//
// # Registers
//
// The value of a Reg never changes: each operation returns a new Reg. Mutable variables are
// declared with [Kernel.Var] and written by [Kernel.Set] and [Kernel.FMA]. A Reg is visible in
// the block that created it and in nested blocks, like a variable in C.
//
// Integer arithmetic and comparisons on immutable values are optimized. The builder emits each
// distinct operation once, hoists it out of all loops in which its operands are invariant, and
// removes it if nothing uses its result. An inner loop can thus call m.Load(row, i) at no extra
// cost. Floating-point operations, loads and stores stay where they are written.
//
// # Types
//
// The operands of an operation have one type, which is also that of the result. Integers of
// different widths are widened if all are signed or all unsigned. All other conversions are
// explicit: [Kernel.To] converts a value, and [Kernel.Bits] reinterprets its bits. A Go number
// takes the type of the other operand. Comparisons return a predicate, of type [ptx.Pred].
//
// # Memory
//
// A [Ptr] points to elements of one type in global or shared memory. [Kernel.Pointer] declares one
// as a parameter. A [Matrix] adds rows, columns and a leading dimension to a pointer. An [Array] is
// a matrix in shared memory. [Tensor] and [Mbarriers] are for the asynchronous copies of sm_90.
//
// # Errors
//
// Methods do not return errors. The Kernel collects errors, each with the file and line of the
// call outside this package, and Build returns them.
package build
