package cpu

import (
	"testing"
	"tilework/internal/backend"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// TestMemory checks that a plan predicts the memory that Run allocates, for every algorithm.
func TestMemory(t *testing.T) {
	algorithms, vectors := map[algorithm]bool{}, false
	for i, types := range [][2]dtype.Type{{dtype.F64, dtype.F64}, {dtype.F32, dtype.F32}, {dtype.F32, dtype.F16},
		{dtype.F16, dtype.F16}, {dtype.I8, dtype.I32}, {dtype.I8, dtype.F32}} {
		in, out := types[0], types[1]
		for j, shape := range [][3]int{{8, 8, 8}, {200, 180, 190}, {1, 2048, 300}, {2048, 1, 300}, {2, 2000, 400},
			{2000, 3, 400}, {12, 16, 3000}, {64, 600, 64}, {1500, 1500, 1}, {8, 8, 60000}} {
			for n, trans := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
				if !testkit.Full() && n != (i+j)%4 {
					continue
				}
				for _, kernel := range []string{"", "loop"} {
					if kernel == "loop" && shape[0] > 8 {
						continue // the naive loop is slow
					}
					a, b := gemm.Dense(in, shape[0], shape[2]), gemm.Dense(in, shape[2], shape[1])
					if trans[0] {
						a = gemm.Dense(in, shape[2], shape[0]).T()
					}
					if trans[1] {
						b = gemm.Dense(in, shape[1], shape[2]).T()
					}
					p, _, err := gemm.New(1, a, b, 0, gemm.Dense(out, shape[0], shape[1]), gemm.Epilogue{})
					if err != nil {
						t.Fatal(err)
					}
					pl, err := NewPlan(&p, backend.Options{Choice: backend.Choice{Kernel: kernel}})
					if err != nil {
						t.Fatal(err)
					}
					algorithms[pl.method.algorithm] = true
					vectors = vectors || pl.Kernel.ISA != ""
					freeList.Lock()
					freeList.list, freeList.bytes = nil, 0 // so that Run must allocate
					freeList.Unlock()
					buffers := gemm.Buffers{gemm.A: make([]byte, a.Bytes()), gemm.B: make([]byte, b.Bytes()),
						gemm.C: make([]byte, p.C().Bytes())}
					const slack = 1 << 20 // for other allocations, such as goroutines
					took := int(testkit.Allocated(func() { err = pl.Run(t.Context(), &buffers) }))
					if err != nil {
						t.Fatal(err)
					}
					if planned := pl.Memory(); took > planned+slack {
						t.Errorf("%v by %s: allocated %d bytes, want at most the planned %d", &p, pl.Detail(), took,
							planned)
					}
				}
			}
		}
	}
	if vectors && len(algorithms) < 7 { // the portable kernel has fewer algorithms
		t.Errorf("only %d algorithms were tried: %v", len(algorithms), algorithms)
	}
}
