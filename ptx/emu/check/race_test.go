package check

import (
	"slices"
	"strings"
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu"
)

var (
	ld = op{site: "ld", kind: emu.Read}
	st = op{site: "st", kind: emu.Write}
)

// own returns the address of a thread's word, next that of the next thread's word, and same
// the same address for all threads.
func own(t int) uint64  { return uint64(4 * t) }
func next(t int) uint64 { return uint64(4 * ((t + 1) % 64)) }
func same(int) uint64   { return 0 }

func TestBlockRaces(t *testing.T) {
	const threads = 64
	for _, c := range []struct {
		name string
		run  func(b *block)
		want string // findings; empty for none
		says string // part of the report
	}{
		{"private words", func(b *block) {
			b.do(st, b.all(), own)
			b.do(ld, b.all(), own)
		}, "", ""},
		{"barrier between write and read", func(b *block) {
			b.do(st, b.all(), own)
			b.sync("bar", 0, b.all(), 0)
			b.do(ld, b.all(), next)
		}, "", ""},
		{"no barrier between write and read", func(b *block) {
			b.do(st, b.all(), own)
			b.do(ld, b.all(), next)
		}, "race ld st", "want a __syncthreads() between test.ptx:1 and test.ptx:2"},
		{"no barrier, read executed before write", func(b *block) {
			b.do(st, span(0, 32), own)
			b.do(ld, span(0, 32), next)
			b.do(st, span(32, 64), own)
			b.do(ld, span(32, 64), next)
		}, "race ld st", "want a __syncthreads() between test.ptx:1 and test.ptx:2"},
		{"no barrier before next loop iteration", func(b *block) {
			for range 3 {
				b.do(st, b.all(), own)
				b.sync("bar", 0, b.all(), 0)
				b.do(ld, b.all(), next)
			}
		}, "race st ld", "want a __syncthreads() after test.ptx:3, before the next iteration of the loop reaches test.ptx:1"},
		{"two barriers per loop iteration", func(b *block) {
			for range 3 {
				b.do(st, b.all(), own)
				b.sync("bar", 0, b.all(), 0)
				b.do(ld, b.all(), next)
				b.sync("bar2", 0, b.all(), 0)
			}
		}, "", ""},
		{"writes of two warps to one word", func(b *block) {
			b.do(st, []int{0}, same)
			b.do(st, []int{32}, same)
		}, "race st st", "want a different element for each thread"},
		{"adjacent half words", func(b *block) {
			o := st
			o.size = 2
			b.do(o, b.all(), func(t int) uint64 { return uint64(2 * t) })
		}, "", ""},
		{"vector load over a written word", func(b *block) {
			b.do(st, []int{40}, func(int) uint64 { return 12 })
			o := ld
			o.size = 16
			b.do(o, []int{1}, same)
		}, "race ld st", ""},
		{"byte load from a written vector", func(b *block) {
			o := st
			o.size = 16
			b.do(o, []int{1}, same)
			o = ld
			o.size = 1
			b.do(o, []int{40}, func(int) uint64 { return 15 })
		}, "race ld st", ""},
		{"lanes of one warp", func(b *block) {
			b.do(st, span(0, 32), own)
			b.do(ld, span(0, 31), next)
		}, "race ld st", "__syncwarp()"},
		{"bar.warp.sync", func(b *block) {
			b.do(st, span(0, 32), own)
			b.warpSync(0, ^uint32(0))
			b.do(ld, span(0, 31), next)
		}, "", ""},
		{"bar.warp.sync of half the warp", func(b *block) {
			b.do(st, span(0, 32), own)
			b.warpSync(0, 0xffff)
			b.do(ld, span(0, 31), next)
		}, "race ld st", ""},
		{"bar.warp.sync of the accessing lanes", func(b *block) {
			b.do(st, span(0, 32), own)
			b.warpSync(0, 0xffff)
			b.do(ld, span(0, 15), next)
		}, "", ""},
		{"bar.warp.sync through a third lane", func(b *block) {
			b.do(st, []int{0}, same)
			b.warpSync(0, 0b011)
			b.warpSync(0, 0b110)
			b.do(ld, []int{2}, same)
		}, "", ""},
		{"barrier of both warps", func(b *block) {
			b.do(st, span(0, 32), own)
			b.sync("bar", 1, span(0, 64), 64)
			b.do(ld, span(32, 64), func(t int) uint64 { return uint64(4 * (t - 32)) })
		}, "", ""},
		{"barrier of the reading warp only", func(b *block) {
			b.do(st, span(0, 32), own)
			b.sync("bar", 1, span(32, 64), 32)
			b.do(ld, span(32, 64), func(t int) uint64 { return uint64(4 * (t - 32)) })
		}, "race ld st", ""},
		{"atomics", func(b *block) {
			o := op{site: "atom", kind: emu.Atomic, sem: emu.Relaxed, scope: emu.GPU}
			b.do(o, b.all(), same)
		}, "", ""},
		{"atomic and weak read", func(b *block) {
			b.do(op{site: "atom", kind: emu.Atomic, sem: emu.Relaxed, scope: emu.GPU}, []int{1}, same)
			b.do(ld, []int{40}, same)
		}, "race ld atom", ""},
		{"flag with release and acquire", func(b *block) {
			flag := func(int) uint64 { return 1024 }
			b.do(st, []int{0}, same)
			b.do(op{site: "rel", kind: emu.Write, sem: emu.Release, scope: emu.CTA}, []int{0}, flag)
			b.do(op{site: "acq", kind: emu.Read, sem: emu.Acquire, scope: emu.CTA}, []int{40}, flag)
			b.do(ld, []int{40}, same)
		}, "", ""},
		{"flag acquired after a relaxed read of it", func(b *block) {
			flag := func(int) uint64 { return 1024 }
			b.do(st, []int{0}, same)
			b.do(op{site: "rel", kind: emu.Write, sem: emu.Release, scope: emu.CTA}, []int{0}, flag)
			for _, sem := range []emu.Sem{emu.Relaxed, emu.Acquire} {
				b.do(op{site: "acq", kind: emu.Read, sem: sem, scope: emu.CTA}, []int{40}, flag)
			}
			b.do(ld, []int{40}, same)
		}, "", ""},
		{"flag without release", func(b *block) {
			flag := func(int) uint64 { return 1024 }
			b.do(st, []int{0}, same)
			b.do(op{site: "rel", kind: emu.Write, sem: emu.Relaxed, scope: emu.CTA}, []int{0}, flag)
			b.do(op{site: "acq", kind: emu.Read, sem: emu.Acquire, scope: emu.CTA}, []int{40}, flag)
			b.do(ld, []int{40}, same)
		}, "race ld st", ""},
		{"read of a copy in flight", func(b *block) {
			b.do(op{site: "cp", kind: emu.AsyncWrite, copy: 1}, []int{0}, same)
			b.do(ld, []int{0}, same)
		}, "race ld cp", "cp.async.wait_group"},
		{"barrier without wait for the copy", func(b *block) {
			b.do(op{site: "cp", kind: emu.AsyncWrite, copy: 1}, []int{0}, same)
			b.sync("bar", 0, b.all(), 0)
			b.do(ld, []int{40}, same)
		}, "race ld cp", ""},
		{"wait without barrier", func(b *block) {
			b.do(op{site: "cp", kind: emu.AsyncWrite, copy: 1}, []int{0}, same)
			b.done(1, 0, 1)
			b.do(ld, []int{0}, same)
			b.do(ld, []int{40}, same)
		}, "race ld cp", "__syncthreads()"},
		{"wait and barrier", func(b *block) {
			b.do(op{site: "cp", kind: emu.AsyncWrite, copy: 1}, []int{0}, same)
			b.done(1, 0, 1)
			b.sync("bar", 0, b.all(), 0)
			b.do(ld, []int{40}, same)
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, Options{Only: []Checker{Race}}, 1, threads)
			b := f.block(0)
			c.run(b)
			b.hooks.End()
			r, got := f.report(nil)
			if s := strings.Join(got, ", "); s != c.want {
				t.Fatalf("found %q, want %q\n%v", s, c.want, r)
			}
			if !strings.Contains(r.String(), c.says) {
				t.Errorf("report %q, want it to contain %q", r.String(), c.says)
			}
		})
	}
}

// done reports that a wait of a warp observes the completion of a copy.
func (b *block) done(copy uint64, warp int, mask uint32) {
	b.hooks.CopyDone(&emu.CopyDone{
		Origin: emu.Origin{Site: b.site("wait"), Warp: warp, Mask: mask},
		Copies: []emu.CopyLanes{{Copy: copy, Mask: mask}},
	})
}

func TestRacesBetweenBlocks(t *testing.T) {
	atom := op{site: "atom", kind: emu.Atomic, sem: emu.Relaxed, scope: emu.GPU, space: ptx.Global}
	poll := op{site: "poll", kind: emu.Read, sem: emu.Relaxed, scope: emu.GPU, space: ptx.Global}
	raise := op{site: "raise", kind: emu.Write, sem: emu.Relaxed, scope: emu.GPU, space: ptx.Global}
	store := op{site: "store", kind: emu.Write, space: ptx.Global}
	load := op{site: "load", kind: emu.Read, space: ptx.Global}
	one := []int{0}
	for _, c := range []struct {
		name string
		run  func(a, b *block, data, flag func(int) uint64)
		want string
	}{
		{"disjoint", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			b.do(store, b.all(), func(t int) uint64 { return data(t) + 256 })
		}, ""},
		{"two reads", func(a, b *block, data, flag func(int) uint64) {
			a.do(load, a.all(), data)
			b.do(load, b.all(), data)
		}, ""},
		{"two writes", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			b.do(store, b.all(), data)
		}, "race store store"},
		{"write and read", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			b.do(load, b.all(), data)
		}, "race load store"},
		{"barriers of each block", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			a.sync("bar", 0, a.all(), 0)
			b.sync("bar", 0, b.all(), 0)
			b.do(load, b.all(), data)
		}, "race load store"},
		{"atomics", func(a, b *block, data, flag func(int) uint64) {
			a.do(atom, a.all(), data)
			b.do(atom, b.all(), data)
		}, ""},
		{"atomics at block scope", func(a, b *block, data, flag func(int) uint64) {
			o := atom
			o.scope = emu.CTA
			a.do(o, a.all(), data)
			b.do(o, b.all(), data)
		}, "race atom atom"},
		{"message", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, data)
			a.fence(one, emu.GPU)
			a.do(raise, one, flag)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
			b.do(load, one, data)
		}, ""},
		{"message of all threads", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			a.sync("bar", 0, a.all(), 0)
			a.fence(one, emu.GPU)
			a.do(raise, one, flag)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
			b.sync("bar", 0, b.all(), 0)
			b.do(load, b.all(), data)
		}, ""},
		{"message without fence of the writer", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, data)
			a.do(raise, one, flag)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
			b.do(load, one, data)
		}, "race load store"},
		{"message with fence at block scope", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, data)
			a.fence(one, emu.CTA)
			a.do(raise, one, flag)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
			b.do(load, one, data)
		}, "race load store"},
		{"message without fence of the reader", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, data)
			a.fence(one, emu.GPU)
			a.do(raise, one, flag)
			b.do(poll, one, flag)
			b.do(load, one, data)
		}, "race load store"},
		{"message read before the flag", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, data)
			a.fence(one, emu.GPU)
			a.do(raise, one, flag)
			b.do(load, one, data)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
		}, "race load store"},
		{"message written after the flag", func(a, b *block, data, flag func(int) uint64) {
			a.fence(one, emu.GPU)
			a.do(raise, one, flag)
			a.do(store, one, data)
			b.do(poll, one, flag)
			b.fence(one, emu.GPU)
			b.do(load, one, data)
		}, "race load store"},
		{"message with release and acquire", func(a, b *block, data, flag func(int) uint64) {
			o := raise
			o.sem = emu.Release
			a.do(store, one, data)
			a.do(o, one, flag)
			o = poll
			o.sem = emu.Acquire
			b.do(o, one, flag)
			b.do(load, one, data)
		}, ""},
		{"weak flag", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, one, flag)
			b.do(load, one, flag)
		}, "race load store"},
		{"reduction in the last block", func(a, b *block, data, flag func(int) uint64) {
			// The first thread of each block writes a partial sum. The block that increments
			// the counter last reads all sums, after a barrier without a fence.
			a.do(store, one, data)
			a.fence(one, emu.GPU)
			a.do(atom, one, flag)
			a.sync("bar", 0, a.all(), 0)
			b.do(store, one, func(t int) uint64 { return data(t) + 4 })
			b.fence(one, emu.GPU)
			b.do(atom, one, flag)
			b.sync("bar", 0, b.all(), 0)
			b.do(load, b.all(), func(t int) uint64 { return data(0) + uint64(t%2*4) })
		}, ""},
		{"fence of each thread before atomic of one", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			a.fence(a.all(), emu.GPU)
			a.sync("bar", 0, a.all(), 0)
			a.do(atom, one, flag)
			b.do(atom, one, flag)
			b.sync("bar", 0, b.all(), 0)
			b.do(load, b.all(), data)
		}, ""},
		{"no fence before atomic of one", func(a, b *block, data, flag func(int) uint64) {
			a.do(store, a.all(), data)
			a.sync("bar", 0, a.all(), 0)
			a.do(atom, one, flag)
			b.do(atom, one, flag)
			b.sync("bar", 0, b.all(), 0)
			b.do(load, b.all(), data)
		}, "race load store"},
	} {
		for _, swapped := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				f := newFake(t, Options{Only: []Checker{Race}}, 2, 64)
				base := f.alloc(4096)
				data := func(t int) uint64 { return base + uint64(4*t) }
				flag := func(int) uint64 { return base + 2048 }
				a, b := f.block(0), f.block(1)
				if swapped {
					a, b = b, a
				}
				c.run(a, b, data, flag)
				if swapped {
					b.hooks.End()
					a.hooks.End()
				} else {
					a.hooks.End()
					b.hooks.End()
				}
				r, got := f.report(nil)
				slices.Sort(got)
				if s := strings.Join(slices.Compact(got), ", "); s != c.want {
					t.Fatalf("found %q, want %q\n%v", s, c.want, r)
				}
			})
		}
	}
}

// TestOrderOfBlocks checks that the report does not depend on the order in which racing blocks
// run.
func TestOrderOfBlocks(t *testing.T) {
	r := testrand.New(t)
	var first string
	for range 50 {
		f := newFake(t, Options{}, 8, 64)
		base := f.alloc(4096)
		for _, site := range []string{"store", "load", "flag", "shared"} {
			f.site(site)
		}
		running := []*block{}
		for _, n := range r.Perm(8) {
			b := f.block(n)
			b.do(op{site: "store", kind: emu.Write, space: ptx.Global}, b.all(),
				func(t int) uint64 { return base + uint64(4*(t+32*n)) })
			b.do(op{site: "load", space: ptx.Global, size: 2}, b.all(),
				func(t int) uint64 { return base + uint64(2*t+512*(n/3)) })
			b.do(op{site: "flag", kind: emu.Atomic, sem: emu.Relaxed, scope: emu.GPU, space: ptx.Global}, []int{n},
				func(int) uint64 { return base + 2048 })
			b.do(op{site: "shared", kind: emu.Write}, []int{n, n + 32}, same)
			if running = append(running, b); r.IntN(2) == 0 {
				for _, b := range running {
					b.hooks.End()
				}
				running = nil
			}
		}
		for _, b := range running {
			b.hooks.End()
		}
		report, short := f.report(nil)
		if first == "" {
			first = report.String()
			if s := strings.Join(short, ", "); s != "race store store, race load store, race load store, race shared shared" {
				t.Fatalf("found %s\n%s", s, first)
			}
		}
		if got := report.String(); got != first {
			t.Fatalf("report depends on the order of blocks: got\n%s\nwant\n%s", got, first)
		}
	}
}

// TestRaceInLargeProgram checks races of instructions beyond the range of an epoch, which the
// checker cannot tell apart.
func TestRaceInLargeProgram(t *testing.T) {
	stores, atoms := op{site: "store", kind: emu.Write}, op{site: "atom", kind: emu.Atomic, sem: emu.Relaxed}
	loads, swaps := op{site: "load", kind: emu.Read}, op{site: "cas", kind: emu.Atomic, sem: emu.Relaxed}
	for _, c := range []struct {
		name   string
		blocks int
		run    func(b *block, data uint64)
		want   string // the instructions of the race; "late" for those beyond the range
	}{
		{"stores of a block", 1, func(b *block, _ uint64) { b.do(stores, []int{0, 40}, same) }, "late late"},
		{"stores of two blocks", 2, func(b *block, data uint64) {
			o := stores
			o.space = ptx.Global
			b.do(o, []int{0}, func(int) uint64 { return data })
		}, "late late"},
		{"read of a variable that is not swapped", 1, func(b *block, _ uint64) {
			other := func(int) uint64 { return 64 }
			b.do(atoms, []int{40}, same)
			b.do(atoms, []int{40}, other)
			b.do(loads, []int{0}, same)
			b.do(loads, []int{0}, other)
			b.do(swaps, []int{0}, other)
		}, "late atom"},
	} {
		f := newFake(t, Options{Only: []Checker{Race}}, c.blocks, 64)
		f.site("atom")
		f.list = append(f.list, make([]*emu.Site, siteMask)...)
		f.list[siteMask] = &emu.Site{Index: siteMask, Opcode: "other"}
		for _, name := range []string{"store", "load", "cas"} {
			s := &emu.Site{Index: len(f.list), Opcode: name}
			f.sites[name], f.list = s, append(f.list, s)
		}
		f.sites["cas"].Instr = &ptx.Instr{Op: "atom", Mods: []string{"cas"}}
		data := f.alloc(64)
		for n := range c.blocks {
			b := f.block(n)
			c.run(b, data)
			b.hooks.End()
		}
		r, got := f.report(nil)
		want := "race " + strings.ReplaceAll(c.want, "late", lateSite.Opcode)
		if len(got) != 1 || got[0] != want || r.Errors() != 1 {
			t.Errorf("%s: found %q and %v, want the error %q", c.name, got, r, want)
		}
	}
}
