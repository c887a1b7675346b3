package split

import (
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/program"
)

func each(r program.Rect, f func(row, col int)) {
	for i := r.Rows.From; i < r.Rows.To; i++ {
		for j := r.Cols.From; j < r.Cols.To; j++ {
			f(i, j)
		}
	}
}

// random returns a random product of parts of divided matrices, and of their transposes.
func random(t *testing.T, rng *rand.Rand) *Job {
	t.Helper()
	side := func() int { return rng.IntN([]int{2, 20, 90}[rng.IntN(3)] + 1) }
	m, n, k := side(), side(), side()
	members := 1 + rng.IntN(8)
	layout := func(rows, cols int) gemm.Layout {
		if rng.IntN(2) == 0 {
			return gemm.Dense(dtype.F32, cols, rows).T()
		}
		return gemm.Dense(dtype.F32, rows, cols)
	}
	e := gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3)), RowScale: rng.IntN(3) == 0, Residual: rng.IntN(2) == 0}
	beta := complex(float64(rng.IntN(2)), 0)
	if rng.IntN(4) == 0 {
		e, beta = gemm.Epilogue{Gated: true}, 0
	}
	problem, _, err := gemm.New(1, layout(m, k), layout(k, n), beta, gemm.Dense(dtype.F32, m, n), e)
	if err != nil {
		t.Fatal(err)
	}
	grain := []int{1, Align, 2 * Align}[rng.IntN(3)]
	p := &Job{Problem: problem, UnitM: max(grain, Align), UnitN: 2 * max(grain, Align), Grain: grain,
		AtOnce: 1 + rng.IntN(3), PanelBytes: 1 << rng.IntN(14),
		Seconds: rng.ExpFloat64() * 1e-3, Rate: 1e6 * (1 + rng.ExpFloat64())}
	for range members {
		p.Weights = append(p.Weights, 1+rng.Float64())
	}
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		l := p.Layout(o)
		at := Place{Row: rng.IntN(20), Col: rng.IntN(40)}
		whole := New(By(rng.IntN(int(ways))), l.Rows+at.Row+rng.IntN(9), l.Cols+at.Col+rng.IntN(9), p.Weights,
			1+rng.IntN(2)*15)
		at.Matrix = &whole
		p.Places[o] = at
	}
	return p
}

// stored holds the elements of an operand that a member has, by stored row and column, or that were
// gathered.
type stored map[[2]int]int

// simulation executes divisions on the host.
type simulation struct {
	*Job
	t     *testing.T
	parts [gemm.Operands][]stored // by member
}

// value is the element of an operand at a stored row and column.
func value(o gemm.Operand, row, col int) int { return (int(o)*7+row*3+col*5)%11 - 5 }

func simulate(t *testing.T, p *Job) *simulation {
	x := &simulation{Job: p, t: t}
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		for i := range p.Weights {
			part := stored{}
			each(p.Places[o].Matrix.Part(i), func(r, c int) { part[[2]int{r, c}] = value(o, r, c) })
			x.parts[o] = append(x.parts[o], part)
		}
	}
	return x
}

// gather executes copies to a member into memory that holds one part of each operand. Each element
// must be copied once.
func (x *simulation) gather(copies []Copy, member int, held *[gemm.Operands]program.Rect) (all [gemm.Operands]stored) {
	for o := range all {
		all[o] = stored{}
	}
	for _, c := range copies {
		if c.To != member || !held[c.Operand].Contains(c.Part) || c.Part.Empty() {
			x.t.Fatalf("copy %+v of member %d to hold %v", c, member, held[c.Operand])
		}
		each(c.Part, func(row, col int) {
			at := [2]int{row, col}
			v, has := x.parts[c.Operand][c.From][at]
			if _, twice := all[c.Operand][at]; !has || twice {
				x.t.Fatalf("copy %+v: element %v is at member %d: %v, copied twice: %v", c, at, c.From, has, twice)
			}
			all[c.Operand][at] = v
		})
	}
	for o := range all {
		if o := gemm.Operand(o); x.reads(o) && len(all[o]) != held[o].Len() {
			x.t.Fatalf("member %d gathered %d elements of %v, want %d", member, len(all[o]), o, held[o].Len())
		}
	}
	return all
}

// run executes a division and returns the number of times that each element of C is computed.
func (x *simulation) run(shares []Share) map[[2]int]int {
	type result struct {
		from Copy
		part stored
	}
	computed := map[[2]int]int{}
	var scattered []result
	written := make([]map[[2]int]int, len(shares))
	for i := range written {
		written[i] = map[[2]int]int{}
	}
	for member := range shares {
		s := &shares[member]
		held := x.gather(s.Gather, member, &s.Held)
		for i := range s.Panels {
			panel := &s.Panels[i]
			arrived := x.gather(panel.Gather, member, &panel.Held)
			// element returns op(o)(i, j) of the panel as the launch finds it.
			element := func(o gemm.Operand, i, j int) int {
				if x.Layout(o).Trans {
					i, j = j, i
				}
				from := x.parts[o][member]
				at := [2]int{i + x.Places[o].Row, j + x.Places[o].Col}
				if !panel.Held[o].Empty() {
					from = arrived[o]
				} else if !s.Held[o].Empty() {
					from = held[o]
				}
				v, ok := from[at]
				if !ok {
					x.t.Fatalf("member %d lacks element %v of %v for %v", member, at, o, panel.C)
				}
				return v
			}
			out := stored{}
			each(panel.C, func(r, c int) {
				at := x.Places[gemm.C]
				out[[2]int{r + at.Row, c + at.Col}] = x.compute(r, c, element)
				computed[[2]int{r, c}]++
			})
			if s.Held[gemm.C].Empty() {
				for at := range out {
					if _, has := x.parts[gemm.C][member][at]; !has {
						x.t.Fatalf("member %d writes element %v of C, which it does not store", member, at)
					}
					written[member][at]++
				}
			}
			for _, c := range panel.Scatter {
				if c.From != member {
					x.t.Fatalf("copy %+v of a panel of member %d", c, member)
				}
				scattered = append(scattered, result{c, out})
			}
		}
	}
	for _, r := range scattered {
		each(r.from.Part, func(row, col int) {
			at := [2]int{row, col}
			v, computed := r.part[at]
			_, has := x.parts[gemm.C][r.from.To][at]
			if !computed || !has {
				x.t.Fatalf("copy %+v: element %v is computed: %v, stored there: %v", r.from, at, computed, has)
			}
			want := x.compute(row-x.Places[gemm.C].Row, col-x.Places[gemm.C].Col, x.reference)
			if v != want {
				x.t.Fatalf("element %v of C is %d, want %d", at, v, want)
			}
			written[r.from.To][at]++
		})
	}
	for member, all := range written {
		part := x.Places[gemm.C].Matrix.Part(member).And(x.Needs(gemm.C, program.First(x.M).By(program.First(x.N))))
		if !part.Empty() && len(all) != part.Len() || part.Empty() && len(all) > 0 {
			x.t.Fatalf("member %d has %d elements of the result, want %d", member, len(all), part.Len())
		}
		for at, n := range all {
			if n != 1 {
				x.t.Fatalf("element %v of C is written %d times at member %d", at, n, member)
			}
		}
	}
	return computed
}

// reference returns element (i, j) of op(o).
func (x *simulation) reference(o gemm.Operand, i, j int) int {
	if x.Layout(o).Trans {
		i, j = j, i
	}
	return value(o, i+x.Places[o].Row, j+x.Places[o].Col)
}

// compute returns an element of the result, whose operands are those of element.
func (x *simulation) compute(i, j int, element func(o gemm.Operand, i, j int) int) int {
	sum := 0
	for l := range x.K {
		b := element(gemm.B, l, j)
		if x.Uses(gemm.Up) {
			b += 3 * element(gemm.Up, l, j)
		}
		sum += element(gemm.A, i, l) * b
	}
	if x.reads(gemm.C) {
		sum += element(gemm.C, i, j)
	}
	for o := gemm.Residual; o < gemm.Operands; o++ {
		switch dim := x.Epilogue.VectorDim(o); {
		case !x.Uses(o) || o == gemm.Up:
		case o == gemm.Residual:
			sum += element(o, i, j)
		case dim == gemm.BiasRow:
			sum += element(o, 0, i)
		case dim == gemm.BiasCol:
			sum += element(o, 0, j)
		}
	}
	return sum
}
