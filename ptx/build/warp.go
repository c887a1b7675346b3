package build

import (
	"fmt"
	"strings"

	"tilework/ptx"
)

// LaneID returns the index of the thread in its warp, 0 to 31.
func (k *Kernel) LaneID() Reg {
	return k.special(&ptx.Name{Name: "%laneid"})
}

// LoadMatrices loads 1, 2 or 4 8×8 matrices of 16-bit elements with ldmatrix (sm_75). Each lane
// supplies the address of one row of a matrix. It receives its fragment of each matrix, or of the
// transpose of each matrix.
func (k *Kernel) LoadMatrices(row Ptr, n int, trans bool) []Reg {
	d := make([]Reg, max(n, 0))
	for i := range d {
		d[i] = k.Fresh(ptx.B32)
	}
	k.LoadMatricesTo(row, trans, d...)
	return d
}

// LoadMatricesTo is like LoadMatrices, but loads into variables, one per matrix.
func (k *Kernel) LoadMatricesTo(row Ptr, trans bool, d ...Reg) {
	op := fmt.Sprintf("ldmatrix.sync.aligned.m8n8.x%d", len(d))
	if trans {
		op += ".trans"
	}
	k.Do(op+".shared.b16", d, row)
}

// ShuffleXor returns x of the lane whose index is the own index XOR mask. x has 4 or 8 bytes. All
// lanes of the warp must take part.
func (k *Kernel) ShuffleXor(x Reg, mask int) Reg { return k.shuffle("bfly", x, mask, 0) }

// Shuffle returns x of the given lane. The bits in the mask own are taken from the index of the
// executing lane instead. x has 4 or 8 bytes. All lanes of the warp must take part.
func (k *Kernel) Shuffle(x Reg, lane Value, own int) Reg { return k.shuffle("idx", x, lane, own) }

func (k *Kernel) shuffle(mode string, x Reg, lane Value, own int) Reg {
	word := func(x Reg) Reg {
		d := k.Fresh(ptx.U32)
		k.Do("shfl.sync."+mode+".b32", d, x, lane, own<<8|31, -1)
		return d
	}
	if x.Type().Bits() != 64 {
		return k.Bits(x.Type(), word(k.Bits(ptx.U32, x)))
	}
	bits := k.Bits(ptx.U64, x)
	low, high := word(k.To(ptx.U32, bits)), word(k.To(ptx.U32, k.Shr(bits, 32)))
	return k.Bits(x.Type(), k.Or(k.Shl(k.To(ptx.U64, high), 32), k.To(ptx.U64, low)))
}

// StoreMatrices stores 8×8 matrices from the lanes' fragments with stmatrix (sm_90). Each
// fragment holds 2 elements. Each lane supplies the address of one row, as for LoadMatrices. With
// trans the matrices are transposed on the way.
func (k *Kernel) StoreMatrices(row Ptr, trans bool, fragments ...Reg) {
	op := fmt.Sprintf("stmatrix.sync.aligned.m8n8.x%d", len(fragments))
	if trans {
		op += ".trans"
	}
	k.Do(op+".shared.b16", row, fragments)
}

// MMA adds the product of two matrices in the registers of the warp to the variables acc, with
// mma.sync of the given shape, such as "m16n8k16", and operands of type t. The layout of the
// fragments is that of the manual.
func (k *Kernel) MMA(shape string, t ptx.Type, acc, a, b []Reg) {
	if len(acc) == 0 {
		k.fail("MMA: acc is empty, want accumulator variables")
		return
	}
	sum, in := acc[0].Type().String(), t.String()
	k.Do(strings.Join([]string{"mma.sync.aligned", shape, "row.col", sum, in, in, sum}, "."), acc, a, b, acc)
}

// Elect returns a predicate that is true in exactly one lane of the warp. All lanes of the warp
// must be active.
func (k *Kernel) Elect() Reg {
	p := k.Fresh(ptx.Pred)
	k.Do("elect.sync", &ptx.Pair{First: &ptx.Sink{}, Second: p.v.node}, -1)
	return p
}
