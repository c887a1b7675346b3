package emu

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"tilework/ptx"
)

// tensorMagic identifies an encoded tensor map. The encoding is specific to the emulator.
var tensorMagic = [15]byte([]byte("tilework tensor"))

// encodedTensor is the encoding of a tensor map.
type encodedTensor struct {
	Magic         [15]byte
	Element, Rank uint8
	Swizzle       uint8
	Interleave    uint8
	Im2col        bool
	Base          uint64
	Dims          [5]uint64
	Strides       [4]uint64
	Box           [5]uint16
	Steps         [5]uint8
	FillNaN       bool
	Lower, Upper  [3]int16
}

// EncodeTensorMap encodes a tensor map for kernels that run in the emulator. The error wraps
// ErrLaunch.
func EncodeTensorMap(m *ptx.TensorMap) (b [ptx.TensorMapBytes]byte, err error) {
	if err := m.Check(); err != nil {
		return b, fmt.Errorf("%w: %w", ErrLaunch, err)
	}
	if m.Interleave != 0 && m.Im2col() {
		return b, fmt.Errorf("%w: %w: tensor map with interleaved slices in im2col mode: the manuals do not specify its "+
			"coordinates", ErrLaunch, ptx.ErrUnsupported)
	}
	e := encodedTensor{Magic: tensorMagic, Element: uint8(m.Element), Rank: uint8(len(m.Dims)), Swizzle: uint8(m.Swizzle),
		Interleave: uint8(m.Interleave), Im2col: m.Im2col(), Base: m.Base, FillNaN: m.FillNaN}
	for i := range m.Dims {
		e.Dims[i], e.Steps[i] = uint64(m.Dims[i]), 1
		if len(m.Steps) > 0 {
			e.Steps[i] = uint8(m.Steps[i])
		}
		if i > 0 {
			e.Strides[i-1] = uint64(m.Strides[i-1])
		}
	}
	for i, n := range m.Box {
		e.Box[i] = uint16(n)
	}
	for i := range m.Lower {
		e.Lower[i], e.Upper[i] = int16(m.Lower[i]), int16(m.Upper[i])
	}
	_, err = binary.Encode(b[:], binary.LittleEndian, &e)
	return b, err
}

// decodeTensorMap decodes the result of EncodeTensorMap. ok is false for other bytes.
func decodeTensorMap(b []byte) (m ptx.TensorMap, ok bool) {
	var e encodedTensor
	if _, err := binary.Decode(b, binary.LittleEndian, &e); err != nil || !bytes.Equal(e.Magic[:], tensorMagic[:]) {
		return m, false
	}
	m = ptx.TensorMap{Element: ptx.Type(e.Element), Base: e.Base, Swizzle: int(e.Swizzle),
		Interleave: int(e.Interleave), FillNaN: e.FillNaN}
	rank := min(int(e.Rank), len(e.Dims))
	box := rank
	if e.Im2col {
		box = 2
		for i := range max(0, rank-2) {
			m.Lower, m.Upper = append(m.Lower, int(e.Lower[i])), append(m.Upper, int(e.Upper[i]))
		}
	}
	for _, n := range e.Box[:box] {
		m.Box = append(m.Box, int(n))
	}
	for i := range rank {
		m.Dims, m.Steps = append(m.Dims, int(e.Dims[i])), append(m.Steps, int(e.Steps[i]))
		if i > 0 {
			m.Strides = append(m.Strides, int(e.Strides[i-1]))
		}
	}
	return m, m.Check() == nil
}

// tensorElements lists the element types by their numbers in tensormap.replace (manual:
// "tensormap-new-val-validity"). NoType marks those that the emulator does not support.
var tensorElements = [...]ptx.Type{ptx.U8, ptx.U16, ptx.U32, ptx.S32, ptx.U64, ptx.S64, ptx.F16, ptx.F32, ptx.NoType,
	ptx.F64, ptx.BF16, ptx.TF32, ptx.NoType}

// replace sets a field of the tensor map. n is the index of the dimension, or the value of a field
// whose value is a constant. It returns false if the emulator does not support the value.
func (e *encodedTensor) replace(field string, n int, value uint64) bool {
	switch field {
	case "global_address":
		e.Base = value
	case "rank":
		e.Rank = uint8(value) + 1
		return value < uint64(len(e.Dims))
	case "box_dim":
		e.Box[n] = uint16(value)
	case "global_dim":
		e.Dims[n] = value
	case "global_stride":
		if n < len(e.Strides) { // the manual allows the index 4 as well, which has no meaning
			e.Strides[n] = value
		}
	case "elemtype":
		e.Element = uint8(tensorElements[n])
		return tensorElements[n] != ptx.NoType
	case "swizzle_mode":
		e.Swizzle = [...]uint8{0, 32, 64, 128}[n]
	case "element_stride":
		e.Steps[n] = uint8(value)
		return value >= 1 && value <= 8
	case "fill_mode":
		e.FillNaN = n == 1
	default: // interleave_layout
		e.Interleave = [...]uint8{0, 16, 32}[n]
	}
	return true
}

// decodeTensorMapEdit decodes tensormap.replace and tensormap.cp_fenceproxy. Checkers see accesses
// to a whole tensor map.
func decodeTensorMapEdit(d *decoder) execFunc {
	to := d.mapAccess(0, Write)
	if d.i.Has("cp_fenceproxy") {
		return d.tensorMapCopy(to)
	}
	field, n := d.i.Mod("field"), 0
	value, size := d.constant(ptx.B64, 0), 8
	for k := 1; k < len(d.i.Args); k++ {
		if d.i.Operand(k).Kind == ptx.ConstOperand {
			n = int(d.constInt(k))
		} else {
			value, size = d.source(k), d.i.Type(k).Bytes()
		}
	}
	last := len(d.i.Args) - 1
	if d.i.Operand(last).Kind == ptx.ConstOperand && !new(encodedTensor).replace(field, n, 0) {
		d.fail(unsupported(d.i.Pos, "%s with the value %d", d.i.Mnemonic(), n))
	}
	return func(w *warp, in *inst) {
		maps, mask := w.tensorMaps(in, to)
		for ; mask != 0; mask &= mask - 1 {
			lane := firstLane(mask)
			var e encodedTensor
			_, err := binary.Decode(maps[lane], binary.LittleEndian, &e)
			if e == (encodedTensor{}) { // a kernel that builds a map starts with zeros
				e.Magic = tensorMagic
			}
			if err != nil || e.Magic != tensorMagic {
				w.misuse(in, "the address is not that of a tensor map")
				return
			}
			if e.Im2col {
				w.misuse(in, "the tensor map is for im2col mode: want one for tiled mode")
				return
			}
			if v := bitsAt(w, value, lane, size); !e.replace(field, n, v) {
				w.misuse(in, "the emulator does not support %d as the %s of a tensor map", v, field)
				return
			}
			binary.Encode(maps[lane], binary.LittleEndian, &e) // has the size of the encoding
		}
	}
}

// tensorMapCopy decodes tensormap.cp_fenceproxy, which copies once for the whole warp.
func (d *decoder) tensorMapCopy(to *access) execFunc {
	from := d.mapAccess(1, Read)
	fence := Fence{Sem: Release, Scope: scopeOf(d.i), Proxy: "tensormap::generic"}
	return aligned(func(w *warp, in *inst) {
		w.active = 1
		source, readable := w.tensorMaps(in, from)
		target, writable := w.tensorMaps(in, to)
		if readable&writable != 0 {
			copy(target[0], source[0])
		}
		w.active = full
		w.emitFence(in, fence)
	})
}

// mapAccess decodes the address of a tensor map in argument k.
func (d *decoder) mapAccess(k int, kind AccessKind) *access {
	ac := d.accessOf(k, kind, tensorPiece)
	ac.sem, ac.scope, ac.align = Weak, NoScope, ptx.TensorMapAlign
	d.in.access = ac
	return ac
}

// tensorMaps returns the bytes of the tensor maps at the addresses of the active lanes. mask holds
// the lanes without a fault. It emits the events of accesses to pieces of the maps.
func (w *warp) tensorMaps(in *inst, ac *access) (maps [lanes][]byte, mask uint32) {
	mask = w.active
	for at := 0; at < ptx.TensorMapBytes; at += tensorPiece {
		piece := *ac
		piece.add += uint64(at)
		if at > 0 {
			piece.align = tensorPiece
		}
		mask &^= w.eachRegion(in, &piece, 0, func(t *target, valid uint32) {
			for m := valid; m != 0 && at == 0; m &= m - 1 {
				lane := firstLane(m)
				if off := w.off[lane]; off < t.span(ptx.TensorMapBytes) {
					maps[lane] = t.bytes(off, ptx.TensorMapBytes)
				}
			}
		})
	}
	return maps, mask
}
