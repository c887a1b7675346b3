package emu

import (
	"math"
	"math/bits"

	"tilework/ptx"
)

// syncMembers returns an execFunc that runs do when all lanes of the member mask in in.e have
// converged. They are then the active lanes.
func syncMembers(do execFunc) execFunc {
	return func(w *warp, in *inst) {
		if need, ok := w.members(in, in.e); ok && w.converge(in, need) {
			w.emitWarpSync(in, need, false)
			if w.tracks && in.flow == flowAcross {
				w.trackAcross(in)
			}
			do(w, in)
		}
	}
}

// members returns the member mask of the first active lane. Active lanes with another mask are
// split into a group that executes the instruction later.
func (w *warp) members(in *inst, slot uint32) (need uint32, ok bool) {
	masks := reg[uint32](w, slot)
	need = masks[firstLane(w.active)]
	var same uint32
	for m := w.active; m != 0; m &= m - 1 {
		if lane := firstLane(m); masks[lane] == need {
			same |= 1 << lane
		}
	}
	if need&same != same {
		w.misuse(in, "lane %d is not in its own member mask %#08x", firstLane(same&^need), need)
		return 0, false
	}
	if others := w.active &^ same; others != 0 {
		w.counts[in.pc].idle += uint64(bits.OnesCount32(others))
		w.split(others, in.pc)
		w.active = same
	}
	return need, true
}

func (w *warp) emitWarpSync(in *inst, members uint32, orders bool) {
	if len(w.block.warpSync) > 0 {
		e := WarpSync{Origin: w.origin(in), Members: members, Orders: orders}
		if gone := members &^ w.active; gone != 0 {
			w.block.missing = w.appendExited(w.block.missing[:0], w.kernelPC(in.pc), gone)
			e.Missing = w.block.missing
		}
		for _, f := range w.block.warpSync {
			f(&e)
		}
	}
}

// writesResults marks an instruction that writes its results itself.
func (d *decoder) writesResults() { d.in.blend = 0 }

// execWarpSync executes bar.warp.sync. Lanes can synchronize at different instances of it.
func execWarpSync(w *warp, in *inst) {
	need, ok := w.members(in, in.a)
	if !ok {
		return
	}
	members := need
	need &= w.live
	there := w.active
	for n := range w.groups {
		g := &w.groups[n]
		if n != w.group && g.state == converging && g.need&w.live == need && g.frame.fn.code[g.pc].site.Instr.Has("warp") {
			there |= g.mask
		}
	}
	if need&^there != 0 {
		w.uncount(in)
		w.suspend(in, converging).need = need
		w.pick()
		return
	}
	for n := range w.groups {
		if g := &w.groups[n]; n != w.group && g.state == converging && g.mask&need != 0 {
			g.state = ready
			g.pc++
			w.counts[in.pc].idle -= uint64(bits.OnesCount32(g.mask))
		}
	}
	w.active = there
	w.emitWarpSync(in, members, true)
}

func decodeVote(d *decoder) execFunc {
	mode := d.i.Mod("mode")
	d.in.d = d.result(0)
	d.writesResults()
	d.in.a, d.in.e = d.source(1), d.source(2)
	return syncMembers(func(w *warp, in *inst) {
		p := *pred(w, in.a) & w.active
		switch mode {
		case "ballot":
			var out [lanes]uint32
			broadcast(&out, p)
			setLanes(reg[uint32](w, in.d), &out, w.active)
		case "all":
			setPred(w, in.d, mask(p == w.active))
		case "any":
			setPred(w, in.d, mask(p != 0))
		case "uni":
			setPred(w, in.d, mask(p == 0 || p == w.active))
		}
	})
}

// mask returns all lanes or none.
func mask(all bool) uint32 {
	if all {
		return full
	}
	return 0
}

func decodeMatch(d *decoder) execFunc {
	d.in.d = d.result(0)
	d.writesResults()
	d.in.a, d.in.e = d.source(1), d.source(2)
	valid, wanted := d.secondResult(0)
	all := d.i.Mod("mode") == "all"
	if d.i.Type(1).Bits() == 64 {
		return syncMembers(match[uint64](all, valid, wanted))
	}
	return syncMembers(match[uint32](all, valid, wanted))
}

func match[T uint32 | uint64](all bool, valid uint32, wanted bool) execFunc {
	return func(w *warp, in *inst) {
		a := *reg[T](w, in.a)
		var out [lanes]uint32
		same := true
		for m := w.active; m != 0; m &= m - 1 {
			lane := firstLane(m)
			for k := w.active; k != 0; k &= k - 1 {
				if a[firstLane(k)] == a[lane] {
					out[lane] |= k & -k
				}
			}
			same = same && out[lane] == w.active
		}
		if all && !same {
			clear(out[:])
		}
		setLanes(reg[uint32](w, in.d), &out, w.active)
		if wanted {
			setPred(w, valid, mask(same))
		}
	}
}

func decodeRedux(d *decoder) execFunc {
	d.in.d = d.result(0)
	d.writesResults()
	d.in.a, d.in.e = d.source(1), d.source(2)
	f := d.reduction(d.i.Type(1))
	first := func(a uint32) uint32 { return a }
	if d.i.Type(1) == ptx.F32 {
		first = func(a uint32) uint32 { return f(a, a) } // .abs and .NaN apply to a single lane too
	}
	return syncMembers(func(w *warp, in *inst) {
		a := reg[uint32](w, in.a)
		m := w.active
		sum := first(a[firstLane(m)])
		for m &= m - 1; m != 0; m &= m - 1 {
			sum = f(sum, a[firstLane(m)])
		}
		var out [lanes]uint32
		broadcast(&out, sum)
		setLanes(reg[uint32](w, in.d), &out, w.active)
	})
}

// reduction returns the function that combines two 32-bit values of type t by the operation of the
// instruction.
func (d *decoder) reduction(t ptx.Type) func(a, b uint32) uint32 {
	if t == ptx.F32 {
		f := d.variant().single(choose(d.i.Mod("op") == "min", minFloat, maxFloat))
		return func(a, b uint32) uint32 {
			x, y := math.Float32frombits(a), math.Float32frombits(b)
			return math.Float32bits(f(x, y, y))
		}
	}
	f := updateOf(d.i.Mod("op"), t)
	return func(a, b uint32) uint32 { return uint32(f(uint64(a), uint64(b), 0, false)) }
}

func decodeActivemask(d *decoder) execFunc {
	d.operands()
	return func(w *warp, in *inst) { broadcast(dst[uint32](w, in), w.active) }
}

func decodeElect(d *decoder) execFunc {
	d.in.d = d.result(0)
	d.writesResults()
	d.in.e = d.source(1)
	chosen, wanted := d.secondResult(0)
	return syncMembers(func(w *warp, in *inst) {
		lane := firstLane(w.active)
		var out [lanes]uint32
		broadcast(&out, uint32(lane))
		setLanes(reg[uint32](w, in.d), &out, w.active)
		if wanted {
			setPred(w, chosen, 1<<lane)
		}
	})
}
