package check

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// The PTX memory model does not make a program with data races undefined: its axioms describe
// accesses of the same size that race (PTX ISA, "Limitations on Mixed-size Data-races"). The value
// of a racing read is that of some write. Four patterns rely on no more than this and are advice:
//
//   - Threads or bulk copies write the same value to the same bytes. Whichever write is last, the
//     value is the same.
//   - Lanes of one store write numbers to the same bytes that differ by rounding. Each lane of a
//     butterfly of shuffles has the same sum, unless the compiler fuses a multiplication into the
//     first addition, as Triton does.
//   - A thread reads a variable without an atomic operation and passes the value to atom.cas, which
//     fails if the value is stale. Within a cluster, the instruction must be one after which a warp
//     executed an atom.cas on the variable: a read of the result, without a barrier after the
//     updates, is an error.
//   - A thread that has updated a variable by an atomic operation writes it later, such as the
//     last block that resets a counter. The atomic operation comes after those whose values it
//     observed, and before the write ("Causality Order": observation order followed by program
//     order). The write is ordered after theirs if it was the last one.

// tolerated holds the accesses of a worker that such patterns consist of.
type tolerated struct {
	updates map[update]struct{} // atomic operations
	swapped map[variable]uint64 // bytes of the variables that an atom.cas accesses
	// plainReads holds, by finding, the instruction that reads in a race between a plain read and a
	// strong write.
	plainReads map[key]int
	// racing holds the instructions of such reads by the warp that executed them and the variable.
	racing map[reader]map[int]struct{}
	// expected holds the instructions of plain reads of variables on which the same warp later
	// executed an atom.cas. They supply the expected value.
	expected map[int]struct{}
}

// owned is a variable with the rank of the block that owns it in shared memory, or rank 0.
type owned struct {
	variable
	rank int
}

func ownedAt(space ptx.Space, rank int, addr uint64) owned {
	if space != ptx.Shared {
		rank = 0
	}
	return owned{variable{space, addr}, rank}
}

// reader identifies a warp and the first byte of a cell that it has read.
type reader struct {
	owned
	warp int
}

// update identifies the variable and the thread of an atomic operation.
type update struct {
	owned
	thread int
}

func newTolerated() tolerated {
	return tolerated{updates: map[update]struct{}{}, swapped: map[variable]uint64{}, plainReads: map[key]int{},
		racing: map[reader]map[int]struct{}{}, expected: map[int]struct{}{}}
}

// start forgets the accesses of the previous cluster.
func (t *tolerated) start() {
	clear(t.updates)
	clear(t.racing)
}

// noteAtomic records an atomic operation, which is the current access.
func (r *raceDetector) noteAtomic(a *emu.Access) {
	swaps := a.Site.Instr != nil && a.Site.Instr.Has("cas")
	lanesOf(a.Mask, func(lane int) {
		v := ownedAt(a.Space, a.Rank, a.Addr[lane])
		r.updates[update{v, a.Warp*32 + lane}] = struct{}{}
		if swaps {
			r.swapped[v.variable] = max(r.swapped[v.variable], uint64(a.Size))
			r.noteExpected(a, a.Addr[lane])
		}
	})
}

// noteExpected records the plain reads of the warp before its atom.cas a at addr: the last ones,
// which are in the cells, and those that race.
func (r *raceDetector) noteExpected(a *emu.Access, addr uint64) {
	off := addr - r.cur.base
	p := r.cur.region.pages[off>>pageShift]
	k := int(off%pageBytes) >> p.shift
	for _, c := range p.cells[k : k+max(a.Size>>p.shift, 1)] {
		for _, e := range c.r {
			if e != 0 && e&strong == 0 && e.warp() == a.Warp {
				r.expected[e.site()] = struct{}{}
			}
		}
	}
	for end := addr + uint64(a.Size); addr < end; addr++ {
		maps.Copy(r.expected, r.racing[reader{ownedAt(a.Space, a.Rank, addr), a.Warp}])
	}
}

// flagsOfLanes returns the flags repeats and resets of a plain store, as masks of lanes.
func (t *tolerated) flagsOfLanes(a *emu.Access) (repeats, resets uint32) {
	if a.Kind != emu.Write || a.Sem != emu.Weak {
		return 0, 0
	}
	if len(t.updates) > 0 {
		lanesOf(a.Mask, func(lane int) {
			v := ownedAt(a.Space, a.Rank, a.Addr[lane])
			if _, ok := t.updates[update{v, a.Warp*32 + lane}]; ok {
				resets |= 1 << lane
			}
		})
	}
	return a.Unchanged(), resets
}

// Reasons why a race is advice.
const (
	sameValue = "Both write the same value, so the result does not depend on the order: " +
		"want one thread to write it, or an atomic operation"
	resetCounter = "The thread has updated it by an atomic operation before: the write is ordered only if that was the " +
		"last atomic operation of all threads"
	roundedSums = "They are numbers that differ by rounding only, so the result is right whichever remains, but its " +
		"last bits may differ from run to run"
	plainRead = "A stale value is harmless if it is only passed to atom.cas: " +
		"want a volatile or relaxed load"
)

// toleratedWrite returns the reason why a race between a write e and an earlier write p is advice,
// or an empty string.
func toleratedWrite(p, e epoch) string {
	switch {
	case (p|e)&strong == 0 && e&repeats != 0:
		return sameValue
	case e&resets != 0 && e&strong == 0 && p&strong != 0:
		return resetCounter
	}
	return ""
}

// mostRounded is the relative difference up to which two numbers count as results of the same
// computation in another order.
const mostRounded = 0x1p-14

// roundedApart reports whether x and y are float32 or float64 numbers that differ by rounding.
// Small integers and addresses are not, because their bits are those of subnormal numbers.
func roundedApart(x, y []byte) bool {
	var a, b, least float64
	switch {
	case len(x) != len(y):
		return false
	case len(x) == 4:
		a = float64(math.Float32frombits(binary.LittleEndian.Uint32(x)))
		b = float64(math.Float32frombits(binary.LittleEndian.Uint32(y)))
		least = 0x1p-126
	case len(x) == 8:
		a, b = math.Float64frombits(binary.LittleEndian.Uint64(x)), math.Float64frombits(binary.LittleEndian.Uint64(y))
		least = 0x1p-1022
	}
	return math.Abs(a) >= least && math.Abs(b) >= least && math.Abs(a-b) <= mostRounded*math.Abs(a)
}

// notePlainRead records that a plain read e of the variable at addr races with a strong write. The
// race is finding k. It ignores instructions that an epoch cannot tell apart: one that supplies
// the expected value of an atom.cas does not excuse the others.
func (r *raceDetector) notePlainRead(k key, e epoch, addr uint64) {
	if e.site() == siteMask {
		return
	}
	r.plainReads[k] = e.site()
	by := reader{ownedAt(r.cur.space, r.cur.rank, addr), e.warp()}
	if r.racing[by] == nil {
		r.racing[by] = map[int]struct{}{}
	}
	r.racing[by][e.site()] = struct{}{}
}

// tolerateReads turns races between plain reads and strong writes in a cluster into advice, if the
// instruction reads the expected values of an atom.cas. c.mu must be held.
func (c *Checks) tolerateReads(w *worker) {
	for k, site := range w.race.plainReads {
		suppliesSwap := slices.ContainsFunc(c.workers, func(w *worker) bool {
			_, ok := w.race.expected[site]
			return ok
		})
		if f := w.found[k]; f != nil && suppliesSwap {
			f.tolerate(plainRead)
		}
	}
}

// swaps reports whether an atom.cas of any block accesses v, or a variable that contains v: clang
// reads a word, and swaps it, to swap 16 bits.
func (c *Checks) swaps(v variable) bool {
	for _, w := range c.workers {
		for align := uint64(2); align <= 16; align *= 2 {
			at := v.addr &^ (align - 1)
			if v.addr-at < w.race.swapped[variable{v.space, at}] {
				return true
			}
		}
	}
	return false
}

// tolerate makes a race advice.
func (f *Finding) tolerate(reason string) {
	if f.Severity == Error {
		f.Severity = Advice
		f.Message += ". " + reason
	}
}
