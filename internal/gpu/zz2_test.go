package gpu

import (
	"fmt"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
)

func TestChooseTmp(t *testing.T) {
	d := &device.Info{SMs: 132, MaxThreads: 1024, MaxShared: 227 << 10, Target: ptx.Target{SM: 90, Suffix: "a"}}
	for _, c := range [][3]int{{64, 64, 64}, {128, 128, 128}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192}, {16384, 16384, 16384}, {1023, 1023, 1023}, {4095, 4095, 4095}, {1000, 1000, 1000}, {3000, 3000, 3000},
		{16, 4096, 4096}, {64, 4096, 4096}, {4096, 16, 4096}, {4096, 64, 4096}, {4096, 4096, 16}, {4096, 4096, 64}, {4096, 4096, 128}, {8, 14336, 4096}, {32, 4096, 14336}, {128, 4096, 14336}, {512, 6144, 4096}, {2048, 4096, 4096}, {2048, 14336, 4096}, {16, 32000, 4096}, {256, 256, 65536}, {64, 64, 65536}, {512, 512, 16384}, {1024, 1024, 65536}} {
		p, _, err := gemm.New(1, gemm.Dense(dtype.F32, c[0], c[2]), gemm.Dense(dtype.F32, c[2], c[1]), 0, gemm.Dense(dtype.F32, c[0], c[1]), gemm.Epilogue{})
		if err == nil {
			p, err = p.In(gemm.TF32)
		}
		if err != nil {
			t.Fatal(err)
		}
		line, n, seenT, seenN := fmt.Sprint(c), 0, 0, 0
		for _, x := range wgmma.Configs(&p, d) {
			if x.Shape.Turned && seenT > 1 || !x.Shape.Turned && seenN > 0 {
				continue
			}
			if x.Shape.Turned {
				seenT++
			} else {
				seenN++
			}
			pr := wgmma.predict(x, &p, d)
			line += fmt.Sprintf("  %s %.1fus", x.Shape, pr.cycles()/1755)
			if n++; n == 3 {
				break
			}
		}
		fmt.Println(line, wgmma.unsuited(&p, Align{}, d) == nil)
	}
}
