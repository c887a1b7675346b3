package check

import "tilework/ptx/emu"

// epoch is a packed access: its time, thread, instruction and flags. The time is in the high
// bits, so that the epochs of a block are ordered by time. 0 means no access.
type epoch uint64

// The fields, from the low end, are six flags, 18 bits of instruction index, 14 bits of
// thread and 26 bits of time. Instructions after the first 262,143 and synchronizations of a
// cluster beyond 67 million share the last value. Thread numbers after those of the cluster's
// threads denote agents; see [order].
const (
	// strong marks an atomic, or an access with a memory ordering. Two of them do not race.
	strong epoch = 1 << iota
	// wide marks a strong access whose scope includes other blocks.
	wide
	// async marks an asynchronous copy in flight. It has the maximum time, because only its
	// completion orders it.
	async
	// proxied marks an access of the async proxy, by a bulk copy or a wgmma.
	proxied
	// repeats marks a store of the bytes that memory already held.
	repeats
	// resets marks a plain store of a thread to bytes that it has updated by an atomic operation.
	resets

	siteShift   = 6
	threadShift = 24
	timeShift   = 38

	// raceMask selects the warp, the instruction and the flags.
	raceMask epoch = 1<<timeShift - 1<<(threadShift+5) + 1<<threadShift - 1

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

// sameWarp reports whether e and f are accesses of the same warp.
func sameWarp(e, f epoch) bool {
	return (e^f)>>(threadShift+5)&(threadMask>>5) == 0
}

func sameThread(e, f epoch) bool { return (e^f)>>threadShift&threadMask == 0 }

// flagsOf returns the flags strong and wide of an access.
func flagsOf(a *emu.Access) epoch {
	if a.Kind != emu.Atomic && a.Sem == emu.Weak {
		return 0
	}
	if a.Scope == emu.CTA {
		return strong
	}
	return strong | wide
}

// cell is the shadow state of a few bytes. For writes and for reads it holds the last access and
// one more by a different thread, if possible of a different warp. If only barriers of the whole
// block order threads, two accesses suffice: if any access is unordered with a new one, one of
// these two is. With barriers of a part of the block, a third access may be lost. A race can then
// be missed, but no false race is reported.
type cell struct {
	w, r [2]epoch
}

// note records a read, or a strong write after strong writes. Accesses before base are ordered
// before all later ones and can be replaced.
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

// noteAsync records an asynchronous read in flight, if necessary in place of a completed read.
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

// noteWrite records a write. A weak write replaces all earlier accesses: an access ordered after
// it is also ordered after all accesses that were ordered before it.
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
		c.w[0] = e // keep the weak write, for comparison with other blocks
		return
	}
	note(&c.w, e, base)
}
