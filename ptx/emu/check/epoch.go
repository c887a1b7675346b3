package check

import "tilework/ptx/emu"

// epoch is one access, packed: who, where in the program, and when. The time stands
// highest, so that epochs of a block compare as their times do. 0 is no access.
type epoch uint64

// The fields, from the low end: four flags, 18 bits of site, 14 of thread, 28 of time.
// Whatever a program has beyond 262,144 instructions, or a cluster beyond 268 million
// synchronisations, counts as the last of them. Behind the threads of a cluster there
// are agents: see [order].
const (
	// strong: an atomic or one with a memory ordering; two such are no race.
	strong epoch = 1 << iota
	// wide: strong for threads of other blocks too.
	wide
	// async: an asynchronous copy under way. Its time is endless, as nothing but
	// the copy's completion orders it.
	async
	// proxied: an access of the async proxy, by a bulk copy or a wgmma.
	proxied

	siteShift   = 4
	threadShift = 22
	timeShift   = 36

	siteMask   = 1<<(threadShift-siteShift) - 1
	threadMask = 1<<(timeShift-threadShift) - 1
	maxTime    = 1<<(64-timeShift) - 1
)

func makeEpoch(time uint32, thread, site int, flags epoch) epoch {
	return epoch(time)<<timeShift | epoch(thread)<<threadShift | epoch(min(site, siteMask))<<siteShift | flags
}

func (e epoch) time() uint32 { return uint32(e >> timeShift) }
func (e epoch) thread() int  { return int(e>>threadShift) & threadMask }
func (e epoch) warp() int    { return int(e>>(threadShift+5)) & (threadMask >> 5) }
func (e epoch) site() int    { return int(e>>siteShift) & siteMask }

// sameWarp reports whether the threads of e and f are of one warp.
func sameWarp(e, f epoch) bool {
	return (e^f)>>(threadShift+5)&(threadMask>>5) == 0
}

func sameThread(e, f epoch) bool { return (e^f)>>threadShift&threadMask == 0 }

// flagsOf says how strong an access is.
func flagsOf(a *emu.Access) epoch {
	if a.Kind != emu.Atomic && a.Sem == emu.Weak {
		return 0
	}
	if a.Scope == emu.CTA {
		return strong
	}
	return strong | wide
}

// cell is what the race checker remembers of a few bytes: of the writes and of the
// reads the last one, and beside it another of a different thread, and of a different
// warp if there was one. As long as barriers of the whole block are all that orders
// threads, two are enough: if any access is unordered with a new one, one of them is.
// After barriers of a part of the block, a third access may be forgotten, so
// that a race is missed, but none is invented.
type cell struct {
	w, r [2]epoch
}

// note enters a read, or a strong write among strong writes, in its two slots. What
// is older than base is ordered before everything that may still come.
func note(s *[2]epoch, e, base epoch) {
	if s[0] < base {
		s[0], s[1] = s[1], 0
	}
	switch {
	case s[0] < base || s[0]&async == 0 && sameThread(s[0], e):
		s[0] = e
	case s[1] < base || s[1]&async == 0 && sameThread(s[1], e):
		s[1] = e
	case s[1]&async == 0 && sameWarp(s[0], s[1]) && !sameWarp(s[0], e):
		s[1] = e
	}
}

// noteAsync enters a read that is under way, in the place of one that is not.
func (c *cell) noteAsync(e, base epoch) {
	s := &c.r
	switch {
	case s[0] == e || s[1] == e:
	case s[0] < base:
		s[0] = e
	case s[1]&async == 0:
		s[1] = e
	case s[0]&async == 0:
		s[0] = e
	}
}

// noteWrite enters a write. After a weak one, what was before it need not be known:
// who comes after the write comes after all that was ordered before it.
func (c *cell) noteWrite(e, base epoch) {
	if e&strong == 0 {
		*c = cell{w: [2]epoch{e}}
		return
	}
	if c.w[0] != 0 && c.w[0]&strong == 0 {
		c.w[0], c.w[1] = e, c.w[0]
		return
	}
	if c.w[1] != 0 && c.w[1]&strong == 0 {
		c.w[0] = e // the weak one stays for the threads of other blocks
		return
	}
	note(&c.w, e, base)
}
