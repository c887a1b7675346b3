package verify

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"tilework/internal/gemm"
	"tilework/internal/ref"
)

// oldRows holds rows of the old C, in C's type, on which NaN and infinities of the result can
// depend.
type oldRows map[int][]byte

// keepOld copies the rows of the old C that are not finite, or so large that they can decide
// whether an element overflows. A C in other memory is only known by its norms.
func (f *freivalds[T]) keepOld() {
	out := f.p.Out().Info()
	if f.old != nil || out.Integer {
		return
	}
	f.oldRows = oldRows{}
	for i, terms := range f.oldTerms {
		if f.oldBad[i] > 0 || !(terms < out.Roundoff*out.Max/8) {
			row := f.c.data[out.Bytes(i*f.c.layout.LD):]
			f.oldRows[i] = append([]byte(nil), row[:out.Bytes(f.p.N)]...)
		}
	}
}

// oldAt returns element (i, j) of the old C, and the largest error of this value.
func (f *freivalds[T]) oldAt(i, j int) (value, err float64) {
	if row, ok := f.oldRows[i]; ok {
		return f.p.Out().At(row, j), 0
	}
	return 0, f.oldTerms[i] / math.Abs(real(f.p.Beta))
}

// checkAllNonfinite checks all NaNs and infinities of c, total in number. If that takes more than
// [maxTerms] terms, it checks a random sample of them.
func (f *freivalds[T]) checkAllNonfinite(ctx context.Context, total int, c operand) error {
	share := float64(maxTerms) / (float64(total) * float64(max(f.p.K, 1)))
	rng := rand.New(rand.NewPCG(f.opt.Seed, 2))
	for i := range f.p.M {
		if err := ctx.Err(); err != nil {
			return err
		}
		for j := range f.p.N {
			if isFinite(c.at(i, j)) || share < 1 && rng.Float64() >= share {
				continue
			}
			if err := f.checkNonfinite(i, j, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNonfinite recomputes element (i, j), which is not finite. It returns ErrVerify unless the
// element is the NaN or infinity of an operand or may have overflowed.
func (f *freivalds[T]) checkNonfinite(i, j int, c operand) error {
	got, want := c.at(i, j), f.recompute(i, j)
	if want.accepts(got, f.p) {
		return nil
	}
	return fmt.Errorf("%w: C(%d,%d) is %v, where about %.3g is wanted", gemm.ErrVerify, i, j, got, want.value)
}

// element is an element of C that was recomputed in float64.
type element struct {
	// The summands α·(A·B), β·C and the bias, and their sum.
	product, old, bias, value float64
	// The largest errors of product and value, through rounding and an unknown old C.
	productSlack, slack float64
	anything            bool // whether the kernel's sums of products may have overflowed
}

// recompute computes element (i, j).
func (f *freivalds[T]) recompute(i, j int) (e element) {
	p, sum, abs := f.p, 0.0, 0.0
	scale := p.ScaleType()
	alpha, beta := scale.Round(real(p.Alpha)), scale.Round(real(p.Beta))
	gamma := ref.Gamma(ref.Roundings(p, f.opt.Accuracy), f.opt.Accuracy.Roundoff)
	if p.ReadsAB() {
		for k := range p.K {
			a, b := f.a.at(i, k), f.b.at(k, j)
			sum += a * b
			if isFinite(a) && isFinite(b) {
				abs += math.Abs(a * b)
			}
		}
		e.product, e.productSlack = alpha*sum, finiteOr0(gamma*abs*math.Abs(alpha))
		// The sign of an infinite alpha times a sum that can be 0 depends on rounding.
		e.anything = !(abs < scale.Info().Max/2) || math.IsInf(alpha, 0) && math.Abs(sum) <= gamma*abs
	}
	if p.Beta != 0 {
		old, unknown := f.oldAt(i, j)
		e.old, e.slack = beta*old, finiteOr0(math.Abs(beta)*unknown)
	}
	switch p.Epilogue.Bias {
	case gemm.BiasRow:
		e.bias = p.Out().At(f.bias, i)
	case gemm.BiasCol:
		e.bias = p.Out().At(f.bias, j)
	}
	e.value = e.product + e.old + e.bias
	e.slack += e.productSlack + finiteOr0(gamma*(math.Abs(e.product)+math.Abs(e.old)+math.Abs(e.bias)))
	return e
}

// accepts reports whether a kernel that computes p may return got, which is not finite.
func (e *element) accepts(got float64, p *gemm.Problem) bool {
	out, scale := p.Out(), p.ScaleType().Info()
	switch {
	case e.anything:
		return true
	case math.IsNaN(e.value):
		return math.IsNaN(got)
	case math.IsInf(e.value, 0):
		return ref.Overflowed(out, got, e.value)
	}
	// Each summand and their sum may overflow by itself, with either sign if rounding decides it.
	overflows := func(x, slack, most float64) bool {
		return math.Abs(x)+slack > most &&
			(ref.Overflowed(out, got, x) || slack > math.Abs(x) && ref.Overflowed(out, got, -x))
	}
	product, old := overflows(e.product, e.productSlack, scale.Max), overflows(e.old, e.slack, scale.Max)
	return product || old || overflows(e.value, e.slack, out.Info().Max)
}

// finiteOr0 returns x, or 0 if x is not finite.
func finiteOr0(x float64) float64 {
	if isFinite(x) {
		return x
	}
	return 0
}
