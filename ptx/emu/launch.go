package emu

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"tilework/internal/relay"
	"tilework/ptx"
)

// Dim3 is the size of a grid or block, or an index into one. X varies fastest.
type Dim3 struct{ X, Y, Z int }

// String returns d as "(x,y,z)".
func (d Dim3) String() string { return fmt.Sprintf("(%d,%d,%d)", d.X, d.Y, d.Z) }

// count returns the product of the sides.
func (d Dim3) count() int { return d.X * d.Y * d.Z }

// coords returns the index of element n in a box of size d, where X varies fastest.
func (d Dim3) coords(n int) Dim3 { return Dim3{n % d.X, n / d.X % d.Y, n / (d.X * d.Y)} }

// tilesIn returns the number of boxes of size d in g along each side.
func (d Dim3) tilesIn(g Dim3) Dim3 { return Dim3{g.X / d.X, g.Y / d.Y, g.Z / d.Z} }

// scaledAdd returns i·d + j, the position of index j in the i-th box of size d.
func (d Dim3) scaledAdd(i, j Dim3) Dim3 { return Dim3{i.X*d.X + j.X, i.Y*d.Y + j.Y, i.Z*d.Z + j.Z} }

// Launch limits (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
// maxShared is the limit of the largest architecture.
const (
	maxGridX        = math.MaxInt32
	maxGridYZ       = 1<<16 - 1
	maxBlockXY      = 1024
	maxBlockZ       = 64
	maxBlockThreads = 1024
	maxCluster      = 8 // blocks; larger clusters are not portable
	maxShared       = 227 << 10
	maxStaticShared = 48 << 10 // ptxas refuses more
	maxLocal        = 512 << 10
	// stackSize is the local memory per thread for recursive functions, in bytes.
	stackSize = 16 << 10
	// localAlign is the alignment in bytes of the local memory of a call.
	localAlign = 16
)

// Launch is a kernel and the grid to run it on.
type Launch struct {
	Entry       string
	Grid, Block Dim3 // all sides at least 1
	// Cluster is the size of a cluster in blocks. Its sides divide those of the grid. The zero Dim3
	// selects the size in the kernel's .reqnctapercluster, or one block without that directive.
	Cluster Dim3
	Shared  int    // bytes of dynamic shared memory
	Params  []byte // in the layout of [Program.Pack]
	Seed    uint64
	// MaxInstructions limits the number of instructions of all warps together. 0 means no limit.
	MaxInstructions int64
	Observers       []Observer
	// Workers is the number of clusters that run concurrently. 0 selects GOMAXPROCS, or 1 for a
	// kernel that uses atomics or strong loads: its result would otherwise depend on more than the
	// seed.
	Workers int
	// Printf receives the output of vprintf in the order of the clusters. A nil Printf discards it.
	Printf io.Writer
	// Accumulate is the summation method of matrix instructions.
	Accumulate Accumulate
}

// Count is the number of times that warps executed an instruction, and the sum of their active
// lanes.
type Count struct{ Executed, Lanes uint64 }

// tally is the Count of a running launch. idle is the sum of inactive lanes.
type tally struct{ Executed, idle uint64 }

// Stats holds the instruction counts of a launch.
type Stats struct {
	Instructions uint64  // executed by warps
	Counts       []Count // indexed by Site.Index
}

// run is the state of a running launch.
type run struct {
	program *Program
	launch  *Launch
	entry   *function
	mem     *Memory
	// address holds the address of each variable of the program: a device address, or an offset in
	// shared memory.
	address    []uint64
	sharedSize int
	dynamic    bool   // the kernel has arrays in dynamic shared memory
	reserved   uint64 // bytes of sharedSize, at its end, that are not the kernel's
	localSize  int
	cluster    Dim3 // blocks of a cluster
	explicit   bool // the launch or the kernel specifies a cluster
	clusters   int
	params     region

	ctx   context.Context
	next  atomic.Int64  // next cluster to run
	spent atomic.Uint64 // instructions
	// callBytes is the memory of the register files of calls, and printed the number of bytes that
	// vprintf has printed.
	callBytes, printed atomic.Int64
	// running is the number of workers that still run clusters.
	running atomic.Int64
	// together holds the clusters of a cooperative launch, and gridBarrier the address of its barrier.
	together    []*cluster
	gridBarrier uint64
	fences      atomic.Uint64 // incremented to order memory accesses of different workers

	mu      sync.Mutex
	failed  int // lowest number of a failed cluster, or the number of clusters
	err     error
	printer printer
}

// Run runs a launch until it ends. If it returns an error, mem contains the writes of the kernel up
// to that point. If several clusters fail, Run returns the error of the first one.
//
// The error wraps ErrLaunch for invalid arguments, ErrOutOfMemory if the module's variables do not
// fit in mem, ErrAccess, ErrDeadlock, ErrBudget, ErrAssert, ErrTrap or ErrMisuse for a failure of
// the kernel, or the error of ctx.
func (p *Program) Run(ctx context.Context, mem *Memory, l Launch) (Stats, error) {
	entry, err := p.kernel(l.Entry)
	if err != nil {
		return Stats{}, err
	}
	r := &run{program: p, launch: &l, entry: entry, mem: mem, ctx: ctx}
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
	cooperative := r.cooperates()
	if cooperative {
		workers = r.clusters
	}
	if err := mem.room.take(float64(workers)*r.workerBytes(), "the launch"); err != nil {
		return Stats{}, fmt.Errorf("%s: %w", l.Entry, err)
	}
	if cooperative {
		if r.gridBarrier, err = r.newGridBarrier(); err != nil {
			return Stats{}, err
		}
	}
	all := make([]*worker, workers)
	for k := range all {
		all[k] = r.newWorker()
	}
	if cooperative {
		r.workTogether(all)
		if err := r.mem.Free(r.gridBarrier); err != nil {
			return Stats{}, err
		}
	} else {
		r.running.Store(int64(workers))
		group := relay.Group{Stop: r.abandon}
		for k := range all {
			group.Go(all[k].work)
		}
		group.Wait()
	}
	stats := Stats{Counts: make([]Count, len(p.sites))}
	for _, w := range all {
		w.keepFrames()
		for k, c := range w.counts {
			stats.Counts[k].Executed += c.Executed
			stats.Counts[k].Lanes += c.Executed*lanes - c.idle
			stats.Instructions += c.Executed
		}
	}
	if r.err == nil && l.MaxInstructions > 0 && stats.Instructions > uint64(l.MaxInstructions) {
		r.err = r.overBudget(nil)
	}
	if r.err == nil {
		r.err = r.printer.err
	}
	return stats, r.err
}

// overBudget returns the error for a launch of too many instructions. c is the cluster that reached
// the limit, or nil if it has ended.
func (r *run) overBudget(c *cluster) error {
	where := ""
	if c != nil && len(c.runnable) > 0 {
		where = fmt.Sprintf(" (block %v: %s)", c.runnable[0].block.index, c.runningText())
	}
	return fmt.Errorf("%s: more than %d instructions%s: %w", r.launch.Entry, r.launch.MaxInstructions, where, ErrBudget)
}

// check validates the launch arguments and computes the cluster size and memory sizes.
func (r *run) check() error {
	l := r.launch
	f := r.entry
	g, b := l.Grid, l.Block
	switch {
	case min(g.X, g.Y, g.Z) < 1 || g.X > maxGridX || max(g.Y, g.Z) > maxGridYZ:
		return fmt.Errorf("grid is %v: want sides from 1 to (%d,%d,%d)", g, maxGridX, maxGridYZ, maxGridYZ)
	case min(b.X, b.Y, b.Z) < 1 || max(b.X, b.Y) > maxBlockXY || b.Z > maxBlockZ:
		return fmt.Errorf("block is %v: want sides from 1 to (%d,%d,%d)", b, maxBlockXY, maxBlockXY, maxBlockZ)
	case b.count() > maxBlockThreads:
		return fmt.Errorf("block %v has %d threads: want at most %d", b, b.count(), maxBlockThreads)
	case l.Shared < 0:
		return fmt.Errorf("dynamic shared memory is %d bytes: want at least 0", l.Shared)
	case l.Workers < 0:
		return fmt.Errorf("%d workers: want at least 0", l.Workers)
	case len(l.Params) != f.paramSize:
		return fmt.Errorf("%d bytes of parameters: want %d", len(l.Params), f.paramSize)
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
			return fmt.Errorf("block is %v: want %v (.reqntid)", b, sides)
		case a.Name == "maxntid" && b.count() > sides.count():
			return fmt.Errorf("block %v has %d threads: want at most %d (.maxntid)", b, b.count(), sides.count())
		case a.Name == "reqnctapercluster" && l.Cluster == Dim3{}:
			r.cluster, r.explicit = sides, true
		case a.Name == "reqnctapercluster" && l.Cluster != sides:
			return fmt.Errorf("cluster is %v: want %v (.reqnctapercluster)", l.Cluster, sides)
		case a.Name == "maxclusterrank" && l.Cluster.count() > a.Args[0]:
			return fmt.Errorf("cluster is %v: want at most %d blocks (.maxclusterrank)", l.Cluster, a.Args[0])
		}
	}
	if err := r.checkCluster(); err != nil {
		return err
	}
	r.localSize = r.entry.localBytes()
	if r.localSize > maxLocal {
		return fmt.Errorf("%d bytes of local memory per thread: want at most %d", r.localSize, maxLocal)
	}
	return r.placeShared()
}

// checkCluster validates the cluster size.
func (r *run) checkCluster() error {
	if !r.explicit {
		r.cluster = Dim3{1, 1, 1}
	}
	g, c := r.launch.Grid, r.cluster
	switch {
	case min(c.X, c.Y, c.Z) < 1 || max(c.X, c.Y, c.Z) > maxCluster || c.count() > maxCluster:
		return fmt.Errorf("cluster is %v: want sides of at least 1 and at most %d blocks", c, maxCluster)
	case g.X%c.X != 0 || g.Y%c.Y != 0 || g.Z%c.Z != 0:
		return fmt.Errorf("grid is %v: want multiples of the cluster %v", g, c)
	}
	return nil
}

// placeShared assigns offsets to the shared variables that the kernel and its callees use. Dynamic
// shared memory follows all static variables.
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
	if r.dynamic = len(dynamic) > 0; r.dynamic {
		size = alignUp(size, dynamicAlign)
	}
	for _, v := range dynamic {
		r.address[v.index] = size
	}
	static := size
	if static > maxStaticShared {
		return fmt.Errorf("%s of static shared memory: want at most %s, and dynamic shared memory for more",
			bytesText(static), bytesText(maxStaticShared))
	}
	if size += uint64(r.launch.Shared); size > maxShared {
		return fmt.Errorf("%d bytes of static and %d of dynamic shared memory: want a sum of at most %d", static,
			r.launch.Shared, maxShared)
	}
	if r.entry.readsSpecial(reservedPrefix) {
		r.reserved = alignUp(size, slotAlign) - size + reservedShared
	}
	r.sharedSize = int(size + r.reserved)
	return nil
}

// link sets the addresses of the variables in global and constant memory. They are allocated and
// initialized when the program first runs with this memory.
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

// walkCalls calls visit once for f and each function that it calls directly or indirectly, callers
// before callees.
func (f *function) walkCalls(visit func(*function)) {
	list, listed := []*function{f}, map[*function]bool{f: true}
	for n := 0; n < len(list); n++ {
		visit(list[n])
		for _, g := range list[n].calls {
			if !listed[g] {
				listed[g] = true
				list = append(list, g)
			}
		}
	}
}

// usedVariables returns the variables that f and its callees use.
func (f *function) usedVariables() map[*variable]bool {
	used := map[*variable]bool{}
	f.walkCalls(func(g *function) {
		for v := range g.uses {
			used[v] = true
		}
	})
	return used
}

// communicates reports whether blocks that run f can observe each other's writes.
func (f *function) communicates() bool {
	does := false
	f.walkCalls(func(g *function) {
		for k := range g.code {
			does = does || g.code[k].communicates()
		}
	})
	return does
}

// localBytes returns the local memory that a thread needs for f and its callees. The result is more
// than maxLocal if it would be for any depth of calls.
func (f *function) localBytes() int {
	needs := map[*function]int{}
	var visit func(g *function, level int) int
	visit = func(g *function, level int) int {
		if n, ok := needs[g]; ok {
			return n // g is recursive if its visit has not ended
		}
		if level > maxLocal/localAlign {
			return maxLocal + 1
		}
		needs[g] = stackSize
		most := 0
		for _, h := range g.calls {
			most = max(most, visit(h, level+1))
		}
		needs[g] = min(int(min(g.stackBytes(), maxLocal))+most, maxLocal+1)
		return needs[g]
	}
	return visit(f, 0)
}

// workerBytes returns an estimate of the memory of a worker, from above.
func (r *run) workerBytes() float64 {
	const perWarp = 24 << 10 // besides local memory and registers
	warps := (r.launch.Block.count() + lanes - 1) / lanes
	copies := 1 // with observers also the record of undefined bytes, and their own records
	if len(r.launch.Observers) > 0 {
		copies = 2
	}
	block := copies * (r.sharedSize + warps*(lanes*r.localSize+perWarp))
	perSite := int(unsafe.Sizeof(tally{}) + unsafe.Sizeof(region{}))
	return float64(r.cluster.count())*(float64(block)+float64(warps)*r.entry.frameBytes()) +
		float64(len(r.program.sites)*perSite)
}
