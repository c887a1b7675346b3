package build

import (
	"fmt"
	"strings"

	"tilework/ptx"
)

// MatrixLayout describes the layout of a matrix in shared memory for wgmma (sm_90a). Stride and
// Leading are the distances in bytes between core matrices of 8 rows in the two dimensions.
// Swizzle is the swizzle width in bytes. The meaning of Stride and Leading depends on the swizzle
// and on the major dimension (manual: "asynchronous-warpgroup-level-matrix-shared-
// memory-layout"). For a swizzled K-major matrix, Stride is the distance between groups of 8
// rows, and Leading is unused.
type MatrixLayout struct{ Stride, Leading, Swizzle int }

// descriptorSwizzles maps swizzle widths to their encoding in a descriptor.
var descriptorSwizzles = map[int]int64{0: 0, 128: 1, 64: 2, 32: 3}

// Descriptor returns the wgmma descriptor of the matrix at p. To advance it by a multiple of 16
// bytes, add bytes/16.
func (k *Kernel) Descriptor(p Ptr, l MatrixLayout) Reg {
	mode, ok := descriptorSwizzles[l.Swizzle]
	const field = 1<<14 - 1
	if !ok || l.Stride%16 != 0 || l.Leading%16 != 0 || l.Stride>>4&^field != 0 || l.Leading>>4&^field != 0 {
		return k.fail("matrix layout %+v: want multiples of 16 up to %d, and a swizzle of 0, 32, 64 or 128",
			l, field<<4)
	}
	// In a cluster, the high bits of an address hold the rank of the block. The mask keeps
	// them out of the next field.
	start := k.Shr(k.And(p.Address(), field<<4), 4)
	return k.Or(k.To(ptx.U64, start), int64(l.Leading>>4)<<16|int64(l.Stride>>4)<<32|mode<<62)
}

// Wgmma describes a matrix product of 64 rows and N columns, a multiple of 8 up to 256. A and B
// are the element types. MNMajorA and MNMajorB select MN-major operands in shared memory, for
// 16-bit types; the default is K-major. NegateA and NegateB negate the operands, for
// floating-point types.
type Wgmma struct {
	N                  int
	A, B               ptx.Type
	MNMajorA, MNMajorB bool
	NegateA, NegateB   bool
}

// K returns the K extent of one instruction: 32 bytes of elements.
func (w Wgmma) K() int { return 256 / max(w.A.Bits(), 1) }

// WgmmaFence must precede the first Wgmma, and follow every other access to the registers of a
// Wgmma before the next one.
func (k *Kernel) WgmmaFence() { k.Do("wgmma.fence.sync.aligned") }

// WgmmaCommit commits the preceding Wgmma instructions as a group.
func (k *Kernel) WgmmaCommit() { k.Do("wgmma.commit_group.sync.aligned") }

// WgmmaWait waits until at most n groups are pending. Before that, their accumulators and the
// registers of A must not be accessed.
func (k *Kernel) WgmmaWait(n int) { k.Do("wgmma.wait_group.sync.aligned", n) }

// Wgmma issues an asynchronous product of a and b. The accumulators sums are added to it if add,
// a predicate or bool, is true; otherwise they are overwritten. The sums are variables of type
// F32, S32 or F16x2, which holds two elements per register. b is the descriptor of B. a is the
// descriptor of A, or a []Reg with the thread's fragment of A in 4 registers.
func (k *Kernel) Wgmma(w Wgmma, sums []Reg, a any, b Reg, add Value) {
	if len(sums) == 0 {
		k.fail("Wgmma: sums is empty, want accumulator variables")
		return
	}
	d := sums[0].Type()
	if d == ptx.F16x2 {
		d = ptx.F16
	}
	args := []any{sums, a, b, add}
	if d.Class() == ptx.Float {
		args = append(args, sign(w.NegateA), sign(w.NegateB))
	}
	if w.A.Bits() == 16 {
		if _, registers := a.([]Reg); !registers {
			args = append(args, w.MNMajorA)
		}
		args = append(args, w.MNMajorB)
	}
	shape := fmt.Sprintf("m64n%dk%d", w.N, w.K())
	k.Do(strings.Join([]string{"wgmma.mma_async.sync.aligned", shape, d.String(), w.A.String(), w.B.String()}, "."),
		args...)
}

// sign returns the factor of an operand that is negated or not.
func sign(negate bool) int {
	if negate {
		return -1
	}
	return 1
}

// WarpgroupRegAlloc and WarpgroupRegDealloc set the number of registers per thread of the warpgroup
// (setmaxnreg): a multiple of 8 from 24 to 256. All warps of the warpgroup must execute the same
// instruction.
func (k *Kernel) WarpgroupRegAlloc(n int) { k.Do("setmaxnreg.inc.sync.aligned.u32", n) }

// WarpgroupRegDealloc lowers the number of registers per thread; see WarpgroupRegAlloc.
func (k *Kernel) WarpgroupRegDealloc(n int) { k.Do("setmaxnreg.dec.sync.aligned.u32", n) }
