// Package kernel holds the GPU kernels that run on every architecture, one file per rung: naive,
// tiled, blocked, skinny and mma. It also holds the auxiliary launches that pack operands and that
// sum the parts of a split-K product. Each kernel is a [Kernel] whose PTX is written in Go with
// package build. [Writer] implements the parameters, the tile scheduler and the epilogue once, for
// these kernels and for those of package sm90.
//
// A kernel's PTX depends on its [Config] alone: element types, transposition, tile, epilogue.
// Sizes, leading dimensions, alpha and beta are parameters, so one compiled kernel serves many
// products.
package kernel

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/ptx"
	"tilework/ptx/build"
)

// Kernel describes a kernel: its limits, its tiles, and the functions that write and launch it.
type Kernel struct {
	Name string
	Adds string // one line: the technique that this kernel adds to the previous rung

	// The architectures.

	SM int // the minimum compute capability: 75 is sm_75
	// Suffix is "a" for a kernel that runs on architecture SM only, such as sm_90a.
	Suffix string
	// BetterSM lists the architectures from which on the kernel uses better instructions, in
	// ascending order.
	BetterSM []int

	// The arithmetic.

	// NativeTypes lists the element types of A and B that the kernel multiplies in their native
	// precision; nil means all. PrecisionTypes lists those that it multiplies in another precision,
	// on request.
	NativeTypes    []dtype.Type
	PrecisionTypes map[gemm.Precision][]dtype.Type
	// AccuracyFor returns the error bounds of p. Nil means that every operation rounds to nearest
	// in the type of the accumulator.
	AccuracyFor func(p *gemm.Problem) gemm.Accuracy
	// OrderFor returns the order of summation of p over an undivided K on architecture sm.
	OrderFor func(p *gemm.Problem, sm int) Order

	// The abilities.

	// Tensor reports whether the kernel uses tensor cores, whose instructions take a whole warp.
	Tensor      bool
	SplitsK     bool // whether the kernel supports split-K and serial parts
	StreamsK    bool // whether the kernel supports stream-K
	BlockScales bool // whether the kernel multiplies operands with block scales
	// KPerThread is the number of elements along K that a thread multiplies per step, for a kernel
	// that partitions K among the threads of a block instead of using tiles in shared memory. It is
	// 0 for all others.
	KPerThread int
	// GatesInOneLaunch reports whether one launch computes both factors of a gated product; see
	// gated.go.
	GatesInOneLaunch bool
	// TMA reports whether the kernel reads A and B with TMA. Operands that TMA cannot read are
	// packed first; see [Kernel.Repack].
	TMA bool

	// The tiles to choose from, and the kernel's own rules for [Kernel.Check]. A nil rule accepts
	// everything.

	Tiles []Tile
	// CheckTile returns why no product can be computed with the tile.
	CheckTile func(Tile) *Reason
	// CheckProblem returns why p cannot be computed with any tile.
	CheckProblem func(p *gemm.Problem) *Reason
	// CheckFit returns why p cannot be computed in configuration c, such as too few registers for the
	// sums of its tile.
	CheckFit func(p *gemm.Problem, c *Config) *Reason

	// The PTX, which depends on the configuration alone.

	// SetVectors sets the number of elements of A, B and C that one instruction of a thread moves,
	// as far as the layouts allow. Nil means 1.
	SetVectors func(*Config, *gemm.Problem)
	Write      func(*build.Kernel, Config)
	// EmitsPDLWait reports whether Write emits griddepcontrol.wait itself, after the prologue
	// (mbarrier initialization, prefetch of tensor maps). Emit emits it at the start of the others.
	// They do not emit griddepcontrol.launch_dependents: if the next kernel's blocks started while
	// these still run, the SMs that finish first would get more of them than the others.
	// It matters only for configurations with programmatic dependent launch (PDL).
	EmitsPDLWait bool
	// AccessLimits returns upper bounds for bank conflicts and uncoalesced accesses. Nil means no
	// bank conflicts and perfectly coalesced accesses.
	AccessLimits func(Config) AccessLimits

	// The launch.

	BlockThreads func(Tile) device.Dim3 // the dimensions of a block
	SharedFor    func(Config) int       // bytes of dynamic shared memory; nil means none
	// GridFor returns the dimensions of the grid and of a cluster. Nil means one block per tile.
	GridFor func(Config, *gemm.Problem, *device.Info) (grid, cluster device.Dim3, err error)
	// Params lists the parameters of this kernel that follow those of every kernel.
	Params []Param[Args]
	// TensorMaps returns the tensor maps, which follow the other parameters. Nil means none.
	TensorMaps func(Config, *gemm.Problem, Memory) []ptx.TensorMap
}

// PDLSM is the architecture that introduced programmatic dependent launch (PDL).
const PDLSM = 90

// Types returns the element types that k multiplies in their native precision, uint8 as int8.
func (k *Kernel) Types() []dtype.Type {
	types := slices.Clone(k.NativeTypes)
	for _, t := range dtype.All() {
		if k.NativeTypes == nil && len(t.Info().Results) > 0 || t == dtype.U8 && slices.Contains(types, dtype.I8) {
			types = append(types, t)
		}
	}
	return types
}

// Precisions returns the precisions other than [gemm.Native] in which k multiplies some type.
func (k *Kernel) Precisions() []gemm.Precision {
	return slices.Sorted(maps.Keys(k.PrecisionTypes))
}

// Target returns the minimum architecture that k runs on.
func (k *Kernel) Target() ptx.Target { return ptx.Target{SM: k.SM, Suffix: k.Suffix} }

// Accuracy returns the error bounds of p as k computes it.
func (k *Kernel) Accuracy(p *gemm.Problem) gemm.Accuracy {
	if k.AccuracyFor == nil {
		return gemm.AccuracyOf(p)
	}
	return k.AccuracyFor(p)
}

// AccessLimits are upper bounds for the inefficiency of a kernel's memory accesses. They hold for
// full tiles of matrices whose rows begin at multiples of 32 bytes.
type AccessLimits struct {
	// Conflicts is the average number of extra wavefronts that bank conflicts cause per access to
	// shared memory.
	Conflicts float64
	// Scatter is the average ratio between the 32-byte sectors that an access to global memory
	// fetches and those that its bytes need. It is 1 for coalesced accesses.
	Scatter float64
}

// Limits returns the bounds of k's memory accesses.
func (k *Kernel) Limits(c Config) AccessLimits {
	if k.AccessLimits == nil {
		return AccessLimits{Scatter: 1}
	}
	return k.AccessLimits(c)
}

// rowScatter returns the Scatter of accesses to runs of n elements in rows of A or B and of m
// elements in rows of C. Memory moves whole sectors.
func rowScatter(c Config, n, m int) float64 {
	return SectorBytes / float64(min(c.In.Bytes(n), c.Out.Bytes(m), SectorBytes))
}

// SectorBytes is the granularity of accesses to global memory.
const SectorBytes = 32

// Emit returns the kernel's PTX for c: a module with one entry, named Entry(). If c.Lines is set
// and files are named, the source lines are those of these files; see [build.Kernel.LineInfo].
func (k *Kernel) Emit(c Config, files ...string) (*ptx.Module, error) {
	if err := k.checkTile(c.Tile); err != nil {
		return nil, err
	}
	b := build.New(k.Entry(), fmt.Sprintf("%s: %s", k.Name, k.Adds), c.String())
	if c.Lines {
		b.LineInfo(files...)
	}
	c.SM = max(c.SM, k.SM)
	if c.PDL && !k.EmitsPDLWait {
		b.GridDependencyWait()
	}
	k.Write(b, c)
	m, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("kernel %s (%v): %w", k.Name, c, err)
	}
	return m, nil
}

// Entry returns the name of the kernel's entry function.
func (k *Kernel) Entry() string { return "tilework_" + k.Name }

// Launch returns the launch of the kernel that args describes. It returns ErrUnsupported if the
// matrices are too large, have to be packed first or are not aligned as the configuration assumes.
// Other errors are the device's.
func (k *Kernel) Launch(args Args, on Host) (l device.Launch, err error) {
	a := &struct { // one allocation for everything that the parameters' functions read
		Args
		repacked gemm.Problem
	}{Args: args}
	c := a.Config
	if !a.Problem.ReadsAB() { // their addresses need not be aligned
		a.Memory[gemm.A], a.Memory[gemm.B] = 0, 0
		if c.ComputesGate() { // otherwise Up holds the other factor
			a.Memory[gemm.Up] = 0
		}
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
	if l.Grid, l.Cluster, err = k.grid(c, p, on.Info()); err != nil {
		return l, err
	}
	if c.Tile.SplitK > 1 && a.PartialSums == 0 {
		return l, fmt.Errorf("%w: tile %v with split-K: want memory for the partial sums, and a second launch",
			gemm.ErrUnsupported, c.Tile)
	}
	if c.Tile.StreamK && (a.Handed == 0 || a.Flags == 0) {
		return l, fmt.Errorf("%w: tile %v with stream-K: want memory for the accumulators that blocks hand over",
			gemm.ErrUnsupported, c.Tile)
	}
	var params device.Params
	Encode(&params, sharedParams, c, &a.Args)
	Encode(&params, k.Params, c, &a.Args)
	if k.TensorMaps != nil {
		for _, t := range k.TensorMaps(*c, p, a.Memory) {
			var encoded [ptx.TensorMapBytes]byte
			if t.Base != 0 { // otherwise the kernel does not read the matrix
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

// grid returns the dimensions of the grid and of a cluster. The error is ErrUnsupported.
func (k *Kernel) grid(c *Config, p *gemm.Problem, d *device.Info) (grid, cluster device.Dim3, err error) {
	if k.GridFor != nil {
		return k.GridFor(*c, p, d)
	}
	grid, err = TileGrid(p, c.Tile)
	return grid, cluster, err
}

// MaxProducts returns the maximum number of products of a strided batch in one launch.
func (k *Kernel) MaxProducts() int {
	if k.GridFor != nil {
		return math.MaxInt
	}
	return MaxGridRows
}

// Host is the part of a device that [Kernel.Launch] needs.
type Host interface {
	Info() *device.Info
	EncodeTensorMap(*ptx.TensorMap) ([ptx.TensorMapBytes]byte, error)
}

// SharedBytes returns the dynamic shared memory of a block.
func (k *Kernel) SharedBytes(c Config) int {
	if k.SharedFor == nil {
		return 0
	}
	return k.SharedFor(c)
}

// Memory holds the device address of each operand that a problem uses.
type Memory [gemm.Operands]device.Ptr

// MaxGridRows is the maximum size of a grid along y, and along z.
const MaxGridRows = 65535

// TileGrid returns a grid with one block per tile of C. Columns of tiles are along x. Rows of tiles
// are along y and, if there are more than [MaxGridRows], also along z. With split-K the parts of K
// are along z, and in a strided batch the products are.
func TileGrid(p *gemm.Problem, s Tile) (device.Dim3, error) {
	rows, cols := Tiles(p.M, s.M), Tiles(p.N, s.N)
	switch p.Batch.Kind {
	case gemm.Grouped:
		rows = MaxTileRows(p, s.M)
	case gemm.Strided:
		if max(rows, p.Batch.Count) > MaxGridRows {
			return device.Dim3{}, fmt.Errorf("%w: a batch of %d products of %d rows in tiles of %d×%d: want at most %d "+
				"products, and rows of tiles",
				gemm.ErrUnsupported, p.Batch.Count, p.M, s.M, s.N, MaxGridRows)
		}
		return device.Dim3{X: cols, Y: rows, Z: p.Batch.Count}, nil
	}
	z := ints.CeilDiv(rows, MaxGridRows)
	if s.SplitK > 1 {
		if z > 1 {
			return device.Dim3{}, fmt.Errorf("%w: C of %d rows in tiles of %d×%d with split-K: want at most %d rows of tiles",
				gemm.ErrUnsupported, p.M, s.M, s.N, MaxGridRows)
		}
		return device.Dim3{X: cols, Y: rows, Z: SplitBlocks(p, s)}, nil
	}
	if cols > 1<<31-1 || z > MaxGridRows {
		return device.Dim3{}, fmt.Errorf("%w: C of %d×%d in tiles of %d×%d takes more blocks than a grid has",
			gemm.ErrUnsupported, p.M, p.N, s.M, s.N)
	}
	return device.Dim3{X: cols, Y: ints.CeilDiv(rows, z), Z: z}, nil
}

// Tiles returns the number of tiles, or of steps, of a length along a side. It is at least 1: an
// empty product is planned like one of a single tile.
func Tiles(side, length int) int { return max(ints.CeilDiv(side, length), 1) }

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
