package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Reader reads fragments of a warp's part of an operand's tile.
//
// Elements that stand along K come with ldmatrix as the instructions want them, and so do
// those of 16 bits that stand across, which it transposes. Of 8 bits it transposes pairs:
// a lane that asks for the rows of K in the right order gets words of four along K of two
// neighbours across, mixed, and takes them apart ([Reader.Arrange]). That makes the lane's
// rows of A 2·g and 2·g + 1, and its columns of B four side by side; see [Reader.Rows] and
// [Reader.Runs].
type Reader struct {
	k     *build.Kernel
	in    Instruction
	tiles *Tiles
	b     bool // of B
	count int  // fragments: the instruction's rows or columns

	// Where the lane's addresses are in a tile, for a step along K or a pair of fragments.
	places   []build.Reg
	elements Tile // of those that are loaded by themselves, in the first stage
}

// ReadA reads rows of A from the warp's first one on: count fragments of the
// instruction's rows, the lane's place in them being (eight, quad).
func (t *Tiles) ReadA(in Instruction, first, eight, quad build.Reg, count int) *Reader {
	return t.reader(in, false, first, eight, quad, count)
}

// ReadB is ReadA for columns of B.
func (t *Tiles) ReadB(in Instruction, first, eight, quad build.Reg, count int) *Reader {
	return t.reader(in, true, first, eight, quad, count)
}

func (t *Tiles) reader(in Instruction, b bool, first, eight, quad build.Reg, count int) *Reader {
	k, s := t.k, t.shape
	r := &Reader{k: k, in: in, tiles: t, b: b, count: count}
	if s.Single() {
		r.elements = t.view(k.Add(first, eight), quad)
		return r
	}
	// Lane 8·n + l gives the address of row l of matrix n.
	lane := k.Mad(eight, Quad, quad)
	l, n := k.Rem(lane, Eight), k.Div(lane, Eight)
	// Where the matrices stand: of A the second is below the first, the other two behind
	// them along K; of B the second is behind the first, the other two are the next columns.
	below, behind := k.Rem(n, 2), k.Div(n, 2)
	if b {
		below, behind = behind, below
	}
	switch {
	case s.KMajor:
		line := k.Add(k.Add(first, l), k.Mul(below, Eight))
		for p := 0; p < s.Depth*s.Elem.Bytes(); p += 2 * chunkBytes {
			element := k.Div(k.Add(k.Mul(behind, chunkBytes), p), s.Elem.Bytes())
			r.places = append(r.places, s.byteOffset(k, line, element))
		}
	case s.transposesPairs():
		// Rows 0, 1, 4, 5 … of K, and 2, 3, 6, 7 …, so that a lane has four neighbours.
		line := k.Add(k.Mad(k.Div(l, 2), 4, k.Rem(l, 2)), k.Mad(k.Div(n, 2), 2*Eight, k.Mul(k.Rem(n, 2), 2)))
		r.addPlaces(line, func(i int) build.Reg { return k.Add(first, i*2*Eight) })
	default:
		line := k.Mad(behind, Eight, l)
		r.addPlaces(line, func(i int) build.Reg { return k.Add(first, k.Mad(below, Eight, i*2*Eight)) })
	}
	return r
}

// across sets the places of pairs of fragments that stand side by side in rows of K.
func (r *Reader) addPlaces(line build.Reg, element func(i int) build.Reg) {
	for i := range (r.count*r.width() + 2*Eight - 1) / (2 * Eight) {
		r.places = append(r.places, r.tiles.shape.byteOffset(r.k, line, element(i)))
	}
}

// width is the rows or columns of a fragment.
func (r *Reader) width() int {
	if r.b {
		return r.in.N
	}
	return r.in.M
}

// Registers are variables for the fragments, as [Reader.Loads] writes them.
func (r *Reader) Registers() [][]build.Reg {
	t, _ := r.in.Register()
	if r.tiles.shape.Single() {
		t = r.tiles.shape.Elem
	}
	all := make([][]build.Reg, r.count)
	for i := range all {
		for range r.offsets() {
			all[i] = append(all[i], r.k.Fresh(t))
		}
	}
	return all
}

// offsets are where the first elements of a lane's registers of a fragment are, across and
// along K.
func (r *Reader) offsets() []Place {
	if !r.b {
		return r.in.A()
	}
	places := r.in.B()
	for i, p := range places {
		places[i] = Place{p.Col, p.Row}
	}
	return places
}

// Loads are the loads of the fragments from element p along K on of the tile that a stage
// holds. [Reader.Arrange] makes of them what is multiplied.
func (r *Reader) Loads(to [][]build.Reg, stage build.Reg, p int) []func() {
	k, s := r.k, r.tiles.shape
	var all []func()
	if s.Single() {
		tile := Tile{r.elements.from.From(k.Mul(stage, r.tiles.rowsPerStage()), 0), s.KMajor}
		for i, regs := range to {
			for e, at := range r.offsets() {
				all = append(all, func() { tile.At(i*r.width()+at.Row, p+at.Col).LoadTo(regs[e]) })
			}
		}
		return all
	}
	base := r.tiles.array.Ptr.Skip(k.Mul(stage, s.stageBytes()))
	row := s.pitch() * s.Elem.Bytes()
	// A load brings four registers: a fragment of A, or two of B.
	each := 1
	if r.b {
		each = 2
	}
	for i := 0; i < len(to); i += each {
		var regs []build.Reg
		for _, f := range to[i:min(i+each, len(to))] {
			regs = append(regs, f...)
		}
		all = append(all, func() {
			if s.KMajor {
				at := base.Skip(r.places[p*s.Elem.Bytes()/(2*chunkBytes)]).Skip(i * r.width() * row)
				k.LoadMatricesTo(at, false, regs...)
				return
			}
			k.LoadMatricesTo(base.Skip(r.places[i/each]).Skip(p*row), true, regs...)
		})
	}
	return all
}

// Arrange is the fragments as the instruction takes them.
func (r *Reader) Arrange(loaded [][]build.Reg) [][]build.Reg {
	if !r.tiles.shape.transposesPairs() || r.tiles.shape.Single() {
		return loaded
	}
	k := r.k
	// Words 0 and 1 hold the first half of the instruction's K, 2 and 3 the second, of two
	// neighbours each: the even bytes are those of the first.
	first := func(w []build.Reg, half int) build.Reg { return permute(k, w[2*half], w[2*half+1], 0x6420) }
	second := func(w []build.Reg, half int) build.Reg { return permute(k, w[2*half], w[2*half+1], 0x7531) }
	all := make([][]build.Reg, len(loaded))
	if !r.b {
		for i, w := range loaded {
			all[i] = []build.Reg{first(w, 0), second(w, 0), first(w, 1), second(w, 1)}
		}
		return all
	}
	for i := 0; i < len(loaded); i += 2 {
		w := []build.Reg{loaded[i][0], loaded[i][1], loaded[i+1][0], loaded[i+1][1]}
		all[i], all[i+1] = []build.Reg{first(w, 0), first(w, 1)}, []build.Reg{second(w, 0), second(w, 1)}
	}
	return all
}

// permute is four of the eight bytes of a and b, by their numbers.
func permute(k *build.Kernel, a, b build.Value, bytes int) build.Reg {
	d := k.Fresh(ptx.B32)
	k.Do("prmt.b32", d, a, b, bytes)
	return d
}

// Rows is, of the lane's sums in row n of those of fragment i of A, the row: so many times g
// and so many more from the warp's first on.
func (r *Reader) Rows(i, n int) (times, more int) {
	if r.tiles.shape.transposesPairs() {
		return 2, i*r.in.M + n
	}
	return 1, i*r.in.M + n*Eight
}

// Run is some of the lane's sums that stand side by side in a row of C. Their columns begin
// so many times t and so many more from the warp's first on. They are counted by the
// fragment of B and the place in it.
type Run struct {
	Times, More int
	Sums        []Place
}

// Runs lists the runs of a row.
func (r *Reader) Runs() []Run {
	var runs []Run
	if r.tiles.shape.transposesPairs() {
		for j := 0; j < r.count; j += 2 {
			runs = append(runs, Run{4, j * r.in.N, []Place{{j, 0}, {j + 1, 0}, {j, 1}, {j + 1, 1}}})
		}
		return runs
	}
	for j := range r.count {
		runs = append(runs, Run{2, j * r.in.N, []Place{{j, 0}, {j, 1}}})
	}
	return runs
}

// rows are those of one tile in shared memory.
func (t *Tiles) rowsPerStage() int {
	count, _ := t.shape.rows()
	return count
}

// Tile is a view of the tile of one stage, from some element on.
type Tile struct {
	from   build.Array
	kMajor bool
}

// from0 is the first stage's tile, from element p along K of row i on.
func (t *Tiles) view(i, p build.Value) Tile {
	if !t.shape.KMajor {
		i, p = p, i
	}
	return Tile{t.array.From(i, p), t.shape.KMajor}
}

// At points to element p along K of row i.
func (t Tile) At(i, p int) build.Ptr {
	if t.kMajor {
		return t.from.At(i, p)
	}
	return t.from.At(p, i)
}
