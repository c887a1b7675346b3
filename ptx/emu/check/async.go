package check

import (
	"strings"

	"tilework/ptx/emu"
)

// asyncs is what Hopper's means of synchronisation say about order: mbarriers, the
// barrier of the cluster, fences between the proxies.
type asyncs struct {
	mbarriers map[agent]*phases
	cluster   meeting
	met       *clock // what was known at the last completion of the cluster's barrier
}

// agent is what does asynchronous work: an mbarrier of a block's shared memory, for the
// copies that are told to it, or a warpgroup, for its matrices.
type agent struct {
	rank  int
	addr  uint64 // of an mbarrier
	group int    // from 1, of a warpgroup in the cluster; 0 for an mbarrier
}

// phases is what an mbarrier hands from those who arrive to those who wait.
type phases struct {
	arriving, complete *clock
	// The copies that the phase under way was told of, and those of complete phases that
	// nobody has seen yet.
	landing, landed []doneCopy
}

// doneCopy is lanes' part of a copy.
type doneCopy struct {
	copy uint64
	mask uint32
}

func (a *asyncs) reset() {
	a.mbarriers = map[agent]*phases{}
	a.cluster, a.met = meeting{}, nil
}

// agentOf is an agent's number behind those of the threads. What there are more of than
// an epoch can tell apart share the last one.
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

// at is the knowledge that an agent's work up to now is done.
func (o *order) at(agent int) *clock {
	p := part{block: o.self, upTo: make([]uint32, agent+1)}
	p.upTo[agent] = o.now
	return &clock{parts: []part{p}}
}

// learnAll gives lanes of a warp a clock's knowledge.
func (o *order) learnAll(warp int, mask uint32, c *clock) {
	var from, to *clock // mostly the lanes know the same
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

// mbarrier enters what happened at an mbarrier; land completes copies, which the agent has
// done then.
func (o *order) mbarrier(e *emu.Mbarrier, land func(doneCopy, int)) {
	key := agent{rank: e.Rank, addr: e.Addr}
	p := o.phasesOf(key)
	switch e.Kind {
	case emu.MbarrierInit:
		*p = phases{}
	case emu.MbarrierArrive:
		now := o.step()
		lanesOf(e.Mask, func(lane int) { p.arriving = join(p.arriving, o.knows(e.Warp*32+lane, now)) })
	case emu.MbarrierCopy:
		p.landing = append(p.landing, doneCopy{e.Copy, e.Mask})
	case emu.MbarrierComplete:
		p.complete = join(p.complete, p.arriving)
		p.landed = append(p.landed, p.landing...)
		p.arriving, p.landing = nil, nil
	case emu.MbarrierWait:
		if len(p.landed) > 0 {
			o.step()
			n := o.agentOf(key)
			for _, c := range p.landed {
				land(c, n)
			}
			p.landed = nil
			o.step()
			p.complete = join(p.complete, o.at(n))
		}
		if p.complete != nil {
			o.step()
			o.learnAll(e.Warp, e.Mask, p.complete)
		}
	}
}

// clusterSync enters an arrival at the cluster's barrier, its completion or the end of a
// wait.
func (o *order) clusterSync(e *emu.ClusterSync) {
	m := &o.cluster
	m.open(len(o.warps))
	switch e.Kind {
	case emu.ClusterArrive:
		if !e.Relaxed {
			m.arrived[e.Warp] |= e.Mask
			o.come(m, e.Warp, e.Mask)
		}
	case emu.ClusterComplete:
		o.met = o.known(m)
		clear(m.arrived)
		o.step()
	case emu.ClusterWait:
		o.learnAll(e.Warp, e.Mask, o.met)
	}
}

// proxyFence lets the async proxy see what the threads know. That of mbarrier.init does so
// for mbarriers alone; it stands at a kernel's start, before there is other data.
func (o *order) proxyFence(f *emu.Fence) {
	if f.Proxy != "mbarrier_init" && !strings.HasPrefix(f.Proxy, "async") {
		return
	}
	now := o.step()
	lanesOf(f.Mask, func(lane int) {
		t := f.Warp*32 + lane
		for _, p := range o.knows(t, now).parts {
			if p.block != o.self {
				continue
			}
			seen := part{block: o.self, visible: make([]uint32, len(p.upTo))}
			for u := range seen.visible {
				seen.visible[u] = max(p.base, p.upTo[u])
			}
			o.learn(t, &clock{parts: []part{seen}})
		}
	})
}

// sees reports whether the async proxy, as thread t uses it now, sees the access e, which
// is ordered before.
func (o *order) sees(e epoch, t int) bool {
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
