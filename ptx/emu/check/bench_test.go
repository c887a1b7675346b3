package check

import (
	"context"
	"os"
	"strings"
	"testing"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// benchmarkKernel runs one of nvcc's kernels for an n×n matrix product on one worker, without
// checkers and with different checkers. The ratio of the times is the cost of checking, which
// must stay below 4 for all checkers together, and below 10 for a kernel without its barriers.
func benchmarkKernel(b *testing.B, entry string, n int, racy bool) {
	raw, err := os.ReadFile("../../testdata/nvcc/matmul.sm_80.O3.ptx")
	if err != nil {
		b.Fatal(err)
	}
	text := string(raw)
	if racy {
		text = strings.ReplaceAll(text, "bar.sync", "// bar.sync")
	}
	m, err := ptx.Parse("matmul.sm_80.O3.ptx", text)
	if err != nil {
		b.Fatal(err)
	}
	p, err := emu.Load(m)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		on   bool
		only []Checker
	}{
		{"none", false, nil}, {"all", true, nil}, {"race", true, []Checker{Race}}, {"uninit", true, []Checker{Uninit}},
		{"banks", true, []Checker{Banks}}, {"coalesce", true, []Checker{Coalesce}}, {"count", true, []Checker{Count}},
	} {
		b.Run(c.name, func(b *testing.B) {
			mem := emu.NewMemory(emu.MemoryOptions{TrackWrites: c.on})
			var args []any
			for i := range 3 {
				addr, err := mem.Alloc(4 * n * n)
				if err == nil && i < 2 {
					err = mem.Fill(addr, 0, 4*n*n)
				}
				if err != nil {
					b.Fatal(err)
				}
				args = append(args, addr)
			}
			params, err := p.Pack(entry, append(args, int32(n), int32(n), int32(n))...)
			if err != nil {
				b.Fatal(err)
			}
			launch := emu.Launch{
				Entry: entry, Workers: 1, Params: params,
				Grid: emu.Dim3{X: n / 16, Y: n / 16, Z: 1}, Block: emu.Dim3{X: 16, Y: 16, Z: 1},
			}
			var instructions uint64
			for b.Loop() {
				var checks *Checks
				launch.Observers = nil
				if c.on {
					checks = New(Options{Only: c.only})
					launch.Observers = []emu.Observer{checks}
				}
				stats, err := p.Run(context.Background(), mem, launch)
				if err != nil {
					b.Fatal(err)
				}
				if c.on {
					races := racy && (c.only == nil || c.only[0] == Race)
					if r := checks.Report(p, stats, nil); races != (len(r.Findings) > 0) {
						b.Fatalf("found\n%v", r)
					}
				}
				instructions += stats.Instructions
			}
			b.ReportMetric(float64(instructions)/1e6/b.Elapsed().Seconds(), "Minstr/s")
		})
	}
}

func BenchmarkNaive(b *testing.B) { benchmarkKernel(b, "_Z5naivePKfS0_Pfiii", 256, false) }
func BenchmarkTiled(b *testing.B) { benchmarkKernel(b, "_Z5tiledIfLi16EEvPKT_S2_PS0_iii", 256, false) }
func BenchmarkRacy(b *testing.B)  { benchmarkKernel(b, "_Z5tiledIfLi16EEvPKT_S2_PS0_iii", 256, true) }

// BenchmarkAccess measures all checkers for one access of a warp, with the patterns of the naive
// kernel (rows of 16 words, one word per 16 lanes) and others.
func BenchmarkAccess(b *testing.B) {
	for _, p := range []struct {
		name string
		at   func(lane, k int) uint64
	}{
		{"rows", func(lane, k int) uint64 { return uint64(1024*k + 4*(lane%16)) }},
		{"words", func(lane, k int) uint64 { return uint64(1024*(lane/16) + 4*k) }},
		{"side by side", func(lane, k int) uint64 { return uint64(1024*k + 4*lane) }},
		{"column", func(lane, k int) uint64 { return uint64(1024*lane + 4*k) }},
	} {
		b.Run(p.name, func(b *testing.B) {
			f := newFake(b, Options{}, 1, 256)
			base := f.alloc(1 << 20)
			blk := f.block(0)
			var addrs [256][32]uint64
			for k := range addrs {
				for lane := range 32 {
					addrs[k][lane] = base + p.at(lane, k)
				}
			}
			a := &emu.Access{
				Origin: emu.Origin{Site: f.site("ld"), Mask: ^uint32(0)}, Kind: emu.Read, Space: ptx.Global, Size: 4,
				Alloc: f.memory,
			}
			n := 0
			for b.Loop() {
				a.Addr = &addrs[n&255]
				a.Warp = n >> 8 & 7
				n++
				blk.hooks.Access(a)
			}
		})
	}
}
