package emu

import (
	"slices"
	"unsafe"

	"tilework/ptx"
)

// tensorMove is a tcgen05.ld or tcgen05.st. Its fragment maps the registers of the warp to the
// words of a rectangle of up to 32 lanes.
type tensorMove struct {
	*fragment
	addr      tensorOperand
	slots     []uint32
	registers []register
	packed    bool // each register holds the lower halves of two columns
	half      int  // columns between the two halves of the shape 16x32bx2
	// reduce combines two words of a lane for tcgen05.ld.red, whose result is in the slot reduced.
	reduce  func(a, b uint32) uint32
	reduced uint32
}

// tensorTransfer is a tcgen05.ld or tcgen05.st that no wait has completed.
type tensorTransfer struct {
	*asyncOp
	move *tensorMove
	load bool
	used bool // a load whose registers were used before the wait
}

// tensorShapes holds, by shape, the lanes of tensor memory that a warp accesses, and the lane and
// column of each register (manual: "tcgen05-data-movement-shape").
var tensorShapes = map[string]struct {
	lanes int
	at    func(thread, r, half int) (lane, col int)
}{
	"32x32b":  {32, func(thread, r, _ int) (int, int) { return thread, r }},
	"16x64b":  {16, func(thread, r, _ int) (int, int) { return thread/4 + 8*(thread%2), thread/2%2 + 2*r }},
	"16x128b": {16, func(thread, r, _ int) (int, int) { return thread/4 + 8*(r%2), thread%4 + 4*(r/2) }},
	"16x256b": {16, func(thread, r, _ int) (int, int) { return thread/4 + 8*(r/2%2), thread%4*2 + r%2 + 8*(r/4) }},
	"16x32bx2": {16, func(thread, r, half int) (int, int) {
		return thread % 16, r + thread/16*half
	}},
}

// tensorMove decodes a tcgen05.ld or tcgen05.st with its vector of registers in argument k.
func (d *decoder) tensorMove(k, address int) *tensorMove {
	i := d.i
	d.f.matrices = true
	m := &tensorMove{addr: d.tensorOperand(address), packed: i.Has("pack::16b") || i.Has("unpack::16b")}
	list := &d.in.reads
	if i.Operand(k).Dst {
		list = &d.in.writes
	}
	before := len(*list)
	m.slots = d.vector(k)
	if i.Has("red") {
		m.reduced = d.vector(k + 1)[0]
		m.reduce = d.reduction(i.Type(k + 1))
	}
	m.registers = append(m.registers, (*list)[before:]...)
	shape := tensorShapes[i.Mod("shape")]
	for k := range i.Args {
		if i.Operand(k).Name == "half" {
			if m.half = int(d.constInt(k)); m.packed {
				m.half /= 2
			}
		}
	}
	cols := 0
	m.fragment = newFragment(shape.lanes, 0, len(m.slots), func(thread, r int) (int, int) {
		lane, col := shape.at(thread, r, m.half)
		cols = max(cols, col+1)
		return lane, col
	})
	if m.cols = cols; m.packed {
		m.cols *= 2
	}
	d.in.x = m
	return m
}

// part returns the tensor memory that the warp accesses. ok is false after a misuse.
func (m *tensorMove) part(w *warp, in *inst) (p *tensorPart, ok bool) {
	if !w.sameInWarp(in, m.addr.slot, "address") {
		return nil, false
	}
	lane, col := m.addr.at(w, 0)
	quarter := w.index % groupWarps
	if lane/lanes != quarter || lane%lanes+m.rows > lanes {
		w.misuse(in, "warp %d accesses lanes %d to %d of tensor memory: want some of its lanes, %d to %d", w.index, lane,
			lane+m.rows-1, quarter*lanes, quarter*lanes+lanes-1)
		return nil, false
	}
	p = &tensorPart{block: w.block, lane: lane, col: col, lanes: m.rows, cols: m.cols}
	if err := p.check(); err != nil {
		w.misuse(in, "%v", err)
		return nil, false
	}
	return p, true
}

// each calls do for each register of each lane, with the words that it holds: one, or two if the
// words are packed.
func (m *tensorMove) each(p *tensorPart, do func(lane, r int, low, high *uint32)) {
	t := &p.block.tensor
	for lane := range m.at {
		for r, at := range m.at[lane] {
			row, col := p.lane+int(at.row), p.col+int(at.col)
			if m.packed {
				col += int(at.col)
				do(lane, r, t.word(row, col), t.word(row, col+1))
			} else {
				do(lane, r, t.word(row, col), nil)
			}
		}
	}
}

func (d *decoder) tensorLoad() execFunc {
	m := d.tensorMove(0, slices.IndexFunc(d.i.Args, func(arg ptx.Operand) bool {
		_, ok := arg.(*ptx.Addr)
		return ok
	}))
	return aligned(func(w *warp, in *inst) {
		p, ok := m.part(w, in)
		if !ok {
			return
		}
		f := w.frame
		write := func(slot uint32, lane int, v uint32) {
			*(*uint32)(unsafe.Add(f.base, uintptr(slot)+uintptr(4*lane))) = v
		}
		w.startTensor(in, m, true, p, func() {
			var sums [lanes]uint32
			m.each(p, func(lane, r int, low, high *uint32) {
				v := *low
				if high != nil {
					v = v&0xffff | *high<<16
				}
				write(m.slots[r], lane, v)
				if m.reduce != nil {
					sums[lane] = m.reduce(choose(r == 0, v, sums[lane]), v)
					write(m.reduced, lane, sums[lane])
				}
			})
		})
		if w.tracks {
			w.trackTensorLoad(in, m, p)
		}
	})
}

func (d *decoder) tensorStore() execFunc {
	m := d.tensorMove(len(d.i.Args)-1, 0)
	return aligned(func(w *warp, in *inst) {
		p, ok := m.part(w, in)
		if !ok {
			return
		}
		values := make([][lanes]uint32, len(m.slots))
		for r, slot := range m.slots {
			values[r] = *reg[uint32](w, slot)
		}
		w.startTensor(in, m, false, p, func() {
			m.each(p, func(lane, r int, low, high *uint32) {
				if *low = values[r][lane]; high != nil {
					*low, *high = *low&0xffff, *low>>16
				}
			})
		})
	})
}

// startTensor starts a load or a store, which runs at a random time before the wait.
func (w *warp) startTensor(in *inst, m *tensorMove, load bool, p *tensorPart, do func()) {
	c := w.block.cluster
	c.operations++
	f := &asyncOp{id: c.operations, origin: w.origin(in), warp: w, uses: []*block{w.block}, parts: []func(){do}}
	if load { // passes undefined values on
		w.holdRegisters(m.registers)
		w.block.emitBulk(p.event(f.origin, f.id, AsyncRead))
	} else {
		w.emitBulk(p.event(f.origin, f.id, AsyncWrite))
	}
	w.checkOpen(in, len(w.transfers))
	w.transfers = append(w.transfers, tensorTransfer{asyncOp: f, move: m, load: load})
	c.startAsync(f)
}

// waitTensor completes the loads or the stores of the warp.
func (w *warp) waitTensor(in *inst, loads bool) {
	var finished []CopyLanes
	kept := w.transfers[:0]
	for _, t := range w.transfers {
		if t.load != loads {
			kept = append(kept, t)
			continue
		}
		t.runUntil(0)
		if loads && !t.used {
			w.releaseRegisters(t.move.registers)
		}
		finished = append(finished, CopyLanes{t.id, 1})
	}
	clear(w.transfers[len(kept):])
	w.transfers = kept
	w.emitCopyDone(in, finished, false)
	w.emitWarpSync(in, full, true) // all lanes have waited
}

// useLoaded completes the tcgen05.ld in flight that write register r, which the current instruction
// uses.
func (w *warp) useLoaded(in *inst, r register) {
	for k := range w.transfers {
		t := &w.transfers[k]
		if !t.load || t.used || !slices.Contains(t.move.registers, r) {
			continue
		}
		t.runUntil(0)
		t.used = true
		w.releaseRegisters(t.move.registers)
		w.emitUndefined(w.origin(in), UseOperand, &Cause{Origin: t.origin, Kind: UnfinishedLoad, Register: r.sym.Name})
	}
}

// trackTensorLoad makes the registers of a load undefined that get undefined words.
func (w *warp) trackTensorLoad(in *inst, m *tensorMove, p *tensorPart) {
	unknown := &p.block.tensor.unknown
	if unknown.count == 0 || w.frame.fn != w.block.run.entry {
		return
	}
	u := &w.frame.undefined
	masks := map[int]uint32{}
	var cause *Cause
	for lane := range m.at {
		for r, at := range m.at[lane] {
			off := tensorOffset(p.lane+int(at.row), p.col+int(at.col))
			if unknown.first(off, 4) < 0 {
				continue
			}
			masks[r] |= 1 << lane
			if cause == nil {
				cause = &Cause{Origin: Origin{Site: in.site, Warp: w.index, Mask: 1 << lane}, Kind: UnsetMemory,
					Space: ptx.Tensor, Addr: off, Rank: p.block.rank}
			}
		}
	}
	slots := map[uint32]uint32{} // lanes by register
	for r, mask := range masks {
		slots[m.slots[r]] = mask
		if m.reduce != nil {
			slots[m.reduced] |= mask
		}
	}
	for slot, mask := range slots {
		if n, ok := w.frame.fn.registerAt(slot); ok {
			u.set(n, mask, mask, cause)
		}
	}
}
