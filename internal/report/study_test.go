package report

import (
	"strings"
	"testing"

	"tilework/internal/bench"
)

// TestSizesWithOtherThreads checks the tiles of records whose first size was measured with another
// number of threads than the most frequent size.
func TestSizesWithOtherThreads(t *testing.T) {
	m := newMachine(1, "", 1)
	records := []bench.Record{
		m.record(cpuModels[0], "cpu", bench.Cube(64), false),
		m.record(cpuModels[0], "cpu", bench.Cube(128), false),
		m.record(cpuModels[2], "cpu", bench.Cube(128), false),
	}
	records[0].Threads, records[1].Threads, records[2].Threads = 1, 2, 2
	for _, tile := range newReport(t, Source{"r", records}).Tiles {
		if tile.Label == "avx512 relative to loop at 128³" {
			return
		}
	}
	t.Error("no tile with the gain at 128³")
}

// TestPeerOnMoreGPUs checks a report in which the only library ran on more GPUs than our kernel.
func TestPeerOnMoreGPUs(t *testing.T) {
	m := newMachine(1, "NVIDIA H200", 1)
	r := m.record(gpuModels[2], "gpu:0,1", bench.Cube(512), false)
	r.Versus = []bench.Ratio{{Peer: "pytorch", Speed: 0.5, P10: 0.5, P90: 0.5}}
	missing := strings.Join(newReport(t, Source{"r", []bench.Record{r}}).Missing, " ")
	if !strings.Contains(missing, "on more GPUs than the kernels") {
		t.Errorf("got missing answers %q", missing)
	}
}

// TestNoSectors checks the chart of a product whose kernel requests nothing from memory.
func TestNoSectors(t *testing.T) {
	m := newMachine(1, "", 1)
	r := m.record(gpuModels[0], "emu", bench.Cube(16), false)
	r.Counts = &bench.Counts{Instructions: 1, Flops: 8192}
	check(t, newReport(t, Source{"r", []bench.Record{r}}), true)
}
