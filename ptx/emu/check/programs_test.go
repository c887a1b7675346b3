package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// out is an argument: a pointer to so many bytes that nobody has written.
type out int

// program is PTX to run with all checkers.
type program struct {
	text         string
	file         string // that errors and findings name
	entry        string // part of the kernel's name; empty for the first one
	grid, block  emu.Dim3
	args         []any // a slice, or out, is a pointer to it
	shared       int
	options      Options
	workers      int
	seed         uint64
	instructions int64
}

// run returns the report, and the bytes of each pointer argument.
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
	i := slices.IndexFunc(prog.Entries(), func(name string) bool { return strings.Contains(name, p.entry) })
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
	stats, runErr := prog.Run(context.Background(), mem, emu.Launch{
		Entry: entry, Grid: p.grid, Block: p.block, Shared: p.shared, Params: params, Seed: p.seed, Workers: cmp.Or(p.workers, 1),
		Observers: []emu.Observer{checks}, MaxInstructions: p.instructions,
	})
	for i, addr := range addrs {
		if err := mem.Read(addr, outs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return checks.Report(prog, stats, runErr), outs, runErr
}

// summary is each finding in short: checker and source line, and the other line.
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

// tiled is the tiled product of the seeds with tiles of 16: what stands in its parts
// can be replaced by a fault. The .loc lines point into this source:
//
//	10  as[ty][tx] = row < m && p + tx < k ? a[row * k + p + tx] : 0;
//	11  bs[ty][tx] = p + ty < k && col < n ? b[(p + ty) * n + col] : 0;
//	12  __syncthreads();
//	13  for (int i = 0; i < 16; i++)
//	14      sum += as[ty][i] * bs[i][tx];
//	15  __syncthreads();
//	17  if (row < m && col < n) c[row * n + col] = sum;
var tiledParts = map[string]string{
	"TX": "%tid.x", "TY": "%tid.y",
	"ROW BOUND": "setp.lt.u32 %p2, %row, %m;", "COL BOUND": "setp.lt.u32 %p3, %col, %n;",
	"K BOUND A": "setp.lt.and.u32 %p4, %ka, %k, %p2;", "K BOUND B": "setp.lt.and.u32 %p5, %kb, %k, %p3;",
	"BARRIER 1": "bar.sync 0;", "BARRIER 2": "bar.sync 0;",
	"A ROW": "64", "A COL": "4",
}

const tiledText = `
.version 8.0
.target sm_80
.address_size 64
.file 1 "tiled.cu"
.visible .entry tiled(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pm, .param .u32 pn, .param .u32 pk)
{
	.reg .pred %p<8>;
	.reg .f32 %f<4>, %sum;
	.reg .b32 %r<8>, %tx, %ty, %row, %col, %ka, %kb, %p, %m, %n, %k, %as, %bs, %arow, %bcol;
	.reg .b64 %a, %b, %c, %d<4>;
	.shared .align 4 .b8 as[1024];
	.shared .align 4 .b8 bs[1024];
	.loc 1 5 0
	ld.param.u64 %a, [pa];
	cvta.to.global.u64 %a, %a;
	ld.param.u64 %b, [pb];
	cvta.to.global.u64 %b, %b;
	ld.param.u64 %c, [pc];
	cvta.to.global.u64 %c, %c;
	ld.param.u32 %m, [pm];
	ld.param.u32 %n, [pn];
	ld.param.u32 %k, [pk];
	mov.u32 %tx, «TX»;
	mov.u32 %ty, «TY»;
	mov.u32 %r1, %ctaid.y;
	mad.lo.u32 %row, %r1, 16, %ty;
	mov.u32 %r1, %ctaid.x;
	mad.lo.u32 %col, %r1, 16, %tx;
	mov.u32 %as, as;
	mad.lo.u32 %arow, %ty, «A ROW», %as;
	mad.lo.u32 %as, %tx, «A COL», %arow;
	mov.u32 %bs, bs;
	mad.lo.u32 %bcol, %tx, 4, %bs;
	mad.lo.u32 %bs, %ty, 64, %bcol;
	mov.f32 %sum, 0f00000000;
	mov.u32 %p, 0;
	«ROW BOUND»
	«COL BOUND»
phase:
	setp.ge.u32 %p1, %p, %k;
	@%p1 bra done;
	.loc 1 10 0
	add.u32 %ka, %p, %tx;
	«K BOUND A»
	mov.f32 %f1, 0f00000000;
	mad.lo.u32 %r1, %row, %k, %ka;
	mul.wide.u32 %d1, %r1, 4;
	add.s64 %d1, %a, %d1;
	@%p4 ld.global.f32 %f1, [%d1];
	st.shared.f32 [%as], %f1;
	.loc 1 11 0
	add.u32 %kb, %p, %ty;
	«K BOUND B»
	mov.f32 %f2, 0f00000000;
	mad.lo.u32 %r2, %kb, %n, %col;
	mul.wide.u32 %d2, %r2, 4;
	add.s64 %d2, %b, %d2;
	@%p5 ld.global.f32 %f2, [%d2];
	st.shared.f32 [%bs], %f2;
	.loc 1 12 0
	«BARRIER 1»
	.loc 1 14 0
«PRODUCTS»
	.loc 1 15 0
	«BARRIER 2»
	add.u32 %p, %p, 16;
	bra phase;
done:
	.loc 1 17 0
	and.pred %p6, %p2, %p3;
	mad.lo.u32 %r3, %row, %n, %col;
	mul.wide.u32 %d3, %r3, 4;
	add.s64 %d3, %c, %d3;
	@%p6 st.global.f32 [%d3], %sum;
	ret;
}
`

// tiled is the kernel's text with some of its parts replaced.
func tiled(faults map[string]string) string {
	parts := map[string]string{}
	for name, text := range tiledParts {
		parts[name] = text
	}
	for name, text := range faults {
		if _, ok := parts[name]; !ok {
			panic("no part " + name)
		}
		parts[name] = text
	}
	var products strings.Builder
	for i := range 16 {
		step := 4
		if parts["A ROW"] == "4" {
			step = 64
		}
		fmt.Fprintf(&products, "\tld.shared.f32 %%f1, [%%arow+%d];\n\tld.shared.f32 %%f2, [%%bcol+%d];\n\tfma.rn.f32 %%sum, %%f1, %%f2, %%sum;\n", step*i, 64*i)
	}
	text := strings.Replace(tiledText, "«PRODUCTS»\n", products.String(), 1)
	for name, part := range parts {
		text = strings.ReplaceAll(text, "«"+name+"»", part)
	}
	return text
}

// product is a launch of a kernel with tiled's parameters for an m×k by k×n product.
func product(text string, m, n, k int) *program {
	a, b := make([]float32, m*k), make([]float32, k*n)
	for i := range a {
		a[i] = float32(i%7 - 3)
	}
	for i := range b {
		b[i] = float32(i%5 - 2)
	}
	return &program{
		text: text, grid: emu.Dim3{X: (n + 15) / 16, Y: (m + 15) / 16, Z: 1}, block: emu.Dim3{X: 16, Y: 16, Z: 1},
		args: []any{a, b, out(4 * m * n), uint32(m), uint32(n), uint32(k)},
	}
}

// correct reports whether the product came out right.
func (p *program) correct(c []byte) bool {
	a, b := p.args[0].([]float32), p.args[1].([]float32)
	m, n, k := int(p.args[3].(uint32)), int(p.args[4].(uint32)), int(p.args[5].(uint32))
	got := dtype.View[float32](c)
	for i := range m {
		for j := range n {
			sum := float32(0)
			for l := range k {
				sum += a[i*k+l] * b[l*n+j]
			}
			if math.Float32bits(sum) != math.Float32bits(got[i*n+j]) {
				return false
			}
		}
	}
	return true
}

func TestTiledProduct(t *testing.T) {
	for _, c := range []struct {
		name    string
		faults  map[string]string
		m, n, k int
		want    string
		says    []string
	}{
		{"as it should be", nil, 32, 48, 64, "", nil},
		{"as it should be, ragged", nil, 33, 47, 50, "", nil},
		{
			"no first barrier", map[string]string{"BARRIER 1": ""}, 32, 32, 64, "race 14 10, race 14 11",
			[]string{"is a __syncthreads() missing between tiled.cu:10 and tiled.cu:14?", "is a __syncthreads() missing between tiled.cu:11 and tiled.cu:14?"},
		},
		{
			"no second barrier", map[string]string{"BARRIER 2": ""}, 32, 32, 64, "race 10 14, race 11 14",
			[]string{"is a __syncthreads() missing after tiled.cu:14, before the loop's next round comes to tiled.cu:10?"},
		},
		{
			"no bound on rows", map[string]string{"ROW BOUND": "setp.lt.u32 %p2, %row, 0xffffffff;"}, 33, 32, 32, "bounds 10, bounds 17",
			[]string{"past the end of the allocation", "is a bound check missing"},
		},
		{
			"no bound on columns", map[string]string{"COL BOUND": "setp.lt.u32 %p3, %col, 0xffffffff;"}, 32, 33, 32, "bounds 11, race 17 17, bounds 17",
			[]string{"nothing orders blocks: do two threads work on one element, by a wrong index or a missing bound?"},
		},
		{
			"no bound on k", map[string]string{"K BOUND A": "mov.pred %p4, %p2;"}, 32, 32, 33, "bounds 10",
			[]string{"past the end of the allocation"},
		},
		{
			"threads' indexes swapped", map[string]string{"TX": "%tid.y", "TY": "%tid.x"}, 32, 32, 32, "coalesce 10, banks 10, coalesce 11, banks 11, banks 14, coalesce 17",
			[]string{"are threadIdx.x and threadIdx.y swapped?"},
		},
		{
			"the tile of A in columns", map[string]string{"A ROW": "4", "A COL": "64"}, 32, 32, 32, "banks 10",
			[]string{"bank conflicts: an access to shared memory takes 8 wavefronts on average where 1 would do"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := product(tiled(c.faults), c.m, c.n, c.k)
			p.seed = 1
			r, outs, err := p.run(t)
			if err != nil {
				t.Fatal(err)
			}
			if got := summary(r); got != c.want {
				t.Errorf("found %s, want %s\n%v", got, c.want, r)
			}
			for _, s := range c.says {
				if !strings.Contains(r.String(), s) {
					t.Errorf("%q is not said in\n%v", s, r)
				}
			}
			if c.faults == nil && !p.correct(outs[2]) {
				t.Error("the product is wrong")
			}
		})
	}
}

func TestTiledProductCounts(t *testing.T) {
	p := product(tiled(nil), 32, 48, 64)
	r, _, err := p.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(2 * 32 * 48 * 64); r.Counts.Flops != want || r.Counts.IntegerOps != 0 {
		t.Errorf("%d FLOPs and %d integer operations, want %d and 0", r.Counts.Flops, r.Counts.IntegerOps, want)
	}
	// Each of the 2·3 blocks loads a strip of A and one of B once, and stores its tile.
	g := r.Counts.Spaces[ptx.Global]
	if load, store := int64(2*3*2*16*64*4), int64(32*48*4); g.LoadBytes != load || g.StoreBytes != store {
		t.Errorf("%d bytes loaded and %d stored, want %d and %d", g.LoadBytes, g.StoreBytes, load, store)
	}
	if read, written := int64((32*64+64*48)*4/32), int64(32*48*4/32); r.SectorsRead != read || r.SectorsWritten != written {
		t.Errorf("%d sectors read and %d written, want %d and %d", r.SectorsRead, r.SectorsWritten, read, written)
	}
	fma := OpcodeCount{Opcode: "fma.rn.f32", Warps: 32 * 48 * 64 / 32, Threads: 32 * 48 * 64}
	for _, o := range r.Counts.Opcodes {
		if o.Opcode == fma.Opcode && o != fma {
			t.Errorf("%+v, want %+v", o, fma)
		}
	}
}

// TestReportIsDeterministic runs a faulty program on one worker and on several.
func TestReportIsDeterministic(t *testing.T) {
	var first string
	for workers := 1; workers <= 4; workers++ {
		p := product(tiled(map[string]string{"BARRIER 1": "", "A ROW": "4", "A COL": "64"}), 64, 65, 64)
		p.workers = workers
		r, _, err := p.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = r.String()
		}
		if got := r.String(); got != first {
			t.Errorf("with %d workers\n%s\nand with one\n%s", workers, got, first)
		}
	}
	if !strings.Contains(first, "race") || !strings.Contains(first, "banks") {
		t.Errorf("found only\n%s", first)
	}
}

// small is a kernel with a pointer p, in %p, and the thread's and the block's number.
func small(body string) string {
	return `
.version 8.0
.target sm_80
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
	)
	for _, c := range []struct {
		name   string
		body   string
		blocks int
		dim    int
		want   string // checkers that find something
		says   string
		err    error
	}{
		{"reversed with a barrier", writeOwn + "bar.sync 0; sub.u32 %r2, 63, %t; mov.u32 %r3, s; mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];", 1, 64, "", "", nil},
		{"reversed without", writeOwn + "sub.u32 %r2, 63, %t; mov.u32 %r3, s; mad.lo.u32 %r2, %r2, 4, %r3; ld.shared.u32 %r4, [%r2];", 1, 64, "race", "", nil},
		{"neighbours in a warp", writeOwn + "xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, [%r2];", 1, 32, "race", "__syncwarp()", nil},
		{"neighbours after bar.warp.sync", writeOwn + "bar.warp.sync 0xffffffff; xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, [%r2];", 1, 32, "", "", nil},
		{"neighbours after shfl", writeOwn + "shfl.sync.bfly.b32 %r5, %t, 1, 31, -1; xor.b32 %r2, %r1, 4; ld.shared.u32 %r4, [%r2];", 1, 32, "race", "", nil},
		{"all lanes write one value", "st.shared.u32 [s], 5;", 1, 32, "", "", nil},
		{"all lanes write their own", "st.shared.u32 [s], %t;", 1, 32, "race", "different values", nil},
		{"all warps write one value", "st.shared.u32 [s], 5;", 1, 64, "race", "", nil},
		{"half the warp at a barrier", "setp.lt.u32 %q0, %t, 16; @!%q0 bra on; bar.sync 0; on: bar.sync 0;", 1, 32, "barrier", "only some threads", nil},
		{"warps at different barriers", "setp.lt.u32 %q0, %t, 32; @!%q0 bra other; bar.sync 0; bra on; other: bar.sync 0; on: mov.u32 %r2, 0;", 1, 64, "barrier", "same __syncthreads()", nil},
		{"a barrier for too many", "bar.sync 1, 96;", 1, 64, "barrier", "deadlock: 64 threads", emu.ErrDeadlock},
		{"a barrier for a part", writeOwn + "setp.lt.u32 %q0, %t, 64; @!%q0 bra on; bar.sync 1, 64; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: mov.u32 %r4, 0;", 1, 96, "", "", nil},
		{"producer and consumer", "setp.lt.u32 %q0, %t, 32; @!%q0 bra consume; " + writeOwn + "bar.arrive 1, 64; bra on; consume: bar.sync 1, 64; sub.u32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: mov.u32 %r4, 0;", 1, 64, "", "", nil},
		{"a producer that is late", "setp.lt.u32 %q0, %t, 32; @!%q0 bra consume; bar.arrive 1, 64;" + writeOwn + "bra on; consume: bar.sync 1, 64; sub.u32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2]; on: mov.u32 %r4, 0;", 1, 64, "race", "", nil},
		{"shared memory that nobody wrote", "ld.shared.u32 %r3, [%r1];", 1, 32, "uninit", "no thread of the block has written", nil},
		{"global memory that nobody wrote", "ld.global.u32 %r3, [%d1+1024];", 1, 32, "uninit", "neither the host nor a kernel", nil},
		{"a register that nobody wrote", "add.u32 %r3, %r4, 1;", 1, 32, "uninit", "register %r4", nil},
		{"behind the end", "ld.global.u32 %r3, [%d1+4096];", 1, 32, "bounds", "past the end", nil},
		{"behind the end of shared memory", "st.shared.u32 [%r1+4092], 1;", 1, 32, "bounds", "", nil},
		{"not aligned", "ld.global.u32 %r3, [%d1+2];", 1, 32, "bounds", "no multiple of 4", nil},
		{"two blocks write one word", "st.global.u32 [%d1], 1;", 2, 32, "race", "nothing orders blocks", nil},
		{"two blocks count", "red.global.add.u32 [%p], 1;", 2, 32, "", "", nil},
		{"a message", role + store + fence + raise + "bra on; reader: " + wait + fence + load + "on: mov.u32 %r5, 0;", 2, 1, "", "", nil},
		{"a message without the writer's fence", role + store + raise + "bra on; reader: " + wait + fence + load + "on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"a message without the reader's fence", role + store + fence + raise + "bra on; reader: " + wait + load + "on: mov.u32 %r5, 0;", 2, 1, "race", "__threadfence()", nil},
		{"a copy, its wait and a barrier", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "", "", nil},
		{"a copy without a wait", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "race", "cp.async.wait_group", nil},
		{"a copy with a wait for others", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "race", "cp.async.wait_group", nil},
		{"a copy without a barrier", "cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.wait_all; xor.b32 %r2, %r1, 128; ld.shared.u32 %r3, [%r2];", 1, 64, "race", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := make([]int32, 256) // 1,024 bytes that the host wrote
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
					t.Errorf("checker %v found something: %v, want %v\n%v", k, found[k], sure, r)
				}
			}
			if !strings.Contains(r.String(), c.says) {
				t.Errorf("%q is not said in\n%v", c.says, r)
			}
		})
	}
}

// TestMessageOnTwoWorkers lets blocks that speak to one another run at the same time.
func TestMessageOnTwoWorkers(t *testing.T) {
	body := "setp.ne.u32 %q0, %c, 0; @%q0 bra reader;" +
		"st.global.u32 [%d1], %t; bar.sync 0; setp.ne.u32 %q1, %t, 0; @%q1 bra on; fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%p+512], 1; bra on;" +
		"reader: setp.ne.u32 %q1, %t, 0; @%q1 bra wait; poll: ld.acquire.gpu.global.u32 %r3, [%p+512]; setp.eq.u32 %q2, %r3, 0; @%q2 bra poll;" +
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
			t.Errorf("%v is read as %v, %v", k, got, err)
		}
		// A race, a register that was not set, and nothing else.
		p := &program{
			text: small("st.shared.u32 [s], %t; add.u32 %r3, %r4, 1;"), grid: emu.Dim3{X: 1, Y: 1, Z: 1}, block: emu.Dim3{X: 64, Y: 1, Z: 1},
			args: []any{make([]int32, 64)}, options: Options{Only: []Checker{k}},
		}
		r, _, err := p.run(t)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.Checker != k {
				t.Errorf("only %v, but found %v", k, &f)
			}
		}
		if want := k == Race || k == Uninit; len(r.Findings) > 0 != want {
			t.Errorf("%v found %v, want something: %v", k, r, want)
		}
	}
	if _, err := ParseChecker("rces"); err == nil || !strings.Contains(err.Error(), "want one of race, barrier") {
		t.Errorf("error %v", err)
	}
}
