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

// MaxTrace is the largest M, N and K that are traced: more is no reading matter.
const MaxTrace = 16

// Trace is what each thread of a kernel does to compute a tiny product of whole numbers.
type Trace struct {
	Kernel string       `json:"kernel"`
	Config string       `json:"config"`
	A      [][]float64  `json:"a"` // op(A)
	B      [][]float64  `json:"b"` // op(B)
	C      [][]float64  `json:"c"`
	Blocks []TraceBlock `json:"blocks"`
}

// TraceBlock is one block's phases.
type TraceBlock struct {
	Index  [3]int       `json:"index"` // x, y, z
	Phases []TracePhase `json:"phases"`
}

// TracePhase is what a block does up to the barrier behind which sums have grown, or
// one step of k where there are no barriers.
type TracePhase struct {
	Loads []TraceLoad `json:"loads"`
	// Before and After are the barriers between Loads and Sums, and behind Sums.
	Before int        `json:"barriers_before"`
	Sums   []TraceSum `json:"sums"`
	// Ahead is loaded for the next phase while the sums grow.
	Ahead []TraceLoad `json:"ahead,omitempty"`
	After int         `json:"barriers_after"`
}

// TraceLoad is a thread's load of one element from global memory.
type TraceLoad struct {
	Thread [3]int  `json:"thread"` // x, y, z
	Matrix string  `json:"matrix"` // "A" or "B"
	Row    int     `json:"row"`    // of op(matrix)
	Col    int     `json:"col"`
	Value  float64 `json:"value"`
	// Shared is where the thread puts it in shared memory: "As[0][1]"; empty for a
	// kernel that multiplies it at once.
	Shared string `json:"shared,omitempty"`
}

// TraceSum is what a thread adds to one element of C in a phase.
type TraceSum struct {
	Thread [3]int      `json:"thread"`
	Row    int         `json:"row"`
	Col    int         `json:"col"`
	Terms  []TraceTerm `json:"terms"`
	Added  float64     `json:"added"`
	Sum    float64     `json:"sum"` // with those of the phases before
}

// TraceTerm is A[row][K]·B[K][col].
type TraceTerm struct {
	K int     `json:"k"`
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// NewTrace runs the kernel for p with tiles of shape s on the emulator, which tells of
// every access to memory, and maps what it tells back to the matrices. That the partial
// sums it derives give the C that the kernel wrote is checked.
//
// The errors are those of [New], and ErrUnsupported for a product that is larger than
// [MaxTrace] or more than op(A)·op(B).
func NewTrace(ctx context.Context, k *kernel.Kernel, s kernel.Tile, p *gemm.Problem) (*Trace, error) {
	switch {
	case max(p.M, p.N, p.K) > MaxTrace:
		return nil, fmt.Errorf("%w: a trace of %d×%d×%d: want at most %d in each", gemm.ErrUnsupported, p.M, p.N, p.K, MaxTrace)
	case k.Tensor:
		return nil, fmt.Errorf("%w: a trace of kernel %s: a warp's threads multiply together, and none has a term of its own", gemm.ErrUnsupported, k.Name)
	case k.KPerThread > 0:
		return nil, fmt.Errorf("%w: a trace of kernel %s: its threads share out K and exchange what they have summed", gemm.ErrUnsupported, k.Name)
	case p.Alpha != 1 || p.Beta != 0 || p.Epilogue != gemm.Epilogue{}:
		return nil, fmt.Errorf("%w: a trace of a product with alpha, beta, bias or activation", gemm.ErrUnsupported)
	}
	j, err := newJob(k, s, p, k.Target(), 1)
	if err != nil {
		return nil, err
	}
	a, b := digits(p.A.Type, p.K), backwards(p.B.Type, p.N)
	m, err := j.load(a, b)
	if err != nil {
		return nil, err
	}
	t := &Trace{Kernel: k.Name, Config: j.config.String(), A: elements(p.M, p.K, a), B: elements(p.K, p.N, b)}
	w := &watcher{machine: m, trace: t, aliases: aliases(j.module)}
	if _, err := m.run(ctx, w); err != nil {
		return nil, err
	}
	c, err := m.result()
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

// check compares the sums that the trace arrived at with C, as rounded to its type.
func (t *Trace) check(p *gemm.Problem) error {
	sums := map[[2]int]float64{}
	for _, b := range t.Blocks {
		for _, ph := range b.Phases {
			for _, s := range ph.Sums {
				sums[[2]int{s.Row, s.Col}] = s.Sum
			}
		}
	}
	one := make([]byte, p.C.Type.Size())
	for i, row := range t.C {
		for j, c := range row {
			p.C.Type.Set(one, 0, sums[[2]int{i, j}])
			if got := p.C.Type.At(one, 0); got != c {
				return fmt.Errorf("kernel %s (%s) computes in a way that cannot be traced: C[%d][%d] is %v, and its loads give %v", t.Kernel, t.Config, i, j, c, got)
			}
		}
	}
	return nil
}

// cell is an element of A or B.
type cell struct {
	matrix   string
	row, col int
}

// section is what happens between two barriers.
type section struct {
	loads []TraceLoad
	reads map[int]map[cell]bool // by thread: what it multiplies
}

func newSection() *section { return &section{reads: map[int]map[cell]bool{}} }

func (s *section) read(thread int, c cell) {
	if s.reads[thread] == nil {
		s.reads[thread] = map[cell]bool{}
	}
	s.reads[thread][c] = true
}

// phases adds up a block's sections, which barriers may part: owner says which thread
// stored which element of C.
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

// summedBy is the thread that summed element c of C: the one that stored it or, where
// sums change hands before they are stored, the first that multiplied what c is made of.
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

// compareThreads orders threads, or blocks, by their numbers.
func compareThreads(a, b [3]int) int {
	return cmp.Or(cmp.Compare(a[2], b[2]), cmp.Compare(a[1], b[1]), cmp.Compare(a[0], b[0]))
}

// byStep makes a section for each k of one whose loads are multiplied at once.
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
