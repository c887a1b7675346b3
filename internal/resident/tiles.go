package resident

import (
	"cmp"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/split"
)

// The fastest tile for a whole product need not be the fastest for the parts of several GPUs.
// float32 2048³ has 128 tiles of 128×256, which the 132 SMs of an H200 compute in one round. Half
// of the product has 64 of them, which take as long. The bits of a product follow from the order of
// the sums, and not from the tile, so the GPUs may use another tile with the same order.

const (
	// leastGain is the relative gain in predicted time from which parts have a tile of their own.
	leastGain = 0.03
	// mostTiles is the number of such tiles for which divisions are compared. With all tiles, 300
	// random products on eight H200s were predicted to take 0.1 % less time, but planning took 1.4
	// times as long.
	mostTiles = 2
)

// tiled is the division of a product, with the tile in which all members compute their parts.
type tiled struct {
	split.Job // with nonzero factors replaced by 1
	split.Division
	plan  *exec.Plan   // of the whole product with that tile, on the first GPU
	other bool         // whether one GPU would use another tile
	whole []*exec.Plan // plan on each member that computes a part; the others may be nil
}

// tiles describes a tile that one GPU would not use.
func (x *tiled) tiles() string {
	if !x.other {
		return ""
	}
	return "parts with " + x.plan.Spec() + "; "
}

// fastest divides product q, which pl computes on the first GPU with the kernel that the caller
// named. The tile is that of pl, or one that is predicted to be faster for the parts of several
// members. A product that one member computes has the tile of pl.
func (d *GPUs) fastest(pl *exec.Plan, q split.Job, named string) tiled {
	best := tiled{Job: q, Division: q.Divide(), plan: pl, whole: make([]*exec.Plan, len(d.members))}
	if len(q.Weights) < 2 || q.Batch.Kind == gemm.Strided || gpu.Options(named).Tile != "" {
		return best
	}
	// gains reports whether members that compute for a time can be faster than the best division.
	gains := func(seconds float64) bool {
		return d.pickTile != nil || q.LeastSeconds(seconds) < (1-leastGain)*best.Division.Seconds
	}
	if !gains(q.Seconds * q.Fraction()) {
		return best
	}
	for _, c := range d.partTiles(pl, &q) {
		if !gains(pl.CyclesToSeconds(c.Cycles)) {
			continue
		}
		other, err := pl.With(c)
		if err != nil {
			continue
		}
		whole := d.onEach(other)
		if whole == nil {
			continue
		}
		x := tiled{Job: d.product(other, &q.Problem), plan: other, other: true, whole: whole}
		x.Places, x.Weights, x.Pick = q.Places, q.Weights, q.Pick
		x.Division = x.Job.Divide()
		if d.pickTile != nil || x.Several() && x.Division.Seconds < (1-leastGain)*best.Division.Seconds {
			best = x
		}
	}
	return best
}

// onEach returns a plan on all members, or nil if a member cannot run it.
func (d *GPUs) onEach(pl *exec.Plan) (all []*exec.Plan) {
	for _, m := range d.members {
		on, err := pl.On(m.backend)
		if err != nil {
			return nil
		}
		all = append(all, on)
	}
	return all
}

// partTiles returns the candidates that are the fastest for the parts of even divisions, if they
// are faster there than the tile of pl, the fastest first.
func (d *GPUs) partTiles(pl *exec.Plan, q *split.Job) (tiles []*choose.Candidate) {
	for _, part := range q.EvenParts() {
		c := d.partTile(pl, pl.SameOrder(part.Rows.Len(), part.Cols.Len()))
		same := func(x *choose.Candidate) bool { return x.Spec() == c.Spec() }
		if c != nil && !slices.ContainsFunc(tiles, same) {
			tiles = append(tiles, c)
		}
	}
	slices.SortStableFunc(tiles, func(x, y *choose.Candidate) int { return cmp.Compare(x.Cycles, y.Cycles) })
	return tiles[:min(len(tiles), mostTiles)]
}

// partTile returns the fastest of the candidates for a part, or nil if the tile of pl is nearly as
// fast.
func (d *GPUs) partTile(pl *exec.Plan, all []choose.Candidate) *choose.Candidate {
	if d.pickTile != nil {
		if i := d.pickTile(all); i >= 0 {
			return &all[i]
		}
		return nil
	}
	c := choose.Fastest(all)
	for i := range all {
		if x := &all[i]; x.Spec() == pl.Spec() && c.Cycles > (1-leastGain)*x.Cycles {
			return nil
		}
	}
	return c
}

// predictor returns a function that predicts the times of parts of C, in units of rows and columns
// that pl computes. It predicts each size once, as panels have few sizes.
func predictor(pl *exec.Plan, height, width int) func(rows, cols int) float64 {
	known := map[[2]int]float64{}
	p := pl.Problem()
	return func(rows, cols int) float64 {
		seconds, found := known[[2]int{rows, cols}]
		if !found {
			seconds = pl.SecondsOf(min(rows*height, p.M), min(cols*width, p.N))
			known[[2]int{rows, cols}] = seconds
		}
		return seconds
	}
}
