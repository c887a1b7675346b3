package study

import (
	"context"
	"errors"
	"fmt"

	"tilework/internal/explain"
	"tilework/internal/gpu/kernel"
	"tilework/internal/model"
	"tilework/ptx"
	"tilework/ptx/emu"
	"tilework/ptx/emu/check"
)

// Request selects a kernel, a product and a GPU.
type Request struct {
	Rung string `json:"rung"`
	Sizes
	GPU     string `json:"gpu"`
	Tile    string `json:"tile"`    // "" for that of the rung
	Mistake string `json:"mistake"` // "" for the sound kernel
	// PTX is that of the kernel, with Mistake, as changed by the reader. "" keeps it.
	PTX string `json:"ptx"`
}

// Result is the outcome of a run.
type Result struct {
	Listing  *Listing  `json:"listing"`
	Grid     [3]int    `json:"grid"`            // blocks in x, y and z
	Block    [3]int    `json:"block"`           // threads in x, y and z
	Elements int       `json:"elements"`        // of C
	Wrong    int       `json:"wrong"`           // elements of C that differ from the product
	First    string    `json:"first,omitempty"` // the first of them, with its value
	Findings []Finding `json:"findings"`
	// Stopped is the reason if the emulator ended the kernel.
	Stopped string `json:"stopped,omitempty"`
	// Explanation holds the counters and the analysis. It is nil if the emulator ended the kernel.
	Explanation *explain.Explanation `json:"explanation,omitempty"`
	Bounds      *Bounds              `json:"bounds,omitempty"`
	Below       *Below               `json:"below,omitempty"`
	Solved      bool                 `json:"solved"` // no error and no wrong element
}

// Below holds the counters of the rung below for the same product.
type Below struct {
	Name      string           `json:"name"`
	Measured  explain.Measured `json:"measured"`
	Intensity float64          `json:"intensity"`
}

// Finding is a finding of a checker with its places in the listing.
type Finding struct {
	Checker  string `json:"checker"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Plain    string `json:"plain"` // the kind of fault for beginners
	Count    int    `json:"count"`
	At       Place  `json:"at"`
	Other    *Place `json:"other,omitempty"` // the second access of a race
}

// Place is an instruction with the thread that executed it.
type Place struct {
	Line   int      `json:"line"` // of the listing's PTX
	File   string   `json:"file,omitempty"`
	Source int      `json:"source,omitempty"` // line of File
	Opcode string   `json:"opcode"`
	Block  emu.Dim3 `json:"block"`
	Thread emu.Dim3 `json:"thread"`
}

// plain explains the findings of each checker to a beginner.
var plain = map[check.Checker]string{
	check.Race: "Two accesses use the same memory, one of them writes, and nothing orders them. Whichever comes first " +
		"decides the result.",
	check.Barrier:  "Some threads of the block wait at a barrier that the others do not reach.",
	check.Bounds:   "A thread uses memory outside of the matrix.",
	check.Uninit:   "A thread uses a value that no thread has written. It holds the bits that happened to be there.",
	check.Banks:    "Threads of a warp want different words of the same bank. The bank serves them one after the other.",
	check.Coalesce: "The threads of a warp use memory in many places. Each place moves a whole sector of 32 bytes.",
}

// Progress is called during a run with the number of finished blocks.
type Progress func(done, all int)

// counting is an observer that reports the progress of a launch.
type counting struct {
	done, all int
	report    Progress
}

// Block implements [emu.Observer].
func (c *counting) Block(*emu.BlockInfo) *emu.Hooks {
	return &emu.Hooks{End: func() { c.done++; c.report(c.done, c.all) }}
}

// sound reports whether the request is for an unchanged kernel.
func (q *Request) sound() bool { return q.Mistake == "" && q.PTX == "" }

// tile returns the tile of a request's kernel. Broken kernels are those that Watch can show.
func (q *Request) tile(r *Rung) string {
	switch {
	case !q.sound():
		return r.Small
	case q.Tile != "":
		return q.Tile
	}
	return r.Tile
}

// prepare returns the machine for a request, the PTX and its listing.
func prepare(q *Request, r *Rung, m *model.Model, tileName string) (*explain.Machine, *Listing, lines, error) {
	if err := q.check(); err != nil {
		return nil, nil, nil, err
	}
	k, tile, p, err := r.launch(q.Sizes, tileName)
	if err != nil {
		return nil, nil, nil, err
	}
	source := explain.Source{Files: r.sources, Edit: func(text string) (string, error) { return q.edit(r, k.Name, text) }}
	machine, text, err := explain.NewMachine(k, tile, p, m, source)
	if err != nil {
		return nil, nil, nil, err
	}
	listing, numbers, err := list(text, r.sources)
	return machine, listing, numbers, err
}

// edit returns the PTX of a request's kernel, where text is that of the sound one.
func (q *Request) edit(r *Rung, name, text string) (string, error) {
	var err error
	if q.Mistake != "" {
		if text, err = r.plant(text, q.Mistake); err != nil {
			return "", err
		}
	}
	if q.PTX == "" {
		return text, nil
	}
	if _, err := ptx.Parse(name+".ptx", q.PTX); err != nil {
		return "", err // with the line numbers of the reader's text
	}
	return withSources(q.PTX, text), nil
}

// findRequest returns the rung of a request, the rung below it and the GPU.
func findRequest(q *Request) (r, below *Rung, m *model.Model, err error) {
	if r, below, err = findRung(q.Rung); err != nil {
		return nil, nil, nil, err
	}
	m, err = model.Lookup(q.GPU)
	return r, below, m, err
}

// List returns the listing of a request's kernel.
func List(q *Request) (*Listing, error) {
	r, _, m, err := findRequest(q)
	if err != nil {
		return nil, err
	}
	_, listing, _, err := prepare(q, r, m, q.tile(r))
	return listing, err
}

// Run runs the kernel of a request with all checkers, compares C with the product, and counts. The
// counters of a sound kernel come with those of the rung below.
func Run(ctx context.Context, q *Request, progress Progress) (*Result, error) {
	r, below, m, err := findRequest(q)
	if err != nil {
		return nil, err
	}
	x, err := runRung(ctx, q, r, m, progress)
	if err != nil || x.Stopped != "" || !q.sound() || below == nil {
		return x, err
	}
	y, err := runRung(ctx, &Request{Sizes: q.Sizes}, below, m, progress)
	switch {
	case err != nil:
		return nil, err
	case y.Stopped != "":
		return nil, fmt.Errorf("rung %s: %s", below.ID, y.Stopped)
	}
	x.Below = &Below{below.Name, y.Explanation.Measured, y.Explanation.Phase.Intensity}
	return x, nil
}

// limits returns the checker options under which the sound kernel of r has no advice.
func limits(k *kernel.Kernel, c kernel.Config) check.Options {
	l := k.Limits(c)
	return check.Options{MaxConflicts: l.Conflicts, MaxScatter: max(l.Scatter, 2)}
}

// runRung runs one rung.
func runRung(ctx context.Context, q *Request, r *Rung, m *model.Model, progress Progress) (*Result, error) {
	machine, listing, numbers, err := prepare(q, r, m, q.tile(r))
	if err != nil {
		return nil, err
	}
	k, tile, p, err := r.launch(q.Sizes, q.tile(r))
	if err != nil {
		return nil, err
	}
	checks := machine.Checkers(limits(k, k.Config(p, tile)))
	stats, runErr := machine.Run(ctx, checks, &counting{all: machine.Blocks(), report: progress})
	if runErr != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(runErr, emu.ErrLaunch) {
		return nil, runErr
	}
	counters, report := machine.Report(checks, stats, runErr)
	x := &Result{Listing: listing, Grid: machine.GridDim(), Block: machine.BlockDim(), Elements: q.M * q.N,
		Findings: []Finding{}}
	for i := range report.Findings {
		x.Findings = append(x.Findings, finding(&report.Findings[i], numbers))
	}
	if runErr != nil {
		x.Stopped = numbers.renumber(runErr.Error())
		return x, nil
	}
	if x.Explanation, err = machine.Explain(p, m, counters); err != nil {
		return nil, err
	}
	x.Bounds = r.bounds(x.Explanation)
	wrong, first, err := machine.Compare()
	if err != nil {
		return nil, err
	}
	if x.Wrong = wrong; first != nil {
		x.First = fmt.Sprintf("C[%d][%d] is %v, want %v", first.Row, first.Col, first.Got, first.Want)
	}
	x.Solved = x.Wrong == 0 && report.Errors() == 0
	return x, nil
}

func finding(f *check.Finding, numbers lines) Finding {
	place := func(s *emu.Site, block, thread emu.Dim3) Place {
		return Place{Line: numbers.of(s.Pos.Line), File: s.Source.File, Source: s.Source.Line, Opcode: s.Opcode, Block: block,
			Thread: thread}
	}
	x := Finding{
		Checker: f.Checker.String(), Severity: f.Severity.String(), Message: f.Message, Plain: plain[f.Checker],
		Count: f.Count, At: place(f.Site, f.Block, f.Thread),
	}
	if f.Other != nil {
		other := place(f.Other, f.OtherBlock, f.OtherThread)
		x.Other = &other
	}
	return x
}

// WatchRequest selects a block of a request's kernel.
type WatchRequest struct {
	Request
	Block int `json:"block"` // linear index
}

// Watched holds the steps of a block, with the listing that they refer to.
type Watched struct {
	*explain.Steps
	Listing *Listing `json:"listing"`
}

// Watch runs the kernel of a request, with the small tile of its rung, and returns every step of a
// block.
func Watch(ctx context.Context, q *WatchRequest) (*Watched, error) {
	r, _, m, err := findRequest(&q.Request)
	if err != nil {
		return nil, err
	}
	machine, listing, numbers, err := prepare(&q.Request, r, m, r.Small)
	if err != nil {
		return nil, err
	}
	x, err := machine.Steps(ctx, q.Block)
	if err != nil {
		return nil, err
	}
	for i := range x.Steps {
		x.Steps[i].Line = numbers.of(x.Steps[i].Line)
	}
	return &Watched{x, listing}, nil
}
