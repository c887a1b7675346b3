package emu

import (
	"bytes"
	"slices"

	"tilework/ptx"
)

// An Observer watches a launch. The emulator calls Block before a block starts and calls the
// returned hooks while the block runs.
//
// Calls of Block are concurrent for different clusters. All blocks of a cluster are announced by
// one goroutine before any of them runs. This goroutine also calls their hooks, in the order of the
// events in the cluster. With [Launch].Workers set to 1, clusters run one after the other. Pointers
// that a hook receives are valid only during the call, except for *Site.
type Observer interface {
	Block(b *BlockInfo) *Hooks
}

// Hooks holds the event handlers of an observer for one block. A nil hook costs nothing.
type Hooks struct {
	// Access is called for each memory access of a warp, after its addresses were checked and
	// before it changes memory. It is not called for lanes that fault.
	Access func(*Access)
	// Execute is called before lanes execute an instruction. It slows every instruction.
	Execute func(Origin)
	// Barrier is called when threads arrive at a barrier of the block, and when the barrier
	// completes.
	Barrier func(*Barrier)
	// WarpSync is called when lanes have converged at an instruction that synchronizes them:
	// bar.warp.sync and the .sync instructions.
	WarpSync func(*WarpSync)
	// Fence is called for membar and fence.
	Fence func(*Fence)
	// ClusterSync is called when threads arrive at the cluster barrier, when the barrier completes,
	// and when a wait ends.
	ClusterSync func(*ClusterSync)
	// Bulk is called when a bulk copy starts, once for each of its two halves, for the shared
	// memory operands of wgmma.mma_async, and for the accesses of tcgen05 instructions.
	Bulk func(*Bulk)
	// Mbarrier is called for operations on an mbarrier.
	Mbarrier func(*Mbarrier)
	// CopyDone is called when a wait completes asynchronous copies.
	CopyDone func(*CopyDone)
	// Undefined is called when an undefined value can change the result of the kernel.
	Undefined func(*Undefined)
	// Fault is called for an invalid memory access. If the hook of any observer returns true, the
	// launch continues without the access of these lanes, and a load returns zeros. Otherwise the
	// launch ends with the fault as its error.
	Fault func(*Fault) bool
	// Exit is called when all threads of the block have exited.
	Exit func()
	// End is called when the block has ended or failed.
	End func()
}

// BlockInfo describes a block that starts.
type BlockInfo struct {
	Entry      string
	Grid       Dim3
	BlockDim   Dim3
	Index      Dim3 // %ctaid
	Linear     int  // linear index, where X varies fastest
	Warps      int
	SharedSize int // static and dynamic shared memory in bytes
	Memory     *Memory
	// Cluster is the linear index of the block's cluster in the grid. Rank is the block's rank
	// among the Ranks blocks of that cluster. In a grid without clusters, each block is a cluster.
	Cluster, Rank, Ranks int
}

// Site is an instruction of the PTX. There is one *Site for each instruction of a [Program], so
// pointers to sites can be compared and used as map keys.
type Site struct {
	Func   string
	Index  int     // index among all instructions of the program, in the order of the source
	Pos    ptx.Pos // in the PTX source
	Source ptx.Pos // position given by the preceding .loc; zero if there is none
	Opcode string  // with modifiers: "ld.global.f32"
	Instr  *ptx.Instr
	// Decides is set for a volatile load if the next branch depends on its value, as in a loop that
	// polls.
	Decides bool
}

// Origin identifies the lanes of a warp that executed an instruction.
type Origin struct {
	Site *Site
	Warp int    // index in the block
	Mask uint32 // lanes that take part
}

// AccessKind is the effect of an access on memory.
type AccessKind uint8

const (
	Read AccessKind = iota
	Write
	// Atomic is a read and a write in one step, as by atom and red.
	Atomic
	// AsyncRead and AsyncWrite are the two halves of an asynchronous copy. They happen at some time
	// between this event and the CopyDone of the same copy.
	AsyncRead
	AsyncWrite
)

// Sem is the memory ordering of an access or a fence.
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

// Scope is the set of threads that observe a memory ordering.
type Scope uint8

const (
	NoScope Scope = iota // for weak accesses
	CTA
	Cluster
	GPU
	System
)

// Access is a memory access of a warp. Lane i of Mask accesses the Size bytes at Addr[i]. Elements
// of Addr for other lanes are undefined.
type Access struct {
	Origin
	Kind  AccessKind
	Sem   Sem
	Scope Scope
	// Space is Global, Shared, Local, Const or Param, never Generic. A generic access to several
	// spaces is reported once per space.
	Space ptx.Space
	// Size is the number of bytes per lane, including all elements of a vector.
	Size int
	// Addr holds the address of the first byte of each lane: the device address in global and
	// constant memory, and an offset in the block's shared memory, the thread's local memory or the
	// parameters.
	Addr *[32]uint64
	// Rank is the rank of the block that owns the shared memory, for a shared access. It is usually
	// the thread's own block.
	Rank int
	// Alloc is the allocation of a global access. An access to several allocations is reported once
	// for each.
	Alloc *Allocation
	// Copy is the number of an asynchronous copy in its cluster, starting at 1. Both halves of a
	// copy have the same number. It is 0 for other accesses.
	Copy uint64

	warp *warp
	inst *inst
}

// Bulk is a memory access through the async proxy: one half of a bulk copy by a thread, the
// operands of a wgmma.mma_async by a warp, or an access of a tcgen05 instruction to shared or
// tensor memory. It happens at some time between this event and the completion of the copy, which
// is a CopyDone or an Mbarrier event.
type Bulk struct {
	Origin
	Kind   AccessKind // AsyncRead or AsyncWrite
	Atomic bool       // a reduction
	Space  ptx.Space  // Global, Shared or Tensor
	Rank   int        // as in Access
	Alloc  *Allocation
	Spans  []Span
	Copy   uint64
	// Mbarrier is the offset of the mbarrier that tracks the copy, in the same block's shared
	// memory. It is valid if HasMbarrier is set.
	Mbarrier    uint64
	HasMbarrier bool

	move   *bulkMove
	shared uint64 // the address of the copy's data in shared memory
}

// Unchanged reports whether a store to global memory is about to write the bytes that the memory
// already holds.
func (b *Bulk) Unchanged() bool {
	if b.move == nil || b.move.source == nil || b.Atomic {
		return false
	}
	from, to, same := b.move.source.block.shared.bytes(), b.Alloc.bytes(), true
	b.Moves(func(global, shared uint64, n int) {
		same = same && bytes.Equal(from[shared:][:n], to[global-b.Alloc.Base:][:n])
	})
	return same
}

// Moves calls do for each contiguous piece of a copy between global and shared memory: n bytes at
// the device address global and at the offset shared. It omits the zeros outside of a tensor. It is
// valid for the half of the copy that writes, and does nothing for other events.
func (b *Bulk) Moves(do func(global, shared uint64, n int)) {
	if b.move == nil {
		return
	}
	b.move.eachPiece(b.shared, func(addr uint64, at, n int) {
		for _, s := range b.move.global {
			from, to := max(at, s.at), min(at+n, s.at+s.n)
			if from < to {
				do(s.addr+uint64(from-s.at), addr+uint64(from-at), to-from)
			}
		}
	})
}

// Span is a contiguous range of memory. Addr is a device address, an offset in shared memory, or an
// offset in tensor memory (see TensorLaneBytes).
type Span struct {
	Addr uint64
	Size int
}

// BarrierKind is the kind of an event at a barrier of the block.
type BarrierKind uint8

const (
	// BarrierSync means that threads arrived and wait.
	BarrierSync BarrierKind = iota
	// BarrierArrive means that threads arrived and continue.
	BarrierArrive
	// BarrierComplete means that all expected threads have arrived. The origin is the last arrival.
	BarrierComplete
)

// Barrier is an arrival at a barrier of the block, or its completion. A completion orders all
// accesses of the arrived threads before all later accesses of the waiting threads.
type Barrier struct {
	Origin
	Kind BarrierKind
	ID   int // 0 to 15
	// Expected is the number of threads that the barrier waits for, and Arrived the number that
	// have arrived.
	Expected, Arrived int
	// Generation is the number of earlier completions of this barrier. A completion has the same
	// generation as its arrivals.
	Generation int
	// Aligned reports whether all threads of a warp must execute the instruction together. For a
	// completion, it reports whether this holds for all arrivals.
	Aligned bool
	// Missing lists threads that do not reach an aligned barrier. For an arrival, these are threads
	// of the same warp. For the completion of a barrier of the whole block, these are the threads
	// of warps that did not arrive. The list is valid only during the call.
	Missing []Missing
}

// Divergent reports whether live threads of the warp are not at an aligned barrier with the others.
func (b *Barrier) Divergent() bool {
	return slices.ContainsFunc(b.Missing, func(m Missing) bool { return !m.Exited })
}

// Missing describes threads that do not execute a barrier that other threads of their block or warp
// execute.
type Missing struct {
	Origin // next instruction, or the one at which they exited
	// Exited reports whether the threads have exited the kernel. Skipped reports whether they
	// exited after the barrier, having executed code that can run after it or skipped only the
	// barrier.
	Exited, Skipped bool
}

// ClusterKind is the kind of an event at the cluster barrier.
type ClusterKind uint8

const (
	ClusterArrive ClusterKind = iota
	// ClusterComplete means that all threads of the cluster have arrived. It has no origin and is
	// reported to the observers of the cluster's first block.
	ClusterComplete
	// ClusterWait means that threads finished waiting for the last completion.
	ClusterWait
)

// ClusterSync is an event at the cluster barrier: an arrival, the completion, or the end of a wait.
// Accesses before an arrival are ordered before accesses after the wait, unless the arrival is
// Relaxed.
type ClusterSync struct {
	Origin
	Kind    ClusterKind
	Relaxed bool
	// Missing lists the threads of the warp that do not reach an aligned instruction. The list is
	// valid only during the call.
	Missing []Missing
}

// MbarrierKind is the kind of an event at an mbarrier.
type MbarrierKind uint8

const (
	MbarrierInit MbarrierKind = iota
	// MbarrierArrive means that a thread arrived at the current phase.
	MbarrierArrive
	// MbarrierCopy means that an asynchronous copy tracked by the current phase completed. The
	// origin is that of the copy.
	MbarrierCopy
	// MbarrierComplete means that the phase completed and the next one started.
	MbarrierComplete
	// MbarrierWait means that a thread observed the completion of the last phase.
	MbarrierWait
	// MbarrierCommit means that a thread executed a tcgen05.commit. Its MbarrierCopy follows when
	// the thread's operations before it are complete.
	MbarrierCommit
)

// Mbarrier is an event at an mbarrier. Accesses of threads before their arrival at a phase, and the
// copies that the phase tracks, are ordered before later accesses of a thread that observed the
// completion of the phase.
type Mbarrier struct {
	Origin
	Kind MbarrierKind
	// Rank is the rank of the block whose shared memory contains the mbarrier, and Addr is its
	// offset there.
	Rank int
	Addr uint64
	// Copy is the number of the copy or of the tcgen05.commit, for MbarrierCopy and MbarrierCommit.
	// A commit has a higher number than the operations of the thread before it.
	Copy uint64
}

// WarpSync reports that lanes of a warp waited for each other.
type WarpSync struct {
	Origin
	// Members is the member mask of the instruction.
	Members uint32
	// Orders reports whether the lanes' memory accesses before and after are ordered, as by
	// bar.warp.sync but not by shfl.sync.
	Orders bool
	// Missing lists the threads of the member mask that exited without executing the instruction.
	// The list is valid only during the call.
	Missing []Missing
}

// Fence orders the memory accesses of each lane.
type Fence struct {
	Origin
	Sem   Sem
	Scope Scope
	// Proxy is the argument of fence.proxy, such as "async" or "async.shared::cta", or the name of
	// a tcgen05.fence. It is empty for an ordinary fence.
	Proxy string
}

// CopyDone reports that the issuing threads waited for the completion of asynchronous copies.
type CopyDone struct {
	Origin
	Copies []CopyLanes
	Read   bool // only the sources have been read
}

// CopyLanes is a copy and the lanes whose part of it is complete.
type CopyLanes struct {
	Copy uint64
	Mask uint32
}

// Use is the use of an undefined value.
type Use uint8

const (
	// UseBranch means that the value decides which instructions the lanes execute.
	UseBranch Use = iota
	UseAddress
	UseStore   // a store to global memory
	UseOperand // an operand of another instruction, such as atom or wgmma
)

// Undefined reports that lanes use a value that is undefined. Moves, arithmetic, mma, and accesses
// to shared and local memory pass such a value on and do not use it.
type Undefined struct {
	Origin // of the use
	Use    Use
	Cause  Cause
}

// CauseKind is the reason why a value is undefined.
type CauseKind uint8

const (
	UnsetRegister CauseKind = iota // the thread has not written the register
	UnsetMemory                    // the memory was not written
	InactiveLane                   // a shfl reads a lane that does not take part in it
	// UnfinishedLoad means that a register is used after a tcgen05.ld and before tcgen05.wait::ld. The
	// emulator completes the load, as the code of NVIDIA's assembler does.
	UnfinishedLoad
)

// Cause is the instruction that produced an undefined value, and the reason.
type Cause struct {
	Origin   // the instruction that read the register, the memory or the lane
	Kind     CauseKind
	Register string
	Space    ptx.Space // Global, Shared, Local or Tensor
	Addr     uint64    // as in Access
	Rank     int       // as in Access
	Alloc    *Allocation
	Lane     int // lane that a shfl reads
}
