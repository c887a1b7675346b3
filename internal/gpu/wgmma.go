package gpu

import (
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/frag"
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
var wgmma = &Kernel{
	Name:     "wgmma",
	Adds:     "feeds wgmma by bulk copies of tiles: a warpgroup that loads, two that multiply, blocks that stay",
	SM:       90,
	suffix:   "a",
	Tensor:   true,
	splits:   true,
	types:    []dtype.Type{dtype.BF16, dtype.F16, dtype.F8E4M3, dtype.F8E5M2, dtype.I8},
	others:   map[gemm.Precision][]dtype.Type{gemm.TF32: {dtype.F32}, gemm.F32x3: {dtype.F32}, gemm.Fast: {dtype.F8E4M3, dtype.F8E5M2}},
	accuracy: accuracyWgmma,
	shapes:   wgmmaShapes(),
	check:    checkWgmma,
	refuses:  refusesWgmma,
	scales:   true,
	gates:    true,
	boxed:    true,
	fits:     fitsWgmma,
	vectors:  wgmmaVectors,
	threads:  func(s Shape) device.Dim3 { return device.Dim3{X: wgmmaThreads(s), Y: 1, Z: 1} },
	shared:   wgmmaShared,
	grid:     wgmmaGrid,
	tensors:  wgmmaTensors,
	limits:   wgmmaLimits,
	write:    writeWgmma,
	waits:    true,
}

const (
	groupThreads = 128 // of a warpgroup
	groupRows    = 64  // of A, that one instruction multiplies
)

// consumers is how many warpgroups multiply: as many as the tile has parts for, or two that
// take turns.
func consumers(s Shape) int {
	rows, _ := groupTile(s)
	return max(s.M/rows, 2)
}

func wgmmaThreads(s Shape) int { return (1 + consumers(s)) * groupThreads }

// groupRegisters are the registers of a thread that loads and of one that multiplies:
// together what the block began with.
func groupRegisters(c Config) (loads, multiplies int) {
	switch {
	case consumers(c.Shape) > 2:
		return 32, 160
	case len(recipeOf(c.In, c.Precision).planes) > 1: // where those that load have to find
		return 40, 232
	}
	return 24, 240
}

// groupTile is the part of C that a warpgroup has in its registers: a thread of it has two
// rows of every 64, and of those every other pair of 8 columns.
func groupTile(s Shape) (rows, cols int) {
	return s.RowsPerThread * frag.Lanes, s.ColsPerThread * frag.Quad
}

// rowsOfTile is how many of a warpgroup's rows are the tile's, of every 64.
func rowsOfTile(s Shape) int { return min(s.M, groupRows) }

// inTurns says that a tile is one warpgroup's: the two then take turns, and while one
// writes its part of C the other has the tensor cores.
func inTurns(s Shape) bool {
	rows, _ := groupTile(s)
	return s.M <= rows
}

func checkWgmma(s Shape) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: kernel wgmma with tile %v: %s", gemm.ErrUnsupported, s, fmt.Sprintf(format, args...))
	}
	rows, cols := groupTile(s)
	switch {
	case s.RowsPerThread != 2 && s.RowsPerThread != 4:
		return bad("a thread has 2 or 4 rows")
	case s.N != 16 && s.N != 32 && s.N != 64 && s.N != 128 && s.N != 192 && s.N != 256:
		return bad("N is 16, 32, 64, 128, 192 or 256")
	case cols != s.N:
		return bad("a thread has a quarter of the columns, %d", s.N/frag.Quad)
	case s.RowsPerThread*s.ColsPerThread > 128 || s.M > 2*rows && s.RowsPerThread*s.ColsPerThread > 96:
		return bad("a thread has registers for 128 sums, of three warpgroups for 96")
	case s.M != rows && s.M != 2*rows && s.M != 3*rows && (rows != groupRows || s.M != rows/2 && s.M != rows/4):
		return bad("M is %d, a warpgroup's rows, or two or three times that, or of 64 rows the first 32 or 16", rows)
	case s.K != frag.SwizzleBytes && s.K != frag.SwizzleBytes/2 && s.K != frag.SwizzleBytes/4:
		return bad("K is what 128 bytes hold, 32, 64 or 128")
	case s.Stages < 2 || s.Stages > 16:
		return bad("%d stages: want 2 to 16", s.Stages)
	case s.N < 64 && s.cluster()*s.along() > 1:
		return bad("a cluster of tiles with %d columns", s.N)
	case s.Cluster > 4 || s.N >= 64 && s.N%(s.cluster()*32) != 0:
		return bad("a cluster of %d blocks: want up to 4, of which each loads 32 columns or a multiple", s.Cluster)
	case s.Along > 1 && (s.Along != 2 && s.Along != 4 && s.Along != 8 || s.Cluster > 1 || s.Split > 1):
		return bad("a cluster of %d blocks along K: want 2, 4 or 8, no other cluster, and no further parts", s.Along)
	case s.Turned && (s.M < groupRows || s.Along > 1):
		return bad("turned tiles have at least %d columns of C, and K for themselves", groupRows)
	case rowsOfTile(s)%(s.along()*groupThreads/frag.Lanes) != 0:
		return bad("%d blocks cannot share out %d rows", s.Along, s.M)
	}
	return nil
}

func (s Shape) along() int { return max(s.Along, 1) }

func refusesWgmma(p *gemm.Problem) error {
	// Coordinates of boxes, which may lie a tile outside, have 32 bits and a sign, and of
	// parts that stand side by side the last one's do.
	most := (1<<31 - 1024) / len(recipeOf(p.A.Type, p.Precision).planes)
	if max(p.M, p.N, p.K) > most {
		return fmt.Errorf("%w: kernel wgmma on a side of more than %d", gemm.ErrUnsupported, most)
	}
	if p.BlockScaled() && len(recipeOf(p.A.Type, p.Precision).rounds) == 0 {
		return fmt.Errorf("%w: kernel wgmma with block scales in precision %v: the tensor cores keep all sums", gemm.ErrUnsupported, p.Precision)
	}
	return nil
}

func fitsWgmma(p *gemm.Problem, s Shape) error {
	r := recipeOf(p.A.Type, p.Precision)
	if s.Turned {
		if err := turnable(p); err != nil {
			return err
		}
	}
	if n := frag.SwizzleBytes / r.elem.Bytes(); s.K != n {
		return fmt.Errorf("%w: kernel wgmma with tile %v: K is %d for %v", gemm.ErrUnsupported, s, n, p.A.Type)
	}
	if consumers(s) > 2 && len(r.rounds) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for sums of %v beside its own", gemm.ErrUnsupported, s, p.A.Type)
	}
	if _, side := p.ScaleSides(); side > 0 && s.RowsPerThread > 2 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for block scales of %d rows", gemm.ErrUnsupported, s, s.RowsPerThread)
	} else if side == 1 && s.RowsPerThread*s.ColsPerThread > 64 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for block scales of each column", gemm.ErrUnsupported, s)
	}
	if consumers(s) > 2 && operandsOf(p.Epilogue) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread of three warpgroups has no registers for what epilogue %v reads", gemm.ErrUnsupported, s, p.Epilogue)
	}
	if len(r.planes) > 1 && s.N > 2*groupRows && operandsOf(p.Epilogue) > 0 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for what epilogue %v reads beside sums of %v", gemm.ErrUnsupported, s, p.Epilogue, p.Precision)
	}
	if s.RowsPerThread > 2 && len(r.planes) > 1 {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a thread has no registers for sums of %v", gemm.ErrUnsupported, s, p.Precision)
	}
	if p.Epilogue.Gated {
		// Half of the columns are whole patches of C, and of a B that runs across K whole boxes.
		q, _ := packing(p, s, Align{})
		whole := s.N == 2*groupRows || s.N == 4*groupRows || s.N == groupRows && q.B.Trans
		if !whole || s.Split > 1 || s.Along > 1 {
			return fmt.Errorf("%w: kernel wgmma with tile %v: a gated product takes tiles of 128 or 256 columns, or of 64 where B runs along K, and K whole", gemm.ErrUnsupported, s)
		}
	}
	if s.Stages < len(r.planes) {
		return fmt.Errorf("%w: kernel wgmma with tile %v: a step of %v takes %d stages", gemm.ErrUnsupported, s, p.Precision, len(r.planes))
	}
	return nil
}

func wgmmaVectors(_ Shape, c *Config, p *gemm.Problem) {
	c.VecA, c.VecB = maxVector/c.In.Size(), maxVector/c.In.Size()
	c.VecC = vector(p.C, maxVector/p.C.Type.Size())
}

// bulk reports whether C is written by bulk copies, which take whole vectors and rows of 128
// bytes. 8-bit elements are written from a patch of sums, as a thread has only two neighbours of
// a row. In a turned product it has none: elements of 16 bits, and those with operands in the
// epilogue, are then written from a patch too.
func bulk(c Config) bool {
	if c.Shape.Turned && (operandsOf(c.Epilogue) > 0 || c.Out.Size() < 4) {
		return false
	}
	_, cols := turned(c.Shape, c.Shape.M, c.columns())
	return c.Out.Size() > 1 && c.VecC*c.Out.Size() == maxVector && c.Shape.Split < 2 && c.Shape.Along < 2 && cols*c.Out.Size() >= frag.SwizzleBytes
}

// bulkResidual says that the residual comes by bulk copies, to where C's elements go; not
// where rows of a patch are nobody's, and would be read before they are written.
func bulkResidual(c Config) bool {
	return bulk(c) && c.Epilogue.Residual && c.VecD*c.Out.Size() == maxVector && rowsOfTile(c.Shape) == groupRows
}

// operandBoxes are the shapes of the tiles of the left operand and of the right one.
func operandBoxes(c Config) (a, b frag.BoxShape) {
	s, elem := c.Shape, recipeOf(c.In, c.Precision).stored()
	alongA, alongB := turned(s, !c.TransA, c.TransB)
	a = frag.BoxShape{Elem: elem, Side: max(s.M, groupRows), Loaded: s.M, Stages: s.Stages, AlongK: alongA, Shared: 1}
	b = frag.BoxShape{Elem: elem, Side: s.N, Loaded: s.N, Stages: s.Stages, AlongK: alongB, Shared: s.cluster()}
	if c.gates() {
		b.Matrices = 2
	}
	if !b.AlongK && elem.Bytes() == 2 {
		b.Side = max(s.N, b.Depth()) // a whole box
	}
	return a, b
}

func wgmmaShared(c Config) int {
	a, b := operandBoxes(c)
	n := c.Shape.Stages * (a.StageBytes() + b.StageBytes())
	if c.Shape.Split < 2 {
		n += consumers(c.Shape) * patchSlots(c) * groupRows * frag.SwizzleBytes
	}
	return n
}

// wgmmaGrid has a block for each SM, or fewer if there are fewer tiles; parts of K are
// along z.
func wgmmaGrid(c Config, p *gemm.Problem, d *device.Info) (grid, cluster device.Dim3, err error) {
	s, n := c.Shape, c.Shape.cluster()*c.Shape.along()
	height, width := turned(s, s.M*s.cluster(), s.N)
	clusters := mostRowsOfTiles(p, height) * ceilDiv(p.Columns(), width)
	if clusters > 1<<31-1-d.SMs {
		return grid, cluster, fmt.Errorf("%w: C of %d×%d in tiles of %d×%d is more than 32 bits count", gemm.ErrUnsupported, p.M, p.N, s.M, s.N)
	}
	grid = device.Dim3{X: min(clusters, max(d.SMs/n, 1)) * n, Y: 1, Z: 1}
	if s.Split > 1 {
		grid.Z = partsOf(p, s)
	}
	if n > 1 {
		cluster = device.Dim3{X: n, Y: 1, Z: 1}
	}
	return grid, cluster, nil
}

// wgmmaTensors are the matrices as the copy engine is to know them.
func wgmmaTensors(c Config, p *gemm.Problem, m Memory) []ptx.TensorMap {
	left, right := operandBoxes(c)
	a, b := turned(c.Shape, left, right)
	elem := recipeOf(c.In, c.Precision).elem // to which the copy engine rounds float32
	list := []ptx.TensorMap{tensorOf(p.A, elem, m.A, a.Box()), tensorOf(p.B, elem, m.B, b.Box())}
	box := []int{frag.SwizzleBytes / c.Out.Size(), rowsOfTile(c.Shape)}
	if c.Shape.Turned {
		box[1] = min(turnedRows, c.Shape.N)
	}
	if bulk(c) {
		list = append(list, tensorOf(p.C, elements[c.Out], m.C, box))
	}
	if bulkResidual(c) {
		list = append(list, tensorOf(p.Residual, elements[c.Out], m.Extras[gemm.Residual], box))
	}
	if c.gates() {
		list = append(list, tensorOf(p.Up, elem, m.Extras[gemm.Up], b.Box()))
	}
	return batchTensors(list, p, rowsOfTile(c.Shape))
}

// wgmmaWriter writes the kernel.
type wgmmaWriter struct {
	*product
	recipe
	bulk    bool
	a, b    *frag.Boxes     // the left operand's and the right one's
	up      *frag.Boxes     // the other B's, if the product is gated
	tensor  build.Tensor    // C's, if it is written in bulk
	residue build.Tensor    // the residual's, if it is read so
	came    build.Mbarriers // for each patch: that the residual has come there
	patches build.Array     // parts of C on their way there
	pipe    *frag.Pipe
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

func newWgmmaWriter(k *build.Kernel, c Config) *wgmmaWriter {
	s := c.Shape
	w := &wgmmaWriter{product: declare(k, c), recipe: recipeOf(c.In, c.Precision), bulk: bulk(c), rank: 0, tid: k.ThreadIdx(build.X)}
	shapeA, shapeB := operandBoxes(c)
	boxesA, boxesB := turned(s, k.Tensor("boxesA"), k.Tensor("boxesB"))
	w.a, w.b = frag.NewBoxes(k, "A", boxesA, shapeA), frag.NewBoxes(k, "B", boxesB, shapeB)
	if w.bulk {
		w.tensor = k.Tensor("boxesC")
	}
	if bulkResidual(c) {
		w.residue = k.Tensor("boxesD")
		w.came = k.Mbarriers("came", consumers(s)*patchSlots(c))
	}
	if c.gates() {
		w.up = w.b.Second(k.Tensor("boxesUp"))
	}
	if s.Split < 2 {
		elem := w.acc
		switch {
		case w.bulk:
			elem = elements[c.Out]
		case c.gates(): // which has converted the sums
			elem = w.scale
		}
		w.patches = k.Tile("C", elem, consumers(s)*patchSlots(c)*groupRows, frag.SwizzleBytes/elem.Bytes())
	}
	w.pipe = frag.NewPipe(k, s.Stages)
	if inTurns(s) {
		w.turns = k.Mbarriers("turns", consumers(s))
	}
	if s.along() > 1 {
		w.summed, w.added = k.Mbarriers("summed", consumers(s)), k.Mbarriers("added", consumers(s))
	}
	w.cluster, w.many = k.BlockIdx(build.X), k.GridDim(build.X)
	if n := s.cluster() * s.along(); n > 1 {
		w.cluster, w.many = k.Div(w.cluster, n), k.Div(w.many, n)
	}
	switch {
	case s.cluster() > 1:
		w.rank = k.ClusterRank()
	case s.along() > 1:
		part := k.Mul(k.CeilDiv(k.CeilDiv(w.k, s.K), s.Along), s.K)
		w.from = k.Min(k.Mul(part, k.To(w.index, k.ClusterRank())), w.k)
		w.to = k.Min(k.Add(w.from, part), w.k)
	}
	w.steps = k.Named("steps", k.To(ptx.U32, k.CeilDiv(k.Sub(w.to, w.from), s.K)))
	return w
}

func writeWgmma(k *build.Kernel, c Config) {
	w := newWgmmaWriter(k, c)
	s := c.Shape
	k.Threads(wgmmaThreads(s), 1, 1)
	k.MinBlocks(1) // which has all registers of the SM: setmaxnreg shares them out
	if w.clusters() {
		k.Cluster(s.cluster()*s.along(), 1, 1)
	}
	first := k.Eq(w.tid, 0)
	k.If(first, func() {
		releases := s.cluster()
		if inTurns(s) {
			for group := range consumers(s) {
				w.turns.Init(group, groupThreads/frag.Lanes)
			}
		} else {
			releases *= consumers(s)
		}
		if s.Turned {
			releases *= groupThreads / frag.Lanes
		}
		w.pipe.Init(releases)
		if bulkResidual(c) {
			for n := range consumers(s) * patchSlots(c) {
				w.came.Init(n, 1)
			}
		}
		if s.along() > 1 {
			for group := range consumers(s) {
				w.summed.Init(group, s.Along)
				w.added.Init(group, s.Along)
			}
		}
		k.MbarrierFence()
		w.a.Prefetch()
		w.b.Prefetch()
		if w.up != nil {
			w.up.Prefetch()
		}
	})
	if rowsOfTile(s) < groupRows {
		w.a.Clear(w.tid, wgmmaThreads(s))
		k.ProxyFence()
	}
	if w.clusters() {
		k.ClusterArrive()
		k.ClusterWait()
	} else {
		k.Barrier()
	}
	if c.Overlaps {
		k.AfterGrids()
	}
	fewer, more := groupRegisters(c)
	k.If(k.Lt(w.tid, groupThreads), func() {
		k.FewerRegisters(fewer)
		k.If(first, w.produce)
	}).Else(func() {
		k.MoreRegisters(more)
		w.consume()
	})
	if w.clusters() {
		k.Comment("nobody leaves while others may still use its shared memory")
		k.ClusterArriveRelaxed()
		k.ClusterWait()
	}
}

// clusters says that blocks do something together.
func (w *wgmmaWriter) clusters() bool {
	return w.config.Shape.cluster()*w.config.Shape.along() > 1
}

// wgmmaGroup is how many rows of tiles are computed side by side: with 132 tiles of
// 128×256 at a time, what they read is least in a block of 16 rows and 8 columns.
const wgmmaGroup = 16

// tiles calls f for each tile of the block's, every step clusters from the one of number
// first on: the row and the column at which it begins.
func (w *wgmmaWriter) tiles(first, step build.Reg, f func(row, col build.Reg)) {
	k, s := w.Kernel, w.config.Shape
	walk := w.walk(turned(s, s.M*s.cluster(), w.config.columns()))
	n := k.Var("tile", ptx.U32, first)
	k.While(func() build.Reg { return walk.seek(n) }, func() {
		t := walk.enter(n)
		i, j := w.groupedTile(t.n, t.down, walk.across, wgmmaGroup/s.cluster())
		w.c, w.number = t.c, t.product
		left := func(n build.Reg) build.Reg { return k.Mad(k.Mad(n, s.cluster(), w.rank), s.M, t.first) }
		right := func(n build.Reg) build.Reg { return k.Mul(n, w.config.columns()) }
		row, col := turned(s, left, right)
		f(k.Named("row", k.To(w.index, row(i))), k.Named("col", k.To(w.index, col(j))))
		w.c = walk.whole
		k.Set(n, k.Add(n, step))
	})
}

// produce loads the tiles of all that the block computes, one step behind the other.
func (w *wgmmaWriter) produce() {
	k := w.Kernel
	shapeA, shapeB := operandBoxes(w.config)
	planesA, planesB := w.planeBoxes(w.a, shapeA.AlongK, w.m), w.planeBoxes(w.b, shapeB.AlongK, w.n)
	var planesUp []*frag.Boxes
	if w.up != nil {
		planesUp = w.planeBoxes(w.up, shapeB.AlongK, w.n)
	}
	turn := w.pipe.Turn()
	a, b := turned(w.config.Shape, inA, inB)
	w.tiles(w.cluster, w.many, func(row, col build.Reg) {
		fromA, fromB := turned(w.config.Shape, row, col)
		k.For(0, w.steps, func(i build.Reg) {
			for n := range w.planes {
				turn.WaitEmpty(shapeA.LoadedBytes() + shapeB.LoadedBytes())
				p := k.Mad(i, w.config.Shape.K, w.from)
				planesA[n].Of(w.matrix(a)).Load(turn.Stage(), turn.Full(), fromA, p, 0)
				planesB[n].Of(w.matrix(b)).Load(turn.Stage(), turn.Full(), fromB, p, w.rank)
				if w.up != nil {
					planesUp[n].Load(turn.Stage(), turn.Full(), fromB, p, w.rank)
				}
				turn.Next()
			}
		})
	})
}

// consume multiplies, a warpgroup its part of the tiles.
func (w *wgmmaWriter) consume() {
	k, s := w.Kernel, w.config.Shape
	group := k.Named("group", k.Sub(k.Div(w.tid, groupThreads), 1))
	lane := k.Named("member", k.Rem(w.tid, groupThreads))
	rows, _ := groupTile(s)
	shapeA, shapeB := operandBoxes(w.config)

	var top build.Value = 0 // of the warpgroup's part of the tile
	if !inTurns(s) {
		top = k.Mul(group, rows)
	}
	x := &mainloop{
		wgmmaWriter: w, lane: lane,
		op:   build.Wgmma{N: s.N, A: w.elem, B: w.elem, ColumnsA: !shapeA.AlongK, ColumnsB: !shapeB.AlongK},
		sums: make([][]build.Reg, rows/groupRows), fromA: make([]build.Reg, rows/groupRows),
	}
	for m := range x.sums {
		x.sums[m] = k.Vars(fmt.Sprintf("sum%d_", m), w.acc, s.N/2, 0)
		if !s.Turned {
			x.fromA[m] = w.a.Descriptor(k.Add(top, m*groupRows))
		}
	}
	if s.Turned {
		x.words = w.a.Words(lane, top)
	}
	x.fromB = w.b.Descriptor(0)
	x.turn = w.pipe.Turn()
	x.before = k.Var("before", ptx.U32, 0)
	out := w.output(group, lane)
	out.words = x.words
	x.scales = w.newTileScales(out)
	first, step := w.cluster, w.many
	loads := k.Mul(w.steps, len(w.planes)) // of a tile
	var mine build.Reg                     // the parity of the warpgroup's turn
	if inTurns(s) {
		first, step = k.Mad(group, w.many, w.cluster), k.Mul(w.many, consumers(s))
		x.turn.Skip(k.Mul(group, loads))
		mine = k.Var("mine", ptx.U32, k.Xor(group, 1))
	}
	w.tiles(first, step, func(row, col build.Reg) {
		out.fetch(k.Add(row, top), col)
		if x.scales != nil {
			x.scales.fetch(k.Add(row, top), col, out)
		}
		if inTurns(s) {
			k.Comment("once the other warpgroup has had all of its tile multiplied")
			w.turns.Wait(group, mine)
			k.Set(mine, k.Xor(mine, 1))
		}
		switch {
		case s.Turned:
			x.addLoaded()
		case len(w.rounds) == 0:
			x.addStraight()
		case w.alone():
			x.addAlone()
		default:
			x.addRounds()
		}
		if inTurns(s) {
			// A warp that lags behind must not find that its turn has come round again.
			k.If(k.Eq(k.Rem(lane, frag.Lanes), 0), func() { w.turns.Arrive(k.Xor(group, 1)) })
			x.turn.Skip(loads)
		}
		x.finish()
		k.Comment("the warpgroup's part of C")
		if s.along() > 1 {
			out.storeTogether(k.Add(row, top), col, x.sums)
			return
		}
		for m := range x.sums {
			if from := k.Add(top, m*groupRows); s.Turned {
				out.storeTurned(row, k.Add(col, from), x.sums[m])
			} else {
				out.store(m*groupRows, k.Add(row, from), col, x.sums[m])
			}
		}
	})
	out.end()
}
