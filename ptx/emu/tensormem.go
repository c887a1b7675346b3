package emu

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"tilework/ptx"
)

// The tensor memory of a block (manual: "tensor-memory"): 128 lanes of 512 columns of 32 bits. An
// address holds the lane in its upper and the column in its lower 16 bits.
const (
	tensorLanes   = 128
	tensorColumns = 512
	tensorUnit    = 32 // columns of the smallest allocation
)

// TensorLaneBytes is the size of a lane of tensor memory. Events give locations in tensor memory as
// byte offsets, lane by lane.
const TensorLaneBytes = 4 * tensorColumns

// tensorMemory is the tensor memory of a block. On a GPU the blocks of a multiprocessor share it,
// so the columns of an allocation depend on the other blocks. Here they are random.
type tensorMemory struct {
	words   []uint32     // lane by lane; nil before the first allocation of the worker
	unknown unknownBytes // undefined bytes of words, if values are tracked
	allocs  []tensorAlloc
	// relinquished is the tcgen05.relinquish_alloc_permit after which allocations are invalid.
	relinquished *Site
	// request is the number of columns that a warp of the block waits for together with a warp of
	// its peer, and granted are their first columns plus one, once the peer has allocated them.
	request, granted int
	pipes            map[int]*tensorPipe // by thread of the block
}

// tensorAlloc is an allocation of n columns from column first.
type tensorAlloc struct {
	first, n int
	site     *Site
}

// tensorAddress returns the address of a word.
func tensorAddress(lane, col int) uint32 { return uint32(lane)<<16 | uint32(col) }

// tensorOffset returns the byte offset of a word, which events use as its address.
func tensorOffset(lane, col int) uint64 { return uint64(4 * (lane*tensorColumns + col)) }

// word returns the word in a lane and a column.
func (t *tensorMemory) word(lane, col int) *uint32 { return &t.words[lane*tensorColumns+col] }

// find returns the first of n free columns: a random one of those that are multiples of n.
func (t *tensorMemory) find(n int, rng *random) (first int, ok bool) {
	var free []int
	for at := 0; at+n <= tensorColumns; at += n {
		if !slices.ContainsFunc(t.allocs, func(a tensorAlloc) bool { return a.first < at+n && at < a.first+a.n }) {
			free = append(free, at)
		}
	}
	if free == nil {
		return 0, false
	}
	return free[rng.below(len(free))], true
}

// allocate allocates columns. Their content is undefined.
func (t *tensorMemory) allocate(first, n int, site *Site, tracks bool) {
	if t.words == nil {
		t.words = make([]uint32, tensorLanes*tensorColumns)
	}
	if tracks && t.unknown.bits == nil {
		t.unknown.reset(4 * len(t.words))
	}
	for lane := range tensorLanes {
		for col := first; col < first+n; col++ {
			*t.word(lane, col) = ^uint32(0)
		}
		if tracks {
			t.unknown.set(tensorOffset(lane, first), 4*n, true)
		}
	}
	t.allocs = append(t.allocs, tensorAlloc{first, n, site})
}

// allocated reports whether n columns from col are allocated.
func (t *tensorMemory) allocated(col, n int) bool {
	for n > 0 {
		k := slices.IndexFunc(t.allocs, func(a tensorAlloc) bool { return a.first <= col && col < a.first+a.n })
		if k < 0 {
			return false
		}
		end := t.allocs[k].first + t.allocs[k].n
		n -= end - col
		col = end
	}
	return true
}

// String lists the allocated columns.
func (t *tensorMemory) String() string {
	if len(t.allocs) == 0 {
		return "no columns"
	}
	var texts []string
	for _, a := range t.allocs {
		texts = append(texts, fmt.Sprintf("%d to %d", a.first, a.first+a.n-1))
	}
	return "columns " + strings.Join(texts, ", ")
}

// tensorPart is a rectangle of the tensor memory of a block.
type tensorPart struct {
	block           *block
	lane, col       int
	lanes, cols     int
	lanesPerQuarter int // if not 0, the part has this number of lanes in each quarter of the lanes
}

// spans returns the part as byte ranges of each lane.
func (p *tensorPart) spans() []Span {
	var all []Span
	for n := range p.lanes {
		lane := p.lane + n
		if p.lanesPerQuarter > 0 {
			lane = p.lane + n/p.lanesPerQuarter*lanes + n%p.lanesPerQuarter
		}
		all = append(all, Span{tensorOffset(lane, p.col), 4 * p.cols})
	}
	return all
}

// check returns an error unless all of p is allocated.
func (p *tensorPart) check() error {
	t := &p.block.tensor
	last := p.lane + p.lanes - 1
	if p.lanesPerQuarter > 0 {
		last = p.lane + (p.lanes-1)/p.lanesPerQuarter*lanes + (p.lanes-1)%p.lanesPerQuarter
	}
	switch {
	case last >= tensorLanes:
		return fmt.Errorf("lanes %d to %d of tensor memory: want lanes below %d", p.lane, last, tensorLanes)
	case !t.allocated(p.col, p.cols):
		return fmt.Errorf("columns %d to %d of tensor memory are not allocated: block %v has allocated %v (tcgen05.alloc)",
			p.col, p.col+p.cols-1, p.block.index, t)
	}
	return nil
}

// tensorOperand is the address of a word in tensor memory, in a register.
type tensorOperand struct {
	slot uint32
	add  uint32
}

// tensorOperand decodes argument k.
func (d *decoder) tensorOperand(k int) tensorOperand {
	ac := d.accessOf(k, Read, 4)
	return tensorOperand{ac.slot, uint32(ac.add)}
}

// at returns the lane and the column of an operand for a lane of the warp.
func (o tensorOperand) at(w *warp, lane int) (tensorLane, col int) {
	a := reg[uint32](w, o.slot)[lane] + o.add
	return int(a >> 16), int(a & 0xffff)
}

// sameInWarp reports whether all lanes have the same value in a slot, and ends the launch if not.
func (w *warp) sameInWarp(in *inst, slot uint32, what string) bool {
	values := reg[uint32](w, slot)
	for _, v := range values {
		if v != values[0] {
			w.misuse(in, "the lanes have different values of the %s (%#x and %#x): want the same", what, values[0], v)
			return false
		}
	}
	return true
}

func decodeTensor(d *decoder) execFunc {
	i := d.i
	switch i.Mods[0] {
	case "alloc":
		return d.tensorAlloc()
	case "dealloc":
		return d.tensorFree()
	case "relinquish_alloc_permit":
		return aligned(func(w *warp, in *inst) { w.block.tensor.relinquished = in.site })
	case "ld":
		return d.tensorLoad()
	case "st":
		return d.tensorStore()
	case "wait::ld", "wait::st":
		loads := i.Has("wait::ld")
		return aligned(func(w *warp, in *inst) { w.waitTensor(in, loads) })
	case "fence::before_thread_sync", "fence::after_thread_sync":
		return func(w *warp, in *inst) { w.emitFence(in, Fence{Proxy: "tcgen05." + i.Mods[0]}) }
	case "commit":
		return d.tensorCommit()
	case "cp":
		return d.tensorCopy()
	}
	return d.tensorProduct()
}

// peer returns the other block of the pair that cta_group::2 refers to, or nil.
func (b *block) peer() *block {
	if n := b.rank ^ 1; n < len(b.cluster.blocks) {
		return b.cluster.blocks[n]
	}
	return nil
}

func (d *decoder) tensorAlloc() execFunc {
	n, pair := d.source(1), d.i.Has("cta_group::2")
	ac := d.accessOf(0, Write, 4)
	d.in.access = ac
	return aligned(func(w *warp, in *inst) {
		cols := int(reg[uint32](w, n)[0])
		t, b := &w.block.tensor, w.block
		switch {
		case !w.sameInWarp(in, n, "number of columns"):
			return
		case cols < tensorUnit || cols > tensorColumns || cols&(cols-1) != 0:
			w.misuse(in, "%d columns of tensor memory: want a power of 2 from %d to %d", cols, tensorUnit, tensorColumns)
			return
		case t.relinquished != nil:
			w.misuse(in, "the block has relinquished its permit to allocate at %v", t.relinquished)
			return
		case pair && b.peer() == nil:
			w.misuse(in, "cta_group::2 in a cluster of %d blocks: want an even number", len(b.cluster.blocks))
			return
		}
		first, ok := b.tensorColumns(cols, pair, in.site)
		if !ok {
			w.uncount(in)
			w.suspend(in, atTensorMemory)
			w.pick()
			return
		}
		w.active = 1 // one store for the warp
		w.eachRegion(in, ac, 0, func(to *target, mask uint32) {
			if to.block != w.block {
				w.misuse(in, "the address is in %v memory: want the block's shared memory", to.space)
				return
			}
			*(*uint32)(unsafe.Add(to.mem, w.off[0])) = tensorAddress(0, first)
		})
		w.active = full
	})
}

// tensorColumns allocates n columns, for cta_group::2 the same ones in both blocks of a pair. It
// returns false if the warp must wait for other warps.
func (b *block) tensorColumns(n int, pair bool, site *Site) (first int, ok bool) {
	t, rng := &b.tensor, &b.cluster.rng
	if !pair {
		if first, ok = t.find(n, rng); ok {
			t.allocate(first, n, site, b.tracks())
		}
		return first, ok
	}
	peer := &b.peer().tensor
	if t.granted > 0 {
		first, t.granted, t.request = t.granted-1, 0, 0
		return first, true
	}
	t.request = n
	if peer.request != n || peer.granted > 0 {
		return 0, false
	}
	both := tensorMemory{allocs: slices.Concat(t.allocs, peer.allocs)}
	if first, ok = both.find(n, rng); !ok {
		return 0, false
	}
	t.request, peer.granted = 0, first+1
	t.allocate(first, n, site, b.tracks())
	peer.allocate(first, n, site, b.tracks())
	b.cluster.wakeAll(atTensorMemory)
	return first, true
}

// tracks reports whether undefined values are tracked in the block.
func (b *block) tracks() bool { return len(b.undefined) > 0 }

func (d *decoder) tensorFree() execFunc {
	addr, n := d.source(0), d.source(1)
	return aligned(func(w *warp, in *inst) {
		if !w.sameInWarp(in, addr, "address") || !w.sameInWarp(in, n, "number of columns") {
			return
		}
		a, cols, t := reg[uint32](w, addr)[0], int(reg[uint32](w, n)[0]), &w.block.tensor
		k := slices.IndexFunc(t.allocs, func(x tensorAlloc) bool { return a == tensorAddress(0, x.first) && cols == x.n })
		if k < 0 {
			w.misuse(in, "%d columns of tensor memory at %#x are not an allocation: the block has allocated %v", cols, a, t)
			return
		}
		t.allocs = slices.Delete(t.allocs, k, k+1)
		w.block.cluster.wakeAll(atTensorMemory)
	})
}

// checkTensorLeftovers ends the launch if block b has exited with allocated tensor memory.
func (c *cluster) checkTensorLeftovers(b *block) {
	if t := &b.tensor; len(t.allocs) > 0 {
		c.fail(fmt.Errorf("%v: block %v exits without freeing the tensor memory that it has allocated here, %v "+
			"(tcgen05.dealloc): %w", t.allocs[0].site, b.index, t, ErrMisuse))
	}
}

// event returns the event of an access to p, which lasts until the operation is complete.
func (p *tensorPart) event(o Origin, id uint64, kind AccessKind) *Bulk {
	return &Bulk{Origin: o, Kind: kind, Space: ptx.Tensor, Rank: p.block.rank, Spans: p.spans(), Copy: id}
}
