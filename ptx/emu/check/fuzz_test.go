package check

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// FuzzRun checks that the emulator and the checkers terminate for any PTX, with a result or an
// error. Input that is not a module becomes the body of a kernel with registers of each kind and
// some memory.
func FuzzRun(f *testing.F) {
	for _, file := range []string{"naive", "tiled"} {
		text, err := os.ReadFile("../../../internal/gpu/testdata/" + file + ".ptx")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), uint64(1))
	}
	for _, body := range []string{
		"ld.global.f32 %f0, [%rd0]; st.shared.f32 [s], %f0; bar.sync 0; ld.shared.f32 %f1, [s+4]; st.global.f32 [%rd0+8], " +
			"%f1;",
		"mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 7; @%p0 bra A; bar.sync 0; A: ret;",
		"cp.async.ca.shared.global [s], [%rd0], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;",
		"mbarrier.init.shared.b64 [s], 64; W: mbarrier.try_wait.parity.shared.b64 %p0, [s], 0; @!%p0 bra W;",
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, " +
			"%f1, %f2, %f3};",
		"atom.global.add.u32 %r0, [%rd0], 1; shfl.sync.bfly.b32 %r1|%p0, %r0, 1, 31, -1; vote.sync.ballot.b32 %r2, %p0, " +
			"-1; div.s32 %r3, %r1, %r2;",
		"L: bra L;",
	} {
		f.Add(body, uint64(2))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		if !strings.HasPrefix(text, ".version") {
			text = `.version 8.8
.target sm_90a
.address_size 64
.visible .entry k (.param .u64 buf, .param .u32 n)
{
	.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .f64 %d<4>;
	.shared .align 128 .b8 s[1024];
	ld.param.u64 %rd0, [buf];
` + text + "\n}\n"
		}
		m, err := ptx.Parse("fuzzed.ptx", text)
		if err != nil {
			return
		}
		p, err := emu.Load(m)
		if err != nil || len(p.Entries()) == 0 {
			return
		}
		mem := emu.NewMemory(emu.MemoryOptions{Limit: 1 << 20, TrackWrites: true})
		buf, err := mem.Alloc(4096)
		if err != nil {
			t.Fatal(err)
		}
		l := emu.Launch{
			Entry: p.Entries()[0], Grid: emu.Dim3{X: 2, Y: 1, Z: 1}, Block: emu.Dim3{X: 40, Y: 1, Z: 1},
			Shared: 1024, Seed: seed, MaxInstructions: 2000, Workers: 1,
		}
		size, ld := uint32(5), uint64(8)
		for _, args := range [][]any{
			{buf, size}, {}, {buf}, {buf, buf, buf, size, size, size},
			{size, size, size, buf, ld, buf + 1024, ld, buf + 2048, ld, float32(1), float32(0),
				uint32(0)}, // parameters of the seeds
		} {
			if l.Params, err = p.Pack(l.Entry, args...); err == nil {
				break
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		checks := New(Options{})
		l.Observers = []emu.Observer{checks}
		stats, err := p.Run(ctx, mem, l)
		if errors.Is(err, emu.ErrLaunch) { // the seeds require 16×16
			l.Block = emu.Dim3{X: 16, Y: 16, Z: 1}
			stats, err = p.Run(ctx, mem, l)
		}
		if ctx.Err() != nil {
			t.Fatalf("%d instructions of at most %d took 10 s: %v", stats.Instructions, l.MaxInstructions, err)
		}
		_ = checks.Report(p, stats, err).String()
	})
}
