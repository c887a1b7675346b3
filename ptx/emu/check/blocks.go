package check

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// globals holds the accesses of a launch to global memory by blocks, or by clusters, which count
// as one block each. Blocks run in any order and are added when they end. The contents do not
// depend on the order.
type globals struct {
	mu     sync.Mutex
	allocs map[*emu.Allocation]*globalPages
}

// globalPages holds the pages of an allocation.
type globalPages struct {
	pages []globalPage
}

type globalPage struct {
	mu sync.Mutex
	// Reads and writes are separate because most memory is either read or written.
	reads, writes *page[pair]
	// enough is a block number, plus one, after which reads of further blocks change nothing.
	// It is 0 if there is no such block.
	enough uint32
}

// pair holds one access each of two blocks: the lowest blocks, with weak accesses before strong
// ones, because a strong access races with fewer others. Likewise, stores that change memory come
// before those that do not.
type pair [2]blockEpoch

// blockEpoch is an epoch and the number of its block plus one. Block 0 means no access.
type blockEpoch struct {
	block uint32
	epoch epoch
}

// strongBlocks holds the flags of an access that is strong with respect to other blocks.
const strongBlocks = strong | wide

func (b blockEpoch) strong() bool { return b.epoch&strongBlocks == strongBlocks }

// less reports whether a pair prefers b to c.
func (b blockEpoch) less(c blockEpoch) bool {
	switch {
	case b.strong() != c.strong():
		return c.strong()
	case (b.epoch^c.epoch)&repeats != 0:
		return c.epoch&repeats != 0
	}
	return b.block < c.block
}

// add adds an access. It keeps at most one access per block, so that the two are of different
// blocks.
func (p *pair) add(b blockEpoch) {
	if p[0].block == 0 {
		b.epoch &^= repeats // no block has written the value
	}
	if p[1].block != 0 && p[1].less(b) {
		return
	}
	for i := range p {
		if p[i].block == b.block {
			if b.less(p[i]) {
				p[i] = b
				p.sort()
			}
			return
		}
	}
	if p[1].block == 0 || b.less(p[1]) {
		p[1] = b
		p.sort()
	}
}

func (p *pair) sort() {
	if p[0].block == 0 || p[1].block != 0 && p[1].less(p[0]) {
		p[0], p[1] = p[1], p[0]
	}
}

// add adds the accesses of a block to an allocation.
func (g *globals) add(block int, alloc *emu.Allocation, reg *region) {
	if len(reg.used) == 0 {
		return
	}
	g.mu.Lock()
	if g.allocs == nil {
		g.allocs = map[*emu.Allocation]*globalPages{}
	}
	to := g.allocs[alloc]
	if to == nil {
		to = &globalPages{pages: make([]globalPage, (alloc.Size+pageBytes-1)/pageBytes)}
		g.allocs[alloc] = to
	}
	g.mu.Unlock()
	for _, i := range reg.used {
		to.pages[i].add(uint32(block+1), reg.pages[i])
	}
}

func (g *globalPage) add(block uint32, from *shadow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from.wrote == 0 && g.enough != 0 && block > g.enough {
		return
	}
	for i := range from.cells {
		c := &from.cells[i]
		if c.r[0] != 0 {
			// Both reads are of the same block. If the first is weak, it suffices.
			addTo(&g.reads, from.shift, i, block, c.r[0])
			if c.r[0]&strong != 0 && c.r[1] != 0 {
				addTo(&g.reads, from.shift, i, block, c.r[1])
			}
		}
		if c.w[0] != 0 {
			addTo(&g.writes, from.shift, i, block, c.w[0])
			if c.w[1] != 0 {
				addTo(&g.writes, from.shift, i, block, c.w[1])
			}
		}
	}
	g.enough = 0
	if g.reads != nil {
		g.enough = enough(g.reads)
	}
}

func enough(p *page[pair]) uint32 {
	last := uint32(0)
	for i := range p.cells {
		second := &p.cells[i][1]
		if second.block == 0 || second.strong() {
			return 0
		}
		last = max(last, second.block)
	}
	return last
}

// addTo adds an access to cell i of a page whose cells represent 1 << shift bytes.
func addTo(to **page[pair], shift uint8, i int, block uint32, e epoch) {
	if p := *to; p != nil && p.shift == shift {
		p.cells[i].add(blockEpoch{block, e})
		return
	}
	if *to == nil {
		*to = &page[pair]{shift: shift, cells: make([]pair, pageBytes>>shift)}
	}
	p := *to
	p.split(shift)
	each := 1 << (shift - p.shift)
	for k := i * each; k < (i+1)*each; k++ {
		p.cells[k].add(blockEpoch{block, e})
	}
}

// reportBlockRaces adds the races between blocks to all. c.mu must be held.
func (c *Checks) reportBlockRaces(known []*emu.Site, all findings) {
	allocs := make([]*emu.Allocation, 0, len(c.global.allocs))
	for a := range c.global.allocs {
		allocs = append(allocs, a)
	}
	slices.SortFunc(allocs, func(a, b *emu.Allocation) int { return cmp.Compare(a.Base, b.Base) })
	for _, alloc := range allocs {
		pages := c.global.allocs[alloc].pages
		for i := range pages {
			g := &pages[i]
			if g.writes == nil {
				continue
			}
			if g.reads != nil {
				shift := min(g.reads.shift, g.writes.shift)
				g.reads.split(shift)
				g.writes.split(shift)
			}
			for k := range g.writes.cells {
				w := &g.writes.cells[k]
				if w[0].block == 0 {
					continue
				}
				at := uint64(i*pageBytes + k<<g.writes.shift)
				size := 1 << g.writes.shift
				if c.unordered(w[0], w[1]) && !c.reportBlockRace(known, all, alloc, at, size, w[0], w[1], true) {
					continue
				}
				if g.reads == nil {
					continue
				}
				for _, pick := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
					if a, b := w[pick[0]], g.reads.cells[k][pick[1]]; c.unordered(a, b) &&
						!c.reportBlockRace(known, all, alloc, at, size, a, b, false) {
						break
					}
				}
			}
		}
	}
}

// unordered reports whether the accesses of two blocks, at least one of them a write, race.
func (c *Checks) unordered(a, b blockEpoch) bool {
	if a.block == b.block || a.block == 0 || b.block == 0 || a.strong() && b.strong() {
		return false
	}
	return !c.orderedBefore(a, b) && !c.orderedBefore(b, a)
}

// orderedBefore reports whether b is ordered before a.
func (c *Checks) orderedBefore(a, b blockEpoch) bool {
	for _, k := range c.logs[int(a.block)-1] {
		if k.time <= a.epoch.time() && (k.thread == everyone || k.thread == a.epoch.thread()) &&
			k.clock.covers(int(b.block)-1, b.epoch) {
			return true
		}
	}
	return false
}

// reportBlockRace adds the race between w, a write, and x. It reports whether the race is advice.
func (c *Checks) reportBlockRace(
	known []*emu.Site, all findings, alloc *emu.Allocation, at uint64, size int, w, x blockEpoch, xWrites bool,
) (advice bool) {
	if xWrites && toleratedWrite(x.epoch, w.epoch) != "" {
		w, x = x, w // as if x had come last
	}
	why, kind := c.toleratedBlocks(w, x, xWrites, variable{ptx.Global, alloc.Base + at}), blockRace
	if why != "" {
		kind = toleratedRace
	}
	site, other := siteOf(known, x.epoch), siteOf(known, w.epoch)
	info, second := c.blockOf(x)
	first, writer := c.blockOf(w)
	all.add(info, key{checker: Race, kind: kind, site: site, other: other}, func(f *Finding) {
		f.OtherBlock = first.Index
		f.Thread, f.OtherThread = thread(info, second), thread(first, writer)
		f.Message = fmt.Sprintf("thread %v of block %v %s %s at %s that thread %v of block %v writes at %s, and "+
			"blocks are not ordered",
			f.Thread, f.Block, verb[xWrites], amount(size), place(ptx.Global, alloc.Base+at, alloc), f.OtherThread,
			f.OtherBlock, line(other))
		switch {
		case why != "":
			f.tolerate(why)
		case w.epoch&x.epoch&strong != 0:
			f.Message += narrowScope
		case xWrites:
			f.Message += ": want a different element for each thread (check the index and the bounds)"
		default:
			f.Message += ": want a __threadfence() between the write and the atomic or flag that announces it, and one " +
				"between reading the flag and the data"
		}
	})
	return why != ""
}

// siteOf returns the instruction of an access, given all instructions of the program.
func siteOf(known []*emu.Site, e epoch) *emu.Site {
	if e.site() == siteMask {
		return lateSite
	}
	return known[e.site()]
}

// toleratedBlocks returns the reason why a race at v between a write w and x is advice, or an empty
// string.
func (c *Checks) toleratedBlocks(w, x blockEpoch, xWrites bool, v variable) string {
	if xWrites {
		return toleratedWrite(w.epoch, x.epoch)
	}
	if w.strong() && x.epoch&strong == 0 && c.swaps(v) {
		return plainRead
	}
	return ""
}

// blockOf returns the block of an access and the number of its thread in the block. Asynchronous
// work without a thread is attributed to thread 0.
func (c *Checks) blockOf(b blockEpoch) (*emu.BlockInfo, int) {
	cluster, n := int(b.block)-1, b.epoch.thread()
	each := 32 * c.launch.Warps
	if n >= each*max(c.launch.Ranks, 1) {
		n = 0
	}
	if info := c.blocks[blockRank{cluster, n / each}]; info != nil {
		return info, n % each
	}
	info := *c.launch
	info.Linear, info.Index = cluster, blockIndex(info.Grid, cluster)
	return &info, n
}

func blockIndex(grid emu.Dim3, linear int) emu.Dim3 {
	return emu.Dim3{X: linear % grid.X, Y: linear / grid.X % grid.Y, Z: linear / (grid.X * grid.Y)}
}
