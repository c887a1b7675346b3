package explain

import (
	"fmt"
	"math/bits"

	"tilework/internal/gemm"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// watcher is an observer that follows the elements of A and B from global memory through registers
// and shared memory to the threads that multiply them.
type watcher struct {
	machine *Machine
	trace   *Trace
	sources map[string][]string
}

// conversions lists the instructions that move, convert or scale a value. A bfloat16 is converted
// by a shift. 8-bit floats are converted by shifts, masks, a multiplication by a constant, and a
// selection between the result and NaN.
var conversions = []string{"mov", "cvt", "shl", "and", "or", "mul", "selp"}

// registers returns the names of an operand's registers, in order.
func registers(o ptx.Operand) []string {
	switch o := o.(type) {
	case *ptx.Name:
		return []string{o.Name}
	case *ptx.Vector:
		var all []string
		for _, e := range o.Elems {
			all = append(all, registers(e)...)
		}
		return all
	}
	return nil
}

// origin returns the register into which a value was loaded.
func (w *watcher) origin(register string) string {
	for range len(w.sources) { // terminates even for a cycle
		from := w.sources[register]
		if len(from) == 0 {
			break
		}
		register = from[0]
	}
	return register
}

// threadRegister is a register of a thread.
type threadRegister struct {
	thread   int
	register string
}

// blockWatcher follows the accesses of one block.
type blockWatcher struct {
	*watcher
	info     *emu.BlockInfo
	sections []*section
	loaded   map[threadRegister]int // index, in its section, of the load whose value is in the register
	from     map[threadRegister]*section
	shared   map[int]cell // the element at each offset; none for zero padding
	owner    map[cell]int // the thread that stores each element of C
}

// Block implements [emu.Observer].
func (w *watcher) Block(b *emu.BlockInfo) *emu.Hooks {
	x := &blockWatcher{watcher: w, info: b, sections: []*section{newSection()}, loaded: map[threadRegister]int{},
		from: map[threadRegister]*section{}, shared: map[int]cell{}, owner: map[cell]int{}}
	return &emu.Hooks{Access: x.access, Barrier: x.barrier, End: x.end}
}

func (x *blockWatcher) current() *section { return x.sections[len(x.sections)-1] }

func (x *blockWatcher) barrier(b *emu.Barrier) {
	if b.Kind == emu.BarrierComplete {
		x.sections = append(x.sections, newSection())
	}
}

func (x *blockWatcher) access(a *emu.Access) {
	for mask := a.Mask; mask != 0; mask &= mask - 1 {
		lane := bits.TrailingZeros32(mask)
		thread := 32*a.Warp + lane
		name, offset := x.machine.locate(a.Space, a.Addr[lane])
		switch {
		case a.Space == ptx.Global && a.Kind == emu.Read && (name == "A" || name == "B"):
			x.load(thread, name, offset, registers(a.Site.Instr.Args[0]))
		case a.Space == ptx.Global && a.Kind == emu.Write && name == "C":
			l := x.machine.problem.Layouts[gemm.C]
			for i := range l.Type.Elements(a.Size) {
				row, col := element(l, offset+l.Type.Bytes(i))
				x.owner[cell{"C", row, col}] = thread
			}
		case a.Space == ptx.Shared && a.Kind == emu.Write:
			x.store(thread, name, int(a.Addr[lane]), offset, a.Size, registers(a.Site.Instr.Args[1]))
		case a.Space == ptx.Shared && a.Kind == emu.Read:
			size := a.Size / max(len(registers(a.Site.Instr.Args[0])), 1)
			for at := int(a.Addr[lane]); at < int(a.Addr[lane])+a.Size; at += size {
				if c, ok := x.shared[at]; ok {
					x.current().read(thread, c)
				}
			}
		}
	}
}

// load records that a thread loads consecutive elements into the given registers.
func (x *blockWatcher) load(thread int, matrix string, offset int, to []string) {
	l := x.machine.operand(matrix)
	s := x.current()
	for i, r := range to {
		row, col := element(l, offset+l.Type.Bytes(i))
		at := threadRegister{thread, r}
		x.loaded[at], x.from[at] = len(s.loads), s
		value := x.trace.A
		if matrix == "B" {
			value = x.trace.B
		}
		s.loads = append(s.loads, TraceLoad{Thread: x.thread(thread), Matrix: matrix, Row: row, Col: col,
			Value: value[row][col]})
		// The thread multiplies the element itself unless it stores it in shared memory; see store.
		s.read(thread, cell{matrix, row, col})
	}
}

// store records that a thread stores its registers in an array in shared memory.
func (x *blockWatcher) store(thread int, name string, addr, offset, bytes int, from []string) {
	size := bytes / max(len(from), 1)
	for i, r := range from {
		delete(x.shared, addr+i*size)
		at := threadRegister{thread, x.origin(r)}
		s := x.from[at]
		if s == nil {
			continue
		}
		l := &s.loads[x.loaded[at]]
		c := cell{l.Matrix, l.Row, l.Col}
		l.Shared = x.machine.index(name, (offset+i*size)/size)
		x.shared[addr+i*size] = c
		delete(s.reads[thread], c)
		delete(x.from, at)
		delete(x.loaded, at)
	}
}

// index returns the expression for element n of a shared array, with the dimensions that the kernel
// declares.
func (m *Machine) index(name string, n int) string {
	for _, f := range m.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			if v, ok := s.(*ptx.Var); ok && v.Name == name && len(v.Dims) == 2 {
				name = fmt.Sprintf("%s[%d][%d]", name, n/v.Dims[1], n%v.Dims[1])
			}
		})
	}
	return name
}

// thread returns the index of thread number n in the block.
func (x *blockWatcher) thread(n int) [3]int {
	d := x.info.BlockDim
	return [3]int{n % d.X, n / d.X % d.Y, n / d.X / d.Y}
}

func (x *blockWatcher) end() {
	sections := x.sections
	barriers := len(sections) > 1
	if !barriers {
		sections = sections[0].byStep(x.machine.problem.K)
	}
	i := x.info.Index
	x.trace.Blocks = append(x.trace.Blocks, TraceBlock{Index: [3]int{i.X, i.Y, i.Z},
		Phases: x.trace.phases(sections, barriers, x.owner, x.thread)})
}
