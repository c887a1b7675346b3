package emu

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Errors of a [Memory].
var (
	ErrOutOfMemory = errors.New("out of device memory")
	ErrAddress     = errors.New("invalid device address")
)

const (
	// allocAlign is the alignment of allocations in bytes, the same as that of cuMemAlloc.
	allocAlign = 256
	// guardGap is the number of unmapped bytes between allocations. An index that is slightly too
	// large then faults instead of reaching the next allocation.
	guardGap = 1 << 16

	firstAddress = 0x7f_0000_0000
	lastAddress  = 1 << 47
	defaultLimit = 16 << 30
	// maxAllocs is the maximum number of allocations that are not freed, besides variables. Free
	// copies the list of all.
	maxAllocs = 1 << 16
	// keptFreed is the number of freed allocations to remember for error messages.
	keptFreed = 1024
)

// Memory is the global memory of an emulated GPU: allocations in one 64-bit address space.
// Addresses are never reused, so uses of freed memory are detected. All methods are safe for
// concurrent use.
type Memory struct {
	limit int64
	track bool
	room  room

	mu     sync.Mutex
	used   int64
	allocs int // not freed, without variables
	next   uint64
	// live and freed are sorted by base. Elements are added after the end of live, which is otherwise
	// replaced, never modified, so running warps look up addresses without a lock.
	live, freed atomic.Pointer[[]*Allocation]
	modules     map[*Program]*moduleData
}

// MemoryOptions configures a Memory.
type MemoryOptions struct {
	// Limit is the maximum number of allocated bytes. 0 means 16 GiB.
	Limit int64
	// Room is called before the memory and its launches take bytes of the host's memory. An error
	// refuses them. The name describes the data. A nil Room never refuses.
	Room func(bytes int, name string) error
	// TrackWrites records which bytes the host or a kernel has written, for [Allocation.Unwritten].
	// It needs one extra bit per byte.
	TrackWrites bool
}

// NewMemory returns an empty memory.
func NewMemory(o MemoryOptions) *Memory {
	if o.Limit <= 0 {
		o.Limit = defaultLimit
	}
	m := &Memory{limit: o.Limit, track: o.TrackWrites, room: room{request: o.Room}, next: firstAddress,
		modules: map[*Program]*moduleData{}}
	m.live.Store(new([]*Allocation))
	m.freed.Store(new([]*Allocation))
	return m
}

// Allocation is an allocated range of device memory.
type Allocation struct {
	Base uint64
	Size int
	// Name is the variable in the allocation, or empty for memory from [Memory.Alloc].
	Name string
	// ReadOnly is set if kernels cannot write to it, as for variables in .const.
	ReadOnly bool

	words []uint64 // uint64 for alignment
	// written has a bit for each byte that was written, and unwritten is the number of the others.
	// written is nil if writes are not tracked.
	written   []atomic.Uint64
	unwritten atomic.Int64
}

// Alloc allocates n bytes and returns their address, a nonzero multiple of 256. Their content is
// undefined in CUDA and all ones here. An allocation of 0 bytes also has a unique address.
//
// The error wraps ErrOutOfMemory.
func (m *Memory) Alloc(n int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(n); err != nil {
		return 0, err
	}
	if m.allocs >= maxAllocs {
		return 0, fmt.Errorf("allocation of %d bytes: there are %d allocations, want at most %d: %w", n, m.allocs, maxAllocs,
			ErrOutOfMemory)
	}
	a := m.alloc(n, "")
	m.allocs++
	m.add(a)
	return a.Base, nil
}

// check returns an error if there is no memory for n more bytes. m.mu must be held.
func (m *Memory) check(n int) error {
	var err error
	if n < 0 || int64(n) > m.limit-m.used || uint64(n) > lastAddress-guardGap-allocAlign-m.next {
		err = fmt.Errorf("%d of %d bytes are in use: %w", m.used, m.limit, ErrOutOfMemory)
	} else {
		err = m.room.take(float64(n)*9/8, "the emulated memory") // with a bit for each byte
	}
	if err != nil {
		return fmt.Errorf("allocation of %d bytes: %w", n, err)
	}
	return nil
}

// alloc returns a new allocation for add, after check has returned nil. m.mu must be held.
func (m *Memory) alloc(n int, name string) *Allocation {
	a := &Allocation{Base: m.next, Size: n, Name: name, words: make([]uint64, max((n+7)/8, 1))}
	poison(a.words)
	if m.track {
		a.written = make([]atomic.Uint64, n/64+1)
		a.unwritten.Store(int64(n))
	}
	m.next = (m.next + uint64(n) + guardGap + allocAlign - 1) &^ (allocAlign - 1)
	m.used += int64(n)
	return a
}

// add makes new allocations visible to kernels. m.mu must be held. The list remains sorted, as
// addresses increase.
func (m *Memory) add(list ...*Allocation) {
	live := append(*m.live.Load(), list...)
	m.live.Store(&live)
}

// Free frees an allocation. The error wraps ErrAddress unless Alloc returned addr. Freeing address
// 0 has no effect.
func (m *Memory) Free(addr uint64) error {
	if addr == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.live.Load()
	i, ok := slices.BinarySearchFunc(old, addr, compareBase)
	if !ok || old[i].Name != "" {
		return fmt.Errorf("free of %#x: %s: %w", addr, m.describe(addr, 1), ErrAddress)
	}
	m.used -= int64(old[i].Size)
	m.allocs--
	freed := append(slices.Clone(*m.freed.Load()), &Allocation{Base: addr, Size: old[i].Size})
	slices.SortFunc(freed, func(a, b *Allocation) int { return compareBase(a, b.Base) })
	if len(freed) > keptFreed {
		freed = freed[len(freed)-keptFreed:]
	}
	live := slices.Delete(slices.Clone(old), i, i+1)
	m.freed.Store(&freed)
	m.live.Store(&live)
	return nil
}

// Used returns the number of allocated bytes.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Write copies b to the memory at addr. The error wraps ErrAddress unless the whole range is in one
// allocation.
func (m *Memory) Write(addr uint64, b []byte) error {
	a, off, err := m.span("write", addr, len(b))
	if err != nil {
		return err
	}
	copy(a.bytes()[off:], b)
	a.mark(off, len(b))
	return nil
}

// Fill sets n bytes at addr to v. It returns the same errors as Write.
func (m *Memory) Fill(addr uint64, v byte, n int) error {
	a, off, err := m.span("fill", addr, n)
	if err != nil {
		return err
	}
	b := a.bytes()[off : off+n]
	for i := range b {
		b[i] = v
	}
	a.mark(off, n)
	return nil
}

// Read copies the memory at addr to b. It returns the same errors as Write.
func (m *Memory) Read(addr uint64, b []byte) error {
	a, off, err := m.span("read", addr, len(b))
	if err != nil {
		return err
	}
	copy(b, a.bytes()[off:])
	return nil
}

// Written reports whether the host or kernels have written all of n bytes at addr. It returns true
// if writes are not tracked.
func (m *Memory) Written(addr uint64, n int) bool {
	a := m.find(addr)
	return a != nil && a.Unwritten(addr, n) < 0
}

func (m *Memory) span(what string, addr uint64, n int) (*Allocation, int, error) {
	if n == 0 {
		return &Allocation{}, 0, nil
	}
	if a := m.find(addr); n > 0 && a != nil && uint64(n) <= uint64(a.Size)-(addr-a.Base) {
		return a, int(addr - a.Base), nil
	}
	return nil, 0, fmt.Errorf("%s of %d bytes at %#x: %s: %w", what, n, addr, m.describe(addr, n), ErrAddress)
}

// find returns the allocation that contains addr, or nil.
func (m *Memory) find(addr uint64) *Allocation {
	return findIn(*m.live.Load(), addr)
}

func findIn(sorted []*Allocation, addr uint64) *Allocation {
	i, ok := slices.BinarySearchFunc(sorted, addr, compareBase)
	if !ok {
		i--
	}
	if i >= 0 && addr-sorted[i].Base < uint64(sorted[i].Size) {
		return sorted[i]
	}
	return nil
}

func compareBase(a *Allocation, addr uint64) int {
	switch {
	case a.Base < addr:
		return -1
	case a.Base > addr:
		return 1
	}
	return 0
}

// describe describes the location of n bytes at addr relative to the nearest allocation.
func (m *Memory) describe(addr uint64, n int) string {
	if a := findIn(*m.freed.Load(), addr); a != nil {
		return fmt.Sprintf("in %v, which was freed", a)
	}
	var near *Allocation
	best := ^uint64(0)
	for _, a := range *m.live.Load() {
		if d := a.distance(addr); d < best {
			near, best = a, d
		}
	}
	switch {
	case near == nil:
		return "nothing is allocated"
	case best == 0:
		over := addr - near.Base + uint64(n) - uint64(near.Size)
		return fmt.Sprintf("it extends %s past the end of %v", bytesText(over), near)
	case best > guardGap:
		return "near no allocation"
	case addr < near.Base:
		return fmt.Sprintf("%s before %v", bytesText(best), near)
	}
	if best == 1 {
		return fmt.Sprintf("just past the end of %v", near)
	}
	return fmt.Sprintf("%s past the end of %v", bytesText(best-1), near)
}

// distance returns the distance of addr from the nearest byte of a, or 0 for an address in a.
func (a *Allocation) distance(addr uint64) uint64 {
	switch {
	case addr < a.Base:
		return a.Base - addr
	case addr-a.Base < uint64(a.Size):
		return 0
	}
	return addr - a.Base - uint64(a.Size) + 1
}

// String returns a description of a: "the allocation of 1,024 bytes at 0x7f00000000".
func (a *Allocation) String() string {
	what := "the allocation"
	if a.Name != "" {
		what = a.Name
	}
	return fmt.Sprintf("%s of %s at %#x", what, bytesText(uint64(a.Size)), a.Base)
}

// bytesText formats a number of bytes: "1 byte", "1,024 bytes".
func bytesText(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n == 1 {
		return s + " byte"
	}
	return s + " bytes"
}

// Unwritten returns the offset from addr of the first of n bytes that neither the host nor a kernel
// has written. It returns -1 if all have been written or writes are not tracked. The bytes must be
// in a.
func (a *Allocation) Unwritten(addr uint64, n int) int {
	if a.written == nil {
		return -1
	}
	off := int(addr - a.Base)
	for at := off; at < off+n; {
		word, from, mask := bitsOf(at, off+n-at)
		if missing := mask &^ a.written[word].Load(); missing != 0 {
			return at + bits.TrailingZeros64(missing) - from - off
		}
		at += 64 - from
	}
	return -1
}

// partial reports whether some bytes of a were not written.
func (a *Allocation) partial() bool { return a.written != nil && a.unwritten.Load() > 0 }

// mark records that n bytes were written. It is safe for concurrent use.
func (a *Allocation) mark(off, n int) {
	if a.written == nil {
		return
	}
	for at := off; at < off+n; {
		word, from, mask := bitsOf(at, off+n-at)
		if w := &a.written[word]; w.Load()&mask != mask {
			a.unwritten.Add(-int64(bits.OnesCount64(mask &^ w.Or(mask))))
		}
		at += 64 - from
	}
}

// bitsOf locates the bits of n bytes in Allocation.written, starting at byte at. It returns the
// index of the first word, the number of the first bit in this word, and the mask of all of the
// bytes' bits in this word.
func bitsOf(at, n int) (word, from int, mask uint64) {
	from = at % 64
	return at / 64, from, ^uint64(0) >> (64 - min(n, 64-from)) << from
}

func (a *Allocation) bytes() []byte {
	if a.words == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&a.words[0])), a.Size)
}
