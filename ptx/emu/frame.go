package emu

import "unsafe"

// frame is a call of a function by lanes of a warp: its registers, and where its
// lanes go on when it returns. Lanes that diverge in a function share its frame.
type frame struct {
	fn     *function
	file   []uint64 // register file
	base   unsafe.Pointer
	lanes  uint32 // that have not returned
	depth  int
	local  uint64 // where the function's variables begin in each lane's local memory
	caller *frame
	call   *inst
	next   int32  // the place in the caller behind the call
	carry  uint32 // the carry flag of each lane
	// known is, for each register, the lanes that have written it; nil if nobody
	// wants to know.
	written []uint32
}

// newFrame makes a frame ready for a call by the given lanes.
func (w *warp) newFrame(fn *function, caller *frame, mask uint32) *frame {
	pool := w.frames[fn]
	var f *frame
	if n := len(pool); n > 0 {
		f, w.frames[fn] = pool[n-1], pool[:n-1]
		poison(f.file[slotAlign/8 : fn.clear/8])
	} else {
		f = &frame{fn: fn, file: make([]uint64, (fn.frameSize+7)/8)}
		f.base = unsafe.Pointer(&f.file[0])
		poison(f.file)
		*(*uint32)(f.base) = full // always
		for _, c := range fn.constants {
			f.broadcast(c.offset, c.size, c.bits)
		}
	}
	f.lanes, f.caller, f.depth, f.local = mask, caller, 0, 0
	if caller != nil {
		f.depth = caller.depth + 1
		f.local = alignUp(caller.local+caller.fn.localSize, localAlign)
	}
	for _, v := range fn.fills {
		f.fill(w, v)
	}
	if f.written = nil; len(w.block.uninit) > 0 {
		f.written = make([]uint32, len(fn.registers))
	}
	return f
}

func (f *frame) at(offset uint32) unsafe.Pointer { return unsafe.Add(f.base, uintptr(offset)) }

// broadcast sets all lanes of a slot whose elements have size bytes.
func (f *frame) broadcast(offset uint32, size uint8, bits uint64) {
	p := f.at(offset)
	switch size {
	case 0:
		*(*uint32)(p) = uint32(bits)
	case 1:
		broadcast((*[lanes]uint8)(p), uint8(bits))
	case 2:
		broadcast((*[lanes]uint16)(p), uint16(bits))
	case 4:
		broadcast((*[lanes]uint32)(p), uint32(bits))
	case 8:
		broadcast((*[lanes]uint64)(p), bits)
	}
}

func (f *frame) fill(w *warp, v fill) {
	switch v.kind {
	case fillVariable:
		f.broadcast(v.offset, v.size, w.block.run.address[v.index]+v.add)
	case fillShared:
		f.broadcast(v.offset, v.size, w.block.shared.base+w.block.run.address[v.index]+v.add)
	case fillLocal:
		f.broadcast(v.offset, v.size, f.local+v.add)
	case fillSpecial:
		value := specialRegisters[v.index].value
		switch p := f.at(v.offset); v.size {
		case 0:
			*(*uint32)(p) = -uint32(value(w, 0) & 1)
		case 4:
			for i := range lanes {
				(*[lanes]uint32)(p)[i] = uint32(value(w, i))
			}
		case 8:
			for i := range lanes {
				(*[lanes]uint64)(p)[i] = value(w, i)
			}
		}
	}
}

// poison fills memory that a program must not read before it writes it. All ones are
// a NaN in every floating format, so that a read spreads to the results.
func poison(words []uint64) {
	for i := range words {
		words[i] = ^uint64(0)
	}
}
