package check

import (
	"testing"

	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu"
)

// reference is an exact race detector, with a vector clock per thread and a record of all
// accesses.
type reference struct {
	clocks   [][]int // vector clock of each thread; its own entry is its time
	flags    map[uint64][]int
	accesses []refAccess
}

type refAccess struct {
	thread, time int
	addr         uint64
	size         int
	write        bool
}

func newReference(threads int) *reference {
	r := &reference{flags: map[uint64][]int{}}
	for t := range threads {
		c := make([]int, threads)
		c[t] = 1
		r.clocks = append(r.clocks, c)
	}
	return r
}

func joinInts(into, from []int) {
	for i, v := range from {
		into[i] = max(into[i], v)
	}
}

// meet synchronizes threads with each other.
func (r *reference) meet(threads []int) {
	all := make([]int, len(r.clocks))
	for _, t := range threads {
		joinInts(all, r.clocks[t])
	}
	for _, t := range threads {
		copy(r.clocks[t], all)
		r.clocks[t][t]++
	}
}

func (r *reference) release(t int, flag uint64) {
	if r.flags[flag] == nil {
		r.flags[flag] = make([]int, len(r.clocks))
	}
	joinInts(r.flags[flag], r.clocks[t])
	r.clocks[t][t]++
}

func (r *reference) acquire(t int, flag uint64) { joinInts(r.clocks[t], r.flags[flag]) }

// access reports whether an access races with an earlier one.
func (r *reference) access(t int, addr uint64, size int, write bool) bool {
	races := false
	for _, a := range r.accesses {
		if a.thread != t && (a.write || write) && a.addr < addr+uint64(size) && addr < a.addr+uint64(a.size) &&
			a.time > r.clocks[t][a.thread] {
			races = true
		}
	}
	r.accesses = append(r.accesses, refAccess{t, r.clocks[t][t], addr, size, write})
	return races
}

// TestRacesAgainstVectorClocks runs random events up to the first race. If only barriers of the
// whole block synchronize threads, the checker must report every race when it happens. With all
// kinds of synchronization it may miss some races, but must not report false ones.
func TestRacesAgainstVectorClocks(t *testing.T) {
	r := testrand.New(t)
	const threads = 96
	for _, whole := range []bool{true, false} {
		races, seen := 0, 0
		for range 1500 {
			f := newFake(t, Options{Only: []Checker{Race}}, 1, threads)
			b := f.block(0)
			ref := newReference(threads)
			words := 1 + r.IntN(40)
			for range 400 {
				warp := r.IntN(threads / 32)
				one := r.IntN(threads)
				switch n := r.IntN(40); {
				case n == 0:
					b.sync("bar", 0, b.all(), 0)
					ref.meet(b.all())
				case n < 4 && !whole:
					mask := r.Uint32() | 1
					if r.IntN(2) == 0 {
						mask = ^uint32(0)
					}
					b.warpSync(warp, mask)
					met := lanes(mask)
					for i := range met {
						met[i] += 32 * warp
					}
					ref.meet(met)
				case n < 6 && !whole:
					some := span(32*warp, 32*warp+32)
					if other := r.IntN(threads / 32); other != warp {
						some = append(some, span(32*other, 32*other+32)...)
					}
					b.sync("part", 1+r.IntN(15), some, len(some))
					ref.meet(some)
				case n < 8 && !whole:
					flag := uint64(4096 + 4*r.IntN(3))
					o := op{site: "rel", kind: emu.Write, sem: emu.Release, scope: emu.CTA}
					b.do(o, []int{one}, func(int) uint64 { return flag })
					ref.release(one, flag)
				case n < 10 && !whole:
					flag := uint64(4096 + 4*r.IntN(3))
					o := op{site: "acq", kind: emu.Read, sem: emu.Acquire, scope: emu.CTA}
					b.do(o, []int{one}, func(int) uint64 { return flag })
					ref.acquire(one, flag)
				default:
					o := op{site: "x", kind: emu.Read, size: 1 << r.IntN(5)}
					if r.IntN(words) == 0 {
						o.kind = emu.Write
					}
					addr := uint64(4*r.IntN(words)) &^ uint64(o.size-1)
					b.do(o, []int{one}, func(int) uint64 { return addr })
					if ref.access(one, addr, o.size, o.kind == emu.Write) {
						races++
						goto raced
					}
				}
				if len(f.checks.workers[0].found) > 0 {
					_, got := f.report(nil)
					t.Fatalf("whole %v: found %q, want no race", whole, got)
				}
			}
		raced:
			b.hooks.End()
			if _, got := f.report(nil); len(got) > 0 {
				seen++
			}
		}
		t.Logf("whole %v: found %d of %d races", whole, seen, races)
		if races < 500 || whole && seen != races || seen < races*9/10 {
			t.Errorf("whole %v: found %d of %d races, want all, or 90 %% for parts of a block", whole, seen, races)
		}
	}
}
