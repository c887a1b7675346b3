package emu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/testkit"
	"tilework/internal/testkit/testrand"
	"tilework/ptx"
	"tilework/ptx/build"
	"tilework/ptx/emu/check"
)

// pipeline is a bf16 GEMM kernel with 64×tileN×64 tiles, structured like the Hopper kernels: a
// producer loads tiles into stages with TMA, a warpgroup multiplies them with wgmma, and a TMA
// store writes C. A is M×K, B is N×K and C is M×N in float32, all row-major.
type pipeline struct {
	name    string
	cluster int // blocks along N that share a tile of A; each multicasts its part to all
	// oneWarpgroup makes a thread of the consumer warpgroup the producer.
	oneWarpgroup bool
	fault        string // the fault to inject; empty for none
}

const (
	tileN  = 16
	stages = 2
)

func (p pipeline) has(fault string) bool { return p.fault == fault }

func (p pipeline) emit() (*ptx.Module, int, error) {
	k := build.New("pipeline")
	threads := 256
	if p.oneWarpgroup {
		threads = 128
	}
	k.Threads(threads, 1, 1)
	k.MinBlocks(1)
	if p.cluster > 1 {
		k.Cluster(p.cluster, 1, 1)
	}
	a, b, c, tiles := k.Tensor("a"), k.Tensor("b"), k.Tensor("c"), k.Param("tiles", ptx.U32)
	as, bs := k.Tile("as", ptx.BF16, stages*64, 64), k.Tile("bs", ptx.BF16, stages*tileN, 64)
	cs := k.Tile("cs", ptx.F32, 64, tileN)
	full, empty := k.Mbarriers("full", stages), k.Mbarriers("empty", stages)
	t := k.ThreadIdx(build.X)
	n0, m0 := k.Mul(k.BlockIdx(build.X), tileN), k.Mul(k.BlockIdx(build.Y), 64)
	k.If(k.Eq(t, 0), func() {
		for s := range stages {
			full.Init(s, 1)
			arrivals := p.cluster
			if p.has("arrivals of one block") {
				arrivals = 1
			}
			empty.Init(s, arrivals)
		}
		if !p.has("no fence after mbarrier.init") {
			k.MbarrierFence()
		}
	})
	meet := func() {
		if p.cluster > 1 {
			k.ClusterArrive()
			k.ClusterWait()
		} else {
			k.Barrier()
		}
	}
	meet()
	place := func(i build.Reg) (stage, phase build.Reg) {
		return k.And(i, stages-1), k.And(k.Shr(i, 1), 1)
	}
	produce := func(i build.Reg) {
		stage, phase := place(i)
		if !p.has("no wait for an empty stage") {
			empty.Wait(stage, k.Xor(phase, 1))
		}
		bytes := (64 + tileN) * 128
		if p.has("too few bytes expected") {
			bytes -= 128
		}
		full.ArriveExpectTx(stage, bytes)
		rows := 64 / p.cluster
		if p.cluster > 1 {
			first := k.Mul(k.ClusterRank(), rows)
			a.LoadMulticast(as.At(k.Mad(stage, 64, first), 0), full.At(stage), k.To(ptx.U16, 1<<p.cluster-1),
				k.Mul(i, 64), k.Add(m0, first))
		} else {
			a.Load(as.At(k.Mul(stage, 64), 0), full.At(stage), k.Mul(i, 64), m0)
		}
		b.Load(bs.At(k.Mul(stage, tileN), 0), full.At(stage), k.Mul(i, 64), n0)
	}
	lane := k.Rem(t, 128) // thread index within the warpgroup
	sums := k.Vars("sum", ptx.F32, tileN/2, 0)
	rows := build.MatrixLayout{Stride: 1024, Swizzle: 128}
	da, db := k.Descriptor(as.Ptr, rows), k.Descriptor(bs.Ptr, rows)
	consume := func(i build.Reg) {
		stage, phase := place(i)
		if p.has("wrong phase") {
			phase = k.Xor(phase, 1)
		}
		full.Wait(stage, phase)
		if !p.has("no wgmma.fence") {
			k.WgmmaFence()
		}
		for step := range 4 {
			k.Wgmma(build.Wgmma{N: tileN, A: ptx.BF16, B: ptx.BF16}, sums,
				k.Add(k.To(ptx.U64, k.Mul(stage, 64*128/16)),
					k.Add(da, 2*step)), k.Add(k.To(ptx.U64, k.Mul(stage, tileN*128/16)), k.Add(db, 2*step)), true)
		}
		k.WgmmaCommit()
		if !p.has("no wgmma wait") && !p.has("wgmma wait after the stage is released") {
			k.WgmmaWait(0)
		}
		k.If(k.Eq(lane, 0), func() {
			empty.Arrive(stage)
			for other := 1; other < p.cluster && !p.has("arrivals of one block"); other++ {
				empty.ArrivePeer(stage, k.Rem(k.Add(k.ClusterRank(), other), p.cluster))
			}
		})
		if p.has("wgmma wait after the stage is released") {
			k.WgmmaWait(0)
		}
	}
	finish := func() {
		row := k.Mad(k.Shr(lane, 5), 16, k.Shr(k.LaneID(), 2))
		for j := range tileN / 8 {
			for half := range 2 {
				cs.At(k.Add(row, 8*half), k.Mad(k.And(k.LaneID(), 3), 2, 8*j)).StoreVec(sums[4*j+2*half],
					sums[4*j+2*half+1])
			}
		}
		if !p.has("no proxy fence") {
			k.ProxyFence()
		}
		if !p.has("no barrier before the store") {
			k.Do("bar.sync", 1, 128)
		}
		k.If(k.Eq(lane, 0), func() {
			c.Store(cs.Ptr, n0, m0)
			k.BulkCommit()
			if !p.has("no wait for the store") {
				k.BulkWait(0)
			}
		})
	}
	if p.oneWarpgroup {
		k.If(k.Eq(t, 0), func() { produce(k.Var("first", ptx.U32, 0)) })
		k.For(0, tiles, func(i build.Reg) {
			next := k.Add(i, 1)
			k.If(k.And(k.Eq(t, 0), k.Lt(next, tiles)), func() { produce(next) })
			consume(i)
		})
		finish()
	} else {
		k.If(k.Lt(t, 128), func() {
			k.WarpgroupRegDealloc(40)
			k.If(k.Eq(t, 0), func() { k.For(0, tiles, produce) })
		}).Else(func() {
			k.WarpgroupRegAlloc(232)
			k.For(0, tiles, consume)
			finish()
		})
	}
	if p.cluster > 1 && !p.has("early exit") {
		meet()
	}
	m, err := k.Build()
	return m, k.DynamicBytes(), err
}

// pipeM, pipeN and pipeK are the sizes of the test products. None is a multiple of the tile.
const pipeM, pipeN, pipeK = 60, 30, 300

// run multiplies a and b on d and returns C.
func (p pipeline) run(t *testing.T, d device.Device, a, b []dtype.BFloat16) ([]float32, error) {
	t.Helper()
	m, shared, err := p.emit()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	module, err := d.Load(ctx, m.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, m.String())
	}
	f, err := module.Function("pipeline")
	if err != nil {
		t.Fatal(err)
	}
	upload := func(b []byte) device.Ptr {
		at, err := d.Alloc(len(b))
		if err == nil {
			err = d.CopyIn(ctx, at, b, device.Whole(len(b)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	const pitch, pitchC = (pipeK + 7) / 8 * 8, (pipeN + 3) / 4 * 4
	padded := func(m []dtype.BFloat16) []byte {
		wide := make([]dtype.BFloat16, len(m)/pipeK*pitch)
		for i := range len(m) / pipeK {
			copy(wide[i*pitch:], m[i*pipeK:][:pipeK])
		}
		return dtype.Bytes(wide)
	}
	out := make([]byte, 4*pipeM*pitchC)
	c := upload(out)
	var params device.Params
	for _, tm := range []ptx.TensorMap{
		{Element: ptx.BF16, Base: uint64(upload(padded(a))), Dims: []int{pipeK, pipeM}, Strides: []int{2 * pitch},
			Box: []int{64, 64 / p.cluster}, Swizzle: 128},
		{Element: ptx.BF16, Base: uint64(upload(padded(b))), Dims: []int{pipeK, pipeN}, Strides: []int{2 * pitch},
			Box: []int{64, tileN}, Swizzle: 128},
		{Element: ptx.F32, Base: uint64(c), Dims: []int{pipeN, pipeM}, Strides: []int{4 * pitchC},
			Box: []int{tileN, 64}},
	} {
		encoded, err := d.EncodeTensorMap(&tm)
		if err != nil {
			t.Fatal(err)
		}
		params.TensorMap(encoded)
	}
	params.U32((pipeK + 63) / 64)
	threads := 256
	if p.oneWarpgroup {
		threads = 128
	}
	l := device.Launch{
		Grid: device.Dim3{X: (pipeN + tileN - 1) / tileN, Y: (pipeM + 63) / 64, Z: 1}, Block: device.Dim3{X: threads,
			Y: 1, Z: 1}, Shared: shared, Params: params.Bytes(),
	}
	if p.cluster > 1 {
		l.Cluster = device.Dim3{X: p.cluster, Y: 1, Z: 1}
	}
	if err := d.Launch(ctx, f, l); err != nil {
		return nil, err
	}
	if err := d.CopyOut(ctx, out, c, device.Whole(len(out))); err != nil {
		return nil, err
	}
	got := make([]float32, pipeM*pipeN)
	for i := range got {
		got[i] = math.Float32frombits(binary.LittleEndian.Uint32(out[4*(i/pipeN*pitchC+i%pipeN):]))
	}
	return got, nil
}

var pipelines = []pipeline{
	{name: "one warpgroup", cluster: 1, oneWarpgroup: true},
	{name: "producer and consumer", cluster: 1},
	{name: "cluster of two", cluster: 2},
}

// pipelineOperands returns matrices of small integers, whose sums are exact, and their product.
func pipelineOperands(rng *rand.Rand) (a, b []dtype.BFloat16, c []float32) {
	whole := func(n int) []dtype.BFloat16 {
		m := make([]dtype.BFloat16, n)
		for i := range m {
			m[i] = dtype.BFloat16From32(float32(rng.IntN(9) - 4))
		}
		return m
	}
	a, b, c = whole(pipeM*pipeK), whole(pipeN*pipeK), make([]float32, pipeM*pipeN)
	for i := range c {
		for k := range pipeK {
			c[i] += a[i/pipeN*pipeK+k].Float32() * b[i%pipeN*pipeK+k].Float32()
		}
	}
	return a, b, c
}

// countDifferences returns the number of elements that differ.
func countDifferences(got, want []float32) int {
	n := 0
	for i := range want {
		if got[i] != want[i] {
			n++
		}
	}
	return n
}

// runChecked runs the pipeline on the emulator with all checkers and describes all problems: the
// findings of the checkers, the error, and the number of wrong elements of C.
func (p pipeline) runChecked(t *testing.T, seed uint64, a, b []dtype.BFloat16, c []float32) string {
	t.Helper()
	var found string
	d := open(t, Options{Seed: seed, MaxInstructions: 1 << 22,
		Watch: Checking(check.Options{MaxConflicts: check.Unlimited, MaxScatter: check.Unlimited},
			func(r *check.Report) { found = r.String() })})
	got, err := p.run(t, d, a, b)
	if err != nil {
		found += err.Error()
	} else if n := countDifferences(got, c); n > 0 {
		found += fmt.Sprintf("%d elements of C are wrong", n)
	}
	return found
}

func TestPipelines(t *testing.T) {
	seed := testrand.Seed(t)
	a, b, c := pipelineOperands(rand.New(rand.NewPCG(seed, 0)))
	runs := uint64(testkit.Cases(20, 50))
	for _, p := range pipelines {
		t.Run(p.name, func(t *testing.T) {
			for n := range runs {
				if found := p.runChecked(t, seed+n, a, b, c); found != "" {
					t.Fatalf("seed %d: %s", seed+n, found)
				}
			}
			gpu, err := cuda.Open(0)
			if err != nil {
				return
			}
			defer gpu.Close()
			if got, err := p.run(t, gpu, a, b); err != nil || countDifferences(got, c) > 0 {
				t.Errorf("on %s: %d elements of C are wrong, error %v", gpu.Info().Name, countDifferences(got, c), err)
			}
		})
	}
}

// TestPipelineFaults injects each fault into each pipeline that can have it. The checkers must
// find it in every run, or in some runs if it shows only with a certain order of warps.
func TestPipelineFaults(t *testing.T) {
	seed := testrand.Seed(t)
	a, b, c := pipelineOperands(rand.New(rand.NewPCG(seed, 0)))
	runs := uint64(testkit.Cases(4, 8))
	for _, f := range []struct {
		fault string
		want  []string // the report must contain one of these
		some  bool     // the fault shows only in some runs
	}{
		{"no proxy fence", []string{"want a fence.proxy.async"}, false},
		{"no barrier before the store", []string{"without a barrier in between"}, false},
		{"wrong phase",
			[]string{"may still write", "may still read", "want a wait for its mbarrier", "deadlock"}, false},
		{"no wait for an empty stage",
			[]string{"may still read", "may still write", "want a wait for its mbarrier", "arrivals at an mbarrier"},
			false},
		{"wgmma wait after the stage is released", []string{"a wgmma.wait_group", "(wgmma.wait_group)"}, false},
		{"no wgmma wait", []string{"is in use by a wgmma.mma_async in flight"}, false},
		{"no wgmma.fence", []string{"no wgmma.fence precedes this operation"}, false},
		{"no fence after mbarrier.init", []string{"want a fence.proxy.async"}, false},
		{"too few bytes expected", []string{"deadlock", "wants"}, false},
		{"no wait for the store", []string{"exits without waiting until this copy has read its shared memory"}, false},
		{"early exit", []string{"has exited", "exits while this operation"}, true},
		{"arrivals of one block", []string{"may still read", "want a wait for its mbarrier"}, true},
	} {
		for _, p := range pipelines {
			if p.cluster == 1 && (f.fault == "early exit" || f.fault == "arrivals of one block") {
				continue
			}
			// Here the producer thread itself waits for the wgmma of its warpgroup.
			if p.oneWarpgroup &&
				(f.fault == "no wait for an empty stage" || f.fault == "wgmma wait after the stage is released") {
				continue
			}
			p.fault = f.fault
			t.Run(f.fault+", "+p.name, func(t *testing.T) {
				hits, other := uint64(0), ""
				for n := range runs {
					found, hit := p.runChecked(t, seed+n, a, b, c), false
					for _, s := range f.want {
						hit = hit || strings.Contains(found, s)
					}
					if hit {
						hits++
					} else {
						other = found
					}
				}
				if hits == 0 || hits < runs && !f.some {
					t.Errorf("%d of %d runs report the fault; another reports %q", hits, runs, other)
				} else if f.some {
					t.Logf("%d of %d runs report the fault", hits, runs)
				}
			})
		}
	}
}
