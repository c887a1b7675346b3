package check

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// globals is what the blocks of a launch did to global memory, or its clusters, which
// count as one block each. They run in any order and add to it when they end; what it
// holds does not depend on that order.
type globals struct {
	mu     sync.Mutex
	allocs map[*emu.Allocation]*globalPages
}

// globalPages is an allocation's pages.
type globalPages struct {
	pages []globalPage
}

type globalPage struct {
	mu sync.Mutex
	// Reads and writes are apart because most memory is either read or written.
	reads, writes *page[pair]
	// enough is a block such that reads of later blocks change nothing; 0 if there is
	// none.
	enough uint32
}

// pair is one access each of two blocks: those of the lowest blocks, weak ones before
// strong ones, as a strong one races with fewer others.
type pair [2]blockEpoch

// blockEpoch is an epoch and its block, plus one; block 0 is no access.
type blockEpoch struct {
	block uint32
	epoch epoch
}

// strongBlocks is the flags of an access that is strong for other blocks.
const strongBlocks = strong | wide

func (b blockEpoch) strong() bool { return b.epoch&strongBlocks == strongBlocks }

// less orders what a pair keeps.
func (b blockEpoch) less(c blockEpoch) bool {
	if b.strong() != c.strong() {
		return c.strong()
	}
	return b.block < c.block
}

// add enters an access. Of a block's accesses one is kept, so that a pair is always
// two blocks'.
func (p *pair) add(b blockEpoch) {
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

// add enters what a block did to an allocation.
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
			// The second one is of the same block, and is weak if the first is.
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

// addTo enters an access to cell i of a page whose cells stand for 1 << shift bytes.
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

// betweenBlocks adds the races between blocks. c.mu is held.
func (c *Checks) betweenBlocks(known []*emu.Site, all findings) {
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
				if c.unordered(w[0], w[1]) {
					c.blocksClash(known, all, alloc, at, size, w[0], w[1], true)
					continue
				}
				if g.reads == nil {
					continue
				}
				for _, pick := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
					if a, b := w[pick[0]], g.reads.cells[k][pick[1]]; c.unordered(a, b) {
						c.blocksClash(known, all, alloc, at, size, a, b, false)
						break
					}
				}
			}
		}
	}
}

// unordered reports whether the accesses of two blocks race, if one of them is a write.
func (c *Checks) unordered(a, b blockEpoch) bool {
	if a.block == b.block || a.block == 0 || b.block == 0 || a.strong() && b.strong() {
		return false
	}
	return !c.knew(a, b) && !c.knew(b, a)
}

// knew reports whether a's thread, when it did a, knew of b.
func (c *Checks) knew(a, b blockEpoch) bool {
	for _, k := range c.logs[int(a.block)-1] {
		if k.time <= a.epoch.time() && (k.thread == everyone || k.thread == a.epoch.thread()) &&
			k.clock.covers(int(b.block)-1, b.epoch) {
			return true
		}
	}
	return false
}

// blocksClash adds the race of w, a write, with x.
func (c *Checks) blocksClash(known []*emu.Site, all findings, alloc *emu.Allocation, at uint64, size int, w, x blockEpoch, xWrites bool) {
	site, other := known[x.epoch.site()], known[w.epoch.site()]
	info, second := c.blockOf(x)
	first, writer := c.blockOf(w)
	all.add(info, key{checker: Race, kind: blocksClash, site: site, other: other}, func(f *Finding) {
		f.OtherBlock = first.Index
		f.Thread, f.OtherThread = thread(info, second), thread(first, writer)
		f.Message = fmt.Sprintf("thread %v of block %v %s the %s at %s that thread %v of block %v writes at %s, and nothing orders blocks: ",
			f.Thread, f.Block, verb[xWrites], amount(size), place(ptx.Global, alloc.Base+at, alloc), f.OtherThread, f.OtherBlock, line(other))
		if xWrites {
			f.Message += "do two threads work on one element, by a wrong index or a missing bound?"
			return
		}
		f.Message += "is a __threadfence() missing between the write and the atomic or flag that announces it, or between seeing the flag and the read?"
	})
}

// blockOf is the block of an access, and the number of its thread there. Asynchronous work
// that has no thread counts as the first one's.
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
