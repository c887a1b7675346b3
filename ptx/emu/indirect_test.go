package emu

import (
	"errors"
	"strings"
	"testing"

	"tilework/ptx"
)

// indirectSource returns a module with functions, a table of their addresses and a kernel with the
// given body.
func indirectSource(body string) string {
	return strings.Replace(kernelSource(".reg .b32 %x, %i; .reg .b64 %f; .reg .pred %q;\n"+body), ".visible",
		`.func (.param .b32 r) twice(.param .b32 a);
.func (.param .b32 r) square(.param .b32 a) {
	.reg .b32 %x;
	ld.param.b32 %x, [a]; mul.lo.u32 %x, %x, %x; st.param.b32 [r], %x; ret;
}
.func (.param .b32 r) twice(.param .b32 a) {
	.reg .b32 %x;
	ld.param.b32 %x, [a]; add.u32 %x, %x, %x; st.param.b32 [r], %x; ret;
}
.func (.param .b32 r) unused(.param .b32 a) { tex.foo; ret; }
.func (.param .b64 r) other(.param .b32 a) { ret; }
.global .u64 table[4] = {twice, square, other, 0};
.visible`, 1)
}

// callTable calls the function whose index in the table is in %i.
const callTable = `mov.u64 %p, table; mad.wide.u32 %p, %i, 8, %p; ld.global.u64 %f, [%p];
	add.u32 %x, %t0, 1;
	{
	.param .b32 arg; .param .b32 res;
	st.param.b32 [arg], %x;
	proto: .callprototype (.param .b32 _) _ (.param .b32 _);
	call (res), %f, (arg), proto;
	ld.param.b32 %x, [res];
	}
	mad.wide.u32 %p, %t0, 4, %buf; st.global.u32 [%p], %x;`

// TestIndirectCall calls different functions in the lanes of a warp.
func TestIndirectCall(t *testing.T) {
	got, _, err := runModule(t, indirectSource("and.b32 %i, %t0, 1;"+callTable), make([]uint32, 64),
		Launch{Block: Dim3{64, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range got {
		n := uint32(k + 1)
		if want := choose(k%2 == 0, n+n, n*n); v != want {
			t.Errorf("thread %d computed %d, want %d", k, v, want)
		}
	}
	const listed = `mov.u64 %f, square; mov.u32 %x, 9; targets: .calltargets twice, square;
	@%q bra END; call.uni (%x), %f, (%x), targets; st.global.u32 [%buf], %x; END:`
	got, _, err = runModule(t, indirectSource("setp.ne.u32 %q, 0, 0;"+listed), make([]uint32, 1),
		Launch{Block: Dim3{1, 1, 1}})
	if err != nil || got[0] != 81 {
		t.Errorf("a call with .calltargets computed %d, %v; want 81", got[0], err)
	}
	for _, index := range []string{"2", "3"} { // another signature, and no function
		_, _, err = runModule(t, indirectSource("mov.u32 %i, "+index+";"+callTable), make([]uint32, 1),
			Launch{Block: Dim3{1, 1, 1}})
		if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "is not that of a function") {
			t.Errorf("function %s of the table: %v, want a misuse", index, err)
		}
	}
}

// TestIndirectCallRefused checks that a kernel is refused if it can call an unsupported function
// through its address.
func TestIndirectCallRefused(t *testing.T) {
	text := indirectSource("mov.u64 %f, unused; and.b32 %i, %t0, 1;" + callTable)
	m, err := ptx.Parse("k.ptx", text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = Load(m); !errors.Is(err, ptx.ErrUnsupported) || !strings.Contains(err.Error(), "function unused") {
		t.Errorf("got %v, want a refusal because of function unused", err)
	}
}

// TestIndexedBranch branches to different labels in the lanes of a warp.
func TestIndexedBranch(t *testing.T) {
	const body = `.reg .b32 %x, %i; .reg .pred %q;
	rem.u32 %i, %t0, 4; setp.lt.u32 %q, %i, 3;
	mov.u32 %x, 100;
	list: .branchtargets C, A, B;
	@%q brx.idx %i, list;
	add.u32 %x, %x, 1000;
A:	add.u32 %x, %x, 1;
	bra.uni END;
B:	add.u32 %x, %x, 10;
C:	add.u32 %x, %x, 5;
END:
	mad.wide.u32 %p, %t0, 4, %buf; st.global.u32 [%p], %x;`
	got, _, err := runBody(t, body, make([]uint32, 40), Launch{Block: Dim3{40, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range got {
		if want := []uint32{105, 101, 115, 1101}[k%4]; v != want {
			t.Errorf("thread %d computed %d, want %d", k, v, want)
		}
	}
	_, _, err = runBody(t, strings.Replace(body, "%i, 3;", "%i, 4;", 1), make([]uint32, 40), Launch{Block: Dim3{40, 1, 1}})
	if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "index is 3: want less than 3") {
		t.Errorf("got %v, want a misuse", err)
	}
}
