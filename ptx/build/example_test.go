package build_test

import (
	"fmt"

	"tilework/ptx"
	"tilework/ptx/build"
)

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
