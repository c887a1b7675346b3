package explain

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/internal/phrase"
)

// Phase is one step along K of a sharer: a block that keeps tiles in shared memory, or a thread of
// a kernel without shared memory. For M×N elements of C, a sharer loads M×K elements of A and K×N
// elements of B from global memory.
type Phase struct {
	Sharer     string  `json:"sharer"` // "block" or "thread"
	M          int     `json:"m"`
	N          int     `json:"n"`
	K          int     `json:"k"`
	Step       int     `json:"step"`       // along K to the next phase; larger than K if threads partition K
	Count      int     `json:"count"`      // number of phases
	ClusterA   int     `json:"cluster_a"`  // blocks that share the loads of A by multicast; 1 without cluster
	Cluster    int     `json:"cluster"`    // blocks that share the loads of B
	Loads      int     `json:"loads"`      // loaded elements: (M/ClusterA + N/Cluster)·K
	FMAs       int     `json:"fmas"`       // M·N·K
	Operations int     `json:"operations"` // 2·M·N·K
	PerLoad    float64 `json:"operations_per_load"`
	Intensity  float64 `json:"intensity"` // operations per byte loaded
	// SharedLoads is the number of elements that a phase reads from shared memory: by the tensor
	// cores directly if TensorReads is set, and otherwise by the block's threads.
	SharedLoads int  `json:"shared_loads"`
	TensorReads bool `json:"tensor_reads"`
	// Stages is the number of pipeline stages in shared memory, and StageBytes the size of one.
	// Both are 0 if the kernel has a fixed number of stages.
	Stages     int `json:"stages,omitempty"`
	StageBytes int `json:"stage_bytes,omitempty"`
}

// Intensity returns the operations per byte of A and B that the threads load from global memory,
// for a kernel with tiles of shape s.
func Intensity(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem) float64 {
	return phaseOf(k, s, p).Intensity
}

// phaseOf returns the phase for tiles of shape s. Without a K in the shape, each thread goes along
// K in steps of one and loads its own elements.
func phaseOf(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem) Phase {
	x := Phase{Sharer: "block", M: s.M, N: s.N, K: s.K, ClusterA: s.BlocksN(), Cluster: s.BlocksM()}
	switch {
	case s.K == 0:
		x = Phase{Sharer: "thread", M: s.RowsPerThread, N: s.ColsPerThread, K: 1, ClusterA: 1, Cluster: 1}
	case k.KPerThread > 0:
		x = Phase{Sharer: "thread", M: s.RowsPerThread, N: s.ColsPerThread, K: k.KPerThread, ClusterA: 1, Cluster: 1}
	}
	x.Step = max(s.K, 1)
	x.Count = ints.CeilDiv(p.K, x.Step)
	x.Loads = (x.M/x.ClusterA + x.N/x.Cluster) * x.K
	x.FMAs = x.M * x.N * x.K
	x.Operations = 2 * x.FMAs
	x.PerLoad = float64(x.Operations) / float64(x.Loads)
	x.Intensity = 8 * x.PerLoad / float64(elementBits(p))
	return x
}

// elementBits returns the bits that a kernel loads for an element of A or B.
func elementBits(p *gemm.Problem) int {
	if p.Precision == gemm.F32x3 {
		return 3 * dtype.BF16.Bits() // three parts
	}
	return p.In().Bits()
}

// warpgroupRows is the number of rows of C that one wgmma computes.
const warpgroupRows = 64

// readShared counts the elements that a phase of j reads from shared memory. The threads of a warp
// load the operands of mma jointly. wgmma reads shared memory directly, once for each 64 rows of C.
func (x *Phase) readShared(j *job) {
	s, threads := j.config.Tile, j.launch.Block.Count()
	if x.Sharer == "thread" {
		return
	}
	if s.Stages > 0 {
		x.Stages, x.StageBytes = s.Stages, j.problem.In().Bytes((s.M+s.N)*s.K)
	}
	switch {
	case j.usesWarpgroups():
		_, products := Rates(j.problem.In(), j.config.Precision)
		x.TensorReads, x.SharedLoads = true, products*ints.CeilDiv(s.M, warpgroupRows)*(warpgroupRows+s.N)*s.K
	case j.kernel.Tensor:
		x.SharedLoads = threads * s.K * (s.RowsPerThread*frag.Eight + s.ColsPerThread*frag.Quad) / frag.Lanes
	default:
		x.SharedLoads = threads * s.K * (s.RowsPerThread + s.ColsPerThread)
	}
}

// Roof holds the roofline of the GPU, which bounds any kernel.
type Roof struct {
	Rate      string  `json:"rate"`
	Products  int     `json:"products"`  // products of the units per product of the kernel: 6 for f32x3
	Peak      float64 `json:"peak"`      // operations of the kernel per second
	Bandwidth float64 `json:"bandwidth"` // bytes per second
	Ridge     float64 `json:"ridge"`     // operations per byte at which the two bounds meet
}

func roofOf(k *kernel.Kernel, m *model.Model, p *gemm.Problem) (*Roof, error) {
	rate, products, err := rateOf(k, p)
	if err != nil {
		return nil, err
	}
	peak, err := m.PeakRate(rate)
	if err != nil {
		return nil, err
	}
	peak /= float64(products)
	return &Roof{Rate: rate.String(), Products: products, Peak: peak, Bandwidth: m.MemBandwidth,
		Ridge: peak / m.MemBandwidth}, nil
}

// Volume is a possible amount of global memory traffic for the whole product, with its roofline
// bound.
type Volume struct {
	What      string  `json:"what"`
	Why       string  `json:"why"` // the arithmetic, as text
	Bytes     float64 `json:"bytes"`
	Intensity float64 `json:"intensity"` // operations per byte
	// Bound is the bound of the roofline, nil if Explanation.Roof is nil.
	Bound *Bound `json:"bound,omitempty"`
}

// Bound is the least time for the operations and bytes of a Volume.
type Bound struct {
	Seconds float64     `json:"seconds"`
	By      model.Bound `json:"by"`
	Attain  float64     `json:"attain"` // operations per second
}

// volumes returns the least traffic of any kernel, the traffic in whole sectors as measured by the
// emulator, and the bytes that the threads request.
func (x *Explanation) volumes(m *model.Model, p *gemm.Problem) ([]Volume, error) {
	in, out := float64(p.In().Size()), float64(p.Out().Size())
	rows, cols, depth := float64(p.M), float64(p.N), float64(p.K)
	a, b, c := rows*depth*in, depth*cols*in, rows*cols*out
	if p.Beta != 0 {
		c *= 2 // read and written
	}
	// A is loaded once for each Phase.N columns of C, and B once for each Phase.M rows, or for those
	// of a cluster.
	timesA, timesB := ints.CeilDiv(p.N, x.Phase.N*x.Phase.ClusterA), ints.CeilDiv(p.M, x.Phase.M*x.Phase.Cluster)
	wider := float64(elementBits(p)) / float64(p.In().Bits())
	loadsA, loadsB := a*wider*float64(timesA), b*wider*float64(timesB)
	moved := x.Measured.moved("load A")*loadsA + x.Measured.moved("load B")*loadsB + x.Measured.moved("store C")*c
	list := []Volume{
		{What: "minimum", Bytes: a + b + c, Why: fmt.Sprintf("A %s + B %s + C %s: each matrix once", bytesText(a),
			bytesText(b), bytesText(c))},
		{What: "sectors", Bytes: moved, Why: fmt.Sprintf("sectors of %d bytes, counted once per request of a warp, as "+
			"measured below: the traffic without caches", sectorBytes)},
		{What: "requested", Bytes: loadsA + loadsB + c, Why: fmt.Sprintf("by the threads: A %s, B %s, C once", times(timesA),
			times(timesB))},
	}
	for i := range list {
		list[i].Intensity = p.Flops() / list[i].Bytes
	}
	if x.Roof == nil {
		return list, nil
	}
	rate, err := model.ParseRate(x.Roof.Rate)
	if err != nil {
		return nil, err
	}
	for i := range list {
		v := &list[i]
		products := float64(x.Roof.Products)
		roof, err := model.Roofline(m, rate, p.Flops()*products, v.Bytes)
		if err != nil {
			return nil, err
		}
		v.Bound = &Bound{Seconds: roof.Seconds, By: roof.Bound, Attain: roof.Attain / products}
	}
	return list, nil
}

// times formats a count: "once", "63 times".
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return phrase.Commas(n) + " times"
}

// Padding describes the cost of padding the matrices to whole tiles instead of checking bounds in
// the kernel.
type Padding struct {
	M          int              `json:"m"` // the padded sizes
	N          int              `json:"n"`
	K          int              `json:"k"`
	Matrices   [3]PaddedOperand `json:"matrices"` // A, B and C
	ExtraBytes float64          `json:"extra_bytes"`
	// Extra is ExtraBytes relative to the bytes of the matrices. It applies to memory and to the
	// transfers to and from the GPU.
	Extra float64 `json:"extra"`
}

// PaddedOperand is a matrix before and after padding.
type PaddedOperand struct {
	Name   string `json:"name"`
	Rows   int    `json:"rows"`
	Cols   int    `json:"cols"`
	Padded [2]int `json:"padded"`

	Bytes      float64 `json:"bytes"`
	ExtraBytes float64 `json:"extra_bytes"`
}

func paddingOf(s kernel.Tile, p *gemm.Problem) Padding {
	pad := func(n, unit int) int { return ints.RoundUp(n, unit) }
	x := Padding{M: pad(p.M, s.M), N: pad(p.N, s.N), K: pad(p.K, max(s.K, 1))}
	operand := func(name string, l gemm.Layout, rows, cols int) PaddedOperand {
		size := float64(l.Type.Size())
		o := PaddedOperand{Name: name, Rows: l.OpRows(), Cols: l.OpCols(), Padded: [2]int{rows, cols}}
		o.Bytes = float64(o.Rows) * float64(o.Cols) * size
		o.ExtraBytes = float64(rows)*float64(cols)*size - o.Bytes
		return o
	}
	x.Matrices = [3]PaddedOperand{operand("A", p.Layouts[gemm.A], x.M, x.K), operand("B", p.Layouts[gemm.B], x.K, x.N),
		operand("C", p.Layouts[gemm.C], x.M, x.N)}
	total := 0.0
	for _, o := range x.Matrices {
		total += o.Bytes
		x.ExtraBytes += o.ExtraBytes
	}
	x.Extra = x.ExtraBytes / total
	return x
}

// bytesText formats a number of bytes with decimal prefixes: "512 bytes", "4.19 MB".
func bytesText(n float64) string {
	if n < 1e4 {
		return fmt.Sprintf("%.0f bytes", n)
	}
	return si(n) + "B"
}

// si formats a number with three significant digits and an SI prefix: "4.19 M".
func si(x float64) string {
	prefixes := []string{"n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z"}
	i := 3
	for ; i < len(prefixes)-1 && x >= 999.5; i++ {
		x /= 1000
	}
	for ; i > 0 && x < 0.9995 && x > 0; i-- {
		x *= 1000
	}
	return fmt.Sprintf("%.3g %s", x, prefixes[i])
}
