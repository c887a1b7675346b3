package explain

import (
	"context"
	"fmt"

	"tilework/dtype"
	"tilework/internal/device"
	"tilework/internal/gemm"
	"tilework/internal/gpu/kernel"
	"tilework/ptx"
	"tilework/ptx/emu"
)

// machine is a job with its operands in the memory of the emulator.
type machine struct {
	*job
	program *emu.Program
	memory  *emu.Memory
	places  map[ptx.Space][]array // the matrices and the shared arrays
	c       uint64                // address of C
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
func (j *job) load(a, b func(i, j int) float64) (*machine, error) {
	own := *j
	m := &machine{job: &own, memory: emu.NewMemory(emu.MemoryOptions{TrackWrites: true})}
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

// run runs the kernel block by block with the given observers.
func (m *machine) run(ctx context.Context, observers ...emu.Observer) (emu.Stats, error) {
	dim := func(d device.Dim3) emu.Dim3 { return emu.Dim3{X: d.X, Y: d.Y, Z: d.Z} }
	stats, err := m.program.Run(ctx, m.memory, emu.Launch{
		Entry: m.kernel.Entry(), Grid: dim(m.launch.Grid), Block: dim(m.launch.Block),
		Shared: m.launch.Shared, Params: m.launch.Params, Observers: observers, Workers: 1,
	})
	if err != nil {
		return stats, fmt.Errorf("kernel %s on the emulator: %w", m.kernel.Name, err)
	}
	return stats, nil
}

// result returns the elements of C after a run.
func (m *machine) result() (func(i, j int) float64, error) {
	l := m.problem.Layouts[gemm.C]
	data := make([]byte, l.Bytes())
	if err := m.memory.Read(m.c, data); err != nil {
		return nil, err
	}
	return func(i, j int) float64 { return l.Type.At(data, l.Index(i, j)) }, nil
}

// locate returns the name of the matrix or array at an address, and the byte offset in it.
func (m *machine) locate(space ptx.Space, addr uint64) (name string, offset int) {
	for _, a := range m.places[space] {
		if at := int(addr) - a.start; at >= 0 && at < a.size {
			return a.name, at
		}
	}
	return "", 0
}

// operand returns the layout of the matrix with the given name.
func (m *machine) operand(name string) gemm.Layout {
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
