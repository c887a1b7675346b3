package build

import "tilework/ptx"

// Cluster sets the cluster size in blocks (sm_90). Launches with another cluster size fail.
func (k *Kernel) Cluster(x, y, z int) {
	if min(x, y, z) < 1 || max(x, y, z) > 8 || x*y*z > 8 {
		k.fail("Cluster(%d, %d, %d): want 1 to 8 blocks", x, y, z)
		return
	}
	k.attr("Cluster", "reqnctapercluster", x, y, z)
}

// ClusterRank returns the rank of the block in its cluster, with x varying fastest.
func (k *Kernel) ClusterRank() Reg {
	return k.Named("rank", k.place(ptx.U32, "mov.u32", "%cluster_ctarank",
		[]ptx.Operand{&ptx.Name{Name: "%cluster_ctarank"}}, nil))
}

// ClusterArrive arrives at the barrier of the cluster, and ClusterWait waits until all threads of
// the cluster have arrived. After the wait, their earlier writes are visible, including those to
// shared memory of the cluster. A block must not exit while another block of the cluster can
// still access its shared memory.
func (k *Kernel) ClusterArrive() { k.Do("barrier.cluster.arrive.aligned") }

// ClusterArriveRelaxed is like ClusterArrive, but does not make the thread's writes visible and
// does not wait for them.
func (k *Kernel) ClusterArriveRelaxed() { k.Do("barrier.cluster.arrive.relaxed.aligned") }

// ClusterWait waits for the barrier of the cluster; see ClusterArrive.
func (k *Kernel) ClusterWait() { k.Do("barrier.cluster.wait.aligned") }

// Peer returns the pointer that corresponds to p in the shared memory of the block with the given
// rank.
func (k *Kernel) Peer(p Ptr, rank Value) Ptr {
	r := k.reg(rank)
	switch {
	case !r.ok():
		return p
	case p.space != ptx.Shared:
		k.fail("Peer of a pointer to %v memory: want a pointer to shared memory", p.space)
		return p
	}
	peer := k.Fresh(ptx.U32)
	k.Do("mapa.shared::cluster.u32", peer, p.Address(), r)
	return Ptr{k: k, space: ptx.SharedCluster, elem: p.elem, base: peer}
}

// Mbarriers is an array of mbarriers in shared memory (sm_90). The current phase of an mbarrier
// completes when its pending arrivals and its pending bytes have both reached zero.
type Mbarriers struct{ Ptr }

// Mbarriers declares an array of n mbarriers.
func (k *Kernel) Mbarriers(name string, n int) Mbarriers {
	return Mbarriers{k.Shared(name, ptx.B64, n, 1).Ptr}
}

// Init initializes mbarrier i with the number of arrivals per phase. A single thread calls it,
// followed by [Kernel.MbarrierFence] and a barrier of all threads that use the mbarrier.
func (b Mbarriers) Init(i, arrivals Value) {
	b.k.Do("mbarrier.init.shared::cta.b64", b.At(i), arrivals)
}

// Arrive arrives at mbarrier i.
func (b Mbarriers) Arrive(i Value) {
	b.k.Do("mbarrier.arrive.shared::cta.b64", &ptx.Sink{}, b.At(i))
}

// ArrivePeer arrives at mbarrier i of the block with the given rank. It signals progress only,
// for example that a buffer has been read and can be overwritten. It does not make the thread's
// writes visible to that block.
func (b Mbarriers) ArrivePeer(i, rank Value) {
	b.k.Do("mbarrier.arrive.shared::cluster.b64", &ptx.Sink{}, b.k.Peer(b.At(i), rank))
}

// ArrivePeerRelease is like ArrivePeer with release semantics at cluster scope. After
// [Mbarriers.WaitAcquire], that block sees the earlier writes of this thread and of threads that it
// has synchronized with. The arrival waits until these writes are visible to the whole GPU, about
// 0.8 µs on an H200.
func (b Mbarriers) ArrivePeerRelease(i, rank Value) {
	b.k.Do("mbarrier.arrive.release.cluster.shared::cluster.b64", &ptx.Sink{}, b.k.Peer(b.At(i), rank))
}

// ArriveExpectTx arrives at mbarrier i and adds the given number of bytes to its pending bytes.
func (b Mbarriers) ArriveExpectTx(i, bytes Value) {
	b.k.Do("mbarrier.arrive.expect_tx.shared::cta.b64", &ptx.Sink{}, b.At(i), bytes)
}

// Wait waits until the phase of mbarrier i with the given parity, 0 or 1, is complete. Phase n
// has parity n mod 2. Waiting for parity 1 on a new mbarrier returns at once.
func (b Mbarriers) Wait(i, parity Value) {
	b.wait("mbarrier.try_wait.parity.shared::cta.b64", i, parity)
}

// WaitAcquire is like Wait with acquire semantics at cluster scope. After it, the thread can read
// values that threads of other blocks have written to shared memory of the cluster before they
// arrived.
func (b Mbarriers) WaitAcquire(i, parity Value) {
	b.wait("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", i, parity)
}

func (b Mbarriers) wait(op string, i, parity Value) {
	k := b.k
	at, p := b.At(i), k.reg(parity)
	k.While(func() Reg {
		done := k.Fresh(ptx.Pred)
		k.Do(op, done, at, p)
		return k.Not(done)
	}, func() {})
}

// MbarrierFence makes initialized mbarriers visible to the other threads of the cluster and to
// asynchronous copies.
func (k *Kernel) MbarrierFence() { k.Do("fence.mbarrier_init.release.cluster") }

// GridDependencyWait executes griddepcontrol.wait, for programmatic dependent launch (PDL). It
// waits until all prerequisite grids have completed and their writes are visible. Without the PDL
// launch attribute it does not wait.
func (k *Kernel) GridDependencyWait() { k.Do("griddepcontrol.wait") }

// LaunchDependents executes griddepcontrol.launch_dependents: dependent grids may launch once all
// blocks have executed it or exited.
func (k *Kernel) LaunchDependents() { k.Do("griddepcontrol.launch_dependents") }

// ProxyFence makes writes to shared memory that are visible to this thread visible to bulk copies
// and wgmma. If another thread issues those, a barrier must follow.
func (k *Kernel) ProxyFence() { k.Do("fence.proxy.async.shared::cta") }

// Elect returns a predicate that is true in exactly one lane of the warp. All lanes of the warp
// must be active.
func (k *Kernel) Elect() Reg {
	p := k.Fresh(ptx.Pred)
	k.Do("elect.sync", &ptx.Pair{First: &ptx.Sink{}, Second: p.v.node}, -1)
	return p
}

// WarpgroupRegAlloc and WarpgroupRegDealloc set the number of registers per thread of the warpgroup
// (setmaxnreg): a multiple of 8 from 24 to 256. All warps of the warpgroup must execute the same
// instruction.
func (k *Kernel) WarpgroupRegAlloc(n int) { k.Do("setmaxnreg.inc.sync.aligned.u32", n) }

// WarpgroupRegDealloc lowers the number of registers per thread; see WarpgroupRegAlloc.
func (k *Kernel) WarpgroupRegDealloc(n int) { k.Do("setmaxnreg.dec.sync.aligned.u32", n) }
