package check

import (
	"fmt"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

func TestBarriers(t *testing.T) {
	arrive := func(b *block, site string, id, warp int, mask uint32, expected int, missing ...emu.Missing) {
		b.hooks.Barrier(&emu.Barrier{
			Origin: emu.Origin{Site: b.site(site), Warp: warp, Mask: mask}, ID: id, Expected: expected,
			Arrived: 32 * (warp + 1), Aligned: true, Missing: missing,
		})
	}
	deadlock := fmt.Errorf("block (0,0,0): %w", emu.ErrDeadlock)
	for _, c := range []struct {
		name string
		run  func(b *block)
		err  error
		want string
		says string
	}{
		{"complete", func(b *block) { b.sync("bar", 0, b.all(), 0) }, nil, "", ""},
		{"part of a warp", func(b *block) {
			arrive(b, "bar", 0, 0, 0xfffe, 64, emu.Missing{Origin: emu.Origin{Site: b.site("wait"), Mask: 0xffff0001}})
		}, nil, "barrier bar", "threads (1,0,0) to (15,0,0) are at this barrier while 17 of the threads (0,0,0) to " +
			"(31,0,0) of the same warp are at test.ptx:1"},
		{"two instructions", func(b *block) {
			arrive(b, "bar", 0, 0, ^uint32(0), 64)
			arrive(b, "other", 0, 1, ^uint32(0), 64)
		}, nil, "barrier other bar", "same __syncthreads()"},
		{"two barriers in sequence", func(b *block) {
			b.sync("bar", 0, b.all(), 0)
			b.sync("other", 0, b.all(), 0)
		}, nil, "", ""},
		{"deadlock", func(b *block) {
			arrive(b, "bar", 1, 0, ^uint32(0), 96)
			arrive(b, "bar", 1, 1, ^uint32(0), 96)
		}, deadlock, "barrier bar", "deadlock: 64 threads, including thread (0,0,0) of block (0,0,0), wait at barrier 1, " +
			"which expects 96 threads"},
		{"incomplete after another error", func(b *block) {
			arrive(b, "bar", 1, 0, ^uint32(0), 96)
		}, emu.ErrBudget, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Barrier}}, 1, 64)
			b := f.block(0)
			c.run(b)
			b.hooks.End()
			r, got := f.report(c.err)
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	f := newFake(t, Options{Only: []Checker{Bounds}}, 2, 64)
	for n := range 2 {
		b := f.block(1 - n) // the report has the message of the lower block
		for range 3 {
			continues := b.hooks.Fault(&emu.Fault{
				Origin: emu.Origin{Site: b.site("ld"), Mask: 2}, Kind: emu.OutOfBounds, Access: emu.Read, Space: ptx.Global,
				Size: 4, Block: b.info.Index, Thread: emu.Dim3{X: 1}, FirstAddr: 0x7f00000404, Detail: "4 bytes past the end of it",
			})
			if !continues {
				t.Error("the launch ends at the first fault, want it to continue")
			}
		}
		b.hooks.Fault(&emu.Fault{
			Origin: emu.Origin{Site: b.site("ld"), Mask: 2}, Kind: emu.Misaligned, Access: emu.Write, Space: ptx.Shared,
			Size: 16, Block: b.info.Index, FirstAddr: 0x8,
		})
		b.hooks.End()
	}
	r, got := f.report(nil)
	if s := strings.Join(got, ", "); s != "bounds ld, bounds ld" || r.Errors() != 2 {
		t.Fatalf("found %q, want two bounds errors", s)
	}
	for _, want := range []string{
		"thread (1,0,0) of block (0,0,0) reads 4 bytes at global address 0x7f00000404, 4 bytes past the end of it: want a " +
			"bounds check",
		"(6 times)", "writes 16 bytes at shared address 0x8: want a multiple of 16", "(2 times)",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("report %q, want it to contain %q", r.String(), want)
		}
	}
}

// TestAllow checks that a violation of an allowed rule is advice, and an error otherwise.
func TestAllow(t *testing.T) {
	for _, rule := range append(Rules(), "") {
		if got, err := ParseRule(string(rule)); rule != "" && (got != rule || err != nil) {
			t.Errorf("ParseRule(%q) = %v, %v", rule, got, err)
		}
		f := newFake(t, Options{Allow: []Rule{rule}}, 1, 64)
		b := f.block(0)
		b.hooks.Fault(&emu.Fault{Origin: emu.Origin{Site: b.site("arrive"), Mask: 1}, Kind: emu.ExitedBlock, Size: 8})
		b.do(st, []int{3}, own)
		b.sync("bar", 0, b.all(), 0)
		b.bulk("store", 1, emu.AsyncRead, 0, 0, 0)
		b.hooks.End()
		r, _ := f.report(nil)
		for _, g := range r.Findings {
			want := Error
			if rule != "" && strings.Contains(g.Message, "(rule "+string(rule)+")") {
				want = Advice
			}
			if g.Severity != want {
				t.Errorf("--allow %s: found %v, want %v", rule, &g, want)
			}
		}
		if len(r.Findings) != 2 {
			t.Errorf("--allow %s: found %v, want one violation of each rule", rule, r)
		}
	}
	const want = "want one of proxy-fence, exited-block"
	if _, err := ParseRule("fence"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ParseRule: error %v, want the list of rules", err)
	}
}

// TestUninit runs small programs with undefined values. They are found where they can change the
// result of the kernel, and only there.
func TestUninit(t *testing.T) {
	const (
		own    = "st.shared.u32 [%r1], %t; bar.sync 0;"
		first8 = "setp.lt.u32 %q0, %t, 8; @%q0 st.shared.u32 [%r1], %t; bar.sync 0;"
		load   = "ld.shared.u32 %r3, [%r1];"
		store  = "st.global.u32 [%d1], %r3;"
		// A matrix whose rows 4 to 7 are undefined: lane i has two elements of row i/4.
		matrix = "setp.lt.u32 %q0, %t, 16; @%q0 st.shared.u32 [%r1], %t; bar.sync 0; and.b32 %r2, %t, 7; " +
			"mov.u32 %r4, s; mad.lo.u32 %r2, %r2, 16, %r4; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];"
		transposed = "movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r3;"
		evenPairs  = "and.b32 %r2, %t, 2; setp.eq.u32 %q0, %r2, 0; @%q0 "
		product    = "mov.b32 %r6, 0; mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 "
		ofRows     = matrix + product + "{%r4, %r5}, {%r3, %r6}, {%r6}, {%r6, %r6};"
		ofColumns  = matrix + product + "{%r4, %r5}, {%r6, %r6}, {%r3}, {%r6, %r6};"
		ofSums     = matrix + product + "{%r4, %r5}, {%r6, %r6}, {%r6}, {%r3, %r6};"
		tiles      = ".reg .b32 %a<8>, %b<8>, %x<4>; st.shared.u32 [%r1], 0; st.shared.u32 [%r1+128], 0; " +
			"st.shared.u32 [%r1+1024], 0; st.shared.u32 [%r1+1152], 0; st.shared.u32 [%r1+1280], 0; " +
			"st.shared.u32 [%r1+1408], 0; bar.sync 0; mov.b32 %r4, 0; " +
			"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [s], 16; " +
			"wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, [s+1024], 16; " +
			"wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16 {%x0, %x1, %x2, %x3}, " +
			"{%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, {%b0, %b1, %b2, %b3, %b4, %b5, %b6, %b7}, {%r4, %r4, %r4, %r4}; "
		stride    = "ld.shared.u32 %r3, [s+3072]; and.b32 %r3, %r3, 16; "
		tileStore = "wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [s+2048], {%x0, %x1, %x2, %x3}, 16; bar.sync 0; "
	)
	for _, c := range []struct {
		name, body, want string
	}{
		{"written words", own + "xor.b32 %r1, %r1, 4;" + load + store, ""},
		{"unwritten word", first8 + load + store,
			"thread (8,0,0) of block (0,0,0) reads offset 0x20 of shared memory, which no thread of the block has written, " +
				"and test.ptx:20 stores the value: want each element"},
		{"unwritten byte", "mov.u32 %r1, s; st.shared.u8 [%r1+62], %t; ld.shared.u16 %r3, [%r1+62]; add.u32 %r3, %r3, 1;" +
			store, "reads offset 0x3f of shared"},
		{"padding", "mov.u32 %r1, s; st.shared.u8 [%r1+62], %t; ld.shared.u16 %r3, [%r1+62];" + store, ""},
		{"bit field", "and.b32 %r3, %r4, -256; or.b32 %r3, %r3, 7; and.b32 %r3, %r3, 255;" + store, ""},
		{"another bit field", "and.b32 %r3, %r4, -256; or.b32 %r3, %r3, 7; bfe.u32 %r3, %r3, 8, 4; add.u32 %r3, %r3, 1;" +
			store, "reads register %r4"},
		{"shifted out", "shl.b32 %r3, %r4, 8; bfi.b32 %r3, %t, %r3, 0, 8; cvt.u32.u8 %r3, %r3;" + store, ""},
		{"parts of a register", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; mov.b32 {%h1, %h2}, %r3; " +
			"cvt.u32.u16 %r3, %h1;" + store, ""},
		{"other part of a register", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; mov.b32 {%h1, %h2}, %r3; " +
			"mul.wide.u16 %r3, %h2, 2;" + store, "reads register %h2"},
		{"only one part of a register", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; mov.b32 {%h1, _}, %r3; " +
			"mul.wide.u16 %r3, %h1, 2;" + store, ""},
		{"only the other part of a register", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; " +
			"mov.b32 {_, %h1}, %r3; mul.wide.u16 %r3, %h1, 2;" + store, "reads register %h2"},
		{"permuted bytes", "prmt.b32 %r3, %t, %r4, 0x7610; and.b32 %r3, %r3, 0xffff; add.u32 %r3, %r3, 1;" + store, ""},
		{"permuted sign", "prmt.b32 %r3, %t, %r4, 0xf210; shr.u32 %r3, %r3, 24; add.u32 %r3, %r3, 1;" + store,
			"reads register %r4"},
		{"masked by lop3", "lop3.b32 %r3, %r4, 0, %t, 0xea; add.u32 %r3, %r3, 1;" + store, ""},
		{"not masked by lop3", "lop3.b32 %r3, %r4, 1, %t, 0xea; add.u32 %r3, %r3, 1;" + store, "reads register %r4"},
		{"element of a pair", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; add.f16x2 %r3, %r3, %r3; " +
			"mov.b32 {%h1, %h2}, %r3; mul.wide.u16 %r3, %h1, 2;" + store, ""},
		{"other element of a pair", ".reg .b16 %h<3>; mov.b16 %h1, 7; mov.b32 %r3, {%h1, %h2}; add.f16x2 %r3, %r3, %r3; " +
			"mov.b32 {%h1, %h2}, %r3; mul.wide.u16 %r3, %h2, 2;" + store, "reads register %h2"},
		{"converted to a pair", ".reg .f32 %f<3>; .reg .b16 %h<3>; mov.f32 %f1, 0f3F800000; " +
			"cvt.rn.f16x2.f32 %r3, %f2, %f1; mov.b32 {%h1, %h2}, %r3; mul.wide.u16 %r3, %h1, 2;" + store, ""},
		{"byte in a word", "st.shared.u32 [%r1], %t; ld.shared.u8 %r3, [%r1+3];" + store, ""},
		{"branch on a register", "@!%q0 bra on; on: mov.u32 %r3, 0;" + store,
			"reads register %q0, which it has not written: want"},
		{"last element of a vector", "setp.lt.u32 %q0, %t, 3; @%q0 st.shared.u32 [%r1], %t; bar.sync 0; " +
			"ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s]; st.global.u32 [%d1], %r5;", "reads offset 0xc of shared"},
		{"other elements of a vector", "setp.lt.u32 %q0, %t, 3; @%q0 st.shared.u32 [%r1], %t; bar.sync 0; " +
			"ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [s]; st.global.u32 [%d1], %r4;", ""},
		{"asynchronous copy", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all;" + load + store, ""},
		{"atomic", "red.shared.add.u32 [%r1], 1;", "reads offset 0x0 of shared memory, which no " +
			"thread of the block has written: want"},
		{"unwritten global memory", "ld.global.u32 %r3, [%d1+1024];" + store, "neither the host nor a kernel has written"},
		{"register", "add.u32 %r3, %r4, 1;" + store,
			"reads register %r4, which it has not written, and test.ptx:18 stores"},
		{"stored register", "st.global.u32 [%d1], %r4;", "reads register %r4, which it has not written: want"},
		{"discarded sum", load + "add.u32 %r3, %r3, 1; mul.lo.u32 %r4, %r3, %r3;", ""},
		{"address", load + "and.b32 %r3, %r3, 252; cvt.u64.u32 %d2, %r3; add.s64 %d2, %d2, %p; st.global.u32 [%d2], 1;",
			"computes an address from the value"},
		{"branch", load + "setp.gt.u32 %q1, %r3, 5; @%q1 bra on; st.global.u32 [%d1], 1; on: mov.u32 %r4, 0;",
			"branches on the value"},
		{"guard of a store", load + "setp.gt.u32 %q1, %r3, 5; @%q1 st.global.u32 [%d1], 1;", "branches on the value"},
		{"guard of a move", load + "setp.gt.u32 %q1, %r3, 5; mov.u32 %r3, 0; @%q1 mov.u32 %r3, 1;" + store,
			"stores the value"},
		{"selected", first8 + load + "setp.lt.u32 %q1, %t, 9; selp.b32 %r3, %r3, 0, %q1;" + store, "thread (8,0,0)"},
		{"not selected", first8 + load + "selp.b32 %r3, %r3, 0, %q0;" + store, ""},
		{"and of false", first8 + load + "setp.gt.u32 %q1, %r3, 5; and.pred %q1, %q0, %q1; @%q1 st.global.u32 [%d1], 1;", ""},
		{"or of true", first8 + load + "setp.gt.u32 %q1, %r3, 5; setp.ge.u32 %q2, %t, 8; or.pred %q1, %q1, %q2; " +
			"@%q1 st.global.u32 [%d1], 1;", ""},
		{"comparison and false", first8 + load + "setp.gt.and.u32 %q1, %r3, 5, %q0; @%q1 st.global.u32 [%d1], 1;", ""},
		{"comparison or true", first8 + load + "setp.gt.or.u32 %q1, %r3, 5, !%q0; @%q1 st.global.u32 [%d1], 1;", ""},
		{"comparison or false", first8 + load + "setp.gt.or.u32 %q1, %r3, 5, %q0; @%q1 st.global.u32 [%d1], 1;", "branches"},
		{"false comparison and predicate", first8 + load + "setp.gt.u32 %q1, %r3, 5; setp.lt.and.u32 %q1, %t, 8, %q1; " +
			"@%q1 st.global.u32 [%d1], 1;", ""},
		{"masked bits", first8 + load + "selp.b32 %r4, -1, 0, %q0; and.b32 %r3, %r3, %r4;" + store, ""},
		{"through shared memory", load + "st.shared.u32 [%r1+1024], %r3; ld.shared.u32 %r4, [%r1+1024]; " +
			"st.global.u32 [%d1], %r4;", "test.ptx:18:1: ld.shared.u32: error"},
		{"replaced in shared memory", load + "st.shared.u32 [%r1+1024], %r3; st.shared.u32 [%r1+1024], %t; " +
			"ld.shared.u32 %r4, [%r1+1024]; st.global.u32 [%d1], %r4;", ""},
		{"local memory", ".local .b32 l[4]; st.local.u32 [l], %t; ld.local.u32 %r3, [l+4];" + store,
			"reads offset 0x4 of its local memory, which it has not written"},
		{"written local memory", ".local .b32 l[4]; st.local.u32 [l+4], %t; ld.local.u32 %r3, [l+4];" + store, ""},
		{"unused bytes of a load", `.local .b32 l[4]; .pragma "used_bytes_mask 0"; ld.local.u32 %r3, [l+4];` + store, ""},
		{"used byte of a load", `.local .b32 l[4]; .pragma "used_bytes_mask 2"; ld.local.v2.b32 {%r3, %r4}, [l]; ` +
			"shr.u32 %r3, %r3, 8; and.b32 %r3, %r3, 255; add.u32 %r3, %r3, 1;" + store, "reads offset 0x1 of its local memory"},
		{"unused element of a load", `.local .b32 l[4]; .pragma "used_bytes_mask 0x0f"; ` +
			"ld.local.v2.b32 {%r3, %r4}, [l]; st.global.u32 [%d1], %r4;", ""},
		{"bytes of the next load", `.local .b32 l[4]; .pragma "used_bytes_mask 0"; ld.local.u32 %r4, [l]; ` +
			"ld.local.u32 %r3, [l+4];" + store, "reads offset 0x4 of its local memory"},
		{"shuffle", load + "shfl.sync.idx.b32 %r3, %r3, 0, 31, -1;" + store, "reads offset 0x0 of shared"},
		{"shuffle of defined lanes", first8 + load + "shfl.sync.idx.b32 %r3, %r3, 7, 31, -1;" + store, ""},
		{"shuffle from an exited lane", "setp.ge.u32 %q0, %t, 20; @%q0 exit; shfl.sync.down.b32 %r3, %t, 4, 31, -1;" + store,
			"thread (16,0,0) of block (0,0,0) reads the value of lane 20, which does not take part in the instruction, and"},
		{"shuffle from a lane outside the mask", "setp.lt.u32 %q0, %t, 16; @!%q0 bra on; " +
			"shfl.sync.idx.b32 %r3, %t, 16, 31, 0xffff;" + store + "on: mov.u32 %r4, 0;", "reads the value of lane 16"},
		{"discarded shuffle", "setp.ge.u32 %q0, %t, 20; @%q0 exit; shfl.sync.down.b32 %r3, %t, 4, 31, -1; " +
			"setp.lt.u32 %q1, %t, 16; selp.b32 %r3, %r3, 0, %q1;" + store, ""},
		{"exchange as a store", "atom.shared.exch.b32 %r4, [%r1], %t;" + load + store, ""},
		{"old value of an exchange", "atom.shared.exch.b32 %r3, [%r1], %t;" + store, "reads offset 0x0 of shared"},
		{"unused copy of unwritten memory", "cp.async.ca.shared.global [%r1], [%d1+1024], 4; cp.async.wait_all;", ""},
		{"copy of unwritten memory", "cp.async.ca.shared.global [%r1], [%d1+1024], 4; cp.async.wait_all;" + load + store,
			"neither the host nor a kernel has written, and"},
		{"copy over unwritten memory", "cp.async.ca.shared.global [%r1], [%d1+1024], 4; cp.async.wait_all; " +
			"cp.async.ca.shared.global [%r1], [%d1], 4, 0; cp.async.wait_all;" + load + store, ""},
		{"rows of a matrix", matrix + "@%q0 " + store, ""},
		{"other rows of a matrix", matrix + store, "reads offset 0x40 of shared"},
		{"columns of a transposed matrix", matrix + transposed + evenPairs + store, ""},
		{"other columns of a transposed matrix", matrix + transposed + store, "reads offset 0x40 of shared"},
		{"rows of a stored matrix", matrix + "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r3}; bar.sync 0; " +
			"@%q0 " + load + "@%q0 " + store, ""},
		{"other rows of a stored matrix", matrix + "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r3}; bar.sync 0; " +
			load + store, "reads offset 0x40 of shared"},
		{"rows of a product", ofRows + "@%q0 st.global.u32 [%d1], %r4; st.global.u32 [%d1], %r5;", ""},
		{"other rows of a product", ofRows + "st.global.u32 [%d1], %r4;", "reads offset 0x40 of shared"},
		{"columns of a product", ofColumns + evenPairs + "st.global.u32 [%d1], %r5;", ""},
		{"other columns of a product", ofColumns + "st.global.u32 [%d1], %r5;", "reads offset 0x40 of shared"},
		{"elements of a sum", ofSums + "@%q0 st.global.u32 [%d1], %r4; st.global.u32 [%d1], %r5;", ""},
		{"other elements of a sum", ofSums + "st.global.u32 [%d1], %r4;", "reads offset 0x40 of shared"},
		{"rows of a tile", tiles + tileStore + "ld.shared.u32 %r3, [%r1+2048];" + store, ""},
		{"other rows of a tile", tiles + tileStore + "ld.shared.u32 %r3, [%r1+2304];" + store,
			"reads offset 0x100 of shared"},
		{"tile in global memory",
			tiles + "wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%p], {%x0, %x1, %x2, %x3}, 16;",
			"reads offset 0x100 of shared"},
		{"undefined stride of a loaded tile", tiles + stride +
			"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [s], %r3;",
			"reads offset 0xc00 of shared"},
		{"undefined stride of a stored tile", tiles + stride +
			"wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [s], {%x0, %x1, %x2, %x3}, %r3;",
			"reads offset 0xc00 of shared"},
		{"vote", load + "setp.gt.u32 %q1, %r3, 5; vote.sync.ballot.b32 %r3, %q1, -1;" + store, "stores the value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &program{
				text: strings.ReplaceAll(small(c.body), "; ", ";\n"), grid: emu.Dim3{X: 1, Y: 1, Z: 1},
				block: emu.Dim3{X: 32, Y: 1, Z: 1}, args: []any{make([]int32, 256)}, options: Options{Only: []Checker{Uninit}},
			}
			if strings.Contains(c.body, "[%d1+1024]") {
				p.args = []any{out(4096)}
			}
			r, _, err := p.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if (len(r.Findings) > 0) != (c.want != "") || !strings.Contains(r.String(), c.want) {
				t.Errorf("found %q, want %q", r, c.want)
			}
		})
	}
}

// TestUninitFindings checks that uses of two registers by one instruction are two findings.
func TestUninitFindings(t *testing.T) {
	f := newFake(t, Options{Only: []Checker{Uninit}}, 2, 64)
	b := f.block(0)
	for range 2 {
		for _, name := range []string{"%f1", "%f2"} {
			at := emu.Origin{Site: b.site("add"), Warp: 1, Mask: 0b100}
			b.hooks.Undefined(&emu.Undefined{Origin: at, Use: emu.UseStore, Cause: emu.Cause{Origin: at, Register: name}})
		}
	}
	b.hooks.End()
	r, got := f.report(nil)
	const says = "thread (34,0,0) reads register %f1"
	if s := strings.Join(got, ", "); s != "uninit add, uninit add" || !strings.Contains(r.String(), says) {
		t.Errorf("found %q\n%v", s, r)
	}
}
