package ptx_test

import (
	"fmt"

	"tilework/ptx"
)

// A module is parsed, checked and listed with the requirements of each instruction.
func Example() {
	module, err := ptx.Parse("copy.ptx", `.version 8.0
.target sm_90
.address_size 64
.entry copy(.param .u64 to, .param .u64 from)
{
	.reg .b64 %rd<3>;
	.reg .b32 %r;
	ld.param.u64 %rd1, [from];
	ld.param.u64 %rd2, [to];
	ld.global.L1::no_allocate.u32 %r, [%rd1+4];
	st.global.u32 [%rd2], %r;
	ret;
}`)
	if err == nil {
		err = ptx.Verify(module)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	module.Funcs()[0].Body.Walk(func(s ptx.Stmt) {
		if i, ok := s.(*ptx.Instr); ok && len(i.Args) > 0 {
			fmt.Printf("%v  needs %v, %v\n", i, i.Need().Version, i.Need().Target)
		}
	})
	fmt.Println("the module needs", module.Need().Version, "and", module.Need().Target)
	// Output:
	// ld.param.u64 %rd1, [from];  needs 2.3, sm_20
	// ld.param.u64 %rd2, [to];  needs 2.3, sm_20
	// ld.global.L1::no_allocate.u32 %r, [%rd1+4];  needs 7.4, sm_70
	// st.global.u32 [%rd2], %r;  needs 2.3, sm_20
	// the module needs 7.4 and sm_70
}

// Errors have the position and the nearest supported instruction.
func ExampleVerify() {
	module, err := ptx.Parse("k.ptx", `.version 8.0 .target sm_80 .address_size 64
.entry k() {
	.reg .f32 %f<3>;
	add.s32 %f0, %f1, %f2;
	ad.f32 %f0, %f1, %f2;
	add.up.f32 %f0, %f1, %f2;
}`)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ptx.Verify(module))
	// Output:
	// k.ptx:4:2: add.s32: operand d: %f0 is of type .f32, want .s32
	// k.ptx:4:2: add.s32: operand a: %f1 is of type .f32, want .s32
	// k.ptx:4:2: add.s32: operand b: %f2 is of type .f32, want .s32
	// k.ptx:5:2: ad.f32: instruction "ad" is not supported
	// k.ptx:6:2: add.up.f32: modifier .up is not allowed: the nearest supported instruction is add.f32
}
