package emu

import (
	"errors"
	"fmt"

	"tilework/ptx"
)

// What the errors of a launch wrap.
var (
	ErrLaunch   = errors.New("bad launch")                 // grid, block, shared memory or parameters
	ErrAccess   = errors.New("bad memory access")          // a *Fault
	ErrDeadlock = errors.New("deadlock")                   // threads wait and nothing can release them
	ErrBudget   = errors.New("instruction budget used up") // [Launch].MaxInstructions
	ErrAssert   = errors.New("assertion failed in kernel") // __assertfail
	ErrTrap     = errors.New("trap")                       // trap, brkpt
	ErrMisuse   = errors.New("instruction misused")        // what the manual leaves undefined and no rule of types catches
)

// FaultKind is why the memory refuses an access.
type FaultKind uint8

const (
	// OutOfBounds: the bytes are not all in one allocation, or in the block's shared
	// memory, or in the thread's local memory.
	OutOfBounds FaultKind = iota
	// Misaligned: the address is no multiple of the access's size.
	Misaligned
	// ReadOnly: a write to constant memory or to a parameter.
	ReadOnly
)

// Fault is a memory access that the memory refuses. It is an error that wraps
// ErrAccess and names the first of the lanes concerned.
type Fault struct {
	Origin    // Mask is the lanes whose access is refused
	Kind      FaultKind
	Access    AccessKind
	Space     ptx.Space   // as for Access
	Addr      *[32]uint64 // as for Access; nil for a bulk copy, which has only FirstAddr
	Size      int         // bytes that a lane accesses
	Block     Dim3
	Thread    Dim3   // the first lane's
	FirstAddr uint64 // the first lane's
	Detail    string // where the address lies: "4 bytes past the end of the allocation of 1,024 bytes at 0x…"
}

func (f *Fault) Error() string {
	verb := [...]string{Read: "read", Write: "write", Atomic: "atomic access", AsyncRead: "asynchronous read", AsyncWrite: "asynchronous write"}[f.Access]
	return fmt.Sprintf("%v: thread %v of block %v: %s of %s at %v address %#x: %s",
		f.Site, f.Thread, f.Block, verb, bytesText(uint64(f.Size)), f.Space, f.FirstAddr, f.Detail)
}

func (f *Fault) Unwrap() error { return ErrAccess }

// String is where the instruction stands and its opcode: "matmul.ptx:41:2 (matmul.cu:12): ld.global.f32".
func (s *Site) String() string {
	at := s.Pos.String()
	if src := s.Source.String(); src != "" {
		at += " (" + src + ")"
	}
	return at + ": " + s.Opcode
}
