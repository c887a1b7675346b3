package emu

import (
	"math"
	"slices"
)

// order finds the basic blocks and puts them in the reconvergence order.
func (d *decoder) orderBlocks() {
	code := d.f.code
	code[0].leader = true
	for k := range code {
		in := &code[k]
		if last, _ := in.ends(); last || in.site.Instr.Op == "bra" {
			if k+1 < len(code) {
				code[k+1].leader = true
			}
		}
		if in.site.Instr.Op == "bra" {
			code[in.target].leader = true
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
		if code[k].site.Instr.Op == "bra" {
			succs[from] = append(succs[from], block[code[k].target])
		}
		if falls && k+1 < len(code) {
			succs[from] = append(succs[from], block[k+1])
		}
	}
	ranks := reconvergence(succs)
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
}

// ends tells whether in ends a basic block by leaving the function, and whether some
// lanes may go on behind it.
func (in *inst) ends() (leaves, falls bool) {
	i := in.site.Instr
	switch i.Op {
	case "ret", "exit", "trap":
		return true, i.Guard != nil
	case "bra":
		return false, i.Guard != nil
	}
	return false, true
}

// reconvergence puts the basic blocks of a function in the order in which groups of
// diverged lanes run: the group in the block of the lowest number goes first. succs
// gives for each block where it may go on; the first one is the function's start.
//
// The order is topological but for the edges back to the heads of loops, and what a
// loop holds stands together in it. Lanes that wait for the group that runs are
// thus never on a path that this group must take before it meets them. Loops are
// found as in Bourdoncle, "Efficient chaotic iteration strategies with widenings"
// (1993), figure 4.
func reconvergence(succs [][]int32) []int32 {
	o := &orderer{succs: succs, depth: make([]int, len(succs))}
	var reversed []int32
	for b := range succs { // what cannot be reached gets a place too
		if o.depth[b] == 0 {
			var part []int32
			o.visit(int32(b), &part)
			reversed = append(part, reversed...)
		}
	}
	slices.Reverse(reversed)
	rank := make([]int32, len(succs))
	for n, b := range reversed {
		rank[b] = int32(n)
	}
	return rank
}

type orderer struct {
	succs [][]int32
	depth []int // number of the visit; 0 before it, done after it
	count int
	stack []int32
}

const done = math.MaxInt

// visit appends what it orders to part, last first, and returns the least number of
// a visit under way that v leads back to.
func (o *orderer) visit(v int32, part *[]int32) int {
	o.stack = append(o.stack, v)
	o.count++
	o.depth[v] = o.count
	head, loop := o.count, false
	for _, s := range o.succs[v] {
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
		o.depth[top] = 0 // of v's loop: ordered again below, without its head
	}
	if loop {
		for _, s := range o.succs[v] {
			if o.depth[s] == 0 {
				o.visit(s, part)
			}
		}
	}
	*part = append(*part, v)
	return head
}
