package build

import (
	"math"

	"tilework/ptx"
)

// Do emits any instruction of package ptx, given by its mnemonic, such as "shfl.sync.idx.b32". An
// argument is a Reg, a []Reg for a vector, a Ptr for an address, a Go integer or bool, a float32 or
// float64 for an immediate of that width, or any ptx.Operand. Destinations must be variables; see
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
			if a.k == nil {
				k.fail("operand is a zero Ptr")
				return
			}
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
