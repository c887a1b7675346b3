package emu

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tilework/ptx"
	"tilework/ptx/emu/internal/dot"
	"tilework/ptx/emu/internal/number"
)

// tensorProduct is a tcgen05.mma: d = a·b or d += a·b, with D in tensor memory. B is in shared
// memory, A in shared or tensor memory, and scales are in tensor memory.
type tensorProduct struct {
	kind           *tensorKind
	pair, reuses   bool // cta_group::2; tcgen05.mma.ws
	sparseA        bool
	atD, atA       tensorOperand
	descA, descB   uint32 // slots; descA is 0 if A is in tensor memory
	idesc, input   uint32
	scaleD         int      // D is divided by 2^scaleD before it is added
	off            []uint32 // slots of the masks of lanes that are not written
	scaleA, scaleB tensorOperand
	meta           tensorOperand // of a sparse A
	zeros          uint32        // slot of the descriptor of columns of B that count as zero, or 0
	perRow         int           // scales of a row of A, for the K of the instruction; 0 without scales
}

// tensorKind describes a kind of tcgen05.mma: K, and the types by their codes in the instruction
// descriptor.
type tensorKind struct {
	name     string
	k        int
	operands map[uint32]ptx.Type
	results  map[uint32]ptx.Type
	padded   bool // 16 elements of less than 8 bits take up 16 bytes of shared memory
	perRow   int  // scales of a row without a modifier; 0 for kinds without scales
}

var (
	narrowFloats = map[uint32]ptx.Type{0: ptx.E4M3, 1: ptx.E5M2, 3: ptx.E2M3, 4: ptx.E3M2, 5: ptx.E2M1}
	floatSums    = map[uint32]ptx.Type{0: ptx.F16, 1: ptx.F32}
)

// tensorKinds lists the kinds (manual: "tcgen05-instruction-descriptor").
var tensorKinds = []tensorKind{
	{name: "f16", k: 16, operands: map[uint32]ptx.Type{0: ptx.F16, 1: ptx.BF16}, results: floatSums},
	{name: "tf32", k: 8, operands: map[uint32]ptx.Type{2: ptx.TF32}, results: map[uint32]ptx.Type{1: ptx.F32}},
	{name: "f8f6f4", k: 32, operands: narrowFloats, results: floatSums, padded: true},
	{name: "i8", k: 32, operands: map[uint32]ptx.Type{0: ptx.U8, 1: ptx.S8}, results: map[uint32]ptx.Type{2: ptx.S32}},
	{name: "mxf8f6f4", k: 32, operands: narrowFloats, padded: true, perRow: 1},
	{name: "mxf4", k: 64, operands: map[uint32]ptx.Type{1: ptx.E2M1}, perRow: 2},
	{name: "mxf4nvf4", k: 64, operands: map[uint32]ptx.Type{1: ptx.E2M1}, perRow: 2},
}

// kindOf returns the kind of a matrix instruction, or nil if it names none.
func kindOf(i *ptx.Instr) *tensorKind {
	for _, mod := range i.Mods {
		if name, ok := strings.CutPrefix(mod, "kind::"); ok {
			return &tensorKinds[slices.IndexFunc(tensorKinds, func(k tensorKind) bool { return k.name == name })]
		}
	}
	return nil
}

func (d *decoder) tensorProduct() execFunc {
	i := d.i
	t := &tensorProduct{pair: i.Has("cta_group::2"), reuses: i.Has("ws"), sparseA: i.Has("sp")}
	t.kind = kindOf(i)
	t.perRow = t.kind.perRow
	switch i.Mod("scales") {
	case "scale_vec::4X", "block16":
		t.perRow = 4
	}
	for k := range i.Args {
		switch i.Operand(k).Name {
		case "d":
			t.atD = d.tensorOperand(k)
		case "a":
			if _, ok := i.Args[k].(*ptx.Addr); ok {
				t.atA = d.tensorOperand(k)
			} else {
				t.descA = d.source(k)
			}
		case "b":
			t.descB = d.source(k)
		case "idesc":
			t.idesc = d.source(k)
		case "input-d":
			t.input = d.source(k)
		case "scale-d":
			t.scaleD = int(d.constInt(k))
		case "lanes":
			t.off = d.vector(k)
		case "scale-a":
			t.scaleA = d.tensorOperand(k)
		case "scale-b":
			t.scaleB = d.tensorOperand(k)
		case "meta":
			t.meta = d.tensorOperand(k)
		case "zeros":
			t.zeros = d.source(k)
		}
	}
	return func(w *warp, in *inst) {
		w.eachLane(func(lane int) { t.issue(w, in, lane) })
	}
}

// tensorShape is a tensorProduct whose instruction descriptor is known.
type tensorShape struct {
	*tensorProduct
	matrixProduct
	negA, negB         bool
	mnMajorA, mnMajorB bool
	blocks             []*block // whose memory it accesses
	rowsPer            int      // rows of A and D in the memory of a block
	depth              int      // K of B, twice that of a packed sparse A
	selector           int      // of the metadata of a sparse A
	idA, idB           int      // byte of the first scale in its word
	typeA, typeB       ptx.Type
}

// describe decodes an instruction descriptor.
func (t *tensorProduct) describe(desc uint32) (*tensorShape, error) {
	field := func(at, bits int) uint32 { return desc >> at & (1<<bits - 1) }
	s := &tensorShape{tensorProduct: t, negA: field(13, 1) == 1, negB: field(14, 1) == 1,
		mnMajorA: field(15, 1) == 1, mnMajorB: field(16, 1) == 1}
	p := &s.matrixProduct
	p.dot.Unit = dot.Blackwell
	p.m, p.n, p.k = int(field(24, 5))<<4, int(field(17, 6))<<3, t.kind.k
	if s.depth = p.k; t.sparseA {
		s.depth, s.selector = 2*p.k, int(field(0, 2))
	}
	var okA, okB bool
	okD := true
	s.typeA, okA = t.kind.operands[field(7, 3)]
	s.typeB, okB = t.kind.operands[field(10, 3)]
	result := ptx.F32
	if t.perRow == 0 {
		result, okD = t.kind.results[field(4, 2)]
		p.dot.Saturate = field(3, 1) == 1
	} else {
		s.idB, s.idA = int(field(4, 2)), int(field(29, 2))
		p.dot.Scale = number.UE4M3
		if field(23, 1) == 1 {
			p.dot.Scale = number.UE8M0
		} else if t.kind.name != "mxf4nvf4" {
			return nil, fmt.Errorf("scales of type ue4m3: want ue8m0 for kind::%s", t.kind.name)
		}
	}
	narrow := okA && okB && min(s.typeA.Bits(), s.typeB.Bits()) < 8
	rows, pitch := map[int]bool{64: true, 128: true}, 8
	switch {
	case t.reuses:
		rows, pitch = map[int]bool{32: true, 64: true, 128: true}, 64
	case t.pair:
		rows, pitch = map[int]bool{128: true, 256: true}, 16
	case t.perRow > 0:
		rows = map[int]bool{128: true}
	}
	switch {
	case !okA || !okB || !okD:
		return nil, fmt.Errorf("types %d, %d and %d of A, B and D in the instruction descriptor %#x are not of kind::%s",
			field(7, 3), field(10, 3), field(4, 2), desc, t.kind.name)
	case result == ptx.F16 && (s.typeA == ptx.BF16 || s.typeB == ptx.BF16):
		return nil, fmt.Errorf("the type of D is f16 for bf16 operands: want f32")
	case !rows[p.m]:
		return nil, fmt.Errorf("the instruction descriptor %#x has M = %d: want another for this instruction", desc, p.m)
	case p.n == 0 || p.n > 256 || p.n%pitch != 0:
		return nil, fmt.Errorf("the instruction descriptor %#x has N = %d: want a multiple of %d up to 256", desc, p.n,
			pitch)
	case field(2, 1) == 1 != t.sparseA:
		return nil, fmt.Errorf("the instruction descriptor %#x is that of %s A", desc,
			choose(t.sparseA, "a dense", "a sparse"))
	case t.perRow > 0 && field(31, 1) == 1:
		return nil, fmt.Errorf("the instruction descriptor %#x is that of K = 96, which the emulator does not support", desc)
	case t.perRow == 0 && field(30, 2) != 0:
		return nil, fmt.Errorf("the instruction descriptor %#x shifts B, which the emulator does not support", desc)
	case t.perRow == 2 && (s.idA|s.idB)&1 != 0, t.perRow == 4 && s.idA|s.idB != 0:
		return nil, fmt.Errorf("the instruction descriptor %#x has scale factors %d and %d: want multiples of %d", desc,
			s.idA, s.idB, t.perRow)
	case narrow && (s.mnMajorA || s.mnMajorB):
		return nil, fmt.Errorf("operands of less than 8 bits are MN-major: want K-major")
	case t.descA == 0 && (t.reuses || t.pair && p.m == 128):
		return nil, fmt.Errorf("the emulator does not support A of this shape and type in tensor memory")
	}
	p.a, p.b, p.d = elementOf(s.typeA), elementOf(s.typeB), elementOf(result)
	p.dot.A, p.dot.B, p.dot.Result = number.Of(s.typeA), number.Of(s.typeB), number.Of(result)
	if s.rowsPer = p.m; t.pair {
		s.rowsPer /= 2
	}
	if t.sparseA {
		return s, s.checkSparse()
	}
	return s, nil
}

// padded reports whether elements of type t are padded to bytes.
func (t *tensorProduct) padded(typ ptx.Type) bool { return t.kind.padded && typ.Bits() < 8 }

// tensorIssue is a product that a lane issues, with its operands.
type tensorIssue struct {
	*tensorShape
	sharedA, sharedB *operand // sharedA is nil if A is in tensor memory
	laneA, colA      int      // of A in tensor memory
	laneD, colD      int
	colMeta          int    // of the metadata of a sparse A
	colScales        [2]int // of the scales of A and B
	adds, nearest    bool
	masks            []uint32 // of the lanes that are not written
	shared           []sharedRead
	reads, writes    []*tensorPart
}

// issue starts the operation of a lane.
func (t *tensorProduct) issue(w *warp, in *inst, lane int) {
	x := t.decode(w, in, lane)
	if x != nil && x.access(w, in) {
		w.issueTensor(in, lane, x.shared, x.reads, x.writes, func() { x.run(w, in) })
	}
}

// decode returns the product that a lane issues, or nil after a misuse.
func (t *tensorProduct) decode(w *warp, in *inst, lane int) *tensorIssue {
	s, err := t.describe(reg[uint32](w, t.idesc)[lane])
	if err != nil {
		w.misuse(in, "%v", err)
		return nil
	}
	const disabled = 1 << 39
	if t.zeros != 0 && reg[uint64](w, t.zeros)[lane]&disabled == 0 {
		w.misuse(in, "the emulator does not support a mask of columns of B that count as zero")
		return nil
	}
	if s.blocks = w.pairOf(in, t.pair); s.blocks == nil {
		return nil
	}
	x := &tensorIssue{tensorShape: s, adds: *pred(w, t.input)>>lane&1 != 0, nearest: w.accumulatesNearest()}
	x.sharedB = t.matrix(reg[uint64](w, t.descB)[lane], s.n/len(s.blocks), s.depth, s.typeB, s.mnMajorB)
	if t.descA != 0 {
		x.sharedA = t.matrix(reg[uint64](w, t.descA)[lane], s.rowsPer, s.k, s.typeA, s.mnMajorA)
	}
	x.laneD, x.colD = t.atD.at(w, lane)
	x.laneA, x.colA = t.atA.at(w, lane)
	_, x.colScales[0] = t.scaleA.at(w, lane)
	_, x.colScales[1] = t.scaleB.at(w, lane)
	for _, slot := range t.off {
		x.masks = append(x.masks, reg[uint32](w, slot)[lane])
	}
	var laneMeta int
	laneMeta, x.colMeta = t.meta.at(w, lane)
	if t.sparseA && (laneMeta != 0 || x.colMeta%2 != 0) {
		w.misuse(in, "the metadata are in lane %d and column %d of tensor memory: want lane 0 and an even column", laneMeta,
			x.colMeta)
		return nil
	}
	if from := x.laneD % tensorLanes; from != 0 && (from != 16 || s.m != 64 || t.reuses) {
		w.misuse(in, "D starts at lane %d of tensor memory: want lane 0", from)
		return nil
	}
	return x
}

// access sets the parts of memory that the product accesses. It returns false after a misuse.
func (x *tensorIssue) access(w *warp, in *inst) bool {
	for _, block := range x.blocks {
		spans := x.sharedB.spans(0, x.sharedB.rows)
		if x.sharedA != nil {
			spans = append(spans, x.sharedA.spans(0, x.sharedA.rows)...)
		} else {
			part := x.rowsOf(block, x.laneA, x.colA)
			part.cols = x.k * x.tensorElement().bits / 32
			x.reads = append(x.reads, part)
		}
		if !w.checkSharedSpans(in, block, spans) {
			return false
		}
		x.shared = append(x.shared, sharedRead{block, spans})
		whole := func(col, cols int) {
			x.reads = append(x.reads, &tensorPart{block: block, col: col, lanes: tensorLanes, cols: cols})
		}
		if x.perRow > 0 {
			whole(x.colScales[0], (x.rowsPer+lanes-1)/lanes)
			whole(x.colScales[1], (x.n+lanes-1)/lanes)
		}
		if x.sparseA {
			whole(x.colMeta, 2)
		}
		d := x.results(block, x.laneD, x.colD)
		x.writes = append(x.writes, d)
		if w.tracks && x.adds && d.check() == nil {
			w.trackBulk(d.event(w.origin(in), 0, AsyncRead))
		}
	}
	return true
}

// run computes the product.
func (x *tensorIssue) run(w *warp, in *inst) {
	var cols []float64
	for _, block := range x.blocks {
		cols = append(cols, x.read(x.sharedB, block.shared.bytes(), x.b, x.typeB, x.negB)...)
	}
	for n, block := range x.blocks {
		var rows []float64
		if x.sharedA != nil {
			rows = x.read(x.sharedA, block.shared.bytes(), x.a, x.typeA, x.negA)
		} else {
			rows = x.readTensor(block, x.laneA, x.colA)
		}
		var scales [2][]float64
		if x.perRow > 0 {
			scales[0] = x.readScales(block, x.colScales[0], x.rowsPer, x.idA)
			scales[1] = x.readScales(block, x.colScales[1], x.n, x.idB)
		}
		masks := x.masks
		if len(masks) > 4 {
			masks = masks[4*n:][:4]
		}
		var places [][]int
		if x.sparseA {
			var err error
			if places, err = x.places(block, x.colMeta); err != nil {
				w.block.cluster.fail(w.siteError(ErrMisuse, in, "%v", err))
				return
			}
		}
		x.compute(x.nearest, block, x.laneD, x.colD, x.adds, rows, cols, places, scales, masks)
	}
}

// matrix returns a matrix of rows×k elements in shared memory.
func (t *tensorProduct) matrix(word uint64, rows, k int, typ ptx.Type, mnMajor bool) *operand {
	o := &operand{descriptor: unpackTensorDescriptor(word), rows: rows, k: k, size: max(typ.Bytes(), 1), mnMajor: mnMajor}
	switch {
	case t.padded(typ):
		o.padding = 16 - 16*typ.Bits()/8
	case typ.Bits() < 8:
		o.k = k * typ.Bits() / 8
	}
	return o
}

// read returns the elements of a matrix in shared memory in row-major order.
func (t *tensorProduct) read(o *operand, memory []byte, e *elementType, typ ptx.Type, negate bool) []float64 {
	sign := 1.0
	if negate {
		sign = -1
	}
	if !t.padded(typ) {
		return o.read(memory, e, sign)
	}
	const group = 16 // elements, which take up as many bytes with the padding at their end
	m := make([]float64, 0, o.rows*o.k)
	for row := range o.rows {
		for k := 0; k < o.k; k += group {
			bytes := memory[o.at(row, k):][:group]
			for n := range group {
				at := n * e.bits
				bits := uint64(bytes[at/8]) | uint64(bytes[(at+7)/8])<<8
				m = append(m, sign*e.decode(bits>>(at%8)))
			}
		}
	}
	return m
}

// place returns the lane and the column of an element of D, relative to D's address, in the memory
// of a block (manual: "tcgen05-data-path-layout-organization").
func (s *tensorShape) place(row, col int) (lane, column int) {
	switch {
	case s.reuses && s.m < tensorLanes, s.pair && s.m == 128: // columns in several parts of the lanes
		each := s.n * s.rowsPer / tensorLanes
		return row + col/each*s.rowsPer, col % each
	case s.m == 64: // 16 rows in each quarter
		return row/16*lanes + row%16, col
	}
	return row, col
}

// rowsOf returns the part that holds the rows of A or D, without its columns.
func (s *tensorShape) rowsOf(b *block, lane, col int) *tensorPart {
	p := &tensorPart{block: b, lane: lane, col: col, lanes: s.rowsPer}
	if s.rowsPer == 64 && !s.reuses && !s.pair {
		p.lanesPerQuarter = 16
	}
	return p
}

// results returns the part that holds D.
func (s *tensorShape) results(b *block, lane, col int) *tensorPart {
	p := s.rowsOf(b, lane, col)
	if p.cols = s.n; p.lanesPerQuarter == 0 && s.rowsPer < tensorLanes {
		p.cols = s.n * s.rowsPer / tensorLanes
		p.lanes = tensorLanes
	}
	return p
}

// tensorElement returns the encoding of elements of A in tensor memory. There, 4-bit and 6-bit
// floats are in the middle of a byte (CUTLASS, cp_narrow_a_to_tmem_mma.py).
func (s *tensorShape) tensorElement() *elementType {
	e := s.a
	if !s.padded(s.typeA) {
		return e
	}
	return &elementType{8, func(b uint64) float64 { return e.decode(b >> paddingBelow(e.bits)) }, nil}
}

// paddingBelow returns the bits below a float of n bits in a byte of tensor memory.
func paddingBelow(n int) int { return (8 - n) / 2 }

// readTensor returns the rows of A in tensor memory.
func (s *tensorShape) readTensor(b *block, lane, col int) []float64 {
	e := s.tensorElement()
	sign := 1.0
	if s.negA {
		sign = -1
	}
	m := make([]float64, 0, s.rowsPer*s.k)
	for row := range s.rowsPer {
		at, _ := s.place(row, 0)
		for k := range s.k {
			bit := k * e.bits
			word := uint64(*b.tensor.word(lane+at, col+bit/32))
			m = append(m, sign*e.decode(word>>(bit%32)))
		}
	}
	return m
}

// readScales returns the scales of n rows of A or columns of B. Rows 32j to 32j+31 are in column j,
// lane by lane, and the scales of a row are bytes of the word. A GPU reads the copies in all four
// quarters of the lanes.
func (s *tensorShape) readScales(b *block, col, n, id int) []float64 {
	m := make([]float64, 0, n*s.perRow)
	for row := range n {
		word := *b.tensor.word(row%lanes, col+row/lanes)
		for k := range s.perRow {
			m = append(m, s.dot.Scale.Decode(uint64(word>>(8*(id+k))&0xff)))
		}
	}
	return m
}

// compute computes the rows of a block. For a sparse A, places holds the columns of the elements of
// each row.
func (s *tensorShape) compute(
	nearest bool, b *block, lane, col int, adds bool, rows, cols []float64, places [][]int, scales [2][]float64,
	off []uint32,
) {
	factor := math.Ldexp(1, -s.scaleD)
	selected := make([]float64, s.k)
	for i := range s.rowsPer {
		for j := range s.n {
			at, column := s.place(i, j)
			if len(off) > 0 && off[(lane+at)/lanes]>>((lane+at)%lanes)&1 != 0 {
				continue
			}
			word := b.tensor.word(lane+at, col+column)
			c := 0.0
			if adds {
				c = s.d.decode(uint64(*word)) * factor
			}
			x, y := rows[i*s.k:][:s.k], cols[j*s.depth:][:s.depth]
			if s.sparseA {
				for k, place := range places[i] {
					selected[k] = y[place]
				}
				y = selected
			}
			if s.perRow > 0 {
				c = s.dot.Scaled(nearest, x, y, c, scales[0][i*s.perRow:][:s.perRow], scales[1][j*s.perRow:][:s.perRow])
			} else {
				c = s.dot.Element(nearest, x, y, c)
			}
			*word = uint32(s.d.encode(c))
		}
	}
}
