package cpu

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

// TestDocumentedKernels checks that the table of micro-kernels in docs/cpu.md matches the kernel
// list.
func TestDocumentedKernels(t *testing.T) {
	text, err := os.ReadFile("../../docs/cpu.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, k := range kernels {
		rows = appendRow(rows, k, "float32", k.f32)
		rows = appendRow(rows, k, "float64", k.f64)
		rows = appendRow(rows, k, "int32", k.i32)
	}
	for _, row := range rows {
		if !strings.Contains(string(text), row+"\n") {
			t.Errorf("docs/cpu.md lacks the row\n%s", row)
		}
	}
	if got := strings.Count(string(text), "\n| `"); got != len(rows) && runtime.GOARCH == "amd64" {
		t.Errorf("docs/cpu.md has %d rows of micro-kernels, want %d", got, len(rows))
	}
}

// appendRow appends the row of a micro-kernel, unless this architecture has no assembly for it.
func appendRow[T scalar](rows []string, k *Kernel, sums string, mk *microKernel[T]) []string {
	if mk == nil || mk.MR == 0 {
		return rows
	}
	return append(rows, fmt.Sprintf("| `%s` | %s | %d×%d | %d | %d |", k.Name, sums, mk.MR, mk.NR, mk.mc, mk.kc))
}
