package build

import (
	"fmt"

	"tilework/ptx"
)

// Bulk copies, which one thread begins for all (sm_90).

// Tensor is a tensor in global memory whose boxes are copied. A launch gets what the
// device makes of its [ptx.TensorMap].
type Tensor struct {
	k      *Kernel
	handle Reg // the address of the map
}

// Tensor declares a parameter that is a tensor map.
func (k *Kernel) Tensor(name string) Tensor {
	if !k.identifier(name) {
		return Tensor{k, Reg{bad}}
	}
	k.params = append(k.params, &ptx.Var{
		Pos: k.caller(), Space: ptx.Param, Align: ptx.TensorMapAlign, Type: ptx.B8, Name: name, Dims: []int{ptx.TensorMapBytes},
	})
	at := k.place(ptx.U64, "mov.u64", "address "+name, []ptx.Operand{&ptx.Name{Name: name}}, nil)
	return Tensor{k, k.Named(name+"_map", k.pureOp(ptx.U64, "cvta.param.u64", ptx.U64, at))}
}

// Prefetch brings the map on its way to where copies look for it.
func (t Tensor) Prefetch() {
	if m := t.k.reg(t.handle); m.ok() {
		t.k.Do("prefetch.tensormap", &ptx.Addr{Base: m.v.node})
	}
}

// at is the address operand of the box that begins at the element of those coordinates,
// innermost first.
func (t Tensor) at(coords []Value) (a *ptx.Addr, ok bool) {
	a = &ptx.Addr{Coords: &ptx.Vector{}}
	for _, c := range coords {
		r := t.k.reg(c)
		if !r.ok() {
			return nil, false
		}
		a.Coords.Elems = append(a.Coords.Elems, t.k.operand(r, ptx.S32))
	}
	m := t.k.reg(t.handle)
	if !m.ok() {
		return nil, false
	}
	a.Base = m.v.node
	return a, true
}

// Load copies a box to shared memory and tells the mbarrier its bytes, all of the box's
// also where it reaches out of the tensor. dst is a multiple of 128 bytes, and of 1024 if
// the box is swizzled.
func (t Tensor) Load(dst, mbarrier Ptr, coords ...Value) {
	if at, ok := t.at(coords); ok {
		t.k.Do(fmt.Sprintf("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes", len(coords)), dst, at, mbarrier)
	}
}

// LoadAll is Load to the same place in each block of the cluster whose rank has a bit in
// ranks, of type u16; the mbarrier of each is told.
func (t Tensor) LoadAll(dst, mbarrier Ptr, ranks Value, coords ...Value) {
	if at, ok := t.at(coords); ok {
		t.k.Do(fmt.Sprintf("cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster", len(coords)), dst, at, mbarrier, ranks)
	}
}

// Store copies a box from shared memory to the tensor.
func (t Tensor) Store(src Ptr, coords ...Value) {
	if at, ok := t.at(coords); ok {
		t.k.Do(fmt.Sprintf("cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group", len(coords)), at, src)
	}
}

// BulkLoad copies bytes, a multiple of 16, from global to shared memory and tells the
// mbarrier.
func (k *Kernel) BulkLoad(dst, src Ptr, bytes Value, mbarrier Ptr) {
	k.Do("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", dst, src, bytes, mbarrier)
}

// BulkStore copies bytes, a multiple of 16, from shared to global memory.
func (k *Kernel) BulkStore(dst, src Ptr, bytes Value) {
	k.Do("cp.async.bulk.global.shared::cta.bulk_group", dst, src, bytes)
}

// BulkCommit ends a group of the thread's stores.
func (k *Kernel) BulkCommit() { k.Do("cp.async.bulk.commit_group") }

// BulkWait waits until at most n groups of the thread's stores are under way.
func (k *Kernel) BulkWait(n int) { k.Do("cp.async.bulk.wait_group", n) }

// BulkWaitRead waits until all but n groups have read shared memory, which can then be
// written again.
func (k *Kernel) BulkWaitRead(n int) { k.Do("cp.async.bulk.wait_group.read", n) }
