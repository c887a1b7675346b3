package check

import (
	"cmp"
	"math/bits"
	"slices"

	"tilework/ptx/emu"
)

// run is a sequence of consecutive lanes that access the same address or consecutive addresses.
// Most accesses of a warp consist of one or two runs, so the checkers iterate over runs instead
// of lanes.
type run struct {
	addr  uint64 // address of the first lane
	lane  int    // first lane
	lanes int    // number of lanes
	step  uint64 // distance between lanes: 0 or the size of the access
}

// bytes returns the number of bytes that the run covers.
func (r *run) bytes(size int) uint64 { return uint64(r.lanes-1)*r.step + uint64(size) }

// runs holds the runs of an access, ordered by lane and by address.
type runs struct {
	byLane [32]run
	byAddr [32]run
	n      int
}

// split computes the runs of an access of the lanes in mask.
func (r *runs) split(addr *[32]uint64, mask uint32, size int) {
	r.n = 0
	if mask == ^uint32(0) && r.halves(addr, uint64(size)) {
		return
	}
	for lane := 0; lane < 32; {
		if mask>>lane&1 == 0 {
			lane += bits.TrailingZeros32(mask >> lane)
			continue
		}
		end := lane + bits.TrailingZeros32(^(mask >> lane))
		for lane < end {
			cur := run{addr: addr[lane], lane: lane, lanes: 1}
			next := lane + 1
			if next < end {
				if d := addr[next] - cur.addr; d == 0 || d == uint64(size) {
					cur.step = d
					want := cur.addr
					for next < end {
						if want += d; addr[next] != want {
							break
						}
						next++
					}
					cur.lanes = next - lane
				}
			}
			r.byLane[r.n] = cur
			r.n++
			lane = next
		}
	}
	r.sort()
}

// halves is a fast path for accesses in which each half of the warp is one run, as in blocks with
// rows of at least 16 threads. It reports whether it applied.
func (r *runs) halves(addr *[32]uint64, size uint64) bool {
	low, high := (*[16]uint64)(addr[:16]), (*[16]uint64)(addr[16:])
	d, e := low[1]-low[0], high[1]-high[0]
	if d != 0 && d != size || e != 0 && e != size || !evenlySpaced(low, d) || *high != *low && !evenlySpaced(high, e) {
		return false
	}
	r.byLane[0] = run{addr: low[0], lanes: 16, step: d}
	if d == e && high[0]-low[15] == d {
		r.byLane[0].lanes = 32
		r.byAddr[0], r.n = r.byLane[0], 1
		return true
	}
	r.byLane[1] = run{addr: high[0], lane: 16, lanes: 16, step: e}
	first := 0
	if high[0] < low[0] {
		first = 1
	}
	r.byAddr[0], r.byAddr[1], r.n = r.byLane[first], r.byLane[1-first], 2
	return true
}

// twins reports whether there are two runs of the same addresses.
func (r *runs) twins() bool {
	a, b := &r.byLane[0], &r.byLane[1]
	return r.n == 2 && a.addr == b.addr && a.lanes == b.lanes && a.step == b.step && a.lane == 0
}

// evenlySpaced reports whether consecutive addresses differ by d.
func evenlySpaced(addr *[16]uint64, d uint64) bool {
	if d == 0 { // a comparison of memory is faster
		return *(*[15]uint64)(addr[:15]) == *(*[15]uint64)(addr[1:])
	}
	var odd uint64
	for i := 1; i < len(addr); i++ {
		odd |= addr[i] - addr[i-1] ^ d
	}
	return odd == 0
}

// sort orders byAddr. Insertion sort is fast here, because there are few runs or they are already
// sorted.
func (r *runs) sort() {
	for i, cur := range r.byLane[:r.n] {
		k := i
		for ; k > 0 && r.byAddr[k-1].addr > cur.addr; k-- {
			r.byAddr[k] = r.byAddr[k-1]
		}
		r.byAddr[k] = cur
	}
}

// Traffic is the global-memory traffic of one or more accesses.
type Traffic struct {
	Bytes   int64 // distinct bytes
	Sectors int64 // 32-byte sectors that contain them, the unit of transfers
	Ideal   int64 // minimum number of sectors for this number of bytes
	Lines   int64 // 128-byte lines that contain them, the unit of L1 lookups
}

func (t *Traffic) add(u Traffic) {
	t.Bytes += u.Bytes
	t.Sectors += u.Sectors
	t.Ideal += u.Ideal
	t.Lines += u.Lines
}

const (
	sectorBytes = 32
	lineBytes   = 128
)

// traffic returns the global-memory traffic of an access of the given size per lane.
func (r *runs) traffic(size int) Traffic {
	var m meter
	for i := range r.byAddr[:r.n] {
		cur := &r.byAddr[i]
		m.add(cur.addr, cur.addr+cur.bytes(size))
	}
	return m.total()
}

// spanTraffic returns the traffic of one bulk copy. A sector shared by several rows of a tile
// counts once.
func spanTraffic(spans []emu.Span) Traffic {
	byAddr := func(a, b emu.Span) int { return cmp.Compare(a.Addr, b.Addr) }
	if !slices.IsSortedFunc(spans, byAddr) {
		spans = slices.Clone(spans)
		slices.SortFunc(spans, byAddr)
	}
	var m meter
	for _, s := range spans {
		m.add(s.Addr, s.Addr+uint64(s.Size))
	}
	return m.total()
}

// meter measures the traffic of address ranges, which are added in ascending order and may
// overlap.
type meter struct {
	sum                         Traffic
	endByte, endSector, endLine uint64 // end of the bytes, sectors and lines counted so far
}

// add adds the bytes from addr to end.
func (m *meter) add(addr, end uint64) {
	if end <= m.endByte {
		return
	}
	m.sum.Bytes += int64(end - max(addr, m.endByte))
	m.endByte = end
	if first, last := max(addr/sectorBytes, m.endSector), (end-1)/sectorBytes; first <= last {
		m.sum.Sectors += int64(last - first + 1)
		m.endSector = last + 1
	}
	if first, last := max(addr/lineBytes, m.endLine), (end-1)/lineBytes; first <= last {
		m.sum.Lines += int64(last - first + 1)
		m.endLine = last + 1
	}
}

func (m *meter) total() Traffic {
	m.sum.Ideal = (m.sum.Bytes + sectorBytes - 1) / sectorBytes
	return m.sum
}

// overlap reports whether two lanes access the same byte.
func (r *runs) overlap(size int) bool {
	var end uint64
	for i := range r.byAddr[:r.n] {
		cur := &r.byAddr[i]
		if cur.addr < end || cur.step == 0 && cur.lanes > 1 {
			return true
		}
		end = cur.addr + cur.bytes(size)
	}
	return false
}

// lanesOf calls f for each lane in mask.
func lanesOf(mask uint32, f func(lane int)) {
	for ; mask != 0; mask &= mask - 1 {
		f(bits.TrailingZeros32(mask))
	}
}

func isWrite(k emu.AccessKind) bool {
	return k == emu.Write || k == emu.Atomic || k == emu.AsyncWrite
}

func isRead(k emu.AccessKind) bool {
	return k == emu.Read || k == emu.Atomic || k == emu.AsyncRead
}
