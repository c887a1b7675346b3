package block

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"tilework/internal/testkit/testrand"
)

// TestEliminate checks that every step runs once, after those that it follows, on one thread and on
// several.
func TestEliminate(t *testing.T) {
	rng := testrand.New(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for range 300 {
		blocks := 1 + rng.IntN(12)
		panels := 1 + rng.IntN(blocks)
		threads := 1 + rng.IntN(4)
		runtime.GOMAXPROCS(threads)
		done := make([]atomic.Int64, blocks) // the steps of each block
		eliminate(panels, blocks, float64(threads)*minFlopsPerThread, func(p, b int) {
			if got := done[b].Load(); got != int64(p) {
				t.Errorf("%d panels, %d blocks: step (%d, %d) follows %d steps of that block", panels, blocks, p, b, got)
			}
			if got := done[p].Load(); p != b && got <= int64(p) {
				t.Errorf("%d panels, %d blocks: step (%d, %d) started before panel %[3]d was factorised", panels, blocks, p, b)
			}
			runtime.Gosched()
			done[b].Add(1)
		})
		for b := range done {
			if got := done[b].Load(); got != int64(panels) {
				t.Errorf("%d panels, %d blocks: %d steps of block %d", panels, blocks, got, b)
			}
		}
	}
}

// TestSteps starts and ends the steps of several threads in random order. It checks that the panel
// that a step reads is factorised, and that its rows are exchanged only after the step.
func TestSteps(t *testing.T) {
	rng := testrand.New(t)
	for range 1000 {
		blocks := 1 + rng.IntN(8)
		panels := 1 + rng.IntN(blocks)
		threads := 1 + rng.IntN(4)
		e := elimination{panels: panels, left: panels * blocks, blocks: make([]progress, blocks)}
		var running []int // blocks
		for e.left > 0 || len(running) > 0 {
			if len(running) == 0 || len(running) < threads && rng.IntN(2) == 0 {
				if b, _ := e.take(); b >= 0 {
					checkStep(t, &e, b)
					running = append(running, b)
					continue
				}
			}
			if len(running) == 0 {
				t.Fatalf("%d panels, %d blocks: no step can start, and %d must", panels, blocks, e.left)
			}
			i := rng.IntN(len(running))
			e.finish(running[i])
			running = slices.Delete(running, i, i+1)
		}
		for b, p := range e.blocks {
			if p.steps != panels {
				t.Errorf("%d panels, %d blocks: %d steps of block %d", panels, blocks, p.steps, b)
			}
		}
	}
}

// checkStep checks that the next step of block b can start.
func checkStep(t *testing.T, e *elimination, b int) {
	t.Helper()
	p := e.blocks[b].steps
	if p != b && e.blocks[p].steps <= p {
		t.Fatalf("%d panels, %d blocks: step (%d, %d) starts before panel %[3]d is factorised", e.panels, len(e.blocks), p, b)
	}
	for c := b + 1; b < p && c < len(e.blocks); c++ {
		if e.blocks[c].steps <= b {
			t.Fatalf("%d panels, %d blocks: step (%d, %d) starts before step (%[4]d, %d), which reads block %[4]d", e.panels,
				len(e.blocks), p, b, c)
		}
	}
}
