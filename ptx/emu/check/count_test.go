package check

import (
	"fmt"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// bulkGlobal reports the global-memory side of a bulk copy of rows that are pitch bytes apart.
func (b *block) bulkGlobal(site string, kind emu.AccessKind, atomic bool, base uint64, rows, bytes, pitch int) {
	e := &emu.Bulk{Origin: b.by(site, 0), Kind: kind, Atomic: atomic, Space: ptx.Global, Alloc: b.memory, Copy: 1}
	for i := range rows {
		e.Spans = append(e.Spans, emu.Span{Addr: base + uint64(i*pitch), Size: bytes})
	}
	b.hooks.Bulk(e)
}

// TestBulkCopyCounts checks that a bulk copy counts as one request that moves each sector once.
func TestBulkCopyCounts(t *testing.T) {
	for _, c := range []struct {
		name               string
		kind               emu.AccessKind
		atomic             bool
		rows, bytes, pitch int
		want               GlobalCounts
		read, written      int64
	}{
		{"separate rows", emu.AsyncRead, false, 4, 64, 256,
			GlobalCounts{Accesses{Direction: Load, Requests: 1, RequestedBytes: 256}, Traffic{256, 8, 8, 4}, 0, 0}, 8, 0},
		{"two rows in a sector", emu.AsyncRead, false, 4, 16, 16,
			GlobalCounts{Accesses{Direction: Load, Requests: 1, RequestedBytes: 64}, Traffic{64, 2, 2, 1}, 0, 0}, 2, 0},
		{"half sectors", emu.AsyncWrite, false, 4, 16, 64,
			GlobalCounts{Accesses{Direction: Store, Requests: 1, RequestedBytes: 64}, Traffic{64, 4, 2, 2}, 0, 0}, 0, 4},
		{"descending rows", emu.AsyncWrite, false, 4, 16, -16,
			GlobalCounts{Accesses{Direction: Store, Requests: 1, RequestedBytes: 64}, Traffic{64, 3, 2, 2}, 0, 0}, 0, 3},
		{"reduction", emu.AsyncWrite, true, 1, 32, 0,
			GlobalCounts{Accesses{Direction: Atomic, Requests: 1, RequestedBytes: 32}, Traffic{32, 1, 1, 1}, 0, 0}, 1, 1},
		{"outside the tensor", emu.AsyncRead, false, 0, 16, 16, GlobalCounts{}, 0, 0},
	} {
		f := newFake(t, Options{Only: []Checker{Count}}, 1, 32)
		base := f.alloc(4096) + 2048
		b := f.block(0)
		b.bulkGlobal("copy", c.kind, c.atomic, base, c.rows, c.bytes, c.pitch)
		b.hooks.End()
		r, _ := f.report(nil)
		got := r.Counts
		if c.rows == 0 {
			if len(got.Global) > 0 {
				t.Errorf("%s: %+v, want no accesses", c.name, got.Global)
			}
			continue
		}
		if len(got.Global) != 1 || got.Global[0] != c.want || got.SectorsRead != c.read || got.SectorsWritten != c.written ||
			got.DistinctSectors != max(c.read, c.written) {
			t.Errorf("%s: %+v, want %+v and %d sectors read, %d written", c.name, got, c.want, c.read, c.written)
		}
	}
}

// TestDistinctSectorsBounds counts random accesses and copies of all kinds. The distinct sectors
// must not exceed the sectors of all requests.
func TestDistinctSectorsBounds(t *testing.T) {
	r := testrand.New(t)
	kinds := []emu.AccessKind{emu.Read, emu.Write, emu.Atomic, emu.AsyncRead, emu.AsyncWrite}
	for range 500 {
		f := newFake(t, Options{Only: []Checker{Count}}, 1, 32)
		base := f.alloc(1 << 17)
		b := f.block(0)
		for range 1 + r.IntN(4) {
			kind := kinds[r.IntN(len(kinds))]
			if kind >= emu.AsyncRead && r.IntN(2) == 0 {
				b.bulkGlobal("copy", kind, kind == emu.AsyncWrite && r.IntN(2) == 0, base+16*uint64(r.IntN(64)), 1+r.IntN(8),
					16*(1+r.IntN(8)), 16*r.IntN(32))
				continue
			}
			addr, mask, size := randomAccess(r)
			b.do(op{site: "x", kind: kind, space: ptx.Global, size: size}, lanes(mask),
				func(t int) uint64 { return base + addr[t] })
		}
		b.hooks.End()
		report, _ := f.report(nil)
		c, sectors := report.Counts, int64(0)
		for _, g := range c.Global {
			sectors += g.Sectors
		}
		if c.DistinctSectors > sectors || c.DistinctSectors < max(c.SectorsRead, c.SectorsWritten) ||
			c.DistinctSectors > c.SectorsRead+c.SectorsWritten {
			t.Fatalf("distinct sectors exceed the sectors of the requests, %d, or do not fit those read and written: %+v",
				sectors, c)
		}
	}
}

// TestPlaces checks that the counts have one row per place and direction, and that atomics have
// no wavefronts.
func TestPlaces(t *testing.T) {
	name := func(space ptx.Space, addr uint64) string {
		if space == ptx.Shared && addr >= 1024 {
			return "Bs"
		}
		return "As"
	}
	f := newFake(t, Options{Only: []Checker{Count}, Place: name, Historic: true}, 2, 32)
	for n := range 2 {
		b := f.block(n)
		b.do(op{site: "st", kind: emu.Write}, b.all(), own)
		b.do(op{site: "ld", kind: emu.Read}, b.all(), func(t int) uint64 { return 1024 + uint64(128*t) })
		b.do(op{site: "atom", kind: emu.Atomic}, b.all(), own)
		b.hooks.End()
	}
	r, _ := f.report(nil)
	want := []string{"store As: 2 requests, 2 wavefronts, then 4", "load Bs: 2 requests, 64 wavefronts, then 64",
		"atomic As: 2 requests, 0 wavefronts, then 0"}
	for i, s := range r.Counts.Shared {
		got := fmt.Sprintf("%s: %d requests, %d wavefronts, then %d", s.String(), s.Requests, s.Wavefronts,
			s.HistoricWavefronts)
		if i >= len(want) || got != want[i] {
			t.Errorf("row %d: %s, want %s", i, got, want)
		}
	}
	if len(r.Counts.Shared) != len(want) {
		t.Errorf("%d rows, want %d", len(r.Counts.Shared), len(want))
	}
}

// TestOperations checks the operations of one execution by a warp.
func TestOperations(t *testing.T) {
	for text, want := range map[string]struct {
		ops     int64
		integer bool
	}{
		"fma.rn.f32 %f0, %f1, %f2, %f3;":   {64, false},
		"mul.rn.f32 %f0, %f1, %f2;":        {32, false},
		"mov.f32 %f0, %f1;":                {0, false},
		"mad.lo.s32 %s0, %s1, %s2, %s3;":   {64, true},
		"mad.lo.u32 %r0, %r1, %r2, %r3;":   {0, false},
		"mul.lo.s32 %s0, %s1, %s2;":        {0, false},
		"dp4a.s32.s32 %s0, %s1, %s2, %s3;": {256, true},
		"mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 " +
			"{%s0, %s1, %s2, %s3}, {%r0, %r1}, {%r2}, {%s0, %s1, %s2, %s3};": {2 * 16 * 8 * 16, true},
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, " +
			"%f1, %f2, %f3};": {2 * 16 * 8 * 16, false},
	} {
		m, err := ptx.Parse("test.ptx", ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"+
			".reg .f32 %f<4>;\n.reg .s32 %s<4>;\n.reg .u32 %r<4>;\n"+text+"\nret;\n}\n")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		m.Funcs()[0].Body.Walk(func(s ptx.Stmt) {
			i, ok := s.(*ptx.Instr)
			if !ok || i.Op == "ret" {
				return
			}
			if err := ptx.Bind(i); err != nil {
				t.Fatal(err)
			}
			perWarp, perThread, integer := operations(i)
			if got := perWarp + 32*perThread; got != want.ops || got > 0 && integer != want.integer {
				t.Errorf("%s: %d operations, integer %v, want %+v", text, got, integer, want)
			}
		})
	}
}
