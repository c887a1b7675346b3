package split

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/program"
)

// rankWriter writes the program of one of several ranks.
type rankWriter struct {
	writer
	rank    int
	start   int // after the earlier work of the rank
	arrived int // the last op that copied something to the rank
	moved   int // the last op that copied something
}

// RankWork returns the program of one of several ranks that compute a division, each with a program
// of its own. Its lanes are those of a member.
//
// All ranks exchange in the same rounds. Round 0 gathers the operands that all panels need, and
// round i+1 those of panel i. The last rounds bring panels of C to the ranks that store them. A
// panel waits for its round, and a round for the panel that used the same memory before.
func (p *Job) RankWork(d *Division, rank int) *Work {
	w := &rankWriter{writer: writer{Work: p.newWork(d), Division: d}, rank: rank, arrived: none, moved: none}
	for l, name := range [Lanes]string{"kernels", "copies"} {
		w.AddLane(program.Lane{Name: fmt.Sprintf("%s of %d", name, rank), Worker: l, Engine: l})
	}
	rounds := 0
	for i := range d.Shares {
		rounds = max(rounds, len(d.Shares[i].Panels))
	}
	w.start = w.addOp(program.Op{Kind: program.Join}, Action{Member: rank})
	w.exchange(Action{Panel: none}, func(s *Share) []Copy { return s.Gather }, none)
	panels := d.Shares[rank].Panels
	launches, last, gathered := []int{}, [Slots]int{none, none}, 0
	for i := range rounds {
		slot, after := gathered%Slots, none
		gathers := i < len(panels) && len(panels[i].Gather) > 0
		if gathers {
			after = last[slot]
		}
		w.exchange(Action{Panel: i, Slot: slot}, inPanel(i, func(x *Panel) []Copy { return x.Gather }), after)
		if i >= len(panels) {
			continue
		}
		op := program.Op{Kind: program.Launch, Operand: gemm.C, Part: panels[i].C}
		launches = append(launches, w.addOp(op, Action{Member: rank, Panel: i, Slot: slot}, w.arrived))
		if gathers {
			last[slot] = launches[i]
			gathered++
		}
	}
	for i := range rounds {
		after := none
		if i < len(panels) && len(panels[i].Scatter) > 0 {
			after = launches[i]
		}
		w.exchange(Action{Panel: i, Result: true}, inPanel(i, func(x *Panel) []Copy { return x.Scatter }), after)
	}
	w.addOp(program.Op{Kind: program.Join}, Action{Member: rank}, w.moved)
	return w.laidOut()
}

// inPanel returns a function that returns the copies of panel i of a share, which may have fewer.
func inPanel(i int, copies func(*Panel) []Copy) func(*Share) []Copy {
	return func(s *Share) []Copy {
		if i >= len(s.Panels) {
			return nil
		}
		return copies(&s.Panels[i])
	}
}

// exchange adds a round: the copies within the rank, and an exchange with the other ones. All ranks
// exchange equally often, even if they copy nothing.
func (w *rankWriter) exchange(x Action, copies func(*Share) []Copy, after int) {
	x.Member = w.rank
	for i := range w.Shares {
		for _, c := range copies(&w.Shares[i]) {
			switch {
			case c.From == w.rank && c.To == w.rank:
				local := x
				local.Copy, local.Moves = c, nil
				op := program.Op{Kind: program.Copy, Operand: c.Operand, Part: c.Part, Lane: 1}
				w.arrived = w.addOp(op, local, w.start, after)
				w.moved = w.arrived
			case c.From == w.rank || c.To == w.rank:
				x.Moves = append(x.Moves, c)
			}
		}
	}
	op := program.Op{Kind: program.Exchange, Lane: 1}
	if len(x.Moves) == 0 {
		w.addOp(op, x)
		return
	}
	w.moved = w.addOp(op, x, w.start, after)
	if slices.ContainsFunc(x.Moves, func(c Copy) bool { return c.To == w.rank }) {
		w.arrived = w.moved
	}
}
