package split

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// Division is a planned product of divided matrices.
type Division struct {
	Shares  []Share // of each member; empty for one that computes nothing
	Seconds float64 // predicted
	// InOrder has each member copy and compute in one stream. Otherwise copies from other members
	// are in a stream of their own and overlap with kernels, for which more events order the work.
	InOrder bool
	// Concurrent has one goroutine per member enqueue its work. Otherwise one enqueues all.
	Concurrent bool
	rounds     int // in which a member computes a panel, or allRounds
}

// allRounds has a member gather all operands and then compute its share in one panel, if the panel
// is not larger than the product allows.
const allRounds = 0

// Divide returns the fastest division of the product by prediction, or one that is about as fast
// and copies less. Among the divisions are those that gather first and multiply then.
func (p *Job) Divide() Division {
	var all []Division
	add := func(grid []program.Rect, rounds int) (several bool) {
		x := Division{Shares: p.shares(grid, rounds), rounds: rounds}
		all = append(all, p.bounded(x))
		if p.CallSeconds > 0 && p.remote(&x) > 0 {
			x.InOrder = true
			all = append(all, p.bounded(x))
		}
		return slices.ContainsFunc(x.Shares, func(s Share) bool { return len(s.Panels) > 1 })
	}
	most, least := p.rounds(p.whole()), 1
	for least < most && p.Seconds*float64(least)/float64(most) < p.CallSeconds { // panels shorter than a call
		least *= 2
	}
	for _, grid := range p.grids() {
		several := true
		for rounds := least; several && rounds < 2*most; rounds *= 2 {
			several = add(grid, rounds)
		}
		if several {
			add(grid, allRounds)
		}
	}
	if p.Pick != nil {
		for i := range all {
			p.predict(&all[i])
		}
		return all[p.Pick(all)]
	}
	near := p.near(all)
	return slices.MinFunc(near, func(x, y Division) int {
		return cmp.Or(cmp.Compare(p.remote(&x), p.remote(&y)), cmp.Compare(x.Seconds, y.Seconds))
	})
}

// near returns the divisions that are predicted to be the fastest, or about as fast. The times of
// all are lower bounds. It predicts those of the divisions that may be among the fastest.
func (p *Job) near(all []Division) []Division {
	slices.SortStableFunc(all, func(x, y Division) int { return cmp.Compare(x.Seconds, y.Seconds) })
	fastest := math.Inf(1)
	for i := range all {
		if all[i].Seconds > (1+tolerance)*fastest {
			all = all[:i]
			break
		}
		p.predict(&all[i])
		fastest = min(fastest, all[i].Seconds)
	}
	return slices.DeleteFunc(all, func(x Division) bool {
		return x.Seconds > (1+tolerance)*fastest || x.repeats() && x.Seconds > fastest
	})
}

// tolerance is the relative difference of predicted times below which divisions count as equally
// fast. Of those, the one with the least traffic is used.
const tolerance = 0.03

// repeats reports whether each member computes all of C.
func (d *Division) repeats() bool {
	return len(d.Shares) > 1 && !d.Shares[0].C.Empty() && d.Shares[0].C == d.Shares[1].C
}

// remote returns the bytes that all members copy from others.
func (p *Job) remote(d *Division) (bytes int) {
	d.Copies(func(c Copy) {
		if c.From != c.To {
			bytes += p.Layout(c.Operand).Type.Bytes(c.Part.Len())
		}
	})
	return bytes
}

// bounded returns a division with the time of the slowest member, or of the host to enqueue its
// copies and launches alone. It is a lower bound of the division's time.
func (p *Job) bounded(x Division) Division {
	calls := make([]int, len(x.Shares))
	x.Copies(func(c Copy) { calls[c.To]++ })
	for i := range x.Shares {
		calls[i] += len(x.Shares[i].Panels)
	}
	x.Seconds, _ = p.hostSeconds(calls)
	for i := range x.Shares {
		x.Seconds = max(x.Seconds, p.seconds(&x.Shares[i], i, x.InOrder))
	}
	return x
}

// predict completes the predicted time of a bounded division by that of the host to enqueue all
// work.
func (p *Job) predict(x *Division) {
	if p.CallSeconds == 0 {
		return
	}
	var host float64
	host, x.Concurrent = p.hostSeconds(p.write(x).Calls())
	x.Seconds = max(x.Seconds, host)
}

// Times of the host besides those of the calls of the driver: of a product, 1.6 µs on two GPUs that
// execute nothing, and an estimate of the time in which goroutines for all members start.
const (
	productSeconds = 1.6e-6
	startSeconds   = 30e-6
)

// hostSeconds predicts the time in which the host makes the calls for each member: those of one
// member after the other or, if it is faster, those of all members at the same time. It is zero if
// each member has a host of its own.
func (p *Job) hostSeconds(calls []int) (seconds float64, concurrent bool) {
	if p.CallSeconds == 0 {
		return 0, false
	}
	most, sum := 0, 0
	for _, n := range calls {
		most, sum = max(most, n), sum+n
	}
	together, atOnce := p.CallSeconds*float64(sum), p.CallSeconds*float64(most)+startSeconds
	return productSeconds + min(together, atOnce), atOnce < together
}

// Smaller returns the same division with panels of at most the given size.
func (p *Job) Smaller(d Division, panelBytes int) Division {
	q := *p
	q.PanelBytes = panelBytes
	var grid []program.Rect
	for i := range d.Shares {
		grid = append(grid, d.Shares[i].C)
	}
	d.Shares = q.shares(grid, d.rounds)
	return d
}

// grids lists the divisions of C among the members that are worth considering: as C is stored, as A
// or B is, evenly by rows, by columns and by both, and on one member. If each member stores C, each
// may also compute all of it.
func (p *Job) grids() (all [][]program.Rect) {
	m, n := p.sides()
	for _, o := range []gemm.Operand{gemm.C, gemm.A, gemm.B} {
		if rows, ends, ok := p.ends(o); ok {
			all = p.addGrid(all, rows, ends)
		}
	}
	if !p.grouped() {
		all = p.addGrid(all, true, ends(m, p.Weights, p.UnitM))
	}
	if !p.batched() {
		all = p.addGrid(all, false, ends(n, p.Weights, p.UnitN))
	}
	if p.Batch.Kind == gemm.Single {
		for rows := 2; rows < len(p.Weights); rows++ {
			if len(p.Weights)%rows == 0 {
				all = append(all, p.grid(rows))
			}
		}
	}
	for i := range p.Weights {
		one := make([]program.Rect, len(p.Weights))
		one[i] = p.whole()
		all = append(all, one)
	}
	if p.Places[gemm.C].Matrix.By == OnEach {
		each := make([]program.Rect, len(p.Weights))
		for i := range each {
			each[i] = p.whole()
		}
		all = append(all, each)
	}
	return all
}

// LeastSeconds returns a time that no division is predicted to go below in which all members
// compute, the first for the given time.
func (p *Job) LeastSeconds(computing float64) float64 {
	return max(computing+launchSeconds, productSeconds+float64(len(p.Weights))*p.CallSeconds)
}

// Fraction returns the part of the product that the first member computes if all take equally long.
func (p *Job) Fraction() float64 {
	sum := 0.
	for _, w := range p.Weights {
		sum += w
	}
	return p.Weights[0] / sum
}

// EvenParts lists the parts of C that the first member computes if C is divided in proportion to
// the weights: by rows, by columns and by both.
func (p *Job) EvenParts() (all []program.Rect) {
	n, share := len(p.Weights), p.Fraction()
	of := func(n int, share float64) program.Span {
		return program.First(min(int(math.Ceil(share*float64(n))), n))
	}
	for rows := 1; rows <= n && (rows == 1 || !p.grouped()); rows++ {
		if n%rows != 0 {
			continue
		}
		height := 1 / float64(rows)
		if rows == n {
			height = share
		}
		all = append(all, of(p.M, height).By(of(p.N, share/height)))
	}
	return all
}

// grid divides C by rows and columns, in proportion to the weights of the members. The members of a
// row of the grid are consecutive, so that those that store rows of C compute parts of these rows.
func (p *Job) grid(rows int) (grid []program.Rect) {
	n := len(p.Weights) / rows
	sums := make([]float64, rows)
	for i, w := range p.Weights {
		sums[i/n] += w
	}
	from := 0
	for i, to := range ends(p.M, sums, p.UnitM) {
		left := 0
		for _, right := range ends(p.N, p.Weights[i*n:(i+1)*n], p.UnitN) {
			grid = append(grid, program.Range(from, to).By(program.Range(left, right)))
			left = right
		}
		from = to
	}
	return grid
}

// addGrid adds the division of the rows or columns of C at ends, unless a cut is no multiple of the
// grain. The last end is that of C.
func (p *Job) addGrid(all [][]program.Rect, rows bool, ends []int) [][]program.Rect {
	height, width := p.sides()
	n := width
	if rows {
		n = height
	}
	grid, from := make([]program.Rect, len(ends)), 0
	for i, end := range ends {
		if end = min(max(end, 0), n); i == len(ends)-1 {
			end = n
		}
		if end%p.Grain != 0 && end < n {
			return all
		}
		if s := (program.Range(from, end)); rows {
			grid[i] = s.By(program.First(width))
		} else {
			grid[i] = program.First(height).By(s)
		}
		from = end
	}
	return append(all, grid)
}

// Times from which the time of a share is predicted: of a launch, and of the events that order the
// work of several members. A further gather of the same stream costs againSeconds: 2 to 9 µs on two
// H200s. Copies slow down the kernels that they overlap, by a part of their time.
//
// A member copies its own parts between two kernels, each in localSeconds and at localRate bytes
// per second. In docs/results/gpus-resident-h200.tsv, such copies of 8, 17 and 34 MB take about
// 15, 36 and 55 µs on two H200s: the copies that no kernel overlaps, less the first gather, by
// panels.
const (
	launchSeconds = 5e-6
	orderSeconds  = 15e-6
	againSeconds  = 5e-6
	contention    = 0.1
	localSeconds  = 4e-6
	localRate     = 0.65e12
)

// seconds predicts the time of a share on its member. In order, nothing overlaps. Otherwise copies
// before the first launch and after the last one are exposed, and copies in between if they take
// longer than the kernels. Results are copied after all operands.
func (p *Job) seconds(s *Share, member int, inOrder bool) float64 {
	if s.C.Empty() {
		return 0
	}
	slower := p.Weights[0] / p.Weights[member]
	gathered, computed := p.copying(s.Gather), make([]float64, len(s.Panels))
	end, again := p.local(s.Gather), 0. // gathers from other members, after the first
	for i := range s.Panels {
		x := &s.Panels[i]
		copying := p.copying(x.Gather)
		if gathered > 0 && copying > 0 {
			again++
		}
		gathered += copying
		switch {
		case inOrder && i == 0:
			end += gathered
		case inOrder:
			end += copying
		case len(x.Gather) > 0 || i == 0:
			end = max(end, gathered)
		}
		end += p.local(x.Gather) + slower*p.computing(x.C) + launchSeconds
		computed[i] = end
	}
	scattered, copying := gathered, gathered
	for i := range s.Panels {
		seconds := p.copying(s.Panels[i].Scatter)
		scattered = max(scattered, computed[i]) + seconds
		copying += seconds
	}
	if inOrder {
		return end + copying - gathered - again*(orderSeconds-againSeconds)
	}
	return max(end, scattered) + contention*copying
}

// whole returns all rows and columns of C.
func (p *Job) whole() program.Rect {
	rows, cols := p.sides()
	return program.First(rows).By(program.First(cols))
}

// computing returns the time in which the first member computes a part of C.
func (p *Job) computing(c program.Rect) float64 {
	if p.SecondsOf == nil {
		return p.Seconds * float64(p.rounds(c)) / float64(p.rounds(p.whole()))
	}
	return p.SecondsOf(ints.CeilDiv(c.Rows.Len(), p.UnitM), ints.CeilDiv(c.Cols.Len(), p.UnitN))
}

// rounds returns the number of rounds in which a member computes the tiles of a part of C. A round
// of fewer tiles than a member computes at once takes as long: float32 2048³ in 128 tiles took 329
// µs on an H200 with 132 SMs, and so did 64 of its tiles.
func (p *Job) rounds(c program.Rect) int { return max(ints.CeilDiv(p.tiles(c), p.AtOnce), 1) }

// tiles returns the number of tiles of a part of C.
func (p *Job) tiles(c program.Rect) int {
	return ints.CeilDiv(c.Rows.Len(), p.UnitM) * ints.CeilDiv(c.Cols.Len(), p.UnitN)
}

// local returns the time of the copies within a member.
func (p *Job) local(all []Copy) (seconds float64) {
	for _, c := range all {
		if c.From == c.To {
			seconds += localSeconds + float64(c.Part.Len())*p.size(c.Operand)/localRate
		}
	}
	return seconds
}

// copying returns the time of copies between members.
func (p *Job) copying(all []Copy) (seconds float64) {
	for _, c := range all {
		if c.From != c.To {
			seconds += orderSeconds/float64(len(all)) + float64(c.Part.Len())*p.size(c.Operand)/p.Rate
		}
	}
	return seconds
}

// Traffic returns the bytes that each member copies from each other one, indexed by reader and
// source.
func (p *Job) Traffic(d *Division) [][]int {
	all := make([][]int, len(d.Shares))
	for i := range all {
		all[i] = make([]int, len(d.Shares))
	}
	d.Copies(func(c Copy) { all[c.To][c.From] += p.Layout(c.Operand).Type.Bytes(c.Part.Len()) })
	return all
}

// Copies calls f for all copies of a division.
func (d *Division) Copies(f func(Copy)) {
	for i := range d.Shares {
		s := &d.Shares[i]
		for _, c := range s.Gather {
			f(c)
		}
		for j := range s.Panels {
			for _, c := range s.Panels[j].Gather {
				f(c)
			}
			for _, c := range s.Panels[j].Scatter {
				f(c)
			}
		}
	}
}

// Describe describes a division in words, with the names of the members.
func (p *Job) Describe(d *Division, names []string) string {
	var all []string
	traffic := p.Traffic(d)
	for i := range d.Shares {
		s := &d.Shares[i]
		if s.C.Empty() {
			continue
		}
		what := fmt.Sprintf("%s computes rows %v", names[i], s.C.Rows)
		switch {
		case p.batched():
			what = fmt.Sprintf("%s computes products %v", names[i], s.C.Rows)
		case s.C.Rows.Len() < p.M && s.C.Cols.Len() < p.N:
			what += fmt.Sprintf(" of columns %v", s.C.Cols)
		case s.C.Rows.Len() == p.M && s.C.Cols.Len() == p.N:
			what = names[i] + " computes all of C"
		case s.C.Rows.Len() == p.M:
			what = fmt.Sprintf("%s computes columns %v", names[i], s.C.Cols)
		}
		if n := len(s.Panels); n > 1 {
			what += fmt.Sprintf(" in %d panels", n)
		}
		all = append(all, what)
	}
	for to := range traffic {
		for from, n := range traffic[to] {
			if n > 0 && from != to {
				all = append(all, fmt.Sprintf("%s copies %.4g MB from %s", names[to], float64(n)/1e6, names[from]))
			}
		}
	}
	return strings.Join(all, "; ")
}
