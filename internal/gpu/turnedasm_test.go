package gpu

import (
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
)

func TestTurnedAssembleTmp(t *testing.T) {
	assemble, info := assembler(t), fewSMs(t, emu.Options{}).Info()
	for _, text := range []string{"none", "bias-col+gelu+residual"} {
		e, err := gemm.ParseEpilogue(text)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := gemm.New(1, gemm.Dense(dtype.F32, 4096, 4096), gemm.Dense(dtype.F32, 4096, 4096), 0, gemm.Dense(dtype.F32, 4096, 4096), e)
		if err == nil {
			p, err = p.In(gemm.TF32)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range wgmma.Configs(&p, info) {
			if c.Shape.Turned {
				assemble(wgmma, c)
			}
		}
	}
}
