// Package check detects faults in a kernel while the emulator runs it: races, misused barriers,
// invalid accesses, reads of uninitialized registers and memory, bank conflicts and uncoalesced
// accesses to global memory. It also counts instructions, operations and bytes.
//
// [New] returns the checkers for one launch, an [emu.Observer] of the launch. [Checks.Report]
// returns the findings after the launch, with those of the same instruction merged. A Finding
// with severity Error is a fault of the program. One with severity Advice is a measurement that
// exceeds a limit of [Options], or a barrier that works only because the missing threads have
// exited.
package check

import (
	"fmt"
	"slices"
	"sync"

	"tilework/internal/names"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// Checker identifies a checker.
type Checker uint8

const (
	Race     Checker = iota // unordered accesses of two threads to the same bytes, at least one a write
	Barrier                 // barriers that not all threads reach together, and deadlocks
	Bounds                  // accesses that are out of bounds, misaligned or to read-only memory
	Uninit                  // uses of undefined values: of unset registers, unwritten memory and inactive lanes
	Banks                   // bank conflicts in shared memory
	Coalesce                // uncoalesced accesses to global memory
	Count                   // counts instructions, operations and bytes; reports no findings
	numCheckers
)

var checkerNames = [numCheckers]string{"race", "barrier", "bounds", "uninit", "banks", "coalesce", "count"}

// String returns the checker's name in the form that ParseChecker accepts.
func (c Checker) String() string {
	if c >= numCheckers {
		return fmt.Sprintf("Checker(%d)", uint8(c))
	}
	return checkerNames[c]
}

// Checkers returns all checkers.
func Checkers() []Checker {
	all := make([]Checker, numCheckers)
	for i := range all {
		all[i] = Checker(i)
	}
	return all
}

// ParseChecker returns the checker with the given name.
func ParseChecker(name string) (Checker, error) {
	i, err := names.Find("checker", name, checkerNames[:], func(known *string) string { return *known })
	return Checker(i), err
}

// Rule is a rule of the PTX ISA that code can violate without effect in most runs on current GPUs.
type Rule string

const (
	// ProxyFence requires a fence.proxy.async between ordinary accesses to shared memory and
	// those of the async proxy (section "async-proxy").
	ProxyFence Rule = "proxy-fence"
	// ExitedBlock forbids accesses to the shared memory of a block of the cluster that has exited,
	// and arrivals that may reach it after its exit (section "distributed shared memory" of the
	// CUDA Programming Guide).
	ExitedBlock Rule = "exited-block"
)

// Rules returns all rules.
func Rules() []Rule { return []Rule{ProxyFence, ExitedBlock} }

// ParseRule returns the rule with the given name.
func ParseRule(name string) (Rule, error) {
	i, err := names.Find("rule", name, Rules(), func(r *Rule) string { return string(*r) })
	if err != nil {
		return "", err
	}
	return Rules()[i], nil
}

// allow adds the name of the violated rule to a finding, which becomes advice if the rule is
// allowed to be violated.
func (c *Checks) allow(f *Finding, rule Rule) {
	f.Message += fmt.Sprintf(" (rule %s)", rule)
	if slices.Contains(c.opts.Allow, rule) {
		f.Severity = Advice
	}
}

// Unlimited disables a limit of [Options], so that no measurement exceeds it.
const Unlimited = -1

// Options configures the checkers. The zero value runs all of them, with limits that an efficient
// kernel does not exceed.
type Options struct {
	// Only lists the checkers to run; empty means all.
	Only []Checker
	// MaxConflicts is the maximum number of extra wavefronts that bank conflicts may cause per
	// access of an instruction to shared memory, on average.
	MaxConflicts float64
	// MaxScatter is the maximum ratio of the sectors that an instruction's accesses to global
	// memory fetch to the sectors that would hold the same bytes, on average. 0 means 2. Accesses
	// of at most 4 sectors, the minimum for 32 consecutive words, never exceed it.
	MaxScatter float64
	// Place returns the name of the matrix or array at an address in global or shared memory.
	// [Counts] has a row for each name. If Place is nil, all names are empty. Place must be safe
	// for concurrent use.
	Place func(space ptx.Space, addr uint64) string
	// Allow lists rules whose violation is advice instead of an error.
	Allow []Rule
	// Historic adds the half-warps, transactions and wavefronts of compute capability 1.x to
	// [Counts].
	Historic bool
}

// Checks are the checkers of one launch. It implements [emu.Observer].
type Checks struct {
	opts    Options
	enabled [numCheckers]bool

	vars   variables // releases between blocks
	global globals   // accesses of blocks to global memory

	mu      sync.Mutex
	workers []*worker                    // all workers
	idle    []*worker                    // workers without a cluster
	active  map[int]*worker              // workers by the number of their cluster
	logs    map[int][]acquired           // by cluster
	launch  *emu.BlockInfo               // info of some block, for the dimensions of the launch
	blocks  map[blockRank]*emu.BlockInfo // blocks of clusters that have several
}

// New returns checkers for one launch.
func New(o Options) *Checks {
	c := &Checks{opts: o, logs: map[int][]acquired{}, active: map[int]*worker{}, blocks: map[blockRank]*emu.BlockInfo{}}
	if c.opts.MaxScatter == 0 {
		c.opts.MaxScatter = 2
	}
	for _, k := range Checkers() {
		c.enabled[k] = len(o.Only) == 0 || slices.Contains(o.Only, k)
	}
	c.vars.released = map[variable]*clock{}
	return c
}

// blockRank identifies a block by its cluster and its rank in the cluster.
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

// worker checks one cluster at a time, and sums up measurements over its clusters. The blocks of
// a cluster run together; without clusters, each block is a cluster of its own. Warps and threads
// are numbered consecutively through all blocks of a cluster.
type worker struct {
	checks *Checks
	hooks  []*emu.Hooks     // by rank
	blocks []*emu.BlockInfo // by rank
	block  *emu.BlockInfo   // block of the current event
	ended  int              // number of blocks that have ended
	found  findings
	runs   runs

	instructions []instruction // by emu.Site.Index
	bulkSites    map[int]*emu.Site
	touched      touched

	race     *raceDetector
	barriers *barriers
	uninit   *uninit
	counter  *counter
}

func newWorker(c *Checks) *worker {
	w := &worker{checks: c, found: findings{}}
	if c.enabled[Race] {
		w.race = newRacer(w)
	}
	if c.enabled[Barrier] {
		w.barriers = &barriers{worker: w}
	}
	if c.enabled[Uninit] {
		w.uninit = &uninit{worker: w}
	}
	if c.enabled[Count] {
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
	if a.Space == ptx.Shared {
		w.sharedAccess(a, in)
	} else {
		w.globalAccess(a, in)
	}
}

func (w *worker) sharedAccess(a *emu.Access, in *instruction) {
	enabled := &w.checks.enabled
	if !enabled[Banks] && !enabled[Count] {
		return
	}
	wavefronts, ideal := w.runs.wavefronts(a)
	if enabled[Banks] {
		in.Shared.add(wavefronts, ideal)
	}
	if enabled[Count] {
		w.counter.sharedAccess(a, in, wavefronts, ideal)
	}
}

func (w *worker) globalAccess(a *emu.Access, in *instruction) {
	enabled := &w.checks.enabled
	if !enabled[Coalesce] && !enabled[Count] {
		return
	}
	t := w.runs.traffic(a.Size)
	if enabled[Coalesce] {
		in.Global.access(t, w.checks.opts.MaxScatter)
	}
	if enabled[Count] {
		w.counter.globalAccess(a, in, t)
		in.sectors.add(a, &w.runs)
	}
}

// instruction holds a worker's measurements of one instruction. It caches the state that belongs
// to the allocation of the last access to global memory, because the next access usually goes to
// the same allocation.
type instruction struct {
	AccessStats
	alloc   *emu.Allocation
	region  *region  // shadow memory of the race checker for alloc
	sectors *sectors // sectors of alloc that have been accessed
	// Indices plus one of the rows of the counter.
	globalRow, sharedRow int
}

// instruction returns the state of the instruction that makes access a.
func (w *worker) instruction(a *emu.Access) *instruction {
	i := a.Site.Index
	if i >= len(w.instructions) {
		w.instructions = append(w.instructions, make([]instruction, i+1-len(w.instructions))...)
	}
	in := &w.instructions[i]
	if in.Site == nil || a.Alloc != in.alloc {
		in.Site, in.alloc = a.Site, a.Alloc
		if a.Alloc != nil {
			in.sectors = w.touched.of(a.Alloc)
		}
		if w.race != nil && a.Alloc != nil {
			in.region = w.race.regionOf(a.Alloc)
		}
	}
	return in
}

// site returns the instruction with the given index, or nil if it has not accessed memory. The last
// index of an epoch stands for all instructions of a large program from there on.
func (w *worker) site(index int) *emu.Site {
	if index == siteMask {
		return lateSite
	}
	if index < len(w.instructions) {
		if s := w.instructions[index].Site; s != nil {
			return s
		}
	}
	return w.bulkSites[index]
}

// lateSite stands for instructions whose index does not fit into an epoch.
var lateSite = &emu.Site{Index: siteMask, Opcode: "an instruction after the first 262,143 of the program"}

func (w *worker) barrier(b *emu.Barrier) {
	if w.race != nil {
		w.race.barrier(b)
	}
	if w.barriers != nil {
		w.barriers.event(b)
	}
}

func (w *worker) warpSync(e *emu.WarpSync) {
	if w.race != nil {
		w.race.warpSync(e)
	}
	if w.barriers != nil {
		w.barriers.warpSync(e)
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

// end is called for each block after all blocks of the cluster have ended.
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
