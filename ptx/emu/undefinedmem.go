package emu

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"tilework/ptx"
)

// unknownBytes records which bytes of a block's shared memory are undefined.
type unknownBytes struct {
	bits   []uint64          // one bit per byte
	count  int               // number of undefined bytes
	causes map[uint64]*Cause // by address, for bytes to which an undefined value was stored
}

func (u *unknownBytes) reset(size int) {
	u.bits = make([]uint64, (size+63)/64)
	u.set(0, size, true)
	u.causes, u.count = nil, size
}

// set makes n bytes undefined or defined.
func (u *unknownBytes) set(addr uint64, n int, unknown bool) {
	for at, end := int(addr), int(addr)+n; at < end; {
		word, from, mask := bitsOf(at, end-at)
		before := bits.OnesCount64(u.bits[word])
		if unknown {
			u.bits[word] |= mask
		} else {
			u.bits[word] &^= mask
		}
		u.count += bits.OnesCount64(u.bits[word]) - before
		at += 64 - from
	}
}

// first returns the offset from addr of the first undefined byte of n, or -1.
func (u *unknownBytes) first(addr uint64, n int) int {
	for at, end := int(addr), int(addr)+n; at < end; {
		word, from, mask := bitsOf(at, end-at)
		if m := u.bits[word] & mask; m != 0 {
			return at + bits.TrailingZeros64(m) - from - int(addr)
		}
		at += 64 - from
	}
	return -1
}

// undefinedLocal records the undefined bits of the local memory of a warp.
type undefinedLocal struct {
	bits   []byte            // like warp.local, with ones for undefined bits
	size   int               // bytes per lane
	causes map[uint64]*Cause // by offset, for bytes to which an undefined value was stored
}

func (l *undefinedLocal) reset(size int) {
	l.size, l.causes = size, nil
	l.bits = slices.Grow(l.bits[:0], lanes*size)[:lanes*size]
	for k := range l.bits {
		l.bits[k] = 0xff
	}
}

// at returns the undefined bits of n bytes of a lane.
func (l *undefinedLocal) at(lane int, addr uint64, n int) []byte {
	return l.bits[uint64(lane*l.size)+addr:][:n]
}

// clear makes n bytes undefined in the lanes of mask.
func (l *undefinedLocal) clear(addr uint64, n int, mask uint32) {
	if len(l.causes) > 0 {
		for k := range n {
			delete(l.causes, addr+uint64(k))
		}
	}
	for ; mask != 0; mask &= mask - 1 {
		b := l.at(firstLane(mask), addr, n)
		for k := range b {
			b[k] = 0xff
		}
	}
}

// memoryRange is a range of one space, as in [Access].
type memoryRange struct {
	space ptx.Space
	block *block // owner of shared memory
	alloc *Allocation
}

// undefinedIn returns the undefined bits of the n bytes at addr in the memory of a lane.
func (w *warp) undefinedIn(r memoryRange, lane int, addr uint64, n int) (undefined wide) {
	var b [16]byte
	first := r.alloc.Unwritten
	switch {
	case r.space == ptx.Local:
		copy(b[:], w.undefinedLocal.at(lane, addr, n))
		n = 0
	case r.alloc == nil:
		first = r.block.unknown.first
	}
	for k := range n {
		if first(addr+uint64(k), 1) == 0 {
			b[k] = 0xff
		}
	}
	return wide{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// unknownIn returns the lanes of mask for which some of the n bytes at addr+at are undefined.
func (w *warp) unknownIn(r memoryRange, addr *[lanes]uint64, at uint64, n int, mask uint32) (unknown uint32) {
	first := r.alloc.Unwritten
	switch {
	case r.space == ptx.Local:
		for ; mask != 0; mask &= mask - 1 {
			i := firstLane(mask)
			for _, b := range w.undefinedLocal.at(i, addr[i]+at, n) {
				if b != 0 {
					unknown |= 1 << i
				}
			}
		}
		return unknown
	case r.alloc == nil:
		if r.block.unknown.count == 0 {
			return 0
		}
		first = r.block.unknown.first
	case !r.alloc.partial():
		return 0
	}
	for ; mask != 0; mask &= mask - 1 {
		if i := firstLane(mask); first(addr[i]+at, n) >= 0 {
			unknown |= 1 << i
		}
	}
	return unknown
}

// causeIn returns the cause for undefined bytes at addr in the given lane. undefined holds the
// undefined bits there.
func (w *warp) causeIn(r memoryRange, site *Site, lane int, addr uint64, undefined wide) *Cause {
	if undefined[0] == 0 {
		addr, undefined[0] = addr+8, undefined[1]
	}
	addr += uint64(bits.TrailingZeros64(undefined[0]) / 8)
	switch {
	case r.space == ptx.Local && w.undefinedLocal.causes[addr] != nil:
		return w.undefinedLocal.causes[addr]
	case r.space == ptx.Shared && r.block.unknown.causes[addr] != nil:
		return r.block.unknown.causes[addr]
	}
	c := &Cause{
		Origin: Origin{Site: site, Warp: w.index, Mask: 1 << lane}, Kind: UnsetMemory, Space: r.space, Alloc: r.alloc,
		Addr: addr,
	}
	if r.alloc == nil && r.block != nil {
		c.Rank = r.block.rank
	}
	return c
}

// trackAccess tracks an access of the lanes of mask, before it changes memory.
func (w *warp) trackAccess(in *inst, ac *access, r memoryRange, addr *[lanes]uint64, mask uint32) {
	if r.space != ptx.Local && r.space != ptx.Shared && r.alloc == nil {
		return
	}
	switch x := in.x.(type) {
	case *transfer:
		for k, n := range x.registers {
			switch at := uint64(k) * x.step; {
			case ac.kind != Read:
				w.trackStore(in, r, addr, at, int(x.step), mask, n)
			case n != none:
				w.trackLoad(in, r, addr, at, int(x.step), x.unused>>at, mask, n)
			}
		}
	case *cpAsync, *matrixMove, *fragmentMove:
		if ac.writes() {
			w.moved.store(w, in, r, addr, ac.size, mask)
		} else {
			w.moved.load(w, in, r, addr, ac.size, mask)
		}
	default:
		switch {
		case ac.kind == Write || ac.kind == AsyncWrite:
		case in.flow == flowExchanges:
			for _, to := range in.writes {
				w.trackLoad(in, r, addr, 0, ac.size, 0, mask, to.index)
			}
		default:
			if unknown := w.unknownIn(r, addr, 0, ac.size, mask); unknown != 0 {
				i := firstLane(unknown)
				w.emitUndefined(Origin{Site: in.site, Warp: w.index, Mask: unknown}, UseOperand,
					w.causeIn(r, in.site, i, addr[i], w.undefinedIn(r, i, addr[i], ac.size)))
			}
		}
		if ac.writes() {
			w.setUndefined(r, addr, 0, ac.size, mask, new([lanes]uint64), nil)
		}
	}
}

// trackDefined tracks a load by a full warp of values that are all defined.
func (w *warp) trackDefined(in *inst) {
	u := &w.frame.undefined
	for _, n := range in.x.(*transfer).registers {
		if n != none {
			u.lanes[n] = 0
		}
	}
}

// trackLoad makes register n undefined in the lanes that load undefined bytes. Bit k of unused
// marks byte k of the register as unused.
func (w *warp) trackLoad(
	in *inst, r memoryRange, addr *[lanes]uint64, at uint64, size int, unused uint64, mask uint32, n int,
) {
	u := &w.frame.undefined
	unknown := w.unknownIn(r, addr, at, size, mask)
	if unknown == 0 {
		u.lanes[n] &^= mask
		return
	}
	var undefined [lanes]uint64
	cause := u.causes[n]
	for m := unknown; m != 0; m &= m - 1 {
		i := firstLane(m)
		b := w.undefinedIn(r, i, addr[i]+at, size)
		for k := range min(size, 8) {
			if unused>>k&1 != 0 {
				b[0] &^= 0xff << (8 * k)
			}
		}
		if b == (wide{}) {
			continue
		}
		if undefined[i] = b[0]; size > 8 {
			undefined[i] = ^uint64(0)
		}
		if cause == nil || cause.Site != in.site { // one cause for each instruction is enough
			cause = w.causeIn(r, in.site, i, addr[i]+at, b)
		}
	}
	if t := in.site.Instr.Type(0); t.Class() == ptx.Signed && size < 8 {
		for i, b := range undefined {
			undefined[i] = uint64(int64(b<<(64-8*size)) >> (64 - 8*size)) // as the value is extended
		}
	}
	u.setBits(n, mask, &undefined, cause)
}

// trackStore tracks a store of register n, or of a constant if n is none. A store to global memory
// uses its value, unless only parts of it are undefined, such as the padding of a structure.
func (w *warp) trackStore(in *inst, r memoryRange, addr *[lanes]uint64, at uint64, size int, mask uint32, n int) {
	var undefined [lanes]uint64
	var unknown uint32
	var cause *Cause
	if n != none {
		if unknown = w.frame.undefined.lanes[n] & mask; unknown != 0 {
			undefined = *w.frame.undefined.of(n)
			cause = w.causeOf(in, register{n, w.frame.fn.registers[n]}, unknown)
		}
	}
	if r.alloc == nil {
		w.setUndefined(r, addr, at, size, mask, &undefined, cause)
		return
	}
	whole := lowBits(min(8*size, 64))
	for m := unknown; m != 0; m &= m - 1 {
		if i := firstLane(m); undefined[i]&whole != whole {
			unknown &^= 1 << i
		}
	}
	if unknown != 0 {
		w.use(in, register{n, w.frame.fn.registers[n]}, unknown, UseStore)
	}
}

// setUndefined sets the undefined bits of n bytes at addr+at for the lanes of mask. Allocations
// record writes themselves.
func (w *warp) setUndefined(
	r memoryRange, addr *[lanes]uint64, at uint64, n int, mask uint32, undefined *[lanes]uint64, c *Cause,
) {
	local := r.space == ptx.Local
	if !local && (r.alloc != nil || r.block.unknown.count == 0 && c == nil) {
		return
	}
	causes := &w.undefinedLocal.causes
	if !local {
		causes = &r.block.unknown.causes
	}
	for ; mask != 0; mask &= mask - 1 {
		i := firstLane(mask)
		a := addr[i] + at
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], undefined[i])
		binary.LittleEndian.PutUint64(b[8:], undefined[i]) // a 128-bit value is undefined as a whole
		switch {
		case local:
			copy(w.undefinedLocal.at(i, a, n), b[:])
		case undefined[i] == 0:
			r.block.unknown.set(a, n, false)
		default:
			for k := range n {
				r.block.unknown.set(a+uint64(k), 1, b[k] != 0)
			}
		}
		if undefined[i] != 0 {
			keepCause(causes, a, n, c)
		}
	}
}

// keepCause keeps the cause for the bytes to which an undefined value is stored.
func keepCause(causes *map[uint64]*Cause, addr uint64, n int, c *Cause) {
	if *causes == nil {
		*causes = map[uint64]*Cause{}
	}
	for k := range n {
		(*causes)[addr+uint64(k)] = c
	}
}

// trackBulk tracks an access of the async proxy. Such an access uses the bytes that it reads.
func (w *warp) trackBulk(e *Bulk) {
	r := memoryRange{space: e.Space, alloc: e.Alloc}
	first := r.alloc.Unwritten
	var unknown *unknownBytes
	switch e.Space {
	case ptx.Shared:
		r.block = w.block.cluster.blocks[e.Rank]
		unknown = &r.block.unknown
	case ptx.Tensor:
		r.block = w.block.cluster.blocks[e.Rank]
		unknown = &r.block.tensor.unknown
	}
	if unknown != nil {
		first = unknown.first
	}
	for _, s := range e.Spans {
		if e.Kind == AsyncWrite {
			if unknown != nil {
				unknown.set(s.Addr, s.Size, false)
			}
		} else if off := first(s.Addr, s.Size); off >= 0 {
			lane := firstLane(e.Mask)
			w.emitUndefined(e.Origin, UseOperand, w.causeIn(r, e.Site, lane, s.Addr+uint64(off), wide{1}))
			return
		}
	}
}

// passUndefined copies the undefined bits of a value that a call or a return passes.
func (w *warp) passUndefined(to passedValue, callee *frame, from passedValue, caller *frame) {
	var undefined [lanes]uint64
	var cause *Cause
	if r, ok := caller.fn.registerAt(uint32(from.offset)); from.register && ok {
		undefined, cause = *caller.undefined.of(r), caller.undefined.causes[r]
	}
	for m := w.active; m != 0; m &= m - 1 {
		lane := firstLane(m)
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], undefined[lane])
		source := word[:]
		if !from.register {
			source = w.undefinedLocal.at(lane, caller.local+from.offset, int(from.size))
		}
		if to.register {
			word = [8]byte{}
			copy(word[:], source)
			undefined[lane] = binary.LittleEndian.Uint64(word[:])
		} else {
			copy(w.undefinedLocal.at(lane, callee.local+to.offset, int(to.size)), source)
		}
	}
	if !from.register && !to.register && len(w.undefinedLocal.causes) > 0 {
		for k := range to.size {
			if c := w.undefinedLocal.causes[caller.local+from.offset+k]; c != nil {
				w.undefinedLocal.causes[callee.local+to.offset+k] = c
			}
		}
	}
	if r, ok := callee.fn.registerAt(uint32(to.offset)); to.register && ok {
		callee.undefined.setBits(r, w.active, &undefined, cause)
	}
}
