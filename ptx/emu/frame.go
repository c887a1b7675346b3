package emu

import (
	"fmt"
	"unsafe"
)

// frame holds the registers of a function call by lanes of a warp, and the return location. Lanes
// that diverge in a function share its frame.
type frame struct {
	fn     *function
	file   []uint64 // register file
	base   unsafe.Pointer
	lanes  uint32 // lanes that have not returned
	depth  int
	local  uint64 // offset of the function's variables in each lane's local memory
	caller *frame
	call   *inst
	// passing holds the locations of the arguments and the result of call.
	passing   *call
	next      int32              // pc in the caller after the call
	carry     uint32             // carry flag of each lane
	undefined undefinedRegisters // maintained if the warp tracks values
}

// maxCallBytes is the maximum number of bytes of the register files of all calls of a launch.
const maxCallBytes = 4 << 30

// takeFrame requests the memory of a frame of fn. The error wraps ErrOutOfMemory.
func (r *run) takeFrame(fn *function) error {
	bytes := fn.frameBytes()
	if sum := r.callBytes.Add(int64(bytes)); sum > maxCallBytes {
		return fmt.Errorf("the registers of nested calls exceed %s: %w", bytesText(maxCallBytes), ErrOutOfMemory)
	}
	return r.mem.room.take(bytes, "the registers of nested calls")
}

// frameBytes returns the memory of a frame of fn, with the record of undefined values.
func (fn *function) frameBytes() float64 {
	const record = 2 * lanes // bytes for each register, without bits
	return 2*float64(fn.frameSize) + record*float64(len(fn.registers))
}

// newFrame returns an initialized frame for a call by the lanes of mask. It returns an error if
// there is no memory for the frame of a function.
func (w *warp) newFrame(fn *function, caller *frame, mask uint32) (*frame, error) {
	pool := w.frames[fn]
	var f *frame
	if n := len(pool); n > 0 {
		f, w.frames[fn] = pool[n-1], pool[:n-1]
	} else {
		f, _ = fn.frames.Get().(*frame)
	}
	if f != nil {
		poison(f.file[slotAlign/8 : fn.clear/8])
	} else {
		if caller != nil {
			if err := w.block.run.takeFrame(fn); err != nil {
				return nil, err
			}
		}
		f = &frame{fn: fn, file: make([]uint64, (fn.frameSize+7)/8)}
		f.base = unsafe.Pointer(&f.file[0])
		poison(f.file)
		*(*uint32)(f.base) = full // the slot always
		for _, c := range fn.constants {
			f.broadcast(c.offset, c.size, c.bits)
		}
	}
	f.lanes, f.caller, f.depth, f.local = mask, caller, 0, 0
	if caller != nil {
		f.depth = caller.depth + 1
		f.local = caller.localEnd()
	}
	for _, v := range fn.fills {
		f.fill(w, v)
	}
	if w.tracks {
		f.undefined.reset(len(fn.registers))
		w.undefinedLocal.clear(f.local, int(fn.localSize), mask)
	}
	return f, nil
}

// localEnd returns the offset in local memory of the variables of functions that f calls.
func (f *frame) localEnd() uint64 { return f.local + f.fn.stackBytes() }

// stackBytes returns the local memory that a call of fn takes: that of its variables, and at least
// localAlign bytes, as a GPU stores the return address. This limits the depth of calls.
func (fn *function) stackBytes() uint64 {
	if fn.Entry {
		return alignUp(fn.localSize, localAlign)
	}
	return alignUp(max(fn.localSize, 1), localAlign)
}

// keepFrames keeps the frames of calls that have returned for later launches.
func (w *warp) keepFrames() {
	for fn, pool := range w.frames {
		for _, f := range pool {
			f.caller = nil
			fn.frames.Put(f)
		}
	}
}

func (f *frame) at(offset uint32) unsafe.Pointer { return unsafe.Add(f.base, uintptr(offset)) }

// broadcast sets all lanes of a slot with elements of size bytes. Size 0 denotes a predicate.
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

// poison fills memory that a program must write before it reads it. All ones are a NaN in every
// floating-point format, so the effect of such a read spreads to the results.
func poison(words []uint64) {
	n := copy(words, ones[:])
	for n < len(words) {
		n += copy(words[n:], words[:n])
	}
}

// ones is the start of poisoned memory.
var ones = func() (words [64]uint64) {
	for i := range words {
		words[i] = ^uint64(0)
	}
	return words
}()
