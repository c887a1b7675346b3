package check

import (
	"fmt"
	"math/bits"

	"tilework/ptx/emu"
)

// AccessStats is what an instruction's accesses to global and to shared memory took;
// an asynchronous copy has both.
type AccessStats struct {
	Site   *emu.Site
	Global GlobalStats
	Shared SharedStats
}

// GlobalStats measures an instruction's accesses to global memory.
type GlobalStats struct {
	Requests int64 // accesses of a warp
	Traffic
	allowed float64 // sectors that would be fine
}

// freeSectors is what an access of 32 words side by side takes.
const freeSectors = 4

func (g *GlobalStats) access(a *emu.Access, rs *runs, maxScatter float64) {
	t := rs.traffic(a.Size)
	g.Requests++
	g.Traffic.add(t)
	g.allowed += max(freeSectors, maxScatter*float64(t.Ideal))
}

// scattered reports what exceeds the allowance.
func (g *GlobalStats) scattered(site *emu.Site, limit float64) *Finding {
	if limit < 0 || float64(g.Sectors) <= g.allowed {
		return nil
	}
	return &Finding{
		Checker: Coalesce, Severity: Advice, Site: site, Count: int(g.Requests),
		Message: fmt.Sprintf("scattered access: a warp's access touches %s sectors of 32 bytes on average and uses %s bytes of them, which %s would hold: neighbouring threads should access neighbouring elements; are threadIdx.x and threadIdx.y swapped?",
			ratio(g.Sectors, g.Requests), ratio(g.Bytes, g.Requests), ratio(g.Ideal, g.Requests)),
	}
}

// advice is the findings about what was measured.
func (r *Report) advice(o *Options) findings {
	fs := findings{}
	for i := range r.Accesses {
		s := &r.Accesses[i]
		for _, f := range []*Finding{s.Global.scattered(s.Site, o.MaxScatter), s.Shared.conflicts(s.Site, o.MaxConflicts)} {
			if f != nil {
				fs[key{checker: f.Checker, site: f.Site}] = &ranked{Finding: *f}
			}
		}
	}
	return fs
}

// mergeAccesses adds from to to; both are by the instructions' Index.
func mergeAccesses(to, from []AccessStats) []AccessStats {
	if len(from) > len(to) {
		to = append(to, make([]AccessStats, len(from)-len(to))...)
	}
	for i := range from {
		f, t := &from[i], &to[i]
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
	return to
}

// ratio writes a/b with as much precision as helps.
func ratio(a, b int64) string {
	if a%b == 0 {
		return grouped(a / b)
	}
	return fmt.Sprintf("%.1f", float64(a)/float64(b))
}

// touched is the sectors of global memory that were read and those that were written.
type touched struct {
	allocs map[*emu.Allocation]*[2]sectorSet
	last   *emu.Allocation
	sets   *[2]sectorSet // of last
}

// sectorSet is a set of an allocation's sectors.
type sectorSet []uint64

func (t *touched) of(a *emu.Allocation) *[2]sectorSet {
	if a == t.last {
		return t.sets
	}
	s := t.allocs[a]
	if s == nil {
		if t.allocs == nil {
			t.allocs = map[*emu.Allocation]*[2]sectorSet{}
		}
		n := (a.Size/sectorBytes + 64) / 64
		s = &[2]sectorSet{make(sectorSet, n), make(sectorSet, n)}
		t.allocs[a] = s
	}
	t.last, t.sets = a, s
	return s
}

func (t *touched) add(a *emu.Access, rs *runs) {
	sets := t.of(a.Alloc)
	for i := range rs.byLane[:rs.n] {
		cur := &rs.byLane[i]
		first := (cur.addr - a.Alloc.Base) / sectorBytes
		last := (cur.addr - a.Alloc.Base + cur.bytes(a.Size) - 1) / sectorBytes
		for s := first; s <= last; s++ {
			if isRead(a.Kind) {
				sets[0][s/64] |= 1 << (s % 64)
			}
			if isWrite(a.Kind) {
				sets[1][s/64] |= 1 << (s % 64)
			}
		}
	}
}

func (t *touched) merge(u *touched) {
	for alloc, from := range u.allocs {
		to := t.of(alloc)
		for k := range from {
			for i, word := range from[k] {
				to[k][i] |= word
			}
		}
	}
}

// sectors counts the sets' elements.
func (t *touched) sectors() (read, written int64) {
	for _, sets := range t.allocs {
		for i := range sets[0] {
			read += int64(bits.OnesCount64(sets[0][i]))
			written += int64(bits.OnesCount64(sets[1][i]))
		}
	}
	return read, written
}
