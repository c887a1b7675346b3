//go:build unix && amd64

package asm

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// require skips a test if this CPU lacks an instruction set. It fails the test instead if the
// comma-separated list TILEWORK_REQUIRE_ISA contains the instruction set.
func require(tb testing.TB, isa ISA) {
	tb.Helper()
	if isa.Supported && (isa != AMX || AllowTiles()) {
		return
	}
	const variable = "TILEWORK_REQUIRE_ISA"
	for name := range strings.SplitSeq(os.Getenv(variable), ",") {
		if strings.TrimSpace(name) == isa.Name {
			tb.Fatalf("this CPU lacks %s, which %s requires", isa.Name, variable)
		}
	}
	tb.Skipf("this CPU lacks %s", isa.Name)
}

// arena is memory between two inaccessible pages.
type arena[T any] struct {
	mem   []T
	guard *T // the start of the upper page
}

// newArena returns an arena for at least n elements.
func newArena[T any](t *testing.T, n int) *arena[T] {
	t.Helper()
	page, size := unix.Getpagesize(), int(unsafe.Sizeof(*new(T)))
	bytes := (n*size + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, bytes+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("cannot map memory: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{mem[:page], mem[page+bytes:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("cannot protect a guard page: %v", err)
		}
	}
	return &arena[T]{
		mem:   unsafe.Slice((*T)(unsafe.Pointer(&mem[page])), bytes/size),
		guard: (*T)(unsafe.Pointer(&mem[page+bytes])),
	}
}

// last returns the n elements just below the upper guard page, first the n elements just above the
// lower one.
func (a *arena[T]) last(n int) []T  { return a.mem[len(a.mem)-n:] }
func (a *arena[T]) first(n int) []T { return a.mem[:n:n] }

// start returns the address of s, a part of the arena. For an empty s, which must not be read, it
// returns the address of a guard page.
func (a *arena[T]) start(s []T) *T {
	if len(s) == 0 {
		return a.guard
	}
	return &s[0]
}

// faults runs f and returns its memory fault, or nil.
func faults(f func()) (fault any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() }()
	f()
	return nil
}

// TestGuardPagesFault checks that guard pages detect writes outside an arena.
func TestGuardPagesFault(t *testing.T) {
	a := newArena[float32](t, 8)
	for _, c := range []struct {
		where string
		at    unsafe.Pointer
	}{
		{"after", unsafe.Add(unsafe.Pointer(&a.last(1)[0]), 4)},
		{"before", unsafe.Add(unsafe.Pointer(&a.first(1)[0]), -4)},
	} {
		if faults(func() { *(*float32)(c.at) = 1 }) == nil {
			t.Errorf("a write just %s the arena does not fault", c.where)
		}
	}
}
