package kernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tilework/dtype"
	"tilework/internal/gemm"
	"tilework/ptx"
)

// Config determines a kernel's PTX: equal Configs give equal PTX.
type Config struct {
	In, Out        dtype.Type
	TransA, TransB bool
	// Wide reports whether a size needs more than 31 bits. Indices then have 64 bits.
	Wide     bool
	Epilogue gemm.Epilogue
	// UnsignedA and UnsignedB report whether A and B hold uint8. The kernel reads copies as int8.
	UnsignedA, UnsignedB bool
	// ScaleA and ScaleB are the numbers of rows of op(A) and of columns of op(B) that share a block
	// scale. They are 0 without block scales.
	ScaleA, ScaleB int
	// Precision is the arithmetic that multiplies elements.
	Precision gemm.Precision
	// RowInvariant reports whether the bits of the product are the same on every GPU of an
	// architecture; see [gemm.Invariance].
	RowInvariant bool
	// Batch is the kind of batch that a launch computes.
	Batch gemm.BatchKind
	Tile  Tile
	// VecA, VecB and VecC are the numbers of consecutive elements that one instruction of a thread
	// moves. The matrix's rows begin at multiples of that many elements. Except for asynchronous
	// copies their lengths are multiples as well.
	VecA, VecB, VecC int
	// Factor is the type of the matrix that the epilogue of a gated product multiplies by, if
	// another launch computed that factor. It is unset if the kernel computes both factors.
	Factor dtype.Type
	// VecResidual is the maximum vector length for the residual; 0 without one.
	VecResidual int
	// SM is the architecture whose instructions the PTX may use, 90 for sm_90. 0 means the minimum
	// that the kernel runs on.
	SM int
	// PDL reports whether the kernel uses programmatic dependent launch (sm_90): it can be launched
	// while its predecessor still runs, which hides the launch latency, and waits for the
	// predecessor with griddepcontrol.wait.
	PDL bool
	// Lines reports whether the PTX names the lines of Go that wrote it, which the findings of the
	// emulator's checkers show.
	Lines bool
}

// Accum returns the type of the accumulators.
func (c *Config) Accum() dtype.Type { return c.In.Info().Accum }

// scaleType returns the type of alpha, beta and the epilogue.
func (c *Config) scaleType() dtype.Type { return c.In.Info().ScaleType(c.Out) }

// Tile holds the sizes of the tile that a block computes, and the way it computes it.
type Tile struct {
	M, N int // the block's tile: rows and columns of C, or of its transpose with SwapAB
	K    int // elements along K that a block multiplies per step; 0 for a kernel without steps
	// RowsPerThread and ColsPerThread are the size of a thread's part of the tile.
	RowsPerThread, ColsPerThread int
	// Stages is the number of steps whose tiles of A and B fit in shared memory at the same time; 0
	// if the kernel fixes it.
	Stages int
	// SwapAB reports whether a block computes a tile of Cᵀ = Bᵀ·Aᵀ. M then counts columns of C and
	// N rows; see [SwapAB].
	SwapAB bool
	// StreamK reports whether persistent blocks divide the steps of the last tiles evenly. A block
	// stores its accumulators of a tile's first steps, and the next block continues with them, so
	// the bits are those of an undivided K.
	StreamK bool
	// ClusterM is the number of blocks in a cluster that are adjacent along M and multicast tiles
	// of B to each other, and ClusterN that of blocks that are adjacent along N and multicast tiles
	// of A. The cluster has ClusterM·ClusterN blocks. 0 and 1 mean one block.
	ClusterM, ClusterN int
	// ClusterK is the number of blocks in a cluster that partition K. They reduce their
	// accumulators through distributed shared memory. 0 and 1 mean no cluster.
	ClusterK int
	// SplitK is the number of parts that K is split into, each with its own blocks. A second launch
	// sums the partial sums. 0 and 1 mean no split.
	SplitK int
	// SerialK is the number of parts of K that a block multiplies one after the other or, in a kernel
	// that partitions K among its threads, each in other threads. It adds their sums itself, in the
	// order and with the bits of SplitK. With SplitK, each block has that number of parts, and the
	// second launch adds the sums of all. 0 and 1 mean one sum over all of K.
	SerialK int
}

// String returns the tile in the form that [Kernel.ParseTile] reads: "16" or "128x128x8/8x8"; with
// stages "128x128x16/8x8/4"; with a cluster along M "128x256x64/2x64/4c2", and along M and N
// "128x256x64/2x64/4c2x2"; with a cluster along K "64x64x64/2x16/8k4"; with split-K
// "128x128x16/8x8/4*12"; with serial parts of K "128x128x16/8x8/4+12"; with stream-K
// "128x256x64/2x64/4s".
func (s Tile) String() string {
	if s.single() && s.M == s.N {
		return strconv.Itoa(s.M)
	}
	text := fmt.Sprintf("%dx%dx%d/%dx%d", s.M, s.N, s.K, s.RowsPerThread, s.ColsPerThread)
	if s.Stages > 0 {
		text += fmt.Sprintf("/%d", s.Stages)
	}
	if s.SwapAB {
		text += "t"
	}
	if s.StreamK {
		text += "s"
	}
	switch {
	case s.ClusterN > 1:
		text += fmt.Sprintf("c%dx%d", s.BlocksM(), s.ClusterN)
	case s.ClusterM > 1:
		text += fmt.Sprintf("c%d", s.ClusterM)
	}
	if s.ClusterK > 1 {
		text += fmt.Sprintf("k%d", s.ClusterK)
	}
	if s.SplitK > 1 {
		text += fmt.Sprintf("*%d", s.SplitK)
	}
	if s.SerialK > 1 {
		text += fmt.Sprintf("+%d", s.SerialK)
	}
	return text
}

// SizeInC returns the number of rows and columns of C that a block computes.
func (s Tile) SizeInC() (rows, cols int) {
	return SwapAB(s, s.M, s.N)
}

func (s Tile) single() bool { return s.RowsPerThread == 1 && s.ColsPerThread == 1 }

// ParseTile parses a tile of the kernel: "32" for a 32×32 tile with one thread per element,
// "MxNxK/RxC", or "MxNxK/RxC/S" for a kernel with stages. A suffix "t" means swapAB, "s" stream-K,
// "cB" clusters of B blocks along M, "cBxD" clusters of B blocks along M and D along N, "kB"
// clusters of B blocks that partition K, "*P" split-K in P parts, and "+P" P serial parts. The
// error is ErrUnsupported.
func (k *Kernel) ParseTile(text string) (Tile, error) {
	s, tile := k.Tiles[0], text
	for _, c := range []struct {
		mark, name string
		parts      *int
	}{{"+", "serial parts", &s.SerialK}, {"*", "split-K", &s.SplitK}} {
		before, parts, cut := strings.Cut(tile, c.mark)
		if !cut {
			continue
		}
		n, err := strconv.Atoi(parts)
		if err != nil || n < 1 || n > MaxGridRows || !k.SplitsK {
			return Tile{}, fmt.Errorf("%w: kernel %s with %s %q", gemm.ErrUnsupported, k.Name, c.name, parts)
		}
		tile, *c.parts = before, n
	}
	s.ClusterM, s.ClusterN, s.ClusterK = 0, 0, 0
	for _, c := range []struct {
		letter string
		sides  []*int
	}{{"k", []*int{&s.ClusterK}}, {"c", []*int{&s.ClusterM, &s.ClusterN}}} {
		before, blocks, clustered := strings.Cut(tile, c.letter)
		if !clustered {
			continue
		}
		if !parseCluster(blocks, c.sides) || !k.HasClusters() {
			return Tile{}, fmt.Errorf("%w: kernel %s with clusters of %q blocks", gemm.ErrUnsupported, k.Name, blocks)
		}
		tile = before
	}
	if tile, s.StreamK = strings.CutSuffix(tile, "s"); s.StreamK && !k.StreamsK {
		return Tile{}, fmt.Errorf("%w: kernel %s with stream-K in tile %q", gemm.ErrUnsupported, k.Name, text)
	}
	if tile, s.SwapAB = strings.CutSuffix(tile, "t"); s.SwapAB && !k.HasSwapAB() {
		return Tile{}, fmt.Errorf("%w: kernel %s with swapAB in tile %q", gemm.ErrUnsupported, k.Name, text)
	}
	if n, err := strconv.Atoi(tile); err == nil && s.single() {
		s.M, s.N = n, n
		if s.K > 0 {
			s.K = n
		}
	} else {
		var rest string
		format, into := "%dx%dx%d/%dx%d", []any{&s.M, &s.N, &s.K, &s.RowsPerThread, &s.ColsPerThread}
		if s.Stages > 0 {
			format, into = format+"/%d", append(into, &s.Stages)
		}
		n, _ := fmt.Sscanf(tile+" .", format+" %s", append(into, &rest)...)
		if n != len(into)+1 || rest != "." {
			return Tile{}, fmt.Errorf("%w: %q is not a tile of kernel %s (want one like %s)", gemm.ErrUnsupported, text, k.Name,
				k.tileNames())
		}
	}
	return s, k.checkTile(s)
}

// parseCluster reads the numbers of blocks of a cluster along one side, as in "4", or along
// several, as in "2x2". It reports whether text is valid, which requires a last number of more
// than 1.
func parseCluster(text string, sides []*int) bool {
	last := 0
	for n, size := range strings.Split(text, "x") {
		blocks, err := strconv.Atoi(size)
		if err != nil || n == len(sides) || blocks < 1 {
			return false
		}
		*sides[n], last = blocks, blocks
	}
	return last > 1
}

// HasClusters reports whether the kernel has tiles with clusters.
func (k *Kernel) HasClusters() bool {
	return slices.ContainsFunc(k.Tiles, func(s Tile) bool { return s.ClusterM > 1 })
}

// HasSwapAB reports whether the kernel has tiles with swapAB.
func (k *Kernel) HasSwapAB() bool {
	return slices.ContainsFunc(k.Tiles, func(s Tile) bool { return s.SwapAB })
}

func (k *Kernel) tileNames() string {
	names := make([]string, len(k.Tiles))
	for i, s := range k.Tiles {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

// Config returns the configuration that computes p with tile s.
func (k *Kernel) Config(p *gemm.Problem, s Tile) Config {
	packed, _ := k.Repack(p, s, Align{})
	c := Config{
		In: p.In().Signed(), Out: p.Out(), TransA: packed.A().Trans, TransB: packed.B().Trans,
		Wide: max(p.M, p.N, p.K) > 1<<31-1, Epilogue: p.Epilogue, Precision: p.Precision,
		RowInvariant: p.Invariance != gemm.NotInvariant,
		Batch:        p.Batch.Kind, Tile: s, VecA: 1, VecB: 1, VecC: 1,
	}
	c.UnsignedA, c.UnsignedB = p.In() == dtype.U8, p.B().Type == dtype.U8
	c.ScaleA, c.ScaleB = p.ScaleSides()
	if k.SetVectors != nil {
		k.SetVectors(&c, p)
	}
	if p.Epilogue.Gated && !k.GatesInOneLaunch {
		c.Factor = p.ScaleType()
	}
	if p.Epilogue.Residual {
		c.VecResidual = VectorLen(p.Layouts[gemm.Residual], c.Out.Elements(MaxVectorBytes))
	}
	c.LimitVectors(batchAlign(p))
	return c
}

// For returns c with the best instructions that the kernel has for target t.
func (k *Kernel) For(c Config, t ptx.Target) Config {
	c.SM = 0
	for _, sm := range k.BetterSM {
		if sm <= t.SM {
			c.SM = sm
		}
	}
	return c
}

// VectorLen returns the number of elements of a matrix's rows that one instruction can move: a
// power of two, at most n, and at most 16 bytes.
func VectorLen(l gemm.Layout, n int) int {
	n = min(n, l.Type.Elements(MaxVectorBytes))
	for n > 1 && (l.LD%n != 0 || l.Cols%n != 0) {
		n /= 2
	}
	return n
}

// MaxVectorBytes is the maximum number of bytes that one instruction moves for a thread.
const MaxVectorBytes = 16

// LimitVectors shortens the vectors to the alignment of the matrices.
func (c *Config) LimitVectors(a Align) {
	for _, x := range []struct {
		vec     *int
		align   int
		element dtype.Type
	}{
		{&c.VecA, a[gemm.A], c.In}, {&c.VecB, a[gemm.B], c.In},
		{&c.VecC, a[gemm.C], c.Out}, {&c.VecResidual, a[gemm.Residual], c.Out},
	} {
		if x.align > 0 && *x.vec > 0 {
			*x.vec = max(1, min(*x.vec, x.element.Elements(x.align)))
		}
	}
}

// CapVectors shortens the vectors to those of another configuration.
func (c *Config) CapVectors(o *Config) {
	c.VecA, c.VecB = min(c.VecA, o.VecA), min(c.VecB, o.VecB)
	c.VecC, c.VecResidual = min(c.VecC, o.VecC), min(c.VecResidual, o.VecResidual)
}

// checkAligned returns ErrUnsupported if the address of a matrix is not a multiple of its vector
// size. A vector length of 0 belongs to a matrix that the launch does not read.
func (c *Config) checkAligned(m *Memory) error {
	for _, x := range []struct {
		operand gemm.Operand
		bytes   int
	}{
		{gemm.A, c.In.Bytes(c.VecA)}, {gemm.B, c.In.Bytes(c.VecB)}, {gemm.Up, c.In.Bytes(c.VecB)},
		{gemm.C, c.Out.Bytes(c.VecC)}, {gemm.Residual, c.Out.Bytes(c.VecResidual)},
	} {
		if at := uint64(m[x.operand]); x.bytes > 0 && at%uint64(x.bytes) != 0 {
			return fmt.Errorf("%w: %s at address %#x: want a multiple of %d", gemm.ErrUnsupported, x.operand.Phrase(), at,
				x.bytes)
		}
	}
	return nil
}

// String returns the configuration in one line.
func (c Config) String() string {
	s := c.In.Info().Short
	if c.Out != c.In {
		s += "->" + c.Out.Info().Short
	}
	op := func(trans bool) string {
		if trans {
			return "T"
		}
		return "N"
	}
	if c.Precision != gemm.Native {
		s += " in " + c.Precision.String()
	}
	s += " " + op(c.TransA) + op(c.TransB) + ", tile " + c.Tile.String()
	if c.VecA*c.VecB*c.VecC > 1 {
		s += fmt.Sprintf(", vectors of %d, %d and %d", c.VecA, c.VecB, c.VecC)
	}
	if c.SM > 0 {
		s += fmt.Sprintf(", for sm_%d", c.SM)
	}
	if c.Wide {
		s += ", 64-bit indices"
	}
	if c.RowInvariant {
		s += ", row-invariant"
	}
	if c.ScaleA > 0 {
		s += fmt.Sprintf(", block scales of %d rows and %d columns", c.ScaleA, c.ScaleB)
	}
	if c.Epilogue != (gemm.Epilogue{}) {
		s += ", " + c.Epilogue.String()
	}
	if c.Factor.Valid() {
		s += ", its other factor by a launch before"
	}
	switch c.Batch {
	case gemm.Strided:
		s += ", a batch"
	case gemm.Grouped:
		s += ", groups of rows"
	}
	return s
}

// SwapAB returns a and b in the order of the left and right operand of the product that a block
// computes: exchanged if s has swapAB. The value a belongs to A or to the rows of C, and b belongs
// to B or to the columns of C. SwapAB is its own inverse.
func SwapAB[T any](s Tile, a, b T) (left, right T) {
	if s.SwapAB {
		return b, a
	}
	return a, b
}

// IsRagged reports whether a right operand of 16 bits must be K-major, because N is no multiple of
// 64, the number of columns in which TMA loads an MN-major one. Without swapAB, tiles of 16 and 32
// columns have room for 64.
func (s Tile) IsRagged() bool { return s.N%64 != 0 && (s.SwapAB || s.N != 16 && s.N != 32) }

// BlocksM returns the number of blocks in a cluster along M, at least 1.
func (s Tile) BlocksM() int { return max(s.ClusterM, 1) }

// BlocksN returns the number of blocks in a cluster along N, at least 1.
func (s Tile) BlocksN() int { return max(s.ClusterN, 1) }

// BlocksK returns the number of blocks in a cluster that partition K, at least 1.
func (s Tile) BlocksK() int { return max(s.ClusterK, 1) }

// Multicasts reports whether the blocks of a cluster load tiles together.
func (s Tile) Multicasts() bool { return s.BlocksM()*s.BlocksN() > 1 }

// ClusterBlocks returns the number of blocks in a cluster, at least 1.
func (s Tile) ClusterBlocks() int { return s.BlocksM() * s.BlocksN() * s.BlocksK() }

// PartsOfK returns the number of parts of K that are summed on their own, at least 1.
func (s Tile) PartsOfK() int { return s.BlocksK() * max(s.SplitK, 1) * max(s.SerialK, 1) }
