package emu

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"tilework/ptx"
)

// Dim3 is the size of a grid or a block, or an index in one. x is fastest.
type Dim3 struct{ X, Y, Z int }

// String is "(x,y,z)".
func (d Dim3) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }

// count is the product of the sides.
func (d Dim3) count() int { return d.X * d.Y * d.Z }

// place is the n-th index in a box of d, x fastest.
func (d Dim3) coords(n int) Dim3 { return Dim3{n % d.X, n / d.X % d.Y, n / (d.X * d.Y)} }

// grid is the number of boxes of d, each way, in g.
func (d Dim3) tilesIn(g Dim3) Dim3 { return Dim3{g.X / d.X, g.Y / d.Y, g.Z / d.Z} }

// at is the element-wise product and sum i·d + j: place j of box i.
func (d Dim3) scaledAdd(i, j Dim3) Dim3 { return Dim3{i.X*d.X + j.X, i.Y*d.Y + j.Y, i.Z*d.Z + j.Z} }

// Limits of a launch (CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability"; of shared memory, that of the largest architecture).
const (
	maxGridX        = math.MaxInt32
	maxGridYZ       = 1<<16 - 1
	maxBlockXY      = 1024
	maxBlockZ       = 64
	maxBlockThreads = 1024
	maxCluster      = 8 // blocks; more are not portable
	maxShared       = 227 << 10
	maxLocal        = 512 << 10
	// stackSize is the local memory of each thread in a program whose functions call
	// themselves.
	stackSize = 16 << 10
	// localAlign is the alignment of each call's part of local memory.
	localAlign = 16
)

// Launch is a kernel and the grid to run it on.
type Launch struct {
	Entry       string
	Grid, Block Dim3 // all sides at least 1
	// Cluster is the blocks that form a cluster, whose sides divide the grid's. The zero
	// Dim3 leaves it to the kernel, whose clusters are of one block unless it says
	// otherwise (.reqnctapercluster).
	Cluster Dim3
	Shared  int    // bytes of dynamic shared memory
	Params  []byte // as [Program.Pack] lays them out
	Seed    uint64
	// MaxInstructions bounds the instructions that all warps together execute; 0
	// sets no bound.
	MaxInstructions int64
	Observers       []Observer
	// Workers is how many blocks run at a time. 0 is as many as there are processors,
	// but 1 if blocks can tell one another something, so that the result depends on
	// the seed only: if the kernel uses atomics or polls memory.
	Workers int
	// Printf gets what the kernel prints, block by block; nil drops it.
	Printf io.Writer
	// Accumulate is how matrix instructions sum up.
	Accumulate Accumulate
}

// Count is how often an instruction was executed by a warp, and for how many lanes.
type Count struct{ Executed, Lanes uint64 }

// tally is a Count under way: idle is how many lanes did not take part.
type tally struct{ Executed, idle uint64 }

// Stats is what a launch did.
type Stats struct {
	Instructions uint64  // executed by warps
	Counts       []Count // by the index of the instruction's Site
}

// run is a launch under way.
type run struct {
	program *Program
	launch  *Launch
	entry   *function
	mem     *Memory
	// address is that of each variable of the program: device addresses, and
	// offsets in shared memory.
	address    []uint64
	sharedSize int
	localSize  int
	cluster    Dim3 // blocks of a cluster
	explicit   bool // whether the launch or the kernel names a cluster
	clusters   int
	params     region

	ctx    context.Context
	next   atomic.Int64  // cluster to run
	spent  atomic.Uint64 // instructions
	fences atomic.Uint64 // changed by what orders memory accesses between workers

	mu      sync.Mutex
	failed  int // number of the first cluster that failed; a number behind all if none did
	err     error
	printer printer
}

// Run runs a launch to its end. When the error is not nil, what the kernel has written
// so far stands in mem. If several blocks fail, the error is that of the first one.
//
// The errors wrap ErrLaunch for arguments that do not fit, ErrOutOfMemory if the
// module's variables do not fit in mem, ErrAccess, ErrDeadlock, ErrBudget,
// ErrAssert, ErrTrap or ErrMisuse for what the kernel does, and ctx's error.
func (p *Program) Run(ctx context.Context, mem *Memory, l Launch) (Stats, error) {
	r := &run{program: p, launch: &l, mem: mem, ctx: ctx}
	if err := r.check(); err != nil {
		return Stats{}, fmt.Errorf("%w: %s: %w", ErrLaunch, l.Entry, err)
	}
	if err := r.link(); err != nil {
		return Stats{}, err
	}
	r.clusters = l.Grid.count() / r.cluster.count()
	r.failed = r.clusters
	words := make([]uint64, len(l.Params)/8+1)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(l.Params)), l.Params)
	r.params = region{mem: unsafe.Pointer(&words[0]), size: uint64(len(l.Params))}
	r.printer.w = l.Printf
	workers := l.Workers
	if workers == 0 {
		if workers = runtime.GOMAXPROCS(0); r.entry.communicates() {
			workers = 1
		}
	}
	workers = min(workers, r.clusters)
	all := make([]*worker, workers)
	var wg sync.WaitGroup
	for k := range all {
		all[k] = r.newWorker()
		wg.Go(all[k].work)
	}
	wg.Wait()
	stats := Stats{Counts: make([]Count, len(p.sites))}
	for _, w := range all {
		for k, c := range w.counts {
			stats.Counts[k].Executed += c.Executed
			stats.Counts[k].Lanes += c.Executed*lanes - c.idle
			stats.Instructions += c.Executed
		}
	}
	if r.err == nil && l.MaxInstructions > 0 && stats.Instructions > uint64(l.MaxInstructions) {
		r.err = r.overBudget()
	}
	if r.err == nil {
		r.err = r.printer.err
	}
	return stats, r.err
}

func (r *run) overBudget() error {
	return fmt.Errorf("%s: more than %d instructions: %w", r.launch.Entry, r.launch.MaxInstructions, ErrBudget)
}

// check tells what is wrong with the launch's arguments.
func (r *run) check() error {
	l := r.launch
	f := r.program.functions[l.Entry]
	if f == nil || !f.Entry {
		return fmt.Errorf("no such kernel (want one of %q)", r.program.Entries())
	}
	r.entry = f
	g, b := l.Grid, l.Block
	switch {
	case min(g.X, g.Y, g.Z) < 1 || g.X > maxGridX || max(g.Y, g.Z) > maxGridYZ:
		return fmt.Errorf("grid %v, want sides from 1 to (%d,%d,%d)", g, maxGridX, maxGridYZ, maxGridYZ)
	case min(b.X, b.Y, b.Z) < 1 || max(b.X, b.Y) > maxBlockXY || b.Z > maxBlockZ:
		return fmt.Errorf("block %v, want sides from 1 to (%d,%d,%d)", b, maxBlockXY, maxBlockXY, maxBlockZ)
	case b.count() > maxBlockThreads:
		return fmt.Errorf("block %v has %d threads, want at most %d", b, b.count(), maxBlockThreads)
	case l.Shared < 0:
		return fmt.Errorf("%d bytes of dynamic shared memory", l.Shared)
	case l.Workers < 0:
		return fmt.Errorf("%d workers", l.Workers)
	case len(l.Params) != f.paramSize:
		return fmt.Errorf("%d bytes of parameters, want %d", len(l.Params), f.paramSize)
	}
	if g.X > math.MaxInt/g.Y/g.Z {
		return fmt.Errorf("grid %v has too many blocks", g)
	}
	r.cluster, r.explicit = l.Cluster, l.Cluster != Dim3{}
	for _, a := range f.Attrs {
		sides := Dim3{1, 1, 1}
		for k, side := range []*int{&sides.X, &sides.Y, &sides.Z}[:min(len(a.Args), 3)] {
			*side = a.Args[k]
		}
		switch {
		case a.Name == "reqntid" && b != sides:
			return fmt.Errorf("block %v, want %v (.reqntid)", b, sides)
		case a.Name == "maxntid" && b.count() > sides.count():
			return fmt.Errorf("block %v has %d threads, want at most %d (.maxntid)", b, b.count(), sides.count())
		case a.Name == "reqnctapercluster" && l.Cluster == Dim3{}:
			r.cluster, r.explicit = sides, true
		case a.Name == "reqnctapercluster" && l.Cluster != sides:
			return fmt.Errorf("clusters of %v blocks, want %v (.reqnctapercluster)", l.Cluster, sides)
		case a.Name == "maxclusterrank" && l.Cluster.count() > a.Args[0]:
			return fmt.Errorf("clusters of %v blocks, want at most %d (.maxclusterrank)", l.Cluster, a.Args[0])
		}
	}
	if err := r.checkCluster(); err != nil {
		return err
	}
	r.localSize = r.entry.localBytes()
	if r.localSize > maxLocal {
		return fmt.Errorf("%d bytes of local memory a thread, want at most %d", r.localSize, maxLocal)
	}
	return r.placeShared()
}

// checkCluster tells what is wrong with the size of the clusters.
func (r *run) checkCluster() error {
	if !r.explicit {
		r.cluster = Dim3{1, 1, 1}
	}
	g, c := r.launch.Grid, r.cluster
	switch {
	case min(c.X, c.Y, c.Z) < 1 || max(c.X, c.Y, c.Z) > maxCluster || c.count() > maxCluster:
		return fmt.Errorf("clusters of %v blocks, want sides of at least 1 and %d blocks at most", c, maxCluster)
	case g.X%c.X != 0 || g.Y%c.Y != 0 || g.Z%c.Z != 0:
		return fmt.Errorf("clusters of %v blocks, which do not divide a grid of %v", c, g)
	}
	return nil
}

// placeShared lays out the shared variables that the kernel and what it calls use, the
// open arrays behind all others.
func (r *run) placeShared() error {
	r.address = make([]uint64, len(r.program.variables))
	size, dynamicAlign := uint64(0), 16
	var dynamic []*variable
	used := r.entry.usedVariables()
	for _, v := range r.program.variables {
		switch {
		case v.Space != ptx.Shared || !used[v]:
		case v.Linkage == "extern":
			dynamic = append(dynamic, v)
			dynamicAlign = max(dynamicAlign, v.Alignment())
		default:
			size = alignUp(size, v.Alignment())
			r.address[v.index] = size
			size += uint64(v.Size())
		}
	}
	if len(dynamic) > 0 {
		size = alignUp(size, dynamicAlign)
	}
	for _, v := range dynamic {
		r.address[v.index] = size
	}
	static := size
	if size += uint64(r.launch.Shared); size > maxShared {
		return fmt.Errorf("%d bytes of static and %d of dynamic shared memory, want at most %d together", static, r.launch.Shared, maxShared)
	}
	r.sharedSize = int(size)
	return nil
}

// link finds the addresses of the variables in global and constant memory, which are
// allocated and set when the program first runs with this memory.
func (r *run) link() error {
	data, err := r.mem.module(r.program)
	if err != nil {
		return fmt.Errorf("%s: %w", r.launch.Entry, err)
	}
	for n, a := range data.allocs {
		if a != nil {
			r.address[n] = a.Base
		}
	}
	return nil
}

// reach calls visit for f and all that it calls, each once, callees later.
func (f *function) walkCalls(visit func(*function)) {
	seen := []*function{f}
	for n := 0; n < len(seen); n++ {
		visit(seen[n])
		for _, g := range seen[n].calls {
			if !slices.Contains(seen, g) {
				seen = append(seen, g)
			}
		}
	}
}

// variables is what f and its callees use.
func (f *function) usedVariables() map[*variable]bool {
	used := map[*variable]bool{}
	f.walkCalls(func(g *function) {
		for v := range g.uses {
			used[v] = true
		}
	})
	return used
}

// communicates reports whether blocks that run f can tell one another something before
// they end.
func (f *function) communicates() bool {
	does := false
	f.walkCalls(func(g *function) {
		for k := range g.code {
			does = does || g.code[k].communicates()
		}
	})
	return does
}

// deepest is the bytes of local memory that a thread needs for f and its callees.
func (f *function) localBytes() int {
	depth := map[*function]int{}
	var visit func(g *function) int
	visit = func(g *function) int {
		if n, ok := depth[g]; ok {
			return n // of a function under way: it calls itself
		}
		depth[g] = stackSize
		most := 0
		for _, h := range g.calls {
			most = max(most, visit(h))
		}
		depth[g] = int(alignUp(g.localSize, localAlign)) + most
		return depth[g]
	}
	return visit(f)
}
