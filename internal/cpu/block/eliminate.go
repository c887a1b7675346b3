package block

import (
	"sync"

	"tilework/internal/cpu"
)

// eliminate factorises a matrix that is divided into blocks of columns. The first ones are the
// panels. It calls step(p, b) for every panel and block: step(b, b) factorises a panel, and step(p,
// b) changes another block accordingly. The steps of a block follow one another in the order of the
// panels, and all steps with panel p follow step(p, p). Steps on the right of a panel read it, and
// steps on its left exchange rows: step(p, b) with b < p follows step(b, c) for all c > b. Others
// may run at the same time, on as many threads as the given number of operations justifies.
func eliminate(panels, blocks int, flops float64, step func(panel, block int)) {
	e := elimination{panels: panels, left: panels * blocks, blocks: make([]progress, blocks)}
	Parallel(max(blocks-1, 1), flops, func(int) {
		var wait cpu.SpinWait
		for {
			b, over := e.take()
			if over {
				return
			}
			if b < 0 {
				wait.Pause()
				continue
			}
			step(e.blocks[b].steps, b)
			e.finish(b)
			wait = cpu.SpinWait{}
		}
	})
}

// elimination is the state of a factorisation.
type elimination struct {
	sync.Mutex
	panels, factorised int // of them, the first ones are factorised
	left               int // steps that have not started
	blocks             []progress
}

// progress is the state of a block.
type progress struct {
	steps int  // that are done
	busy  bool // whether another one runs
}

// take chooses a block whose next step the caller must perform: that of the next panel, or the one
// right of it that has the fewest steps, or one left of it that no step on its right will read. It
// returns -1 if no step can start now, and reports whether all have started.
func (e *elimination) take() (block int, over bool) {
	e.Lock()
	defer e.Unlock()
	block = -1
	least := e.panels // steps that all blocks right of the factorised panels have done
	for i := range e.blocks {
		b := (e.factorised + i) % len(e.blocks)
		p := e.blocks[b]
		isLeft := b < e.factorised
		if !isLeft {
			least = min(least, p.steps)
		} else if block >= 0 {
			break
		}
		if p.busy || p.steps == e.panels || p.steps == e.factorised && p.steps != b || isLeft && b >= least {
			continue
		}
		if block < 0 || p.steps < e.blocks[block].steps {
			block = b
		}
		if i == 0 {
			break
		}
	}
	if block >= 0 {
		e.blocks[block].busy = true
		e.left--
	}
	return block, e.left == 0 && block < 0
}

// finish ends the step of a block.
func (e *elimination) finish(block int) {
	e.Lock()
	defer e.Unlock()
	p := &e.blocks[block]
	if p.steps == block {
		e.factorised++
	}
	p.steps++
	p.busy = false
}
