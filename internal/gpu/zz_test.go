package gpu

import (
	"os"
	"testing"

	"tilework/dtype"
	"tilework/internal/device/emu"
	"tilework/internal/gemm"
)

func TestDumpTmp(t *testing.T) {
	info := fewSMs(t, emu.Options{}).Info()
	p, _, _ := gemm.New(1, gemm.Dense(dtype.F32, 4096, 4096), gemm.Dense(dtype.F32, 4096, 4096), 0, gemm.Dense(dtype.F32, 4096, 4096), gemm.Epilogue{})
	p, _ = p.In(gemm.TF32)
	s, err := wgmma.ParseShape(os.Getenv("SHAPE"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := wgmma.Emit(wgmma.For(wgmma.Config(&p, s), info.Target))
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(os.Getenv("DUMP"), []byte(m.String()), 0o600)
}
