package build

import "tilework/ptx"

// What blocks of a cluster do together, and what threads and copies wait for each other
// by (sm_90).

// Cluster sets the size of a cluster in blocks; a launch with another one fails.
func (k *Kernel) Cluster(x, y, z int) {
	if n := x * y * z; min(x, y, z) < 1 || n > 8 {
		k.fail("a cluster of %d×%d×%d blocks: want 1 to 8", x, y, z)
		return
	}
	k.attrs = append(k.attrs, ptx.Attr{Name: "reqnctapercluster", Args: []int{x, y, z}})
}

// ClusterRank is the block's place in its cluster, x fastest.
func (k *Kernel) ClusterRank() Reg {
	return k.Named("rank", k.place(ptx.U32, "mov.u32", "%cluster_ctarank", []ptx.Operand{&ptx.Name{Name: "%cluster_ctarank"}}, nil))
}

// ClusterArrive tells the cluster's other threads that this one has come so far;
// ClusterWait waits until all have told. What they did before they arrived, in shared
// memory of the cluster too, can then be seen. A block must not end while another one
// of its cluster still uses its shared memory.
func (k *Kernel) ClusterArrive() { k.Do("barrier.cluster.arrive.aligned") }

// ClusterArriveRelaxed is ClusterArrive after which nothing need be seen that was written: it
// does not wait for memory.
func (k *Kernel) ClusterArriveRelaxed() { k.Do("barrier.cluster.arrive.relaxed.aligned") }

// ClusterWait is the other half of ClusterArrive.
func (k *Kernel) ClusterWait() { k.Do("barrier.cluster.wait.aligned") }

// Peer points to the same place in the shared memory of the block of that rank.
func (k *Kernel) Peer(p Ptr, rank Value) Ptr {
	r := k.reg(rank)
	if p.space != ptx.Shared || !r.ok() {
		k.fail("the peer of a pointer to %v memory: want one to shared memory", p.space)
		return p
	}
	there := k.Fresh(ptx.U32)
	k.Do("mapa.shared::cluster.u32", there, p.Address(), r)
	return Ptr{k: k, space: ptx.SharedCluster, elem: p.elem, base: there}
}

// Mbarriers is an array of mbarriers in shared memory. A phase of one is complete when as
// many arrivals have come as it was made for and as many bytes as they have announced.
type Mbarriers struct{ Ptr }

// Mbarriers declares n mbarriers.
func (k *Kernel) Mbarriers(name string, n int) Mbarriers {
	return Mbarriers{k.Shared(name, ptx.B64, n, 1).Ptr}
}

// Init makes mbarrier i, for that many arrivals a phase. One thread does; a
// [Kernel.MbarrierFence] and a barrier of all who use it follow.
func (b Mbarriers) Init(i, arrivals Value) {
	b.k.Do("mbarrier.init.shared::cta.b64", b.At(i), arrivals)
}

// Arrive is an arrival at mbarrier i.
func (b Mbarriers) Arrive(i Value) {
	b.k.Do("mbarrier.arrive.shared::cta.b64", &ptx.Sink{}, b.At(i))
}

// ArrivePeer is an arrival at mbarrier i of the block of that rank. It says that the thread
// has come so far, as to have read what will be overwritten; what it has written need not be
// seen by that block.
func (b Mbarriers) ArrivePeer(i, rank Value) {
	b.k.Do("mbarrier.arrive.shared::cluster.b64", &ptx.Sink{}, b.k.Peer(b.At(i), rank))
}

// PublishPeer is ArrivePeer behind which that block's [Mbarriers.WaitPeers] sees what the
// thread, and who met it at a barrier, have written. It waits for all of that to be seen by
// the whole GPU: some 0.8 µs on an H200.
func (b Mbarriers) PublishPeer(i, rank Value) {
	b.k.Do("mbarrier.arrive.release.cluster.shared::cluster.b64", &ptx.Sink{}, b.k.Peer(b.At(i), rank))
}

// Expect is an arrival at mbarrier i that announces so many bytes.
func (b Mbarriers) Expect(i, bytes Value) {
	b.k.Do("mbarrier.arrive.expect_tx.shared::cta.b64", &ptx.Sink{}, b.At(i), bytes)
}

// Wait waits until mbarrier i is through with its phase of that parity, 0 or 1: phase n
// has parity n mod 2. That of the phase before the first, 1, is complete from the start.
func (b Mbarriers) Wait(i, parity Value) {
	b.wait("mbarrier.try_wait.parity.shared::cta.b64", i, parity)
}

// WaitPeers is Wait after which can be read what threads of other blocks have written to
// shared memory of the cluster before they arrived.
func (b Mbarriers) WaitPeers(i, parity Value) {
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

// MbarrierFence lets the cluster's other threads and copies see mbarriers that this thread
// has made.
func (k *Kernel) MbarrierFence() { k.Do("fence.mbarrier_init.release.cluster") }

// AfterGrids waits until all that was launched before has ended, and what it has written can
// be read; a launch says that the kernel may begin earlier. What is launched behind may then
// begin as soon as this kernel leaves room.
func (k *Kernel) AfterGrids() {
	k.Do("griddepcontrol.wait")
	k.Do("griddepcontrol.launch_dependents")
}

// ProxyFence lets bulk copies and wgmma see what the thread has written to shared memory,
// or knows to be written. A barrier follows if another thread begins them.
func (k *Kernel) ProxyFence() { k.Do("fence.proxy.async.shared::cta") }

// Elect is a predicate that holds in one lane of a warp that is there as a whole.
func (k *Kernel) Elect() Reg {
	p := k.Fresh(ptx.Pred)
	k.Do("elect.sync", &ptx.Pair{First: &ptx.Sink{}, Second: p.v.node}, -1)
	return p
}

// MoreRegisters and FewerRegisters change how many registers each thread of the warpgroup
// has: 24 to 256, in eights. All of its warps must come to it.
func (k *Kernel) MoreRegisters(n int) { k.Do("setmaxnreg.inc.sync.aligned.u32", n) }

// FewerRegisters is the other direction of MoreRegisters.
func (k *Kernel) FewerRegisters(n int) { k.Do("setmaxnreg.dec.sync.aligned.u32", n) }
