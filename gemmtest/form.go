package gemmtest

import (
	"fmt"
	"iter"
	"slices"

	"tilework/internal/ints"
)

// form holds the properties of a product except its sizes and its data. A GPU kernel, for example,
// is compiled for a form.
type form struct {
	pair             Pair
	transA, transB   bool
	epilogue         Epilogue
	coarseA, coarseB bool // block scales: one for each block of rows of A, and of columns of B
	mixed            bool // of int8 and uint8, A has one and B the other
	grouped          bool // a batch consists of groups of rows, unless A is transposed
	alignment        alignment
}

// form draws a form of kind k. turn determines its types and transposes.
func (t *trial) form(k kind, pairs []Pair, turn int) form {
	f := form{pair: pairs[turn%len(pairs)], coarseA: t.coin(), coarseB: t.coin(), mixed: k.zeros && t.coin(),
		grouped: t.coin()}
	transposes := turn / len(pairs)
	f.transA, f.transB = transposes&1 != 0, transposes&2 != 0
	if k.epilogue != nil {
		f.epilogue = k.epilogue(t, f.pair)
		f.epilogue.Gated = f.epilogue.Gated && !k.scales // a gate and block scales cannot be combined
	}
	return f
}

// coin returns a random bool.
func (t *trial) coin() bool { return t.rng.IntN(2) == 0 }

// forms returns the forms to try for a case. Cases cycle through all combinations of types and
// transposes, from a random one on, so that a check with few cases takes other ones with each seed.
// If that of a case is not supported, random ones follow.
func (t *trial) forms(k kind, pairs []Pair) iter.Seq[form] {
	return func(yield func(form) bool) {
		turn := t.turn
		for range draws {
			if !yield(t.form(k, pairs, turn)) {
				return
			}
			turn = t.rng.IntN(4 * len(pairs))
		}
	}
}

// sizesPerForm is the number of sizes that fewForms tries before it draws another form.
const sizesPerForm = 10

// fewForms is like forms, but the forms depend only on the seed, the pair and k.form. Cases cycle
// through the pairs. uint8 has the forms of int8, whose kernels multiply it.
func (t *trial) fewForms(k kind, pairs []Pair) iter.Seq[form] {
	return func(yield func(form) bool) {
		pair, alignments := pairs[t.n%len(pairs)], []alignment{whole, odd, ragged}
		switch k.form {
		case plainForm:
			k.epilogue, alignments = nil, alignments[:2] // a block of a ragged matrix is aligned differently
		case batchForm:
			alignments = []alignment{whole, ragged} // multiples of odd strides are aligned differently
		}
		if t.impl.volume() < vector*vector*vector {
			alignments = alignments[1:]
		}
		for n := range draws / sizesPerForm {
			drawn := &trial{impl: t.impl, rng: t.opt.random(fmt.Sprint("form ", k.form, pair.signed()), n)}
			f := drawn.form(k, []Pair{pair}, drawn.rng.IntN(4))
			f.alignment = choose(drawn, alignments...)
			if k.form == plainForm {
				f.transB = !f.transA // so the transposed product has the same form
			}
			for range sizesPerForm {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// fewPairs returns one of the pairs for each type of the operands, and two if their products can be
// both integers and floats. The choice depends only on the seed.
func (o *Options) fewPairs(pairs []Pair) []Pair {
	return slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool {
		alike := slices.DeleteFunc(slices.Clone(pairs), func(q Pair) bool {
			return q.In != p.In || q.integer() != p.integer()
		})
		return p != choose(&trial{rng: o.random(fmt.Sprint("pairs ", p.signed().In, p.integer(), len(alike)), 0)}, alike...)
	})
}

// alignment restricts the sizes and leading dimensions of a product. They determine how many
// elements one instruction can move.
type alignment int

const (
	free   alignment = iota // no restriction
	odd                     // odd leading dimensions
	whole                   // sizes and leading dimensions are multiples of vector
	ragged                  // odd sizes, and leading dimensions that are multiples of vector
)

// vector is the largest number of elements that one instruction moves: 16 bytes.
const vector = 16

// size returns a size near n.
func (a alignment) size(n int) int {
	switch {
	case a == ragged:
		return max(n-1, 0) | 1
	case a == whole && n > 0:
		return max(n/vector, 1) * vector
	}
	return n
}

// ld returns a leading dimension of at least n. If it is odd it is not 1, because a column with
// that leading dimension is also a row.
func (a alignment) ld(n int) int {
	switch a {
	case odd:
		return max(n, 3) | 1
	case whole, ragged:
		return ints.RoundUp(n, vector)
	}
	return n
}

// cut returns a random position at which to cut n rows or columns of the last drawn product.
func (t *trial) cut(n int) int {
	if t.drawn.alignment == whole {
		return t.rng.IntN(n/vector+1) * vector
	}
	return t.rng.IntN(n + 1)
}

// unit returns a random number for a batch of the last drawn product. Leading dimensions and
// strides are multiples of it.
func (t *trial) unit() int {
	if t.drawn.alignment == free {
		return choose(t, 1, 1, vector, 64)
	}
	return choose(t, vector, 64)
}
