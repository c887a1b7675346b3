package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// storeSums adds up the lanes of each vector of sums and stores the results one after the other. It
// adds the upper half of the lanes to the lower half until one is left. Vectors that share the
// additions take fewer instructions: four of them, or as many as a vector has lanes. storeSums
// overwrites sums and t.
func (g *generator) storeSums(sums []reg.Register, t reg.Register, to operand.Mem) {
	if len(sums) != 4 && len(sums) != g.lanes() {
		for i, s := range sums {
			g.reduce(s, t)
			g.moveScalar(g.Context, asXMM(s), to.Offset(i*g.size))
		}
		return
	}
	// The additions permute the sums. The sum that ends at place i is that of row i.
	rows := make([]reg.Register, len(sums))
	for place, row := range g.joined(len(sums)) {
		rows[row] = sums[place]
	}
	half := g.lanes() / 2
	for ; len(rows) > 1; half /= 2 {
		for i := range len(rows) / 2 {
			g.joinHalves(half*g.size, rows[2*i], rows[2*i+1], t)
			rows[i] = rows[2*i]
		}
		rows = rows[:len(rows)/2]
	}
	all := rows[0]
	if half == 0 {
		g.move(g.Context, all, to)
		return
	}
	for ; half > 0; half /= 2 {
		g.addHalf(half*g.size, all, t)
	}
	switch { // four sums, each followed by other lanes
	case g.vectorBytes == 64 && g.size == 4:
		g.VPMOVQD(all, asYMM(t))
		g.VPMOVQD(asYMM(t), asXMM(t))
		g.move(g.Context, asXMM(t), to)
	case g.vectorBytes == 64:
		g.VEXTRACTF64X4(operand.U8(1), all, asYMM(t))
		g.VUNPCKLPD(asYMM(t), asYMM(all), asYMM(all))
		g.move(g.Context, asYMM(all), to)
	default:
		g.VEXTRACTF128(operand.U8(1), all, asXMM(t))
		g.VSHUFPS(operand.U8(0x88), asXMM(t), asXMM(all), asXMM(all))
		g.move(g.Context, asXMM(all), to)
	}
}

// joined returns the order in which storeSums stores n sums: the sum of vector joined(n)[i] is
// stored at place i.
func (g *generator) joined(n int) []int {
	vectors := make([][]int, n) // the sums in each vector
	for i := range vectors {
		vectors[i] = []int{i}
	}
	for bytes := g.vectorBytes / 2; len(vectors) > 1; bytes /= 2 {
		for i := range len(vectors) / 2 {
			a, b := vectors[2*i], vectors[2*i+1]
			each := len(a) // sums that stay together
			if bytes < quadBytes {
				each = max(len(a)*quadBytes/g.vectorBytes, 1)
			}
			var both []int
			for at := 0; at < len(a); at += each {
				both = append(append(both, a[at:at+each]...), b[at:at+each]...)
			}
			vectors[i] = both
		}
		vectors = vectors[:len(vectors)/2]
	}
	all := vectors[0]
	if n < g.lanes() && g.vectorBytes == 64 && g.size == 8 {
		all[1], all[2] = all[2], all[1]
	}
	return all
}

// quadBytes is the size of the parts of a vector between which most shuffles move nothing.
const quadBytes = 16

// joinHalves adds the upper and the lower half of each part of 2·bytes bytes, in two vectors, and
// leaves the sums of both in a. It overwrites t.
func (g *generator) joinHalves(bytes int, a, b, t reg.Register) {
	switch {
	case bytes == 32:
		g.VINSERTF64X4(operand.U8(1), asYMM(b), a, t)
		g.VSHUFF64X2(operand.U8(0xee), b, a, a)
	case bytes == quadBytes && g.vectorBytes == 64:
		g.VSHUFF64X2(operand.U8(0x88), b, a, t)
		g.VSHUFF64X2(operand.U8(0xdd), b, a, a)
	case bytes == quadBytes:
		g.VINSERTF128(operand.U8(1), asXMM(b), a, t)
		g.VPERM2F128(operand.U8(0x31), b, a, a)
	case bytes == 8:
		g.VUNPCKLPD(b, a, t)
		g.VUNPCKHPD(b, a, a)
	default:
		g.VSHUFPS(operand.U8(0x88), b, a, t)
		g.VSHUFPS(operand.U8(0xdd), b, a, a)
	}
	g.add(g.Context, t, a, a)
}

// reduce adds the upper half of s to the lower half until one element is left. It overwrites t.
func (g *generator) reduce(s, t reg.Register) {
	for bytes := g.vectorBytes / 2; bytes >= g.size; bytes /= 2 {
		switch { // the upper half goes to t
		case bytes == 32:
			g.VEXTRACTF64X4(operand.U8(1), s, asYMM(t))
			s, t = asYMM(s), asYMM(t)
			g.add(g.Context, t, s, s)
		case bytes == quadBytes && g.vectorBytes == 64:
			g.VEXTRACTF32X4(operand.U8(1), s, asXMM(t))
			s, t = asXMM(s), asXMM(t)
			g.add(g.Context, t, s, s)
		case bytes == quadBytes:
			g.VEXTRACTF128(operand.U8(1), s, asXMM(t))
			s, t = asXMM(s), asXMM(t)
			g.add(g.Context, t, s, s)
		default:
			g.addHalf(bytes, s, t)
		}
	}
}

// addHalf adds the upper half of each part of 2·bytes ≤ 16 bytes to the lower half. It overwrites
// t.
func (g *generator) addHalf(bytes int, s, t reg.Register) {
	switch {
	case bytes == 4:
		g.VMOVSHDUP(s, t)
	case s.Size() == 64:
		g.VPERMILPD(operand.U8(0x55), s, t)
	default:
		g.VPERMILPD(operand.U8(5), s, t)
	}
	g.add(g.Context, t, s, s)
}
