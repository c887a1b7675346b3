package emu

import (
	"fmt"

	"tilework/ptx"
	"tilework/ptx/emu/internal/dot"
	"tilework/ptx/emu/internal/number"
)

// Accumulate selects how matrix instructions sum products of f16, bf16, tf32 and 8-bit floats.
// Products of float64 are accumulated by one fused multiply-add after the other in the order of K.
// Sums of integers are exact.
type Accumulate uint8

const (
	// Hopper reproduces the results of an H200 to the last bit, as observed. Up to 16 products and
	// the accumulator are aligned to the largest of them, truncated and added. The sum is truncated
	// again to float32, or rounded to f16. Two forms of mma are composed of other operations: with
	// 8-bit floats, of two f16 sums of the tensor core, which are then added to the accumulator;
	// and m8n8k4, of fused float32 operations. With 8-bit floats, wgmma adds 32 products and the
	// accumulator in 14 bits, and its float32 results have no more than 14 bits.
	Hopper Accumulate = iota
	// Nearest adds the products in float64 and rounds the sum to nearest once.
	Nearest
)

// accumulatesNearest reports whether matrix instructions accumulate in mode Nearest.
func (w *warp) accumulatesNearest() bool { return w.block.run.launch.Accumulate == Nearest }

// matrixProduct is the common part of matrix instructions: d = a·b + c, or d = a·b.
type matrixProduct struct {
	m, n, k    int
	a, b, c, d *elementType
	dot        dot.Product
}

// mma holds the operands of mma and wmma.mma.
type mma struct {
	matrixProduct
	fa, fb, fc, fd *fragment
	pa, pb, pc, pd []uint32
	quadrants      int             // 4 for m8n8k4, which computes 4 products at once; otherwise 1
	scales         *scaleOperands  // nil without block scales
	sparse         *sparseMetadata // nil for a dense A
}

// shapeOf parses the shape modifier, such as m16n8k16.
func shapeOf(i *ptx.Instr) (m, n, k int) {
	for _, mod := range i.Mods {
		if c, _ := fmt.Sscanf(mod, "m%dn%dk%d", &m, &n, &k); c == 3 {
			return m, n, k
		}
	}
	return 0, 0, 0
}

// elementsOf returns the types of d, a, b and c of a matrix instruction. wmma with f16 specifies
// only those of d and c.
func elementsOf(i *ptx.Instr) (d, a, b, c ptx.Type) {
	var ts []ptx.Type
	for _, mod := range i.Mods {
		if t, ok := ptx.ParseType(mod); ok {
			ts = append(ts, t)
		}
	}
	if len(ts) == 2 {
		return ts[0], ptx.F16, ptx.F16, ts[1]
	}
	return ts[0], ts[1], ts[2], ts[3]
}

func decodeMma(d *decoder) execFunc {
	i := d.i
	td, ta, tb, tc := elementsOf(i)
	p := &mma{quadrants: 1}
	p.a, p.b, p.c, p.d = elementOf(ta), elementOf(tb), elementOf(tc), elementOf(td)
	p.dot = dot.Product{A: number.Of(ta), B: number.Of(tb), Result: number.Of(td), BitOp: i.Mod("bool"),
		Saturate: i.Has("satfinite"), Rounding: number.Roundings[i.Mod("rnd")]}
	switch kind := kindOf(i); {
	case kind != nil:
		p.dot.Unit = dot.Blackwell
		if kind.padded {
			p.a, p.b = paddedType(ta), paddedType(tb)
		}
	case ta.Bits() == 8:
		p.dot.Unit, p.dot.A, p.dot.B = dot.TwoSums, number.F16, number.F16 // computes in f16
	}
	p.m, p.n, p.k = shapeOf(i)
	p.pd, p.pa, p.pb, p.pc = d.vector(0), d.vector(1), d.vector(2), d.vector(3)
	switch {
	case p.a == nil || p.b == nil || p.c == nil || p.d == nil:
		return nil
	case i.Op == "wmma":
		plain := func(rows, cols int, slots []uint32, e *elementType) *fragment {
			return plainFragment(rows, cols, len(slots)*e.perRegister())
		}
		p.fa, p.fb = plain(p.m, p.k, p.pa, p.a), plain(p.k, p.n, p.pb, p.b)
		p.fc, p.fd = plain(p.m, p.n, p.pc, p.c), plain(p.m, p.n, p.pd, p.d)
	case p.m == 8 && p.k == 4 && ta == ptx.F16:
		p.fa, p.fb = quadrantA(i.Mod("alayout") == "row"), quadrantB(i.Mod("blayout") == "row")
		p.fc, p.fd = quadrantC(tc), quadrantC(td)
		p.quadrants, p.dot.Unit = 4, dot.Fused
	default:
		p.fc = fragmentC(p.m, p.n)
		p.fd = p.fc
		p.fb = fragmentB(p.k, p.n, p.b.perRegister())
		columns := p.k
		if i.Mod("sparse") != "" {
			p.sparse = d.sparseMetadata(p.k)
			columns /= 2
		}
		p.fa = fragmentA(p.m, columns, p.a.perRegister())
		if i.Has("block_scale") {
			p.scales = d.scaleOperands()
			p.dot.Scale = p.scales.format
		}
	}
	if p.sparse == nil && p.scales == nil { // these use their operands
		d.in.flow = flowMatrix
	}
	return aligned(p.exec)
}

// aligned returns do for an instruction that all lanes of the warp must execute together.
func aligned(do execFunc) execFunc {
	return func(w *warp, in *inst) {
		if !w.converge(in, full) {
			return
		}
		if w.active != full {
			w.misuse(in, "lanes %#08x of the warp do not execute the instruction: want all lanes", full&^w.active)
			return
		}
		w.emitWarpSync(in, full, false)
		do(w, in)
	}
}

func (p *mma) exec(w *warp, in *inst) {
	if w.tracks && in.flow == flowMatrix {
		w.trackProduct(in, p)
	}
	scratch := &w.worker.matrices
	a := w.gatherMatrix(&scratch[0], p.fa, p.a, p.pa)
	b := w.gatherMatrix(&scratch[1], p.fb, p.b, p.pb)
	c := w.gatherMatrix(&scratch[2], p.fc, p.c, p.pc)
	nearest, columns := w.accumulatesNearest(), scratch[3].grow(p.n*p.k)
	for q := range p.quadrants {
		for k := range p.k {
			for j := range p.n {
				columns[j*p.k+k] = b[(q*p.k+k)*p.n+j]
			}
		}
		rows, sums := a[q*p.m*p.fa.cols:][:p.m*p.fa.cols], c[q*p.m*p.n:][:p.m*p.n]
		switch {
		case p.sparse == nil && p.scales == nil:
			p.dot.Multiply(nearest, rows, columns, p.k, sums)
		case !p.multiply(w, in, rows, columns, sums):
			return
		}
	}
	w.scatterMatrix(c, p.fd, p.d, p.pd)
}

// multiply adds the product of rows and columns to sums, with a sparse A or block scales. It
// returns false after a misuse.
func (p *mma) multiply(w *warp, in *inst, rows, columns, sums []float64) bool {
	nearest, selected := w.accumulatesNearest(), make([]float64, p.fa.cols)
	var places []int // of the elements of a row of A, if A is sparse
	for i := range p.m {
		if p.sparse != nil {
			if places = p.sparse.row(w, in, i, places); places == nil {
				return false
			}
		}
		row := rows[i*p.fa.cols:][:p.fa.cols]
		for j := range p.n {
			column := columns[j*p.k:][:p.k]
			if places != nil {
				for k, place := range places {
					selected[k] = column[place]
				}
				column = selected
			}
			at := &sums[i*p.n+j]
			if p.scales != nil {
				*at = p.dot.Scaled(nearest, row, column, *at, p.scales.ofRow(w, i), p.scales.ofColumn(w, j))
			} else {
				*at = p.dot.Element(nearest, row, column, *at)
			}
		}
	}
	return true
}
