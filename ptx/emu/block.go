package emu

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

// block is a block that runs on a worker. A worker uses the same one for all of its
// blocks.
type block struct {
	run      *run
	index    Dim3
	linear   int
	warps    []*warp
	runnable []*warp
	shared   region
	words    []uint64 // of shared memory
	barriers [barrierCount]barrier
	rng      random
	executed uint64
	copies   uint64 // asynchronous copies begun
	printed  []byte
	err      error
	hooks
}

// hooks are those of all observers, by event.
type hooks struct {
	access   []func(*Access)
	barrier  []func(*Barrier)
	warpSync []func(*WarpSync)
	fence    []func(*Fence)
	copyDone []func(*CopyDone)
	uninit   []func(*UninitRead)
	fault    []func(*Fault) bool
	end      []func()
}

// region is memory that an instruction may access: bytes from an address on.
type region struct {
	mem   unsafe.Pointer
	base  uint64
	size  uint64
	alloc *Allocation // of global memory
}

// random is a small generator of random numbers (Steele et al., "Fast splittable
// pseudorandom number generators", 2014).
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is a number from 0 to n-1.
func (r *random) below(n int) int { return int(r.next() >> 33 % uint64(n)) }

// longestTurn is the most instructions, as a power of two, that a warp executes
// before another one has its turn.
const longestTurn = 8

// begin readies the worker's block for the block of the given number.
func (b *block) begin(linear int) {
	r := b.run
	g := r.launch.Grid
	b.linear = linear
	b.index = Dim3{linear % g.X, linear / g.X % g.Y, linear / (g.X * g.Y)}
	seed := random(r.launch.Seed)
	b.rng = random(seed.next() + uint64(linear))
	b.executed, b.copies, b.err = 0, 0, nil
	b.printed = nil
	b.barriers = [barrierCount]barrier{}
	poison(b.words)
	b.observe()
	b.runnable = b.runnable[:0]
	threads := r.launch.Block.X * r.launch.Block.Y * r.launch.Block.Z
	for n, w := range b.warps {
		w.watch = len(b.uninit) > 0
		w.quick = len(b.access) == 0 && !r.mem.track
		live := uint32(full)
		if rest := threads - n*lanes; rest < lanes {
			live = 1<<rest - 1
		}
		poison(w.local)
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
		})
		if h == nil {
			h = &Hooks{}
		}
		add(&b.access, h.Access, h.Access != nil)
		add(&b.barrier, h.Barrier, h.Barrier != nil)
		add(&b.warpSync, h.WarpSync, h.WarpSync != nil)
		add(&b.fence, h.Fence, h.Fence != nil)
		add(&b.copyDone, h.CopyDone, h.CopyDone != nil)
		add(&b.uninit, h.UninitRead, h.UninitRead != nil)
		add(&b.fault, h.Fault, h.Fault != nil)
		add(&b.end, h.End, h.End != nil)
	}
}

func add[F any](list *[]F, f F, wanted bool) {
	if wanted {
		*list = append(*list, f)
	}
}

// execute runs the block to its end.
func (b *block) execute() error {
	for b.err == nil {
		if len(b.runnable) == 0 {
			b.err = b.deadlock()
			break
		}
		n := b.rng.below(len(b.runnable))
		w := b.runnable[n]
		length := 1 << b.rng.below(longestTurn+1)
		w.turn(length)
		if !w.canRun() {
			w.queued = false
			b.runnable = slices.Delete(b.runnable, n, n+1)
		}
		b.executed += uint64(length - w.left)
		if err := w.worker.spend(length - w.left); err != nil && b.err == nil {
			b.err = err
		}
	}
	for _, end := range b.end {
		end()
	}
	return b.err
}

// clock is the instructions that the block has executed before this turn.
func (w *warp) clock() uint64 { return w.block.executed }

// enqueue tells the scheduler that w can run.
func (w *warp) enqueue() {
	if !w.queued {
		w.queued = true
		w.block.runnable = append(w.block.runnable, w)
	}
}

func (w *warp) canRun() bool {
	for n := range w.groups {
		if s := w.groups[n].state; s == ready || s == resting {
			return true
		}
	}
	return false
}

// fail ends the block with an error.
func (w *warp) fail(err error) {
	if w.block.err == nil {
		w.block.err = err
	}
	w.stop()
}

// misuse ends the block because of what the instruction under way does.
func (w *warp) misuse(in *inst, format string, args ...any) {
	w.fail(w.siteError(ErrMisuse, in, format, args...))
}

// siteError is an error at an instruction of the warp.
func (w *warp) siteError(kind error, in *inst, format string, args ...any) error {
	return fmt.Errorf("%v: warp %d of block %v: %s: %w", in.site, w.index, w.block.index, fmt.Sprintf(format, args...), kind)
}

// deadlock is nil if all warps have exited, and else says who waits for what.
func (b *block) deadlock() error {
	var waits []string
	for _, w := range b.warps {
		for n := range w.groups {
			g := &w.groups[n]
			in := &g.frame.fn.code[g.pc]
			what := fmt.Sprintf("for lanes %#08x", g.need&w.live&^g.mask)
			if g.state == waiting {
				what = w.barrierText(g)
			}
			waits = append(waits, fmt.Sprintf("warp %d (lanes %#08x) at %v waits %s", w.index, g.mask, in.site, what))
		}
	}
	if waits == nil {
		return nil
	}
	const few = 4
	more := ""
	if len(waits) > few {
		more = fmt.Sprintf("; and %d more", len(waits)-few)
		waits = waits[:few]
	}
	return fmt.Errorf("block %v: %s%s: %w", b.index, strings.Join(waits, "; "), more, ErrDeadlock)
}
