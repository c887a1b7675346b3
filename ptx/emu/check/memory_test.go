package check

import (
	"context"
	"runtime"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// TestMemory runs a kernel that reads and writes each word of its memory, and checks that all
// checkers together need at most ten times that memory.
func TestMemory(t *testing.T) {
	const words = 1 << 22
	m, err := ptx.Parse("scale.ptx", small(`
	mad.lo.u32 %t, %c, 256, %t;
	mul.wide.u32 %d1, %t, 4;
	add.s64 %d1, %d1, %p;
	ld.global.u32 %r2, [%d1];
	add.u32 %r2, %r2, 1;
	st.global.u32 [%d1], %r2;
`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := emu.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	mem := emu.NewMemory(emu.MemoryOptions{TrackWrites: true})
	addr, err := mem.Alloc(4 * words)
	if err == nil {
		err = mem.Fill(addr, 0, 4*words)
	}
	if err != nil {
		t.Fatal(err)
	}
	params, err := p.Pack("k", addr)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	checks := New(Options{})
	stats, err := p.Run(context.Background(), mem, emu.Launch{
		Entry: "k", Grid: emu.Dim3{X: words / 256, Y: 1, Z: 1}, Block: emu.Dim3{X: 256, Y: 1, Z: 1}, Params: params,
		Workers: 1, Observers: []emu.Observer{checks},
	})
	if err != nil {
		t.Fatal(err)
	}
	used := heap() - before
	if r := checks.Report(p, stats, nil); len(r.Findings) > 0 {
		t.Errorf("found\n%v", r)
	}
	t.Logf("%d MiB for a kernel with %d MiB", used>>20, 4*words>>20)
	if used > 10*4*words {
		t.Errorf("the checkers keep %d bytes for a kernel with %d bytes, want at most ten times as many", used, 4*words)
	}
}

// heap returns the bytes of live objects.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
