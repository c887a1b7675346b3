package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// out is a pointer argument to uninitialized memory of the given number of bytes.
type out int

// program is a PTX program to run with all checkers.
type program struct {
	text         string
	file         string // file name in errors and findings
	entry        string // name of the kernel or a part of it; empty for the first kernel
	grid, block  emu.Dim3
	args         []any // a slice or an out becomes a pointer
	shared       int
	options      Options
	workers      int
	seed         uint64
	instructions int64
}

// run returns the report, the contents of each pointer argument and the error of the launch.
func (p *program) run(t testing.TB) (*Report, [][]byte, error) {
	t.Helper()
	m, err := ptx.Parse(cmp.Or(p.file, "test.ptx"), p.text)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := emu.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(prog.Entries(), p.entry)
	if i < 0 {
		i = slices.IndexFunc(prog.Entries(), func(name string) bool { return strings.Contains(name, p.entry) })
	}
	if i < 0 {
		t.Fatalf("no kernel %q", p.entry)
	}
	entry := prog.Entries()[i]
	mem := emu.NewMemory(emu.MemoryOptions{TrackWrites: true})
	var args []any
	var addrs []uint64
	var outs [][]byte
	for _, a := range p.args {
		var data []byte
		host := true
		switch v := a.(type) {
		case []float32:
			data = dtype.Bytes(v)
		case []float64:
			data = dtype.Bytes(v)
		case []int32:
			data = dtype.Bytes(v)
		case []dtype.Float16:
			data = dtype.Bytes(v)
		case out:
			data, host = make([]byte, v), false
		default:
			args = append(args, a)
			continue
		}
		addr, err := mem.Alloc(len(data))
		if err == nil && host {
			err = mem.Write(addr, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		args, addrs, outs = append(args, addr), append(addrs, addr), append(outs, make([]byte, len(data)))
	}
	params, err := prog.Pack(entry, args...)
	if err != nil {
		t.Fatal(err)
	}
	checks := New(p.options)
	workers := cmp.Or(p.workers, 1)
	if underRaceDetector {
		workers = 1
	}
	stats, runErr := prog.Run(context.Background(), mem, emu.Launch{
		Entry: entry, Grid: p.grid, Block: p.block, Shared: p.shared, Params: params, Seed: p.seed, Workers: workers,
		Observers: []emu.Observer{checks}, MaxInstructions: p.instructions,
	})
	for i, addr := range addrs {
		if err := mem.Read(addr, outs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return checks.Report(prog, stats, runErr), outs, runErr
}

// summary returns the checker and the source lines of each finding.
func summary(r *Report) string {
	var lines []string
	for _, f := range r.Findings {
		s := fmt.Sprint(f.Checker, " ", lineNumber(f.Site))
		if f.Other != nil {
			s += fmt.Sprint(" ", lineNumber(f.Other))
		}
		lines = append(lines, s)
	}
	return strings.Join(lines, ", ")
}

func lineNumber(s *emu.Site) int {
	if s.Source.Line > 0 {
		return s.Source.Line
	}
	return s.Pos.Line
}

// small returns a kernel with pointer %p, the thread index %t and the block index %c.
func small(body string) string {
	return `
.version 8.6
.target sm_90
.address_size 64
.entry k(.param .u64 pp)
{
	.reg .pred %q<4>;
	.reg .b32 %r<8>, %t, %c;
	.reg .b64 %d<8>, %p;
	.shared .align 16 .b8 s[4096];
	ld.param.u64 %p, [pp];
	mov.u32 %t, %tid.x;
	mov.u32 %c, %ctaid.x;
	mul.wide.u32 %d1, %t, 4;
	add.s64 %d1, %d1, %p;
	mov.u32 %r1, s;
	mad.lo.u32 %r1, %t, 4, %r1;
` + body + "\n\tret;\n}\n"
}

func TestSmallPrograms(t *testing.T) {
	const (
		writeOwn = "st.shared.u32 [%r1], %t;\n"
		wait     = "poll: ld.relaxed.gpu.global.u32 %r3, [%p+512]; setp.eq.u32 %q1, %r3, 0; @%q1 bra poll;\n"
		role     = "setp.ne.u32 %q0, %c, 0; @%q0 bra reader;\n"
		load     = "ld.global.u32 %r4, [%p];\n"
		store    = "st.global.u32 [%p], 7;\n"
		raise    = "st.relaxed.gpu.global.u32 [%p+512], 1;\n"
		fence    = "fence.acq_rel.gpu;\n"
		swapMax  = "setp.eq.u32 %q0, %t, 0; @%q0 st.shared.u32 [s], 0; bar.sync 0; ld.shared.u32 %r2, [s];\n" +
			"more: setp.ge.u32 %q1, %r2, %t; @%q1 bra end; mov.u32 %r3, %r2; atom.shared.cas.b32 %r2, [s], %r3, %t; " +
			"setp.ne.u32 %q2, %r2, %r3; @%q2 bra more;\nend: "
		result = "ld.shared.u32 %r5, [s]; st.global.u32 [%d1], %r5;"
	)
	for _, c := range []struct {
		name   string
		body   string
		blocks int
		dim    int
		want   string // checkers with findings
		says   string
		err    error
	}{
		{"reversal with a barrier", writeOwn + "bar.sync 0; sub.u32 %r2, 63, %t; mov.u32 %r3, s; mad.lo.u32 %r2, %r2, 4, " +
			"%r3; ld.shared.u32 %r4, [%r2];", 1, 64, "", "", nil},
		{"reversal without a barrier", writeOwn + "sub.u32 %r2, 63, %t; mov.u32 %r3, s; mad.lo.u32 %r2, %r2, 4, %r3; " +
			"ld.shared.u32 %r4, [%r2];", 1, 64, "race", "", nil},
		{"exchange in a warp", writeOwn + "xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, [%r2];", 1, 32, "race", "__syncwarp()",
			nil},
		{"exchange after bar.warp.sync", writeOwn +
			"bar.warp.sync 0xffffffff; xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, [%r2];", 1, 32, "", "", nil},
		{"exchange after shfl", writeOwn + "shfl.sync.bfly.b32 %r5, %t, 1, 31, -1; xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, " +
			"[%r2];", 1, 32, "race", "", nil},
		{"volatile exchange in a warp", "st.volatile.shared.u32 [%r1], %t; xor.b32 %r2, %r1, 4; " +
			"ld.volatile.shared.u32 %r4, [%r2];", 1, 32, "race", "__syncwarp()", nil},
		{"volatile exchange after bar.warp.sync", "st.volatile.shared.u32 [%r1], %t; bar.warp.sync 0xffffffff; " +
			"xor.b32 %r2, %r1, 4; ld.volatile.shared.u32 %r4, [%r2];", 1, 32, "", "", nil},
		{"volatile flag in a warp", "st.volatile.shared.u32 [%r1], 0; bar.warp.sync 0xffffffff; " +
			"setp.eq.u32 %q0, %t, 0; @%q0 st.volatile.shared.u32 [s], 1; " +
			"poll: ld.volatile.shared.u32 %r4, [s]; setp.eq.u32 %q1, %r4, 0; @%q1 bra poll;", 1, 32, "", "", nil},
		{"same value from all lanes", "st.shared.u32 [s], 5;", 1, 32, "", "", nil},
		{"different values from all lanes", "st.shared.u32 [s], %t;", 1, 32, "race", "different values", nil},
		{"same value from all warps", "st.shared.u32 [s], 5;", 1, 64, "race", "", nil},
		{"sums of all lanes that differ by rounding", "add.u32 %r4, %t, 0x41000000; st.shared.u32 [s], %r4;", 1, 32, "race",
			"either may remain. They are numbers that differ by rounding only", nil},
		{"matrix of both warps", "mov.u32 %r2, s; and.b32 %r3, %t, 7; mad.lo.u32 %r2, %r3, 16, %r2; mov.u32 %r4, 5; " +
			"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r4};", 1, 64, "race", "Both write the same value", nil},
		{"half a warp at a barrier", "setp.lt.u32 %q0, %t, 16; @!%q0 bra on; bar.sync 0; on: bar.sync 0;", 1, 32, "barrier",
			"threads (16,0,0) to (31,0,0) of the same warp are at test.ptx:18", nil},
		{"warps at different barrier instructions",
			"setp.lt.u32 %q0, %t, 32; @!%q0 bra other; bar.sync 0; bra on; other: bar.sync 0; on: mov.u32 %r2, 0;", 1, 64,
			"barrier", "same __syncthreads()", nil},
		{"barrier with too large a thread count", "bar.sync 1, 96;", 1, 64, "barrier", "deadlock: 64 threads",
			emu.ErrDeadlock},
		{"barrier of a part of the block", writeOwn +
			"setp.lt.u32 %q0, %t, 64; @!%q0 bra on; bar.sync 1, 64; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: " +
			"mov.u32 %r4, 0;", 1, 96, "", "", nil},
		{"producer and consumer", "setp.lt.u32 %q0, %t, 32; @!%q0 bra consume; " + writeOwn +
			"bar.arrive 1, 64; bra on; consume: bar.sync 1, 64; sub.u32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: mov.u32 " +
			"%r4, 0;", 1, 64, "", "", nil},
		{"producer that arrives before its write", "setp.lt.u32 %q0, %t, 32; @!%q0 bra consume; bar.arrive 1, 64;" +
			writeOwn + "bra on; consume: bar.sync 1, 64; sub.u32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: mov.u32 %r4, 0;",
			1, 64, "race", "", nil},
		{"unwritten shared memory", "ld.shared.u32 %r3, [%r1]; st.global.u32 [%d1], %r3;", 1, 32, "uninit",
			"no thread of the block has written", nil},
		{"unwritten global memory", "ld.global.u32 %r3, [%d1+1024]; st.global.u32 [%d1], %r3;", 1, 32, "uninit",
			"neither the host nor a kernel", nil},
		{"unwritten register", "add.u32 %r3, %r4, 1; st.global.u32 [%d1], %r3;", 1, 32, "uninit", "register %r4", nil},
		{"out of bounds", "ld.global.u32 %r3, [%d1+4096];", 1, 32, "bounds", "past the end", nil},
		{"out of bounds in shared memory", "st.shared.u32 [%r1+4092], 1;", 1, 32, "bounds", "", nil},
		{"misaligned", "ld.global.u32 %r3, [%d1+2];", 1, 32, "bounds", "want a multiple of 4", nil},
		{"writes of two blocks to one word", "st.global.u32 [%d1], 1;", 2, 32, "race", "blocks are not ordered", nil},
		{"write of two blocks, one of the value of the host", "st.global.u32 [%p], %c;", 2, 1, "race",
			"want a different element", nil},
		{"atomics of two blocks", "red.global.add.u32 [%p], 1;", 2, 32, "", "", nil},
		{"part of a word that is swapped", "ld.global.u8 %r3, [%p+2]; atom.global.cas.b32 %r4, [%p], %r3, %t;", 1, 32, "race",
			"A stale value is harmless", nil},
		{"bytes behind a word that is swapped", "ld.global.u8 %r3, [%p+4]; atom.global.cas.b32 %r4, [%p], %r3, %t; " +
			"atom.global.exch.b32 %r4, [%p+4], %t;", 1, 32, "race", "error: race", nil},
		{"neighbour of a word that is swapped", "setp.eq.u32 %q0, %t, 0; @%q0 st.shared.v2.u32 [s], {0, 0}; bar.sync 0; " +
			"atom.shared.add.u32 %r4, [s+4], 1; ld.shared.u32 %r2, [s+4]; atom.shared.cas.b32 %r3, [s], 0, 1; " +
			"st.global.u32 [%d1], %r2;", 1, 64, "race", "error: race", nil},
		{"result of swaps, read early", swapMax + result, 1, 64, "race", "error: race", nil},
		{"result of swaps, read after a barrier", swapMax + "bar.sync 0;" + result, 1, 64, "race", "advice: race", nil},
		{"message", role + store + fence + raise + "bra on; reader: " + wait + fence + load + "on: mov.u32 %r5, 0;", 2, 1, "",
			"", nil},
		{"message without fence of the writer", role + store + raise + "bra on; reader: " + wait + fence + load +
			"on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"message without fence of the reader", role + store + fence + raise + "bra on; reader: " + wait + load +
			"on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"message with one-way fences", role + store + "fence.release.gpu;\n" + raise + "bra on; reader: " + wait +
			"fence.acquire.gpu;\n" + load + "on: mov.u32 %r5, 0;", 2, 1, "", "", nil},
		{"message with an acquire of the writer", role + store + "fence.acquire.gpu;\n" + raise + "bra on; reader: " + wait +
			"fence.acquire.gpu;\n" + load + "on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"message with a release of the reader", role + store + "fence.release.gpu;\n" + raise + "bra on; reader: " + wait +
			"fence.release.gpu;\n" + load + "on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"copy with wait and barrier", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; " +
			"cp.async.wait_group 0; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "", "", nil},
		{"copy without wait", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; bar.sync 0; xor.b32 %r2, " +
			"%r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "race", "cp.async.wait_group", nil},
		{"copy with a wait for older groups", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; " +
			"cp.async.wait_group 1; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "race",
			"cp.async.wait_group", nil},
		{"copy without barrier", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; xor.b32 %r2, %r1, 128; " +
			"ld.shared.u32 %r3, [%r2];", 1, 64, "race", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := make([]int32, 256) // 1,024 bytes written by the host
			p := &program{
				text: small(c.body), grid: emu.Dim3{X: c.blocks, Y: 1, Z: 1}, block: emu.Dim3{X: c.dim, Y: 1, Z: 1},
				args: []any{data}, instructions: 1 << 20,
			}
			if strings.Contains(c.body, "+1024") {
				p.args = []any{out(4096)}
			}
			r, _, err := p.run(t)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			found := map[Checker]bool{}
			for _, f := range r.Findings {
				found[f.Checker] = true
			}
			want := strings.Fields(c.want)
			for _, k := range Checkers() {
				sure, maybe := false, false
				for _, w := range want {
					sure = sure || w == k.String()
					maybe = maybe || w == k.String()+"?"
				}
				if found[k] != sure && !maybe {
					t.Errorf("checker %v has findings: %v, want %v\n%v", k, found[k], sure, r)
				}
			}
			if !strings.Contains(r.String(), c.says) || strings.HasPrefix(c.says, "advice") && r.Errors() > 0 {
				t.Errorf("report does not contain %q, or has errors:\n%v", c.says, r)
			}
		})
	}
}

// TestMessageOnTwoWorkers runs blocks that communicate on two workers concurrently.
func TestMessageOnTwoWorkers(t *testing.T) {
	body := "setp.ne.u32 %q0, %c, 0; @%q0 bra reader;" +
		"st.global.u32 [%d1], %t; bar.sync 0; setp.ne.u32 %q1, %t, 0; @%q1 bra on; fence.acq_rel.gpu; " +
		"st.relaxed.gpu.global.u32 [%p+512], 1; bra on;" +
		"reader: setp.ne.u32 %q1, %t, 0; @%q1 bra wait; poll: ld.acquire.gpu.global.u32 %r3, [%p+512]; setp.eq.u32 %q2, " +
		"%r3, 0; @%q2 bra poll;" +
		"wait: bar.sync 0; ld.global.u32 %r4, [%d1]; on: mov.u32 %r5, 0;"
	for seed := range uint64(40) {
		p := &program{
			text: small(body), grid: emu.Dim3{X: 2, Y: 1, Z: 1}, block: emu.Dim3{X: 96, Y: 1, Z: 1},
			args: []any{make([]int32, 256)}, workers: 2, seed: seed, instructions: 1 << 30,
		}
		r, _, err := p.run(t)
		if err != nil || len(r.Findings) > 0 {
			t.Fatalf("seed %d: error %v, found\n%v", seed, err, r)
		}
	}
}

func TestOnlySomeCheckers(t *testing.T) {
	for _, k := range Checkers() {
		if got, err := ParseChecker(k.String()); got != k || err != nil {
			t.Errorf("ParseChecker(%q) = %v, %v, want %v", k.String(), got, err, k)
		}
		// The kernel has a race, an unset register and no other faults.
		p := &program{
			text: small("st.shared.u32 [s], %t; st.global.u32 [%d1], %r4;"), grid: emu.Dim3{X: 1, Y: 1, Z: 1},
			block: emu.Dim3{X: 64, Y: 1, Z: 1},
			args:  []any{make([]int32, 64)}, options: Options{Only: []Checker{k}},
		}
		r, _, err := p.run(t)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Checker != k {
				t.Errorf("checker %v: found %v of another checker", k, &f)
			}
		}
		if want := k == Race || k == Uninit; len(r.Findings) > 0 != want {
			t.Errorf("checker %v found %v, want findings: %v", k, r, want)
		}
	}
	if _, err := ParseChecker("rces"); err == nil || !strings.Contains(err.Error(), "want one of race, barrier") {
		t.Errorf("ParseChecker: error %v, want the list of checkers", err)
	}
}
