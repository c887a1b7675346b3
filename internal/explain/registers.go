package explain

import (
	_ "embed"
	"fmt"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// recorded is the table of the registers per thread that ptxas 13.0 allocates for products of
// float32, multiplied as float32 or, by kernels for tensor cores, as TF32. Its columns are
// architectures, and "203/243" is 203 for matrices whose rows begin at multiples of 16 bytes, and
// at most 243 for others. TestRegisters makes it with TILEWORK_UPDATE=1.
//
//go:embed registers.txt
var recorded string

// registersOf returns the recorded number of registers per thread of j for an architecture, or 0 if
// there is none.
func (j *job) registersOf(sm int) int {
	if !hasRecord(j.kernel, &j.problem) {
		return 0
	}
	header, rows, _ := strings.Cut(recorded, "\n")
	for line := range strings.Lines(rows) {
		cells := strings.Fields(line)
		if cells[0] != j.kernel.Name || cells[1] != j.config.Tile.String() {
			continue
		}
		for i, arch := range strings.Fields(header) {
			if arch != fmt.Sprint("sm_", sm) {
				continue
			}
			var aligned, other int
			if n, _ := fmt.Sscanf(cells[i], "%d/%d", &aligned, &other); n == 2 && !rowsAligned(&j.problem) {
				return other
			}
			return aligned
		}
	}
	return 0
}

// hasRecord reports whether the table of registers is for products like p.
func hasRecord(k *kernel.Kernel, p *gemm.Problem) bool {
	usual := gemm.Native
	if k.Tensor {
		usual = gemm.TF32
	}
	return p.In() == dtype.F32 && p.Out() == dtype.F32 && p.Precision == usual && !p.A().Trans && !p.B().Trans &&
		p.Epilogue == gemm.Epilogue{}
}

// rowsAligned reports whether the rows of all matrices begin and end at multiples of 16 bytes.
func rowsAligned(p *gemm.Problem) bool {
	for _, l := range p.Layouts[:gemm.C+1] {
		if n := l.Type.Elements(kernel.MaxVectorBytes); kernel.VectorLen(l, n) < n {
			return false
		}
	}
	return true
}
