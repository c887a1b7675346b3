package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
)

// TestAssembles assembles the kernels with ptxas.
func TestAssembles(t *testing.T) {
	assemble := ptxas.Assembler(t)
	for _, typ := range checkedTypes() {
		for _, k := range []*kernel.Kernel{weightedProduct, plainProduct} {
			assemble(k, kernel.Config{In: typ, Out: dtype.F64, TransA: true})
			for vec := 1; vec <= elementsPerThread(typ); vec *= 2 {
				assemble(k, kernel.Config{In: typ, Out: dtype.F64, VecA: vec})
				if typ == dtype.F8E4M3 {
					assemble(k, kernel.Config{In: typ, Out: dtype.F64, VecA: vec, ScaleA: 1, ScaleB: gemm.ScaleBlock})
				}
			}
		}
		for _, bias := range []gemm.BiasDim{gemm.BiasNone, gemm.BiasRow, gemm.BiasCol} {
			assemble(residualCheck, kernel.Config{In: typ, Out: dtype.F64, PDL: true, Epilogue: gemm.Epilogue{Bias: bias}})
		}
		assemble(plainProduct, kernel.Config{In: typ, Out: dtype.F64, VecA: elementsPerThread(typ), PDL: true})
	}
}
