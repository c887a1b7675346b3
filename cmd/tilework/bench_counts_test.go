package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tilework/internal/bench"
	"tilework/internal/explain"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
)

// counted runs bench on an emulated GPU and returns the records of the supported products.
func counted(t *testing.T, args ...string) []bench.Record {
	t.Helper()
	args = append([]string{"bench", "--device", "emu:h200", "--format", "jsonl"}, args...)
	stdout, stderr, code := run(t.Context(), args...)
	records, err := bench.ReadRecords(strings.NewReader(stdout))
	if code != 0 || err != nil {
		t.Fatalf("%q: exit code %d, %v, %s", args, code, err, stderr)
	}
	return slices.DeleteFunc(records, func(r bench.Record) bool { return r.Unsupported })
}

// checkCounts checks the relations between counters that hold for every kernel.
func checkCounts(t *testing.T, r *bench.Record) {
	t.Helper()
	c := r.Counts
	product := fmt.Sprintf("%s %s %s on %d×%d×%d", r.Subject, r.Types(), r.Transposes(), r.M, r.N, r.K)
	if want := int64(2 * r.M * r.N * r.K * max(r.Products, 1)); c.Flops != want || c.Issued < want {
		t.Errorf("%s: %d operations, %d issued, want %d and at least as many issued", product, c.Flops, c.Issued, want)
	}
	if c.LoadBytes == 0 || c.StoreBytes == 0 || c.DistinctSectors == 0 || c.DistinctSectors > c.Sectors ||
		c.IdealSectors > c.Sectors {
		t.Errorf("%s: inconsistent counters %+v", product, *c)
	}
}

// TestCountsOfEveryKernel compares the counters of bench with those of explain, for each kernel and
// element type.
func TestCountsOfEveryKernel(t *testing.T) {
	const shape = "64x64x64" // explain does not scale this shape down
	for _, kernels := range []struct{ dtype, names string }{
		{"float32", "all"}, {"float64", "all"}, {"float16", "all"}, {"bfloat16", "all"}, {"int8", "all"}, {"e4m3", "all"},
		{"e5m2", "all"},
		{"float32", "mma-tf32,wgmma-tf32,wgmma-f32x3,skinny-tf32"},
	} {
		records := counted(t, "--kernels", kernels.names, "--dtypes", kernels.dtype, "--shape", shape, "--transpose-b")
		if len(records) < 4 {
			t.Errorf("%s: %d kernels", kernels.dtype, len(records))
		}
		for i := range records {
			r := &records[i]
			checkCounts(t, r)
			kernel, precision, _ := strings.Cut(r.Subject, "-")
			args := []string{"explain", kernel, "--dtype", kernels.dtype, "--shape", shape, "--transpose-b", "--format", "json"}
			if precision != "" {
				args = append(args, "--precision", precision)
			}
			compareWithExplain(t, r, args)
		}
	}
}

// TestIssuedOperations checks the issued operations of a product of complete tiles: those of the
// product and, in floating point, one multiplication by alpha for each element of C.
func TestIssuedOperations(t *testing.T) {
	const m, n, k = 64, 64, 128
	records := counted(t, "--kernels", "naive,tiled:16,blocked:64x64x8/8x4/4,mma",
		"--dtypes", "float64,float16,bfloat16,int8", "--shape", fmt.Sprintf("%dx%dx%d", m, n, k))
	if len(records) != 16 {
		t.Errorf("%d records, want 16", len(records))
	}
	for _, r := range records {
		want := int64(2*m*n*k + m*n)
		if r.In == "int8" {
			want = 2 * m * n * k
		}
		if r.Counts.Issued != want {
			t.Errorf("%s, %s: %d operations issued, want %d", r.Subject, r.Types(), r.Counts.Issued, want)
		}
	}
}

// compareWithExplain runs explain and compares its counters with those of a record. It does not
// compare the instructions: bench also counts those for programmatic dependent launch. If the
// product packs operands, the record includes the packing launch and must have larger counters.
func compareWithExplain(t *testing.T, r *bench.Record, args []string) {
	t.Helper()
	stdout, stderr, code := run(t.Context(), args...)
	var x explain.Explanation
	if err := json.Unmarshal([]byte(stdout), &x); code != 0 || err != nil {
		t.Fatalf("%q: exit code %d, %v, %s", args, code, err, stderr)
	}
	m := &x.Measured
	got := bench.Counts{
		Instructions: r.Counts.Instructions, Flops: m.Flops, Issued: m.Issued,
		DistinctSectors: m.DistinctSectors, SharedRequests: r.Counts.SharedRequests, Historic: new(bench.HistoricCounts),
	}
	for _, a := range m.Global {
		switch {
		case strings.HasPrefix(a.What, "load"):
			got.LoadBytes += a.RequestedBytes
		case strings.HasPrefix(a.What, "store"):
			got.StoreBytes += a.RequestedBytes
		}
		got.Sectors += a.Sectors
		got.IdealSectors += a.Ideal
		got.Historic.HalfWarps += a.HalfWarps
		got.Historic.Transactions += a.Transactions
	}
	for _, a := range m.Shared {
		got.Wavefronts += a.Wavefronts
		got.IdealWavefronts += a.Ideal
		got.Historic.Wavefronts += a.Historic
		got.Historic.IdealWavefronts += a.HistoricIdeal
	}
	want := *r.Counts
	if x.Launch.Packed != nil {
		if got.Flops != want.Flops || got.Sectors >= want.Sectors || got.LoadBytes >= want.LoadBytes {
			t.Errorf("%q: %+v for the kernel, and %+v with the packing launch: want more", args, got, want)
		}
		return
	}
	if *got.Historic != *want.Historic {
		t.Errorf("%q: explain has historic counts %+v and bench has %+v", args, *got.Historic, *want.Historic)
	}
	if got.Historic, want.Historic = nil, nil; got != want {
		t.Errorf("%q: explain counts %+v and bench counts %+v", args, got, want)
	}
}

// TestCountsOfRandomProducts counts products of random shapes, some of them batches and some with a
// residual.
func TestCountsOfRandomProducts(t *testing.T) {
	r := testrand.New(t)
	types := []string{"float32", "float64", "float16", "bfloat16", "int8", "e4m3", "e5m2"}
	for range testkit.Cases(4, 12) {
		shape := fmt.Sprintf("%dx%dx%d", 1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(90))
		args := []string{"--kernels", "all", "--dtypes", types[r.IntN(len(types))], "--shape", shape}
		for _, flags := range [][]string{
			{"--transpose-a=false", "--transpose-a"}, {"--transpose-b=false", "--transpose-b"},
			{"--batch=1", "--batch=3", "--epilogue=residual"},
		} {
			args = append(args, flags[r.IntN(len(flags))])
		}
		records := counted(t, args...)
		if len(records) < 2 {
			t.Errorf("%q: %d records", args, len(records))
		}
		for i := range records {
			checkCounts(t, &records[i])
		}
	}
}

// TestTMACountsSectors checks that a wgmma product of a single tile transfers each sector of A, B
// and C once. All of its loads and stores use TMA.
func TestTMACountsSectors(t *testing.T) {
	records := counted(t, "--kernels", "wgmma:64x64x64/2x16/12", "--dtypes", "bfloat16", "--sizes", "64")
	const want = 3 * 64 * 64 * 2 / 32
	if c := records[0].Counts; c.Sectors != want || c.IdealSectors != want || c.DistinctSectors != want {
		t.Errorf("%+v, want %d sectors", *c, want)
	}
}
