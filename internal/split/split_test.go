package split

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

func init() { testkit.CollectRarely() }

// TestNew checks that the parts of a matrix cover it once, in multiples of the unit.
func TestNew(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		members, unit := 1+rng.IntN(9), 1+rng.IntN(20)
		weights := make([]float64, members)
		for i := range weights {
			weights[i] = 1 + rng.Float64()
		}
		rows, cols := rng.IntN(200), rng.IntN(200)
		for by := range ways {
			m := New(by, rows, cols, weights, unit)
			covered := make([]int, rows*cols)
			for i := range members {
				part := m.Part(i)
				each(part, func(r, c int) { covered[r*cols+c]++ })
				if s, n := part.Rows, rows; by == Rows && s.To%unit != 0 && s.To != n {
					t.Errorf("%v of %d rows at multiples of %d: a part ends at %d", by, n, unit, s.To)
				}
			}
			want := 1
			if by == OnEach {
				want = members
			}
			for _, n := range covered {
				if n != want {
					t.Fatalf("%d×%d %v over %d members: an element has %d owners, want %d", rows, cols, by, members, n, want)
				}
			}
		}
	}
	m := New(Rows, 16384, 3, []float64{1, 1, 1, 1}, 128)
	if fmt.Sprint(m.Ends) != "[4096 8192 12288 16384]" {
		t.Errorf("16384 rows of four equal members end at %v", m.Ends)
	}
	if m := New(Columns, 3, 16384, []float64{3, 1}, 128); fmt.Sprint(m.Ends) != "[12288 16384]" {
		t.Errorf("16384 columns of a member and a third of it end at %v", m.Ends)
	}
}

// TestPlans executes every division of random products. Each element of C must be computed once, or
// once by each member, and each element that a member needs must be stored there or copied once.
func TestPlans(t *testing.T) {
	rng := testrand.New(t)
	panels, divided := 0, 0
	products := 100
	if testkit.Full() {
		products = 200
	}
	for range products {
		p := random(t, rng)
		for _, grid := range p.grids() {
			shares := p.shares(grid, 1<<rng.IntN(4)/2) // all, 1, 2 or 4 rounds
			computing := 0
			for i, c := range grid {
				if !c.Empty() {
					computing++
				}
				panels = max(panels, len(shares[i].Panels))
			}
			divided = max(divided, computing)
			computed := simulate(t, p).run(shares)
			times := 1
			if len(grid) > 1 && computing == len(grid) && grid[0].Contains(program.First(p.M).By(program.First(p.N))) {
				times = len(grid)
			}
			if p.M*p.N > 0 && len(computed) != p.M*p.N {
				t.Fatalf("%d elements of C are computed, want %d", len(computed), p.M*p.N)
			}
			for at, n := range computed {
				if n != times {
					t.Fatalf("element %v is computed %d times, want %d", at, n, times)
				}
			}
			checkTraffic(t, p, &Division{Shares: shares})
		}
	}
	if panels < 3 || divided < 3 {
		t.Errorf("at most %d panels and %d members, want at least 3", panels, divided)
	}
}

// checkTraffic compares the bytes that each member receives with those that its part of C needs and
// it does not store.
func checkTraffic(t *testing.T, p *Job, d *Division) {
	t.Helper()
	traffic := p.Traffic(d)
	for to := range d.Shares {
		got, want := 0, 0
		for from, n := range traffic[to] {
			if from != to {
				got += n
			}
		}
		c := d.Shares[to].C
		for o := range gemm.Operands {
			if m := p.Places[o].Matrix; p.Uses(o) && p.reads(o) && !c.Empty() {
				if part := p.Needs(o, c); !part.Empty() {
					want += p.Layout(o).Type.Bytes(part.Len() - max(m.Part(to).And(part).Len(), 0))
				}
			}
		}
		for from := range d.Shares {
			if c := d.Shares[from].C; from != to && !c.Empty() {
				want += p.Out().Bytes(p.Places[gemm.C].Matrix.Part(to).And(p.Needs(gemm.C, c)).Len())
			}
		}
		if all := d.Shares; len(all) > 1 && !all[0].C.Empty() && all[0].C == all[1].C {
			continue // all members compute all of C, and copy none of it
		}
		if got != want {
			t.Fatalf("member %d receives %d bytes, want %d", to, got, want)
		}
	}
}

// square returns the product of n×n matrices of bfloat16, divided among members.
func square(t *testing.T, n, members int, a, b, c By) *Job {
	t.Helper()
	problem, _, err := gemm.New(1, gemm.Dense(dtype.BF16, n, n), gemm.Dense(dtype.BF16, n, n), 0,
		gemm.Dense(dtype.BF16, n, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	flops := 2 * float64(n) * float64(n) * float64(n)
	p := &Job{Problem: problem, UnitM: 128, UnitN: 256, Grain: 1, AtOnce: 132, Seconds: flops / 700e12, Rate: 396e9,
		PanelBytes: 256 << 20}
	for range members {
		p.Weights = append(p.Weights, 1)
	}
	for o, by := range []By{gemm.A: a, gemm.B: b, gemm.C: c} {
		m := New(by, n, n, p.Weights, 128)
		p.Places[o].Matrix = &m
	}
	return p
}

// TestSquare checks the division and the traffic of large square products in closed form.
func TestSquare(t *testing.T) {
	const n = 16384
	const bytes = 2 * n * n // of a matrix
	for _, c := range []struct {
		a, b, c By
		each    float64 // bytes that each of m members receives from all others, in matrices
	}{
		{Rows, Rows, Rows, 1},          // B is gathered
		{Rows, Columns, Rows, 1},       // B is gathered, the own part first
		{Columns, Columns, Columns, 1}, // A is gathered
		{Rows, OnEach, Rows, 0},
		{Rows, OnEach, OnEach, 1}, // C is copied
		{OnEach, Columns, Columns, 0},
	} {
		for _, members := range []int{2, 4, 8} {
			p := square(t, n, members, c.a, c.b, c.c)
			d := p.Divide()
			for to, from := range p.Traffic(&d) {
				for at, got := range from {
					if want := int(c.each * bytes / float64(members)); to != at && got != want {
						t.Errorf("A %v, B %v, C %v, %d members: %d bytes from one to another, want %d", c.a, c.b, c.c, members,
							got, want)
					}
				}
			}
			// Kernels hide most of the copies.
			copies := c.each * bytes / p.Rate
			if most := 1.02*p.Seconds/float64(members) + copies/2; d.Seconds > most {
				t.Errorf("A %v, B %v, C %v: %d members are predicted to take %.3g s, want at most %.3g s", c.a, c.b, c.c, members,
					d.Seconds, most)
			}
		}
	}
}

// TestGrid checks that many members divide C by rows and columns, because each then receives less:
// the rows of A and the columns of B of its part, and the rest of the rows of C that it stores,
// less the parts that it has.
func TestGrid(t *testing.T) {
	const n, members = 8192, 16
	p := square(t, n, members, Rows, Columns, Rows)
	d := p.Divide()
	for to, from := range p.Traffic(&d) {
		got := 0
		for at, bytes := range from {
			if at != to {
				got += bytes
			}
		}
		c := d.Shares[to].C
		down, across := n/max(c.Rows.Len(), 1), n/max(c.Cols.Len(), 1)
		parts := 1/float64(down) - 1./members + 1/float64(across) + (1-1/float64(across))/members
		if to*across/members == to%across { // it stores some of the columns of B that it needs
			parts -= 1. / members
		}
		if down*across != members || min(down, across) < 2 || got != int(2*n*n*parts) {
			t.Errorf("member %d computes %v and receives %d bytes, want a part of a grid and %.0f bytes", to, c, got,
				2*n*n*parts)
		}
	}
}

// TestSmall checks that a product stays on one member if dividing it takes longer, and moves to the
// weights rather than gathering them.
func TestSmall(t *testing.T) {
	p := square(t, 128, 4, OnEach, OnEach, OnEach)
	if d := p.Divide(); len(d.Shares[0].Panels) != 1 || p.Describe(&d, []string{"a", "b", "c", "d"}) !=
		"a computes all of C; b computes all of C; c computes all of C; d computes all of C" {
		t.Errorf("128³ with copies of all matrices: %s", p.Describe(&d, []string{"a", "b", "c", "d"}))
	}
	// A row of A times columns of B at each member: the row moves, not B.
	p = square(t, 8192, 2, Rows, Columns, Rows)
	p.M, p.Seconds = 16, 60e-6
	p.Layouts[gemm.A].Rows, p.Layouts[gemm.C].Rows = 16, 16
	for _, o := range []gemm.Operand{gemm.A, gemm.C} {
		m := New(Rows, 16, 8192, p.Weights, 128)
		p.Places[o].Matrix = &m
	}
	d := p.Divide()
	const want = "x computes columns 0 to 4095; y computes columns 4096 to 8191; x copies 0.1311 MB from y; " +
		"y copies 0.2621 MB from x"
	if got := p.Describe(&d, []string{"x", "y"}); got != want {
		t.Errorf("16 rows: %s\nwant %s", got, want)
	}
}

// TestGatherFirst checks that no product is predicted to be slower than if its members gathered B
// first and then multiplied, in closed form.
func TestGatherFirst(t *testing.T) {
	rng := testrand.New(t)
	for range 200 {
		n, members := 1+rng.IntN(6000), 2+rng.IntN(7)
		p := square(t, n, members, Rows, By(rng.IntN(2)), Rows)
		most := 0 // rows of a member
		for i := range members {
			most = max(most, p.Places[gemm.C].Matrix.Part(i).Rows.Len())
		}
		rounds := func(rows int) float64 {
			tiles := ints.CeilDiv(rows, p.UnitM) * ints.CeilDiv(n, p.UnitN)
			return float64(ints.CeilDiv(tiles, p.AtOnce))
		}
		b := float64(2 * n * n)
		gather := orderSeconds + b/p.Rate + localSeconds + b/localRate // of at most all of B
		want := gather + p.Seconds*rounds(most)/rounds(n) + launchSeconds
		if d := p.Divide(); d.Seconds > (1+tolerance)*want+contention*gather {
			t.Errorf("%d³ on %d members: %.1f µs, want at most %.1f µs", n, members, 1e6*d.Seconds, 1e6*want)
		}
	}
}

// TestRounds checks the predicted times of products that copy nothing, in closed form. A round that
// does not fill all SMs takes as long as a full one.
func TestRounds(t *testing.T) {
	for n, want := range map[int]float64{2048: 1, 2432: 1. / 2, 4096: 2. / 4, 4352: 3. / 5} {
		p := square(t, n, 2, Rows, OnEach, Rows) // in tiles of 128×256
		if got := p.Divide().Seconds; math.Abs(got-(want*p.Seconds+launchSeconds)) > 1e-12 {
			t.Errorf("%d³: %.2f µs, want %.2f of %.2f µs and a launch", n, 1e6*got, want, 1e6*p.Seconds)
		}
	}
}

// TestRepeats checks that members compute the same elements only if all other divisions are
// predicted to be slower.
func TestRepeats(t *testing.T) {
	rng := testrand.New(t)
	repeated := 0
	for range 200 {
		p := square(t, 1+rng.IntN(6000), 2+rng.IntN(7), OnEach, OnEach, OnEach)
		d := p.Divide()
		if !d.repeats() {
			continue
		}
		repeated++
		p.Pick = func(all []Division) int {
			for i := range all {
				if !all[i].repeats() && all[i].Seconds < d.Seconds {
					t.Errorf("%d³: each member computes all in %.1f µs, want %.1f µs: %v", p.N, 1e6*d.Seconds, 1e6*all[i].Seconds,
						all[i].Shares)
				}
			}
			return 0
		}
		p.Divide()
	}
	if repeated == 0 {
		t.Error("no product is computed by each member")
	}
}

// TestPanelSize checks that the operand that is gathered for a panel takes no more than PanelBytes,
// if that holds a tile, and that a panel takes no more than its rounds.
func TestPanelSize(t *testing.T) {
	const unit, k = 128, 256 // 128 KiB for a row or column of tiles
	for _, c := range []struct {
		operand                            gemm.Operand
		gated                              bool
		groups                             int
		panelBytes, atOnce, across, rounds int
		want                               int
	}{
		{gemm.A, false, 0, 1 << 20, 1000, 1, allRounds, 8 * unit},
		{gemm.A, false, 0, 1<<20 - 1, 1000, 1, allRounds, 7 * unit},
		{gemm.A, false, 0, 1, 1000, 1, allRounds, unit},
		{gemm.B, false, 0, 1 << 20, 1000, 1, 1, 8 * unit},
		{gemm.B, true, 0, 1 << 20, 1000, 1, 1, 4 * unit},
		{gemm.B, false, 4, 1 << 20, 1000, 1, 1, 2 * unit},
		{gemm.A, false, 0, 1 << 20, 3, 2, 2, 3 * unit},
		{gemm.A, false, 0, 1 << 20, 3, 2, allRounds, 8 * unit},
	} {
		l := gemm.Dense(dtype.F32, k, k)
		problem, _, err := gemm.New(1, l, l, 0, l, gemm.Epilogue{Gated: c.gated})
		if err != nil {
			t.Fatal(err)
		}
		if c.groups > 0 {
			problem.Batch = gemm.Batch{Kind: gemm.Grouped, Count: c.groups}
		}
		p := &Job{Problem: problem, PanelBytes: c.panelBytes, AtOnce: c.atOnce}
		if got := p.panelSize(c.operand, unit, c.across, c.rounds); got != c.want {
			t.Errorf("%+v: %d rows or columns", c, got)
		}
	}
}

// TestAlignment checks that the elements of a single column follow each other, and that rows are
// padded.
func TestAlignment(t *testing.T) {
	column, columns := program.Range(5, 100).By(program.Range(3, 4)), program.Range(5, 100).By(program.Range(3, 50))
	for _, c := range []struct {
		r        program.Rect
		row, col int
		want     int
	}{
		{column, 5, 3, 16}, {column, 6, 3, 1}, {column, 13, 3, 8}, {column, 37, 3, 16},
		{columns, 6, 3, 16}, {columns, 5, 4, 1}, {columns, 6, 7, 4}, {columns, 6, 35, 16},
	} {
		if got := alignment(c.r, c.row, c.col); got != c.want {
			t.Errorf("element (%d, %d) of %v: %d, want %d", c.row, c.col, c.r, got, c.want)
		}
	}
}
