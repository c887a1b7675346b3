package gpu

import (
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
)

// Configs lists the configurations in which kernel k can compute p on a device, the fastest
// first.
func Configs(k *Kernel, p *gemm.Problem, d *device.Info) []Config {
	if k.Runs(p, d) != nil {
		return nil
	}
	var list []Config
	for _, s := range rowOf(k).ordered(p, d) {
		if c := k.For(k.Config(p, s), d.Target); k.CheckDevice(c, p, d) == nil {
			list = append(list, c)
		}
	}
	return list
}

// ordered returns the tiles, the fastest first.
func (r *row) ordered(p *gemm.Problem, d *device.Info) []Shape {
	if r.order == nil || p.Empty() {
		return r.largest(p, d)
	}
	return r.order(r, p, d)
}

// largest orders the shapes: a large tile reads less, but where there are fewer
// of them than the device has SMs, some of those do nothing. Blocks of less than two
// warps, which leave most of a scheduler's slots empty, come last.
func (r *row) largest(p *gemm.Problem, d *device.Info) []Shape {
	var busy, idle, small []Shape
	for _, s := range r.shapes {
		switch {
		case r.threads(s).Count() < 64:
			small = append(small, s)
		case !p.Empty() && tilesOf(p, s) >= d.SMs:
			busy = append(busy, s)
		default:
			idle = append([]Shape{s}, idle...)
		}
	}
	return slices.Concat(busy, idle, small)
}

// worthPacking is false for a product that uses the elements of an operand that has to be
// packed so few times that reading it is what takes the time.
func (r *row) worthPacking(p *gemm.Problem, a Align) bool {
	if p.Precision == gemm.F32x3 {
		return true // in it there is no other kernel
	}
	q, is := r.packing(p, Shape{Turned: turnable(p) == nil}, a)
	uses := [...]int{p.N, p.M, p.M}
	if p.Batch.Kind == gemm.Grouped {
		uses[inB] /= max(p.Batch.Count, 1)
	}
	for i, l := range [...][2]gemm.Layout{{p.A, q.A}, {p.B, q.B}, {p.Up, q.Up}} {
		enough := often
		if p.Batch.Kind != gemm.Single && l[0].Trans != l[1].Trans {
			enough = oftenTurned
		}
		if is[i] && uses[i] < enough {
			return false
		}
	}
	return true
}

// unsuited is why p, with matrices at addresses of that alignment, does not get the kernel
// unasked on a device; the error is ErrUnsupported.
func (r *row) unsuited(p *gemm.Problem, a Align, d *device.Info) error {
	if !r.worthPacking(p, a) {
		return fmt.Errorf("%w: kernel %s would pack an operand whose elements are used fewer than %d times, or %d where a batch's is transposed", gemm.ErrUnsupported, r.Name, often, oftenTurned)
	}
	if r.checkSuited == nil {
		return nil
	}
	return r.checkSuited(p, d)
}
