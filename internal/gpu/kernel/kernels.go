// Package kernel holds the GPU kernels that run on every architecture: naive, tiled, blocked,
// skinny and mma, and the launches around them that pack operands and add the parts of
// split-K. Each kernel is a [Kernel] whose PTX is written in Go with package build. The
// parameters, the batch scheduling and the epilogue are written once, by [Writer], for these
// kernels and for those of package sm90.
//
// A kernel's PTX depends on its [Config] alone: element types, transposition, tile, epilogue.
// Sizes, leading dimensions, alpha and beta are parameters, so one compiled kernel serves
// many products.
package kernel

import (
	"fmt"
	"maps"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Kernel is a row of the list.
type Kernel struct {
	Name string
	Adds string // one line: what this rung adds to the one before it
	SM   int    // the least architecture: 75 is sm_75
	// suffix is "a" if it runs on that architecture alone.
	Suffix string
	// Tensor says that it multiplies on the tensor cores, a warp's threads together.
	Tensor bool
	// Apart is how far along K a thread goes in a step where threads share out K and
	// share nothing that they load; 0 elsewhere.
	KPerThread int
	// better are architectures from which on the kernel has better instructions, in
	// ascending order.
	BetterSM []int
	// types are the element types of A and B that it multiplies in their own arithmetic;
	// nil is every one. others are those that it multiplies in another, as far as a
	// product asks for that.
	NativeTypes    []dtype.Type
	PrecisionTypes map[gemm.Precision][]dtype.Type
	// accuracy is how it computes p; nil is rounding to nearest in the type of the sums.
	AccuracyFor func(p *gemm.Problem) gemm.Accuracy

	// shapes are the sizes of tiles to choose from, the best for large products
	// first; check says what is wrong with another one.
	Tiles     []Tile
	CheckTile func(Tile) error
	// fits says whether threads have registers for their sums of p; nil is always.
	CheckFit func(p *gemm.Problem, s Tile) error
	// refuses says what about a product the kernel cannot do; nil is nothing.
	CheckProblem func(p *gemm.Problem) error
	// scales says that it multiplies operands with block scales.
	BlockScales bool
	// gates says that a launch computes both factors of a gated product; see gated.go.
	GatesInOneLaunch bool
	// boxed says that A and B are read by bulk copies: a plan packs what these cannot
	// read; see [Kernel.packing].
	TMA bool
	// vectors says how many elements of A, B and C a thread moves at once, where the
	// layouts allow it; nil is one.
	SetVectors func(Tile, *Config, *gemm.Problem)
	// limits declares what accesses to memory cost; nil is no bank conflicts and no
	// more sectors than the bytes need.
	AccessLimits func(Config) AccessLimits
	BlockThreads func(Tile) device.Dim3 // of a block
	SharedFor    func(Config) int       // bytes of its dynamic shared memory; nil is none
	SplitsK      bool                   // whether it can sum a part of K
	// grid is the blocks of a launch; nil is one for each tile.
	GridFor func(Config, *gemm.Problem, *device.Info) (grid, cluster device.Dim3, err error)
	// tensors are the maps of matrices that follow the other parameters; nil is none.
	TensorMaps func(Config, *gemm.Problem, Memory) []ptx.TensorMap
	Write      func(*build.Kernel, Config)
	// Params lists the parameters that the kernel has after those of every kernel.
	Params []Param[Args]
	// waits says that write has the text wait for launches before it, where it
	// overlaps them, not before it has prepared all that they do not touch.
	EmitsPDLWait bool
}

// overlapSM is the architecture from which on launches overlap.
const PDLSM = 90

// Types lists the element types that k multiplies.
func (k *Kernel) Types() []dtype.Type {
	if k.NativeTypes != nil {
		return k.NativeTypes
	}
	var types []dtype.Type
	for _, t := range dtype.All() {
		if len(t.Info().Results) > 0 {
			types = append(types, t)
		}
	}
	return types
}

// Precisions lists those besides the types' own in which k multiplies some type.
func (k *Kernel) Precisions() []gemm.Precision {
	return slices.Sorted(maps.Keys(k.PrecisionTypes))
}

// Target is the least architecture that the kernel runs on.
func (k *Kernel) Target() ptx.Target { return ptx.Target{SM: k.SM, Suffix: k.Suffix} }

// Shapes lists the sizes of tiles that Configs chooses from, the best for large
// products first.
func (k *Kernel) Shapes() []Tile { return k.Tiles }

// Supports is nil if the kernel can compute p, whatever the device; the error is
// ErrUnsupported.
func (k *Kernel) Supports(p *gemm.Problem) error {
	t := p.In()
	if p.Precision != gemm.Native && !slices.Contains(k.PrecisionTypes[p.Precision], t) {
		return fmt.Errorf("%w: kernel %s multiplies no %v in precision %v", gemm.ErrUnsupported, k.Name, t, p.Precision)
	}
	if p.Precision == gemm.Native && k.NativeTypes != nil && !slices.Contains(k.NativeTypes, t) {
		return fmt.Errorf("%w: kernel %s multiplies no %v", gemm.ErrUnsupported, k.Name, t)
	}
	if act := p.Epilogue.Activation; act != gemm.ActNone && activations[act] == nil {
		return fmt.Errorf("%w: kernel %s has no activation %v", gemm.ErrUnsupported, k.Name, act)
	}
	if err := k.checkScales(p); err != nil {
		return err
	}
	if err := checkFunction(p); err != nil {
		return err
	}
	if k.CheckProblem != nil {
		if err := k.CheckProblem(p); err != nil {
			return err
		}
	}
	return k.checkBatch(p)
}

// Accuracy is how the kernel computes p.
func (k *Kernel) Accuracy(p *gemm.Problem) gemm.Accuracy {
	if k.AccuracyFor == nil {
		return gemm.AccuracyOf(p)
	}
	return k.AccuracyFor(p)
}

// Fits is nil if the kernel can compute p with tiles of that shape; the error is
// ErrUnsupported.
func (k *Kernel) Fits(p *gemm.Problem, s Tile) error {
	if s.SplitK > 1 && p.Batch.Kind != gemm.Single {
		return fmt.Errorf("%w: a batch in tiles of %v: its products' K is not split", gemm.ErrUnsupported, s)
	}
	if k.CheckFit == nil {
		return nil
	}
	return k.CheckFit(p, s)
}

// Limits are what a kernel's accesses to memory cost at the most, on matrices whose
// rows begin at multiples of 32 bytes and whose tiles are full.
type AccessLimits struct {
	// Conflicts is how many times more than without bank conflicts an access to
	// shared memory takes, on average.
	Conflicts float64
	// Scatter is how many times the sectors of 32 bytes that its bytes need an access
	// to global memory fetches, on average.
	Scatter float64
}

// Limits declares what the kernel's accesses to memory cost.
func (k *Kernel) Limits(c Config) AccessLimits {
	if k.AccessLimits == nil {
		return AccessLimits{Scatter: 1}
	}
	return k.AccessLimits(c)
}

// rowScatter is the Scatter of reading rows of n elements of A or B and writing rows
// of m of C: a sector is moved whole.
func rowScatter(c Config, n, m int) float64 {
	return SectorBytes / float64(min(n*c.In.Size(), m*c.Out.Size(), SectorBytes))
}

// sectorBytes is the smallest piece of global memory that is moved.
const SectorBytes = 32

// Emit writes the kernel's text for c: a module with one entry, called Entry().
func (k *Kernel) Emit(c Config) (*ptx.Module, error) {
	if err := k.CheckTile(c.Tile); err != nil {
		return nil, err
	}
	b := build.New(k.Entry(), fmt.Sprintf("%s: %s", k.Name, k.Adds), c.String())
	if c.Lines {
		b.LineInfo()
	}
	c.SM = max(c.SM, k.SM)
	if c.PDL && !k.EmitsPDLWait {
		b.GridDependencySync()
	}
	k.Write(b, c)
	m, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("kernel %s (%v): %w", k.Name, c, err)
	}
	return m, nil
}

// Entry is the name of the kernel's entry.
func (k *Kernel) Entry() string { return "tilework_" + k.Name }

// Launch returns the launch of the kernel that a describes. It returns ErrUnsupported if the
// matrices are too large, have to be packed first or are not aligned as the configuration
// assumes, and otherwise the device's error.
func (k *Kernel) Launch(args Args, on Host) (l device.Launch, err error) {
	a := &struct { // one allocation for all that the parameters' functions read
		Args
		repacked gemm.Problem
	}{Args: args}
	c := a.Config
	if k.TMA && !a.Problem.ReadsAB() {
		a.Memory[gemm.A], a.Memory[gemm.B], a.Memory[gemm.Up] = 0, 0, 0 // not read: any alignment will do
	}
	if err := c.checkAligned(&a.Memory); err != nil {
		return l, err
	}
	l.Block, l.Shared, l.PDL = k.BlockThreads(c.Tile), k.SharedBytes(*c), c.PDL
	repacked, packed := k.Repack(a.Problem, c.Tile, Align{})
	if packed.Any() {
		return l, fmt.Errorf("%w: kernel %s reads matrices with TMA: want rows that begin at multiples of %d bytes, "+
			"of 8-bit types K-major, or pack them first", gemm.ErrUnsupported, k.Name, MaxVectorBytes)
	}
	a.repacked = repacked
	p := &a.repacked
	a.Problem = p
	if k.GridFor != nil {
		l.Grid, l.Cluster, err = k.GridFor(*c, p, on.Info())
	} else {
		l.Grid, err = TileGrid(p, c.Tile)
	}
	if err != nil {
		return l, err
	}
	if c.Tile.SplitK > 1 && a.PartialSums == 0 {
		return l, fmt.Errorf("%w: tile %v splits K and takes two launches, not one", gemm.ErrUnsupported, c.Tile)
	}
	var params device.Params
	Encode(&params, sharedParams, c, &a.Args)
	Encode(&params, k.Params, c, &a.Args)
	if k.TensorMaps != nil {
		for _, t := range k.TensorMaps(*c, p, a.Memory) {
			var encoded [ptx.TensorMapBytes]byte
			if t.Base != 0 { // or it is not read
				if encoded, err = on.EncodeTensorMap(&t); err != nil {
					return l, err
				}
			}
			params.TensorMap(encoded)
		}
	}
	l.Params = params.Bytes()
	return l, nil
}

// Host is what a launch has to know of its device.
type Host interface {
	Info() *device.Info
	EncodeTensorMap(*ptx.TensorMap) ([ptx.TensorMapBytes]byte, error)
}

// SharedBytes is the dynamic shared memory that a block takes.
func (k *Kernel) SharedBytes(c Config) int {
	if k.SharedFor == nil {
		return 0
	}
	return k.SharedFor(c)
}

// Memory holds the device address of each operand that a problem uses.
type Memory [gemm.Operands]device.Ptr

// maxGridRows is the most blocks of a grid along y, and along z.
const MaxGridRows = 65535

// grid has a block for each tile of C: columns along x, rows along y and, where
// these are not enough, along z. If K is split, its parts are along z, and so are the
// products of a batch.
func TileGrid(p *gemm.Problem, s Tile) (device.Dim3, error) {
	rows, cols := CeilDiv(p.M, s.M), CeilDiv(p.N, s.N)
	switch p.Batch.Kind {
	case gemm.Grouped:
		rows = MaxTileRows(p, s.M)
	case gemm.Strided:
		if max(rows, p.Batch.Count) > MaxGridRows {
			return device.Dim3{}, fmt.Errorf("%w: %d C of %d rows in tiles of %d×%d", gemm.ErrUnsupported, p.Batch.Count, p.M, s.M, s.N)
		}
		return device.Dim3{X: cols, Y: rows, Z: p.Batch.Count}, nil
	}
	z := CeilDiv(rows, MaxGridRows)
	if s.SplitK > 1 {
		if z > 1 {
			return device.Dim3{}, fmt.Errorf("%w: C of %d rows in tiles of %d×%d with K split", gemm.ErrUnsupported, p.M, s.M, s.N)
		}
		return device.Dim3{X: cols, Y: rows, Z: SplitCount(p, s)}, nil
	}
	if cols > 1<<31-1 || z > MaxGridRows {
		return device.Dim3{}, fmt.Errorf("%w: C of %d×%d in tiles of %d×%d is more blocks than a grid has", gemm.ErrUnsupported, p.M, p.N, s.M, s.N)
	}
	return device.Dim3{X: cols, Y: CeilDiv(rows, z), Z: z}, nil
}

// ceilDiv is a/b rounded up, of an a from 1 on, however large: a+b-1 could overflow. (Of 0 it is 1, unless b is 1.)
func CeilDiv(a, b int) int { return (a-1)/b + 1 }

// Align holds, for each operand, a power of two that divides its address; 0 means unknown.
type Align [gemm.Operands]int

// least returns the weaker of two alignments, operand by operand.
func (a Align) least(b Align) Align {
	for o, y := range b {
		if a[o] == 0 || y > 0 && y < a[o] {
			a[o] = y
		}
	}
	return a
}

// Padded is the layout that a matrix gets on a device: its rows begin at multiples of
// 16 bytes, but for a column, whose elements lie side by side.
func Padded(l gemm.Layout) gemm.Layout {
	if l.Cols == 1 {
		l.LD = 1
		return l
	}
	unit := MaxVectorBytes / l.Type.Size()
	l.LD = max(CeilDiv(l.Cols, unit)*unit, unit)
	return l
}

// Runs returns nil if the kernel can compute p on a device with some tile. The error is
// ErrUnsupported.
func (k *Kernel) Runs(p *gemm.Problem, d *device.Info) error {
	if err := k.Supports(p); err != nil {
		return err
	}
	if !d.Target.Has(k.Target()) {
		return fmt.Errorf("%w: kernel %s needs %v, and %s is %v", gemm.ErrUnsupported, k.Name, k.Target(), d.Name, d.Target)
	}
	return nil
}

// CheckDevice returns nil if a block of configuration c, which computes p, fits an SM of the
// device. The error is ErrUnsupported.
func (k *Kernel) CheckDevice(c Config, p *gemm.Problem, d *device.Info) error {
	s := c.Tile
	if err := k.Fits(p, s); err != nil {
		return err
	}
	if n := k.BlockThreads(s).Count(); n > d.MaxThreads {
		return fmt.Errorf("%w: kernel %s with tile %v has %d threads in a block, and %s at most %d", gemm.ErrUnsupported, k.Name, s, n, d.Name, d.MaxThreads)
	}
	if n := k.SharedBytes(c); n > d.MaxShared {
		return fmt.Errorf("%w: kernel %s with tile %v takes %d bytes of shared memory in a block, and %s has at most %d", gemm.ErrUnsupported, k.Name, s, n, d.Name, d.MaxShared)
	}
	return nil
}
