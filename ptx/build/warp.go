package build

import (
	"fmt"
	"math"
	"strings"

	"tilework/ptx"
)

// Axis is a dimension of a block or of a grid.
type Axis byte

// The axes.
const (
	X Axis = 'x'
	Y Axis = 'y'
	Z Axis = 'z'
)

// ThreadIdx returns the index of the thread in its block, threadIdx in CUDA, of type u32.
func (k *Kernel) ThreadIdx(a Axis) Reg { return k.special("tid", a) }

// BlockIdx returns the index of the block in the grid.
func (k *Kernel) BlockIdx(a Axis) Reg { return k.special("ctaid", a) }

// BlockDim returns the number of threads per block.
func (k *Kernel) BlockDim(a Axis) Reg { return k.special("ntid", a) }

// GridDim returns the number of blocks in the grid.
func (k *Kernel) GridDim(a Axis) Reg { return k.special("nctaid", a) }

// LaneID returns the index of the thread in its warp, 0 to 31.
func (k *Kernel) LaneID() Reg {
	return k.place(ptx.U32, "mov.u32", "%laneid", []ptx.Operand{&ptx.Name{Name: "%laneid"}}, nil)
}

func (k *Kernel) special(name string, a Axis) Reg {
	n := &ptx.Name{Name: "%" + name, Member: string(a)}
	return k.Named(name+"_"+n.Member, k.place(ptx.U32, "mov.u32", ptx.Format(n), []ptx.Operand{n}, nil))
}

// CopyAsync copies 4, 8 or 16 bytes from global to shared memory asynchronously (sm_80). Both
// addresses must be aligned to the size. Only the first valid bytes are read from src; the rest
// of dst is filled with zeros. valid can be a number, or a predicate that selects all bytes or
// none, which is cheaper.
func (k *Kernel) CopyAsync(dst, src Ptr, bytes int, valid Value) {
	cache := "ca"
	if bytes == 16 {
		cache = "cg" // bypasses L1, where the data would not be reused
	}
	args := []any{dst, src, bytes}
	v := k.reg(valid)
	if v.ok() && v.v.typ == ptx.Pred {
		if v = k.To(ptx.U32, bytes); !k.reg(valid).isBool(true) {
			v = k.result(ptx.U32, "selp.u32", k.operand(v, ptx.U32), k.operand(constInt(0), ptx.U32),
				k.reg(valid).v.node)
		}
	}
	if n, ok := v.Int(); !ok || n != int64(bytes) {
		args = append(args, v)
	}
	k.Do("cp.async."+cache+".shared.global", args...)
}

// CopyCommit commits the thread's preceding copies as a group.
func (k *Kernel) CopyCommit() { k.Do("cp.async.commit_group") }

// CopyWait waits until at most n groups of the thread's copies are pending. Other threads see the
// copied data after a barrier.
func (k *Kernel) CopyWait(n int) { k.Do("cp.async.wait_group", n) }

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
// fragment holds 2 elements. Each lane supplies the address of one row, as for LoadMatrices.
func (k *Kernel) StoreMatrices(row Ptr, fragments ...Reg) {
	k.Do(fmt.Sprintf("stmatrix.sync.aligned.m8n8.x%d.shared.b16", len(fragments)), row, fragments)
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

// Do emits any instruction of package ptx, given by its mnemonic, such as "shfl.sync.idx.b32". An
// argument is a Reg, a []Reg for a vector, a Ptr for an address, an int, a float32 or float64 for
// an immediate of that width, or any ptx.Operand. Destinations must be variables; see
// [Kernel.Fresh].
func (k *Kernel) Do(mnemonic string, args ...any) {
	operands := make([]ptx.Operand, len(args))
	written := make([][]Reg, len(args))
	for n, a := range args {
		switch a := a.(type) {
		case ptx.Operand:
			operands[n] = a
		case float32:
			operands[n] = &ptx.Imm{Kind: ptx.F32Bits, Bits: uint64(math.Float32bits(a))}
		case float64:
			operands[n] = &ptx.Imm{Kind: ptx.F64Bits, Bits: math.Float64bits(a)}
		case Ptr:
			if !a.usable() {
				return
			}
			operands[n] = a.addr()
		case []Reg:
			list := make([]ptx.Operand, len(a))
			for i, r := range a {
				if r = k.reg(r); !r.ok() {
					return
				}
				list[i] = k.operand(r, r.v.typ)
			}
			operands[n], written[n] = &ptx.Vector{Elems: list}, a
		default:
			r := k.reg(a)
			if !r.ok() {
				return
			}
			operands[n], written[n] = k.operand(r, r.v.typ), []Reg{r}
		}
	}
	i := k.emit(mnemonic, operands...)
	if err := ptx.Bind(i); err != nil {
		k.fail("%v", err.(*ptx.Error).Msg)
		return
	}
	for n, rs := range written {
		if i.Operand(n).Dst && i.Operand(n).Kind == ptx.ValueOperand {
			for _, r := range rs {
				k.variable(i.Mnemonic(), r)
			}
		}
	}
}
