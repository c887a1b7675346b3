package build

import "tilework/ptx"

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
