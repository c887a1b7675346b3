package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/emu/check"
)

func init() { testkit.CollectRarely() }

// problem returns the product of dense matrices without epilogue.
func problem(t *testing.T, in dtype.Type, m, n, k int, transA, transB bool) *gemm.Problem {
	t.Helper()
	a, b := gemm.Dense(in, m, k), gemm.Dense(in, k, n)
	if transA {
		a = gemm.Dense(in, k, m).T()
	}
	if transB {
		b = gemm.Dense(in, n, k).T()
	}
	p, _, err := gemm.New(1, a, b, 0, gemm.Dense(in.Info().Results[0], m, n), gemm.Epilogue{})
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// findKernel returns a kernel and the shape of its tiles. An empty tile selects the first shape,
// which is the largest.
func findKernel(t *testing.T, name, tile string) (*kernel.Kernel, kernel.Tile) {
	t.Helper()
	k, err := choose.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	if tile == "" {
		return k, k.Tiles[0]
	}
	s, err := k.ParseTile(tile)
	if err != nil {
		t.Fatal(err)
	}
	return k, s
}

func gpuModel(t *testing.T, name string) *model.Model {
	t.Helper()
	m, err := model.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func explain(t *testing.T, name, tile, on string, p *gemm.Problem) *Explanation {
	t.Helper()
	k, s := findKernel(t, name, tile)
	x, err := New(t.Context(), k, s, p, gpuModel(t, on), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestPhase checks the loads and operations against the textbook's values for tiled kernels, and by
// the same formula for others.
func TestPhase(t *testing.T) {
	for _, c := range []struct {
		kernel, tile string
		in           dtype.Type
		want         Phase
	}{
		{"naive", "16", dtype.F32, Phase{Sharer: "thread", M: 1, N: 1, K: 1, Step: 1, Count: 1000, Cluster: 1, Loads: 2,
			FMAs: 1, Operations: 2, PerLoad: 1, Intensity: 0.25}},
		{"naive", "32", dtype.F64, Phase{Sharer: "thread", M: 1, N: 1, K: 1, Step: 1, Count: 1000, Cluster: 1, Loads: 2,
			FMAs: 1, Operations: 2, PerLoad: 1, Intensity: 0.125}},
		{"tiled", "16", dtype.F32, Phase{Sharer: "block", M: 16, N: 16, K: 16, Step: 16, Count: 63, Cluster: 1, Loads: 512,
			FMAs: 4096, Operations: 8192, PerLoad: 16, Intensity: 4, SharedLoads: 8192}},
		{"tiled", "32", dtype.F32, Phase{Sharer: "block", M: 32, N: 32, K: 32, Step: 32, Count: 32, Cluster: 1, Loads: 2048,
			FMAs: 32768, Operations: 65536, PerLoad: 32, Intensity: 8, SharedLoads: 65536}},
		{"skinny", "1x32x128/1x4", dtype.F32, Phase{Sharer: "thread", M: 1, N: 4, K: 4, Step: 128, Count: 8, Cluster: 1,
			Loads: 20, FMAs: 16, Operations: 32, PerLoad: 1.6, Intensity: 0.4, SharedLoads: 0}},
		{"blocked", "128x128x8/8x8/3", dtype.F32, Phase{Sharer: "block", M: 128, N: 128, K: 8, Step: 8, Count: 125,
			Cluster: 1, Loads: 2048, FMAs: 131072, Operations: 262144, PerLoad: 128, Intensity: 32, SharedLoads: 32768,
			Stages: 3, StageBytes: 8192}},
		// Two warpgroups of 64 rows. The tensor cores read these rows of A and all of B.
		{"wgmma", "128x256x64/2x64/4", dtype.BF16, Phase{Sharer: "block", M: 128, N: 256, K: 64, Step: 64, Count: 16,
			Cluster: 1, Loads: 24576, FMAs: 2097152, Operations: 4194304, PerLoad: 512 / 3., Intensity: 256 / 3.,
			SharedLoads: 2 * (64 + 256) * 64, TensorReads: true, Stages: 4, StageBytes: 49152}},
		{"wgmma", "128x256x64/2x64/4c2", dtype.BF16, Phase{Sharer: "block", M: 128, N: 256, K: 64, Step: 64, Count: 16,
			Cluster: 2, Loads: 16384, FMAs: 2097152, Operations: 4194304, PerLoad: 256, Intensity: 128,
			SharedLoads: 2 * (64 + 256) * 64, TensorReads: true, Stages: 4, StageBytes: 49152}},
		{"wgmma", "128x256x64/2x64/4c2x2", dtype.BF16, Phase{Sharer: "block", M: 128, N: 256, K: 64, Step: 64, Count: 16,
			ClusterA: 2, Cluster: 2, Loads: 12288, FMAs: 2097152, Operations: 4194304, PerLoad: 1024 / 3.,
			Intensity: 512 / 3., SharedLoads: 2 * (64 + 256) * 64, TensorReads: true, Stages: 4, StageBytes: 49152}},
	} {
		x := explain(t, c.kernel, c.tile, "h200", problem(t, c.in, 1000, 1000, 1000, false, false))
		c.want.ClusterA = max(c.want.ClusterA, 1)
		if x.Phase != c.want {
			t.Errorf("%s %s %v: got %+v, want %+v", c.kernel, c.tile, c.in, x.Phase, c.want)
		}
	}
}

// TestCluster checks that the multicast loads of a cluster are counted once.
func TestCluster(t *testing.T) {
	p := problem(t, dtype.BF16, 256, 256, 128, false, false)
	k, s := findKernel(t, "wgmma", "64x128x64/2x32/8c2")
	m := gpuModel(t, "h200")
	j, err := newJob(k, s, p, ptx.Target{SM: 90, Suffix: "a"}, m.SMs)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := j.loadDigits()
	if err != nil {
		t.Fatal(err)
	}
	checks := check.New(check.Options{Only: []check.Checker{check.Count}})
	stats, err := whole.Run(t.Context(), checks)
	if err != nil {
		t.Fatal(err)
	}
	counts := checks.Report(whole.program, stats, nil).Counts
	x, err := New(t.Context(), k, s, p, m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	requested := 0.0
	for _, a := range counts.Global {
		requested += float64(a.RequestedBytes)
	}
	if want := x.Traffic[len(x.Traffic)-1].Bytes; requested != want {
		t.Errorf("requested %v bytes, want %v by the formula: %+v", requested, want, counts.Global)
	}
}

// TestTile checks the default tile, and that persistent blocks are fewer than their tiles.
func TestTile(t *testing.T) {
	for _, v := range []struct {
		kernel, on string
		p          *gemm.Problem
		want       string
		blocks     int
	}{
		{"tiled", "h200", problem(t, dtype.F32, 1024, 1024, 1024, false, false), "32", 1024},
		{"blocked", "h200", problem(t, dtype.F32, 4096, 4096, 4096, false, false), "128x256x8/16x8/3", 512},
		{"wgmma", "h200", problem(t, dtype.BF16, 64, 64, 64, false, false), "", 1},
		{"wgmma", "h200", problem(t, dtype.BF16, 4096, 4096, 4096, false, false), "", 128}, // even rounds
	} {
		k, _ := findKernel(t, v.kernel, "")
		s, err := Tile(k, v.p, gpuModel(t, v.on))
		if err != nil || v.want != "" && s.String() != v.want {
			t.Errorf("%s, %v: got tile %v, error %v, want %s", v.kernel, v.p, s, err, v.want)
			continue
		}
		x := explain(t, v.kernel, s.String(), v.on, v.p)
		tiles := ints.CeilDiv(v.p.M, s.M) * ints.CeilDiv(v.p.N, s.N)
		if x.Launch.Blocks != v.blocks || x.Launch.Tiles[0]*x.Launch.Tiles[1] != tiles ||
			strings.Contains(x.Text(), "tile after tile") != (v.blocks < tiles) {
			t.Errorf("%s, %v, tile %v: got %+v, want %d tiles in %d blocks", v.kernel, v.p, s, x.Launch, tiles, v.blocks)
		}
		if strings.Contains(x.Text(), "NaN") {
			t.Errorf("%s, %v: found NaN in\n%s", v.kernel, v.p, x.Text())
		}
	}
	k, _ := findKernel(t, "wgmma", "")
	if s, err := Tile(k, problem(t, dtype.F64, 64, 64, 64, false, false), gpuModel(t, "h200")); !errors.Is(err,
		gemm.ErrUnsupported) {
		t.Errorf("float64: got tile %v, error %v, want ErrUnsupported", s, err)
	}
}

// TestFit checks the number of blocks per SM and the roofline.
func TestFit(t *testing.T) {
	p := problem(t, dtype.F32, 1024, 1024, 1024, false, false)
	x := explain(t, "tiled", "32", "rtx3090", p)
	if x.Fit.TwoBlocks || x.Fit.Occupancy.Blocks != 1 ||
		!strings.Contains(x.Text(), "Do at least two blocks fit? No: 1.") {
		t.Errorf("blocks of 1,024 threads on an SM of 1,536: got %+v, want one", x.Fit)
	}
	x = explain(t, "tiled", "16", "t4", p)
	if !x.Fit.TwoBlocks || x.Fit.Occupancy.Blocks != 4 || x.Fit.Occupancy.Launch.SharedBytes != 2048 ||
		x.Fit.Waves.Count != 26 {
		t.Errorf("tile 16 on a T4: got %+v", x.Fit)
	}
	// The T4 has 8.1 TFLOP/s and 320 GB/s. A and B are loaded 64 times each, C is stored once.
	v := x.Traffic[len(x.Traffic)-1]
	want := (2*64 + 1) * 1024 * 1024 * 4.0
	if v.Bytes != want || v.Bound.By != model.Memory || math.Abs(v.Bound.Seconds/(want/320e9)-1) > 1e-9 {
		t.Errorf("requested: got %+v, want %v bytes, bound by memory", v, want)
	}
	if v := x.Traffic[0]; v.Bytes != 3*1024*1024*4 || v.Bound.By != model.Compute ||
		math.Abs(v.Bound.Seconds/(p.Flops()/8.1e12)-1) > 1e-9 {
		t.Errorf("minimum: got %+v, want 12 MiB, bound by compute", v)
	}
	if x.Roof.Ridge != 8.1e12/320e9 {
		t.Errorf("got ridge %v, want %v", x.Roof.Ridge, 8.1e12/320e9)
	}
	k, s := findKernel(t, "blocked", "")
	x, err := New(t.Context(), k, s, p, gpuModel(t, "h200"), Options{Registers: 128})
	if err != nil || x.Fit.Occupancy.Binding[0] != model.Registers || !x.Fit.RegistersCounted {
		t.Errorf("128 registers: got %+v, error %v; want registers to bind", x.Fit, err)
	}
}

// TestBarriers checks that the text mentions barriers only if the kernel has one, and otherwise
// explains why its threads need not wait.
func TestBarriers(t *testing.T) {
	for _, k := range choose.Kernels() {
		shapes := k.Tiles
		x := explain(t, k.Name, shapes[len(shapes)-1].String(), "h200", problem(t, k.Types()[0], 32, 32, 32, false, true))
		unsynchronised := k.Name == "naive"
		text := x.Text()
		if x.Fit.Barriers == unsynchronised || strings.Contains(text, "barrier") == unsynchronised ||
			strings.Contains(text, "never wait for each other") != unsynchronised {
			t.Errorf("%s: Barriers is %v\n%s", k.Name, x.Fit.Barriers, text)
		}
	}
}

// TestRateOf checks that the peak rate of a kernel is that of the units it uses.
func TestRateOf(t *testing.T) {
	for _, v := range []struct {
		kernel    string
		in        dtype.Type
		precision gemm.Precision
		want      model.Rate
	}{
		{"naive", dtype.F32, gemm.Native, model.FP32}, {"naive", dtype.BF16, gemm.Native, model.FP32},
		{"blocked", dtype.F64, gemm.Native, model.FP64},
		{"mma", dtype.BF16, gemm.Native, model.BF16}, {"mma", dtype.F64, gemm.Native, model.FP64Tensor},
		{"mma", dtype.F32, gemm.TF32, model.TF32},
		{"mma", dtype.F8E5M2, gemm.Native, model.FP8}, {"wgmma", dtype.I8, gemm.Native, model.INT8},
		{"wgmma", dtype.F32, gemm.F32x3, model.BF16}, {"wgmma", dtype.F8E4M3, gemm.Fast, model.FP8},
	} {
		p, err := problem(t, v.in, 256, 256, 256, false, false).WithPrecision(v.precision)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := findKernel(t, v.kernel, "")
		products := 1
		if v.precision == gemm.F32x3 {
			products = 6
		}
		if got, n, err := rateOf(k, &p); err != nil || got != v.want || n != products {
			t.Errorf("%s on %v in %v: got %d products of %v, error %v, want %v", v.kernel, v.in, v.precision, n, got, err,
				v.want)
		}
	}
	k, _ := findKernel(t, "naive", "")
	if got, _, err := rateOf(k, problem(t, dtype.I8, 256, 256, 256, false, false)); err == nil {
		t.Errorf("int8 on CUDA cores: got %v, want an error", got)
	}
}

func TestPadding(t *testing.T) {
	x := explain(t, "tiled", "16", "h200", problem(t, dtype.F32, 100, 50, 33, true, false)).Padding
	want := [3]float64{(112*48 - 100*33) * 4, (48*64 - 33*50) * 4, (112*64 - 100*50) * 4}
	for i, o := range x.Matrices {
		if o.ExtraBytes != want[i] {
			t.Errorf("got %+v, want %v extra bytes", o, want[i])
		}
	}
	total := (100*33 + 33*50 + 100*50) * 4.0
	if x.M != 112 || x.N != 64 || x.K != 48 || math.Abs(x.Extra-(want[0]+want[1]+want[2])/total) > 1e-12 {
		t.Errorf("got %+v", x)
	}
	if x := explain(t, "naive", "16", "h200", problem(t, dtype.F32, 32, 16, 7, false, false)).Padding; x.ExtraBytes != 0 {
		t.Errorf("naive does not pad K: got %+v", x)
	}
}

// TestCountersMatchFormulas checks, for products with partial tiles, that the emulator counts the
// bytes and operations of the formulas, and that no checker finds a fault.
func TestCountersMatchFormulas(t *testing.T) {
	rng := testrand.New(t)
	types := []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8}
	tries := testkit.Cases(6, 12)
	for _, k := range choose.Kernels() {
		precisions := append([]gemm.Precision{gemm.Native}, k.Precisions()...)
		for i := range tries * len(precisions) {
			in, precision := types[i%len(types)], precisions[i/tries]
			if precision != gemm.Native {
				in = precision.Info().For[0]
			}
			s := k.Tiles[rng.IntN(len(k.Tiles))]
			p := problem(t, in, 1+rng.IntN(60), 1+rng.IntN(60), 1+rng.IntN(60), rng.IntN(2) == 0, rng.IntN(2) == 0)
			p.Precision = precision
			on := "a100-sxm-80gb"
			if k.SM > 80 {
				on, s = "h200", k.Tiles[len(k.Tiles)-1-rng.IntN(2)] // small tiles are emulated faster
			}
			if k.Check(p, s, kernel.Align{}, nil) != nil || k.SharedBytes(k.Config(p, s)) > 160<<10 {
				continue
			}
			x, err := New(t.Context(), k, s, p, gpuModel(t, on), Options{})
			if err != nil {
				t.Fatal(err)
			}
			requested, what := 0.0, fmt.Sprintf("%s %v, %v (%v %v)", k.Name, s, p, p.A().Trans, p.B().Trans)
			for _, a := range x.Measured.Global {
				requested += float64(a.RequestedBytes)
				if a.Sectors < a.Ideal || a.Transactions < a.HalfWarps {
					t.Errorf("%s: counts below the ideal: %+v", what, a)
				}
			}
			if want := x.Traffic[len(x.Traffic)-1].Bytes; x.Measured.M == p.M && x.Measured.N == p.N && x.Measured.K == p.K &&
				requested != want {
				t.Errorf("%s: requested %v bytes, want %v by the formula", what, requested, want)
			}
			if len(x.Measured.Findings) > 0 {
				t.Errorf("%s: %s", what, strings.Join(x.Measured.Findings, "\n"))
			}
			if m := x.Measured; m.Flops != int64(2*m.M*m.N*m.K) || m.Issued < m.Flops {
				t.Errorf("%s: got %d operations, %d issued, for %d×%d×%d", what, m.Flops, m.Issued, m.M, m.N, m.K)
			}
		}
	}
}

// TestCountersOfPaddedRows checks that rows which have no sector in common have none in the product
// that is emulated: K×1 elements of a B with padded rows are in K sectors.
func TestCountersOfPaddedRows(t *testing.T) {
	const depth = 24
	for _, test := range []struct {
		ld      int
		sectors int64 // that hold B
	}{{1, depth / 8}, {7, depth * 7 / 8}, {9, depth}, {129, depth}, {257, depth}, {1 << 20, depth}} {
		p := problem(t, dtype.F32, 16, 1, depth, false, false)
		p.B().LD = test.ld
		x := explain(t, "naive", "16", "h200", p)
		const a = 16 * depth / 8 // sectors
		if got := x.Measured.SectorsRead - a; got != test.sectors {
			t.Errorf("leading dimension %d: B is in %d sectors, want %d", test.ld, got, test.sectors)
		}
	}
}

// TestSmaller checks the leading dimensions of the product that is emulated.
func TestSmaller(t *testing.T) {
	_, s := findKernel(t, "naive", "16")
	for _, test := range []struct{ k, ld, want int }{
		{40, 40, 40}, {40, 41, 41}, {40, 200, 200}, {40, 296, 168}, {40, 1000, 232}, {1000, 1000, 232}, {1024, 1024, 256},
		{65, 65, 65}, {1000, 1025, 257},
	} {
		p := problem(t, dtype.F32, 32, 32, test.k, false, false)
		p.A().LD = test.ld
		q := smaller(p, s)
		if got := q.A().LD; got != test.want || q.A().Cols != min(test.k, 64) || q.B().Rows != q.A().Cols {
			t.Errorf("K = %d, leading dimension %d: got %v, want leading dimension %d", test.k, test.ld,
				q.Layouts[gemm.A], test.want)
		}
	}
}

// TestHistoricCounters checks sectors and transactions of accesses that can be counted by hand.
func TestHistoricCounters(t *testing.T) {
	p := problem(t, dtype.F32, 64, 64, 64, false, false)
	global := func(x *Explanation, what string) (sectors, transactions float64) {
		for _, a := range x.Measured.Global {
			if a.What == what {
				return float64(a.Sectors) / float64(a.Requests), float64(a.Transactions) / float64(a.HalfWarps)
			}
		}
		t.Errorf("no counters of %s", what)
		return 0, 0
	}
	for _, c := range []struct {
		kernel, what          string
		sectors, transactions float64
	}{
		{"tiled", "load A", 4, 1}, {"tiled", "load B", 4, 1}, {"tiled", "store C", 4, 1},
		// The threads of a half-warp load the same word of A, which was not coalesced at 1.0.
		{"naive", "load A", 2, 16}, {"naive", "load B", 2, 1},
	} {
		if s, n := global(explain(t, c.kernel, "16", "h200", p), c.what); s != c.sectors || n != c.transactions {
			t.Errorf("%s, %s: got %v sectors and %v transactions, want %v and %v", c.kernel, c.what, s, n, c.sectors,
				c.transactions)
		}
	}
	// Transposed matrices are stored along the columns of tiles. Padding of the tiles' rows
	// avoids bank conflicts.
	for _, a := range explain(t, "tiled", "32", "h200", problem(t, dtype.F32, 64, 64, 64, true, true)).Measured.Shared {
		if a.Wavefronts != a.Ideal {
			t.Errorf("bank conflicts: %+v", a)
		}
	}
}

// TestText compares one explanation with testdata/tiled16.txt and checks the line length of others.
func TestText(t *testing.T) {
	got := explain(t, "tiled", "16", "t4", problem(t, dtype.F32, 1000, 1000, 1000, false, false)).Text()
	path := filepath.Join("testdata", "tiled16.txt")
	if os.Getenv("TILEWORK_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (TILEWORK_UPDATE=1 updates it):\n%s", path, got)
	}
	for _, k := range choose.Kernels() {
		for _, in := range []dtype.Type{dtype.F64, dtype.BF16, dtype.I8} {
			for _, on := range []string{"h200", "sm_120"} {
				p := problem(t, in, 4099, 1<<20, 77, true, true)
				if on != "h200" && !testkit.Full() || k.Check(p, kernel.Tile{}, kernel.Align{}, nil) != nil {
					continue
				}
				smallest := k.Tiles[len(k.Tiles)-1] // fits every GPU
				if k.Check(p, smallest, kernel.Align{}, nil) != nil || k.Target().Suffix != "" && on != "h200" {
					continue
				}
				x := explain(t, k.Name, smallest.String(), on, p)
				for line := range strings.Lines(x.Text()) {
					if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width || strings.Contains(line, "%!") {
						t.Errorf("%s %v: got a line of %d columns: %s", k.Name, in, n, line)
					}
				}
			}
		}
	}
}

func TestJSON(t *testing.T) {
	x := explain(t, "blocked", "", "h100-sxm", problem(t, dtype.F16, 200, 300, 400, false, true))
	first, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var y Explanation
	if err := json.Unmarshal(first, &y); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&y)
	if err != nil || string(again) != string(first) {
		t.Errorf("round trip: got error %v,\n%s\nwant\n%s", err, again, first)
	}
	if y.Phase != x.Phase || y.Padding != x.Padding || len(y.Measured.Global) != len(x.Measured.Global) ||
		*y.Roof != *x.Roof {
		t.Errorf("round trip: got %+v", y)
	}
}

func TestBadInput(t *testing.T) {
	m := gpuModel(t, "h200")
	fine := problem(t, dtype.F32, 32, 32, 32, false, false)
	k, s := findKernel(t, "tiled", "16")
	old := *m
	old.Arch = &model.Arch{SM: 70}
	for _, c := range []struct {
		name string
		p    *gemm.Problem
		m    *model.Model
		opt  Options
		s    kernel.Tile
		want error
		text string
	}{
		{"empty", problem(t, dtype.F32, 0, 4, 4, false, false), m, Options{}, s, gemm.ErrShape,
			"0×4×4: want sizes of at least 1"},
		{"no terms", problem(t, dtype.F32, 4, 4, 0, false, false), m, Options{}, s, gemm.ErrShape, "4×4×0"},
		{"old GPU", fine, &old, Options{}, s, gemm.ErrUnsupported, "needs sm_75"},
		{"registers", fine, m, Options{Registers: 256}, s, gemm.ErrUnsupported, "want at most 255"},
		{"tile", fine, m, Options{}, kernel.Tile{M: 33, N: 33, K: 33, RowsPerThread: 1, ColsPerThread: 1},
			gemm.ErrUnsupported, "want at most 1024 threads"},
		{"grid", problem(t, dtype.F32, 1<<37, 1, 1, false, false), m, Options{},
			kernel.Tile{M: 2, N: 2, K: 2, RowsPerThread: 1, ColsPerThread: 1}, gemm.ErrUnsupported,
			"more blocks than a grid has"},
	} {
		if _, err := New(t.Context(), k, c.s, c.p, c.m, c.opt); !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got error %v, want %v with %q", c.name, err, c.want, c.text)
		}
	}
}
