package emu

import (
	"math"
	"slices"
)

// orderBlocks finds the basic blocks and computes their reconvergence order. It returns an error if
// that would take too much time or stack.
func (d *decoder) orderBlocks() error {
	code := d.f.code
	code[0].leader = true
	for k := range code {
		in := &code[k]
		if last, _ := in.ends(); last || in.targets() != nil {
			if k+1 < len(code) {
				code[k+1].leader = true
			}
		}
		for _, to := range in.targets() {
			code[to].leader = true
		}
	}
	block := make([]int32, len(code))
	n := int32(-1)
	for k := range code {
		if code[k].leader {
			n++
		}
		block[k] = n
	}
	succs := make([][]int32, n+1)
	for k := range code {
		if k+1 < len(code) && !code[k+1].leader {
			continue
		}
		from := block[k]
		_, falls := code[k].ends()
		for _, to := range code[k].targets() {
			succs[from] = append(succs[from], block[to])
		}
		if falls && k+1 < len(code) {
			succs[from] = append(succs[from], block[k+1])
		}
	}
	ranks, ok := reconvergence(succs)
	if !ok {
		return unsupported(d.f.Pos, "%s: a function of more than %d basic blocks, or with loops nested more than %d deep,",
			d.f.Name, maxBlocks, maxLoops)
	}
	d.f.rank = make([]int32, len(code))
	for k := range code {
		d.f.rank[k] = ranks[block[k]]
	}
	d.f.next = make([][]int32, len(succs))
	for from, to := range succs {
		for _, b := range to {
			d.f.next[ranks[from]] = append(d.f.next[ranks[from]], ranks[b])
		}
	}
	return nil
}

// ends reports whether in leaves the function, and whether lanes can continue at the next
// instruction.
func (in *inst) ends() (leaves, falls bool) {
	i := in.site.Instr
	switch i.Op {
	case "ret", "exit", "trap":
		return true, i.Guard != nil
	case "bra", "brx":
		return false, i.Guard != nil
	}
	return false, true
}

// Limits of a function. The order of its blocks takes a visit for each block and each loop around
// it, and a frame of the stack for each block.
const (
	maxBlocks = 1 << 20
	maxLoops  = 64 // around a block, on average
)

// reconvergence returns the rank of each basic block in the order in which groups of diverged lanes
// run: the group in the block with the lowest rank runs first. succs lists the successors of each
// block. The function starts at block 0.
//
// The order is topological except for the back edges of loops, and the blocks of a loop are
// contiguous in it. Lanes that wait for the running group are therefore never on a path that this
// group must take before it joins them. Loops are found as in Bourdoncle, "Efficient chaotic
// iteration strategies with widenings" (1993), figure 4.
//
// It returns false if there are more than maxBlocks blocks, or more visits than maxLoops allows.
func reconvergence(succs [][]int32) (rank []int32, ok bool) {
	if len(succs) > maxBlocks {
		return nil, false
	}
	o := &orderer{succs: succs, depth: make([]int, len(succs)), most: maxLoops * (len(succs) + maxLoops)}
	rank = make([]int32, len(succs))
	n := int32(0)
	for b := range succs { // includes unreachable blocks
		if o.depth[b] == 0 {
			var part []int32
			o.visit(int32(b), &part)
			for _, b := range slices.Backward(part) {
				rank[b] = n
				n++
			}
		}
	}
	return rank, o.count <= o.most
}

type orderer struct {
	succs       [][]int32
	depth       []int // number of the visit; 0 before it, done after it
	count, most int   // visits
	stack       []int32
}

const done = math.MaxInt

// visit appends the component of v to part in reverse order. It returns the least number of an
// unfinished visit that v leads back to.
func (o *orderer) visit(v int32, part *[]int32) int {
	o.stack = append(o.stack, v)
	o.count++
	o.depth[v] = o.count
	head, loop := o.count, false
	for _, s := range o.succs[v] {
		if o.count > o.most {
			break
		}
		least := o.depth[s]
		if least == 0 {
			least = o.visit(s, part)
		}
		if least <= head {
			head, loop = least, true
		}
	}
	if head != o.depth[v] {
		return head
	}
	o.depth[v] = done
	for {
		top := o.stack[len(o.stack)-1]
		o.stack = o.stack[:len(o.stack)-1]
		if top == v {
			break
		}
		o.depth[top] = 0 // part of v's loop; ordered below without the loop head
	}
	if loop && o.count <= o.most {
		for _, s := range o.succs[v] {
			if o.depth[s] == 0 {
				o.visit(s, part)
			}
		}
	}
	*part = append(*part, v)
	return head
}
