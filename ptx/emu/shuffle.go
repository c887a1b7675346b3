package emu

import (
	"math/bits"
	"slices"
)

// shuffle holds the mode of a shfl instruction, and the slot of its predicate.
type shuffle struct {
	mode   string
	valid  uint32
	wanted bool // valid is written
}

func decodeShuffle(d *decoder) execFunc {
	d.in.d = d.result(0)
	d.writesResults()
	d.in.a, d.in.b, d.in.c, d.in.e = d.source(1), d.source(2), d.source(3), d.source(4)
	s := &shuffle{mode: d.i.Mod("mode")}
	s.valid, s.wanted = d.secondResult(0)
	d.in.x = s
	return func(w *warp, in *inst) {
		need, ok := w.members(in, in.e)
		if !ok {
			return
		}
		var guests shuffled
		if !w.gather(in, need) && !w.meet(in, need, &guests) {
			w.await(in, need)
			return
		}
		w.emitWarpSync(in, need&^guests.mask, false)
		s.exchange(w, in, &guests)
	}
}

// shuffled holds the operands of lanes that execute another shuffle with the same member mask.
type shuffled struct {
	mask   uint32
	values [lanes]uint32
	bits   [lanes]uint64 // undefined bits of the values
	cause  *Cause        // of undefined bits
}

// exchange executes the shuffle for the active lanes, which can read from the guests.
func (s *shuffle) exchange(w *warp, in *inst, guests *shuffled) {
	a, b, c := *reg[uint32](w, in.a), reg[uint32](w, in.b), reg[uint32](w, in.c)
	for m := guests.mask; m != 0; m &= m - 1 {
		a[firstLane(m)] = guests.values[firstLane(m)]
	}
	var out [lanes]uint32
	var sources [lanes]int
	var inRange uint32
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		from, ok := shuffleSource(s.mode, lane, int(b[lane]&31), c[lane])
		if ok {
			inRange |= 1 << lane
		}
		out[lane], sources[lane] = a[from], from
	}
	if w.tracks {
		w.trackShuffle(in, &sources, guests)
	}
	setLanes(reg[uint32](w, in.d), &out, w.active)
	if s.wanted {
		setPred(w, s.valid, inRange)
	}
}

// meet reports whether the lanes of need that are not at this shuffle wait at others with the same
// modifiers, as the manual allows: it asks that all lanes of the mask "have executed shfl.sync with
// the same qualifiers and same membermask value". meet executes these other shuffles and returns
// their operands.
func (w *warp) meet(in *inst, need uint32, guests *shuffled) bool {
	need &= w.live
	var waiting []int
	there := w.active
	for n := range w.groups {
		g := &w.groups[n]
		if n == w.group || g.state != converging || g.need&w.live != need {
			continue
		}
		if i := g.frame.fn.code[g.pc].site.Instr; i.Op == "shfl" && slices.Equal(i.Mods, in.site.Instr.Mods) {
			waiting = append(waiting, n)
			there |= g.mask
		}
	}
	if need&^there != 0 {
		return false
	}
	all := w.operand(in)
	own, active := w.frame, w.active
	enter := func(f *frame, mask uint32) { w.frame, w.base, w.active = f, f.base, mask }
	for _, n := range waiting {
		g := &w.groups[n]
		enter(g.frame, g.mask)
		all.add(w.operand(&g.frame.fn.code[g.pc]))
	}
	for _, n := range waiting {
		g := &w.groups[n]
		other := &g.frame.fn.code[g.pc]
		enter(g.frame, g.mask)
		other.x.(*shuffle).exchange(w, other, all.without(g.mask))
		g.state = ready
		g.pc++
		count := &w.worker.counts[g.frame.fn.first:][other.pc]
		count.Executed++
		count.idle += uint64(bits.OnesCount32(^g.mask))
	}
	enter(own, active)
	*guests = *all.without(active)
	return true
}

// operand returns the operand of the active lanes.
func (w *warp) operand(in *inst) *shuffled {
	s := &shuffled{mask: w.active, values: *reg[uint32](w, in.a)}
	if source, ok := w.frame.fn.registerAt(in.a); ok && w.tracks {
		s.bits = *w.frame.undefined.of(source)
		s.cause = w.firstCause(in, in.reads, w.active)
	}
	return s
}

// add adds the lanes of other to s.
func (s *shuffled) add(other *shuffled) {
	for m := other.mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		s.values[lane], s.bits[lane] = other.values[lane], other.bits[lane]
	}
	s.mask |= other.mask
	if s.cause == nil {
		s.cause = other.cause
	}
}

// without returns s without the lanes of mask.
func (s *shuffled) without(mask uint32) *shuffled {
	rest := *s
	rest.mask &^= mask
	return &rest
}

// shuffleSource returns the lane to read from and whether it is in range. If not, the lane reads
// its own value.
func shuffleSource(mode string, lane, b int, c uint32) (from int, ok bool) {
	clamp, segment := int(c&31), int(c>>8&31)
	last := lane&segment | clamp&^segment
	switch mode {
	case "up":
		from = lane - b
		ok = from >= last
	case "down":
		from = lane + b
		ok = from <= last
	case "bfly":
		from = lane ^ b
		ok = from <= last
	default: // idx
		from = lane&segment | b&^segment
		ok = from <= last
	}
	if !ok {
		from = lane
	}
	return from, ok
}
