// Package choose lists the GPU kernels and chooses one of them for a product, with its tile and
// its split of K.
//
// [Candidates] is the one decision: it lists every kernel with every tile and split of K, why a
// candidate cannot compute the product, and the predicted time of each that can. The smallest
// time wins. Everything else is a view of that list. The predictions are models whose
// coefficients belong to a GPU model; see coefficients.go.
package choose

import (
	"fmt"
	"iter"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
)

// Candidate is a kernel with a configuration in which it may compute a product.
type Candidate struct {
	Kernel *kernel.Kernel
	// Config is complete but for the PDL and Lines fields. Its Tile is zero where the kernel
	// computes the product with no tile.
	Config kernel.Config
	// Cycles is the predicted time in clock cycles of an SM; 0 for a candidate that cannot
	// compute the product.
	Cycles float64
	// Rejected is why the candidate is not used, or nil.
	Rejected error

	prediction prediction
}

// Spec names the candidate as --kernel takes it: "blocked:64x64x8/8x4/4".
func (c *Candidate) Spec() string { return spec(c.Kernel, &c.Config) }

func spec(k *kernel.Kernel, c *kernel.Config) string {
	if c.Tile == (kernel.Tile{}) {
		return k.Name
	}
	return k.Name + ":" + c.Tile.String()
}

// Candidates lists every candidate for p on d, where the matrices are aligned to a: kernels in the
// order of [Kernels], each kernel's tiles in their order, and each tile with K whole and split.
// Rejected is ErrUnsupported for those that cannot compute p.
func Candidates(p *gemm.Problem, a kernel.Align, d *device.Info) []Candidate {
	return collect(candidates(rows, newOrderedJob(p, a, d)))
}

// CandidatesOf lists the candidates of one kernel.
func CandidatesOf(k *kernel.Kernel, p *gemm.Problem, a kernel.Align, d *device.Info) []Candidate {
	return collect(candidates(rowsOf(k), newOrderedJob(p, a, d)))
}

// rowsOf returns the part of rows that is kernel k's row.
func rowsOf(k *kernel.Kernel) []*row {
	i := slices.IndexFunc(rows, func(r *row) bool { return r.Kernel == k })
	return rows[i : i+1]
}

// InOrder lists the candidates of kernel k for p that add in order o. A nil k stands for all
// kernels.
func InOrder(k *kernel.Kernel, o kernel.Order, p *gemm.Problem, a kernel.Align, d *device.Info) []Candidate {
	of := rows
	if k != nil {
		of = rowsOf(k)
	}
	j := newJob(p, a, d)
	j.ordered, j.order = true, o
	var all []Candidate
	for c := range candidates(of, j) {
		if c.Rejected == nil {
			all = append(all, *c)
		}
	}
	return all
}

// Cycles predicts the time of p with a kernel and a tile in clock cycles of an SM.
func Cycles(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, a kernel.Align, d *device.Info) float64 {
	r, j := rowsOf(k)[0], newJob(p, a, d)
	c := Candidate{Kernel: k}
	r.setConfig(&c, j, r.configs(j).of(s))
	r.estimate(&c, j)
	return c.Cycles
}

// candidates ranges over the candidates of the kernels without making a list, as a plan needs only
// one of some hundreds. The Candidate is valid until the next one.
func candidates(kernels []*row, j *job) iter.Seq[*Candidate] {
	return func(yield func(*Candidate) bool) {
		var c Candidate
		for _, r := range kernels {
			if c = (Candidate{Kernel: r.Kernel}); !r.candidates(&c, j, yield) {
				return
			}
		}
	}
}

func collect(seq iter.Seq[*Candidate]) (all []Candidate) {
	for c := range seq {
		all = append(all, *c)
	}
	return all
}

// Fastest returns the candidate with the smallest predicted time, the first of several, or nil if
// all are rejected.
func Fastest(all []Candidate) *Candidate {
	var best *Candidate
	for i := range all {
		if c := &all[i]; c.Rejected == nil && (best == nil || c.Cycles < best.Cycles) {
			best = c
		}
	}
	return best
}

// fastest is [Fastest] for the candidates of some kernels. It lowers the job's limit to the time of
// the fastest candidate so far. It begins with the last kernel, because later kernels are faster in
// most cases and so leave out more candidates.
func (j *job) fastest(kernels []*row) (best Candidate, ok bool) {
	for i := range slices.Backward(kernels) {
		for c := range candidates(kernels[i:i+1], j) {
			earlier := c.Kernel != best.Kernel // in the list of candidates
			if c.Rejected == nil && (c.Cycles < j.limit || c.Cycles == j.limit && earlier) {
				best, j.limit = *c, c.Cycles
			}
		}
	}
	return best, best.Kernel != nil
}

// candidates yields the kernel's candidates, each in c, and reports whether there may be more.
func (r *row) candidates(c *Candidate, j *job, yield func(*Candidate) bool) bool {
	if c.Rejected = r.Check(j.Problem, kernel.Tile{}, j.align, j.device); c.Rejected != nil {
		return yield(c)
	}
	if j.ordered {
		return r.orderedCandidates(c, j, yield)
	}
	configs := r.configs(j)
	var splits []int
	for _, s := range r.tilesFor(j) {
		if r.isNeedless(j, s) {
			continue
		}
		splits = r.appendSplits(append(splits[:0], 0), j, s)
		for _, s.SplitK = range splits {
			if configs.least(s) > j.limit {
				continue
			}
			r.judge(c, j, configs.of(s))
			if c.Rejected != nil && s.SplitK > 1 {
				break // as with any other number of parts
			}
			if !yield(c) {
				return false
			}
		}
	}
	return true
}

// tilesFor returns the tiles for the job's element type.
func (r *row) tilesFor(j *job) []kernel.Tile {
	if r.tiles != nil {
		return r.tiles(j)
	}
	return r.Tiles
}

// isNeedless reports whether the job has a tile that is always as good as s.
func (r *row) isNeedless(j *job, s kernel.Tile) bool { return r.needless != nil && r.needless(j, s) }

// configs makes the configurations of a kernel for a product with aligned matrices. Those of tiles
// with the same reading share all but the Tile.
type configs struct {
	row    *row
	job    *job
	shared [readings]struct {
		kernel.Config
		floor
	}
}

// configs returns the job's configs, for the kernel.
func (r *row) configs(j *job) *configs {
	j.configs = configs{row: r, job: j}
	return &j.configs
}

// of returns the configuration with tile s. It is valid until the next one.
func (x *configs) of(s kernel.Tile) *kernel.Config {
	c := &x.shared[reading(s)].Config
	if !c.In.Valid() {
		*c = x.row.For(x.row.Config(x.job.Problem, s), x.job.device.Target)
	}
	c.Tile = s
	return c
}

// least returns a lower bound of the time that is predicted with tile s.
func (x *configs) least(s kernel.Tile) float64 {
	if x.row.floor == nil {
		return 0
	}
	f := &x.shared[reading(s)].floor
	if f.rate == 0 {
		*f = x.row.floor(x.job, s)
	}
	return f.least(x.job, s)
}

// judge makes c the candidate with a configuration for aligned matrices, and rejects it or sets its
// predicted time. The kernel must be able to compute the product with some tile. Candidates whose
// time exceeds the job's limit are not checked against the limits of the device.
func (r *row) judge(c *Candidate, j *job, config *kernel.Config) {
	r.setConfig(c, j, config)
	if c.Rejected = r.CheckRules(j.Problem, config); c.Rejected != nil {
		return
	}
	if r.estimate(c, j); c.Cycles > j.limit {
		return
	}
	if c.Rejected = r.CheckLimits(j.Problem, config, j.device); c.Rejected == nil && j.ordered {
		c.Rejected = r.checkOrder(j, config.Tile)
	}
	if c.Rejected != nil {
		c.Cycles, c.prediction = 0, prediction{}
	}
}

// setConfig makes c the candidate with a configuration for aligned matrices.
func (r *row) setConfig(c *Candidate, j *job, config *kernel.Config) {
	align := j.align
	if r.TMA {
		align[gemm.A], align[gemm.B] = 0, 0 // operands that TMA cannot read are packed
	}
	c.Config, c.Cycles, c.prediction = *config, 0, prediction{}
	c.Config.LimitVectors(align)
}

// estimate sets the predicted time.
func (r *row) estimate(c *Candidate, j *job) {
	c.prediction = r.predict(j, &c.Config)
	if s := c.Config.Tile; s.SerialK > 1 {
		c.prediction.multiply += j.serialParts(r.Kernel, s, &c.prediction)
	}
	c.Cycles = c.prediction.cycles()
}

// appendSplits appends the numbers of parts of K that give each SM one block, two blocks and so on
// up to maxFill, where each part has some steps.
func (r *row) appendSplits(list []int, j *job, s kernel.Tile) []int {
	if r.maxFill == 0 || s.ClusterK > 1 || s.StreamK || j.Empty() || !j.ReadsAB() || j.Batch.Kind != gemm.Single {
		return list
	}
	height, width := s.SizeInC()
	tiles := ints.CeilDiv(j.M, height) * ints.CeilDiv(j.N, width)
	last := 1
	for fill := 1; fill <= r.maxFill; fill++ {
		want, most := fill*j.device.SMs/tiles, min(j.K/(s.K*r.minSteps), kernel.MaxGridRows)
		if want > most && r.fillsSMs {
			break
		}
		if parts := min(want, most); parts > last {
			list, last = append(list, parts), parts
		}
	}
	return list
}

// Choice is a kernel and its configuration for a product.
type Choice struct {
	Kernel *kernel.Kernel
	Config kernel.Config
	// Cycles is the predicted time in clock cycles of an SM.
	Cycles float64
	Why    string // in words
}

// Spec names the choice as --kernel takes it.
func (c *Choice) Spec() string { return spec(c.Kernel, &c.Config) }

// Best chooses among all kernels for p on d, where the matrices are aligned to a. The choice is the
// [Fastest] of [Candidates]. Best predicts only some of them; see floor.go. The error is
// ErrUnsupported.
func Best(p *gemm.Problem, a kernel.Align, d *device.Info) (Choice, error) {
	j := newOrderedJob(p, a, d)
	c, ok := j.fastest(rows)
	if !ok {
		return Choice{}, rejection(Candidates(p, a, d), p, a)
	}
	why := "predicted to be the fastest on " + d.Name
	if j.costs.fitted {
		why += ", to which the predictions are fitted"
	}
	return c.choice(why + j.orderText()), nil
}

// rejection returns the most useful of the reasons why nothing computes p: that of a kernel which
// could compute it on another device, or else that of the first kernel.
func rejection(all []Candidate, p *gemm.Problem, a kernel.Align) error {
	for _, c := range slices.Backward(all) {
		if c.Kernel.Check(p, kernel.Tile{}, a, nil) == nil {
			return c.Rejected
		}
	}
	return all[0].Rejected
}

// Named chooses the configuration of the kernel of that name, with the given tile unless it is
// empty. The error is ErrUnsupported.
func Named(name, tile string, p *gemm.Problem, a kernel.Align, d *device.Info) (Choice, error) {
	r, err := find(name)
	if err != nil {
		return Choice{}, err
	}
	if err := r.Check(p, kernel.Tile{}, a, d); err != nil {
		return Choice{}, err
	}
	const why = "requested by name"
	j := newOrderedJob(p, a, d)
	if tile != "" {
		s, err := r.ParseTile(tile)
		if err != nil {
			return Choice{}, err
		}
		c := Candidate{Kernel: r.Kernel}
		r.judge(&c, j, r.configs(j).of(s))
		return Choice{r.Kernel, c.Config, c.Cycles, why + j.orderText()}, c.Rejected
	}
	c, ok := j.fastest([]*row{r})
	switch {
	case ok:
	case j.orderErr != nil:
		return Choice{}, j.orderErr
	case j.ordered:
		return Choice{}, fmt.Errorf("%w: kernel %s in a row-invariant product: want a kernel that sums %v",
			gemm.ErrUnsupported, r.Name, j.order)
	default:
		return Choice{}, fmt.Errorf("%w: kernel %s has no tile for %v on %s", gemm.ErrUnsupported, r.Name, p, d.Name)
	}
	return c.choice(why + "; of its tiles this one is predicted to be the fastest" + j.orderText()), nil
}

// choice returns the candidate as a choice that was made for the given reason.
func (c *Candidate) choice(why string) Choice {
	return Choice{c.Kernel, c.Config, c.Cycles, fmt.Sprintf("%s: %.0f cycles, %v", why, c.Cycles, &c.prediction)}
}
