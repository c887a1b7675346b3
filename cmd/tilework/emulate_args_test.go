package main

import (
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"tilework/internal/matio"
)

// arraysPTX has a kernel that adds s.step to the elements of a 64-bit array and stores their low
// halves, with the parameters x and s{u32 step; u16 *low}.
const arraysPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 x, .param .align 8 .b8 s[16])
{
	.reg .b32 %t, %step;
	.reg .b64 %x, %low, %v, %wide;
	.reg .b16 %h;
	ld.param.u64 %x, [x];
	ld.param.u32 %step, [s];
	ld.param.u64 %low, [s+8];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %x, %t, 8, %x;
	mad.wide.u32 %low, %t, 2, %low;
	ld.global.u64 %v, [%x];
	cvt.u64.u32 %wide, %step;
	add.u64 %v, %v, %wide;
	st.global.u64 [%x], %v;
	cvt.u16.u64 %h, %v;
	st.global.u16 [%low], %h;
	ret;
}
.visible .entry other() { ret; }
`

// TestEmulateArrays runs a kernel with an array of integers that it changes, and a structure with a
// pointer to an output.
func TestEmulateArrays(t *testing.T) {
	t.Chdir(t.TempDir())
	var data []byte
	for i := range uint64(5) {
		data = binary.LittleEndian.AppendUint64(data, 1<<40+i)
	}
	in := matio.Array{Type: "i8", Shape: []int{5}, Data: data}
	for name, content := range map[string]string{"k.ptx": arraysPTX, "in.npy": string(in.Encode())} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := "emulate k.ptx --entry add --block 5 --arg inout:in.npy:out.npy --arg struct:u32:7,out:u16:5:low.npy"
	stdout, stderr, code := run(t.Context(), strings.Fields(line)...)
	if code != 0 || !strings.Contains(stdout, "0 errors") {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	out, err := matio.ReadArray(t.Context(), "out.npy", matio.ReadOptions{})
	if err != nil || out.Type != "i8" || !slices.Equal(out.Shape, []int{5}) {
		t.Fatalf("out.npy is %+v, %v", out, err)
	}
	low, err := matio.ReadArray(t.Context(), "low.npy", matio.ReadOptions{})
	if err != nil || low.Type != "u2" || !slices.Equal(low.Shape, []int{5}) {
		t.Fatalf("low.npy is %+v, %v", low, err)
	}
	for i := range uint64(5) {
		sum, half := binary.LittleEndian.Uint64(out.Data[8*i:]), binary.LittleEndian.Uint16(low.Data[2*i:])
		if sum != 1<<40+i+7 || half != uint16(i+7) {
			t.Errorf("element %d is %d with the low half %d, want %d and %d", i, sum, half, 1<<40+i+7, i+7)
		}
	}
	// A structure of another size is refused.
	_, stderr, code = run(t.Context(), strings.Fields("emulate k.ptx --entry add --arg in.npy --arg struct:u32:7")...)
	if want := "parameter s is a structure or array of 16 bytes: want struct:FIELD,FIELD,… of 16 bytes"; code != 2 ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %q, want 2 and %q", code, stderr, want)
	}
	if stdout, _, _ := run(t.Context(), "__complete", "emulate", "k.ptx", "--entry", ""); !strings.HasPrefix(stdout,
		"add\nother\n") {
		t.Errorf("completion of --entry is %q", stdout)
	}
}
