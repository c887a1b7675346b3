package emu

import (
	"fmt"
	"slices"
	"strings"
)

// Threads that poll memory that no thread will write do not wait for anything that the scheduler
// knows. A cluster therefore takes snapshots of its running warps. If all of them reach the state
// of the snapshot again, and no shared or global memory has changed in the meantime, they repeat
// the same instructions for ever.

const (
	// firstSnapshot is the number of instructions of a cluster before its first snapshot. Each
	// snapshot is taken after twice as many instructions as the one before.
	firstSnapshot = 1 << 16
	// leastRepeated is the number of instructions without a write after which a repeated state
	// counts. It covers the random lengths of many time slices.
	leastRepeated = 1 << 15
)

// spinWatch is the state of the search for warps that spin.
type spinWatch struct {
	next   uint64 // value of cluster.executed at the next snapshot
	since  uint64 // value of cluster.executed at the last snapshot
	writes uint64 // value of cluster.visibleWrites at the last snapshot
	states map[*warp]warpState
	// repeated holds the running warps that have reached their state again.
	repeated map[*warp]bool
	found    bool // all running warps repeat themselves
}

// warpState is a copy of the registers, the local memory and the positions of a warp.
type warpState struct {
	groups    []group
	registers [][]uint64 // of all frames of all groups
	local     []uint64
}

// spins reports whether all running warps of the cluster repeat themselves. w has just executed a
// time slice.
func (c *cluster) spins(w *warp) bool {
	s := &c.spin
	switch {
	case len(c.asyncOps) > 0 || c.run.running.Load() > 1: // memory can still change
		return false
	case c.executed >= s.next:
		*s = spinWatch{next: 2 * c.executed, since: c.executed, writes: c.visibleWrites(), states: map[*warp]warpState{},
			repeated: map[*warp]bool{}}
		for _, w := range c.runnable {
			s.states[w] = w.copyState()
		}
		return false
	case c.visibleWrites() != s.writes || !w.queued:
		return false
	}
	if state, ok := s.states[w]; ok && !s.repeated[w] && w.isAt(&state) {
		s.repeated[w] = true
	}
	s.found = c.executed >= s.since+leastRepeated && len(s.repeated) >= len(c.runnable) &&
		!slices.ContainsFunc(c.runnable, func(w *warp) bool { return !s.repeated[w] })
	return s.found
}

func (w *warp) copyState() warpState {
	s := warpState{groups: slices.Clone(w.groups), local: slices.Clone(w.local)}
	w.eachFrame(func(f *frame) bool {
		s.registers = append(s.registers, slices.Clone(f.file[:f.fn.clear/8]))
		return true
	})
	return s
}

// isAt reports whether the warp is in state s.
func (w *warp) isAt(s *warpState) bool {
	if !slices.EqualFunc(w.groups, s.groups, func(g, h group) bool {
		return g.pc == h.pc && g.mask == h.mask && g.state == h.state && g.polls == h.polls &&
			g.frame.fn == h.frame.fn && g.frame.depth == h.frame.depth
	}) {
		return false
	}
	k := 0
	w.eachFrame(func(f *frame) bool {
		if k >= len(s.registers) || !slices.Equal(f.file[:f.fn.clear/8], s.registers[k]) {
			k = -1
			return false
		}
		k++
		return true
	})
	return k == len(s.registers) && slices.Equal(w.local, s.local)
}

// eachFrame calls do for the frames of all groups, until do returns false.
func (w *warp) eachFrame(do func(f *frame) bool) {
	for n := range w.groups {
		for f := w.groups[n].frame; f != nil; f = f.caller {
			if !do(f) {
				return
			}
		}
	}
}

// spinError returns the error for a cluster whose warps spin.
func (c *cluster) spinError() error {
	later := ""
	switch n := (c.run.clusters - int(c.run.next.Load())) * len(c.blocks); {
	case n == 1:
		later = ", and 1 other block has not started (the emulator runs blocks one after the other)"
	case n > 1:
		later = fmt.Sprintf(", and %d other blocks have not started (the emulator runs blocks one after the other)", n)
	}
	return fmt.Errorf("block %v: %s, but no thread that still runs writes memory%s: %w", c.runnable[0].block.index,
		c.runningText(), later, ErrDeadlock)
}

// runningText describes the places of the running warps.
func (c *cluster) runningText() string {
	warps := slices.Clone(c.runnable)
	slices.SortFunc(warps, func(a, b *warp) int {
		return (a.block.rank-b.block.rank)<<8 + a.index - b.index
	})
	var list []string
	for _, w := range warps {
		for n := range w.groups {
			if g := &w.groups[n]; g.state == ready || g.state == yielded {
				list = append(list, w.runText(g))
			}
		}
	}
	return few(list)
}

// runText describes where group g runs: at the access with which it polls, if there is one.
func (w *warp) runText(g *group) string {
	of := ""
	if len(w.block.cluster.blocks) > 1 {
		of = fmt.Sprintf(" of block %v", w.block.index)
	}
	where, does := g.frame.fn.code[g.pc].site, "loops"
	if g.polled != nil {
		where, does = g.polled.site, "polls"
	}
	return fmt.Sprintf("warp %d%s (lanes %#08x) %s at %v", w.index, of, g.mask, does, where)
}

// few joins the first items of a list and adds the number of the others.
func few(list []string) string {
	const shown = 4
	if len(list) <= shown {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:shown], "; "), len(list)-shown)
}
