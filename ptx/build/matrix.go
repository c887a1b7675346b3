package build

import "tilework/ptx"

// Matrix is a row-major matrix in global memory, or the transpose of one. Consecutive rows are ld
// elements apart.
type Matrix struct {
	Ptr        // pointer to the first element
	Rows, Cols Reg
	pitch      Reg // bytes between consecutive rows in memory, of type u64
	trans      bool
}

// Matrix returns the rows×cols matrix at p with leading dimension ld. Addresses are computed in
// 64 bits for all types of indices.
func (k *Kernel) Matrix(p Ptr, rows, cols, ld Value) Matrix {
	pitch := k.Mul(k.To(ptx.U64, ld), p.elem.Bytes())
	return Matrix{Ptr: p, Rows: k.reg(rows), Cols: k.reg(cols), pitch: pitch}
}

// T returns the transpose of m, which shares m's memory.
func (m Matrix) T() Matrix {
	m.Rows, m.Cols, m.trans = m.Cols, m.Rows, !m.trans
	return m
}

// At returns a pointer to element (i, j).
func (m Matrix) At(i, j Value) Ptr {
	if m.trans {
		i, j = j, i
	}
	return m.displaced(index{i, m.pitch}, index{j, constInt(int64(m.elem.Bytes()))})
}

// ByteOffset returns the distance in bytes between elements (0, 0) and (i, j).
func (m Matrix) ByteOffset(i, j Value) Reg {
	if m.trans {
		i, j = j, i
	}
	k := m.k
	return k.Mad(k.To(ptx.U64, i), m.pitch, k.Mul(k.To(ptx.U64, j), m.elem.Bytes()))
}

// InBounds returns a predicate that reports whether (i, j) is in bounds.
func (m Matrix) InBounds(i, j Value) Reg {
	return m.k.And(m.k.Lt(i, m.Rows), m.k.Lt(j, m.Cols))
}

// Load loads element (i, j).
func (m Matrix) Load(i, j Value) Reg { return m.At(i, j).Load() }

// LoadOr0 loads element (i, j), or returns 0 if it is out of bounds.
func (m Matrix) LoadOr0(i, j Value) Reg { return m.At(i, j).LoadVecOr0(m.InBounds(i, j), 1)[0] }

// Store stores v to element (i, j).
func (m Matrix) Store(i, j, v Value) { m.At(i, j).Store(v) }

// index is an index along one dimension and the distance between its elements in bytes.
type index struct {
	at   Value
	step Reg
}

// displaced returns p advanced along two dimensions. It adds the index from the outer block
// first, so that a loop over the other index adds to a loop-invariant address.
func (p Ptr) displaced(a, b index) Ptr {
	k := p.k
	if k.reg(a.at).depth() > k.reg(b.at).depth() {
		a, b = b, a
	}
	for _, ix := range []index{a, b} {
		at := k.reg(ix.at)
		if step, ok := ix.step.Int(); ok {
			p = p.plus(at, step)
		} else if !at.isInt(0) {
			p.base, p.sym = p.moved(at, ix.step), nil
		}
	}
	return p
}

// depth returns the nesting depth of the block that created r. A variable counts as deeper than
// any block, because it can change in all of them.
func (r Reg) depth() int {
	n := 0
	if r.v == nil {
		return n
	}
	if r.v.mutable {
		return 1 << 30
	}
	for s := r.v.scope; s != nil; s = s.outer {
		n++
	}
	return n
}
