package emu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
)

// kernelSource returns a kernel with the parameter buf, which it loads to %buf.
func kernelSource(body string) string {
	return fmt.Sprintf(`.version 8.8
.target sm_90
.address_size 64
.visible .entry k (.param .u64 buf)
{
	.reg .b64 %%buf, %%p;
	.reg .b32 %%t0, %%n0;
	ld.param.u64 %%buf, [buf];
	mov.u32 %%t0, %%tid.x;
	mov.u32 %%n0, %%ntid.x;
%s
	ret;
}
`, body)
}

// runBody runs the kernel of kernelSource on words of memory and returns their new values.
func runBody(t *testing.T, body string, words []uint32, l Launch) ([]uint32, Stats, error) {
	t.Helper()
	return runModule(t, kernelSource(body), words, l)
}

// runModule does the same as runBody for a complete module.
func runModule(t *testing.T, text string, words []uint32, l Launch) ([]uint32, Stats, error) {
	t.Helper()
	p := loadText(t, "k.ptx", text)
	mem := NewMemory(MemoryOptions{})
	addr := upload(t, mem, words)
	l.Entry, l.Params = "k", pack(t, p, "k", addr)
	if l.Grid == (Dim3{}) {
		l.Grid = Dim3{1, 1, 1}
	}
	stats, err := p.Run(context.Background(), mem, l)
	out := make([]uint32, len(words))
	download(t, mem, addr, out)
	return out, stats, err
}

// randomFlow is a random control flow graph. Each basic block updates a number and continues at one
// of two blocks depending on one of its bits, for a fixed number of steps.
type randomFlow struct {
	factor, term, bit []uint32
	next              [][2]int
}

func newRandomFlow(rng *rand.Rand, n int) *randomFlow {
	f := &randomFlow{}
	for range n {
		f.factor = append(f.factor, rng.Uint32()|1)
		f.term = append(f.term, rng.Uint32())
		f.bit = append(f.bit, 8+rng.Uint32N(20))
		f.next = append(f.next, [2]int{rng.IntN(n), rng.IntN(n)})
	}
	return f
}

func (f *randomFlow) text(rng *rand.Rand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\t.reg .b32 %%x, %%fuel, %%t; .reg .pred %%q, %%out;\n\tmad.wide.u32 %%p, %%t0, 4, %%buf;\n"+
		"\tld.global.u32 %%x, [%%p];\n\tmov.u32 %%fuel, 40;\n\tbra B0;\n")
	for _, n := range rng.Perm(len(f.next)) {
		fmt.Fprintf(&b, "B%d:\n\tmad.lo.u32 %%x, %%x, %d, %d;\n\tsub.u32 %%fuel, %%fuel, 1;\n", n, int32(f.factor[n]),
			int32(f.term[n]))
		fmt.Fprintf(&b, "\tsetp.eq.u32 %%out, %%fuel, 0;\n\t@%%out bra DONE;\n\tshr.u32 %%t, %%x, %d;\n"+
			"\tand.b32 %%t, %%t, 1;\n\tsetp.eq.u32 %%q, %%t, 1;\n", f.bit[n])
		fmt.Fprintf(&b, "\t@%%q bra B%d;\n\tbra.uni B%d;\n", f.next[n][1], f.next[n][0])
	}
	b.WriteString("DONE:\n\tbar.sync 0;\n\tst.global.u32 [%p], %x;")
	return b.String()
}

func (f *randomFlow) result(x uint32) uint32 {
	n := 0
	for range 40 {
		x = x*f.factor[n] + f.term[n]
		n = f.next[n][x>>f.bit[n]&1]
	}
	return x
}

// TestRandomControlFlow compares divergent programs with a sequential execution of each thread. All
// lanes must reconverge before the barrier at the end.
func TestRandomControlFlow(t *testing.T) {
	rng := testrand.New(t)
	for range 60 {
		f := newRandomFlow(rng, 1+rng.IntN(12))
		words := make([]uint32, 96)
		for i := range words {
			words[i] = rng.Uint32()
		}
		divergent := 0
		watch := observer(func() *Hooks {
			return &Hooks{Barrier: func(b *Barrier) {
				if b.Divergent() {
					divergent++
				}
			}}
		})
		text := f.text(rng)
		got, _, err := runBody(t, text, words, Launch{Block: Dim3{96, 1, 1}, Seed: rng.Uint64(),
			Observers: []Observer{watch}})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range words {
			if want := f.result(x); got[i] != want {
				t.Fatalf("thread %d got %#x, want %#x of\n%s", i, got[i], want, text)
			}
		}
		if divergent > 0 {
			t.Fatalf("%d divergent arrivals at the barrier in\n%s", divergent, text)
		}
	}
}

// observer is an Observer that calls the function for each block.
type observer func() *Hooks

func (o observer) Block(*BlockInfo) *Hooks { return o() }

// TestReconvergence counts the executions of instructions. All lanes must reconverge after a
// branch, in a loop, and after a loop that lanes leave at different times.
func TestReconvergence(t *testing.T) {
	body := `	.reg .b32 %x, %n; .reg .pred %q;
	and.b32 %n, %t0, 7;
	mov.u32 %x, 0;
	bra LOOP;
FAR:	add.u32 %x, %x, 100;
	bra JOIN;
LOOP:	add.u32 %x, %x, 1;
	setp.lt.u32 %q, %x, %n;
	@%q bra LOOP;
	setp.gt.u32 %q, %n, 4;
	@%q bra FAR;
	add.u32 %x, %x, 10;
JOIN:	xor.b32 %x, %x, 1;
	mad.wide.u32 %p, %t0, 4, %buf;
	st.global.u32 [%p], %x;`
	p := loadText(t, "k.ptx", kernelSource(body))
	_, stats, err := runBody(t, body, make([]uint32, 32), Launch{Block: Dim3{32, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Count{"xor.b32": {1, 32}, "st.global.u32": {1, 32}, "setp.gt.u32": {1, 32},
		"setp.lt.u32": {7, 4 * (1 + 1 + 2 + 3 + 4 + 5 + 6 + 7)}}
	for n, c := range stats.Counts {
		if w, ok := want[p.Sites()[n].Opcode]; ok && c != w {
			t.Errorf("%s: %+v, want %+v", p.Sites()[n].Opcode, c, w)
		}
	}
}

// TestReconvergenceOrder checks that the blocks of a branch or loop precede the block where their
// paths join.
func TestReconvergenceOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		succs [][]int32
		want  [][2]int // pairs of blocks in the required order
	}{
		{"if", [][]int32{{1, 2}, {2}, {}}, [][2]int{{0, 1}, {1, 2}}},
		{"if in reverse source order", [][]int32{{2, 3}, {}, {1}, {1}}, [][2]int{{2, 1}, {3, 1}}},
		{"loop with the exit first", [][]int32{{2}, {}, {3, 1}, {2}}, [][2]int{{2, 3}, {3, 1}}},
		{"nested loop", [][]int32{{1}, {2, 5}, {3, 4}, {2}, {1}, {}}, [][2]int{{1, 2}, {2, 3}, {3, 4}, {4, 5}}},
		{"loop with two entries", [][]int32{{1, 2}, {2}, {1, 3}, {}}, [][2]int{{1, 3}, {2, 3}}},
	} {
		rank, _ := reconvergence(c.succs)
		for _, w := range c.want {
			if rank[w[0]] >= rank[w[1]] {
				t.Errorf("%s: ranks are %v: want block %d before block %d", c.name, rank, w[0], w[1])
			}
		}
	}
}

// TestSpinLock has lanes of one warp compete for a lock. The owner must make progress while the
// others spin.
func TestSpinLock(t *testing.T) {
	got, _, err := runBody(t, `	.reg .b32 %old, %v; .reg .pred %q;
SPIN:	atom.global.cas.b32 %old, [%buf], 0, 1;
	setp.ne.u32 %q, %old, 0;
	@%q bra SPIN;
	ld.volatile.global.u32 %v, [%buf+4];
	add.u32 %v, %v, 1;
	st.volatile.global.u32 [%buf+4], %v;
	membar.gl;
	atom.global.exch.b32 %old, [%buf], 0;`, make([]uint32, 2), Launch{Block: Dim3{64, 1, 1}, Grid: Dim3{2, 1, 1}, MaxInstructions: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	if got[1] != 128 {
		t.Errorf("the lock was acquired %d times, want 128", got[1])
	}
}

// TestLockInFunction has the threads acquire a lock in a function, as unoptimized code does. The
// threads that poll there are deeper in calls than the one that holds the lock, and must let it run
// even if it polls too.
func TestLockInFunction(t *testing.T) {
	const text = `.version 8.0
.target sm_80
.address_size 64
.func (.reg .b32 %old) acquire(.reg .b64 %lock) { atom.global.cas.b32 %old, [%lock], 0, 1; ret; }
.visible .entry k(.param .u64 buf)
{
	.reg .b64 %buf; .reg .b32 %old, %v, %n; .reg .pred %q;
	ld.param.u64 %buf, [buf];
SPIN:	call (%old), acquire, (%buf);
	setp.ne.u32 %q, %old, 0;
	@%q bra NEXT;
	mov.u32 %n, 0;
READ:	ld.volatile.global.u32 %v, [%buf+4];
	add.u32 %n, %n, 1;
	setp.lt.u32 %q, %n, 40;
	@%q bra READ;
	add.u32 %v, %v, 1;
	st.volatile.global.u32 [%buf+4], %v;
	membar.gl;
	atom.global.exch.b32 %old, [%buf], 0;
	mov.u32 %old, 0;
NEXT:	setp.ne.u32 %q, %old, 0;
	@%q bra SPIN;
	ret;
}
`
	for seed := range uint64(4) {
		got, _, err := runModule(t, text, make([]uint32, 2), Launch{Block: Dim3{64, 1, 1}, MaxInstructions: 1e7, Seed: seed})
		if err != nil || got[1] != 64 {
			t.Fatalf("the lock was acquired %d times, want 64: %v", got[1], err)
		}
	}
}

func TestInstructionLimitAndCancellation(t *testing.T) {
	forever := ".reg .b64 %n; mov.u64 %n, 0; LOOP: add.u64 %n, %n, 1; bra LOOP;"
	_, _, err := runBody(t, forever, make([]uint32, 1), Launch{Block: Dim3{64, 1, 1}, MaxInstructions: 50_000})
	if !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), "more than 50000 instructions") {
		t.Errorf("got %v, want ErrBudget", err)
	}
	// A launch may execute exactly the maximum number of instructions.
	for budget, want := range map[int64]error{6: nil, 5: ErrBudget} {
		_, stats, err := runBody(t, "membar.cta; membar.cta;", make([]uint32, 1),
			Launch{Block: Dim3{32, 1, 1}, MaxInstructions: budget})
		if !errors.Is(err, want) || stats.Instructions != 6 {
			t.Errorf("budget %d: %d instructions, %v, want %v", budget, stats.Instructions, err, want)
		}
	}
	p := loadText(t, "k.ptx", kernelSource(forever))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Run(ctx, NewMemory(MemoryOptions{}), Launch{Entry: "k", Grid: Dim3{100, 1, 1}, Block: Dim3{1024, 1, 1},
		Params: make([]byte, 8)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

// TestSpins runs loops that no thread can end. The error names the place, long before the limit of
// instructions. Loops that end are not reported.
func TestSpins(t *testing.T) {
	const declare = ".reg .b32 %v, %old; .reg .pred %q; .shared .b32 s; "
	for _, c := range []struct{ name, body, want string }{
		{"empty loop", "LOOP: bra LOOP;", "warp 0 (lanes 0xffffffff) loops at k.ptx:11"},
		{"flag that nobody sets", "LOOP: ld.volatile.global.u32 %v, [%buf]; setp.eq.u32 %q, %v, 0; @%q bra LOOP;",
			"ld.volatile.global.u32; warp 1"},
		{"lock that nobody releases", "setp.ne.u32 %q, %t0, 0; @%q ret; st.volatile.global.u32 [%buf], 1; " +
			"LOOP: atom.global.cas.b32 %old, [%buf], 0, 1; setp.ne.u32 %q, %old, 0; @%q bra LOOP;",
			"block (0,0,0): warp 0 (lanes 0x00000001) polls at"},
		{"flag set after the barrier", "setp.lt.u32 %q, %t0, 32; @!%q bra SET; " +
			"LOOP: ld.volatile.shared.u32 %v, [s]; setp.ne.u32 %q, %v, 7; @%q bra LOOP; " +
			"SET: bar.sync 0; st.volatile.shared.u32 [s], 7;", "ld.volatile.shared.u32, but no thread that still runs writes"},
		{"message from a later block", ".reg .b32 %c; mov.u32 %c, %ctaid.x; setp.eq.u32 %q, %c, 0; @!%q bra SET; " +
			"LOOP: ld.volatile.global.u32 %v, [%buf]; setp.eq.u32 %q, %v, 0; @%q bra LOOP; " +
			"SET: st.volatile.global.u32 [%buf], 1;", "1 other block has not started"},
		{"bounded loop", "mov.u32 %v, 0; LOOP: add.u32 %v, %v, 1; setp.lt.u32 %q, %v, 100000; @%q bra LOOP;", ""},
		{"flag set late", "setp.lt.u32 %q, %t0, 32; mov.u32 %v, 0; @%q bra WAIT; " +
			"COUNT: add.u32 %v, %v, 1; setp.lt.u32 %q, %v, 100000; @%q bra COUNT; st.volatile.shared.u32 [s], 7; bra END; " +
			"WAIT: ld.volatile.shared.u32 %v, [s]; setp.ne.u32 %q, %v, 7; @%q bra WAIT; END: mov.u32 %v, 0;", ""},
		{"clock", "LOOP: mov.u32 %v, %clock; setp.lt.u32 %q, %v, 1000000; @%q bra LOOP;", ""},
	} {
		for seed := range uint64(4) {
			_, stats, err := runBody(t, declare+strings.ReplaceAll(c.body, "; ", ";\n"), make([]uint32, 2),
				Launch{Block: Dim3{64, 1, 1}, Grid: Dim3{1 + strings.Count(c.name, "later"), 1, 1}, MaxInstructions: 10e6,
					Seed: seed})
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %v, want no error", c.name, err)
				}
				continue
			}
			if !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), c.want) || stats.Instructions > 1e6 {
				t.Errorf("%s: %v after %d instructions, want %q before 1e6", c.name, err, stats.Instructions, c.want)
			}
		}
	}
}

func TestRecursionLimit(t *testing.T) {
	text := `.version 8.0
.target sm_90
.address_size 64
.func f (.param .b32 x) {
	.reg .b32 %x; .local .b8 m[64]; .param .b32 out;
	ld.param.b32 %x, [x];
	add.u32 %x, %x, 1;
	st.param.b32 [out], %x;
	call f, (out);
	ret;
}
.entry k () { call f, (5); ret; }
`
	p := loadText(t, "k.ptx", text)
	_, err := p.Run(context.Background(), NewMemory(MemoryOptions{}),
		Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{32, 1, 1}})
	if !errors.Is(err, ErrMisuse) || !strings.Contains(err.Error(), "nested calls exceed") {
		t.Errorf("got %v, want the limit of local memory", err)
	}
}

func TestTrap(t *testing.T) {
	_, _, err := runBody(t, ".reg .pred %q; setp.eq.u32 %q, %t0, 37; @%q trap;", make([]uint32, 1),
		Launch{Block: Dim3{64, 1, 1}, Grid: Dim3{4, 1, 1}, Workers: 2})
	if !errors.Is(err, ErrTrap) || !strings.Contains(err.Error(), "block (0,0,0): thread (37,0,0)") {
		t.Errorf("got %v, want a trap of thread 37 in the first block", err)
	}
}

func TestLaunchArguments(t *testing.T) {
	text := strings.Replace(kernelSource(".shared .b8 s[1024]; mov.u64 %p, s;"), "(.param .u64 buf)",
		"(.param .u64 buf)\n.maxntid 64, 2, 1", 1)
	p := loadText(t, "k.ptx", text)
	good := Launch{Entry: "k", Grid: Dim3{1, 1, 1}, Block: Dim3{32, 1, 1}, Params: make([]byte, 8)}
	for _, c := range []struct {
		change func(l *Launch)
		want   string
	}{
		{func(*Launch) {}, ""},
		{func(l *Launch) { l.Entry = "kk" }, `no such kernel: want one of ["k"]`},
		{func(l *Launch) { l.Grid.Y = 0 }, "grid is (1,0,1): want sides from 1"},
		{func(l *Launch) { l.Grid.Z = 65536 }, "grid is (1,1,65536): want sides"},
		{func(l *Launch) { l.Block.Z = 65 }, "block is (32,1,65): want sides"},
		{func(l *Launch) { l.Block = Dim3{1024, 2, 1} }, "2048 threads: want at most 1024"},
		{func(l *Launch) { l.Block = Dim3{64, 4, 1} }, "256 threads: want at most 128 (.maxntid)"},
		{func(l *Launch) { l.Params = make([]byte, 12) }, "12 bytes of parameters: want 8"},
		{func(l *Launch) { l.Shared = 227 << 10 }, "1024 bytes of static and 232448 of dynamic shared memory: want a sum " +
			"of at most 232448"},
		{func(l *Launch) { l.Shared = -1 }, "dynamic shared memory is -1 bytes: want at least 0"},
		{func(l *Launch) { l.Workers = -1 }, "-1 workers: want at least 0"},
	} {
		l := good
		c.change(&l)
		_, err := p.Run(context.Background(), NewMemory(MemoryOptions{}), l)
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, ErrLaunch) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestPack(t *testing.T) {
	p := loadText(t, "k.ptx", `.version 8.0
.target sm_90
.address_size 64
.entry k (.param .u64 a, .param .f32 b, .param .u8 c, .param .b32 d, .param .align 16 .b8 e[6]) { ret; }
`)
	b, err := p.Pack("k", uint64(1), float32(1), int8(-1), float32(2), []byte("abcdef"))
	want := "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x3f\xff\x00\x00\x00\x00\x00\x00\x40" +
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00abcdef"
	if err != nil || string(b) != want {
		t.Errorf("got %q, %v, want %q", b, err, want)
	}
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{uint64(1)}, "1 arguments: want 5"},
		{[]any{1.0, float32(1), int8(1), uint32(1), make([]byte, 6)}, "argument 0 is a float64: want a .u64 for a"},
		{[]any{uint64(1), uint32(1), int8(1), uint32(1), make([]byte, 6)}, "argument 1 is a uint32: want a .f32 for b"},
		{[]any{uint64(1), float32(1), int32(1), uint32(1), make([]byte, 6)}, "argument 2 is a int32: want a .u8 for c"},
		{[]any{uint64(1), float32(1), int8(1), nil, make([]byte, 6)}, "argument 3 is a <nil>: want a .b32 for d"},
		{[]any{uint64(1), float32(1), int8(1), uint32(1), make([]byte, 5)}, "argument 4 is a []uint8: want 6 bytes for e"},
	} {
		if _, err := p.Pack("k", c.args...); !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if _, err := p.Pack("q"); !errors.Is(err, ErrLaunch) {
		t.Errorf("got %v, want no such kernel", err)
	}
}

// TestSpecialRegisters reads each supported special register and each of its members.
func TestSpecialRegisters(t *testing.T) {
	for _, name := range ptx.SpecialRegisters() {
		supported := clocks[name] > 0
		var members []string
		for k := range specialRegisters {
			if base, member, ok := strings.Cut(specialRegisters[k].name, "."); base == name {
				supported = true
				members = append(members, choose(ok, "."+member, ""))
			}
		}
		if clocks[name] > 0 {
			members = []string{""}
		}
		for _, m := range members {
			size := 4
			for k := range specialRegisters {
				if specialRegisters[k].name == name+m {
					size = int(specialRegisters[k].size)
				}
			}
			size = max(size, clocks[name])
			reg, move := fmt.Sprintf(".reg .b%d %%x;", 8*size), fmt.Sprintf("mov.u%d %%x, %s%s;", 8*size, name, m)
			if size == 0 {
				reg, move = ".reg .pred %x;", fmt.Sprintf("mov.pred %%x, %s;", name)
			}
			if _, _, err := runBody(t, reg+move, make([]uint32, 1), Launch{Block: Dim3{33, 2, 1}}); err != nil {
				t.Error(err)
			}
		}
		unsupported := map[string]bool{"%pm0": true, "%envreg0": true, "%current_graph_exec": true}
		if !supported && !unsupported[name] && !strings.HasPrefix(name, "%pm") && !strings.HasPrefix(name, "%reserved_smem") {
			t.Errorf("%s is neither supported nor in the list of unsupported registers", name)
		}
	}
}
