package build_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"

	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu"
)

// A kernel of one block that writes the sum of 64 numbers, built and executed on the emulator. The
// number of threads halves in each step of the Go loop, which is unrolled.
func Example() {
	const threads = 64
	k := build.New("sum")
	k.Threads(threads, 1, 1)
	in, out := k.Pointer("in", ptx.U32), k.Pointer("out", ptx.U32)
	partial := k.Shared("partial", ptx.U32, 1, threads)
	i := k.ThreadIdx(build.X)
	partial.Store(0, i, in.At(i).Load())
	for half := threads / 2; half > 0; half /= 2 {
		k.Barrier()
		k.If(k.Lt(i, half), func() {
			partial.Store(0, i, k.Add(partial.Load(0, i), partial.Load(0, k.Add(i, half))))
		})
	}
	k.If(k.Eq(i, 0), func() { out.Store(partial.Load(0, 0)) })
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	module, err := k.Build()
	check(err) // with the Go line of each mistake

	// A driver compiles module.String(). The emulator needs no GPU.
	program, err := emu.Load(module)
	check(err)
	memory := emu.NewMemory(emu.MemoryOptions{})
	from, err := memory.Alloc(4 * threads)
	check(err)
	to, err := memory.Alloc(4)
	check(err)
	numbers := make([]byte, 4*threads)
	for n := range threads {
		binary.LittleEndian.PutUint32(numbers[4*n:], uint32(n))
	}
	check(memory.Write(from, numbers))
	args := binary.LittleEndian.AppendUint64(nil, from)
	args = binary.LittleEndian.AppendUint64(args, to)
	_, err = program.Run(context.Background(), memory, emu.Launch{Entry: "sum", Grid: emu.Dim3{X: 1, Y: 1, Z: 1},
		Block: emu.Dim3{X: threads, Y: 1, Z: 1}, Params: args})
	check(err)
	sum := make([]byte, 4)
	check(memory.Read(to, sum))
	fmt.Println("sum:", binary.LittleEndian.Uint32(sum))
	// Output: sum: 2016
}

// Do emits an instruction that has no method: here a vote, whose result is the mask of the lanes
// with an odd number.
func ExampleKernel_Do() {
	k := build.New("vote")
	k.Threads(32, 1, 1)
	in, out := k.Pointer("in", ptx.U32), k.Pointer("out", ptx.U32)
	odd := k.Ne(k.And(in.At(k.LaneID()).Load(), 1), 0)
	mask := k.Fresh(ptx.B32)
	k.Do("vote.sync.ballot.b32", mask, odd, -1)
	out.Store(k.To(ptx.U32, mask))
	m, err := k.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range m.Funcs()[0].Body.Stmts {
		if i, ok := s.(*ptx.Instr); ok && i.Op == "vote" {
			fmt.Println(i)
		}
	}
	// Output: vote.sync.ballot.b32 %b0, %p0, -1;
}

// Build returns the mistakes of the whole kernel, each at its line.
func ExampleKernel_Build() {
	k := build.New("mistakes")
	n, x := k.Param("n", ptx.U32), k.Pointer("x", ptx.F32)
	x.Store(n)
	x.At(1).Store(k.Add(x.Load(), n))
	_, err := k.Build()
	var all ptx.Errors
	if errors.As(err, &all) {
		for _, e := range all {
			fmt.Println(e.Msg)
		}
	}
	// Output:
	// store of n to memory of type .f32: want a value of type .f32, convert it with To
	// Add of .f32 and .u32: want the same type, convert one of them with To
}

// The Go loop is unrolled, the loop of the kernel remains a loop, and address arithmetic is
// hoisted out of it.
func ExampleKernel() {
	k := build.New("sums")
	k.Threads(32, 1, 1)
	n, in, out := k.Param("n", ptx.U32), k.Pointer("in", ptx.F32), k.Pointer("out", ptx.F32)
	i := k.ThreadIdx(build.X)
	sum := k.Var("sum", ptx.F32, 0)
	k.For(0, n, func(build.Reg) {
		for j := range 3 {
			k.FMA(sum, in.At(k.Mul(i, 4)).At(j).Load(), j+1)
		}
	})
	out.At(i).Store(sum)
	m, err := k.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range m.Funcs()[0].Body.Stmts {
		switch s := s.(type) {
		case *ptx.Instr:
			fmt.Println("    " + s.String())
		case *ptx.Label:
			fmt.Println(s.Name + ":")
		}
	}
	// Output:
	//     ld.param.u32 %n, [n];
	//     ld.param.u64 %in, [in];
	//     cvta.to.global.u64 %in_g, %in;
	//     ld.param.u64 %out, [out];
	//     cvta.to.global.u64 %out_g, %out;
	//     mov.u32 %tid_x, %tid.x;
	//     mov.f32 %sum, 0f00000000;
	//     shl.b32 %r0, %tid_x, 2;
	//     mad.wide.u32 %rd0, %r0, 4, %in_g;
	//     mov.u32 %i, 0;
	//     setp.le.u32 %p0, %n, 0;
	//     @%p0 bra L1_end;
	// L1_loop:
	//     ld.global.f32 %f0, [%rd0];
	//     fma.rn.f32 %sum, %f0, 0f3F800000, %sum;
	//     ld.global.f32 %f1, [%rd0+4];
	//     fma.rn.f32 %sum, %f1, 0f40000000, %sum;
	//     ld.global.f32 %f2, [%rd0+8];
	//     fma.rn.f32 %sum, %f2, 0f40400000, %sum;
	//     add.u32 %i, %i, 1;
	//     setp.lt.u32 %p1, %i, %n;
	//     @%p1 bra L1_loop;
	// L1_end:
	//     mad.wide.u32 %rd1, %tid_x, 4, %out_g;
	//     st.global.f32 [%rd1], %sum;
	//     ret;
}
