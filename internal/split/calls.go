package split

import "slices"

// Times of the host besides those of the calls of the driver: of a product, 1.6 µs on two GPUs that
// execute nothing, and an estimate of the time in which goroutines for all members start.
const (
	productSeconds = 1.6e-6
	startSeconds   = 30e-6
)

// hostSeconds predicts the time in which the host enqueues a plan: the work of one member after the
// other or, if it is faster, that of all members at the same time. It is zero if each member has a
// host of its own.
func (p *Product) hostSeconds(pl *Plan) (seconds float64, concurrent bool) {
	if p.CallSeconds == 0 {
		return 0, false
	}
	most, sum := 0, 0
	for _, n := range pl.Calls() {
		most, sum = max(most, n), sum+n
	}
	together, atOnce := p.CallSeconds*float64(sum), p.CallSeconds*float64(most)+startSeconds
	return productSeconds + min(together, atOnce), atOnce < together
}

// Calls returns the number of launches, copies and events with which the work of each member is
// enqueued, without the launches that a panel needs besides that of its kernel.
//
// Copies wait for the earlier work of the members from which they come and, in a stream of their
// own, of the member itself. Launches wait for the copies of their operands, and copies for the
// launches that used the memory before or computed the results. The next work of a member waits
// until others have read from it.
func (pl *Plan) Calls() []int {
	calls := make([]int, len(pl.Shares))
	for i, event := range pl.Started() {
		if event {
			calls[i]++
		}
	}
	for i := range pl.Shares {
		s := &pl.Shares[i]
		remote, streamed := s.RemoteGathers(), 0 // gathers from other members, and gathers of panels
		s.Gathers(func(all []Copy) { calls[i] += len(all) })
		for j := range s.Panels {
			x := &s.Panels[j]
			calls[i]++ // launch
			if len(x.Gather) > 0 {
				streamed++
			}
			if s.Reused(pl, j, streamed) {
				calls[i]++ // wait
			}
			if s.Reused(pl, j, streamed) || Remote(x.Scatter) {
				calls[i]++ // event
			}
			for k, c := range x.Scatter {
				calls[c.To]++
				if c.To != i && !slices.ContainsFunc(x.Scatter[:k], func(b Copy) bool { return b.To == c.To }) {
					calls[c.To]++ // wait
				}
			}
		}
		calls[i] += len(s.Reads) // waits
		for _, j := range s.Sources {
			calls[j]++ // wait
		}
		takes := min(len(s.Takes), 1)
		if pl.InOrder {
			calls[i] += min(len(s.Sources), 1) // event
		} else {
			calls[i] += min(len(s.Sources), 1) + 2*remote + 2*takes // waits, and events with waits
		}
	}
	return calls
}

// Started reports for each member whether copies wait for its earlier work.
func (pl *Plan) Started() []bool {
	all := make([]bool, len(pl.Shares))
	for i := range pl.Shares {
		s := &pl.Shares[i]
		for _, j := range s.Reads {
			all[j] = true
		}
		all[i] = all[i] || !pl.InOrder && len(s.Sources) > 0
	}
	return all
}

// Reused reports whether the memory of panel i, the gathered-th that gathers operands, is used
// again by a copy that must wait for the panel.
func (s *Share) Reused(pl *Plan, i, gathered int) bool {
	return !pl.InOrder && len(s.Panels[i].Gather) > 0 && gathered-1+Slots < s.Streamed()
}

// moves reports whether members copy from each other.
func (pl *Plan) moves() bool {
	return slices.ContainsFunc(pl.Shares, func(s Share) bool { return len(s.Sources) > 0 })
}
