package build

import "tilework/ptx"

// Axis is a dimension of a block or of a grid.
type Axis byte

// The axes.
const (
	X Axis = 'x'
	Y Axis = 'y'
	Z Axis = 'z'
)

// ThreadIdx returns the index of the thread in its block, threadIdx in CUDA, of type u32.
func (k *Kernel) ThreadIdx(a Axis) Reg { return k.indexed("tid", a) }

// BlockIdx returns the index of the block in the grid.
func (k *Kernel) BlockIdx(a Axis) Reg { return k.indexed("ctaid", a) }

// BlockDim returns the number of threads per block.
func (k *Kernel) BlockDim(a Axis) Reg { return k.indexed("ntid", a) }

// GridDim returns the number of blocks in the grid.
func (k *Kernel) GridDim(a Axis) Reg { return k.indexed("nctaid", a) }

// indexed returns the part of a vector of special registers for axis a.
func (k *Kernel) indexed(name string, a Axis) Reg {
	return k.Named(name+"_"+string(a), k.special(&ptx.Name{Name: "%" + name, Member: string(a)}))
}

// special returns the value of a special register.
func (k *Kernel) special(n *ptx.Name) Reg {
	return k.place(ptx.U32, "mov.u32", ptx.Format(n), []ptx.Operand{n}, nil)
}
