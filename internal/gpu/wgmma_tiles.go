package gpu

import (
	"tilework/internal/device"
	"tilework/internal/gemm"
)

// wgmmaTiles are the tiles to choose from, the best for large products first.
var wgmmaTiles = []Shape{
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4, Cluster: 2},
	{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 4},
	{M: 256, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 4},
	{M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 6},
	{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 6},
	{M: 64, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 8},
	{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 8},
}

// wgmmaShapes are the tiles with what 128 bytes hold along K: of 8-bit types, and of 16-bit
// ones.
func wgmmaShapes() (shapes []Shape) {
	for _, k := range []int{128, 64} {
		for _, s := range wgmmaTiles {
			s.K = k
			shapes = append(shapes, s)
		}
	}
	return shapes
}

func preferWgmma(k *Kernel, p *gemm.Problem, d *device.Info) []Shape { return k.largest(p, d) }

func wgmmaLimits(Config) Limits { return Limits{Scatter: 2, Conflicts: 2} }
