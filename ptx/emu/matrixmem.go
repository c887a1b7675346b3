package emu

import "tilework/ptx"

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

// rows returns the rows that an stmatrix writes, by the lane that provides the address.
func (m *matrixMove) rows(w *warp) (rows [lanes][rowBytes]byte) {
	for k, slot := range m.slots {
		for lane := range lanes {
			row, col := m.elements(lane)
			s := bytesOf(w, slot, lane, 4)
			for h := range 2 {
				copy(rows[8*k+row[h]][2*col[h]:][:2], s[2*h:])
			}
		}
	}
	return rows
}

func decodeLdmatrix(d *decoder) execFunc {
	m := &matrixMove{slots: d.vector(0), trans: d.i.Has("trans")}
	ac := d.accessOf(1, Read, rowBytes)
	d.in.access = ac
	return aligned(func(w *warp, in *inst) {
		var rows [lanes][rowBytes]byte
		w.active = full >> (lanes - 8*len(m.slots)) // the lanes that provide addresses
		w.eachRegion(in, ac, 0, func(t *target, mask uint32) {
			for ; mask != 0; mask &= mask - 1 {
				i := firstLane(mask)
				copy(rows[i][:], t.bytes(w.off[i], rowBytes))
			}
		})
		for k, slot := range m.slots {
			for lane := range lanes {
				row, col := m.elements(lane)
				d := bytesOf(w, slot, lane, 4)
				for h := range 2 {
					copy(d[2*h:2*h+2], rows[8*k+row[h]][2*col[h]:])
				}
			}
		}
	})
}

func decodeStmatrix(d *decoder) execFunc {
	m := &matrixMove{slots: d.vector(1), trans: d.i.Has("trans")}
	ac := d.accessOf(0, Write, rowBytes)
	d.in.access, d.in.x = ac, m
	return aligned(func(w *warp, in *inst) {
		rows := m.rows(w)
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
	held, wanted := &matrixMove{}, &matrixMove{trans: true}
	return aligned(func(w *warp, in *inst) {
		var m [8][8]uint16
		for lane, word := range reg[uint32](w, in.a) {
			row, col := held.elements(lane)
			m[row[0]][col[0]], m[row[1]][col[1]] = uint16(word), uint16(word>>16)
		}
		for lane := range lanes {
			row, col := wanted.elements(lane)
			reg[uint32](w, in.d)[lane] = uint32(m[row[0]][col[0]]) | uint32(m[row[1]][col[1]])<<16
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
	f := plainFragment(rows, cols, len(slots)*e.perRegister())
	byRow := i.Mod("layout") == "row"
	stride := d.constant(ptx.U32, uint64(choose(byRow, cols, rows)))
	if len(i.Args) == 3 {
		stride = d.source(2)
	}
	size := e.bits / 8
	ac := d.accessOf(address, kind, size)
	d.in.access = ac
	return aligned(func(w *warp, in *inst) {
		base := *reg[uint64](w, ac.slot)
		if ac.short {
			for i, a := range reg[uint32](w, ac.slot) {
				base[i] = uint64(a)
			}
		}
		for n := range f.at[0] {
			if kind == Write && n*lanes >= rows*cols {
				break // the remaining elements are duplicates
			}
			w.active = full
			for lane := range lanes {
				at := f.at[lane][n]
				line, position := int(at.row), int(at.col)
				if !byRow {
					line, position = position, line
				}
				w.addr[lane] = base[lane] + ac.add + uint64((line*int(reg[uint32](w, stride)[lane])+position)*size)
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
		}
	})
}
