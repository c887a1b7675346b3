package emu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestMemory(t *testing.T) {
	m := NewMemory(MemoryOptions{Limit: 1000, TrackWrites: true})
	a, err := m.Alloc(600)
	if err != nil || a == 0 || a%256 != 0 {
		t.Fatalf("address %#x, %v", a, err)
	}
	if _, err := m.Alloc(401); !errors.Is(err, ErrOutOfMemory) || m.Used() != 600 {
		t.Errorf("got %v with %d bytes in use", err, m.Used())
	}
	b, err := m.Alloc(400)
	if err != nil || b-a < 600+guardGap {
		t.Errorf("address %#x after %#x: %v", b, a, err)
	}
	if err := m.Write(a+10, []byte("hello")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 7)
	if err := m.Read(a+9, got); err != nil || !bytes.Equal(got, []byte("\xffhello\xff")) {
		t.Errorf("read %q, %v", got, err)
	}
	alloc := m.find(a)
	if n := alloc.Unwritten(a+9, 7); n != 0 {
		t.Errorf("first unwritten byte is %d, want 0", n)
	}
	if n := alloc.Unwritten(a+10, 6); n != 5 {
		t.Errorf("first unwritten byte is %d, want 5", n)
	}
	if err := m.Fill(a+9, 'x', 7); err != nil || alloc.Unwritten(a+9, 7) != -1 {
		t.Errorf("after a fill: %v", err)
	}
	for _, n := range []int{-1, math.MaxInt} {
		if _, err := m.Alloc(n); !errors.Is(err, ErrOutOfMemory) {
			t.Errorf("allocation of %d bytes: %v", n, err)
		}
	}
	for _, c := range []struct {
		addr uint64
		n    int
		want string
	}{
		{a + 599, 2, "it extends 1 byte past the end of the allocation of 600 bytes"},
		{a + 600, 4, "just past the end of the allocation of 600 bytes"},
		{a + 604, 4, "4 bytes past the end of the allocation of 600 bytes"},
		{a - 8, 4, "8 bytes before the allocation of 600 bytes"},
		{12, 4, "near no allocation"},
	} {
		if err := m.Read(c.addr, make([]byte, c.n)); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if err := m.Free(a + 256); !errors.Is(err, ErrAddress) {
		t.Errorf("free within an allocation: %v", err)
	}
	if err := m.Free(a); err != nil || m.Used() != 400 {
		t.Errorf("free: %v, %d bytes in use", err, m.Used())
	}
	if err := m.Free(a); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), "which was freed") {
		t.Errorf("second free: %v", err)
	}
	if err := m.Write(a, []byte{1}); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), "which was freed") {
		t.Errorf("write after free: %v", err)
	}
	if err := m.Free(0); err != nil {
		t.Error(err)
	}
	if c, err := m.Alloc(0); err != nil || c == b {
		t.Errorf("allocation of 0 bytes: address %#x, %v", c, err)
	}
}

// TestFaults has kernels with invalid accesses. buf has 64 words.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		body, want string
		kind       FaultKind
	}{
		{"mad.wide.u32 %p, %t0, 4, %buf; ld.global.u32 %v, [%p+140];",
			"thread (29,0,0) of block (0,0,0): read of 4 bytes at global address 0x7f00000100: just past the end of the " +
				"allocation of 256 bytes", OutOfBounds},
		{"mad.wide.u32 %p, %t0, 8, %buf; st.global.u64 [%p+8], %p;", "thread (31,0,0)", OutOfBounds},
		{"ld.global.u32 %v, [%buf+252];", "", 0},
		{"ld.global.v2.u32 {%v, %v}, [%buf+4];", "must be a multiple of 8 bytes", Misaligned},
		{"ld.global.u32 %v, [%buf+254];", "it extends 2 bytes past the end", OutOfBounds},
		{"ld.global.u32 %v, [%buf-4];", "4 bytes before the allocation", OutOfBounds},
		{"add.u64 %p, %buf, 2; st.u32 [%p], %v;", "write of 4 bytes at global address 0x7f00000002: the address must be a " +
			"multiple of 4 bytes", Misaligned},
		{"atom.global.add.u32 %v, [%buf+256], %v;", "atomic access of 4 bytes", OutOfBounds},
		{".shared .b32 s[4]; mov.u32 %v, s; st.shared.u32 [%v+16], %v;",
			"shared address 0x10: not in the 16 bytes of the block's shared memory", OutOfBounds},
		{".local .b32 m[4]; mov.u64 %p, m; st.local.u32 [%p+64], %v;",
			"local address 0x40: not in the 16 bytes of the thread's local memory", OutOfBounds},
		{".shared .b32 s[4]; mov.u64 %p, s; cvta.shared.u64 %p, %p; ld.u64 %p, [%p+4];",
			"shared address 0x4: the address must be a multiple of 8", Misaligned},
		{"mov.u64 %p, 0; ld.global.u8 %v, [%p];", "a null pointer and an offset of 0 bytes", NullPointer},
		{"mov.u64 %p, -8; ld.global.u8 %v, [%p];", "a null pointer and an offset of -8 bytes", NullPointer},
		{"mov.u64 %p, 0x100000; ld.global.u8 %v, [%p];", "near no allocation", OutOfBounds},
		{"mov.u64 %p, table; cvta.const.u64 %p, %p; st.u32 [%p], %v;", "the memory is read-only", ReadOnly},
		{".shared .align 16 .b8 s[32]; mov.u64 %p, s; cp.async.ca.shared.global [%p], [%buf+256], 4;",
			"asynchronous read of 4 bytes", OutOfBounds},
		{".shared .align 16 .b8 s[32]; mov.u64 %p, s; cp.async.ca.shared.global [%p+30], [%buf], 4;",
			"asynchronous write of 4 bytes at shared address 0x1e", OutOfBounds},
	} {
		text := ".reg .b32 %v; mov.u32 %v, 7;" + c.body
		program := strings.Replace(kernelSource(text), ".visible", ".const .b32 table[2] = {1, 2};\n.visible", 1)
		p := loadText(t, "k.ptx", program)
		mem := NewMemory(MemoryOptions{})
		addr := upload(t, mem, make([]uint32, 64))
		_, err := runKernel(t, p, "k", mem, Launch{Block: Dim3{32, 1, 1}}, addr)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		var f *Fault
		if !errors.As(err, &f) || !errors.Is(err, ErrAccess) || f.Kind != c.kind || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), "k.ptx:12:") {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		}
		// An observer can make the launch continue after faults.
		faults := 0
		watch := observer(func() *Hooks {
			return &Hooks{Fault: func(g *Fault) bool { faults++; return g.Kind == c.kind }}
		})
		if _, err := runKernel(t, p, "k", mem, Launch{Block: Dim3{32, 1, 1}, Observers: []Observer{watch}},
			addr); err != nil || faults != 1 {
			t.Errorf("%s: %v, %d faults", c.body, err, faults)
		}
	}
}

// TestFirstFaultWins checks that the error is that of the first failed block, with several workers.
func TestFirstFaultWins(t *testing.T) {
	body := `.reg .b32 %v; .reg .pred %q;
	mov.u32 %v, %ctaid.x;
	setp.lt.u32 %q, %v, 20;
	@%q bra DONE;
	mad.wide.u32 %p, %v, 4, %buf;
	ld.global.u32 %v, [%p];
DONE:`
	for range 10 {
		_, _, err := runBody(t, body, make([]uint32, 8), Launch{Grid: Dim3{60, 1, 1}, Block: Dim3{32, 1, 1}, Workers: 4})
		if err == nil || !strings.Contains(err.Error(), "of block (20,0,0)") {
			t.Fatalf("got %v, want the fault of block 20", err)
		}
	}
}

// TestTrackWrites checks the bytes that a kernel is recorded to have written.
func TestTrackWrites(t *testing.T) {
	p := loadText(t, "k.ptx", kernelSource(`.reg .b32 %v; .reg .pred %q; .shared .align 16 .b8 s[16]; .reg .b64 %s;
	mov.u64 %s, s;
	setp.eq.u32 %q, %t0, 3;
	@%q st.global.u16 [%buf+6], %v;
	@%q red.global.add.u32 [%buf+12], 1;
	@%q st.global.v2.u32 [%buf+16], {%v, %v};`))
	mem := NewMemory(MemoryOptions{TrackWrites: true})
	addr, err := mem.Alloc(32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runKernel(t, p, "k", mem, Launch{Block: Dim3{32, 1, 1}}, addr); err != nil {
		t.Fatal(err)
	}
	var written []string
	for i := range 32 {
		if mem.find(addr).Unwritten(addr+uint64(i), 1) < 0 {
			written = append(written, fmt.Sprint(i))
		}
	}
	if got, want := strings.Join(written, " "), "6 7 12 13 14 15 16 17 18 19 20 21 22 23"; got != want {
		t.Errorf("written: %s, want %s", got, want)
	}
}

// TestGenericAddressing accesses all memory spaces by generic addresses in one instruction.
func TestGenericAddressing(t *testing.T) {
	body := `.reg .b32 %v, %k; .reg .b64 %g, %l, %s; .reg .pred %q, %in;
	.shared .b32 s[2]; .local .b32 m[2];
	mov.u64 %s, s; mov.u64 %l, m;
	st.shared.u32 [%s+4], 11;
	st.local.u32 [%l+4], %t0;
	cvta.shared.u64 %s, %s; cvta.local.u64 %l, %l;
	mov.u64 %g, %buf;
	and.b32 %k, %t0, 3;
	setp.eq.u32 %q, %k, 1; @%q mov.u64 %g, %s;
	setp.eq.u32 %q, %k, 2; @%q mov.u64 %g, %l;
	setp.eq.u32 %q, %k, 3; @%q mov.u64 %g, table;
	ld.u32 %v, [%g+4];
	isspacep.shared %in, %g; @%in add.u32 %v, %v, 1000;
	isspacep.local %in, %g; @%in add.u32 %v, %v, 2000;
	isspacep.const %in, %g; @%in add.u32 %v, %v, 3000;
	isspacep.global %in, %g; @%in add.u32 %v, %v, 4000;
	mad.wide.u32 %p, %t0, 4, %buf;
	st.global.u32 [%p+64], %v;`
	p := loadText(t, "k.ptx", strings.Replace(kernelSource(body), ".visible", ".const .b32 table[2] = {1, 22};\n.visible",
		1))
	mem := NewMemory(MemoryOptions{})
	words := make([]uint32, 48)
	words[1] = 33
	addr := upload(t, mem, words)
	if _, err := runKernel(t, p, "k", mem, Launch{Block: Dim3{32, 1, 1}}, addr); err != nil {
		t.Fatal(err)
	}
	download(t, mem, addr, words)
	for i, v := range words[16:] {
		if want := []uint32{4033, 1011, 2000 + uint32(i), 3022}[i&3]; v != want {
			t.Errorf("thread %d has %d, want %d", i, v, want)
		}
	}
}

// TestModuleVariables checks initial values, and that variables keep their values between launches
// with the same memory.
func TestModuleVariables(t *testing.T) {
	p := loadText(t, "k.ptx", `.version 8.0
.target sm_90
.address_size 64
.global .align 8 .b32 grid[2][3] = {{1, 2}, {4, 5, 6}};
.const .u16 pairs[2] = {7, 65535};
.global .u8 bytes[4] = {0xFF(grid), 0xFF00(grid), 3};
.global .u64 where = grid+8;
.global .f32 f = 0f3FC00000;
.global .u64 gen = generic(grid);
.entry k () {
	.reg .b32 %r;
	ld.global.u32 %r, [grid];
	add.u32 %r, %r, 1;
	st.global.u32 [grid], %r;
	ret;
}
`)
	mem := NewMemory(MemoryOptions{})
	read := func(name string, want int) []byte {
		addr, size, err := mem.Global(p, name)
		if err != nil || size != want {
			t.Fatalf("%s: %d bytes, %v", name, size, err)
		}
		b := make([]byte, size)
		if err := mem.Read(addr, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	base, _, _ := mem.Global(p, "grid")
	if got := read("grid", 24); !bytes.Equal(got, []byte{1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0,
		0, 0}) {
		t.Errorf("grid contains % x", got)
	}
	if got := read("pairs", 4); !bytes.Equal(got, []byte{7, 0, 255, 255}) {
		t.Errorf("pairs contains % x", got)
	}
	if got := read("bytes", 4); !bytes.Equal(got, []byte{byte(base), byte(base >> 8), 3, 0}) {
		t.Errorf("bytes contains % x: want parts of address %#x", got, base)
	}
	if got := read("where", 8); got[0] != byte(base)+8 || got[1] != byte(base>>8) || got[4] != byte(base>>32) {
		t.Errorf("where contains % x", got)
	}
	if got := read("f", 4); !bytes.Equal(got, []byte{0, 0, 0xc0, 0x3f}) {
		t.Errorf("f contains % x", got)
	}
	for range 3 {
		if _, err := runKernel(t, p, "k", mem, Launch{Block: Dim3{1, 1, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := read("grid", 24); got[0] != 4 {
		t.Errorf("grid[0] is %d after three launches, want 4", got[0])
	}
	if _, _, err := mem.Global(p, "nothing"); !errors.Is(err, ErrAddress) {
		t.Errorf("got %v for an unknown variable, want ErrAddress", err)
	}
}
