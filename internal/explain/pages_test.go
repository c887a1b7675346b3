package explain

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/phrase"
	"tilework/internal/testkit"
)

// large returns the explanation of 4096³ on an H200, in the tile that would be chosen unless one is
// given.
func large(t *testing.T, name, tile string, in dtype.Type, precision gemm.Precision) *Explanation {
	t.Helper()
	p, err := problem(t, in, 4096, 4096, 4096, false, false).WithPrecision(precision)
	if err != nil {
		t.Fatal(err)
	}
	k, s := findKernel(t, name, tile)
	if tile == "" {
		if s, err = Tile(k, &p, gpuModel(t, "h200")); err != nil {
			t.Fatal(err)
		}
	}
	return explain(t, name, s.String(), "h200", &p)
}

// volume returns the traffic of a kind.
func (x *Explanation) volume(what string) Volume {
	return x.Traffic[slices.IndexFunc(x.Traffic, func(v Volume) bool { return v.What == what })]
}

// global returns the counters of an access.
func (x *Explanation) global(what string) GlobalAccess {
	return x.Measured.Global[slices.IndexFunc(x.Measured.Global, func(g GlobalAccess) bool { return g.What == what })]
}

// limits returns the resources that limit the blocks of an SM.
func (x *Explanation) limits() string {
	var names []string
	for _, r := range x.Fit.Occupancy.Binding {
		names = append(names, string(r))
	}
	return phrase.List(names)
}

const lessons = "../../docs/kernels/"

// TestNaivePage checks the table of docs/kernels/naive.md.
func TestNaivePage(t *testing.T) {
	x := large(t, "naive", "16", dtype.F32, gemm.Native)
	requested, sectors := x.volume("requested"), x.volume("sectors")
	perRequest := func(what string) int64 { g := x.global(what); return g.Sectors / g.Requests }
	rows := [][]string{
		{"quantity", "value"},
		{"one K step of a thread", fmt.Sprintf("%d loads (%d bytes), %s (%d operations): %v operations per byte",
			x.Phase.Loads, 4*x.Phase.Loads, phrase.Count(x.Phase.FMAs, "multiply-add"), x.Phase.Operations, x.Phase.Intensity)},
		{"requested by all threads, N = 4096", fmt.Sprintf("%s, while A, B and C are %s",
			bytesText(requested.Bytes), bytesText(x.volume("minimum").Bytes))},
		{"sectors per request of a warp", fmt.Sprintf("%d for A and %d for B: %s without caches",
			perRequest("load A"), perRequest("load B"), bytesText(sectors.Bytes))},
		{"roofline limit if all requests went to memory", fmt.Sprintf("%sB/s · %.2g = %.2g of %sFLOP/s",
			si(x.Roof.Bandwidth), requested.Intensity, requested.Bound.Attain/1e12, si(x.Roof.Peak))},
		{"roofline limit by sectors", fmt.Sprintf("%sB/s · %sFLOP / %s = %sFLOP/s", si(x.Roof.Bandwidth),
			si(x.Product.Flops), bytesText(sectors.Bytes), si(sectors.Bound.Attain))},
		{"occupancy", fmt.Sprintf("%d blocks of %d threads per SM, limited by %s: %.0f %%", x.Fit.Occupancy.Blocks,
			x.Launch.Threads, x.limits(), 100*x.Fit.Occupancy.Fraction)},
	}
	testkit.CheckPage(t, lessons+"naive.md", "computed: tilework explain, by internal/explain.TestNaivePage",
		testkit.Table(rows...))
}

// TestTiledPage checks the table of docs/kernels/tiled.md.
func TestTiledPage(t *testing.T) {
	titles := []string{"quantity", "loads of one phase of a block", "operations of one phase, 2 per multiply-add",
		"operations per load", "operations per byte", "requested at N = 4096", "roofline limit",
		"shared-memory loads per multiply-add", "bank conflicts", "blocks per SM"}
	rows := make([][]string, len(titles))
	for i, title := range titles {
		rows[i] = []string{title}
	}
	for _, tile := range []string{"16", "32"} {
		x := large(t, "tiled", tile, dtype.F32, gemm.Native)
		requested, conflicts := x.volume("requested"), "none"
		for _, s := range x.Measured.Shared {
			if s.Wavefronts > s.Ideal {
				conflicts = s.What
			}
		}
		for i, text := range []string{
			"T = " + tile,
			fmt.Sprintf("2·%s² = %s", tile, phrase.Commas(x.Phase.Loads)),
			fmt.Sprintf("2·%s³ = %s", tile, phrase.Commas(x.Phase.Operations)),
			fmt.Sprint(x.Phase.PerLoad),
			fmt.Sprint(x.Phase.Intensity),
			bytesText(requested.Bytes),
			si(requested.Bound.Attain) + "FLOP/s",
			fmt.Sprint(x.Phase.SharedLoads / x.Phase.FMAs),
			conflicts,
			fmt.Sprintf("%d, limited by %s", x.Fit.Occupancy.Blocks, x.limits()),
		} {
			rows[i] = append(rows[i], text)
		}
	}
	testkit.CheckPage(t, lessons+"tiled.md", "computed: tilework explain, by internal/explain.TestTiledPage",
		testkit.Table(rows...))
}

// TestBlockedPage checks the table of docs/kernels/blocked.md.
func TestBlockedPage(t *testing.T) {
	x := large(t, "blocked", "", dtype.F32, gemm.Native)
	_, s := findKernel(t, "blocked", x.Tile)
	requested, o := x.volume("requested"), x.Fit.Occupancy
	rows := [][]string{
		{fmt.Sprintf("quantity, %d×%d tile", s.M, s.N), "value"},
		{"one step of a block", fmt.Sprintf("(%d + %d)·%d = %s loads, %d·%d·%d = %s multiply-adds", s.M, s.N, s.K,
			phrase.Commas(x.Phase.Loads), s.M, s.N, s.K, phrase.Commas(x.Phase.FMAs))},
		{"operations per byte", fmt.Sprintf("%.3g, more than the %.3g of an H200", x.Phase.Intensity, x.Roof.Ridge)},
		{"requested at N = 4096", fmt.Sprintf("%s: A %d times, B %d times", bytesText(requested.Bytes),
			x.Launch.Tiles[1], x.Launch.Tiles[0])},
		{"roofline limit", fmt.Sprintf("%sFLOP/s: %v-bound", si(requested.Bound.Attain), requested.Bound.By)},
		{"shared-memory words per multiply-add", fmt.Sprintf("%d / %d = %.2f", s.RowsPerThread+s.ColsPerThread,
			s.RowsPerThread*s.ColsPerThread, float64(x.Phase.SharedLoads)/float64(x.Phase.FMAs))},
		{"occupancy", fmt.Sprintf("%d registers per thread: %s of %d threads per SM, %.3g %%",
			o.Launch.RegsPerThread, phrase.Count(o.Blocks, "block"), x.Launch.Threads, 100*o.Fraction)},
	}
	testkit.CheckPage(t, lessons+"blocked.md", "computed: tilework explain, by internal/explain.TestBlockedPage",
		testkit.Table(rows...))
}

// TestAccessPage checks the table of docs/kernels/access.md.
func TestAccessPage(t *testing.T) {
	rows := [][]string{{"access", "sectors per request now", "transactions per half-warp then"}}
	for _, r := range []struct{ kernel, tile, load, now, then string }{
		{"naive", "16", "A", ": two rows, one word each", ": all threads read one word"},
		{"naive", "16", "B", ": 16 neighbours, for both rows", ""},
		{"tiled", "16", "A", ": 128 bytes, the minimum", ""},
		{"tiled", "16", "B", ": 128 bytes, the minimum", ""},
		{"blocked", "", "A", ": pieces of four rows", ""},
	} {
		x := large(t, r.kernel, r.tile, dtype.F32, gemm.Native)
		g := x.global("load " + r.load)
		rows = append(rows, []string{r.kernel + ", " + r.load, fmt.Sprintf("%d%s", g.Sectors/g.Requests, r.now),
			fmt.Sprintf("%d%s", g.Transactions/g.HalfWarps, r.then)})
	}
	testkit.CheckPage(t, lessons+"access.md", "computed: tilework explain, by internal/explain.TestAccessPage",
		testkit.Table(rows...))
}

// TestSplitPage checks the table of docs/kernels/split-k.md.
func TestSplitPage(t *testing.T) {
	const tile, parts = "128x256x8/16x8/3", 66
	q, m := problem(t, dtype.F32, 256, 256, 65536, false, false), gpuModel(t, "h200")
	_, s := findKernel(t, "blocked", fmt.Sprintf("%s*%d", tile, parts))
	blocks := explain(t, "blocked", tile, "h200", q).Launch.Blocks
	rows := [][]string{
		{"quantity", fmt.Sprintf("%d×%d×%d, float32, tiles of %d×%d", q.M, q.N, q.K, s.M, s.N),
			fmt.Sprintf("with s = %d", parts)},
		{fmt.Sprintf("blocks for %d SMs", m.SMs), fmt.Sprint(blocks),
			fmt.Sprint(blocks * kernel.SplitBlocks(q, s))},
		{"steps of K per block", phrase.Commas(q.K), phrase.Commas(kernel.SplitLen(q, s))},
		{"partial sums", "–", fmt.Sprintf("%d · %d · %d · 4 bytes = %s, written and read once", parts, q.M, q.N,
			bytesText(float64(4*parts*q.M*q.N)))},
	}
	testkit.CheckPage(t, lessons+"split-k.md", "computed: tilework explain, by internal/explain.TestSplitPage",
		testkit.Table(rows...))
}

// counters returns the hardware counters of a kernel at 4096³ in float32 by the title of their
// column, or nil.
func counters(t *testing.T, name string) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("../../docs/results/ncu-h200.tsv")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range lines {
		cells, found := strings.CutPrefix(line, name+"\tfloat32, 4096³\t")
		if !found {
			continue
		}
		all := map[string]float64{}
		for i, cell := range strings.Split(cells, "\t") {
			x, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
			if err == nil {
				all[strings.Split(lines[0], "\t")[i+2]] = x
			}
		}
		return all
	}
	return nil
}

// TestLadderPage checks the ladder of docs/study.md.
func TestLadderPage(t *testing.T) {
	table := [][]string{{"kernel", "adds", "operations per requested byte", "load-pipe cycles per FMA of a warp",
		"limit that follows, TFLOP/s"}}
	m := gpuModel(t, "h200")
	for _, r := range []struct {
		title, adds, kernel, tile, counted string
		in                                 dtype.Type
		precision                          gemm.Precision
	}{
		{"[naive](kernels/naive.md)", "one thread per element", "naive", "16", "naive", dtype.F32, gemm.Native},
		{"[tiled](kernels/tiled.md), 16", "tiles in shared memory", "tiled", "16", "tiled:16", dtype.F32, gemm.Native},
		{"tiled, 32", "larger tiles", "tiled", "32", "tiled:32", dtype.F32, gemm.Native},
		{"[blocked](kernels/blocked.md)", "128 sums per thread", "blocked", "", "blocked", dtype.F32, gemm.Native},
		{"[mma](kernels/mma.md), TF32", "tensor cores", "mma", "", "", dtype.F32, gemm.TF32},
		{"[wgmma](kernels/wgmma.md), TF32", "tensor cores that read shared memory", "wgmma", "", "", dtype.F32, gemm.TF32},
		{"mma, bfloat16", "", "mma", "", "", dtype.BF16, gemm.Native},
		{"wgmma, bfloat16", "", "wgmma", "128x128x64/4x32/6", "", dtype.BF16, gemm.Native},
		{"[f32x3](kernels/f32x3.md)", "float32 as three bfloat16 terms, as accurate", "wgmma", "", "", dtype.F32, gemm.F32x3},
	} {
		x := large(t, r.kernel, r.tile, r.in, r.precision)
		cycles, limit := "", fmt.Sprintf("%.0f, tensor cores", x.Roof.Peak/1e12)
		if n := counters(t, r.counted); n != nil {
			perFMA := n["µs"] * n["MHz"] * float64(m.SMs) * n["load pipe"] / 100 / (math.Pow(4096, 3) / 32)
			cycles, limit = fmt.Sprintf("%.2f", perFMA), fmt.Sprintf("%.1f, FMA units", x.Roof.Peak/1e12)
			if ofPipe := x.Roof.Peak / 4 / perFMA; ofPipe < x.Roof.Peak {
				limit = fmt.Sprintf("%.1f, load pipe", ofPipe/1e12)
			}
		}
		table = append(table, []string{r.title, r.adds, fmt.Sprintf("%.3g", x.Phase.Intensity), cycles, limit})
	}
	testkit.CheckPage(t, "../../docs/study.md",
		"computed: tilework explain and the counters, by internal/explain.TestLadderPage", testkit.Table(table...))
}
