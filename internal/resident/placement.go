package resident

import (
	"math"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/split"
)

// placement is the way in which several GPUs store matrices of a size.
type placement uint8

const (
	divided placement = iota // by rows or by columns
	onFirst                  // on the first GPU alone
	onEach                   // whole on each GPU
)

// squaresKey identifies square matrices.
type squaresKey struct {
	kind        dtype.Type
	side, count int
}

const (
	// mostOnEach is the size in bytes from which matrices are divided even if their products are then
	// slower, so that the GPUs can store more than one of them can.
	mostOnEach = 64 << 20
	// minSeconds is the time of a product on one GPU from which its matrices are divided. A product of
	// a divided matrix and one that is not takes about half of it to enqueue.
	minSeconds = 100e-6
	// sendSeconds is the time in which the first GPU can send matrices that only it has to all others,
	// for products with divided ones.
	sendSeconds = 50e-6
)

// placementOf returns the placement of count matrices of a size. It follows from the predicted
// times of the products of square matrices of that size: they are divided only if that is faster
// than one GPU, and on each GPU only if all can start the product as fast as the first one alone.
func (d *Device) placementOf(l gemm.Layout, count int) placement {
	if d.dividesAll || l.Bytes()*count > mostOnEach || d.enter() != nil { // alloc returns the error
		return divided
	}
	defer d.leave()
	key := squaresKey{l.Type, int(math.Sqrt(float64(l.Rows) * float64(l.Cols))), count}
	d.mu.Lock()
	at, found := d.placements[key]
	d.mu.Unlock()
	if found {
		return at
	}
	at = d.predictPlacement(key)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.placements) >= mostPlans {
		clear(d.placements)
	}
	d.placements[key] = at
	return at
}

// predictPlacement returns the placement of square matrices.
func (d *Device) predictPlacement(x squaresKey) placement {
	square := gemm.Padded(gemm.Dense(x.kind, x.side, x.side))
	bytes := square.Bytes() * x.count * (len(d.members) - 1) // to all others
	sends := float64(bytes) < sendSeconds*d.rate()
	one, each, apart, err := d.squareSeconds(x, square)
	switch {
	case sends && (err != nil || one < minSeconds || one <= apart): // or no product multiplies them alone
		return onFirst
	case err != nil || x.count > 1 || one >= minSeconds && apart < one: // batches copy nothing
		return divided
	case each > one:
		return onFirst
	}
	return onEach
}

// squareSeconds predicts the times of products of square matrices on one GPU, and on all with
// matrices that are on each or divided by rows.
func (d *Device) squareSeconds(x squaresKey, square gemm.Layout) (one, each, apart float64, err error) {
	result := square
	if all := x.kind.Info().Results; len(all) > 0 {
		result = gemm.Padded(gemm.Dense(all[0], x.side, x.side))
	}
	p, _, err := gemm.New(1, square, square, 0, result, gemm.Epilogue{})
	if err != nil {
		return 0, 0, 0, err
	}
	unit, step := split.EvenUnit(split.Rows, x.side, x.side, len(d.members), d.unit), split.Step{}
	if x.count > 1 {
		n := x.side * square.LD
		unit, step.Rows = x.side, x.side
		if p, err = p.Strided(x.count, gemm.Batch{Stride: gemm.Strides{n, n, x.side * result.LD}}); err != nil {
			return 0, 0, 0, err
		}
	}
	pl, err := d.plan(&p, kernel.Memory{}, "")
	if err != nil {
		return 0, 0, 0, err
	}
	seconds := func(members int, by split.By) float64 {
		q := d.product(pl, &p)
		q.Weights = q.Weights[:members]
		m := split.New(by, x.side*x.count, x.side, q.Weights, max(unit, 1))
		for o := range gemm.C + 1 {
			q.Places[o] = split.Place{Matrix: &m, Step: step}
		}
		return q.Plan().Seconds
	}
	return seconds(1, split.Rows), seconds(len(d.members), split.OnEach), seconds(len(d.members), split.Rows), nil
}
