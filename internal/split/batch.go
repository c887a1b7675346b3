package split

import (
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// A strided batch is divided by whole products. In its [Job] and [Division], a part of C is a range
// of products: Rows of a [program.Rect] counts products, and Cols is the one column 0.
//
// Groups of rows are divided by columns of C, because only the device may know the ends of the
// groups. A member computes its columns of all groups, from all of A and from these columns of each
// matrix of B.

// Step is the distance from a matrix of a batch to the next one in the stored matrix that holds
// both: rows if one is below the other, columns if they are side by side. All products share a
// matrix whose step is zero.
type Step struct{ Rows, Cols int }

// Products divides n products among members in proportion to their weights. Some may have none.
func Products(n int, weights []float64) (all []program.Span) {
	from := 0
	for _, end := range ends(n, weights, 1) {
		all = append(all, program.Range(from, end))
		from = end
	}
	return all
}

// Groups divides groups of rows among members, so that the rows are in proportion to the weights of
// the members. ends holds the row after each group. Some members may have no groups.
func Groups(ends []int32, weights []float64) (all []program.Span) {
	total, sum, from, rows := 0., 0., 0, 0
	for _, w := range weights {
		total += w
	}
	if len(ends) > 0 {
		rows = int(ends[len(ends)-1])
	}
	for i, w := range weights {
		sum += w
		to := len(ends)
		if i < len(weights)-1 {
			to = from
			// Half of the next group is before the cut, or more.
			for to < len(ends) && float64(start(ends, to)+int(ends[to]))/2 <= sum/total*float64(rows) {
				to++
			}
		}
		all = append(all, program.Range(from, to))
		from = to
	}
	return all
}

// start returns the first row of a group.
func start(ends []int32, group int) int {
	if group == 0 {
		return 0
	}
	return int(ends[group-1])
}

// batched reports whether the product is a batch.
func (p *Job) batched() bool { return p.Batch.Kind == gemm.Strided }

// grouped reports whether the product is one of groups of rows.
func (p *Job) grouped() bool { return p.Batch.Kind == gemm.Grouped }

// sides returns the rows and columns of C as parts of a division count them.
func (p *Job) sides() (rows, cols int) {
	if p.batched() {
		return p.Batch.Count, 1
	}
	return p.M, p.N
}

// matrix returns the part of operand o's matrix that belongs to product i.
func (p *Job) matrix(o gemm.Operand, i int) program.Rect {
	l, at := p.Layout(o), p.Places[o]
	return program.RectAt(at.Row+i*at.Step.Rows, at.Col+i*at.Step.Cols, l.Rows, l.Cols)
}

// matrices returns the smallest part of operand o's matrix with the matrices of some products.
func (p *Job) matrices(o gemm.Operand, products program.Span) program.Rect {
	return between(products, func(i int) program.Rect { return p.matrix(o, i) })
}

// group returns the columns of B of a group as a part of the stored matrix.
func (p *Job) group(i int, cols program.Span) program.Rect {
	r := p.matrix(gemm.B, i)
	if p.Layout(gemm.B).Trans {
		r.Rows = cols.Plus(r.Rows.From)
	} else {
		r.Cols = cols.Plus(r.Cols.From)
	}
	return r
}

// groups returns the smallest part of B's matrix with columns of B of all groups.
func (p *Job) groups(cols program.Span) program.Rect {
	return between(program.First(p.Batch.Count), func(i int) program.Rect { return p.group(i, cols) })
}

// heldStep returns the distance between the columns of B of two groups in memory that holds those
// of all groups. They are no farther from each other than in the stored matrix, and as aligned.
func (p *Job) heldStep(cols program.Span) Step {
	one, step := p.group(0, cols), p.Places[gemm.B].Step
	return Step{min(step.Rows, ints.RoundUp(one.Rows.Len(), Align)), min(step.Cols, ints.RoundUp(one.Cols.Len(), Align))}
}

// held returns the part of operand o's matrix for a part of C as memory holds it that is gathered.
func (p *Job) held(o gemm.Operand, c program.Rect) program.Rect {
	if o != gemm.B || !p.grouped() || p.Batch.Count == 0 {
		return p.Needs(o, c)
	}
	r, step := p.group(0, c.Cols), p.heldStep(c.Cols)
	r.Rows.To += (p.Batch.Count - 1) * step.Rows
	r.Cols.To += (p.Batch.Count - 1) * step.Cols
	return r
}

// moved returns the distance by which the i-th part of [Job.copied] is moved in memory that
// holds gathered parts.
func (p *Job) moved(o gemm.Operand, c program.Rect, i int) Step {
	if o != gemm.B || !p.grouped() {
		return Step{}
	}
	held, stored := p.heldStep(c.Cols), p.Places[o].Step
	return Step{i * (held.Rows - stored.Rows), i * (held.Cols - stored.Cols)}
}

// between returns the smallest part that contains the parts of the first and the last product.
func between(products program.Span, of func(int) program.Rect) program.Rect {
	if products.Len() == 0 {
		return program.Rect{}
	}
	first, last := of(products.From), of(products.To-1)
	return program.Range(first.Rows.From, last.Rows.To).By(program.Range(first.Cols.From, last.Cols.To))
}

// copied returns the parts of operand o's matrix that are copied for a part of C. Those of several
// products leave out the elements between matrices, which may belong to others.
func (p *Job) copied(o gemm.Operand, c program.Rect) (all []program.Rect) {
	products, of := c.Rows, func(i int) program.Rect { return p.matrix(o, i) }
	if p.grouped() && o == gemm.B {
		products, of = program.First(p.Batch.Count), func(i int) program.Rect { return p.group(i, c.Cols) }
	} else if !p.batched() {
		return []program.Rect{p.Needs(o, c)}
	}
	step := p.Places[o].Step
	if products.Len() == 0 {
		return nil
	}
	if one := of(products.From); step.Rows <= one.Rows.Len() && step.Cols <= one.Cols.Len() {
		return []program.Rect{between(products, of)}
	}
	for i := products.From; i < products.To; i++ {
		all = append(all, of(i))
	}
	return all
}

// productEnds returns the ends of the parts of operand o as numbers of products. It is not ok if
// the members have copies, or if all products share the matrix.
func (p *Job) productEnds(o gemm.Operand) (ends []int, ok bool) {
	at := p.Places[o]
	if at.Matrix == nil || at.Matrix.By == OnEach {
		return nil, false
	}
	first, step := at.Row, at.Step.Rows
	if at.Matrix.By == Columns {
		first, step = at.Col, at.Step.Cols
	}
	if step == 0 {
		return nil, false
	}
	for _, end := range at.Matrix.Ends {
		ends = append(ends, (end-first+step/2)/step)
	}
	return ends, true
}
