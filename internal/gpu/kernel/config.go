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

// Config is everything that a kernel's text depends on: equal Configs, equal texts.
type Config struct {
	In, Out        dtype.Type
	TransA, TransB bool
	// Wide says that sizes need more than 31 bits: indices then have 64.
	Wide     bool
	Epilogue gemm.Epilogue
	// ScaleA and ScaleB are how many rows of op(A) and columns of op(B) share a block scale; 0
	// without.
	ScaleA, ScaleB int
	// Precision is the arithmetic.
	Precision gemm.Precision
	// Batch is what products the launch has.
	Batch gemm.BatchKind
	Tile  Tile
	// VecA, VecB and VecC are how many consecutive elements of each a thread moves
	// at once. Rows of the matrix, their length and their start, must be multiples.
	VecA, VecB, VecC int
	// Factor is the type of the matrix that the epilogue of a gated product is multiplied by, where
	// that was computed by another launch; none where the kernel computes both factors.
	Factor dtype.Type
	// VecD is that of the residual, at the most; 0 without one.
	VecResidual int
	// SM is the architecture whose instructions the text may use, 90 for sm_90; 0 stands
	// for the least that the kernel runs on.
	SM int
	// Overlaps says that the text waits for what was launched before it (sm_90), so that it
	// may be launched while that still runs: what a launch costs is hidden then.
	PDL bool
	// Lines says that the text names the lines of Go that wrote it, as findings of the
	// emulator's checkers are to show.
	Lines bool
}

// scaleType is the type of alpha, beta and the epilogue.
func (c *Config) scaleType() dtype.Type { return c.In.Info().ScaleType(c.Out) }

// Shape is the sizes of a kernel's tiles.
type Tile struct {
	M, N int // the part of C that a block computes, see tile
	K    int // how far a block goes along K in one step; 0 where it has no steps
	// RowsPerThread and ColsPerThread are the part of that which a thread computes.
	RowsPerThread, ColsPerThread int
	// Stages is how many steps' tiles there are room for in shared memory; 0 where the
	// kernel leaves no choice.
	Stages int
	// Turned says that a block computes its part of C's transpose, Bᵀ·Aᵀ: M are columns of C
	// and N rows, see turned.
	SwapAB bool
	// Cluster is how many blocks, one below the other, load tiles of B for each other; 0
	// and 1 are none.
	ClusterM int
	// Along is how many blocks of a cluster share out K; they add up what each has summed
	// in each other's shared memory. 0 and 1 are none.
	ClusterK int
	// Split is how many parts K is cut into, each with blocks of its own; what they sum
	// is added in a second launch. 0 and 1 are none.
	SplitK int
}

// String is the shape as [Kernel.ParseShape] reads it: "16", "128x128x8/8x8", with
// stages "128x128x16/8x8/4", with clusters "128x256x64/2x64/4c2", with clusters along K
// "64x64x64/2x16/8k4" and, with K split, "128x128x16/8x8/4*12".
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
	if s.ClusterM > 1 {
		text += fmt.Sprintf("c%d", s.ClusterM)
	}
	if s.ClusterK > 1 {
		text += fmt.Sprintf("k%d", s.ClusterK)
	}
	if s.SplitK > 1 {
		text += fmt.Sprintf("*%d", s.SplitK)
	}
	return text
}

// tile is the rows and columns of C that a block computes.
func (s Tile) SizeInC() (rows, cols int) {
	return SwapAB(s, s.M, s.N)
}

func (s Tile) single() bool { return s.RowsPerThread == 1 && s.ColsPerThread == 1 }

// ParseShape reads a shape of the kernel's: "32" for a tile of 32×32 with a thread
// for each element, "MxNxK/RxC", or "MxNxK/RxC/S" for a kernel with stages; behind it "t" turns it,
// "cB" has clusters of B blocks, "kB" has such that share out K, and "*P" splits K into P
// parts. The error is ErrUnsupported.
func (k *Kernel) ParseTile(text string) (Tile, error) {
	s := k.Tiles[0]
	tile, parts, split := strings.Cut(text, "*")
	if split {
		n, err := strconv.Atoi(parts)
		if err != nil || n < 1 || n > MaxGridRows || !k.SplitsK {
			return Tile{}, fmt.Errorf("%w: kernel %s with K split %q times", gemm.ErrUnsupported, k.Name, parts)
		}
		s.SplitK = n
	}
	s.ClusterM, s.ClusterK = 0, 0
	for _, c := range []struct {
		letter string
		blocks *int
	}{{"k", &s.ClusterK}, {"c", &s.ClusterM}} {
		before, blocks, clustered := strings.Cut(tile, c.letter)
		if !clustered {
			continue
		}
		n, err := strconv.Atoi(blocks)
		if err != nil || n < 2 || !k.HasClusters() {
			return Tile{}, fmt.Errorf("%w: kernel %s with clusters of %q blocks", gemm.ErrUnsupported, k.Name, blocks)
		}
		tile, *c.blocks = before, n
	}
	if tile, s.SwapAB = strings.CutSuffix(tile, "t"); s.SwapAB && !k.HasSwapAB() {
		return Tile{}, fmt.Errorf("%w: kernel %s with tile %q, which is turned", gemm.ErrUnsupported, k.Name, text)
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
			return Tile{}, fmt.Errorf("%w: %q is no shape of kernel %s (want one like %s)", gemm.ErrUnsupported, text, k.Name, k.tileNames())
		}
	}
	return s, k.CheckTile(s)
}

// clusters says whether the kernel has shapes with clusters.
func (k *Kernel) HasClusters() bool {
	return slices.ContainsFunc(k.Tiles, func(s Tile) bool { return s.ClusterM > 1 })
}

// turns says whether the kernel has turned shapes.
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

// Config is the way to compute p with tiles of that shape.
func (k *Kernel) Config(p *gemm.Problem, s Tile) Config {
	q, _ := k.Repack(p, s, Align{})
	c := Config{
		In: p.In(), Out: p.Out(), TransA: q.A().Trans, TransB: q.B().Trans,
		Wide: max(p.M, p.N, p.K) > 1<<31-1, Epilogue: p.Epilogue, Precision: p.Precision,
		Batch: p.Batch.Kind, Tile: s, VecA: 1, VecB: 1, VecC: 1,
	}
	c.ScaleA, c.ScaleB = p.ScaleSides()
	if k.SetVectors != nil {
		k.SetVectors(s, &c, &q)
	}
	if p.Epilogue.Gated && !k.GatesInOneLaunch {
		c.Factor = p.ScaleType()
	}
	if p.Epilogue.Residual {
		c.VecResidual = VectorLen(p.Layouts[gemm.Residual], MaxVectorBytes/c.Out.Size())
	}
	c.LimitVectors(batchAlign(p))
	return c
}

// For is c with the best instructions that the kernel has for a device of that target.
func (k *Kernel) For(c Config, t ptx.Target) Config {
	c.SM = 0
	for _, sm := range k.BetterSM {
		if sm <= t.SM {
			c.SM = sm
		}
	}
	return c
}

// vector is how many elements of a matrix's rows can be moved at once, at most n and
// at most 16 bytes.
func VectorLen(l gemm.Layout, n int) int {
	n = min(n, MaxVectorBytes/l.Type.Size())
	for n > 1 && (l.LD%n != 0 || l.Cols%n != 0) {
		n /= 2
	}
	return n
}

// maxVector is the most bytes that one instruction moves for a thread.
const MaxVectorBytes = 16

// narrow makes the vectors as short as the matrices' alignment asks.
func (c *Config) LimitVectors(a Align) {
	for _, x := range []struct {
		vec         *int
		align, size int
	}{
		{&c.VecA, a[gemm.A], c.In.Size()}, {&c.VecB, a[gemm.B], c.In.Size()},
		{&c.VecC, a[gemm.C], c.Out.Size()}, {&c.VecResidual, a[gemm.Residual], c.Out.Size()},
	} {
		if x.align > 0 && *x.vec > 0 {
			*x.vec = max(1, min(*x.vec, x.align/x.size))
		}
	}
}

// checkAligned returns ErrUnsupported if a matrix does not start at a multiple of the vectors in
// which it is moved. A vector of no elements is that of a matrix that the launch does not read.
func (c *Config) checkAligned(m *Memory) error {
	for _, x := range []struct {
		operand gemm.Operand
		bytes   int
	}{
		{gemm.A, c.VecA * c.In.Size()}, {gemm.B, c.VecB * c.In.Size()}, {gemm.Up, c.VecB * c.In.Size()},
		{gemm.C, c.VecC * c.Out.Size()}, {gemm.Residual, c.VecResidual * c.Out.Size()},
	} {
		if at := uint64(m[x.operand]); x.bytes > 0 && at%uint64(x.bytes) != 0 {
			return fmt.Errorf("%w: %s at address %#x, want a multiple of %d", gemm.ErrUnsupported, x.operand.Phrase(), at, x.bytes)
		}
	}
	return nil
}

// String is the configuration in one line.
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

// turned says which of two, one of A or of C's rows, the other of B or of C's columns, is the left operand's
// and which the right one's. It leads back, too.
func SwapAB[T any](s Tile, a, b T) (left, right T) {
	if s.SwapAB {
		return b, a
	}
	return a, b
}

// cluster is the blocks of a cluster that load tiles of B for each other, and along those
// that share out K.
func (s Tile) BlocksM() int { return max(s.ClusterM, 1) }

func (s Tile) BlocksK() int { return max(s.ClusterK, 1) }
