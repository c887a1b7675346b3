package stream

import (
	"fmt"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/ints"
	"tilework/internal/program"
)

// lane is a lane of the program of a part of a product.
type lane int

// The lanes of a part. A schedule of one step uses the first for all ops.
const (
	kernels    lane = iota // the device's default stream
	concurrent             // kernels of every other panel
	copiesIn
	copiesOut
	peerCopies // copies from other devices
	lanes
)

var laneNames = [lanes]string{"kernels", "more kernels", "copies in", "copies out", "copies from GPUs"}

// workers is the largest number of goroutines that enqueue the ops of a part.
const workers = 3

// worker returns the number of the goroutine that enqueues the ops of a lane. Stores wait for the
// device, so they have one of their own. Loads have one if they run ahead, as far as there are
// buffers. Otherwise they alternate with kernels, which saves waking a goroutine for each step.
func (s *schedule) worker(l lane) int {
	switch {
	case len(s.steps) == 1:
		return 0
	case l == copiesOut:
		return 1
	case s.ahead && (l == copiesIn || l == peerCopies):
		return 2
	}
	return 0
}

// exchange describes which parts of a product copy pieces of the operand that all need from each
// other: each loads a piece of every part of the operand, and copies the other pieces from the
// devices that have loaded them.
type exchange int

const (
	noExchange exchange = iota
	exchanged
	// predicted is the exchange of a single part of a product for its prediction. The pieces of the
	// other devices are taken to arrive there when its own does.
	predicted
)

// writer writes the program of a part of a product.
type writer struct {
	*program.Program
	*schedule
	plan    *Plan
	pieces  int // in which a load of a shared operand is divided; 1 if nothing is exchanged
	index   int // of the part among those of the product
	lanes   [lanes]int
	start   int             // the op after which all streams may use the reserved memory, or none
	step    int             // the next one
	operand gemm.Operand    // the next one of the step to load
	vectors int             // the last load of an operand that is copied whole, or none
	readers []int           // by part, the last copy to it from this part's memory, or none
	uses    [matrices][]use // of the buffers

	// Of the last load of a shared operand: its part, and the op that loads this part's piece, or none
	// if the piece is empty.
	shared program.Rect
	sent   int
}

// none is the number of no op.
const none = -1

// use describes the last ops that used a buffer.
type use struct {
	loaded, copied int                    // the last load or pack, and the last copy
	launches       [concurrentKernels]int // the last one in each stream of kernels
	sum, store     int                    // of a buffer of C: the last launch that left partial sums, and the last store
	free           []int                  // ops for which the next op that writes the buffer waits
}

// write writes the program of the plans, which compute parts of a product, with a schedule of each.
func write(plans []*Plan, schedules []*schedule, x exchange) *program.Program {
	steps := 0
	for _, s := range schedules {
		steps += len(s.steps)
	}
	const each = 3 // usual number of ops of a step
	p := &program.Program{Ops: make([]program.Op, 0, each*steps+len(plans))}
	var all []*writer
	for i, pl := range plans {
		w := &writer{Program: p, schedule: schedules[i], plan: pl, index: i, pieces: 1, start: none, vectors: none,
			readers: slices.Repeat([]int{none}, len(plans))}
		switch x {
		case exchanged:
			w.pieces = len(plans)
		case predicted:
			w.pieces = pl.devices
		}
		w.open(len(plans) > 1)
		all = append(all, w)
	}
	for more := true; more; {
		more = false
		for _, w := range all {
			more = w.advance() || more
		}
		if more {
			for _, w := range all {
				w.copyPieces(all)
			}
		}
	}
	for _, w := range all {
		w.close()
	}
	return p
}

// open adds the lanes. The lanes of copies begin when the device has done all earlier work, which
// may still use the reserved memory.
func (w *writer) open(several bool) {
	for l := range lanes {
		engine := l
		if l == concurrent {
			engine = kernels
		}
		name := laneNames[l]
		if several {
			name = fmt.Sprintf("GPU %d, %s", w.index, name)
		}
		w.lanes[l] = w.AddLane(program.Lane{Name: name, Worker: w.index*workers + w.worker(l),
			Engine: w.index*int(lanes) + int(engine)})
	}
	if len(w.steps) == 1 {
		for l := range lanes {
			w.lanes[l] = w.lanes[kernels]
		}
	} else {
		w.start = w.Add(program.Op{Kind: program.Join, Lane: w.lanes[kernels]})
	}
	for o, sizes := range w.sizes {
		w.uses[o] = make([]use, len(sizes))
		for i := range w.uses[o] {
			w.uses[o][i] = use{none, none, [...]int{none, none}, none, none, nil}
		}
	}
}

// advance adds the ops up to the next load of a shared operand, and then the load of this part's
// piece. It returns false after the last op.
func (w *writer) advance() bool {
	for ; w.step < len(w.steps); w.step, w.operand = w.step+1, 0 {
		s := &w.steps[w.step]
		for w.operand < matrices {
			o := w.operand
			w.operand++
			if s.begins[o] {
				b := w.use(o)
				b.free = append(b.free[:0], b.launches[:]...)
				if o == gemm.C {
					b.free = append(b.free[:0], b.store)
				}
			}
			p := s.load[o]
			if w.pieces > 1 && w.plan.shared(o) && !p.Empty() {
				w.shared, w.sent = p, w.load(o, w.plan.piecesOf(o, p, w.pieces)[w.index])
				return true
			}
			w.load(o, p)
		}
		if w.step == 0 {
			for o, l := range w.plan.vectors {
				whole := program.First(l.OpRows()).By(program.First(l.OpCols()))
				w.vectors = w.add(copiesIn, program.Op{Kind: program.Load, Operand: o, Part: whole, Bytes: l.Bytes()}, w.start)
			}
		}
		w.launch(s)
	}
	return false
}

// add adds an op of the step to a lane.
func (w *writer) add(on lane, op program.Op, after ...int) int {
	op.Lane, op.Step = w.lanes[on], w.step
	return w.Add(op, after...)
}

// use returns the use of the step's buffer of operand o.
func (w *writer) use(o gemm.Operand) *use { return &w.uses[o][w.steps[w.step].buffers[o]] }

// load adds the copy of a part of an operand from the host, and returns its op.
func (w *writer) load(o gemm.Operand, p program.Rect) int {
	if p.Empty() {
		return none
	}
	b := w.use(o)
	op := program.Op{Kind: program.Load, Operand: o, Part: p, Bytes: int(w.plan.bytes(o, p))}
	b.loaded = w.add(copiesIn, op, append(b.free, w.start)...)
	b.free = b.free[:0]
	if w.raw[o] > 0 {
		b.loaded = w.add(copiesIn, program.Op{Kind: program.Pack, Operand: o, Part: p})
	}
	return b.loaded
}

// copyPieces adds the copies of the other parts' pieces of the last shared load.
func (w *writer) copyPieces(all []*writer) {
	if w.step == len(w.steps) {
		return
	}
	o := w.operand - 1
	pieces := w.plan.piecesOf(o, w.shared, w.pieces)
	for i := 1; i < w.pieces; i++ {
		number := (w.index + i) % w.pieces
		from := all[number%len(all)] // the part itself in a prediction
		if p := pieces[number]; !p.Empty() && from.sent != none {
			op := program.Op{Kind: program.Copy, Operand: o, Part: p, Bytes: int(w.plan.bytes(o, p)), Source: from.sent}
			w.use(o).copied = w.add(peerCopies, op, from.sent, w.start)
			from.readers[w.index] = w.use(o).copied
		}
	}
}

// launch adds the launches of a step, and the store of its part of C.
func (w *writer) launch(s *step) {
	on, c := kernels, w.use(gemm.C)
	if s.concurrent {
		on = concurrent
	}
	after := append(c.free, w.vectors)
	if s.depth.From > 0 {
		after = append(after, c.sum)
	}
	c.free = c.free[:0]
	var read []*use
	for o := range matrices {
		if o != gemm.Residual || s.store {
			read = append(read, w.use(o))
			after = append(after, w.use(o).loaded, w.use(o).copied)
		}
	}
	op := program.Op{Kind: program.Launch, Operand: gemm.C, Part: s.parts()[gemm.C]}
	made := w.add(on, op, after...)
	for _, b := range read {
		b.launches[on] = made
	}
	if s.store {
		op.Kind, op.Bytes = program.Store, int(w.plan.bytes(gemm.C, op.Part))
		c.store = w.add(copiesOut, op, made)
	} else {
		c.sum = made
	}
}

// close lets the device wait for the copies from its memory to other devices, before the memory is
// freed.
func (w *writer) close() {
	if slices.Max(w.readers) != none {
		w.Add(program.Op{Kind: program.Join, Lane: w.lanes[kernels]}, w.readers...)
	}
}

// shared reports whether all parts of the product need the same parts of operand o.
func (pl *Plan) shared(o gemm.Operand) bool {
	if pl.dividesRows() {
		return o == gemm.B || o == gemm.Up
	}
	return o == gemm.A
}

// exchangeable reports whether pieces of the shared operands can be exchanged: they are not packed
// when they arrive, and no buffer is used again while another device may still read it.
func (pl *Plan) exchangeable(s *schedule) bool {
	if len(s.steps) == 1 {
		return false
	}
	for x := range matrices {
		if !pl.shared(x) {
			continue
		}
		begun := 0
		for i := range s.steps {
			if s.steps[i].begins[x] {
				begun++
			}
		}
		if s.raw[x] > 0 || begun > len(s.sizes[x]) {
			return false
		}
	}
	return true
}

// piecesOf cuts a part of an operand into n pieces of whole stored rows. Some may be empty.
func (pl *Plan) piecesOf(o gemm.Operand, p program.Rect, n int) (all []program.Rect) {
	rows := &p.Rows
	if pl.host.Layouts[o].Trans {
		rows = &p.Cols
	}
	whole := *rows
	each := ints.CeilDiv(whole.Len(), n)
	for i := range n {
		*rows = program.Range(min(whole.From+i*each, whole.To), min(whole.From+(i+1)*each, whole.To))
		all = append(all, p)
	}
	return all
}
