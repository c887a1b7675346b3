package gpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/devicetest"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/sm90"
	"tilework/internal/gpu/stream"
	"tilework/internal/ref"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx/emu/check"
)

// gatedShapes returns the tiles of k for tests of gated products. For wgmma, which computes both
// factors in one launch, it returns one tile of each kind. For other kernels the tile makes no
// difference, so it returns the smallest one, with and without split-K.
func gatedShapes(k *kernel.Kernel) []kernel.Tile {
	if !k.GatesInOneLaunch {
		s := k.Tiles[len(k.Tiles)-1]
		list := []kernel.Tile{s}
		if k.SplitsK {
			s.SplitK = 2
			list = append(list, s)
		}
		return list
	}
	return []kernel.Tile{
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 4},
		{M: 128, N: 128, RowsPerThread: 2, ColsPerThread: 32, Stages: 3, ClusterM: 2},
		{M: 128, N: 128, RowsPerThread: 4, ColsPerThread: 32, Stages: 4}, // ping-pong
		{M: 128, N: 256, RowsPerThread: 2, ColsPerThread: 64, Stages: 3, ClusterM: 2},
		{M: 64, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 4},
		{M: 16, N: 64, RowsPerThread: 2, ColsPerThread: 16, Stages: 4},
	}
}

// TestGated checks that act(α·A·B)∘(α·A·Up), with random further epilogue operations, is within the
// error bound of the reference in every kernel. Types, precisions, layouts, full and partial tiles,
// and host schedules of one or several steps are random. The checkers must not report anything.
func TestGated(t *testing.T) {
	cases := testkit.Cases(8, 16)
	for _, k := range choose.Kernels() {
		for _, s := range gatedShapes(k) {
			t.Run(k.Name+":"+s.String(), func(t *testing.T) {
				t.Parallel()
				rng := testrand.New(t)
				d := devicetest.Checked(t, check.Options{Only: []check.Checker{check.Race, check.Barrier, check.Bounds,
					check.Uninit}})
				b := stream.New(d)
				ran := 0
				for range cases {
					p, data := randomGated(t, rng, k, &s)
					keepLayout := rng.IntN(2) == 0
					if on := exec.OnDevice(p, keepLayout); k.Check(&on, s, kernel.Align{}, nil) != nil {
						continue
					}
					ran++
					pl, err := b.Plan(p, exec.Options{Kernel: k.Name, Tile: s.String(), KeepLayout: keepLayout})
					if err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("%v, %v, up %v, α %v: %v", p, p.Epilogue, p.Layouts[gemm.Up], real(p.Alpha), pl.Config)
					if pl.Config.ComputesGate() != k.GatesInOneLaunch {
						t.Fatalf("%s: computes both factors in one launch: %v, want %v", what, pl.Config.ComputesGate(),
							k.GatesInOneLaunch)
					}
					if rng.IntN(3) == 0 {
						if less := pl.Smaller(pl.Schedule(), pl.Schedule().Memory()); less != nil {
							pl.Steps = less
						}
					}
					want := ref.Gemm(p, data)
					if err := pl.Run(t.Context(), data); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					if err := want.Compare(data[gemm.C], k.Accuracy(p)).Err(); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				if ran == 0 {
					t.Error("the kernel supports none of the random products")
				}
				if err := b.Close(); err != nil || d.Used() != 0 {
					t.Errorf("%d bytes of device memory leaked; Close returned %v", d.Used(), err)
				}
			})
		}
	}
}

// randomGated returns a random gated product of a type that k supports, and its buffers. If k
// computes both factors in one launch, it sets s.K to the elements in 128 bytes of that type.
func randomGated(t *testing.T, rng *rand.Rand, k *kernel.Kernel, s *kernel.Tile) (*gemm.Problem, gemm.Buffers) {
	t.Helper()
	types := k.Types()
	in, precision := types[rng.IntN(len(types))], gemm.Native
	if list := k.Precisions(); len(list) > 0 && rng.IntN(3) == 0 {
		precision = list[rng.IntN(len(list))]
		in = k.PrecisionTypes[precision][rng.IntN(len(k.PrecisionTypes[precision]))]
	}
	if in.Info().Integer {
		in, precision = types[0], gemm.Native
	}
	if k.GatesInOneLaunch {
		s.K = 128 / sm90.ArithmeticOf(in, precision).Elem.Bytes()
	}
	results := in.Info().Results
	out := results[rng.IntN(len(results))]
	lay := func(ty dtype.Type, rows, cols int, trans bool) gemm.Layout {
		if trans {
			rows, cols = cols, rows
		}
		l := gemm.Dense(ty, rows, cols)
		l.LD += []int{0, 0, 3, 16}[rng.IntN(4)]
		l.Trans = trans
		return l
	}
	size := func(n int) int {
		n = max(n, 2)
		return []int{1 + rng.IntN(2*n), n, n * 2, n/2 + 8}[rng.IntN(4)]
	}
	m, n, depth := size(min(s.M, 40)), size(min(s.N/2, 64)), 1+rng.IntN(150)
	ta, tb := rng.IntN(2) == 0, rng.IntN(2) == 0
	e := gemm.Epilogue{Gated: true, Activation: gemm.Activation(rng.IntN(len(gemm.Activations())))}
	e.Residual, e.OutScale, e.Saturate = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(3) == 0
	p, _, err := gemm.New([]complex128{1, 1, 0.5, 0}[rng.IntN(4)], lay(in, m, depth, ta), lay(in, depth, n, tb), 0,
		lay(out, m, n, false), e)
	if err == nil {
		p.Layouts[gemm.Up], p.Precision = lay(in, depth, n, tb), precision
		if e.Residual {
			p.Layouts[gemm.Residual] = lay(out, m, n, false)
		}
		_, err = p.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	fill := func(l gemm.Layout) []byte {
		data := make([]byte, l.Bytes())
		for i := range l.Len() {
			l.Type.Set(data, i, 2*rng.Float64()-1)
		}
		return data
	}
	var b gemm.Buffers
	for o := range gemm.Operands {
		b[o] = fill(p.Layout(o))
	}
	return &p, b
}
