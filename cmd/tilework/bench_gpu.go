package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/bench/baseline"
	"tilework/internal/device"
	"tilework/internal/device/cuda"
	"tilework/internal/explain"
	"tilework/internal/gemm"
	"tilework/internal/gpu"
	"tilework/internal/gpu/exec"
	"tilework/internal/gpu/kernel"
	"tilework/internal/gpu/stream"
	"tilework/internal/model"
	"tilework/internal/peers"
)

// The names in --peers of the peers that multiply matrices in GPU memory.
const (
	ltPeer          = "cublaslt"
	ltTF32Peer      = ltPeer + "-tf32"
	ltFirstPeer     = ltPeer + "-first"
	ltFirstTF32Peer = ltFirstPeer + "-tf32"
	// kernelPeer runs a kernel from a PTX file. A colon and the kernel follow the name.
	kernelPeer = "cuda"
	// thenPeer runs tilework's product without its epilogue, and then the epilogue in a second
	// launch.
	thenPeer = "then"
)

// onGPU returns a bencher of matrices in GPU memory.
func (f *benchFlags) onGPU(ctx context.Context, at backend.DeviceName, problems []gemm.Problem,
	stderr io.Writer) (bencher, error) {
	backend, release, err := gpu.Open(at)
	if err != nil {
		return bencher{}, err
	}
	return f.onDevice(ctx, at, backend, release, problems, stderr, bench.MeasureOn)
}

// measurer is a function like [bench.MeasureOn].
type measurer func(ctx context.Context, d device.Device, c bench.Case, kernels, peers []bench.DeviceSubject,
	o bench.Options) ([]bench.Record, error)

// onDevice returns a bencher of the kernels of a backend. It takes ownership of the backend:
// closing the bencher calls release, and so does onDevice if it fails.
func (f *benchFlags) onDevice(ctx context.Context, at backend.DeviceName, backend *stream.Backend, release func() error,
	problems []gemm.Problem, stderr io.Writer, measure measurer) (_ bencher, err error) {
	g, err := f.pickGPU(at, backend, release, problems, stderr)
	if err != nil {
		return bencher{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	var kernels []bench.DeviceSubject
	for _, k := range g.picks {
		kernel, precision := splitPrecision(k.kernel)
		kernels = append(kernels,
			&gpuSubject{name: k.name, gpu: backend.Backend, options: gpuOptions(kernel, true), inexact: inexact(precision)})
	}
	kernelsOf := func(*gemm.Problem) []bench.DeviceSubject { return kernels }
	if f.choice {
		_, precision := splitPrecision(f.kernels)
		kernelsOf = func(p *gemm.Problem) []bench.DeviceSubject { return g.candidates(p, precision) }
	}
	others, err := f.gpuPeers(ctx, g, stderr)
	if err != nil {
		return bencher{}, err
	}
	options := f.options()
	if !f.cold.set {
		// In programs, operands are rarely in the L2 cache. An emulated GPU has no cache.
		options.Cold = !backend.Device.Info().Emulated
	}
	options.Environment, options.Peak = g.environment(), g.peak
	return bencher{
		subjects: func(p *gemm.Problem) []string { return namesOf(kernelsOf(p), others) }, options: options,
		newCase: f.deviceCase,
		fits:    func(p *gemm.Problem) error { return bench.FitsOn(backend.Device, p, options) },
		measure: func(ctx context.Context, c bench.Case) ([]bench.Record, error) {
			kernels := kernelsOf(&c.Problem)
			if f.choice {
				compileAll(ctx, &c.Problem, kernels)
			}
			records, err := measure(ctx, backend.Device, c, kernels, others, options)
			return records, err
		},
		close: g.close,
	}, nil
}

// benchGPU is a GPU and its kernels to measure.
type benchGPU struct {
	backend *stream.Backend
	picks   []pick
	closers []func() error // called by close, the last first
}

// pickGPU returns the backend and its kernels to measure. It takes ownership of the backend as
// onDevice does.
func (f *benchFlags) pickGPU(at backend.DeviceName, backend *stream.Backend, release func() error,
	problems []gemm.Problem, stderr io.Writer) (g *benchGPU, err error) {
	g = &benchGPU{backend: backend, closers: []func() error{release}}
	g.picks, err = f.picks(at, problems, func(p *gemm.Problem, kernel string) (string, error) {
		kernel, precision := splitPrecision(kernel)
		q, err := p.WithPrecision(precision)
		if err != nil {
			return "", err
		}
		plan, err := gpu.PlanResident(backend.Backend, &q, gpuOptions(kernel, true))
		if err != nil {
			return "", err
		}
		return plan.Kernel.Name, nil
	}, stderr)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// splitPrecision splits a kernel's name, which may end with a tile, from its precision:
// "mma-tf32:128x256x16/8x16/4" becomes "mma:128x256x16/8x16/4" and TF32.
func splitPrecision(kernel string) (string, gemm.Precision) {
	name, shape, shaped := strings.Cut(kernel, ":")
	for _, p := range gemm.Precisions() {
		if base, ok := strings.CutSuffix(name, "-"+p.String()); ok {
			if shaped {
				base += ":" + shape
			}
			return base, p
		}
	}
	return kernel, gemm.Native
}

// gpuOptions returns the options for a kernel that may be followed by a tile, such as "tiled:16".
func gpuOptions(kernel string, keepLayout bool) exec.Options {
	o := gpu.Options(kernel)
	o.KeepLayout = keepLayout
	return o
}

// close releases the backend and the libraries, the last opened first.
func (g *benchGPU) close() error {
	var err error
	for i := len(g.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, g.closers[i]())
	}
	return err
}

func (g *benchGPU) environment() *bench.Environment {
	e := bench.Host()
	info := g.backend.Device.Info()
	e.GPU, e.StagingThreads, e.StagingBytes = info.Name, info.Staging.Threads, int64(info.Staging.BufferBytes)
	if info.Emulated {
		e.GPU += ", emulated"
	}
	if c, ok := g.backend.Device.(*cuda.GPU); ok {
		details := c.Details()
		e.GPUCache = int64(details.L2)
		e.Driver = strings.TrimSpace(cuda.DriverRelease() + " " + details.Driver)
	}
	return &e
}

// peak returns the rate of the data sheet in GFLOP/s, or 0 for GPUs without one and emulated GPUs.
func (g *benchGPU) peak(in dtype.Type, precision string, _ int) float64 {
	info := g.backend.Device.Info()
	m, err := model.Lookup(info.Name)
	if err != nil || info.Emulated {
		return 0
	}
	arithmetic, err := gemm.ParsePrecision(precision)
	if err != nil {
		return 0
	}
	units, products := explain.Rates(in, arithmetic)
	for _, r := range units {
		if peak, err := m.PeakRate(r); err == nil {
			return peak / float64(products) / 1e9
		}
	}
	return 0
}

// gpuSubject is a kernel that multiplies matrices in GPU memory.
type gpuSubject struct {
	name    string
	gpu     *exec.Backend
	options exec.Options
	inexact
	plan *exec.Plan // of the product that was prepared last
}

// inexact is the precision of a subject. It may be lower than that of the element type.
type inexact gemm.Precision

// Precision implements [bench.Inexact].
func (p inexact) Precision() bench.Precision {
	in := gemm.Precision(p)
	if in == gemm.Native {
		return bench.Precision{}
	}
	return bench.Precision{Name: in.String(), Roundoff: in.Info().Operand}
}

func (s *gpuSubject) Name() string { return s.name }

func (s *gpuSubject) Prepare(ctx context.Context, p *gemm.Problem, _ bench.Try) (bench.Enqueue, error) {
	plan, err := s.plans(p)
	if err != nil {
		return nil, err
	}
	s.plan = plan
	return compiled(ctx, plan)
}

// defaultGPUSubject computes a row-invariant product without row invariance.
type defaultGPUSubject struct{ gpuSubject }

func (s *defaultGPUSubject) Prepare(ctx context.Context, p *gemm.Problem, try bench.Try) (bench.Enqueue, error) {
	q := *p
	if q.Invariance == gemm.NotInvariant {
		return nil, errNotInvariant
	}
	q.Invariance = gemm.NotInvariant
	return s.gpuSubject.Prepare(ctx, &q, try)
}

// precision returns the precision of the first kernel to measure.
func (g *benchGPU) precision() inexact {
	if len(g.picks) == 0 {
		return inexact(gemm.Native)
	}
	_, precision := splitPrecision(g.picks[0].kernel)
	return inexact(precision)
}

// plans returns the plan of a product in the subject's precision.
func (s *gpuSubject) plans(p *gemm.Problem) (*exec.Plan, error) {
	q, err := p.WithPrecision(gemm.Precision(s.inexact))
	if err != nil {
		return nil, err
	}
	return gpu.PlanResident(s.gpu, &q, s.options)
}

// devicePlan is a plan for matrices on a GPU.
type devicePlan interface {
	Compile(ctx context.Context) error
	Enqueue(ctx context.Context, m kernel.Memory) error
}

// compiled compiles the kernels of plan and returns a function that enqueues the product.
func compiled(ctx context.Context, plan devicePlan) (bench.Enqueue, error) {
	if err := plan.Compile(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m bench.Matrices) error {
		return plan.Enqueue(ctx, kernel.Memory(m))
	}, nil
}

func (s *gpuSubject) String() string { return planText(s.plan) }

// Intensity returns the arithmetic intensity of the product that was prepared last.
func (s *gpuSubject) Intensity() float64 {
	if s.plan == nil {
		return 0
	}
	return explain.Intensity(s.plan.Kernel, s.plan.Config.Tile, s.plan.Problem())
}

// Predicted implements [bench.Predictor].
func (s *gpuSubject) Predicted() float64 {
	if s.plan == nil {
		return 0
	}
	return s.plan.Cycles
}

func planText(p *exec.Plan) string {
	if p == nil {
		return ""
	}
	return p.Kernel.Name + " " + p.Config.String()
}

// gpuPeers opens the peers of --peers. Closing g closes them.
func (f *benchFlags) gpuPeers(ctx context.Context, g *benchGPU, stderr io.Writer) ([]bench.DeviceSubject, error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	var lt *peers.CuBLASLt
	var subjects []bench.DeviceSubject
	for _, name := range f.peerNames([]string{ltPeer}) {
		kind, spec, _ := strings.Cut(name, ":")
		s := &ltSubject{name: name}
		switch kind {
		case kernelPeer:
			if paths[kernelPeer] == "" {
				return nil, fmt.Errorf("--peers %s: no file for the kernel, want --peer-path %s=FILE.ptx",
					name, kernelPeer)
			}
			k, err := baseline.OpenKernel(ctx, g.backend.Device, paths[kernelPeer], spec)
			if err != nil {
				return nil, fmt.Errorf("--peers: %w", err)
			}
			g.closers = append(g.closers, k.Close)
			subjects = append(subjects, &kernelSubject{k})
			continue
		case densePeer:
			subjects = append(subjects, &denseSubject{gpu: g.backend.Backend})
			continue
		case defaultPeer:
			subjects = append(subjects, &defaultGPUSubject{gpuSubject{name: defaultPeer, gpu: g.backend.Backend,
				options: gpuOptions("", true), inexact: g.precision()}})
			continue
		case thenPeer:
			subjects = append(subjects, &thenSubject{gpu: g.backend.Backend})
			continue
		case ltPeer, ltTF32Peer, ltFirstPeer, ltFirstTF32Peer:
			s.first = strings.HasPrefix(name, ltFirstPeer)
			if strings.HasSuffix(name, peers.TF32.Name) {
				s.arithmetic = peers.TF32
			}
		default:
			return nil, unknownPeer(name, peersOnGPU)
		}
		if lt == nil {
			if lt, err = peers.OpenCuBLASLt(g.backend.Device, paths[ltPeer]); err != nil {
				if f.mayLack(err) {
					fmt.Fprintf(stderr, "peer %v\n", err)
					continue
				}
				return nil, fmt.Errorf("--peers: %w", err)
			}
			g.closers = append(g.closers, lt.Close)
			fmt.Fprintf(stderr, "peer %v (%s)\n", lt, lt.Path)
		}
		s.library = lt
		g.closers = append(g.closers, s.close)
		subjects = append(subjects, s)
	}
	return subjects, nil
}

// ltSubject is cuBLASLt. For each product it measures the algorithms that cuBLASLt proposes, and
// uses the fastest, or uses the first one as most programs do.
type ltSubject struct {
	name       string
	library    *peers.CuBLASLt
	arithmetic peers.Arithmetic
	first      bool
	plan       *peers.LtPlan
}

func (s *ltSubject) Name() string { return s.name }

func (s *ltSubject) Precision() bench.Precision {
	return bench.Precision{Name: s.arithmetic.Name, Roundoff: s.arithmetic.Roundoff}
}

func (s *ltSubject) Prepare(_ context.Context, p *gemm.Problem, try bench.Try) (bench.Enqueue, error) {
	if err := s.close(); err != nil {
		return nil, err
	}
	plan, err := s.library.Plan(p, s.arithmetic)
	if err != nil {
		return nil, err
	}
	s.plan = plan
	enqueue := func(run peers.LtEnqueue) bench.Enqueue {
		return func(ctx context.Context, m bench.Matrices) error {
			return run(ctx, peers.LtMemory{
				A: m[gemm.A], B: m[gemm.B], C: m[gemm.C], Bias: m[gemm.Bias],
				Residual: m[gemm.Residual], ScaleA: m[gemm.ScaleA], ScaleB: m[gemm.ScaleB],
			})
		}
	}
	if !s.first {
		err = plan.Choose(func(run peers.LtEnqueue) (float64, error) { return try(enqueue(run)) })
	}
	return enqueue(plan.Enqueue), err
}

func (s *ltSubject) String() string {
	if s.plan == nil {
		return s.library.String()
	}
	return s.plan.String()
}

func (s *ltSubject) close() error {
	if s.plan == nil {
		return nil
	}
	err := s.plan.Close()
	s.plan = nil
	return err
}

// thenSubject computes a product without its epilogue, and the epilogue in a second launch.
type thenSubject struct {
	gpu  *exec.Backend
	plan *baseline.Unfused
}

func (s *thenSubject) Name() string { return thenPeer }

// Precision returns the roundoff of bfloat16: the product is rounded to the type of C, at worst
// bfloat16, before its epilogue.
func (s *thenSubject) Precision() bench.Precision {
	return bench.Precision{Roundoff: dtype.BF16.Info().Roundoff}
}

func (s *thenSubject) Prepare(ctx context.Context, p *gemm.Problem, _ bench.Try) (bench.Enqueue, error) {
	if p.Epilogue == (gemm.Epilogue{}) {
		return nil, fmt.Errorf("%w: peer %s without --epilogue", gemm.ErrUnsupported, thenPeer)
	}
	plan, err := baseline.PlanUnfused(s.gpu, p, gpuOptions("", true))
	if err != nil {
		return nil, err
	}
	s.plan = plan
	return compiled(ctx, plan)
}

func (s *thenSubject) String() string {
	if s.plan == nil {
		return ""
	}
	return planText(s.plan.Plan) + ", then " + s.plan.Problem().Epilogue.String()
}

// kernelSubject is a kernel from a PTX file.
type kernelSubject struct{ *baseline.Kernel }

func (s kernelSubject) Name() string { return kernelPeer + ":" + s.Entry }

func (s kernelSubject) Prepare(_ context.Context, p *gemm.Problem, _ bench.Try) (bench.Enqueue, error) {
	if err := s.CheckSupported(p); err != nil {
		return nil, err
	}
	return func(ctx context.Context, m bench.Matrices) error {
		return s.Enqueue(ctx, p, m[gemm.A], m[gemm.B], m[gemm.C])
	}, nil
}
