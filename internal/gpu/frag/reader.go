package frag

import (
	"tilework/ptx"
	"tilework/ptx/build"
)

// Reader loads fragments of a warp's part of an operand's tile from shared memory.
//
// ldmatrix loads the fragments of K-major tiles directly. For MN-major tiles of 16-bit elements
// ldmatrix.trans transposes them. For 8-bit elements ldmatrix.trans transposes pairs of bytes: if
// the lanes supply the addresses of rows of K in a suitable order, each lane receives four elements
// along K of two adjacent rows or columns, interleaved, which [Reader.Arrange] separates. A lane
// then holds rows 2·g and 2·g + 1 of A, and four adjacent columns of B; see [Reader.Rows] and
// [Reader.Runs].
type Reader struct {
	k     *build.Kernel
	in    Instruction
	tiles *Tiles
	b     bool // the operand is B
	count int  // fragments: rows or columns of instructions

	// offsets of the lane's ldmatrix addresses in a tile, one per step along K or per pair of
	// fragments
	places   []build.Reg
	elements Tile // for elements that are loaded one at a time, in the first stage
}

// ReadA returns a reader of count fragments of A, which begin at row first of the tile. (eight,
// quad) is the lane's (g, t) in the fragments.
func (t *Tiles) ReadA(in Instruction, first, eight, quad build.Reg, count int) *Reader {
	return t.reader(in, false, first, eight, quad, count)
}

// ReadB returns a reader of count fragments of B, which begin at column first of the tile.
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
	// Lane 8·n + l supplies the address of row l of matrix n.
	lane := k.Mad(eight, Quad, quad)
	l, n := k.Rem(lane, Eight), k.Div(lane, Eight)
	// In A, matrix 1 is below matrix 0, and matrices 2 and 3 are next to them along K. In B, matrix
	// 1 is next to matrix 0 along K, and matrices 2 and 3 are the next columns.
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
		// Rows 0, 1, 4, 5 … and 2, 3, 6, 7 … of K give a lane four elements that are adjacent along
		// K.
		line := k.Add(k.Mad(k.Div(l, 2), 4, k.Rem(l, 2)), k.Mad(k.Div(n, 2), 2*Eight, k.Mul(k.Rem(n, 2), 2)))
		r.addPlaces(line, func(i int) build.Reg { return k.Add(first, i*2*Eight) })
	default:
		line := k.Mad(behind, Eight, l)
		r.addPlaces(line, func(i int) build.Reg { return k.Add(first, k.Mad(below, Eight, i*2*Eight)) })
	}
	return r
}

// addPlaces sets the offsets of pairs of fragments that are adjacent in rows of K.
func (r *Reader) addPlaces(line build.Reg, element func(i int) build.Reg) {
	for i := range (r.count*r.width() + 2*Eight - 1) / (2 * Eight) {
		r.places = append(r.places, r.tiles.shape.byteOffset(r.k, line, element(i)))
	}
}

// width returns the number of rows or columns of a fragment.
func (r *Reader) width() int {
	if r.b {
		return r.in.N
	}
	return r.in.M
}

// Registers returns new registers for the fragments, for [Reader.Loads].
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

// offsets returns the positions of the first elements in each of a lane's registers of a fragment:
// Row along M or N, Col along K.
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

// Loads returns functions that emit the loads of the fragments that begin at element p along K of a
// stage's tile. [Reader.Arrange] turns the loaded registers into operands of the instruction.
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
	// a load fills four registers: a fragment of A, or two of B
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

// Arrange returns the loaded fragments as operands of the instruction.
func (r *Reader) Arrange(loaded [][]build.Reg) [][]build.Reg {
	if !r.tiles.shape.transposesPairs() || r.tiles.shape.Single() {
		return loaded
	}
	k := r.k
	// Words 0 and 1 hold the first half of the instruction's K, and words 2 and 3 the second half.
	// Even bytes belong to the first of two adjacent rows or columns, odd bytes to the second.
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

// permute returns four of the eight bytes of a and b, selected by prmt's selector bytes.
func permute(k *build.Kernel, a, b build.Value, bytes int) build.Reg {
	d := k.Fresh(ptx.B32)
	k.Do("prmt.b32", d, a, b, bytes)
	return d
}

// Rows returns the row of a lane's accumulators in row n of fragment i of A: times·g + more,
// relative to the warp's first row.
func (r *Reader) Rows(i, n int) (times, more int) {
	if r.tiles.shape.transposesPairs() {
		return 2, i*r.in.M + n
	}
	return 1, i*r.in.M + n*Eight
}

// Run is a group of a lane's accumulators that are adjacent in a row of C. Its first column is
// Times·t + More, relative to the warp's first column. Sums identifies each accumulator by the
// fragment of B (Row) and the position in the fragment (Col).
type Run struct {
	Times, More int
	Sums        []Place
}

// Runs returns the runs of a row.
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

// rowsPerStage returns the number of rows of one tile in shared memory.
func (t *Tiles) rowsPerStage() int {
	count, _ := t.shape.rows()
	return count
}

// Tile is a view of a stage's tile that begins at some element.
type Tile struct {
	from   build.Array
	kMajor bool
}

// view returns a view of the first stage's tile that begins at element p along K of row i.
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
