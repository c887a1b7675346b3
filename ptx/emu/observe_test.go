package emu

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// eventRecorder records the events of a block as text.
type eventRecorder struct{ lines []string }

func (r *eventRecorder) Block(b *BlockInfo) *Hooks {
	r.add("block %v of %v, %d warps, %d bytes", b.Index, b.Grid, b.Warps, b.SharedSize)
	who := func(o Origin) string { return fmt.Sprintf("%s %d lanes", o.Site.Opcode, bits.OnesCount32(o.Mask)) }
	return &Hooks{
		Access: func(a *Access) {
			first := bits.TrailingZeros32(a.Mask)
			r.add("%s: kind %d sem %d %v, %d bytes at %#x, copy %d", who(a.Origin), a.Kind, a.Sem, a.Space, a.Size,
				a.Addr[first]&0xffff, a.Copy)
		},
		Barrier: func(b *Barrier) {
			r.add("%s: kind %d of %d, %d of %d, generation %d", who(b.Origin), b.Kind, b.ID, b.Arrived, b.Expected, b.Generation)
		},
		WarpSync:  func(s *WarpSync) { r.add("%s: orders %v", who(s.Origin), s.Orders) },
		Fence:     func(f *Fence) { r.add("%s: sem %d scope %d %s", who(f.Origin), f.Sem, f.Scope, f.Proxy) },
		CopyDone:  func(c *CopyDone) { r.add("%s: done %v", who(c.Origin), c.Copies) },
		Undefined: func(u *Undefined) { r.add("%s: uses %s of %s", who(u.Origin), u.Cause.Register, u.Cause.Site.Opcode) },
		End:       func() { r.add("end") },
	}
}

func (r *eventRecorder) add(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func TestEvents(t *testing.T) {
	body := `	.reg .b32 %v, %a, %old; .reg .pred %q; .shared .align 16 .b8 s[256];
	mov.u32 %a, s;
	mad.lo.u32 %a, %t0, 4, %a;
	setp.lt.u32 %q, %t0, 8;
	@%q st.shared.u32 [%a], %t0;
	bar.sync 0;
	ld.shared.v2.u32 {%v, %old}, [s+8];
	add.u32 %v, %v, %buf;
	shfl.sync.bfly.b32 %v, %v, 1, 31, -1;
	bar.warp.sync -1;
	membar.gl;
	fence.proxy.async;
	fence.acq_rel.cta;
	@%q cp.async.ca.shared.global [%a+64], [%buf], 4;
	cp.async.wait_all;
	ld.acquire.gpu.global.u32 %v, [%buf+4];
	@%q atom.add.u32 %old, [%buf], 1;
	@%q st.global.u32 [%buf+8], %sum;`
	body = strings.Replace(body, "add.u32 %v, %v, %buf", "add.u32 %sum, %v, %never", 1)
	r := &eventRecorder{}
	_, _, err := runBody(t, ".reg .b32 %never, %sum;"+body, make([]uint32, 8),
		Launch{Block: Dim3{32, 1, 1}, Observers: []Observer{r}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"block (0,0,0) of (1,1,1), 1 warps, 256 bytes",
		"ld.param.u64 32 lanes: kind 0 sem 0 param, 8 bytes at 0x0, copy 0",
		"st.shared.u32 8 lanes: kind 1 sem 0 shared, 4 bytes at 0x0, copy 0",
		"bar.sync 32 lanes: kind 0 of 0, 32 of 32, generation 0",
		"bar.sync 32 lanes: kind 2 of 0, 32 of 32, generation 0",
		"ld.shared.v2.u32 32 lanes: kind 0 sem 0 shared, 8 bytes at 0x8, copy 0",
		"shfl.sync.bfly.b32 32 lanes: orders false",
		"bar.warp.sync 32 lanes: orders true",
		"membar.gl 32 lanes: sem 6 scope 3 ",
		"fence.proxy.async 32 lanes: sem 0 scope 0 async",
		"fence.acq_rel.cta 32 lanes: sem 5 scope 1 ",
		"cp.async.ca.shared.global 8 lanes: kind 3 sem 0 global, 4 bytes at 0x0, copy 1",
		"cp.async.ca.shared.global 8 lanes: kind 4 sem 0 shared, 4 bytes at 0x40, copy 1",
		"cp.async.wait_all 32 lanes: done [{1 255}]",
		"ld.acquire.gpu.global.u32 32 lanes: kind 0 sem 3 global, 4 bytes at 0x4, copy 0",
		"atom.add.u32 8 lanes: kind 2 sem 0 global, 4 bytes at 0x0, copy 0",
		"st.global.u32 8 lanes: uses %never of add.u32",
		"st.global.u32 8 lanes: kind 1 sem 0 global, 4 bytes at 0x8, copy 0",
		"end",
	}
	if !slices.Equal(r.lines, want) {
		for n := range max(len(want), len(r.lines)) {
			var g, w string
			if n < len(want) {
				w = want[n]
			}
			if n < len(r.lines) {
				g = r.lines[n]
			}
			if g != w {
				t.Errorf("event %d:\ngot  %s\nwant %s", n, g, w)
			}
		}
	}
}

// executed records the instructions that lanes execute, with the masks.
type executed struct{ lines []string }

func (e *executed) Block(*BlockInfo) *Hooks {
	return &Hooks{Execute: func(o Origin) { e.lines = append(e.lines, fmt.Sprintf("%s %x", o.Site.Opcode, o.Mask)) }}
}

// TestExecute checks that the event of an instruction names the lanes that execute it, also if all
// do, and that there is none if no lane does.
func TestExecute(t *testing.T) {
	e := &executed{}
	_, _, err := runBody(t, `	.reg .pred %q, %never; .reg .f32 %x;
	setp.lt.u32 %q, %t0, 8;
	setp.gt.u32 %never, %t0, 99;
	mov.f32 %x, 0f3F800000;
	@%q fma.rn.f32 %x, %x, %x, %x;
	@%never fma.rn.f32 %x, %x, %x, %x;
	@!%q add.f32 %x, %x, %x;
	mul.f32 %x, %x, %x;`, make([]uint32, 8), Launch{Block: Dim3{32, 1, 1}, Observers: []Observer{e}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"setp.lt.u32 ffffffff", "setp.gt.u32 ffffffff", "mov.f32 ffffffff", "fma.rn.f32 ff",
		"add.f32 ffffff00", "mul.f32 ffffffff"}
	at := slices.Index(e.lines, want[0])
	if at < 0 || !slices.Equal(e.lines[at:min(at+len(want), len(e.lines))], want) {
		t.Errorf("got %q, want them to contain %q", e.lines, want)
	}
}

// TestAsyncCopies runs a copy with and without the required wait.
func TestAsyncCopies(t *testing.T) {
	body := func(wait string) string {
		return `	.reg .b32 %v, %a; .shared .align 16 .b8 s[256];
	mov.u32 %a, s;
	mad.lo.u32 %a, %t0, 4, %a;
	st.shared.u32 [%a], 0;
	mad.wide.u32 %p, %t0, 4, %buf;
	cp.async.ca.shared.global [%a], [%p], 4, 2;
	cp.async.commit_group;
	cp.async.ca.shared.global [%a+128], [%p], 4;
	cp.async.commit_group;
	` + wait + `
	ld.shared.u32 %v, [%a];
	st.global.u32 [%p], %v;`
	}
	words := make([]uint32, 32)
	for i := range words {
		words[i] = uint32(i)<<24 | uint32(i) + 1
	}
	for wait, right := range map[string]bool{"cp.async.wait_group 1;": true, "cp.async.wait_group 0;": true,
		"cp.async.wait_all;": true, "cp.async.wait_group 2;": false, "": false} {
		wrong := 0
		for seed := range uint64(20) {
			got, _, err := runBody(t, body(wait), words, Launch{Block: Dim3{32, 1, 1}, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if v != words[i]&0xffff { // two bytes are copied, the other two are zero
					wrong++
				}
			}
		}
		if right != (wrong == 0) {
			t.Errorf("wait %q: %d words are wrong", wait, wrong)
		}
	}
}

// TestDeterminism checks that the output and the counts do not depend on the number of workers.
func TestDeterminism(t *testing.T) {
	p := loadFile(t, "calls.sm_80.O3.ptx")
	mem := NewMemory(MemoryOptions{})
	x := upload(t, mem, []int32{5, 6})
	name := findKernel(t, p, "4says")
	run := func(workers int) (string, Stats) {
		var text strings.Builder
		stats, err := p.Run(context.Background(), mem, Launch{
			Entry: name, Grid: Dim3{8, 2, 1}, Block: Dim3{96, 1, 1}, Seed: 3, Workers: workers, Printf: &text,
			Params: pack(t, p, name, x, int32(1)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return text.String(), stats
	}
	text, stats := run(1)
	for workers := 2; workers < 6; workers++ {
		if again, s := run(workers); again != text || !reflect.DeepEqual(s, stats) {
			t.Fatalf("the results of %d workers and one worker differ", workers)
		}
	}
	failing := writer{errors.New("full")}
	_, err := p.Run(context.Background(), mem, Launch{Entry: name, Grid: Dim3{1, 1, 1}, Block: Dim3{1, 1, 1},
		Printf: failing, Params: pack(t, p, name, x, int32(1))})
	if !errors.Is(err, failing.err) {
		t.Errorf("got %v, want the error of the writer", err)
	}
}

// TestObserverPanics checks that a panic of an observer, or of the writer for printf, reaches the
// caller of Run when no other worker calls them any more.
func TestObserverPanics(t *testing.T) {
	p := loadFile(t, "calls.sm_80.O3.ptx")
	mem := NewMemory(MemoryOptions{})
	x := upload(t, mem, []int32{5, 6})
	name := findKernel(t, p, "4says")
	for _, workers := range []int{1, 4} {
		var running atomic.Int32
		fail := func(at int32) {
			defer running.Add(-1)
			if running.Add(1); at == 3 {
				panic(at)
			}
		}
		var blocks, writes atomic.Int32
		watch := observer(func() *Hooks { fail(blocks.Add(1)); return nil })
		print := writerFunc(func() { fail(writes.Add(1)) })
		for _, l := range []Launch{{Observers: []Observer{watch}}, {Printf: print}} {
			l.Entry, l.Grid, l.Block, l.Workers = name, Dim3{8, 2, 1}, Dim3{96, 1, 1}, workers
			l.Params = pack(t, p, name, x, int32(1))
			func() {
				defer func() {
					if got := recover(); got != int32(3) {
						t.Errorf("%d workers: Run panics with %v, want 3", workers, got)
					}
				}()
				_, err := p.Run(t.Context(), mem, l)
				t.Errorf("%d workers: Run returned %v", workers, err)
			}()
			if n := running.Load(); n != 0 {
				t.Errorf("%d workers: %d callbacks run after Run", workers, n)
			}
		}
	}
}

type writerFunc func()

func (w writerFunc) Write(b []byte) (int, error) { w(); return len(b), nil }

type writer struct{ err error }

func (w writer) Write([]byte) (int, error) { return 0, w.err }

// TestPrintfConversions compares vprintf with C's printf.
func TestPrintfConversions(t *testing.T) {
	text := `.version 8.0
.target sm_90
.address_size 64
.global .align 1 .b8 format[96] = {%s};
.global .align 1 .b8 word[4] = {97, 98, 99};
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.entry k () {
	.reg .b64 %%f, %%s; .local .align 8 .b8 args[64]; .param .b64 pf; .param .b64 pa; .param .b32 pr;
	st.local.u32 [args], -7;
	st.local.u64 [args+8], 0xffffffffffffffff;
	st.local.f64 [args+16], 0d3FF8000000000000;
	mov.u64 %%s, word;
	st.local.u64 [args+24], %%s;
	st.local.u32 [args+32], 255;
	st.local.u32 [args+36], 65;
	st.local.u32 [args+40], 6;
	st.local.f64 [args+48], 0d40C81C8000000000;
	mov.u64 %%f, format;
	st.param.b64 [pf], %%f;
	mov.u64 %%f, args;
	cvta.local.u64 %%f, %%f;
	st.param.b64 [pa], %%f;
	call (pr), vprintf, (pf, pa);
	ret;
}
`
	format := "%5d|%llu|%.3e|%-5s|%#x|%c|%*.1f|100%%\n"
	var list []string
	for _, c := range []byte(format) {
		list = append(list, fmt.Sprint(c))
	}
	p := loadText(t, "k.ptx", fmt.Sprintf(text, strings.Join(list, ", ")))
	var out strings.Builder
	if _, err := runKernel(t, p, "k", NewMemory(MemoryOptions{}), Launch{Block: Dim3{1, 1, 1}, Printf: &out}); err != nil {
		t.Fatal(err)
	}
	if want := "   -7|18446744073709551615|1.500e+00|abc  |0xff|A|12345.0|100%\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
