package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/cpu"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
	"tilework/internal/peers"
)

// benchFlags are the flags of `tilework bench`.
type benchFlags struct {
	kernels, sizes, shapes, dtypes, device, peers string
	peerPath                                      []string
	threads                                       int
	transA, transB, cold                          bool
	minTime, maxTime                              time.Duration
	seed                                          uint64
	format, out                                   string
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the kernels, beside other libraries in the same run",
		Long: `bench times kernels on shapes, in turns with the peers, after it has checked each
result against a float64 reference; a wrong result gets no time and exit code 1.
A ratio above 1 means that the kernel is faster than the peer.

Peers are opened where they are installed: ` + strings.Join(peerNames(), ", ") + `.`,
		Example: `  tilework bench --sizes 64,256,1024
  tilework bench --sizes 64:1024:*2 --peers all --threads 1
  tilework bench --shapes 1x768x3072,7x513x1025 --dtypes float32,bfloat16 --cold
  tilework bench --kernels all --sizes 256 --format csv > bench.csv
  tilework bench --sizes 512 --format bench | benchstat /dev/stdin`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.kernels, "kernels", "", "kernels to measure, or all (default: what `mul` would use)")
	fl.StringVar(&f.sizes, "sizes", "", "sizes N of square products: 64,256 or 64:1024:*2 or 64:512:+64 (default: 64,256,1024)")
	fl.StringVar(&f.shapes, "shapes", "", "shapes MxNxK: 1x768x3072,64x64x512")
	fl.StringVar(&f.dtypes, "dtypes", "float32", "element types of A and B")
	fl.StringVar(&f.device, "device", "cpu", "where to measure; on a GPU with the copies there and back")
	fl.StringVar(&f.peers, "peers", "", "libraries to compare with, or all that are installed")
	fl.StringArrayVar(&f.peerPath, "peer-path", nil, "NAME=FILE: open that peer from this file")
	fl.IntVar(&f.threads, "threads", 0, "threads of kernels and peers (default: all)")
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	fl.BoolVar(&f.cold, "cold", false, "read the operands from memory, not from the cache")
	fl.DurationVar(&f.minTime, "min-time", 200*time.Millisecond, "time each subject for at least this long")
	fl.DurationVar(&f.maxTime, "max-time", 10*time.Second, "and for at most this long, a single product apart")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random operands")
	fl.StringVarP(&f.out, "out", "o", "", "append the records to this file as well, one JSON object a line")
	formats := bench.Formats()
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = format.Name
	}
	formatFlag(c, &f.format, names...)
	complete(c, "kernels", append(kernelNames(), "all")...)
	complete(c, "peers", append(peerNames(), "all")...)
	complete(c, "dtypes", typeNames()...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

func peerNames() []string {
	var names []string
	for _, l := range peers.Libraries() {
		names = append(names, l.Name)
	}
	return names
}

func (f *benchFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	problems, err := f.problems()
	if err != nil {
		return err
	}
	kernels, err := f.kernelSubjects(problems)
	if err != nil {
		return err
	}
	others, err := f.peerSubjects(stderr)
	if err != nil {
		return err
	}
	format, err := bench.FindFormat(f.format)
	if err != nil {
		return err
	}
	write := func([]bench.Record) error { return nil }
	if f.out != "" {
		file, err := os.OpenFile(f.out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		jsonl, err := bench.FindFormat("jsonl")
		if err != nil {
			return err
		}
		write = func(r []bench.Record) error { return jsonl.Write(file, r) }
	}

	options := bench.Options{MinTime: f.minTime, MaxTime: f.maxTime, Seed: f.seed, Cold: f.cold}
	if f.device == "cpu" {
		options.Peak = newPeaks().rate
	}
	bar := newProgress(stderr)
	var all []bench.Record
	var failed error
	for i, p := range problems {
		records, err := bench.Measure(ctx, bench.Case{Problem: p, Device: f.device, Threads: f.threads, Transfers: f.device != "cpu"}, kernels, others, options)
		all = append(all, records...)
		if err := write(records); err != nil {
			return err
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
		bar.update(int64(i+1), int64(len(problems)))
	}
	bar.close()
	// What was measured before an interruption or a wrong result is printed.
	return errors.Join(format.Write(stdout, all), failed)
}

// problems is the list of products to measure.
func (f *benchFlags) problems() ([]gemm.Problem, error) {
	var shapes []bench.Shape
	if f.sizes == "" && f.shapes == "" {
		f.sizes = "64,256,1024"
	}
	if f.sizes != "" {
		sizes, err := bench.ParseSizes(f.sizes)
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		for _, n := range sizes {
			shapes = append(shapes, bench.Cube(n))
		}
	}
	if f.shapes != "" {
		more, err := bench.ParseShapes(f.shapes)
		if err != nil {
			return nil, fmt.Errorf("--shapes: %w", err)
		}
		shapes = append(shapes, more...)
	}
	var problems []gemm.Problem
	for name := range strings.SplitSeq(f.dtypes, ",") {
		t, err := dtype.Parse(strings.TrimSpace(name))
		if err != nil {
			return nil, fmt.Errorf("--dtypes: %w", err)
		}
		results := t.Info().Results
		if len(results) == 0 {
			return nil, fmt.Errorf("--dtypes: %w: matrices of %v cannot be multiplied", gemm.ErrUnsupported, t)
		}
		for _, s := range shapes {
			p, err := s.Problem(t, results[0], f.transA, f.transB)
			if err != nil {
				return nil, err
			}
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// subject is one of our kernels as bench sees it.
type subject struct {
	name    string
	request dispatch.Request
}

func (s *subject) Name() string { return s.name }

func (s *subject) Prepare(p *gemm.Problem) (func(gemm.Buffers) error, error) {
	request := s.request
	request.Problem = p
	plan, err := dispatch.New(request)
	if err != nil {
		return nil, err
	}
	return func(b gemm.Buffers) error { return plan.Run(context.Background(), b) }, nil
}

func (f *benchFlags) kernelSubjects(problems []gemm.Problem) ([]bench.Subject, error) {
	device, err := dispatch.ParseDevice(f.device)
	if err != nil {
		return nil, fmt.Errorf("--device: %w", err)
	}
	if f.threads < 0 {
		return nil, fmt.Errorf("--threads %d: want 1 or more, or 0 for all", f.threads)
	}
	if err := device.Check(); err != nil {
		return nil, err
	}
	request := dispatch.Request{Device: device, Threads: f.threads}
	if f.kernels == "" {
		// The subject carries the name of what is chosen, if that is the same throughout.
		name := ""
		for i := range problems {
			request.Problem = &problems[i]
			plan, err := dispatch.New(request)
			if err != nil {
				return nil, err
			}
			if name != "" && name != plan.Kernel {
				name = "tilework"
				break
			}
			name = plan.Kernel
		}
		return []bench.Subject{&subject{name, request}}, nil
	}
	var subjects []bench.Subject
	for _, k := range dispatch.Kernels(device) {
		if f.kernels == "all" && k.Available {
			request.Kernel = k.Name
			subjects = append(subjects, &subject{k.Name, request})
		}
	}
	if f.kernels == "all" {
		return subjects, nil
	}
	for name := range strings.SplitSeq(f.kernels, ",") {
		name = strings.TrimSpace(name)
		request.Kernel, request.Problem = name, &problems[0]
		if _, err := dispatch.New(request); err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		subjects = append(subjects, &subject{name, request})
	}
	return subjects, nil
}

func (f *benchFlags) peerSubjects(stderr io.Writer) ([]bench.Subject, error) {
	paths := map[string]string{}
	for _, p := range f.peerPath {
		name, file, ok := strings.Cut(p, "=")
		if !ok || !slices.Contains(peerNames(), name) {
			return nil, fmt.Errorf("--peer-path %s: want NAME=FILE, NAME being one of %s", p, strings.Join(peerNames(), ", "))
		}
		paths[name] = file
	}
	wanted := strings.Split(f.peers, ",")
	switch f.peers {
	case "":
		wanted = nil
	case "all":
		wanted = peerNames()
	}
	var subjects []bench.Subject
	for _, name := range wanted {
		p, err := peers.Open(strings.TrimSpace(name), peers.Options{Path: paths[name], Threads: f.threads})
		switch {
		case err == nil:
			fmt.Fprintf(stderr, "peer %v\n", p)
			if caveat := p.Caveat(); caveat != "" {
				fmt.Fprintf(stderr, "  note: %s\n", caveat)
			}
			subjects = append(subjects, p)
		case f.peers == "all" && errors.Is(err, peers.ErrNotFound):
			fmt.Fprintf(stderr, "peer %s is not installed\n", name)
		default:
			return nil, fmt.Errorf("--peers: %w", err)
		}
	}
	return subjects, nil
}

// peaks remembers the measured peak of one core for each type.
type peaks map[dtype.Type]float64

func newPeaks() peaks { return peaks{} }

// rate is the peak of that many threads, 0 standing for all, as the same multiple
// of one core's.
func (p peaks) rate(in dtype.Type, _ string, threads int) float64 {
	one, known := p[in]
	if !known {
		one = cpu.Peak(in.Info().Accum)
		p[in] = one
	}
	return one * float64(cpu.Workers(threads))
}
