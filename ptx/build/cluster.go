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
	return k.Named("rank", k.special(&ptx.Name{Name: "%cluster_ctarank"}))
}

// ClusterArrive arrives at the barrier of the cluster, and ClusterWait waits until all threads of
// the cluster have arrived. After the wait, their earlier writes are visible, including those to
// shared memory of the cluster. A block must not exit while another block of the cluster can
// still access its shared memory.
func (k *Kernel) ClusterArrive() { k.Do("barrier.cluster.arrive.aligned") }

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

// GridDependencyWait executes griddepcontrol.wait, for programmatic dependent launch (PDL). It
// waits until all prerequisite grids have completed and their writes are visible. Without the PDL
// launch attribute it does not wait.
func (k *Kernel) GridDependencyWait() { k.Do("griddepcontrol.wait") }

// LaunchDependents executes griddepcontrol.launch_dependents: dependent grids may launch once all
// blocks have executed it or exited.
func (k *Kernel) LaunchDependents() { k.Do("griddepcontrol.launch_dependents") }
