package emu

import (
	"encoding/binary"

	"tilework/ptx"
)

// rowBytes is the size of a row of an 8×8 matrix in ldmatrix and stmatrix.
const rowBytes = 16

// matrixMove holds the operands of ldmatrix and stmatrix: up to four 8×8 matrices of 16-bit
// elements. Lanes 0 to 7 provide the row addresses of the first matrix, lanes 8 to 15 those of the
// second, and so on.
type matrixMove struct {
	slots []uint32
	trans bool
}

// elements returns the positions of the two elements that a lane holds of an 8×8 matrix.
func (m *matrixMove) elements(lane int) (row, col [2]int) {
	for h := range 2 {
		row[h], col[h] = lane/4, lane%4*2+h
		if m.trans {
			row[h], col[h] = col[h], row[h]
		}
	}
	return row, col
}

// rows returns the rows of the matrices whose registers word returns for a lane. Each row is at the
// index of the lane that provides its address.
func (m *matrixMove) rows(word func(k, lane int) uint32) (rows [lanes][rowBytes]byte) {
	for k := range m.slots {
		for lane := range lanes {
			row, col := m.elements(lane)
			pair := word(k, lane)
			for h := range 2 {
				binary.LittleEndian.PutUint16(rows[8*k+row[h]][2*col[h]:], uint16(pair>>(16*h)))
			}
		}
	}
	return rows
}

// word returns the two elements of the k-th matrix that a lane holds.
func (m *matrixMove) word(rows *[lanes][rowBytes]byte, k, lane int) (pair uint32) {
	row, col := m.elements(lane)
	for h := range 2 {
		pair |= uint32(binary.LittleEndian.Uint16(rows[8*k+row[h]][2*col[h]:])) << (16 * h)
	}
	return pair
}

// words returns a function that returns the registers of the matrices.
func (m *matrixMove) words(w *warp) func(k, lane int) uint32 {
	return func(k, lane int) uint32 { return reg[uint32](w, m.slots[k])[lane] }
}

func decodeLdmatrix(d *decoder) execFunc {
	m := &matrixMove{slots: d.vector(0), trans: d.i.Has("trans")}
	ac := d.accessOf(1, Read, rowBytes)
	d.in.access, d.in.x = ac, m
	return aligned(func(w *warp, in *inst) {
		var rows [lanes][rowBytes]byte
		w.active = full >> (lanes - 8*len(m.slots)) // the lanes that provide addresses
		w.moved.lanes = 0
		w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
			for ; mask != 0; mask &= mask - 1 {
				i := firstLane(mask)
				copy(rows[i][:], t.bytes(w.off[i], rowBytes))
			}
		})
		for k, slot := range m.slots {
			for lane := range lanes {
				reg[uint32](w, slot)[lane] = m.word(&rows, k, lane)
			}
		}
		w.moved.trackMatrices(w, m)
	})
}

func decodeStmatrix(d *decoder) execFunc {
	m := &matrixMove{slots: d.vector(1), trans: d.i.Has("trans")}
	ac := d.accessOf(0, Write, rowBytes)
	d.in.access, d.in.x = ac, m
	return aligned(func(w *warp, in *inst) {
		rows := m.rows(m.words(w))
		w.moved.lanes = 0
		if w.tracks {
			w.moved.trackRegisters(w, in, m)
		}
		w.active = full >> (lanes - 8*len(m.slots))
		w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
			for ; mask != 0; mask &= mask - 1 {
				i := firstLane(mask)
				copy(t.bytes(w.off[i], rowBytes), rows[i][:])
			}
		})
	})
}

// decodeMovmatrix decodes movmatrix, which transposes an 8×8 matrix in registers.
func decodeMovmatrix(d *decoder) execFunc {
	d.in.d, d.in.a = d.result(0), d.source(1)
	d.writesResults()
	held, wanted := &matrixMove{slots: []uint32{d.in.a}}, &matrixMove{trans: true}
	return aligned(func(w *warp, in *inst) {
		rows := held.rows(held.words(w))
		for lane := range lanes {
			reg[uint32](w, in.d)[lane] = wanted.word(&rows, 0, lane)
		}
		if w.tracks {
			w.trackTransposition(in, held, wanted)
		}
	})
}

func decodeWmma(d *decoder) execFunc {
	switch {
	case d.i.Has("mma"):
		return decodeMma(d)
	case d.i.Has("load"):
		return d.wmmaMove(1, 0, Read)
	}
	return d.wmmaMove(0, 1, Write)
}

// fragmentMove holds the operands of wmma.load and wmma.store.
type fragmentMove struct {
	*fragment
	element *elementType
	slots   []uint32
}

// wmmaMove decodes wmma.load and wmma.store. address and registers are argument indices.
func (d *decoder) wmmaMove(address, registers int, kind AccessKind) execFunc {
	i := d.i
	m, n, k := shapeOf(i)
	rows, cols := m, n
	switch {
	case i.Has("a"):
		cols = k
	case i.Has("b"):
		rows = k
	}
	t, _ := ptx.ParseType(i.Mod("type"))
	e := elementOf(t)
	if e == nil {
		return nil
	}
	slots := d.vector(registers)
	x := &fragmentMove{plainFragment(rows, cols, len(slots)*e.perRegister()), e, slots}
	byRow := i.Mod("layout") == "row"
	stride := d.constant(ptx.U32, uint64(choose(byRow, cols, rows)))
	if len(i.Args) == 3 {
		stride = d.source(2)
	}
	size := e.bits / 8
	ac := d.accessOf(address, kind, size)
	d.in.access, d.in.x = ac, x
	if kind == Write {
		d.in.flow = flowMoves
	}
	return aligned(func(w *warp, in *inst) {
		if w.tracks && kind == Write {
			w.useSlot(in, stride) // flowMoves reports only the address
		}
		base := *reg[uint64](w, ac.slot)
		if ac.short {
			for i, a := range reg[uint32](w, ac.slot) {
				base[i] = uint64(a)
			}
		}
		for n := range x.at[0] {
			if kind == Write && n*lanes >= rows*cols {
				break // the remaining elements are duplicates
			}
			w.active = full
			for lane := range lanes {
				at := x.at[lane][n]
				line, position := int(at.row), int(at.col)
				if !byRow {
					line, position = position, line
				}
				w.addr[lane] = base[lane] + ac.add + uint64((line*int(reg[uint32](w, stride)[lane])+position)*size)
			}
			w.moved.lanes = 0
			if w.tracks && kind == Write {
				w.moved.trackElement(w, in, x, n)
			}
			w.eachRegionAt(in, ac, 0, func(t *target, mask uint32) {
				for ; mask != 0; mask &= mask - 1 {
					lane := firstLane(mask)
					part := bytesOf(w, slots[n/e.perRegister()], lane, e.registerBytes())[n%e.perRegister()*size:][:size]
					if kind == Write {
						copy(t.bytes(w.off[lane], size), part)
					} else {
						copy(part, t.bytes(w.off[lane], size))
					}
				}
			})
			if kind == Read {
				w.moved.trackElements(w, x, n)
			}
		}
	})
}
