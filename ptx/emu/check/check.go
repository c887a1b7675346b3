// Package check finds what is wrong with a kernel while the emulator runs it: races,
// misused barriers, bad accesses, reads of what nobody wrote, bank conflicts and
// scattered accesses to global memory; and it counts what the kernel does.
//
// [New] makes the checkers for one launch; they go into the launch's observers, and
// [Checks.Report] has all findings when it is over, those of one instruction merged.
// A Finding of severity Error is a fault of the program. One of severity Advice is a
// measurement above the limits of [Options], or a barrier that works only because the missing
// threads have exited.
package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"tilework/ptx"
	"tilework/ptx/emu"
)

// Checker names one of the checkers.
type Checker uint8

const (
	Race     Checker = iota // two threads, the same bytes, a write, and no order
	Barrier                 // barriers that not all threads reach together, and deadlock
	Bounds                  // accesses that memory refuses
	Uninit                  // reads of registers and of memory that nobody wrote
	Banks                   // conflicts in shared memory
	Coalesce                // scattered accesses to global memory
	Count                   // instructions, operations and bytes; it finds nothing
	numCheckers
)

var checkerNames = [numCheckers]string{"race", "barrier", "bounds", "uninit", "banks", "coalesce", "count"}

// String is the checker's name, as ParseChecker reads it.
func (c Checker) String() string {
	if c >= numCheckers {
		return fmt.Sprintf("Checker(%d)", uint8(c))
	}
	return checkerNames[c]
}

// Checkers lists the checkers.
func Checkers() []Checker {
	all := make([]Checker, numCheckers)
	for i := range all {
		all[i] = Checker(i)
	}
	return all
}

// ParseChecker reads a checker's name.
func ParseChecker(name string) (Checker, error) {
	if i := slices.Index(checkerNames[:], name); i >= 0 {
		return Checker(i), nil
	}
	return 0, fmt.Errorf("unknown checker %q (want one of %s)", name, strings.Join(checkerNames[:], ", "))
}

// Unlimited as a limit of [Options] leaves a measurement without findings.
const Unlimited = -1

// Options configure the checkers. The zero value runs all of them, with the limits
// that a tidy kernel keeps.
type Options struct {
	// Only lists the checkers to run; empty means all.
	Only []Checker
	// MaxConflicts is how many wavefronts more than without bank conflicts an
	// instruction's access to shared memory may take on average.
	MaxConflicts float64
	// MaxScatter is how many times the sectors that its bytes need an
	// instruction's access to global memory may fetch on average; 0 means 2.
	// Accesses of 4 sectors, which 32 words side by side need, are always fine.
	MaxScatter float64
	// Place returns the name of the matrix or array at an address of global or shared memory.
	// [Counts] has a row for each name. A nil Place gives all the empty name. Place is called
	// from several goroutines at once.
	Place func(space ptx.Space, addr uint64) string
	// Historic adds the half-warps, transactions and wavefronts of the first GPUs to [Counts].
	Historic bool
}

// Checks are the checkers of one launch. It is an [emu.Observer].
type Checks struct {
	opts Options
	runs [numCheckers]bool

	vars   variables // what is released between blocks
	global globals   // what blocks did to global memory

	mu      sync.Mutex
	workers []*worker       // all there are
	idle    []*worker       // those without a cluster
	active  map[int]*worker // by the number of their cluster
	logs    map[int][]acquired
	launch  *emu.BlockInfo               // of any block
	blocks  map[blockRank]*emu.BlockInfo // those of clusters of several
}

// New makes checkers for one launch.
func New(o Options) *Checks {
	c := &Checks{opts: o, logs: map[int][]acquired{}, active: map[int]*worker{}, blocks: map[blockRank]*emu.BlockInfo{}}
	if c.opts.MaxScatter == 0 {
		c.opts.MaxScatter = 2
	}
	for _, k := range Checkers() {
		c.runs[k] = len(o.Only) == 0 || slices.Contains(o.Only, k)
	}
	c.vars.released = map[variable]*clock{}
	return c
}

// blockRank names a block by its cluster and its rank there.
type blockRank struct{ cluster, rank int }

// Block implements [emu.Observer].
func (c *Checks) Block(b *emu.BlockInfo) *emu.Hooks {
	c.mu.Lock()
	w := c.active[b.Cluster]
	if w == nil {
		c.launch = b
		if n := len(c.idle); n > 0 {
			w, c.idle = c.idle[n-1], c.idle[:n-1]
		} else {
			w = newWorker(c)
			c.workers = append(c.workers, w)
		}
		c.active[b.Cluster] = w
		w.blocks = w.blocks[:0]
	}
	if b.Ranks > 1 {
		c.blocks[blockRank{b.Cluster, b.Rank}] = b
	}
	c.mu.Unlock()
	if w.blocks = append(w.blocks, b); len(w.blocks) == 1 {
		w.start(b)
	}
	return w.hooksOf(b.Rank)
}

// worker watches one cluster after another: the blocks that run together, mostly one.
// What it measures adds up over them. Warps, and with them threads, are numbered through
// all blocks of a cluster.
type worker struct {
	checks *Checks
	hooks  []*emu.Hooks     // by rank
	blocks []*emu.BlockInfo // by rank
	block  *emu.BlockInfo   // whose event is under way
	ended  int              // blocks
	found  findings
	runs   runs

	instructions []instruction // by Index
	bulkSites    map[int]*emu.Site
	touched      touched

	race     *racer
	barriers *barriers
	uninit   *uninit
	counter  *counter
}

func newWorker(c *Checks) *worker {
	w := &worker{checks: c, found: findings{}}
	if c.runs[Race] {
		w.race = newRacer(w)
	}
	if c.runs[Barrier] {
		w.barriers = &barriers{worker: w}
	}
	if c.runs[Uninit] {
		w.uninit = &uninit{worker: w}
	}
	if c.runs[Count] {
		w.counter = &counter{opts: &c.opts}
	}
	return w
}

func (w *worker) start(b *emu.BlockInfo) {
	w.block, w.ended = b, 0
	if w.race != nil {
		w.race.start(b)
	}
	if w.barriers != nil {
		w.barriers.start()
	}
	if w.uninit != nil {
		w.uninit.start(b)
	}
}

func (w *worker) access(a *emu.Access) {
	if a.Space != ptx.Shared && a.Space != ptx.Global {
		return
	}
	in := w.instruction(a)
	w.runs.split(a.Addr, a.Mask, a.Size)
	if w.race != nil {
		w.race.access(a, &w.runs, in)
	}
	if w.uninit != nil {
		w.uninit.access(a, &w.runs, in)
	}
	if a.Space == ptx.Shared {
		w.sharedAccess(a, in)
	} else {
		w.globalAccess(a, in)
	}
}

func (w *worker) sharedAccess(a *emu.Access, in *instruction) {
	runs := &w.checks.runs
	if !runs[Banks] && !runs[Count] {
		return
	}
	wavefronts, ideal := w.runs.wavefronts(a)
	if runs[Banks] {
		in.Shared.add(wavefronts, ideal)
	}
	if runs[Count] {
		w.counter.sharedAccess(a, wavefronts, ideal)
	}
}

func (w *worker) globalAccess(a *emu.Access, in *instruction) {
	runs := &w.checks.runs
	if !runs[Coalesce] && !runs[Count] {
		return
	}
	t := w.runs.traffic(a.Size)
	if runs[Coalesce] {
		in.Global.access(t, w.checks.opts.MaxScatter)
	}
	if runs[Count] {
		w.counter.globalAccess(a, t)
		in.sectors.add(a, &w.runs)
	}
}

// instruction is what a worker knows of one: its measurements, and what belongs to
// the allocation that its last global access went to, as the next mostly goes there too.
type instruction struct {
	AccessStats
	alloc   *emu.Allocation
	region  *region  // what the race checker remembers of it
	sectors *sectors // that were touched
	whole   bool     // whether it is known to be written from end to end
}

func (w *worker) instruction(a *emu.Access) *instruction {
	i := a.Site.Index
	if i >= len(w.instructions) {
		w.instructions = append(w.instructions, make([]instruction, i+1-len(w.instructions))...)
	}
	in := &w.instructions[i]
	if in.Site == nil || a.Alloc != in.alloc {
		in.Site, in.alloc, in.whole = a.Site, a.Alloc, false
		if a.Alloc != nil {
			in.sectors = w.touched.of(a.Alloc)
		}
		if w.race != nil && a.Alloc != nil {
			in.region = w.race.regionOf(a.Alloc)
		}
	}
	return in
}

// site is the instruction of an index that has accessed memory.
func (w *worker) site(index int) *emu.Site {
	if s := w.bulkSites[index]; s != nil {
		return s
	}
	if index >= len(w.instructions) {
		return nil
	}
	return w.instructions[index].Site
}

func (w *worker) barrier(b *emu.Barrier) {
	if w.race != nil {
		w.race.barrier(b)
	}
	if w.barriers != nil {
		w.barriers.event(b)
	}
}

func (w *worker) clusterSync(e *emu.ClusterSync) {
	if w.race != nil {
		w.race.clusterSync(e)
	}
	if w.barriers != nil {
		w.barriers.clusterSync(e)
	}
}

// end is called for each block, when all of the cluster have ended.
func (w *worker) end() {
	c := w.checks
	if w.ended++; w.ended < len(w.blocks) {
		return
	}
	if w.barriers != nil {
		w.barriers.end()
	}
	if w.race != nil {
		w.race.end()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.race != nil && len(w.race.order.log) > 0 {
		c.logs[w.blocks[0].Cluster] = w.race.order.log
	}
	delete(c.active, w.blocks[0].Cluster)
	c.idle = append(c.idle, w)
}
