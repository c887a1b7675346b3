package check

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// randomAccess returns a random access pattern: consecutive, a single address, rows, strides,
// permutations or random addresses.
func randomAccess(r *rand.Rand) (addr [32]uint64, mask uint32, size int) {
	size = 1 << r.IntN(5)
	mask = ^uint32(0)
	if r.IntN(3) == 0 {
		mask = r.Uint32() | 1<<r.IntN(32)
	}
	base, rows, stride := uint64(r.IntN(64)), 1<<r.IntN(6), uint64(r.IntN(40))
	kind := r.IntN(5)
	order := r.Perm(32)
	for i := range addr {
		n := uint64(i)
		switch kind {
		case 1:
			n = uint64(i%rows) + uint64(i/rows)*stride
		case 2:
			n *= stride
		case 3:
			n = uint64(order[i])
		case 4:
			n = uint64(r.IntN(256))
		}
		addr[i] = (base + n) * uint64(size)
	}
	return addr, mask, size
}

func TestTrafficAgainstSets(t *testing.T) {
	r := testrand.New(t)
	for range 20_000 {
		addr, mask, size := randomAccess(r)
		units := map[int]map[uint64]bool{1: {}, sectorBytes: {}, lineBytes: {}}
		n := 0
		lanesOf(mask, func(lane int) {
			for b := range uint64(size) {
				for unit, set := range units {
					set[(addr[lane]+b)/uint64(unit)] = true
				}
				n++
			}
		})
		want := Traffic{
			Bytes: int64(len(units[1])), Sectors: int64(len(units[sectorBytes])), Lines: int64(len(units[lineBytes])),
			Ideal: int64((len(units[1]) + 31) / 32),
		}
		var rs runs
		rs.split(&addr, mask, size)
		if got := rs.traffic(size); got != want {
			t.Fatalf("lanes %#x, %d bytes at %v: %+v, want %+v", mask, size, addr, got, want)
		}
		if got, want := rs.overlap(size), n > len(units[1]); got != want {
			t.Fatalf("lanes %#x, %d bytes at %v: overlap %v, want %v", mask, size, addr, got, want)
		}
	}
}

func TestBanksAgainstSets(t *testing.T) {
	r := testrand.New(t)
	for range 20_000 {
		addr, mask, size := randomAccess(r)
		for _, m := range []BankModel{ModernBanks, HistoricBanks} {
			phase := min(m.Lanes, m.Banks*4/max(size, 4))
			actual, ideal := 0, 0
			for first := 0; first < 32; first += phase {
				words := map[uint64]bool{}
				for lane := first; lane < first+phase; lane++ {
					if mask>>lane&1 == 1 {
						for b := range uint64(size) {
							words[(addr[lane]+b)/4] = true
						}
					}
				}
				banks := map[uint64]int{}
				for w := range words {
					banks[w%uint64(m.Banks)]++
				}
				if len(words) > 0 {
					worst := 0
					for _, n := range banks {
						worst = max(worst, n)
					}
					actual += worst
					ideal++
				}
			}
			var rs runs
			rs.split(&addr, mask, size)
			if m == ModernBanks && rs.oneWavefront(size) && actual != 1 {
				t.Fatalf("lanes %#x, %d bytes at %v: one wavefront, want %d", mask, size, addr, actual)
			}
			if a, i := m.Wavefronts(&addr, mask, size); a != actual || i != ideal {
				t.Fatalf("%+v, lanes %#x, %d bytes at %v: %d of %d wavefronts, want %d of %d", m, mask, size, addr, a, i, actual,
					ideal)
			}
		}
	}
}

func TestAdvice(t *testing.T) {
	row := func(t int) uint64 { return uint64(4 * t) }
	column := func(t int) uint64 { return uint64(128 * t) }
	padded := func(t int) uint64 { return uint64(132 * t) }
	for _, c := range []struct {
		name  string
		space ptx.Space
		at    func(int) uint64
		opts  Options
		want  string
		says  string
	}{
		{"shared memory, row", ptx.Shared, row, Options{}, "", ""},
		{"shared memory, one word", ptx.Shared, same, Options{}, "", ""},
		{"shared memory, column", ptx.Shared, column, Options{}, "banks x", "32 wavefronts on average, want 1"},
		{"shared memory, padded column", ptx.Shared, padded, Options{}, "", ""},
		{"shared memory, column at the limit", ptx.Shared, column, Options{MaxConflicts: 31}, "", ""},
		{"shared memory, column above the limit", ptx.Shared, column, Options{MaxConflicts: 30}, "banks x", ""},
		{"shared memory, column without limit", ptx.Shared, column, Options{MaxConflicts: Unlimited}, "", ""},
		{"global memory, row", ptx.Global, row, Options{}, "", ""},
		{"global memory, one word", ptx.Global, same, Options{}, "", ""},
		{"global memory, column", ptx.Global, column, Options{}, "coalesce x",
			"32 sectors of 32 bytes on average for 128 bytes, want 4 sectors"},
		{"global memory, column at the limit", ptx.Global, column, Options{MaxScatter: 8}, "", ""},
		{"global memory, column without limit", ptx.Global, column, Options{MaxScatter: Unlimited}, "", ""},
		{"global memory, four rows of eight words", ptx.Global, func(t int) uint64 { return uint64(4*(t%8) + 512*(t/8)) },
			Options{}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.opts, 1, 32)
			base := uint64(0)
			if c.space == ptx.Global {
				base = f.alloc(32 * 132)
			}
			b := f.block(0)
			b.do(op{site: "x", kind: emu.Write, space: c.space}, b.all(), func(t int) uint64 { return base + c.at(t) })
			b.hooks.End()
			r, got := f.report(nil)
			got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "race") })
			if s := strings.Join(got, ", "); s != c.want || !strings.Contains(r.String(), c.says) {
				t.Errorf("found %q, want %q and a report that contains %q\n%v", s, c.want, c.says, r)
			}
		})
	}
}

func TestMeasurements(t *testing.T) {
	f := newFake(t, Options{}, 2, 32)
	base := f.alloc(4096)
	for n := range 2 {
		b := f.block(n)
		b.do(op{site: "g", kind: emu.Read, space: ptx.Global}, b.all(), func(t int) uint64 { return base + uint64(4*t) })
		b.do(op{site: "h", kind: emu.Write, space: ptx.Global, size: 8}, span(0, 4),
			func(t int) uint64 { return base + 1024 + uint64(8*t+512*n) })
		b.do(op{site: "s", kind: emu.Write}, span(0, 8), own)
		b.hooks.End()
	}
	r, _ := f.report(nil)
	if len(r.Findings) > 0 {
		t.Errorf("found\n%v", r)
	}
	if c := r.Counts; c.DistinctSectors != 6 || c.SectorsRead != 4 || c.SectorsWritten != 2 {
		t.Errorf("%d sectors, %d read and %d written, want 6, 4 and 2", c.DistinctSectors, c.SectorsRead, c.SectorsWritten)
	}
	if len(r.Accesses) != 3 {
		t.Fatalf("%d instructions measured, want 3", len(r.Accesses))
	}
	g, h, s := r.Accesses[0].Global, r.Accesses[1].Global, r.Accesses[2].Shared
	if want := (Traffic{Bytes: 256, Sectors: 8, Ideal: 8, Lines: 2}); g.Requests != 2 || g.Traffic != want {
		t.Errorf("load: %+v, want 2 requests with %+v", g, want)
	}
	if want := (Traffic{Bytes: 64, Sectors: 2, Ideal: 2, Lines: 2}); h.Requests != 2 || h.Traffic != want {
		t.Errorf("store: %+v, want 2 requests with %+v", h, want)
	}
	if want := (SharedStats{Requests: 2, Wavefronts: 2, Ideal: 2}); s != want {
		t.Errorf("shared: %+v, want %+v", s, want)
	}
	wantGlobal := []GlobalCounts{
		{Accesses: Accesses{Direction: Load, Requests: 2, RequestedBytes: 256, first: 0}, Traffic: g.Traffic},
		{Accesses: Accesses{Direction: Store, Requests: 2, RequestedBytes: 64, first: 1}, Traffic: h.Traffic},
	}
	if got := r.Counts.Global; !slices.Equal(got, wantGlobal) {
		t.Errorf("global memory: %+v, want %+v", got, wantGlobal)
	}
	wantShared := []SharedCounts{{Accesses: Accesses{Direction: Store, Requests: 2, RequestedBytes: 64, first: 2},
		Wavefronts: 2, Ideal: 2}}
	if got := r.Counts.Shared; !slices.Equal(got, wantShared) {
		t.Errorf("shared memory: %+v, want %+v", got, wantShared)
	}
}
