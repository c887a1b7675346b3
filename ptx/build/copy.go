package build

import (
	"fmt"

	"tilework/ptx"
)

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

// Tensor is a tensor in global memory that TMA copies boxes of (sm_90). The argument of a
// launch is the device's encoding of a [ptx.TensorMap]. One thread issues a copy for the
// whole block.
type Tensor struct {
	k      *Kernel
	handle Reg // address of the tensor map
}

// Tensor declares a tensor map as a parameter of the kernel.
func (k *Kernel) Tensor(name string) Tensor {
	if !k.identifier(name) {
		return Tensor{k, Reg{bad}}
	}
	k.params = append(k.params, &ptx.Var{
		Pos: k.caller(), Space: ptx.Param, Align: ptx.TensorMapAlign, Type: ptx.B8, Name: name,
		Dims: []int{ptx.TensorMapBytes},
	})
	at := k.place(ptx.U64, "mov.u64", "address "+name, []ptx.Operand{&ptx.Name{Name: name}}, nil)
	return Tensor{k, k.Named(name+"_map", k.pureOp(ptx.U64, "cvta.param.u64", ptx.U64, at))}
}

// Prefetch prefetches the tensor map, so that the first copy does not wait for it.
func (t Tensor) Prefetch() {
	if m := t.k.reg(t.handle); m.ok() {
		t.k.Do("prefetch.tensormap", &ptx.Addr{Base: m.v.node})
	}
}

// at returns the address operand of the box that starts at the given coordinates, innermost
// first.
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

// Load copies a box to shared memory and completes its bytes on the mbarrier. The count includes
// the part of the box outside the tensor. dst must be aligned to 128 bytes, or to 1024 bytes if
// the box is swizzled.
func (t Tensor) Load(dst, mbarrier Ptr, coords ...Value) {
	if at, ok := t.at(coords); ok {
		const op = "cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes"
		t.k.Do(fmt.Sprintf(op, len(coords)), dst, at, mbarrier)
	}
}

// LoadMulticast is a multicast Load. It copies the box to the same offset in each block of the
// cluster whose rank is set in the bit mask ranks, of type u16, and completes the bytes on the
// mbarrier of each of these blocks.
func (t Tensor) LoadMulticast(dst, mbarrier Ptr, ranks Value, coords ...Value) {
	if at, ok := t.at(coords); ok {
		const op = "cp.async.bulk.tensor.%dd.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
		t.k.Do(fmt.Sprintf(op, len(coords)), dst, at, mbarrier, ranks)
	}
}

// Store copies a box from shared memory to the tensor.
func (t Tensor) Store(src Ptr, coords ...Value) {
	if at, ok := t.at(coords); ok {
		t.k.Do(fmt.Sprintf("cp.async.bulk.tensor.%dd.global.shared::cta.bulk_group", len(coords)), at, src)
	}
}

// BulkLoad copies the given number of bytes, a multiple of 16, from global to shared memory and
// completes them on the mbarrier.
func (k *Kernel) BulkLoad(dst, src Ptr, bytes Value, mbarrier Ptr) {
	k.Do("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", dst, src, bytes, mbarrier)
}

// BulkStore copies the given number of bytes, a multiple of 16, from shared to global memory.
func (k *Kernel) BulkStore(dst, src Ptr, bytes Value) {
	k.Do("cp.async.bulk.global.shared::cta.bulk_group", dst, src, bytes)
}

// BulkCommit commits the thread's preceding stores as a bulk group.
func (k *Kernel) BulkCommit() { k.Do("cp.async.bulk.commit_group") }

// BulkWait waits until at most n bulk groups of the thread are pending.
func (k *Kernel) BulkWait(n int) { k.Do("cp.async.bulk.wait_group", n) }

// BulkWaitRead waits until at most n bulk groups of the thread have still to read their shared
// memory, which can be overwritten afterwards.
func (k *Kernel) BulkWaitRead(n int) { k.Do("cp.async.bulk.wait_group.read", n) }

// ProxyFence makes writes to shared memory that are visible to this thread visible to bulk copies
// and wgmma. If another thread issues those, a barrier must follow.
func (k *Kernel) ProxyFence() { k.Do("fence.proxy.async.shared::cta") }
