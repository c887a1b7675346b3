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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tilework/dtype"
	"tilework/internal/backend"
	"tilework/internal/bench"
	"tilework/internal/gemm"
)

// benchFlags are the flags of `tilework bench`.
type benchFlags struct {
	preset                                               string
	kernels, sizes, shapes, suite, dtypes, device, peers string
	epilogues, scales, outType                           string
	peerPath                                             []string
	threads                                              int
	transA, transB, transfers, packed                    bool
	batch                                                int
	groups                                               string
	cold                                                 choice
	minTime, maxTime, warmup                             time.Duration
	seed                                                 uint64
	output                                               listFlags
	out, resume                                          string
	force                                                bool

	// Of a preset's part: what it is, and whether what the machine lacks for it is left
	// out.
	about    string
	optional bool
}

func benchCommand() *cobra.Command { return benchCommandOf(new(benchFlags)) }

// benchCommandOf is the command with its flags kept in f.
func benchCommandOf(f *benchFlags) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the kernels, beside other libraries in the same run",
		Long: `bench times kernels on shapes, in turns with the peers. Before it times one, and after,
it checks a result against a float64 reference; a wrong one gets no time and exit code 1.

The column × PEER is the peer's time divided by the kernel's in the same round, as a median
over all rounds: above 1 the kernel is faster. Disturbances of both cancel in it, so it can
differ from the quotient of the two medians. A ? marks a figure that is too uncertain to
rely on: its 95 % confidence interval is wider than ±10 %, or it has fewer than three
timings.

On a GPU the matrices are there, in as many copies as outgrow its L2 cache twice, and
its own events tell the time; with --transfers they are in the host's memory, and the
copies there and back are timed too. An emulated GPU has no times: what its kernels do is
counted, in instructions, operations, bytes, sectors and bank conflicts.

Presets are studies; a flag that is given beside one replaces its own:
` + presetHelp() + `
What the machine lacks for a part of a preset, as a GPU, is left out, which is said.

Peers are opened where they are installed: on the processor ` + strings.Join(libraryNames(), ", ") + `,
` + readPeer + `, which reads B and multiplies nothing, as a product with few rows nearly does, and ` + plainPeer + `,
our own product without its --epilogue;
on a GPU ` + ltPeer + `, with the fastest of the algorithms that it proposes, ` + ltTF32Peer + `,
` + thenPeer + `, our own product without its --epilogue and then that in a launch of its own,
beside --groups ` + densePeer + `, the chosen kernel's one product of as many operations, and
with --peer-path ` + kernelPeer + `=FILE.ptx a kernel of your own: ` + kernelPeer + `:ENTRY:ROWSxCOLS/XxY, the part of C
that a block computes and its threads (see docs/results/reference).

With -o, records are in the file as soon as they are made: what was measured before an
interruption or a crash stays, and --resume, with the same flags otherwise, goes on from
there. It refuses a file from another machine or another version.`,
		Example: `  tilework bench --preset quick
  tilework bench --preset study -o study.jsonl && tilework report study.jsonl -o study.html
  tilework bench --sizes 64..1024x2 --peers all --threads 1
  tilework bench --shapes 1x768x3072,7x513x1025 --dtypes float32,bfloat16 --cold
  tilework bench --packed --peers reading --shapes 1x4096x4096,16x4096x4096 --dtypes float32,int8 --cold
  tilework bench --kernels all --sizes 256 --format csv > bench.csv
  tilework bench --sizes 512 --format bench | benchstat /dev/stdin
  tilework bench --device gpu --kernels naive,tiled:16,blocked --peers cublaslt
  tilework bench --device gpu --suite fp32 --peers cublaslt,cublaslt-tf32 -o h200.jsonl
  tilework bench --device gpu --suite fp32 --peers cublaslt,cublaslt-tf32 --resume h200.jsonl
  tilework bench --device gpu --batch 64 --sizes 512 --dtypes bfloat16 --peers cublaslt
  tilework bench --device gpu --groups 8 --shapes 4096x14336x4096 --dtypes bfloat16 --transpose-b --peers dense
  tilework bench --device gpu --dtypes bfloat16 --sizes 4096 --epilogue bias-col,bias-col+gelu-tanh --peers cublaslt,then
  tilework bench --device gpu --transfers --sizes 64..8192x2
  tilework bench --device emu:t4 --kernels naive,tiled:16 --sizes 64`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.preset, "preset", "", "a study by its name: "+strings.Join(presetNames(), ", "))
	fl.StringVar(&f.kernels, "kernels", "", "kernels to measure, separated by commas: names, all, and auto for the choice of mul; or none (default: auto); mma-tf32 and auto-tf32 are in that precision")
	fl.StringVar(&f.sizes, "sizes", "", "sizes N of square products: 64,256 or 64..1024x2 or 64..512+64 (default: 64,256,1024, emulated 64,256)")
	fl.StringVar(&f.shapes, "shapes", "", "shapes MxNxK: 1x768x3072,64x64x512")
	fl.StringVar(&f.suite, "suite", "", "a list of shapes by its name: "+strings.Join(bench.Suites(), ", "))
	fl.StringVar(&f.dtypes, "dtypes", "float32", "element types of A and B")
	fl.StringVar(&f.device, "device", "cpu", "where to measure: cpu, gpu, gpu:N, or emu, emu:MODEL to count")
	fl.StringVar(&f.peers, "peers", "", "libraries to compare with, or all that are installed")
	fl.StringArrayVar(&f.peerPath, "peer-path", nil, "NAME=FILE: open that peer from this file")
	fl.IntVar(&f.threads, "threads", 0, "threads of kernels and peers (default: all)")
	fl.BoolVar(&f.transA, "transpose-a", false, "multiply with A transposed")
	fl.BoolVar(&f.transB, "transpose-b", false, "multiply with B transposed")
	fl.BoolVar(&f.packed, "packed", false, "on the processor: each kernel with a B that was packed before, too")
	fl.IntVar(&f.batch, "batch", 1, "on a GPU: so many products of each shape, in one launch")
	fl.StringVar(&f.groups, "groups", "", "on a GPU: M rows in so many equal groups, each with a B of its own, in one launch; or the groups' shares: 4,2,1,1")
	fl.StringVar(&f.epilogues, "epilogue", "", "what is done to each element of C, as bias-col+gelu: "+strings.Join(gemm.EpilogueParts(), ", ")+"; several with commas (default: none)")
	fl.StringVar(&f.scales, "block-scales", "", "of 8-bit floats, block scales of A and of B, as "+scalesExample+", or none; several with commas (default: none)")
	fl.StringVar(&f.outType, "out-dtype", "", "element type of C (default: the first of those that the type of A and B has)")
	fl.BoolVar(&f.transfers, "transfers", false, "on a GPU: from the host's memory and back to it")
	fl.Var(&f.cold, "cold", "read the operands from memory, not from the cache (default: on a GPU only)")
	fl.Lookup("cold").NoOptDefVal = "true"
	fl.DurationVar(&f.minTime, "min-time", 200*time.Millisecond, "time each subject for at least this long")
	fl.DurationVar(&f.maxTime, "max-time", 10*time.Second, "and for at most this long, a single product apart")
	fl.DurationVar(&f.warmup, "warmup", 0, "run each subject for so long before it is timed (default: 20ms, on a GPU 200ms)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random operands")
	fl.StringVarP(&f.out, "out", "o", "", "write the records to this file as well, one JSON object a line")
	fl.StringVar(&f.resume, "resume", "", "go on with this file of records: measure what it lacks, on the same machine")
	forceFlag(c, &f.force)
	exclusive(c, "out", "resume")
	exclusive(c, "batch", "groups")
	formats := bench.Formats()
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = format.Name
	}
	f.output.addTo(c, names...)
	complete(c, "preset", presetNames()...)
	complete(c, "kernels", append(append(subjectNames(backend.Device{}), autoNames(backend.Device{})...), "all", "none")...)
	complete(c, "peers", append(libraryNames(), readPeer, plainPeer, ltPeer, ltTF32Peer, thenPeer, densePeer, "all")...)
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

func (f *benchFlags) run(ctx context.Context, given *pflag.FlagSet, stdout, stderr io.Writer) (err error) {
	format, err := bench.FindFormat(f.output.format)
	if err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{"min-time": f.minTime, "max-time": f.maxTime, "warmup": f.warmup} {
		if d < 0 {
			return fmt.Errorf("--%s %v: want 0 or more", name, d)
		}
	}
	parts, err := f.parts(given)
	if err != nil {
		return err
	}
	s, err := openStudy(ctx, parts, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.openFile(f, stderr); err != nil {
		return err
	}
	records, failed := s.measure(ctx, newProgress(stderr))
	// What was measured before an interruption or a wrong result is printed.
	return errors.Join(format.Write(stdout, records, f.output.width(stdout)), failed)
}

// options are those that all devices share.
func (f *benchFlags) options() bench.Options {
	return bench.Options{MinTime: f.minTime, MaxTime: f.maxTime, Warmup: f.warmup, Seed: f.seed, Cold: f.cold.value}
}

// problems is the list of products to measure, of these sizes where none are given.
func (f *benchFlags) problems(sizes string) ([]gemm.Problem, error) {
	var shapes []bench.Shape
	if f.sizes == "" && f.shapes == "" && f.suite == "" {
		f.sizes = sizes
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
	epilogues, err := f.parseEpilogues()
	if err != nil {
		return nil, err
	}
	scales, err := f.parseScales()
	if err != nil {
		return nil, err
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
		out := results[0]
		if f.outType != "" {
			if out, err = dtype.Parse(f.outType); err != nil {
				return nil, fmt.Errorf("--out-dtype: %w", err)
			}
		}
		for _, s := range shapes {
			for _, e := range epilogues {
				for _, sides := range scales {
					p, err := s.Problem(t, out, f.transA, f.transB)
					if err == nil {
						p, _, err = gemm.New(p.Alpha, p.A, p.B, p.Beta, p.C, e)
					}
					if err == nil {
						p, err = scaled(p, sides)
					}
					if err == nil {
						p, err = f.together(p)
					}
					if err != nil {
						return nil, err
					}
					problems = append(problems, p)
				}
			}
		}
	}
	return problems, nil
}

// parseEpilogues reads --epilogue.
func (f *benchFlags) parseEpilogues() (list []gemm.Epilogue, err error) {
	if f.epilogues == "" {
		return []gemm.Epilogue{{}}, nil
	}
	if f.transfers {
		return nil, fmt.Errorf("--epilogue %s with --transfers: those are of the matrices alone", f.epilogues)
	}
	for text := range strings.SplitSeq(f.epilogues, ",") {
		e, err := gemm.ParseEpilogue(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--epilogue: %w%s", err, meantPart(text))
		}
		list = append(list, e)
	}
	return list, nil
}

// meantPart is what [meant] has for the first wrong part of an epilogue.
func meantPart(epilogue string) string {
	known := gemm.EpilogueParts()
	for part := range strings.SplitSeq(strings.TrimSpace(epilogue), "+") {
		if !slices.Contains(known, part) {
			return meant(part, known)
		}
	}
	return ""
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
