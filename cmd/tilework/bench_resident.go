package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/device/timeline"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/resident"
	"tilework/internal/split"
)

// onResident returns a bencher of matrices that stay on the GPUs of subjects, which may be several.
// Each kernel is measured on the first GPU, and on all with B divided by rows and by columns, and
// with B on each GPU, where nothing is copied. A batch is divided by whole products.
func (f *benchFlags) onResident(ctx context.Context, at backend.DeviceName, problems []gemm.Problem,
	stderr io.Writer) (_ bencher, err error) {
	if f.choice || f.groups != "" || f.sustained > 0 || f.cold.value {
		return bencher{}, fmt.Errorf("--choice, --groups, --sustained and --cold: want one GPU, not %v, and not the peer %s",
			at, torchPeer)
	}
	gpus := []backend.DeviceName{at}
	if at.List != "" {
		if at, err = members(at); err != nil {
			return bencher{}, err
		}
		gpus = at.Members()
	}
	one := gpus[0]
	opened, release, err := gpu.Open(one)
	if err != nil {
		return bencher{}, err
	}
	g, err := f.pickGPU(one, opened, release, problems, stderr)
	if err != nil {
		return bencher{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	open := func(name backend.DeviceName) (*resident.GPUs, error) {
		d, err := resident.Open(name)
		if err == nil {
			d.KeepPlans()
			g.closers = append(g.closers, d.Close)
		}
		return d, err
	}
	first, err := open(one)
	if err != nil {
		return bencher{}, err
	}
	type place struct {
		suffix string // of the subject's name
		on     *resident.GPUs
		b      split.By
	}
	var places []place
	if at.List != "" {
		all, err := open(at)
		if err != nil {
			return bencher{}, err
		}
		name := "@" + at.String()
		places = []place{{name, all, split.Rows}}
		if f.batch == 1 {
			places = append(places, place{name + "/columns", all, split.Columns})
		}
		places = append(places, place{name + "/each", all, split.OnEach})
	}
	places = append(places, place{"", first, split.Rows})
	var kernels []bench.ResidentSubject
	for _, k := range g.picks {
		kernel, precision := splitPrecision(k.kernel)
		for _, x := range places {
			kernels = append(kernels, &residentSubject{name: k.name + x.suffix, kernel: kernel, on: x.on, b: x.b,
				inexact: inexact(precision)})
		}
	}
	others, err := f.residentPeers(ctx, gpus, g, stderr)
	if err != nil {
		return bencher{}, err
	}
	options := f.options()
	options.Environment, options.Peak = g.environment(), g.peak
	return bencher{
		subjects: func(*gemm.Problem) []string { return namesOf(kernels, others) }, options: options,
		newCase: f.deviceCase,
		fits:    func(p *gemm.Problem) error { return bench.Fits(p, options) },
		measure: func(ctx context.Context, c bench.Case) ([]bench.Record, error) {
			return bench.MeasureResident(ctx, c, kernels, others, options)
		},
		close: g.close,
	}, nil
}

// members returns a list of GPUs by their numbers. All must be usable.
func members(list backend.DeviceName) (numbered backend.DeviceName, err error) {
	if err := dispatch.CheckDevice(list); err != nil {
		return list, err
	}
	if list.List == backend.AllGPUs {
		var numbers []string
		if err := gpu.EachMember(list, func(d backend.DeviceName) error {
			err := dispatch.CheckDevice(d)
			if err == nil {
				numbers = append(numbers, strconv.Itoa(d.Index))
			}
			return err
		}); err != nil {
			return list, err
		}
		list.List = strings.Join(numbers, ",")
	}
	return list, nil
}

// residentPeer is a peer on one GPU or several.
type residentPeer interface {
	bench.ResidentSubject
	fmt.Stringer
	file() string // of the library or program
	close() error
}

// residentPeers opens the peers of --peers on GPUs. Closing g closes them.
func (f *benchFlags) residentPeers(ctx context.Context, gpus []backend.DeviceName, g *benchGPU,
	stderr io.Writer) (subjects []bench.ResidentSubject, err error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	known := peerGroups[peersOnSeveral].names()
	for _, name := range f.peerNames(known) {
		var p residentPeer
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("--peers %s: on several GPUs, or beside %s: want one of %s, or --transfers", name, torchPeer,
				strings.Join(known, ", "))
		case len(gpus) == 1 && name != torchPeer:
			return nil, fmt.Errorf("--peers %s: want several GPUs, such as --device gpu:0,1", name)
		case name == mpPeer:
			p, err = openMp(ctx, gpus, paths[mpPeer])
		default:
			p, err = f.openTorch(ctx, name, gpus, paths[torchPeer])
		}
		if err != nil {
			if f.mayLack(err) {
				fmt.Fprintf(stderr, "peer %s: %v\n", name, err)
				continue
			}
			return nil, fmt.Errorf("--peers %s: %w", name, err)
		}
		g.closers = append(g.closers, p.close)
		fmt.Fprintf(stderr, "peer %v (%s)\n", p, p.file())
		subjects = append(subjects, p)
	}
	return subjects, nil
}

// residentSubject is a kernel on matrices that stay on one GPU or several.
type residentSubject struct {
	name, kernel string
	on           *resident.GPUs
	b            split.By // the way in which several GPUs divide B and Up
	inexact
	detail string // of the product that was prepared last
}

func (s *residentSubject) Name() string   { return s.name }
func (s *residentSubject) String() string { return s.detail }

// Prepare implements [bench.ResidentSubject]. Operands besides B are divided by rows, and vectors
// are on each GPU.
func (s *residentSubject) Prepare(ctx context.Context, p *gemm.Problem,
	b *gemm.Buffers) (_ bench.ResidentProduct, err error) {
	q := &residentProduct{problem: p, Job: resident.Job{Problem: *p, Kernel: s.kernel}}
	q.Precision = gemm.Precision(s.inexact)
	defer func() {
		if err != nil {
			err = errors.Join(err, q.Close())
		}
	}()
	for o := range gemm.Operands {
		if !p.Uses(o) {
			continue
		}
		by, l := split.Rows, p.Layout(o)
		switch {
		case o == gemm.B || o == gemm.Up:
			if by = s.b; l.Trans {
				by = by.T()
			}
		case o >= gemm.Bias:
			by = split.OnEach
		case l.Trans:
			by = split.Columns
		}
		if o <= gemm.C && p.Batch.Kind == gemm.Strided {
			q.Operands[o].On, err = resident.NewBatch(s.on, l, p.Batch.Count, by)
			q.Batch.Stride[o] = l.Rows * q.Operands[o].On.Layout.LD
		} else {
			q.Operands[o].On, err = resident.New(s.on, l, by)
		}
		if err != nil {
			return nil, err
		}
		if o < gemm.Bias {
			q.Layouts[o] = q.Operands[o].On.Layout
		}
		if err := q.each(o, b[o], func(m resident.Matrix, host []byte) error { return m.CopyIn(ctx, host, l) }); err != nil {
			return nil, err
		}
	}
	if _, err := q.Complete(); err != nil {
		return nil, err
	}
	pl, division, err := resident.PlanOf(&q.Job)
	if err != nil {
		return nil, err
	}
	if s.detail = planText(pl); division != "" {
		s.detail += "; " + division
	}
	return q, nil
}

// residentProduct is a product of matrices that it owns.
type residentProduct struct {
	resident.Job
	problem *gemm.Problem // with the layouts in host memory
}

// each calls f for all matrices of an operand, with their host memory.
func (p *residentProduct) each(o gemm.Operand, host []byte, f func(resident.Matrix, []byte) error) error {
	m, l := p.Operands[o].On, p.problem.Layout(o)
	if o > gemm.C || p.Batch.Kind == gemm.Single {
		return f(m, host)
	}
	for range p.Batch.Count {
		if err := f(m, host); err != nil {
			return err
		}
		m.Offset += l.Type.Bytes(p.Batch.Stride[o])
		host = host[min(l.Type.Bytes(p.problem.Batch.Stride[o]), len(host)):]
	}
	return nil
}

// Run implements [bench.ResidentProduct] with the host's clock.
func (p *residentProduct) Run(ctx context.Context, n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		if err := resident.Gemm(ctx, &p.Job); err != nil {
			return 0, err
		}
	}
	err := p.Operands[gemm.C].On.Memory.Device().Sync(ctx)
	return time.Since(start), err
}

// RunBreakdown implements [bench.ResidentProduct].
func (p *residentProduct) RunBreakdown(ctx context.Context, n int) ([]timeline.Breakdown, error) {
	return resident.RunBreakdown(ctx, &p.Job, n)
}

// CopyIn implements [bench.ResidentProduct].
func (p *residentProduct) CopyIn(ctx context.Context, c []byte) error {
	return p.each(gemm.C, c, func(m resident.Matrix, host []byte) error { return m.CopyIn(ctx, host, *p.problem.C()) })
}

// CopyOut implements [bench.ResidentProduct].
func (p *residentProduct) CopyOut(ctx context.Context, c []byte) error {
	return p.each(gemm.C, c, func(m resident.Matrix, host []byte) error { return m.CopyOut(ctx, host, *p.problem.C()) })
}

// Close implements [bench.ResidentProduct].
func (p *residentProduct) Close() error {
	var errs []error
	for _, x := range p.Operands {
		if x.On.Memory != nil {
			errs = append(errs, x.On.Memory.Close())
		}
	}
	return errors.Join(errs...)
}
