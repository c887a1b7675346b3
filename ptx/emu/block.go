package emu

import (
	"fmt"
	"unsafe"
)

// block is a thread block that runs on a worker as part of a cluster.
type block struct {
	run      *run
	cluster  *cluster
	rank     int // in the cluster
	index    Dim3
	linear   int
	warps    []*warp
	shared   region
	words    []uint64 // storage of shared
	barriers [barrierCount]barrier
	printed  []byte
	groups   []warpgroup
	tensor   tensorMemory
	// mbarriers holds the offsets of the mbarriers that were initialized and not invalidated.
	mbarriers map[uint64]bool
	missing   []Missing    // reused by events
	done      bool         // all threads have exited
	unknown   unknownBytes // undefined bytes of shared, if values are tracked
	hooks
}

// hooks holds the hooks of all observers, by event.
type hooks struct {
	access      []func(*Access)
	execute     []func(Origin)
	barrier     []func(*Barrier)
	warpSync    []func(*WarpSync)
	mbarrier    []func(*Mbarrier)
	bulk        []func(*Bulk)
	fence       []func(*Fence)
	copyDone    []func(*CopyDone)
	clusterSync []func(*ClusterSync)
	undefined   []func(*Undefined)
	fault       []func(*Fault) bool
	exit        []func()
	end         []func()
}

// region is a contiguous range of memory with its base address.
type region struct {
	mem   unsafe.Pointer
	base  uint64
	size  uint64
	alloc *Allocation // set for global memory
}

// begin initializes the block for the cluster that is about to run.
func (b *block) begin() {
	r := b.run
	g, c := r.launch.Grid, b.cluster
	b.index = r.cluster.scaledAdd(r.cluster.tilesIn(g).coords(c.number), r.cluster.coords(b.rank))
	b.linear = b.index.X + g.X*(b.index.Y+g.Y*b.index.Z)
	b.printed = nil
	b.done = false
	b.barriers = [barrierCount]barrier{}
	b.groups = make([]warpgroup, len(b.warps)/groupWarps)
	b.tensor = tensorMemory{words: b.tensor.words}
	b.mbarriers = map[uint64]bool{}
	poison(b.words)
	b.observe()
	if len(b.undefined) > 0 {
		b.unknown.reset(int(b.shared.size))
	}
	threads := r.launch.Block.count()
	for n, w := range b.warps {
		w.tracks = len(b.undefined) > 0
		w.checksRegisters = w.tracks || r.entry.matrices
		w.direct = !w.checksRegisters && len(b.execute) == 0
		w.unobserved = len(b.access) == 0 && !r.mem.track && !w.tracks
		live := uint32(full)
		if rest := threads - n*lanes; rest < lanes {
			live = 1<<rest - 1
		}
		poison(w.local)
		if w.tracks {
			w.undefinedLocal.reset(r.localSize)
		}
		w.start(r.entry, live)
		w.enqueue()
	}
}

func (b *block) observe() {
	b.hooks = hooks{}
	for _, o := range b.run.launch.Observers {
		h := o.Block(&BlockInfo{
			Entry: b.run.entry.Name, Grid: b.run.launch.Grid, BlockDim: b.run.launch.Block,
			Index: b.index, Linear: b.linear, Warps: len(b.warps),
			SharedSize: int(b.shared.size), Memory: b.run.mem,
			Cluster: b.cluster.number, Rank: b.rank, Ranks: len(b.cluster.blocks),
		})
		if h == nil {
			h = &Hooks{}
		}
		add(&b.access, h.Access, h.Access != nil)
		add(&b.execute, h.Execute, h.Execute != nil)
		add(&b.barrier, h.Barrier, h.Barrier != nil)
		add(&b.warpSync, h.WarpSync, h.WarpSync != nil)
		add(&b.fence, h.Fence, h.Fence != nil)
		add(&b.copyDone, h.CopyDone, h.CopyDone != nil)
		add(&b.mbarrier, h.Mbarrier, h.Mbarrier != nil)
		add(&b.bulk, h.Bulk, h.Bulk != nil)
		add(&b.clusterSync, h.ClusterSync, h.ClusterSync != nil)
		add(&b.undefined, h.Undefined, h.Undefined != nil)
		add(&b.fault, h.Fault, h.Fault != nil)
		add(&b.exit, h.Exit, h.Exit != nil)
		add(&b.end, h.End, h.End != nil)
	}
}

func add[F any](list *[]F, f F, wanted bool) {
	if wanted {
		*list = append(*list, f)
	}
}

func (w *warp) canRun() bool {
	for n := range w.groups {
		if s := w.groups[n].state; s == ready || s == yielded {
			return true
		}
	}
	return false
}

// fail ends the cluster with err.
func (w *warp) fail(err error) {
	w.block.cluster.fail(err)
	w.endSlice()
}

// misuse ends the launch because of undefined behavior of the current instruction.
func (w *warp) misuse(in *inst, format string, args ...any) {
	w.fail(w.siteError(ErrMisuse, in, format, args...))
}

// siteError returns an error that wraps kind and names the instruction, warp and block.
func (w *warp) siteError(kind error, in *inst, format string, args ...any) error {
	return fmt.Errorf("%v: warp %d of block %v: %s: %w", in.site, w.index, w.block.index, fmt.Sprintf(format, args...),
		kind)
}

func (r *region) bytes() []byte { return unsafe.Slice((*byte)(r.mem), r.size) }
