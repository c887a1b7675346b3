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

// require skips a test of an instruction set that this processor lacks, or fails
// it where TILEWORK_REQUIRE_ISA, a comma-separated list, names it.
func require(tb testing.TB, isa ISA) {
	tb.Helper()
	if isa.Supported && (isa != AMX || AllowTiles()) {
		return
	}
	const variable = "TILEWORK_REQUIRE_ISA"
	for name := range strings.SplitSeq(os.Getenv(variable), ",") {
		if strings.TrimSpace(name) == isa.Name {
			tb.Fatalf("this processor has no %s, which %s requires", isa.Name, variable)
		}
	}
	tb.Skipf("this processor has no %s", isa.Name)
}

// arena is memory between two pages that must not be touched.
type arena[T any] struct {
	mem   []T
	guard *T // the first element of the upper page
}

// newArena has room for at least n elements.
func newArena[T any](t *testing.T, n int) *arena[T] {
	t.Helper()
	page, size := unix.Getpagesize(), int(unsafe.Sizeof(*new(T)))
	bytes := (n*size + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, bytes+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("no memory for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	for _, guard := range [][]byte{mem[:page], mem[page+bytes:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("no guard page: %v", err)
		}
	}
	return &arena[T]{
		mem:   unsafe.Slice((*T)(unsafe.Pointer(&mem[page])), bytes/size),
		guard: (*T)(unsafe.Pointer(&mem[page+bytes])),
	}
}

// last and first are n elements, right before the upper guard page and right
// after the lower one.
func (a *arena[T]) last(n int) []T  { return a.mem[len(a.mem)-n:] }
func (a *arena[T]) first(n int) []T { return a.mem[:n:n] }

// start points to s, a part of the arena, or where s is empty, and so must not be
// read, to a guard page.
func (a *arena[T]) start(s []T) *T {
	if len(s) == 0 {
		return a.guard
	}
	return &s[0]
}

// faults is the memory fault that f dies of, or nil.
func faults(f func()) (fault any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() }()
	f()
	return nil
}

// TestFaultIsFound shows that the guard pages find what they are for.
func TestFaultIsFound(t *testing.T) {
	a := newArena[float32](t, 8)
	for _, c := range []struct {
		where string
		at    unsafe.Pointer
	}{
		{"after", unsafe.Add(unsafe.Pointer(&a.last(1)[0]), 4)},
		{"before", unsafe.Add(unsafe.Pointer(&a.first(1)[0]), -4)},
	} {
		if faults(func() { *(*float32)(c.at) = 1 }) == nil {
			t.Errorf("a write right %s the arena is not found", c.where)
		}
	}
}
