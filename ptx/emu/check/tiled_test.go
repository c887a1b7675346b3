package check

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/testkit"
	"tilework/ptx/emu"
)

func init() { testkit.CollectRarely() }

// tiledParts holds the parts of tiledText that tests replace to plant faults. tiledText is the
// tiled matrix product with 16×16 tiles. Its .loc lines refer to this source:
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

// tiled returns the kernel with some of its parts replaced.
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
		fmt.Fprintf(&products, "\tld.shared.f32 %%f1, [%%arow+%d];\n\tld.shared.f32 %%f2, [%%bcol+%d];\n"+
			"\tfma.rn.f32 %%sum, %%f1, %%f2, %%sum;\n", step*i, 64*i)
	}
	text := strings.Replace(tiledText, "«PRODUCTS»\n", products.String(), 1)
	for name, part := range parts {
		text = strings.ReplaceAll(text, "«"+name+"»", part)
	}
	return text
}

// product returns a launch of a kernel with tiled's parameters for an m×k by k×n product.
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

// correct reports whether c is the exact product.
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
		{"correct", nil, 32, 48, 64, "", nil},
		{"correct, partial tiles", nil, 33, 47, 50, "", nil},
		{
			"no first barrier", map[string]string{"BARRIER 1": ""}, 32, 32, 64, "race 14 10, race 14 11",
			[]string{"want a __syncthreads() between tiled.cu:10 and tiled.cu:14",
				"want a __syncthreads() between tiled.cu:11 and tiled.cu:14"},
		},
		{
			"no second barrier", map[string]string{"BARRIER 2": ""}, 32, 32, 64, "race 10 14, race 11 14",
			[]string{"want a __syncthreads() after tiled.cu:14, before the next iteration of the loop reaches tiled.cu:10"},
		},
		{
			"no bounds check for rows", map[string]string{"ROW BOUND": "setp.lt.u32 %p2, %row, 0xffffffff;"}, 33, 32, 32,
			"bounds 10, bounds 17",
			[]string{"past the end of the allocation", "want a bounds check"},
		},
		{
			"no bounds check for columns", map[string]string{"COL BOUND": "setp.lt.u32 %p3, %col, 0xffffffff;"}, 32, 33, 32,
			"bounds 11, race 17 17, bounds 17",
			[]string{"blocks are not ordered: want a different element for each thread"},
		},
		{
			"no bounds check for k", map[string]string{"K BOUND A": "mov.pred %p4, %p2;"}, 32, 32, 33, "bounds 10",
			[]string{"past the end of the allocation"},
		},
		{
			"swapped thread indices", map[string]string{"TX": "%tid.y", "TY": "%tid.x"}, 32, 32, 32,
			"coalesce 10, banks 10, coalesce 11, banks 11, banks 14, coalesce 17",
			[]string{"check whether threadIdx.x and threadIdx.y are swapped"},
		},
		{
			"column-major tile of A", map[string]string{"A ROW": "4", "A COL": "64"}, 32, 32, 32, "banks 10",
			[]string{"bank conflicts: an access to shared memory takes 8 wavefronts on average, want 1"},
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
					t.Errorf("report does not contain %q:\n%v", s, r)
				}
			}
			if c.faults == nil && !p.correct(outs[2]) {
				t.Error("wrong product")
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
		t.Errorf("%d FLOP and %d integer operations, want %d and 0", r.Counts.Flops, r.Counts.IntegerOps, want)
	}
	// Each of the 2·3 blocks loads a block row of A and a block column of B once, and stores
	// its tile.
	asked := map[Direction]int64{}
	for _, g := range r.Counts.Global {
		asked[g.Direction] += g.RequestedBytes
	}
	if load, store := int64(2*3*2*16*64*4), int64(32*48*4); asked[Load] != load || asked[Store] != store {
		t.Errorf("%d bytes loaded and %d stored, want %d and %d", asked[Load], asked[Store], load, store)
	}
	c := r.Counts
	if read, written := int64((32*64+64*48)*4/32), int64(32*48*4/32); c.SectorsRead != read ||
		c.SectorsWritten != written || c.DistinctSectors != read+written {
		t.Errorf("%d sectors, %d read and %d written, want %d and %d", c.DistinctSectors, c.SectorsRead, c.SectorsWritten,
			read, written)
	}
	fma := OpcodeCount{Opcode: "fma.rn.f32", Warps: 32 * 48 * 64 / 32, Threads: 32 * 48 * 64}
	for _, o := range r.Counts.Opcodes {
		if o.Opcode == fma.Opcode && o != fma {
			t.Errorf("%+v, want %+v", o, fma)
		}
	}
}

// TestReportIsDeterministic checks that the report of a faulty kernel does not depend on the
// number of workers.
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
			t.Errorf("%d workers: got\n%s\nwant the report of 1 worker\n%s", workers, got, first)
		}
	}
	if !strings.Contains(first, "race") || !strings.Contains(first, "banks") {
		t.Errorf("want findings of race and banks, got\n%s", first)
	}
}
