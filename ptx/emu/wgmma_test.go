package emu

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// runWgmma runs a kernel body with the given number of threads. It provides descriptors %da and %db
// of zero matrices in shared memory and accumulators %f0 to %f3.
func runWgmma(t *testing.T, body string, threads int, seed uint64) error {
	t.Helper()
	text := `.version 8.0
.target sm_90a
.address_size 64
.visible .entry k (.param .u64 buf)
{
	.shared .align 1024 .b8 s[4096];
	.reg .b64 %buf, %p, %da, %db; .reg .b32 %t, %a, %x<4>; .reg .f32 %f<4>, %g<4>; .reg .pred %q;
	ld.param.u64 %buf, [buf];
	mov.u32 %t, %tid.x;
	mov.u32 %a, s;
	and.b32 %x0, %t, 127;
	mad.lo.u32 %a, %x0, 32, %a;
	st.shared.v4.b32 [%a], {0, 0, 0, 0}; st.shared.v4.b32 [%a+16], {0, 0, 0, 0};
	mov.u32 %a, s;
	shr.u32 %a, %a, 4;
	cvt.u64.u32 %da, %a;
	or.b64 %da, %da, 0x0000001000080000;
	mov.b64 %db, %da;
	fence.proxy.async;
	bar.sync 0;
	mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
	mov.b32 %x0, 0; mov.b32 %x1, 0; mov.b32 %x2, 0; mov.b32 %x3, 0;
` + body + `
	ret;
}
`
	p := loadText(t, "k.ptx", text)
	mem := NewMemory(MemoryOptions{})
	_, err := p.Run(t.Context(), mem, Launch{
		Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{threads, 1, 1},
		Params: pack(t, p, "k", upload(t, mem, make([]uint32, 1024))), Seed: seed, MaxInstructions: 1 << 20,
	})
	return err
}

// TestWgmmaMisuse breaks the rules for asynchronous wgmma operations one at a time.
func TestWgmmaMisuse(t *testing.T) {
	const (
		fence  = "wgmma.fence.sync.aligned;"
		commit = "wgmma.commit_group.sync.aligned;"
		wait   = "wgmma.wait_group.sync.aligned 0;"
		sums   = "{%f0, %f1, %f2, %f3}"
	)
	product := fmt.Sprintf("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 %s, %%da, %%db, 1, 1, 1, 0, 0;", sums)
	other := strings.Replace(product, sums, "{%f1, %f0, %f2, %f3}", 1)
	fromRegisters := strings.Replace(strings.Replace(product, "%da,", "{%x0, %x1, %x2, %x3},", 1), ", 0, 0;", ", 0;", 1)
	lines := func(s ...string) string { return strings.Join(s, "\n") }
	for _, c := range []struct {
		name, body string
		threads    int
		want       string
		kind       error
	}{
		{"correct", lines(fence, product, product, commit, wait, "st.global.f32 [%buf], %f0;", fence, fromRegisters, commit,
			wait), 128, "", nil},
		{"two groups", lines(fence, product, commit, product, commit, "wgmma.wait_group.sync.aligned 1;", wait,
			"st.global.f32 [%buf], %f0;"), 256, "", nil},
		{"no fence", lines(product, commit, wait), 128, "no wgmma.fence precedes this operation", ErrMisuse},
		{"accumulator written after the fence", lines(fence, "mov.f32 %f2, 0f00000000;", product), 128,
			"register %f2 was accessed after the last wgmma.fence", ErrMisuse},
		{"accumulator read after the fence", lines(fence, "st.global.f32 [%buf], %f3;", product), 128,
			"register %f3 was accessed after", ErrMisuse},
		{"operand written after the fence", lines(fence, "mov.b32 %x1, 1;", fromRegisters), 128,
			"register %x1 was accessed after", ErrMisuse},
		{"accumulator read before the wait", lines(fence, product, commit, "st.global.f32 [%buf], %f0;"), 128,
			"register %f0 is in use by a wgmma.mma_async in flight", ErrMisuse},
		{"accumulator of the last group read", lines(fence, product, commit,
			"wgmma.wait_group.sync.aligned 1; st.global.f32 [%buf], %f0;"), 128, "register %f0 is in use", ErrMisuse},
		{"no commit", lines(fence, product, wait, "st.global.f32 [%buf], %f0;"), 128, "register %f0 is in use", ErrMisuse},
		{"operand overwritten before the wait", lines(fence, fromRegisters, commit, "mov.b32 %x0, 1;"), 128,
			"register %x0 is in use", ErrMisuse},
		{"same registers in another order", lines(fence, product, other), 128,
			"has a different use in a wgmma.mma_async in flight", ErrMisuse},
		{"incomplete warpgroup", lines(fence, product), 160, "warp 4 is not in a complete warpgroup", ErrMisuse},
		{"different descriptors", lines("setp.lt.u32 %q, %t, 32; @%q add.u64 %db, %db, 8;", fence, product), 128,
			"the warps of the warpgroup differ", ErrMisuse},
		{"diverged warp", lines("setp.lt.u32 %q, %t, 16;", "@%q bra ON;", "bra ON2;", "ON:", fence, "ON2:"), 128,
			"lanes 0xffff0000 of the warp do not execute the instruction", ErrMisuse},
		{"missing warp", lines("setp.lt.u32 %q, %t, 32; @%q bra OUT;", fence, product, commit, wait, "OUT:"), 128,
			"waits for the other warps of its warpgroup", ErrDeadlock},
		{"matrix out of bounds", lines("add.u64 %da, %da, 0x200;", fence, product), 128,
			"not in the 4,096 bytes of the block's shared memory", ErrAccess},
		{"exit before the wait", lines(fence, product, commit), 128, "exits while this operation in flight", ErrMisuse},
	} {
		hits := 0
		for seed := range uint64(10) {
			err := runWgmma(t, c.body, c.threads, seed)
			if c.kind == nil && err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if errors.Is(err, c.kind) && err != nil && strings.Contains(err.Error(), c.want) {
				hits++
			} else if c.kind != nil && c.name != "exit before the wait" {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
		if c.kind != nil && hits == 0 {
			t.Errorf("%s: no run failed with the expected error", c.name)
		}
	}
}

// TestWgmmaInFunction multiplies in a function, as unoptimized code does. The kernel has no wgmma
// of its own.
func TestWgmmaInFunction(t *testing.T) {
	const product = `.func multiply (.reg .b64 %da)
{
	.reg .f32 %f<4>;
	mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
	wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %da, %da, 1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	add.f32 %f0, %f0, 0f00000000;
	ret;
}
`
	text := strings.Replace(kernelSource(`.shared .align 128 .b8 s[4096]; .reg .b32 %a; .reg .b64 %da;
	mov.u32 %a, s; mad.lo.u32 %a, %t0, 32, %a;
	st.shared.v4.b32 [%a], {0, 0, 0, 0}; st.shared.v4.b32 [%a+16], {0, 0, 0, 0};
	fence.proxy.async; bar.sync 0;
	mov.u32 %a, s; shr.u32 %a, %a, 4; cvt.u64.u32 %da, %a; or.b64 %da, %da, 0x0000001000080000;
	call multiply, (%da);
	call multiply, (%da);`), ".visible", product+".visible", 1)
	text = strings.Replace(text, ".target sm_90", ".target sm_90a", 1)
	launch := Launch{Block: Dim3{128, 1, 1}}
	if _, _, err := runModule(t, text, make([]uint32, 1), launch); err != nil {
		t.Error(err)
	}
	text = strings.Replace(text, "wgmma.wait_group.sync.aligned 0;", "", 1)
	const want = "the function returns with a wgmma.mma_async in flight"
	if _, _, err := runModule(t, text, make([]uint32, 1), launch); !errors.Is(err, ErrMisuse) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a misuse: %s", err, want)
	}
}
