// Package programtest checks the programs of planners without running them.
package programtest

import (
	"testing"

	"tilework/internal/program"
)

// CheckOrder checks that the program orders each two ops for which conflict is true, so that one
// ends before the other begins, and that it needs each wait for this. conflict is called with the
// numbers of an earlier and a later op.
func CheckOrder(t *testing.T, p *program.Program, conflict func(a, b int) bool) {
	t.Helper()
	var pairs [][2]int
	for b := range p.Ops {
		for a := range b {
			if conflict(a, b) {
				pairs = append(pairs, [2]int{a, b})
			}
		}
	}
	if x := unordered(p, pairs, -1, 0); x != nil {
		t.Errorf("ops %d and %d use the same memory, and neither waits for the other:\n%v", x[0], x[1], p)
	}
	for i := range p.Ops {
		for j, on := range p.Ops[i].After {
			if unordered(p, pairs, i, j) == nil {
				t.Errorf("op %d waits for op %d, and no memory needs it:\n%v", i, on, p)
			}
		}
	}
}

// unordered returns the first of the pairs that the program does not order without a wait of op
// without, or nil.
func unordered(p *program.Program, pairs [][2]int, without, wait int) *[2]int {
	before := make([][]bool, len(p.Ops)) // by op, the ops that end before it begins
	last := make([]int, len(p.Lanes))    // by lane, the number of ops up to its last one
	for i := range p.Ops {
		op := &p.Ops[i]
		before[i] = make([]bool, i)
		add := func(on int) {
			before[i][on] = true
			for k, ordered := range before[on] {
				before[i][k] = before[i][k] || ordered
			}
		}
		if n := last[op.Lane]; n > 0 {
			add(n - 1)
		}
		for j, on := range op.After {
			if i != without || j != wait {
				add(on)
			}
		}
		last[op.Lane] = i + 1
	}
	for i, x := range pairs {
		if !before[x[1]][x[0]] {
			return &pairs[i]
		}
	}
	return nil
}
