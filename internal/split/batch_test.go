package split

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/program"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// TestProducts checks that each product is in one range.
func TestProducts(t *testing.T) {
	for n := range 20 {
		for members := 1; members <= 5; members++ {
			weights := make([]float64, members)
			for i := range weights {
				weights[i] = 1 + float64(i)
			}
			from := 0
			for i, s := range Products(n, weights) {
				if s.From != from || s.To < s.From {
					t.Errorf("%d products on %d members: member %d has %v after %d", n, members, i, s, from)
				}
				from = s.To
			}
			if from != n {
				t.Errorf("%d products on %d members: %d are divided", n, members, from)
			}
		}
	}
}

// randomBatch returns a batch whose matrices are below each other, side by side, or shared, with
// elements between them that belong to others.
func randomBatch(t *testing.T, rng *rand.Rand) *Job {
	t.Helper()
	m, n, k, count := 1+rng.IntN(6), 1+rng.IntN(6), 1+rng.IntN(6), rng.IntN(12)
	problem, _, err := gemm.New(1, gemm.Dense(dtype.F32, m, k), gemm.Dense(dtype.F32, n, k).T(),
		complex(float64(rng.IntN(2)), 0), gemm.Dense(dtype.F32, m, n), gemm.Epilogue{Bias: gemm.BiasDim(rng.IntN(3))})
	if err != nil {
		t.Fatal(err)
	}
	problem.Batch = gemm.Batch{Kind: gemm.Strided, Count: count}
	p := &Job{Problem: problem, UnitM: 1, UnitN: 1, Grain: 1, AtOnce: 1, Seconds: 1e-3, Rate: 1e9, PanelBytes: 1 << 20}
	for range 1 + rng.IntN(4) {
		p.Weights = append(p.Weights, 1+rng.Float64())
	}
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		l, at := p.Layout(o), Place{Row: rng.IntN(5), Col: rng.IntN(5)}
		rows, cols := l.Rows, l.Cols
		switch kind := rng.IntN(3); {
		case o > gemm.C || kind == 0 && o != gemm.C: // shared
		case kind == 1:
			at.Step.Cols = l.Cols + rng.IntN(3)
			cols += max(count-1, 0) * at.Step.Cols
		default:
			at.Step.Rows = l.Rows + rng.IntN(3)
			rows += max(count-1, 0) * at.Step.Rows
		}
		whole := New(By(rng.IntN(int(ways))), at.Row+rows+rng.IntN(3), at.Col+cols+rng.IntN(3), p.Weights, 1)
		at.Matrix = &whole
		p.Places[o] = at
	}
	return p
}

// TestBatches executes all divisions of random batches: each product is computed once, or by each
// member that stores C. Its matrices are at the member that computes it, and all members that store
// elements of C get them, and no other element.
func TestBatches(t *testing.T) {
	rng := testrand.New(t)
	for range testkit.Cases(300, 3000) {
		p := randomBatch(t, rng)
		var all []Division
		p.Pick = func(divisions []Division) int { all = divisions; return 0 }
		p.Divide()
		for _, d := range all {
			computed := make([]int, p.Batch.Count)
			written := make([]stored, len(p.Weights))
			for i := range written {
				written[i] = stored{}
			}
			for i := range d.Shares {
				s := &d.Shares[i]
				for o := range gemm.C {
					checkHeld(t, p, o, s, i)
				}
				checkHeld(t, p, gemm.Bias, s, i)
				if p.Beta != 0 {
					checkHeld(t, p, gemm.C, s, i)
				}
				for j := range s.Panels {
					panel := &s.Panels[j]
					for at := panel.C.Rows.From; at < panel.C.Rows.To; at++ {
						computed[at]++
						if s.Held[gemm.C].Empty() {
							each(p.matrix(gemm.C, at), func(r, c int) { written[i][[2]int{r, c}]++ })
						}
					}
					for _, c := range panel.Scatter {
						if c.From != i {
							t.Errorf("a copy from member %d, which did not compute it: %+v", c.From, c)
						}
						each(c.Part, func(r, col int) { written[c.To][[2]int{r, col}]++ })
					}
				}
			}
			whole := p.Places[gemm.C].Matrix
			for at, n := range computed {
				if n != 1 && (n != len(p.Weights) || whole.By != OnEach) {
					t.Fatalf("product %d is computed %d times: %+v", at, n, d)
				}
				each(p.matrix(gemm.C, at), func(r, c int) {
					for i := range p.Weights {
						has := whole.Part(i).Contains(program.Range(r, r+1).By(program.Range(c, c+1)))
						if n := written[i][[2]int{r, c}]; has != (n == 1) || n > 1 {
							t.Fatalf("element (%d, %d) of C is written %d times at member %d, which has it: %v", r, c, n, i, has)
						}
						delete(written[i], [2]int{r, c})
					}
				})
			}
			for i, rest := range written {
				if len(rest) > 0 {
					t.Fatalf("member %d gets elements that no product has: %v", i, rest)
				}
			}
		}
	}
}

// checkHeld checks that a member has the matrices of operand o for its products.
func checkHeld(t *testing.T, p *Job, o gemm.Operand, s *Share, member int) {
	t.Helper()
	if s.C.Empty() || !p.Uses(o) {
		return
	}
	has := p.Places[o].Matrix.Part(member)
	for at := s.C.Rows.From; at < s.C.Rows.To; at++ {
		if s.Held[o].Empty() {
			if !has.Contains(p.matrix(o, at)) {
				t.Fatalf("%v of product %d is not at member %d", o, at, member)
			}
			continue
		}
		missing := stored{}
		each(p.matrix(o, at), func(r, c int) { missing[[2]int{r, c}] = 1 })
		for _, c := range s.Gather {
			if c.Operand != o {
				continue
			}
			if !s.Held[o].Contains(c.Part) || !p.Places[o].Matrix.Part(c.From).Contains(c.Part) || c.To != member {
				t.Fatalf("copy %+v to hold %v", c, s.Held[o])
			}
			each(c.Part, func(r, col int) { delete(missing, [2]int{r, col}) })
		}
		if len(missing) > 0 {
			t.Fatalf("%v of product %d lacks %v at member %d", o, at, missing, member)
		}
	}
}

// TestGroups checks the traffic and the memory of groups of rows in closed form: a member receives
// its columns of the matrices of B that others store, and holds no more than its columns of all.
func TestGroups(t *testing.T) {
	const groups, rows, n, k = 8, 512, 1024, 64
	const size = 4 // bytes of an element
	for _, members := range []int{1, 2, 3, 4, 8} {
		for _, c := range []struct {
			trans, beside bool
			by            By
		}{{true, false, Rows}, {true, false, Columns}, {true, true, Columns}, {false, true, Columns}, {false, true, Rows}} {
			b := gemm.Dense(dtype.F32, k, n)
			if c.trans {
				b = gemm.Dense(dtype.F32, n, k).T()
			}
			problem, _, err := gemm.New(1, gemm.Dense(dtype.F32, rows, k), b, 0, gemm.Dense(dtype.F32, rows, n), gemm.Epilogue{})
			if err != nil {
				t.Fatal(err)
			}
			whole, step := gemm.Dense(dtype.F32, groups*b.Rows, b.Cols), Step{Rows: b.Rows}
			if c.beside {
				whole, step = gemm.Dense(dtype.F32, b.Rows, groups*b.Cols), Step{Cols: b.Cols}
			}
			if problem, err = problem.Grouped(groups, step.Rows*whole.LD+step.Cols); err != nil {
				t.Fatal(err)
			}
			p := &Job{Problem: problem, UnitM: 128, UnitN: 64, Grain: 1, AtOnce: 4, Seconds: 1e-3, Rate: 3e11,
				PanelBytes: 1 << 20, Weights: slices.Repeat([]float64{1}, members)}
			for o := range gemm.Operands {
				if l := p.Layout(o); p.Uses(o) {
					m := New(OnEach, l.Rows, l.Cols, p.Weights, 1)
					p.Places[o].Matrix = &m
				}
			}
			matrix, result := New(c.by, whole.Rows, whole.Cols, p.Weights, 16), New(Columns, rows, n, p.Weights, 16)
			p.Places[gemm.B], p.Places[gemm.C].Matrix = Place{Matrix: &matrix, Step: step}, &result
			var all []Division
			p.Pick = func(divisions []Division) int { all = divisions; return 0 }
			p.Divide()
			for _, d := range all {
				for i := range d.Shares {
					s := &d.Shares[i]
					got, want := 0, 0
					for from, bytes := range p.Traffic(&d)[i] {
						if from != i {
							got += bytes
						}
					}
					if columns := s.C.Cols; columns.Len() > 0 {
						for g := range groups {
							needed := p.group(g, columns)
							want += size * (needed.Len() - matrix.Part(i).And(needed).Len())
						}
					}
					want += size * (s.C.Len() - result.Part(i).And(s.C).Len()) // rows of C after the last group
					for from := range d.Shares {                               // results
						if from != i {
							want += size * result.Part(i).And(d.Shares[from].C).Len()
						}
					}
					if got != want {
						t.Errorf("%d members, %+v: member %d receives %d bytes, want %d", members, c, i, got, want)
					}
					for j := range s.Panels {
						columns := s.Panels[j].C.Cols
						if got, want := s.Panels[j].Held[gemm.B].Len(), groups*k*(columns.Len()+Align-1); got > want {
							t.Errorf("%d members, %+v: member %d holds %d elements for %v, want at most %d", members, c, i, got, columns,
								want)
						} else if got > 0 && got < groups*k*columns.Len() {
							t.Errorf("%d members, %+v: member %d holds %d elements for %v, want room for all groups", members, c, i, got,
								columns)
						}
						for _, x := range s.Panels[j].Gather {
							if x.Operand == gemm.B && !s.Panels[j].Held[gemm.B].Contains(x.At) {
								t.Errorf("%d members, %+v: member %d copies to %v, but holds %v", members, c, i, x.At, s.Panels[j].Held[gemm.B])
							}
						}
					}
				}
			}
		}
	}
}
