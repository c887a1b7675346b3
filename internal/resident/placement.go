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
	// sendSeconds is the time in which the first GPU can send all others their parts of matrices that
	// only it has, if the types have no product to predict.
	sendSeconds = 25e-6
	// slowerCounts is the weight of time by which a product is slower than on one GPU, beside time by
	// which it could be faster.
	slowerCounts = 2
)

// placementOf returns the placement of count matrices of a size, before their products are known.
// It weighs three products: that of square matrices of that size gains from several GPUs; that of
// one row and such a matrix must gather a divided one; and that of small K, whose result is such a
// matrix, must copy the result to each GPU that stores it.
func (d *GPUs) placementOf(l gemm.Layout, count int) placement {
	if d.dividesAll || l.Bytes()*count >= mostOnEach || d.enter() != nil { // alloc returns the error
		return divided
	}
	defer d.leave()
	key := squaresKey{l.Type, int(math.Sqrt(float64(l.Rows) * float64(l.Cols))), count}
	at, _ := d.placements.Get(key, func() (placement, error) { return d.predictPlacement(key), nil })
	return at
}

// predictPlacement returns the placement of square matrices for which the product of squares gains
// most and the others lose least. Matrices on each GPU also save the time in which the first GPU
// would send all others their parts, for products with divided matrices.
func (d *GPUs) predictPlacement(x squaresKey) placement {
	others := len(d.members) - 1
	bytes := gemm.Padded(gemm.Dense(x.kind, x.side, x.side)).Bytes() * x.count
	send := float64(bytes*others) / float64(len(d.members)) / d.rate()
	small := min(x.side, 1)
	squares, err := d.predictTimes(x, x.side, x.side)
	var row, thin times
	if err == nil {
		row, err = d.predictTimes(x, small, x.side)
	}
	if err == nil {
		thin, err = d.predictTimes(x, x.side, small)
	}
	// value returns the time that a placement saves for squares, less the time that others lose.
	value := func(saved float64, of func(times) float64) float64 {
		slower := max(of(row)-row.one, 0) + max(of(thin)-thin.one, 0)
		return saved - slowerCounts*slower
	}
	each := value(max(squares.one-squares.onEach, send), func(t times) float64 { return t.onEach })
	dividing := value(squares.one-squares.divided, func(t times) float64 { return t.divided })
	switch {
	case err != nil && send > sendSeconds: // no product multiplies them alone
		return divided
	case err != nil:
		return onFirst
	case x.count > 1 && squares.divided < squares.one: // the products of divided batches copy nothing
		return divided
	case x.count > 1:
		return onFirst
	case dividing > max(each, 0):
		return divided
	case each > 0:
		return onEach
	}
	return onFirst
}

// times holds predicted times of a product in seconds.
type times struct {
	one             float64 // on one GPU
	onEach, divided float64 // on all, with the squares on each GPU or divided by rows
}

// predictTimes predicts the times of a product whose N is the side of square matrices. Operands
// that are not square are on the first GPU.
func (d *GPUs) predictTimes(x squaresKey, m, k int) (t times, err error) {
	result := x.kind
	if all := x.kind.Info().Results; len(all) > 0 {
		result = all[0]
	}
	layouts := [...]gemm.Layout{gemm.A: gemm.Padded(gemm.Dense(x.kind, m, k)),
		gemm.B: gemm.Padded(gemm.Dense(x.kind, k, x.side)), gemm.C: gemm.Padded(gemm.Dense(result, m, x.side))}
	p, _, err := gemm.New(1, layouts[gemm.A], layouts[gemm.B], 0, layouts[gemm.C], gemm.Epilogue{})
	if err != nil {
		return t, err
	}
	unit := split.EvenUnit(split.Rows, x.side, x.side, len(d.members), d.unit)
	if x.count > 1 {
		unit = x.side
		var strides gemm.Strides
		for o, l := range layouts {
			strides[o] = l.Rows * l.LD
		}
		if p, err = p.Strided(x.count, gemm.Batch{Stride: strides}); err != nil {
			return t, err
		}
	}
	planned, err := d.plan(&p, &kernel.Memory{}, "")
	if err != nil {
		return t, err
	}
	pl := planned.Plan()
	seconds := func(members int, by split.By) float64 {
		q := d.product(pl, &p)
		q.Weights = q.Weights[:members]
		for o, l := range layouts {
			rows, by, unit, step := l.Rows*x.count, by, unit, split.Step{}
			if l.Rows != x.side || l.Cols != x.side {
				by, unit = split.Rows, rows
			}
			if x.count > 1 {
				step.Rows = l.Rows
			}
			whole := split.New(by, rows, l.Cols, q.Weights, max(unit, 1))
			q.Places[o] = split.Place{Matrix: &whole, Step: step}
		}
		return d.fastest(pl, q, "").Division.Seconds
	}
	return times{seconds(1, split.Rows), seconds(len(d.members), split.OnEach), seconds(len(d.members), split.Rows)}, nil
}
