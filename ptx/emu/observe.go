package emu

import (
	"slices"

	"tilework/ptx"
)

// An Observer watches a launch. The emulator calls Block before a block starts
// and calls the hooks that it returned while the block runs.
//
// Block is called from several goroutines at once, for all blocks of a cluster from one
// and before any of them runs; the hooks of these blocks are called from one goroutine
// too, in the order in which things happen in the cluster. What happens
// in different clusters is concurrent unless [Launch].Workers is 1. A pointer that
// a hook gets is valid during the call only, except for *Site.
type Observer interface {
	Block(b *BlockInfo) *Hooks
}

// Hooks are the events of one block that an observer asks for. A nil hook costs
// the emulator nothing.
type Hooks struct {
	// Access is called for each memory access of a warp, after its addresses were
	// checked and before it changes memory. Accesses that fault are not reported here.
	Access func(*Access)
	// Barrier is called when threads arrive at a barrier of the block, and when
	// all have.
	Barrier func(*Barrier)
	// WarpSync is called when lanes have met at an instruction that makes them wait
	// for one another: bar.warp.sync and the .sync instructions.
	WarpSync func(*WarpSync)
	// Fence is called for membar and fence.
	Fence func(*Fence)
	// ClusterSync is called when threads arrive at the cluster's barrier, when all
	// have, and when threads go on behind it.
	ClusterSync func(*ClusterSync)
	// Bulk is called when a bulk copy begins, for each of its two halves, and for the
	// operands of wgmma.mma_async in shared memory.
	Bulk func(*Bulk)
	// Mbarrier is called for what happens at an mbarrier.
	Mbarrier func(*Mbarrier)
	// CopyDone is called when a wait sees asynchronous copies complete.
	CopyDone func(*CopyDone)
	// UninitRead is called for each instruction that reads a register no
	// instruction of the thread has written.
	UninitRead func(*UninitRead)
	// Fault is called for an access that the memory refuses. If the hook of one of the
	// observers returns true, the lanes concerned leave the access out (a load gives
	// zeros) and the launch goes on; else it ends with the fault as its error.
	Fault func(*Fault) bool
	// End is called when the block has ended, also if it failed.
	End func()
}

// BlockInfo says which block starts, and in what.
type BlockInfo struct {
	Entry      string
	Grid       Dim3
	BlockDim   Dim3
	Index      Dim3 // %ctaid
	Linear     int  // x fastest
	Warps      int
	SharedSize int // static and dynamic bytes of shared memory
	Memory     *Memory
	// Cluster is the number of the block's cluster in the grid, x fastest, and Rank its
	// place among the Ranks blocks of that cluster, which run together: a grid without
	// clusters has clusters of one block.
	Cluster, Rank, Ranks int
}

// Site is an instruction in the text: what a finding points at. There is one *Site
// for each instruction of a [Program], so they can be compared and be map keys.
type Site struct {
	Func   string
	Index  int     // from 0 over the program's instructions, in the order of the text
	Pos    ptx.Pos // in the PTX text
	Source ptx.Pos // where the last .loc before it points; the zero Pos without one
	Opcode string  // with its modifiers: "ld.global.f32"
	Instr  *ptx.Instr
}

// Origin is who did something: lanes of a warp at an instruction.
type Origin struct {
	Site *Site
	Warp int    // of the block
	Mask uint32 // the lanes that take part
}

// AccessKind is what an access does to memory.
type AccessKind uint8

const (
	Read AccessKind = iota
	Write
	// Atomic reads and writes in one step, as atom and red do.
	Atomic
	// AsyncRead and AsyncWrite are the two halves of an asynchronous copy. They
	// happen at some time between this event and the CopyDone of the same copy.
	AsyncRead
	AsyncWrite
)

// Sem is the memory ordering that an access or a fence asks for.
type Sem uint8

const (
	Weak Sem = iota
	Volatile
	Relaxed
	Acquire
	Release
	AcqRel
	SeqCst
)

// Scope is the set of threads that an ordering is promised to.
type Scope uint8

const (
	NoScope Scope = iota // of weak accesses
	CTA
	Cluster
	GPU
	System
)

// Access is a memory access of a warp. Lane i of Mask accesses the Size bytes from
// Addr[i]; the other elements of Addr hold nothing of use.
type Access struct {
	Origin
	Kind  AccessKind
	Sem   Sem
	Scope Scope
	// Space is where the access goes: Global, Shared, Local, Const or Param, never
	// Generic. A generic access whose lanes go to different spaces is reported
	// once for each space.
	Space ptx.Space
	// Size is the bytes that a lane accesses: all elements of a vector together.
	Size int
	// Addr is the first byte's address: in global and constant memory the device
	// address, in shared memory the offset from the start of a block's,
	// in local memory and in parameters an offset that is the thread's own.
	Addr *[32]uint64
	// Rank is that of the block of the cluster whose shared memory a shared access goes
	// to: mostly the thread's own.
	Rank int
	// Alloc is the allocation that a global access goes to. One whose lanes go to
	// several is reported once for each.
	Alloc *Allocation
	// Copy identifies an asynchronous copy among those of the cluster; its two
	// halves have the same number, from 1. It is 0 for other accesses.
	Copy uint64

	warp *warp
	inst *inst
}

// Bulk is an asynchronous access of the async proxy: one half of a bulk copy that a thread
// has begun, or what a wgmma.mma_async of a warp reads. It happens at some time
// between this event and the one that tells that the copy is done: a CopyDone, or an
// Mbarrier event.
type Bulk struct {
	Origin
	Kind   AccessKind // AsyncRead or AsyncWrite
	Atomic bool       // a reduction
	Space  ptx.Space  // Global or Shared
	Rank   int        // as of Access
	Alloc  *Allocation
	Spans  []Span
	Copy   uint64
	// Mbarrier is the offset, in the same block's shared memory, of the mbarrier that is
	// told, if Tells.
	Mbarrier    uint64
	HasMbarrier bool
}

// Span is bytes of memory: a device address, or an offset in shared memory.
type Span struct {
	Addr uint64
	Size int
}

// BarrierKind is what happened at a barrier of the block.
type BarrierKind uint8

const (
	// BarrierSync: threads arrived and wait.
	BarrierSync BarrierKind = iota
	// BarrierArrive: threads arrived and go on.
	BarrierArrive
	// BarrierComplete: as many threads have arrived as the barrier expects. The
	// origin is the last arrival.
	BarrierComplete
)

// Barrier is an arrival at a barrier of the block, or its completion. A completion
// orders all that the arrived threads did before against all that the waiting
// ones do after.
type Barrier struct {
	Origin
	Kind BarrierKind
	ID   int // 0 to 15
	// Expected is the number of threads that the barrier waits for, and Arrived
	// those that are there.
	Expected, Arrived int
	// Generation counts the completions of this barrier: arrivals and the
	// completion that they bring about have the same number.
	Generation int
	// Aligned reports that all threads of a warp must execute the instruction together;
	// in a completion, that this holds for all arrivals.
	Aligned bool
	// Missing lists threads that do not reach an aligned barrier. In an arrival they are of
	// the same warp. In the completion of a barrier of the whole block they are the warps
	// without an arrival. The list is valid during the call only.
	Missing []Missing
}

// Divergent reports whether threads of the warp have not exited and are not at an aligned
// barrier with the others.
func (b *Barrier) Divergent() bool {
	return slices.ContainsFunc(b.Missing, func(m Missing) bool { return !m.Exited })
}

// Missing describes threads that do not execute a barrier which other threads of their
// block, or of their warp, execute.
type Missing struct {
	Origin // their next instruction, or the one at which they left the kernel
	// Exited reports that they have left the kernel. Skipped reports that they went past the
	// barrier first: they executed code that can run after it, or left out nothing else.
	Exited, Skipped bool
}

// ClusterKind is what happened at the barrier of the cluster.
type ClusterKind uint8

const (
	ClusterArrive ClusterKind = iota
	// ClusterComplete: all threads of the cluster have arrived. It has no origin, and
	// the observers of the cluster's first block are told.
	ClusterComplete
	// ClusterWait: threads go on that have waited for the last completion.
	ClusterWait
)

// ClusterSync is an arrival at the barrier of the cluster, its completion or the end of a
// wait there. What the threads did before they arrived is ordered before what they do
// after they have waited, but for a Relaxed arrival.
type ClusterSync struct {
	Origin
	Kind    ClusterKind
	Relaxed bool
	// Missing lists the threads of the warp that do not reach an aligned instruction. The
	// list is valid during the call only.
	Missing []Missing
}

// MbarrierKind is what happened at an mbarrier.
type MbarrierKind uint8

const (
	MbarrierInit MbarrierKind = iota
	// MbarrierArrive: a thread arrived at the phase under way.
	MbarrierArrive
	// MbarrierCopy: an asynchronous copy is done that the phase under way waits for. The
	// origin is that of the copy.
	MbarrierCopy
	// MbarrierComplete: the phase is complete, and the next one begins.
	MbarrierComplete
	// MbarrierWait: a thread has seen that the last phase is complete.
	MbarrierWait
)

// Mbarrier is an event at an mbarrier. What threads did before they arrived at a phase, and
// the copies that it waited for, are ordered before what a thread does that has seen
// that the phase is complete.
type Mbarrier struct {
	Origin
	Kind MbarrierKind
	// Rank is that of the block of the cluster in whose shared memory the mbarrier is, and
	// Addr its offset there.
	Rank int
	Addr uint64
	Copy uint64 // of MbarrierCopy: which copy
}

// WarpSync is lanes of a warp that waited for one another.
type WarpSync struct {
	Origin
	// Orders says that memory accesses before and after are ordered between the
	// lanes, as by bar.warp.sync but not by shfl.sync.
	Orders bool
}

// Fence orders the memory accesses of each lane.
type Fence struct {
	Origin
	Sem   Sem
	Scope Scope
	// Proxy is the argument of fence.proxy: "async", "async.shared::cta"; empty
	// for an ordinary fence.
	Proxy string
}

// CopyDone is asynchronous copies seen complete by the threads that issued them.
type CopyDone struct {
	Origin
	Copies []CopyLanes
	Read   bool // only that their sources have been read
}

// CopyLanes is a copy and the lanes whose part of it is complete.
type CopyLanes struct {
	Copy uint64
	Mask uint32
}

// UninitRead is a read of a register before it was written. Mask holds the lanes
// concerned.
type UninitRead struct {
	Origin
	Register string
}
