package emu

import (
	"bytes"
	"fmt"
	"unsafe"

	"tilework/ptx"
)

// Windows of the generic address space for the spaces that are private to a block or a thread. All
// other generic addresses are device addresses.
const (
	localWindow  = 0x10_0000_0000
	sharedWindow = 0x20_0000_0000
	paramWindow  = 0x30_0000_0000
	windowSize   = 1 << 32
)

// peerShift is the lowest bit of the block rank in a shared memory address, as on an H200.
// Addresses of the thread's own block contain its rank as well, so an address in shared::cta is
// also valid in shared::cluster.
const peerShift = 24

// windows lists the spaces that have a window.
var windows = [...]struct {
	space ptx.Space
	start uint64
}{{ptx.Local, localWindow}, {ptx.Shared, sharedWindow}, {ptx.Param, paramWindow}}

// access describes the memory access of an instruction.
type access struct {
	space ptx.Space
	kind  AccessKind
	sem   Sem
	scope Scope
	size  int         // bytes per lane
	align int         // required alignment of the address; 0 means size
	slot  uint32      // slot of the register that holds the address
	short bool        // the address register has 32 bits
	add   uint64      // constant offset
	base  *ptx.Symbol // the register that holds the address, or nil
}

// accessOf decodes argument k, which is an address.
func (d *decoder) accessOf(k int, kind AccessKind, size int) *access {
	arg := d.i.Args[k].(*ptx.Addr)
	ac := &access{
		space: d.i.Space(k), kind: kind, size: size, add: uint64(arg.Offset),
		sem: semOf(d.i), scope: scopeOf(d.i),
	}
	switch base := arg.Base.(type) {
	case *ptx.Imm:
		ac.slot = d.constant(ptx.U64, base.Bits)
	case *ptx.Name:
		v := base.Sym.Var
		if base.Sym.Kind == ptx.VarSymbol {
			ac.slot = d.address(v, 0, 8)
			if ac.space == ptx.Generic {
				ac.space = v.Space
			}
		} else {
			ac.slot = d.register(base, &d.in.reads)
			ac.short, ac.base = base.Sym.Type.Bits() == 32, base.Sym
		}
		// Arguments of calls and parameters of functions are stored in local memory.
		if ac.space == ptx.Param && !(d.f.Entry && (base.Sym.Kind != ptx.VarSymbol || d.f.buffered[v])) {
			ac.space = ptx.Local
		}
	}
	return ac
}

// semOf returns the memory ordering of i.
func semOf(i *ptx.Instr) Sem {
	sems := map[string]Sem{
		"volatile": Volatile, "relaxed": Relaxed, "acquire": Acquire, "release": Release, "acq_rel": AcqRel, "sc": SeqCst,
	}
	for _, mod := range i.Mods {
		if sem, ok := sems[mod]; ok {
			return sem
		}
	}
	return Weak
}

// scopeOf returns the scope of i.
func scopeOf(i *ptx.Instr) Scope {
	scopes := map[string]Scope{"cta": CTA, "cluster": Cluster, "gpu": GPU, "gl": GPU, "sys": System}
	for _, mod := range i.Mods {
		if scope, ok := scopes[mod]; ok {
			return scope
		}
	}
	return NoScope
}

// writes reports whether the access changes memory.
func (ac *access) writes() bool { return ac.kind != Read && ac.kind != AsyncRead }

// communicates reports whether in can observe writes of other blocks.
func (in *inst) communicates() bool {
	ac := in.access
	return ac != nil && (ac.space == ptx.Global || ac.space == ptx.Generic) &&
		(ac.kind == Atomic || ac.kind == Read && ac.sem != Weak)
}

// target is the memory that an access refers to.
type target struct {
	region
	space    ptx.Space
	window   uint64 // offset of the generic address from the address in the space
	stride   uint64 // bytes between the memory of two lanes; 0 except in local memory
	readOnly bool
	block    *block // owner of the shared memory
}

// shift returns the address of the first byte of t. It is a generic address for a generic access.
func (t *target) shift() uint64 { return t.window + t.base }

// resolve sets t to the memory at addr. The region is empty if addr is not mapped.
func (w *warp) resolve(t *target, in *inst, ac *access, addr uint64) {
	t.space, t.window, t.stride, t.readOnly, t.block = ac.space, 0, 0, false, nil
	if t.space == ptx.Generic {
		t.space = ptx.Global
		for _, v := range windows {
			if addr-v.start < windowSize {
				t.space, t.window = v.space, v.start
			}
		}
		if t.space == ptx.Shared {
			t.space = ptx.SharedCluster
		}
	}
	switch t.space {
	case ptx.Shared:
		t.region, t.block = w.block.shared, w.block
	case ptx.SharedCluster:
		t.space = ptx.Shared
		t.region, t.block = w.block.cluster.sharedAt(addr - t.window)
	case ptx.Local:
		t.region = region{size: uint64(w.block.run.localSize)}
		t.stride = t.size
		if t.size > 0 {
			t.mem = unsafe.Pointer(&w.local[0])
		}
	case ptx.Param:
		t.region, t.readOnly = w.block.run.params, true
	default:
		r := &w.worker.lastRegion[in.index]
		if r.alloc == nil || addr-r.base >= r.size {
			*r = region{}
			if a := w.block.run.mem.find(addr); a != nil {
				*r = region{mem: unsafe.Pointer(&a.words[0]), base: a.Base, size: uint64(a.Size), alloc: a}
			}
		}
		t.region = *r
		t.readOnly = t.alloc != nil && t.alloc.ReadOnly
	}
}

// rank returns the rank of the block that owns t, or 0 if t is not shared memory.
func (t *target) rank() int {
	if t.block == nil {
		return 0
	}
	return t.block.rank
}

// bytes returns the n bytes at offset off of t.
func (t *target) bytes(off uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(t.mem, off)), n)
}

// addresses computes the addresses of the active lanes into w.addr.
func (w *warp) addresses(ac *access) {
	if ac.short {
		for i, a := range reg[uint32](w, ac.slot) {
			w.addr[i] = uint64(a + uint32(ac.add))
		}
		return
	}
	offsets(&w.addr, reg[uint64](w, ac.slot), ac.add, 0, 0)
}

// eachRegion computes the addresses of an access, emits its events and calls do once for each
// region that the lanes refer to. Lane i of mask accesses the bytes at offset w.off[i] of t. It
// returns the lanes whose access faulted.
func (w *warp) eachRegion(in *inst, ac *access, copy uint64, do func(t *target, mask uint32)) (refused uint32) {
	w.addresses(ac)
	return w.eachRegionAt(in, ac, copy, do)
}

// eachRegionAt does the same as eachRegion for the addresses in w.addr.
func (w *warp) eachRegionAt(in *inst, ac *access, copy uint64, do func(t *target, mask uint32)) (refused uint32) {
	t := &w.at
	for todo := w.active; todo != 0; {
		first := firstLane(todo)
		w.resolve(t, in, ac, w.addr[first])
		mask := w.lanesInside(t, ac, todo)
		if mask>>first&1 == 0 {
			refused |= 1 << first
			todo &^= 1 << first
			continue
		}
		todo &^= mask
		if w.tracks {
			w.trackAccess(in, ac, memoryRange{t.space, t.block, t.alloc}, w.spaceAddresses(t), mask)
		}
		if len(w.block.access) > 0 {
			w.emitAccess(in, ac, t.space, t.rank(), t.alloc, w.spaceAddresses(t), mask, copy)
		}
		if ac.kind == Write && t.space != ptx.Local {
			w.block.cluster.writes++
		}
		do(t, mask)
		if t.alloc != nil && t.alloc.written != nil && ac.writes() {
			for m := mask; m != 0; m &= m - 1 {
				t.alloc.mark(int(w.off[firstLane(m)]), ac.size)
			}
		}
	}
	if refused != 0 {
		w.raiseFault(in, ac, refused)
	}
	return refused
}

// lanesInside returns the lanes of todo whose access is valid in t and stores their offsets in
// w.off.
func (w *warp) lanesInside(t *target, ac *access, todo uint32) (mask uint32) {
	low := uint64(ac.size) - 1 // bits that are zero in an aligned address
	if ac.align > 0 {
		low = uint64(ac.align) - 1
	}
	span := t.span(uintptr(ac.size))
	if t.readOnly && ac.writes() {
		span = 0
	}
	shift := t.shift()
	if todo == full && t.stride == 0 && offsets(&w.off, &w.addr, -shift, span, low) {
		return full
	}
	for ; todo != 0; todo &= todo - 1 {
		i := firstLane(todo)
		if a := w.addr[i] - shift; a < span && a&low == 0 {
			mask |= 1 << i
			w.off[i] = a + uint64(i)*t.stride
		}
	}
	return mask
}

// spaceAddresses returns the addresses of the lanes in the form that events use.
func (w *warp) spaceAddresses(t *target) *[lanes]uint64 {
	shift := t.window
	if t.space == ptx.Shared {
		shift = t.shift()
	}
	if shift == 0 {
		return &w.addr
	}
	for i, a := range w.addr {
		w.eventAddr[i] = a - shift
	}
	return &w.eventAddr
}

func (w *warp) emitAccess(in *inst, ac *access, space ptx.Space, rank int, alloc *Allocation, addr *[lanes]uint64,
	mask uint32, copy uint64) {
	e := &w.event
	e.Site, e.Warp, e.Mask = in.site, w.index, mask
	e.Kind, e.Sem, e.Scope, e.Space, e.Size = ac.kind, ac.sem, ac.scope, space, ac.size
	e.Addr, e.Rank, e.Alloc, e.Copy = addr, rank, alloc, copy
	e.warp, e.inst = w, in
	for _, f := range w.block.access {
		f(e)
	}
}

// mostWritten is the most bytes that a lane of st or stmatrix writes.
const mostWritten = 32

// written sets data to the bytes that an st or stmatrix is about to write for the lanes of mask. It
// returns false for other accesses.
func (a *Access) written(mask uint32, data *[lanes][mostWritten]byte) bool {
	if a.inst == nil || a.Kind != Write {
		return false
	}
	switch x := a.inst.x.(type) {
	case *transfer:
		var off [lanes]uint64
		for i := range off {
			off[i] = uint64(i) * mostWritten
		}
		for k, slot := range x.slots {
			x.store(unsafe.Pointer(data), &off, mask, uint64(k)*x.step, unsafe.Add(a.warp.base, slot))
		}
	case *matrixMove:
		for i, row := range x.rows(x.words(a.warp)) {
			copy(data[i][:], row[:])
		}
	default:
		return false
	}
	return true
}

// Data returns the bytes that an st or stmatrix is about to write for a lane, or nil for other
// accesses.
func (a *Access) Data(lane int) []byte {
	var data [lanes][mostWritten]byte
	if !a.written(1<<lane, &data) {
		return nil
	}
	return data[lane][:a.Size]
}

// Unchanged returns the lanes whose st or stmatrix is about to write the bytes that memory already
// holds. It returns none for other accesses.
func (a *Access) Unchanged() (mask uint32) {
	if values := a.words(); values != nil {
		for m := a.Mask; m != 0; m &= m - 1 {
			i := firstLane(m)
			if *(*uint32)(unsafe.Add(a.warp.at.mem, a.warp.off[i])) == values[i] {
				mask |= 1 << i
			}
		}
		return mask
	}
	var data [lanes][mostWritten]byte
	if !a.written(a.Mask, &data) {
		return 0
	}
	for m := a.Mask; m != 0; m &= m - 1 {
		i := firstLane(m)
		if bytes.Equal(data[i][:a.Size], a.warp.at.bytes(a.warp.off[i], a.Size)) {
			mask |= 1 << i
		}
	}
	return mask
}

// words returns the register that an st of one 32-bit word is about to write, or nil for other
// accesses. Most stores are of this kind.
func (a *Access) words() *[lanes]uint32 {
	if a.inst == nil || a.Kind != Write || a.Size != 4 {
		return nil
	}
	tr, ok := a.inst.x.(*transfer)
	if !ok || len(tr.slots) > 1 {
		return nil
	}
	if n := tr.registers[0]; n != none && a.warp.frame.fn.registers[n].Type.Bits() != 32 {
		return nil
	}
	return reg[uint32](a.warp, tr.slots[0])
}

// raiseFault raises the fault of the lanes of mask.
func (w *warp) raiseFault(in *inst, ac *access, mask uint32) {
	first := firstLane(mask)
	t := &w.at
	w.resolve(t, in, ac, w.addr[first])
	f := &Fault{
		Origin: Origin{Site: in.site, Warp: w.index, Mask: mask},
		Access: ac.kind, Space: t.space, Size: ac.size, Addr: w.spaceAddresses(t),
	}
	addr := f.Addr[first]
	f.FirstAddr = addr
	span := t.span(uintptr(ac.size))
	switch {
	case w.addr[first]-t.shift() >= span:
		f.Kind, f.Detail = w.outside(t, addr, ac.size)
	case addr&uint64(ac.size-1) != 0:
		f.Kind = Misaligned
		f.Detail = "the address must be a multiple of " + bytesText(uint64(max(ac.size, ac.align)))
	default:
		f.Kind = ReadOnly
		f.Detail = "the memory is read-only"
	}
	kept := *f.Addr // w.addr and w.eventAddr are reused
	f.Addr = &kept
	w.raise(f)
}

// raise reports f to the observers and ends the launch unless one of them continues it.
func (w *warp) raise(f *Fault) {
	f.Block, f.Thread = w.block.index, w.thread(firstLane(f.Mask))
	f.Dynamic = f.Space == ptx.Shared && w.block.run.dynamic
	resume := false
	for _, hook := range w.block.fault {
		resume = hook(f) || resume
	}
	if !resume {
		w.fail(f)
	}
}

// outside returns the kind of a fault at an address that is out of bounds, and its location.
func (w *warp) outside(t *target, addr uint64, size int) (kind FaultKind, detail string) {
	if t.space == ptx.Global || t.space == ptx.Const {
		if addr+nullRange < 2*nullRange {
			return NullPointer, fmt.Sprintf("a null pointer and an offset of %d bytes", int64(addr))
		}
		return OutOfBounds, w.block.run.mem.describe(addr, size)
	}
	if t.space == ptx.Shared && t.block != w.block {
		if t.block == nil {
			return OutOfBounds, "the cluster has no block of this rank"
		}
		if t.block.done {
			return ExitedBlock,
				fmt.Sprintf("block %v of the cluster has exited, which freed its shared memory", t.block.index)
		}
	}
	what := map[ptx.Space]string{
		ptx.Shared: "the block's shared memory", ptx.Local: "the thread's local memory", ptx.Param: "the kernel's parameters",
	}[t.space]
	return OutOfBounds, "not in the " + bytesText(t.size) + " of " + what
}
