package program

import "time"

// Prediction is the predicted time of a program, and the time of its ops by kind.
type Prediction struct {
	Total time.Duration
	Busy  [kinds]time.Duration
}

// engines returns the number of engines.
func (p *Program) engines() (n int) {
	for _, l := range p.Lanes {
		n = max(n, l.Engine+1)
	}
	return n
}

// Simulate predicts the time of the program. cost returns how long an op takes, and a delay before
// it. An op begins when the earlier ops of its lane and of its engine and those for which it waits
// have ended.
func (p *Program) Simulate(cost func(*Op) (delay, busy time.Duration)) (x Prediction) {
	ends := make([]time.Duration, len(p.Ops))
	lanes := make([]time.Duration, len(p.Lanes))
	engines := make([]time.Duration, p.engines())
	for i := range p.Ops {
		op := &p.Ops[i]
		engine := p.Lanes[op.Lane].Engine
		at := max(lanes[op.Lane], engines[engine])
		for _, on := range op.After {
			at = max(at, ends[on])
		}
		delay, busy := cost(op)
		at += delay + busy
		ends[i], lanes[op.Lane], engines[engine] = at, at, at
		x.Total = max(x.Total, at)
		x.Busy[op.Kind] += busy
	}
	return x
}
