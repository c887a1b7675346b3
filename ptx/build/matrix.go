package build

import "tilework/ptx"

// Matrix is a matrix in global memory: rows×cols elements, ld elements from the
// start of a row to the start of the next, or the transpose of one.
type Matrix struct {
	Ptr        // to the first element
	Rows, Cols Reg
	pitch      Reg // bytes from a row to the next in memory, u64
	trans      bool
}

// Matrix is the rows×cols matrix at p. Addresses are computed in 64 bits, whatever
// the indices have.
func (k *Kernel) Matrix(p Ptr, rows, cols, ld Value) Matrix {
	pitch := k.Mul(k.To(ptx.U64, ld), p.elem.Bytes())
	return Matrix{Ptr: p, Rows: k.reg(rows), Cols: k.reg(cols), pitch: pitch}
}

// T is the transpose of m: the same memory with the indices in the other order.
func (m Matrix) T() Matrix {
	m.Rows, m.Cols, m.trans = m.Cols, m.Rows, !m.trans
	return m
}

// At points to element (i, j).
func (m Matrix) At(i, j Value) Ptr {
	if m.trans {
		i, j = j, i
	}
	return m.displaced(index{i, m.pitch}, index{j, constInt(int64(m.elem.Bytes()))})
}

// Apart is the bytes from an element to the one i rows down and j columns on.
func (m Matrix) Apart(i, j Value) Reg {
	if m.trans {
		i, j = j, i
	}
	return m.k.Mad(m.k.reg(i), m.pitch, m.k.Mul(j, m.elem.Bytes()))
}

// Inside is the predicate that m has an element (i, j).
func (m Matrix) Inside(i, j Value) Reg {
	return m.k.And(m.k.Lt(i, m.Rows), m.k.Lt(j, m.Cols))
}

// Load reads element (i, j).
func (m Matrix) Load(i, j Value) Reg { return m.At(i, j).Load() }

// LoadOr0 reads element (i, j), which is 0 outside of the matrix.
func (m Matrix) LoadOr0(i, j Value) Reg { return m.At(i, j).LoadVecOr0(m.Inside(i, j), 1)[0] }

// Store writes v to element (i, j).
func (m Matrix) Store(i, j, v Value) { m.At(i, j).Store(v) }

// index is a position along a dimension and the bytes from one to the next.
type index struct {
	at   Value
	step Reg
}

// displaced is p moved along two dimensions. It begins with the index that is known
// earlier, so that a loop over the other one adds to an address that stays.
func (p Ptr) displaced(a, b index) Ptr {
	k := p.k
	if k.reg(a.at).age() > k.reg(b.at).age() {
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

// age is how many blocks are around the one that made r; a variable is never old.
func (r Reg) age() int {
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
