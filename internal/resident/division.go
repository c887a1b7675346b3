package resident

import (
	"context"

	"tilework/internal/gemm"
	"tilework/internal/gpu/exec"
	"tilework/internal/model"
	"tilework/internal/split"
)

// callSeconds is the time of a call of the driver that enqueues work: 93 µs for 26 of them between
// two H200s, with 19 µs of this package's own.
const callSeconds = 3e-6

// division is the division of a product among the members of a device.
type division struct {
	device *GPUs
	tiled
	work     *split.Work
	launches [][]launch // by member and panel
	scratch  []int      // by member, bytes of scratch memory of the launches
	// Of the last product; guarded by device.ordering.
	compiled bool // the kernels of the first panels
	kept     *execution
}

// launch is the planned launch of a panel.
type launch struct {
	plan   *exec.Plan
	places [gemm.Operands]split.At
}

// String describes the division.
func (x *division) String() string {
	var names []string
	for _, m := range x.device.members {
		names = append(names, m.name.String())
	}
	return x.tiles() + x.Describe(&x.Division, names)
}

// divisionKey identifies a division. The ends of the members' parts follow from the shape of a
// matrix and its unit.
type divisionKey struct {
	plan   *exec.Plan // of the whole product on the first GPU
	places [gemm.Operands]placeKey
}

// placeKey has integers without gaps in between, which are faster to hash.
type placeKey struct {
	by         int // a split.By
	rows, cols int // of the whole matrix
	row, col   int
	unit       int
}

// division returns the division of a product that pl computes on the first GPU. Divisions are kept,
// as plans are.
func (d *GPUs) division(pl *exec.Plan, p *Job, swapped bool) (*division, error) {
	key := divisionKey{plan: pl}
	for o := range gemm.Operands {
		if on := &p.operand(o, swapped).On; on.Memory != nil {
			at := on.place()
			key.places[o] = placeKey{int(at.Matrix.By), at.Matrix.Rows, at.Matrix.Cols, at.Row, at.Col, on.Memory.unit}
		}
	}
	return d.divisions.Get(key, func() (*division, error) { return d.divide(pl, p, swapped) })
}

// divide plans the division of a product that pl computes on the first GPU.
func (d *GPUs) divide(pl *exec.Plan, product *Job, swapped bool) (*division, error) {
	p := pl.Problem()
	q := d.product(pl, p)
	q.Pick = d.pick
	for o := range gemm.Operands {
		if on := &product.operand(o, swapped).On; on.Memory != nil {
			count, stride := 1, 0
			if o <= gemm.C {
				count, stride = p.Products(), p.Batch.Stride[o]
			}
			var err error
			if q.Places[o], err = on.placeOf(count, stride); err != nil {
				return nil, err
			}
		} else if p.Uses(o) { // in host memory: it is copied to each member
			l := p.Layout(o)
			whole := split.New(split.OnEach, l.Rows, l.Cols, d.weights, 1)
			q.Places[o].Matrix = &whole
		}
	}
	v := &division{device: d, tiled: d.fastest(pl, q, product.Kernel)}
	for i, m := range d.members {
		if v.Shares[i].C.Empty() || v.whole[i] != nil {
			continue
		}
		var err error
		if v.whole[i], err = v.plan.On(m.backend); err != nil {
			return nil, d.failed(m, err)
		}
	}
	v.planLaunches()
	return v, nil
}

// product returns a product that pl computes on the first GPU, without the places of its operands.
func (d *GPUs) product(pl *exec.Plan, p *gemm.Problem) split.Job {
	grain, rows, cols, atOnce := 1, 1, 1, 1 // of a batch: whole products
	if p.Batch.Kind != gemm.Strided {
		grain, atOnce = pl.Grain(), pl.TilesAtOnce()
		rows, cols = pl.Units(max(grain, split.Align))
	}
	q := split.Job{Problem: *p, Weights: d.weights, UnitM: rows, UnitN: cols, Grain: grain, AtOnce: atOnce,
		Seconds: pl.Seconds(), Rate: d.rate(), CallSeconds: callSeconds, PanelBytes: d.panelBytes}
	if p.Batch.Kind != gemm.Strided {
		q.SecondsOf = predictor(pl, rows, cols)
	}
	return q
}

// planLaunches plans the launches of all panels, and the memory for them.
func (x *division) planLaunches() {
	members := len(x.Shares)
	x.launches, x.scratch = make([][]launch, members), make([]int, members)
	for i := range x.Shares {
		for j := range x.Shares[i].Panels {
			l := x.launch(i, &x.Shares[i].Panels[j])
			x.launches[i], x.scratch[i] = append(x.launches[i], l), max(x.scratch[i], l.plan.ScratchBytes())
		}
	}
	x.work, x.kept = x.Work(&x.Division), nil
}

// compile compiles the kernels of the first panels, for all members at the same time.
func (x *division) compile(ctx context.Context) error {
	if x.compiled {
		return nil
	}
	first := make([]*exec.Plan, len(x.launches))
	for i, all := range x.launches {
		if len(all) > 0 {
			first[i] = all[0].plan
		}
	}
	for i, err := range exec.CompileAll(ctx, first) {
		if err != nil {
			return x.device.failed(x.device.members[i], err)
		}
	}
	x.compiled = true
	return nil
}

// launch plans the launch of a panel. It loads no longer vectors than the whole product would, so
// that its sums have the same order.
func (x *division) launch(member int, p *split.Panel) (l launch) {
	whole := x.whole[member]
	row, col := p.C.Rows.From, p.C.Cols.From
	if x.Batch.Kind == gemm.Strided { // the rows are numbers of products
		row, col = 0, 0
	}
	var q gemm.Problem
	q, l.places = x.Launch(member, &x.Shares[member], p)
	l.plan = whole.Part(q, row, col)
	l.plan.Config.CapVectors(&whole.Config)
	return l
}

// smaller returns the same division with smaller panels, and false if it has none.
func (x *division) smaller() (*division, bool) {
	panels := func(of *division) (n int) {
		for i := range of.Shares {
			n += len(of.Shares[i].Panels)
		}
		return n
	}
	less := *x
	for less.PanelBytes /= 4; less.PanelBytes > 0; less.PanelBytes /= 4 {
		less.Division = x.Smaller(x.Division, less.PanelBytes)
		if panels(&less) > panels(x) {
			less.planLaunches()
			return &less, true
		}
	}
	return nil, false
}

// rate returns the rate in bytes per second at which each member receives copies while all do: that
// of the slowest.
func (d *GPUs) rate() float64 {
	const (
		usual  = 20e9 // PCIe 4
		shared = 0.85 // of the rate of one copy: 327 of 385 GB/s among four H200s
	)
	slowest := 0.
	for _, m := range d.members {
		rate := usual
		if row, err := model.Lookup(m.backend.Info().Name); err == nil && row.PeerBandwidth > 0 {
			rate = row.PeerBandwidth
		}
		if slowest == 0 || rate < slowest {
			slowest = rate
		}
	}
	return shared * slowest
}

// By returns the way in which the matrix is divided if it is large enough, [split.Rows] on a single
// GPU.
func (m Matrix) By() split.By {
	switch {
	case m.Memory == nil || !m.Memory.device.Divided():
		return split.Rows
	case m.Layout.Trans:
		return m.Memory.asked.T()
	}
	return m.Memory.asked
}
