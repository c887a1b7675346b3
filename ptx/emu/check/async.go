package check

import (
	"math/bits"
	"strings"

	"tilework/ptx/emu"
)

// asyncOrder tracks the order created by the synchronization of sm_90: mbarriers, the barrier of
// the cluster and proxy fences.
type asyncOrder struct {
	mbarriers    map[agent]*phases
	cluster      arrivalSet
	clusterClock *clock            // clock of the last completion of the cluster's barrier
	clusterFence *clock            // fenced before the relaxed arrivals at the cluster's barrier
	commits      map[uint64]*clock // clocks of the threads at their tcgen05.commit, by its number
}

// agent executes asynchronous work: an mbarrier in a block's shared memory, for the copies that
// complete on it, a warpgroup, for its wgmma, or the tensor core, for the tcgen05 operations of a
// thread.
type agent struct {
	rank  int
	addr  uint64 // address of the mbarrier
	group int    // number of the warpgroup in the cluster, from 1; 0 for the others
	pipe  int    // number of the thread in the cluster, from 1; 0 for the others
}

// phases is the order that an mbarrier passes from arriving to waiting threads.
type phases struct {
	arriving, complete *clock
	// Copies that complete on the current phase, and copies of completed phases that no
	// thread has waited for yet.
	phaseCopies, doneCopies []copyPart
	remote                  remoteArrivals
}

// copyPart is the part of a copy that belongs to some lanes.
type copyPart struct {
	copy uint64
	mask uint32
	pipe int // for tcgen05 operations: the number of the thread in the cluster, from 1
}

func (a *asyncOrder) reset() {
	a.mbarriers, a.commits = map[agent]*phases{}, map[uint64]*clock{}
	a.cluster, a.clusterClock, a.clusterFence = arrivalSet{}, nil, nil
}

// agentOf returns the number of an agent, after those of the threads. Agents beyond the range of
// an epoch share the last number.
func (o *order) agentOf(a agent) int {
	n, ok := o.agents[a]
	if !ok {
		n = min(o.threads+len(o.agents), threadMask)
		o.agents[a] = n
	}
	return n
}

func (o *order) phasesOf(a agent) *phases {
	p := o.mbarriers[a]
	if p == nil {
		p = &phases{}
		o.mbarriers[a] = p
	}
	return p
}

// at returns the clock that includes all work of an agent up to now.
func (o *order) at(agent int) *clock {
	p := part{block: o.self, upTo: make([]uint32, agent+1)}
	p.upTo[agent] = o.now
	return &clock{parts: []part{p}}
}

// joinLanes joins c into the clocks of lanes of a warp.
func (o *order) joinLanes(warp int, mask uint32, c *clock) {
	var from, to *clock // the lanes usually share one clock
	lanesOf(mask, func(lane int) {
		t := warp*32 + lane
		old := o.clocks[t]
		if to == nil || old != from {
			if from, to = old, old; !old.includes(c) {
				to = join(old, c)
			}
		}
		o.set(t, to)
	})
}

// mbarrier records an event at an mbarrier. It calls land to complete a copy as work of the given
// agent.
func (o *order) mbarrier(e *emu.Mbarrier, land func(copyPart, int)) {
	key := agent{rank: e.Rank, addr: e.Addr}
	p := o.phasesOf(key)
	switch e.Kind {
	case emu.MbarrierInit:
		*p = phases{}
	case emu.MbarrierArrive:
		now := o.step()
		lanesOf(e.Mask, func(lane int) { p.arriving = join(p.arriving, o.clockOf(e.Warp*32+lane, now)) })
	case emu.MbarrierCopy:
		c := copyPart{copy: e.Copy, mask: e.Mask}
		if isTensor(e.Site) {
			c.pipe = threadOf(e.Origin) + 1
			p.arriving = join(p.arriving, o.commits[e.Copy])
		}
		p.phaseCopies = append(p.phaseCopies, c)
	case emu.MbarrierCommit:
		o.commits[e.Copy] = o.clockOf(threadOf(e.Origin), o.step())
	case emu.MbarrierComplete:
		p.complete = join(p.complete, p.arriving)
		p.doneCopies = append(p.doneCopies, p.phaseCopies...)
		p.arriving, p.phaseCopies = nil, nil
	case emu.MbarrierWait:
		if len(p.doneCopies) > 0 {
			o.step()
			var agents []int
			for _, c := range p.doneCopies {
				n := o.agentOf(key)
				if c.pipe > 0 {
					n = o.agentOf(agent{pipe: c.pipe})
				}
				land(c, n)
				agents = append(agents, n)
			}
			p.doneCopies = nil
			o.step()
			for _, n := range agents {
				p.complete = join(p.complete, o.at(n))
			}
		}
		if p.complete != nil {
			o.step()
			o.joinLanes(e.Warp, e.Mask, p.complete)
		}
	}
}

// clusterSync records an arrival at the cluster's barrier, its completion, or the end of a wait. A
// relaxed arrival passes on only the accesses before a fence.
func (o *order) clusterSync(e *emu.ClusterSync) {
	m := &o.cluster
	m.open(len(o.warps))
	switch e.Kind {
	case emu.ClusterArrive:
		if e.Relaxed {
			lanesOf(e.Mask, func(lane int) { o.clusterFence = join(o.clusterFence, o.fencedBy(e.Warp*32+lane, toAll)) })
			break
		}
		m.arrived[e.Warp] |= e.Mask
		o.recordTimes(m, e.Warp, e.Mask)
	case emu.ClusterComplete:
		o.clusterClock, o.clusterFence = join(o.arrivedClock(m), o.clusterFence), nil
		clear(m.arrived)
		o.step()
	case emu.ClusterWait:
		o.joinLanes(e.Warp, e.Mask, o.clusterClock)
	}
}

// threadOf returns the number of the first thread of an origin in the cluster.
func threadOf(e emu.Origin) int { return e.Warp*32 + bits.TrailingZeros32(e.Mask) }

// proxyFence makes all writes that are ordered before the lanes visible to the async proxy.
// fence.mbarrier_init does so only for mbarriers, but it is treated alike, because it comes at
// the start of a kernel, before other data is written.
func (o *order) proxyFence(f *emu.Fence) {
	if f.Proxy != "mbarrier_init" && !strings.HasPrefix(f.Proxy, "async") {
		return
	}
	now := o.step()
	lanesOf(f.Mask, func(lane int) {
		t := f.Warp*32 + lane
		for _, p := range o.clockOf(t, now).parts {
			if p.block != o.self {
				continue
			}
			seen := part{block: o.self, visible: make([]uint32, len(p.upTo))}
			for u := range seen.visible {
				seen.visible[u] = max(p.base, p.upTo[u])
			}
			o.joinClock(t, &clock{parts: []part{seen}})
		}
	})
}

// visibleToProxy reports whether access e, which is ordered before thread t, is visible to the
// async proxy as used by thread t.
func (o *order) visibleToProxy(e epoch, t int) bool {
	c := o.clocks[t]
	if e&proxied != 0 {
		return true
	}
	if c != nil {
		for i := range c.parts {
			if p := &c.parts[i]; p.block == o.self {
				return e.thread() < len(p.visible) && e.time() < p.visible[e.thread()]
			}
		}
	}
	return false
}
