package emu

import "slices"

// A kernel that reads the environment registers waits at barriers of the whole grid. Its launch is
// cooperative: all clusters run at the same time, a few time slices of one after a few of another.
// All other launches run one cluster to its end before the next one starts on the same worker.

// maxResident is the number of threads of the largest cooperative launch: those that the 132
// multiprocessors of an H200 hold. A larger grid cannot wait for all its blocks.
const maxResident = 132 * 2048

// maxTurnLog2 is the binary logarithm of the maximum number of time slices that a cluster of a
// cooperative launch runs before the next cluster.
const maxTurnLog2 = 6

// cooperates reports whether the launch is cooperative.
func (r *run) cooperates() bool {
	return r.entry.readsSpecial(environmentPrefix) && r.launch.Grid.count() <= maxResident/r.launch.Block.count()
}

// newGridBarrier allocates the barrier of cooperative groups: the size of its memory and a counter
// (CUDA, cooperative_groups/details/driver_abi.h).
func (r *run) newGridBarrier() (uint64, error) {
	const size = 8
	at, err := r.mem.Alloc(size)
	if err != nil {
		return 0, err
	}
	return at, r.mem.Write(at, []byte{0: size, size - 1: 0})
}

// workTogether runs all clusters until they have exited or one has failed. Each worker has one of
// them.
func (r *run) workTogether(all []*worker) {
	for n, k := range all {
		k.cluster.begin(n)
		r.together = append(r.together, k.cluster)
	}
	r.next.Store(int64(r.clusters))
	rng := random(r.launch.Seed)
	running := slices.Clone(r.together)
	for failed := false; len(running) > 0; {
		n := rng.below(len(running))
		c := running[n]
		goesOn := !failed
		for turns := 1 << rng.below(maxTurnLog2+1); goesOn && turns > 0; turns-- {
			goesOn = c.step()
		}
		if !goesOn {
			failed = failed || c.err != nil
			r.finish(c.number, c.printed(), c.end())
			running[n] = running[len(running)-1]
			running = running[:len(running)-1]
		}
	}
}

// visibleWrites counts the writes that the warps of the cluster may see.
func (c *cluster) visibleWrites() uint64 {
	if c.run.together == nil {
		return c.writes
	}
	sum := uint64(0)
	for _, other := range c.run.together {
		sum += other.writes
	}
	return sum
}

// allSpin reports whether all clusters that run at the same time repeat themselves, so that no
// memory will change. The cluster that asks does.
func (r *run) allSpin() bool {
	for _, c := range r.together {
		repeats := c.spin.found && c.spin.writes == c.visibleWrites()
		if len(c.asyncOps) > 0 || len(c.runnable) > 0 && !repeats {
			return false
		}
	}
	return true
}
