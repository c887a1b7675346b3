package choose

import (
	"fmt"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/names"
)

// row is a kernel of the list with the functions and numbers from which it is chosen.
type row struct {
	*kernel.Kernel
	// predict estimates the time of a configuration.
	predict func(*job, *kernel.Config) prediction
	// floor returns the costs of the lower bound for tiles with the same reading as one; nil means
	// that the bound is 0.
	floor func(*job, kernel.Tile) floor
	// tiles returns the tiles for the job's element type; nil stands for the kernel's own list.
	tiles func(*job) []kernel.Tile
	// needless is [row.isNeedless]; nil means that it is always false.
	needless func(*job, kernel.Tile) bool
	// partTiles returns further tiles for row-invariant products with K in parts; nil means none.
	partTiles func(*job) []kernel.Tile
	// maxFill is the largest number of blocks per SM for which K is split, and minSteps the
	// smallest number of steps along K of a part. Zeros leave K whole.
	maxFill, minSteps int
	// fillsSMs leaves out splits that give some SMs no block.
	fillsSMs bool
}

// rows is the one list of GPU kernels. Dispatch, tests, benchmarks and documentation range over it.
var rows = []*row{
	{Kernel: kernel.Naive, predict: predictNaive},
	{Kernel: kernel.Tiled, predict: predictTiled},
	{Kernel: kernel.Blocked, predict: predictBlocked, floor: floorBlocked, maxFill: 6, minSteps: 4},
	{Kernel: kernel.MMA, predict: predictMMA, floor: floorMMA, tiles: mmaTiles, maxFill: 4, minSteps: 8,
		fillsSMs: true},
	{Kernel: sm90.WGMMA, predict: predictWGMMA, floor: floorWGMMA, tiles: wgmmaTiles, needless: needlessWGMMA,
		partTiles: wgmmaPartTiles, maxFill: 6, minSteps: 4},
	{Kernel: kernel.Skinny, predict: predictSkinny, floor: floorSkinny, tiles: skinnyTiles, partTiles: skinnyPartTiles,
		maxFill: 6, minSteps: 4},
}

// Kernels lists the GPU kernels in the order in which the documentation introduces them.
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
	i, err := names.Find("GPU kernel", name, rows, func(r **row) string { return (*r).Name })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gemm.ErrUnsupported, err)
	}
	return rows[i], nil
}
