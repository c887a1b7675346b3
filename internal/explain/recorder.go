package explain

import (
	"math/bits"

	"tilework/internal/gpu/frag"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// recorder is an observer that records the steps of one block. It follows each element of A and B
// from global memory through registers and shared memory, and each sum to C.
type recorder struct {
	machine *Machine
	block   int // linear index
	out     *Steps
	phase   int

	sources map[string][]string
	held    map[threadRegister]cell // the element in each register
	shared  map[int]cell            // the element in each word; none for a zero
	tiles   map[tileInShared][2]int // the first and the last word
	copies  map[uint64]*copied
}

// copied is the first half of a cp.async: the source of each lane.
type copied struct {
	addr [32]uint64
	size [32]int
}

// Block implements [emu.Observer].
func (x *recorder) Block(b *emu.BlockInfo) *emu.Hooks {
	if b.Linear != x.block {
		return &emu.Hooks{}
	}
	x.out.Index = [3]int{b.Index.X, b.Index.Y, b.Index.Z}
	return &emu.Hooks{Execute: x.execute, Access: x.access, Barrier: x.barrier, WarpSync: x.warpSync, Bulk: x.bulk,
		Mbarrier: x.mbarrier, CopyDone: x.copyDone}
}

func (x *recorder) barrier(b *emu.Barrier) {
	if b.Kind == emu.BarrierComplete {
		x.add(Step{Op: "barrier", Line: b.Site.Pos.Line, Warp: b.Warp,
			Threads: min(b.Arrived, x.machine.launch.Block.Count())})
	}
}

func (x *recorder) copyDone(c *emu.CopyDone) {
	if len(c.Copies) > 0 {
		x.wait("wait", c.Origin)
	}
}

func (x *recorder) mbarrier(m *emu.Mbarrier) {
	switch m.Kind {
	case emu.MbarrierWait:
		x.wait("wait", m.Origin)
	case emu.MbarrierArrive:
		x.wait("arrive", m.Origin)
	}
}

// wait adds a step without elements. The events of the lanes of a warp are one step.
func (x *recorder) wait(op string, o emu.Origin) {
	s := Step{Op: op, Line: o.Site.Pos.Line, Warp: o.Warp, Parts: []Part{{}}}
	if n := len(x.out.Steps); n > 0 {
		if last := &x.out.Steps[n-1]; last.Op == op && last.Line == s.Line && last.Warp == s.Warp {
			last.Parts[0].addLanes(o)
			return
		}
	}
	s.Parts[0].addLanes(o)
	x.add(s)
}

func (p *Part) addLanes(o emu.Origin) {
	for mask := o.Mask; mask != 0; mask &= mask - 1 {
		p.Threads = append(p.Threads, frag.Lanes*o.Warp+bits.TrailingZeros32(mask))
	}
}

// global returns the element at an address in global memory.
func (x *recorder) global(addr uint64) cell {
	name, offset := x.machine.locate(ptx.Global, addr)
	l := x.machine.operand(name)
	if l.LD == 0 {
		return cell{}
	}
	row, col := element(l, offset)
	if row >= l.OpRows() || col >= l.OpCols() {
		return cell{} // padding
	}
	return cell{name, row, col}
}

func (x *recorder) access(a *emu.Access) {
	switch {
	case a.Site.Instr.Op == "mbarrier": // see [recorder.mbarrier]
	case a.Space == ptx.Global && a.Kind == emu.AsyncRead:
		x.beginCopy(a)
	case a.Space == ptx.Shared && a.Kind == emu.AsyncWrite:
		x.endCopy(a)
	case a.Space == ptx.Global && a.Kind == emu.Read:
		x.moved("load", a, registers(a.Site.Instr.Args[0]))
	case a.Space == ptx.Global && a.Kind == emu.Write:
		x.moved("write", a, nil)
	case a.Space == ptx.Shared && a.Kind == emu.Read:
		x.moved("read", a, registers(a.Site.Instr.Args[0]))
	case a.Space == ptx.Shared && a.Kind == emu.Write:
		x.moved("store", a, registers(a.Site.Instr.Args[1]))
	}
}

// lanesOf calls do for each word of an access: its thread, its index among the words of the thread,
// and its address. The threads of an ldmatrix receive words at the addresses of other threads.
func lanesOf(a *emu.Access, do func(thread, n int, addr uint64)) {
	first := frag.Lanes * a.Warp
	if a.Site.Instr.Op == "ldmatrix" {
		for n := range bits.OnesCount32(a.Mask) / frag.Eight {
			for lane := range frag.Lanes {
				do(first+lane, n, a.Addr[frag.Eight*n+lane/frag.Quad]+uint64(lane%frag.Quad*wordBytes))
			}
		}
		return
	}
	for mask := a.Mask; mask != 0; mask &= mask - 1 {
		lane := bits.TrailingZeros32(mask)
		for n := range a.Size / wordBytes {
			do(first+lane, n, a.Addr[lane]+uint64(n*wordBytes))
		}
	}
}

// moved adds the step of an access. regs are the registers of each thread.
func (x *recorder) moved(op string, a *emu.Access, regs []string) {
	s := Step{Op: op, Line: a.Site.Pos.Line, Warp: a.Warp}
	var p Part
	sectors := map[uint64]bool{}
	lanesOf(a, func(thread, n int, addr uint64) {
		var c cell
		var at threadRegister
		if n < len(regs) {
			at = threadRegister{thread, regs[n]}
		}
		word := int(addr / wordBytes)
		switch op {
		case "load", "write":
			c = x.global(addr)
			sectors[addr/sectorBytes] = true
		case "read":
			c = x.shared[word]
		case "store":
			c = x.find(at)
			x.setShared(word, c)
		}
		switch op {
		case "load", "read":
			x.hold(at, c)
		case "write":
			if c.matrix == "C" && x.out.Owner[x.index(c)] < 0 {
				x.out.Owner[x.index(c)] = thread
			}
		}
		if c.matrix != "" {
			p.Matrix = c.matrix
		}
		if p.add(thread, x.index(c)); a.Space == ptx.Shared {
			p.Words = append(p.Words, word)
		}
	})
	if a.Space == ptx.Global && p.Matrix == "" {
		return // of no matrix, such as a tensor map
	}
	if s.Sectors = len(sectors); a.Space == ptx.Shared {
		s.Wavefronts, s.Ideal = check.ModernBanks.Wavefronts(a.Addr, a.Mask, a.Size)
	}
	s.Parts = []Part{p}
	x.add(s)
}

func (x *recorder) hold(at threadRegister, c cell) {
	if c.matrix == "" {
		delete(x.held, at)
		return
	}
	x.held[at] = c
}

// find returns the element in a register, or in a register from which its value comes.
func (x *recorder) find(at threadRegister) cell {
	const steps = 6 // instructions between a sum and its store, such as those of alpha
	c, _ := x.follow(at, steps)
	return c
}

func (x *recorder) follow(at threadRegister, steps int) (cell, threadRegister) {
	if c, ok := x.held[at]; ok || steps == 0 {
		return c, at
	}
	for _, source := range x.sources[at.register] {
		if c, from := x.follow(threadRegister{at.thread, source}, steps-1); c.matrix != "" {
			return c, from
		}
	}
	return cell{}, at
}

func (x *recorder) setShared(word int, c cell) {
	if c.matrix == "" {
		delete(x.shared, word)
		return
	}
	x.shared[word] = c
	at := tileInShared{c.matrix, x.stage(c)}
	words, ok := x.tiles[at]
	if !ok {
		words = [2]int{word, word}
	}
	x.tiles[at] = [2]int{min(words[0], word), max(words[1], word)}
}

// tileInShared is a tile of a matrix in a stage of shared memory.
type tileInShared struct {
	matrix string
	stage  int
}

// beginCopy keeps the sources of a cp.async. endCopy adds its step.
func (x *recorder) beginCopy(a *emu.Access) {
	c := x.copies[a.Copy]
	if c == nil {
		c = &copied{}
		x.copies[a.Copy] = c
	}
	for mask := a.Mask; mask != 0; mask &= mask - 1 {
		lane := bits.TrailingZeros32(mask)
		c.addr[lane], c.size[lane] = a.Addr[lane], a.Size
	}
}

func (x *recorder) endCopy(a *emu.Access) {
	from := x.copies[a.Copy]
	if from == nil {
		from = &copied{} // no lane reads: all words are zeros
	}
	delete(x.copies, a.Copy)
	var p Part
	sectors := map[uint64]bool{}
	lanesOf(a, func(thread, n int, addr uint64) {
		var c cell
		if lane := thread % frag.Lanes; n*wordBytes < from.size[lane] {
			c = x.global(from.addr[lane] + uint64(n*wordBytes))
			sectors[(from.addr[lane]+uint64(n*wordBytes))/sectorBytes] = true
			p.Matrix = c.matrix
		}
		x.copyWord(&p, thread, int(addr/wordBytes), c)
	})
	x.addCopy(&p, a.Origin, len(sectors))
}

func (x *recorder) copyWord(p *Part, thread, word int, c cell) {
	x.setShared(word, c)
	p.add(thread, x.index(c))
	p.Words = append(p.Words, word)
}

func (x *recorder) addCopy(p *Part, o emu.Origin, sectors int) {
	x.add(Step{Op: "copy", Line: o.Site.Pos.Line, Warp: o.Warp, Parts: []Part{*p}, Sectors: sectors})
}

// bulk follows the copies of TMA and the operands of wgmma.
func (x *recorder) bulk(b *emu.Bulk) {
	thread := frag.Lanes*b.Warp + bits.TrailingZeros32(b.Mask)
	switch {
	case b.Site.Instr.Op == "wgmma":
		x.multiply(b.Origin, x.operandB(b.Spans))
	case b.Kind == emu.AsyncWrite && b.Space == ptx.Shared:
		for _, s := range b.Spans {
			for addr := s.Addr; addr < s.Addr+uint64(s.Size); addr += wordBytes {
				delete(x.shared, int(addr/wordBytes))
			}
		}
		p, sectors := Part{}, map[uint64]bool{}
		eachWord(b, func(global, shared uint64) {
			c := x.global(global)
			p.Matrix = c.matrix
			sectors[global/sectorBytes] = true
			x.copyWord(&p, thread, int(shared/wordBytes), c)
		})
		p.Threads = []int{thread}
		x.addCopy(&p, b.Origin, len(sectors))
	case b.Kind == emu.AsyncWrite && b.Space == ptx.Global:
		p, sectors := Part{Threads: []int{thread}, Matrix: "C"}, map[uint64]bool{}
		eachWord(b, func(global, shared uint64) {
			p.Elements = append(p.Elements, x.index(x.global(global)))
			p.Words = append(p.Words, int(shared/wordBytes))
			sectors[global/sectorBytes] = true
		})
		x.add(Step{Op: "write", Line: b.Site.Pos.Line, Warp: b.Warp, Parts: []Part{p}, Sectors: len(sectors)})
	}
}

// eachWord calls do for the words of a bulk copy.
func eachWord(b *emu.Bulk, do func(global, shared uint64)) {
	b.Moves(func(global, shared uint64, n int) {
		for at := uint64(0); at < uint64(n); at += wordBytes {
			do(global+at, shared+at)
		}
	})
}
