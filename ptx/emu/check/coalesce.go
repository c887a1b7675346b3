package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// AccessStats measures the accesses of an instruction to global and to shared memory. An
// asynchronous copy has both.
type AccessStats struct {
	Site   *emu.Site
	Global GlobalStats
	Shared SharedStats
}

// GlobalStats measures an instruction's accesses to global memory.
type GlobalStats struct {
	Requests int64 // number of accesses by warps
	Traffic
	allowed float64 // maximum of Sectors without a finding
}

// freeSectors is the number of sectors of an access to 32 consecutive words.
const freeSectors = 4

// access adds an access of a warp with traffic t.
func (g *GlobalStats) access(t Traffic, maxScatter float64) {
	g.Requests++
	g.Traffic.add(t)
	g.allowed += max(freeSectors, maxScatter*float64(t.Ideal))
}

// scattered returns a finding if the sectors exceed the allowance, or nil.
func (g *GlobalStats) scattered(site *emu.Site, limit float64) *Finding {
	if limit < 0 || float64(g.Sectors) <= g.allowed {
		return nil
	}
	return &Finding{
		Checker: Coalesce, Severity: Advice, Site: site, Count: int(g.Requests),
		Message: fmt.Sprintf("uncoalesced access: the accesses of a warp touch %s sectors of 32 bytes on average "+
			"for %s bytes, want %s sectors: "+
			"consecutive threads should access consecutive elements; check whether threadIdx.x and threadIdx.y "+
			"are swapped",
			ratio(g.Sectors, g.Requests), ratio(g.Bytes, g.Requests), ratio(g.Ideal, g.Requests)),
	}
}

// advice returns the findings about measurements.
func (r *Report) advice(o *Options) findings {
	fs := findings{}
	for i := range r.Accesses {
		s := &r.Accesses[i]
		global, shared := s.Global.scattered(s.Site, o.MaxScatter), s.Shared.conflicts(s.Site, o.MaxConflicts)
		for _, f := range []*Finding{global, shared} {
			if f != nil {
				fs[key{checker: f.Checker, site: f.Site}] = &ranked{Finding: *f}
			}
		}
	}
	return fs
}

// mergeAccesses adds the measurements of a worker to sum. Both are indexed by emu.Site.Index.
func mergeAccesses(sum []AccessStats, of []instruction) []AccessStats {
	if len(of) > len(sum) {
		sum = append(sum, make([]AccessStats, len(of)-len(sum))...)
	}
	for i := range of {
		f, t := &of[i], &sum[i]
		if f.Site == nil {
			continue
		}
		t.Site = f.Site
		t.Global.Requests += f.Global.Requests
		t.Global.Traffic.add(f.Global.Traffic)
		t.Global.allowed += f.Global.allowed
		t.Shared.Requests += f.Shared.Requests
		t.Shared.Wavefronts += f.Shared.Wavefronts
		t.Shared.Ideal += f.Shared.Ideal
	}
	return sum
}

// ratio formats a/b, with one decimal place if it is not an integer.
func ratio(a, b int64) string {
	if a%b == 0 {
		return grouped(a / b)
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

// touched holds the sectors of each allocation of global memory that have been accessed.
type touched map[*emu.Allocation]*sectors

// sectors holds bit sets of the sectors of an allocation that were read and written.
type sectors struct {
	read, written []uint64
}

func (t *touched) of(a *emu.Allocation) *sectors {
	s := (*t)[a]
	if s == nil {
		if *t == nil {
			*t = touched{}
		}
		n := a.Size/(64*sectorBytes) + 1
		s = &sectors{make([]uint64, n), make([]uint64, n)}
		(*t)[a] = s
	}
	return s
}

func (s *sectors) add(a *emu.Access, rs *runs) {
	base, reads, writes := a.Alloc.Base, isRead(a.Kind), isWrite(a.Kind)
	var end uint64 // of the sectors so far
	for i := range rs.byAddr[:rs.n] {
		cur := &rs.byAddr[i]
		off := cur.addr - base
		first, last := max(off/sectorBytes, end), (off+cur.bytes(a.Size)-1)/sectorBytes
		end = max(end, last+1)
		if reads {
			setBits(s.read, first, last)
		}
		if writes {
			setBits(s.written, first, last)
		}
	}
}

// bulk adds the sectors of the global-memory side of a bulk copy.
func (s *sectors) bulk(b *emu.Bulk) {
	for _, span := range b.Spans {
		off := span.Addr - b.Alloc.Base
		first, last := off/sectorBytes, (off+uint64(span.Size)-1)/sectorBytes
		if isRead(b.Kind) || b.Atomic {
			setBits(s.read, first, last)
		}
		if isWrite(b.Kind) {
			setBits(s.written, first, last)
		}
	}
}

func setBits(set []uint64, first, last uint64) {
	for i := first; i <= last; i++ {
		set[i/64] |= 1 << (i % 64)
	}
}

func (t *touched) merge(u touched) {
	for alloc, from := range u {
		to := t.of(alloc)
		for i := range from.read {
			to.read[i] |= from.read[i]
			to.written[i] |= from.written[i]
		}
	}
}

// count returns the number of sectors that were accessed, read and written.
func (t touched) count() (distinct, read, written int64) {
	for _, s := range t {
		for i := range s.read {
			distinct += int64(bits.OnesCount64(s.read[i] | s.written[i]))
			read += int64(bits.OnesCount64(s.read[i]))
			written += int64(bits.OnesCount64(s.written[i]))
		}
	}
	return distinct, read, written
}
