package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// body returns a module whose kernel declares some registers and executes stmts.
func body(stmts string) string {
	return header + `.global .align 16 .b8 memory[64]; .shared .b32 shared[4]; .const .f32 fixed = 1.0;
.global .texref image; .func (.param .b32 out) callee(.param .b32 in) { ret; }
.visible .entry kernel(.param .u64 p) {
.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .f64 %d<4>; .reg .u32 %u<4>; .reg .v2 .f32 pair;
` + stmts + `
ret; }`
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `k:1:1: found the end of the text, want ".version"`},
		{".version 8", `k:1:10: found version "8", want one such as 8.0`},
		{".version 8.0 .target gfx90", `k:1:22: found target "gfx90", want one such as sm_80`},
		{".version 8.0\n.target sm_80\n.address_size 16", `k:3:15: found address size 16, want 32 or 64`},
		{header + "foo", `k:4:1: found "foo", want a declaration such as .entry`},
		{header + ".global .q32 x;", `k:4:9: found ".q32", want a type that variables can have`},
		{header + ".global .u32 ;", `k:4:14: found ";", want a name`},
		{header + ".global .u32 _;", `k:4:14: found "_", want a name`},
		{header + ".global .texref t = {width = };", `k:4:30: found "}", want a value`},
		{header + ".global .align 3 .u32 x;", `k:4:16: found alignment 3, want a power of two`},
		{header + ".global .u32 x[2;", `k:4:17: found ";", want "]"`},
		{header + ".reg .b32 %r<0>;", `k:4:14: found %r<0>, want a count of at least 1`},
		{header + ".entry k() { add.u32 a b; }", `k:4:24: found "b", want "," or ";"`},
		{header + ".entry k() { @p.x ret; }", `k:4:16: found ".x", want an instruction`},
		{header + ".entry k() { ld.u32 a, [b.x]; }", `k:4:26: found ".x", want "]"`},
		{header + ".entry k() { mov.u32 a, b.x+4; }", `k:4:28: found "+", want "," or ";"`},
		{header + ".entry k() { add.u32 a, ; }", `k:4:25: found ";", want an operand`},
		{header + ".entry k() { ld.u32 a, [b; }", `k:4:26: found ";", want "]"`},
		{header + ".entry k() { mov.u32 a, 12abc; }", `k:4:25: found "12abc", want a number of at most 64 bits`},
		{header + ".entry k() { mov.u32 a, 99999999999999999999; }",
			`k:4:25: found "99999999999999999999", want a number of at most 64 bits`},
		{header + ".entry k() { mov.u32 a, 0o17; }", `k:4:25: found "0o17", want a number of at most 64 bits`},
		{header + ".entry k() .maxntid 1_0 { ret; }", `k:4:21: found "1_0", want a number`},
		{header + ".entry k() .maxntid 16UU { ret; }", `k:4:21: found "16UU", want a number`},
		{header + ".entry k() { mov.u32 %, 1; }", `k:4:22: found "%", want an operand`},
		{header + ".entry k() { .extern .shared .b8 x[]; }", `k:4:14: found ".extern", want a state space such as .global`},
		{header + ".global .u32 $;", `k:4:14: found "$", want a name`},
		{header + ".entry k() { mov.f32 a, 0f12; }", `k:4:25: found "0f12", want a number of at most 64 bits`},
		{header + ".entry k() { ret;", `k:4:18: found the end of the text, want "}"`},
		{header + "/* no end",
			`k:4:10: found an unterminated comment that starts at line 4, want a declaration such as .entry`},
		{header + ".pragma \"no end\n;", `k:4:9: found an unterminated string, want a string`},
		{header + ".entry k() { \x01 }", `k:4:14: found a byte 0x01, want a statement`},
		{header + ".entry k() { ts: .branchtargets a b; }", `k:4:35: found "b", want ";"`},
		{header + ".entry k() { pr: .callprototype (.param .b32 _); }", `k:4:48: found ";", want a name or _`},
		{header + ".entry k() { ld.u32 a, [b+0f00000000]; }", `k:4:27: found offset 0f00000000, want an integer below 1<<63`},
		{header + ".global .u32 x = " + strings.Repeat("{", 70), `k:4:83: initializers are nested more than 64 deep`},
		{header + ".entry k() " + strings.Repeat("{", 70), `k:4:76: blocks are nested more than 64 deep`},
		{"// a kernel\n#include <cuda.h>\nint i;", `k:2:1: this is CUDA C: want PTX, such as that of nvcc -ptx`},
		{"__global__ void f(float *a) { *a = 0; }", `k:1:1: this is CUDA C: want PTX, such as that of nvcc -ptx`},
		{"\n/* */ extern \"C\" __global__ void f() {}", `k:2:7: this is CUDA C: want PTX, such as that of nvcc -ptx`},
		{"static __device__ int a;", `k:1:1: this is CUDA C: want PTX, such as that of nvcc -ptx`},
		{"\x7fELF\x02__global__", `k:1:1: this is machine code: want PTX, such as that of nvcc -ptx`},
	} {
		_, err := Parse("k", c.text)
		if err == nil {
			t.Errorf("%q: parsed, want %s", c.text, c.want)
		} else if first, _, _ := strings.Cut(err.Error(), "\n"); first != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, first, c.want)
		} else if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: error %v, want one that wraps ErrSyntax or ErrUnsupported", c.text, err)
		}
	}
}

func TestParseGathersErrors(t *testing.T) {
	_, err := Parse("k", header+".entry k() {\nadd.u32 a b;\nret;\nmov.u32 ,;\n}\n.global .u33 x;\n.global .u32 y;")
	var all Errors
	if !errors.As(err, &all) || len(all) != 3 || all[0].Pos.Line != 5 || all[1].Pos.Line != 7 || all[2].Pos.Line != 9 {
		t.Errorf("got %v, want errors in lines 5, 7 and 9", err)
	}
	for _, count := range []int{maxErrors, maxErrors + 1, 100} {
		_, err = Parse("k", header+".entry k() {\n"+strings.Repeat("add.u32 a b;\n", count)+"}")
		if !errors.As(err, &all) || len(all) != maxErrors {
			t.Errorf("%d errors: got %d, want %d", count, len(all), maxErrors)
		} else if got, want := all[maxErrors-1].Truncated, count > maxErrors; got != want {
			t.Errorf("%d errors: truncated = %t, want %t", count, got, want)
		}
	}
}

func TestVerifyErrors(t *testing.T) {
	for _, c := range []struct {
		stmts, want string
		kind        error
	}{
		{"add.u32 %r1, %r2, %x;", "add.u32: %x is not declared", ErrInvalid},
		{"add.u32 %r1, %r2, %r9;", "add.u32: %r9 is not declared", ErrInvalid},
		{"add.u32 %r1, %r2, %r01;", "add.u32: %r01 is not declared", ErrInvalid},
		{"frob.u32 %r1;", `frob.u32: instruction "frob" is not supported`, ErrUnsupported},
		{"tex.2d.v4.f32.s32 {%f1, %f1, %f1, %f1}, [%r1];", `tex.2d.v4.f32.s32: instruction "tex" is not supported (textures)`,
			ErrUnsupported},
		{"tex.2d.v4.f32.s32 {%f1, %f1, %f1, %f1}|%p1, [image, sampler, {%r1, %r2}];",
			`tex.2d.v4.f32.s32: instruction "tex" is not supported (textures)`, ErrUnsupported},
		{"mov.u64 %rd1, image;", "mov.u64: variables of type .texref (image) are not supported", ErrUnsupported},
		{".shared .surfref x;", "x: a variable of type .surfref is in .shared, want .global", ErrInvalid},
		{"brx.idx %r1, ts;", "brx.idx: ts is not declared", ErrInvalid},
		{"ts: .branchtargets A, %r1; A:", "ts: %r1 is not a label", ErrInvalid},
		{"ts: .calltargets callee; brx.idx %r1, ts;", "brx.idx: ts lists other targets than those of this instruction",
			ErrInvalid},
		{"call (%r1), %rd1, (%r2), proto;", "call: proto is not declared", ErrInvalid},
		{"pr: .callprototype _ (.param .b32 _); call (%r1), %rd1, (%r2), pr;", "call: 1 results for pr, want 0", ErrInvalid},
		{"ts: .calltargets callee; call (%r1), %rd1, ts;", "call: 0 arguments for callee, want 1", ErrInvalid},
		{"mov.u32 %r1, callee;", "mov.u32: operand a: the address of function callee has 64 bits, want 32", ErrInvalid},
		{"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %r1, 0, 1, 1, 1, 0, 0;",
			"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16: modifier .sp is not supported (sparse matrices): the " +
				"nearest supported instruction is wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
			ErrUnsupported},
		{"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1}, {%r1, %r1}, " +
			"{%f1, %f1, %f1, %f1}, %r1, 4;",
			"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: operand sel is 4, want 0 to 3", ErrInvalid},
		{"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0 {%f1, %f1, %f1, %f1}, " +
			"{%r1, %r1, %r1, %r1}, {%r1, %r1}, {%f1, %f1, %f1, %f1}, %r1, {0, 2}, %r2, {2, 3};",
			"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0: operand part-a is 2, " +
				"want 0 to 1", ErrInvalid},
		{"cvt.rs.satfinite.e2m1x4.f32 %h1, {%f1, %f2, %f3, %f4}, %r1;",
			"cvt.rs.satfinite.e2m1x4.f32: modifier .rs is not supported (stochastic rounding): the nearest " +
				"supported instruction is cvt.rn.satfinite.f16.f32", ErrUnsupported},
		{"vabsdiff4.u32.u32.u32 %r1, %r2.b7831, %r3, %r4;",
			"vabsdiff4.u32.u32.u32: operand a: .b7831 does not select parts of %r2", ErrInvalid},
		{"vadd.u32.u32.u32 %r1.b0, %r2, %r3;", "vadd.u32.u32.u32: operand d: %r1 has no member .b0", ErrInvalid},
		{"add.u32 %r1, -%r2, %r3;", "add.u32: operand 2 is a negated register: want a register or a number", ErrInvalid},
		{"vabsdiff4.u32.u32.u32 %r1, %r2, %r3, 0;", "vabsdiff4.u32.u32.u32: operand c is 0, want a register", ErrInvalid},
		{"add.q32 %r1, %r2, %r3;",
			"add.q32: modifier .q32 is not allowed: the nearest supported instruction is add.u32", ErrInvalid},
		{"ld.u32.global.weak %r1, %r2;", "ld.u32.global.weak: operand 2 is %r2: want an address in brackets", ErrInvalid},
		{"cp.group.async [%r1];", "cp.group.async: modifier .group is not allowed: the nearest supported instruction is " +
			"cp.async.commit_group", ErrInvalid},
		{"mbarrier.b64.shared.init [%r1], 1;", "mbarrier.b64.shared.init: the modifiers are in the wrong order: the " +
			"nearest supported instruction is mbarrier.init.shared.b64", ErrInvalid},
		{"add.rn.u32 %r1, %r2, %r3;",
			"add.rn.u32: modifier .rn is not allowed: the nearest supported instruction is add.u32", ErrInvalid},
		{"add %r1, %r2, %r3;", "add: a modifier is missing: the nearest supported instruction is add.u16", ErrInvalid},
		{"add.u32 %r1, %r2;",
			"add.u32: found 2 operands: want 3 (a register, a register or a number, a register or a number)", ErrInvalid},
		{"add.u32 5, %r2, %r3;", "add.u32: operand 1 is a number: want a register", ErrInvalid},
		{"add.u32 _, %r2, %r3;", "add.u32: operand 1 is _: want a register", ErrInvalid},
		{"add.u32 %r1, [%rd1], %r3;", "add.u32: operand 2 is an address: want a register or a number", ErrInvalid},
		{"add.u32 %r1, %f2, %r3;", "add.u32: operand a: %f2 is of type .f32, want .u32", ErrInvalid},
		{"add.f32 %f1, %f2, %u1;", "add.f32: operand b: %u1 is of type .u32, want .f32", ErrInvalid},
		{"add.u32 %r1, %rd2, %r3;", "add.u32: operand a: %rd2 is of type .b64, want .u32", ErrInvalid},
		{"add.u32 %r1, %p2, %r3;", "add.u32: operand a: %p2 is of type .pred, want .u32", ErrInvalid},
		{"mul.wide.s32 %r1, %r2, %r3;", "mul.wide.s32: operand d: %r1 is of type .b32, want .s64", ErrInvalid},
		{"shl.b64 %rd1, %rd2, %rd3;", "shl.b64: operand b: %rd3 is of type .b64, want .u32", ErrInvalid},
		{"add.u32 %r1, %tid.x, %r3;", "add.u32: operand a: %tid is a special register, which only mov and cvt can read",
			ErrInvalid},
		{"mov.u32 %tid.x, %r3;", "mov.u32: operand d: %tid is a special register, which only mov and cvt can read",
			ErrInvalid},
		{"mov.u32 %r1, %tid.q;", "mov.u32: operand a: %tid has no member .q", ErrInvalid},
		{"mov.u32 %r1, %tid;", "mov.u32: operand a: %tid has 4 elements, want 1", ErrInvalid},
		{"add.f32 %f1, pair, %f2;", "add.f32: operand a: pair has 2 elements, want 1", ErrInvalid},
		{"add.f32 %f1, pair.z, %f2;", "add.f32: operand a: pair has no member .z", ErrInvalid},
		{".shared .v2 .f32 two; mov.u64 %rd1, two.x;", "mov.u64: operand a: two has no member .x", ErrInvalid},
		{"bra L.x; L:", "bra: L is a label, which has no member .x", ErrInvalid},
		{"call (%r1), callee.x, (%r2);", "call: callee is a function, which has no member .x", ErrInvalid},
		{"mov.b64 %rd1, {shared+4, %r1};", "mov.b64: operand a: shared is a variable in .shared, want a register",
			ErrInvalid},
		{"ld.global.v2.u32 {shared+4, %r1}, [%rd1];",
			"ld.global.v2.u32: operand d: shared is a variable in .shared, want a register", ErrInvalid},
		{"setp.eq.u32 %p1|shared+4, %r1, %r2;",
			"setp.eq.u32: operand d: shared is a variable in .shared, want a register", ErrInvalid},
		{"call (shared+4), callee, (%r1);", "call: operand results: shared is a variable in .shared, want a register",
			ErrInvalid},
		{"cvta.shared.u64 %rd1, memory+4;", "cvta.shared.u64: operand a: memory is in .global, want a variable in .shared",
			ErrInvalid},
		{"add.u16 %h1, %h2, 65536;", "add.u16: operand b: 65536 does not fit in 16 bits", ErrInvalid},
		{"add.u32 %r1, %r2, -2147483649;", "add.u32: operand b: -2147483649 does not fit in 32 bits", ErrInvalid},
		{"add.u32 %r1, %r2, 0f3F800000;", "add.u32: operand b: 0f3F800000 is not a value of type .u32", ErrInvalid},
		{"add.f32 %f1, %f2, 1;", "add.f32: operand b: 1 is not a value of type .f32", ErrInvalid},
		{"lop3.b32 %r1, %r2, %r3, %r4, 256;", "lop3.b32: operand lut is 256, want 0 to 255", ErrInvalid},
		{"lop3.b32 %r1, %r2, %r3, %r4, %r5;", "lop3.b32: operand 5 is %r5: want a number (0 to 255)",
			ErrInvalid},
		{"setmaxnreg.inc.sync.aligned.u32 28;", "setmaxnreg.inc.sync.aligned.u32: operand n is 28, want a multiple of 8 " +
			"from 24 to 256", ErrInvalid},
		{"cp.async.ca.shared.global [%r1], [%rd1], 5;", "cp.async.ca.shared.global: operand size is 5, want 4 or 8 or 16",
			ErrInvalid},
		{"bar.sync 16;", "bar.sync: operand a is 16, want 0 to 15", ErrInvalid},
		{"@%r1 ret;", "ret: guard %r1 is a register of type .b32, want a predicate", ErrInvalid},
		{"bra nowhere;", "bra: nowhere is not declared", ErrInvalid},
		{"bra %r1;", "bra: %r1 is a register of type .b32, want a label", ErrInvalid},
		{"{ inside: } bra inside;", "bra: inside is not declared", ErrInvalid},
		{"L: L: ret;", "L is already declared, as a label", ErrInvalid},
		{".reg .u32 %r3;", "%r3 is already declared, as a register", ErrInvalid},
		{".reg .u32 %r<3>;", "%r<3>: a range with this prefix is already declared", ErrInvalid},
		{".reg .u32 %tid;", "%tid is the name of a special register", ErrInvalid},
		{"ld.global.u32 %r1, [%r2];", "ld.global.u32: operand a: %r2 is a register of type .b32, want a 64-bit integer",
			ErrInvalid},
		{"ld.global.u32 %r1, [shared];", "ld.global.u32: operand a: shared is in .shared, want a variable in .global",
			ErrInvalid},
		{"st.shared.u32 [memory], %r1;", "st.shared.u32: operand a: memory is in .global, want a variable in .shared",
			ErrInvalid},
		{"ld.u32 %r1, [p];", "ld.u32: operand a: p is in .param, want a variable in .generic", ErrInvalid},
		{"ld.global.u32 %r1, [16];", "ld.global.u32: operand a: a constant address is allowed only in .local, not in .global",
			ErrInvalid},
		{"ld.global.u32 %r1, [%rd1+4294967296];", "ld.global.u32: operand a: offset 4294967296 does not fit in 32 bits",
			ErrInvalid},
		{"ld.shared.L2::128B.u32 %r1, [%r2];", "ld.shared.L2::128B.u32: modifier .L2::128B requires .global, not .shared",
			ErrInvalid},
		{"ld.v4.f64 {%d1, %d2, %d3, %d1}, [%rd1];", "ld.v4.f64: a vector of 4 f64 is larger than 128 bits", ErrInvalid},
		{"ld.v4.f32 {%f1, %f2}, [%rd1];", "ld.v4.f32: operand 1 is a vector of 2: want a vector of 4 registers", ErrInvalid},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f1, %f1, %f1}, {%r1, %r1, %r1}, {%r1, %r1}, {%f1, %f1, " +
			"%f1, %f1};",
			"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32: operand 2 is a vector of 3: want a vector of 4 registers",
			ErrInvalid},
		{"call callee, (%r1);", "call: 0 results for callee, want 1", ErrInvalid},
		{"call (%r1), callee, (%r1, %r2);", "call: 2 arguments for callee, want 1", ErrInvalid},
		{"call (%r1), callee, (%rd1);", "call: operand arguments: %rd1 is of type .b64, want .b32", ErrInvalid},
		{"call kernel, (%rd1);", "call: kernel is an .entry, want a .func", ErrInvalid},
		{".shared .pred x;", "x: a predicate is declared in .shared, want .reg", ErrInvalid},
		{".local .b32 x<3>;", "x: <3> is valid only for registers", ErrInvalid},
		{".shared .b32 x = 5;", "x: an initialized variable is in .shared, want .global or .const", ErrInvalid},
		{".local .v4 .f64 x;", "x: a vector of 4 f64 is larger than 128 bits", ErrInvalid},
		{".local .b32 x[];", "x: an array without a length must be .extern or initialized", ErrInvalid},
		{".const .b32 x;", "x: a variable in .const is declared inside a function, want it outside", ErrInvalid},
	} {
		m, err := Parse("k", body(c.stmts))
		if err != nil {
			t.Errorf("%s: %v", c.stmts, err)
			continue
		}
		err = Verify(m)
		if err == nil {
			t.Errorf("%s: verified, want %s", c.stmts, c.want)
			continue
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		_, msg, _ := strings.Cut(first, ": ")
		if msg != c.want || !strings.HasPrefix(first, "k:8:") && !strings.HasPrefix(first, "k:7:") ||
			!errors.Is(err, c.kind) {
			t.Errorf("%s:\n got %s\nwant k:7:…: %s", c.stmts, first, c.want)
		}
	}
}

// TestErrorsPerFunction checks that errors name their function, that the errors of one function do
// not hide those of the next, that equal ones share a line, and that functions without errors are
// bound.
func TestErrorsPerFunction(t *testing.T) {
	m, err := Parse("k", header+`.global .texref image = {width = 64, addr_mode_0 = wrap};
.entry a(.param .texref t) { ret; }
.entry b() { .reg .b32 %r; `+strings.Repeat("frob.b32 %r;\n", 2*maxErrors)+`}
.entry c() { .reg .f32 %f; tex.1d.v4.f32.f32 {%f, %f, %f, %f}, [image, {%f}]; }
.entry d() { ret; }`)
	if err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, m)
	err = Verify(m)
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want errors", err)
	}
	found := map[string]int{}
	for _, e := range all {
		found[e.Func.Name]++
	}
	if found["a"] != 1 || found["b"] != maxErrors || found["c"] != 1 || found["d"] != 0 {
		t.Errorf("errors per function: %v", found)
	}
	if text := err.Error(); strings.Count(text, "\n") != 3 ||
		!strings.Contains(text, `instruction "frob" is not supported (and 19 more)`) {
		t.Errorf("got %s, want a line for each function and the limit", text)
	}
	if i := m.Funcs()[3].Body.Stmts[0].(*Instr); i.Form == nil {
		t.Errorf("%v of the valid kernel is not bound", i)
	}
}

// TestTruncated checks that Verify marks its last error if it leaves errors out, and only then.
func TestTruncated(t *testing.T) {
	for _, count := range []int{1, maxErrors, maxErrors + 1} {
		m, err := Parse("k", header+".entry k() { "+strings.Repeat("frob.b32 1;\n", count)+"}")
		if err != nil {
			t.Fatal(err)
		}
		var all Errors
		errors.As(Verify(m), &all)
		if len(all) != min(count, maxErrors) {
			t.Fatalf("%d errors: got %d, want %d", count, len(all), min(count, maxErrors))
		}
		for n, e := range all {
			if want := count > maxErrors && n == maxErrors-1; e.Truncated != want {
				t.Errorf("%d errors: truncated = %t of error %d, want %t", count, e.Truncated, n, want)
			}
		}
	}
}

// TestErrorLines checks the last line of messages about many errors.
func TestErrorLines(t *testing.T) {
	for _, c := range []struct {
		functions, errors int // errors per function
		truncated         bool
		lines             int
		last              string
	}{
		{2, maxErrors / 2, false, 20, "error 9 of function 1"},
		{3, maxErrors / 2, false, 21, "and 10 more"},
		{3, maxErrors / 2, true, 22, "further errors are not listed"},
		{1, maxErrors, false, 20, "error 19 of function 0"},
		{1, maxErrors, true, 21, "further errors are not listed"},
	} {
		var all Errors
		for f := range c.functions {
			fn := &Func{}
			for e := range c.errors {
				all = append(all, &Error{Msg: fmt.Sprintf("error %d of function %d", e, f), Func: fn})
				all[len(all)-1].Truncated = c.truncated && e == c.errors-1
			}
		}
		lines := strings.Split(all.Error(), "\n")
		if last := lines[len(lines)-1]; len(lines) != c.lines || last != c.last {
			t.Errorf("%d functions with %d errors: %d lines, the last %q; want %d and %q", c.functions, c.errors,
				len(lines), last, c.lines, c.last)
		}
	}
}

// TestMembers checks members where Parse accepts none: of a guard and of the base of an address.
func TestMembers(t *testing.T) {
	for _, c := range []struct {
		change func(*Instr)
		want   string
	}{
		{func(i *Instr) { i.Guard.Pred.Member = "z" }, "ld.global.u32: guard %p1 has no member .z"},
		{func(i *Instr) { i.Args[1].(*Addr).Base.(*Name).Member = "q" },
			"ld.global.u32: operand a: the base of the address is %rd1.q, want %rd1 without a member"},
	} {
		m, err := Parse("k", body("@%p1 ld.global.u32 %r1, [%rd1];"))
		if err != nil {
			t.Fatal(err)
		}
		m.Funcs()[1].Body.Walk(func(s Stmt) {
			if i, ok := s.(*Instr); ok && i.Op == "ld" {
				c.change(i)
			}
		})
		if all, _ := Verify(m).(Errors); len(all) != 1 || all[0].Msg != c.want {
			t.Errorf("got %v, want %s", all, c.want)
		}
	}
}

func TestVerifyTarget(t *testing.T) {
	for _, c := range []struct{ version, target, stmt, want string }{
		{"7.0", "sm_90a", "ret;", "target sm_90a requires .version 8.0, the module has 7.0"},
		{"8.0", "sm_33", "ret;", "target sm_33 is not supported"},
		{"8.0", "sm_90", "wgmma.fence.sync.aligned;",
			"wgmma.fence.sync.aligned: requires .target sm_90a, the module has sm_90"},
		{"8.6", "sm_100a", "wgmma.fence.sync.aligned;",
			"wgmma.fence.sync.aligned: requires .target sm_90a, the module has sm_100a"},
		{"7.8", "sm_75", "cp.async.commit_group;", "cp.async.commit_group: requires .target sm_80, the module has sm_75"},
		{"7.8", "sm_90", "elect.sync %r|%p, -1;", "elect.sync: requires .version 8.0, the module has 7.8"},
		{"7.3", "sm_80", "ld.global.L2::128B.u32 %r, [%rd];",
			"ld.global.L2::128B.u32: requires .version 7.4, the module has 7.3"},
		{"7.8", "sm_80", "mov.u32 %r, %cluster_ctarank;", "mov.u32: requires .target sm_90, the module has sm_80"},
		{"8.0", "sm_80", ".reg .b128 %q;", "type .b128: requires .version 8.3, the module has 8.0"},
	} {
		text := ".version " + c.version + " .target " + c.target +
			" .address_size 64\n.entry k() { .reg .b32 %r; .reg .b64 %rd; .reg .pred %p;\n" + c.stmt + "\nret; }"
		m, err := Parse("k", text)
		if err != nil {
			t.Errorf("%s: %v", c.stmt, err)
			continue
		}
		err = Verify(m)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.stmt, err, c.want)
		}
	}
}

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		stmts string
		want  Need
	}{
		{"ret; } .global .f16x2 x; .entry l() {", need("4.2", "sm_53")},
		{"ret; } .func f(.reg .f16x2 x) {", need("4.2", "sm_53")},
		{"ret;", need("2.3", "sm_20")},
		{"bar.sync 0;", need("2.3", "sm_20")},
		{"cp.async.commit_group;", need("7.0", "sm_80")},
		{"cp.async.commit_group; fence.acq_rel.cluster;", need("7.8", "sm_90")},
		{"mov.u32 %r, %cluster_ctarank;", need("7.8", "sm_90")},
		{"wgmma.fence.sync.aligned; barrier.cluster.wait;", need("8.0", "sm_90a")},
	} {
		m, err := Parse("k", header+".entry k() { .reg .b32 %r; "+c.stmts+" }")
		if err == nil {
			err = Verify(m)
		}
		if err != nil {
			t.Errorf("%s: %v", c.stmts, err)
			continue
		}
		if got := m.Need(); got != c.want {
			t.Errorf("%s: needs %v, want %v", c.stmts, got, c.want)
		}
	}
}
