// Package explain analyses a kernel: its loads, operations, occupancy and memory accesses for one
// product on one GPU.
//
// [New] returns an [Explanation]. Its analytic part (operations, loads, bytes, roofline, occupancy,
// padding) is computed from the shape of the kernel's tiles. Its measured part ([Measured]) holds
// the emulator's counters of the same kernel on a small product. [NewTrace] follows each element of
// a tiny product from the load to the partial sums. Both results are plain data that can be encoded
// as JSON. Their Text methods are for readers who know threads and blocks.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// Explanation describes how a kernel computes one product on one GPU.
type Explanation struct {
	Kernel string `json:"kernel"`
	Adds   string `json:"adds"`   // technique added to the previous kernel of the ladder
	Config string `json:"config"` // [kernel.Config] as text
	Tile   string `json:"tile"`   // in the format of [kernel.Kernel.ParseTile]
	GPU    string `json:"gpu"`

	Product  Subject  `json:"product"`
	Launch   Launch   `json:"launch"`
	Phase    Phase    `json:"phase"`
	Roof     *Roof    `json:"roof,omitempty"`
	NoRoof   string   `json:"no_roof,omitempty"` // the reason if Roof is nil
	Traffic  []Volume `json:"traffic"`
	Fit      Fit      `json:"fit"`
	Padding  Padding  `json:"padding"`
	Measured Measured `json:"measured"`
}

// Subject describes the product.
type Subject struct {
	M     int    `json:"m"`
	N     int    `json:"n"`
	K     int    `json:"k"`
	In    string `json:"in"`
	Accum string `json:"accum"` // accumulator type
	Sums  string `json:"sums"`  // accuracy of the sums, as text
	Out   string `json:"out"`
	// Precision is the type that the elements are converted to before they are multiplied, if any.
	Precision string  `json:"precision,omitempty"`
	TransA    bool    `json:"transpose_a"`
	TransB    bool    `json:"transpose_b"`
	Flops     float64 `json:"flops"` // 2·M·N·K
	Unit      string  `json:"unit"`  // of an operation: "FLOP", or "OP" for integers
}

// Launch describes the kernel launch.
type Launch struct {
	Tiles [2]int `json:"tiles"` // tiles of C along M and along N
	// Packed lists the operands that a preceding launch packs into the kernel's layout.
	Packed  []string `json:"packed,omitempty"`
	Grid    [3]int   `json:"grid"`  // blocks in x, y and z
	Block   [3]int   `json:"block"` // threads in x, y and z
	Blocks  int      `json:"blocks"`
	Threads int      `json:"threads"` // per block
}

// Fit describes the number of blocks that an SM holds, and the waves of the grid.
type Fit struct {
	Occupancy model.Occupancy `json:"occupancy"`
	TwoBlocks bool            `json:"two_blocks"` // at least two blocks fit
	// Barriers reports whether the kernel uses block barriers.
	Barriers bool `json:"barriers"`
	// Specialised reports whether the kernel is warp-specialized: its warpgroups have different
	// roles and do not meet at barriers, so a second block has no idle time to fill.
	Specialised bool `json:"specialised"`
	// RegistersCounted is false if the number of registers per thread is neither given nor recorded.
	// The SM may then hold fewer blocks than Occupancy states.
	RegistersCounted bool         `json:"registers_counted"`
	Waves            *model.Waves `json:"waves,omitempty"` // nil if GPU is an architecture
}

// Options configures an explanation. The zero value is ready to use.
type Options struct {
	// Registers is the number of registers per thread that the assembler reports. 0 takes the
	// recorded number, if there is one.
	Registers int
}

// New explains how the kernel computes p with tiles of shape s on m. It runs the kernel on the
// emulator, on a product of at most a few million operations, until ctx ends.
//
// The errors are ErrShape for an empty product, ErrUnsupported if the kernel cannot compute p or
// run on m, or if no SM can hold a block, and the context's error.
func New(ctx context.Context, k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, m *model.Model,
	opt Options) (*Explanation, error) {
	target, err := targetOf(k, m)
	if err != nil {
		return nil, err
	}
	j, err := newJob(k, s, p, target, m.SMs)
	if err != nil {
		return nil, err
	}
	return j.explain(p, m, opt, func() (Measured, error) { return measure(ctx, j, p) })
}

// explain explains the product p, which can differ from j.problem by packing. measure returns the
// counters of a run.
func (j *job) explain(p *gemm.Problem, m *model.Model, opt Options, measure func() (Measured, error)) (*Explanation,
	error) {
	k, s := j.kernel, j.config.Tile
	x := &Explanation{
		Kernel: k.Name, Adds: k.Adds, Config: j.config.String(), Tile: s.String(), GPU: m.Name,
		Product: Subject{
			M: p.M, N: p.N, K: p.K, In: p.In().String(), Accum: p.Accum().String(), Out: p.Out().String(),
			Sums:   k.Accuracy(p).Describe(p.Accum()),
			TransA: p.A().Trans, TransB: p.B().Trans, Flops: p.Flops(), Unit: "FLOP",
		},
		Launch:  launchOf(j, p),
		Phase:   phaseOf(k, s, p),
		Padding: paddingOf(s, p),
	}
	x.Phase.readShared(j)
	if p.Precision != gemm.Native {
		x.Product.Precision = p.Precision.String()
	}
	if p.Accum().Info().Integer {
		x.Product.Unit = "OP"
	}
	var err error
	if x.Fit, err = fitOf(m, j, &x.Launch, opt); err != nil {
		return nil, err
	}
	if x.Measured, err = measure(); err != nil {
		return nil, err
	}
	if x.Roof, err = roofOf(k, m, p); err != nil {
		x.NoRoof = err.Error()
	}
	x.Traffic, err = x.volumes(m, p)
	return x, err
}

// targetOf returns the PTX target for the kernel on m. The error is ErrUnsupported.
func targetOf(k *kernel.Kernel, m *model.Model) (ptx.Target, error) {
	target := ptx.Target{SM: m.Arch.SM, Suffix: k.Target().Suffix}
	if !target.Has(k.Target()) {
		return target, fmt.Errorf("%w: kernel %s needs %v, but %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), m.Name,
			m.Arch)
	}
	return target, nil
}

// Tile returns the tile with which the kernel computes p on m by default, among those without
// split-K. The error is ErrUnsupported.
func Tile(k *kernel.Kernel, p *gemm.Problem, m *model.Model) (kernel.Tile, error) {
	whole, err := candidates(k, p, m)
	if err != nil {
		return kernel.Tile{}, err
	}
	return choose.Fastest(whole).Config.Tile, nil
}

// Tiles returns the tiles with which the kernel can compute p on m without split-K. The error is
// that of [Tile].
func Tiles(k *kernel.Kernel, p *gemm.Problem, m *model.Model) ([]kernel.Tile, error) {
	whole, err := candidates(k, p, m)
	var tiles []kernel.Tile
	for _, c := range whole {
		tiles = append(tiles, c.Config.Tile)
	}
	return tiles, err
}

// candidates returns the candidates without split-K that can compute p, at least one.
func candidates(k *kernel.Kernel, p *gemm.Problem, m *model.Model) ([]choose.Candidate, error) {
	target, err := targetOf(k, m)
	if err != nil {
		return nil, err
	}
	if err := k.Check(p, kernel.Tile{}, kernel.Align{}, nil); err != nil {
		return nil, err
	}
	info := device.Info{Name: m.Name, Target: target, SMs: max(m.SMs, 1), MaxThreads: m.Arch.MaxThreadsPerBlock,
		MaxShared: m.Arch.SharedPerBlockOptIn}
	whole := slices.DeleteFunc(choose.CandidatesOf(k, p, kernel.Align{}, &info),
		func(c choose.Candidate) bool { return c.Rejected != nil || c.Config.Tile.SplitK > 1 })
	if len(whole) == 0 {
		return nil, fmt.Errorf("%w: kernel %s has no tile for %v on %s", gemm.ErrUnsupported, k.Name, p, m.Name)
	}
	return whole, nil
}

// job is a kernel's PTX with its launch for a product.
type job struct {
	problem gemm.Problem
	kernel  *kernel.Kernel
	config  kernel.Config
	module  *ptx.Module
	host    emulated
	launch  device.Launch // without the addresses of the matrices
}

// emulated is the GPU for which a launch is computed.
type emulated struct{ info device.Info }

// Info implements [kernel.Host].
func (e emulated) Info() *device.Info { return &e.info }

// EncodeTensorMap implements [kernel.Host].
func (emulated) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	return emu.EncodeTensorMap(m)
}

// newJob emits the kernel for p and a GPU with the given number of SMs. If files are named, the PTX
// has their line numbers. The errors are ErrShape and ErrUnsupported.
func newJob(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, t ptx.Target, sms int, files ...string) (*job, error) {
	if p.M < 1 || p.N < 1 || p.K < 1 {
		return nil, fmt.Errorf("%w: %d×%d×%d: want sizes of at least 1", gemm.ErrShape, p.M, p.N, p.K)
	}
	if err := k.Check(p, kernel.Tile{}, kernel.Align{}, nil); err != nil {
		return nil, err
	}
	j := &job{problem: k.Packed(p, s), kernel: k, config: k.For(k.Config(p, s), t), host: emulated{device.Info{SMs: sms}}}
	j.config.Lines, j.config.PDL = len(files) > 0, t.SM >= kernel.PDLSM
	var err error
	if j.module, err = k.Emit(j.config, files...); err != nil {
		return nil, err
	}
	j.launch, err = k.Launch(kernel.Args{Config: &j.config, Problem: &j.problem}, j.host)
	return j, err
}

// launchOf returns the description of j's launch, where p is the product without packing.
func launchOf(j *job, p *gemm.Problem) Launch {
	g, b, s := j.launch.Grid, j.launch.Block, j.config.Tile
	l := Launch{
		Tiles: [2]int{ints.CeilDiv(p.M, s.M), ints.CeilDiv(p.N, s.N)},
		Grid:  [3]int{g.X, g.Y, g.Z}, Block: [3]int{b.X, b.Y, b.Z}, Blocks: g.Count(), Threads: b.Count(),
	}
	if j.problem.Layouts[gemm.A] != p.Layouts[gemm.A] {
		l.Packed = append(l.Packed, "A")
	}
	if j.problem.Layouts[gemm.B] != p.Layouts[gemm.B] {
		l.Packed = append(l.Packed, "B")
	}
	return l
}

// tileBlocks returns the number of blocks that the grid would have without persistent blocks.
func (l *Launch) tileBlocks() int { return max(l.Blocks, l.Tiles[0]*l.Tiles[1]) }

// usesWarpgroups reports whether the kernel uses wgmma.
func (j *job) usesWarpgroups() bool { return j.uses("wgmma") }

// uses reports whether the kernel contains one of these operations, except barriers of a warp.
func (j *job) uses(ops ...string) (found bool) {
	for _, f := range j.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			i, ok := s.(*ptx.Instr)
			found = found || ok && slices.Contains(ops, i.Op) && !i.Has("warp")
		})
	}
	return found
}

// array is a named range of memory: a variable of a kernel in shared memory, or a matrix.
type array struct {
	name        string
	start, size int // bytes; start is an offset in shared memory, or an address
}

// shared returns the kernel's variables in shared memory and their total size. They are stored in
// the order of declaration, each at a multiple of its alignment.
func (j *job) shared() (list []array, size int) {
	for _, f := range j.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			if v, ok := s.(*ptx.Var); ok && v.Space == ptx.Shared {
				size = ints.CeilDiv(size, v.Alignment()) * v.Alignment()
				list = append(list, array{v.Name, size, v.Size()})
				size += v.Size()
			}
		})
	}
	return list, size
}

func fitOf(m *model.Model, j *job, l *Launch, opt Options) (f Fit, err error) {
	_, shared := j.shared()
	registers := cmp.Or(opt.Registers, j.registersOf(m.Arch.SM))
	o, err := m.Arch.Occupancy(model.Launch{
		Threads: j.launch.Block.Count(), SharedBytes: shared + j.launch.Shared, RegsPerThread: registers,
	})
	if err != nil {
		return f, fmt.Errorf("%w: kernel %s with tile %v: %w", gemm.ErrUnsupported, j.kernel.Name, j.config.Tile, err)
	}
	f = Fit{Occupancy: o, TwoBlocks: o.Blocks >= 2, Barriers: j.uses("bar", "barrier"), Specialised: j.usesWarpgroups(),
		RegistersCounted: registers > 0}
	if !m.Generic() {
		w, err := m.Waves(l.tileBlocks(), o.Blocks)
		if err != nil {
			return f, err
		}
		f.Waves = &w
	}
	return f, nil
}

// tensorRates holds the rates of the tensor cores by element type, and cudaCoreRates those of the
// CUDA cores by accumulator type. The table of GPUs has no integer rates of the CUDA cores.
var (
	tensorRates = map[dtype.Type]model.Rate{
		dtype.F64: model.FP64Tensor, dtype.F16: model.FP16, dtype.BF16: model.BF16,
		dtype.F8E4M3: model.FP8, dtype.F8E5M2: model.FP8, dtype.I8: model.INT8,
	}
	cudaCoreRates = map[dtype.Type]model.Rate{dtype.F32: model.FP32, dtype.F64: model.FP64}
)

// splitProducts is the number of bfloat16 products in a product with [gemm.F32x3].
const splitProducts = 6

// Rates returns the rates of the units that can multiply elements of type t, the fastest first, and
// the number of their products that make one product.
func Rates(t dtype.Type, p gemm.Precision) (all []model.Rate, products int) {
	switch p {
	case gemm.TF32:
		return []model.Rate{model.TF32}, 1
	case gemm.F32x3:
		return []model.Rate{model.BF16}, splitProducts
	}
	if r, ok := tensorRates[t.Signed()]; ok {
		all = append(all, r)
	}
	if r, ok := cudaCoreRates[t.Info().Accum]; ok {
		all = append(all, r)
	}
	return all, 1
}

// rateOf returns the rate of the units on which k computes p, and the number of their products that
// make one product.
func rateOf(k *kernel.Kernel, p *gemm.Problem) (rate model.Rate, products int, err error) {
	if !k.Tensor {
		if r, ok := cudaCoreRates[p.Accum()]; ok {
			return r, 1, nil
		}
		return 0, 0, fmt.Errorf("the %v rate of the CUDA cores is not known", p.Accum())
	}
	rates, products := Rates(p.In(), p.Precision)
	return rates[0], products, nil // the table has all types of the tensor cores
}
