package emu

import (
	"errors"
	"fmt"

	"tilework/ptx"
)

// Errors that the error of a launch wraps.
var (
	ErrLaunch   = errors.New("invalid launch")             // invalid grid, block, shared memory or parameters
	ErrAccess   = errors.New("invalid memory access")      // a *Fault
	ErrDeadlock = errors.New("deadlock")                   // no thread can continue
	ErrBudget   = errors.New("instruction limit exceeded") // [Launch].MaxInstructions
	ErrAssert   = errors.New("assertion failed in kernel") // __assertfail
	ErrTrap     = errors.New("trap")                       // trap, brkpt
	ErrMisuse   = errors.New("instruction misused")        // undefined behavior that Verify does not catch
)

// FaultKind is the cause of a fault.
type FaultKind uint8

const (
	// OutOfBounds means that the bytes are not all in one allocation, in the block's shared memory
	// or in the thread's local memory.
	OutOfBounds FaultKind = iota
	// Misaligned means that the address is not a multiple of the required alignment.
	Misaligned
	// ReadOnly means a write to constant memory or to a parameter.
	ReadOnly
	// NullPointer means an address in global memory that is at most nullRange from 0.
	NullPointer
	// ExitedBlock means the shared memory of a block of the cluster that has exited.
	ExitedBlock
)

// nullRange is the largest distance in bytes from 0 of an address that counts as a null pointer
// plus an offset.
const nullRange = 1 << 20

// Fault is an invalid memory access. It is an error that wraps ErrAccess and describes the first
// lane.
type Fault struct {
	Origin    // Mask holds the lanes with an invalid access
	Kind      FaultKind
	Access    AccessKind
	Space     ptx.Space   // as in Access
	Addr      *[32]uint64 // as in Access; nil for a bulk copy
	Size      int         // bytes per lane
	Block     Dim3
	Thread    Dim3   // of the first lane
	FirstAddr uint64 // of the first lane
	// Dynamic reports whether the access is to shared memory, and the kernel has an array there whose
	// size the launch sets.
	Dynamic bool
	Detail  string // location: "4 bytes past the end of the allocation of 1,024 bytes at 0x…"
}

func (f *Fault) Error() string {
	verb := [...]string{Read: "read", Write: "write", Atomic: "atomic access", AsyncRead: "asynchronous read",
		AsyncWrite: "asynchronous write"}[f.Access]
	return fmt.Sprintf("%v: thread %v of block %v: %s of %s at %v address %#x: %s",
		f.Site, f.Thread, f.Block, verb, bytesText(uint64(f.Size)), f.Space, f.FirstAddr, f.Detail)
}

func (f *Fault) Unwrap() error { return ErrAccess }

// String returns the position and opcode of s: "matmul.ptx:41:2 (matmul.cu:12): ld.global.f32".
func (s *Site) String() string {
	at := s.Pos.String()
	if src := s.Source.String(); src != "" {
		at += " (" + src + ")"
	}
	return at + ": " + s.Opcode
}
