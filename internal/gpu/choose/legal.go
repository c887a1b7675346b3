package choose

import (
	"fmt"
	"slices"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// Configs lists the configurations in which kernel k can compute p on a device, the fastest
// first.
func Configs(k *kernel.Kernel, p *gemm.Problem, d *device.Info) []kernel.Config {
	if k.Runs(p, d) != nil {
		return nil
	}
	var list []kernel.Config
	for _, s := range RowOf(k).ordered(p, d) {
		if c := k.For(k.Config(p, s), d.Target); k.CheckDevice(c, p, d) == nil {
			list = append(list, c)
		}
	}
	return list
}

// ordered returns the tiles, the fastest first.
func (r *row) ordered(p *gemm.Problem, d *device.Info) []kernel.Tile {
	if r.order == nil || p.Empty() {
		return r.largest(p, d)
	}
	return r.order(r, p, d)
}

// largest orders the shapes: a large tile reads less, but where there are fewer
// of them than the device has SMs, some of those do nothing. Blocks of less than two
// warps, which leave most of a scheduler's slots empty, come last.
func (r *row) largest(p *gemm.Problem, d *device.Info) []kernel.Tile {
	var busy, idle, small []kernel.Tile
	for _, s := range r.Tiles {
		switch {
		case r.BlockThreads(s).Count() < 64:
			small = append(small, s)
		case !p.Empty() && kernel.TileCount(p, s) >= d.SMs:
			busy = append(busy, s)
		default:
			idle = append([]kernel.Tile{s}, idle...)
		}
	}
	return slices.Concat(busy, idle, small)
}

// worthPacking is false for a product that uses the elements of an operand that has to be
// packed so few times that reading it is what takes the time.
func (r *row) WorthPacking(p *gemm.Problem, a kernel.Align) bool {
	if p.Precision == gemm.F32x3 {
		return true // in it there is no other kernel
	}
	q, packed := r.Repack(p, kernel.Tile{SwapAB: sm90.CheckSwapAB(p) == nil}, a)
	for _, o := range kernel.Packable {
		uses := kernel.Uses(p, o)
		if o == gemm.B && p.Batch.Kind == gemm.Grouped {
			uses /= max(p.Batch.Count, 1)
		}
		enough := kernel.MinUsesToPack
		if p.Batch.Kind != gemm.Single && p.Layouts[o].Trans != q.Layouts[o].Trans {
			enough = kernel.MinUsesToTranspose
		}
		if packed[o] && uses < enough {
			return false
		}
	}
	return true
}

// unsuited is why p, with matrices at addresses of that alignment, does not get the kernel
// unasked on a device; the error is ErrUnsupported.
func (r *row) Unsuited(p *gemm.Problem, a kernel.Align, d *device.Info) error {
	if !r.WorthPacking(p, a) {
		return fmt.Errorf("%w: kernel %s would pack an operand whose elements are used fewer than %d times, or %d where a batch's is transposed", gemm.ErrUnsupported, r.Name, kernel.MinUsesToPack, kernel.MinUsesToTranspose)
	}
	if r.checkSuited == nil {
		return nil
	}
	return r.checkSuited(p, d)
}
