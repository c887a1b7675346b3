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
	e, err := gemm.ParseEpilogue(os.Getenv("EPI"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := gemm.New(1, gemm.Dense(dtype.BF16, 4096, 4096), gemm.Dense(dtype.BF16, 4096, 4096), 0, gemm.Dense(dtype.BF16, 4096, 4096), e)
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
