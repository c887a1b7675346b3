package check_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

const twoKernels = `.version 8.0
.target sm_80
.address_size 64
.entry fill(.param .u64 x) {
	.reg .b32 %t; .reg .b64 %x;
	ld.param.u64 %x, [x];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %x, %t, 4, %x;
	st.global.u32 [%x], %t;
	ret;
}
.entry twice(.param .u64 x, .param .u64 y) {
	.reg .b32 %t, %v; .reg .b64 %x, %y;
	ld.param.u64 %x, [x];
	ld.param.u64 %y, [y];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %x, %t, 4, %x;
	mad.wide.u32 %y, %t, 4, %y;
	ld.global.u32 %v, [%x];
	add.u32 %v, %v, %v;
	st.global.u32 [%y], %v;
	ret;
}
`

// This example launches two kernels one after the other. The second one reads the results of the
// first one, because both use the same memory.
func Example() {
	module, err := ptx.Parse("two.ptx", twoKernels)
	if err != nil {
		log.Fatal(err)
	}
	program, err := emu.Load(module)
	if err != nil {
		log.Fatal(err)
	}
	memory := emu.NewMemory(emu.MemoryOptions{TrackWrites: true})
	x, err := memory.Alloc(16)
	if err != nil {
		log.Fatal(err)
	}
	y, err := memory.Alloc(16)
	if err != nil {
		log.Fatal(err)
	}
	for _, launch := range []struct {
		kernel string
		args   []any
	}{
		{"fill", []any{x}},
		{"twice", []any{x, y}},
	} {
		params, err := program.Pack(launch.kernel, launch.args...)
		if err != nil {
			log.Fatal(err)
		}
		checks := check.New(check.Options{Only: []check.Checker{check.Race, check.Bounds, check.Uninit}})
		stats, err := program.Run(context.Background(), memory, emu.Launch{
			Entry: launch.kernel, Grid: emu.Dim3{X: 1, Y: 1, Z: 1}, Block: emu.Dim3{X: 4, Y: 1, Z: 1}, Params: params,
			Observers: []emu.Observer{checks},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %d errors\n", launch.kernel, checks.Report(program, stats, nil).Errors())
	}
	data := make([]byte, 16)
	if err := memory.Read(y, data); err != nil {
		log.Fatal(err)
	}
	for i := range 4 {
		fmt.Print(binary.LittleEndian.Uint32(data[4*i:]), " ")
	}
	// Output:
	// fill: 0 errors
	// twice: 0 errors
	// 0 2 4 6
}
