package check

import (
	"cmp"
	"math/bits"
	"slices"

	"tilework/ptx/emu"
)

// run is a stretch of lanes, without gaps, that access one address or addresses
// side by side. What a warp does to memory is mostly one or two of them, and so the
// checkers range over runs rather than over lanes.
type run struct {
	addr  uint64 // of the first lane
	lane  int    // the first lane
	lanes int
	step  uint64 // from lane to lane: 0 or the access's size
}

// bytes is how much memory the run covers from its address on.
func (r *run) bytes(size int) uint64 { return uint64(r.lanes-1)*r.step + uint64(size) }

// runs is an access cut up, in the order of the lanes and in that of the addresses.
type runs struct {
	byLane [32]run
	byAddr [32]run
	n      int
}

// split cuts the access of the lanes in mask up.
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

// halves does the work where each half of the lanes is a run, as in blocks of 16 and
// more threads a row.
func (r *runs) halves(addr *[32]uint64, size uint64) bool {
	low, high := (*[16]uint64)(addr[:16]), (*[16]uint64)(addr[16:])
	d, e := low[1]-low[0], high[1]-high[0]
	if d != 0 && d != size || e != 0 && e != size || !even(low, d) || !even(high, e) {
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

// even reports whether each address is d more than the one before it.
func even(addr *[16]uint64, d uint64) bool {
	var odd uint64
	for i := 1; i < len(addr); i++ {
		odd |= addr[i] - addr[i-1] ^ d
	}
	return odd == 0
}

// sort orders byAddr. Insertion is quick here: there are few runs, or they ascend.
func (r *runs) sort() {
	for i, cur := range r.byLane[:r.n] {
		k := i
		for ; k > 0 && r.byAddr[k-1].addr > cur.addr; k-- {
			r.byAddr[k] = r.byAddr[k-1]
		}
		r.byAddr[k] = cur
	}
}

// Traffic is what an access of a warp, or many of them, asks of global memory.
type Traffic struct {
	Bytes   int64 // different bytes that the lanes access
	Sectors int64 // of 32 bytes that hold them, the unit that memory moves
	Ideal   int64 // sectors that as many bytes need at the least
	Lines   int64 // of 128 bytes that hold them, the unit that the L1 cache looks up
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

// traffic returns the traffic that the access causes in global memory.
func (r *runs) traffic(size int) Traffic {
	var m meter
	for i := range r.byAddr[:r.n] {
		cur := &r.byAddr[i]
		m.add(cur.addr, cur.addr+cur.bytes(size))
	}
	return m.total()
}

// spanTraffic returns the traffic of one bulk copy: each sector once, though rows of a tile
// may share it.
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

// meter measures the traffic of stretches of memory, which are added in the order of their
// addresses and may overlap.
type meter struct {
	sum                         Traffic
	endByte, endSector, endLine uint64 // up to which bytes, sectors and lines are counted
}

// add counts the bytes from addr up to end.
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

// trafficOf returns the traffic of one access of a warp to global memory: lane i of mask
// accesses the size bytes from addr[i].
func trafficOf(addr *[32]uint64, mask uint32, size int) Traffic {
	var r runs
	r.split(addr, mask, size)
	return r.traffic(size)
}

// overlap reports whether two lanes access a byte in common.
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

// lanesOf calls f for each lane that the mask has.
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
