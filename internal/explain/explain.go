// Package explain is the study of a kernel: what it does for one product on one GPU,
// in numbers with their arithmetic.
//
// [New] makes an [Explanation]. Its analytic part (operations, loads, bytes, roofline,
// occupancy, padding) follows from the shape of the kernel's tiles by one formula; its
// measured part ([Measured]) is what the emulator counts while it runs the same text on
// a small product. [NewTrace] follows a tiny product element by element: who loads
// what, and what each partial sum is made of. Both are plain data with names for JSON,
// and their Text is for a reader who knows what a thread and a block are.
package explain

import (
	"context"
	"fmt"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/choose"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// Explanation is what there is to say of a kernel that computes one product on one GPU.
type Explanation struct {
	Kernel string `json:"kernel"`
	Adds   string `json:"adds"`   // what this rung adds to the one before it
	Config string `json:"config"` // as [gpu.Config] prints it
	Tile   string `json:"tile"`   // as [gpu.Kernel.ParseShape] reads it
	GPU    string `json:"gpu"`

	Product  Product  `json:"product"`
	Launch   Launch   `json:"launch"`
	Phase    Phase    `json:"phase"`
	Roof     *Roof    `json:"roof,omitempty"`
	NoRoof   string   `json:"no_roof,omitempty"` // why there is none
	Traffic  []Volume `json:"traffic"`
	Fit      Fit      `json:"fit"`
	Padding  Padding  `json:"padding"`
	Measured Measured `json:"measured"`
}

// Product is the product that is computed.
type Product struct {
	M     int    `json:"m"`
	N     int    `json:"n"`
	K     int    `json:"k"`
	In    string `json:"in"`
	Accum string `json:"accum"` // the type that it is summed in
	Sums  string `json:"sums"`  // how, in words
	Out   string `json:"out"`
	// Precision is the arithmetic of the products where that is not the elements' own.
	Precision string  `json:"precision,omitempty"`
	TransA    bool    `json:"transpose_a"`
	TransB    bool    `json:"transpose_b"`
	Flops     float64 `json:"flops"` // 2·M·N·K
	Unit      string  `json:"unit"`  // of one of them: "FLOP", or "OP" of whole numbers
}

// Launch is the grid that computes it.
type Launch struct {
	Tiles [2]int `json:"tiles"` // of C: in a column and in a row of them
	// Packed are the operands that a launch before it packs, as the kernel reads them.
	Packed  []string `json:"packed,omitempty"`
	Grid    [3]int   `json:"grid"`  // blocks along x, y and z
	Block   [3]int   `json:"block"` // threads along x, y and z
	Blocks  int      `json:"blocks"`
	Threads int      `json:"threads"` // of a block
}

// Fit is how many blocks an SM holds at once, and how the grid passes over the GPU.
type Fit struct {
	Occupancy model.Occupancy `json:"occupancy"`
	TwoBlocks bool            `json:"two_blocks"` // at least two blocks fit
	// Barriers reports whether the kernel's text has a barrier of the block.
	Barriers bool `json:"barriers"`
	// Specialised says that the block's warpgroups have one job each and meet at no barrier,
	// so that a second block has nothing to fill.
	Specialised bool `json:"specialised"`
	// RegistersCounted is false where nobody said how many registers a thread takes:
	// the assembler decides that, and there may be fewer blocks than Occupancy says.
	RegistersCounted bool         `json:"registers_counted"`
	Waves            *model.Waves `json:"waves,omitempty"` // nil where the GPU is an architecture
}

// Options of an explanation; the zero value is fine.
type Options struct {
	// Registers of a thread, as an assembler tells them; 0 is not known.
	Registers int
}

// New explains how the kernel computes p with tiles of shape s on m. It runs the kernel
// on the emulator, on a product of at most some million operations, until ctx ends.
//
// The errors are ErrShape for an empty product, ErrUnsupported for a kernel that cannot
// compute p or run on m, the occupancy's for a block that no SM holds, and the context's.
func New(ctx context.Context, k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, m *model.Model, opt Options) (*Explanation, error) {
	target, err := targetOf(k, m)
	if err != nil {
		return nil, err
	}
	j, err := newJob(k, s, p, target, m.SMs)
	if err != nil {
		return nil, err
	}
	x := &Explanation{
		Kernel: k.Name, Adds: k.Adds, Config: j.config.String(), Tile: s.String(), GPU: m.Name,
		Product: Product{
			M: p.M, N: p.N, K: p.K, In: p.A.Type.String(), Accum: p.Accum().String(), Out: p.C.Type.String(),
			Sums:   k.Accuracy(p).Describe(p.Accum()),
			TransA: p.A.Trans, TransB: p.B.Trans, Flops: p.Flops(), Unit: "FLOP",
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
	if x.Fit, err = fitOf(m, j, &x.Launch, opt); err != nil {
		return nil, err
	}
	if x.Measured, err = measure(ctx, j, p); err != nil {
		return nil, err
	}
	if x.Roof, err = roofOf(k, m, p); err != nil {
		x.NoRoof = err.Error()
	}
	x.Traffic, err = x.volumes(m, p)
	return x, err
}

// targetOf is what the kernel is written for on m. The error is ErrUnsupported.
func targetOf(k *kernel.Kernel, m *model.Model) (ptx.Target, error) {
	target := ptx.Target{SM: m.Arch.SM, Suffix: k.Target().Suffix}
	if !target.Has(k.Target()) {
		return target, fmt.Errorf("%w: kernel %s needs %v, and %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), m.Name, m.Arch)
	}
	return target, nil
}

// Tile is the tile with which the kernel computes p on m where nobody names one, of those
// that leave K in one piece. The error is ErrUnsupported.
func Tile(k *kernel.Kernel, p *gemm.Problem, m *model.Model) (kernel.Tile, error) {
	target, err := targetOf(k, m)
	if err != nil {
		return kernel.Tile{}, err
	}
	if err := k.Supports(p); err != nil {
		return kernel.Tile{}, err
	}
	info := device.Info{Name: m.Name, Target: target, SMs: max(m.SMs, 1), MaxThreads: m.Arch.MaxThreadsPerBlock, MaxShared: m.Arch.SharedPerBlockOptIn}
	for _, c := range choose.Configs(k, p, &info) {
		if c.Tile.SplitK <= 1 {
			return c.Tile, nil
		}
	}
	return kernel.Tile{}, fmt.Errorf("%w: kernel %s has no tile for that product on %s", gemm.ErrUnsupported, k.Name, m.Name)
}

// job is a kernel's text and its launch for a product.
type job struct {
	problem gemm.Problem
	kernel  *kernel.Kernel
	config  kernel.Config
	module  *ptx.Module
	host    emulated
	launch  device.Launch // without the addresses of the matrices
}

// emulated is the GPU that a launch is made for.
type emulated struct{ info device.Info }

// Info implements [gpu.Host].
func (e emulated) Info() *device.Info { return &e.info }

// EncodeTensorMap implements [gpu.Host].
func (emulated) EncodeTensorMap(m *ptx.TensorMap) ([ptx.TensorMapBytes]byte, error) {
	return emu.EncodeTensorMap(m)
}

// newJob checks and writes the kernel for p and a GPU of so many SMs. The errors are
// ErrShape and ErrUnsupported.
func newJob(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, t ptx.Target, sms int) (*job, error) {
	if p.M < 1 || p.N < 1 || p.K < 1 {
		return nil, fmt.Errorf("%w: a product of %d×%d×%d has no elements or no terms to study", gemm.ErrShape, p.M, p.N, p.K)
	}
	if err := k.Supports(p); err != nil {
		return nil, err
	}
	j := &job{problem: k.Packed(p, s), kernel: k, config: k.For(k.Config(p, s), t), host: emulated{device.Info{SMs: sms}}}
	var err error
	if j.module, err = k.Emit(j.config); err != nil {
		return nil, err
	}
	j.launch, err = k.Launch(j.config, &j.problem, kernel.Memory{}, j.host)
	return j, err
}

// launchOf is the launch of a job for p.
func launchOf(j *job, p *gemm.Problem) Launch {
	g, b, s := j.launch.Grid, j.launch.Block, j.config.Tile
	l := Launch{
		Tiles: [2]int{ceilDiv(p.M, s.M), ceilDiv(p.N, s.N)},
		Grid:  [3]int{g.X, g.Y, g.Z}, Block: [3]int{b.X, b.Y, b.Z}, Blocks: g.Count(), Threads: b.Count(),
	}
	if j.problem.A != p.A {
		l.Packed = append(l.Packed, "A")
	}
	if j.problem.B != p.B {
		l.Packed = append(l.Packed, "B")
	}
	return l
}

// places is the blocks that the tiles would have if none of them stayed for another tile.
func (l *Launch) places() int { return max(l.Blocks, l.Tiles[0]*l.Tiles[1]) }

// usesWarpgroups reports whether the text multiplies with wgmma.
func (j *job) usesWarpgroups() bool { return j.uses("wgmma") }

// uses reports whether the text has one of these operations, apart from barriers of a warp.
func (j *job) uses(ops ...string) (found bool) {
	for _, f := range j.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			i, ok := s.(*ptx.Instr)
			found = found || ok && slices.Contains(ops, i.Op) && !i.Has("warp")
		})
	}
	return found
}

// array is a variable of a kernel in shared memory.
type array struct {
	name        string
	start, size int // bytes from the start of the block's shared memory
}

// shared lays out the kernel's variables in shared memory: in the order of the text,
// each at a multiple of its alignment. The second result is the size of all.
func (j *job) shared() (list []array, size int) {
	for _, f := range j.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			if v, ok := s.(*ptx.Var); ok && v.Space == ptx.Shared {
				size = ceilDiv(size, v.Alignment()) * v.Alignment()
				list = append(list, array{v.Name, size, v.Size()})
				size += v.Size()
			}
		})
	}
	return list, size
}

func fitOf(m *model.Model, j *job, l *Launch, opt Options) (f Fit, err error) {
	_, shared := j.shared()
	o, err := m.Arch.Occupancy(model.Launch{
		Threads: j.launch.Block.Count(), SharedBytes: shared + j.launch.Shared, RegsPerThread: opt.Registers,
	})
	if err != nil {
		return f, fmt.Errorf("%w: kernel %s with tile %v: %w", gemm.ErrUnsupported, j.kernel.Name, j.config.Tile, err)
	}
	f = Fit{Occupancy: o, TwoBlocks: o.Blocks >= 2, Barriers: j.uses("bar", "barrier"), Specialised: j.usesWarpgroups(), RegistersCounted: opt.Registers > 0}
	if !m.Generic() {
		w, err := m.Waves(l.places(), o.Blocks)
		if err != nil {
			return f, err
		}
		f.Waves = &w
	}
	return f, nil
}

// tensorRates are what tensor cores do with elements of a type, and ordinaryRates what the
// other units do, by the type that products are summed in. The table of GPUs has no rate of
// the ordinary integer units.
var (
	tensorRates = map[dtype.Type]model.Rate{
		dtype.F64: model.FP64Tensor, dtype.F16: model.FP16, dtype.BF16: model.BF16,
		dtype.F8E4M3: model.FP8, dtype.F8E5M2: model.FP8, dtype.I8: model.INT8,
	}
	ordinaryRates = map[dtype.Type]model.Rate{dtype.F32: model.FP32, dtype.F64: model.FP64}
)

// splitProducts is how many products of bfloat16 a product in [gemm.F32x3] is made of.
const splitProducts = 6

// Rates are those of the units that products of elements of a type can run on, the fastest
// first, and how many products of theirs make one.
func Rates(t dtype.Type, p gemm.Precision) (all []model.Rate, products int) {
	switch p {
	case gemm.TF32:
		return []model.Rate{model.TF32}, 1
	case gemm.F32x3:
		return []model.Rate{model.BF16}, splitProducts
	}
	if r, ok := tensorRates[t]; ok {
		all = append(all, r)
	}
	if r, ok := ordinaryRates[t.Info().Accum]; ok {
		all = append(all, r)
	}
	return all, 1
}

// rateOf is the rate of the units that k computes p on, and how many products of theirs make
// one.
func rateOf(k *kernel.Kernel, p *gemm.Problem) (rate model.Rate, products int, err error) {
	if !k.Tensor {
		if r, ok := ordinaryRates[p.Accum()]; ok {
			return r, 1, nil
		}
		return 0, 0, fmt.Errorf("no rate of %v arithmetic on the ordinary units is known", p.Accum())
	}
	rates, products := Rates(p.A.Type, p.Precision)
	return rates[0], products, nil // all that tensor cores multiply are in the table
}
