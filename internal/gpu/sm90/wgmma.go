// Package sm90 holds the wgmma kernel for Hopper: a producer warp loads tiles of A and B with
// TMA into a ring of stages, consumer warpgroups multiply them on the tensor cores,
// cooperatively or ping-pong, and the epilogue is stored with TMA where C allows it.
package sm90

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/build"
)

// wgmma multiplies as Hopper was made to: a thread of the first warpgroup has the copy
// engine bring tiles of 128 bytes along K into a pipe of stages, and two more warpgroups
// have the tensor cores multiply them out of shared memory. Nobody meets at a barrier:
// mbarriers say that a stage is full, or empty again. A block stays on its SM and computes
// tile after tile; while one's sums go to C the next one's operands come.
//
// What limits it: the tensor cores, and the power that they may draw.
var WGMMA = &kernel.Kernel{
	Name:             "wgmma",
	Adds:             "feeds wgmma by bulk copies of tiles: a warpgroup that loads, two that multiply, blocks that stay",
	SM:               90,
	Suffix:           "a",
	Tensor:           true,
	SplitsK:          true,
	NativeTypes:      []dtype.Type{dtype.BF16, dtype.F16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8},
	PrecisionTypes:   map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}, gemm.F32x3: {dtype.F32}, gemm.Fast: {dtype.F8E4M3, dtype.F8E5M2}},
	AccuracyFor:      accuracy,
	Tiles:            TileList(),
	CheckTile:        checkTile,
	CheckProblem:     checkProblem,
	BlockScales:      true,
	GatesInOneLaunch: true,
	TMA:              true,
	CheckFit:         checkFit,
	SetVectors:       setVectors,
	BlockThreads:     func(s kernel.Tile) device.Dim3 { return device.Dim3{X: blockThreads(s), Y: 1, Z: 1} },
	SharedFor:        sharedBytes,
	GridFor:          Grid,
	TensorMaps:       tensorMaps,
	AccessLimits:     accessLimits,
	Write:            write,
	EmitsPDLWait:     true,
}

const (
	WarpgroupThreads = 128 // of a warpgroup
	WarpgroupRows    = 64  // of A, that one instruction multiplies
)

// consumers is how many warpgroups multiply: as many as the tile has parts for, or two that
// take turns.
func Consumers(s kernel.Tile) int {
	rows, _ := WarpgroupTile(s)
	return max(s.M/rows, 2)
}

func blockThreads(s kernel.Tile) int { return (1 + Consumers(s)) * WarpgroupThreads }

// groupRegisters are the registers of a thread that loads and of one that multiplies:
// together what the block began with.
func warpgroupRegisters(c kernel.Config) (loads, multiplies int) {
	switch {
	case Consumers(c.Tile) > 2:
		return 32, 160
	case len(ArithmeticOf(c.In, c.Precision).Terms) > 1: // where those that load have to find
		return 40, 232
	}
	return 24, 240
}

// groupTile is the part of C that a warpgroup has in its registers: a thread of it has two
// rows of every 64, and of those every other pair of 8 columns.
func WarpgroupTile(s kernel.Tile) (rows, cols int) {
	return s.RowsPerThread * frag.Lanes, s.ColsPerThread * frag.Quad
}

// rowsOfTile is how many of a warpgroup's rows are the tile's, of every 64.
func rowsOfTile(s kernel.Tile) int { return min(s.M, WarpgroupRows) }

// inTurns says that a tile is one warpgroup's: the two then take turns, and while one
// writes its part of C the other has the tensor cores.
func PingPong(s kernel.Tile) bool {
	rows, _ := WarpgroupTile(s)
	return s.M <= rows
}

func checkTile(s kernel.Tile) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: kernel wgmma with tile %v: %s", gemm.ErrUnsupported, s, fmt.Sprintf(format, args...))
	}
	rows, cols := WarpgroupTile(s)
	switch {
	case s.RowsPerThread != 2 && s.RowsPerThread != 4:
		return bad("a thread has 2 or 4 rows")
	case s.N != 16 && s.N != 32 && s.N != 64 && s.N != 128 && s.N != 192 && s.N != 256:
		return bad("N is 16, 32, 64, 128, 192 or 256")
	case cols != s.N:
		return bad("a thread has a quarter of the columns, %d", s.N/frag.Quad)
	case s.RowsPerThread*s.ColsPerThread > 128 || s.M > 2*rows && s.RowsPerThread*s.ColsPerThread > 96:
		return bad("a thread has registers for 128 sums, of three warpgroups for 96")
	case s.M != rows && s.M != 2*rows && s.M != 3*rows && (rows != WarpgroupRows || s.M != rows/2 && s.M != rows/4):
		return bad("M is %d, a warpgroup's rows, or two or three times that, or of 64 rows the first 32 or 16", rows)
	case s.K != frag.SwizzleBytes && s.K != frag.SwizzleBytes/2 && s.K != frag.SwizzleBytes/4:
		return bad("K is what 128 bytes hold, 32, 64 or 128")
	case s.Stages < 2 || s.Stages > 16:
		return bad("%d stages: want 2 to 16", s.Stages)
	case s.N < 64 && s.BlocksM()*s.BlocksK() > 1:
		return bad("a cluster of tiles with %d columns", s.N)
	case s.ClusterM > 4 || s.N >= 64 && s.N%(s.BlocksM()*32) != 0:
		return bad("a cluster of %d blocks: want up to 4, of which each loads 32 columns or a multiple", s.ClusterM)
	case s.ClusterK > 1 && (s.ClusterK != 2 && s.ClusterK != 4 && s.ClusterK != 8 || s.ClusterM > 1 || s.SplitK > 1):
		return bad("a cluster of %d blocks along K: want 2, 4 or 8, no other cluster, and no further parts", s.ClusterK)
	case s.SwapAB && (s.M < WarpgroupRows || s.ClusterK > 1):
		return bad("turned tiles have at least %d columns of C, and K for themselves", WarpgroupRows)
	case rowsOfTile(s)%(s.BlocksK()*WarpgroupThreads/frag.Lanes) != 0:
		return bad("%d blocks cannot share out %d rows", s.ClusterK, s.M)
	}
	return nil
}

func checkProblem(p *gemm.Problem) error {
	// Coordinates of boxes, which may lie a tile outside, have 32 bits and a sign, and of
	// parts that stand side by side the last one's do.
	most := (1<<31 - 1024) / len(ArithmeticOf(p.In(), p.Precision).Terms)
	if max(p.M, p.N, p.K) > most {
		return fmt.Errorf("%w: kernel wgmma on a side of more than %d", gemm.ErrUnsupported, most)
	}
	if p.BlockScaled() && len(ArithmeticOf(p.In(), p.Precision).Promotions) == 0 {
		return fmt.Errorf("%w: kernel wgmma with block scales in precision %v: the tensor cores keep all sums", gemm.ErrUnsupported, p.Precision)
	}
	return nil
}

func checkFit(p *gemm.Problem, s kernel.Tile) error {
	r := ArithmeticOf(p.In(), p.Precision)
	if s.SwapAB {
		if err := CheckSwapAB(p); err != nil {
			return err
		}
	}
	if n := frag.SwizzleBytes / r.Elem.Bytes(); s.K != n {
		return fmt.Errorf("%w: kernel wgmma with tile %v: K is %d for %v", gemm.ErrUnsupported, s, n, p.In())
	}
	if Consumers(s) > 2 && len(r.Promotions) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for sums of %v beside its own", gemm.ErrUnsupported, s, p.In())
	}
	if _, side := p.ScaleSides(); side > 0 && s.RowsPerThread > 2 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for block scales of %d rows", gemm.ErrUnsupported, s, s.RowsPerThread)
	} else if side == 1 && s.RowsPerThread*s.ColsPerThread > 64 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for block scales of each column", gemm.ErrUnsupported, s)
	}
	if Consumers(s) > 2 && kernel.CountOperands(p.Epilogue) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread of three warpgroups has no registers for what epilogue %v reads", gemm.ErrUnsupported, s, p.Epilogue)
	}
	if len(r.Terms) > 1 && s.N > 2*WarpgroupRows && kernel.CountOperands(p.Epilogue) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for what epilogue %v reads beside sums of %v", gemm.ErrUnsupported, s, p.Epilogue, p.Precision)
	}
	if s.RowsPerThread > 2 && len(r.Terms) > 1 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for sums of %v", gemm.ErrUnsupported, s, p.Precision)
	}
	if p.Epilogue.Gated {
		// Half of the columns are whole patches of C, and of a B that runs across K whole boxes.
		q, _ := kernel.Repack(p, s, kernel.Align{})
		whole := s.N == 2*WarpgroupRows || s.N == 4*WarpgroupRows || s.N == WarpgroupRows && q.B().Trans
		if !whole || s.SplitK > 1 || s.ClusterK > 1 {
			return fmt.Errorf("%w: kernel wgmma with tile %v: a gated product takes tiles of 128 or 256 columns, or of 64 where B runs along K, and K whole", gemm.ErrUnsupported, s)
		}
	}
	if s.Stages < len(r.Terms) {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a step of %v takes %d stages", gemm.ErrUnsupported, s, p.Precision, len(r.Terms))
	}
	return nil
}

func setVectors(_ kernel.Tile, c *kernel.Config, p *gemm.Problem) {
	c.VecA, c.VecB = kernel.MaxVectorBytes/c.In.Size(), kernel.MaxVectorBytes/c.In.Size()
	c.VecC = kernel.VectorLen(p.Layouts[gemm.C], kernel.MaxVectorBytes/p.Out().Size())
}

// bulk reports whether C is written by bulk copies, which take whole vectors and rows of 128
// bytes. 8-bit elements are written from a patch of sums, as a thread has only two neighbours of
// a row. In a turned product it has none: elements of 16 bits, and those with operands in the
// epilogue, are then written from a patch too.
func StoresWithTMA(c kernel.Config) bool {
	if c.Tile.SwapAB && (kernel.CountOperands(c.Epilogue) > 0 || c.Out.Size() < 4) {
		return false
	}
	_, cols := kernel.SwapAB(c.Tile, c.Tile.M, c.ColumnsOfC())
	return c.Out.Size() > 1 && c.VecC*c.Out.Size() == kernel.MaxVectorBytes && c.Tile.SplitK < 2 && c.Tile.ClusterK < 2 && cols*c.Out.Size() >= frag.SwizzleBytes
}

// bulkResidual says that the residual comes by bulk copies, to where C's elements go; not
// where rows of a patch are nobody's, and would be read before they are written.
func loadsResidualWithTMA(c kernel.Config) bool {
	return StoresWithTMA(c) && c.Epilogue.Residual && c.VecResidual*c.Out.Size() == kernel.MaxVectorBytes && rowsOfTile(c.Tile) == WarpgroupRows
}

// operandBoxes are the shapes of the tiles of the left operand and of the right one.
func operandBoxes(c kernel.Config) (a, b frag.BoxShape) {
	s, elem := c.Tile, ArithmeticOf(c.In, c.Precision).stored()
	alongA, alongB := kernel.SwapAB(s, !c.TransA, c.TransB)
	a = frag.BoxShape{Elem: elem, Side: max(s.M, WarpgroupRows), Loaded: s.M, Stages: s.Stages, KMajor: alongA, Multicast: 1}
	b = frag.BoxShape{Elem: elem, Side: s.N, Loaded: s.N, Stages: s.Stages, KMajor: alongB, Multicast: s.BlocksM()}
	if c.ComputesGate() {
		b.Matrices = 2
	}
	if !b.KMajor && elem.Bytes() == 2 {
		b.Side = max(s.N, b.Depth()) // a whole box
	}
	return a, b
}

func sharedBytes(c kernel.Config) int {
	a, b := operandBoxes(c)
	n := c.Tile.Stages * (a.StageBytes() + b.StageBytes())
	if c.Tile.SplitK < 2 {
		n += Consumers(c.Tile) * storeSlots(c) * WarpgroupRows * frag.SwizzleBytes
	}
	return n
}

// wgmmaGrid has a block for each SM, or fewer if there are fewer tiles; parts of K are
// along z.
func Grid(c kernel.Config, p *gemm.Problem, d *device.Info) (grid, cluster device.Dim3, err error) {
	s, n := c.Tile, c.Tile.BlocksM()*c.Tile.BlocksK()
	height, width := kernel.SwapAB(s, s.M*s.BlocksM(), s.N)
	clusters := kernel.MaxTileRows(p, height) * kernel.CeilDiv(p.Columns(), width)
	if clusters > 1<<31-1-d.SMs {
		return grid, cluster, fmt.Errorf("%w: C of %d×%d in tiles of %d×%d is more than 32 bits count", gemm.ErrUnsupported, p.M, p.N, s.M, s.N)
	}
	grid = device.Dim3{X: min(clusters, max(d.SMs/n, 1)) * n, Y: 1, Z: 1}
	if s.SplitK > 1 {
		grid.Z = kernel.SplitCount(p, s)
	}
	if n > 1 {
		cluster = device.Dim3{X: n, Y: 1, Z: 1}
	}
	return grid, cluster, nil
}

// wgmmaTensors are the matrices as the copy engine is to know them.
func tensorMaps(c kernel.Config, p *gemm.Problem, m kernel.Memory) []ptx.TensorMap {
	left, right := operandBoxes(c)
	a, b := kernel.SwapAB(c.Tile, left, right)
	elem := ArithmeticOf(c.In, c.Precision).Elem // to which the copy engine rounds float32
	list := []ptx.TensorMap{kernel.TensorMapOf(p.Layouts[gemm.A], elem, m[gemm.A], a.Box()), kernel.TensorMapOf(p.Layouts[gemm.B], elem, m[gemm.B], b.Box())}
	box := []int{frag.SwizzleBytes / c.Out.Size(), rowsOfTile(c.Tile)}
	if c.Tile.SwapAB {
		box[1] = min(turnedRows, c.Tile.N)
	}
	if StoresWithTMA(c) {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.C], kernel.PTXTypes[c.Out], m[gemm.C], box))
	}
	if loadsResidualWithTMA(c) {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.Residual], kernel.PTXTypes[c.Out], m[gemm.Residual], box))
	}
	if c.ComputesGate() {
		list = append(list, kernel.TensorMapOf(p.Layouts[gemm.Up], elem, m[gemm.Up], b.Box()))
	}
	return kernel.BatchTensorMaps(list, p, rowsOfTile(c.Tile))
}

// wgmmaWriter writes the kernel.
type writer struct {
	*kernel.Writer
	Arithmetic
	bulk    bool
	a, b    *frag.Boxes     // the left operand's and the right one's
	up      *frag.Boxes     // the other B's, if the product is gated
	tensor  build.Tensor    // C's, if it is written in bulk
	residue build.Tensor    // the residual's, if it is read so
	came    build.Mbarriers // for each patch: that the residual has come there
	patches build.Array     // parts of C on their way there
	pipe    *frag.Pipeline
	turns   build.Mbarriers // of the warpgroups, if they take turns
	// Where blocks share out K: that all have written a warpgroup's sums, and that all have
	// added those of all.
	summed, added build.Mbarriers
	tid           build.Reg
	rank          build.Value // of the block among those that load tiles of B for each other
	steps         build.Reg   // along K
	cluster, many build.Reg   // the cluster's number, and how many there are
	number        build.Value // of the tile's product, in a batch
}

func newWriter(k *build.Kernel, c kernel.Config) *writer {
	s := c.Tile
	w := &writer{Writer: kernel.DeclareParams(k, c), Arithmetic: ArithmeticOf(c.In, c.Precision), bulk: StoresWithTMA(c), rank: 0, tid: k.ThreadIdx(build.X)}
	shapeA, shapeB := operandBoxes(c)
	boxesA, boxesB := kernel.SwapAB(s, k.Tensor("boxesA"), k.Tensor("boxesB"))
	w.a, w.b = frag.NewBoxes(k, "A", boxesA, shapeA), frag.NewBoxes(k, "B", boxesB, shapeB)
	if w.bulk {
		w.tensor = k.Tensor("boxesC")
	}
	if loadsResidualWithTMA(c) {
		w.residue = k.Tensor("boxesD")
		w.came = k.Mbarriers("came", Consumers(s)*storeSlots(c))
	}
	if c.ComputesGate() {
		w.up = w.b.WithTensor(k.Tensor("boxesUp"))
	}
	if s.SplitK < 2 {
		elem := w.AccType
		switch {
		case w.bulk:
			elem = kernel.PTXTypes[c.Out]
		case c.ComputesGate(): // which has converted the sums
			elem = w.EpilogueType
		}
		w.patches = k.Tile("C", elem, Consumers(s)*storeSlots(c)*WarpgroupRows, frag.SwizzleBytes/elem.Bytes())
	}
	w.pipe = frag.NewPipeline(k, s.Stages)
	if PingPong(s) {
		w.turns = k.Mbarriers("turns", Consumers(s))
	}
	if s.BlocksK() > 1 {
		w.summed, w.added = k.Mbarriers("summed", Consumers(s)), k.Mbarriers("added", Consumers(s))
	}
	w.cluster, w.many = k.BlockIdx(build.X), k.GridDim(build.X)
	if n := s.BlocksM() * s.BlocksK(); n > 1 {
		w.cluster, w.many = k.Div(w.cluster, n), k.Div(w.many, n)
	}
	switch {
	case s.BlocksM() > 1:
		w.rank = k.ClusterRank()
	case s.BlocksK() > 1:
		part := k.Mul(k.CeilDiv(k.CeilDiv(w.K, s.K), s.ClusterK), s.K)
		w.KBegin = k.Min(k.Mul(part, k.To(w.IndexType, k.ClusterRank())), w.K)
		w.KEnd = k.Min(k.Add(w.KBegin, part), w.K)
	}
	w.steps = k.Named("steps", k.To(ptx.U32, k.CeilDiv(k.Sub(w.KEnd, w.KBegin), s.K)))
	return w
}

func write(k *build.Kernel, c kernel.Config) {
	w := newWriter(k, c)
	s := c.Tile
	k.Threads(blockThreads(s), 1, 1)
	k.MinBlocks(1) // which has all registers of the SM: setmaxnreg shares them out
	if w.clusters() {
		k.Cluster(s.BlocksM()*s.BlocksK(), 1, 1)
	}
	first := k.Eq(w.tid, 0)
	k.If(first, func() {
		releases := s.BlocksM()
		if PingPong(s) {
			for group := range Consumers(s) {
				w.turns.Init(group, WarpgroupThreads/frag.Lanes)
			}
		} else {
			releases *= Consumers(s)
		}
		if s.SwapAB {
			releases *= WarpgroupThreads / frag.Lanes
		}
		w.pipe.Init(releases)
		if loadsResidualWithTMA(c) {
			for n := range Consumers(s) * storeSlots(c) {
				w.came.Init(n, 1)
			}
		}
		if s.BlocksK() > 1 {
			for group := range Consumers(s) {
				w.summed.Init(group, s.ClusterK)
				w.added.Init(group, s.ClusterK)
			}
		}
		k.MbarrierFence()
		w.a.Prefetch()
		w.b.Prefetch()
		if w.up != nil {
			w.up.Prefetch()
		}
	})
	if rowsOfTile(s) < WarpgroupRows {
		w.a.Clear(w.tid, blockThreads(s))
		k.ProxyFence()
	}
	if w.clusters() {
		k.ClusterArrive()
		k.ClusterWait()
	} else {
		k.Barrier()
	}
	if c.PDL {
		k.GridDependencySync()
	}
	fewer, more := warpgroupRegisters(c)
	k.If(k.Lt(w.tid, WarpgroupThreads), func() {
		k.WarpgroupRegDealloc(fewer)
		k.If(first, w.produce)
	}).Else(func() {
		k.WarpgroupRegAlloc(more)
		w.consume()
	})
	if w.clusters() {
		k.Comment("nobody leaves while others may still use its shared memory")
		k.ClusterArriveRelaxed()
		k.ClusterWait()
	}
}

// clusters says that blocks do something together.
func (w *writer) clusters() bool {
	return w.Config.Tile.BlocksM()*w.Config.Tile.BlocksK() > 1
}

// wgmmaGroup is how many rows of tiles are computed side by side: with 132 tiles of
// 128×256 at a time, what they read is least in a block of 16 rows and 8 columns.
const rasterRows = 16

// tiles calls f for each tile of the block's, every step clusters from the one of number
// first on: the row and the column at which it begins.
func (w *writer) tiles(first, step build.Reg, f func(row, col build.Reg)) {
	k, s := w.Kernel, w.Config.Tile
	walk := w.Scheduler(kernel.SwapAB(s, s.M*s.BlocksM(), w.Config.ColumnsOfC()))
	n := k.Var("tile", ptx.U32, first)
	k.While(func() build.Reg { return walk.Seek(n) }, func() {
		t := walk.WorkTileAt(n)
		i, j := w.GroupedTile(t.Index, t.TileRows, walk.TilesAcross, rasterRows/s.BlocksM())
		w.C, w.number = t.C, t.Product
		left := func(n build.Reg) build.Reg { return k.Mad(k.Mad(n, s.BlocksM(), w.rank), s.M, t.FirstRow) }
		right := func(n build.Reg) build.Reg { return k.Mul(n, w.Config.ColumnsOfC()) }
		row, col := kernel.SwapAB(s, left, right)
		f(k.Named("row", k.To(w.IndexType, row(i))), k.Named("col", k.To(w.IndexType, col(j))))
		w.C = walk.WholeC
		k.Set(n, k.Add(n, step))
	})
}

// produce loads the tiles of all that the block computes, one step behind the other.
func (w *writer) produce() {
	k := w.Kernel
	shapeA, shapeB := operandBoxes(w.Config)
	planesA, planesB := w.planeBoxes(w.a, shapeA.KMajor, w.M), w.planeBoxes(w.b, shapeB.KMajor, w.N)
	var planesUp []*frag.Boxes
	if w.up != nil {
		planesUp = w.planeBoxes(w.up, shapeB.KMajor, w.N)
	}
	turn := w.pipe.State()
	a, b := kernel.SwapAB(w.Config.Tile, gemm.A, gemm.B)
	w.tiles(w.cluster, w.many, func(row, col build.Reg) {
		fromA, fromB := kernel.SwapAB(w.Config.Tile, row, col)
		k.For(0, w.steps, func(i build.Reg) {
			for n := range w.Terms {
				turn.WaitEmpty(shapeA.LoadedBytes() + shapeB.LoadedBytes())
				p := k.Mad(i, w.Config.Tile.K, w.KBegin)
				planesA[n].Matrix(w.matrix(a)).Load(turn.Stage(), turn.Full(), fromA, p, 0)
				planesB[n].Matrix(w.matrix(b)).Load(turn.Stage(), turn.Full(), fromB, p, w.rank)
				if w.up != nil {
					planesUp[n].Load(turn.Stage(), turn.Full(), fromB, p, w.rank)
				}
				turn.Next()
			}
		})
	})
}

// consume multiplies, a warpgroup its part of the tiles.
func (w *writer) consume() {
	k, s := w.Kernel, w.Config.Tile
	group := k.Named("group", k.Sub(k.Div(w.tid, WarpgroupThreads), 1))
	lane := k.Named("member", k.Rem(w.tid, WarpgroupThreads))
	rows, _ := WarpgroupTile(s)
	shapeA, shapeB := operandBoxes(w.Config)

	var top build.Value = 0 // of the warpgroup's part of the tile
	if !PingPong(s) {
		top = k.Mul(group, rows)
	}
	x := &mainloop{
		writer: w, lane: lane,
		op:   build.Wgmma{N: s.N, A: w.Elem, B: w.Elem, MNMajorA: !shapeA.KMajor, MNMajorB: !shapeB.KMajor},
		sums: make([][]build.Reg, rows/WarpgroupRows), fromA: make([]build.Reg, rows/WarpgroupRows),
	}
	for m := range x.sums {
		x.sums[m] = k.Vars(fmt.Sprintf("sum%d_", m), w.AccType, s.N/2, 0)
		if !s.SwapAB {
			x.fromA[m] = w.a.Descriptor(k.Add(top, m*WarpgroupRows))
		}
	}
	if s.SwapAB {
		x.words = w.a.FragmentsA(lane, top)
	}
	x.fromB = w.b.Descriptor(0)
	x.turn = w.pipe.State()
	x.before = k.Var("before", ptx.U32, 0)
	out := w.output(group, lane)
	out.words = x.words
	x.scales = w.newTileScales(out)
	first, step := w.cluster, w.many
	loads := k.Mul(w.steps, len(w.Terms)) // of a tile
	var mine build.Reg                    // the parity of the warpgroup's turn
	if PingPong(s) {
		first, step = k.Mad(group, w.many, w.cluster), k.Mul(w.many, Consumers(s))
		x.turn.Skip(k.Mul(group, loads))
		mine = k.Var("mine", ptx.U32, k.Xor(group, 1))
	}
	w.tiles(first, step, func(row, col build.Reg) {
		out.fetch(k.Add(row, top), col)
		if x.scales != nil {
			x.scales.fetch(k.Add(row, top), col, out)
		}
		if PingPong(s) {
			k.Comment("once the other warpgroup has had all of its tile multiplied")
			w.turns.Wait(group, mine)
			k.Set(mine, k.Xor(mine, 1))
		}
		switch {
		case s.SwapAB:
			x.addLoaded()
		case len(w.Promotions) == 0:
			x.addStraight()
		case w.PromotesEveryStep():
			x.addAlone()
		default:
			x.addRounds()
		}
		if PingPong(s) {
			// A warp that lags behind must not find that its turn has come round again.
			k.If(k.Eq(k.Rem(lane, frag.Lanes), 0), func() { w.turns.Arrive(k.Xor(group, 1)) })
			x.turn.Skip(loads)
		}
		x.finish()
		k.Comment("the warpgroup's part of C")
		if s.BlocksK() > 1 {
			out.storeTogether(k.Add(row, top), col, x.sums)
			return
		}
		for m := range x.sums {
			if from := k.Add(top, m*WarpgroupRows); s.SwapAB {
				out.storeTurned(row, k.Add(col, from), x.sums[m])
			} else {
				out.store(m*WarpgroupRows, k.Add(row, from), col, x.sums[m])
			}
		}
	})
	out.end()
}
