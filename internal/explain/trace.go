package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
)

// MaxTrace is the largest M, N and K of a trace. A larger trace would be too long to read.
const MaxTrace = 16

// Trace holds the work of each thread of a kernel that computes a tiny product of integers.
type Trace struct {
	Kernel string       `json:"kernel"`
	Config string       `json:"config"`
	A      [][]float64  `json:"a"` // op(A)
	B      [][]float64  `json:"b"` // op(B)
	C      [][]float64  `json:"c"`
	Blocks []TraceBlock `json:"blocks"`
}

// TraceBlock holds the phases of a block.
type TraceBlock struct {
	Index  [3]int       `json:"index"` // x, y, z
	Phases []TracePhase `json:"phases"`
}

// TracePhase is the work of a block up to the barrier after the sums, or one step along K for
// kernels without barriers.
type TracePhase struct {
	Loads []TraceLoad `json:"loads"`
	// Before is the number of barriers between Loads and Sums, After the number of barriers after
	// Sums.
	Before int        `json:"barriers_before"`
	Sums   []TraceSum `json:"sums"`
	// Ahead holds the loads for the next phase that are issued with the sums (prefetching).
	Ahead []TraceLoad `json:"ahead,omitempty"`
	After int         `json:"barriers_after"`
}

// TraceLoad is a thread's load of one element from global memory.
type TraceLoad struct {
	Thread [3]int  `json:"thread"` // x, y, z
	Matrix string  `json:"matrix"` // "A" or "B"
	Row    int     `json:"row"`    // in op(matrix)
	Col    int     `json:"col"`
	Value  float64 `json:"value"`
	// Shared is the element of shared memory that receives the value, such as "As[0][1]". It is
	// empty if the thread multiplies the value directly.
	Shared string `json:"shared,omitempty"`
}

// TraceSum is a thread's contribution to one element of C in a phase.
type TraceSum struct {
	Thread [3]int      `json:"thread"`
	Row    int         `json:"row"`
	Col    int         `json:"col"`
	Terms  []TraceTerm `json:"terms"`
	Added  float64     `json:"added"`
	Sum    float64     `json:"sum"` // including the previous phases
}

// TraceTerm is one product of an element of A, in column K, and one of B, in row K.
type TraceTerm struct {
	K int     `json:"k"`
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// NewTrace runs the kernel for p with tiles of shape s on the emulator and maps each memory access
// to an element of the matrices. It checks that the traced sums equal the C that the kernel
// computes.
//
// The errors are those of [New], and ErrUnsupported if p is larger than [MaxTrace] or is not a
// plain product op(A)·op(B), or if the kernel cannot be traced.
func NewTrace(ctx context.Context, k *kernel.Kernel, s kernel.Tile, p *gemm.Problem) (*Trace, error) {
	if err := checkTraceable(k, p); err != nil {
		return nil, err
	}
	if err := k.Check(p, s, kernel.Align{}, nil); err != nil {
		return nil, err
	}
	j, err := newJob(k, s, p, k.Target(), 1)
	if err != nil {
		return nil, err
	}
	m, err := j.loadDigits()
	if err != nil {
		return nil, err
	}
	return m.trace(ctx)
}

// checkTraceable returns an ErrUnsupported if a run of the kernel for p cannot be traced.
func checkTraceable(k *kernel.Kernel, p *gemm.Problem) error {
	switch {
	case max(p.M, p.N, p.K) > MaxTrace:
		return fmt.Errorf("%w: a trace of %d×%d×%d: want at most %d for M, N and K", gemm.ErrUnsupported, p.M, p.N, p.K,
			MaxTrace)
	case k.Tensor:
		return fmt.Errorf("%w: a trace of kernel %s: tensor cores do not assign terms to threads", gemm.ErrUnsupported,
			k.Name)
	}
	return checkPlain(k, p)
}

// trace runs m and returns its trace.
func (m *Machine) trace(ctx context.Context) (*Trace, error) {
	p := &m.problem
	a, b := digits(p.In(), p.K), reversedDigits(p.B().Type, p.N)
	t := &Trace{Kernel: m.kernel.Name, Config: m.config.String(), A: elements(p.M, p.K, a), B: elements(p.K, p.N, b)}
	w := &watcher{machine: m, trace: t, sources: sources(m.module)}
	if _, err := m.Run(ctx, w); err != nil {
		return nil, err
	}
	c, err := m.Result()
	if err != nil {
		return nil, err
	}
	t.C = elements(p.M, p.N, c)
	return t, t.check(p)
}

func elements(rows, cols int, element func(i, j int) float64) [][]float64 {
	all := make([][]float64, rows)
	for i := range all {
		all[i] = make([]float64, cols)
		for j := range all[i] {
			all[i][j] = element(i, j)
		}
	}
	return all
}

// check compares the traced sums, rounded to C's type, with C.
func (t *Trace) check(p *gemm.Problem) error {
	sums := map[[2]int]float64{}
	for _, b := range t.Blocks {
		for _, ph := range b.Phases {
			for _, s := range ph.Sums {
				sums[[2]int{s.Row, s.Col}] = s.Sum
			}
		}
	}
	one := make([]byte, p.Out().Bytes(1))
	for i, row := range t.C {
		for j, c := range row {
			p.Out().Set(one, 0, sums[[2]int{i, j}])
			if got := p.Out().At(one, 0); got != c {
				return fmt.Errorf("the trace of kernel %s (%s) is incomplete: C[%d][%d] is %v, but the traced loads sum to %v",
					t.Kernel, t.Config, i, j, c, got)
			}
		}
	}
	return nil
}

// cell is an element of A, B or C.
type cell struct {
	matrix   string
	row, col int
}

// section holds the accesses between two barriers.
type section struct {
	loads []TraceLoad
	reads map[int]map[cell]bool // the elements that each thread multiplies
}

func newSection() *section { return &section{reads: map[int]map[cell]bool{}} }

func (s *section) read(thread int, c cell) {
	if s.reads[thread] == nil {
		s.reads[thread] = map[cell]bool{}
	}
	s.reads[thread][c] = true
}

// phases combines the sections of a block into phases. barriers reports whether barriers separate
// the sections. owner is the thread that stored each element of C.
func (t *Trace) phases(sections []*section, barriers bool, owner map[cell]int, thread func(int) [3]int) []TracePhase {
	var list []TracePhase
	sums := map[cell]float64{}
	elements := slices.SortedFunc(maps.Keys(owner), func(x, y cell) int {
		return cmp.Or(cmp.Compare(x.row, y.row), cmp.Compare(x.col, y.col))
	})
	summer := map[cell]int{}
	for _, c := range elements {
		summer[c] = summedBy(sections, owner[c], c)
	}
	var ph TracePhase
	for i, s := range sections {
		slices.SortStableFunc(s.loads, func(x, y TraceLoad) int { return compareThreads(x.Thread, y.Thread) })
		for _, c := range elements {
			sum := TraceSum{Thread: thread(summer[c]), Row: c.row, Col: c.col}
			for k := range t.B {
				if r := s.reads[summer[c]]; r[cell{"A", c.row, k}] && r[cell{"B", k, c.col}] {
					term := TraceTerm{K: k, A: t.A[c.row][k], B: t.B[k][c.col]}
					sum.Terms = append(sum.Terms, term)
					sum.Added += term.A * term.B
				}
			}
			if len(sum.Terms) > 0 {
				sums[c] += sum.Added
				sum.Sum = sums[c]
				ph.Sums = append(ph.Sums, sum)
			}
		}
		barrier := 0
		if barriers && i < len(sections)-1 {
			barrier = 1
		}
		switch {
		case len(ph.Sums) == 0:
			ph.Loads = append(ph.Loads, s.loads...)
			ph.Before += barrier
			continue
		case barriers:
			ph.Ahead, ph.After = s.loads, barrier
		default:
			ph.Loads = s.loads
		}
		list = append(list, ph)
		ph = TracePhase{}
	}
	return list
}

// summedBy returns the thread that summed element c of C: the thread that stored it, or, if threads
// exchange sums before the store, the first thread that multiplied the operands of c.
func summedBy(sections []*section, storer int, c cell) int {
	multiplied := func(s *section, thread int) bool {
		for x := range s.reads[thread] {
			if x.matrix == "A" && x.row == c.row && s.reads[thread][cell{"B", x.col, c.col}] {
				return true
			}
		}
		return false
	}
	for _, s := range sections {
		if multiplied(s, storer) {
			return storer
		}
	}
	for _, s := range sections {
		for _, thread := range slices.Sorted(maps.Keys(s.reads)) {
			if multiplied(s, thread) {
				return thread
			}
		}
	}
	return storer
}

// compareThreads orders the indices of threads, or of blocks.
func compareThreads(a, b [3]int) int {
	return cmp.Or(cmp.Compare(a[2], b[2]), cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0]))
}

// byStep splits a section of a kernel without barriers into one section for each step along K.
func (s *section) byStep(depth int) []*section {
	steps := make([]*section, depth)
	for i := range steps {
		steps[i] = newSection()
	}
	step := func(c cell) *section {
		if c.matrix == "A" {
			return steps[c.col]
		}
		return steps[c.row]
	}
	for _, l := range s.loads {
		at := step(cell{l.Matrix, l.Row, l.Col})
		at.loads = append(at.loads, l)
	}
	for thread, reads := range s.reads {
		for c := range reads {
			step(c).read(thread, c)
		}
	}
	return steps
}
