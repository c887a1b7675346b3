package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/ints"
	"tilework/ptx"
)

// MaxSteps is the largest M, N and K of a product whose steps can be followed.
const MaxSteps = 64

// Steps holds the work of one block of a tiny product, one instruction of a warp after the other.
type Steps struct {
	A     [][]float64 `json:"a"`
	B     [][]float64 `json:"b"`
	Grid  [3]int      `json:"grid"`  // blocks in x, y and z
	Block [3]int      `json:"block"` // threads in x, y and z
	Index [3]int      `json:"index"` // of the block
	Depth int         `json:"depth"` // elements along K of a phase
	// Arrays lists the parts of shared memory that hold elements, by address.
	Arrays []SharedArray `json:"arrays"`
	Steps  []Step        `json:"steps"`
	// Owner is the thread that holds the sum of each element of C, in row-major order. It is -1 for
	// the elements of other blocks.
	Owner []int `json:"owner"`
	// Terms has K numbers for each element of C: the number of steps after which its sum contains
	// A[row][k]·B[k][col], or 0 if it never does.
	Terms []int `json:"terms"`
}

// SharedArray is a part of shared memory that holds elements of one matrix. Word w of shared memory
// is in bank w modulo 32.
type SharedArray struct {
	Name   string `json:"name"`
	Matrix string `json:"matrix"`
	First  int    `json:"first"` // word
	Words  int    `json:"words"`
	Cols   int    `json:"cols"` // words of a row, as declared, or 32: one of each bank
}

// Step is an instruction of a warp that moves or multiplies elements, or that waits.
type Step struct {
	// Op is "load" from global memory into registers, "store" to and "read" from shared memory,
	// "copy" from global to shared memory without registers, "fma" for a multiply-add of threads,
	// "multiply" on tensor cores, "write" to C, "barrier", "wait" for copies or an mbarrier, or
	// "arrive" at an mbarrier.
	Op    string `json:"op"`
	Line  int    `json:"line"` // of the instruction in the PTX
	Warp  int    `json:"warp"`
	Phase int    `json:"phase"` // the step along K that the block multiplies; -1 for writes
	Parts []Part `json:"parts,omitempty"`
	// Threads is the number of threads at a barrier.
	Threads int `json:"threads,omitempty"`
	// Wavefronts is the number of passes over the banks of shared memory, and Ideal the number
	// without bank conflicts.
	Wavefronts int `json:"wavefronts,omitempty"`
	Ideal      int `json:"ideal,omitempty"`
	// Sectors is the number of 32-byte sectors of global memory that the access touches.
	Sectors int `json:"sectors,omitempty"`
}

// Part holds the elements of one matrix that a step moves or multiplies. Its lists have an entry
// for each element, or are empty.
type Part struct {
	Matrix string `json:"matrix,omitempty"` // "A", "B" or "C"; empty if all elements are zeros
	// Threads are linear indices in the block. A copy by TMA has a single one. It is empty for an
	// operand that tensor cores read from shared memory.
	Threads []int `json:"threads,omitempty"`
	// Elements are indices in row-major order, and -1 for zeros beyond the edges.
	Elements []int `json:"elements,omitempty"`
	Words    []int `json:"words,omitempty"` // of shared memory
}

func (p *Part) add(thread, element int) {
	p.Threads = append(p.Threads, thread)
	p.Elements = append(p.Elements, element)
}

const (
	wordBytes = 4
	banks     = 32
)

// Steps runs m and returns the steps of the block with a linear index. It follows any kernel whose
// elements are words, also one with planted faults.
//
// The error is ErrUnsupported if a side of the product is larger than [MaxSteps], if there is no
// such block, or if the elements are no words or the product is no plain one.
func (m *Machine) Steps(ctx context.Context, block int) (*Steps, error) {
	p := &m.problem
	switch blocks := m.launch.Grid.Count(); {
	case max(p.M, p.N, p.K) > MaxSteps:
		return nil, fmt.Errorf("%w: the steps of %d×%d×%d: want at most %d for M, N and K", gemm.ErrUnsupported, p.M, p.N,
			p.K, MaxSteps)
	case block < 0 || block >= blocks:
		return nil, fmt.Errorf("%w: block %d: want 0 to %d", gemm.ErrUnsupported, block, blocks-1)
	case p.In().Bytes(1) != wordBytes:
		return nil, fmt.Errorf("%w: the steps of a product of %v: want elements of 4 bytes", gemm.ErrUnsupported, p.In())
	}
	if err := checkPlain(m.kernel, p); err != nil {
		return nil, err
	}
	a, b := digits(p.In(), p.K), reversedDigits(p.B().Type, p.N)
	x := &recorder{
		block:   block,
		machine: m, sources: sources(m.module),
		held: map[threadRegister]cell{}, shared: map[int]cell{}, tiles: map[tileInShared][2]int{},
		copies: map[uint64]*copied{},
		out: &Steps{
			A: elements(p.M, p.K, a), B: elements(p.K, p.N, b), Steps: []Step{}, Grid: m.GridDim(), Block: m.BlockDim(),
			Owner: slices.Repeat([]int{-1}, p.M*p.N), Terms: make([]int, p.M*p.N*p.K),
		},
	}
	if _, err := m.Run(ctx, x); err != nil && (ctx.Err() != nil || len(x.out.Steps) == 0) {
		return nil, err // a kernel that a fault ends has steps up to there
	}
	x.out.Depth = x.depth()
	x.out.Arrays = x.arrays()
	return x.out, nil
}

// cols returns the number of columns of a matrix.
func (x *recorder) cols(matrix string) int {
	if matrix == "A" {
		return x.machine.problem.K
	}
	return x.machine.problem.N
}

func (x *recorder) index(c cell) int {
	if c.matrix == "" {
		return -1
	}
	return c.row*x.cols(c.matrix) + c.col
}

// arrays returns the parts of shared memory that held elements: the arrays of two dimensions that
// the kernel declares, and otherwise the stages of its tiles.
func (x *recorder) arrays() []SharedArray {
	list := []SharedArray{}
	declared := x.declared()
	for at, words := range x.tiles {
		inside := func(a SharedArray) bool { return words[0] >= a.First && words[1] < a.First+a.Words }
		if i := slices.IndexFunc(declared, inside); i >= 0 {
			a := declared[i]
			if a.Matrix = at.matrix; !slices.Contains(list, a) {
				list = append(list, a)
			}
			continue
		}
		name := at.matrix
		if at.matrix != "C" && x.machine.config.Tile.Stages > 1 {
			name = fmt.Sprintf("%s, stage %d", at.matrix, at.stage)
		}
		first := words[0] / banks * banks
		list = append(list, SharedArray{Name: name, Matrix: at.matrix, First: first,
			Words: ints.CeilDiv(words[1]+1-first, banks) * banks, Cols: banks})
	}
	slices.SortFunc(list, func(a, b SharedArray) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// declared returns the arrays of two dimensions that the kernel declares in shared memory.
func (x *recorder) declared() (list []SharedArray) {
	shared, _ := x.machine.shared()
	for _, f := range x.machine.module.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			v, ok := s.(*ptx.Var)
			if !ok || v.Space != ptx.Shared || len(v.Dims) != 2 {
				return
			}
			i := slices.IndexFunc(shared, func(a array) bool { return a.name == v.Name })
			list = append(list, SharedArray{Name: v.Name, First: shared[i].start / wordBytes,
				Words: shared[i].size / wordBytes, Cols: v.Dims[1]})
		})
	}
	return list
}

// depth returns the number of elements along K that a block multiplies per phase.
func (x *recorder) depth() int { return max(x.machine.config.Tile.K, 1) }

// along returns the position along K of an element of A or B.
func (c cell) along() int {
	if c.matrix == "A" {
		return c.col
	}
	return c.row
}

func (x *recorder) stage(c cell) int {
	if c.matrix == "C" {
		return 0
	}
	return c.along() / x.depth() % max(x.machine.config.Tile.Stages, 1)
}

// add adds a step. The phase is that of the last elements that the block began to multiply.
func (x *recorder) add(s Step) {
	if s.Op == "load" || s.Op == "store" || s.Op == "read" || s.Op == "fma" || s.Op == "multiply" {
		for _, p := range s.Parts {
			for _, e := range p.Elements {
				if p.Matrix == "C" || e < 0 {
					continue
				}
				cols := x.cols(p.Matrix)
				x.phase = max(x.phase, cell{p.Matrix, e / cols, e % cols}.along()/x.depth())
			}
		}
	}
	if s.Phase = x.phase; s.Op == "write" {
		s.Phase = -1
	}
	x.out.Steps = append(x.out.Steps, s)
}

// sources maps each register that holds a moved, converted or scaled value to the registers that it
// may come from.
func sources(m *ptx.Module) map[string][]string {
	all := map[string][]string{}
	eachInstr(m, func(i *ptx.Instr) {
		if !slices.Contains(conversions, i.Op) {
			return
		}
		to := registers(i.Args[0])
		for _, source := range i.Args[1:] {
			if from := registers(source); len(to) == 1 && len(from) == 1 && !slices.Contains(all[to[0]], from[0]) {
				all[to[0]] = append(all[to[0]], from[0])
			}
		}
	})
	return all
}

func eachInstr(m *ptx.Module, do func(*ptx.Instr)) {
	for _, f := range m.Funcs() {
		f.Body.Walk(func(s ptx.Stmt) {
			if i, ok := s.(*ptx.Instr); ok {
				do(i)
			}
		})
	}
}

// checkPlain returns an ErrUnsupported unless the threads of the kernel compute whole elements of a
// plain product.
func checkPlain(k *kernel.Kernel, p *gemm.Problem) error {
	switch {
	case k.KPerThread > 0:
		return fmt.Errorf("%w: a trace of kernel %s: its threads partition K and exchange partial sums",
			gemm.ErrUnsupported, k.Name)
	case p.Alpha != 1 || p.Beta != 0 || p.Epilogue != gemm.Epilogue{}:
		return fmt.Errorf("%w: a trace of a product with alpha %v, beta %v and epilogue %q: want alpha 1, beta 0 and "+
			"no epilogue", gemm.ErrUnsupported, real(p.Alpha), real(p.Beta), p.Epilogue.String())
	}
	return nil
}

// sorted returns the sorted keys of a set.
func sorted(set map[int]bool) []int { return slices.Sorted(maps.Keys(set)) }
