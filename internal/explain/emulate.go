package explain

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/internal/host"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Machine is a kernel with its operands in the memory of the emulator, ready to run once.
type Machine struct {
	*job
	program *emu.Program
	memory  *emu.Memory
	places  map[ptx.Space][]array // the matrices and the shared arrays
	c       uint64                // address of C
}

// Source configures the PTX of a [Machine].
type Source struct {
	// Files names the Go files that the line numbers of the PTX refer to, as [kernel.Kernel.Emit]
	// does. Without files, the PTX has no line numbers.
	Files []string
	// Edit changes the text of the PTX, to plant a fault. Nil keeps it.
	Edit func(text string) (string, error)
}

// NewMachine emits the kernel for p with tiles of shape s, and loads operands of small integers,
// for which every sum is exact. It returns the PTX too, whose lines are those of [emu.Site.Pos].
//
// The errors are ErrShape for an empty product, ErrUnsupported if the kernel cannot compute p or
// run on m, and those of the edited PTX.
func NewMachine(k *kernel.Kernel, s kernel.Tile, p *gemm.Problem, m *model.Model, src Source) (*Machine, string,
	error) {
	target, err := targetOf(k, m)
	if err != nil {
		return nil, "", err
	}
	j, err := newJob(k, s, p, target, max(m.SMs, 1), src.Files...)
	if err != nil {
		return nil, "", err
	}
	text := j.module.String()
	if src.Edit != nil {
		if text, err = src.Edit(text); err != nil {
			return nil, "", err
		}
	}
	if j.module, err = ptx.Parse(k.Name+".ptx", text); err != nil {
		return nil, "", err
	}
	machine, err := j.loadDigits()
	return machine, text, err
}

// loadDigits loads A with [digits] and B with [reversedDigits].
func (j *job) loadDigits() (*Machine, error) {
	return j.load(digits(j.problem.In(), j.problem.K), reversedDigits(j.problem.B().Type, j.problem.N))
}

// withProblem returns the same kernel with a launch for another product.
func (j *job) withProblem(p *gemm.Problem) (*job, error) {
	other := *j
	other.problem = j.kernel.Packed(p, j.config.Tile)
	var err error
	other.launch, err = j.kernel.Launch(kernel.Args{Config: &other.config, Problem: &other.problem}, j.host)
	return &other, err
}

// load stores the operands in a new memory. Element (i, j) is a(i, j) for op(A), b(i, j) for op(B),
// and 0 for C and the bias.
func (j *job) load(a, b func(i, j int) float64) (*Machine, error) {
	own := *j
	m := &Machine{job: &own, memory: emu.NewMemory(emu.MemoryOptions{Room: host.CheckMemory, TrackWrites: true})}
	var err error
	if m.program, err = emu.Load(j.module); err != nil {
		return nil, err
	}
	p := &j.problem
	var at kernel.Memory
	elements := [gemm.Operands]func(i, j int) float64{gemm.A: a, gemm.B: b}
	var global []array
	for o := range gemm.Operands {
		l := p.Layout(o)
		data := make([]byte, l.Bytes())
		if element := elements[o]; element != nil {
			for r := range l.OpRows() {
				for c := range l.OpCols() {
					l.Type.Set(data, l.Index(r, c), element(r, c))
				}
			}
		}
		if !p.Uses(o) {
			continue
		}
		address, err := m.memory.Alloc(len(data))
		if err == nil {
			err = m.memory.Write(address, data)
		}
		if err != nil {
			return nil, err
		}
		at[o] = device.Ptr(address)
		global = append(global, array{o.String(), int(address), len(data)})
	}
	shared, _ := j.shared()
	m.places = map[ptx.Space][]array{ptx.Global: global, ptx.Shared: shared}
	m.c = uint64(at[gemm.C])
	m.launch, err = j.kernel.Launch(kernel.Args{Config: &j.config, Problem: p, Memory: at}, j.host)
	return m, err
}

// Run runs the kernel block by block with the given observers. If the launch fails, the error is
// that of [emu.Program.Run] with the name of the kernel.
func (m *Machine) Run(ctx context.Context, observers ...emu.Observer) (emu.Stats, error) {
	dim := func(d device.Dim3) emu.Dim3 { return emu.Dim3{X: d.X, Y: d.Y, Z: d.Z} }
	stats, err := m.program.Run(ctx, m.memory, emu.Launch{
		Entry: m.kernel.Entry(), Grid: dim(m.launch.Grid), Block: dim(m.launch.Block),
		Shared: m.launch.Shared, Params: m.launch.Params, Observers: observers, Workers: 1,
		MaxInstructions: maxInstructions,
	})
	if err != nil {
		return stats, fmt.Errorf("kernel %s on the emulator: %w", m.kernel.Name, err)
	}
	return stats, nil
}

// maxInstructions ends a kernel that a fault keeps in a loop. The largest run of a sound kernel
// executes a hundredth of it.
const maxInstructions = 1 << 28

// Checkers returns checkers for a run, whose counters have a row for each matrix and shared array.
func (m *Machine) Checkers(o check.Options) *check.Checks {
	o.Place, o.Historic = m.rangeName, true
	return check.New(o)
}

// Report returns the counters of a run and the report of its checkers.
func (m *Machine) Report(checks *check.Checks, stats emu.Stats, runErr error) (Measured, *check.Report) {
	report := checks.Report(m.program, stats, runErr)
	return measured(&m.problem, stats.Instructions, report), report
}

// Explain returns the explanation of a run with the counters of [Machine.Report]. p and gpu are
// those of [NewMachine].
func (m *Machine) Explain(p *gemm.Problem, gpu *model.Model, counters Measured) (*Explanation, error) {
	return m.explain(p, gpu, Options{}, func() (Measured, error) { return counters, nil })
}

// Blocks returns the number of blocks of the launch.
func (m *Machine) Blocks() int { return m.launch.Grid.Count() }

// GridDim returns the number of blocks in x, y and z.
func (m *Machine) GridDim() [3]int { return sides(m.launch.Grid) }

// BlockDim returns the number of threads of a block in x, y and z.
func (m *Machine) BlockDim() [3]int { return sides(m.launch.Block) }

func sides(d device.Dim3) [3]int { return [3]int{d.X, d.Y, d.Z} }

// Wrong is an element of C that differs from the product.
type Wrong struct {
	Row, Col  int
	Got, Want float64
}

// Compare compares C with the exact product after a run. It returns the number of wrong elements
// and the first of them.
func (m *Machine) Compare() (n int, first *Wrong, err error) {
	result, err := m.Result()
	if err != nil {
		return 0, nil, err
	}
	p := &m.problem
	a, b := values(p.M, p.K, digits(p.In(), p.K)), values(p.K, p.N, reversedDigits(p.B().Type, p.N))
	for i := range p.M {
		for j := range p.N {
			sum := 0.0
			for k, v := range a[i*p.K:][:p.K] {
				sum += v * b[k*p.N+j]
			}
			if got := result(i, j); got != sum { // NaN differs too
				if n++; first == nil {
					first = &Wrong{i, j, got, sum}
				}
			}
		}
	}
	return n, first, nil
}

// values returns the elements of a matrix, row by row.
func values(rows, cols int, element func(i, j int) float64) []float64 {
	list := make([]float64, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			list = append(list, element(i, j))
		}
	}
	return list
}

// Result returns the elements of C after a run.
func (m *Machine) Result() (func(i, j int) float64, error) {
	l := m.problem.Layouts[gemm.C]
	data := make([]byte, l.Bytes())
	if err := m.memory.Read(m.c, data); err != nil {
		return nil, err
	}
	return func(i, j int) float64 { return l.Type.At(data, l.Index(i, j)) }, nil
}

// locate returns the name of the matrix or array at an address, and the byte offset in it.
func (m *Machine) locate(space ptx.Space, addr uint64) (name string, offset int) {
	for _, a := range m.places[space] {
		if at := int(addr) - a.start; at >= 0 && at < a.size {
			return a.name, at
		}
	}
	return "", 0
}

// operand returns the layout of the matrix with the given name.
func (m *Machine) operand(name string) gemm.Layout {
	return map[string]gemm.Layout{"A": m.problem.Layouts[gemm.A], "B": m.problem.Layouts[gemm.B],
		"C": m.problem.Layouts[gemm.C]}[name]
}

// element returns the row and column of op(matrix) at a byte offset.
func element(l gemm.Layout, offset int) (row, col int) {
	at := l.Type.Elements(offset)
	row, col = at/l.LD, at%l.LD
	if l.Trans {
		row, col = col, row
	}
	return row, col
}

// digits returns a matrix of cols columns whose elements count from 1 to 9 repeatedly, or to the
// largest integer that a smaller type represents exactly. A sum of 16 products of such elements is
// exact.
func digits(t dtype.Type, cols int) func(i, j int) float64 {
	last := lastDigit(t)
	if cols%last == 0 {
		cols++ // otherwise all rows would be equal
	}
	return func(i, j int) float64 { return float64((i*cols+j)%last + 1) }
}

// reversedDigits is like digits, but counts down, to distinguish B from A.
func reversedDigits(t dtype.Type, cols int) func(i, j int) float64 {
	forwards := digits(t, cols)
	return func(i, j int) float64 { return float64(lastDigit(t)+1) - forwards(i, j) }
}

func lastDigit(t dtype.Type) int { return int(min(9, t.Info().Exact)) }
