package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tilework/dtype"
	"tilework/internal/bench"
	"tilework/internal/dispatch"
	"tilework/internal/gemm"
)

// benchFlags are the flags of `tilework bench`.
type benchFlags struct {
	kernels, sizes, shapes, suite, dtypes, device, peers string
	peerPath                                             []string
	threads                                              int
	transA, transB, transfers                            bool
	cold                                                 choice
	minTime, maxTime, warmup                             time.Duration
	seed                                                 uint64
	format, out                                          string
}

func benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the kernels, beside other libraries in the same run",
		Long: `bench times kernels on shapes, in turns with the peers, after it has checked each
result against a float64 reference; a wrong result gets no time and exit code 1.
A ratio above 1 means that the kernel is faster than the peer.

On a GPU the matrices are there, in as many copies as outgrow its L2 cache twice, and
its own events tell the time; with --transfers they are in the host's memory, and the
copies there and back are timed too.

Peers are opened where they are installed: on the processor ` + strings.Join(libraryNames(), ", ") + `;
on a GPU ` + ltPeer + `, with the fastest of the algorithms that it proposes, ` + ltTF32Peer + `, and
with --peer-path ` + kernelPeer + `=FILE.ptx a kernel of your own: ` + kernelPeer + `:ENTRY:ROWSxCOLS/XxY, the part of C
that a block computes and its threads (see docs/results/reference).`,
		Example: `  tilework bench --sizes 64,256,1024
  tilework bench --sizes 64:1024:*2 --peers all --threads 1
  tilework bench --shapes 1x768x3072,7x513x1025 --dtypes float32,bfloat16 --cold
  tilework bench --kernels all --sizes 256 --format csv > bench.csv
  tilework bench --sizes 512 --format bench | benchstat /dev/stdin
  tilework bench --device gpu --kernels naive,tiled:16,blocked --peers cublaslt
  tilework bench --device gpu --suite fp32 --peers cublaslt,cublaslt-tf32 -o h200.jsonl
  tilework bench --device gpu --transfers --sizes 64:8192:*2`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.kernels, "kernels", "", "kernels to measure, all, or none (default: what mul would use)")
	fl.StringVar(&f.sizes, "sizes", "", "sizes N of square products: 64,256 or 64:1024:*2 or 64:512:+64 (default: 64,256,1024)")
	fl.StringVar(&f.shapes, "shapes", "", "shapes MxNxK: 1x768x3072,64x64x512")
	fl.StringVar(&f.suite, "suite", "", "a list of shapes by its name: "+strings.Join(bench.Suites(), ", "))
	fl.StringVar(&f.dtypes, "dtypes", "float32", "element types of A and B")
	fl.StringVar(&f.device, "device", "cpu", "where to measure: cpu, gpu, gpu:N, emu, emu:MODEL")
	fl.StringVar(&f.peers, "peers", "", "libraries to compare with, or all that are installed")
	fl.StringArrayVar(&f.peerPath, "peer-path", nil, "NAME=FILE: open that peer from this file")
	fl.IntVar(&f.threads, "threads", 0, "threads of kernels and peers (default: all)")
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	fl.BoolVar(&f.transfers, "transfers", false, "on a GPU: from the host's memory and back to it")
	fl.Var(&f.cold, "cold", "read the operands from memory, not from the cache (default: on a GPU only)")
	fl.Lookup("cold").NoOptDefVal = "true"
	fl.DurationVar(&f.minTime, "min-time", 200*time.Millisecond, "time each subject for at least this long")
	fl.DurationVar(&f.maxTime, "max-time", 10*time.Second, "and for at most this long, a single product apart")
	fl.DurationVar(&f.warmup, "warmup", 0, "run each subject for so long before it is timed (default: 20ms, on a GPU 200ms)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random operands")
	fl.StringVarP(&f.out, "out", "o", "", "append the records to this file as well, one JSON object a line")
	formats := bench.Formats()
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = format.Name
	}
	formatFlag(c, &f.format, names...)
	complete(c, "kernels", append(kernelNames(), "all", "none")...)
	complete(c, "peers", append(libraryNames(), ltPeer, ltTF32Peer, "all")...)
	complete(c, "suite", bench.Suites()...)
	complete(c, "dtypes", typeNames()...)
	complete(c, "device", "cpu", "gpu", "emu")
	return c
}

// pathNames are the peers that --peer-path can name.
func pathNames() []string { return append(libraryNames(), ltPeer, kernelPeer) }

// choice is a flag that is true, false or not given.
type choice struct{ set, value bool }

func (c *choice) String() string { return strconv.FormatBool(c.value) }
func (c *choice) Type() string   { return "bool" }

func (c *choice) Set(text string) (err error) {
	c.set = true
	c.value, err = strconv.ParseBool(text)
	return err
}

// bencher measures products, as one kind of device needs it.
type bencher struct {
	measure func(ctx context.Context, p gemm.Problem) ([]bench.Record, error)
	close   func() error
}

func (f *benchFlags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	problems, err := f.problems()
	if err != nil {
		return err
	}
	if f.kernels == "none" && f.peers == "" {
		return fmt.Errorf("--kernels none without --peers: nothing to measure")
	}
	if f.threads < 0 {
		return fmt.Errorf("--threads %d: want 1 or more, or 0 for all", f.threads)
	}
	device, err := dispatch.ParseDevice(f.device)
	if err != nil {
		return fmt.Errorf("--device: %w", err)
	}
	open := f.onProcessor
	switch {
	case device.IsGPU() && f.transfers:
		open = f.throughGPU
	case device.IsGPU():
		open = f.onGPU
	case f.transfers:
		return fmt.Errorf("--transfers: there are no copies on %s (want --device gpu)", f.device)
	}
	b, err := open(ctx, device, problems, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
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

	if device.Kind == "emu" {
		fmt.Fprintln(stderr, "the GPU is emulated: the times are this machine's, not a GPU's")
	}
	bar := newProgress(stderr)
	var all []bench.Record
	var failed error
	for i, p := range problems {
		records, err := b.measure(ctx, p)
		all = append(all, records...)
		if err := write(records); err != nil {
			return err
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil || errors.Is(err, gemm.ErrNoDevice) {
			break
		}
		bar.update(int64(i+1), int64(len(problems)))
	}
	bar.close()
	// What was measured before an interruption or a wrong result is printed.
	return errors.Join(format.Write(stdout, all), failed)
}

// options are those that all devices share.
func (f *benchFlags) options() bench.Options {
	return bench.Options{MinTime: f.minTime, MaxTime: f.maxTime, Warmup: f.warmup, Seed: f.seed, Cold: f.cold.value}
}

// problems is the list of products to measure.
func (f *benchFlags) problems() ([]gemm.Problem, error) {
	var shapes []bench.Shape
	if f.sizes == "" && f.shapes == "" && f.suite == "" {
		f.sizes = "64,256,1024"
	}
	if f.suite != "" {
		samples, err := bench.Suite(f.suite)
		if err != nil {
			return nil, fmt.Errorf("--suite: %w", err)
		}
		for _, s := range samples {
			shapes = append(shapes, s.Shape)
		}
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

// pick is a kernel to measure.
type pick struct {
	name   string // in the records
	kernel string // as --kernels has it; empty: what is chosen for each product
}

// picks lists what --kernels asks for. plan plans a product with a kernel, or with one
// of its own choice, and says which.
func (f *benchFlags) picks(device dispatch.Device, problems []gemm.Problem, plan func(p *gemm.Problem, kernel string) (string, error)) ([]pick, error) {
	switch f.kernels {
	case "none":
		return nil, nil
	case "":
		// It carries the name of what is chosen, if that is the same throughout.
		name := ""
		for i := range problems {
			chosen, err := plan(&problems[i], "")
			if err != nil {
				return nil, err
			}
			if name != "" && name != chosen {
				name = "tilework"
				break
			}
			name = chosen
		}
		return []pick{{name, ""}}, nil
	case "all":
		var all []pick
		for _, k := range dispatch.Kernels(device) {
			if k.Available {
				all = append(all, pick{k.Name, k.Name})
			}
		}
		return all, nil
	}
	var all []pick
	for name := range strings.SplitSeq(f.kernels, ",") {
		name = strings.TrimSpace(name)
		if _, err := plan(&problems[0], name); err != nil {
			return nil, fmt.Errorf("--kernels: %w", err)
		}
		all = append(all, pick{name, name})
	}
	return all, nil
}

// paths are the files of --peer-path, by the names of peers.
func (f *benchFlags) paths() (map[string]string, error) {
	paths := map[string]string{}
	for _, p := range f.peerPath {
		name, file, ok := strings.Cut(p, "=")
		if !ok || !slices.Contains(pathNames(), name) {
			return nil, fmt.Errorf("--peer-path %s: want NAME=FILE, NAME being one of %s", p, strings.Join(pathNames(), ", "))
		}
		paths[name] = file
	}
	return paths, nil
}

// wanted lists what --peers asks for, of these where it is all.
func (f *benchFlags) wanted(all []string) []string {
	switch f.peers {
	case "":
		return nil
	case "all":
		return all
	}
	names := strings.Split(f.peers, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
	}
	return names
}
