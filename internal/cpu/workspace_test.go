package cpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/testkit"
)

// TestMemory: a plan knows the memory that its run allocates, in every way to multiply.
func TestMemory(t *testing.T) {
	ways, vectors := map[algorithm]bool{}, false
	for _, types := range [][2]dtype.Type{{dtype.F64, dtype.F64}, {dtype.F32, dtype.F32}, {dtype.F32, dtype.F16}, {dtype.F16, dtype.F16}, {dtype.I8, dtype.I32}, {dtype.I8, dtype.F32}} {
		in, out := types[0], types[1]
		for _, shape := range [][3]int{{8, 8, 8}, {200, 180, 190}, {1, 2048, 300}, {2048, 1, 300}, {2, 2000, 400}, {2000, 3, 400}, {12, 16, 3000}, {64, 600, 64}, {1500, 1500, 1}, {8, 8, 60000}} {
			for _, trans := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
				for _, kernel := range []string{"", "loop"} {
					if kernel == "loop" && shape[0] > 8 {
						continue // it is slow
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
					pl, err := NewPlan(&p, Options{Kernel: kernel})
					if err != nil {
						t.Fatal(err)
					}
					ways[pl.algorithm] = true
					vectors = vectors || pl.Kernel.ISA != ""
					freeList.Lock()
					freeList.list, freeList.bytes = nil, 0 // so that it must allocate
					freeList.Unlock()
					buffers := gemm.Buffers{A: make([]byte, a.Bytes()), B: make([]byte, b.Bytes()), C: make([]byte, p.C.Bytes())}
					const slack = 1 << 20 // of other allocations, such as goroutines
					took := int(testkit.Allocated(func() { err = pl.Run(t.Context(), &buffers) }))
					if err != nil {
						t.Fatal(err)
					}
					if planned := pl.Memory(); took > planned+slack {
						t.Errorf("%v by %s: took %d bytes, planned %d", &p, pl.Detail(), took, planned)
					}
				}
			}
		}
	}
	if vectors && len(ways) < 8 { // the portable kernel has fewer ways
		t.Errorf("only %d ways to multiply were tried: %v", len(ways), ways)
	}
}
