package build

import (
	"fmt"
	"strings"

	"tilework/ptx"
)

// Matrices that a warpgroup, four warps, multiplies out of shared memory (sm_90a).

// tileAlign is what swizzled tiles are aligned to: 8 rows of 128 bytes, after which the
// swizzle repeats.
const tileAlign = 1024

// Tile declares a matrix in dynamic shared memory where swizzles begin, for bulk copies and
// wgmma.
func (k *Kernel) Tile(name string, elem ptx.Type, rows, cols int) Array {
	k.dynamic = (k.dynamic + tileAlign - 1) / tileAlign * tileAlign
	k.tiles = true
	return k.SharedDynamic(name, elem, rows, cols)
}

// MatrixLayout says how a matrix lies in shared memory: the bytes from one group of 8 rows
// or columns to the next, and the bytes of a swizzled row. What Stride and Leading lead
// along depends on the swizzle and the order (manual: "asynchronous-warpgroup-level-
// matrix-shared-memory-layout"). Of a matrix with neighbours along k side by side, in
// swizzled rows, Stride leads from 8 rows to the next and Leading is not used.
type MatrixLayout struct{ Stride, Leading, Swizzle int }

// descriptorSwizzles is the swizzles as a descriptor has them.
var descriptorSwizzles = map[int]int64{0: 0, 128: 1, 64: 2, 32: 3}

// Descriptor describes the matrix at p for [Kernel.Wgmma]. To move it by bytes, a multiple
// of 16, add bytes/16.
func (k *Kernel) Descriptor(p Ptr, l MatrixLayout) Reg {
	mode, ok := descriptorSwizzles[l.Swizzle]
	const field = 1<<14 - 1
	if !ok || l.Stride%16 != 0 || l.Leading%16 != 0 || l.Stride>>4&^field != 0 || l.Leading>>4&^field != 0 {
		return k.fail("a matrix layout of %+v: want multiples of 16 up to %d, and a swizzle of 0, 32, 64 or 128", l, field<<4)
	}
	// In a cluster the upper bits of an address are the block's rank, which would fall into
	// the next field.
	start := k.Shr(k.And(p.Address(), field<<4), 4)
	return k.Or(k.To(ptx.U64, start), int64(l.Leading>>4)<<16|int64(l.Stride>>4)<<32|mode<<62)
}

// Wgmma is a product of matrices of 64 rows and N columns, a multiple of 8 up to 256. A and
// B are the types of their elements; ColumnsA and ColumnsB say, of 16-bit types, that
// neighbours in memory are in one column of A, or in one row of B; NegateA and NegateB
// change the sign, of floating-point types.
type Wgmma struct {
	N                  int
	A, B               ptx.Type
	ColumnsA, ColumnsB bool
	NegateA, NegateB   bool
}

// K is how many elements of a row of A a product takes: 32 bytes of them.
func (w Wgmma) K() int { return 256 / max(w.A.Bits(), 1) }

// WgmmaFence comes before the first product, and after every other access to the registers
// of one.
func (k *Kernel) WgmmaFence() { k.Do("wgmma.fence.sync.aligned") }

// WgmmaCommit ends a group of products.
func (k *Kernel) WgmmaCommit() { k.Do("wgmma.commit_group.sync.aligned") }

// WgmmaWait waits until at most n groups are under way. Before that their sums, and
// registers of A, must be left alone.
func (k *Kernel) WgmmaWait(n int) { k.Do("wgmma.wait_group.sync.aligned", n) }

// Wgmma begins a product of a and b, to which it adds sums if the predicate or bool add
// holds. The sums are variables of type F32, S32 or, two a register, F16x2. b is the
// descriptor of B, and a that of A, or a []Reg of 4 registers with the thread's fragment.
func (k *Kernel) Wgmma(w Wgmma, sums []Reg, a any, b Reg, add Value) {
	if len(sums) == 0 {
		k.fail("Wgmma without a variable to add to")
		return
	}
	d := sums[0].Type()
	if d == ptx.F16x2 {
		d = ptx.F16
	}
	flag := map[bool]int{true: 1}
	args := []any{sums, a, b, add}
	if d.Class() == ptx.Float {
		args = append(args, 1-2*flag[w.NegateA], 1-2*flag[w.NegateB])
	}
	if w.A.Bits() == 16 {
		if _, registers := a.([]Reg); !registers {
			args = append(args, flag[w.ColumnsA])
		}
		args = append(args, flag[w.ColumnsB])
	}
	shape := fmt.Sprintf("m64n%dk%d", w.N, w.K())
	k.Do(strings.Join([]string{"wgmma.mma_async.sync.aligned", shape, d.String(), w.A.String(), w.B.String()}, "."), args...)
}
