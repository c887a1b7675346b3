package emu

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/ptx"
)

// TestManyGlobals loads modules with up to thousands of variables, and runs a kernel. The memory
// that this takes must grow with the number of variables.
func TestManyGlobals(t *testing.T) {
	module := func(count int) string {
		var text strings.Builder
		text.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
		for n := range count {
			fmt.Fprintf(&text, ".global .align 4 .u32 g%d[4] = {%d, 1, 2, 3};\n", n, n)
		}
		text.WriteString(".visible .entry k()\n{\n\t.reg .b32 %r;\n\tld.global.u32 %r, [g7];\n" +
			"\tst.global.u32 [g7+4], %r;\n\tret;\n}\n")
		return text.String()
	}
	run := func(text string) {
		m, err := ptx.Parse("globals.ptx", text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Load(m)
		if err != nil {
			t.Fatal(err)
		}
		mem := NewMemory(MemoryOptions{})
		_, err = p.Run(context.Background(), mem, Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{1, 1, 1}})
		if err != nil {
			t.Fatal(err)
		}
		addr, _, err := mem.Global(p, "g7")
		if err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		if err := mem.Read(addr, b[:]); err != nil || b[4] != 7 {
			t.Fatalf("g7 is %v (%v), want 7 in its second element", b, err)
		}
	}
	testkit.CheckLinear(t, "variables", []int{1250, 2500, 5000}, 200, module, func(text string) uint64 {
		return testkit.Allocated(func() { run(text) })
	})
}
