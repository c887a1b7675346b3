package gpu

import (
	"slices"
	"testing"
	"tilework/internal/testkit"

	"tilework/dtype"
	"tilework/gemmtest"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

func init() { testkit.CollectRarely() }

// FewSMs and the other variables export helpers to the conformance tests, which are in package
// gpu_test because they import gputest.
var FewSMs, Checked, Shapes, Smallest, Emulable = devicetest.FewSMs, devicetest.Checked, shapes, smallest, emulable

// Better reports whether k uses better instructions on newer GPUs.
func Better(k *kernel.Kernel) bool { return len(k.BetterSM) > 0 }

// shapes returns the tiles in list, whose last tile must be the smallest, and variants to test with
// them. If k supports clusters, it adds small tiles with three warpgroups, with few rows and
// columns, and with clusters along M, along M and N, and along K. If k supports split-K, it adds
// the smallest tile with several splits, with serial parts of K and with both. Without
// testkit.Full, list is reduced to the smallest tile and one split.
func shapes(k *kernel.Kernel, list []kernel.Tile) []kernel.Tile {
	parts := []int{2, 5, 40}
	s := list[len(list)-1]
	if !testkit.Full() {
		list, parts = []kernel.Tile{s}, []int{5}
	}
	if k.HasClusters() {
		pair := kernel.Tile{M: 128, N: 128, K: s.K, RowsPerThread: 4, ColsPerThread: 32, Stages: 3, ClusterM: 2}
		along := kernel.Tile{M: 16, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, ClusterK: 2}
		// With three warpgroups the TMA boxes of B are halved.
		three := kernel.Tile{M: 192, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, ClusterM: 2}
		few := kernel.Tile{M: 32, N: 16, K: s.K, RowsPerThread: 2, ColsPerThread: 4, Stages: 3}
		square := kernel.Tile{M: 64, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, ClusterM: 2, ClusterN: 2}
		list = append(append([]kernel.Tile{three, few}, list...), pair, square, along)
	}
	if k.SplitsK {
		for _, s.SplitK = range parts {
			list = append(slices.Clip(list), s)
		}
		both := s
		s.SplitK, s.SerialK = 0, 3
		list = append(list, s)
		if both.SplitK, both.SerialK = 2, 3; k.CheckTile(both) == nil {
			list = append(list, both)
		}
	}
	return list
}

// smallest returns the last eight tiles of a result of shapes: the smallest tile, and its variants
// with clusters and with K in parts.
func smallest(list []kernel.Tile) []kernel.Tile { return list[max(len(list)-8, 0):] }

// emulable returns the tiles of k with blocks that the emulator runs in a few tenths of a second.
// Larger tiles of tensor core kernels only have more warps or warpgroups that run the same code.
func emulable(k *kernel.Kernel) []kernel.Tile {
	most := 64 * 64 // elements of a tile
	if k.TMA {
		most = 128 * 128
	}
	return slices.DeleteFunc(slices.Clone(k.Tiles), func(s kernel.Tile) bool { return k.Tensor && s.M*s.N > most })
}

// TestLimits checks that memory accesses of full tiles stay within the bank conflicts and the
// uncoalesced sectors that the kernel declares. Each tile gets one in three of the combinations of
// types and transposes, and the next tile gets others. The seed selects those of the first.
func TestLimits(t *testing.T) {
	if !testkit.Full() {
		t.Skip("runs only with TILEWORK_FULL")
	}
	const every = 3
	turn := int(testrand.Seed(t) % every)
	for _, k := range choose.Kernels() {
		for _, s := range emulable(k) {
			turn++
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				for i, pair := range gemmtest.Pairs() {
					for trans := range 4 {
						if (turn+i+trans)%every != 0 {
							continue
						}
						m, n, depth := s.M, max(s.N, 32), max(2*s.K, 32)
						if trans&1 != 0 {
							m = max(m, 32)
						}
						a, b := gemm.Dense(pair.In, m, depth), gemm.Dense(pair.In, depth, n)
						if trans&1 != 0 {
							a = gemm.Dense(pair.In, depth, m).T()
						}
						if trans&2 != 0 {
							b = gemm.Dense(pair.In, n, depth).T()
						}
						if pair.Out != pair.In.Info().Results[0] {
							continue // only the conversion before the store differs
						}
						if pair.In == dtype.U8 {
							continue // the kernel multiplies int8
						}
						p, _, err := gemm.New(1, a, b, 1, gemm.Dense(pair.Out, m, n), gemm.Epilogue{})
						if err != nil {
							t.Fatal(err)
						}
						for _, precision := range k.Precisions() {
							if q, err := p.WithPrecision(precision); err == nil && k.Check(&p, s, kernel.Align{}, nil) != nil {
								p = q // the kernel supports p in this precision only
							}
						}
						if k.Check(&p, s, kernel.Align{}, nil) != nil {
							continue
						}
						l := k.Limits(k.Config(&p, s))
						d := devicetest.Checked(t, check.Options{MaxConflicts: l.Conflicts, MaxScatter: l.Scatter})
						plan, err := stream.New(d).Plan(&p, exec.Options{Kernel: k.Name, Tile: s.String()})
						if err != nil {
							t.Fatal(err)
						}
						err = plan.Run(t.Context(), gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()),
							gemm.C: make([]byte, p.C().Bytes())})
						if err != nil {
							t.Error(err)
						}
						if t.Failed() {
							t.Fatalf("%v", plan.Config)
						}
					}
				}
			})
		}
	}
}
