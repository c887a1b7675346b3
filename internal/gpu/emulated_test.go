package gpu

import (
	"slices"
	"testing"
	"tilework/internal/testkit"

	"tilework/gemmtest"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/ptx/emu/check"
)

// The conformance tests are outside of the package, as gputest is; this is what they take of it.
var FewSMs, Checked, Shapes, Smallest, Emulable = devicetest.FewSMs, devicetest.Checked, shapes, smallest, emulable

// Better says whether a kernel has better instructions for newer GPUs.
func Better(k *kernel.Kernel) bool { return len(k.BetterSM) > 0 }

// shapes are those of a list of a kernel's, and the smallest with clusters of both kinds, if
// it can have them, and with K split, so that parts have all sizes.
// The short test takes the smallest alone, whole and split once: what it looks for is in
// every shape.
func shapes(k *kernel.Kernel, list []kernel.Tile) []kernel.Tile {
	parts := []int{2, 5, 40}
	s := list[len(list)-1]
	if !testkit.Full() {
		list, parts = []kernel.Tile{s}, []int{5}
	}
	if k.HasClusters() {
		pair := kernel.Tile{M: 128, N: 128, K: s.K, RowsPerThread: 4, ColsPerThread: 32, Stages: 3, ClusterM: 2}
		along := kernel.Tile{M: 16, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, ClusterK: 2}
		three := kernel.Tile{M: 192, N: 64, K: s.K, RowsPerThread: 2, ColsPerThread: 16, Stages: 3, ClusterM: 2} // warpgroups; B's boxes are halved
		few := kernel.Tile{M: 32, N: 16, K: s.K, RowsPerThread: 2, ColsPerThread: 4, Stages: 3}                  // of both sides
		list = append(append([]kernel.Tile{three, few}, list...), pair, along)
	}
	if k.SplitsK {
		for _, s.SplitK = range parts {
			list = append(slices.Clip(list), s)
		}
	}
	return list
}

// smallest are the last of a kernel's shapes: the smallest, with clusters and with K split.
func smallest(list []kernel.Tile) []kernel.Tile { return list[max(len(list)-6, 0):] }

// emulable are a kernel's shapes whose blocks the emulator runs in some tenths of a second.
// Larger ones of tensor cores hold nothing but more of the same warps, or warpgroups.
func emulable(k *kernel.Kernel) []kernel.Tile {
	most := 64 * 64 // elements of a tile
	if k.TMA {
		most = 128 * 128
	}
	return slices.DeleteFunc(slices.Clone(k.Tiles), func(s kernel.Tile) bool { return k.Tensor && s.M*s.N > most })
}

// TestLimits: on full tiles no access to memory costs more than the kernel declares.
func TestLimits(t *testing.T) {
	if !testkit.Full() {
		t.Skip("the checkers that it needs run in TestChecked, too")
	}
	for _, k := range choose.Kernels() {
		for _, s := range emulable(k) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				for _, pair := range gemmtest.Pairs() {
					for trans := range 4 {
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
							continue // what differs is a store that other types have too
						}
						p, _, err := gemm.New(1, a, b, 1, gemm.Dense(pair.Out, m, n), gemm.Epilogue{})
						if err != nil {
							t.Fatal(err)
						}
						for _, precision := range k.Precisions() {
							if q, err := p.WithPrecision(precision); err == nil && k.Check(&p, s, kernel.Align{}, nil) != nil {
								p = q // what it does in no other way
							}
						}
						if k.Check(&p, s, kernel.Align{}, nil) != nil {
							continue
						}
						l := k.Limits(k.Config(&p, s))
						d := devicetest.Checked(t, check.Options{MaxConflicts: l.Conflicts, MaxScatter: l.Scatter})
						plan, err := stream.New(d).Plan(&p, exec.Options{Kernel: k.Name, Shape: s.String()})
						if err != nil {
							t.Fatal(err)
						}
						err = plan.Run(t.Context(), gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()), gemm.C: make([]byte, p.C().Bytes())})
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
