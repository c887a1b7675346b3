package choose

import (
	"fmt"
	"strings"

	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
)

// row is a kernel of the list and the rules by which it is selected.
type row struct {
	*kernel.Kernel
	// predict estimates what a configuration costs; nil where the kernel has no estimate.
	predict func(kernel.Config, *gemm.Problem, *device.Info) prediction
	// order sorts the tiles, with K whole and split, for a product that is not empty, the fastest
	// first; nil sorts by size, see largest.
	order func(*row, *gemm.Problem, *device.Info) []kernel.Tile
	// checkSuited returns why the kernel is not selected automatically for p on d, or nil; a nil
	// function admits every product. A caller can still request the kernel by name.
	checkSuited func(p *gemm.Problem, d *device.Info) error
}

// rows is the one list of GPU kernels: dispatch, tests, bench and the docs range over it.
// Later rows are faster. It is filled by init, as its functions refer to it.
var rows []*row

func init() {
	rows = []*row{
		{Kernel: kernel.Naive},
		{Kernel: kernel.Tiled},
		{Kernel: kernel.Blocked, predict: PredictBlocked, order: (*row).cheapest},
		{Kernel: kernel.MMA, order: OrderMMA},
		{Kernel: sm90.WGMMA, predict: predictWgmma, order: orderWgmma, checkSuited: checkWgmmaSuited},
		{Kernel: kernel.Skinny, predict: predictSkinny, order: (*row).cheapest, checkSuited: CheckSkinnySuited},
	}
}

// Kernels lists the GPU kernels, slowest first.
func Kernels() []*kernel.Kernel {
	kernels := make([]*kernel.Kernel, len(rows))
	for i, r := range rows {
		kernels[i] = r.Kernel
	}
	return kernels
}

// Find returns the kernel of that name. The error is ErrUnsupported.
func Find(name string) (*kernel.Kernel, error) {
	r, err := find(name)
	if err != nil {
		return nil, err
	}
	return r.Kernel, nil
}

func find(name string) (*row, error) {
	names := make([]string, len(rows))
	for i, r := range rows {
		if r.Name == name {
			return r, nil
		}
		names[i] = r.Name
	}
	return nil, fmt.Errorf("%w: no GPU kernel %q (there are %s)", gemm.ErrUnsupported, name, strings.Join(names, ", "))
}

// rowOf returns the row of a kernel of the list.
func RowOf(k *kernel.Kernel) *row {
	for _, r := range rows {
		if r.Kernel == k {
			return r
		}
	}
	panic("gpu: kernel " + k.Name + " is not in the list")
}
