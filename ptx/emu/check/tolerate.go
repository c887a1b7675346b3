package check

import (
	"encoding/binary"
	"math"

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
//     fails if the value is stale.
//   - A thread that has updated a variable by an atomic operation writes it later, such as the
//     last block that resets a counter. The atomic operation comes after those whose values it
//     observed, and before the write ("Causality Order": observation order followed by program
//     order). The write is ordered after theirs if it was the last one.

// tolerated holds the accesses of a worker that such patterns consist of.
type tolerated struct {
	updates map[update]struct{} // atomic operations
	swapped map[variable]uint64 // bytes of the variables that an atom.cas accesses
	// plainReads holds the variables of races between plain reads and atomic operations.
	plainReads map[key]map[variable]struct{}
}

// update identifies the variable and the thread of an atomic operation.
type update struct {
	variable
	thread int
}

func newTolerated() tolerated {
	return tolerated{updates: map[update]struct{}{}, swapped: map[variable]uint64{},
		plainReads: map[key]map[variable]struct{}{}}
}

// note records an atomic operation.
func (t *tolerated) note(a *emu.Access) {
	swaps := a.Site.Instr != nil && a.Site.Instr.Has("cas")
	lanesOf(a.Mask, func(lane int) {
		v := variable{a.Space, a.Addr[lane]}
		t.updates[update{v, a.Warp*32 + lane}] = struct{}{}
		if swaps {
			t.swapped[v] = max(t.swapped[v], uint64(a.Size))
		}
	})
}

// flagsOfLanes returns the flags repeats and resets of a plain store, as masks of lanes.
func (t *tolerated) flagsOfLanes(a *emu.Access) (repeats, resets uint32) {
	if a.Kind != emu.Write || a.Sem != emu.Weak {
		return 0, 0
	}
	if len(t.updates) > 0 {
		lanesOf(a.Mask, func(lane int) {
			if _, ok := t.updates[update{variable{a.Space, a.Addr[lane]}, a.Warp*32 + lane}]; ok {
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

// notePlainRead records that a race of finding k, between a plain read and an atomic operation, is
// about the variable at addr.
func (t *tolerated) notePlainRead(k key, space ptx.Space, addr uint64) {
	if t.plainReads[k] == nil {
		t.plainReads[k] = map[variable]struct{}{}
	}
	t.plainReads[k][variable{space, addr}] = struct{}{}
}

// tolerateReads turns races between plain reads and atomic operations into advice, if atom.cas
// accesses all their variables. c.mu must be held.
func (c *Checks) tolerateReads(w *worker) {
	for k, variables := range w.race.plainReads {
		all := true
		for v := range variables {
			all = all && c.swaps(v)
		}
		if f := w.found[k]; f != nil && all {
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
