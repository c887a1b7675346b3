package study

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tilework/internal/host"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// OwnRequest is a launch of a kernel from the reader's PTX.
type OwnRequest struct {
	PTX    string `json:"ptx"`
	Entry  string `json:"entry"`
	Grid   [3]int `json:"grid"`
	Block  [3]int `json:"block"`
	Shared int    `json:"shared"` // bytes of dynamic shared memory
	Args   []Arg  `json:"args"`
}

// OwnKernel is a kernel of the reader's PTX, with a launch to begin with.
type OwnKernel struct {
	Name    string     `json:"name"`
	Title   string     `json:"title"` // its name in the source
	Params  []OwnParam `json:"params"`
	Grid    [3]int     `json:"grid"`
	Block   [3]int     `json:"block"`
	Shared  int        `json:"shared"`            // bytes of dynamic shared memory
	Refused string     `json:"refused,omitempty"` // the reason if the emulator cannot run it
}

// Own lists the kernels of the reader's PTX.
type Own struct {
	Kernels []OwnKernel `json:"kernels"`
}

// Limits of a launch of the reader's PTX.
const (
	maxElements     = 1 << 20 // of a matrix
	maxInstructions = 1 << 25
)

// load parses the reader's PTX.
func (q *OwnRequest) load() (*ptx.Module, *emu.Program, error) {
	module, err := ptx.Parse("your.ptx", q.PTX)
	if err != nil {
		return nil, nil, err
	}
	program, err := emu.Load(module)
	return module, program, err
}

// OwnKernels lists the kernels of the reader's PTX, and those that the emulator refuses.
func OwnKernels(q *OwnRequest) (*Own, error) {
	module, program, err := q.load()
	if err != nil {
		return nil, err
	}
	x := &Own{Kernels: []OwnKernel{}}
	refused := program.Refused()
	for _, f := range module.Funcs() {
		if !f.Entry {
			continue
		}
		k := OwnKernel{Name: f.Name}
		k.Title, _ = demangle(f.Name)
		if err := refused[f.Name]; err != nil {
			k.Refused, _, _ = strings.Cut(err.Error(), "\n")
		} else {
			k.suggest(f)
		}
		x.Kernels = append(x.Kernels, k)
	}
	if len(x.Kernels) == 0 {
		return nil, errors.New("your.ptx has no kernel (.entry)")
	}
	return x, nil
}

// suggest sets the parameters and the launch: the block of the kernel's directives, or one that
// covers the first matrices.
func (k *OwnKernel) suggest(f *ptx.Func) {
	const (
		side   = 16       // of a block in x and y
		line   = 128      // threads of a block in x
		shared = 48 << 10 // bytes, the default limit of every GPU
	)
	u := usesOf(f)
	k.Params, k.Grid, k.Block = ownParams(f, u), [3]int{1, 1, 1}, [3]int{line, 1, 1}
	if u.plane {
		k.Grid, k.Block = [3]int{firstSide / side, firstSide / side, 1}, [3]int{side, side, 1}
	}
	for _, a := range f.Attrs {
		if a.Name == "reqntid" || a.Name == "maxntid" && !u.plane {
			k.Block = [3]int{1, 1, 1}
			copy(k.Block[:], a.Args)
		}
	}
	if u.shared {
		k.Shared = shared
	}
}

// OwnResult is the outcome of a run of the reader's PTX.
type OwnResult struct {
	Listing  *Listing  `json:"listing"`
	Block    [3]int    `json:"block"`
	Findings []Finding `json:"findings"`
	Stopped  string    `json:"stopped,omitempty"`
	Solved   bool      `json:"solved"` // no error

	Instructions uint64 `json:"instructions"`
	Flops        int64  `json:"flops"`
	Sectors      int64  `json:"sectors"`
	Wavefronts   int64  `json:"wavefronts"`

	Outputs []Output `json:"outputs"`
}

// RunOwn runs a kernel of the reader's PTX with all checkers.
func RunOwn(ctx context.Context, q *OwnRequest, progress Progress) (*OwnResult, error) {
	module, program, err := q.load()
	if err != nil {
		return nil, err
	}
	if _, err := program.Params(q.Entry); err != nil {
		return nil, err // no such kernel
	}
	kernels := module.Funcs()
	f := kernels[slices.IndexFunc(kernels, func(f *ptx.Func) bool { return f.Name == q.Entry })]
	params := ownParams(f, usesOf(f))
	if len(q.Args) != len(params) {
		return nil, fmt.Errorf("%d arguments: want one for each of the %d parameters of %s", len(q.Args), len(params),
			q.Entry)
	}
	memory := emu.NewMemory(emu.MemoryOptions{Room: host.CheckMemory, TrackWrites: true})
	var outputs []*matrix
	var values []any
	for i := range params {
		v, m, err := params[i].values(ctx, memory, &q.Args[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", params[i].Name, err)
		}
		values = append(values, v...)
		if m != nil && m.output {
			outputs = append(outputs, m)
		}
	}
	dim := func(d [3]int) emu.Dim3 { return emu.Dim3{X: d[0], Y: d[1], Z: d[2]} }
	launch := emu.Launch{Entry: q.Entry, Grid: dim(q.Grid), Block: dim(q.Block), Shared: q.Shared, Workers: 1,
		MaxInstructions: maxInstructions}
	if launch.Params, err = program.Pack(q.Entry, values...); err != nil {
		return nil, err
	}
	checks := check.New(check.Options{})
	launch.Observers = []emu.Observer{checks, &counting{all: q.Grid[0] * q.Grid[1] * q.Grid[2], report: progress}}
	stats, runErr := program.Run(ctx, memory, launch)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(runErr, emu.ErrLaunch):
		return nil, runErr
	}
	x := &OwnResult{Block: q.Block, Instructions: stats.Instructions, Findings: []Finding{}, Outputs: []Output{}}
	var numbers lines
	if x.Listing, numbers, err = list(q.PTX, nil); err != nil {
		return nil, err
	}
	report := checks.Report(program, stats, runErr)
	for i := range report.Findings {
		x.Findings = append(x.Findings, finding(&report.Findings[i], numbers))
	}
	x.Flops = report.Counts.Flops
	for i := range report.Counts.Global {
		x.Sectors += report.Counts.Global[i].Sectors
	}
	for i := range report.Counts.Shared {
		x.Wavefronts += report.Counts.Shared[i].Wavefronts
	}
	if runErr != nil {
		x.Stopped = runErr.Error()
		return x, nil
	}
	x.Solved = report.Errors() == 0
	for _, m := range outputs {
		o, err := m.result(memory)
		if err != nil {
			return nil, err
		}
		x.Outputs = append(x.Outputs, o)
	}
	return x, nil
}

// OwnExample returns a launch of a kernel of the ladder, to begin with.
func OwnExample(q *Request) (*OwnRequest, error) {
	r, _, m, err := findRequest(q)
	if err != nil {
		return nil, err
	}
	machine, listing, _, err := prepare(q, r, m, r.Tile)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, line := range listing.PTX {
		text.WriteString(line.Text + "\n")
	}
	x := &OwnRequest{PTX: text.String(), Block: machine.BlockDim(), Grid: machine.GridDim()}
	kernels, err := OwnKernels(x)
	if err != nil {
		return nil, err
	}
	k := kernels.Kernels[0]
	x.Entry = k.Name
	in := func(rows, cols int) Arg { return Arg{Kind: "in", Type: "float32", Rows: rows, Cols: cols} }
	number := func(n int) Arg { return Arg{Kind: "number", Value: strconv.Itoa(n)} }
	args := map[string]Arg{
		"M": number(q.M), "N": number(q.N), "K": number(q.K), "A": in(q.M, q.K), "ldA": number(q.K), "B": in(q.K, q.N),
		"ldB": number(q.N), "C": {Kind: "out", Type: "float32", Rows: q.M, Cols: q.N}, "ldC": number(q.N), "alpha": number(1),
		"beta": number(0), "readC": number(0),
	}
	for _, p := range k.Params {
		x.Args = append(x.Args, args[p.Name])
	}
	return x, nil
}
