package emu

import (
	"math/bits"
	"slices"
	"unsafe"
)

// lanes is the number of threads of a warp, and full is the mask of all of them.
const (
	lanes = 32
	full  = 1<<lanes - 1
)

// wide is the value of a 128-bit register, low half first.
type wide [2]uint64

// A register is an array of one value per lane, at a fixed offset (its slot) in the register file
// of the frame. Its Go type depends on the instruction: the same 128 bytes are [32]uint32 for
// add.u32 and [32]float32 for add.f32. A predicate is a 32-bit mask.

// reg returns the register at a slot of the current frame.
func reg[T any](w *warp, offset uint32) *[lanes]T {
	return (*[lanes]T)(unsafe.Add(w.base, uintptr(offset)))
}

// pred returns the predicate at a slot of the current frame.
func pred(w *warp, offset uint32) *uint32 {
	return (*uint32)(unsafe.Add(w.base, uintptr(offset)))
}

// dst returns where an instruction writes the results of all lanes, active or not. This is the
// register itself for a full warp and scratch memory otherwise; [warp.execPartly] then copies the
// active lanes. An execFunc thus needs only the code for full warps.
func dst[T any](w *warp, in *inst) *[lanes]T {
	if w.active == full {
		return reg[T](w, in.d)
	}
	return (*[lanes]T)(unsafe.Pointer(&w.scratch))
}

// blend copies the active lanes from scratch memory to a register with elements of size bytes.
func (w *warp) blend(offset uint32, size uint8, active uint32) {
	switch size {
	case 1:
		copyLanes[uint8](w, offset, active)
	case 2:
		copyLanes[uint16](w, offset, active)
	case 4:
		copyLanes[uint32](w, offset, active)
	case 8:
		copyLanes[uint64](w, offset, active)
	case 16:
		copyLanes[wide](w, offset, active)
	}
}

func copyLanes[T any](w *warp, offset uint32, active uint32) {
	setLanes(reg[T](w, offset), (*[lanes]T)(unsafe.Pointer(&w.scratch)), active)
}

// setLanes copies the lanes of mask from src to d.
func setLanes[T any](d, src *[lanes]T, mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros32(mask) & (lanes - 1)
		d[i] = src[i]
	}
}

// cleared returns a slice of n zeros. It reuses the memory of s if it is large enough.
func cleared[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// setPred sets the active lanes of a predicate.
func setPred(w *warp, offset, value uint32) {
	p := pred(w, offset)
	*p = *p&^w.active | value&w.active
}

// map1 to map4 and test apply f to each lane. They are small enough to be inlined together with a
// function literal, which compiles to a plain loop.

func map1[D, A any](d *[lanes]D, a *[lanes]A, f func(a A) D) {
	for i := range d {
		d[i] = f(a[i])
	}
}

func map2[D, A, B any](d *[lanes]D, a *[lanes]A, b *[lanes]B, f func(a A, b B) D) {
	for i := range d {
		d[i] = f(a[i], b[i])
	}
}

func map3[D, A, B, C any](d *[lanes]D, a *[lanes]A, b *[lanes]B, c *[lanes]C, f func(a A, b B, c C) D) {
	for i := range d {
		d[i] = f(a[i], b[i], c[i])
	}
}

func map4[D, A, B, C, E any](d *[lanes]D, a *[lanes]A, b *[lanes]B, c *[lanes]C, e *[lanes]E,
	f func(a A, b B, c C, e E) D) {
	for i := range d {
		d[i] = f(a[i], b[i], c[i], e[i])
	}
}

// test returns the mask of the lanes for which f returns true.
func test[A, B any](a *[lanes]A, b *[lanes]B, f func(a A, b B) bool) uint32 {
	var m uint32
	for i := range a {
		var bit uint32
		if f(a[i], b[i]) {
			bit = 1
		}
		m |= bit << i
	}
	return m
}

// op1 to op4 return an execFunc that applies a function to each lane. They serve instructions that
// are too rare for a specialized loop.

func op1[D, A any](f func(a A) D) execFunc {
	return func(w *warp, in *inst) { map1(dst[D](w, in), reg[A](w, in.a), f) }
}

func op2[D, A, B any](f func(a A, b B) D) execFunc {
	return func(w *warp, in *inst) { map2(dst[D](w, in), reg[A](w, in.a), reg[B](w, in.b), f) }
}

func op3[D, A, B, C any](f func(a A, b B, c C) D) execFunc {
	return func(w *warp, in *inst) {
		map3(dst[D](w, in), reg[A](w, in.a), reg[B](w, in.b), reg[C](w, in.c), f)
	}
}

func op4[D, A, B, C, E any](f func(a A, b B, c C, e E) D) execFunc {
	return func(w *warp, in *inst) {
		map4(dst[D](w, in), reg[A](w, in.a), reg[B](w, in.b), reg[C](w, in.c), reg[E](w, in.e), f)
	}
}

// firstLane returns the lowest lane of a nonempty mask.
func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) & (lanes - 1) }
