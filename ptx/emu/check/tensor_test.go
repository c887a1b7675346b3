package check

import (
	"bytes"
	"strings"
	"testing"

	"tilework/ptx/emu"
)

// tensorKernel multiplies matrices of ones: D = 128×16, K = 16. Each of its four warps stores its
// 32 rows of D.
const tensorKernel = `.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b32 %t, %sm, %a, %n, %i, %word, %r<16>;
	.reg .b64 %d, %x, %descA, %descB;
	.reg .pred %p, %first, %done;
	.shared .align 1024 .b8 sm[8192];
	mov.u32 %t, %tid.x;
	mov.u32 %sm, sm;
	shr.u32 %n, %t, 5;
	setp.ne.u32 %p, %n, 0;
	@%p bra FILL;
	tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [sm+4616], 32;
	tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
FILL:
	setp.eq.u32 %first, %t, 0;
	@%first mbarrier.init.shared::cta.b64 [sm+4608], 1;
	mov.u32 %word, 0x3c003c00;
	mov.u32 %i, %t;
STORE:
	shl.b32 %a, %i, 2;
	add.u32 %a, %a, %sm;
	st.shared.b32 [%a], %word;
	add.u32 %i, %i, 128;
	setp.lt.u32 %p, %i, 1152;
	@%p bra STORE;
	fence.proxy.async.shared::cta;
	tcgen05.fence::before_thread_sync;
	bar.sync 0;
	tcgen05.fence::after_thread_sync;
	ld.shared.b32 %a, [sm+4616];
	@!%first bra WAIT;
	shr.u32 %i, %sm, 4;
	cvt.u64.u32 %x, %i;
	add.u64 %descA, %x, 0x0000401000080000;
	add.u64 %descB, %descA, 256;
	setp.ne.u32 %p, %t, %t;
	tcgen05.mma.cta_group::1.kind::f16 [%a], %descA, %descB, 0x08040010, %p;
	tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [sm+4608];
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %done, [sm+4608], 0;
	@!%done bra WAIT;
	tcgen05.fence::after_thread_sync;
	shl.b32 %n, %n, 21;
	add.u32 %n, %n, %a;
	tcgen05.ld.sync.aligned.32x32b.x16.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11, %r12, %r13, %r14, %r15}, [%n];
	tcgen05.wait::ld.sync.aligned;
	ld.param.u64 %d, [out];
	mul.wide.u32 %x, %t, 64;
	add.u64 %d, %d, %x;
	st.global.v4.b32 [%d], {%r0, %r1, %r2, %r3};
	st.global.v4.b32 [%d+16], {%r4, %r5, %r6, %r7};
	st.global.v4.b32 [%d+32], {%r8, %r9, %r10, %r11};
	st.global.v4.b32 [%d+48], {%r12, %r13, %r14, %r15};
	tcgen05.fence::before_thread_sync;
	bar.sync 0;
	tcgen05.fence::after_thread_sync;
	setp.lt.u32 %p, %t, 32;
	@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %a, 32;
	ret;
}
`

// runTensor runs tensorKernel with some texts replaced. It returns the errors and the advice about
// tensor memory, and D.
func runTensor(t *testing.T, seed uint64, edits ...string) (findings string, d []byte) {
	t.Helper()
	text := tensorKernel
	for k := 0; k < len(edits); k += 2 {
		if !strings.Contains(text, edits[k]) {
			t.Fatalf("no %q in the kernel", edits[k])
		}
		text = strings.Replace(text, edits[k], edits[k+1], 1)
	}
	p := program{text: text, grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: 128, Y: 1, Z: 1}, seed: seed,
		args: []any{out(128 * 64)}, workers: 1}
	r, outs, err := p.run(t)
	var all []string
	if err != nil {
		all = append(all, err.Error())
	}
	for _, f := range r.Findings {
		if f.Severity == Error || strings.Contains(f.Message, "tcgen05") {
			all = append(all, f.Message)
		}
	}
	return strings.Join(all, "\n"), outs[0]
}

func TestTensorMemory(t *testing.T) {
	want := bytes.Repeat([]byte{0, 0, 0x80, 0x41}, 128*16) // 16.0
	for seed := range uint64(20) {
		if finding, d := runTensor(t, seed); finding != "" || !bytes.Equal(d, want) {
			t.Fatalf("seed %d: found %q and D is %v…, want no finding and 16.0", seed, finding, d[:min(len(d), 8)])
		}
	}
}

// TestTensorMemoryFaults plants faults in tensorKernel. Each must be found with every seed.
func TestTensorMemoryFaults(t *testing.T) {
	const alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [sm+4616], 32;"
	const relinquish = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
	const dealloc = "@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %a, 32;"
	const mma = "tcgen05.mma.cta_group::1.kind::f16 [%a], %descA, %descB, 0x08040010, %p;"
	const wait = "\t@!%done bra WAIT;\n"
	for _, c := range []struct {
		name  string
		edits []string
		want  string
	}{
		{"no dealloc", []string{dealloc, ""}, "exits without freeing the tensor memory that it has allocated here"},
		{"dealloc twice", []string{dealloc, dealloc + "\n\t" + dealloc},
			"are not an allocation: the block has allocated no columns"},
		{"dealloc of other columns", []string{dealloc, strings.Replace(dealloc, "32;", "64;", 1)},
			"64 columns of tensor memory at"},
		{"alloc after relinquish", []string{relinquish, relinquish + "\n\t" + alloc},
			"has relinquished its permit to allocate"},
		{"D is not allocated", []string{mma, "add.u32 %a, %a, 32;\n\t" + mma}, "of tensor memory are not allocated"},
		{"D is larger than the allocation", []string{"0x08040010", "0x08100010"}, "are not allocated"},
		{"columns that are not allocated", []string{"add.u32 %n, %n, %a;", "add.u32 %n, %n, %a;\n\tadd.u32 %n, %n, 24;"},
			"are not allocated"},
		{"lanes of another warp", []string{"shl.b32 %n, %n, 21;", "mov.u32 %n, 0;"},
			"accesses lanes 0 to 31 of tensor memory: want some of its lanes, "},
		{"no wait for the commit", []string{"\tmbarrier.try_wait.parity.shared::cta.b64 %done, [sm+4608], 0;\n" + wait, ""},
			"of tensor memory that t"},
		{"no commit", []string{"tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [sm+4608];",
			"mbarrier.arrive.shared::cta.b64 _, [sm+4608];"}, "may still write: want a tcgen05.commit"},
		{"no wait::ld", []string{"tcgen05.wait::ld.sync.aligned;", ""}, "the manual requires a tcgen05.wait::ld"},
		{"no proxy fence", []string{"fence.proxy.async.shared::cta;", ""}, "want a fence.proxy.async"},
		{"operand overwritten before the wait", []string{"WAIT:\n", "st.shared.b32 [sm], %word;\nWAIT:\n"},
			"that the tcgen05.mma of thread (0,0,0) at test.ptx:40 may still read"},
		{"D is added to and undefined", []string{"setp.ne.u32 %p, %t, %t;", "setp.eq.u32 %p, %t, %t;"},
			"of tensor memory, which no instruction has written"},
		{"columns that nothing has written", []string{"sm+4616], 32;", "sm+4616], 64;", "%a, 32;", "%a, 64;",
			"add.u32 %n, %n, %a;", "add.u32 %n, %n, %a;\n\tadd.u32 %n, %n, 32;"},
			"of tensor memory, which no instruction has written"},
		{"no fence after the wait", []string{wait + "\ttcgen05.fence::after_thread_sync;", wait},
			"the manual requires a tcgen05.fence"},
		{"M of another kind", []string{"0x08040010", "0x10040010"}, "has M = 256"},
		{"types of another kind", []string{"0x08040010", "0x08040110"}, "are not of kind::f16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(6) {
				if finding, _ := runTensor(t, seed, c.edits...); !strings.Contains(finding, c.want) {
					t.Fatalf("seed %d: found %q, want %q", seed, finding, c.want)
				}
			}
		})
	}
}
