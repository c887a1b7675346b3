package emu

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tilework/internal/testkit"
	"tilework/ptx"
)

const limitsHeader = ".version 8.8\n.target sm_90a\n.address_size 64\n"

// launchLimited runs kernel k of a module without parameters, in a memory with the given room.
func launchLimited(t *testing.T, text string, l Launch, room func(int, string) error) error {
	t.Helper()
	p := loadText(t, "k.ptx", limitsHeader+text)
	l.Entry = "k"
	for _, d := range []*Dim3{&l.Grid, &l.Block} {
		if *d == (Dim3{}) {
			*d = Dim3{1, 1, 1}
		}
	}
	_, err := p.Run(context.Background(), NewMemory(MemoryOptions{Room: room}), l)
	return err
}

// TestCallDepth calls functions without variables, in a recursion and in a chain. Each call takes
// local memory, so that a recursion ends with the line of the call. One below the limit returns.
func TestCallDepth(t *testing.T) {
	recursion := func(depth int) string {
		return fmt.Sprintf(`.func f(.reg .b32 n) {
	.reg .pred %%p;
	.reg .b32 %%m;
	setp.eq.u32 %%p, n, 0;
	@%%p ret;
	sub.u32 %%m, n, 1;
	call.uni f, (%%m);
	ret; }
.entry k() { call.uni f, (%d); ret; }`, depth)
	}
	const deepest = stackSize / localAlign
	for depth, want := range map[int]error{deepest: nil, deepest + 1: ErrMisuse, 1e9: ErrMisuse} {
		err := launchLimited(t, recursion(depth), Launch{Block: Dim3{64, 1, 1}}, nil)
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "k.ptx:10:2: call.uni: warp 0 of block "+
			"(0,0,0): nested calls exceed the 16,400 bytes of local memory per thread") {
			t.Errorf("depth %d: %v, want %v", depth, err, want)
		}
	}
	chain := func(length int) string {
		b := new(strings.Builder)
		b.WriteString(".func f0() { ret; }\n")
		for n := 1; n < length; n++ {
			fmt.Fprintf(b, ".func f%d() { call.uni f%d; ret; }\n", n, n-1)
		}
		fmt.Fprintf(b, ".entry k() { call.uni f%d; ret; }", length-1)
		return b.String()
	}
	const longest = maxLocal / localAlign
	for length, want := range map[int]error{longest: nil, longest + 1: ErrLaunch} {
		if err := launchLimited(t, chain(length), Launch{}, nil); !errors.Is(err, want) {
			t.Errorf("%d functions: %v, want %v", length, err, want)
		}
	}
}

// TestRoom checks that launches ask for the host's memory before they take it, and that a refusal
// names the line of a call.
func TestRoom(t *testing.T) {
	refused := errors.New("refused")
	globals := strings.Repeat(".global .b8 v#[2000000000];\n", 8)
	for n := range 8 {
		globals = strings.Replace(globals, "#", fmt.Sprint(n), 1)
	}
	for _, c := range []struct {
		name, text string
		launch     Launch
		asked      string // the name of the data that is refused
		bytes      int64  // to ask for, at least
		want       string
	}{
		{"variables", globals + ".entry k() { ret; }", Launch{}, "the emulated memory", 16e9,
			"k: variables of the module: allocation of 16000000000 bytes: "},
		{"local memory", ".entry k() { .local .b8 v[500000]; .reg .b64 %r; mov.u64 %r, v; ret; }",
			Launch{Block: Dim3{1024, 1, 1}, Grid: Dim3{4, 1, 1}, Workers: 4}, "the launch", 4 * 1024 * 500000, "k: "},
		{"shared memory", ".extern .shared .b8 s[]; .entry k() { ret; }",
			Launch{Shared: 200 << 10, Grid: Dim3{8, 1, 1}, Workers: 8}, "the launch", 8 * 200 << 10, "k: "},
		{"registers", ".entry k() {" + registers(5000) + "ret; }", Launch{Block: Dim3{1024, 1, 1}}, "the launch",
			32 * 5000 * 256, "k: "},
		{"cooperative launch", ".entry k() { .reg .b32 %r; mov.u32 %r, %envreg1; ret; }",
			Launch{Grid: Dim3{maxResident, 1, 1}}, "the launch", maxResident * 10000, "k: "},
		{"registers of calls", ".func f() {" + registers(500) + "\ncall.uni f; ret; }\n.entry k() { call.uni f; ret; }",
			Launch{}, "the registers of nested calls", 500 * 256,
			"k.ptx:6:14: call.uni: warp 0 of block (0,0,0): "},
	} {
		room := func(bytes int, name string) error {
			if name != c.asked {
				return nil
			}
			if int64(bytes) < c.bytes {
				t.Errorf("%s: asked for %d bytes, want at least %d", c.name, bytes, c.bytes)
			}
			return refused
		}
		err := launchLimited(t, c.text, c.launch, room)
		if !errors.Is(err, refused) || !errors.Is(err, ErrOutOfMemory) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q and a refusal", c.name, err, c.want)
		}
	}
}

// registers returns declarations and uses of n registers of 64 bits.
func registers(n int) string {
	b := new(strings.Builder)
	fmt.Fprintf(b, ".reg .b64 %%r<%d>;", n)
	for k := range n {
		fmt.Fprintf(b, "mov.u64 %%r%d, 0;", k)
	}
	return b.String()
}

// TestRoomOfSmallAllocations checks that small allocations are requested together.
func TestRoomOfSmallAllocations(t *testing.T) {
	asked := 0
	m := NewMemory(MemoryOptions{Room: func(n int, _ string) error { asked += n; return nil }})
	const size, count = 32 << 10, 5000
	for range count {
		if _, err := m.Alloc(size); err != nil {
			t.Fatal(err)
		}
	}
	if asked < size*count-batchBytes || asked > 2*size*count {
		t.Errorf("asked for %d bytes, want about %d", asked, size*count)
	}
}

// TestAllocations checks the limit of allocations, and that freed ones do not count.
func TestAllocations(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	var last uint64
	for range maxAllocs {
		var err error
		if last, err = m.Alloc(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Alloc(1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("one more allocation: %v, want %v", err, ErrOutOfMemory)
	}
	if err := m.Free(last); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Alloc(1); err != nil {
		t.Errorf("after Free: %v", err)
	}
}

// TestEndlessWork runs loops that would take more and more memory. Each ends with the line.
func TestEndlessWork(t *testing.T) {
	printing := `.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .b8 text[] = {37, 49, 48, 48, 48, 48, 48, 48, 100, 0}; // %1000000d
.entry k() { .reg .b64 %f; .reg .b32 %r; mov.u64 %f, text; LOOP: call (%r), vprintf, (%f, %f); bra LOOP; }`
	copies := `.global .align 16 .b8 g[16];
.entry k() { .shared .align 16 .b8 s[16];
LOOP: cp.async.ca.shared.global [s], [g], 16; bra LOOP; }`
	bulk := `.global .align 16 .b8 g[16];
.entry k() { .shared .align 16 .b8 s[16];
LOOP: cp.async.bulk.global.shared::cta.bulk_group [g], [s], 16; bra LOOP; }`
	for text, want := range map[string]string{
		printing: "k.ptx:6:66: call: warp 0 of block (0,0,0): vprintf prints more than 67,108,864 bytes in a launch",
		copies: "k.ptx:6:7: cp.async.ca.shared.global: warp 0 of block (0,0,0): the warp has started 16384 operations " +
			"without a wait",
		bulk: "k.ptx:6:7: cp.async.bulk.global.shared::cta.bulk_group: warp 0 of block (0,0,0): the warp has started " +
			"16384 operations without a wait",
	} {
		err := launchLimited(t, text, Launch{MaxInstructions: 1e7}, nil)
		if !errors.Is(err, ErrMisuse) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLongConversion prints with conversions of many digits, which C's printf would need the time
// of their square for.
func TestLongConversion(t *testing.T) {
	var out strings.Builder
	err := launchLimited(t, `.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .b8 text[] = {37`+strings.Repeat(", 49", 40000)+`, 0};
.entry k() { .reg .b64 %f; .reg .b32 %r; mov.u64 %f, text; call (%r), vprintf, (%f, %f); ret; }`,
		Launch{Printf: &out}, nil)
	if want := "%" + strings.Repeat("1", 40000); err != nil || out.String() != want {
		t.Errorf("%d bytes, %v, want %d", out.Len(), err, len(want))
	}
}

// TestHugeGrid runs grids whose number of threads overflows 64 bits, also of a kernel that waits
// for the whole grid.
func TestHugeGrid(t *testing.T) {
	for _, body := range []string{"ret;", ".reg .b32 %r; mov.u32 %r, %envreg1; ret;"} {
		err := launchLimited(t, ".entry k() {"+body+"}",
			Launch{Grid: Dim3{maxGridX, maxGridYZ, maxGridYZ}, Block: Dim3{1024, 1, 1}, MaxInstructions: 1000}, nil)
		if !errors.Is(err, ErrBudget) {
			t.Errorf("%s: %v, want %v", body, err, ErrBudget)
		}
	}
}

// TestRefusedSizes checks that Load refuses kernels of absurd sizes.
func TestRefusedSizes(t *testing.T) {
	nested := new(strings.Builder)
	for n := range 400 {
		fmt.Fprintf(nested, "L%d: ", n)
	}
	for n := 399; n >= 0; n-- {
		fmt.Fprintf(nested, "mov.u32 %%r, 0; @%%p bra L%d;\n", n)
	}
	loops := new(strings.Builder)
	for n := range 2000 {
		fmt.Fprintf(loops, "L%d: mov.u32 %%r, 0;\n", n)
	}
	for n := 1999; n >= 0; n-- {
		fmt.Fprintf(loops, "@%%p bra L%d;\n", n)
	}
	indirect := new(strings.Builder)
	for n := range 1100 {
		fmt.Fprintf(indirect, ".func f%d() { ret; }\n", n)
	}
	indirect.WriteString(".global .u64 t[] = { f0")
	for n := range 1100 {
		fmt.Fprintf(indirect, ", f%d", n)
	}
	indirect.WriteString("};\n.entry k() { .reg .b64 %r; P: .callprototype _ ();\n" +
		strings.Repeat("call %r, P;\n", 1000) + "ret; }")
	declare := ".entry k() { .reg .b32 %r; .reg .pred %p;\n"
	for text, want := range map[string]string{
		declare + nested.String() + "ret; }": "",
		declare + loops.String() + "ret; }": "4:1: emulator: k: a function of more than 1048576 basic blocks, " +
			"or with loops nested more than 64 deep",
		".entry k(.param .align 1073741824 .b8 a[1], .param .align 1073741824 .b8 b[1]) { ret; }": "4:1: emulator: k: " +
			"1073741825 bytes of parameters, more than 32764, is not supported",
		declare + "T: .branchtargets " + strings.Repeat("L, ", 2000) + "L;\nL:\n" +
			strings.Repeat("brx.idx %r, T;\n", 600) + "ret; }": "531:1: brx.idx: more than 1048576 targets in the lists of " +
			"all instructions are not supported",
		declare + "add" + strings.Repeat(".f32", 65) + " %r, %r, %r; ret; }": "5:1: add has more than 64 modifiers",
		indirect.String(): "a program whose indirect calls have more than 1048576 operands",
	} {
		m, err := ptx.Parse("", limitsHeader+text)
		if err == nil {
			_, err = Load(m)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLoadIsLinear loads modules that repeat one statement. The allocated memory must grow with the
// length of the text.
func TestLoadIsLinear(t *testing.T) {
	const entry = ".entry k() { .reg .b32 %r<9>; .reg .pred %p; .reg .b64 %q; L: T: .branchtargets L;\n"
	for _, c := range []struct{ before, repeated, after string }{
		{entry, "ret;\n", "ret; }"},
		{entry, "L#: bra L#;\n", "ret; }"},
		{entry, "@%p bra L;\n", "ret; }"},
		{entry, "L#:\n", "ret; }"},
		{entry, "brx.idx %r1, T;\n", "ret; }"},
		{entry, "ret; // comment\n", "ret; }"},
		{entry, ".loc 1 # 1, function_name x, inlined_at 1 # 1\n ret;\n", "ret; }"},
		{entry, "ld.volatile.u32 %r1, [%q];\n", "ret; }"},
		{entry, "mov.u32 %r1, #;\n", "ret; }"},
		{entry, ".reg .b32 %s#_<9>; mov.u32 %s#_1, 0;\n", "ret; }"},
		{entry, ".shared .b8 s#[4];\n", "ret; }"},
		{".global .b8 v[] = {", "1, ", "1};" + entry + "ret; }"},
		{".func f() { ret; }\n", ".entry k#() { call.uni f; ret; }\n", ""},
		{".func f0() { ret; }\n", ".func f0#() { ret; } .entry k#() { call.uni f0#; ret; }\n", ""},
		{"", ".file # \"x\"\n", entry + "ret; }"},
		{".entry k(", ".param .u64 p#, ", ".param .u64 p) { ret; }"},
		{".entry k()\n", ".maxntid 1\n", "{ ret; }"},
		{".entry k()\n", ".minnctapersm 1\n", "{ ret; }"},
		{entry, ".pragma \"nounroll\";\n", "ret; }"},
		{entry, "T#: .branchtargets L;\n", "ret; }"},
		{entry, "P#: .callprototype _ ();\n", "ret; }"},
		{entry + ".reg .b32 %s", ", %s#", "; ret; }"},
		{entry, "{ .reg .b32 %s; mov.u32 %s, 0; }\n", "ret; }"},
		{"", ".file 1 \"x\"\n", entry + "ret; }"},
		{"", ".extern .func f();\n", entry + "ret; }"},
		{"", ".extern .global .b8 v;\n", entry + "ret; }"},
		{"", ".global .b8 v# = 1;\n", entry + "ret; }"},
		{"", ".section .debug_x { .b8 1 }\n", entry + "ret; }"},
	} {
		input := func(length int) string {
			text := new(strings.Builder)
			text.WriteString(limitsHeader + c.before)
			for n := 0; text.Len() < length; n++ {
				text.WriteString(strings.ReplaceAll(c.repeated, "#", fmt.Sprint(n)))
			}
			text.WriteString(c.after)
			return text.String()
		}
		testkit.CheckLinear(t, c.repeated, testkit.Lengths(), 200, input, func(text string) uint64 {
			var err error
			took := testkit.Allocated(func() {
				var m *ptx.Module
				if m, err = ptx.Parse("k.ptx", text); err == nil {
					_, err = Load(m)
				}
			})
			if err != nil && !errors.Is(err, ptx.ErrUnsupported) { // too many parameters
				t.Errorf("%q: %v", c.repeated, err)
			}
			return took
		})
	}
}
