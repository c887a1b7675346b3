package emu

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tilework/ptx"
)

// TestManyGlobals loads a module with thousands of variables, in less than 100 ms by the fastest of
// several attempts.
func TestManyGlobals(t *testing.T) {
	const count = 5000
	var text strings.Builder
	text.WriteString(".version 8.0\n.target sm_80\n.address_size 64\n")
	for n := range count {
		fmt.Fprintf(&text, ".global .align 4 .u32 g%d[4] = {%d, 1, 2, 3};\n", n, n)
	}
	text.WriteString(".visible .entry k()\n{\n\t.reg .b32 %r;\n\tld.global.u32 %r, [g7];\n" +
		"\tst.global.u32 [g7+4], %r;\n\tret;\n}\n")
	best := time.Hour
	for range 5 {
		start := time.Now()
		m, err := ptx.Parse("globals.ptx", text.String())
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
		best = min(best, time.Since(start))
		addr, _, err := mem.Global(p, "g7")
		if err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		if err := mem.Read(addr, b[:]); err != nil || b[4] != 7 {
			t.Fatalf("g7 is %v (%v), want 7 in its second element", b, err)
		}
	}
	t.Logf("%d variables in %v", count, best)
	if best > 100*time.Millisecond && !testing.Short() { // -short is for slow runs
		t.Errorf("a module with %d variables took %v, want at most 100 ms", count, best)
	}
}
