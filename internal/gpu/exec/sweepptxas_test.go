package exec

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/ptxas"
)

// TestSweepAssembles is TestAssembles for what products are verified by.
func TestSweepAssembles(t *testing.T) {
	assemble := ptxas.Assembler(t)
	for _, typ := range dtype.All() {
		for _, k := range []*kernel.Kernel{sweep, sweepNorms} {
			assemble(k, kernel.Config{In: typ, Out: dtype.F64, TransA: true})
			for vec := 1; vec <= sweepElements(typ); vec *= 2 {
				assemble(k, kernel.Config{In: typ, Out: dtype.F64, VecA: vec})
				if typ == dtype.F8E4M3 {
					assemble(k, kernel.Config{In: typ, Out: dtype.F64, VecA: vec, ScaleA: 1, ScaleB: gemm.ScaleBlock})
				}
			}
		}
		for _, bias := range []gemm.BiasDim{gemm.BiasNone, gemm.BiasRow, gemm.BiasCol} {
			assemble(judge, kernel.Config{In: typ, Out: dtype.F64, PDL: true, Epilogue: gemm.Epilogue{Bias: bias}})
		}
		assemble(sweepNorms, kernel.Config{In: typ, Out: dtype.F64, VecA: sweepElements(typ), PDL: true})
	}
}
